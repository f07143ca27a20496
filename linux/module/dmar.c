// SPDX-License-Identifier: GPL-2.0-only
/*
 * The firmware's list of IOMMUs of Intel's kind. Linux drives them; the hypervisor takes them
 * over while there is a cell.
 */
#include <linux/acpi.h>
#include <linux/align.h>
#include <linux/string.h>

#include "crtos.h"

/* The byte whose low half is the logarithm of the number of pages, reserved in old headers. */
#define UNIT_SIZE	5

/* Adds the IOMMU that @entry describes to @count of them; how many there are then, or an error. */
static int add_iommu(const struct acpi_dmar_header *entry, struct crtos_iommu *iommus, int count)
{
	const struct acpi_dmar_hardware_unit *unit = (const void *)entry;

	if (entry->type != ACPI_DMAR_TYPE_HARDWARE_UNIT)
		return count;
	if (count == CRTOS_MAX_IOMMUS || entry->length < sizeof(*unit) ||
	    !IS_ALIGNED(unit->address, PAGE_SIZE))
		return -E2BIG;
	iommus[count].address = unit->address;
	iommus[count].size = PAGE_SIZE << (((const u8 *)entry)[UNIT_SIZE] & 0xf);
	return count + 1;
}

/**
 * crtos_list_iommus() - list the IOMMUs that the firmware lists
 * @file: where a refusal is explained
 * @iommus: %CRTOS_MAX_IOMMUS places to fill in, of size 0 where there is none
 *
 * Context: Process.
 * Return: How many there are, or a negative error.
 */
int crtos_list_iommus(struct crtos_file *file, struct crtos_iommu *iommus)
{
	struct acpi_table_header *table;
	const void *next, *end;
	int count = 0;

	memset(iommus, 0, CRTOS_MAX_IOMMUS * sizeof(*iommus));
	if (ACPI_FAILURE(acpi_get_table(ACPI_SIG_DMAR, 0, &table)))
		return 0;
	next = (void *)table + sizeof(struct acpi_table_dmar);
	end = (void *)table + table->length;
	while (count >= 0 && end - next >= (long)sizeof(struct acpi_dmar_header)) {
		const struct acpi_dmar_header *entry = next;

		if (entry->length < sizeof(*entry) || entry->length > end - next)
			break;
		count = add_iommu(entry, iommus, count);
		next += entry->length;
	}
	acpi_put_table(table);
	if (count < 0)
		return crtos_refuse(file, count,
				    "the machine has more than %d IOMMUs, or one that does not begin a page: crtos could not keep them from interrupting the realm",
				    CRTOS_MAX_IOMMUS);
	return count;
}
