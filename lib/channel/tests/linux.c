// SPDX-License-Identifier: MIT OR Apache-2.0
/* Linux's end of the channel as functions that a test can load. */
#include "channel.h"
#include "ring.h"

u64 linux_size(void)
{
	return sizeof(struct crtos_channel);
}

u32 linux_state(struct crtos_channel *channel, u32 slot)
{
	return crtos_channel_state(channel, slot);
}

void linux_open(struct crtos_channel *channel, u32 slot, u32 process, u32 pid)
{
	struct crtos_slot_owner owner = {
		.process = process,
		.pid = pid,
		.tid = pid + 1,
		.uid = 7,
		.payer = 8,
		.heritage = 9,
		.pid_namespace = 9,
		.own_tid = 2,
	};

	crtos_channel_open(channel, slot, CRTOS_SLOT_SPAWN, &owner);
}

bool linux_take_request(struct crtos_channel *channel, u32 slot, struct crtos_request *request)
{
	return crtos_channel_take_request(channel, slot, request);
}

bool linux_reply(struct crtos_channel *channel, u32 slot, s64 result)
{
	return crtos_channel_reply(channel, slot, result);
}

u32 linux_target(struct crtos_channel *channel, u32 slot, bool *wanted)
{
	return crtos_channel_target(channel, slot, wanted);
}

bool linux_ask(struct crtos_channel *channel, u32 slot, u64 address, bool write)
{
	return crtos_channel_ask(channel, slot, address, write);
}

bool linux_take_answer(struct crtos_channel *channel, u32 slot, u64 *answer)
{
	return crtos_channel_take_answer(channel, slot, answer);
}

void linux_gone(struct crtos_channel *channel, u32 slot)
{
	crtos_channel_notice(channel, slot, CRTOS_SLOT_GONE);
}

bool linux_signal(struct crtos_channel *channel, u32 slot, u32 number)
{
	u64 info[6] = { number, 1, 2, 3, 4, 5 };

	return crtos_channel_signal(channel, slot, info);
}

/* Carries out the first posted revocation of the process; returns its start, or 0. */
u64 linux_revoke(struct crtos_channel *channel, u32 process)
{
	struct crtos_revoked_range taken;
	u32 cursor = 0;

	if (!crtos_channel_take_revocation(channel, &cursor, process, &taken))
		return 0;
	crtos_channel_revocation_done(channel, taken.index);
	return taken.start;
}

u32 linux_revocations_waiting(struct crtos_channel *channel, u32 finished)
{
	return crtos_channel_revocations_posted(channel, finished);
}

u64 linux_requests(struct crtos_channel *channel, u32 word)
{
	return crtos_channel_requests(channel, word);
}

void linux_waits_on(struct crtos_channel *channel, u32 slot, u32 cpu)
{
	crtos_channel_waits_on(channel, slot, cpu);
}

static struct crtos_question *question(struct crtos_channel *channel, bool seal)
{
	return seal ? &channel->seal : &channel->end;
}

u32 linux_put_question(struct crtos_channel *channel, bool seal)
{
	return crtos_channel_put_question(question(channel, seal));
}

bool linux_is_answered(struct crtos_channel *channel, bool seal, u32 number)
{
	return crtos_channel_is_answered(question(channel, seal), number);
}

/* Sends a frame of @length bytes @value; returns whether it found room. */
bool linux_send(struct crtos_channel *channel, u64 *written, u32 length, u8 value, bool *ring)
{
	struct crtos_ethernet_ring *out = &channel->ethernet.to_realm;

	*ring = false;
	if (!crtos_ring_has_room(out, *written, length)) {
		crtos_ring_want_room(out);
		return false;
	}
	__builtin_memset(crtos_ring_begin(out, written, length), value, length);
	crtos_ring_send(out, written, length);
	*ring = crtos_ring_is_awaited(out);
	return true;
}

/*
 * Takes a frame, and tells its length and its first byte, or 0xff if not all bytes are that one. If
 * it is none, all that waits is taken; returns 0 if nothing waits.
 */
u64 linux_take(struct crtos_channel *channel, u64 *taken, u32 *length, u8 *value)
{
	struct crtos_ethernet_ring *in = &channel->ethernet.to_linux;
	u64 waiting = crtos_ring_waiting(in, *taken);
	u64 at = *taken;
	volatile u8 *place;
	u32 i;

	if (!waiting)
		return 0;
	*length = crtos_ring_next(in, &at, waiting);
	place = crtos_ring_place(in, at);
	*value = *length ? *place : 0;
	for (i = 0; i < *length; i++)
		if (place[i] != *value)
			*value = 0xff;
	*taken = *length ? at + crtos_ring_places(*length) : *taken + waiting;
	crtos_ring_take(in, *taken);
	return waiting;
}

/* Has the kernel ring for the next frame; returns whether there is one already. */
bool linux_want_frames(struct crtos_channel *channel, u64 taken)
{
	crtos_ring_want_frames(&channel->ethernet.to_linux);
	return crtos_ring_waiting(&channel->ethernet.to_linux, taken);
}

void linux_up(struct crtos_channel *channel, bool up)
{
	WRITE_ONCE(channel->ethernet.linux_up, up);
}
