// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where cells see the memory of their devices.
 */
#include <linux/list.h>
#include <linux/mm.h>

#include "crtos.h"

static LIST_HEAD(windows);

/* Tells whether memory of a device of the cell is at one of these addresses of it. */
static bool is_used(u32 cell, u64 address, u64 size)
{
	struct crtos_window *window;
	int i;

	list_for_each_entry(window, &windows, link)
		for (i = 0; window->cell == cell && i < CRTOS_BASE_ADDRESSES; i++) {
			u64 start = window->memory[i].cell_address;

			if (address < start + PAGE_ALIGN(window->memory[i].size) &&
			    start < address + size)
				return true;
		}
	return false;
}

/**
 * crtos_window_add() - have a device take part in it, whose memory is nowhere so far
 * @window: of the device
 * @cell: that has it
 *
 * Context: Under crtos.lock, as all of these are.
 */
void crtos_window_add(struct crtos_window *window, u32 cell)
{
	window->cell = cell;
	list_add(&window->link, &windows);
}

/**
 * crtos_window_remove() - undo crtos_window_add()
 * @window: of the device
 */
void crtos_window_remove(struct crtos_window *window)
{
	list_del(&window->link);
}

/**
 * crtos_window_place() - find where the cell is to see memory of a device
 * @window: of the device
 * @i: which memory
 * @physical: where it lies in the machine
 * @size: bytes
 * @alignment: of the address, a power of two
 *
 * Return: false if there is no room.
 */
bool crtos_window_place(struct crtos_window *window, int i, u64 physical, u64 size, u64 alignment)
{
	u64 pages = PAGE_ALIGN(size);
	u64 address;

	if (size > CRTOS_MAX_DEVICE_MEMORY)
		return false;
	for (address = CRTOS_DEVICE_MEMORY; address + pages <= CRTOS_DEVICE_MEMORY_END;
	     address += alignment) {
		if (is_used(window->cell, address, pages))
			continue;
		window->memory[i].physical = physical;
		window->memory[i].cell_address = address;
		window->memory[i].size = size;
		return true;
	}
	return false;
}
