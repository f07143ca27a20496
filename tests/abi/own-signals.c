// SPDX-License-Identifier: MIT OR Apache-2.0
/* What a thread sends to itself: taken before the call returns, in the order and with the rules of what others send. */
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

static volatile sig_atomic_t count, depth, deepest;
static char order[64];
static siginfo_t seen;
static pthread_t taker;

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
	memset(order, 0, sizeof(order));
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
	/* What is printed stays in order. */
	return (void *)(uintptr_t)(kill(getpid(), SIGUSR1) ? 0 : count);
}

static void end_without_stack(void)
{
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	__asm__ volatile("mov %%rsp, %%rbx\n\tmov $0x20000, %%rsp\n\tmov $62, %%eax\n\tsyscall\n\tmov %%rbx, %%rsp"
			 :: "D"(getpid()), "S"(SIGUSR1) : "rax", "rbx", "rcx", "r11", "memory");
	_exit(1);
}

int main(void)
{
	sigset_t usr1 = just(SIGUSR1), usr2 = just(SIGUSR2), pending, before;
	struct rlimit limit, none;
	pthread_t thread;
	stack_t stack = { .ss_size = 65536 };
	pid_t child;
	void *result;
	int status;

	/* Its number waits until the handler has returned, another one does not. */
	set(SIGUSR2, note, 0);
	set(SIGUSR1, nest, 0);
	start();
	CHECK(send(SIGUSR1) == 0);
	CHECK(!strcmp(order, "(2)()") && deepest == 1);
	/* With SA_NODEFER neither does. */
	set(SIGUSR1, nest, SA_NODEFER);
	start();
	CHECK(send(SIGUSR1) == 0);
	CHECK(!strcmp(order, "(((2)))") && deepest == 3);

	/* What waits is taken as well, and what is blocked waits. */
	set(SIGUSR1, note, 0);
	start();
	sigprocmask(SIG_BLOCK, &usr2, &before);
	CHECK(send(SIGUSR2) == 0 && send(SIGUSR2) == 0 && count == 0);
	CHECK(send(SIGUSR1) == 0 && !strcmp(order, "1"));
	CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2) == 1 && !sigismember(&pending, SIGUSR1));
	CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0 && !strcmp(order, "12"));
	CHECK(seen.si_code == SI_TKILL && seen.si_pid == getpid() && seen.si_uid == getuid());

	/* Once, then the default action, which is to end. */
	child = fork();
	if (!child) {
		set(SIGUSR1, note, SA_RESETHAND);
		CHECK(send(SIGUSR1) == 0 && count == 3);
		send(SIGUSR1);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
	/* No room for the frame. */
	child = fork();
	if (!child)
		end_without_stack();
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);

	/* On a stack that nobody has touched. */
	stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(sigaltstack(&stack, NULL) == 0);
	set(SIGUSR1, note, SA_ONSTACK);
	start();
	CHECK(send(SIGUSR1) == 0 && send(SIGUSR1) == 0 && !strcmp(order, "11"));

	/* To the process: its first thread takes it if it does not block it, else who sends it. */
	start();
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	CHECK(pthread_create(&thread, NULL, send_to_process, "mine") == 0);
	CHECK(pthread_join(thread, &result) == 0 && (uintptr_t)result == 1 && taker == thread);
	CHECK(seen.si_code == SI_USER && seen.si_pid == getpid());
	CHECK(pthread_create(&thread, NULL, send_to_process, NULL) == 0);
	CHECK(pthread_join(thread, &result) == 0 && (uintptr_t)result == 1);
	CHECK(sigprocmask(SIG_UNBLOCK, &usr1, NULL) == 0 && count == 2 && taker == pthread_self());

	/* With no entry left in the queue, what tgkill sends comes without what is known of it, and a real-time signal not at all. */
	CHECK(getrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	set(SIGRTMIN, note, 0);
	start();
	CHECK(setrlimit(RLIMIT_SIGPENDING, &none) == 0);
	FAILS(EAGAIN, send(SIGRTMIN));
	CHECK(send(SIGUSR1) == 0 && count == 1 && seen.si_code == SI_USER && seen.si_pid == 0);
	CHECK(kill(getpid(), SIGUSR1) == 0 && count == 2 && seen.si_code == SI_USER && seen.si_pid == getpid());
	CHECK(setrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	CHECK(send(SIGRTMIN) == 0 && send(SIGUSR1) == 0 && !strcmp(order, "11o1") && seen.si_code == SI_TKILL);

	/* Those that stop take what continues away. */
	set(SIGTSTP, note, 0);
	set(SIGCONT, note, 0);
	start();
	usr2 = just(SIGCONT);
	sigprocmask(SIG_BLOCK, &usr2, NULL);
	CHECK(send(SIGCONT) == 0 && send(SIGTSTP) == 0 && !strcmp(order, "o"));
	CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGCONT));
	return finish();
}
