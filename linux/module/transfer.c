// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is copied between files of Linux and memory of cells: images into private
 * memory, by way of the hypervisor, and the shared block, which Linux sees itself.
 */
#include <linux/io.h>
#include <linux/pid_namespace.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/* Copies through a page: the cell's own memory is hidden from Linux. */
static int load_pages(struct crtos_file *file, const struct crtos_load_cell *load, void *bounce)
{
	const void __user *source = u64_to_user_ptr(load->source);
	u64 done = 0;

	while (done < load->length) {
		u64 address = load->cell_address + done;
		u64 length = min_t(u64, load->length - done,
				   PAGE_SIZE - address % PAGE_SIZE);
		s64 result;

		if (fatal_signal_pending(current))
			return -EINTR;
		if (copy_from_user(bounce, source + done, length))
			return crtos_refuse(file, -EFAULT, "[bad-call] bad address of what is to be loaded");
		result = crtos_hypercall(CRTOS_HC_CELL_LOAD, load->cell, address,
					 __pa(bounce), length);
		if (result)
			return crtos_refuse_hv(file, result, "load into the cell");
		done += length;
		cond_resched();
	}
	return 0;
}

/**
 * crtos_cell_load() - CRTOS_IOC_CELL_LOAD: copy into private memory of a cell
 * @file: where a failure is explained
 * @user: what, and where to
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error.
 */
int crtos_cell_load(struct crtos_file *file, struct crtos_load_cell __user *user)
{
	struct crtos_load_cell request;
	struct crtos_cell *cell;
	u64 size;
	void *bounce;
	int error;

	if (copy_from_user(&request, user, sizeof(request)))
		return -EFAULT;
	cell = crtos_cell_find(file, request.cell);
	if (!cell)
		return -ENOENT;
	size = cell->private.count * CRTOS_LARGE_PAGE_SIZE;
	if (request.length > size || request.cell_address > size - request.length)
		return crtos_refuse(file, -EINVAL,
				    "[out-of-bounds] %llu bytes at %#llx do not fit the cell's %llu MiB of private memory: give it more",
				    request.length, request.cell_address, size >> 20);
	error = crtos_cell_renew(file, cell);
	if (error)
		return error;
	bounce = (void *)__get_free_page(GFP_KERNEL);
	if (!bounce)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	error = load_pages(file, &request, bounce);
	free_page((unsigned long)bounce);
	return error;
}

/* Where @transfer begins in the shared block of its cell. The caller holds crtos.lock. */
static void *shared_start(struct crtos_file *file, const struct crtos_transfer *transfer,
			  bool write)
{
	struct crtos_cell *cell = crtos_cell_find(file, transfer->cell);
	int error;

	if (!cell)
		return ERR_PTR(-ENOENT);
	if (write && cell->realm) {
		error = crtos_refuse(file, -EPERM,
				     "[bad-call] the channel of the real-time kernel is not for writing");
		return ERR_PTR(error);
	}
	if (transfer->length > CRTOS_LARGE_PAGE_SIZE ||
	    transfer->offset > CRTOS_LARGE_PAGE_SIZE - transfer->length) {
		error = crtos_refuse(file, -EINVAL,
				     "[out-of-bounds] %llu bytes at %llu are outside the shared block",
				     transfer->length, transfer->offset);
		return ERR_PTR(error);
	}
	return page_address(cell->channel.page[0]) + transfer->offset;
}

/* Does a range lie within one of @size bytes at @start? */
static bool lies_in(const struct crtos_transfer *transfer, u64 start, u64 size)
{
	return transfer->offset >= start && transfer->length <= size &&
	       transfer->offset - start <= size - transfer->length;
}

/* Is it a byte of a slot that tells no more than Linux's ps does? */
static bool is_public(size_t byte)
{
	return byte < offsetofend(struct crtos_slot, state) ||
	       (byte >= offsetof(struct crtos_slot, cpu) &&
		byte < offsetofend(struct crtos_slot, uid)) ||
	       byte >= offsetof(struct crtos_slot, thread_state);
}

/* Does a range lie within the slots? */
static bool lies_in_slots(const struct crtos_transfer *transfer)
{
	return lies_in(transfer, offsetof(struct crtos_channel, slots),
		       sizeof_field(struct crtos_channel, slots));
}

/*
 * What those who are not root see of the realm's channel: counters, and of each thread
 * what Linux's ps shows. Calls with their arguments and signals, the log and the trace
 * are not for them.
 */
static bool may_see(const struct crtos_transfer *transfer)
{
	return lies_in(transfer, 0, offsetof(struct crtos_channel, revocations)) ||
	       lies_in(transfer, offsetof(struct crtos_channel, sections),
		       sizeof_field(struct crtos_channel, sections)) ||
	       lies_in_slots(transfer);
}

/* Clears of slots what they do not see. The caller has a copy of the range. */
static void hide(const struct crtos_transfer *transfer, u8 *copy)
{
	u64 i, first = transfer->offset - offsetof(struct crtos_channel, slots);

	for (i = 0; i < transfer->length && lies_in_slots(transfer); i++)
		if (!is_public((first + i) % sizeof(struct crtos_slot)))
			copy[i] = 0;
}

/* The ids of the slot's thread in a pid namespace; false if there is no such thread in it. */
static bool find_ids(struct crtos_realm *realm, u32 number, struct pid_namespace *ns,
		     struct crtos_slot *slot)
{
	struct crtos_thread *thread;

	rcu_read_lock();
	thread = rcu_dereference(realm->threads[number]);
	slot->pid = thread ? task_tgid_nr_ns(thread->task, ns) : 0;
	slot->tid = thread ? task_pid_nr_ns(thread->task, ns) : 0;
	rcu_read_unlock();
	return slot->tid;
}

/*
 * What those in a pid namespace see of the realm's slots, as of Linux's processes by ps:
 * threads that are in it, by their ids there. The caller has a copy of the range, and
 * holds crtos.lock.
 */
static int localize(struct crtos_file *file, const struct crtos_transfer *transfer, u8 *copy)
{
	const u64 start = offsetof(struct crtos_channel, slots), size = sizeof(struct crtos_slot);
	const u64 end = start + sizeof_field(struct crtos_channel, slots);
	struct pid_namespace *ns = task_active_pid_ns(current);
	struct crtos_realm *realm = crtos_realm_kept();
	struct crtos_slot *slot;
	u64 at;

	if (ns == &init_pid_ns || transfer->offset >= end ||
	    transfer->offset + transfer->length <= start)
		return 0;
	if (!realm || !lies_in(transfer, start, end - start) ||
	    (transfer->offset - start) % size || transfer->length % size)
		return crtos_refuse(file, -EINVAL,
				    "[bad-call] in a pid namespace slots are read as a whole");
	for (at = 0; at < transfer->length; at += size) {
		slot = (struct crtos_slot *)(copy + at);
		if (!find_ids(realm, (transfer->offset - start + at) / size, ns, slot))
			memset(slot, 0, size);
	}
	return 0;
}

/**
 * crtos_cell_read() - CRTOS_IOC_CHANNEL: copy from the shared block of a cell
 * @file: where a failure is explained
 * @user: from where, and where to
 *
 * Context: Without crtos.lock: anybody may call this, with a buffer whose pages take
 * for ever to come.
 * Return: 0 or a negative error.
 */
int crtos_cell_read(struct crtos_file *file, struct crtos_transfer __user *user)
{
	struct crtos_transfer transfer;
	bool sees_all = capable(CAP_SYS_ADMIN);
	void *start, *copy = NULL;
	int error = 0;

	if (copy_from_user(&transfer, user, sizeof(transfer)))
		return -EFAULT;
	if (mutex_lock_killable(&crtos.lock))
		return -EINTR;
	start = shared_start(file, &transfer, false);
	if (IS_ERR(start)) {
		error = PTR_ERR(start);
	} else if (!sees_all && (!crtos.cells[transfer.cell]->realm || !may_see(&transfer))) {
		error = crtos_refuse(file, -EPERM, "[not-permitted] this takes CAP_SYS_ADMIN: call it as root");
	} else {
		/* Many callers have one each, for as long as they like: it counts as theirs. */
		copy = kvmalloc(transfer.length, GFP_KERNEL_ACCOUNT);
		if (copy)
			memcpy(copy, start, transfer.length);
		else
			error = crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
		if (!error && crtos.cells[transfer.cell]->realm)
			error = localize(file, &transfer, copy);
	}
	mutex_unlock(&crtos.lock);
	if (!error && !sees_all)
		hide(&transfer, copy);
	if (!error && copy_to_user(u64_to_user_ptr(transfer.buffer), copy, transfer.length))
		error = -EFAULT;
	kvfree(copy);
	return error;
}

/**
 * crtos_cell_write() - CRTOS_IOC_CHANNEL_WRITE: copy to the shared block of a cell
 * @file: where a failure is explained
 * @user: from where, and where to
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error: the channel of a realm is not for writing.
 */
int crtos_cell_write(struct crtos_file *file, struct crtos_transfer __user *user)
{
	struct crtos_transfer transfer;
	void *start;

	if (copy_from_user(&transfer, user, sizeof(transfer)))
		return -EFAULT;
	start = shared_start(file, &transfer, true);
	if (IS_ERR(start))
		return PTR_ERR(start);
	if (copy_from_user(start, u64_to_user_ptr(transfer.buffer), transfer.length))
		return -EFAULT;
	return 0;
}
