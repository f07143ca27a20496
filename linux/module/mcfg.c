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

/*
 * Registers of AMD's host bridges that write to other registers of the chipset, IOMMUs' among them
 * (System Management Network): of each pair of address and data the data, so that Linux goes on
 * reading temperatures there.
 */
static const u16 smn_data[] = { 0x64, 0xbc, 0xc8 };

/* Lists one; false if there are too many. */
static bool list(struct crtos_launch_info *info, u16 function, u16 first, u16 last)
{
	struct crtos_configuration *next = info->configurations;

	while (next < info->configurations + CRTOS_MAX_CONFIGURATIONS && next->present)
		next++;
	if (next == info->configurations + CRTOS_MAX_CONFIGURATIONS)
		return false;
	*next = (struct crtos_configuration){
		.function = function,
		.first = first,
		.last = last,
		.present = 1,
	};
	return true;
}

/* Lists what moves or reaches an IOMMU of AMD's kind by host bridges; false if that is too much. */
static bool list_bridges(struct crtos_launch_info *info)
{
	struct pci_dev *bridge = NULL;
	bool listed = true;
	size_t i;

	while ((bridge = pci_get_class(PCI_CLASS_BRIDGE_HOST << 8, bridge))) {
		u16 function = pci_dev_id(bridge);

		if (pci_domain_nr(bridge->bus))
			continue;
		/* Only an emulator has this one beside such an IOMMU. */
		if (bridge->vendor == PCI_VENDOR_ID_INTEL && bridge->device == BRIDGE)
			listed &= list(info, function, BRIDGE_FIRST, BRIDGE_LAST);
		if (bridge->vendor != PCI_VENDOR_ID_AMD && bridge->vendor != PCI_VENDOR_ID_HYGON)
			continue;
		/* The root of a node, not the bridges to its devices. */
		for (i = 0; i < ARRAY_SIZE(smn_data) && !bridge->devfn; i++)
			listed &= list(info, function, smn_data[i], smn_data[i] + 3);
	}
	return listed;
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
	bool listed = true;
	int i;

	for (i = 0; i < CRTOS_MAX_IOMMUS; i++) {
		if (iommus[i].size && iommus[i].kind == CRTOS_IOMMU_AMD_VI)
			listed &= list(info, iommus[i].function, 0, LAST);
	}
	if (info->configurations->present)
		listed &= list_bridges(info);
	if (!listed)
		return crtos_refuse(file, -E2BIG,
				    "[machine-too-large] the machine has more host bridges than crtos can keep Linux from");
	if (find_memory(&info->mmconfig, &info->mmconfig_buses))
		return 0;
	info->mmconfig = CRTOS_MMCONFIG_SCATTERED;
	if (info->configurations->present)
		return crtos_refuse(file, -E2BIG,
				    "[machine-too-large] the firmware lists several places of PCI configuration space: crtos could not keep the one of the IOMMU as it is");
	return 0;
}
