// SPDX-License-Identifier: GPL-2.0-only
/*
 * I/O ports that a cell has alone: an access by Linux is a fault there. A
 * driver that asks for them, or looks for its device there, is refused by Linux
 * meanwhile. Ports that a driver has already are refused.
 */
#include <linux/ioport.h>
#include <linux/list.h>
#include <linux/slab.h>

#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/*
 * I/O ports that the realm got while it ran: to the hypervisor a device. They are for programs, or
 * those of a device that the realm's kernel drives, which is described. Under crtos.lock.
 */
struct crtos_added_ports {
	struct list_head link;
	u32 cell;
	u16 number;			/* by which the hypervisor and the realm know it */
	int line;			/* Linux's interrupt that the device has, or 0 */
	struct resource *ports[2];	/* the second range of a device, or NULL */
	char name[CRTOS_DESCRIPTION_LEN];	/* of the device, or the range itself */
	char description[CRTOS_DESCRIPTION_LEN];	/* of the device, or empty */
};

static LIST_HEAD(ranges);

/* What crtos_wish_add() is told of the memory of a range. */
static const struct crtos_device_memory no_memory[CRTOS_BASE_ADDRESSES];

/* Takes ports that Linux does not use. */
static int take_range(struct crtos_file *file, u16 first, u16 last, struct resource **ports)
{
	*ports = request_region(first, last - first + 1, "crtos");
	if (*ports)
		return 0;
	return crtos_refuse(file, -EBUSY,
			    "[ports-in-use] Linux or another cell uses one of the ports 0x%x-0x%x: see /proc/ioports, and unload its driver",
			    first, last);
}

/**
 * crtos_ports_reserve() - keep Linux's drivers away from a cell's ports
 * @file: where a failure is explained
 * @cell: the cell that gets them; crtos_ports_return() gives them back, after a failure as well
 * @create: what is asked for
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error: a driver has one of them, and would fault there.
 */
int crtos_ports_reserve(struct crtos_file *file, struct crtos_cell *cell,
			const struct crtos_create_cell *create)
{
	int error = 0;
	u32 i;

	for (i = 0; i < create->port_count && !error; i++) {
		const struct crtos_port_range *range = &create->ports[i];

		/* The hypervisor refuses a range without ports. */
		if (range->flags & CRTOS_PORT_EXCLUSIVE && range->first <= range->last)
			error = take_range(file, range->first, range->last, &cell->ports[i]);
	}
	return error;
}

/**
 * crtos_ports_return() - let Linux's drivers have them again
 * @cell: the cell, which has them no more
 *
 * Context: Under crtos.lock.
 */
void crtos_ports_return(struct crtos_cell *cell)
{
	u32 i;

	for (i = 0; i < CRTOS_MAX_PORT_RANGES; i++) {
		if (cell->ports[i])
			release_region(cell->ports[i]->start, resource_size(cell->ports[i]));
		cell->ports[i] = NULL;
	}
}

/**
 * crtos_ports_have() - tell whether a range of ports has a number
 * @number: of a device that is no PCI function
 *
 * Context: Under crtos.lock.
 */
bool crtos_ports_have(u16 number)
{
	struct crtos_added_ports *range;

	list_for_each_entry(range, &ranges, link)
		if (range->number == number)
			return true;
	return false;
}

/* Takes a range of ports that Linux does not use: "378-37f". */
static int take_named(struct crtos_file *file, const char *text, struct resource **ports)
{
	unsigned int first, last;
	char end;

	if (sscanf(text, "%x-%x%c", &first, &last, &end) != 2 || first > last || last > U16_MAX)
		return crtos_refuse(file, -EINVAL,
				    "[bad-ports] '%s' is no range of I/O ports", text);
	return take_range(file, first, last, ports);
}

/* What is needed of a description: DRIVER,NAME,FIRST-LAST+FIRST-LAST,LINE,... */
struct fields {
	char text[CRTOS_DESCRIPTION_LEN];
	const char *name;
	char *ports;
	unsigned int line;
};

static int read_description(struct crtos_file *file, const char *text, struct fields *fields)
{
	char *rest = fields->text;
	const char *line;

	if (strscpy(fields->text, text, sizeof(fields->text)) < 0)
		return crtos_refuse(file, -EINVAL, "[bad-ports] the description is too long");
	strsep(&rest, ",");
	fields->name = strsep(&rest, ",");
	fields->ports = strsep(&rest, ",");
	line = strsep(&rest, ",");
	if (!line || !*fields->name || kstrtouint(line, 10, &fields->line))
		return crtos_refuse(file, -EINVAL, "[bad-ports] '%s' describes no device", text);
	return 0;
}

static int give_to_hypervisor(struct crtos_file *file, const struct crtos_added_ports *range)
{
	struct crtos_device_config *config = kzalloc(sizeof(*config), GFP_KERNEL);
	s64 result;
	int i;

	if (!config)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	config->function = range->number;
	config->flags = CRTOS_DEVICE_PLATFORM | CRTOS_DEVICE_WITHOUT_MEMORY;
	for (i = 0; i < ARRAY_SIZE(range->ports) && range->ports[i]; i++) {
		config->ports[i].first = range->ports[i]->start;
		config->ports[i].last = range->ports[i]->end;
	}
	result = crtos_hypercall(CRTOS_HC_DEVICE_ADD, range->cell, __pa(config), 0, 0);
	kfree(config);
	if (result == CRTOS_HV_OWNED)
		return crtos_refuse(file, -EBUSY,
				    "[ports-in-use] one of the ports is a cell's already, or one that the hypervisor watches");
	return result ? crtos_refuse_hv(file, result, "give the ports to the realm") : 0;
}

/* Takes the ports of a range, or of the device that is described, from Linux. */
static int take_ports(struct crtos_file *file, struct crtos_added_ports *range, char *ports)
{
	int error = 0, i;

	for (i = 0; i < ARRAY_SIZE(range->ports) && ports && !error; i++)
		error = take_named(file, strsep(&ports, "+"), &range->ports[i]);
	if (!error && ports)
		error = crtos_refuse(file, -EINVAL, "[cell-limit] there are too many ranges of I/O ports");
	return error;
}

static void take_line_back(struct crtos_added_ports *range)
{
	if (range->line)
		crtos_line_take_back(range->cell, range->line, range);
	range->line = 0;
}

static void forget(struct crtos_added_ports *range)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(range->ports) && range->ports[i]; i++)
		release_region(range->ports[i]->start, resource_size(range->ports[i]));
	list_del(&range->link);
	kfree(range);
}

static struct crtos_added_ports *find(u32 cell, const char *name, bool described)
{
	struct crtos_added_ports *range;

	list_for_each_entry(range, &ranges, link)
		if (range->cell == cell && !strcmp(range->name, name) &&
		    described == !!range->description[0])
			return range;
	return NULL;
}

/* Gives the realm ports and a line, if there is one, and has its kernel look at them. */
static int give(struct crtos_file *file, struct crtos_added_ports *range, char *ports, int line)
{
	int error = take_ports(file, range, ports);

	if (error)
		return error;
	error = give_to_hypervisor(file, range);
	if (error)
		return error;
	if (line) {
		error = crtos_line_give(file, range->cell, line, range);
		if (error)
			goto out_take;
		range->line = line;
	}
	/* No file of Linux's leads to them. */
	error = crtos_wish_add(file, range->number, 0, 0, line ? 1 + line : 0,
			       range->description, no_memory);
	if (!error)
		return 0;
	take_line_back(range);
out_take:
	crtos_hypercall(CRTOS_HC_DEVICE_REMOVE, range->cell, range->number, 0, 0);
	return error;
}

static int add(struct crtos_file *file, u32 cell, const char *name, const char *description,
	       char *ports, int line)
{
	int number = crtos_platform_number();
	struct crtos_added_ports *range = kzalloc(sizeof(*range), GFP_KERNEL);
	int error;

	if (!range || number < 0) {
		kfree(range);
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	}
	range->cell = cell;
	range->number = number;
	strscpy(range->name, name, sizeof(range->name));
	strscpy(range->description, description, sizeof(range->description));
	list_add(&range->link, &ranges);
	error = give(file, range, ports, line);
	if (!error)
		return number;
	forget(range);
	return error;
}

/**
 * crtos_ports_add() - give programs of the realm I/O ports while it runs
 * @file: where a failure is explained
 * @cell: which is not locked
 * @name: the first and the last one, "378-37f"
 *
 * Context: Under crtos.lock; may sleep.
 * Return: a number, or a negative error; then they are Linux's as before.
 */
int crtos_ports_add(struct crtos_file *file, const struct crtos_cell *cell, const char *name)
{
	char ports[CRTOS_DESCRIPTION_LEN];

	if (!cell->realm)
		return crtos_refuse(file, -EINVAL,
				    "[not-the-realm] cell '%s' is not the real-time realm: others get ports when they are created",
				    cell->name);
	if (strscpy(ports, name, sizeof(ports)) < 0 || strchr(ports, '+'))
		return crtos_refuse(file, -EINVAL,
				    "[bad-ports] '%s' is no range of I/O ports", name);
	return add(file, cell->number, name, "", ports, 0);
}

/**
 * crtos_described_add() - give the realm a device that its kernel drives by I/O ports
 * @file: where a failure is explained
 * @cell: which is not locked
 * @description: see struct crtos_wanted_device
 * @interrupts: whether it gets the device's line
 *
 * Context: Under crtos.lock; may sleep.
 * Return: a number, which it may have had before, or a negative error; then its ports and its line
 * are Linux's as before.
 */
int crtos_described_add(struct crtos_file *file, const struct crtos_cell *cell,
			const char *description, bool interrupts)
{
	const struct crtos_added_ports *there;
	struct fields fields;
	int error = read_description(file, description, &fields);

	if (error)
		return error;
	if (!cell->realm)
		return crtos_refuse(file, -EINVAL,
				    "[not-the-realm] cell '%s' is not the real-time realm, which alone drives '%s'",
				    cell->name, fields.name);
	there = find(cell->number, fields.name, true);
	if (there && !strcmp(there->description, description))
		return there->number;
	if (there)
		return crtos_refuse(file, -EEXIST,
				    "[device-taken] the realm has '%s' already", fields.name);
	return add(file, cell->number, fields.name, description, fields.ports,
		   interrupts ? fields.line : 0);
}

/*
 * Gives a range, or a device, back to Linux; without @force only if no program uses it. Its kernel
 * does not touch the ports any more then.
 */
static int return_range(struct crtos_file *file, struct crtos_added_ports *range, bool force)
{
	int error = force ? 0 : crtos_wish_end(file, range->number, range->name);
	s64 result;

	if (error)
		return error;
	crtos_wish_drop(range->number, no_memory);
	result = crtos_hypercall(CRTOS_HC_DEVICE_REMOVE, range->cell, range->number, 0, 0);
	if (result && result != CRTOS_HV_INVALID)
		return crtos_refuse_hv(file, result, "take the ports back");
	take_line_back(range);
	forget(range);
	return 0;
}

/**
 * crtos_ports_remove() - take I/O ports back that the realm got while it ran
 * @file: where a failure is explained
 * @cell: the cell
 * @name: as then, or the name of a device
 * @described: whether they are those of a device
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then the realm still has them.
 */
int crtos_ports_remove(struct crtos_file *file, u32 cell, const char *name, bool described)
{
	struct crtos_added_ports *range = find(cell, name, described);

	if (range)
		return return_range(file, range, false);
	return crtos_refuse(file, -ENODEV,
			    "[device-absent] the realm got no '%s' while it ran", name);
}

/**
 * crtos_ports_return_added() - give all such ports of a cell back to Linux
 * @file: where a failure is explained
 * @cell: the cell, which does not run
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then the cell still has some.
 */
int crtos_ports_return_added(struct crtos_file *file, u32 cell)
{
	struct crtos_added_ports *range, *next;
	int error;

	list_for_each_entry_safe(range, next, &ranges, link) {
		error = range->cell == cell ? return_range(file, range, true) : 0;
		if (error)
			return error;
	}
	return 0;
}
