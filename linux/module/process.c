// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shadows: the Linux half of rich real-time processes. Each file is at most one
 * process.
 *
 * A process is over when its file is released, or when its last mapping went
 * away (its memory map ended; a child that inherited the file does not keep it).
 * From then on a work item waits until no call, mapping or pin is left, and only
 * then tells the kernel that it is gone.
 */
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "crtos.h"
#include "realm.h"

/* Offsets of the device are process << 47 | address, and not negative. */
#define LAST_NUMBER	0xffff

/* Jiffies between two looks at a process that is over. */
#define REAP_PERIOD	1

/* Jiffies that the end of a process waits for its threads, and microseconds between two looks. */
#define LEAVE_PATIENCE	(HZ / 10)
#define LEAVE_LOOK_US	100

static void free_process(struct kref *ref)
{
	struct crtos_process *process = container_of(ref, struct crtos_process, ref);

	xa_destroy(&process->by_tid);
	xa_destroy(&process->pages);
	crtos_kept_free(process);
	mmdrop(process->mm);
	put_pid(process->pid);
	path_put(&process->path);
	kfree(process);
}

/**
 * crtos_process_put() - give a reference to a process back
 * @process: the process
 *
 * Context: May sleep.
 */
void crtos_process_put(struct crtos_process *process)
{
	kref_put(&process->ref, free_process);
}

/**
 * crtos_process_end() - end a process, asynchronously
 * @process: the process; nothing happens if all of it was given back already
 *
 * Context: Under realm_lock.
 */
void crtos_process_end(struct crtos_process *process)
{
	if (list_empty(&process->link))
		return;
	if (!process->over)
		crtos_threads_tell_leaving(process);
	/* Pairs with crtos_process_enter(), by way of reap_work(). */
	WRITE_ONCE(process->over, true);
	mod_delayed_work(crtos.work, &process->reap, 0);
}

/* Does a thread of the process still run in the realm? */
static bool runs(struct crtos_process *process)
{
	bool result;

	crtos_realm_lock();
	result = !list_empty(&process->link) && crtos_realm_ready(process->realm) &&
		 crtos_threads_run(process);
	crtos_realm_unlock();
	return result;
}

/**
 * crtos_process_over() - end a process whose file or last mapping is gone
 * @process: the process
 *
 * A task that exits gets here before its parent can hear of that. So it waits until the
 * threads in the realm run no more, if they get to that in time: others may keep their
 * CPU busy.
 *
 * Context: May sleep; mmap_lock may be held.
 */
void crtos_process_over(struct crtos_process *process)
{
	unsigned long end = jiffies + LEAVE_PATIENCE;

	/* As a call does, this keeps reap_work() from taking the threads out meanwhile. */
	atomic_inc(&process->calls);
	crtos_realm_lock();
	crtos_process_end(process);
	crtos_realm_unlock();
	while (runs(process) && time_before(jiffies, end))
		usleep_range(LEAVE_LOOK_US, 2 * LEAVE_LOOK_US);
	crtos_process_leave(process);
	crtos_realm_lock();
	if (!list_empty(&process->link))
		mod_delayed_work(crtos.work, &process->reap, 0);
	crtos_realm_unlock();
}

/**
 * crtos_process_enter() - begin a call of a process
 * @process: the process of the caller's file, or NULL
 *
 * Until crtos_process_leave() process, realm and threads stay.
 *
 * Return: false if there is none, or it is over.
 */
bool crtos_process_enter(struct crtos_process *process)
{
	if (!process)
		return false;
	atomic_inc(&process->calls);
	/*
	 * Either this sees that the process is over, or reap_work() sees the call.
	 * Pairs with the barrier there.
	 */
	smp_mb__after_atomic();
	if (!READ_ONCE(process->over))
		return true;
	atomic_dec(&process->calls);
	return false;
}

/**
 * crtos_process_leave() - end a call of a process
 * @process: the process, which may be gone afterwards
 */
void crtos_process_leave(struct crtos_process *process)
{
	atomic_dec(&process->calls);
}

/**
 * crtos_file_process() - the process of a file
 * @file: the file
 *
 * Return: the process, or NULL. It stays as long as the file.
 */
struct crtos_process *crtos_file_process(struct crtos_file *file)
{
	/* Pairs with crtos_spawn(), which makes the process before it stores it. */
	return smp_load_acquire(&file->process);
}

/**
 * crtos_process_look() - end a process if a shadow thread went on its own
 * @process: the process
 *
 * Where processes of Linux share memory, each goes for itself.
 *
 * Context: Under realm_lock.
 */
void crtos_process_look(struct crtos_process *process)
{
	struct crtos_thread *thread;
	bool left = false;

	list_for_each_entry(thread, &process->threads, link) {
		if (!crtos_thread_left(thread))
			continue;
		left = true;
		thread->leaving = process->shared;
	}
	if (!left)
		return;
	if (process->shared)
		mod_delayed_work(crtos.work, &process->reap, 0);
	else
		crtos_process_end(process);
}

static void forget_process(struct crtos_process *process)
{
	struct crtos_realm *realm = process->realm;

	crtos_realm_lock();
	list_del_init(&process->link);
	cancel_delayed_work(&process->reap);
	WRITE_ONCE(realm->process_count, realm->process_count - 1);
	if (!realm->process_count)
		wake_up_all(&realm->empty);
	crtos_realm_unlock();
	crtos_process_put(process);
}

/* Gives back what the process or some of its threads do not use any more. */
static void reap_work(struct work_struct *work)
{
	struct crtos_process *process = container_of(to_delayed_work(work),
						     struct crtos_process, reap);
	bool has_heir;

	crtos_revocations_run(process);
	if (!READ_ONCE(process->over)) {
		if (crtos_threads_remove_leaving(process) || crtos_revocations_pending(process))
			queue_delayed_work(crtos.work, &process->reap, REAP_PERIOD);
		return;
	}
	/* Pairs with crtos_process_enter(): the call is counted, or it sees over. */
	smp_mb();
	crtos_realm_lock();
	crtos_threads_wake(process);
	has_heir = crtos_threads_have_heir(process);
	crtos_realm_unlock();
	if (atomic_read(&process->calls) || atomic_read(&process->mappings) ||
	    crtos_pages_pinned(process) || has_heir) {
		queue_delayed_work(crtos.work, &process->reap, REAP_PERIOD);
		return;
	}
	crtos_revocations_finish(process);
	crtos_kept_free(process);
	crtos_threads_remove(process);
	forget_process(process);
}

/* A number that no living process has. The caller holds realm_lock. */
static u32 new_number(struct crtos_realm *realm)
{
	struct crtos_process *process;
	u32 number = realm->last_number;
again:
	number = number % LAST_NUMBER + 1;
	list_for_each_entry(process, &realm->processes, link)
		if (process->number == number)
			goto again;
	realm->last_number = number;
	return number;
}

static struct crtos_process *new_process(const struct path *path)
{
	struct crtos_process *process = kzalloc(sizeof(*process), GFP_KERNEL);

	if (!process)
		return NULL;
	kref_init(&process->ref);
	INIT_LIST_HEAD(&process->link);
	INIT_LIST_HEAD(&process->threads);
	INIT_LIST_HEAD(&process->pinned);
	INIT_DELAYED_WORK(&process->reap, reap_work);
	mutex_init(&process->revocation_lock);
	xa_init(&process->by_tid);
	xa_init(&process->pages);
	xa_init(&process->kept);
	process->mm = current->mm;
	mmgrab(process->mm);
	process->pid = get_task_pid(current, PIDTYPE_TGID);
	process->path = *path;
	path_get(path);
	return process;
}

static int refuse_thread(struct crtos_file *file, int error)
{
	if (error == -EAGAIN)
		return crtos_refuse(file, error,
				    "[threads-used-up] the realm has %u threads, and that is the most",
				    CRTOS_SLOTS);
	if (error == -EDQUOT)
		return crtos_refuse(file, -EAGAIN,
				    "[threads-used-up] the user has as many threads in the realm as are free, and that is their share: end some");
	return crtos_refuse(file, error, "[out-of-memory] out of memory");
}

/*
 * The process of that thread, by its slot + 1, if the file with that descriptor is
 * the process's, else NULL. Who has the descriptor was forked by the process. What is
 * kept for one that is over may be let go at any time. The caller holds realm_lock.
 */
static struct crtos_process *find_parent(struct crtos_realm *realm, u32 parent, int descriptor)
{
	struct crtos_process *process = NULL;
	struct file *file = fget(descriptor);
	struct crtos_thread *thread;

	if (!file)
		return NULL;
	if (file->f_op == crtos_device.fops && parent <= CRTOS_SLOTS) {
		/* Updates of the table hold realm_lock as well. */
		thread = rcu_dereference_protected(realm->threads[parent - 1], true);
		if (thread && !thread->process->over &&
		    thread->process == crtos_file_process(file->private_data))
			process = thread->process;
	}
	fput(file);
	return process;
}

/*
 * Makes a process, of which a call is being made: crtos_process_leave() ends that. The caller
 * holds file->lock and realm_lock.
 */
static int spawn(struct crtos_file *file, const struct path *path, struct crtos_spawn *spawned,
		 struct crtos_process **made)
{
	struct crtos_realm *realm = crtos_realm_get();
	struct crtos_process *process, *parent = NULL;
	struct crtos_thread *thread;

	if (!realm || realm->closed || !crtos_realm_ready(realm))
		return crtos_refuse(file, -ESRCH,
				    "[not-up] no real-time kernel runs: start the realm (crtos up)");
	if (spawned->parent)
		parent = find_parent(realm, spawned->parent, spawned->parent_file);
	/* Its id in its pid namespace is that of the process as well. */
	if (!thread_group_leader(current))
		return crtos_refuse(file, -EINVAL, "[bad-call] the first thread of a process asks for one");
	if (spawned->parent && !parent)
		return crtos_refuse(file, -EINVAL, "[bad-call] that is not a thread of the caller's parent");
	process = new_process(path);
	if (process && parent && crtos_kept_copy(process, parent)) {
		crtos_process_put(process);
		process = NULL;
	}
	if (!process)
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	process->realm = realm;
	process->number = new_number(realm);
	crtos_clock_update(realm);
	thread = crtos_thread_add(process, CRTOS_SLOT_SPAWN, spawned->parent, 0);
	if (IS_ERR(thread)) {
		crtos_process_put(process);
		return refuse_thread(file, PTR_ERR(thread));
	}
	kref_get(&process->ref);
	atomic_inc(&process->calls);
	list_add_tail(&process->link, &realm->processes);
	WRITE_ONCE(realm->process_count, realm->process_count + 1);
	spawned->process = process->number;
	spawned->slot = thread->slot;
	*made = process;
	return 0;
}

/**
 * crtos_spawn() - CRTOS_IOC_SPAWN: make a file a process of the realm
 * @file: the file
 * @path: by which the device was opened
 * @user: what is asked for, and where the answer goes
 *
 * Context: Under file->lock; may sleep.
 * Return: 0 or a negative error, with its reason.
 */
int crtos_spawn(struct crtos_file *file, const struct path *path,
		struct crtos_spawn __user *user)
{
	struct crtos_process *process;
	struct crtos_spawn spawned;
	int error, unwatched;

	if (copy_from_user(&spawned, user, sizeof(spawned)))
		return -EFAULT;
	if (file->process)
		return crtos_refuse(file, -EBUSY,
				    "[bad-call] this file has a process already: open the device again");
	crtos_realm_lock();
	error = spawn(file, path, &spawned, &process);
	crtos_realm_unlock();
	crtos_heir_decided(file);
	if (error)
		return error;
	/*
	 * Its parent, which waits for it, hears of what is lost meanwhile. Other tasks that have
	 * the file could change what is kept, or end the process, so they find none before.
	 */
	unwatched = crtos_kept_watch(process);
	/* After the process was made; pairs with crtos_file_process(). */
	smp_store_release(&file->process, process);
	crtos_process_leave(process);
	if (unwatched) {
		crtos_process_over(process);
		return crtos_refuse(file, -ENOMEM, "[out-of-memory] out of memory");
	}
	if (copy_to_user(user, &spawned, sizeof(spawned))) {
		crtos_process_over(process);
		return -EFAULT;
	}
	return 0;
}
