/* SPDX-License-Identifier: GPL-2.0-only */
/* Attacks at random. */
#ifndef ATTACK_RANDOM_H
#define ATTACK_RANDOM_H

#include <linux/types.h>

struct crtos_channel;

/*
 * Carries out a command, less its first word "random", and writes what came of it. May sleep.
 * Returns the length of that, or -EINVAL if there is no such command, or another error.
 */
int attack_at_random(const char *command, char *result, size_t size);

/* Returns the realm's channel, found in Linux's memory by its head; NULL without a realm. */
struct crtos_channel *attack_find_channel(void);

#endif /* ATTACK_RANDOM_H */
