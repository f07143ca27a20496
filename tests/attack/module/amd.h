/* SPDX-License-Identifier: GPL-2.0-only */
/* Attacks by way of an IOMMU of AMD's kind. */
#ifndef ATTACK_AMD_H
#define ATTACK_AMD_H

#include <linux/types.h>

/* A command to the unit. */
struct attack_amd_command {
	u64 low, high;
};

/* No word of an entry: Linux's stays. */
#define ATTACK_AMD_KEPT	(~0ull)

void __iomem *attack_map_amd_unit(void);
int attack_amd_tell(const struct attack_amd_command *commands, unsigned int count);
int attack_amd_entry(u64 low, u64 interrupts);
int attack_amd_restore(void);
int attack_amd_remapping(unsigned int index, u64 low, u64 high);
int attack_amd_table(u64 low, u64 interrupts);
int attack_amd_restore_table(void);
int attack_amd_forget(void);
int attack_amd_while(unsigned int offset, u64 value, int (*act)(void *argument), void *argument);
u64 *attack_amd_find_entry(u16 *device);

#endif /* ATTACK_AMD_H */
