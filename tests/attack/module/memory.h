/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory that Linux does not have. Each writes what came of it, and returns the length of that. */
#ifndef ATTACK_MEMORY_H
#define ATTACK_MEMORY_H

#include <linux/types.h>

/* Reads what crtos' module marks as not Linux's: how many pages, and how many could be read. */
int attack_hidden(char *result, size_t size);

/*
 * Reads a page on CPU @reader without a pause, while a cell for CPU @owner gets it: how often
 * before the cell has contents or, with @start, runs, and how often since. May sleep. Or an error.
 */
int attack_stale(bool start, unsigned int reader, unsigned int owner, char *result, size_t size);

#endif /* ATTACK_MEMORY_H */
