// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/* fork, execve, wait: memory, descriptors, signals, status. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

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
	int status = -1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(f());
	while (waitpid(pid, &status, 0) == -1 && errno == EINTR)
		;
	return status;
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

/* A real-time thread returns from fork before its child runs on the same CPU, which then keeps it for itself for a while. */
static int parent_first(void)
{
	struct sched_param low = { .sched_priority = 1 }, high = { .sched_priority = 2 };
	volatile int *first = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	clock_t begin;
	cpu_set_t set;
	pid_t pid;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0 || sched_setscheduler(0, SCHED_FIFO, &low) != 0)
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

static int execute_self(void)
{
	char *argv[] = { "processes", "second", "", NULL };
	char *envp[] = { "ONLY=this", NULL };

	execve("/proc/self/exe", argv, envp);
	return 99;
}

static int execute_other(void)
{
	execl("/bin/sh", "sh", "-c", "exit 17", NULL);
	return 99;
}

static int second(int argc, char **argv)
{
	int passed = argc == 3 && strcmp(argv[1], "second") == 0 && !*argv[2];

	passed &= environ[0] && strcmp(environ[0], "ONLY=this") == 0 && !environ[1];
	passed &= fcntl(50, F_GETFD) == 0 && fcntl(51, F_GETFD) == -1;
	passed &= signal(SIGUSR1, SIG_DFL) == SIG_DFL && signal(SIGUSR2, SIG_DFL) == SIG_IGN;
	return passed ? 23 : 24;
}

int main(int argc, char **argv)
{
	char *echo[] = { "echo", "spawned", NULL }, byte, line[10];
	int status, ends[2], fd;
	struct rusage usage;
	pid_t pid;

	if (argc > 1)
		return second(argc, argv);
	parent = getpid();
	signal(SIGCHLD, child_ended);
	shared_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	strcpy(shared_page, "before");
	heap = malloc(100000);
	heap[99999] = 'h';

	status = in_child(memory);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 11);
	CHECK(counter == 5 && strcmp(shared_page, "before") == 0 && heap[99999] == 'h');
	CHECK(children == 1);
	status = in_child(faults);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	status = in_child(generations);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == GENERATIONS);
	status = in_child(parent_first);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 31);
	FAILS(ECHILD, waitpid(-1, &status, 0));

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

	pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, WNOHANG) == 0);
	CHECK(kill(pid, SIGTERM) == 0 && waitpid(pid, &status, 0) == pid && WTERMSIG(status) == SIGTERM);

	fd = open("/dev/null", O_RDONLY);
	dup2(fd, 50);
	dup3(fd, 51, O_CLOEXEC);
	signal(SIGUSR1, child_ended);
	signal(SIGUSR2, SIG_IGN);
	status = in_child(execute_self);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 23);
	status = in_child(execute_other);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 17);
	FAILS(ENOENT, execv("/nonexistent", argv));
	FAILS(EACCES, execv("/etc/passwd", argv));
	FAILS(EACCES, execv("/etc", argv));
	FAILS(EFAULT, execv(at(16), argv));
	FAILS(EFAULT, execve("/bin/busybox", at(16), environ));

	fflush(stdout);
	CHECK(pipe(ends) == 0);
	posix_spawn_file_actions_t actions;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
	CHECK(posix_spawn(&pid, "/bin/echo", &actions, NULL, echo, environ) == 0);
	close(ends[1]);
	CHECK(read(ends[0], line, 8) == 8 && memcmp(line, "spawned\n", 8) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	status = system("exit 3");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);

	struct sigaction action = { .sa_handler = SIG_DFL };
	CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
	action.sa_flags = SA_NOCLDWAIT;
	CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
	pid = fork();
	if (pid == 0)
		_exit(0);
	FAILS(ECHILD, waitpid(pid, &status, 0));
	return finish();
}
