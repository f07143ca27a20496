// SPDX-License-Identifier: GPL-2.0-only
/* The firmware's list of IOMMUs of AMD's kind (IOMMU, 5.2). */
#include <linux/acpi.h>
#include <linux/sizes.h>

#include "crtos.h"

/* Registers before the performance counters, which do no harm. */
#define UNIT_SIZE	SZ_16K

/**
 * crtos_read_ivrs() - read an entry of ACPI's table IVRS
 * @entry: the entry
 * @length: how many bytes of it there are
 * @iommu: zeroes, to be filled in
 *
 * There may be several entries of one IOMMU, of newer types, for Linux to choose from.
 *
 * Return: 1 if it lists an IOMMU, 0 if it lists something else, or a negative error.
 */
int crtos_read_ivrs(const void *entry, size_t length, struct crtos_iommu *iommu)
{
	/* The newer types only add to it. */
	const struct acpi_ivrs_hardware_10 *unit = entry;

	switch (unit->header.type) {
	case ACPI_IVRS_TYPE_HARDWARE1:
	case ACPI_IVRS_TYPE_HARDWARE2:
	case ACPI_IVRS_TYPE_HARDWARE3:
		break;
	default:
		return 0;
	}
	/* Its configuration space is to be reached by ports. */
	if (length < sizeof(*unit) || unit->pci_segment_group)
		return -E2BIG;
	iommu->address = unit->base_address;
	iommu->size = UNIT_SIZE;
	iommu->kind = CRTOS_IOMMU_AMD_VI;
	iommu->function = unit->header.device_id;
	return 1;
}

/* Bytes of an entry for a device, by its type; 0 if that is not known. */
static size_t entry_size(const u8 *entry, size_t left)
{
	if (*entry < 0xc0)
		return 4 << (*entry >> 6);
	/* Named by ACPI: its last byte before the rest is the length of that. */
	if (*entry == ACPI_IVRS_TYPE_HID && left >= sizeof(struct acpi_ivrs_device_hid))
		return sizeof(struct acpi_ivrs_device_hid) +
		       ((const struct acpi_ivrs_device_hid *)entry)->uid_length;
	return 0;
}

/**
 * crtos_find_in_ivrs() - find an I/O APIC in an entry of ACPI's table IVRS
 * @entry: the entry
 * @length: how many bytes of it there are
 * @io_apic: the I/O APIC's id
 *
 * Return: the function as which it sends messages, or a negative error.
 */
int crtos_find_in_ivrs(const void *entry, size_t length, u8 io_apic)
{
	const struct acpi_ivrs_header *header = entry;
	const u8 *next = entry, *end = next + length;
	size_t size;

	switch (header->type) {
	case ACPI_IVRS_TYPE_HARDWARE1:
		next += sizeof(struct acpi_ivrs_hardware_10);
		break;
	case ACPI_IVRS_TYPE_HARDWARE2:
	case ACPI_IVRS_TYPE_HARDWARE3:
		next += sizeof(struct acpi_ivrs_hardware_11);
		break;
	default:
		return -ENODEV;
	}
	for (; end - next >= 4; next += size) {
		const struct acpi_ivrs_device8c *special = (const void *)next;

		size = entry_size(next, end - next);
		if (!size || size > end - next)
			break;
		if (*next == ACPI_IVRS_TYPE_SPECIAL && special->variety == ACPI_IVHD_IOAPIC &&
		    special->handle == io_apic)
			return special->used_id;
	}
	return -ENODEV;
}
