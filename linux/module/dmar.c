// SPDX-License-Identifier: GPL-2.0-only
/* The firmware's list of IOMMUs of Intel's kind (VT-d, chapter 8). */
#include <linux/acpi.h>
#include <linux/pci.h>

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

/**
 * crtos_find_in_dmar() - find an I/O APIC in an entry of ACPI's table DMAR
 * @entry: the entry
 * @length: how many bytes of it there are
 * @io_apic: the I/O APIC's id
 *
 * Return: the function as which it sends messages, or a negative error.
 */
int crtos_find_in_dmar(const void *entry, size_t length, u8 io_apic)
{
	const struct acpi_dmar_hardware_unit *unit = entry;
	const void *next = unit + 1, *end = entry + length;

	if (unit->header.type != ACPI_DMAR_TYPE_HARDWARE_UNIT || length < sizeof(*unit) ||
	    unit->segment)
		return -ENODEV;
	while (end - next >= (long)sizeof(struct acpi_dmar_device_scope)) {
		const struct acpi_dmar_device_scope *scope = next;
		const struct acpi_dmar_pci_path *path = (const void *)(scope + 1);

		if (scope->length < sizeof(*scope) || scope->length > end - next)
			break;
		/* Behind a bridge it would be on a bus that the bridge names. */
		if (scope->entry_type == ACPI_DMAR_SCOPE_TYPE_IOAPIC &&
		    scope->enumeration_id == io_apic &&
		    scope->length == sizeof(*scope) + sizeof(*path))
			return scope->bus << 8 | PCI_DEVFN(path->device, path->function);
		next += scope->length;
	}
	return -ENODEV;
}
