// SPDX-License-Identifier: GPL-2.0-only
/*
 * The doorbell of a cell: the interrupt by which it calls Linux. A vector of
 * Linux's own on a CPU, that the hypervisor sends as an IPI. One CPU is the
 * doorbell's home: the one that the user chose, and while that is offline
 * another one. A doorbell that follows has a vector on each other CPU of Linux
 * as well, and the cell may name one of these when it rings. Wherever it rings,
 * all that the cell rang for is looked at.
 */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <asm/hw_irq.h>
#include <asm/irqdomain.h>
#include <asm/smp.h>

#include "compat.h"
#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/* How long a call that was made before a move may be on its way. */
#define ON_ITS_WAY_MS	1

/*
 * Guards the doorbells. It is taken with hotplug locked, or by hotplug itself,
 * which crtos.lock may be waiting for.
 */
static DEFINE_MUTEX(doorbell_lock);
static LIST_HEAD(doorbells);
static enum cpuhp_state hotplug_state;

/* Hard interrupt context, also on PREEMPT_RT. */
static irqreturn_t doorbell_handler(int irq, void *data)
{
	crtos_realm_doorbell();
	return IRQ_HANDLED;
}

/*
 * As the interrupts between Linux's own CPUs, it is no source of random numbers:
 * each thousand of them would have some be computed, in a softirq that calls of
 * the realm wait for. And who sends it knows their times.
 */
static void doorbell_flow(struct irq_desc *desc)
{
	crtos_count_interrupt(desc);
	desc->irq_data.chip->irq_ack(&desc->irq_data);
	handle_untracked_irq(desc);
}

/*
 * An interrupt of its own on @cpu, or an error. It keeps its vector there, since
 * it is said twice: the other CPUs' masks (irqaffinity=) do not count.
 */
static int take_interrupt(struct crtos_doorbell *doorbell, unsigned int cpu)
{
	static struct irq_affinity_desc affinity;	/* under doorbell_lock */
	struct irq_alloc_info info = { .mask = cpumask_of(cpu) };
	int irq, error;

	cpumask_copy(&affinity.mask, cpumask_of(cpu));
	irq = __irq_domain_alloc_irqs(x86_vector_domain, -1, 1, NUMA_NO_NODE,
				      &info, false, &affinity);
	if (irq <= 0)
		return irq ?: -ENOSPC;
	irq_set_handler(irq, doorbell_flow);
	error = request_irq(irq, doorbell_handler, IRQF_NOBALANCING | IRQF_NO_THREAD,
			    "crtos-doorbell", doorbell);
	if (error) {
		irq_dispose_mapping(irq);
		return error;
	}
	doorbell->irq[cpu] = irq;
	return 0;
}

static void return_interrupt(struct crtos_doorbell *doorbell, unsigned int cpu)
{
	free_irq(doorbell->irq[cpu], doorbell);
	irq_dispose_mapping(doorbell->irq[cpu]);
	doorbell->irq[cpu] = 0;
}

/*
 * Has the hypervisor know the vector on @cpu. The physical id: in cluster mode
 * irqd_cfg() has the logical one.
 */
static s64 route(struct crtos_doorbell *doorbell, unsigned int cpu, u8 vector, bool home)
{
	return crtos_hypercall(CRTOS_HC_DOORBELL_ROUTE, doorbell->cell, vector,
			       per_cpu(x86_cpu_to_apicid, cpu), home);
}

static s64 start_ringing(struct crtos_doorbell *doorbell, unsigned int cpu, bool home)
{
	u8 vector = irqd_cfg(irq_get_irq_data(doorbell->irq[cpu]))->vector;
	s64 result = route(doorbell, cpu, vector, home);

	if (!result && home)
		doorbell->home = cpu;
	return result;
}

/* The cell can ring on @cpu as well, if the hypervisor can know that CPU. */
static int add(struct crtos_doorbell *doorbell, unsigned int cpu, bool home)
{
	bool is_new;
	int error;

	if (cpu >= CRTOS_MAX_CPUS)
		return -ERANGE;
	is_new = !doorbell->irq[cpu];
	error = is_new ? take_interrupt(doorbell, cpu) : 0;
	if (error)
		return error;
	if (!start_ringing(doorbell, cpu, home))
		return 0;
	if (is_new)
		return_interrupt(doorbell, cpu);
	return -EIO;
}

/* The cell rings on @cpu no more. Who rang there before this has set its bits before. */
static void take_away(struct crtos_doorbell *doorbell, unsigned int cpu)
{
	route(doorbell, cpu, 0, false);
	msleep(ON_ITS_WAY_MS);
	return_interrupt(doorbell, cpu);
	crtos_realm_doorbell();
}

/*
 * Opens the doorbell of a cell that the hypervisor knows, with @cpu as its home.
 * If it @follows, a CPU without a vector to spare is one that it does not ring on.
 */
int crtos_doorbell_open(struct crtos_file *file, struct crtos_doorbell *doorbell,
			u32 cell, unsigned int cpu, bool follows)
{
	unsigned int other;
	s64 result;
	int error;

	cpus_read_lock();
	mutex_lock(&doorbell_lock);
	if (cpu >= min(nr_cpu_ids, (unsigned int)CRTOS_MAX_CPUS) || !cpu_online(cpu)) {
		error = crtos_refuse(file, -ENODEV,
				     "CPU %u is to take the cell's calls, and Linux does not have it: choose one of CPUs %*pbl",
				     cpu, cpumask_pr_args(cpu_online_mask));
		goto out;
	}
	doorbell->cell = cell;
	error = take_interrupt(doorbell, cpu);
	if (error) {
		crtos_refuse(file, error,
			     "CPU %u has no interrupt vector for the doorbell (error %d): choose another one",
			     cpu, error);
		goto out;
	}
	result = start_ringing(doorbell, cpu, true);
	if (result) {
		return_interrupt(doorbell, cpu);
		error = crtos_refuse_hv(file, result, "route the cell's doorbell");
		goto out;
	}
	doorbell->wanted = cpu;
	doorbell->follows = follows;
	doorbell->open = true;
	list_add(&doorbell->link, &doorbells);
	for_each_online_cpu(other)
		if (follows && other != cpu)
			add(doorbell, other, false);
out:
	mutex_unlock(&doorbell_lock);
	cpus_read_unlock();
	return error;
}

/* The cell is no more. */
void crtos_doorbell_close(struct crtos_doorbell *doorbell)
{
	unsigned int cpu;

	mutex_lock(&doorbell_lock);
	if (doorbell->open) {
		list_del(&doorbell->link);
		for (cpu = 0; cpu < CRTOS_MAX_CPUS; cpu++)
			if (doorbell->irq[cpu])
				return_interrupt(doorbell, cpu);
		doorbell->open = false;
	}
	mutex_unlock(&doorbell_lock);
}

/* Does a cell want to ring on @cpu, whoever waits there? */
bool crtos_doorbell_wanted(unsigned int cpu)
{
	struct crtos_doorbell *doorbell;
	bool wanted = false;

	mutex_lock(&doorbell_lock);
	list_for_each_entry(doorbell, &doorbells, link)
		wanted |= doorbell->wanted == cpu;
	mutex_unlock(&doorbell_lock);
	return wanted;
}

static int cpu_comes(unsigned int cpu)
{
	struct crtos_doorbell *doorbell;
	unsigned int before;

	mutex_lock(&doorbell_lock);
	list_for_each_entry(doorbell, &doorbells, link) {
		before = doorbell->home;
		if (doorbell->wanted != cpu) {
			if (doorbell->follows)
				add(doorbell, cpu, false);
		} else if (before != cpu && !add(doorbell, cpu, true)) {
			if (!doorbell->follows)
				take_away(doorbell, before);
			pr_notice("crtos: CPU %u is back: the doorbell of cell %u is there again\n",
				  cpu, doorbell->cell);
		}
	}
	mutex_unlock(&doorbell_lock);
	return 0;
}

/* A CPU that is the home of a doorbell, and the only one that can be, stays. */
static int cpu_goes(unsigned int cpu)
{
	unsigned int other = cpumask_any_but(cpu_online_mask, cpu);
	struct crtos_doorbell *doorbell;
	int error = 0;

	mutex_lock(&doorbell_lock);
	list_for_each_entry(doorbell, &doorbells, link) {
		if (cpu >= CRTOS_MAX_CPUS || !doorbell->irq[cpu])
			continue;
		if (doorbell->home == cpu) {
			error = other < nr_cpu_ids ? add(doorbell, other, true) : -EBUSY;
			if (error)
				break;
			pr_notice("crtos: CPU %u goes offline: the doorbell of cell %u moves to CPU %u until it is back\n",
				  cpu, doorbell->cell, other);
		}
		take_away(doorbell, cpu);
	}
	mutex_unlock(&doorbell_lock);
	return error;
}

int crtos_doorbell_init(void)
{
	int state = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "crtos:doorbell",
					      cpu_comes, cpu_goes);

	if (state < 0)
		return state;
	hotplug_state = state;
	return 0;
}

void crtos_doorbell_exit(void)
{
	cpuhp_remove_state_nocalls(hotplug_state);
}
