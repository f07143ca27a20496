// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Daemons give up their rights, or their root, and go on to fork, start threads and execute
 * programs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "children.h"

#define NOBODY 65534

extern char **environ;

static void *run(void *argument)
{
	return argument;
}

/* Runs a command by the shell, and returns its exit status. */
static int start(const char *command)
{
	char *arguments[] = { "sh", "-c", (char *)command, NULL };
	pid_t child;

	return posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ) ?
		       -1 : WEXITSTATUS(status_of(child));
}

/* What a process can do in any case. */
static void forks(void)
{
	pthread_t thread;
	void *result = NULL;
	pid_t child = fork();

	if (!child) {
		pid_t further = fork();

		_exit(further ? WEXITSTATUS(status_of(further)) : 7);
	}
	CHECK(child > 0 && exits_with(child, 7));
	child = vfork();
	if (!child)
		_exit(8);
	CHECK(child > 0 && exits_with(child, 8));
	CHECK(pthread_create(&thread, NULL, run, &result) == 0 &&
	      pthread_join(thread, &result) == 0 && result == &result);
}

/* Tells whether the calling thread has these ids, real and effective, each time that it asks. */
static int has_ids(uid_t real, uid_t effective, gid_t real_group, gid_t effective_group)
{
	int has = 1;

	for (int i = 0; i < 3; i++)
		has &= getuid() == real && geteuid() == effective && getgid() == real_group &&
		       getegid() == effective_group;
	return has;
}

/* The system calls themselves change the calling thread alone. */
static void set_ids(uid_t real, uid_t effective, gid_t real_group, gid_t effective_group)
{
	CHECK(syscall(SYS_setresgid, real_group, effective_group, -1) == 0);
	CHECK(syscall(SYS_setresuid, real, effective, -1) == 0);
}

static void *has_those_of_root(void *unused)
{
	(void)unused;
	return (void *)(long)has_ids(0, 0, 0, 0);
}

static void *has_others(void *unused)
{
	(void)unused;
	return (void *)(long)has_ids(0, 21, 32, 43);
}

static void *change_alone(void *unused)
{
	pthread_t thread;
	void *has = NULL;
	pid_t child;

	(void)unused;
	set_ids(0, 21, 32, 43);
	CHECK(has_ids(0, 21, 32, 43));
	CHECK(pthread_create(&thread, NULL, has_others, NULL) == 0 &&
	      pthread_join(thread, &has) == 0 && has);
	child = fork();
	if (!child)
		_exit(!has_ids(0, 21, 32, 43));
	CHECK(child > 0 && exits_with(child, 0));
	child = vfork();
	if (!child)
		_exit(geteuid() != 21 || getegid() != 43);
	CHECK(child > 0 && exits_with(child, 0));
	CHECK(syscall(SYS_setresuid, -1, 0, -1) == 0 && syscall(SYS_setregid, -1, 54) == 0);
	CHECK(has_ids(0, 0, 32, 54));
	FAILS(EINVAL, syscall(SYS_prctl, -1, 0, 0, 0, 0));
	CHECK(has_ids(0, 0, 32, 54));
	return NULL;
}

CASE(ids_are_those_of_the_thread)
{
	pthread_t thread;
	void *has = NULL;

	CHECK(has_ids(0, 0, 0, 0));
	CHECK(pthread_create(&thread, NULL, change_alone, NULL) == 0 &&
	      pthread_join(thread, NULL) == 0);
	CHECK(has_ids(0, 0, 0, 0));
	CHECK(pthread_create(&thread, NULL, has_those_of_root, NULL) == 0 &&
	      pthread_join(thread, &has) == 0 && has);
}

/* As setuid(2) of the C library has all threads change. */
static volatile int changed;

static void *await_change(void *unused)
{
	CHECK(has_ids(0, 0, 0, 0));
	changed = 1;
	while (changed != 2)
		usleep(1000);
	(void)unused;
	return (void *)(long)has_ids(NOBODY, NOBODY, NOBODY, NOBODY);
}

CASE(the_library_changes_the_ids_of_all_threads)
{
	pid_t child = fork();

	if (!child) {
		pthread_t thread;
		void *has = NULL;

		CHECK(pthread_create(&thread, NULL, await_change, NULL) == 0);
		while (!changed)
			usleep(1000);
		CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
		changed = 2;
		CHECK(pthread_join(thread, &has) == 0 && has);
		CHECK(has_ids(NOBODY, NOBODY, NOBODY, NOBODY));
		_exit(0);
	}
	CHECK(child > 0 && exits_with(child, 0));
}

/* Writes a map of ids of a process. */
static void map_ids(pid_t process, const char *which, const char *map)
{
	char path[60];
	int fd;

	sprintf(path, "/proc/%d/%s", process, which);
	fd = open(path, O_WRONLY);
	CHECK(fd >= 0 && write(fd, map, strlen(map)) == (ssize_t)strlen(map) && close(fd) == 0);
}

/* In a user namespace, others change what a process has. */
CASE(ids_of_a_namespace_are_what_others_make_of_them)
{
	int told[2], done[2];
	char byte;
	pid_t child;

	CHECK(pipe(told) == 0 && pipe(done) == 0);
	child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
	if (!child) {
		int before = has_ids(NOBODY, NOBODY, NOBODY, NOBODY);

		if (write(told[1], "", 1) != 1 || read(done[0], &byte, 1) != 1)
			_exit(3);
		_exit(before && has_ids(5, 5, 7, 7) ? 11 : 4);
	}
	CHECK(child > 0 && read(told[0], &byte, 1) == 1);
	map_ids(child, "uid_map", "5 0 1\n");
	map_ids(child, "gid_map", "7 0 1\n");
	CHECK(write(done[1], "", 1) == 1 && exits_with(child, 11));
}

/* The process forks, starts threads and executes programs. */
CASE(who_has_given_up_its_rights_goes_on)
{
	pid_t child = fork();

	if (!child) {
		CHECK(setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
		      setresuid(NOBODY, NOBODY, NOBODY) == 0);
		CHECK(getuid() == NOBODY && geteuid() == NOBODY && setuid(0) == -1);
		forks();
		CHECK(start("exit 9") == 9 && start("test \"$(id -u)\" = 65534") == 0);
		execl("/bin/sh", "sh", "-c", "test $(id -u) = 65534 && test $(seq 3 | wc -l) = 3 && exit 10", NULL);
		_exit(1);
	}
	CHECK(exits_with(child, 10));
}

/* The process has neither /dev nor /proc. */
CASE(who_has_given_up_its_root_goes_on)
{
	char folder[] = "/tmp/root-XXXXXX";
	pid_t child;

	CHECK(mkdtemp(folder) != NULL);
	child = fork();
	if (!child) {
		CHECK(chroot(folder) == 0 && chdir("/") == 0 && access("/dev", F_OK) == -1);
		forks();
		_exit(0);
	}
	CHECK(exits_with(child, 0) && rmdir(folder) == 0);
}
