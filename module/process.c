// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shadows: the Linux half of rich real-time processes. Each file is at most one
 * process; each thread waits here for the system calls that its counterpart in
 * the realm wants made, and makes them in user space.
 *
 * A process is over when its file is released, or when its last mapping went
 * away (its memory map ended; a child that inherited the file does not keep it).
 * From then on a work item waits until no call, mapping or pin is left, and only
 * then tells the kernel that it is gone.
 */
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "crtos.h"
#include "realm.h"

/* Offsets of the device are process << 47 | address, and not negative. */
#define LAST_NUMBER	0xffff

#define REAP_PERIOD	1	/* jiffies */

static void free_process(struct kref *ref)
{
	struct crtos_process *process = container_of(ref, struct crtos_process, ref);

	xa_destroy(&process->by_tid);
	xa_destroy(&process->pages);
	mmdrop(process->mm);
	put_pid(process->pid);
	iput(process->inode);
	kfree(process);
}

void crtos_process_put(struct crtos_process *process)
{
	kref_put(&process->ref, free_process);
}

/*
 * Ends the process, asynchronously, unless it has been forgotten already. The
 * caller holds the realm's lock.
 */
void crtos_process_end(struct crtos_process *process)
{
	if (list_empty(&process->link))
		return;
	WRITE_ONCE(process->over, true);
	mod_delayed_work(crtos.work, &process->reap, 0);
}

/* The same for those who do not hold the lock. May sleep. */
void crtos_process_over(struct crtos_process *process)
{
	crtos_realm_lock();
	crtos_process_end(process);
	crtos_realm_unlock();
}

/* Has all threads look again at why they wait. The caller holds the realm's lock. */
void crtos_process_wake(struct crtos_process *process)
{
	struct crtos_thread *thread;

	list_for_each_entry(thread, &process->threads, link)
		if (READ_ONCE(thread->waiting))
			wake_up_process(thread->task);
}

/*
 * Brackets a call of the process: between the two, process, realm and threads
 * stay. Returns false if the process is over.
 */
static bool enter_process(struct crtos_process *process)
{
	if (!process)
		return false;
	atomic_inc(&process->calls);
	smp_mb__after_atomic();		/* pairs with that in reap_work() */
	if (!READ_ONCE(process->over))
		return true;
	atomic_dec(&process->calls);
	return false;
}

static void leave_process(struct crtos_process *process)
{
	atomic_dec(&process->calls);
}

static struct crtos_process *file_process(struct crtos_file *file)
{
	return smp_load_acquire(&file->process);
}

static void free_thread(struct rcu_head *rcu)
{
	struct crtos_thread *thread = container_of(rcu, struct crtos_thread, rcu);

	put_task_struct(thread->task);
	kfree(thread);
}

/*
 * Takes a thread out of the realm and tells the kernel. Doorbells that are being
 * taken may still look at it. The caller holds the realm's lock.
 */
static void remove_thread(struct crtos_thread *thread)
{
	struct crtos_process *process = thread->process;
	struct crtos_realm *realm = process->realm;

	list_del(&thread->link);
	RCU_INIT_POINTER(realm->threads[thread->slot], NULL);
	xa_erase(&process->by_tid, thread->tid);
	crtos_core_notice(realm->channel, thread->slot, CRTOS_SLOT_GONE);
	crtos_realm_ring(realm, thread->slot);
	call_rcu(&thread->rcu, free_thread);
}

/*
 * Nothing of the process is mapped or pinned any more. The last GONE has the
 * kernel use its pages for something else.
 */
static void remove_threads(struct crtos_process *process)
{
	struct crtos_thread *thread, *next;

	crtos_realm_lock();
	list_for_each_entry_safe(thread, next, &process->threads, link)
		remove_thread(thread);
	crtos_realm_unlock();
}

/* Did the thread exit, or execute a program? */
static bool thread_left(struct crtos_thread *thread)
{
	return READ_ONCE(thread->task->exit_state) ||
	       READ_ONCE(thread->task->mm) != thread->process->mm;
}

/*
 * Takes out those that leave while others stay. The last one goes with the
 * memory. Returns whether some are still about to leave.
 */
static bool remove_leaving(struct crtos_process *process)
{
	struct crtos_thread *thread, *next;
	bool again = false;

	crtos_realm_lock();
	list_for_each_entry_safe(thread, next, &process->threads, link) {
		if (!thread->leaving)
			continue;
		if (thread_left(thread) && !list_is_singular(&process->threads))
			remove_thread(thread);
		else
			again = true;
	}
	crtos_realm_unlock();
	return again;
}

/*
 * Ends the process if a shadow thread went on its own. Where processes share
 * memory, each goes for itself. The caller holds the realm's lock.
 */
void crtos_process_look(struct crtos_process *process)
{
	struct crtos_thread *thread;
	bool left = false;

	list_for_each_entry(thread, &process->threads, link) {
		if (!thread_left(thread))
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

/* The calling process is about to exit, and leaves others behind. */
static void leave_shared(struct crtos_process *process)
{
	struct crtos_thread *thread;

	crtos_realm_lock();
	list_for_each_entry(thread, &process->threads, link)
		thread->leaving |= same_thread_group(thread->task, current);
	mod_delayed_work(crtos.work, &process->reap, REAP_PERIOD);
	crtos_realm_unlock();
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

	crtos_drops_run(process);
	if (!READ_ONCE(process->over)) {
		if (remove_leaving(process) || crtos_drops_pending(process))
			queue_delayed_work(crtos.work, &process->reap, REAP_PERIOD);
		return;
	}
	smp_mb();	/* over is seen, or the call is counted: enter_process() */
	crtos_realm_lock();
	crtos_process_wake(process);
	crtos_realm_unlock();
	if (atomic_read(&process->calls) || atomic_read(&process->mappings) ||
	    crtos_pages_pinned(process)) {
		queue_delayed_work(crtos.work, &process->reap, REAP_PERIOD);
		return;
	}
	crtos_drops_finish(process);
	remove_threads(process);
	forget_process(process);
}

/* A number that no living process has. The caller holds the realm's lock. */
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

static struct crtos_process *new_process(struct inode *inode)
{
	struct crtos_process *process = kzalloc(sizeof(*process), GFP_KERNEL);

	if (!process)
		return NULL;
	kref_init(&process->ref);
	INIT_LIST_HEAD(&process->link);
	INIT_LIST_HEAD(&process->threads);
	INIT_LIST_HEAD(&process->pinned);
	INIT_DELAYED_WORK(&process->reap, reap_work);
	mutex_init(&process->drop_lock);
	xa_init(&process->by_tid);
	xa_init(&process->pages);
	process->mm = current->mm;
	mmgrab(process->mm);
	process->pid = get_task_pid(current, PIDTYPE_TGID);
	process->inode = inode;
	ihold(inode);
	return process;
}

/*
 * Makes the calling task a thread of @process in a free slot, which goes to
 * the kernel in @state. The caller holds the realm's lock, and has checked
 * @parent.
 */
static struct crtos_thread *add_thread(struct crtos_process *process, u32 state, u32 parent)
{
	struct crtos_realm *realm = process->realm;
	struct crtos_core_owner owner = {
		.process = process->number,
		.pid = task_tgid_vnr(current),
		.tid = task_pid_vnr(current),
		.uid = from_kuid_munged(current_user_ns(), current_uid()),
		.parent = parent,
	};
	struct crtos_thread *thread;
	u32 slot = 0;

	for (;; slot++) {
		slot = crtos_core_free_slot(realm->channel, slot);
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
	thread->task = get_task_struct(current);
	thread->tid = task_pid_nr(current);
	if (xa_err(xa_store(&process->by_tid, thread->tid, thread, GFP_KERNEL))) {
		put_task_struct(thread->task);
		kfree(thread);
		return ERR_PTR(-ENOMEM);
	}
	list_add_tail(&thread->link, &process->threads);
	rcu_assign_pointer(realm->threads[slot], thread);
	WRITE_ONCE(realm->words, max(realm->words, slot / 64 + 1));
	crtos_core_waits_on(realm->channel, slot, raw_smp_processor_id());
	crtos_core_open(realm->channel, slot, state, &owner);
	crtos_realm_ring(realm, slot);
	return thread;
}

static int refuse_thread(struct crtos_file *file, int error)
{
	if (error == -EAGAIN)
		return crtos_refuse(file, error,
				    "the realm has %u threads, and that is the most", CRTOS_SLOTS);
	return crtos_refuse(file, error, "out of memory");
}

/*
 * Is that thread, by its slot + 1, one of the process of the file with that
 * descriptor? Who has the descriptor was forked by the process. The caller holds
 * the realm's lock.
 */
static bool is_parent(struct crtos_realm *realm, u32 parent, int descriptor)
{
	struct file *file = fget(descriptor);
	struct crtos_thread *thread;
	bool is_parent = false;

	if (!file)
		return false;
	if (file->f_op == crtos_device.fops && parent <= CRTOS_SLOTS) {
		thread = rcu_dereference_protected(realm->threads[parent - 1], true);
		is_parent = thread && thread->process == file_process(file->private_data);
	}
	fput(file);
	return is_parent;
}

/* The caller holds file->lock and the realm's lock. */
static int spawn(struct crtos_file *file, struct inode *inode, struct crtos_spawn *spawned)
{
	struct crtos_realm *realm = crtos_realm_get();
	struct crtos_process *process;
	struct crtos_thread *thread;

	if (!realm || realm->closed || !crtos_realm_ready(realm))
		return crtos_refuse(file, -ESRCH,
				    "no real-time kernel runs: start the realm (crtos up)");
	if (spawned->parent && !is_parent(realm, spawned->parent, spawned->parent_file))
		return crtos_refuse(file, -EINVAL, "that is not a thread of the caller's parent");
	process = new_process(inode);
	if (!process)
		return crtos_refuse(file, -ENOMEM, "out of memory");
	process->realm = realm;
	process->number = new_number(realm);
	crtos_clock_update(realm);
	thread = add_thread(process, CRTOS_SLOT_SPAWN, spawned->parent);
	if (IS_ERR(thread)) {
		crtos_process_put(process);
		return refuse_thread(file, PTR_ERR(thread));
	}
	kref_get(&process->ref);
	list_add_tail(&process->link, &realm->processes);
	WRITE_ONCE(realm->process_count, realm->process_count + 1);
	smp_store_release(&file->process, process);
	spawned->process = process->number;
	spawned->slot = thread->slot;
	return 0;
}

int crtos_spawn(struct crtos_file *file, struct inode *inode, struct crtos_spawn __user *user)
{
	struct crtos_spawn spawned;
	int error;

	if (copy_from_user(&spawned, user, sizeof(spawned)))
		return -EFAULT;
	if (file->process)
		return crtos_refuse(file, -EBUSY,
				    "this file has a process already: open the device again");
	crtos_realm_lock();
	error = spawn(file, inode, &spawned);
	crtos_realm_unlock();
	if (!error && copy_to_user(user, &spawned, sizeof(spawned))) {
		crtos_process_over(file->process);
		return -EFAULT;
	}
	return error;
}

/* A thread of the process, or with @parent the first one of one that shares its memory. */
static struct crtos_thread *create_thread(struct crtos_process *process, u32 parent)
{
	struct crtos_realm *realm = process->realm;
	struct crtos_thread *thread;

	if (current->mm != process->mm || xa_load(&process->by_tid, task_pid_nr(current)))
		return ERR_PTR(-EINVAL);
	if (!crtos_realm_ready(realm))
		return ERR_PTR(-ESRCH);
	if (!parent)
		return add_thread(process, CRTOS_SLOT_READY, 0);
	if (parent > CRTOS_SLOTS)
		return ERR_PTR(-EINVAL);
	thread = rcu_dereference_protected(realm->threads[parent - 1], true);
	if (!thread || thread->process != process)
		return ERR_PTR(-EINVAL);
	process->shared = true;
	return add_thread(process, CRTOS_SLOT_SPAWN, parent);
}

int crtos_thread_create(struct crtos_file *file, u32 parent)
{
	struct crtos_process *process = file_process(file);
	struct crtos_thread *thread;
	int result;

	if (!enter_process(process))
		return -ESRCH;
	crtos_realm_lock();
	thread = create_thread(process, parent);
	result = IS_ERR(thread) ? PTR_ERR(thread) : thread->slot;
	crtos_realm_unlock();
	leave_process(process);
	return result;
}

/*
 * Sleeps until the kernel stored @state in the slot. Returns 0, -ESRCH when the
 * kernel or the process is no more, or -ERESTARTNOINTR for a signal (with
 * TASK_KILLABLE as @mode: a fatal one).
 */
int crtos_thread_wait(struct crtos_thread *thread, unsigned int mode, u32 state)
{
	struct crtos_process *process = thread->process;
	struct crtos_realm *realm = process->realm;
	int error = 0;

	crtos_core_waits_on(realm->channel, thread->slot, raw_smp_processor_id());
	WRITE_ONCE(thread->waiting, true);
	for (;;) {
		set_current_state(mode);
		if (crtos_core_state(realm->channel, thread->slot) == state)
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

/*
 * Is the calling task about to stop? The signals that stop are pending, or another thread has
 * taken one.
 */
static bool is_stopping(void)
{
	static const int stopping[] = { SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU };
	bool stops;
	int i;

	spin_lock_irq(&current->sighand->siglock);
	stops = current->jobctl & JOBCTL_STOP_PENDING;
	for (i = 0; i < ARRAY_SIZE(stopping); i++)
		stops |= (sigismember(&current->pending.signal, stopping[i]) ||
			  sigismember(&current->signal->shared_pending.signal, stopping[i])) &&
			 current->sighand->action[stopping[i] - 1].sa.sa_handler == SIG_DFL;
	spin_unlock_irq(&current->sighand->siglock);
	return stops;
}

/* Tells the kernel that the thread stops, or that it goes on: so does the one in the realm. */
static void tell_stopped(struct crtos_thread *thread, bool stopped)
{
	struct crtos_realm *realm = thread->process->realm;

	if (thread->stopped == stopped)
		return;
	thread->stopped = stopped;
	if (stopped)
		crtos_core_notice(realm->channel, thread->slot, CRTOS_SLOT_STOPPED);
	else
		crtos_core_continue(realm->channel, thread->slot);
	crtos_realm_ring(realm, thread->slot);
}

static int next_request(struct crtos_thread *thread)
{
	struct crtos_realm *realm = thread->process->realm;
	int error;

	tell_stopped(thread, false);
	do {
		error = crtos_thread_wait(thread, TASK_INTERRUPTIBLE, CRTOS_SLOT_REQUEST);
		if (error == -ERESTARTNOINTR && is_stopping())
			tell_stopped(thread, true);
		if (error)
			return error;
	} while (!crtos_core_take_request(realm->channel, thread->slot, &thread->request));
	WRITE_ONCE(thread->busy, true);
	return 0;
}

static int remote(struct crtos_process *process, struct crtos_remote __user *user)
{
	struct crtos_realm *realm = process->realm;
	struct crtos_thread *thread;
	struct crtos_remote call;
	int error;

	if (copy_from_user(&call, user, sizeof(call)))
		return -EFAULT;
	thread = xa_load(&process->by_tid, task_pid_nr(current));
	if (!thread || thread->task != current || thread->slot != call.slot ||
	    thread->asking || (call.has_result && !thread->busy))
		return -EINVAL;
	if (call.has_result) {
		/* A call that a signal interrupts starts again without the result. */
		if (put_user(0, &user->has_result))
			return -EFAULT;
		WRITE_ONCE(thread->busy, false);
		if (thread->request.op == CRTOS_OP_FORK && process->shared) {
			/* The child that it waited for has left. */
			crtos_realm_lock();
			crtos_process_look(process);
			crtos_realm_unlock();
		}
		if (crtos_core_reply(realm->channel, thread->slot, call.result))
			crtos_realm_ring(realm, thread->slot);
		/* The caller goes on: its CPU may share a core with this one. */
		cpu_relax();
	}
	/* If the last request did not reach the caller, it is still there. */
	if (!thread->busy) {
		error = next_request(thread);
		if (error)
			return error;
	}
	crtos_drops_run(process);
	call.has_result = 0;
	call.result = 0;
	call.op = thread->request.op;
	call.nr = thread->request.nr;
	memcpy(call.args, thread->request.args, sizeof(call.args));
	if ((call.op == CRTOS_OP_EXIT || call.op == CRTOS_OP_EXIT_SIGNAL) && process->shared)
		leave_shared(process);
	if (call.op == CRTOS_OP_THREAD_EXIT) {
		/* All that is left for it to do is to exit. */
		crtos_realm_lock();
		remove_thread(thread);
		crtos_realm_unlock();
	}
	return copy_to_user(user, &call, sizeof(call)) ? -EFAULT : 0;
}

int crtos_remote(struct crtos_file *file, struct crtos_remote __user *user)
{
	struct crtos_process *process = file_process(file);
	int error;

	if (!enter_process(process))
		return -ESRCH;
	error = remote(process, user);
	leave_process(process);
	return error;
}

/* A thread may have left the realm already: the signal is for its process. */
static struct crtos_thread *signalled_thread(struct crtos_process *process)
{
	struct crtos_thread *thread = xa_load(&process->by_tid, task_pid_nr(current));

	if (thread)
		return thread;
	list_for_each_entry(thread, &process->threads, link)
		if (same_thread_group(thread->task, current))
			return thread;
	return NULL;
}

/* Hands a signal to the kernel. -EAGAIN while the one before has not been taken. */
static int forward(struct crtos_process *process, const u64 *info)
{
	struct crtos_thread *thread;
	int error = 0;

	crtos_realm_lock();
	thread = signalled_thread(process);
	if (!thread || !crtos_realm_ready(process->realm))
		error = -ESRCH;
	else if (!crtos_core_signal(process->realm->channel, thread->slot, info))
		error = -EAGAIN;
	else
		crtos_realm_ring(process->realm, thread->slot);
	crtos_realm_unlock();
	return error;
}

int crtos_signal(struct crtos_file *file, const void __user *user)
{
	struct crtos_process *process = file_process(file);
	u64 info[6];
	int error;

	if (copy_from_user(info, user, sizeof(info)))
		return -EFAULT;
	if ((u32)info[0] < 1 || (u32)info[0] > 64)
		return -EINVAL;
	for (;;) {
		if (!enter_process(process))
			return -ESRCH;
		error = forward(process, info);
		leave_process(process);
		if (error != -EAGAIN)
			return error;
		if (fatal_signal_pending(current))
			return -EINTR;
		schedule_timeout_killable(1);
	}
}
