// SPDX-License-Identifier: GPL-2.0-only
/*
 * The doorbell of a cell: the interrupt by which it calls Linux. A vector of
 * Linux's own, on the CPU that the user chose for it, that the hypervisor sends
 * as an IPI. When that CPU goes offline the doorbell moves to another one, and
 * back when it returns.
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
	irq_set_handler(irq, handle_edge_irq);
	error = request_irq(irq, doorbell_handler, IRQF_NOBALANCING | IRQF_NO_THREAD,
			    "crtos-doorbell", doorbell);
	if (error) {
		irq_dispose_mapping(irq);
		return error;
	}
	return irq;
}

static void return_interrupt(struct crtos_doorbell *doorbell, int irq)
{
	free_irq(irq, doorbell);
	irq_dispose_mapping(irq);
}

/* Has the cell ring there. The physical id: in cluster mode irqd_cfg() has the logical one. */
static s64 route(struct crtos_doorbell *doorbell, int irq, unsigned int cpu)
{
	return crtos_hypercall(CRTOS_HC_DOORBELL_ROUTE, doorbell->cell,
			       irqd_cfg(irq_get_irq_data(irq))->vector,
			       per_cpu(x86_cpu_to_apicid, cpu), 0);
}

/* Opens the doorbell of a cell that the hypervisor knows, on @cpu. */
int crtos_doorbell_open(struct crtos_file *file, struct crtos_doorbell *doorbell,
			u32 cell, unsigned int cpu)
{
	s64 result;
	int irq;

	cpus_read_lock();
	mutex_lock(&doorbell_lock);
	if (cpu >= nr_cpu_ids || !cpu_online(cpu)) {
		irq = crtos_refuse(file, -ENODEV,
				   "CPU %u is to take the cell's calls, and Linux does not have it: choose one of CPUs %*pbl",
				   cpu, cpumask_pr_args(cpu_online_mask));
		goto out;
	}
	doorbell->cell = cell;
	irq = take_interrupt(doorbell, cpu);
	if (irq < 0) {
		crtos_refuse(file, irq,
			     "CPU %u has no interrupt vector for the doorbell (error %d): choose another one",
			     cpu, irq);
		goto out;
	}
	result = route(doorbell, irq, cpu);
	if (result) {
		return_interrupt(doorbell, irq);
		irq = crtos_refuse_hv(file, result, "route the cell's doorbell");
		goto out;
	}
	doorbell->irq = irq;
	doorbell->cpu = doorbell->wanted = cpu;
	list_add(&doorbell->link, &doorbells);
out:
	mutex_unlock(&doorbell_lock);
	cpus_read_unlock();
	return min(irq, 0);
}

/* The cell is no more. */
void crtos_doorbell_close(struct crtos_doorbell *doorbell)
{
	mutex_lock(&doorbell_lock);
	if (doorbell->irq) {
		list_del(&doorbell->link);
		return_interrupt(doorbell, doorbell->irq);
		doorbell->irq = 0;
	}
	mutex_unlock(&doorbell_lock);
}

/* Does a cell want to ring on @cpu? */
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

/* The new place is there before the old one goes. */
static int move(struct crtos_doorbell *doorbell, unsigned int cpu)
{
	int old = doorbell->irq, irq = take_interrupt(doorbell, cpu);

	if (irq < 0)
		return irq;
	if (route(doorbell, irq, cpu)) {
		return_interrupt(doorbell, irq);
		return -EIO;
	}
	doorbell->irq = irq;
	doorbell->cpu = cpu;
	msleep(ON_ITS_WAY_MS);
	return_interrupt(doorbell, old);
	crtos_realm_doorbell();
	return 0;
}

static int cpu_comes(unsigned int cpu)
{
	struct crtos_doorbell *doorbell;

	mutex_lock(&doorbell_lock);
	list_for_each_entry(doorbell, &doorbells, link)
		if (doorbell->wanted == cpu && doorbell->cpu != cpu && !move(doorbell, cpu))
			pr_notice("crtos: CPU %u is back: the doorbell of cell %u is there again\n",
				  cpu, doorbell->cell);
	mutex_unlock(&doorbell_lock);
	return 0;
}

/* A CPU whose doorbell has no other place stays. */
static int cpu_goes(unsigned int cpu)
{
	unsigned int other = cpumask_any_but(cpu_online_mask, cpu);
	struct crtos_doorbell *doorbell;
	int error = 0;

	mutex_lock(&doorbell_lock);
	list_for_each_entry(doorbell, &doorbells, link) {
		if (doorbell->cpu != cpu)
			continue;
		error = other < nr_cpu_ids ? move(doorbell, other) : -EBUSY;
		if (error)
			break;
		pr_notice("crtos: CPU %u goes offline: the doorbell of cell %u moves to CPU %u until it is back\n",
			  cpu, doorbell->cell, other);
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
