// SPDX-License-Identifier: MIT OR Apache-2.0
/* System calls: the registers that they keep, their numbers, and where results may go. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#include "check.h"

struct registers {
	uint64_t rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rsp, rip,
		flags;
};

/*
 * Makes a system call with these registers and stores what it leaves. The caller compares RSP and
 * RIP.
 */
extern void call_with(struct registers *in, struct registers *out);

asm("call_with:\n"
    "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "push %rsi\n"
    "mov %rsp, 120(%rdi)\n"
    "mov 0(%rdi), %rax\n mov 8(%rdi), %rbx\n mov 24(%rdi), %rdx\n mov 32(%rdi), %rsi\n"
    "mov 48(%rdi), %rbp\n mov 56(%rdi), %r8\n mov 64(%rdi), %r9\n mov 72(%rdi), %r10\n"
    "mov 88(%rdi), %r12\n mov 96(%rdi), %r13\n mov 104(%rdi), %r14\n mov 112(%rdi), %r15\n"
    "mov 40(%rdi), %rdi\n"
    "std\n"
    "syscall\n"
    "1: pushf\n"
    "cld\n"
    "xchg %rsi, 8(%rsp)\n"	/* now RSI = out, the call's RSI on the stack */
    "mov %rax, 0(%rsi)\n mov %rbx, 8(%rsi)\n mov %rcx, 16(%rsi)\n mov %rdx, 24(%rsi)\n mov %rdi, 40(%rsi)\n"
    "mov %rbp, 48(%rsi)\n mov %r8, 56(%rsi)\n mov %r9, 64(%rsi)\n mov %r10, 72(%rsi)\n mov %r11, 80(%rsi)\n"
    "mov %r12, 88(%rsi)\n mov %r13, 96(%rsi)\n mov %r14, 104(%rsi)\n mov %r15, 112(%rsi)\n"
    "pop %rax\n mov %rax, 136(%rsi)\n"
    "mov %rsp, 120(%rsi)\n"
    "lea 1b(%rip), %rax\n mov %rax, 128(%rsi)\n"
    "pop %rax\n mov %rax, 32(%rsi)\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
    "ret\n");

#define DIRECTION 0x400

/* Tells whether the call kept what it has to keep. */
static int keeps(long nr, long a, long b, long c)
{
	struct registers in = {
		.rax = nr, .rbx = 0x1111111111111111, .rdx = c, .rsi = b, .rdi = a,
		.rbp = 0x2222222222222222,
		.r8 = 0x3333333333333333, .r9 = 0x4444444444444444, .r10 = 0x5555555555555555,
		.r12 = 0x6666666666666666, .r13 = 0x7777777777777777, .r14 = 0x8888888888888888,
		.r15 = 0x9999999999999999,
	}, out;

	call_with(&in, &out);
	return out.rbx == in.rbx && out.rdx == in.rdx && out.rsi == in.rsi && out.rdi == in.rdi &&
	       out.rbp == in.rbp && out.r8 == in.r8 && out.r9 == in.r9 && out.r10 == in.r10 &&
	       out.r12 == in.r12 && out.r13 == in.r13 && out.r14 == in.r14 && out.r15 == in.r15 &&
	       out.rsp == in.rsp && out.rcx == out.rip && out.r11 == out.flags &&
	       (out.flags & DIRECTION);
}

/*
 * The instruction uses RCX and R11, and RAX has the result. Local and remote calls keep the others.
 */
CASE(a_call_keeps_all_registers_but_three)
{
	struct timespec time;
	char byte;

	CHECK(keeps(SYS_getpid, 1, 2, 3));
	CHECK(keeps(SYS_gettid, -1, -2, -3));
	CHECK(keeps(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&time, 7));
	CHECK(keeps(SYS_clock_gettime, CLOCK_MONOTONIC, 8, 7));
	CHECK(keeps(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, (long)&time, 7));
	CHECK(keeps(SYS_sched_yield, 1, 2, 3));
	CHECK(keeps(SYS_getppid, 1, 2, 3));
	CHECK(keeps(SYS_read, -1, (long)&byte, 1));
	CHECK(keeps(100000, 1, 2, 3));
	CHECK(keeps(-1, 1, 2, 3));
}

CASE(many_calls_in_a_row_keep_the_registers)
{
	int kept = 1;

	for (int i = 0; i < 20000; i++)
		kept &= keeps(SYS_gettid, i, i + 1, i + 2);
	CHECK(kept);
}

CASE(a_call_number_has_32_bits)
{
	CHECK(syscall(SYS_getpid | 1L << 32) == getpid());
}

CASE(unknown_numbers_are_refused)
{
	FAILS(ENOSYS, syscall(-1L));
	FAILS(ENOSYS, syscall(1000L));
}

CASE(results_go_to_untouched_memory)
{
	long page = sysconf(_SC_PAGESIZE);
	char *fresh;

	fresh = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, fresh) == 0);
	CHECK(((struct timespec *)fresh)->tv_sec || ((struct timespec *)fresh)->tv_nsec);
}

/* The program has touched the first of them. */
CASE(a_result_may_lie_across_two_pages)
{
	long page = sysconf(_SC_PAGESIZE);
	char *fresh, *two;

	fresh = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fresh[0] = 1;
	two = fresh + page - 8;
	CHECK(syscall(SYS_clock_gettime, CLOCK_REALTIME, two) == 0);
	CHECK(((struct timespec *)two)->tv_sec > 1700000000 &&
	      ((struct timespec *)two)->tv_nsec < 1000000000);
}

CASE(results_do_not_go_to_read_only_memory)
{
	long page = sysconf(_SC_PAGESIZE);
	char *readable;

	readable = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FAILS(EFAULT, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, readable));
}

CASE(results_do_not_go_to_bad_addresses)
{
	FAILS(EFAULT, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, 8L));
	FAILS(EFAULT, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, -8L));
	FAILS(EFAULT, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, 0x7fffffffeff8L));
	FAILS(EFAULT, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, 0x7ffffffffff8L));
	FAILS(EFAULT, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, 0x800000000000L));
	FAILS(EFAULT, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, 0xffff800000000000L));
	FAILS(EFAULT, syscall(SYS_gettimeofday, 8L, NULL));
	FAILS(EFAULT, syscall(SYS_time, 8L));
}

CASE(results_do_not_go_to_protected_memory)
{
	long page = sysconf(_SC_PAGESIZE);
	char *fresh;

	fresh = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, fresh) == 0);
	mprotect(fresh, page, PROT_NONE);
	FAILS(EFAULT, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, fresh));
}

CASE(sysfs_tells_of_file_systems)
{
	char name[100];
	long count = syscall(SYS_sysfs, 3);

	CHECK(count > 0 && syscall(SYS_sysfs, 2, 0, name) == 0);
	CHECK(syscall(SYS_sysfs, 1, name) == 0);
	FAILS(EINVAL, syscall(SYS_sysfs, 2, count, name));
}
