// SPDX-License-Identifier: GPL-2.0-only
/* Attacks by way of an IOMMU of AMD's kind, whose tables and command buffer are Linux's. */
#include <linux/acpi.h>
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/stop_machine.h>

#include "amd.h"
#include "dma.h"

/* The register page, and registers. */
#define REGISTERS	0x4000
#define DEVICES		0x0
#define COMMANDS	0x8
#define CONTROL		0x18
#define LONG_ENTRIES	BIT_ULL(17)
#define COMMANDS_SIZE	GENMASK_ULL(59, 56)
#define COMMANDS_HEAD	0x2000
#define COMMANDS_TAIL	0x2008
#define ADDRESS		GENMASK_ULL(51, 12)
#define COMMAND		16
#define DEVICE		32

/* First words of commands: a wait that stores, an entry of the device table, of interrupts, all. */
#define WAIT(address)		(1ull << 60 | (address) | 1)
#define DEVICE_CHANGED(device)	(2ull << 60 | (device))
#define INTERRUPTS_OF(device)	(5ull << 60 | (device))
#define EVERYTHING		(8ull << 60)

/* Of an entry's word for interrupts: remapped, by a table of 2048 entries of up to 128 bits. */
#define INTERRUPT_WORD	2
#define REMAPPED	(1 | 11 << 1 | 2ull << 60)
#define ENTRIES		2048
#define TABLE_ORDER	3

struct unit {
	void __iomem *registers;
	const struct attack_amd_command *commands;
	unsigned int count;
	u64 stored;
	int error;
};

/* The tables of the module, and what stood in the device's entry. */
static struct {
	void *interrupts;
	u64 *devices;
	u64 register_before;
	u64 old[4];
	bool forged;
} edu;

/**
 * attack_map_amd_unit() - map the registers of the first unit that the firmware lists
 *
 * Context: Process.
 * Return: the registers, for iounmap(), or NULL.
 */
void __iomem *attack_map_amd_unit(void)
{
	struct acpi_table_header *table;
	struct acpi_ivrs_hardware_10 *unit;
	void __iomem *registers = NULL;

	if (ACPI_FAILURE(acpi_get_table(ACPI_SIG_IVRS, 0, &table)))
		return NULL;
	unit = (void *)table + sizeof(struct acpi_table_ivrs);
	if (unit->header.type == ACPI_IVRS_TYPE_HARDWARE1)
		registers = ioremap(unit->base_address, REGISTERS);
	acpi_put_table(table);
	return registers;
}

static u64 buffer_size(const struct unit *unit)
{
	u64 size = readq(unit->registers + COMMANDS) & COMMANDS_SIZE;

	return COMMAND << (size >> __ffs64(COMMANDS_SIZE));
}

static int move_tail(struct unit *unit, u64 tail)
{
	u64 head, size = buffer_size(unit);

	writel(tail, unit->registers + COMMANDS_TAIL);
	return readq_poll_timeout_atomic(unit->registers + COMMANDS_HEAD, head,
					 head % size == tail, 1, 5000000);
}

/* As go_round() of the other kind. */
static int go_round(void *data)
{
	struct unit *unit = data;
	u64 *buffer = __va(readq(unit->registers + COMMANDS) & ADDRESS);
	u64 tail = readl(unit->registers + COMMANDS_TAIL);
	u64 size = buffer_size(unit), offset;

	for (offset = 0; offset < size; offset += COMMAND) {
		u64 *words = buffer + (tail + offset) % size / sizeof(u64);
		u64 number = offset / COMMAND;

		if (number < unit->count) {
			words[0] = unit->commands[number].low;
			words[1] = unit->commands[number].high;
			continue;
		}
		words[0] = WAIT(__pa(&unit->stored));
		words[1] = number;
	}
	unit->error = move_tail(unit, (tail + size - COMMAND) % size) ?: move_tail(unit, tail);
	return 0;
}

/**
 * attack_amd_tell() - have the unit carry out commands that are not Linux's
 * @commands: the commands
 * @count: how many, less than fit into its buffer
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int attack_amd_tell(const struct attack_amd_command *commands, unsigned int count)
{
	struct unit *unit;
	int error = -ENODEV;

	/* The unit stores there. */
	unit = kzalloc(sizeof(*unit), GFP_KERNEL);
	if (!unit)
		return -ENOMEM;
	unit->commands = commands;
	unit->count = count;
	unit->registers = attack_map_amd_unit();
	if (unit->registers) {
		error = stop_machine(go_round, unit, NULL) ?: unit->error;
		iounmap(unit->registers);
	}
	kfree(unit);
	return error;
}

static int tell_of(u16 device)
{
	const struct attack_amd_command commands[] = {
		{ .low = DEVICE_CHANGED(device) },
		{ .low = INTERRUPTS_OF(device) },
	};

	return attack_amd_tell(commands, ARRAY_SIZE(commands));
}

/**
 * attack_amd_find_entry() - find Linux's entry for the device edu
 * @device: gets the device's number
 *
 * Context: Process.
 * Return: its four words, or NULL.
 */
u64 *attack_amd_find_entry(u16 *device)
{
	struct pci_dev *pci = attack_find_edu();
	void __iomem *registers = pci ? attack_map_amd_unit() : NULL;
	u64 *entry = NULL;

	if (registers) {
		*device = pci_dev_id(pci);
		entry = __va(readq(registers + DEVICES) & ADDRESS) + DEVICE * *device;
		iounmap(registers);
	}
	pci_dev_put(pci);
	return entry;
}

/**
 * attack_amd_forget() - tell the unit of edu's entries, and have it forget all translations
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int attack_amd_forget(void)
{
	const struct attack_amd_command all = { .low = EVERYTHING };
	u16 device;

	if (!attack_amd_find_entry(&device))
		return -ENODEV;
	return tell_of(device) ?: attack_amd_tell(&all, 1);
}

/**
 * attack_amd_entry() - replace words of edu's entry in the device table, and tell the unit
 * @low: the first one, or ATTACK_AMD_KEPT
 * @interrupts: the one for interrupts
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int attack_amd_entry(u64 low, u64 interrupts)
{
	u16 device;
	u64 *entry = attack_amd_find_entry(&device);

	if (!entry)
		return -ENODEV;
	if (!edu.forged)
		memcpy(edu.old, entry, DEVICE);
	edu.forged = true;
	WRITE_ONCE(entry[0], low == ATTACK_AMD_KEPT ? edu.old[0] : low);
	WRITE_ONCE(entry[INTERRUPT_WORD], interrupts);
	return tell_of(device);
}

/**
 * attack_amd_restore() - give edu the entry back that Linux made
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int attack_amd_restore(void)
{
	u16 device;
	u64 *entry = edu.forged ? attack_amd_find_entry(&device) : NULL;

	if (!entry)
		return 0;
	WRITE_ONCE(entry[0], edu.old[0]);
	WRITE_ONCE(entry[INTERRUPT_WORD], edu.old[INTERRUPT_WORD]);
	edu.forged = false;
	return tell_of(device);
}

/* Whether its entries for interrupts have 128 bits, or 32; or a negative error. */
static int has_long_entries(void)
{
	void __iomem *registers = attack_map_amd_unit();
	bool is_long;

	if (!registers)
		return -ENODEV;
	is_long = readq(registers + CONTROL) & LONG_ENTRIES;
	iounmap(registers);
	return is_long;
}

static void set_entry(unsigned int index, bool is_long, u64 low, u64 high)
{
	u64 *words = edu.interrupts;
	u32 *shorts = edu.interrupts;

	if (is_long) {
		WRITE_ONCE(words[2 * index + 1], high);
		WRITE_ONCE(words[2 * index], low);
	} else {
		WRITE_ONCE(shorts[index], low);
	}
}

/**
 * attack_amd_remapping() - forge an entry for interrupts of edu, and tell the unit
 * @index: which one, of a table of the module's
 * @low: its low half, or all of it if it has 32 bits
 * @high: its high half
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int attack_amd_remapping(unsigned int index, u64 low, u64 high)
{
	int is_long = has_long_entries();

	if (is_long < 0)
		return is_long;
	if (!edu.interrupts)
		edu.interrupts = (void *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, TABLE_ORDER);
	if (!edu.interrupts)
		return -ENOMEM;
	if (index >= ENTRIES)
		return -EINVAL;
	set_entry(index, is_long, low, high);
	return attack_amd_entry(ATTACK_AMD_KEPT, __pa(edu.interrupts) | REMAPPED);
}

/**
 * attack_amd_table() - have the unit use a device table of the module's
 * @low: first word of edu's entry in it, or ATTACK_AMD_KEPT
 * @interrupts: the word for interrupts; all else is as Linux has it
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int attack_amd_table(u64 low, u64 interrupts)
{
	void __iomem *registers;
	u64 value, size, *old;
	u16 device;

	if (!attack_amd_find_entry(&device))
		return -ENODEV;
	registers = attack_map_amd_unit();
	if (!registers)
		return -ENODEV;
	value = readq(registers + DEVICES);
	size = ((value & GENMASK(8, 0)) + 1) << PAGE_SHIFT;
	old = __va(value & ADDRESS);
	if (!edu.devices)
		edu.devices = alloc_pages_exact(size, GFP_KERNEL);
	if (edu.devices) {
		u64 *entry = (void *)edu.devices + DEVICE * device;

		memcpy(edu.devices, old, size);
		if (low != ATTACK_AMD_KEPT)
			entry[0] = low;
		entry[INTERRUPT_WORD] = interrupts;
		edu.register_before = value;
		writeq((value & ~ADDRESS) | __pa(edu.devices), registers + DEVICES);
	}
	iounmap(registers);
	return edu.devices ? attack_amd_forget() : -ENOMEM;
}

/**
 * attack_amd_restore_table() - have the unit use Linux's device table again
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int attack_amd_restore_table(void)
{
	void __iomem *registers = edu.register_before ? attack_map_amd_unit() : NULL;

	if (!registers)
		return 0;
	writeq(edu.register_before, registers + DEVICES);
	iounmap(registers);
	edu.register_before = 0;
	return attack_amd_forget();
}

/**
 * attack_amd_while() - do something while a register has another value
 * @offset: the register, of 64 bits
 * @value: its value
 * @act: what to do; the unit is told of edu's entry before and afterwards
 * @argument: for @act
 *
 * Context: Process.
 * Return: 0, what @act returns, or -EIO if the register has another value meanwhile.
 */
int attack_amd_while(unsigned int offset, u64 value, int (*act)(void *argument), void *argument)
{
	void __iomem *registers = attack_map_amd_unit();
	u64 before, found;
	u16 device;
	int error = 0;

	if (!registers || !attack_amd_find_entry(&device))
		return -ENODEV;
	before = readq(registers + offset);
	writeq(value, registers + offset);
	/* Without its commands nobody hears of it. */
	if (offset == DEVICES)
		error = tell_of(device);
	error = error ?: act(argument);
	found = readq(registers + offset);
	writeq(before, registers + offset);
	iounmap(registers);
	error = error ?: tell_of(device);
	return error ?: found == value ? 0 : -EIO;
}
