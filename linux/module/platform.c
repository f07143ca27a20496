// SPDX-License-Identifier: GPL-2.0-only
/*
 * Platform devices that the realm has: memory, and an interrupt. This driver has them in Linux
 * meanwhile, so that no other one does; it never touches them.
 */
#include <linux/iommu.h>
#include <linux/ioport.h>
#include <linux/irq.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "compat.h"
#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/* What is on the pages of a memory: before it, itself, behind it. */
#define PARTS 3

/* A device of the realm. Under crtos.lock. */
struct crtos_platform {
	struct list_head link;			/* among all */
	struct platform_device *dev;		/* with a reference */
	u16 number;				/* by which the hypervisor and the realm know it */
	int line;				/* Linux's interrupt, or 0; taken by xchg() */
	struct crtos_uio *uio;			/* by which programs find it; taken by xchg() */
	struct crtos_window window;		/* where the realm sees its memory */
	struct resource *parts[CRTOS_BASE_ADDRESSES][PARTS];	/* of no driver; taken by xchg() */
};

static LIST_HEAD(platforms);

/* The one that the driver may have now; under crtos.lock. */
static struct platform_device *expected;

/* Gives the line back, if the device has one. */
static void take_line_back(struct crtos_platform *platform)
{
	int line = xchg(&platform->line, 0);

	if (line)
		crtos_line_take_back(platform->window.cell, line, platform);
}

static void give_parts(struct crtos_platform *platform)
{
	int i, j;

	for (i = 0; i < CRTOS_BASE_ADDRESSES; i++)
		for (j = 0; j < PARTS; j++) {
			struct resource *part = xchg(&platform->parts[i][j], NULL);

			if (part)
				release_mem_region(part->start, resource_size(part));
		}
}

/* Programs do not find the device any more. */
static void hide(struct crtos_platform *platform)
{
	struct crtos_uio *uio = xchg(&platform->uio, NULL);

	if (!uio)
		return;
	crtos_wish_drop(platform->number, platform->window.memory);
	crtos_uio_unregister(uio);
}

static int crtos_platform_probe(struct platform_device *dev)
{
	return dev == expected ? 0 : -ENODEV;
}

/* The machine loses the device, or its driver gives it back: the realm has it no more. */
static crtos_remove_result lose(struct platform_device *dev)
{
	struct crtos_platform *platform = platform_get_drvdata(dev);

	if (!platform)
		return crtos_removed;
	crtos_hypercall(CRTOS_HC_DEVICE_REMOVE, platform->window.cell, platform->number, 0, 0);
	/* The realm's kernel sees then that it is gone, also below programs. */
	hide(platform);
	take_line_back(platform);
	/* They lie within those of the device, which go with it. */
	give_parts(platform);
	return crtos_removed;
}

/* By which the tool finds a device in the hypervisor's report. */
static ssize_t crtos_number_show(struct device *dev, struct device_attribute *attr, char *text)
{
	const struct crtos_platform *platform = dev_get_drvdata(dev);

	return platform ? sysfs_emit(text, "%u\n", platform->number) : -ENODEV;
}

static DEVICE_ATTR_RO(crtos_number);

static struct attribute *crtos_platform_attrs[] = {
	&dev_attr_crtos_number.attr,
	NULL,
};
ATTRIBUTE_GROUPS(crtos_platform);

static struct platform_driver crtos_platform_driver = {
	.probe = crtos_platform_probe,
	.remove = lose,
	.driver = {
		.name = "crtos",
		.dev_groups = crtos_platform_groups,
		.suppress_bind_attrs = true,
	},
	.driver_managed_dma = true,
};

/**
 * crtos_platform_init() - register the driver, which has no device of its own accord
 *
 * Context: Module initialisation.
 * Return: 0 or a negative error.
 */
int crtos_platform_init(void)
{
	return platform_driver_register(&crtos_platform_driver);
}

/**
 * crtos_platform_exit() - undo crtos_platform_init()
 */
void crtos_platform_exit(void)
{
	platform_driver_unregister(&crtos_platform_driver);
}

/**
 * crtos_platform_number() - choose a number for a device of the realm that is no PCI function
 *
 * Context: Under crtos.lock.
 * Return: one that neither such a device nor a function of the machine has, or -ENOSPC.
 */
int crtos_platform_number(void)
{
	struct crtos_platform *platform;
	int number;

	for (number = U16_MAX; number >= 0; number--) {
		struct pci_dev *function = pci_get_domain_bus_and_slot(0, number >> 8,
								       number & 0xff);
		bool is_free = !function && !crtos_ports_have(number);

		pci_dev_put(function);
		list_for_each_entry(platform, &platforms, link)
			is_free = is_free && platform->number != number;
		if (is_free)
			return number;
	}
	return -ENOSPC;
}

/* A device that the IOMMU knows masters the bus, which is not confined here. */
static int check_device(struct crtos_file *file, struct platform_device *dev)
{
	struct iommu_group *group = iommu_group_get(&dev->dev);
	const char *name = dev_name(&dev->dev);
	unsigned int i, memories = 0;

	iommu_group_put(group);
	if (group)
		return crtos_refuse(file, -EBUSY,
				    "[device-unfit] %s transfers to and from memory: programs get no such platform device",
				    name);
	for (i = 0; i < dev->num_resources; i++) {
		if (resource_type(&dev->resource[i]) == IORESOURCE_IO)
			return crtos_refuse(file, -EOPNOTSUPP,
					    "[device-ports] %s has I/O ports: give the realm these by 'crtos up --port'",
					    name);
		if (resource_type(&dev->resource[i]) == IORESOURCE_MEM)
			memories++;
	}
	if (!memories || memories > CRTOS_BASE_ADDRESSES)
		return crtos_refuse(file, -EINVAL,
				    "[device-unfit] %s has %u pieces of memory: programs get devices with 1 to %d",
				    name, memories, CRTOS_BASE_ADDRESSES);
	return 0;
}

/* Keeps a range of addresses from all drivers, unless it is empty. */
static int take_part(struct resource **part, u64 start, u64 end)
{
	if (start == end)
		return 0;
	*part = request_mem_region(start, end - start, "crtos");
	return *part ? 0 : -EBUSY;
}

/* Describes its memory, in whole pages, on which nothing else may be. */
static int describe(struct crtos_file *file, struct crtos_platform *platform,
		    struct crtos_device_config *config)
{
	struct platform_device *dev = platform->dev;
	struct resource *resource;
	int i;

	/* Programs of the realm may have it do anything. */
	config->flags = CRTOS_DEVICE_PLATFORM | CRTOS_DEVICE_WITHOUT_MEMORY;
	config->function = platform->number;
	for (i = 0; (resource = platform_get_resource(dev, IORESOURCE_MEM, i)); i++) {
		u64 start = resource->start, end = resource->end + 1;
		u64 first = start & PAGE_MASK, last = PAGE_ALIGN(end);

		if (take_part(&platform->parts[i][0], first, start) ||
		    take_part(&platform->parts[i][1], start, end) ||
		    take_part(&platform->parts[i][2], end, last))
			return crtos_refuse(file, -EBUSY,
					    "[device-page] the pages of %s at %llx are not its alone: see /proc/iomem",
					    dev_name(&dev->dev), first);
		if (!crtos_window_place(&platform->window, i, first, last - first, PAGE_SIZE))
			return crtos_refuse(file, -E2BIG,
					    "[device-unfit] %s has %llu bytes of memory: the realm gets at most %u MiB of a device",
					    dev_name(&dev->dev), end - start,
					    CRTOS_MAX_DEVICE_MEMORY >> 20);
		config->memory[i] = platform->window.memory[i];
	}
	return 0;
}

static int give_to_hypervisor(struct crtos_file *file, struct crtos_platform *platform)
{
	struct crtos_device_config *config = kzalloc(sizeof(*config), GFP_KERNEL);
	s64 result;
	int error;

	if (!config)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	error = describe(file, platform, config);
	if (error)
		goto out;
	result = crtos_hypercall(CRTOS_HC_DEVICE_ADD, platform->window.cell, __pa(config), 0, 0);
	if (result == CRTOS_HV_OWNED)
		error = crtos_refuse(file, -EBUSY,
				     "[device-in-use] memory of %s is the hypervisor's, a cell's, or that of a controller which it watches",
				     dev_name(&platform->dev->dev));
	else if (result)
		error = crtos_refuse_hv(file, result, "give the device to the realm");
out:
	kfree(config);
	return error;
}

/* Takes the device from its driver in Linux, and gives it to this one. */
static int bind(struct crtos_file *file, struct platform_device *dev)
{
	int error;

	device_release_driver(&dev->dev);
	expected = dev;
	error = device_driver_attach(&crtos_platform_driver.driver, &dev->dev);
	expected = NULL;
	if (!error && dev->dev.driver == &crtos_platform_driver.driver)
		return 0;
	return crtos_refuse(file, error ?: -EBUSY,
			    "[device-in-use] another driver of Linux has got %s: see its driver_override in sysfs",
			    dev_name(&dev->dev));
}

/* The opposite: the driver that it had gets it back. */
static void unbind(struct platform_device *dev)
{
	if (dev->dev.driver == &crtos_platform_driver.driver)
		device_release_driver(&dev->dev);
	crtos_device_return(&dev->dev);
}

/* Gives the realm the interrupt of the device, if it has one. Returns what its kernel is told. */
static s64 give_line(struct crtos_file *file, struct crtos_platform *platform)
{
	int line = platform_get_irq_optional(platform->dev, 0);
	struct irq_data *data;
	int error;

	if (line == -ENXIO)
		return 0;
	if (line < 0)
		return crtos_refuse(file, line, "[interrupt-unknown] Linux does not know the interrupt of %s",
				    dev_name(&platform->dev->dev));
	error = crtos_line_give(file, platform->window.cell, line, platform);
	if (error)
		return error;
	platform->line = line;
	data = irq_get_irq_data(line);
	return (1 + line) | (data && irqd_is_level_type(data) ? CRTOS_WANTED_LEVEL : 0);
}

/* Has programs of the realm find the device. */
static int show(struct crtos_file *file, struct crtos_platform *platform, u32 line)
{
	struct platform_device *dev = platform->dev;
	struct crtos_uio *uio;
	int error;

	error = crtos_uio_register(file, &dev->dev, dev->resource, dev->num_resources, &uio);
	if (error)
		return error;
	error = crtos_wish_add(file, platform->number, crtos_uio_number(uio), 0, line, NULL,
			       platform->window.memory);
	if (error)
		crtos_uio_unregister(uio);
	else
		platform->uio = uio;
	return error;
}

static void forget(struct crtos_platform *platform)
{
	crtos_wish_drop(platform->number, platform->window.memory);
	crtos_window_remove(&platform->window);
	list_del(&platform->link);
	platform_device_put(platform->dev);
	kfree(platform);
}

/*
 * Gives a device back to Linux; without @force only if no program uses it. If that fails the realm
 * still has it.
 */
static int return_platform(struct crtos_file *file, struct crtos_platform *platform, bool force)
{
	struct platform_device *dev = platform->dev;
	s64 result;
	int error;

	if (!device_is_registered(&dev->dev)) {
		forget(platform);
		return 0;
	}
	if (!force) {
		error = crtos_wish_end(file, platform->number, dev_name(&dev->dev));
		if (error)
			return error;
	}
	hide(platform);
	result = crtos_hypercall(CRTOS_HC_DEVICE_REMOVE, platform->window.cell, platform->number,
				 0, 0);
	/* It is not there any more if its driver has let it go. */
	if (result && result != CRTOS_HV_INVALID)
		return crtos_refuse_hv(file, result, "take the device back");
	take_line_back(platform);
	platform_set_drvdata(dev, NULL);
	give_parts(platform);
	unbind(dev);
	forget(platform);
	return 0;
}

/* Gives the realm a device. Under its lock: the machine loses it before, or after that. */
static int give(struct crtos_file *file, struct crtos_platform *platform)
{
	struct platform_device *dev = platform->dev;
	int error;
	s64 line;

	if (dev->dev.driver != &crtos_platform_driver.driver)
		return crtos_refuse(file, -ENODEV, "[device-absent] %s has just gone",
				    dev_name(&dev->dev));
	error = give_to_hypervisor(file, platform);
	if (error)
		return error;
	line = give_line(file, platform);
	error = line < 0 ? line : 0;
	if (error)
		goto out_take;
	platform_set_drvdata(dev, platform);
	error = show(file, platform, line);
	if (!error)
		return 0;
	platform_set_drvdata(dev, NULL);
	take_line_back(platform);
out_take:
	crtos_hypercall(CRTOS_HC_DEVICE_REMOVE, platform->window.cell, platform->number, 0, 0);
	return error;
}

static int add(struct crtos_file *file, struct platform_device *dev, const struct crtos_cell *cell)
{
	struct crtos_platform *platform = kzalloc(sizeof(*platform), GFP_KERNEL);
	int number = crtos_platform_number();
	int error;

	if (!platform || number < 0) {
		kfree(platform);
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	}
	get_device(&dev->dev);
	platform->dev = dev;
	platform->number = number;
	list_add(&platform->link, &platforms);
	crtos_window_add(&platform->window, cell->number);
	error = bind(file, dev);
	if (!error) {
		device_lock(&dev->dev);
		error = give(file, platform);
		device_unlock(&dev->dev);
	}
	if (!error)
		return 0;
	give_parts(platform);
	unbind(dev);
	forget(platform);
	return error;
}

/* Nobody has the devices any more that the machine has lost. */
static void forget_lost(void)
{
	struct crtos_platform *platform, *next;

	list_for_each_entry_safe(platform, next, &platforms, link)
		if (!device_is_registered(&platform->dev->dev))
			forget(platform);
}

/**
 * crtos_platform_add() - give a platform device to the realm
 * @file: where a failure is explained
 * @cell: which is not locked
 * @name: of the device
 *
 * Context: Under crtos.lock; may sleep, as drivers do that let a device go.
 * Return: 0 or a negative error; then the driver has it back.
 */
int crtos_platform_add(struct crtos_file *file, const struct crtos_cell *cell, const char *name)
{
	struct crtos_platform *platform;
	struct platform_device *dev;
	struct device *found;
	int error;

	forget_lost();
	if (!cell->realm)
		return crtos_refuse(file, -EINVAL,
				    "[not-the-realm] cell '%s' is not the real-time realm, which alone gets platform devices",
				    cell->name);
	found = bus_find_device_by_name(&platform_bus_type, NULL, name);
	if (!found)
		return crtos_refuse(file, -ENODEV,
				    "[device-absent] there is no platform device '%s'", name);
	dev = to_platform_device(found);
	error = check_device(file, dev);
	list_for_each_entry(platform, &platforms, link)
		if (!error && platform->dev == dev)
			error = crtos_refuse(file, -EBUSY, "[device-taken] cell %u has %s already",
					     platform->window.cell, name);
	if (!error)
		error = add(file, dev, cell);
	put_device(found);
	return error;
}

/**
 * crtos_platform_remove() - take a platform device back from the realm
 * @file: where a failure is explained
 * @cell: the cell
 * @name: of the device
 *
 * Context: Under crtos.lock; may sleep, as drivers do that get a device.
 * Return: 0 or a negative error; then the cell still has it.
 */
int crtos_platform_remove(struct crtos_file *file, u32 cell, const char *name)
{
	struct crtos_platform *platform;

	list_for_each_entry(platform, &platforms, link)
		if (platform->window.cell == cell && !strcmp(dev_name(&platform->dev->dev), name))
			return return_platform(file, platform, false);
	return crtos_refuse(file, -ENODEV,
			    "[device-absent] the cell has no platform device '%s'", name);
}

/**
 * crtos_platforms_return() - give all platform devices of a cell back to Linux
 * @file: where a failure is explained
 * @cell: the cell, which does not run
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then the cell still has some.
 */
int crtos_platforms_return(struct crtos_file *file, u32 cell)
{
	struct crtos_platform *platform, *next;
	int error;

	list_for_each_entry_safe(platform, next, &platforms, link) {
		error = platform->window.cell == cell ? return_platform(file, platform, true) : 0;
		if (error)
			return error;
	}
	return 0;
}
