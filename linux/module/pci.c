// SPDX-License-Identifier: GPL-2.0-only
/*
 * PCI functions that cells have. This driver has them in Linux meanwhile, so that no other one
 * does; it never touches them.
 */
#include <linux/delay.h>
#include <linux/device/driver.h>
#include <linux/iommu.h>
#include <linux/ioport.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/* How often a cell is asked for a function that is being destroyed, 1 ms or more apart. */
#define TRIES		1000

/* A function of a cell. Under crtos.lock. */
struct crtos_function {
	struct list_head link;			/* among those of all cells */
	struct pci_dev *dev;			/* with a reference */
	u32 cell;
	u16 number;				/* bus, device and function */
	bool reset;				/* it can be reset */
	bool realm;				/* the cell is the realm: programs drive it */
	struct crtos_uio *uio;			/* by which programs find it; taken by xchg() */
	struct crtos_vfio *vfio;		/* instead of that, if VFIO's driver has it */
	struct crtos_interface *interface;	/* by which Linux shows it; taken by xchg() */
	bool lost;				/* that driver has let it go; read without a lock */
	unsigned int line;			/* Linux's interrupt, by its pin, or 0 */
	struct iommu_group *shared;		/* with others; with a reference, or NULL */
	bool leaves;				/* it is about to be given back */
	bool clean;				/* it does nothing of what its cell had it do */
	struct pci_saved_state *before;		/* configuration space as Linux had it, or NULL */
	struct crtos_window window;		/* where the cell sees its memory */
	struct resource rest[CRTOS_BASE_ADDRESSES];	/* of the last page of its memory */
};

static LIST_HEAD(functions);

/* The one that the driver may have now; under crtos.lock. */
static struct pci_dev *expected;

static u16 number_of(const struct pci_dev *dev)
{
	return dev->bus->number << 8 | dev->devfn;
}

static int crtos_pci_probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	return dev == expected ? 0 : -ENODEV;
}

/* Programs do not find the function any more. */
static void hide(struct crtos_function *function)
{
	struct crtos_interface *interface = xchg(&function->interface, NULL);
	struct crtos_uio *uio = xchg(&function->uio, NULL);

	if (interface)
		crtos_interface_unregister(interface);
	if (function->vfio)
		crtos_wish_drop(function->number, function->window.memory);
	if (!uio)
		return;
	crtos_wish_drop(function->number, function->window.memory);
	crtos_uio_unregister(uio);
}

/*
 * Takes the function from a cell, if it has it, and waits for a cell that is being destroyed. Says
 * whether the cell does not have it: one that is locked keeps it.
 */
static bool leave(const struct pci_dev *dev, u32 cell)
{
	s64 result;
	int tries;

	for (tries = 0; tries < TRIES; tries++) {
		result = crtos_hypercall(CRTOS_HC_DEVICE_REMOVE, cell, number_of(dev), 0, 0);
		if (result != CRTOS_HV_BUSY)
			break;
		usleep_range(1000, 2000);
	}
	return !result || result == CRTOS_HV_INVALID || result == CRTOS_HV_NO_CELL;
}

/*
 * Has a function, which no cell has any more, do nothing of what a cell had it do. Under its lock,
 * before a driver of Linux's uses it.
 */
static void clean(struct crtos_function *function, struct pci_dev *dev)
{
	/* A function that is not there would be waited for. */
	if (function && function->reset && pci_device_is_present(dev))
		pci_reset_function_locked(dev);
	crtos_quiesce(dev);
	if (function)
		function->clean = true;
}

/* The machine loses the function, or its driver gives it back: no cell has it any more. */
static void lose(struct pci_dev *dev, struct crtos_function *function)
{
	bool left = true;
	u32 cell;

	for (cell = 0; cell < CRTOS_MAX_CELLS; cell++)
		left &= leave(dev, cell);
	/* The realm's kernel sees then that it is gone, also below programs. */
	if (function)
		hide(function);
	/*
	 * The hypervisor has it master the bus no more. Linux may find it again. What a cell keeps,
	 * Linux does not reach: take_back() sees to that.
	 */
	if (left)
		clean(function, dev);
}

static void crtos_pci_remove(struct pci_dev *dev)
{
	lose(dev, pci_get_drvdata(dev));
}

/* The same, where VFIO's driver has it. Under the function's lock. */
static void lose_vfio(struct pci_dev *dev, void *data)
{
	struct crtos_function *function = data;

	lose(dev, function);
	WRITE_ONCE(function->lost, true);
}

/* All, of which it takes the one that it is to have. */
static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(PCI_ANY_ID, PCI_ANY_ID) },
	{},
};

static struct pci_driver crtos_pci_driver = {
	.name = "crtos",
	.id_table = ids,
	.probe = crtos_pci_probe,
	.remove = crtos_pci_remove,
	.driver = {
		.suppress_bind_attrs = true,
	},
	.driver_managed_dma = true,
};

/**
 * crtos_pci_init() - register the driver, which has no function of its own accord
 *
 * Context: Module initialisation.
 * Return: 0 or a negative error.
 */
int crtos_pci_init(void)
{
	return pci_register_driver(&crtos_pci_driver);
}

/**
 * crtos_pci_exit() - undo crtos_pci_init()
 */
void crtos_pci_exit(void)
{
	pci_unregister_driver(&crtos_pci_driver);
}

static int check_bridges(struct crtos_file *file, struct pci_dev *dev)
{
	struct pci_dev *bridge;

	for (bridge = pci_upstream_bridge(dev); bridge; bridge = pci_upstream_bridge(bridge))
		if (!pci_is_pcie(bridge))
			return crtos_refuse(file, -EBUSY,
					    "[device-group] %s is behind a conventional bridge, for which the IOMMU takes it: use another slot",
					    pci_name(dev));
	return 0;
}

static int check_function(struct crtos_file *file, struct pci_dev *dev)
{
	if (pci_domain_nr(dev->bus))
		return crtos_refuse(file, -ENODEV, "[device-unfit] %s is in another PCI segment than 0",
				    pci_name(dev));
	if (dev->hdr_type != PCI_HEADER_TYPE_NORMAL)
		return crtos_refuse(file, -EINVAL, "[device-unfit] %s is a bridge", pci_name(dev));
	if (dev->is_virtfn || pci_num_vf(dev))
		return crtos_refuse(file, -EINVAL,
				    "[device-unfit] %s is a virtual function, or has some: cells get none",
				    pci_name(dev));
	if (dev->dma_alias_mask)
		return crtos_refuse(file, -EBUSY, "[device-group] %s masters the bus as other functions, too",
				    pci_name(dev));
	return check_bridges(file, dev);
}

/* The function of this name, with a reference. */
static struct pci_dev *find_function(struct crtos_file *file, const char *name)
{
	unsigned int domain, bus, slot, function;
	struct pci_dev *dev = NULL;
	char end;

	if (sscanf(name, "%x:%x:%x.%x%c", &domain, &bus, &slot, &function, &end) == 4 &&
	    domain <= U16_MAX && bus <= U8_MAX && slot < 32 && function < 8)
		dev = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, function));
	if (!dev)
		crtos_refuse(file, -ENODEV, "[device-absent] there is no PCI function '%s'", name);
	return dev;
}

/* Sees to it that nothing else is on the last page of the memory. */
static int take_rest(struct crtos_function *function, int i)
{
	struct resource *resource = &function->dev->resource[i];
	struct resource *rest = &function->rest[i];

	if (resource_size(resource) >= PAGE_SIZE)
		return 0;
	if (!resource->parent || resource->start & ~PAGE_MASK)
		return -EBUSY;
	rest->name = "crtos";
	rest->start = resource->end + 1;
	rest->end = resource->start + PAGE_SIZE - 1;
	rest->flags = resource->flags;
	return request_resource(resource->parent, rest);
}

static void give_rest(struct crtos_function *function)
{
	int i;

	for (i = 0; i < CRTOS_BASE_ADDRESSES; i++)
		if (function->rest[i].parent)
			release_resource(&function->rest[i]);
}

/* Describes what the function has. It is among those of all cells. */
static int describe(struct crtos_file *file, struct crtos_function *function,
		    struct crtos_device_config *config)
{
	struct pci_dev *dev = function->dev;
	struct pci_dev *bridge;
	u64 size;
	int i;

	config->function = function->number;
	for (bridge = pci_upstream_bridge(dev); bridge; bridge = pci_upstream_bridge(bridge)) {
		if (config->bridge_count == CRTOS_MAX_BRIDGES)
			return crtos_refuse(file, -E2BIG, "[device-unfit] %s is behind too many bridges",
					    pci_name(dev));
		config->bridges[config->bridge_count++] = number_of(bridge);
	}
	for (i = 0; i < CRTOS_BASE_ADDRESSES; i++) {
		struct resource *resource = &dev->resource[i];

		size = resource->flags ? resource_size(resource) : 0;
		if (!size)
			continue;
		if (resource->flags & IORESOURCE_IO) {
			config->ports[i].first = resource->start;
			config->ports[i].last = resource->end;
			continue;
		}
		if (take_rest(function, i))
			return crtos_refuse(file, -EBUSY,
					    "[device-page] memory of %s shares a page with another device: move it (boot with pci=resource_alignment=12@%s)",
					    pci_name(dev), pci_name(dev));
		if (!crtos_window_place(&function->window, i, resource->start, size,
					PAGE_ALIGN(size)))
			return crtos_refuse(file, -E2BIG,
					    "[device-unfit] %s has %llu bytes of memory: a cell gets at most %u MiB of a function",
					    pci_name(dev), size, CRTOS_MAX_DEVICE_MEMORY >> 20);
		config->memory[i] = function->window.memory[i];
	}
	return 0;
}

/* Resets the function, as far as it can be. */
static int reset_function(struct crtos_file *file, struct crtos_function *function, bool required)
{
	int error = pci_reset_function(function->dev);

	function->reset = !error;
	if (!error || !required)
		return 0;
	return crtos_refuse(file, error,
			    "[device-reset] %s cannot be reset, so it may go on with what Linux had it do: if its driver has stopped it, use --no-reset",
			    pci_name(function->dev));
}

/* Has the function raise no interrupt by its pin, which others may have as well. */
static int silence(struct crtos_file *file, struct pci_dev *dev)
{
	u16 command;

	pci_clear_master(dev);
	pci_intx(dev, false);
	pci_read_config_word(dev, PCI_COMMAND, &command);
	if (dev->pin && !(command & PCI_COMMAND_INTX_DISABLE))
		return crtos_refuse(file, -EBUSY,
				    "[device-unfit] %s cannot be kept from interrupting Linux by its pin",
				    pci_name(dev));
	return 0;
}

/* Tells whether another function of the realm has that interrupt of Linux as well. */
static bool is_line_shared(const struct crtos_function *function, unsigned int line)
{
	struct crtos_function *other;

	list_for_each_entry(other, &functions, link)
		if (other != function && other->line == line)
			return true;
	return false;
}

/* The words of a refusal, behind its code. */
static const char *words(const char *reason)
{
	const char *end = strstr(reason, "] ");

	return end ? end + 2 : reason;
}

/*
 * Gives the realm the line of the function's pin, unless a driver of Linux has it. One with
 * messages does without where there is none; VFIO offers it, and UIO uses messages.
 */
static int give_line(struct crtos_file *file, struct crtos_function *function, u32 flags)
{
	struct pci_dev *dev = function->dev;
	bool has_messages = dev->msi_cap || dev->msix_cap;
	int error = 0;

	if (!function->realm || !dev->pin || !dev->irq || dev->irq == IRQ_NOTCONNECTED ||
	    (flags & CRTOS_DEVICE_NO_INTERRUPT) || (has_messages && !function->vfio))
		return 0;
	if (!is_line_shared(function, dev->irq))
		error = crtos_line_give(file, function->cell, dev->irq, &functions);
	if (!error)
		function->line = dev->irq;
	if (!error || has_messages)
		return 0;
	return crtos_refuse(file, error,
			    "[device-interrupt] %s interrupts by its pin alone, and %s (--no-interrupt gives it without)",
			    pci_name(dev), words(file->reason));
}

/* The opposite. The function interrupts by its pin no more. */
static void take_line_back(struct crtos_function *function)
{
	unsigned int line = function->line;

	function->line = 0;
	if (line && !is_line_shared(function, line))
		crtos_line_take_back(function->cell, line, &functions);
}

static int give_to_hypervisor(struct crtos_file *file, struct crtos_function *function)
{
	struct crtos_device_config *config = kzalloc(sizeof(*config), GFP_KERNEL);
	s64 result;
	int error;

	if (!config)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	/* Programs of the realm may have it do anything. */
	config->flags = (function->realm ? CRTOS_DEVICE_WITHOUT_MEMORY : 0) |
			(function->line ? CRTOS_DEVICE_PIN : 0);
	error = describe(file, function, config);
	if (error)
		goto out;
	result = crtos_hypercall(CRTOS_HC_DEVICE_ADD, function->cell, __pa(config), 0, 0);
	if (result == CRTOS_HV_DENIED)
		error = crtos_refuse(file, -EOPNOTSUPP,
				     "[iommu] no IOMMU confines %s (crtos check): switch it on in the firmware's setup",
				     pci_name(function->dev));
	else if (result)
		error = crtos_refuse_hv(file, result, "give the function to the cell");
out:
	kfree(config);
	return error;
}

/*
 * Takes the function from its driver in Linux, and gives it to this one. VFIO's driver keeps
 * it: there programs find it.
 */
static int bind(struct crtos_file *file, struct crtos_function *function, bool shared)
{
	struct pci_dev *dev = function->dev;
	int error;

	if (function->realm && crtos_vfio_has(dev))
		return crtos_vfio_claim(file, dev, shared, lose_vfio, function,
					&function->vfio);
	device_release_driver(&dev->dev);
	expected = dev;
	error = device_driver_attach(&crtos_pci_driver.driver, &dev->dev);
	expected = NULL;
	if (!error && dev->driver == &crtos_pci_driver)
		return 0;
	return crtos_refuse(file, error ?: -EBUSY,
			    "[device-in-use] another driver of Linux has got %s: see its driver_override in sysfs",
			    pci_name(dev));
}

/* The opposite: the driver that it had gets it back. */
static void unbind(struct crtos_function *function)
{
	struct pci_dev *dev = function->dev;

	if (function->vfio) {
		crtos_vfio_release(function->vfio);
		function->vfio = NULL;
		return;
	}
	if (dev->driver == &crtos_pci_driver)
		device_release_driver(&dev->dev);
	crtos_device_return(&dev->dev);
}

/* Has the realm's kernel know the function. */
static int wish(struct crtos_file *file, struct crtos_function *function)
{
	u32 line = function->line ? (1 + function->line) | CRTOS_WANTED_LEVEL : 0;

	if (function->vfio)
		return crtos_wish_add(file, function->number, crtos_vfio_number(function->vfio),
				      1 + crtos_vfio_group(function->vfio), line, NULL,
				      function->window.memory);
	return crtos_wish_add(file, function->number, crtos_uio_number(function->uio), 0, line,
			      NULL, function->window.memory);
}

/* Has programs of the realm find the function. */
static int show(struct crtos_file *file, struct crtos_function *function)
{
	int error;

	error = function->vfio ? 0 : crtos_uio_register(file, &function->dev->dev,
							function->dev->resource,
							PCI_STD_NUM_BARS, &function->uio);
	if (error)
		return error;
	error = wish(file, function);
	if (error && !function->vfio)
		crtos_uio_unregister(xchg(&function->uio, NULL));
	return error;
}

/* Tells whether functions of cells have that group of the IOMMU in common. */
static bool is_shared(const struct iommu_group *group)
{
	struct crtos_function *function;

	list_for_each_entry(function, &functions, link)
		if (function->shared == group)
			return true;
	return false;
}

/*
 * Sees to it that no driver of Linux has another function of the group that comes later: this
 * module owns the transfers of all of them.
 */
static int share(struct crtos_file *file, struct crtos_function *function,
		 struct iommu_group *group)
{
	int error = is_shared(group) ? 0 : iommu_group_claim_dma_owner(group, &functions);

	if (error)
		return crtos_refuse(file, error, "[device-group] Linux uses the IOMMU's group of %s",
				    pci_name(function->dev));
	function->shared = iommu_group_ref_get(group);
	return 0;
}

static void unshare(struct crtos_function *function)
{
	struct iommu_group *group = function->shared;

	if (!group)
		return;
	function->shared = NULL;
	if (!is_shared(group))
		iommu_group_release_dma_owner(group);
	iommu_group_put(group);
}

/* Configuration space is as Linux had it. A reset has saved and restored what the cell had. */
static void restore(struct crtos_function *function)
{
	if (function->before &&
	    pci_load_and_free_saved_state(function->dev, &function->before))
		pci_warn(function->dev, "crtos: its configuration space is not as it was\n");
	pci_restore_state(function->dev);
}

static void forget(struct crtos_function *function)
{
	crtos_wish_drop(function->number, function->window.memory);
	unshare(function);
	take_line_back(function);
	give_rest(function);
	crtos_window_remove(&function->window);
	list_del(&function->link);
	kfree(function->before);
	pci_dev_put(function->dev);
	kfree(function);
}

/* The machine has lost it, and its place may be another one's. */
static bool is_gone(const struct crtos_function *function)
{
	return !device_is_registered(&function->dev->dev);
}

/*
 * Cleans a function that a cell has kept when the machine lost it. Linux may have found it again,
 * but not its memory, so what is known of it from before serves to reach it. If it has a driver
 * nevertheless, that has seen to it.
 */
static void clean_lost(struct crtos_function *function)
{
	struct pci_dev *found = pci_get_domain_bus_and_slot(0, function->number >> 8,
							    function->number & 0xff);
	struct pci_dev *dev = function->dev;

	if (found)
		device_lock(&found->dev);
	if (!found || !found->dev.driver) {
		device_lock(&dev->dev);
		clean(function, dev);
		device_unlock(&dev->dev);
	}
	if (found)
		device_unlock(&found->dev);
	pci_dev_put(found);
}

/* Takes a function back from its cell. If that fails the cell still has it. */
static int take_back(struct crtos_file *file, struct crtos_function *function)
{
	struct pci_dev *dev = function->dev;
	s64 result;

	if (!is_gone(function))
		hide(function);
	result = crtos_hypercall(CRTOS_HC_DEVICE_REMOVE, function->cell, function->number, 0, 0);
	/* It is not there any more if the machine has lost it. */
	if (result && result != CRTOS_HV_INVALID)
		return crtos_refuse_hv(file, result, "take the function back");
	if (is_gone(function)) {
		if (!function->clean)
			clean_lost(function);
		return 0;
	}
	device_lock(&dev->dev);
	clean(function, dev);
	device_unlock(&dev->dev);
	if (!function->vfio)
		pci_set_drvdata(dev, NULL);
	/* Before its pin is as it was. */
	take_line_back(function);
	restore(function);
	pci_disable_device(dev);
	return 0;
}

/* Has the realm let all functions go that leave; if programs use one of them, it has all. */
static int end_wishes(struct crtos_file *file)
{
	struct crtos_function *function, *before;
	int error;

	list_for_each_entry(function, &functions, link) {
		if (!function->leaves || !function->realm || is_gone(function))
			continue;
		error = crtos_wish_end(file, function->number, pci_name(function->dev));
		if (!error)
			continue;
		list_for_each_entry(before, &functions, link) {
			if (before == function)
				return error;
			if (before->leaves && before->realm && !is_gone(before))
				wish(NULL, before);
		}
	}
	return 0;
}

/*
 * Gives functions back to Linux that leave; without @force only if no program uses one of them.
 * If that fails the cell still has those that were not given back.
 */
static int return_functions(struct crtos_file *file, bool force)
{
	struct crtos_function *function, *next;
	int error = force ? 0 : end_wishes(file);

	list_for_each_entry(function, &functions, link)
		if (function->leaves && !error)
			error = take_back(file, function);
	/* Before drivers have them again, which own transfers of whole groups. */
	list_for_each_entry(function, &functions, link)
		if (function->leaves && !error)
			unshare(function);
	list_for_each_entry_safe(function, next, &functions, link) {
		if (!function->leaves)
			continue;
		function->leaves = false;
		if (error)
			continue;
		if (!is_gone(function) || function->vfio)
			unbind(function);
		forget(function);
	}
	return error;
}

/* The function leaves. */
static void mark(const struct pci_dev *dev)
{
	struct crtos_function *function;

	list_for_each_entry(function, &functions, link)
		if (function->dev == dev)
			function->leaves = true;
}

/* The same for those that share its group. */
static void mark_all(struct crtos_function *first)
{
	struct crtos_function *function;

	list_for_each_entry(function, &functions, link)
		if (function->shared && function->shared == first->shared)
			function->leaves = true;
	first->leaves = true;
}

/* Nobody has the function any more that its driver has let go. */
static int forget_lost(struct crtos_file *file, struct pci_dev *dev)
{
	struct crtos_function *function;

	list_for_each_entry(function, &functions, link)
		if (function->dev == dev && READ_ONCE(function->lost)) {
			function->leaves = true;
			return return_functions(file, true);
		}
	return 0;
}

/*
 * Gives a function that was reset to its cell. Under its lock: the machine loses it before, or
 * after that.
 */
static int give(struct crtos_file *file, struct crtos_function *function, u32 flags)
{
	struct pci_dev *dev = function->dev;
	int error;

	if (function->vfio ? function->lost : dev->driver != &crtos_pci_driver)
		return crtos_refuse(file, -ENODEV, "[device-absent] %s has just gone",
				    pci_name(dev));
	error = silence(file, dev) ?: give_line(file, function, flags) ?:
		give_to_hypervisor(file, function);
	if (error)
		goto out_line;
	if (!function->vfio)
		pci_set_drvdata(dev, function);
	if (function->realm)
		error = show(file, function);
	if (!error)
		return 0;
	if (!function->vfio)
		pci_set_drvdata(dev, NULL);
	crtos_hypercall(CRTOS_HC_DEVICE_REMOVE, function->cell, function->number, 0, 0);
out_line:
	take_line_back(function);
	return error;
}

static int add(struct crtos_file *file, struct pci_dev *dev, const struct crtos_cell *cell,
	       struct iommu_group *group, u32 flags)
{
	struct crtos_function *function = kzalloc(sizeof(*function), GFP_KERNEL);
	int error;

	if (!function)
		return -ENOMEM;
	function->dev = pci_dev_get(dev);
	function->cell = cell->number;
	function->realm = cell->realm;
	function->number = number_of(dev);
	list_add(&function->link, &functions);
	crtos_window_add(&function->window, function->cell);
	error = bind(file, function, group);
	if (!error && group)
		error = share(file, function, group);
	if (error)
		goto out_unbind;
	error = pci_enable_device(dev);
	if (error) {
		crtos_refuse(file, error, "[device-broken] %s does not come up", pci_name(dev));
		goto out_unbind;
	}
	error = reset_function(file, function, !(flags & CRTOS_DEVICE_NO_RESET));
	if (error)
		goto out_disable;
	pci_save_state(dev);
	function->before = pci_store_saved_state(dev);
	device_lock(&dev->dev);
	error = give(file, function, flags);
	device_unlock(&dev->dev);
	if (!error)
		return 0;
	restore(function);
out_disable:
	pci_disable_device(dev);
out_unbind:
	unshare(function);
	unbind(function);
	forget(function);
	return error;
}

/* Functions that the IOMMU does not tell from each other; the first one is asked for. */
struct members {
	struct pci_dev *dev[CRTOS_MAX_DEVICES];	/* with references */
	int count;
	bool vfio;	/* programs find it by VFIO */
};

/*
 * Tells whether another function of a group of VFIO stays with Linux: nobody there has it transfer,
 * which is all that Linux asks of such a group. Who owns the transfers of the group keeps it so.
 */
static bool stays(const struct pci_dev *dev)
{
	struct device_driver *driver = READ_ONCE(dev->dev.driver);

	return !driver || (!crtos_vfio_has(dev) && to_pci_driver(driver)->driver_managed_dma);
}

static int find_member(struct device *device, void *data)
{
	struct members *members = data;

	if (!dev_is_pci(device) || device == &members->dev[0]->dev ||
	    to_pci_dev(device)->hdr_type != PCI_HEADER_TYPE_NORMAL)
		return 0;
	if (members->vfio && stays(to_pci_dev(device)))
		return 0;
	if (members->count == ARRAY_SIZE(members->dev))
		return -E2BIG;
	members->dev[members->count++] = pci_dev_get(to_pci_dev(device));
	return 0;
}

/* The cell that has the function, or NULL. */
static const struct crtos_function *find_owned(const struct pci_dev *dev)
{
	struct crtos_function *function;

	list_for_each_entry(function, &functions, link)
		if (function->dev == dev)
			return function;
	return NULL;
}

/*
 * Checks one that goes along: who uses Linux has not asked for it, so none of its drivers may
 * have it, as with groups of VFIO. Of such a group VFIO's driver has it, or programs of the realm
 * would find one of them by UIO.
 */
static int check_sibling(struct crtos_file *file, struct pci_dev *dev, struct pci_dev *sibling,
			 bool vfio)
{
	struct device_driver *driver = READ_ONCE(sibling->dev.driver);

	if (driver && !(vfio && crtos_vfio_has(sibling)))
		return crtos_refuse(file, -EBUSY,
				    "[device-group] the IOMMU does not tell %s from %s, which the driver %s has: take it from that first (echo %s >/sys/bus/pci/drivers/%s/unbind)",
				    pci_name(dev), pci_name(sibling), driver->name,
				    pci_name(sibling), driver->name);
	return check_function(file, sibling);
}

/* Gives a function, and those that the IOMMU does not tell from it; all or none. */
static int add_all(struct crtos_file *file, struct pci_dev *dev, const struct crtos_cell *cell,
		   u32 flags)
{
	struct iommu_group *group = iommu_group_get(&dev->dev);
	bool vfio = cell->realm && crtos_vfio_has(dev);
	struct members members = { .dev = { pci_dev_get(dev) }, .count = 1, .vfio = vfio };
	const struct crtos_function *owned;
	int error = check_function(file, dev);
	int i, done = 0;

	/* Where Linux does not use the IOMMU it knows of no group. */
	if (group && !error && iommu_group_for_each_dev(group, &members, find_member))
		error = crtos_refuse(file, -E2BIG, "[device-group] too many functions are in the group of %s",
				     pci_name(dev));
	for (i = 0; i < members.count && !error; i++) {
		owned = find_owned(members.dev[i]);
		if (owned)
			error = crtos_refuse(file, -EBUSY,
					     "[device-taken] cell %u has %s already", owned->cell,
					     pci_name(members.dev[i]));
		else if (i)
			error = check_sibling(file, dev, members.dev[i], vfio);
	}
	while (done < members.count && !error) {
		error = add(file, members.dev[done], cell, members.count > 1 ? group : NULL,
			    flags);
		done += !error;
	}
	if (error && done) {
		for (i = 0; i < done; i++)
			mark(members.dev[i]);
		return_functions(NULL, true);
	}
	for (i = 0; i < members.count; i++)
		pci_dev_put(members.dev[i]);
	iommu_group_put(group);
	return error;
}

/**
 * crtos_function_add() - give a PCI function to a cell
 * @file: where a failure is explained
 * @cell: which is not locked
 * @name: of the function
 * @flags: CRTOS_DEVICE_*
 *
 * Those that the IOMMU does not tell from it go along.
 *
 * Context: Under crtos.lock; may sleep, as drivers do that let a function go.
 * Return: 0 or a negative error; then the driver has it back.
 */
int crtos_function_add(struct crtos_file *file, const struct crtos_cell *cell, const char *name,
		       u32 flags)
{
	struct pci_dev *dev;
	int error;

	dev = find_function(file, name);
	if (!dev)
		return -ENODEV;
	error = forget_lost(file, dev);
	if (!error)
		error = add_all(file, dev, cell, flags);
	pci_dev_put(dev);
	return error;
}

/* The function of a cell with this name, or NULL. */
static struct crtos_function *find_named(struct crtos_file *file, u32 cell, const char *name)
{
	struct crtos_function *function;

	list_for_each_entry(function, &functions, link)
		if (function->cell == cell && !strcmp(pci_name(function->dev), name))
			return function;
	crtos_refuse(file, -ENODEV, "[device-absent] the cell has no PCI function '%s'", name);
	return NULL;
}

/**
 * crtos_function_remove() - take a PCI function back from a cell
 * @file: where a failure is explained
 * @cell: the cell
 * @name: of the function
 *
 * Those that went along with it come back with it.
 *
 * Context: Under crtos.lock; may sleep, as drivers do that get a function.
 * Return: 0 or a negative error; then the cell still has it.
 */
int crtos_function_remove(struct crtos_file *file, u32 cell, const char *name)
{
	struct crtos_function *function = find_named(file, cell, name);

	if (!function)
		return -ENODEV;
	mark_all(function);
	return return_functions(file, false);
}

/**
 * crtos_function_show() - show the interface of a network card of the realm
 * @file: where a failure is explained
 * @argument: which card, and what the interface was; its names end with a zero
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then Linux does not show it.
 */
int crtos_function_show(struct crtos_file *file, const struct crtos_cell_interface *argument)
{
	struct crtos_function *function;
	struct device *dev;
	int error;

	function = find_named(file, argument->cell, argument->function);
	if (!function)
		return -ENODEV;
	dev = &function->dev->dev;
	/* The machine may lose it: crtos_pci_remove() comes before or after. */
	device_lock(dev);
	if (!function->realm || dev->driver != &crtos_pci_driver.driver || function->interface)
		error = crtos_refuse(file, -EBUSY, "[bad-call] %s is not to be shown, or is shown already",
				     argument->function);
	else
		error = crtos_interface_register(file, dev, argument, &function->interface);
	device_unlock(dev);
	return error;
}

/**
 * crtos_functions_return() - give all PCI functions of a cell back to Linux
 * @file: where a failure is explained
 * @cell: the cell, which does not run
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then the cell still has some.
 */
int crtos_functions_return(struct crtos_file *file, u32 cell)
{
	struct crtos_function *function;

	list_for_each_entry(function, &functions, link)
		function->leaves = function->cell == cell;
	return return_functions(file, true);
}
