/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Linux's end of a ring of the virtual Ethernet; the other one is lib/nic/src/ethernet.rs, and
 * lib/abi/src/channel.rs describes the protocol.
 *
 * As channel.h, this file needs integers and atomics only, so that tests can compile it on a host.
 * The real-time kernel can write a ring at any time: its index and a length are read once, and
 * checked.
 */
#ifndef CRTOS_RING_H
#define CRTOS_RING_H

#ifdef __KERNEL__
#include <linux/atomic.h>
#include <linux/types.h>
#else
#include "channel_host.h"
#endif

#include "abi.h"

/**
 * crtos_ring_places() - how many places a frame takes
 * @length: its bytes
 */
static inline unsigned int crtos_ring_places(unsigned int length)
{
	return (length + CRTOS_ETHERNET_PLACE - 1) / CRTOS_ETHERNET_PLACE;
}

/**
 * crtos_ring_before_end() - count places from the next one up to the end of the ring
 * @used: how many were used since the start
 */
static inline unsigned int crtos_ring_before_end(u64 used)
{
	return CRTOS_ETHERNET_PLACES - used % CRTOS_ETHERNET_PLACES;
}

/**
 * crtos_ring_waiting() - count places that wait to be received
 * @ring: a ring of the realm's frames
 * @taken: how many were received since the start
 *
 * What the kernel stored before it counted a place is visible then.
 *
 * Return: their number, more than CRTOS_ETHERNET_PLACES if the kernel is broken.
 */
static inline u64 crtos_ring_waiting(struct crtos_ethernet_ring *ring, u64 taken)
{
	/* Pairs with transmit() of lib/nic, which counts a frame when it is in its place. */
	return smp_load_acquire(&ring->written) - taken;
}

/**
 * crtos_ring_place() - a place
 * @ring: the ring
 * @number: the number of the place
 */
static inline u8 *crtos_ring_place(struct crtos_ethernet_ring *ring, u64 number)
{
	return &ring->bytes[number % CRTOS_ETHERNET_PLACES * CRTOS_ETHERNET_PLACE];
}

/**
 * crtos_ring_next() - find the next frame
 * @ring: a ring of the realm's frames
 * @taken: how many places were received since the start; becomes where the frame begins
 * @waiting: how many wait; not 0
 *
 * Return: its bytes, or 0 if that is no frame. Then nobody knows where another one begins.
 */
static inline unsigned int crtos_ring_next(struct crtos_ethernet_ring *ring, u64 *taken,
					   u64 waiting)
{
	unsigned int skipped = crtos_ring_before_end(*taken);
	u64 length;

	if (waiting > CRTOS_ETHERNET_PLACES)
		return 0;
	length = READ_ONCE(ring->lengths[*taken % CRTOS_ETHERNET_PLACES]);
	if (!length && skipped < waiting) {
		*taken += skipped;
		waiting -= skipped;
		length = READ_ONCE(ring->lengths[*taken % CRTOS_ETHERNET_PLACES]);
	}
	if (length > CRTOS_ETHERNET_LONGEST || crtos_ring_places(length) > waiting ||
	    crtos_ring_places(length) > crtos_ring_before_end(*taken))
		return 0;
	return length;
}

/**
 * crtos_ring_take() - give places back
 * @ring: the ring
 * @taken: how many were received since the start
 */
static inline void crtos_ring_take(struct crtos_ethernet_ring *ring, u64 taken)
{
	/* After the copy of the frame; pairs with has_room_for() of lib/nic. */
	smp_store_release(&ring->taken, taken);
}

/**
 * crtos_ring_want_frames() - have the kernel ring for the next frame
 * @ring: the ring
 *
 * The caller looks for frames afterwards.
 */
static inline void crtos_ring_want_frames(struct crtos_ethernet_ring *ring)
{
	WRITE_ONCE(ring->wants_frames, 1);
	/* Pairs with the fence of transmit() of lib/nic, before its look at that word. */
	smp_mb();
}

/**
 * crtos_ring_skipped() - count places that are left out before a frame
 * @written: how many were used since the start
 * @places: how many the frame takes
 */
static inline unsigned int crtos_ring_skipped(u64 written, unsigned int places)
{
	unsigned int before_end = crtos_ring_before_end(written);

	return places <= before_end ? 0 : before_end;
}

/**
 * crtos_ring_has_room() - does a frame find room?
 * @ring: a ring of Linux's frames
 * @written: how many places were used since the start
 * @length: the frame's bytes
 */
static inline bool crtos_ring_has_room(struct crtos_ethernet_ring *ring, u64 written,
				       unsigned int length)
{
	/* Pairs with receive() of lib/nic, which gives a place back when it was copied. */
	u64 used = written - smp_load_acquire(&ring->taken);
	unsigned int places = crtos_ring_places(length);

	return used <= CRTOS_ETHERNET_PLACES &&
	       crtos_ring_skipped(written, places) + places <= CRTOS_ETHERNET_PLACES - used;
}

/**
 * crtos_ring_want_room() - have the kernel ring when half of the ring is free
 * @ring: the ring
 *
 * The caller looks for room afterwards.
 */
static inline void crtos_ring_want_room(struct crtos_ethernet_ring *ring)
{
	WRITE_ONCE(ring->wants_room, 1);
	/* Pairs with the fence of tell() of lib/nic, before its look at that word. */
	smp_mb();
}

/**
 * crtos_ring_begin() - find the place in which a frame begins
 * @ring: the ring, which has room for it
 * @written: how many places were used since the start; becomes the number of that place
 * @length: the frame's bytes
 *
 * Return: where the frame goes.
 */
static inline u8 *crtos_ring_begin(struct crtos_ethernet_ring *ring, u64 *written,
				   unsigned int length)
{
	unsigned int skipped = crtos_ring_skipped(*written, crtos_ring_places(length));

	if (skipped) {
		WRITE_ONCE(ring->lengths[*written % CRTOS_ETHERNET_PLACES], 0);
		*written += skipped;
	}
	return crtos_ring_place(ring, *written);
}

/**
 * crtos_ring_send() - hand a frame over that is in its place
 * @ring: the ring
 * @written: the number of that place; becomes how many were used since the start
 * @length: its bytes
 */
static inline void crtos_ring_send(struct crtos_ethernet_ring *ring, u64 *written,
				   unsigned int length)
{
	WRITE_ONCE(ring->lengths[*written % CRTOS_ETHERNET_PLACES], length);
	*written += crtos_ring_places(length);
	/* After the frame; pairs with receive() of lib/nic. */
	smp_store_release(&ring->written, *written);
}

/**
 * crtos_ring_is_awaited() - is the kernel to be rung for frames that were sent?
 * @ring: the ring
 */
static inline bool crtos_ring_is_awaited(struct crtos_ethernet_ring *ring)
{
	/* Pairs with the fence of let_interrupt() of lib/nic, before its look for frames. */
	smp_mb();
	return READ_ONCE(ring->wants_frames);
}

#endif /* CRTOS_RING_H */
