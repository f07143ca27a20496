// SPDX-License-Identifier: GPL-2.0-only
/*
 * PCI functions and platform devices that the realm is to have, as its kernel is told: a wish for
 * each. The kernel has programs find them, and says whether programs use those that are to go.
 */
#include <linux/fs.h>
#include <linux/kernfs.h>
#include <linux/pci.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>

#include "compat.h"
#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/* Stores what the realm is to have at a place; 0 as function for nothing. Under realm_lock. */
static void store_wanted(struct crtos_realm *realm, int place)
{
	struct crtos_wanted_device *wanted = &realm->channel->wanted_devices[place];
	const struct crtos_wish *wish = &realm->wishes[place];

	/* Read by wanted_device() of lib/channel, once the question is asked. */
	WRITE_ONCE(wanted->number, new_encode_dev(wish->number));
	WRITE_ONCE(wanted->serial, wish->serial);
	WRITE_ONCE(wanted->group, wish->group);
	WRITE_ONCE(wanted->line, wish->line);
	strscpy_pad(wanted->description, wish->wanted && wish->description ? wish->description : "",
		    sizeof(wanted->description));
	WRITE_ONCE(wanted->function, wish->wanted ? 1 + wish->function : 0);
}

/**
 * crtos_wishes_store() - tell the kernel, which is about to start, of all wishes
 * @realm: the realm
 *
 * Context: Under realm_lock.
 */
void crtos_wishes_store(struct crtos_realm *realm)
{
	int place;

	for (place = 0; place < CRTOS_MAX_DEVICES; place++)
		store_wanted(realm, place);
}

/* The wish for a function, or NULL. */
static struct crtos_wish *find_wish(struct crtos_realm *realm, u16 function)
{
	struct crtos_wish *wish;

	for (wish = realm->wishes; wish < realm->wishes + CRTOS_MAX_DEVICES; wish++)
		if (wish->wanted && wish->function == function)
			return wish;
	return NULL;
}

/* Sets or clears a wish, for the kernel to look at. */
static void set_wish(struct crtos_realm *realm, struct crtos_wish *wish, bool wanted)
{
	crtos_realm_lock();
	wish->wanted = wanted;
	store_wanted(realm, wish - realm->wishes);
	crtos_realm_unlock();
}

/* Says that a wish is about to end, or that it has ended, unless @wanted. */
static void end_wish(struct crtos_realm *realm, struct crtos_wish *wish, bool ends, bool wanted)
{
	bool was_wanted;

	crtos_realm_lock();
	was_wanted = wish->wanted;
	/* The machine may have lost the device meanwhile. */
	wish->wanted = wanted && wish->ends;
	wish->ends = ends && was_wanted;
	store_wanted(realm, wish - realm->wishes);
	crtos_realm_unlock();
}

/**
 * crtos_wish_add() - have programs of the realm find a device
 * @file: where a failure is explained
 * @function: bus, device and function, or number of a platform device, which the realm has
 * @number: of the file that leads to it
 * @group: 1 + its group, if they are to find it by VFIO; 0 for UIO
 * @line: as in struct crtos_wanted_device
 * @description: what it is, if the kernel drives it without a PCI function, or NULL or empty
 * @memory: its memory by base address register
 *
 * @description and @memory stay until crtos_wish_drop() or -end().
 *
 * Context: Under crtos.lock, so that the realm stays; may sleep.
 * Return: 0 or a negative error; then nothing is to find.
 */
int crtos_wish_add(struct crtos_file *file, u16 function, dev_t number, u32 group,
		   u32 line, const char *description, const struct crtos_device_memory *memory)
{
	struct crtos_realm *realm = crtos_realm_kept();
	struct crtos_wish *wish;
	u32 had;

	for (wish = realm->wishes; wish->wanted; wish++)
		if (wish == &realm->wishes[CRTOS_MAX_DEVICES - 1])
			return crtos_refuse(file, -ENOSPC, "[cell-limit] cells have too many devices");
	wish->function = function;
	wish->number = number;
	wish->group = group;
	wish->line = line;
	wish->description = description;
	wish->memory = memory;
	wish->serial = ++realm->last_serial;
	set_wish(realm, wish, true);
	/* Before it runs it looks by itself. */
	if (!crtos_realm_ready(realm))
		return 0;
	if (!crtos_realm_ask(realm, &realm->channel->devices)) {
		set_wish(realm, wish, false);
		return crtos_refuse(file, -ETIMEDOUT,
				    "[kernel-silent] the real-time kernel does not answer: its real-time threads leave it no time");
	}
	/* Stored by tell_device() of lib/channel. */
	had = READ_ONCE(realm->channel->had_devices[wish - realm->wishes].function);
	if (had == 1 + function)
		return 0;
	set_wish(realm, wish, false);
	return crtos_refuse(file, -EIO, "[device-unfit] the real-time kernel cannot use it: see crtos log");
}

/* Clears a wish, and tells the kernel. Under realm_lock. */
static void drop(struct crtos_realm *realm, struct crtos_wish *wish)
{
	wish->ends = false;
	if (!wish->wanted)
		return;
	wish->wanted = false;
	store_wanted(realm, wish - realm->wishes);
	if (READ_ONCE(realm->alive)) {
		crtos_channel_put_question(&realm->channel->devices);
		crtos_hypercall(CRTOS_HC_DOORBELL, realm->cell->number, 0, 0, 0);
	}
}

/**
 * crtos_wish_drop() - have no program find a device any more
 * @function: its number, as crtos_wish_add() was given it
 * @memory: likewise
 *
 * The kernel is told, and not waited for. If the machine has lost the device, its number may be
 * another one's by now, which has other memory.
 *
 * Context: May sleep.
 */
void crtos_wish_drop(u16 function, const struct crtos_device_memory *memory)
{
	struct crtos_realm *realm;
	struct crtos_wish *wish;
	int place;

	crtos_realm_lock();
	realm = crtos_realm_get();
	for (place = 0; realm && place < CRTOS_MAX_DEVICES; place++) {
		wish = &realm->wishes[place];
		if (wish->function == function && wish->memory == memory)
			drop(realm, wish);
	}
	crtos_realm_unlock();
}

/**
 * crtos_wish_registers() - which function of the realm has a part of the machine's memory
 * @realm: the realm
 * @start: where that part begins
 * @size: bytes
 * @address: where the realm sees the beginning
 *
 * Context: May sleep.
 * Return: bus, device and function, or -ENODEV.
 */
s64 crtos_wish_registers(struct crtos_realm *realm, u64 start, u64 size, u64 *address)
{
	struct crtos_wish *wish;
	s64 result = -ENODEV;
	int i;

	crtos_realm_lock();
	for (wish = realm->wishes; wish < realm->wishes + CRTOS_MAX_DEVICES; wish++)
		for (i = 0; wish->wanted && i < CRTOS_BASE_ADDRESSES; i++) {
			const struct crtos_device_memory *memory = &wish->memory[i];
			u64 last = memory->physical + PAGE_ALIGN(memory->size);

			if (start < memory->physical || start >= last || size > last - start)
				continue;
			*address = memory->cell_address + (start - memory->physical);
			result = wish->function;
		}
	crtos_realm_unlock();
	return result;
}

/*
 * Whether a file of sysfs is in the folder of a function, and which of its resources it is; or
 * configuration space, that can be written, of one that UIO shows and that interrupts by its pin.
 */
static bool is_resource(const struct file *file, const struct crtos_wish *wish,
			unsigned int *index)
{
	const struct kernfs_node *node = file_inode(file)->i_private;
	struct pci_dev *dev;
	bool found;
	char end;

	dev = pci_get_domain_bus_and_slot(0, wish->function >> 8, wish->function & 0xff);
	found = dev && crtos_folder_of(node) == dev->dev.kobj.sd;
	if (found && !strcmp(node->name, "config")) {
		*index = CRTOS_STATUS_CONFIGURATION;
		found = wish->line && !wish->group && (file->f_mode & FMODE_WRITE);
	} else if (found) {
		found = sscanf(node->name, "resource%u%c", index, &end) == 1 &&
			*index < CRTOS_BASE_ADDRESSES &&
			(pci_resource_flags(dev, *index) & IORESOURCE_IO);
	}
	pci_dev_put(dev);
	return found;
}

/**
 * crtos_wish_ports() - tell whether a file shows I/O ports of a function of the realm, or
 * configuration space that the realm answers for
 * @realm: the realm
 * @file: a file of sysfs
 * @word: how the kernel is told which function's, and which (CRTOS_STATUS_PORTS)
 *
 * Context: May sleep.
 */
bool crtos_wish_ports(struct crtos_realm *realm, const struct file *file, u64 *word)
{
	struct crtos_wish *wish;
	unsigned int index;
	bool found = false;

	crtos_realm_lock();
	for (wish = realm->wishes; wish < realm->wishes + CRTOS_MAX_DEVICES && !found; wish++) {
		found = wish->wanted && is_resource(file, wish, &index);
		if (found)
			*word = (u64)wish->function << CRTOS_STATUS_FUNCTION_SHIFT | index;
	}
	crtos_realm_unlock();
	return found;
}

/* Says which programs have a function open. */
static int refuse_used(struct crtos_file *file, const char *name,
		       const struct crtos_had_device *had)
{
	u32 count = READ_ONCE(had->user_count), i;
	struct task_struct *task;
	char users[160] = "";
	size_t length = 0;

	for (i = 0; i < min_t(u32, count, CRTOS_NAMED_USERS) && length < sizeof(users); i++) {
		pid_t pid = READ_ONCE(had->users[i]);
		char command[TASK_COMM_LEN] = "?";

		rcu_read_lock();
		task = pid_task(find_pid_ns(pid, &init_pid_ns), PIDTYPE_PID);
		if (task)
			get_task_comm(command, task);
		rcu_read_unlock();
		length += scnprintf(users + length, sizeof(users) - length, "%s%d (%s)",
				    i ? ", " : "", pid, command);
	}
	return crtos_refuse(file, -EBUSY,
			    "[device-in-use] programs of the realm have %s open: %s", name,
			    count ? users : "they have just ended, try again");
}

/**
 * crtos_wish_end() - have the realm give a PCI function back
 * @file: where a failure is explained
 * @function: bus, device and function
 * @name: its name
 *
 * Context: Under crtos.lock, so that the realm stays; may sleep.
 * Return: 0 if no program has it, and none finds it any more; or a negative error.
 */
int crtos_wish_end(struct crtos_file *file, u16 function, const char *name)
{
	struct crtos_realm *realm = crtos_realm_kept();
	const struct crtos_had_device *had;
	struct crtos_wish *wish;

	if (!crtos_realm_ready(realm))
		return 0;
	wish = find_wish(realm, function);
	if (wish)
		end_wish(realm, wish, true, false);
	if (!crtos_realm_ask(realm, &realm->channel->devices)) {
		if (wish)
			end_wish(realm, wish, false, true);
		return crtos_refuse(file, -ETIMEDOUT,
				    "[kernel-silent] the real-time kernel does not answer: its real-time threads leave it no time");
	}
	if (!wish)
		return 0;
	had = &realm->channel->had_devices[wish - realm->wishes];
	if (!READ_ONCE(had->function)) {
		end_wish(realm, wish, false, false);
		return 0;
	}
	end_wish(realm, wish, false, true);
	return refuse_used(file, name, had);
}
