// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/* Threads: start, end, join, ids, names, thread-local variables, exit and exit_group. */
#define _GNU_SOURCE
#include <dirent.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "children.h"

#define MANY 40
#define ROUND_UP 0x5f80 /* MXCSR */

static __thread int own = 5;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn, sum;
static volatile int flag;

static void *add(void *argument)
{
	long number = (long)argument;

	own += number;
	pthread_mutex_lock(&lock);
	sum += own;
	pthread_mutex_unlock(&lock);
	return (void *)(number * 2);
}

static void *pass_turn(void *argument)
{
	int me = (long)argument, rounds;

	for (rounds = 0; rounds < 50; rounds++) {
		pthread_mutex_lock(&lock);
		while (turn % 4 != me)
			pthread_cond_wait(&changed, &lock);
		turn++;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void *ids(void *argument)
{
	pid_t *tid = argument;
	char name[32] = "", path[64];

	*tid = syscall(SYS_gettid);
	CHECK(getpid() != *tid && getpid() == *(tid + 1));
	CHECK(pthread_setname_np(pthread_self(), "worker") == 0);
	CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "worker") == 0);
	snprintf(path, sizeof(path), "/proc/self/task/%d/comm", *tid);
	FILE *file = fopen(path, "r");

	CHECK(file && fgets(name, sizeof(name), file) && strcmp(name, "worker\n") == 0);
	if (file)
		fclose(file);
	/* The rounding mode is inherited. */
	CHECK(__builtin_ia32_stmxcsr() == ROUND_UP);
	/* A thread's stack for signals is not. */
	stack_t stack;

	CHECK(sigaltstack(NULL, &stack) == 0 && stack.ss_flags == SS_DISABLE);
	sigset_t mask;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	CHECK(sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGUSR2));
	return NULL;
}

static void *sleeper(void *argument)
{
	(void)argument;
	for (;;)
		pause();
	return NULL;
}

static void *reader(void *argument)
{
	char byte;

	(void)argument;
	for (;;)
		if (read(*(int *)argument, &byte, 1) == 0)
			break;
	return NULL;
}

static void *spinner(void *argument)
{
	(void)argument;
	for (;;)
		flag++;
	return NULL;
}

static void *group_exit(void *argument)
{
	(void)argument;
	usleep(1000);
	_exit(44);
}

static void *late_exit(void *argument)
{
	(void)argument;
	usleep(20000);
	return NULL;
}

static void *forker(void *argument)
{
	pid_t pid = fork();
	int status;

	(void)argument;
	if (pid == 0)
		_exit(getpid() == syscall(SYS_gettid) ? 9 : 10);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return NULL;
	return (void *)(long)WEXITSTATUS(status);
}

/* Runs f in a child and returns its wait status. */
static int in_child(void (*f)(void))
{
	pid_t pid = fork();

	if (pid == 0) {
		f();
		_exit(99);
	}
	return status_of(pid);
}

static int ends[2];

static void start_some(void *(*f)(void *))
{
	pthread_t thread;

	pipe(ends);
	pthread_create(&thread, NULL, sleeper, NULL);
	pthread_create(&thread, NULL, reader, &ends[0]);
	pthread_create(&thread, NULL, spinner, NULL);
	if (f)
		pthread_create(&thread, NULL, f, NULL);
}

static void exits_by_main(void)
{
	start_some(NULL);
	usleep(1000);
	_exit(33);
}

static void exits_by_thread(void)
{
	start_some(group_exit);
	for (;;)
		pause();
}

static void dies(void)
{
	start_some(NULL);
	usleep(1000);
	*(volatile char *)(long)(flag & 0) = 1;
}

static void killed(void)
{
	start_some(NULL);
	usleep(1000);
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

static void leader_exits_first(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, late_exit, NULL);
	pthread_exit(NULL);
}

/* The kernel clears it when the first thread ends. */
static int first_thread = 1;

static void *last_exit(void *argument)
{
	(void)argument;
	while (__atomic_load_n(&first_thread, __ATOMIC_SEQ_CST))
		usleep(100);
	syscall(SYS_exit, 8);
	return NULL;
}

static void last_leaves_status(void)
{
	pthread_t thread;

	syscall(SYS_set_tid_address, &first_thread);
	pthread_create(&thread, NULL, last_exit, NULL);
	syscall(SYS_exit, 7);
}

static void *execute(void *argument)
{
	(void)argument;
	usleep(1000);
	execl("/bin/sh", "sh", "-c", "exit 21", NULL);
	return NULL;
}

static void executes_by_thread(void)
{
	start_some(execute);
	for (;;)
		pause();
}

static int in_clone(void *argument)
{
	(void)argument;
	return 0;
}

struct clone_arguments {
	unsigned long flags, pidfd, child_tid, parent_tid, signal, stack, stack_size, tls;
	unsigned long set_tid, set_tid_size, cgroup, more[2];
};

static long clone3(struct clone_arguments *arguments, size_t size)
{
	return syscall(SYS_clone3, arguments, size);
}

/* The word that is cleared and woken when the thread ends. */
static volatile int cleared = 1;

static int bare(void *argument)
{
	*(volatile int *)argument = syscall(SYS_gettid);
	syscall(SYS_exit, 0);
	return 0;
}

/*
 * Tells whether it is known where the first stack lies, as garbage collectors want it. Its lowest
 * page is there.
 */
static int stack_is_known(void)
{
	pthread_attr_t attributes;
	struct rlimit limit;
	char here, *start;
	size_t size;

	if (pthread_getattr_np(pthread_self(), &attributes) != 0 ||
	    pthread_attr_getstack(&attributes, (void **)&start, &size) != 0)
		return 0;
	pthread_attr_destroy(&attributes);
	if (getrlimit(RLIMIT_STACK, &limit) != 0 || size > limit.rlim_cur ||
	    size < limit.rlim_cur / 2)
		return 0;
	*(volatile char *)start = 1;
	return start < &here && &here < start + size && start + size - &here < 1 << 20;
}

static void looks_for_stack(void)
{
	_exit(stack_is_known() ? 55 : 56);
}

BEFORE_EACH
{
	sum = turn = 0;
	cleared = 1;
}

/* Each has its own variables. */
CASE(forty_threads_run_at_once)
{
	pthread_t threads[MANY];
	void *result;
	long i;
	int right = 1, expected = 0;

	for (i = 0; i < MANY; i++) {
		expected += 5 + i;
		right &= pthread_create(&threads[i], NULL, add, (void *)i) == 0;
	}
	CHECK(right);
	for (i = 0; i < MANY; i++)
		right &= pthread_join(threads[i], &result) == 0 && result == (void *)(i * 2);
	CHECK(right && sum == expected && own == 5);
}

CASE(five_hundred_threads_follow_each_other)
{
	pthread_t threads[MANY];
	long i;
	int right = 1;

	for (i = 0; i < 500; i++) {
		right &= pthread_create(&threads[0], NULL, add, NULL) == 0;
		right &= pthread_join(threads[0], NULL) == 0;
	}
	CHECK(right && sum == 2500);
}

CASE(threads_take_turns_by_a_condition)
{
	pthread_t threads[MANY];
	long i;

	for (i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, pass_turn, (void *)i);
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	CHECK(turn == 200);
}

/* The thread inherits the rounding mode and the mask, but not the stack for signals. */
CASE(a_thread_has_ids_and_a_name_and_inherits)
{
	pthread_t threads[MANY];
	pid_t pids[2] = { 0, getpid() };

	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	__builtin_ia32_ldmxcsr(ROUND_UP);
	pthread_create(&threads[0], NULL, ids, pids);
	pthread_join(threads[0], NULL);
	__builtin_ia32_ldmxcsr(0x1f80);
	while (syscall(SYS_tgkill, getpid(), pids[0], 0) == 0)
		usleep(1000);
	CHECK(pids[0] > 0 && errno == ESRCH);
}

CASE(a_thread_forks)
{
	pthread_t threads[MANY];
	void *result;

	pthread_create(&threads[0], NULL, forker, NULL);
	CHECK(pthread_join(threads[0], &result) == 0 && result == (void *)9);
}

CASE(flags_of_clone_that_do_not_fit_are_refused)
{
	static char stack[16384] __attribute__((aligned(16)));
	void *top = stack + sizeof(stack);
	int tid;

	FAILS(EINVAL, clone(in_clone, top, CLONE_THREAD, NULL));
	FAILS(EINVAL, clone(in_clone, top, CLONE_THREAD | CLONE_SIGHAND, NULL));
	FAILS(EINVAL, clone(in_clone, top, CLONE_SIGHAND | SIGCHLD, NULL));
	FAILS(EINVAL, clone(in_clone, top, CLONE_FS | CLONE_NEWNS | SIGCHLD, NULL));
	FAILS(EINVAL,
	      clone(in_clone, top, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, NULL, &tid));
}

CASE(arguments_of_clone3_that_do_not_fit_are_refused)
{
	struct clone_arguments arguments = { .flags = CLONE_THREAD };

	FAILS(EINVAL, clone3(&arguments, sizeof(arguments)));
	FAILS(EINVAL, clone3(&arguments, 63));
	FAILS(E2BIG, clone3(&arguments, 5000));
	FAILS(EFAULT, clone3((void *)8, 64));
	arguments = (struct clone_arguments){ .flags = 0, .more = { 0, 1 } };
	FAILS(E2BIG, clone3(&arguments, sizeof(arguments)));
	arguments = (struct clone_arguments){ .flags = SIGCHLD };
	FAILS(EINVAL, clone3(&arguments, 64));
	arguments = (struct clone_arguments){ .signal = 65 };
	FAILS(EINVAL, clone3(&arguments, 64));
	arguments = (struct clone_arguments){ .signal = SIGCHLD, .stack_size = 4096 };
	FAILS(EINVAL, clone3(&arguments, 64));
	arguments = (struct clone_arguments){ .signal = SIGCHLD, .stack = 4096 };
	FAILS(EINVAL, clone3(&arguments, 64));
	arguments = (struct clone_arguments){ .flags = CLONE_PARENT, .signal = SIGCHLD };
	FAILS(EINVAL, clone3(&arguments, 64));
	arguments = (struct clone_arguments){ .signal = SIGCHLD, .set_tid_size = 1 };
	FAILS(EINVAL, clone3(&arguments, 80));
}

CASE(clone3_makes_a_process)
{
	struct clone_arguments arguments = { .signal = SIGCHLD };
	pid_t pid = clone3(&arguments, 64);
	int status = 0;

	if (pid == 0)
		_exit(5);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
}

/* Linux makes the namespace, and the realm says that it does not. */
CASE(a_process_that_asks_for_a_time_namespace_has_one)
{
	struct clone_arguments arguments = { .flags = CLONE_NEWTIME, .signal = SIGCHLD };
	char parents[64] = "", childs[64] = "";
	int status = 0;
	pid_t pid;

	CHECK(readlink("/proc/self/ns/time", parents, sizeof(parents) - 1) > 0);
	pid = clone3(&arguments, 64);
	if (pid == 0) {
		readlink("/proc/self/ns/time", childs, sizeof(childs) - 1);
		_exit(strcmp(parents, childs) == 0);
	}
	if (pid < 0)
		CHECK(errno == EINVAL);
	else
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

CASE(the_word_of_a_bare_thread_is_cleared_and_woken)
{
	static char stack[16384] __attribute__((aligned(16)));
	int of_parent = 0, of_child = 0, tid;

	tid = clone(bare, stack + sizeof(stack),
		    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
		    CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID,
		    &of_child, &of_parent, NULL, &cleared);
	while (cleared)
		syscall(SYS_futex, &cleared, 0 /* FUTEX_WAIT */, 1, NULL, NULL, 0);
	CHECK(tid > 0 && of_parent == tid && of_child == tid);
}

/* A child looks for it, too. */
CASE(the_first_stack_is_known)
{
	int status;

	CHECK(stack_is_known());
	status = in_child(looks_for_stack);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 55);
}

CASE(exit_group_of_the_first_thread_ends_all)
{
	int status;

	status = in_child(exits_by_main);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 33);
}

CASE(exit_group_of_another_thread_ends_all)
{
	int status;

	status = in_child(exits_by_thread);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 44);
}

CASE(a_fault_ends_all_threads)
{
	int status;

	status = in_child(dies);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

CASE(sigkill_ends_all_threads)
{
	int status;

	status = in_child(killed);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

CASE(the_first_thread_may_end_before_others)
{
	int status;

	status = in_child(leader_exits_first);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

CASE(the_last_thread_leaves_the_status)
{
	int status;

	status = in_child(last_leaves_status);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 8);
}

CASE(execve_of_another_thread_ends_all)
{
	int status;

	status = in_child(executes_by_thread);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 21);
}
