// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Signals and threads: to one thread or to the process, which thread takes them, masks, waiting and
 * timers.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "one-cpu.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define THREADS 4

static atomic_int count, taker, ready, stop;
static pthread_t threads[THREADS];
static atomic_int tids[THREADS];

static int own_tid(void)
{
	return (int)syscall(SYS_gettid);
}

static void note(int number)
{
	(void)number;
	taker = own_tid();
	count++;
}

static void wait_for(atomic_int *what, int value)
{
	while (*what < value)
		usleep(1000);
}

/* Computes or sleeps with the mask that it was started with, until told to stop. */
static void *run(void *argument)
{
	long index = (long)argument;

	tids[index] = own_tid();
	ready++;
	while (!stop) {
		if (index % 2)
			usleep(1000000);
	}
	return NULL;
}

static void *wait_here(void *argument)
{
	sigset_t *set = argument;
	siginfo_t info;

	tids[0] = own_tid();
	ready++;
	if (sigwaitinfo(set, &info) != SIGUSR2)
		return (void *)1;
	ready++;
	if (sigwaitinfo(set, &info) != SIGRTMIN || info.si_value.sival_int != 5)
		return (void *)2;
	return NULL;
}

static void *read_here(void *argument)
{
	int *ends = argument;
	char byte;

	tids[0] = own_tid();
	ready++;
	errno = 0;
	if (read(ends[0], &byte, 1) != -1 || errno != EINTR)
		return (void *)1;
	return NULL;
}

static void start(int index, void *(*body)(void *), void *argument)
{
	int before = ready;

	CHECK(pthread_create(&threads[index], NULL, body, argument) == 0);
	wait_for(&ready, before + 1);
	usleep(20000);
}

BEFORE_EACH
{
	struct sigaction action = { .sa_handler = note };

	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	count = taker = ready = stop = 0;
}

static void start_all(void)
{
	for (long i = 0; i < THREADS; i++)
		start(i, run, (void *)i);
}

static void stop_all(void)
{
	stop = 1;
	for (long i = 0; i < THREADS; i++) {
		if (i % 2)
			pthread_kill(threads[i], SIGUSR2);
		CHECK(pthread_join(threads[i], NULL) == 0);
	}
}

/* It computes or it sleeps. */
CASE(a_thread_takes_what_is_sent_to_it)
{
	long i;

	start_all();
	for (i = 0; i < THREADS; i++) {
		CHECK(pthread_kill(threads[i], SIGUSR1) == 0);
		wait_for(&count, i + 1);
		CHECK(taker == tids[i]);
	}
	stop_all();
}

CASE(a_thread_of_another_process_is_unknown)
{
	start_all();
	FAILS(ESRCH, syscall(SYS_tgkill, getppid(), tids[0], SIGUSR1));
	stop_all();
}

CASE(a_timer_of_a_thread_tells_that_thread)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
	struct itimerspec spec = { .it_value = { 0, 10000000 } };
	timer_t timer;

	start_all();
	event.sigev_notify_thread_id = tids[2];
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 &&
	      timer_settime(timer, 0, &spec, NULL) == 0);
	wait_for(&count, 1);
	CHECK(taker == tids[2]);
	timer_delete(timer);
	stop_all();
}

/* If the first thread blocks it, another one takes it. */
CASE(the_first_thread_takes_what_is_sent_to_the_process)
{
	sigset_t set, old;

	start_all();
	CHECK(kill(getpid(), SIGUSR1) == 0);
	wait_for(&count, 1);
	CHECK(taker == getpid());
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	wait_for(&count, 2);
	CHECK(taker != getpid());
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	stop_all();
}

/* Not SIGUSR2. */
static void *run_beside(void *argument)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return run(argument);
}

/* A process is named by the id of any of its threads. */
CASE(the_thread_that_names_a_process_takes_what_is_sent_to_it)
{
	start(0, run, (void *)0);
	start(1, run_beside, (void *)1);
	for (int i = 0; i < 2; i++) {
		CHECK(kill(tids[i], SIGUSR1) == 0);
		wait_for(&count, i + 1);
		CHECK(taker == tids[i]);
	}
	/* Unless it blocks that. */
	CHECK(kill(tids[1], SIGUSR2) == 0);
	wait_for(&count, 3);
	CHECK(taker != tids[1]);
	stop = 1;
	CHECK(pthread_kill(threads[1], SIGUSR1) == 0);
	CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
}

CASE(a_signal_stays_with_a_thread_that_blocks_it)
{
	sigset_t set, old, pending;

	start_all();
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
	usleep(20000);
	CHECK(count == 0 && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	CHECK(count == 1 && taker == getpid());
	stop_all();
}

CASE(a_thread_waits_while_all_block)
{
	sigset_t set, old;
	union sigval value;
	void *result;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGRTMIN);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	start(0, wait_here, &set);
	CHECK(kill(getpid(), SIGUSR2) == 0);
	wait_for(&ready, 2);
	value.sival_int = 5;
	CHECK(pthread_sigqueue(threads[0], SIGRTMIN, value) == 0);
	CHECK(pthread_join(threads[0], &result) == 0 && result == NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/*
 * The other threads go on. The signal comes again and again, because the first may come before the
 * call begins.
 */
CASE(a_signal_ends_the_call_of_one_thread)
{
	int ends[2];
	void *result;

	CHECK(pipe(ends) == 0);
	start(0, read_here, ends);
	CHECK(pthread_kill(threads[0], SIGUSR1) == 0);
	while (pthread_tryjoin_np(threads[0], &result) != 0) {
		usleep(20000);
		pthread_kill(threads[0], SIGUSR1);
	}
	CHECK(result == NULL && count > 0 && taker != getpid());
}

/* A stopped process goes on when it is told to. */
CASE(the_default_action_ends_or_stops_all_threads)
{
	int status;
	pid_t child;
	long i;

	child = fork();
	if (child == 0) {
		stop = 0;
		for (i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, run, (void *)i);
		pause();
		_exit(0);
	}
	usleep(100000);
	CHECK(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	CHECK(kill(child, SIGCONT) == 0 && waitpid(child, &status, WCONTINUED) == child &&
	      WIFCONTINUED(status));
	CHECK(kill(child, SIGTERM) == 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

/* The signals that a thread of the next case is to wait for, and those that it got. */
static sigset_t waited_for;
static atomic_int taken[2];

static void *take_one(void *argument)
{
	siginfo_t info;

	ready++;
	taken[(long)argument] = sigwaitinfo(&waited_for, &info);
	return NULL;
}

/* The calling thread is not interrupted by the others on its CPU, or is again. */
static void become_urgent(int urgent)
{
	struct sched_param parameters = { .sched_priority = urgent ? 50 : 0 };

	CHECK(sched_setscheduler(0, urgent ? SCHED_FIFO : SCHED_OTHER, &parameters) == 0);
}

static void wait_a_while_for(atomic_int *what, int value)
{
	for (int i = 0; i < 5000 && *what < value; i++)
		usleep(1000);
	CHECK(*what >= value);
}

/* Both signals come before the first thread runs. It takes one of them, and waits no more. */
CASE(what_a_waiting_thread_leaves_another_one_takes)
{
	sigset_t old;

	sigemptyset(&waited_for);
	sigaddset(&waited_for, SIGUSR1);
	sigaddset(&waited_for, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &waited_for, &old);
	CHECK(share_a_cpu() == 0);
	for (int round = 0; round < 10; round++) {
		taken[0] = taken[1] = 0;
		start(0, take_one, (void *)0);
		start(1, take_one, (void *)1);
		become_urgent(1);
		CHECK(kill(getpid(), SIGUSR1) == 0 && kill(getpid(), SIGUSR2) == 0);
		become_urgent(0);
		wait_a_while_for(&taken[0], 1);
		wait_a_while_for(&taken[1], 1);
		CHECK(taken[0] + taken[1] == SIGUSR1 + SIGUSR2);
		pthread_join(threads[0], NULL);
		pthread_join(threads[1], NULL);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static int polled[2];

/* Makes the pipe ready, and sends the signal that only the poll lets in. */
static void *end_poll(void *argument)
{
	(void)argument;
	pthread_sigmask(SIG_BLOCK, &waited_for, NULL);
	become_urgent(1);
	usleep(50000);
	write(polled[1], "x", 1);
	kill(getpid(), SIGUSR1);
	return NULL;
}

/*
 * The first thread is to take the signal while it polls, and blocks it again because the poll is
 * over.
 */
CASE(what_a_poll_lets_in_and_leaves_another_thread_takes)
{
	struct pollfd entry;
	sigset_t none, old;
	pthread_t sender;

	sigemptyset(&none);
	sigemptyset(&waited_for);
	sigaddset(&waited_for, SIGUSR1);
	CHECK(pipe(polled) == 0);
	entry = (struct pollfd){ polled[0], POLLIN, 0 };
	CHECK(share_a_cpu() == 0);
	start(1, run, (void *)1);
	pthread_sigmask(SIG_BLOCK, &waited_for, &old);
	CHECK(pthread_create(&sender, NULL, end_poll, NULL) == 0);
	CHECK(ppoll(&entry, 1, NULL, &none) == 1);
	wait_a_while_for(&count, 1);
	CHECK(count == 1 && taker == tids[1]);
	pthread_join(sender, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	stop = 1;
	pthread_kill(threads[1], SIGUSR2);
	pthread_join(threads[1], NULL);
}

/* Another thread may have come in the place of the one that has ended. */
CASE(a_timer_of_a_thread_that_has_ended_tells_nobody)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
	struct itimerspec spec = { .it_value = { 0, 10000000 } };
	timer_t timer;

	start(0, run, (void *)0);
	event.sigev_notify_thread_id = tids[0];
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	stop = 1;
	pthread_join(threads[0], NULL);
	while (syscall(SYS_tgkill, getpid(), tids[0], 0) == 0)
		usleep(1000);
	usleep(50000);
	stop = 0;
	start_all();
	CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
	usleep(100000);
	CHECK(count == 0);
	timer_delete(timer);
	stop_all();
}

static pthread_barrier_t both;

static void set_action(void (*handler)(int))
{
	struct sigaction action = { .sa_handler = handler };

	pthread_barrier_wait(&both);
	sigaction(SIGUSR1, &action, NULL);
	pthread_barrier_wait(&both);
}

static void *set_handler(void *rounds)
{
	for (long i = 0; i < (long)rounds; i++)
		set_action(note);
	return NULL;
}

/* Sets one action after the other until told to stop. */
static void *change_actions(void *unused)
{
	struct sigaction action = { .sa_handler = note };

	(void)unused;
	while (!stop) {
		action.sa_handler = action.sa_handler == note ? SIG_IGN : note;
		sigaction(SIGUSR1, &action, NULL);
	}
	return NULL;
}

/* The signal is sent by way of a group of processes. */
CASE(a_child_handles_what_it_wants_whatever_its_parent_changes_meanwhile)
{
	int status, right = 1;

	CHECK(pthread_create(&threads[0], NULL, change_actions, NULL) == 0);
	for (int i = 0; i < 30 && right; i++) {
		pid_t child = fork();

		if (child == 0) {
			struct sigaction action = { .sa_handler = note };

			count = 0;
			setpgid(0, 0);
			sigaction(SIGUSR1, &action, NULL);
			kill(0, SIGUSR1);
			wait_a_while_for(&count, 1);
			_exit(0);
		}
		right &= waitpid(child, &status, 0) == child && status == 0;
	}
	stop = 1;
	pthread_join(threads[0], NULL);
	CHECK(right);
}

/* The signal is sent by way of a group of processes. */
CASE(an_action_that_two_threads_set_at_once_is_that_of_one)
{
	const long rounds = 300;
	pid_t child = fork();
	int status;

	if (child == 0) {
		struct sigaction action;

		setpgid(0, 0);
		pthread_barrier_init(&both, NULL, 2);
		pthread_create(&threads[0], NULL, set_handler, (void *)rounds);
		for (int i = 0; i < rounds; i++) {
			set_action(SIG_IGN);
			CHECK(sigaction(SIGUSR1, NULL, &action) == 0);
			if (action.sa_handler == SIG_IGN)
				continue;
			count = 0;
			CHECK(kill(0, SIGUSR1) == 0);
			wait_a_while_for(&count, 1);
		}
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* The first thread, which does not block the signal, has ended. */
static void *find_nothing_pending(void *first)
{
	sigset_t pending;

	pthread_join(*(pthread_t *)first, NULL);
	usleep(50000);
	kill(getpid(), SIGWINCH);
	sigpending(&pending);
	_exit(sigismember(&pending, SIGWINCH) ? 1 : 0);
}

CASE(what_is_ignored_is_dropped_after_the_end_of_the_first_thread)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		static pthread_t first;
		sigset_t set;

		first = pthread_self();
		sigemptyset(&set);
		sigaddset(&set, SIGWINCH);
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		pthread_create(&threads[0], NULL, find_nothing_pending, &first);
		pthread_sigmask(SIG_UNBLOCK, &set, NULL);
		pthread_exit(NULL);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}
