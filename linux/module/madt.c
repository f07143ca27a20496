// SPDX-License-Identifier: GPL-2.0-only
/*
 * The firmware's list of CPUs and I/O APICs. Boot parameters such as nr_cpus= hide CPUs from
 * Linux; such a CPU waits where the firmware left it, and would stay outside of the
 * hypervisor.
 */
#include <linux/acpi.h>
#include <linux/cpumask.h>
#include <asm/smp.h>

#include "crtos.h"

/* What the list has in place of an APIC id where no CPU is. */
#define NO_CPU_8	0xff
#define NO_CPU_32	0xffffffff

static bool linux_knows(u32 apic_id)
{
	unsigned int cpu;

	for_each_present_cpu(cpu)
		if (per_cpu(x86_cpu_to_apicid, cpu) == apic_id)
			return true;
	return false;
}

/*
 * Shows @look each entry of the firmware's table until one returns true. Returns whether one
 * did, or a negative error.
 */
static int find_entry(bool (*look)(const struct acpi_subtable_header *entry, void *data),
		      void *data)
{
	struct acpi_table_header *table;
	const void *next, *end;
	bool found = false;

	if (ACPI_FAILURE(acpi_get_table(ACPI_SIG_MADT, 0, &table)))
		return -ENODEV;
	next = (void *)table + sizeof(struct acpi_table_madt);
	end = (void *)table + table->length;
	while (!found && end - next >= (long)sizeof(struct acpi_subtable_header)) {
		const struct acpi_subtable_header *entry = next;

		if (entry->length < sizeof(*entry) || entry->length > end - next)
			break;
		found = look(entry, data);
		next += entry->length;
	}
	acpi_put_table(table);
	return found;
}

/* Tells whether @entry lists a CPU that is there but that Linux does not know. */
static bool is_stranger(const struct acpi_subtable_header *entry, void *data)
{
	const struct acpi_madt_local_x2apic *large = (const void *)entry;
	const struct acpi_madt_local_apic *small = (const void *)entry;
	u32 *apic_id = data, flags;

	if (entry->type == ACPI_MADT_TYPE_LOCAL_APIC && entry->length >= sizeof(*small)) {
		*apic_id = small->id == NO_CPU_8 ? NO_CPU_32 : small->id;
		flags = small->lapic_flags;
	} else if (entry->type == ACPI_MADT_TYPE_LOCAL_X2APIC && entry->length >= sizeof(*large)) {
		*apic_id = large->local_apic_id;
		flags = large->lapic_flags;
	} else {
		return false;
	}
	return flags & ACPI_MADT_ENABLED && *apic_id != NO_CPU_32 && !linux_knows(*apic_id);
}

/**
 * crtos_check_listed() - refuse a machine with CPUs that Linux does not know
 * @file: where the refusal is explained
 *
 * Context: Hotplug is locked.
 * Return: 0 or a negative error.
 */
int crtos_check_listed(struct crtos_file *file)
{
	u32 apic_id = 0;
	int found = find_entry(is_stranger, &apic_id);

	if (found < 0)
		return crtos_refuse(file, found,
				    "[cpus-unreachable] the firmware's list of CPUs (ACPI's MADT) cannot be read, so some might stay outside of the hypervisor: boot without acpi=off");
	if (found)
		return crtos_refuse(file, -ENODEV,
				    "[cpus-unreachable] Linux ignores a CPU that the firmware lists (APIC id %u), which would stay outside of the hypervisor: boot without nr_cpus=, possible_cpus= and disable_cpu_apicid=",
				    apic_id);
	return 0;
}

/* Adds the address of the I/O APIC that @entry lists. Finds the first that cannot be added. */
static bool add_io_apic(const struct acpi_subtable_header *entry, void *data)
{
	const struct acpi_madt_io_apic *io_apic = (const void *)entry;
	u64 *pages = data;
	int i = 0;

	if (entry->type != ACPI_MADT_TYPE_IO_APIC || entry->length < sizeof(*io_apic))
		return false;
	while (i < CRTOS_MAX_IO_APICS && pages[i])
		i++;
	if (i == CRTOS_MAX_IO_APICS || !IS_ALIGNED(io_apic->address, PAGE_SIZE))
		return true;
	pages[i] = io_apic->address;
	return false;
}

/**
 * crtos_list_io_apics() - list the I/O APICs that the firmware lists
 * @file: where a refusal is explained
 * @pages: %CRTOS_MAX_IO_APICS addresses to fill in, 0 where there is none
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int crtos_list_io_apics(struct crtos_file *file, u64 *pages)
{
	memset(pages, 0, CRTOS_MAX_IO_APICS * sizeof(*pages));
	if (find_entry(add_io_apic, pages) > 0)
		return crtos_refuse(file, -E2BIG,
				    "[machine-too-large] the machine has more than %d I/O APICs, or one that does not begin a page: crtos could not keep them from interrupting the realm",
				    CRTOS_MAX_IO_APICS);
	return 0;
}

/* An I/O APIC that is looked for. */
struct wanted_io_apic {
	unsigned int index;
	u8 id;
	u32 first;
};

/* Tells whether @entry lists the I/O APIC that is looked for, and says more of it. */
static bool is_wanted(const struct acpi_subtable_header *entry, void *data)
{
	const struct acpi_madt_io_apic *io_apic = (const void *)entry;
	struct wanted_io_apic *wanted = data;

	if (entry->type != ACPI_MADT_TYPE_IO_APIC || entry->length < sizeof(*io_apic))
		return false;
	wanted->id = io_apic->id;
	wanted->first = io_apic->global_irq_base;
	return !wanted->index--;
}

/**
 * crtos_find_io_apic() - find what the firmware says of an I/O APIC
 * @index: of its address among those of crtos_list_io_apics()
 * @id: where its id goes
 * @first: where the number of its first pin among those of all goes (GSI)
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int crtos_find_io_apic(unsigned int index, u8 *id, u32 *first)
{
	struct wanted_io_apic wanted = { .index = index };

	if (find_entry(is_wanted, &wanted) <= 0)
		return -ENODEV;
	*id = wanted.id;
	*first = wanted.first;
	return 0;
}
