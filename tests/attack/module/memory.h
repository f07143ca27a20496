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

/*
 * Gives a running cell pages to share, most of which it must not get, and one of these to a new
 * cell for CPU @owner: how many foreign ones were tried, how many it got, and what else was
 * answered, by name. May sleep. Or an error.
 */
int attack_share(u64 cell, unsigned int owner, char *result, size_t size);

#endif /* ATTACK_MEMORY_H */
