// SPDX-License-Identifier: GPL-2.0-only
/*
 * PCI functions that programs of the realm find by VFIO. Linux's driver vfio-pci has them, as
 * for its own programs, and does not touch them as long as none of these opens one. This module
 * owns their transfers meanwhile, so that no container of Linux takes their group.
 */
#include <linux/fs.h>
#include <linux/iommu.h>
#include <linux/namei.h>
#include <linux/notifier.h>
#include <linux/pci.h>
#include <linux/pm_runtime.h>
#include <linux/slab.h>

#include "crtos.h"

/* A function that Linux's driver and the realm have. */
struct crtos_vfio {
	struct notifier_block notifier;
	struct pci_dev *dev;
	void (*lose)(struct pci_dev *dev, void *data);
	void *data;
	struct iommu_group *group;	/* with a reference */
	bool owned;			/* by this function alone: its transfers */
	dev_t number;			/* of the group's file */
};

/**
 * crtos_vfio_has() - tell whether VFIO's driver has a function
 * @dev: the function
 */
bool crtos_vfio_has(const struct pci_dev *dev)
{
	return dev->driver && !strcmp(dev->driver->name, "vfio-pci");
}

/* The driver is about to let the function go, with its lock held. */
static int notify(struct notifier_block *notifier, unsigned long event, void *device)
{
	struct crtos_vfio *vfio = container_of(notifier, struct crtos_vfio, notifier);

	if (event == BUS_NOTIFY_UNBIND_DRIVER && device == &vfio->dev->dev)
		vfio->lose(vfio->dev, vfio->data);
	return NOTIFY_OK;
}

/* The number of the file of a group. */
static int find_number(struct crtos_file *file, struct crtos_vfio *vfio)
{
	char name[32];
	struct path path;
	int error;

	snprintf(name, sizeof(name), "/dev/vfio/%d", iommu_group_id(vfio->group));
	error = kern_path(name, LOOKUP_FOLLOW, &path);
	if (error)
		return crtos_refuse(file, error,
				    "[driver-missing] there is no %s, by which programs find %s",
				    name, pci_name(vfio->dev));
	if (S_ISCHR(d_inode(path.dentry)->i_mode))
		vfio->number = d_inode(path.dentry)->i_rdev;
	else
		error = crtos_refuse(file, -ENODEV,
				     "[driver-missing] %s is not a group of VFIO", name);
	path_put(&path);
	return error;
}

/* From now on it is told when the driver lets the function go. */
static int watch(struct crtos_file *file, struct crtos_vfio *vfio)
{
	struct pci_dev *dev = vfio->dev;
	int error = -EAGAIN;

	device_lock(&dev->dev);
	if (crtos_vfio_has(dev))
		error = bus_register_notifier(&pci_bus_type, &vfio->notifier);
	device_unlock(&dev->dev);
	if (error)
		return crtos_refuse(file, error, "[device-broken] vfio-pci has let %s go: try again",
				    pci_name(dev));
	return 0;
}

/**
 * crtos_vfio_claim() - take a function that VFIO's driver has, and keeps
 * @file: where a failure is explained
 * @dev: the function
 * @shared: its group has others: the caller owns the transfers of all
 * @lose: called with @dev and @data when the driver lets it go, under the function's lock
 * @data: for @lose
 * @claimed: what crtos_vfio_release() is to be given
 *
 * Context: May sleep.
 * Return: 0 or a negative error.
 */
int crtos_vfio_claim(struct crtos_file *file, struct pci_dev *dev, bool shared,
		     void (*lose)(struct pci_dev *dev, void *data), void *data,
		     struct crtos_vfio **claimed)
{
	struct crtos_vfio *vfio = kzalloc(sizeof(*vfio), GFP_KERNEL);
	int error;

	if (!vfio)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	vfio->notifier.notifier_call = notify;
	vfio->dev = dev;
	vfio->lose = lose;
	vfio->data = data;
	vfio->group = iommu_group_get(&dev->dev);
	if (!vfio->group) {
		error = crtos_refuse(file, -ENODEV,
				     "[driver-missing] %s is in no group", pci_name(dev));
		goto out_free;
	}
	error = find_number(file, vfio);
	if (error)
		goto out_put;
	if (!shared)
		error = iommu_group_claim_dma_owner(vfio->group, vfio);
	if (error) {
		crtos_refuse(file, error, "[device-in-use] a program of Linux has the group of %s in a container",
			     pci_name(dev));
		goto out_put;
	}
	vfio->owned = !shared;
	/* The driver lets a function sleep that nobody has open. */
	error = pm_runtime_resume_and_get(&dev->dev);
	if (error) {
		crtos_refuse(file, error, "[device-broken] %s does not wake up", pci_name(dev));
		goto out_release;
	}
	error = watch(file, vfio);
	if (error)
		goto out_sleep;
	*claimed = vfio;
	return 0;

out_sleep:
	pm_runtime_put(&dev->dev);
out_release:
	if (vfio->owned)
		iommu_group_release_dma_owner(vfio->group);
out_put:
	iommu_group_put(vfio->group);
out_free:
	kfree(vfio);
	return error;
}

/**
 * crtos_vfio_release() - undo crtos_vfio_claim()
 * @vfio: what it gave
 *
 * Context: May sleep.
 */
void crtos_vfio_release(struct crtos_vfio *vfio)
{
	bus_unregister_notifier(&pci_bus_type, &vfio->notifier);
	pm_runtime_put(&vfio->dev->dev);
	if (vfio->owned)
		iommu_group_release_dma_owner(vfio->group);
	iommu_group_put(vfio->group);
	kfree(vfio);
}

/**
 * crtos_vfio_number() - the number of the file of a function's group
 * @vfio: the function
 */
dev_t crtos_vfio_number(const struct crtos_vfio *vfio)
{
	return vfio->number;
}

/**
 * crtos_vfio_group() - the number of a function's group
 * @vfio: the function
 */
u32 crtos_vfio_group(const struct crtos_vfio *vfio)
{
	return iommu_group_id(vfio->group);
}
