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

/* Whether SIGCONT is left alone or handled, and the other one as well. */
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

CASE(sigcont_discards_a_stop_that_is_blocked)
{
	for (int way = 0; way < 4; way++) {
		pid_t child;

		PART("%d", way);
		child = fork();
		if (child == 0) {
			sigset_t set = set_of(SIGTSTP);

			if (way & 1)
				signal(SIGCONT, ignore_nothing);
			if (way & 2)
				signal(SIGTSTP, ignore_nothing);
			sigprocmask(SIG_BLOCK, &set, NULL);
			kill(getppid(), SIGUSR1);
			if (!is_pending_soon(SIGTSTP, 1))
				_exit(1);
			kill(getppid(), SIGUSR2);
			_exit(is_pending_soon(SIGTSTP, 0) ? 0 : 2);
		}
		sigset_t ready = set_of(SIGUSR1), blocked = set_of(SIGUSR2);
		int number;

		CHECK(sigwait(&ready, &number) == 0 && kill(child, SIGTSTP) == 0);
		CHECK(sigwait(&blocked, &number) == 0 && kill(child, SIGCONT) == 0);
		CHECK(exits_with(child, 0));
	}
}

BEFORE_EACH
{
	sigset_t set = set_of(SIGUSR1);

	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
}
