// SPDX-License-Identifier: GPL-2.0-only
/*
 * How Linux shows devices that programs of the realm drive: /dev/uioN and
 * /sys/class/uio/uioN. In Linux itself nobody opens them meanwhile.
 */
#include <linux/device.h>
#include <linux/ioport.h>
#include <linux/kmod.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uio_driver.h>

#include "compat.h"
#include "crtos.h"
#include "realm.h"

/* A device that is shown. */
struct crtos_uio {
	struct uio_info info;
	void (*unregister)(struct uio_info *info);	/* of Linux's module, which stays for it */
};

/* The shadow of a program opens it, so that Linux checks its rights, and closes it at once. */
static int open(struct uio_info *info, struct inode *inode)
{
	return crtos_realm_is_shadow() ? 0 : -EBUSY;
}

static int release(struct uio_info *info, struct inode *inode)
{
	return 0;
}

static int mmap(struct uio_info *info, crtos_uio_mapping *mapping)
{
	return -EBUSY;
}

/* The numbers of the maps are those that the realm's kernel has: memory in its order. */
static void describe_maps(struct uio_info *info, const struct resource *resource, int count)
{
	struct uio_mem *map = info->mem;
	const struct resource *end = resource + count;

	for (; resource < end && map < &info->mem[MAX_UIO_MAPS]; resource++) {
		if (!(resource->flags & IORESOURCE_MEM) || !resource_size(resource))
			continue;
		map->memtype = UIO_MEM_PHYS;
		map->name = resource->name;
		map->addr = resource->start & PAGE_MASK;
		map->offs = resource->start & ~PAGE_MASK;
		map->size = PAGE_ALIGN(map->offs + resource_size(resource));
		map++;
	}
}

/**
 * crtos_uio_register() - show a device
 * @file: where a failure is explained
 * @dev: the device, which this module's driver has
 * @resource: what it has
 * @count: how many of these there are
 * @registered: what crtos_uio_unregister() is to be given
 *
 * Linux's module for that comes if it is there.
 *
 * Context: May sleep.
 * Return: 0 or a negative error.
 */
int crtos_uio_register(struct crtos_file *file, struct device *dev,
		       const struct resource *resource, int count, struct crtos_uio **registered)
{
	typeof(__uio_register_device) *register_device;
	struct crtos_uio *uio;
	int error;

	uio = kzalloc(sizeof(*uio), GFP_KERNEL);
	if (!uio)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	register_device = try_then_request_module(symbol_get(__uio_register_device), "uio");
	uio->unregister = symbol_get(uio_unregister_device);
	if (!register_device || !uio->unregister) {
		error = crtos_refuse(file, -EOPNOTSUPP,
				     "[driver-missing] Linux does not know UIO, by which programs find %s: its module 'uio' is missing",
				     dev_name(dev));
		goto out_symbols;
	}
	uio->info.name = "crtos";
	uio->info.version = THIS_MODULE->version ?: "0";
	uio->info.irq = UIO_IRQ_NONE;
	uio->info.open = open;
	uio->info.release = release;
	uio->info.crtos_uio_mmap = mmap;
	describe_maps(&uio->info, resource, count);
	error = register_device(THIS_MODULE, dev, &uio->info);
	if (error) {
		crtos_refuse(file, error,
			     "[driver-missing] Linux's UIO does not take %s", dev_name(dev));
		goto out_symbols;
	}
	symbol_put(__uio_register_device);
	*registered = uio;
	return 0;

out_symbols:
	if (uio->unregister)
		symbol_put(uio_unregister_device);
	if (register_device)
		symbol_put(__uio_register_device);
	kfree(uio);
	return error;
}

/**
 * crtos_uio_unregister() - undo crtos_uio_register()
 * @uio: what it gave
 *
 * Context: May sleep.
 */
void crtos_uio_unregister(struct crtos_uio *uio)
{
	uio->unregister(&uio->info);
	symbol_put(uio_unregister_device);
	kfree(uio);
}

/**
 * crtos_uio_number() - the number of the file that leads to a device
 * @uio: the device
 */
dev_t crtos_uio_number(const struct crtos_uio *uio)
{
	return uio->info.uio_dev->dev.devt;
}
