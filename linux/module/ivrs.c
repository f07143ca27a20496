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
