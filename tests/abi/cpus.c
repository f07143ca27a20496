// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/*
 * Several CPUs (or one): affinity, wake-ups from one CPU to another, and which of the real-time
 * threads run. The first argument may be the number of wake-ups in each case. Run as root.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define OWN_MAIN
#include "check.h"
#include "moments.h"

#define MOST 64

static int cpus[CPU_SETSIZE], count;
static cpu_set_t all;
static long rounds = 1000;

CASE(the_program_may_run_on_some_cpus)
{
	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
	CHECK(count > 0);
}

static void futex_wait(atomic_int *word, int value)
{
	syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void futex_wake(atomic_int *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int pin(pid_t tid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(tid, sizeof(set), &set);
}

static int priority(pid_t tid, int value)
{
	struct sched_param param = { .sched_priority = value };

	return sched_setscheduler(tid, value ? SCHED_FIFO : SCHED_OTHER, &param);
}

/* Gives a thread so many milliseconds in each period of SCHED_DEADLINE. */
static int reserve(pid_t tid, uint64_t runtime, uint64_t period)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attributes = { .size = 48, .policy = 6 };

	attributes.runtime = runtime * 1000000;
	attributes.deadline = attributes.period = period * 1000000;
	return syscall(SYS_sched_setattr, tid, &attributes, 0);
}

/* Two threads pass a word to and fro. */
struct ball {
	atomic_int word;
	int me, cpu, level, lost;
};

static atomic_int *word;

static void *play(void *argument)
{
	struct ball *ball = argument;
	long round;

	if (ball->cpu >= 0 && pin(0, ball->cpu))
		ball->lost++;
	if (ball->level && priority(0, ball->level))
		ball->lost++;
	for (round = ball->me; round < 2 * rounds; round += 2) {
		while (atomic_load(word) != round)
			futex_wait(word, round - 1);
		if (ball->cpu >= 0 && sched_getcpu() != ball->cpu)
			ball->lost++;
		atomic_store(word, round + 1);
		futex_wake(word);
	}
	return NULL;
}

static int ping_pong(int first, int second, int level)
{
	struct ball one = { .me = 0, .cpu = first, .level = level };
	struct ball two = { .me = 1, .cpu = second, .level = level };
	static atomic_int shared;
	pthread_t thread, other;

	word = &shared;
	atomic_store(word, 0);
	pthread_create(&thread, NULL, play, &one);
	pthread_create(&other, NULL, play, &two);
	pthread_join(thread, NULL);
	pthread_join(other, NULL);
	return one.lost == 0 && two.lost == 0 && atomic_load(word) == 2 * rounds;
}

/* Threads that count as long as they are told. */
struct hog {
	pthread_t thread;
	atomic_int tid, go;
	atomic_long count;
	int level;
};

static void *run(void *argument)
{
	struct hog *hog = argument;

	priority(0, hog->level);
	atomic_store(&hog->tid, syscall(SYS_gettid));
	while (atomic_load(&hog->go) == 1)
		atomic_fetch_add(&hog->count, 1);
	return NULL;
}

static void start(struct hog *hog, int level)
{
	hog->level = level;
	atomic_store(&hog->tid, 0);
	atomic_store(&hog->go, 1);
	pthread_create(&hog->thread, NULL, run, hog);
}

static void stop(struct hog *hog)
{
	atomic_store(&hog->go, 0);
	pthread_join(hog->thread, NULL);
}

/* Tells whether it runs. A busy machine may need a while. */
static int runs(struct hog *hog)
{
	long before = atomic_load(&hog->count);
	int tries;

	for (tries = 0; tries < 1000 && atomic_load(&hog->count) == before; tries++)
		pause_for(20);
	return atomic_load(&hog->count) > before;
}

/*
 * Tells whether it stands still. It may run for moments while this thread changes what the others
 * do.
 */
static int waits(struct hog *hog)
{
	long before = -1;
	int tries;

	for (tries = 0; tries < 20 && atomic_load(&hog->count) != before; tries++) {
		before = atomic_load(&hog->count);
		pause_for(50);
	}
	return atomic_load(&hog->count) == before;
}

static void *report_cpu(void *argument)
{
	*(int *)argument = sched_getcpu();
	return NULL;
}

CASE(a_thread_runs_where_its_affinity_says)
{
	int index, wrong_affinity = 0, inherited = -1, status;
	pthread_t thread;
	cpu_set_t set;
	pid_t child;

	for (index = 0; index < count; index++) {
		wrong_affinity += pin(0, cpus[index]) != 0;
		wrong_affinity += sched_getcpu() != cpus[index];
		wrong_affinity += sched_getaffinity(0, sizeof(set), &set) != 0 ||
				  CPU_COUNT(&set) != 1 || !CPU_ISSET(cpus[index], &set);
		pthread_create(&thread, NULL, report_cpu, &inherited);
		pthread_join(thread, NULL);
		wrong_affinity += inherited != cpus[index];
		child = fork();
		if (child == 0)
			_exit(sched_getcpu() != cpus[index] || pin(0, cpus[0]) ||
			      sched_getcpu() != cpus[0]);
		wrong_affinity += waitpid(child, &status, 0) != child || status != 0;
		wrong_affinity += sched_getcpu() != cpus[index];
		wrong_affinity += sched_setaffinity(0, sizeof(all), &all) != 0;
	}
	CHECK(wrong_affinity == 0);
}

CASE(a_running_thread_can_be_moved)
{
	static struct hog hog;
	int index, wrong_moved = 0;
	pid_t tid;

	start(&hog, 0);
	while (!(tid = atomic_load(&hog.tid)))
		pause_for(1);
	for (index = 0; index < 4 * count; index++) {
		wrong_moved += pin(tid, cpus[index % count]) != 0;
		wrong_moved += !runs(&hog);
	}
	stop(&hog);
	CHECK(wrong_moved == 0);
}

CASE(an_unknown_thread_cannot_be_moved)
{
	FAILS(ESRCH, pin(0x3fffffff, cpus[0]));
}

CASE(two_threads_of_one_cpu_pass_a_word)
{
	CHECK(ping_pong(cpus[0], cpus[0], 0));
}

CASE(two_threads_of_different_cpus_pass_a_word)
{
	CHECK(ping_pong(cpus[0], cpus[count - 1], 0));
}

CASE(two_real_time_threads_of_different_cpus_pass_a_word)
{
	CHECK(ping_pong(cpus[0], cpus[count - 1], 30));
}

CASE(two_threads_of_any_cpu_pass_a_word)
{
	CHECK(ping_pong(-1, -1, 0));
}

CASE(two_real_time_threads_of_any_cpu_pass_a_word)
{
	CHECK(ping_pong(-1, -1, 30));
}

/* Threads of all CPUs sleep and wake by timers while they are moved about. */
static void *sleeper(void *argument)
{
	unsigned int seed = (long)argument;
	long round, wrong = 0;
	struct timespec before, after, time;

	for (round = 0; round < rounds / 20; round++) {
		seed = seed * 1103515245 + 12345;
		if (seed >> 16 & 1)
			wrong += pin(0, cpus[(seed >> 18) % count]) != 0;
		else
			wrong += sched_setaffinity(0, sizeof(all), &all) != 0;
		time.tv_sec = 0;
		time.tv_nsec = (seed >> 8) % 300000;
		clock_gettime(CLOCK_MONOTONIC, &before);
		wrong += clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL) != 0;
		clock_gettime(CLOCK_MONOTONIC, &after);
		wrong += (after.tv_sec - before.tv_sec) * 1000000000 +
			 after.tv_nsec - before.tv_nsec < time.tv_nsec;
	}
	return (void *)wrong;
}

CASE(moved_threads_sleep_and_wake)
{
	pthread_t threads[12];
	long index, wrong_sleepers = 0;
	void *result;

	for (index = 0; index < 12; index++)
		pthread_create(&threads[index], NULL, sleeper, (void *)(index * 7 + 1));
	for (index = 0; index < 12; index++) {
		pthread_join(threads[index], &result);
		wrong_sleepers += (long)result;
	}
	CHECK(wrong_sleepers == 0);
}

/* What the thread of the main program maps anew each round, and whose turn it is. */
static volatile char *volatile page;
static atomic_int turn;

static void *writer(void *argument)
{
	long round, *wrong = argument;

	for (round = 0; round < rounds / 4; round++) {
		while (atomic_load(&turn) != 2 * round + 1)
			futex_wait(&turn, 2 * round);
		*wrong += *page != 0;
		*page = round | 1;
		atomic_store(&turn, 2 * round + 2);
		futex_wake(&turn);
	}
	return NULL;
}

/* Memory that one thread unmaps is gone for the others, and what they write is seen. */
CASE(all_threads_see_a_change_of_mappings)
{
	long round, wrong_translations = 0, theirs = 0;
	pthread_t thread;
	void *place = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	atomic_store(&turn, 0);
	pin(0, cpus[0]);
	pthread_create(&thread, NULL, writer, &theirs);
	/* It has inherited the one CPU. */
	pthread_setaffinity_np(thread, sizeof(all), &all);
	if (count > 1) {
		cpu_set_t other;

		CPU_ZERO(&other);
		CPU_SET(cpus[1], &other);
		pthread_setaffinity_np(thread, sizeof(other), &other);
	}
	for (round = 0; round < rounds / 4; round++) {
		wrong_translations += munmap(place, 4096) != 0;
		wrong_translations += mmap(place, 4096, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != place;
		page = place;
		atomic_store(&turn, 2 * round + 1);
		futex_wake(&turn);
		while (atomic_load(&turn) != 2 * round + 2)
			futex_wait(&turn, 2 * round + 1);
		wrong_translations += *page != (char)(round | 1);
	}
	pthread_join(thread, NULL);
	sched_setaffinity(0, sizeof(all), &all);
	CHECK(wrong_translations == 0 && theirs == 0);
}

static atomic_int over;

/*
 * Reads and writes what is at descriptor 20 until it is over. Tells whether all of it was as it may
 * be.
 */
static void *use(void *argument)
{
	char bytes[32];
	long right = 1, one = 1;

	pin(0, *(int *)argument);
	while (!over) {
		memset(bytes, 'x', sizeof(bytes));
		long got = read(20, bytes, sizeof(bytes));

		/* Nothing, zeros, a counter, or what is in the pipe. */
		right &= got == 0 || (got == sizeof(bytes) && !bytes[0] && !bytes[31]) ||
			 got == 8 || (got == 5 && !memcmp(bytes, "there", 5)) ||
			 (got == -1 && (errno == EBADF || errno == EAGAIN));
		got = write(20, &one, 8);
		right &= got == 8 || (got == -1 && (errno == EBADF || errno == ENOSPC));
	}
	return (void *)right;
}

/* One thread opens and closes files of all kinds at a number that others use meanwhile. */
CASE(files_are_closed_while_they_are_used)
{
	static const char *const paths[] = { "/dev/null", "/dev/zero", "/dev/full" };
	int users = count > 1 ? 2 : 1, right = 1, ends[2];
	pthread_t threads[2];
	void *all_right;

	over = 0;
	for (int i = 0; i < users; i++)
		pthread_create(&threads[i], NULL, use, &cpus[i]);
	for (long round = 0; round < rounds / 4; round++) {
		int fd = round % 5 < 3 ? open(paths[round % 5], O_RDWR) :
			 round % 5 == 3 ? eventfd(1, EFD_NONBLOCK) : -1;

		if (fd < 0) {
			right &= pipe2(ends, O_NONBLOCK) == 0 && write(ends[1], "there", 5) == 5;
			right &= dup2(ends[0], 20) == 20 && close(ends[0]) == 0 && close(20) == 0;
			right &= close(ends[1]) == 0;
			continue;
		}
		right &= dup2(fd, 20) == 20 && close(fd) == 0;
		if (round & 1)
			right &= close(20) == 0;
	}
	over = 1;
	for (int i = 0; i < users; i++) {
		pthread_join(threads[i], &all_right);
		right &= !!all_right;
	}
	close(20);
	CHECK(right);
}

/*
 * As many hogs as CPUs, and one more: the lowest waits until a higher one ends, wherever that is.
 */
CASE(the_highest_threads_run)
{
	static struct hog hogs[MOST];
	int index, wrong_levels = 0;

	/*
	 * Linux leaves 5 % to ordinary threads unless told otherwise; this one has to run anyway.
	 */
	wrong_levels += priority(0, 50) != 0;
	for (index = 0; index <= count; index++) {
		start(&hogs[index], 10 + index);
		while (!atomic_load(&hogs[index].tid) && index < count)
			pause_for(1);
	}
	for (index = 1; index <= count; index++)
		wrong_levels += !runs(&hogs[index]);
	/* A change of policy takes a while when the machine is emulated. */
	pause_for(400);
	wrong_levels += !waits(&hogs[0]);
	stop(&hogs[count]);
	wrong_levels += !runs(&hogs[0]);
	/* A lower thread of the same CPU gives way to one that is raised. */
	start(&hogs[count], 5);
	pause_for(400);
	wrong_levels += !waits(&hogs[count]);
	for (index = 0; index < count; index++)
		stop(&hogs[index]);
	wrong_levels += !runs(&hogs[count]);
	stop(&hogs[count]);
	wrong_levels += priority(0, 0) != 0;
	CHECK(wrong_levels == 0);
}

/* Goes round the CPUs, so that who runs there has to go elsewhere. */
static void *chase(void *argument)
{
	long end;

	(void)argument;
	priority(0, 30);
	for (int round = 0; round < 20; round++) {
		pin(0, cpus[round % count]);
		end = milliseconds() + 5;
		while (milliseconds() < end)
			;
	}
	return NULL;
}

/* As any other: it goes where something less urgent runs. */
CASE(who_was_moved_often_is_raised_elsewhere)
{
	static struct hog low, high, hogs[MOST];
	int index, wrong = 0;
	pthread_t chaser;

	if (count < 2)
		return;
	wrong += priority(0, 50) != 0 || pin(0, cpus[0]) != 0;
	start(&low, 10);
	while (!atomic_load(&low.tid))
		pause_for(1);
	wrong += sched_setaffinity(low.tid, sizeof(all), &all) != 0;
	pthread_create(&chaser, NULL, chase, NULL);
	pthread_join(chaser, NULL);
	for (index = 1; index < count; index++) {
		start(&hogs[index], 20);
		while (!atomic_load(&hogs[index].tid))
			pause_for(1);
		wrong += pin(hogs[index].tid, cpus[index]) != 0;
	}
	wrong += !runs(&low);
	start(&high, 40);
	while (!atomic_load(&high.tid))
		pause_for(1);
	pause_for(400);
	wrong += !waits(&low);
	/* Where this one sleeps, the higher one goes on. */
	wrong += priority(low.tid, 30) != 0;
	wrong += !runs(&low);
	stop(&high);
	stop(&low);
	for (index = 1; index < count; index++)
		stop(&hogs[index]);
	CHECK(wrong == 0);
}

static atomic_int starting_gun, finish_line, has_run;

/* Runs from the moment that it is told to until it is told to stop, or for 30 seconds. */
static void *obey(void *argument)
{
	time_t begin;

	(void)argument;
	pin(0, cpus[0]);
	priority(0, 10);
	atomic_store(&has_run, -1);
	while (!atomic_load(&starting_gun))
		futex_wait(&starting_gun, 0);
	begin = time(NULL);
	while (!atomic_load(&finish_line) && time(NULL) - begin < 30)
		;
	atomic_store(&has_run, atomic_load(&finish_line));
	return NULL;
}

/* Who raises itself above another that runs on the same CPU goes on. */
static void *raised(void *argument)
{
	pthread_t other;
	int right;

	(void)argument;
	starting_gun = finish_line = has_run = 0;
	pin(0, cpus[0]);
	pthread_create(&other, NULL, obey, NULL);
	while (atomic_load(&has_run) != -1)
		pause_for(1);
	pause_for(5);
	priority(0, 10);
	atomic_store(&starting_gun, 1);
	futex_wake(&starting_gun);
	priority(0, 20);
	atomic_store(&finish_line, 1);
	pthread_join(other, NULL);
	right = atomic_load(&has_run) == 1;
	return (void *)(long)right;
}

CASE(who_raises_itself_goes_on)
{
	pthread_t thread;
	void *right;

	pthread_create(&thread, NULL, raised, NULL);
	pthread_join(thread, &right);
	CHECK(right);
}

/* Uses a reservation of its CPU's whole time for a second. Tells whether it had most of that. */
static void *use_whole_cpu(void *argument)
{
	long begin, used;

	(void)argument;
	if (priority(0, 20) || pin(0, cpus[0]) || sched_setaffinity(0, sizeof(all), &all) ||
	    reserve(0, 100, 100))
		return NULL;
	begin = milliseconds();
	used = shown(CLOCK_THREAD_CPUTIME_ID);
	while (milliseconds() - begin < 1000)
		;
	used = shown(CLOCK_THREAD_CPUTIME_ID) - used;
	priority(0, 0);
	return (void *)(used > 600000000L ? 1L : 0L);
}

/* One CPU has no whole time to give: 5 % of it are for others. */
CASE(who_gets_its_next_budget_at_once_goes_on)
{
	static struct hog hog;
	pthread_t thread;
	void *right;

	if (count < 2)
		return;
	start(&hog, 10);
	while (!atomic_load(&hog.tid))
		pause_for(1);
	pin(hog.tid, cpus[0]);
	pthread_create(&thread, NULL, use_whole_cpu, NULL);
	pthread_join(thread, &right);
	stop(&hog);
	CHECK(right);
}

/* Two threads that wait for their turn on the first CPU, and the order in which they have it. */
static atomic_int order[2], arrived;

static void *take_turn(void *argument)
{
	int me = (long)argument;

	pin(0, cpus[0]);
	priority(0, 10);
	atomic_fetch_add(&has_run, 1);
	while (!atomic_load(&starting_gun))
		futex_wait(&starting_gun, 0);
	atomic_store(&order[atomic_fetch_add(&arrived, 1)], me);
	return NULL;
}

CASE(who_gets_the_same_cpus_keeps_its_place)
{
	pthread_t threads[2];
	int index, wrong = 0;

	starting_gun = arrived = 0;
	wrong += priority(0, 50) != 0 || pin(0, cpus[0]) != 0;
	for (index = 0; index < 2; index++) {
		has_run = 0;
		pthread_create(&threads[index], NULL, take_turn, (void *)(long)(index + 1));
		while (!atomic_load(&has_run))
			pause_for(1);
		/* They wait in this order, as equals do. */
		pause_for(20);
	}
	atomic_store(&starting_gun, 1);
	futex_wake(&starting_gun);
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpus[0], &one);
	wrong += pthread_setaffinity_np(threads[0], sizeof(one), &one) != 0;
	for (index = 0; index < 2; index++)
		pthread_join(threads[index], NULL);
	CHECK(wrong == 0 && order[0] == 1 && order[1] == 2);
}

static struct hog late;
/* The other one has its reservation. */
static atomic_int has_early;

/* Counts by a reservation that has a late deadline, from the first CPU on. */
static void *count_by_deadline(void *argument)
{
	(void)argument;
	/* In the other order Linux leaves the thread where it is. */
	while (!atomic_load(&has_early))
		pause_for(1);
	int reserved = !pin(0, cpus[0]) && !sched_setaffinity(0, sizeof(all), &all) &&
		       !reserve(0, 1000, 4000);

	atomic_store(&late.tid, syscall(SYS_gettid));
	while (reserved && atomic_load(&late.go) == 1)
		atomic_fetch_add(&late.count, 1);
	return NULL;
}

/* Sleeps on the first CPU, then runs there by an early deadline until the other one counts. */
static void *preempt_deadline(void *argument)
{
	long before, begin;

	(void)argument;
	if (pin(0, cpus[0]) || sched_setaffinity(0, sizeof(all), &all) || reserve(0, 400, 1000))
		return NULL;
	atomic_store(&has_early, 1);
	while (!atomic_load(&late.tid))
		pause_for(10);
	pause_for(50);
	before = atomic_load(&late.count);
	begin = milliseconds();
	while (atomic_load(&late.count) == before && milliseconds() - begin < 300)
		;
	return (void *)(atomic_load(&late.count) != before ? 1L : 0L);
}

/* Nobody else sleeps or wakes meanwhile, so that no CPU looks what waits elsewhere. */
CASE(who_has_a_later_deadline_goes_to_another_cpu)
{
	pthread_t thread;
	void *right;

	if (count < 2)
		return;
	has_early = 0;
	late.go = 1;
	late.tid = late.count = 0;
	pthread_create(&thread, NULL, preempt_deadline, NULL);
	pthread_create(&late.thread, NULL, count_by_deadline, NULL);
	pthread_join(thread, &right);
	stop(&late);
	CHECK(right);
}

/* A thread that runs gets all of what it is given then, whatever it has run before. */
CASE(a_reservation_begins_when_it_is_made)
{
	static struct hog hog;
	clockid_t clock;
	long used;

	if (count < 2)
		return;
	start(&hog, 0);
	while (!atomic_load(&hog.tid))
		pause_for(1);
	pause_for(400);
	CHECK(pthread_getcpuclockid(hog.thread, &clock) == 0);
	CHECK(reserve(hog.tid, 100, 4000) == 0);
	used = shown(clock);
	pause_for(400);
	used = shown(clock) - used;
	CHECK(priority(hog.tid, 0) == 0);
	stop(&hog);
	CHECK(used > 40000000L);
}

int main(int argc, char **argv)
{
	runner.arguments = argv;
	if (argc > 1 && atol(argv[1]) > 0) {
		rounds = atol(argv[1]);
		argc--;
		argv++;
	}
	if (sched_getaffinity(0, sizeof(all), &all) == 0)
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET(cpu, &all))
				cpus[count++] = cpu;
	return run_cases(argc, argv);
}
