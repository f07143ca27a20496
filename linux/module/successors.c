// SPDX-License-Identifier: GPL-2.0-only
/*
 * Files of Linux that local files of the realm have become (successors). A process of the
 * realm that has the local one gets a descriptor of this when it uses it next, maybe never:
 * so the file is kept here, under a number that the kernel chooses, until the kernel says
 * that nobody has the local one any more.
 */
#include <linux/eventfd.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/fs.h>

#include "crtos.h"
#include "realm.h"

/* Puts a file, or NULL, in the place of a number, and drops what was there. */
static void put_successor(struct crtos_realm *realm, u32 number, struct file *file)
{
	spin_lock(&realm->successors_lock);
	swap(realm->successors[number], file);
	spin_unlock(&realm->successors_lock);
	if (file)
		fput(file);
}

/*
 * Pipes and eventfds refer to no other files. One that did, as a socket does on whose way a
 * descriptor is, could keep the process from ever being released.
 */
static bool may_be_kept(struct file *file)
{
	struct eventfd_ctx *event;

	if (S_ISFIFO(file_inode(file)->i_mode))
		return true;
	event = eventfd_ctx_fileget(file);
	if (IS_ERR(event))
		return false;
	eventfd_ctx_put(event);
	return true;
}

/**
 * crtos_successor_keep() - CRTOS_OP_KEEP_SUCCESSOR: keep a file
 * @realm: the realm
 * @file: the file, of which the reference goes to this; NULL if there is none
 * @number: its number
 *
 * Context: May sleep.
 * Return: 0, -EBADF or -EINVAL.
 */
s64 crtos_successor_keep(struct crtos_realm *realm, struct file *file, u64 number)
{
	if (!file)
		return -EBADF;
	if (number >= CRTOS_SUCCESSORS || !may_be_kept(file)) {
		fput(file);
		return -EINVAL;
	}
	put_successor(realm, number, file);
	return 0;
}

/**
 * crtos_successor_take() - CRTOS_OP_TAKE_SUCCESSOR: make a descriptor of a file that is kept
 * @realm: the realm
 * @number: its number
 *
 * Context: The calling task is the shadow that gets it. May sleep.
 * Return: the descriptor, or a negative error.
 */
s64 crtos_successor_take(struct crtos_realm *realm, u64 number)
{
	struct file *file;
	int fd;

	if (number >= CRTOS_SUCCESSORS)
		return -EINVAL;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	spin_lock(&realm->successors_lock);
	file = realm->successors[number];
	if (file)
		get_file(file);
	spin_unlock(&realm->successors_lock);
	if (!file) {
		put_unused_fd(fd);
		return -EBADF;
	}
	fd_install(fd, file);
	return fd;
}

/* Lets go what the kernel needs no more. */
static void drops_work(struct work_struct *work)
{
	struct crtos_realm *realm = container_of(work, struct crtos_realm, successor_work);
	struct crtos_channel *channel = realm->channel;
	u32 word, number;
	u64 bits;

	WRITE_ONCE(realm->successor_drops_seen, READ_ONCE(channel->successor_drops));
	/*
	 * Before the look at the bits: what is counted later is looked at again. Pairs with
	 * drop_successor() of lib/channel, which counts after it has set the bit.
	 */
	smp_mb();
	for (word = 0; word < CRTOS_SUCCESSOR_WORDS; word++) {
		for (bits = READ_ONCE(channel->successors_dropped[word]); bits; bits &= bits - 1) {
			number = word * 64 + __ffs64(bits);
			put_successor(realm, number, NULL);
			/* The kernel uses the number again after this. */
			crtos_channel_clear64(&channel->successors_dropped[word],
					      BIT_ULL(number % 64));
		}
	}
}

/**
 * crtos_successors_doorbell() - does the kernel need some no more?
 * @realm: the realm
 *
 * Context: Any, hard interrupts on PREEMPT_RT included.
 */
void crtos_successors_doorbell(struct crtos_realm *realm)
{
	if (READ_ONCE(realm->channel->successor_drops) != READ_ONCE(realm->successor_drops_seen))
		queue_work(crtos.work, &realm->successor_work);
}

/**
 * crtos_successors_init() - prepare a new realm
 * @realm: the realm
 */
void crtos_successors_init(struct crtos_realm *realm)
{
	spin_lock_init(&realm->successors_lock);
	INIT_WORK(&realm->successor_work, drops_work);
}

/**
 * crtos_successors_release() - let all go: no process of the realm is left
 * @realm: the realm
 *
 * Context: May sleep.
 */
void crtos_successors_release(struct crtos_realm *realm)
{
	u32 number;

	for (number = 0; number < CRTOS_SUCCESSORS; number++)
		put_successor(realm, number, NULL);
	realm->successor_drops_seen = 0;
}

/**
 * crtos_successors_free() - let all go for good
 * @realm: the realm, whose doorbell does not ring any more
 *
 * Context: May sleep.
 */
void crtos_successors_free(struct crtos_realm *realm)
{
	cancel_work_sync(&realm->successor_work);
	crtos_successors_release(realm);
}
