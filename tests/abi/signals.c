// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/* Handlers, masks, alternate stacks, interrupted and restarted calls. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

#include "check.h"

static volatile sig_atomic_t count, last;
static volatile uintptr_t stack_seen, address_seen;
static sigset_t mask_seen;
static sigjmp_buf back;

static void note(int number)
{
	count++;
	last = number;
	stack_seen = (uintptr_t)__builtin_frame_address(0);
	sigprocmask(SIG_BLOCK, NULL, &mask_seen);
}

static void set(int number, void (*handler)(int), int flags, int blocked)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	sigemptyset(&action.sa_mask);
	if (blocked)
		sigaddset(&action.sa_mask, blocked);
	CHECK(sigaction(number, &action, NULL) == 0);
}

static void fault(int number, siginfo_t *info, void *context)
{
	ucontext_t *user = context;

	address_seen = (uintptr_t)info->si_addr;
	last = number;
	count++;
	/* Past the access, which takes two bytes: mov (%rax), %al. */
	user->uc_mcontext.gregs[REG_RIP] += 2;
	user->uc_mcontext.gregs[REG_RBX] = 0x1234;
}

static void jump(int number)
{
	siglongjmp(back, number);
}

/* SIGALRM after some milliseconds. */
static void alarm_in(int milliseconds)
{
	struct itimerval timer = { .it_value = { 0, milliseconds * 1000 } };

	setitimer(ITIMER_REAL, &timer, NULL);
}

/* Again and again: the first may come before the wait begins. */
static void alarm_each(int milliseconds)
{
	struct itimerval timer = { { 0, milliseconds * 1000 }, { 0, milliseconds * 1000 } };

	setitimer(ITIMER_REAL, &timer, NULL);
}

static int64_t nanoseconds(struct timespec time)
{
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

int main(void)
{
	struct sigaction old;
	struct timespec request, rest, begin, end;
	sigset_t set_of, before;
	volatile int result;
	int ends[2];
	uint64_t rbx;
	double value = 1.25, kept;
	stack_t stack = { .ss_size = 65536 };
	char byte;

	CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
	set(SIGUSR1, note, 0, SIGUSR2);
	CHECK(raise(SIGUSR1) == 0 && count == 1 && last == SIGUSR1);
	CHECK(sigismember(&mask_seen, SIGUSR1) && sigismember(&mask_seen, SIGUSR2));
	sigprocmask(SIG_BLOCK, NULL, &before);
	CHECK(!sigismember(&before, SIGUSR1));
	CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == note);

	set(SIGUSR2, note, SA_RESETHAND | SA_NODEFER, 0);
	CHECK(kill(getpid(), SIGUSR2) == 0 && count == 2 && !sigismember(&mask_seen, SIGUSR2));
	CHECK(sigaction(SIGUSR2, NULL, &old) == 0 && old.sa_handler == SIG_DFL);

	/* Registers of the interrupted code survive. */
	__asm__ volatile("movsd %1, %%xmm9\n\tmov $62, %%eax\n\tsyscall\n\tmovsd %%xmm9, %0"
			 : "=m"(kept) : "m"(value), "D"(getpid()), "S"(SIGUSR1) : "rax", "rcx", "r11", "xmm9", "memory");
	CHECK(count == 3 && kept == value);

	/* Blocked, pending, delivered when unblocked; several become one. */
	sigemptyset(&set_of);
	sigaddset(&set_of, SIGUSR1);
	CHECK(sigprocmask(SIG_BLOCK, &set_of, NULL) == 0);
	raise(SIGUSR1);
	raise(SIGUSR1);
	CHECK(count == 3);
	CHECK(sigprocmask(SIG_UNBLOCK, &set_of, NULL) == 0 && count == 4);

	/* Suspended until it comes. */
	sigprocmask(SIG_BLOCK, &set_of, NULL);
	raise(SIGUSR1);
	sigemptyset(&before);
	FAILS(EINTR, sigsuspend(&before));
	CHECK(count == 5);
	sigprocmask(SIG_BLOCK, NULL, &before);
	CHECK(sigismember(&before, SIGUSR1));
	sigprocmask(SIG_UNBLOCK, &set_of, NULL);

	/* Ignored ones are gone. */
	set(SIGUSR1, SIG_IGN, 0, 0);
	CHECK(raise(SIGUSR1) == 0 && count == 5);
	CHECK(signal(SIGPIPE, SIG_IGN) == SIG_DFL);
	CHECK(pipe(ends) == 0 && close(ends[0]) == 0);
	FAILS(EPIPE, write(ends[1], "x", 1));
	close(ends[1]);

	/* Calls that wait end, or go on with SA_RESTART. */
	set(SIGALRM, note, 0, 0);
	CHECK(pipe(ends) == 0);
	alarm_each(50);
	FAILS(EINTR, read(ends[0], &byte, 1));
	CHECK(count > 5 && last == SIGALRM);
	/* What is left is all but the time that has passed. Linux adds what its timers may be late by. */
	clock_gettime(CLOCK_MONOTONIC, &begin);
	request = (struct timespec){ 1000, 0 };
	count = 0;
	FAILS(EINTR, nanosleep(&request, &rest));
	clock_gettime(CLOCK_MONOTONIC, &end);
	CHECK(count > 0 && nanoseconds(rest) <= nanoseconds(request) + 1000000);
	CHECK(nanoseconds(rest) + nanoseconds(end) - nanoseconds(begin) >= nanoseconds(request));
	count = 0;
	FAILS(EINTR, pause());
	CHECK(count > 0);
	alarm_in(0);
	/* In the middle of computing. */
	count = 8;
	alarm_in(50);
	while (count == 8)
		;
	CHECK(count == 9);
	set(SIGALRM, note, SA_RESTART, 0);
	alarm_in(50);
	CHECK(write(ends[1], "ab", 2) == 2 && read(ends[0], &byte, 1) == 1);
	while (count == 9)
		;
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'b');
	CHECK(count == 10);

	/* Faults: handled, with address, changed registers, on another stack. */
	old.sa_sigaction = fault;
	old.sa_flags = SA_SIGINFO;
	sigemptyset(&old.sa_mask);
	CHECK(sigaction(SIGSEGV, &old, NULL) == 0);
	__asm__ volatile("mov $0x5678, %%rax\n\tmov $1, %%rbx\n\t.byte 0x8a, 0x00\n\tmov %%rbx, %0"
			 : "=r"(rbx) :: "rax", "rbx", "memory");
	CHECK(rbx == 0x1234 && address_seen == 0x5678 && last == SIGSEGV && count == 11);

	stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(sigaltstack(&stack, NULL) == 0);
	set(SIGUSR1, note, SA_ONSTACK, 0);
	raise(SIGUSR1);
	CHECK(stack_seen - (uintptr_t)stack.ss_sp < stack.ss_size);
	stack.ss_size = 100;
	FAILS(ENOMEM, sigaltstack(&stack, NULL));
	CHECK(sigaltstack(NULL, &stack) == 0 && stack.ss_flags == 0 && stack.ss_size == 65536);

	/* Out of a handler by a jump: blocked as before. */
	set(SIGFPE, jump, 0, 0);
	result = sigsetjmp(back, 1);
	if (!result) {
		volatile int zero = 0;

		result = 100 / zero;
	}
	CHECK(result == SIGFPE);
	sigprocmask(SIG_BLOCK, NULL, &before);
	CHECK(!sigismember(&before, SIGFPE));

	FAILS(EINVAL, sigaction(SIGKILL, &old, NULL));
	FAILS(EINVAL, sigaction(99, NULL, &old));
	FAILS(EINVAL, syscall(SYS_rt_sigprocmask, 77, &set_of, NULL, 8));
	FAILS(EINVAL, syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set_of, NULL, 4));
	FAILS(ESRCH, kill(0x3fffffff, 0));
	return finish();
}
