// SPDX-License-Identifier: GPL-2.0-only
/*
 * The doorbell: the interrupt by which cells call Linux. A vector of Linux's
 * own, on the boot CPU, that the hypervisor sends as an IPI.
 */
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <asm/hw_irq.h>
#include <asm/irqdomain.h>
#include <asm/smp.h>

#include "crtos.h"
#include "realm.h"

#define DOORBELL_CPU	0

static int doorbell_irq;

/* Hard interrupt context, also on PREEMPT_RT. */
static irqreturn_t doorbell_handler(int irq, void *data)
{
	crtos_realm_doorbell();
	return IRQ_HANDLED;
}

int crtos_doorbell_init(void)
{
	struct irq_alloc_info info = { .mask = cpumask_of(DOORBELL_CPU) };
	int irq, error;

	irq = __irq_domain_alloc_irqs(x86_vector_domain, -1, 1, NUMA_NO_NODE,
				      &info, false, NULL);
	if (irq <= 0)
		return irq ?: -ENOSPC;
	irq_set_handler(irq, handle_edge_irq);
	error = request_irq(irq, doorbell_handler, IRQF_NOBALANCING | IRQF_NO_THREAD,
			    "crtos-doorbell", &doorbell_irq);
	if (error) {
		irq_dispose_mapping(irq);
		return error;
	}
	doorbell_irq = irq;
	return 0;
}

void crtos_doorbell_exit(void)
{
	if (!doorbell_irq)
		return;
	free_irq(doorbell_irq, &doorbell_irq);
	irq_dispose_mapping(doorbell_irq);
	doorbell_irq = 0;
}

u32 crtos_doorbell_vector(void)
{
	return irqd_cfg(irq_get_irq_data(doorbell_irq))->vector;
}

/* The physical id: in cluster mode irqd_cfg() has the logical one. */
u32 crtos_doorbell_apic_id(void)
{
	return per_cpu(x86_cpu_to_apicid, DOORBELL_CPU);
}
