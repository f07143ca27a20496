// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * Local calls with random numbers and arguments: the program may fail, the kernel may not. They are
 * not compared with Linux, where some of them would hurt.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#define OWN_MAIN
#include "check.h"

static const int calls[] = {
	SYS_mmap, SYS_mprotect, SYS_munmap, SYS_brk, SYS_mremap, SYS_msync, SYS_mincore,
	SYS_madvise, SYS_mlock, SYS_munlock, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_sigaltstack,
	SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday,
	SYS_time, SYS_times, SYS_getrusage, SYS_futex, SYS_sched_yield, SYS_sched_getparam,
	SYS_sched_getscheduler, SYS_sched_rr_get_interval, SYS_sched_getaffinity,
	SYS_sched_setaffinity, SYS_getcpu, SYS_arch_prctl, SYS_set_tid_address, SYS_set_robust_list,
	SYS_get_robust_list, SYS_rseq, SYS_ptrace, SYS_io_uring_setup, SYS_userfaultfd, SYS_shmat,
	SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_futex_waitv, SYS_io_setup,
	SYS_io_destroy, SYS_io_submit, SYS_io_getevents, SYS_io_pgetevents, SYS_io_cancel,
	SYS_restart_syscall, SYS_mlockall, SYS_munlockall, 336, 100000,
};

static uint64_t state = 88172645463325252ULL;
static char area[65536] __attribute__((aligned(4096)));

static uint64_t random_word(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint64_t argument(void)
{
	static const uint64_t edges[] = {
		0, 1, 8, 4095, 4096, 65536, 0x7e0000000000, 0x7dfffffff000, 0x7e0100000000,
		0x7ffffffff000, 0x7fffffffefff, 0x800000000000, 0xffff800000000000,
		0xffffffff80000000, -4096UL, -8UL, -1UL, 0x7fffffff, 0x80000000, 0xffffffff,
	};
	uint64_t word = random_word();

	switch (word >> 60) {
	case 0 ... 5:
		return edges[word % (sizeof(edges) / sizeof(*edges))];
	case 6 ... 8:
		return (uintptr_t)area + word % sizeof(area);
	case 9 ... 10:
		return ((uintptr_t)area & ~4095UL) + word % 16 * 4096;
	case 11 ... 13:
		return word % 64;
	case 14:
		return (word % 4096) << 12;
	default:
		return word;
	}
}

static long raw(long nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
	register uint64_t r10 __asm__("r10") = d;
	register uint64_t r8 __asm__("r8") = e;
	register uint64_t r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

/* Makes rounds of random calls, and prints only at the end: the program's own memory may go. */
int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 20000;
	uint64_t context = 0;

	state ^= argc > 2 ? strtoull(argv[2], NULL, 0) * 0x9e3779b97f4a7c15ULL : 0;
	/*
	 * What would only make the test slow: sleeps and waits end at once by a bad or past time.
	 */
	for (int i = 0; i < rounds; i++) {
		int nr = calls[random_word() % (sizeof(calls) / sizeof(*calls))];
		uint64_t a = argument(), b = argument(), c = argument(), d = argument(),
			 e = argument(), f = argument();
		uint64_t past[2] = { 0, random_word() % 2000 };

		if (nr == SYS_nanosleep)
			a = (uintptr_t)past;
		if (nr == SYS_clock_nanosleep)
			c = (uintptr_t)past;
		if (nr == SYS_futex || nr == SYS_futex_waitv)
			d = (uintptr_t)past;
		if (nr == SYS_futex_waitv)
			e %= 2;
		if (nr == SYS_io_getevents || nr == SYS_io_pgetevents)
			e = (uintptr_t)past;
		/* Something that is there, mostly. */
		if ((nr == SYS_process_vm_readv || nr == SYS_process_vm_writev) && f % 4)
			a = getpid(), f = 0;
		if (nr == SYS_kcmp && f % 4)
			a = b = getpid(), c %= 9;
		if (nr == SYS_io_setup && f % 4)
			a %= 1000, b = (uintptr_t)&context;
		else if ((nr >= SYS_io_setup && nr <= SYS_io_cancel) || nr == SYS_io_pgetevents)
			a = f % 4 ? context : a;
		if (nr == SYS_io_destroy && a == context)
			context = 0;
		/* Keep code, data and stack of this program: the point is the kernel. */
		if (nr == SYS_munmap || nr == SYS_mmap || nr == SYS_mprotect || nr == SYS_mremap ||
		    nr == SYS_madvise) {
			if (random_word() % 4)
				a = 0x100000000000 + (a & 0xfffffffff000) % 0x100000000;
			else if (a < 0x7e0000000000)
				a = 0x7e0000000000 + (a & 0xfff);
			if (nr == SYS_mmap)
				b %= 1 << 22, d |= MAP_ANONYMOUS, d &= ~(uint64_t)MAP_POPULATE;
			if (nr == SYS_mremap)
				c %= 1 << 22, d &= ~(uint64_t)MREMAP_FIXED;
			if (nr != SYS_mmap && nr != SYS_mremap)
				b %= 1UL << 32;
		}
		if (nr == SYS_brk)
			a = 0;
		if (nr == SYS_arch_prctl)
			a = 0x1004;
		if (nr == SYS_rt_sigaction && a == SIGSEGV)
			a = 64;
		raw(nr, a, b, c, d, e, f);
	}
	raw(SYS_write, 1, (uintptr_t)"done\n", 5, 0, 0, 0);
	raw(SYS_exit_group, 0, 0, 0, 0, 0, 0);
	return 1;
}
