// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Signals that a thread sends to itself: it takes them before the call returns, by the rules of
 * those that others send.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "check.h"
#include "children.h"

static volatile sig_atomic_t count, depth, deepest;
/* What handlers saw. Volatile, because the compiler does not expect that a call runs one. */
static volatile char order[64];
static volatile siginfo_t seen;
static volatile pthread_t taker;

/* Tells whether the handlers have noted this. */
static int noted(const char *text)
{
	size_t i = 0;

	while (text[i] && text[i] == order[i])
		i++;
	return text[i] == order[i];
}

/* Sends a signal to this thread. */
static int send(int number)
{
	return syscall(SYS_tgkill, getpid(), gettid(), number);
}

static void note(int number, siginfo_t *info, void *context)
{
	(void)context;
	seen = *info;
	taker = pthread_self();
	order[count++ % 64] = number == SIGUSR1 ? '1' : number == SIGUSR2 ? '2' : 'o';
}

/* Sends its own number and another one while it runs. */
static void nest(int number, siginfo_t *info, void *context)
{
	(void)info;
	(void)context;
	if (++depth > deepest)
		deepest = depth;
	order[count++ % 64] = '(';
	if (count < 3)
		CHECK(send(number) == 0);
	if (count < 4)
		CHECK(send(SIGUSR2) == 0);
	order[count++ % 64] = ')';
	depth--;
}

static void set(int number, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };

	CHECK(sigaction(number, &action, NULL) == 0);
}

static void start(void)
{
	for (size_t i = 0; i < sizeof(order); i++)
		order[i] = 0;
	count = depth = deepest = 0;
}

static sigset_t just(int number)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, number);
	return set;
}

static void *send_to_process(void *mine)
{
	sigset_t usr1 = just(SIGUSR1);

	if (mine)
		pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
	return (void *)(uintptr_t)(kill(getpid(), SIGUSR1) ? 0 : count);
}

/* Ends by a signal for whose frame there is no room. */
static void end_without_stack(void)
{
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	__asm__ volatile("mov %%rsp, %%rbx\n\tmov $0x20000, %%rsp\n\tmov $62, %%eax\n\tsyscall\n\tmov %%rbx, %%rsp"
			 :: "D"(getpid()), "S"(SIGUSR1) : "rax", "rbx", "rcx", "r11", "memory");
	_exit(1);
}

BEFORE_EACH
{
	set(SIGUSR1, note, 0);
	set(SIGUSR2, note, 0);
	start();
}

/* Another number does not. */
CASE(a_number_waits_until_its_handler_has_returned)
{
	set(SIGUSR1, nest, 0);
	CHECK(send(SIGUSR1) == 0);
	CHECK(noted("(2)()") && deepest == 1);
}

CASE(with_sa_nodefer_a_number_does_not_wait)
{
	set(SIGUSR1, nest, SA_NODEFER);
	CHECK(send(SIGUSR1) == 0);
	CHECK(noted("(((2)))") && deepest == 3);
}

CASE(what_was_blocked_is_taken_once_when_unblocked)
{
	sigset_t usr2 = just(SIGUSR2), pending, before;

	sigprocmask(SIG_BLOCK, &usr2, &before);
	CHECK(send(SIGUSR2) == 0 && send(SIGUSR2) == 0 && count == 0);
	CHECK(send(SIGUSR1) == 0 && noted("1"));
	CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2) == 1 &&
	      !sigismember(&pending, SIGUSR1));
	CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0 && noted("12"));
	CHECK(seen.si_code == SI_TKILL && seen.si_pid == getpid() && seen.si_uid == getuid());
}

CASE(with_sa_resethand_the_second_ends_the_process)
{
	pid_t child;

	child = fork();
	if (!child) {
		set(SIGUSR1, note, SA_RESETHAND);
		CHECK(send(SIGUSR1) == 0 && count == 1);
		send(SIGUSR1);
		_exit(0);
	}
	CHECK(ends_by(child, SIGUSR1));
}

CASE(without_room_for_the_frame_the_process_ends)
{
	pid_t child;

	child = fork();
	if (!child)
		end_without_stack();
	CHECK(ends_by(child, SIGSEGV));
}

CASE(a_handler_runs_on_an_untouched_stack)
{
	stack_t stack = { .ss_size = 65536 };

	stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(sigaltstack(&stack, NULL) == 0);
	set(SIGUSR1, note, SA_ONSTACK);
	CHECK(send(SIGUSR1) == 0 && send(SIGUSR1) == 0 && noted("11"));
}

/* The first thread takes it. If that one blocks it, the thread that sends it takes it. */
CASE(a_signal_to_the_process_is_for_who_does_not_block_it)
{
	sigset_t usr1 = just(SIGUSR1);
	pthread_t thread;
	void *result;

	sigprocmask(SIG_BLOCK, &usr1, NULL);
	CHECK(pthread_create(&thread, NULL, send_to_process, "mine") == 0);
	CHECK(pthread_join(thread, &result) == 0 && (uintptr_t)result == 1 && taker == thread);
	CHECK(seen.si_code == SI_USER && seen.si_pid == getpid());
	CHECK(pthread_create(&thread, NULL, send_to_process, NULL) == 0);
	CHECK(pthread_join(thread, &result) == 0 && (uintptr_t)result == 1);
	CHECK(sigprocmask(SIG_UNBLOCK, &usr1, NULL) == 0 && count == 2 && taker == pthread_self());
}

/* A signal of tgkill comes without its sender, a real-time signal does not come. */
CASE(without_room_in_the_queue_signals_come_bare)
{
	struct rlimit limit, none;

	CHECK(getrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	set(SIGRTMIN, note, 0);
	CHECK(setrlimit(RLIMIT_SIGPENDING, &none) == 0);
	FAILS(EAGAIN, send(SIGRTMIN));
	CHECK(send(SIGUSR1) == 0 && count == 1 && seen.si_code == SI_USER && seen.si_pid == 0);
	CHECK(kill(getpid(), SIGUSR1) == 0 && count == 2 && seen.si_code == SI_USER &&
	      seen.si_pid == getpid());
	CHECK(setrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	CHECK(send(SIGRTMIN) == 0 && send(SIGUSR1) == 0 && noted("11o1") && seen.si_code == SI_TKILL);
}

CASE(a_stop_signal_takes_the_continue_signal_away)
{
	sigset_t usr2 = just(SIGUSR2), pending;

	set(SIGTSTP, note, 0);
	set(SIGCONT, note, 0);
	usr2 = just(SIGCONT);
	sigprocmask(SIG_BLOCK, &usr2, NULL);
	CHECK(send(SIGCONT) == 0 && send(SIGTSTP) == 0 && noted("o"));
	CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGCONT));
}
