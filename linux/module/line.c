// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupt lines that cells have. This module has them in Linux meanwhile, so that no driver
 * does; it never enables them.
 */
#include <linux/acpi.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdesc.h>
#include <linux/irqdomain.h>

#include "crtos.h"
#include "hypercall.h"

/* Nothing: it is not enabled. */
static irqreturn_t crtos_line_interrupt(int irq, void *data)
{
	return IRQ_NONE;
}

/*
 * Returns which interrupt of Linux pin @gsi of all I/O APICs is, or a negative error. Linux takes a
 * pin of PCI functions to be active when low, and says nothing of one that is not.
 */
static int interrupt_of_pin(u32 gsi, bool level)
{
	unsigned int irq;
	int found;

	if (!acpi_gsi_to_irq(gsi, &irq))
		return irq;
	if (!level)
		return -EOPNOTSUPP;
	found = acpi_register_gsi(NULL, gsi, ACPI_LEVEL_SENSITIVE, ACPI_ACTIVE_HIGH);
	if (found >= 0)
		acpi_unregister_gsi(gsi);
	return found;
}

/*
 * Finds the pin of an I/O APIC that is Linux's interrupt @line, as CRTOS_HC_LINE_ADD wants it, and
 * who sends its messages. Returns 0 or a negative error.
 */
static int find_pin(unsigned int line, u64 *place, u64 *requester)
{
	struct irq_data *data = irq_get_irq_data(line);
	unsigned long index, pin;
	u32 first;
	int found;
	u8 id;

	/* With remapping of interrupts it is "IR-IO-APIC". */
	if (!data || !data->domain || !data->chip || !data->chip->name ||
	    !strstr(data->chip->name, "IO-APIC"))
		return -EOPNOTSUPP;
	/* Linux numbers I/O APICs as they are listed; that this is so is seen below. */
	index = (unsigned long)data->domain->host_data;
	pin = data->hwirq;
	if (index >= CRTOS_MAX_IO_APICS || pin > U8_MAX ||
	    crtos_find_io_apic(index, &id, &first))
		return -EOPNOTSUPP;
	found = interrupt_of_pin(first + pin, irqd_is_level_type(data));
	if (found != line)
		return -EOPNOTSUPP;
	*place = index | pin << 16;
	found = crtos_find_requester(id);
	*requester = found < 0 ? CRTOS_NO_REQUESTER : found;
	return 0;
}

/* Writes who has an interrupt of Linux, as /proc/interrupts does. */
static void name_owners(unsigned int line, char *names, size_t size)
{
	struct irq_data *data = irq_get_irq_data(line);
	const struct irqaction *action;
	struct irq_desc *desc;
	unsigned long flags;
	size_t length = 0;

	names[0] = '\0';
	if (!data)
		return;
	desc = irq_data_to_desc(data);
	raw_spin_lock_irqsave(&desc->lock, flags);
	for (action = desc->action; action && length < size; action = action->next)
		length += scnprintf(names + length, size - length, "%s%s", length ? ", " : "",
				    action->name ?: "?");
	raw_spin_unlock_irqrestore(&desc->lock, flags);
}

/**
 * crtos_line_give() - give an interrupt line to a cell
 * @file: where a failure is explained
 * @cell: its number; it is not locked
 * @line: Linux's number of it
 * @owner: what tells it from others of that number
 *
 * Context: Under crtos.lock; may sleep.
 * Return: 0 or a negative error; then Linux has it as before.
 */
int crtos_line_give(struct crtos_file *file, u32 cell, unsigned int line, void *owner)
{
	u64 place, requester;
	char names[100];
	s64 result;
	int error;

	error = find_pin(line, &place, &requester);
	if (error)
		return crtos_refuse(file, error,
				    "[interrupt-unknown] interrupt %u of Linux is not known as a pin of an I/O APIC",
				    line);
	/* It is not shared, so nobody else has it, and its entry says how it is triggered. */
	error = request_irq(line, crtos_line_interrupt, IRQF_NO_AUTOEN | IRQF_PROBE_SHARED,
			    "crtos", owner);
	if (error) {
		name_owners(line, names, sizeof(names));
		return crtos_refuse(file, error,
				    "[device-in-use] a driver of Linux has interrupt %u, for %s: see /proc/interrupts",
				    line, names);
	}
	result = crtos_hypercall(CRTOS_HC_LINE_ADD, cell, line, place, requester);
	if (!result)
		return 0;
	free_irq(line, owner);
	if (result == CRTOS_HV_DENIED)
		return crtos_refuse(file, -EOPNOTSUPP,
				    "[iommu] an IOMMU is on the way of interrupt %u by which cells have no lines",
				    line);
	return crtos_refuse_hv(file, result, "give the line to the cell");
}

/**
 * crtos_line_take_back() - undo crtos_line_give()
 * @cell: the cell
 * @line: Linux's number of the line
 * @owner: as then
 *
 * Context: May sleep.
 */
void crtos_line_take_back(u32 cell, unsigned int line, void *owner)
{
	crtos_hypercall(CRTOS_HC_LINE_REMOVE, cell, line, 0, 0);
	free_irq(line, owner);
}
