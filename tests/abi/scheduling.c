// SPDX-License-Identifier: MIT OR Apache-2.0
/* Policies, priorities, deadlines and affinity. Run as root. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "one-cpu.h"

#ifndef SCHED_DEADLINE
#define SCHED_DEADLINE 6
#endif
#define MS 1000000ull

/* struct sched_attr, which some headers have and some do not. */
struct attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
	uint32_t util_min, util_max;
	uint64_t beyond[2];
};

static int set(pid_t tid, struct attr *attr)
{
	return syscall(SYS_sched_setattr, tid, attr, 0);
}

static int get(pid_t tid, struct attr *attr, unsigned int size)
{
	return syscall(SYS_sched_getattr, tid, attr, size, 0);
}

CASE(a_thread_gets_the_attributes_that_it_sets)
{
	struct attr attr = { .size = 48, .policy = SCHED_FIFO, .priority = 11 }, found = { 0 };

	CHECK(set(0, &attr) == 0 && sched_getscheduler(0) == SCHED_FIFO);
	CHECK(get(0, &found, 48) == 0 && found.size == 48 && found.policy == SCHED_FIFO &&
	      found.priority == 11 && found.nice == 0 && found.flags == 0);
	CHECK(get(0, &found, sizeof(found)) == 0 && found.size == 56);
}

CASE(bad_questions_for_attributes_are_refused)
{
	struct attr attr = { .size = 48, .policy = SCHED_FIFO, .priority = 11 }, found = { 0 };

	CHECK(set(0, &attr) == 0);
	FAILS(EINVAL, get(0, &found, 47));
	FAILS(EINVAL, get(0, &found, 4097));
	FAILS(EINVAL, get(0, NULL, 48));
	FAILS(EINVAL, get(-1, &found, 48));
	FAILS(ESRCH, get(0x3fffffff, &found, 48));
	FAILS(EFAULT, get(0, (void *)8, 48));
	FAILS(EINVAL, syscall(SYS_sched_getattr, 0, &found, 48, 1));
}

CASE(attributes_have_a_size)
{
	struct attr attr = { .size = 48, .policy = SCHED_FIFO, .priority = 11 };

	attr.size = 0;
	CHECK(set(0, &attr) == 0);
	attr.size = 47;
	FAILS(E2BIG, set(0, &attr));
	CHECK(attr.size == 56);
	attr.size = sizeof(attr);
	CHECK(set(0, &attr) == 0);
	attr.beyond[1] = 1;
	FAILS(E2BIG, set(0, &attr));
}

CASE(bad_policies_and_flags_are_refused)
{
	struct attr attr = { .size = 48, .policy = SCHED_FIFO, .priority = 11 };

	attr.size = 56;
	attr.policy = -1;
	FAILS(EINVAL, set(0, &attr));
	attr.policy = 77;
	FAILS(EINVAL, set(0, &attr));
	attr.policy = SCHED_FIFO;
	attr.flags = 0x80;
	FAILS(EINVAL, set(0, &attr));
	attr.flags = 0x20;
	FAILS(EOPNOTSUPP, set(0, &attr));
}

CASE(a_policy_can_be_kept)
{
	struct attr attr = { .size = 48, .policy = SCHED_FIFO, .priority = 11 }, found = { 0 };

	CHECK(set(0, &attr) == 0);
	attr.flags = 8; /* KEEP_POLICY */
	attr.policy = SCHED_OTHER;
	attr.priority = 12;
	CHECK(set(0, &attr) == 0 && get(0, &found, 56) == 0 && found.policy == SCHED_FIFO &&
	      found.priority == 12);
}

CASE(an_ordinary_thread_has_a_nice_value)
{
	struct attr attr = { .size = 48, .policy = SCHED_FIFO, .priority = 11 }, found = { 0 };

	attr.policy = SCHED_OTHER;
	attr.flags = 1; /* RESET_ON_FORK */
	attr.priority = 0;
	attr.nice = 3;
	CHECK(set(0, &attr) == 0 && get(0, &found, 56) == 0 && found.flags == 1 && found.nice == 3);
	CHECK(sched_getscheduler(0) == (SCHED_OTHER | SCHED_RESET_ON_FORK) &&
	      getpriority(PRIO_PROCESS, 0) == 3);
	attr.flags = 0x10; /* KEEP_PARAMS */
	attr.nice = 7;
	CHECK(set(0, &attr) == 0 && get(0, &found, 56) == 0 && found.flags == 0 && found.nice == 3);
	attr.flags = 0;
	attr.nice = 0;
	CHECK(set(0, &attr) == 0 && get(0, &found, 56) == 0 && found.nice == 0);
	CHECK(setpriority(PRIO_PROCESS, 0, 0) == 0);
}

CASE(bad_attributes_are_refused)
{
	struct attr attr = { .size = 48, .policy = SCHED_FIFO, .priority = 11 };

	FAILS(EINVAL, syscall(SYS_sched_setattr, 0, &attr, 1));
	FAILS(EINVAL, set(0, NULL));
	FAILS(EFAULT, set(0, (void *)8));
	FAILS(ESRCH, set(0x3fffffff, &attr));
}

static double seconds(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static volatile sig_atomic_t overruns;

static void overrun(int signal)
{
	(void)signal;
	overruns++;
}

static const struct attr ordinary = { .size = 48, .policy = SCHED_OTHER };

/* 2 ms in each 10 ms. */
static struct attr a_fifth(void)
{
	return (struct attr){
		.size = 48, .policy = SCHED_DEADLINE, .runtime = 2 * MS, .deadline = 10 * MS
	};
}

CASE(bad_deadlines_are_refused)
{
	struct attr attr = a_fifth();

	attr.period = 5 * MS;
	FAILS(EINVAL, set(0, &attr));
	attr.period = 0;
	attr.runtime = 1000;
	FAILS(EINVAL, set(0, &attr));
	attr.runtime = 11 * MS;
	FAILS(EINVAL, set(0, &attr));
	attr.runtime = 2 * MS;
	attr.priority = 1;
	FAILS(EINVAL, set(0, &attr));
	attr.priority = 0;
	attr.deadline = 99999;
	attr.runtime = 50000;
	FAILS(EINVAL, set(0, &attr));
}

CASE(a_deadline_is_kept_and_forbids_fork)
{
	struct attr attr = a_fifth(), found = { 0 }, other = ordinary;

	CHECK(set(0, &attr) == 0);
	CHECK(get(0, &found, 48) == 0 && found.policy == SCHED_DEADLINE &&
	      found.runtime == 2 * MS && found.deadline == 10 * MS && found.period == 10 * MS &&
	      found.flags == 0);
	CHECK(sched_getscheduler(0) == SCHED_DEADLINE);
	errno = 0;
	CHECK(fork() == -1 && errno == EAGAIN);
	CHECK(set(0, &other) == 0);
}

/* Of a process that has a reservation and executes chrt. */
static void tell_after_execve(char *text, size_t length)
{
	struct attr attr = a_fifth();
	int fds[2], status;
	ssize_t count = 0, more;
	pid_t child;

	CHECK(pipe(fds) == 0 && (child = fork()) >= 0);
	if (child == 0) {
		/* Nearly a whole CPU: there is not as much left for two. */
		attr.runtime = 9 * MS;
		dup2(fds[1], 1);
		if (set(0, &attr) == 0)
			execlp("chrt", "chrt", "-p", "0", NULL);
		_exit(1);
	}
	close(fds[1]);
	while (count < (ssize_t)length - 1 &&
	       (more = read(fds[0], text + count, length - 1 - count)) > 0)
		count += more;
	text[count] = 0;
	close(fds[0]);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	/* Linux counts the reservation until its period has passed. */
	usleep(20000);
}

CASE(a_program_that_is_executed_keeps_the_deadline)
{
	char text[400];

	/* Each gives back what it had reserved. */
	for (int i = 0; i < 5; i++) {
		PART("process %d", i);
		tell_after_execve(text, sizeof(text));
		CHECK(strstr(text, "SCHED_DEADLINE"));
		CHECK(strstr(text, "9000000/10000000/10000000"));
	}
}

CASE(a_deadline_thread_gets_its_share_and_no_more)
{
	struct attr attr = a_fifth(), other = ordinary;
	double start;
	long rounds;

	CHECK(set(0, &attr) == 0);
	double used = seconds(CLOCK_THREAD_CPUTIME_ID);
	start = seconds(CLOCK_MONOTONIC);
	for (rounds = 0; seconds(CLOCK_THREAD_CPUTIME_ID) - used < 0.1 && rounds < 100000000;
	     rounds++)
		;
	CHECK(seconds(CLOCK_MONOTONIC) - start > 0.2);
	CHECK(set(0, &other) == 0);
}

/* Neither the same one nor another one. */
CASE(a_reservation_that_is_changed_gives_no_time_anew)
{
	struct attr attr = a_fifth(), other = ordinary;
	double start;
	long rounds;

	attr.runtime = 20 * MS;
	attr.deadline = 400 * MS;
	CHECK(set(0, &attr) == 0);
	double used = seconds(CLOCK_THREAD_CPUTIME_ID), next = used;

	start = seconds(CLOCK_MONOTONIC);
	for (rounds = 0; seconds(CLOCK_THREAD_CPUTIME_ID) - used < 0.1 && rounds < 100000000;
	     rounds++) {
		if (seconds(CLOCK_THREAD_CPUTIME_ID) < next)
			continue;
		next = seconds(CLOCK_THREAD_CPUTIME_ID) + 0.005;
		attr.runtime = 41 * MS - attr.runtime;
		CHECK(set(0, &attr) == 0);
	}
	CHECK(seconds(CLOCK_MONOTONIC) - start > 0.5);
	CHECK(set(0, &other) == 0);
}

CASE(yielding_gives_up_the_rest_of_the_period)
{
	struct attr attr = a_fifth(), other = ordinary;
	double start;
	long rounds;

	CHECK(set(0, &attr) == 0);
	start = seconds(CLOCK_MONOTONIC);
	for (rounds = 0; rounds < 10; rounds++)
		sched_yield();
	CHECK(seconds(CLOCK_MONOTONIC) - start > 0.07);
	CHECK(set(0, &other) == 0);
}

CASE(an_overrun_raises_sigxcpu)
{
	struct attr attr = a_fifth(), found = { 0 }, other = ordinary;
	double start;

	attr.flags = 1 | 2 | 4; /* RESET_ON_FORK, RECLAIM, DL_OVERRUN */
	signal(SIGXCPU, overrun);
	CHECK(set(0, &attr) == 0 && get(0, &found, 48) == 0 && found.flags == 7);
	start = seconds(CLOCK_MONOTONIC);
	while (!overruns && seconds(CLOCK_MONOTONIC) - start < 60)
		;
	CHECK(overruns > 0);
	CHECK(set(0, &other) == 0);
}

/* A deadline thread may fork with RESET_ON_FORK alone. */
CASE(a_child_of_a_deadline_thread_is_ordinary)
{
	struct attr attr = a_fifth(), other = ordinary;
	int status;

	attr.flags = 1 | 2 | 4; /* RESET_ON_FORK, RECLAIM, DL_OVERRUN */
	signal(SIGXCPU, overrun);
	CHECK(set(0, &attr) == 0);
	pid_t child = fork();
	if (child == 0)
		_exit(sched_getscheduler(0) != SCHED_OTHER);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(set(0, &other) == 0);
}

CASE(a_deadline_thread_may_run_on_all_cpus)
{
	struct attr attr = a_fifth(), other = ordinary;

	cpu_set_t all;
	int right = 1;

	attr.flags = 1 | 2 | 4;
	signal(SIGXCPU, overrun);
	CHECK(set(0, &attr) == 0);
	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
	if (CPU_COUNT(&all) > 1) {
		right = share_a_cpu() == -1 && errno == EBUSY;
		right = right && set(0, &other) == 0 && share_a_cpu() == 0;
		right = right && set(0, &attr) == -1 && errno == EPERM;
	}
	CHECK(right && set(0, &other) == 0 && sched_setaffinity(0, sizeof(all), &all) == 0);
}

CASE(deadlines_of_more_than_all_cpus_are_refused)
{
	struct attr attr = a_fifth(), other = ordinary;
	int status;

	cpu_set_t all;
	int busy = 0, children = 0, end[2];
	pid_t pids[CPU_SETSIZE];

	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
	attr.runtime = 9 * MS;
	attr.flags = 1;
	while (!busy && children < CPU_COUNT(&all) + 1) {
		int pipes[2];
		char answer;

		if (pipe(pipes) || (!children && pipe(end)))
			break;
		pids[children] = fork();
		if (pids[children] == 0) {
			answer = set(0, &attr) == 0 ? 0 : errno;
			if (write(pipes[1], &answer, 1) != 1)
				_exit(1);
			close(end[1]);
			if (answer == 0 && read(end[0], &answer, 1) == 0)
				set(0, &other);
			_exit(0);
		}
		children++;
		if (read(pipes[0], &answer, 1) == 1 && answer == EBUSY)
			busy = 1;
		close(pipes[0]);
		close(pipes[1]);
	}
	CHECK(busy);
	close(end[0]);
	close(end[1]);
	while (children-- > 0)
		waitpid(pids[children], &status, 0);
	CHECK(set(0, &other) == 0);
}

static pid_t start_child(void)
{
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(0);
	}
	return child;
}

CASE(another_process_can_be_scheduled)
{
	struct sched_param param = { .sched_priority = 5 };
	struct timespec interval;
	struct attr found = { 0 };
	int status;
	pid_t child;

	child = start_child();
	CHECK(sched_setscheduler(child, SCHED_RR, &param) == 0 &&
	      sched_getscheduler(child) == SCHED_RR);
	param.sched_priority = 6;
	CHECK(sched_setparam(child, &param) == 0);
	param.sched_priority = 0;
	CHECK(sched_getparam(child, &param) == 0 && param.sched_priority == 6);
	CHECK(sched_rr_get_interval(child, &interval) == 0 && interval.tv_sec == 0 &&
	      interval.tv_nsec == 100 * (long)MS);
	CHECK(get(child, &found, 48) == 0 && found.policy == SCHED_RR && found.priority == 6);
	cpu_set_t set;

	CHECK(sched_getaffinity(child, sizeof(set), &set) == 0 &&
	      sched_setaffinity(child, sizeof(set), &set) == 0);
	kill(child, SIGKILL);
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
	FAILS(ESRCH, sched_getscheduler(child));
}

/* Gives the first thread one priority after the other. */
static void *reschedule(void *refused)
{
	struct sched_param param;
	int i;

	for (i = 0; i < 60; i++) {
		param.sched_priority = 1 + (i + syscall(SYS_gettid)) % 20;
		if (sched_setscheduler(getpid(), SCHED_FIFO, &param))
			__atomic_add_fetch((int *)refused, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* The real-time priority that Linux shows of the first thread. */
static int shown_priority(void)
{
	char line[1024], *field;
	FILE *stat = fopen("/proc/self/stat", "r");
	int i;

	CHECK(stat && fgets(line, sizeof(line), stat));
	fclose(stat);
	field = strrchr(line, ')') + 1;
	for (i = 3; i < 40; i++)
		field = strchr(field + 1, ' ');
	return atoi(field);
}

CASE(threads_reschedule_one_at_once)
{
	pthread_t threads[4];
	struct sched_param param;
	int refused = 0;
	unsigned i;

	for (i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, reschedule, &refused) == 0);
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	CHECK(refused == 0 && sched_getparam(0, &param) == 0);
	CHECK(param.sched_priority == shown_priority());
}

/* Gives the parent one priority all the time. */
static void reschedule_parent(void)
{
	const struct sched_param param = { .sched_priority = 5 };
	const pid_t parent = getppid();

	while (getppid() == parent)
		sched_setscheduler(parent, SCHED_FIFO, &param);
	_exit(0);
}

CASE(a_stopped_process_holds_up_nobody_whom_it_reschedules)
{
	struct sched_param param = { .sched_priority = 6 };
	pid_t other = fork(), guard;
	int status;

	if (other == 0)
		reschedule_parent();
	guard = fork();
	if (guard == 0) {
		/* Who waits for the other process goes on when that has ended. */
		sleep(20);
		kill(other, SIGKILL);
		_exit(0);
	}
	for (int round = 0; round < 10; round++) {
		usleep(3000 + 300 * round);
		kill(other, SIGSTOP);
		CHECK(waitpid(other, &status, WUNTRACED) == other && WIFSTOPPED(status));
		double start = seconds(CLOCK_MONOTONIC);

		CHECK(sched_setscheduler(0, SCHED_FIFO, &param) == 0);
		CHECK(seconds(CLOCK_MONOTONIC) - start < 10);
		kill(other, SIGCONT);
	}
	kill(other, SIGKILL);
	kill(guard, SIGKILL);
	CHECK(waitpid(other, &status, 0) == other && waitpid(guard, &status, 0) == guard);
}

CASE(parameters_need_a_place)
{
	FAILS(EINVAL, sched_getparam(0, NULL));
}

CASE(a_process_starts_as_ordinary)
{
	struct sched_param param = { 0 };

	CHECK(sched_getscheduler(0) == SCHED_OTHER && sched_getparam(0, &param) == 0 &&
	      param.sched_priority == 0);
}

CASE(policies_have_priorities)
{
	CHECK(sched_get_priority_min(SCHED_FIFO) == 1 && sched_get_priority_max(SCHED_RR) == 99);
	CHECK(sched_get_priority_max(SCHED_OTHER) == 0);
	FAILS(EINVAL, sched_get_priority_max(77));
}

CASE(a_process_becomes_a_real_time_one)
{
	struct sched_param param = { 0 };
	struct timespec interval;

	param.sched_priority = 42;
	CHECK(sched_setscheduler(0, SCHED_FIFO, &param) == 0 &&
	      sched_getscheduler(getpid()) == SCHED_FIFO);
	param.sched_priority = 0;
	CHECK(sched_getparam(0, &param) == 0 && param.sched_priority == 42);
	param.sched_priority = 7;
	CHECK(sched_setparam(0, &param) == 0 && sched_getscheduler(0) == SCHED_FIFO);
	CHECK(sched_setscheduler(0, SCHED_RR, &param) == 0 &&
	      sched_rr_get_interval(0, &interval) == 0);
	CHECK(interval.tv_sec == 0 && interval.tv_nsec > 0);
	CHECK(sched_yield() == 0);
}

CASE(bad_priorities_are_refused)
{
	struct sched_param param = { 0 };

	param.sched_priority = 7;
	CHECK(sched_setscheduler(0, SCHED_FIFO, &param) == 0);
	param.sched_priority = 100;
	FAILS(EINVAL, sched_setscheduler(0, SCHED_FIFO, &param));
	param.sched_priority = 0;
	FAILS(EINVAL, sched_setscheduler(0, SCHED_FIFO, &param));
	param.sched_priority = 1;
	FAILS(EINVAL, sched_setscheduler(0, SCHED_OTHER, &param));
	FAILS(EINVAL, sched_setscheduler(0, 77, &param));
}

CASE(unknown_processes_are_refused)
{
	FAILS(ESRCH, sched_getscheduler(0x3fffffff));
	FAILS(EINVAL, sched_getscheduler(-1));
}

CASE(with_reset_on_fork_a_child_is_ordinary)
{
	struct sched_param param = { 0 };

	param.sched_priority = 9;
	CHECK(sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) == 0);
	CHECK(sched_getscheduler(0) == (SCHED_FIFO | SCHED_RESET_ON_FORK));
	pid_t child = fork();
	if (child == 0)
		_exit(sched_getscheduler(0) != SCHED_OTHER || sched_getparam(0, &param) != 0 ||
		      param.sched_priority != 0);
	int status;

	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

CASE(a_process_becomes_ordinary_again)
{
	struct sched_param param = { 0 };

	param.sched_priority = 7;
	CHECK(sched_setscheduler(0, SCHED_FIFO, &param) == 0);
	param.sched_priority = 0;
	CHECK(sched_setscheduler(0, SCHED_OTHER, &param) == 0);
}

CASE(bad_calls_are_refused)
{
	struct sched_param param = { 0 };

	FAILS(EINVAL, sched_setscheduler(-1, SCHED_OTHER, &param));
	FAILS(EINVAL, sched_setscheduler(0, SCHED_OTHER, NULL));
	FAILS(EFAULT, sched_setscheduler(0, SCHED_OTHER, (void *)8));
	FAILS(EINVAL, sched_setscheduler(0, SCHED_DEADLINE, &param));
}

CASE(batch_and_idle_are_policies)
{
	struct sched_param param = { 0 };

	CHECK(sched_setscheduler(0, SCHED_BATCH, &param) == 0 &&
	      sched_getscheduler(0) == SCHED_BATCH);
	CHECK(sched_setscheduler(0, SCHED_IDLE, &param) == 0 &&
	      sched_getscheduler(0) == SCHED_IDLE);
	CHECK(sched_setscheduler(0, SCHED_OTHER, &param) == 0);
}

CASE(a_nice_value_is_kept)
{
	CHECK(setpriority(PRIO_PROCESS, 0, 5) == 0 && getpriority(PRIO_PROCESS, 0) == 5);
	CHECK(setpriority(PRIO_PROCESS, 0, 0) == 0);
}

CASE(a_process_runs_on_a_cpu_of_its_affinity)
{
	unsigned int cpu = 999, node;
	cpu_set_t set;

	CHECK(sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0);
	CHECK(syscall(SYS_getcpu, &cpu, &node, NULL) == 0 && CPU_ISSET(cpu, &set));
	CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
}

CASE(bad_affinities_are_refused)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	FAILS(EINVAL, sched_setaffinity(0, sizeof(set), &set));
	FAILS(EINVAL, syscall(SYS_sched_getaffinity, 0, 1, &set));
	FAILS(EFAULT, sched_setaffinity(0, sizeof(set), (cpu_set_t *)8));
}
