// SPDX-License-Identifier: GPL-2.0-only
/*
 * I/O ports that a cell has alone: an access by Linux is a fault there. A
 * driver that asks for them, or looks for its device there, is refused by Linux
 * meanwhile. Ports that a driver had before stay its own, or, where the realm
 * runs already, are refused.
 */
#include <linux/ioport.h>
#include <linux/list.h>
#include <linux/slab.h>

#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/* Ports that the realm got while it ran: to the hypervisor a device. Under crtos.lock. */
struct crtos_added_ports {
	struct list_head link;
	u32 cell;
	u16 number;			/* by which the hypervisor and the realm know it */
	struct resource *ports;
};

static LIST_HEAD(ranges);

/**
 * crtos_ports_reserve() - keep Linux's drivers away from a cell's ports
 * @cell: the cell that gets them
 * @create: what is asked for
 *
 * Context: Under crtos.lock; may sleep.
 */
void crtos_ports_reserve(struct crtos_cell *cell, const struct crtos_create_cell *create)
{
	u32 i;

	for (i = 0; i < create->port_count; i++) {
		const struct crtos_port_range *range = &create->ports[i];

		if (!(range->flags & CRTOS_PORT_EXCLUSIVE) || range->first > range->last)
			continue;
		cell->ports[i] = request_region(range->first, range->last - range->first + 1,
						"crtos");
	}
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

static int read_range(struct crtos_file *file, const char *name, unsigned int *first,
		      unsigned int *last)
{
	char end;

	if (sscanf(name, "%x-%x%c", first, last, &end) == 2 && *first <= *last && *last <= U16_MAX)
		return 0;
	return crtos_refuse(file, -EINVAL, "'%s' is no range of I/O ports", name);
}

static int give_to_hypervisor(struct crtos_file *file, const struct crtos_added_ports *range)
{
	struct crtos_device_config *config = kzalloc(sizeof(*config), GFP_KERNEL);
	s64 result;

	if (!config)
		return crtos_refuse(file, -ENOMEM, "out of memory");
	config->function = range->number;
	config->flags = CRTOS_DEVICE_PLATFORM | CRTOS_DEVICE_WITHOUT_MEMORY;
	config->ports[0].first = range->ports->start;
	config->ports[0].last = range->ports->end;
	result = crtos_hypercall(CRTOS_HC_DEVICE_ADD, range->cell, __pa(config), 0, 0);
	kfree(config);
	if (result == CRTOS_HV_OWNED)
		return crtos_refuse(file, -EBUSY,
				    "one of the ports is a cell's already, or one that the hypervisor watches");
	return result ? crtos_refuse_hv(file, result, "give the ports to the realm") : 0;
}

static void forget(struct crtos_added_ports *range)
{
	release_region(range->ports->start, resource_size(range->ports));
	list_del(&range->link);
	kfree(range);
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
	static const struct crtos_device_memory none[CRTOS_BASE_ADDRESSES];
	int number = crtos_platform_number();
	unsigned int first, last;
	struct crtos_added_ports *range;
	int error = read_range(file, name, &first, &last);

	if (error)
		return error;
	if (!cell->realm)
		return crtos_refuse(file, -EINVAL,
				    "cell '%s' is not the real-time realm: others get ports when they are created",
				    cell->name);
	range = kzalloc(sizeof(*range), GFP_KERNEL);
	if (!range || number < 0) {
		kfree(range);
		return crtos_refuse(file, -ENOMEM, "out of memory");
	}
	range->cell = cell->number;
	range->number = number;
	range->ports = request_region(first, last - first + 1, "crtos");
	if (!range->ports) {
		kfree(range);
		return crtos_refuse(file, -EBUSY,
				    "Linux or a cell uses one of the ports %s: see /proc/ioports, and unload its driver",
				    name);
	}
	list_add(&range->link, &ranges);
	error = give_to_hypervisor(file, range);
	if (error)
		goto out_forget;
	/* No file of Linux's leads to them. */
	error = crtos_wish_add(file, number, 0, 0, 0, none);
	if (!error)
		return number;
	crtos_hypercall(CRTOS_HC_DEVICE_REMOVE, range->cell, number, 0, 0);
out_forget:
	forget(range);
	return error;
}

/* Gives a range back to Linux; without @force only if no program may use one of its ports. */
static int return_range(struct crtos_file *file, struct crtos_added_ports *range,
			const char *name, bool force)
{
	int error = force ? 0 : crtos_wish_end(file, range->number, name);
	s64 result;

	if (error)
		return error;
	crtos_wish_drop(range->number);
	result = crtos_hypercall(CRTOS_HC_DEVICE_REMOVE, range->cell, range->number, 0, 0);
	if (result && result != CRTOS_HV_INVALID)
		return crtos_refuse_hv(file, result, "take the ports back");
	forget(range);
	return 0;
}

/**
 * crtos_ports_remove() - take I/O ports back that the realm got while it ran
 * @file: where a failure is explained
 * @cell: the cell
 * @name: as then
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then the realm still has them.
 */
int crtos_ports_remove(struct crtos_file *file, u32 cell, const char *name)
{
	unsigned int first, last;
	struct crtos_added_ports *range;
	int error = read_range(file, name, &first, &last);

	if (error)
		return error;
	list_for_each_entry(range, &ranges, link)
		if (range->cell == cell && range->ports->start == first &&
		    range->ports->end == last)
			return return_range(file, range, name, false);
	return crtos_refuse(file, -ENODEV, "the realm got no ports %s while it ran", name);
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
		error = range->cell == cell ? return_range(file, range, "", true) : 0;
		if (error)
			return error;
	}
	return 0;
}
