// SPDX-License-Identifier: GPL-2.0-only
/*
 * Devices that cells have, of all buses.
 */
#include <linux/device.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "crtos.h"

/* Has Linux find a driver for a device. */
struct search {
	struct work_struct work;
	struct device *device;
	int result;
};

static void search_driver(struct work_struct *work)
{
	struct search *search = container_of(work, struct search, work);

	search->result = device_attach(search->device);
}

/**
 * crtos_device_return() - have a driver of Linux take a device back
 * @device: the device, which has no driver, or one that has taken it meanwhile
 *
 * A worker does that: the calling task may be about to be killed, and could then start no thread
 * for the interrupts of the device.
 *
 * Context: May sleep; not with the lock of the device.
 */
void crtos_device_return(struct device *device)
{
	struct search search = { .device = device };

	INIT_WORK_ONSTACK(&search.work, search_driver);
	queue_work(system_unbound_wq, &search.work);
	flush_work(&search.work);
	destroy_work_on_stack(&search.work);
	if (search.result < 0)
		dev_warn(device, "crtos: its driver does not take it back\n");
}

/* Reads what to add or remove; the name ends with a zero. */
static int read_argument(struct crtos_file *file, struct crtos_cell_device *argument,
			 const struct crtos_cell_device __user *user, u32 flags)
{
	if (copy_from_user(argument, user, sizeof(*argument)))
		return -EFAULT;
	argument->name[sizeof(argument->name) - 1] = '\0';
	if (argument->flags & ~flags)
		return crtos_refuse(file, -EINVAL, "[bad-call] unknown flags %x", argument->flags);
	return 0;
}

/**
 * crtos_device_add() - CRTOS_IOC_DEVICE_ADD: give a device to a cell
 * @file: where a failure is explained
 * @user: which device, and which cell
 *
 * Context: Under crtos.lock; may sleep, as drivers do that let a device go.
 * Return: 0, the number of a range of ports or of a device that is described, or a negative error;
 * then the driver has it back.
 */
int crtos_device_add(struct crtos_file *file, const struct crtos_cell_device __user *user)
{
	struct crtos_cell_device argument;
	struct crtos_cell *cell;
	int error;

	error = read_argument(file, &argument, user, CRTOS_DEVICE_NO_RESET |
			      CRTOS_DEVICE_ON_PLATFORM | CRTOS_DEVICE_PORTS |
			      CRTOS_DEVICE_NO_INTERRUPT | CRTOS_DEVICE_DESCRIBED);
	if (error)
		return error;
	cell = crtos_cell_find(file, argument.cell);
	if (!cell)
		return -ENOENT;
	if (crtos_cell_locked(cell))
		return crtos_refuse(file, -EBUSY, "[cell-locked] cell '%s' is locked: it gets no device",
				    cell->name);
	if (argument.flags & CRTOS_DEVICE_PORTS)
		return crtos_ports_add(file, cell, argument.name);
	if (argument.flags & CRTOS_DEVICE_DESCRIBED)
		return crtos_described_add(file, cell, argument.name,
					   !(argument.flags & CRTOS_DEVICE_NO_INTERRUPT));
	if (argument.flags & CRTOS_DEVICE_ON_PLATFORM)
		return crtos_platform_add(file, cell, argument.name);
	return crtos_function_add(file, cell, argument.name, argument.flags);
}

/**
 * crtos_device_remove() - CRTOS_IOC_DEVICE_REMOVE: take a device back from a cell
 * @file: where a failure is explained
 * @user: which device, and which cell
 *
 * Context: Under crtos.lock; may sleep, as drivers do that get a device.
 * Return: 0 or a negative error; then the cell still has it.
 */
int crtos_device_remove(struct crtos_file *file, const struct crtos_cell_device __user *user)
{
	struct crtos_cell_device argument;
	int error;

	error = read_argument(file, &argument, user,
			      CRTOS_DEVICE_ON_PLATFORM | CRTOS_DEVICE_PORTS |
			      CRTOS_DEVICE_DESCRIBED);
	if (error)
		return error;
	if (!crtos_cell_find(file, argument.cell))
		return -ENOENT;
	if (argument.flags & (CRTOS_DEVICE_PORTS | CRTOS_DEVICE_DESCRIBED))
		return crtos_ports_remove(file, argument.cell, argument.name,
					  argument.flags & CRTOS_DEVICE_DESCRIBED);
	if (argument.flags & CRTOS_DEVICE_ON_PLATFORM)
		return crtos_platform_remove(file, argument.cell, argument.name);
	return crtos_function_remove(file, argument.cell, argument.name);
}

/**
 * crtos_interface_show() - CRTOS_IOC_INTERFACE_SHOW: show an interface whose card the realm has
 * @file: where a failure is explained
 * @user: which card, and what the interface was
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then Linux does not show it.
 */
int crtos_interface_show(struct crtos_file *file, const struct crtos_cell_interface __user *user)
{
	struct crtos_cell_interface argument;

	if (copy_from_user(&argument, user, sizeof(argument)))
		return -EFAULT;
	argument.function[sizeof(argument.function) - 1] = '\0';
	argument.name[sizeof(argument.name) - 1] = '\0';
	if (!crtos_cell_find(file, argument.cell))
		return -ENOENT;
	return crtos_function_show(file, &argument);
}

/**
 * crtos_devices_return() - give all devices of a cell back to Linux
 * @file: where a failure is explained
 * @cell: the cell, which does not run
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then the cell still has some.
 */
int crtos_devices_return(struct crtos_file *file, u32 cell)
{
	return crtos_ports_return_added(file, cell) ?: crtos_platforms_return(file, cell) ?:
	       crtos_functions_return(file, cell);
}
