// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A fixed amount of computation, without system calls: about ten million
 * instructions. What a sample has above the least is what the kernel took from
 * the program: ticks, interrupts, other threads.
 *
 *   compute        nothing else
 *   compute-timer  meanwhile an interval timer of 1 kHz interrupts, and its signal is handled
 */
#include "bench.h"

#include <signal.h>
#include <sys/time.h>

#define ROUNDS 2000000

static void handler(int number)
{
	(void)number;
}

/* Multiply, shift, exclusive or: nothing that a compiler could leave out. */
static uint64_t work(uint64_t seed)
{
	for (long i = 0; i < ROUNDS; i++) {
		seed *= 0x9e3779b97f4a7c15u;
		seed ^= seed >> 29;
	}
	return seed;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct itimerval interval = { { 0, 1000 }, { 0, 1000 } }, none = { { 0, 0 }, { 0, 0 } };
	volatile uint64_t result = 1;
	int with_timer;

	begin(argc, argv);
	with_timer = wants("compute-timer");
	if (!with_timer && !wants("compute"))
		return unknown();
	if (with_timer &&
	    (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &interval, NULL)))
		fail("setitimer");
	for (long round = -1; round < options.samples; round++) {
		uint64_t before = ticks();

		result = work(result);
		sample(round, ticks() - before);
	}
	if (with_timer && setitimer(ITIMER_REAL, &none, NULL))
		fail("setitimer");
	return report();
}
