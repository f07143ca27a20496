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
	int (*find)(const void *entry, size_t length, u8 io_apic);
};

static const struct list lists[] = {
	{ ACPI_SIG_DMAR, sizeof(struct acpi_table_dmar), crtos_read_dmar, crtos_find_in_dmar },
	{ ACPI_SIG_IVRS, sizeof(struct acpi_table_ivrs), crtos_read_ivrs, crtos_find_in_ivrs },
};

/*
 * Shows @look each entry of @list until one returns something else than 0, which is returned.
 */
static int find_entry(const struct list *list,
		      int (*look)(const struct list *list, const struct entry *entry, void *data),
		      void *data)
{
	struct acpi_table_header *table;
	const void *next, *end;
	int found = 0;

	if (ACPI_FAILURE(acpi_get_table(list->signature, 0, &table)))
		return 0;
	next = (void *)table + list->header;
	end = (void *)table + table->length;
	while (!found && end - next >= (long)sizeof(struct entry)) {
		const struct entry *entry = next;

		if (entry->length < sizeof(*entry) || entry->length > end - next)
			break;
		found = look(list, entry, data);
		next += entry->length;
	}
	acpi_put_table(table);
	return found;
}

/* IOMMUs that were found. */
struct found {
	struct crtos_iommu *iommus;
	int count;
};

/* Adds the IOMMU that @entry lists, unless it is there. Returns 0 or a negative error. */
static int add_iommu(const struct list *list, const struct entry *entry, void *data)
{
	struct crtos_iommu iommu = {};
	struct found *found = data;
	int i, is_one;

	is_one = list->read(entry, entry->length, &iommu);
	if (is_one <= 0)
		return is_one;
	for (i = 0; i < found->count; i++)
		if (!memcmp(&found->iommus[i], &iommu, sizeof(iommu)))
			return 0;
	if (found->count == CRTOS_MAX_IOMMUS || !IS_ALIGNED(iommu.address, PAGE_SIZE))
		return -E2BIG;
	found->iommus[found->count++] = iommu;
	return 0;
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
	struct found found = { .iommus = iommus };
	int error = 0;
	int i;

	memset(iommus, 0, CRTOS_MAX_IOMMUS * sizeof(*iommus));
	for (i = 0; !error && i < ARRAY_SIZE(lists); i++)
		error = find_entry(&lists[i], add_iommu, &found);
	if (error)
		return crtos_refuse(file, error,
				    "[machine-too-large] the machine has more than %d IOMMUs, one that does not begin a page, or one of AMD's in another PCI segment than 0: crtos could not keep them from interrupting the realm",
				    CRTOS_MAX_IOMMUS);
	return found.count;
}

/* Returns 1 + the function as which an I/O APIC sends messages, if @entry tells it, or 0. */
static int find_requester(const struct list *list, const struct entry *entry, void *data)
{
	int found = list->find(entry, entry->length, *(u8 *)data);

	return found < 0 ? 0 : found + 1;
}

/**
 * crtos_find_requester() - find as which function an I/O APIC sends messages to an IOMMU
 * @io_apic: the I/O APIC's id
 *
 * Context: Process.
 * Return: bus, device and function, or a negative error.
 */
int crtos_find_requester(u8 io_apic)
{
	int found = 0;
	int i;

	for (i = 0; !found && i < ARRAY_SIZE(lists); i++)
		found = find_entry(&lists[i], find_requester, &io_apic);
	return found ? found - 1 : -ENODEV;
}
