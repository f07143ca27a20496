// SPDX-License-Identifier: MIT OR Apache-2.0
/* Linux's end of the channel as functions that a test can load. */
#include "channel_core.h"

u64 linux_size(void)
{
	return sizeof(struct crtos_channel);
}

u32 linux_state(struct crtos_channel *channel, u32 slot)
{
	return crtos_core_state(channel, slot);
}

void linux_open(struct crtos_channel *channel, u32 slot, u32 process, u32 pid)
{
	struct crtos_core_owner owner = { .process = process, .pid = pid, .tid = pid + 1, .uid = 7 };

	crtos_core_open(channel, slot, CRTOS_SLOT_SPAWN, &owner);
}

bool linux_take_request(struct crtos_channel *channel, u32 slot, struct crtos_core_request *request)
{
	return crtos_core_take_request(channel, slot, request);
}

bool linux_reply(struct crtos_channel *channel, u32 slot, s64 result)
{
	return crtos_core_reply(channel, slot, result);
}

bool linux_ask(struct crtos_channel *channel, u32 slot, u64 address, bool write)
{
	return crtos_core_ask(channel, slot, address, write);
}

bool linux_take_answer(struct crtos_channel *channel, u32 slot, u64 *answer)
{
	return crtos_core_take_answer(channel, slot, answer);
}

void linux_gone(struct crtos_channel *channel, u32 slot)
{
	crtos_core_notice(channel, slot, CRTOS_SLOT_GONE);
}

bool linux_signal(struct crtos_channel *channel, u32 slot, u32 number)
{
	u64 info[6] = { number, 1, 2, 3, 4, 5 };

	return crtos_core_signal(channel, slot, info);
}

/* Carries out the first posted drop of the process; returns its start, or 0. */
u64 linux_drop(struct crtos_channel *channel, u32 process)
{
	struct crtos_core_drop taken;
	u32 cursor = 0;

	if (!crtos_core_take_drop(channel, &cursor, process, &taken))
		return 0;
	crtos_core_drop_done(channel, taken.index);
	return taken.start;
}

u32 linux_drops_waiting(struct crtos_channel *channel, u32 finished)
{
	return crtos_core_drops_posted(channel, finished);
}

u64 linux_requests(struct crtos_channel *channel, u32 word)
{
	return crtos_core_requests(channel, word);
}

void linux_waits_on(struct crtos_channel *channel, u32 slot, u32 cpu)
{
	crtos_core_waits_on(channel, slot, cpu);
}
