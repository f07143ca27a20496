// SPDX-License-Identifier: GPL-2.0-only
/*
 * What passes between a shadow thread and its counterpart in the realm: requests
 * and their results, signals, stops. The shadow makes the calls in user space.
 */
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "crtos.h"
#include "realm.h"

/*
 * Is the calling task about to stop? The signals that stop are pending, or another
 * thread has taken one.
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
		crtos_channel_notice(realm->channel, thread->slot, CRTOS_SLOT_STOPPED);
	else
		crtos_channel_continue(realm->channel, thread->slot);
	crtos_realm_ring(realm, thread->slot);
}

/* Waits for a request and takes it. */
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
	} while (!crtos_channel_take_request(realm->channel, thread->slot, &thread->request));
	thread->busy = true;
	return 0;
}

/* Hands the result of the last request to the kernel, and @words if they are not NULL. */
static void reply(struct crtos_thread *thread, s64 result, const u64 *words)
{
	struct crtos_process *process = thread->process;
	struct crtos_channel *channel = process->realm->channel;
	bool ring;

	thread->busy = false;
	if (thread->request.op == CRTOS_OP_FORK && process->shared) {
		/* The child that it waited for has left. */
		crtos_realm_lock();
		crtos_process_look(process);
		crtos_realm_unlock();
	}
	ring = words ? crtos_channel_reply_words(channel, thread->slot, result, words) :
		       crtos_channel_reply(channel, thread->slot, result);
	if (ring)
		crtos_realm_ring(process->realm, thread->slot);
	/* The caller goes on: its CPU may share a core with this one. */
	cpu_relax();
}

/* Takes requests, and carries out those for the module, until there is one for the shadow. */
static int next_for_shadow(struct crtos_thread *thread)
{
	for (;;) {
		u64 words[6] = {};
		s64 result;
		int error = 0;

		/* A request that was interrupted, or did not reach the caller, is still there. */
		if (!thread->busy)
			error = next_request(thread);
		if (!error && !crtos_vouches(thread->request.op))
			return 0;
		if (!error)
			error = crtos_vouch(thread, words, &result);
		if (error)
			return error;
		reply(thread, result, words);
	}
}

static int remote(struct crtos_process *process, struct crtos_remote __user *user)
{
	struct crtos_thread *thread;
	struct crtos_remote call;
	int error;

	if (copy_from_user(&call, user, sizeof(call)))
		return -EFAULT;
	thread = crtos_thread_current(process);
	if (!thread || thread->slot != call.slot || thread->asking ||
	    (call.has_result && (!thread->busy || crtos_vouches(thread->request.op))))
		return -EINVAL;
	/* One that comes back has executed no program. */
	if (READ_ONCE(thread->heir)) {
		crtos_realm_lock();
		crtos_thread_disinherit(thread);
		crtos_realm_unlock();
	}
	if (call.has_result) {
		/* A call that a signal interrupts starts again without the result. */
		if (put_user(0, &user->has_result))
			return -EFAULT;
		reply(thread, call.result, NULL);
	}
	error = next_for_shadow(thread);
	if (error)
		return error;
	/* The call must see no page that the program has unmapped before. */
	crtos_revocations_run(process);
	call.has_result = 0;
	call.result = 0;
	call.op = thread->request.op;
	call.nr = thread->request.nr;
	memcpy(call.args, thread->request.args, sizeof(call.args));
	if (call.op == CRTOS_OP_EXIT_SIGNAL && call.args[1])
		pr_notice_ratelimited("crtos: process %d (%s) is killed: the realm has no memory left for it\n",
				      task_tgid_nr(current), current->comm);
	if ((call.op == CRTOS_OP_EXIT || call.op == CRTOS_OP_EXIT_SIGNAL) && process->shared)
		crtos_threads_leave(process);
	if (call.op == CRTOS_OP_THREAD_EXIT) {
		/* All that is left for it to do is to exit. */
		crtos_realm_lock();
		crtos_thread_remove(thread);
		crtos_realm_unlock();
	}
	return copy_to_user(user, &call, sizeof(call)) ? -EFAULT : 0;
}

/**
 * crtos_remote() - CRTOS_IOC_REMOTE: hand in a result, wait for a request
 * @file: the process's file
 * @user: the result, and where the request goes
 *
 * Context: The calling task is a shadow thread of the process. Sleeps.
 * Return: 0, or a negative error: -ESRCH when the process or the kernel is no more.
 */
int crtos_remote(struct crtos_file *file, struct crtos_remote __user *user)
{
	struct crtos_process *process = crtos_file_process(file);
	int error;

	if (!crtos_process_enter(process))
		return -ESRCH;
	error = remote(process, user);
	crtos_process_leave(process);
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
	else if (!crtos_channel_signal(process->realm->channel, thread->slot, info))
		error = -EAGAIN;
	else
		crtos_realm_ring(process->realm, thread->slot);
	crtos_realm_unlock();
	return error;
}

/**
 * crtos_signal() - CRTOS_IOC_SIGNAL: forward a signal to the realm
 * @file: the process's file
 * @user: the start of the signal's siginfo
 *
 * Context: Sleeps until the kernel has taken the signal before.
 * Return: 0, or a negative error.
 */
int crtos_signal(struct crtos_file *file, const void __user *user)
{
	struct crtos_process *process = crtos_file_process(file);
	u64 info[6];
	int error;

	if (copy_from_user(info, user, sizeof(info)))
		return -EFAULT;
	if ((u32)info[0] < 1 || (u32)info[0] > 64)
		return -EINVAL;
	for (;;) {
		if (!crtos_process_enter(process))
			return -ESRCH;
		error = forward(process, info);
		crtos_process_leave(process);
		if (error != -EAGAIN)
			return error;
		if (fatal_signal_pending(current))
			return -EINTR;
		schedule_timeout_killable(1);
	}
}
