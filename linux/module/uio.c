// SPDX-License-Identifier: GPL-2.0-only
/*
 * How Linux shows PCI functions that programs of the realm drive: /dev/uioN and
 * /sys/class/uio/uioN. In Linux itself nobody opens them meanwhile.
 */
#include <linux/kmod.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/uio_driver.h>

#include "crtos.h"
#include "realm.h"

/* A function that is shown. */
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

static int mmap(struct uio_info *info, struct vm_area_struct *vma)
{
	return -EBUSY;
}

/* The numbers of the maps are those that the realm's kernel has: memory in its order. */
static void describe_maps(struct uio_info *info, struct pci_dev *dev)
{
	struct uio_mem *map = info->mem;
	int i;

	for (i = 0; i < PCI_STD_NUM_BARS && map < &info->mem[MAX_UIO_MAPS]; i++) {
		const struct resource *resource = &dev->resource[i];

		if (!(resource->flags & IORESOURCE_MEM) || !resource_size(resource))
			continue;
		map->memtype = UIO_MEM_PHYS;
		map->name = resource->name;
		map->addr = resource->start;
		map->size = PAGE_ALIGN(resource_size(resource));
		map++;
	}
}

/**
 * crtos_uio_register() - show a function
 * @file: where a failure is explained
 * @dev: the function, which this module's driver has
 * @registered: what crtos_uio_unregister() is to be given
 *
 * Linux's module for that comes if it is there.
 *
 * Context: May sleep.
 * Return: 0 or a negative error.
 */
int crtos_uio_register(struct crtos_file *file, struct pci_dev *dev, struct crtos_uio **registered)
{
	typeof(__uio_register_device) *register_device;
	struct crtos_uio *uio;
	int error;

	uio = kzalloc(sizeof(*uio), GFP_KERNEL);
	if (!uio)
		return crtos_refuse(file, -ENOMEM, "out of memory");
	register_device = try_then_request_module(symbol_get(__uio_register_device), "uio");
	uio->unregister = symbol_get(uio_unregister_device);
	if (!register_device || !uio->unregister) {
		error = crtos_refuse(file, -EOPNOTSUPP,
				     "Linux does not know UIO, by which programs find %s: its module 'uio' is missing",
				     pci_name(dev));
		goto out_symbols;
	}
	uio->info.name = "crtos";
	uio->info.version = THIS_MODULE->version ?: "0";
	uio->info.irq = UIO_IRQ_NONE;
	uio->info.open = open;
	uio->info.release = release;
	uio->info.mmap = mmap;
	describe_maps(&uio->info, dev);
	error = register_device(THIS_MODULE, &dev->dev, &uio->info);
	if (error) {
		crtos_refuse(file, error, "Linux's UIO does not take %s", pci_name(dev));
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
 * crtos_uio_number() - the number of the file that leads to a function
 * @uio: the function
 */
dev_t crtos_uio_number(const struct crtos_uio *uio)
{
	return uio->info.uio_dev->dev.devt;
}
