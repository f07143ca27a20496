// SPDX-License-Identifier: GPL-2.0-only
/*
 * The real-time realm: one cell that runs the real-time kernel, its channel,
 * and the list of processes that have a shadow here.
 */
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/* How often clocks are brought up to date and the realm's health is looked at. */
#define TICK_PERIOD	HZ

/* How long a realm that is given up waits for shadows to die. */
#define KILL_TIMEOUT	(10 * HZ)

static struct crtos_realm __rcu *the_realm;

/* Guards the realm's processes, threads and slots. Held for short times only. */
static DEFINE_MUTEX(realm_lock);

void crtos_realm_lock(void)
{
	mutex_lock(&realm_lock);
}

void crtos_realm_unlock(void)
{
	mutex_unlock(&realm_lock);
}

/* The realm or NULL. The caller holds the realm's lock. */
struct crtos_realm *crtos_realm_get(void)
{
	return rcu_dereference_protected(the_realm, lockdep_is_held(&realm_lock));
}

/* Does the real-time kernel run? Any context. */
bool crtos_realm_ready(struct crtos_realm *realm)
{
	return READ_ONCE(realm->alive) &&
	       READ_ONCE(realm->channel->kernel_state) == CRTOS_KERNEL_READY;
}

/* Rings the CPU of the slot's thread. Process context of a live realm. */
void crtos_realm_ring(struct crtos_realm *realm, u32 slot)
{
	if (READ_ONCE(realm->alive))
		crtos_hypercall(CRTOS_HC_DOORBELL, realm->cell->number,
				crtos_core_cpu(realm->channel, slot), 0, 0);
}

/* One of Linux's clocks was set: the realm's follow. Hard interrupt context, also on PREEMPT_RT. */
void crtos_realm_clock_set(void)
{
	struct crtos_realm *realm;

	rcu_read_lock();
	realm = rcu_dereference(the_realm);
	if (realm && READ_ONCE(realm->alive))
		crtos_clock_follow(realm);
	rcu_read_unlock();
}

/* Looks what the kernel rang for. Any context; the work is bounded by the slots in use. */
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
		for (bits = crtos_core_requests(realm->channel, word); bits; bits &= bits - 1) {
			slot = word * 64 + __ffs64(bits);
			thread = rcu_dereference(realm->threads[slot]);
			if (thread && READ_ONCE(thread->waiting))
				wake_up_process(thread->task);
			if (crtos_core_take_interrupt(realm->channel, slot)) {
				set_bit(slot, realm->interrupted);
				queue_work(crtos.work, &realm->interrupts);
			}
		}
	}
	if (crtos_drops_posted(realm) >= CRTOS_DROPS / 2 ||
	    READ_ONCE(realm->channel->kernel_state) == CRTOS_KERNEL_DEAD)
		queue_work(crtos.work, &realm->drops);
out:
	rcu_read_unlock();
}

static void wake_all(struct crtos_realm *realm)
{
	struct crtos_process *process;

	list_for_each_entry(process, &realm->processes, link)
		crtos_process_wake(process);
}

/* Carries out what many drops wait for, and tells everybody if the kernel died. */
static void drops_work(struct work_struct *work)
{
	struct crtos_realm *realm = container_of(work, struct crtos_realm, drops);
	struct crtos_process *process;

	mutex_lock(&realm_lock);
	list_for_each_entry(process, &realm->processes, link)
		mod_delayed_work(crtos.work, &process->reap, 0);
	crtos_drops_orphans(realm);
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
	return READ_ONCE(crtos.report->cells[realm->cell->number].state) == CRTOS_CELL_FAILED;
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
	crtos_drops_orphans(realm);
	mutex_unlock(&realm_lock);
	/* Should a doorbell have got lost, nobody waits for ever. */
	crtos_realm_doorbell();
	queue_delayed_work(crtos.work, &realm->tick, TICK_PERIOD);
}

/* Makes the realm of @cell, which has its memory. */
int crtos_realm_create(struct crtos_cell *cell)
{
	struct crtos_realm *realm = kvzalloc(sizeof(*realm), GFP_KERNEL);

	if (!realm)
		return -ENOMEM;
	realm->cell = cell;
	realm->channel = page_address(cell->channel.page[0]);
	INIT_LIST_HEAD(&realm->processes);
	init_waitqueue_head(&realm->empty);
	INIT_WORK(&realm->drops, drops_work);
	INIT_WORK(&realm->interrupts, interrupts_work);
	INIT_DELAYED_WORK(&realm->tick, tick_work);
	mutex_lock(&realm_lock);
	rcu_assign_pointer(the_realm, realm);
	mutex_unlock(&realm_lock);
	return 0;
}

/* Before the cell starts: an empty channel. No process exists. */
void crtos_realm_start(void)
{
	struct crtos_realm *realm;

	mutex_lock(&realm_lock);
	realm = crtos_realm_get();
	memset(realm->channel, 0, CRTOS_LARGE_PAGE_SIZE);
	realm->channel->magic = CRTOS_CHANNEL_MAGIC;
	realm->channel->abi_version = CRTOS_ABI_VERSION;
	atomic_set(&realm->drops_finished, 0);
	crtos_clock_start(realm);
	realm->closed = false;
	WRITE_ONCE(realm->alive, true);
	mutex_unlock(&realm_lock);
	queue_delayed_work(crtos.work, &realm->tick, TICK_PERIOD);
}

/* Nobody waits for the kernel any more, and nobody rings. */
void crtos_realm_stop(void)
{
	struct crtos_realm *realm;

	mutex_lock(&realm_lock);
	realm = crtos_realm_get();
	WRITE_ONCE(realm->alive, false);
	wake_all(realm);
	mutex_unlock(&realm_lock);
}

static void kill_all(struct crtos_realm *realm)
{
	struct crtos_process *process;

	list_for_each_entry(process, &realm->processes, link) {
		kill_pid(process->pid, SIGKILL, 1);
		crtos_process_end(process);
	}
}

static u32 count_living(struct crtos_realm *realm)
{
	struct crtos_process *process;
	u32 count = 0;

	list_for_each_entry(process, &realm->processes, link)
		count += !READ_ONCE(process->over);
	return count;
}

/*
 * Is no process left? Those that are over already are waited for. With @force
 * the others are killed first. The wait takes as long as it takes, or with
 * @killable until a fatal signal, otherwise until a timeout. If none is left,
 * none comes any more.
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
	if (!empty) {
		mutex_lock(&realm_lock);
		realm->closed = false;
		mutex_unlock(&realm_lock);
	}
	return empty;
}

/* The realm is stopped and without processes. */
void crtos_realm_destroy(void)
{
	struct crtos_realm *realm;

	mutex_lock(&realm_lock);
	realm = crtos_realm_get();
	RCU_INIT_POINTER(the_realm, NULL);
	mutex_unlock(&realm_lock);
	synchronize_rcu();
	cancel_work_sync(&realm->drops);
	cancel_work_sync(&realm->interrupts);
	cancel_delayed_work_sync(&realm->tick);
	kvfree(realm);
}

/*
 * Has the real-time kernel trace as long as some file wants it to, or not.
 */
int crtos_trace(struct crtos_file *file, bool on)
{
	static unsigned int wanted;	/* files, under the realm's lock */
	struct crtos_realm *realm;
	int error = 0;

	mutex_lock(&realm_lock);
	realm = crtos_realm_get();
	if (on && (!realm || !crtos_realm_ready(realm))) {
		error = crtos_refuse(file, -ESRCH,
				     "no real-time kernel runs: start the realm (crtos up)");
	} else if (on != file->traces) {
		file->traces = on;
		wanted += on ? 1 : -1;
		if (realm && READ_ONCE(realm->alive)) {
			WRITE_ONCE(realm->channel->trace_on, wanted > 0);
			crtos_hypercall(CRTOS_HC_DOORBELL, realm->cell->number, 0, 0, 0);
		}
	}
	mutex_unlock(&realm_lock);
	return error;
}

/* Number of living processes. */
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
