// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/*
 * The vDSO: an ELF object with Linux's names and version. Its clocks agree with the system calls.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <sched.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#include "check.h"
#include "moments.h"

static const char *base;

/* Finds an entry of the dynamic section. */
static const void *dynamic(int64_t tag)
{
	const Elf64_Ehdr *header = (void *)base;
	const Elf64_Phdr *program = (void *)(base + header->e_phoff);

	for (int i = 0; i < header->e_phnum; i++) {
		if (program[i].p_type != PT_DYNAMIC)
			continue;
		for (const Elf64_Dyn *entry = (void *)(base + program[i].p_vaddr); entry->d_tag;
		     entry++)
			if (entry->d_tag == tag)
				return base + entry->d_un.d_ptr;
	}
	return NULL;
}

/* Finds a function by its name, of version LINUX_2.6. */
static void *function(const char *name)
{
	const uint32_t *hash = dynamic(DT_HASH);
	const Elf64_Sym *symbols = dynamic(DT_SYMTAB);
	const char *strings = dynamic(DT_STRTAB);
	const uint16_t *versions = dynamic(DT_VERSYM);
	const Elf64_Verdef *definition = dynamic(DT_VERDEF);

	for (uint32_t i = 0; hash && i < hash[1]; i++) {
		if (!symbols[i].st_shndx || strcmp(strings + symbols[i].st_name, name))
			continue;
		for (const Elf64_Verdef *d = definition;; d = (void *)((char *)d + d->vd_next)) {
			const Elf64_Verdaux *aux = (void *)((char *)d + d->vd_aux);

			if (d->vd_ndx == (versions[i] & 0x7fff) &&
			    !strcmp(strings + aux->vda_name, "LINUX_2.6"))
				return (char *)base + symbols[i].st_value;
			if (!d->vd_next)
				break;
		}
	}
	return NULL;
}

typedef int (*clock_function)(clockid_t, struct timespec *);

/*
 * Tells whether the time of the vDSO lies between those of system calls before and after, in 1000
 * tries.
 */
static int agrees(clock_function gettime, clockid_t clock, int64_t slack)
{
	struct timespec before, here, after;

	for (int i = 0; i < 1000; i++) {
		if (syscall(SYS_clock_gettime, clock, &before) || gettime(clock, &here) ||
		    syscall(SYS_clock_gettime, clock, &after))
			return 0;
		if (nanoseconds(here) < nanoseconds(before) - slack ||
		    nanoseconds(here) > nanoseconds(after) + slack || here.tv_nsec < 0 ||
		    here.tv_nsec >= 1000000000)
			return 0;
	}
	return 1;
}

static clock_function gettime, getres;
static int (*getday)(struct timeval *, struct timezone *);
static time_t (*gettime_seconds)(time_t *);
static int (*getcpu_function)(unsigned *, unsigned *, void *);

BEFORE_EACH
{
	base = (char *)getauxval(AT_SYSINFO_EHDR);
	gettime = function("__vdso_clock_gettime");
	getres = function("__vdso_clock_getres");
	getday = function("__vdso_gettimeofday");
	gettime_seconds = function("__vdso_time");
	getcpu_function = function("__vdso_getcpu");
}

CASE(it_is_an_object_with_all_functions)
{
	CHECK(base && !memcmp(base, ELFMAG, SELFMAG) && ((Elf64_Ehdr *)base)->e_type == ET_DYN);
	CHECK(gettime && getres && getday && gettime_seconds && getcpu_function);
	CHECK(function("clock_gettime") && function("getcpu") && !function("absent"));
}

/* Linux may set a clock of the real time between two readings. */
CASE(its_clocks_agree_with_the_system_calls)
{
	CHECK(agrees(gettime, CLOCK_MONOTONIC, 0));
	CHECK(agrees(gettime, CLOCK_REALTIME, 1000000));
	CHECK(agrees(gettime, CLOCK_TAI, 1000000));
	CHECK(agrees(gettime, CLOCK_BOOTTIME, 0));
	CHECK(agrees(gettime, CLOCK_MONOTONIC_RAW, 0));
	CHECK(agrees(gettime, CLOCK_MONOTONIC_COARSE, 0));
	CHECK(agrees(gettime, CLOCK_REALTIME_COARSE, 1000000));
}

CASE(it_reads_the_clocks_of_the_processor)
{
	struct timespec a;

	CHECK(gettime(CLOCK_PROCESS_CPUTIME_ID, &a) == 0 &&
	      gettime(CLOCK_THREAD_CPUTIME_ID, &a) == 0);
}

CASE(unknown_clocks_are_refused)
{
	struct timespec a;

	CHECK(gettime(12345, &a) == -EINVAL && gettime(-1, &a) == -EINVAL);
}

CASE(its_resolutions_are_those_of_the_system_call)
{
	struct timespec a, b;

	for (int i = 0; i < 12; i++) {
		int known = getres(i, &a);

		PART("clock %d", i);
		CHECK(known == (syscall(SYS_clock_getres, i, &b) ? -errno : 0));
		CHECK(known || nanoseconds(a) == nanoseconds(b));
	}
	CHECK(getres(CLOCK_MONOTONIC, NULL) == 0);
}

/* Linux's time in seconds moves at its ticks. */
CASE(its_time_of_day_agrees_with_the_clock)
{
	struct timespec a, b;
	struct timeval day;
	struct timezone zone = { 1, 1 };
	time_t seconds;

	clock_gettime(CLOCK_REALTIME, &a);
	CHECK(getday(&day, &zone) == 0 && zone.tz_minuteswest == 0 && day.tv_usec < 1000000);
	clock_gettime(CLOCK_REALTIME, &b);
	CHECK(day.tv_sec >= a.tv_sec && day.tv_sec <= b.tv_sec);
	CHECK(getday(NULL, NULL) == 0);
	CHECK(gettime_seconds(&seconds) == seconds && seconds >= day.tv_sec - 1);
	clock_gettime(CLOCK_REALTIME, &b);
	CHECK(seconds <= b.tv_sec);
}

CASE(it_tells_the_cpu)
{
	unsigned cpu = 99, node = 99;
	cpu_set_t cpus;

	CHECK(getcpu_function(&cpu, &node, NULL) == 0 && node == 0);
	CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_ISSET(cpu, &cpus));
	CHECK(getcpu_function(NULL, NULL, NULL) == 0);
}

CASE(the_time_is_not_for_writing)
{
	FAILS(EACCES, mprotect((char *)base - 4096, 4096, PROT_READ | PROT_WRITE));
}
