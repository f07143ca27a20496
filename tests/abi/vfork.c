// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/*
 * vfork, clone with CLONE_VM, posix_spawn, system and popen: shared memory, and a parent that
 * waits.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "children.h"
#include "moments.h"

extern char **environ;

static volatile int shared;
static volatile sig_atomic_t caught;
static char stack[4][65536] __attribute__((aligned(16)));

static void catch(int number)
{
	caught = number;
}

static int set_shared(void *argument)
{
	usleep(20000);
	shared = (long)argument;
	return 3;
}

/* Whether the child may go on. Its parent runs meanwhile. */
static volatile int told;

static int set_when_told(void *argument)
{
	while (!told)
		usleep(1000);
	shared = (long)argument;
	return 3;
}

/* From where the program reads a line, after which it ends. */
static int line_pipe[2];

static int execute(void *argument)
{
	char *const argv[] = { "sh", "-c", "read line; exit 5", NULL };

	shared = 8;
	usleep(10000);
	dup2(line_pipe[0], 0);
	execve(argument, argv, environ);
	shared = errno;
	_exit(127);
}

static int close_all(void *argument)
{
	(void)argument;
	signal(SIGUSR1, SIG_IGN);
	chdir("/");
	close(*(int *)argument);
	return 0;
}

static int sleeps(void *argument)
{
	(void)argument;
	for (;;)
		pause();
	return 0;
}

static int raises(void *argument)
{
	kill(getpid(), (long)argument);
	for (;;)
		pause();
	return 0;
}

static int nested(void *argument)
{
	pid_t pid;

	(void)argument;
	pid = clone(set_shared, stack[1] + sizeof(stack[1]), CLONE_VM | CLONE_VFORK | SIGCHLD,
		    (void *)21L);
	return WEXITSTATUS(status_of(pid)) + shared;
}

static int with_thread(void *argument)
{
	int status;
	pid_t pid = fork();

	(void)argument;
	if (pid == 0)
		_exit(6);
	status = status_of(pid);
	return WEXITSTATUS(status);
}

static void *spawner(void *argument)
{
	char *argv[] = { "true", NULL };
	long right = 1;
	pid_t pid;

	(void)argument;
	for (int i = 0; i < 5; i++) {
		right &= posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0;
		right &= status_of(pid) == 0;
	}
	return (void *)right;
}

/* Starts a child that shares the memory. */
static pid_t share(int (*f)(void *), int flags, void *argument)
{
	return clone(f, stack[0] + sizeof(stack[0]), CLONE_VM | flags | SIGCHLD, argument);
}

BEFORE_EACH
{
	shared = told = caught = 0;
	CHECK(pipe2(line_pipe, O_CLOEXEC) == 0);
}

CASE(a_parent_waits_for_the_end_of_its_child)
{
	long before;
	pid_t pid;

	before = milliseconds();
	pid = share(set_shared, CLONE_VFORK, (void *)7L);
	CHECK(pid > 0 && shared == 7 && milliseconds() - before >= 20);
	CHECK(WEXITSTATUS(status_of(pid)) == 3);
}

CASE(parent_and_child_of_vfork_share_memory)
{
	pid_t pid;

	pid = vfork();
	if (pid == 0) {
		shared = 12;
		_exit(9);
	}
	CHECK(shared == 12 && WEXITSTATUS(status_of(pid)) == 9);
}

CASE(a_parent_waits_for_execve_of_its_child)
{
	int status;
	pid_t pid;

	pid = share(execute, CLONE_VFORK, "/bin/sh");
	CHECK(pid > 0 && shared == 8 && waitpid(pid, &status, WNOHANG) == 0);
	CHECK(write(line_pipe[1], "go\n", 3) == 3 && WEXITSTATUS(status_of(pid)) == 5);
}

CASE(an_execve_that_fails_does_not_wake_the_parent)
{
	pid_t pid;

	pid = share(execute, CLONE_VFORK, "/nonexistent");
	CHECK(shared == ENOENT && WEXITSTATUS(status_of(pid)) == 127);
}

CASE(a_child_has_files_folder_and_handlers_of_its_own)
{
	int fd;
	pid_t pid;
	char here[256], after[256];

	signal(SIGUSR1, catch);
	getcwd(here, sizeof(here));
	fd = open("/dev/null", O_RDONLY);
	pid = share(close_all, CLONE_VFORK, &fd);
	CHECK(status_of(pid) == 0);
	CHECK(kill(getpid(), SIGUSR1) == 0 && caught == SIGUSR1);
	CHECK(strcmp(getcwd(after, sizeof(after)), here) == 0 && fcntl(fd, F_GETFD) == 0);
}

CASE(a_child_may_share_files_and_folder)
{
	int fd;
	pid_t pid;
	char here[256], after[256];

	getcwd(here, sizeof(here));
	fd = open("/dev/null", O_RDONLY);
	pid = share(close_all, CLONE_VFORK | CLONE_FILES | CLONE_FS, &fd);
	CHECK(status_of(pid) == 0);
	CHECK(strcmp(getcwd(after, sizeof(after)), "/") == 0);
	FAILS(EBADF, fcntl(fd, F_GETFD));
	chdir(here);
}

CASE(a_child_may_make_another_child)
{
	pid_t pid;

	pid = share(nested, CLONE_VFORK, NULL);
	CHECK(WEXITSTATUS(status_of(pid)) == 24 && shared == 21);
	pid = share(with_thread, CLONE_VFORK, NULL);
	CHECK(WEXITSTATUS(status_of(pid)) == 6);
}

CASE(a_signal_ends_a_child)
{
	int status;
	pid_t pid;

	pid = share(raises, CLONE_VFORK, (void *)(long)SIGTERM);
	status = status_of(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

CASE(without_clone_vfork_both_go_on)
{
	pid_t pid;

	shared = 21;
	pid = share(set_when_told, 0, (void *)30L);
	CHECK(shared == 21);
	told = 1;
	while (shared != 30)
		usleep(1000);
	CHECK(WEXITSTATUS(status_of(pid)) == 3);
}

CASE(a_child_that_shares_memory_can_be_killed)
{
	int status;
	pid_t pid;

	pid = share(sleeps, 0, NULL);
	CHECK(waitpid(pid, &status, WNOHANG) == 0 && kill(pid, SIGKILL) == 0);
	status = status_of(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

CASE(a_child_with_another_signal_is_waited_for_as_a_clone)
{
	int status;
	pid_t pid;

	pid = clone(set_shared, stack[0] + sizeof(stack[0]), CLONE_VM | CLONE_VFORK | SIGURG, NULL);
	FAILS(ECHILD, waitpid(pid, &status, 0));
	CHECK(waitpid(pid, &status, __WCLONE) == pid && WEXITSTATUS(status) == 3);
}

CASE(a_child_has_a_descriptor)
{
	int fd;
	pid_t pid;

	fd = -1;
	pid = clone(set_shared, stack[0] + sizeof(stack[0]),
		    CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, NULL, &fd);
	CHECK(pid > 0);
	CHECK(fd > 2 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
	CHECK(waitid(P_PIDFD, fd, &(siginfo_t){ 0 }, WEXITED) == 0);
}

CASE(posix_spawn_executes_a_program)
{
	char *argv[] = { "sh", "-c", "exit 4", NULL };
	pid_t pid;

	CHECK(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) == 0);
	CHECK(WEXITSTATUS(status_of(pid)) == 4);
}

CASE(posix_spawn_of_nothing_is_refused)
{
	char *argv[] = { "sh", "-c", "exit 4", NULL };
	pid_t pid;

	CHECK(posix_spawn(&pid, "/nonexistent", NULL, NULL, argv, environ) == ENOENT);
	CHECK(posix_spawnp(&pid, "nonexistent", NULL, NULL, argv, environ) == ENOENT);
}

CASE(posix_spawn_with_a_step_that_fails_leaves_no_child)
{
	char *argv[] = { "sh", "-c", "exit 4", NULL };
	posix_spawn_file_actions_t actions;
	int status;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 5, "/nonexistent", O_RDONLY, 0);
	CHECK(posix_spawn(&pid, "/bin/sh", &actions, NULL, argv, environ) == ENOENT);
	FAILS(ECHILD, waitpid(-1, &status, 0));
}

CASE(posix_spawn_sets_mask_and_handlers)
{
	char *argv[] = { "sh", "-c", "exit 4", NULL };
	posix_spawnattr_t attributes;
	sigset_t set;
	int status;
	pid_t pid;

	posix_spawnattr_init(&attributes);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	posix_spawnattr_setsigmask(&attributes, &set);
	posix_spawnattr_setsigdefault(&attributes, &set);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
						      POSIX_SPAWN_SETPGROUP);
	argv[2] = "kill -TERM $$; exit 2";
	CHECK(posix_spawn(&pid, "/bin/sh", NULL, &attributes, argv, environ) == 0);
	status = status_of(pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}

CASE(system_returns_the_status)
{
	CHECK(WEXITSTATUS(system("exit 3")) == 3 && system(NULL) != 0);
}

CASE(popen_reads_what_a_program_says)
{
	char line[64] = "";

	FILE *file = popen("echo hello; exit 6", "r");

	CHECK(file && fgets(line, sizeof(line), file) && strcmp(line, "hello\n") == 0);
	CHECK(file && WEXITSTATUS(pclose(file)) == 6);
}

CASE(threads_spawn_programs_at_once)
{
	pthread_t threads[4];
	long right = 1;
	void *result;

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, spawner, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &result);
		right &= (long)result;
	}
	CHECK(right);
}

static int toggles;

/* Ignores a signal, and does not, in turn. */
static void *toggle(void *unused)
{
	(void)unused;
	for (int i = 0; __atomic_load_n(&toggles, __ATOMIC_SEQ_CST); i++)
		signal(SIGUSR1, i % 2 ? SIG_DFL : SIG_IGN);
	return NULL;
}

/* The signal is sent by way of a group of processes. */
CASE(a_child_does_on_a_signal_what_it_says_whatever_other_threads_change)
{
	int wrong = 0;
	pthread_t thread;

	toggles = 1;
	CHECK(pthread_create(&thread, NULL, toggle, NULL) == 0);
	for (int i = 0; i < 100; i++) {
		volatile int ignores = 0;
		pid_t child = vfork();

		if (child == 0) {
			struct sigaction action;

			setpgid(0, 0);
			sigaction(SIGUSR1, NULL, &action);
			ignores = action.sa_handler == SIG_IGN;
			kill(0, SIGUSR1);
			usleep(1000);
			_exit(0);
		}
		wrong += status_of(child) != (ignores ? 0 : SIGUSR1);
	}
	__atomic_store_n(&toggles, 0, __ATOMIC_SEQ_CST);
	CHECK(pthread_join(thread, NULL) == 0 && wrong == 0);
}
