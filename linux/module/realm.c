// SPDX-License-Identifier: GPL-2.0-only
/*
 * The real-time realm: one cell that runs the real-time kernel, its channel,
 * and the list of processes that have a shadow here.
 */
#include <linux/delay.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/* Jiffies between two looks at clocks and at the realm's health. */
#define TICK_PERIOD	HZ

/* Jiffies that a realm which is given up waits for shadows to die. */
#define KILL_TIMEOUT	(10 * HZ)

/* Jiffies that the kernel has to answer whether it agrees to its end. */
#define ANSWER_TIMEOUT	(10 * HZ)

/* Set and cleared under realm_lock. */
static struct crtos_realm __rcu *the_realm;

/*
 * Protects the realm's processes, threads and slots, and the count of files that
 * trace. Shadows take it with mmap_lock held, so nobody who holds it reaches memory
 * of a program.
 */
static DEFINE_MUTEX(realm_lock);

/**
 * crtos_realm_lock() - lock the processes, threads and slots of the realm
 *
 * Context: May sleep, for short times only.
 */
void crtos_realm_lock(void)
{
	mutex_lock(&realm_lock);
}

/**
 * crtos_realm_unlock() - undo crtos_realm_lock()
 */
void crtos_realm_unlock(void)
{
	mutex_unlock(&realm_lock);
}

/**
 * crtos_realm_get() - the realm
 *
 * Context: Under realm_lock.
 * Return: the realm or NULL.
 */
struct crtos_realm *crtos_realm_get(void)
{
	return rcu_dereference_protected(the_realm, lockdep_is_held(&realm_lock));
}

/**
 * crtos_realm_ready() - does the real-time kernel run?
 * @realm: the realm
 *
 * A hint: it may stop at any time. Whoever sleeps until something comes of it is
 * woken then (wake_all()).
 *
 * Context: Any.
 * Return: true from when the kernel said so until it is stopped or dies.
 */
bool crtos_realm_ready(struct crtos_realm *realm)
{
	u32 state = READ_ONCE(realm->channel->kernel_state);

	return READ_ONCE(realm->alive) &&
	       (state == CRTOS_KERNEL_READY || state == CRTOS_KERNEL_SEALED);
}

/**
 * crtos_realm_alive() - the realm, if its kernel was started
 *
 * Context: Any, under rcu_read_lock().
 * Return: the realm or NULL.
 */
struct crtos_realm *crtos_realm_alive(void)
{
	struct crtos_realm *realm = rcu_dereference(the_realm);

	return realm && READ_ONCE(realm->alive) ? realm : NULL;
}

/**
 * crtos_realm_ring() - ring the doorbell for a slot's thread
 * @realm: the realm
 * @slot: the slot, in which something was stored for the kernel
 *
 * Context: Any in which the realm stays: under realm_lock, or in a call of a process.
 */
void crtos_realm_ring(struct crtos_realm *realm, u32 slot)
{
	bool wanted;

	/* What is not wanted is a notice. */
	if (READ_ONCE(realm->alive))
		crtos_hypercall(CRTOS_HC_DOORBELL, realm->cell->number,
				crtos_channel_target(realm->channel, slot, &wanted), 0, 0);
}

/**
 * crtos_realm_clock_set() - one of Linux's clocks was set
 *
 * Context: Hard interrupt, also on PREEMPT_RT.
 */
void crtos_realm_clock_set(void)
{
	struct crtos_realm *realm;

	rcu_read_lock();
	realm = crtos_realm_alive();
	if (realm)
		crtos_clock_republish(realm);
	rcu_read_unlock();
}

/**
 * crtos_realm_doorbell() - look at all that the kernel may have rung for
 *
 * Takes no lock: threads are found under RCU. The work is bounded by the slots in
 * use.
 *
 * Context: Any, hard interrupts on PREEMPT_RT included.
 */
void crtos_realm_doorbell(void)
{
	struct crtos_thread *thread;
	struct crtos_realm *realm;
	u32 word, slot;
	u64 bits;

	rcu_read_lock();
	realm = rcu_dereference(the_realm);
	if (!realm)
		goto out;
	for (word = 0; word < READ_ONCE(realm->words); word++) {
		for (bits = crtos_channel_requests(realm->channel, word); bits; bits &= bits - 1) {
			slot = word * 64 + __ffs64(bits);
			thread = rcu_dereference(realm->threads[slot]);
			/*
			 * After the exchange of the bits, a full barrier: a thread
			 * that is not seen waiting sees what the kernel stored.
			 * Pairs with crtos_thread_wait().
			 */
			if (thread && READ_ONCE(thread->waiting))
				wake_up_process(thread->task);
			if (crtos_channel_take_interrupt(realm->channel, slot)) {
				set_bit(slot, realm->interrupted);
				queue_work(crtos.work, &realm->interrupts);
			}
		}
	}
	if (crtos_revocations_posted(realm) >= CRTOS_REVOCATIONS / 2 ||
	    READ_ONCE(realm->channel->kernel_state) == CRTOS_KERNEL_DEAD)
		queue_work(crtos.work, &realm->revocations);
	crtos_ethernet_doorbell(realm);
	crtos_places_doorbell(realm);
	crtos_futexes_doorbell(realm);
	crtos_successors_doorbell(realm);
out:
	rcu_read_unlock();
}

static void wake_all(struct crtos_realm *realm)
{
	struct crtos_process *process;

	list_for_each_entry(process, &realm->processes, link)
		crtos_threads_wake(process);
}

/* Carries out revocations of all processes, and tells everybody if the kernel died. */
static void revocations_work(struct work_struct *work)
{
	struct crtos_realm *realm = container_of(work, struct crtos_realm, revocations);
	struct crtos_process *process;

	mutex_lock(&realm_lock);
	list_for_each_entry(process, &realm->processes, link)
		mod_delayed_work(crtos.work, &process->reap, 0);
	crtos_revocations_orphans(realm);
	if (!crtos_realm_ready(realm))
		wake_all(realm);
	mutex_unlock(&realm_lock);
}

/*
 * Interrupts system calls of shadow threads by a signal: not in the doorbell's
 * interrupt, because PREEMPT_RT does not permit it there.
 */
static void interrupts_work(struct work_struct *work)
{
	struct crtos_realm *realm = container_of(work, struct crtos_realm, interrupts);
	struct crtos_thread *thread;
	u32 slot;

	rcu_read_lock();
	for_each_set_bit(slot, realm->interrupted, CRTOS_SLOTS) {
		clear_bit(slot, realm->interrupted);
		thread = rcu_dereference(realm->threads[slot]);
		if (thread)
			send_sig(CRTOS_INTERRUPT_SIGNAL, thread->task, 1);
	}
	rcu_read_unlock();
}

static bool cell_failed(struct crtos_realm *realm)
{
	return crtos_cell_state(realm->cell) == CRTOS_CELL_FAILED;
}

/* Ends processes of which a shadow thread went on its own. */
static void find_exited(struct crtos_realm *realm)
{
	struct crtos_process *process;

	list_for_each_entry(process, &realm->processes, link)
		crtos_process_look(process);
}

static void tick_work(struct work_struct *work)
{
	struct crtos_realm *realm = container_of(to_delayed_work(work), struct crtos_realm, tick);

	mutex_lock(&realm_lock);
	if (realm->alive && cell_failed(realm)) {
		WRITE_ONCE(realm->alive, false);
		pr_err("crtos: the real-time kernel was stopped by the hypervisor: see crtos log\n");
	}
	if (realm->alive)
		crtos_clock_update(realm);
	if (!crtos_realm_ready(realm))
		wake_all(realm);
	find_exited(realm);
	crtos_revocations_orphans(realm);
	mutex_unlock(&realm_lock);
	/* A lost doorbell cannot hang a waiter. */
	crtos_realm_doorbell();
	queue_delayed_work(crtos.work, &realm->tick, TICK_PERIOD);
}

/**
 * crtos_realm_create() - make the realm
 * @cell: its cell, which has its memory
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or -ENOMEM.
 */
int crtos_realm_create(struct crtos_cell *cell)
{
	struct crtos_realm *realm = kvzalloc(sizeof(*realm), GFP_KERNEL);

	if (!realm)
		return -ENOMEM;
	if (crtos_places_init(realm)) {
		kvfree(realm);
		return -ENOMEM;
	}
	realm->cell = cell;
	realm->channel = page_address(cell->channel.page[0]);
	INIT_LIST_HEAD(&realm->processes);
	init_waitqueue_head(&realm->empty);
	INIT_WORK(&realm->revocations, revocations_work);
	INIT_WORK(&realm->interrupts, interrupts_work);
	INIT_DELAYED_WORK(&realm->tick, tick_work);
	crtos_futexes_init(realm);
	crtos_successors_init(realm);
	mutex_lock(&realm_lock);
	rcu_assign_pointer(the_realm, realm);
	mutex_unlock(&realm_lock);
	return 0;
}

/**
 * crtos_realm_start() - prepare the channel before the cell starts
 *
 * Context: Under crtos.lock; may sleep. No process exists.
 */
void crtos_realm_start(void)
{
	struct crtos_realm *realm;

	mutex_lock(&realm_lock);
	realm = crtos_realm_get();
	/* If the cell ran before, it has lost all its memory since. */
	crtos_places_release(realm);
	crtos_successors_release(realm);
	memset(realm->channel, 0, CRTOS_LARGE_PAGE_SIZE);
	realm->channel->magic = CRTOS_CHANNEL_MAGIC;
	memset32(realm->channel->ranks, CRTOS_RANK_ABSENT, CRTOS_MAX_CELL_CPUS);
	realm->channel->abi_version = CRTOS_ABI_VERSION;
	atomic_set(&realm->revocations_finished, 0);
	realm->futex_looks_seen = 0;
	crtos_clock_start(realm);
	crtos_wishes_store(realm);
	realm->closed = false;
	WRITE_ONCE(realm->alive, true);
	mutex_unlock(&realm_lock);
	crtos_ethernet_start(realm);
	queue_delayed_work(crtos.work, &realm->tick, TICK_PERIOD);
}

/**
 * crtos_realm_stop() - nobody waits for the kernel any more, and nobody rings
 *
 * Context: Under crtos.lock; may sleep. The cell is stopped, or about to be.
 */
void crtos_realm_stop(void)
{
	struct crtos_realm *realm;

	mutex_lock(&realm_lock);
	realm = crtos_realm_get();
	WRITE_ONCE(realm->alive, false);
	wake_all(realm);
	mutex_unlock(&realm_lock);
	crtos_ethernet_changed(realm);
}

static void kill_all(struct crtos_realm *realm)
{
	struct crtos_process *process;

	list_for_each_entry(process, &realm->processes, link) {
		kill_pid(process->pid, SIGKILL, 1);
		crtos_process_end(process);
	}
}

/* Counts processes that are not over, and those that are to go on as other ones (execve). */
static u32 count_living(struct crtos_realm *realm)
{
	struct crtos_process *process;
	u32 count = 0;

	list_for_each_entry(process, &realm->processes, link)
		count += !READ_ONCE(process->over) || crtos_threads_have_heir(process);
	return count;
}

/**
 * crtos_realm_empty() - wait until no process is left
 * @force: kill processes that are not over
 * @killable: wait without limit, but for a fatal signal; otherwise KILL_TIMEOUT
 *
 * Without @force it does not wait for processes that are not over. If none is left,
 * none comes any more.
 *
 * Context: Under crtos.lock; may sleep.
 * Return: whether none is left.
 */
bool crtos_realm_empty(bool force, bool killable)
{
	struct crtos_realm *realm;
	bool empty;
	u32 living;

	mutex_lock(&realm_lock);
	realm = crtos_realm_get();
	living = count_living(realm);
	realm->closed = force || !living;
	if (living && force) {
		WRITE_ONCE(realm->alive, false);
		kill_all(realm);
		wake_all(realm);
	}
	mutex_unlock(&realm_lock);
	if (living && !force)
		return false;
	if (killable)
		empty = !wait_event_killable(realm->empty, !READ_ONCE(realm->process_count));
	else
		empty = wait_event_timeout(realm->empty, !READ_ONCE(realm->process_count),
					   KILL_TIMEOUT);
	if (!empty)
		crtos_realm_reopen();
	return empty;
}

/**
 * crtos_realm_reopen() - undo what crtos_realm_empty() did to new processes
 *
 * Context: Under crtos.lock; may sleep.
 */
void crtos_realm_reopen(void)
{
	mutex_lock(&realm_lock);
	crtos_realm_get()->closed = false;
	mutex_unlock(&realm_lock);
}

/**
 * crtos_realm_ask() - ask the kernel, and wait for its answer
 * @realm: the realm
 * @question: what is asked: a field of the channel
 *
 * Returns also if there is no answer within ANSWER_TIMEOUT, and on a fatal signal.
 *
 * Context: Under crtos.lock, so that the realm stays; may sleep.
 * Return: whether the kernel has answered.
 */
bool crtos_realm_ask(struct crtos_realm *realm, struct crtos_question *question)
{
	unsigned long end = jiffies + ANSWER_TIMEOUT;
	u32 number = crtos_channel_put_question(question);

	crtos_hypercall(CRTOS_HC_DOORBELL, realm->cell->number, 0, 0, 0);
	while (!crtos_channel_is_answered(question, number) &&
	       time_before(jiffies, end) && !fatal_signal_pending(current))
		usleep_range(1000, 2000);
	return crtos_channel_is_answered(question, number);
}

/**
 * crtos_realm_kept() - the realm, in a caller that has crtos.lock: so it stays
 *
 * Context: Under crtos.lock; may sleep.
 * Return: the realm or NULL.
 */
struct crtos_realm *crtos_realm_kept(void)
{
	struct crtos_realm *realm;

	mutex_lock(&realm_lock);
	realm = crtos_realm_get();
	mutex_unlock(&realm_lock);
	return realm;
}

/**
 * crtos_realm_ask_end() - ask the kernel of a locked cell to agree to its end
 *
 * Whether it agreed, the state of the cell tells.
 *
 * Context: Under crtos.lock, so that the realm stays; may sleep.
 * Return: whether the kernel has answered.
 */
bool crtos_realm_ask_end(void)
{
	struct crtos_realm *realm = crtos_realm_kept();

	return crtos_realm_ask(realm, &realm->channel->end);
}

/**
 * crtos_realm_seal() - have the kernel of a locked cell take no new program
 *
 * Context: Under crtos.lock, so that the realm stays; may sleep.
 * Return: whether it says so.
 */
bool crtos_realm_seal(void)
{
	struct crtos_realm *realm = crtos_realm_kept();

	if (!crtos_realm_ready(realm))
		return false;
	crtos_realm_ask(realm, &realm->channel->seal);
	return READ_ONCE(realm->channel->kernel_state) == CRTOS_KERNEL_SEALED;
}

/**
 * crtos_realm_is_shadow() - is the caller the shadow of a program?
 *
 * Context: May sleep.
 */
bool crtos_realm_is_shadow(void)
{
	struct crtos_process *process;
	struct crtos_realm *realm;
	bool found = false;

	mutex_lock(&realm_lock);
	realm = crtos_realm_get();
	if (realm)
		list_for_each_entry(process, &realm->processes, link)
			found |= process->mm == current->mm;
	mutex_unlock(&realm_lock);
	return found;
}

/**
 * crtos_realm_destroy() - free the realm, which is stopped and without processes
 *
 * Context: Under crtos.lock; sleeps for a grace period.
 */
void crtos_realm_destroy(void)
{
	struct crtos_realm *realm;

	mutex_lock(&realm_lock);
	realm = crtos_realm_get();
	RCU_INIT_POINTER(the_realm, NULL);
	mutex_unlock(&realm_lock);
	synchronize_rcu();
	cancel_work_sync(&realm->revocations);
	cancel_work_sync(&realm->interrupts);
	cancel_delayed_work_sync(&realm->tick);
	crtos_futexes_free(realm);
	crtos_successors_free(realm);
	crtos_places_free(realm);
	kvfree(realm);
}

/* Bits of CRTOS_TRACE_WANT_*. */
#define TRACE_KINDS 3

/**
 * crtos_trace() - CRTOS_IOC_TRACE: have the real-time kernel trace, or not
 * @file: the file that wants it; what any file wants is traced
 * @what: CRTOS_TRACE_WANT_*
 *
 * Context: May sleep.
 * Return: 0, -EINVAL if there is no such thing, or -ESRCH if no kernel runs.
 */
int crtos_trace(struct crtos_file *file, unsigned long what)
{
	static unsigned int wanted[TRACE_KINDS];	/* files, under realm_lock */
	struct crtos_realm *realm;
	int error = 0;
	u32 all = 0;
	int kind;

	if (what >= BIT(TRACE_KINDS))
		return crtos_refuse(file, -EINVAL, "[bad-call] this kind of trace is not known");
	mutex_lock(&realm_lock);
	realm = crtos_realm_get();
	if (what && (!realm || !crtos_realm_ready(realm))) {
		error = crtos_refuse(file, -ESRCH,
				     "[not-up] no real-time kernel runs: start the realm (crtos up)");
	} else if (what != file->traces) {
		for (kind = 0; kind < TRACE_KINDS; kind++) {
			wanted[kind] += !!(what & BIT(kind)) - !!(file->traces & BIT(kind));
			all |= wanted[kind] ? BIT(kind) : 0;
		}
		file->traces = what;
		if (realm && READ_ONCE(realm->alive)) {
			/* Read by the kernel's trace::follow() when the doorbell rang. */
			WRITE_ONCE(realm->channel->trace_on, all);
			crtos_hypercall(CRTOS_HC_DOORBELL, realm->cell->number, 0, 0, 0);
		}
	}
	mutex_unlock(&realm_lock);
	return error;
}

/**
 * crtos_realm_processes() - count processes
 *
 * Context: May sleep.
 * Return: how many are not over.
 */
u32 crtos_realm_processes(void)
{
	struct crtos_realm *realm;
	u32 count = 0;

	mutex_lock(&realm_lock);
	realm = crtos_realm_get();
	if (realm)
		count = count_living(realm);
	mutex_unlock(&realm_lock);
	return count;
}
