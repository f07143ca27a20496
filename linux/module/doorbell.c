// SPDX-License-Identifier: GPL-2.0-only
/*
 * The doorbell of a cell: the interrupt by which it calls Linux. A vector of
 * Linux's own on a CPU, that the hypervisor sends as an IPI. One CPU is the
 * doorbell's home: the one that the user chose, and while that is offline
 * another one. A doorbell can have a vector on each other CPU of Linux as well,
 * and the cell may name one of these when it rings, to reach a shadow thread where
 * it waits. Wherever it rings, all that the cell rang for is looked at.
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

/* Milliseconds that a call which was made before a move may be on its way. */
#define ON_ITS_WAY_MS	1

/*
 * Protects the list of doorbells and each of them. Taken with CPU hotplug locked, or
 * by hotplug's callbacks, for which whoever holds crtos.lock may be waiting: so
 * crtos.lock is never taken under it.
 */
static DEFINE_MUTEX(doorbell_lock);
static LIST_HEAD(doorbells);
static enum cpuhp_state hotplug_state;

/* Hard interrupt context, also on PREEMPT_RT. */
static irqreturn_t doorbell_handler(int irq, void *data)
{
	crtos_realm_doorbell();
	crtos_links_doorbell();
	return IRQ_HANDLED;
}

/*
 * Takes the interrupt without feeding Linux's random numbers with its time, as
 * interrupts between Linux's own CPUs do. Every thousandth would have numbers computed
 * in a softirq, for which calls of the realm wait; and whoever rings knows the time.
 */
static void doorbell_flow(struct irq_desc *desc)
{
	crtos_count_interrupt(desc);
	desc->irq_data.chip->irq_ack(&desc->irq_data);
	handle_untracked_irq(desc);
}

/*
 * Gives the doorbell an interrupt of its own on @cpu. Both the mask of the vector and
 * the affinity of the interrupt name that CPU alone, so that irqaffinity= does not
 * move it elsewhere.
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
 * Tells the hypervisor the vector on @cpu; 0: none. It wants the physical APIC id of the
 * CPU: in cluster mode irqd_cfg() has the logical one.
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

/* Has the cell ring on @cpu as well. -ERANGE if the hypervisor cannot know that CPU. */
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

/*
 * Has the cell ring on @cpu no more. A ring that was under way is not lost: its bits were
 * set before it, and are looked at here.
 */
static void take_away(struct crtos_doorbell *doorbell, unsigned int cpu)
{
	route(doorbell, cpu, 0, false);
	msleep(ON_ITS_WAY_MS);
	return_interrupt(doorbell, cpu);
	crtos_realm_doorbell();
	crtos_links_doorbell();
}

/**
 * crtos_doorbell_open() - open the doorbell of a cell
 * @file: where a failure is explained, or NULL
 * @doorbell: the doorbell, all zero
 * @cell: the cell, which the hypervisor knows
 * @cpu: its home
 * @everywhere: it rings on the other CPUs of Linux as well, but for those without a
 *	vector to spare
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error.
 */
int crtos_doorbell_open(struct crtos_file *file, struct crtos_doorbell *doorbell,
			u32 cell, unsigned int cpu, bool everywhere)
{
	unsigned int other;
	s64 result;
	int error;

	cpus_read_lock();
	mutex_lock(&doorbell_lock);
	if (cpu >= nr_cpu_ids || cpu >= CRTOS_MAX_CPUS || !cpu_online(cpu)) {
		error = crtos_refuse(file, -ENODEV,
				     "[doorbell-cpu] CPU %u is to take the cell's calls, and Linux does not have it: choose one of CPUs %*pbl",
				     cpu, cpumask_pr_args(cpu_online_mask));
		goto out;
	}
	doorbell->cell = cell;
	error = take_interrupt(doorbell, cpu);
	if (error) {
		crtos_refuse(file, error,
			     "[doorbell-cpu] CPU %u has no interrupt vector for the doorbell (%pe): choose another one",
			     cpu, ERR_PTR(error));
		goto out;
	}
	result = start_ringing(doorbell, cpu, true);
	if (result) {
		return_interrupt(doorbell, cpu);
		error = crtos_refuse_hv(file, result, "route the cell's doorbell");
		goto out;
	}
	doorbell->wanted = cpu;
	doorbell->everywhere = everywhere;
	doorbell->open = true;
	list_add(&doorbell->link, &doorbells);
	for_each_online_cpu(other)
		if (everywhere && other != cpu)
			add(doorbell, other, false);
out:
	mutex_unlock(&doorbell_lock);
	cpus_read_unlock();
	return error;
}

/**
 * crtos_doorbell_close() - close the doorbell of a cell that is no more
 * @doorbell: the doorbell, open or not
 *
 * Context: Under crtos.lock; may sleep.
 */
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

/**
 * crtos_doorbell_wanted() - is a CPU what a cell's doorbell was asked for?
 * @cpu: the CPU
 *
 * Context: May sleep.
 * Return: true if a cell wants to ring there, whoever waits there.
 */
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
			if (doorbell->everywhere)
				add(doorbell, cpu, false);
		} else if (before != cpu && !add(doorbell, cpu, true)) {
			if (!doorbell->everywhere)
				take_away(doorbell, before);
			pr_notice("crtos: CPU %u is back: the doorbell of cell %u is there again\n",
				  cpu, doorbell->cell);
		}
	}
	mutex_unlock(&doorbell_lock);
	return 0;
}

/* A refusal keeps the CPU online: it is the home of a doorbell, and no other one can be. */
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

/**
 * crtos_doorbell_init() - have doorbells move with the CPUs that come and go
 *
 * Return: 0 or a negative error.
 */
int crtos_doorbell_init(void)
{
	int state = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "crtos:doorbell",
					      cpu_comes, cpu_goes);

	if (state < 0)
		return state;
	hotplug_state = state;
	return 0;
}

/**
 * crtos_doorbell_exit() - undo crtos_doorbell_init(); no doorbell is open
 */
void crtos_doorbell_exit(void)
{
	cpuhp_remove_state_nocalls(hotplug_state);
}
