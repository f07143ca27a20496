// SPDX-License-Identifier: GPL-2.0-only
/*
 * Futexes that nobody is left to wake: those of a program of the realm that was killed, with
 * its shadow threads, after it had changed a word that it shares with programs of Linux, and
 * those of a real-time thread that had more to wake than there was room for.
 *
 * Whoever waits at a futex and wakes without having been woken there compares its word again,
 * and goes on if that has changed: so it is enough to have all of them run. Those who wait at
 * private futexes share no word with the realm, so few are left. The tasks are looked through
 * at most once in a period, however often the realm wants it.
 */
#include <linux/sched/signal.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>
#include <asm/ptrace.h>
#include <asm/unistd.h>
#include <uapi/linux/futex.h>

#include "crtos.h"
#include "realm.h"

/* Jiffies from one look at all tasks to the next. */
#define LOOKS_PERIOD	max(HZ / 50, 1)

/* System calls of 32-bit programs. */
#define IA32_RESTART		0
#define IA32_FUTEX		240
#define IA32_FUTEX_TIME64	422
/* Those that have one number for all, and the second is younger than some kernels' headers. */
#define ALL_FUTEX_WAITV		449
#define ALL_FUTEX_WAIT		455

/* Does an operation of futex(2) wait for a plain wake-up by who may be another process? */
static bool waits_shared(u32 operation)
{
	u32 command = operation & FUTEX_CMD_MASK;

	return !(operation & FUTEX_PRIVATE_FLAG) &&
	       (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET);
}

/*
 * Is this the system call of somebody who may wait at a shared futex? A wait with a limit goes on
 * as restart_syscall after a stop. Beyond system calls there is no number.
 */
static bool waits_at_futex(const struct pt_regs *regs, bool is_compat)
{
	int number = regs->orig_ax;

	if (number < 0)
		return false;
	if (!is_compat)
		number &= ~__X32_SYSCALL_BIT;
	if (number == ALL_FUTEX_WAITV || number == ALL_FUTEX_WAIT)
		return true;
	if (is_compat)
		return (number == IA32_FUTEX || number == IA32_FUTEX_TIME64 ||
			number == IA32_RESTART) && waits_shared(regs->cx);
	return (number == __NR_futex || number == __NR_restart_syscall) && waits_shared(regs->si);
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
	if (waits_at_futex(&regs, task_thread_info(task)->status & TS_COMPAT))
		wake_up_process(task);
}

static void looks_work(struct work_struct *work)
{
	struct crtos_realm *realm = container_of(to_delayed_work(work), struct crtos_realm,
						 futex_looks);
	struct task_struct *process, *thread;

	WRITE_ONCE(realm->futex_looks_next, jiffies + LOOKS_PERIOD);
	WRITE_ONCE(realm->futex_looks_seen, READ_ONCE(realm->channel->futex_looks));
	/* Before the tasks: what is counted later is looked at again. */
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
	unsigned long next = READ_ONCE(realm->futex_looks_next), now = jiffies;

	/* Pairs with look_at_futexes() of lib/channel. */
	if (READ_ONCE(realm->channel->futex_looks) != READ_ONCE(realm->futex_looks_seen))
		queue_delayed_work(crtos.work, &realm->futex_looks,
				   time_before(now, next) ? next - now : 0);
}

/**
 * crtos_futexes_init() - prepare a new realm
 * @realm: the realm
 */
void crtos_futexes_init(struct crtos_realm *realm)
{
	realm->futex_looks_next = jiffies;
	INIT_DELAYED_WORK(&realm->futex_looks, looks_work);
}

/**
 * crtos_futexes_free() - look no more
 * @realm: the realm, whose doorbell does not ring any more
 *
 * Context: May sleep.
 */
void crtos_futexes_free(struct crtos_realm *realm)
{
	cancel_delayed_work_sync(&realm->futex_looks);
}
