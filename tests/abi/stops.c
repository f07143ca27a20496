// SPDX-License-Identifier: MIT OR Apache-2.0
/* Signals that stop a process, and SIGCONT. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "children.h"
#include "moments.h"

static const int stops[] = { SIGTSTP, SIGTTIN, SIGTTOU, SIGSTOP };

static sigset_t set_of(int number)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, number);
	return set;
}

/* The last change of a child's state, or -1. */
static int change_of(pid_t child)
{
	int status;

	return waitpid(child, &status, WUNTRACED | WCONTINUED) == child ? status : -1;
}

/* Tells whether a child was stopped by a signal, and has it go on. */
static int stops_by(pid_t child, int number)
{
	int status = change_of(child);

	return WIFSTOPPED(status) && WSTOPSIG(status) == number && kill(child, SIGCONT) == 0 &&
	       WIFCONTINUED(change_of(child));
}

/* Starts a child in a process group of its own. */
static pid_t fork_apart(void)
{
	pid_t child = fork();

	setpgid(child, child);
	return child;
}

/* By a signal from another process. */
CASE(a_parent_hears_which_signal_has_stopped_its_child)
{
	pid_t child = fork_apart();

	if (child == 0)
		for (;;)
			pause();
	for (int i = 0; i < 4; i++) {
		PART("%d", stops[i]);
		CHECK(kill(child, stops[i]) == 0 && stops_by(child, stops[i]));
	}
	CHECK(kill(child, SIGTERM) == 0 && ends_by(child, SIGTERM));
}

/*
 * A pipe by which a child waits until its parent has seen it go on: a parent that comes late sees
 * the next stop alone.
 */
static int gate[2];

static void pass_gate(void)
{
	CHECK(read(gate[0], &(char){ 0 }, 1) == 1);
}

static void open_gate(void)
{
	CHECK(write(gate[1], "x", 1) == 1);
}

CASE(a_process_stops_itself)
{
	CHECK(pipe(gate) == 0);
	pid_t child = fork_apart();

	if (child == 0) {
		for (int i = 0; i < 4; i++) {
			pass_gate();
			raise(stops[i]);
		}
		pass_gate();
		_exit(3);
	}
	for (int i = 0; i < 4; i++) {
		PART("%d", stops[i]);
		open_gate();
		CHECK(stops_by(child, stops[i]));
	}
	open_gate();
	CHECK(exits_with(child, 3));
}

CASE(a_signal_that_was_blocked_stops)
{
	CHECK(pipe(gate) == 0);
	pid_t child = fork_apart();

	if (child == 0) {
		for (int i = 0; i < 3; i++) {
			sigset_t set = set_of(stops[i]);

			sigprocmask(SIG_BLOCK, &set, NULL);
			raise(stops[i]);
			pass_gate();
			sigprocmask(SIG_UNBLOCK, &set, NULL);
		}
		/* They are what they were. */
		for (int i = 0; i < 3; i++) {
			pass_gate();
			raise(stops[i]);
		}
		pass_gate();
		_exit(3);
	}
	for (int i = 0; i < 6; i++) {
		PART("%d", i);
		open_gate();
		CHECK(stops_by(child, stops[i % 3]));
	}
	open_gate();
	CHECK(exits_with(child, 3));
}

/* A terminal's signals would stop for good what no shell is there for. */
CASE(nothing_but_sigstop_stops_an_orphaned_group)
{
	pid_t child = fork();

	if (child == 0) {
		setsid();
		for (int i = 0; i < 3; i++) {
			sigset_t set = set_of(stops[i]);

			raise(stops[i]);
			sigprocmask(SIG_BLOCK, &set, NULL);
			raise(stops[i]);
			sigprocmask(SIG_UNBLOCK, &set, NULL);
		}
		raise(SIGSTOP);
		_exit(3);
	}
	CHECK(stops_by(child, SIGSTOP) && exits_with(child, 3));
}

static int is_pending(int number)
{
	sigset_t pending;

	sigpending(&pending);
	return sigismember(&pending, number);
}

/* What a signal of another process does may take a moment. */
static int is_pending_soon(int number, int wanted)
{
	long end = milliseconds() + 5000;

	while (is_pending(number) != wanted && milliseconds() < end)
		usleep(1000);
	return is_pending(number) == wanted;
}

static void ignore_nothing(int number)
{
	(void)number;
}

/*
 * The time of a stopped poll goes on: it is over when the process goes on. A signal that was
 * blocked once stops it.
 */
CASE(a_poll_does_not_begin_anew_after_a_stop)
{
	const sigset_t stop = set_of(SIGTSTP);
	int pair[2], ends[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pipe(ends) == 0);
	for (int way = 0; way < 2; way++) {
		PART("%s", way ? "pipe" : "socket");
		pid_t child = fork_apart();

		if (child == 0) {
			struct pollfd member = { way ? ends[0] : pair[0], POLLIN, 0 };
			struct timespec before, after;

			sigprocmask(SIG_BLOCK, &stop, NULL);
			sigprocmask(SIG_UNBLOCK, &stop, NULL);
			clock_gettime(CLOCK_MONOTONIC, &before);
			if (poll(&member, 1, 4000) != 0)
				_exit(1);
			clock_gettime(CLOCK_MONOTONIC, &after);
			_exit(after.tv_sec - before.tv_sec >= 7);
		}
		sleep(2);
		CHECK(kill(child, SIGTSTP) == 0 && WIFSTOPPED(change_of(child)));
		sleep(3);
		CHECK(kill(child, SIGCONT) == 0 && exits_with(child, 0));
	}
}

/* What is done on a signal: what it does by itself, nothing, or a handler that does nothing. */
static const sighandler_t ways[] = { SIG_DFL, SIG_IGN, ignore_nothing };

/* Waits until a child has sent a signal. */
static int hears(int number)
{
	sigset_t set = set_of(number);
	int got;

	return sigwait(&set, &got) == 0 && got == number;
}

/*
 * Starts a child in a process group of its own, which does `of_first` and `of_second` on two
 * signals. It blocks the first one and says that by SIGUSR1. When that one is pending it says so by
 * SIGUSR2, and ends with 0 once it is pending no more.
 */
static pid_t fork_blocking(int first, sighandler_t of_first, int second, sighandler_t of_second)
{
	sigset_t set = set_of(first);
	pid_t child = fork_apart();

	if (child != 0)
		return child;
	signal(first, of_first);
	signal(second, of_second);
	sigprocmask(SIG_BLOCK, &set, NULL);
	kill(getppid(), SIGUSR1);
	if (!is_pending_soon(first, 1))
		_exit(1);
	kill(getppid(), SIGUSR2);
	_exit(is_pending_soon(first, 0) ? 0 : 2);
}

/* Whatever is done on either, and whether a process or a group of them gets it. */
CASE(sigcont_discards_a_stop_that_is_blocked)
{
	for (int way = 0; way < 18; way++) {
		int whom = way / 9 ? -1 : 1;
		pid_t child;

		PART("%d", way);
		child = fork_blocking(SIGTSTP, ways[way % 3], SIGCONT, ways[way / 3 % 3]);
		CHECK(hears(SIGUSR1) && kill(whom * child, SIGTSTP) == 0);
		CHECK(hears(SIGUSR2) && kill(whom * child, SIGCONT) == 0);
		CHECK(exits_with(child, 0));
	}
}

CASE(a_stop_discards_a_sigcont_that_is_blocked)
{
	for (int way = 0; way < 12; way++) {
		int whom = way / 6 ? -1 : 1;
		pid_t child;

		PART("%d", way);
		child = fork_blocking(SIGCONT, ways[way % 3], SIGTTIN, ways[1 + way / 3 % 2]);
		CHECK(hears(SIGUSR1) && kill(whom * child, SIGCONT) == 0);
		CHECK(hears(SIGUSR2) && kill(whom * child, SIGTTIN) == 0);
		CHECK(exits_with(child, 0));
	}
}

/* The action is set after the other signal was blocked. */
CASE(a_sigcont_that_is_ignored_later_discards_a_stop)
{
	sigset_t set = set_of(SIGTSTP);
	pid_t child = fork_apart();

	if (child == 0) {
		sigprocmask(SIG_BLOCK, &set, NULL);
		raise(SIGTSTP);
		signal(SIGCONT, SIG_IGN);
		kill(getppid(), SIGUSR2);
		_exit(is_pending_soon(SIGTSTP, 0) ? 0 : 2);
	}
	CHECK(hears(SIGUSR2) && kill(child, SIGCONT) == 0 && exits_with(child, 0));
}

static void *raise_blocked(void *ready)
{
	sigset_t set = set_of(SIGTSTP);

	pthread_sigmask(SIG_BLOCK, &set, NULL);
	raise(SIGTSTP);
	pthread_barrier_wait(ready);
	return (void *)(long)is_pending_soon(SIGTSTP, 0);
}

CASE(a_sigcont_for_the_process_discards_what_waits_for_a_thread)
{
	sigset_t set = set_of(SIGTSTP);
	pid_t child = fork_apart();

	if (child == 0) {
		pthread_barrier_t ready;
		pthread_t thread;
		void *is_gone;

		sigprocmask(SIG_BLOCK, &set, NULL);
		pthread_barrier_init(&ready, NULL, 2);
		pthread_create(&thread, NULL, raise_blocked, &ready);
		pthread_barrier_wait(&ready);
		kill(getppid(), SIGUSR2);
		pthread_join(thread, &is_gone);
		_exit(is_gone ? 0 : 2);
	}
	CHECK(hears(SIGUSR2) && kill(child, SIGCONT) == 0 && exits_with(child, 0));
}

/* It may be handled by the time that it is unblocked. */
CASE(what_is_blocked_waits_although_it_is_ignored)
{
	for (int way = 0; way < 4; way++) {
		int whom = way / 2 ? -1 : 1;
		pid_t child;

		PART("%d", way);
		child = fork_apart();
		if (child == 0) {
			sigset_t set = set_of(SIGHUP);

			if (way & 1)
				signal(SIGHUP, SIG_IGN);
			sigprocmask(SIG_BLOCK, &set, NULL);
			signal(SIGHUP, SIG_IGN);
			kill(getppid(), SIGUSR1);
			if (!is_pending_soon(SIGHUP, 1))
				_exit(1);
			/* As it does nothing, it is gone. */
			sigprocmask(SIG_UNBLOCK, &set, NULL);
			sigprocmask(SIG_BLOCK, &set, NULL);
			_exit(is_pending(SIGHUP) ? 2 : 0);
		}
		CHECK(hears(SIGUSR1) && kill(whom * child, SIGHUP) == 0 && exits_with(child, 0));
	}
}

BEFORE_EACH
{
	sigset_t set = set_of(SIGUSR1);

	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
}
