// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * uio-latency DEVICE CONFIGURATION COUNT [PAUSE]
 *
 * How long it takes from an interrupt of QEMU's device edu, which DEVICE (/dev/uioN) leads to, to
 * the instruction after `read`. A thread of low priority raises it while one of high priority
 * reads; both run on the CPU on which the program starts. CONFIGURATION is the file of its
 * configuration space, in which its pin is let interrupt before each, or "messages" if it has no
 * part in that.
 *
 * It prints the number of interrupts, the median and the maximum in nanoseconds, without the store
 * that raises the interrupt; and when it began with them and ended (CLOCK_MONOTONIC, in
 * nanoseconds). It sleeps for PAUSE seconds before and afterwards.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Registers of edu, in words. */
#define LIVENESS 1
#define RAISE 24
#define ACKNOWLEDGE 25

#define COMMAND 4
#define PIN_OFF 0x400
#define WARM_UP 20
#define MOST 100000

static volatile uint32_t *registers;
static int uio, configuration = -1;
static volatile uint64_t raised;
static volatile long rounds, start;
static struct timespec rest;
static uint64_t took[MOST], stores[1001];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static inline uint64_t stamp(void)
{
	uint32_t low, high;

	__asm__ volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high) :: "memory");
	return (uint64_t)high << 32 | low;
}

static long nanoseconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

static int by_size(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return a < b ? -1 : a > b;
}

static void let_pin(void)
{
	uint16_t command;

	if (configuration < 0)
		return;
	if (pread(configuration, &command, sizeof(command), COMMAND) != sizeof(command))
		die("configuration");
	command &= ~PIN_OFF;
	if (pwrite(configuration, &command, sizeof(command), COMMAND) != sizeof(command))
		die("configuration");
}

static void priority(int value)
{
	struct sched_param param = { .sched_priority = value };

	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &param))
		die("priority");
}

/* Runs whenever the reader waits. */
static void *raises(void *last)
{
	priority(10);
	for (long round = 0; round < (long)last; round++) {
		struct timespec pause = { 0, 500000 };

		nanosleep(&pause, NULL);
		if (round == WARM_UP) {
			nanosleep(&rest, NULL);
			start = nanoseconds();
		}
		let_pin();
		raised = stamp();
		registers[RAISE] = 1;
		while (rounds <= round)
			sched_yield();
	}
	/* The end of a thread is Linux's to hear. */
	nanosleep(&rest, NULL);
	return NULL;
}

int main(int argc, char **argv)
{
	long count, end, first_ns;
	uint64_t first_stamp, ticks;
	uint32_t number;
	pthread_t thread;
	cpu_set_t cpu;
	double scale;

	if (argc < 4 || argc > 5) {
		fprintf(stderr, "usage: uio-latency DEVICE CONFIGURATION COUNT [PAUSE]\n");
		return 2;
	}
	count = atol(argv[3]);
	if (count < 1 || count + WARM_UP > MOST)
		return 2;
	rest.tv_sec = argc == 5 ? atol(argv[4]) : 0;
	uio = open(argv[1], O_RDWR);
	if (uio < 0)
		die(argv[1]);
	if (strcmp(argv[2], "messages") != 0) {
		configuration = open(argv[2], O_RDWR);
		if (configuration < 0)
			die(argv[2]);
	}
	registers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, uio, 0);
	if (registers == MAP_FAILED)
		die("mmap");
	CPU_ZERO(&cpu);
	CPU_SET(sched_getcpu(), &cpu);
	sched_setaffinity(0, sizeof(cpu), &cpu);
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		die("mlockall");
	first_ns = nanoseconds();
	first_stamp = stamp();
	priority(50);
	for (int i = 0; i < 1001; i++) {
		uint64_t before = stamp();

		registers[LIVENESS] = 1;
		stores[i] = stamp() - before;
	}
	qsort(stores, 1001, sizeof(*stores), by_size);
	if (pthread_create(&thread, NULL, raises, (void *)(count + WARM_UP)))
		die("thread");
	for (long round = 0; round < count + WARM_UP; round++) {
		if (read(uio, &number, sizeof(number)) != sizeof(number))
			die("read");
		took[round] = stamp() - raised;
		registers[ACKNOWLEDGE] = 1;
		rounds = round + 1;
	}
	end = nanoseconds();
	ticks = stamp() - first_stamp;
	pthread_join(thread, NULL);
	scale = (double)(end - first_ns) / ticks;
	qsort(took + WARM_UP, count, sizeof(*took), by_size);
	printf("%ld %.0f %.0f %ld %ld\n", count, (took[WARM_UP + count / 2] - stores[500]) * scale,
	       (took[WARM_UP + count - 1] - stores[500]) * scale, start, end);
	return 0;
}
