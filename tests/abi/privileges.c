// SPDX-License-Identifier: MIT OR Apache-2.0
// Daemons give up their rights, or their root, and go on to fork, start threads and execute programs.
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"

#define NOBODY 65534

extern char **environ;

static void *run(void *argument)
{
	return argument;
}

/* The status with which a child ends. */
static int status(pid_t child)
{
	int result = -1;

	return waitpid(child, &result, 0) == child && WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

static int start(const char *command)
{
	char *arguments[] = { "sh", "-c", (char *)command, NULL };
	pid_t child;

	return posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ) ? -1 : status(child);
}

/* What a process can do in any case. Ends with its last step. */
static void forks(void)
{
	pthread_t thread;
	void *result = NULL;
	pid_t child = fork();

	if (!child) {
		pid_t further = fork();

		_exit(further ? status(further) : 7);
	}
	CHECK(child > 0 && status(child) == 7);
	child = vfork();
	if (!child)
		_exit(8);
	CHECK(child > 0 && status(child) == 8);
	CHECK(pthread_create(&thread, NULL, run, &failures) == 0 && pthread_join(thread, &result) == 0 && result == &failures);
}

int main(void)
{
	char folder[] = "/tmp/root-XXXXXX";
	pid_t child = fork();

	if (!child) {
		CHECK(setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
		CHECK(getuid() == NOBODY && geteuid() == NOBODY && setuid(0) == -1);
		forks();
		CHECK(start("exit 9") == 9 && start("test \"$(id -u)\" = 65534") == 0);
		fflush(stdout);
		if (!failures)
			execl("/bin/sh", "sh", "-c", "echo as $(id -u), $(seq 3 | wc -l) lines", NULL);
		_exit(1);
	}
	CHECK(status(child) == 0);

	/* Without /dev and /proc. */
	CHECK(mkdtemp(folder) != NULL);
	child = fork();
	if (!child) {
		CHECK(chroot(folder) == 0 && chdir("/") == 0 && access("/dev", F_OK) == -1);
		forks();
		_exit(finish());
	}
	CHECK(status(child) == 0 && rmdir(folder) == 0);
	return finish();
}
