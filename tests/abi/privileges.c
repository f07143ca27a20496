// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Daemons give up their rights, or their root, and go on to fork, start threads and execute
 * programs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/stat.h>
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
