// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * messages PATH OWN send|receive PEER COUNT
 *
 * Sends messages by a link through a lock-free ring, or receives and checks them: what the demo
 * messages of cells does (tools/inmates/src/bin/messages.rs), with the same words. Started again,
 * it goes on where it was killed. Its state is 2 at the end, or 3 if a message is not right.
 */
#include <string.h>

#include "link.h"

#define SENT 0
#define TAKEN 1
#define SLEEPS 2
#define SLOTS 16
#define ROOM 1024
/* Looks before it sleeps: mostly the other one is about to send or take. */
#define LOOKS 5000

static struct link shared;
static uint32_t other;
static _Atomic uint64_t *own, *theirs;

static uint64_t message(uint64_t number)
{
	return (number + 1) * 0x9e3779b97f4a7c15;
}

/* Says how much is done, and rings if the other one waits for that. */
static void tell(int word, uint64_t done)
{
	/* In one order with the look, as all that follows. */
	own[word] = done;
	if (theirs[SLEEPS])
		ring(&shared, other);
}

static int may_send(uint64_t number)
{
	return number - theirs[TAKEN] < ROOM;
}

static int may_take(uint64_t number)
{
	return theirs[SENT] > number;
}

static int all_are_taken(uint64_t count)
{
	return theirs[TAKEN] == count;
}

static int is_soon(int (*is_there)(uint64_t), uint64_t number)
{
	for (int look = 0; look < LOOKS; look++)
		if (is_there(number))
			return 1;
	return 0;
}

static void sleep_until(int (*is_there)(uint64_t), uint64_t number)
{
	while (!is_soon(is_there, number)) {
		own[SLEEPS] = 1;
		/* What rings behind the look ends the wait. */
		if (!is_there(number)) {
			await_ring(&shared);
			take_rings(&shared);
		}
		own[SLEEPS] = 0;
	}
}

int main(int argc, char **argv)
{
	_Atomic uint32_t *state;
	uint64_t number, count;
	int sends;

	if (argc != 6) {
		fprintf(stderr, "usage: messages PATH OWN send|receive PEER COUNT\n");
		return 2;
	}
	shared = open_link(argv[1], atoi(argv[2]));
	sends = !strcmp(argv[3], "send");
	other = atoi(argv[4]);
	count = strtoull(argv[5], NULL, 0);
	own = output_of(&shared, shared.own);
	theirs = output_of(&shared, other);
	state = state_of(&shared, shared.own);
	*state = 1;
	for (number = own[sends ? SENT : TAKEN]; number < count; number++) {
		sleep_until(sends ? may_send : may_take, number);
		if (sends) {
			own[SLOTS + number % ROOM] = message(number);
		} else if (theirs[SLOTS + number % ROOM] != message(number)) {
			*state = 3;
			printf("number %lu is not right\n", number);
			return 1;
		}
		tell(sends ? SENT : TAKEN, number + 1);
	}
	if (sends)
		sleep_until(all_are_taken, count);
	*state = 2;
	printf("%lu messages\n", count);
	return 0;
}
