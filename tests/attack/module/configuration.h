/* SPDX-License-Identifier: GPL-2.0-only */
/* PCI configuration space by the ports, without Linux's lock. */
#ifndef ATTACK_CONFIGURATION_H
#define ATTACK_CONFIGURATION_H

#include <linux/types.h>

int attack_configure(u32 address, unsigned int width, u16 port, u32 value);
int attack_race(u32 harmless, u32 address, u8 value, unsigned int milliseconds);

#endif /* ATTACK_CONFIGURATION_H */
