// SPDX-License-Identifier: GPL-2.0-only
/*
 * PCI functions that no cell has any more do nothing of what a cell had them do. A driver of Linux
 * has a function master the bus before it resets it: until then a ring that a cell has set up would
 * be read, at the cell's addresses.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/pci.h>

#include "crtos.h"

/*
 * Network cards that the realm's kernel drives, and that are stopped by themselves: an 82574L is
 * reset by its power state alone, which emulators leave without effect.
 */
static const struct pci_device_id cards[] = {
	{ PCI_VDEVICE(INTEL, 0x10d3) },		/* 82574L */
	{ PCI_VDEVICE(INTEL, 0x10c9) },		/* 82576 */
	{},
};

/* Their register "device control" in base address register 0, and "reset" there. */
#define CARD_CONTROL	0x0000
#define CARD_RESET	BIT(26)

/* Milliseconds that their reset takes at most. */
#define CARD_PATIENCE	20

/* Resets such a card by itself; it does not master the bus. */
static void reset_card(struct pci_dev *dev)
{
	void __iomem *registers;
	u16 command;
	u32 base;
	int i;

	if (!pci_match_id(cards, dev))
		return;
	/* A reset that has cleared it has reset all. */
	pci_read_config_dword(dev, PCI_BASE_ADDRESS_0, &base);
	if (!base || (base & PCI_BASE_ADDRESS_MEM_MASK) != (u32)pci_resource_start(dev, 0))
		return;
	registers = ioremap(pci_resource_start(dev, 0), PAGE_SIZE);
	if (!registers)
		return;
	pci_read_config_word(dev, PCI_COMMAND, &command);
	pci_write_config_word(dev, PCI_COMMAND,
			      (command | PCI_COMMAND_MEMORY) & ~PCI_COMMAND_MASTER);
	writel(readl(registers + CARD_CONTROL) | CARD_RESET, registers + CARD_CONTROL);
	for (i = 0; i < CARD_PATIENCE; i++) {
		usleep_range(1000, 2000);
		if (!(readl(registers + CARD_CONTROL) & CARD_RESET))
			break;
	}
	pci_write_config_word(dev, PCI_COMMAND, command & ~PCI_COMMAND_MASTER);
	iounmap(registers);
}

/* Switches messages of the capability at @cap off. */
static void mute(struct pci_dev *dev, int cap, int flags, u16 enable)
{
	u16 control;

	if (!cap)
		return;
	pci_read_config_word(dev, cap + flags, &control);
	if (control & enable)
		pci_write_config_word(dev, cap + flags, control & ~enable);
}

/**
 * crtos_quiesce() - have a function do nothing of what a cell has had it do
 * @dev: the function, which no cell has any more, nor a driver of Linux so far
 *
 * What an ordinary reset does, if there is one, is done before.
 *
 * Context: May sleep, for CARD_PATIENCE.
 */
void crtos_quiesce(struct pci_dev *dev)
{
	if (!pci_device_is_present(dev))
		return;
	mute(dev, dev->msi_cap, PCI_MSI_FLAGS, PCI_MSI_FLAGS_ENABLE);
	mute(dev, dev->msix_cap, PCI_MSIX_FLAGS, PCI_MSIX_FLAGS_ENABLE);
	reset_card(dev);
}
