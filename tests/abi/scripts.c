// SPDX-License-Identifier: MIT OR Apache-2.0
/* execve of scripts: how their first line is read, what the interpreter is given, and what it inherits. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

extern char **environ;

/* Where the pipe to the test lies in an interpreter. */
enum { PIPE = 20, CLOSED = 21 };

static char self[200];

/* What this program does as an interpreter: it tells what it was given. */
static int interpret(int count, char **arguments)
{
	char name[17] = "", link[200] = "", text[2000];
	int length = 0;

	prctl(PR_GET_NAME, name);
	if (readlink("/proc/self/exe", link, sizeof(link) - 1) < 0)
		return 1;
	for (int i = 1; i < count; i++)
		length += snprintf(text + length, sizeof(text) - length, "[%.30s]", arguments[i]);
	length += snprintf(text + length, sizeof(text) - length, " %d %s %s %s", count, (char *)getauxval(AT_EXECFN), name,
			   strcmp(link, self) ? link : "self");
	if (fcntl(CLOSED, F_GETFD) != -1)
		return 2;
	return write(PIPE, text, length) != length;
}

static void file(const char *name, const char *text, size_t length, int mode)
{
	unlink(name);
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	if (write(fd, text, length) != (ssize_t)length || fchmod(fd, mode) != 0 || close(fd) != 0)
		exit(3);
}

/* A script with this first line, in which a % is this program. */
static const char *script(const char *name, const char *line)
{
	char text[4000];
	const char *mark = strchr(line, '%');
	int length = mark ? snprintf(text, sizeof(text), "%.*s%s%s", (int)(mark - line), line, self, mark + 1)
			  : snprintf(text, sizeof(text), "%s", line);

	file(name, text, length, 0755);
	return name;
}

/* Executes a file and prints what its interpreter says, or why there is none. */
static void run(const char *what, const char *path, char **arguments)
{
	char text[2000];
	int ends[2], status, length = 0, got;

	if (pipe(ends) != 0)
		exit(4);
	pid_t child = fork();

	if (child == 0) {
		dup2(ends[1], PIPE);
		dup2(ends[1], CLOSED);
		fcntl(CLOSED, F_SETFD, FD_CLOEXEC);
		syscall(SYS_close_range, 3, PIPE - 1, 0);
		execve(path, arguments, environ);
		_exit(errno);
	}
	close(ends[1]);
	while ((got = read(ends[0], text + length, sizeof(text) - 1 - length)) > 0)
		length += got;
	close(ends[0]);
	text[length] = 0;
	waitpid(child, &status, 0);
	printf("%s: %s, %s\n", what, text, WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "killed");
	fflush(stdout);
}

#define RUN(line, ...) run(line, script("s", line), (char *[]){ __VA_ARGS__, NULL })

static void lines(void)
{
	RUN("#!%\n", "name", "one", "two");
	RUN("#! \t% \t\n", "name");
	RUN("#!% argument\n", "name", "one");
	RUN("#!%\t -a  b c \t\nmore\n", "name", "one");
	RUN("#!%", "name");
	RUN("#!% x", "name");
	RUN("#!%\r\n", "name");
	RUN("#!\n", "name");
	RUN("#!", "name");
	RUN("#!  \t ", "name");
	RUN("#! \n%\n", "name");
	RUN(" #!%\n", "name");
	RUN("echo text\n", "name");
	RUN("", "name");
	RUN("#!/absent/interpreter\n", "name");
	RUN("#!/tmp\n", "name");
	RUN("#!/etc/passwd\n", "name");
	RUN("#!./s\n", "name");
	file("s", "#!./x\0 y\n", 9, 0755);
	script("x", "#!%\n");
	run("a zero in the line", "./s", (char *[]){ "name", NULL });
	file("s", "#!./x\n", 6, 0600);
	RUN("#!%\n", "");
	run("no arguments", "./s", (char *[]){ NULL });
	run("no vector", "./s", NULL);
	run("no arguments of a program", self, (char *[]){ NULL });
	file("s", "#!./x\n", 6, 0644);
	run("not executable", "./s", (char *[]){ "name", NULL });
}

static void lengths(void)
{
	char line[1000];
	const int rest[] = { 240, 254, 255, 256, 300 };

	/* Arguments and blanks up to and over the end of what is looked at. */
	for (int i = 0; i < 5; i++) {
		int length = snprintf(line, sizeof(line), "#!%s ", self);

		memset(line + length, 'a', sizeof(line) - length);
		line[rest[i]] = '\n';
		file("s", line, rest[i] + 1, 0755);
		run("a long argument", "./s", (char *[]){ "name", NULL });
		memset(line + length, ' ', rest[i] - length);
		file("s", line, rest[i] + 1, 0755);
		run("many blanks", "./s", (char *[]){ "name", NULL });
	}
	/* Names: ././././x */
	for (int i = 0; i < 5; i++) {
		int length = snprintf(line, sizeof(line), "#!");

		while (length < rest[i] - 1 - (rest[i] & 1))
			length += sprintf(line + length, "./");
		length += sprintf(line + length, rest[i] & 1 ? "x" : "x\n");
		file("s", line, length, 0755);
		run("a long name", "./s", (char *[]){ "name", NULL });
	}
}

static void nests(void)
{
	char name[] = "./0", line[] = "#!./0 argument-0\n";

	script("0", "#!%\n");
	for (int depth = 1; depth < 8; depth++) {
		name[2] = '0' + depth;
		line[4] = '0' + depth - 1;
		line[15] = '0' + depth;
		run(line, script(name, line), (char *[]){ "name", "one", NULL });
	}
	RUN("#!/usr/bin/env ./0\n", "name", "one");
}

/* By the other ways to make a process, and without a fork. */
static void ways(void)
{
	char text[2000] = "";
	int ends[2], status;
	pid_t child;
	posix_spawn_file_actions_t actions;

	script("s", "#!% spawned\n");
	if (pipe(ends) != 0)
		exit(5);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], PIPE);
	CHECK(posix_spawn(&child, "./s", &actions, NULL, (char *[]){ "name", NULL }, environ) == 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(read(ends[0], text, sizeof(text) - 1) > 0);
	puts(text);
	CHECK(posix_spawn(&child, "./absent", &actions, NULL, (char *[]){ "name", NULL }, environ) == ENOENT);
	/* The C library gives to the shell what the kernel does not want. */
	script("s", "echo shell $0 $1\n");
	fflush(stdout);
	CHECK(posix_spawnp(&child, "./s", NULL, NULL, (char *[]){ "name", "one", NULL }, environ) == ENOEXEC);
	child = fork();
	if (child == 0) {
		execvp("./s", (char *[]){ "name", "one", NULL });
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	/* What fails changes nothing. */
	script("s", "#!/absent/interpreter\n");
	FAILS(ENOENT, execl("./s", "s", NULL));
	int null = open("/dev/null", O_WRONLY);

	FAILS(ENOENT, execl("./s", "s", NULL));
	CHECK(write(null, "x", 1) == 1 && write(ends[1], "y", 1) == 1 && read(ends[0], text, 10) == 1 && text[0] == 'y');
	mkfifo("fifo", 0777);
	chmod("fifo", 0777);
	FAILS(EACCES, execl("./fifo", "fifo", NULL));
	FAILS(EACCES, execl(".", ".", NULL));
	CHECK(pipe(ends) == 0);
	dup2(ends[1], PIPE);
	script("s", "#!% last\n");
	child = fork();
	if (child == 0) {
		/* The pipe goes through two programs. */
		script("s", "#!/bin/sh\nexec ./t $0\n");
		script("t", "#!% last\n");
		execl("./s", "s", NULL);
		_exit(1);
	}
	memset(text, 0, sizeof(text));
	CHECK(waitpid(child, &status, 0) == child && status == 0 && read(ends[0], text, sizeof(text) - 1) > 0);
	puts(text);
}

int main(int count, char **arguments)
{
	char folder[] = "/tmp/scripts-XXXXXX";

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 1;
	if (fcntl(PIPE, F_GETFD) == 0)
		return interpret(count, arguments);
	syscall(SYS_close_range, 3, ~0U, 0);
	if (!mkdtemp(folder) || chdir(folder) != 0)
		return 1;
	lines();
	lengths();
	nests();
	ways();
	for (int i = 0; i < 8; i++)
		unlink((char[]){ '0' + i, 0 });
	unlink("s");
	unlink("t");
	unlink("x");
	unlink("fifo");
	rmdir(folder);
	return finish();
}
