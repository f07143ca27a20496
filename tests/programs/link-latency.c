// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * link-latency PATH OWN answer ROUNDS [read]: answers peers of a link, as the demo link of cells
 * does (tools/inmates/src/bin/link.rs): of whichever peer rings, the number becomes its own. The
 * time stamp counter of then is that of the instruction behind poll, or behind read.
 *
 * link-latency PATH OWN serve ROUNDS PEER: rings a peer that answers, and prints how long the ways
 * there took, in ticks of that counter: median and most.
 */
#include <string.h>
#include <time.h>

#include "latency.h"
#include "link.h"

/* Nanoseconds until who is about to wait does so. */
#define SETTLE 2000000

static _Atomic uint64_t *own;

static void answer(const struct link *link, int polls)
{
	_Atomic uint64_t *outputs[8];
	uint64_t last[8] = { 0 }, number, heard;
	uint32_t peer;

	for (peer = 0; peer < link->peers; peer++) {
		outputs[peer] = output_of(link, peer);
		last[peer] = outputs[peer][0];
	}
	for (int round = 0; round < rounds;) {
		if (polls) {
			await_ring(link);
			heard = tsc();
			take_rings(link);
		} else {
			take_rings(link);
			heard = tsc();
		}
		for (peer = 0; peer < link->peers; peer++) {
			number = outputs[peer][0];
			if (peer == link->own || number == last[peer])
				continue;
			last[peer] = number;
			own[1] = heard;
			own[0] = number;
			ring(link, peer);
			round++;
		}
	}
}

static void serve(const struct link *link, uint32_t peer)
{
	_Atomic uint64_t *theirs = output_of(link, peer);
	uint64_t *ticks = calloc(rounds, sizeof(*ticks)), sent;

	for (int round = 0; round < rounds; round++) {
		nanosleep(&(struct timespec){ .tv_nsec = SETTLE }, NULL);
		sent = tsc();
		own[0] = round + 1;
		ring(link, peer);
		while (theirs[0] != (uint64_t)round + 1) {
			await_ring(link);
			take_rings(link);
		}
		ticks[round] = theirs[1] - sent;
	}
	sort(ticks);
	printf("%lu %lu\n", ticks[rounds / 2], ticks[rounds - 1]);
}

int main(int argc, char **argv)
{
	struct sched_param urgent = { .sched_priority = 80 };
	_Atomic uint32_t *state;
	struct link link;

	if (argc < 5) {
		fprintf(stderr, "usage: link-latency PATH OWN answer|serve ROUNDS [PEER]\n");
		return 2;
	}
	link = open_link(argv[1], atoi(argv[2]));
	rounds = atoi(argv[4]);
	own = output_of(&link, link.own);
	state = state_of(&link, link.own);
	if (mlockall(MCL_CURRENT | MCL_FUTURE) || sched_setscheduler(0, SCHED_FIFO, &urgent))
		give_up("urgency");
	*state = 1;
	if (!strcmp(argv[3], "answer"))
		answer(&link, argc == 5);
	else
		serve(&link, atoi(argv[5]));
	*state = 2;
	return 0;
}
