// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shadow threads: each is the Linux half of one thread in the realm, and owns one
 * slot of the channel.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "crtos.h"
#include "realm.h"

/* Jiffies after which threads that are about to leave are looked for. */
#define LEAVE_DELAY	1

static void free_thread(struct rcu_head *rcu)
{
	struct crtos_thread *thread = container_of(rcu, struct crtos_thread, rcu);

	put_task_struct(thread->task);
	kfree(thread);
}

/*
 * Is more needed than the real user id to tell what a task is permitted? Root is taken to have all
 * capabilities, and others to have none.
 */
static bool has_uncertain_ids(const struct cred *cred)
{
	if (!uid_eq(cred->uid, cred->euid) || !uid_eq(cred->uid, cred->suid))
		return true;
	if (uid_eq(cred->uid, GLOBAL_ROOT_UID))
		return !cap_issubset(CAP_FULL_SET, cred->cap_effective);
	return !cap_isclear(cred->cap_permitted);
}

/* What the kernel does not know of a task by its real user id: CRTOS_IDS_*. */
static u32 doubts_of(const struct cred *cred)
{
	if (cred->user_ns != &init_user_ns)
		return CRTOS_IDS_UNCERTAIN | CRTOS_IDS_FOREIGN;
	return has_uncertain_ids(cred) ? CRTOS_IDS_UNCERTAIN : 0;
}

/* Who pays for the calling task: who began its user namespace, by whatever ids it has there. */
static kuid_t payer(void)
{
	const struct user_namespace *ns = current_user_ns();
	kuid_t uid = current_uid();

	for (; ns != &init_user_ns; ns = ns->parent)
		uid = ns->owner;
	return uid;
}

/*
 * May somebody have one more thread? Who pays may have as many as are free, so that one
 * who has come first leaves a half of what there was to others. The caller holds
 * realm_lock.
 */
static bool has_share(struct crtos_realm *realm, kuid_t uid)
{
	u32 slot, own = 0, free = 0;

	if (capable(CAP_SYS_RESOURCE))
		return true;
	for (slot = 0; slot < CRTOS_SLOTS; slot++) {
		struct crtos_thread *thread = rcu_dereference_protected(realm->threads[slot], true);

		own += thread && uid_eq(thread->payer, uid);
		free += !thread;
	}
	return own < free;
}

/**
 * crtos_thread_add() - make the calling task a thread of a process
 * @process: the process
 * @state: CRTOS_SLOT_SPAWN or CRTOS_SLOT_READY; the state in which the kernel
 *	gets the slot
 * @parent: 1 + slot of the thread that forked it, which the caller has checked, or 0
 * @heritage: what it inherited, as its shadow tells; concerns that process alone
 *
 * Context: Under realm_lock; may sleep.
 * Return: the thread, or -EAGAIN if no slot is free, -EDQUOT if the user has their share,
 * or -ENOMEM.
 */
struct crtos_thread *crtos_thread_add(struct crtos_process *process, u32 state, u32 parent,
				      u32 heritage)
{
	struct crtos_realm *realm = process->realm;
	struct crtos_slot_owner owner = {
		.process = process->number,
		.pid = task_tgid_nr(current),
		.tid = task_pid_nr(current),
		.uid = from_kuid_munged(current_user_ns(), current_uid()),
		.parent = parent,
		.heritage = heritage,
		.payer = from_kuid(&init_user_ns, payer()),
		.doubts = doubts_of(current_cred()),
		.pid_namespace = task_active_pid_ns(current)->ns.inum,
		.own_tid = task_pid_vnr(current),
	};
	struct crtos_thread *thread;
	kuid_t uid = payer();
	u32 slot = 0;

	if (parent) {
		/* The caller holds realm_lock, which the updates of the table hold as well. */
		thread = rcu_dereference_protected(realm->threads[parent - 1], true);
		owner.parent |= thread->process->number << CRTOS_PARENT_PROCESS;
	}
	if (!has_share(realm, uid))
		return ERR_PTR(-EDQUOT);
	for (;; slot++) {
		slot = crtos_channel_free_slot(realm->channel, slot);
		if (slot == CRTOS_SLOTS)
			return ERR_PTR(-EAGAIN);
		if (!rcu_access_pointer(realm->threads[slot]))
			break;
	}
	thread = kzalloc(sizeof(*thread), GFP_KERNEL);
	if (!thread)
		return ERR_PTR(-ENOMEM);
	thread->process = process;
	thread->slot = slot;
	thread->payer = uid;
	thread->task = get_task_struct(current);
	thread->tid = task_pid_nr(current);
	if (xa_err(xa_store(&process->by_tid, thread->tid, thread, GFP_KERNEL))) {
		put_task_struct(thread->task);
		kfree(thread);
		return ERR_PTR(-ENOMEM);
	}
	list_add_tail(&thread->link, &process->threads);
	rcu_assign_pointer(realm->threads[slot], thread);
	/* Before the kernel gets the slot: it rings for it only after that. */
	WRITE_ONCE(realm->words, max(realm->words, slot / 64 + 1));
	crtos_channel_waits_on(realm->channel, slot, raw_smp_processor_id());
	crtos_channel_open(realm->channel, slot, state, &owner);
	crtos_realm_ring(realm, slot);
	return thread;
}

/**
 * crtos_thread_remove() - take a thread out of the realm
 * @thread: the thread
 *
 * Tells the kernel, which may use what the thread had for something else then.
 * A doorbell that is being taken may still look at it: it is freed after a grace
 * period.
 *
 * Context: Under realm_lock.
 */
void crtos_thread_remove(struct crtos_thread *thread)
{
	struct crtos_process *process = thread->process;
	struct crtos_realm *realm = process->realm;

	crtos_thread_disinherit(thread);
	list_del(&thread->link);
	RCU_INIT_POINTER(realm->threads[thread->slot], NULL);
	xa_erase(&process->by_tid, thread->tid);
	crtos_channel_notice(realm->channel, thread->slot, CRTOS_SLOT_GONE);
	crtos_realm_ring(realm, thread->slot);
	call_rcu(&thread->rcu, free_thread);
}

/**
 * crtos_threads_remove() - take all threads of a process out of the realm
 * @process: the process, of which nothing is mapped or pinned any more
 *
 * With the last CRTOS_SLOT_GONE the kernel uses its pages for something else.
 *
 * Context: May sleep.
 */
void crtos_threads_remove(struct crtos_process *process)
{
	struct crtos_thread *thread, *next;

	crtos_realm_lock();
	list_for_each_entry_safe(thread, next, &process->threads, link)
		crtos_thread_remove(thread);
	crtos_realm_unlock();
}

/**
 * crtos_thread_left() - did a thread exit, or execute a program?
 * @thread: the thread
 *
 * Context: Any; Linux changes both words as the task goes.
 * Return: true if its task does not belong to the shadow any more.
 */
bool crtos_thread_left(struct crtos_thread *thread)
{
	return READ_ONCE(thread->task->exit_state) ||
	       READ_ONCE(thread->task->mm) != thread->process->mm;
}

/* Is a thread about to execute a program? A task that has ended is not, whoever has the file. */
static bool has_heir(const struct crtos_thread *thread)
{
	return thread->heir && !READ_ONCE(thread->task->exit_state);
}

/**
 * crtos_threads_remove_leaving() - take out those that leave while others stay
 * @process: the process
 *
 * The last thread goes with the memory.
 *
 * Context: May sleep.
 * Return: whether some are still about to leave.
 */
bool crtos_threads_remove_leaving(struct crtos_process *process)
{
	struct crtos_thread *thread, *next;
	bool again = false;

	crtos_realm_lock();
	list_for_each_entry_safe(thread, next, &process->threads, link) {
		if (!thread->leaving)
			continue;
		if (crtos_thread_left(thread) && !has_heir(thread) &&
		    !list_is_singular(&process->threads))
			crtos_thread_remove(thread);
		else
			again = true;
	}
	crtos_realm_unlock();
	return again;
}

/**
 * crtos_threads_leave() - the calling process of Linux is about to exit
 * @process: its rich real-time process, which it shares with others that stay
 *
 * Context: May sleep.
 */
void crtos_threads_leave(struct crtos_process *process)
{
	struct crtos_thread *thread;

	crtos_realm_lock();
	list_for_each_entry(thread, &process->threads, link)
		thread->leaving |= same_thread_group(thread->task, current);
	mod_delayed_work(crtos.work, &process->reap, LEAVE_DELAY);
	crtos_realm_unlock();
}

/**
 * crtos_thread_bequeath() - the calling thread is about to execute a program
 * @process: its process
 * @heir: the file that is to become the process of that program
 *
 * The kernel hears that the thread is gone only when it is decided whether a process goes on
 * with what the thread has left: when the file has become a process, when it is released, or
 * when the thread comes back, because the program was not executed.
 *
 * Context: May sleep.
 */
void crtos_thread_bequeath(struct crtos_process *process, struct crtos_file *heir)
{
	struct crtos_thread *thread;

	crtos_realm_lock();
	thread = crtos_thread_current(process);
	if (thread) {
		crtos_thread_disinherit(thread);
		heir->heir_of = thread;
		WRITE_ONCE(thread->heir, heir);
	}
	crtos_realm_unlock();
}

/**
 * crtos_thread_disinherit() - a thread has no heir any more
 * @thread: the thread
 *
 * Context: Under realm_lock.
 */
void crtos_thread_disinherit(struct crtos_thread *thread)
{
	if (thread->heir)
		thread->heir->heir_of = NULL;
	WRITE_ONCE(thread->heir, NULL);
}

/**
 * crtos_heir_decided() - a file has become a process, or will not
 * @heir: the file
 *
 * Context: May sleep.
 */
void crtos_heir_decided(struct crtos_file *heir)
{
	struct crtos_process *process;

	crtos_realm_lock();
	if (heir->heir_of) {
		process = heir->heir_of->process;
		crtos_thread_disinherit(heir->heir_of);
		if (!list_empty(&process->link))
			mod_delayed_work(crtos.work, &process->reap, 0);
	}
	crtos_realm_unlock();
}

/**
 * crtos_threads_have_heir() - is a thread of a process about to execute a program?
 * @process: the process
 *
 * Context: Under realm_lock.
 * Return: whether it is not decided yet for one.
 */
bool crtos_threads_have_heir(struct crtos_process *process)
{
	struct crtos_thread *thread;

	list_for_each_entry(thread, &process->threads, link)
		if (has_heir(thread))
			return true;
	return false;
}

/**
 * crtos_threads_tell_leaving() - tell the kernel that a process ends
 * @process: the process
 *
 * Context: Under realm_lock.
 */
void crtos_threads_tell_leaving(struct crtos_process *process)
{
	struct crtos_channel *channel = process->realm->channel;
	struct crtos_thread *thread;

	list_for_each_entry(thread, &process->threads, link) {
		crtos_channel_notice(channel, thread->slot, CRTOS_SLOT_LEAVING);
		crtos_realm_ring(process->realm, thread->slot);
	}
}

/**
 * crtos_threads_run() - may threads of a process still run in the realm?
 * @process: the process
 *
 * Context: Under realm_lock.
 * Return: whether the kernel says that of one.
 */
bool crtos_threads_run(struct crtos_process *process)
{
	struct crtos_channel *channel = process->realm->channel;
	struct crtos_thread *thread;

	list_for_each_entry(thread, &process->threads, link)
		if (crtos_channel_runs(channel, thread->slot))
			return true;
	return false;
}

/**
 * crtos_threads_wake() - have all threads look again at why they wait
 * @process: the process
 *
 * Context: Under realm_lock.
 */
void crtos_threads_wake(struct crtos_process *process)
{
	struct crtos_thread *thread;

	list_for_each_entry(thread, &process->threads, link)
		/* A thread that is not seen waiting looks before it sleeps: crtos_thread_wait(). */
		if (READ_ONCE(thread->waiting))
			wake_up_process(thread->task);
}

/**
 * crtos_thread_current() - the calling task's thread
 * @process: its process, which the caller has entered
 *
 * Return: the thread, or NULL if the task has none. After execve another task can
 * have its thread id, and the task itself has left: its thread may go at any time.
 */
struct crtos_thread *crtos_thread_current(struct crtos_process *process)
{
	struct crtos_thread *thread = xa_load(&process->by_tid, task_pid_nr(current));

	return thread && thread->task == current && current->mm == process->mm ? thread : NULL;
}

/* A thread of the process, or with @parent the first one of one that shares its memory. */
static struct crtos_thread *create_thread(struct crtos_process *process, u32 parent, u32 heritage)
{
	struct crtos_realm *realm = process->realm;
	struct crtos_thread *thread;

	if (current->mm != process->mm || xa_load(&process->by_tid, task_pid_nr(current)))
		return ERR_PTR(-EINVAL);
	if (!crtos_realm_ready(realm))
		return ERR_PTR(-ESRCH);
	if (!parent)
		return crtos_thread_add(process, CRTOS_SLOT_READY, 0, heritage);
	if (parent > CRTOS_SLOTS)
		return ERR_PTR(-EINVAL);
	/* The caller holds realm_lock, which the updates of the table hold as well. */
	thread = rcu_dereference_protected(realm->threads[parent - 1], true);
	if (!thread || thread->process != process)
		return ERR_PTR(-EINVAL);
	process->shared = true;
	return crtos_thread_add(process, CRTOS_SLOT_SPAWN, parent, 0);
}

/**
 * crtos_thread_create() - CRTOS_IOC_THREAD
 * @file: the process's file
 * @argument: low half: 0, or 1 + slot of the thread that forked the calling task with
 *	CLONE_VM; high half: what the calling task inherited
 *
 * Context: May sleep.
 * Return: the slot, or a negative error.
 */
int crtos_thread_create(struct crtos_file *file, u64 argument)
{
	struct crtos_process *process = crtos_file_process(file);
	struct crtos_thread *thread;
	int result;

	if (!crtos_process_enter(process))
		return -ESRCH;
	crtos_realm_lock();
	thread = create_thread(process, lower_32_bits(argument), upper_32_bits(argument));
	result = IS_ERR(thread) ? PTR_ERR(thread) : thread->slot;
	crtos_realm_unlock();
	crtos_process_leave(process);
	/* As clone(2) has it. */
	return result == -EDQUOT ? -EAGAIN : result;
}

/**
 * crtos_thread_wait() - sleep until the kernel stored a state in the slot
 * @thread: the calling thread
 * @mode: TASK_INTERRUPTIBLE, or TASK_KILLABLE to sleep on at signals that are not fatal
 * @state: CRTOS_SLOT_REQUEST or CRTOS_SLOT_ANSWER
 *
 * Context: Sleeps. No lock of the module is held; mmap_lock may be.
 * Return: 0, -ESRCH when the kernel or the process is no more, or -ERESTARTNOINTR
 * for a signal.
 */
int crtos_thread_wait(struct crtos_thread *thread, unsigned int mode, u32 state)
{
	struct crtos_process *process = thread->process;
	struct crtos_realm *realm = process->realm;
	int error = 0;

	crtos_channel_waits_on(realm->channel, thread->slot, raw_smp_processor_id());
	/*
	 * Seen by crtos_realm_doorbell() and crtos_threads_wake(), or this thread
	 * sees what they wake it for: set_current_state() is a full barrier between
	 * this and the looks below, as the exchange of the slots' bits is there.
	 */
	WRITE_ONCE(thread->waiting, true);
	for (;;) {
		set_current_state(mode);
		if (crtos_channel_state(realm->channel, thread->slot) == state)
			break;
		if (!crtos_realm_ready(realm) || READ_ONCE(process->over)) {
			error = -ESRCH;
			break;
		}
		if (signal_pending_state(mode, current)) {
			error = -ERESTARTNOINTR;
			break;
		}
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	WRITE_ONCE(thread->waiting, false);
	return error;
}
