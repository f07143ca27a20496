// SPDX-License-Identifier: MIT OR Apache-2.0
/* Each thread has bases of FS and GS of its own, be they set by a call or by an instruction. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

#define THREADS 4
#define ROUNDS 300

static uint64_t places[THREADS + 1];
static __thread uint64_t own;

static uint64_t at_gs(void)
{
	uint64_t word;

	__asm__ volatile("mov %%gs:0, %0" : "=r"(word));
	return word;
}

static uint64_t base(int which)
{
	uint64_t address = 0;

	syscall(SYS_arch_prctl, which, &address);
	return address;
}

/* Tells whether programs may use WRGSBASE. */
static int has_instructions(void)
{
	return getauxval(AT_HWCAP2) & 2;
}

/* Sets a base, and looks at it after each turn of others. Returns how often something was wrong. */
static void *turns(void *number)
{
	uint64_t *place = &places[(intptr_t)number];
	uint64_t fs = base(ARCH_GET_FS);
	long wrong = 0;

	*place = own = 100 + (intptr_t)number;
	wrong += syscall(SYS_arch_prctl, ARCH_SET_GS, place) != 0;
	for (int round = 0; round < ROUNDS; round++) {
		if (round == ROUNDS / 2 && has_instructions()) {
			wrong += syscall(SYS_arch_prctl, ARCH_SET_GS, 0) != 0;
			__asm__ volatile("wrgsbase %0" : : "r"(place));
		}
		sched_yield();
		wrong += at_gs() != own || base(ARCH_GET_GS) != (uint64_t)place ||
			 base(ARCH_GET_FS) != fs;
	}
	return (void *)wrong;
}

/* A child begins with the base that its parent had. */
CASE(bases_stay_while_threads_and_processes_take_turns)
{
	pthread_t threads[THREADS];
	cpu_set_t one;
	long wrong = 0;
	pid_t child;
	int status;

	sched_getaffinity(0, sizeof(one), &one);
	for (int cpu = 0, found = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &one) && found++)
			CPU_CLR(cpu, &one);
	}
	CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
	for (intptr_t i = 0; i < THREADS; i++)
		wrong += pthread_create(&threads[i], NULL, turns, (void *)i) != 0;
	places[THREADS] = own = 100 + THREADS;
	wrong += syscall(SYS_arch_prctl, ARCH_SET_GS, &places[THREADS]) != 0;
	child = fork();
	if (!child)
		_exit(at_gs() != own || turns((void *)(intptr_t)THREADS));
	wrong += turns((void *)(intptr_t)THREADS) != NULL;
	for (int i = 0; i < THREADS; i++) {
		void *result;

		pthread_join(threads[i], &result);
		wrong += (long)result;
	}
	CHECK(wrong == 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

CASE(addresses_of_the_kernel_are_refused)
{
	FAILS(EPERM, syscall(SYS_arch_prctl, ARCH_SET_GS, 1UL << 63));
	FAILS(EPERM, syscall(SYS_arch_prctl, ARCH_SET_FS, ~0UL));
}

/* The processors that this runs on have no faults for CPUID, so that nobody can take it away. */
CASE(a_program_has_the_instruction_cpuid)
{
	CHECK(syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0) == 1);
	FAILS(ENODEV, syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0));
	FAILS(ENODEV, syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1));
	FAILS(EINVAL, syscall(SYS_arch_prctl, 0x1013, 0));
}
