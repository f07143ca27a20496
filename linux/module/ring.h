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
 * crtos_ring_waiting() - count frames that wait to be received
 * @ring: a ring of the realm's frames
 * @taken: how many were received since the start
 *
 * What the kernel stored before it counted a frame is visible then.
 *
 * Return: their number, more than CRTOS_ETHERNET_FRAMES if the kernel is broken.
 */
static inline u64 crtos_ring_waiting(struct crtos_ethernet_ring *ring, u64 taken)
{
	/* Pairs with transmit() of lib/nic, which counts a frame when it is in its place. */
	return smp_load_acquire(&ring->written) - taken;
}

/**
 * crtos_ring_place() - the place of a frame
 * @ring: the ring
 * @number: the number of the frame
 */
static inline struct crtos_ethernet_frame *crtos_ring_place(struct crtos_ethernet_ring *ring,
							    u64 number)
{
	return &ring->frames[number % CRTOS_ETHERNET_FRAMES];
}

/**
 * crtos_ring_length() - the length of a frame that waits
 * @ring: the ring
 * @number: the number of the frame
 * @least: the least bytes that make a frame
 *
 * Return: bytes, or 0 if that is no frame.
 */
static inline unsigned int crtos_ring_length(struct crtos_ethernet_ring *ring, u64 number,
					     unsigned int least)
{
	u64 length = READ_ONCE(crtos_ring_place(ring, number)->length);

	return length >= least && length <= CRTOS_ETHERNET_LONGEST ? length : 0;
}

/**
 * crtos_ring_take() - give places back
 * @ring: the ring
 * @taken: how many frames were received since the start
 */
static inline void crtos_ring_take(struct crtos_ethernet_ring *ring, u64 taken)
{
	/* After the copy of the frame; pairs with has_room() of lib/nic. */
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
 * crtos_ring_has_room() - does a frame find room?
 * @ring: a ring of Linux's frames
 * @written: how many were sent since the start
 */
static inline bool crtos_ring_has_room(struct crtos_ethernet_ring *ring, u64 written)
{
	/* Pairs with receive() of lib/nic, which counts a frame when it was copied. */
	return written - smp_load_acquire(&ring->taken) < CRTOS_ETHERNET_FRAMES;
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
 * crtos_ring_send() - hand a frame over that is in its place
 * @ring: the ring, which had room
 * @written: how many frames were sent before since the start
 * @length: its bytes
 */
static inline void crtos_ring_send(struct crtos_ethernet_ring *ring, u64 written,
				   unsigned int length)
{
	WRITE_ONCE(crtos_ring_place(ring, written)->length, length);
	/* After the frame; pairs with receive() of lib/nic. */
	smp_store_release(&ring->written, written + 1);
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
