/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ATTACK_IOMMU_H
#define ATTACK_IOMMU_H

#include <linux/types.h>

void __iomem *attack_map_unit(void);
int attack_command(const u64 *commands, unsigned int count);
int attack_remapping(unsigned int index, u64 low, u64 high);
int attack_unit(unsigned int offset, const u64 *value, u32 *result);

#endif
