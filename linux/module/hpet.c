// SPDX-License-Identifier: GPL-2.0-only
/*
 * The firmware's list of high-precision event timers, which send messages to any CPU and store
 * any value at any address.
 */
#include <linux/acpi.h>
#include <linux/align.h>
#include <linux/string.h>

#include "crtos.h"

/**
 * crtos_list_hpets() - list the high-precision event timers that the firmware lists
 * @file: where a refusal is explained
 * @pages: %CRTOS_MAX_HPETS addresses to fill in, 0 where there is none
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int crtos_list_hpets(struct crtos_file *file, u64 *pages)
{
	struct acpi_table_header *table;
	u64 address;
	int i;

	memset(pages, 0, CRTOS_MAX_HPETS * sizeof(*pages));
	for (i = 0; ACPI_SUCCESS(acpi_get_table(ACPI_SIG_HPET, i + 1, &table)); i++) {
		address = ((struct acpi_table_hpet *)table)->address.address;
		acpi_put_table(table);
		if (i == CRTOS_MAX_HPETS || !IS_ALIGNED(address, PAGE_SIZE))
			return crtos_refuse(file, -E2BIG,
					    "[machine-too-large] the machine has more than %d timers of the kind HPET, or one that does not begin a page: crtos could not keep them from interrupting the realm",
					    CRTOS_MAX_HPETS);
		pages[i] = address;
	}
	return 0;
}
