// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * mapper CPU OTHER: maps memory on CPU, writes to it and unmaps it, for ever. A thread on OTHER
 * computes meanwhile, so that OTHER has to forget each time what was mapped. Prints a line once
 * both are at work.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define SIZE 65536

static void move_to(const char *cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(cpu), &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("sched_setaffinity");
		exit(1);
	}
}

static volatile long sum;

static void *compute(void *cpu)
{
	move_to(cpu);
	for (;;)
		sum++;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	bool told = false;
	char *memory;

	if (argc != 3)
		return 2;
	if (pthread_create(&thread, NULL, compute, argv[2]))
		return 1;
	move_to(argv[1]);
	for (;;) {
		memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			      -1, 0);
		if (memory == MAP_FAILED) {
			perror("mmap");
			return 1;
		}
		*memory = 1;
		munmap(memory, SIZE);
		if (sum && !told) {
			puts("at work");
			fflush(stdout);
			told = true;
		}
	}
}
