/* SPDX-License-Identifier: GPL-2.0-only */
/* Attacks by a device that reads and writes memory where it is told to. */
#ifndef ATTACK_DMA_H
#define ATTACK_DMA_H

#include <linux/types.h>

struct pci_dev;

/* QEMU's device edu. */
#define EDU_VENDOR	0x1234
#define EDU_DEVICE	0x11e8

/* The device that attacks, with a reference, or NULL. May sleep. */
struct pci_dev *attack_find_edu(void);

/*
 * Carries out a command, less its first word "dma", and writes what came of it. May sleep. Returns
 * the length of that, or -EINVAL if there is no such command, or another error.
 */
int attack_by_dma(const char *command, char *result, size_t size);

/* Undoes all that was forged, and gives the device back. May sleep. */
void attack_end_dma(void);

#endif /* ATTACK_DMA_H */
