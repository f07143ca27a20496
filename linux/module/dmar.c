// SPDX-License-Identifier: GPL-2.0-only
/* The firmware's list of IOMMUs of Intel's kind (VT-d, chapter 8). */
#include <linux/acpi.h>

#include "crtos.h"

/* The byte whose low half is the logarithm of the number of pages, reserved in old headers. */
#define UNIT_SIZE	5

/**
 * crtos_read_dmar() - read an entry of ACPI's table DMAR
 * @entry: the entry
 * @length: how many bytes of it there are
 * @iommu: zeroes, to be filled in
 *
 * Return: 1 if it lists an IOMMU, 0 if it lists something else, or a negative error.
 */
int crtos_read_dmar(const void *entry, size_t length, struct crtos_iommu *iommu)
{
	const struct acpi_dmar_hardware_unit *unit = entry;

	if (unit->header.type != ACPI_DMAR_TYPE_HARDWARE_UNIT)
		return 0;
	if (length < sizeof(*unit))
		return -E2BIG;
	iommu->address = unit->address;
	iommu->size = PAGE_SIZE << (((const u8 *)entry)[UNIT_SIZE] & 0xf);
	iommu->kind = CRTOS_IOMMU_VTD;
	return 1;
}
