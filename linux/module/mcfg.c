// SPDX-License-Identifier: GPL-2.0-only
/*
 * PCI configuration space that is not Linux's to write while the hypervisor has the IOMMUs, and
 * the firmware's table of where configuration space is memory (PCI Firmware 3.3, 4.1.2).
 */
#include <linux/acpi.h>
#include <linux/build_bug.h>
#include <linux/pci.h>

#include "crtos.h"

/* The last register of a function. */
#define LAST		0xfff
/* The host bridge of q35, and its registers that say where configuration space is memory. */
#define BRIDGE		0x29c0
#define BRIDGE_FIRST	0x60
#define BRIDGE_LAST	0x67

/*
 * Stores where configuration space of segment 0 is memory, as for bus 0, and of how many buses; 0
 * if it is not. False if there are several places.
 */
static bool find_memory(u64 *address, u64 *buses)
{
	const struct acpi_mcfg_allocation *next;
	struct acpi_table_header *table;
	const void *end;
	bool is_one = true;

	if (ACPI_FAILURE(acpi_get_table(ACPI_SIG_MCFG, 0, &table)))
		return true;
	next = (void *)table + sizeof(struct acpi_table_mcfg);
	end = (void *)table + table->length;
	for (; (const void *)(next + 1) <= end; next++) {
		if (next->pci_segment)
			continue;
		is_one &= !*address || *address == next->address;
		*address = next->address;
		*buses = max_t(u64, *buses, next->end_bus_number + 1);
	}
	acpi_put_table(table);
	return is_one;
}

/* Only an emulator has this host bridge beside an IOMMU of AMD's kind. */
static bool is_q35(void)
{
	struct pci_dev *bridge = pci_get_domain_bus_and_slot(0, 0, 0);
	bool is_its;

	is_its = bridge && bridge->vendor == PCI_VENDOR_ID_INTEL && bridge->device == BRIDGE;
	pci_dev_put(bridge);
	return is_its;
}

/**
 * crtos_list_configurations() - list what Linux may not write in PCI configuration space
 * @file: where a refusal is explained
 * @iommus: %CRTOS_MAX_IOMMUS of them, of size 0 where there is none
 * @info: zeroes, where it is listed
 *
 * Each IOMMU of AMD's kind is a function there, which has a message.
 *
 * Context: Process.
 * Return: 0 or a negative error.
 */
int crtos_list_configurations(struct crtos_file *file, const struct crtos_iommu *iommus,
			      struct crtos_launch_info *info)
{
	struct crtos_configuration *next = info->configurations;
	int i;

	/* One more is for the bridge. */
	BUILD_BUG_ON(CRTOS_MAX_IOMMUS >= CRTOS_MAX_CONFIGURATIONS);
	for (i = 0; i < CRTOS_MAX_IOMMUS; i++) {
		if (!iommus[i].size || iommus[i].kind != CRTOS_IOMMU_AMD_VI)
			continue;
		next->function = iommus[i].function;
		next->last = LAST;
		next->present = 1;
		next++;
	}
	if (next != info->configurations && is_q35()) {
		next->first = BRIDGE_FIRST;
		next->last = BRIDGE_LAST;
		next->present = 1;
	}
	if (find_memory(&info->mmconfig, &info->mmconfig_buses))
		return 0;
	info->mmconfig = CRTOS_MMCONFIG_SCATTERED;
	if (info->configurations->present)
		return crtos_refuse(file, -E2BIG,
				    "the firmware lists several places of PCI configuration space: crtos could not keep the one of the IOMMU as it is");
	return 0;
}
