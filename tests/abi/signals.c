// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
// also: musl
/* Handlers, masks, alternate stacks, and calls that are interrupted or made again. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>

#include "check.h"
#include "children.h"
#include "moments.h"

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

/* Sends SIGCONT, which goes on in Linux, and sees whether it waits. */
static void go_on(int number)
{
	sigset_t pending;

	raise(SIGCONT);
	sigpending(&pending);
	last = sigismember(&pending, SIGCONT) ? number : 0;
}

/* Leaves the handler. */
static void jump(int number)
{
	siglongjmp(back, number);
}

/* Has SIGALRM come after some milliseconds. */
static void alarm_in(int milliseconds)
{
	struct itimerval timer = { .it_value = { 0, milliseconds * 1000 } };

	setitimer(ITIMER_REAL, &timer, NULL);
}

/* Has SIGALRM come again and again: the first may come before the wait begins. */
static void alarm_each(int milliseconds)
{
	struct itimerval timer = { { 0, milliseconds * 1000 }, { 0, milliseconds * 1000 } };

	setitimer(ITIMER_REAL, &timer, NULL);
}

BEFORE_EACH
{
	count = 0;
}

CASE(a_handler_runs_with_its_mask)
{
	struct sigaction old;
	sigset_t before;

	CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
	set(SIGUSR1, note, 0, SIGUSR2);
	CHECK(raise(SIGUSR1) == 0 && count == 1 && last == SIGUSR1);
	CHECK(sigismember(&mask_seen, SIGUSR1) && sigismember(&mask_seen, SIGUSR2));
	sigprocmask(SIG_BLOCK, NULL, &before);
	CHECK(!sigismember(&before, SIGUSR1));
	CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == note);
}

CASE(what_a_handler_blocks_waits_also_if_it_has_no_handler)
{
	set(SIGUSR1, go_on, 0, SIGCONT);
	CHECK(raise(SIGUSR1) == 0 && last == SIGUSR1);
	signal(SIGCONT, SIG_IGN);
	signal(SIGCONT, SIG_DFL);
	last = 0;
	CHECK(raise(SIGUSR1) == 0 && last == SIGUSR1);
}

CASE(with_sa_resethand_and_sa_nodefer_a_handler_runs_once)
{
	struct sigaction old;

	set(SIGUSR2, note, SA_RESETHAND | SA_NODEFER, 0);
	CHECK(kill(getpid(), SIGUSR2) == 0 && count == 1 && !sigismember(&mask_seen, SIGUSR2));
	CHECK(sigaction(SIGUSR2, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
}

CASE(registers_of_the_interrupted_code_survive)
{
	double value = 1.25, kept;

	set(SIGUSR1, note, 0, SIGUSR2);
	__asm__ volatile("movsd %1, %%xmm9\n\tmov $62, %%eax\n\tsyscall\n\tmovsd %%xmm9, %0"
			 : "=m"(kept) : "m"(value), "D"(getpid()), "S"(SIGUSR1) : "rax", "rcx", "r11", "xmm9", "memory");
	CHECK(count == 1 && kept == value);
}

CASE(a_blocked_signal_comes_once_when_unblocked)
{
	sigset_t set_of;

	set(SIGUSR1, note, 0, SIGUSR2);
	sigemptyset(&set_of);
	sigaddset(&set_of, SIGUSR1);
	CHECK(sigprocmask(SIG_BLOCK, &set_of, NULL) == 0);
	raise(SIGUSR1);
	raise(SIGUSR1);
	CHECK(count == 0);
	CHECK(sigprocmask(SIG_UNBLOCK, &set_of, NULL) == 0 && count == 1);
}

CASE(sigsuspend_waits_with_another_mask)
{
	sigset_t set_of, before;

	set(SIGUSR1, note, 0, SIGUSR2);
	sigemptyset(&set_of);
	sigaddset(&set_of, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set_of, NULL);
	raise(SIGUSR1);
	sigemptyset(&before);
	FAILS(EINTR, sigsuspend(&before));
	CHECK(count == 1);
	sigprocmask(SIG_BLOCK, NULL, &before);
	CHECK(sigismember(&before, SIGUSR1));
	sigprocmask(SIG_UNBLOCK, &set_of, NULL);
}

CASE(an_ignored_signal_is_gone)
{
	int ends[2];

	set(SIGUSR1, SIG_IGN, 0, 0);
	CHECK(raise(SIGUSR1) == 0 && count == 0);
	CHECK(signal(SIGPIPE, SIG_IGN) == SIG_DFL);
	CHECK(pipe(ends) == 0 && close(ends[0]) == 0);
	FAILS(EPIPE, write(ends[1], "x", 1));
	close(ends[1]);
}

CASE(a_handler_ends_a_read)
{
	int ends[2];
	char byte;

	set(SIGALRM, note, 0, 0);
	CHECK(pipe(ends) == 0);
	alarm_each(50);
	FAILS(EINTR, read(ends[0], &byte, 1));
	CHECK(count > 0 && last == SIGALRM);
}

/* The rest is all but the time that has passed. Linux adds the slack of its timers. */
CASE(a_handler_ends_a_sleep)
{
	struct timespec request, rest, begin, end;

	set(SIGALRM, note, 0, 0);
	alarm_each(50);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	request = (struct timespec){ 1000, 0 };
	FAILS(EINTR, nanosleep(&request, &rest));
	clock_gettime(CLOCK_MONOTONIC, &end);
	CHECK(count > 0 && nanoseconds(rest) <= nanoseconds(request) + 1000000);
	CHECK(nanoseconds(rest) + nanoseconds(end) - nanoseconds(begin) >= nanoseconds(request));
}

CASE(a_handler_ends_a_pause)
{
	set(SIGALRM, note, 0, 0);
	alarm_each(50);
	FAILS(EINTR, pause());
	CHECK(count > 0);
}

CASE(a_handler_interrupts_computing)
{
	set(SIGALRM, note, 0, 0);
	alarm_in(50);
	while (count == 0)
		;
	CHECK(count == 1);
}

CASE(with_sa_restart_a_read_goes_on)
{
	int ends[2];
	char byte;

	CHECK(pipe(ends) == 0);
	set(SIGALRM, note, SA_RESTART, 0);
	alarm_in(50);
	CHECK(write(ends[1], "ab", 2) == 2 && read(ends[0], &byte, 1) == 1);
	while (count == 0)
		;
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'b');
	CHECK(count == 1);
}

CASE(a_handler_of_a_fault_changes_registers)
{
	struct sigaction old;
	uint64_t rbx;

	old.sa_sigaction = fault;
	old.sa_flags = SA_SIGINFO;
	sigemptyset(&old.sa_mask);
	CHECK(sigaction(SIGSEGV, &old, NULL) == 0);
	__asm__ volatile("mov $0x5678, %%rax\n\tmov $1, %%rbx\n\t.byte 0x8a, 0x00\n\tmov %%rbx, %0"
			 : "=r"(rbx) :: "rax", "rbx", "memory");
	CHECK(rbx == 0x1234 && address_seen == 0x5678 && last == SIGSEGV && count == 1);
}

CASE(a_handler_runs_on_its_own_stack)
{
	stack_t stack = { .ss_size = 65536 };

	stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(sigaltstack(&stack, NULL) == 0);
	set(SIGUSR1, note, SA_ONSTACK, 0);
	raise(SIGUSR1);
	CHECK(stack_seen - (uintptr_t)stack.ss_sp < stack.ss_size);
	stack.ss_size = 100;
	FAILS(ENOMEM, sigaltstack(&stack, NULL));
	CHECK(sigaltstack(NULL, &stack) == 0 && stack.ss_flags == 0 && stack.ss_size == 65536);
}

/* Where a frame has no room, SIGSEGV comes instead, on the stack of its own handler. */
CASE(a_handler_without_a_stack_is_a_fault)
{
	stack_t stack = { .ss_size = 65536 };
	sigset_t now;

	stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(sigaltstack(&stack, NULL) == 0);
	set(SIGUSR1, note, SA_ONSTACK, SIGUSR2);
	set(SIGSEGV, note, 0, 0);
	raise(SIGUSR1);
	CHECK(count == 1 && last == SIGSEGV && sigismember(&mask_seen, SIGSEGV) == 1);
	CHECK(!sigismember(&mask_seen, SIGUSR1) && !sigismember(&mask_seen, SIGUSR2));
	sigprocmask(SIG_BLOCK, NULL, &now);
	CHECK(!sigismember(&now, SIGSEGV) && !sigismember(&now, SIGUSR1));
	/* The next one does as well, and the stack is the same. */
	kill(getpid(), SIGUSR1);
	CHECK(count == 2 && last == SIGSEGV);
	CHECK(mprotect(stack.ss_sp, stack.ss_size, PROT_READ | PROT_WRITE) == 0);
	raise(SIGUSR1);
	CHECK(count == 3 && last == SIGUSR1);
	CHECK(stack_seen - (uintptr_t)stack.ss_sp < stack.ss_size);
}

/* A process that has no handler for that, or no room for its frame either, ends. */
CASE(a_fault_without_a_stack_ends_the_process)
{
	for (int handled = 0; handled < 3; handled++) {
		pid_t child = fork();
		int status;

		PART("%d", handled);
		if (!child) {
			stack_t stack = { .ss_size = 65536 };
			sigset_t set_of_one;

			stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ,
					   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			sigaltstack(&stack, NULL);
			set(SIGUSR1, note, SA_ONSTACK, 0);
			if (handled)
				set(SIGSEGV, note, handled == 1 ? SA_ONSTACK : 0, 0);
			sigemptyset(&set_of_one);
			sigaddset(&set_of_one, SIGSEGV);
			if (handled == 2)
				sigprocmask(SIG_BLOCK, &set_of_one, NULL);
			raise(SIGUSR1);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	}
}

/* The mask is the one before the handler. */
CASE(a_handler_may_be_left_by_a_jump)
{
	sigset_t before;
	volatile int result;

	set(SIGFPE, jump, 0, 0);
	result = sigsetjmp(back, 1);
	if (!result) {
		volatile int zero = 0;

		result = 100 / zero;
	}
	CHECK(result == SIGFPE);
	sigprocmask(SIG_BLOCK, NULL, &before);
	CHECK(!sigismember(&before, SIGFPE));
}

/* Alarms come again and again, because the first may come before the call. */
static void alarms(int flags)
{
	set(SIGALRM, note, flags, 0);
	ualarm(30000, 30000);
}

/* A socket that waits for a time only. */
CASE(a_limited_wait_of_a_socket_is_not_made_again)
{
	const struct timeval limit = { 60, 0 };
	static char block[4096];
	struct iovec part = { block, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
	CHECK(setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0);
	while (send(pair[0], block, sizeof(block), MSG_DONTWAIT) > 0)
		;
	alarms(SA_RESTART);
	FAILS(EINTR, read(pair[0], block, 1));
	FAILS(EINTR, readv(pair[0], &part, 1));
	FAILS(EINTR, recv(pair[0], block, 1, 0));
	FAILS(EINTR, recvmsg(pair[0], &message, 0));
	FAILS(EINTR, write(pair[0], block, 1));
	FAILS(EINTR, send(pair[0], block, 1, 0));
	FAILS(EINTR, sendmsg(pair[0], &message, 0));
	ualarm(0, 0);
	close(pair[0]);
	close(pair[1]);
}

CASE(a_limit_of_one_direction_is_none_of_the_other_one)
{
	const struct timeval limit = { 60, 0 }, none = { 0, 0 };
	int pair[2];
	char byte;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	for (int turn = 0; turn < 2; turn++) {
		int option = turn ? SO_RCVTIMEO : SO_SNDTIMEO;

		CHECK(setsockopt(pair[0], SOL_SOCKET, option, turn ? &none : &limit,
				 sizeof(limit)) == 0);
		pid_t child = fork();

		if (child == 0) {
			usleep(200000);
			_exit(send(pair[1], "x", 1, 0) != 1);
		}
		count = 0;
		alarms(SA_RESTART);
		CHECK(recv(pair[0], &byte, 1, 0) == 1 && count > 0);
		ualarm(0, 0);
		CHECK(exits_with(child, 0));
	}
	close(pair[0]);
	close(pair[1]);
}

CASE(bad_calls_are_refused)
{
	struct sigaction old = { .sa_handler = SIG_DFL };
	sigset_t set_of;

	sigemptyset(&set_of);
	FAILS(EINVAL, sigaction(SIGKILL, &old, NULL));
	FAILS(EINVAL, sigaction(99, NULL, &old));
	FAILS(EINVAL, syscall(SYS_rt_sigprocmask, 77, &set_of, NULL, 8));
	FAILS(EINVAL, syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set_of, NULL, 4));
	FAILS(ESRCH, kill(0x3fffffff, 0));
}
