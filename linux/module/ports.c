// SPDX-License-Identifier: GPL-2.0-only
/*
 * I/O ports that a cell has alone: an access by Linux is a fault there. A
 * driver that asks for them, or looks for its device there, is refused by Linux
 * meanwhile. Ports that a driver had before stay its own.
 */
#include <linux/ioport.h>

#include "crtos.h"

/**
 * crtos_ports_reserve() - keep Linux's drivers away from a cell's ports
 * @cell: the cell that gets them
 * @create: what is asked for
 *
 * Context: Under crtos.lock; may sleep.
 */
void crtos_ports_reserve(struct crtos_cell *cell, const struct crtos_create_cell *create)
{
	u32 i;

	for (i = 0; i < create->port_count; i++) {
		const struct crtos_port_range *range = &create->ports[i];

		if (!(range->flags & CRTOS_PORT_EXCLUSIVE) || range->first > range->last)
			continue;
		cell->ports[i] = request_region(range->first, range->last - range->first + 1,
						"crtos");
	}
}

/**
 * crtos_ports_return() - let Linux's drivers have them again
 * @cell: the cell, which has them no more
 *
 * Context: Under crtos.lock.
 */
void crtos_ports_return(struct crtos_cell *cell)
{
	u32 i;

	for (i = 0; i < CRTOS_MAX_PORT_RANGES; i++) {
		if (cell->ports[i])
			release_region(cell->ports[i]->start, resource_size(cell->ports[i]));
		cell->ports[i] = NULL;
	}
}
