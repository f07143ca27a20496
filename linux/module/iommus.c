// SPDX-License-Identifier: GPL-2.0-only
/*
 * The firmware's lists of IOMMUs. Linux drives them; the hypervisor takes them over while there is
 * a cell.
 */
#include <linux/acpi.h>
#include <linux/align.h>
#include <linux/string.h>

#include "crtos.h"

/* What the entries of all these lists begin with. The type may be shorter, and flags follow. */
struct entry {
	u16 type;
	u16 length;
};

/* A list, and what reads its entries. */
struct list {
	char *signature;
	size_t header;
	int (*read)(const void *entry, size_t length, struct crtos_iommu *iommu);
};

static const struct list lists[] = {
	{ ACPI_SIG_DMAR, sizeof(struct acpi_table_dmar), crtos_read_dmar },
	{ ACPI_SIG_IVRS, sizeof(struct acpi_table_ivrs), crtos_read_ivrs },
};

/* Adds @iommu to @count of them, unless it is there; how many there are then, or an error. */
static int add_iommu(const struct crtos_iommu *iommu, struct crtos_iommu *iommus, int count)
{
	int i;

	for (i = 0; i < count; i++)
		if (!memcmp(&iommus[i], iommu, sizeof(*iommu)))
			return count;
	if (count == CRTOS_MAX_IOMMUS || !IS_ALIGNED(iommu->address, PAGE_SIZE))
		return -E2BIG;
	iommus[count] = *iommu;
	return count + 1;
}

/* Adds those of @list to @count of them; how many there are then, or an error. */
static int add_list(const struct list *list, struct crtos_iommu *iommus, int count)
{
	struct acpi_table_header *table;
	const void *next, *end;

	if (ACPI_FAILURE(acpi_get_table(list->signature, 0, &table)))
		return count;
	next = (void *)table + list->header;
	end = (void *)table + table->length;
	while (count >= 0 && end - next >= (long)sizeof(struct entry)) {
		const struct entry *entry = next;
		struct crtos_iommu iommu = {};
		int found;

		if (entry->length < sizeof(*entry) || entry->length > end - next)
			break;
		found = list->read(entry, entry->length, &iommu);
		if (found)
			count = found < 0 ? found : add_iommu(&iommu, iommus, count);
		next += entry->length;
	}
	acpi_put_table(table);
	return count;
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
	int count = 0;
	int i;

	memset(iommus, 0, CRTOS_MAX_IOMMUS * sizeof(*iommus));
	for (i = 0; count >= 0 && i < ARRAY_SIZE(lists); i++)
		count = add_list(&lists[i], iommus, count);
	if (count < 0)
		return crtos_refuse(file, count,
				    "the machine has more than %d IOMMUs, one that does not begin a page, or one of AMD's in another PCI segment than 0: crtos could not keep them from interrupting the realm",
				    CRTOS_MAX_IOMMUS);
	return count;
}
