// SPDX-License-Identifier: GPL-2.0-only
/*
 * Futexes that nobody is left to wake: those of a program of the realm that was killed, with
 * its shadow threads, after it had changed a word that it shares with programs of Linux.
 *
 * Whoever waits at a futex and wakes without having been woken there compares its word again,
 * and goes on if that has changed: so it is enough to have all of them run. That is rare, and
 * costs as much as there are threads.
 */
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>
#include <asm/ptrace.h>

#include "crtos.h"
#include "realm.h"

/* System calls that wait at futexes. */
static bool waits_at_futex(struct pt_regs *regs)
{
	/* 32-bit programs have numbers of their own. */
	if (!user_64bit_mode(regs))
		return regs->orig_ax == 240 || regs->orig_ax == 422;
	return regs->orig_ax == 202 || regs->orig_ax == 449 || regs->orig_ax == 455;
}

static void look(struct task_struct *task)
{
	void *stack = READ_ONCE(task->stack);
	struct pt_regs regs;

	if (task->flags & PF_KTHREAD || !(READ_ONCE(task->__state) & TASK_INTERRUPTIBLE))
		return;
	/*
	 * A task that has ended may have no stack any more, or another one has that. What is there
	 * is a hint: the task may run meanwhile. Any sleep may end without a reason.
	 */
	if (!stack || copy_from_kernel_nofault(&regs, stack + THREAD_SIZE -
					       TOP_OF_KERNEL_STACK_PADDING - sizeof(regs),
					       sizeof(regs)))
		return;
	if (waits_at_futex(&regs))
		wake_up_process(task);
}

static void looks_work(struct work_struct *work)
{
	struct crtos_realm *realm = container_of(work, struct crtos_realm, futex_looks);
	struct task_struct *process, *thread;

	/* Before the tasks: what is counted later is looked at again. */
	WRITE_ONCE(realm->futex_looks_seen, READ_ONCE(realm->channel->futex_looks));
	smp_mb();
	rcu_read_lock();
	for_each_process_thread(process, thread)
		look(thread);
	rcu_read_unlock();
}

/**
 * crtos_futexes_doorbell() - has the kernel wanted waiters to look at their words?
 * @realm: the realm
 *
 * Context: Any, hard interrupts on PREEMPT_RT included.
 */
void crtos_futexes_doorbell(struct crtos_realm *realm)
{
	/* Pairs with look_at_futexes() of lib/channel. */
	if (READ_ONCE(realm->channel->futex_looks) != READ_ONCE(realm->futex_looks_seen))
		queue_work(crtos.work, &realm->futex_looks);
}

/**
 * crtos_futexes_init() - prepare a new realm
 * @realm: the realm
 */
void crtos_futexes_init(struct crtos_realm *realm)
{
	INIT_WORK(&realm->futex_looks, looks_work);
}
