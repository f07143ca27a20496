// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/* fork, execve and wait: memory, descriptors, signals and statuses. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>


#include "check.h"
#include "children.h"
#include "moments.h"

extern char **environ;

static volatile sig_atomic_t children;
static int counter = 5;

static void child_ended(int number)
{
	(void)number;
	children++;
}

/* Runs f in a child and returns its wait status. */
static int in_child(int (*f)(void))
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(f());
	return status_of(pid);
}

static char *shared_page, *heap;
static pid_t parent;

static int memory(void)
{
	int good = counter == 5 && strcmp(shared_page, "before") == 0 && heap[99999] == 'h';

	counter = 6;
	strcpy(shared_page, "child");
	heap[99999] = 'c';
	good &= getppid() == parent && getpid() != parent && getpid() == syscall(SYS_gettid);
	good &= sbrk(4096) != (void *)-1 && malloc(1000000) != NULL;
	return good ? 11 : 12;
}

static int faults(void)
{
	return *(volatile char *)at(16);
}

/* More than the shadow could keep on its stack, if it kept anything of each. */
#define GENERATIONS 40

static int generations(void)
{
	for (int i = 0; i < GENERATIONS; i++) {
		pid_t pid = fork();
		int status;

		if (pid > 0) {
			if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
				return 1;
			return WEXITSTATUS(status) + 1;
		}
	}
	return 0;
}

/*
 * A real-time thread returns from fork before its child runs on the same CPU. The child then keeps
 * the CPU for a while.
 */
static int parent_first(void)
{
	struct sched_param low = { .sched_priority = 1 }, high = { .sched_priority = 2 };
	volatile int *first = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	clock_t begin;
	cpu_set_t set;
	pid_t pid;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0 ||
	    sched_setscheduler(0, SCHED_FIFO, &low) != 0)
		return 33;
	pid = fork();
	if (pid == 0) {
		if (!*first)
			*first = 2;
		sched_setscheduler(0, SCHED_FIFO, &high);
		for (begin = clock(); clock() - begin < CLOCKS_PER_SEC / 10;)
			;
		_exit(0);
	}
	if (!*first)
		*first = 1;
	waitpid(pid, NULL, 0);
	return *first == 1 ? 31 : 32;
}

/* Executes this program with an argument, a nearly empty environment, and descriptor 50 open. */
static int execute_self(void)
{
	char *argv[] = { "second", "argument", "", NULL };

	char *envp[] = { "ONLY=this", NULL };

	execve("/proc/self/exe", argv, envp);
	return 99;
}

static int execute_other(void)
{
	execl("/bin/sh", "sh", "-c", "exit 17", NULL);
	return 99;
}

/* It has what execute_self gave it. */
ROLE(second)
{
	int passed = count == 3 && strcmp(arguments[1], "argument") == 0 && !*arguments[2];

	passed &= environ[0] && strcmp(environ[0], "ONLY=this") == 0 && !environ[1];
	passed &= fcntl(50, F_GETFD) == 0 && fcntl(51, F_GETFD) == -1;
	passed &= signal(SIGUSR1, SIG_DFL) == SIG_DFL && signal(SIGUSR2, SIG_DFL) == SIG_IGN;
	return passed ? 23 : 24;
}

BEFORE_EACH
{
	children = 0;
	signal(SIGCHLD, child_ended);
}

CASE(a_child_has_memory_of_its_own)
{
	int status;

	parent = getpid();
	shared_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	strcpy(shared_page, "before");
	heap = malloc(100000);
	heap[99999] = 'h';

	status = in_child(memory);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 11);
	CHECK(counter == 5 && strcmp(shared_page, "before") == 0 && heap[99999] == 'h');
	CHECK(children == 1);
}

CASE(a_fault_ends_a_child)
{
	int status;

	status = in_child(faults);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

CASE(a_process_asks_for_what_is_permitted)
{
	int counter = 0;

	CHECK(prctl(PR_GET_TSC, &counter) == 0 && counter == PR_TSC_ENABLE);
	CHECK(prctl(PR_SET_TSC, PR_TSC_ENABLE) == 0);
	FAILS(EINVAL, prctl(PR_SET_TSC, 3));
	FAILS(EFAULT, prctl(PR_GET_TSC, NULL));
	CHECK(prctl(PR_GET_SECCOMP) == 0);
	CHECK(prctl(PR_TASK_PERF_EVENTS_DISABLE) == 0 && prctl(PR_TASK_PERF_EVENTS_ENABLE) == 0);
}

CASE(a_child_declines_huge_pages_as_its_parent_does)
{
	CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0);
	FAILS(EINVAL, prctl(PR_SET_THP_DISABLE, 1, 1, 0, 0));
	CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
	pid_t child = fork();

	if (child == 0)
		_exit(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
	CHECK(exits_with(child, 1) && prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0);
	CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0);
}

CASE(forty_generations_follow_each_other)
{
	int status;

	status = in_child(generations);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == GENERATIONS);
}

CASE(a_parent_returns_from_fork_before_its_child_runs)
{
	int status;

	status = in_child(parent_first);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 31);
}

CASE(who_has_no_child_cannot_wait)
{
	int status;

	FAILS(ECHILD, waitpid(-1, &status, 0));
}

CASE(a_pipe_ends_when_the_child_has_ended)
{
	int ends[2], status;
	char byte;
	struct rusage usage;
	pid_t pid;

	CHECK(pipe(ends) == 0);
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		_exit(write(ends[1], "x", 1) != 1);
	}
	close(ends[1]);
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'x' && read(ends[0], &byte, 1) == 0);
	CHECK(wait4(pid, &status, 0, &usage) == pid && status == 0);
	close(ends[0]);
}

CASE(a_waiting_parent_learns_of_the_signal)
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, WNOHANG) == 0);
	CHECK(kill(pid, SIGTERM) == 0 && waitpid(pid, &status, 0) == pid &&
	      WTERMSIG(status) == SIGTERM);
}

CASE(execve_keeps_what_it_should)
{
	int status, fd;

	fd = open("/dev/null", O_RDONLY);
	dup2(fd, 50);
	dup3(fd, 51, O_CLOEXEC);
	signal(SIGUSR1, child_ended);
	signal(SIGUSR2, SIG_IGN);
	status = in_child(execute_self);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 23);
}

CASE(a_child_executes_another_program)
{
	int status;

	status = in_child(execute_other);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 17);
}

CASE(bad_programs_are_refused)
{
	char *argv[] = { "program", NULL };

	FAILS(ENOENT, execv("/nonexistent", argv));
	FAILS(EACCES, execv("/etc/passwd", argv));
	FAILS(EACCES, execv("/etc", argv));
	FAILS(EFAULT, execv(at(16), argv));
	FAILS(EFAULT, execve("/bin/busybox", at(16), environ));
}

CASE(posix_spawn_moves_descriptors)
{
	char *echo[] = { "echo", "spawned", NULL }, line[10];
	int status, ends[2];
	pid_t pid;

	CHECK(pipe(ends) == 0);
	posix_spawn_file_actions_t actions;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
	CHECK(posix_spawn(&pid, "/bin/echo", &actions, NULL, echo, environ) == 0);
	close(ends[1]);
	CHECK(read(ends[0], line, 8) == 8 && memcmp(line, "spawned\n", 8) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

CASE(system_returns_the_status)
{
	int status;

	status = system("exit 3");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

CASE(nobody_waits_for_children_with_sa_nocldwait)
{
	int status;
	pid_t pid;

	struct sigaction action = { .sa_handler = SIG_DFL };
	CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
	action.sa_flags = SA_NOCLDWAIT;
	CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
	pid = fork();
	if (pid == 0)
		_exit(0);
	FAILS(ECHILD, waitpid(pid, &status, 0));
}

/* What a child shares with its parent. */
struct shared {
	_Atomic unsigned long count;
	pthread_mutex_t mutex;
};

static struct shared *share(void)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(shared != MAP_FAILED);
	return shared;
}

static void *count_on(void *argument)
{
	struct shared *shared = argument;

	while (shared)
		shared->count++;
	return NULL;
}

/* Tells whether the count stands still. */
static int stands_still(struct shared *shared)
{
	unsigned long count = shared->count;

	for (int look = 0; look < 20; look++)
		pause_for(1);
	return shared->count == count;
}

static void await_count(struct shared *shared)
{
	while (!shared->count)
		pause_for(1);
}

CASE(who_was_killed_runs_no_more_when_the_parent_hears_of_it)
{
	struct shared *shared = share();

	for (int round = 0; round < 20; round++) {
		pid_t child;

		shared->count = 0;
		child = fork();
		if (!child)
			count_on(shared);
		await_count(shared);
		kill(child, SIGKILL);
		CHECK(ends_by(child, SIGKILL));
		CHECK(stands_still(shared));
	}
}

CASE(no_thread_of_a_child_runs_when_the_parent_hears_of_its_end)
{
	struct shared *shared = share();

	for (int round = 0; round < 20; round++) {
		pid_t child;

		shared->count = 0;
		child = fork();
		if (!child) {
			pthread_t thread;

			pthread_create(&thread, NULL, count_on, shared);
			await_count(shared);
			_exit(3);
		}
		CHECK(exits_with(child, 3));
		CHECK(stands_still(shared));
	}
}

/* Lets nobody of lower priority run, but for a moment now and then. */
static pid_t start_hog(void)
{
	struct sched_param urgent = { .sched_priority = 10 };
	pid_t hog = fork();

	if (!hog) {
		sched_setscheduler(0, SCHED_FIFO, &urgent);
		for (;;) {
			long start = milliseconds();

			while (milliseconds() - start < 20)
				;
			pause_for(5);
		}
	}
	return hog;
}

/* No wait: the owner is dead as soon as the parent has heard of its end. */
static void lose_owners(struct shared *shared)
{
	pthread_mutexattr_t robust;

	pthread_mutexattr_init(&robust);
	pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&shared->mutex, &robust);
	for (int round = 0; round < 20; round++) {
		struct sched_param none = { .sched_priority = 0 };
		pid_t child;

		shared->count = 0;
		child = fork();
		if (!child) {
			sched_setscheduler(0, SCHED_OTHER, &none);
			pthread_mutex_lock(&shared->mutex);
			count_on(shared);
		}
		await_count(shared);
		kill(child, SIGKILL);
		CHECK(ends_by(child, SIGKILL));
		CHECK(pthread_mutex_trylock(&shared->mutex) == EOWNERDEAD);
		CHECK(stands_still(shared));
		pthread_mutex_consistent(&shared->mutex);
		pthread_mutex_unlock(&shared->mutex);
	}
}

CASE(a_robust_mutex_is_free_when_the_parent_hears_of_its_owners_end)
{
	lose_owners(share());
}

CASE(it_is_so_beside_an_urgent_thread)
{
	struct sched_param more = { .sched_priority = 20 };
	pid_t hog = start_hog();

	if (sched_setscheduler(0, SCHED_FIFO, &more))
		more.sched_priority = 0;
	lose_owners(share());
	kill(hog, SIGKILL);
	CHECK(ends_by(hog, SIGKILL));
}

/* Sleeps as a program that another one has executed. */
ROLE(sleeping)
{
	for (;;)
		pause();
	return 0;
}

/* Executes itself again and again. */
ROLE(executing)
{
	execl("/proc/self/exe", "executing", NULL);
	return 1;
}

/* Tells whether a pipe without writers is seen as such before long, and closes it. */
static int has_ended(int fd)
{
	struct pollfd polled = { fd, POLLIN, 0 };
	char byte;
	int ended = poll(&polled, 1, 5000) == 1 && read(fd, &byte, 1) == 0;

	close(fd);
	return ended;
}

static atomic_int racing;

static void *execute_at_once(void *unused)
{
	(void)unused;
	racing++;
	while (racing < 2)
		;
	execl("/proc/self/exe", "sleeping", NULL);
	return NULL;
}

/* The pipe closes on execve. */
CASE(descriptors_close_when_two_threads_execute_a_program)
{
	for (int round = 0; round < 10; round++) {
		int ends[2];

		CHECK(pipe2(ends, O_CLOEXEC) == 0);
		pid_t child = fork();

		if (child == 0) {
			pthread_t thread;

			racing = 0;
			pthread_create(&thread, NULL, execute_at_once, NULL);
			execute_at_once(NULL);
			pause();
		}
		close(ends[1]);
		CHECK(has_ended(ends[0]));
		CHECK(kill(child, SIGKILL) == 0 && ends_by(child, SIGKILL));
	}
}

/* At whatever moment it is killed, and waited for or not, its descriptors close. */
static void kill_who_executes(int waits)
{
	for (int round = 0; round < 40; round++) {
		int ends[2];

		CHECK(pipe(ends) == 0);
		pid_t child = fork();

		if (child == 0) {
			execl("/proc/self/exe", "executing", NULL);
			_exit(1);
		}
		close(ends[1]);
		usleep(20000 + round * 500);
		CHECK(kill(child, SIGKILL) == 0);
		CHECK(!waits || ends_by(child, SIGKILL));
		CHECK(has_ended(ends[0]));
	}
}

CASE(descriptors_close_when_who_executes_a_program_is_killed)
{
	kill_who_executes(1);
}

CASE(they_do_where_nobody_waits)
{
	signal(SIGCHLD, SIG_IGN);
	kill_who_executes(0);
}

/* Tells whether the signal of the thread that has executed the program is pending, and no other. */
ROLE(alone)
{
	int own = atoi(arguments[1]), other = own == SIGUSR1 ? SIGUSR2 : SIGUSR1;
	sigset_t pending;

	sigpending(&pending);
	return count == 2 && sigismember(&pending, own) && !sigismember(&pending, other) ? 0 : 1;
}

static void *execute_with_a_signal(void *signal)
{
	char own[20];

	snprintf(own, sizeof(own), "%d", (int)(long)signal);
	pthread_kill(pthread_self(), (int)(long)signal);
	racing++;
	while (racing < 2)
		;
	execl("/proc/self/exe", "alone", own, NULL);
	return NULL;
}

CASE(what_is_pending_for_a_thread_goes_with_it)
{
	for (int round = 0; round < 20; round++) {
		pid_t child = fork();

		if (child == 0) {
			pthread_t thread;
			sigset_t set;

			sigemptyset(&set);
			sigaddset(&set, SIGUSR1);
			sigaddset(&set, SIGUSR2);
			sigprocmask(SIG_BLOCK, &set, NULL);
			racing = 0;
			pthread_create(&thread, NULL, execute_with_a_signal, (void *)SIGUSR1);
			execute_with_a_signal((void *)SIGUSR2);
			pause();
		}
		CHECK(exits_with(child, 0));
	}
}
