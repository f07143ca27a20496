// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * execve and execveat of programs and scripts: how the first line of a script is read, what the
 * interpreter is given, and what it inherits; files that are found by a descriptor.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define OWN_MAIN
#include "check.h"

extern char **environ;

/* Where the pipe to the test lies in an interpreter. */
enum { PIPE = 20, CLOSED = 21 };

static char self[200];

/* Is the interpreter of a script: tells what it was given. Returns the exit status. */
static int interpret(int count, char **arguments)
{
	const char *path = (char *)getauxval(AT_EXECFN);
	char name[17] = "", link[200] = "", text[2000];
	int length = 0;

	/* Linux names what is found by a descriptor alone after that, since 6.14 after itself. */
	if (strncmp(path, "/dev/fd/", 8) || strchr(path + 8, '/'))
		prctl(PR_GET_NAME, name);
	if (readlink("/proc/self/exe", link, sizeof(link) - 1) < 0)
		return 1;
	for (int i = 1; i < count; i++)
		length += snprintf(text + length, sizeof(text) - length, "[%.30s]", arguments[i]);
	length += snprintf(text + length, sizeof(text) - length, " %d %s %s %s", count,
			   path, name, strcmp(link, self) ? link : "self");
	if (fcntl(CLOSED, F_GETFD) != -1)
		return 2;
	return write(PIPE, text, length) != length;
}

/* Makes a file with this text and mode. */
static void file(const char *name, const char *text, size_t length, int mode)
{
	unlink(name);
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	CHECK(write(fd, text, length) == (ssize_t)length && fchmod(fd, mode) == 0 &&
	      close(fd) == 0);
}

/* Makes a script with this first line, in which a % is this program. Returns its name. */
static const char *script(const char *name, const char *line)
{
	char text[4000];
	const char *mark = strchr(line, '%');
	int length = mark ? snprintf(text, sizeof(text), "%.*s%s%s", (int)(mark - line), line, self,
				     mark + 1)
			  : snprintf(text, sizeof(text), "%s", line);

	file(name, text, length, 0755);
	return name;
}

/* Executes a file by execveat, and prints what it or its interpreter says, or why there is none. */
static void run_at(const char *what, int directory, const char *path, char **arguments, int flags)
{
	char text[2000];
	int ends[2], status, length = 0, got;

	CHECK(pipe(ends) == 0);
	pid_t child = fork();

	if (child == 0) {
		dup2(ends[1], PIPE);
		dup2(ends[1], CLOSED);
		fcntl(CLOSED, F_SETFD, FD_CLOEXEC);
		if (directory == AT_FDCWD)
			syscall(SYS_close_range, 3, PIPE - 1, 0);
		if (directory == AT_FDCWD && flags == 0)
			execve(path, arguments, environ);
		else
			syscall(SYS_execveat, directory, path, arguments, environ, flags);
		_exit(errno);
	}
	close(ends[1]);
	while ((got = read(ends[0], text + length, sizeof(text) - 1 - length)) > 0)
		length += got;
	close(ends[0]);
	text[length] = 0;
	waitpid(child, &status, 0);
	SAY("%s: %s, %s", what, text, WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "killed");
}

static void run(const char *what, const char *path, char **arguments)
{
	run_at(what, AT_FDCWD, path, arguments, 0);
}

#define RUN(line, ...) run(line, script("s", line), (char *[]){ __VA_ARGS__, NULL })

static char folder[] = "/tmp/scripts-XXXXXX";

/* Removes the folder with all files that cases make. */
static void remove_folder(void)
{
	static const char *const names[] = { "0", "1", "2", "3", "4", "5", "6", "7", "s", "t", "x", "fifo" };

	if (chdir(folder) != 0)
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		unlink(names[i]);
	rmdir(folder);
}

BEFORE_EACH
{
	static int made;

	syscall(SYS_close_range, 3, ~0U, 0);
	CHECK(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	CHECK(made || (mkdtemp(folder) && atexit(remove_folder) == 0));
	CHECK(chdir(folder) == 0);
	made = 1;
}

CASE(an_interpreter_is_given_the_rest_of_the_line)
{
	RUN("#!%\n", "name", "one", "two");
	RUN("#! \t% \t\n", "name");
	RUN("#!% argument\n", "name", "one");
	RUN("#!%\t -a  b c \t\nmore\n", "name", "one");
	RUN("#!%", "name");
	RUN("#!% x", "name");
	RUN("#!%\r\n", "name");
}

CASE(a_line_without_an_interpreter_is_refused)
{
	RUN("#!\n", "name");
	RUN("#!", "name");
	RUN("#!  \t ", "name");
	RUN("#! \n%\n", "name");
	RUN(" #!%\n", "name");
	RUN("echo text\n", "name");
	RUN("", "name");
}

CASE(an_interpreter_that_is_none_is_refused)
{
	RUN("#!/absent/interpreter\n", "name");
	RUN("#!/tmp\n", "name");
	RUN("#!/etc/passwd\n", "name");
	RUN("#!./s\n", "name");
}

CASE(a_zero_ends_the_line)
{
	file("s", "#!./x\0 y\n", 9, 0755);
	script("x", "#!%\n");
	run("a zero in the line", "./s", (char *[]){ "name", NULL });
}

CASE(arguments_may_be_missing)
{
	RUN("#!%\n", "");
	run("no arguments", "./s", (char *[]){ NULL });
	run("no vector", "./s", NULL);
	run("no arguments of a program", self, (char *[]){ NULL });
}

CASE(a_script_has_to_be_executable)
{
	script("x", "#!%\n");
	file("s", "#!./x\n", 6, 0644);
	run("not executable", "./s", (char *[]){ "name", NULL });
}

/* Arguments and blanks reach up to and over the end of what is looked at. */
CASE(a_long_line_is_cut)
{
	char line[1000];
	const int rest[] = { 240, 254, 255, 256, 300 };

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
}

/* The names are like ././././x. */
CASE(a_long_name_is_refused)
{
	char line[1000];
	const int rest[] = { 240, 254, 255, 256, 300 };

	script("x", "#!%\n");
	for (int i = 0; i < 5; i++) {
		int length = snprintf(line, sizeof(line), "#!");

		while (length < rest[i] - 1 - (rest[i] & 1))
			length += sprintf(line + length, "./");
		length += sprintf(line + length, rest[i] & 1 ? "x" : "x\n");
		file("s", line, length, 0755);
		run("a long name", "./s", (char *[]){ "name", NULL });
	}
}

/* Linux follows them to a certain depth. */
CASE(scripts_are_interpreters_of_scripts)
{
	char name[] = "./0", line[] = "#!./0 argument-0\n";

	script("0", "#!%\n");
	for (int depth = 1; depth < 8; depth++) {
		name[2] = '0' + depth;
		line[4] = '0' + depth - 1;
		line[15] = '0' + depth;
		run(line, script(name, line), (char *[]){ "name", "one", NULL });
	}
}

CASE(env_finds_an_interpreter)
{
	script("0", "#!%\n");
	RUN("#!/usr/bin/env ./0\n", "name", "one");
}

CASE(posix_spawn_executes_a_script)
{
	char text[2000] = "";
	int ends[2], status;
	pid_t child;
	posix_spawn_file_actions_t actions;

	script("s", "#!% spawned\n");
	CHECK(pipe(ends) == 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], PIPE);
	CHECK(posix_spawn(&child, "./s", &actions, NULL, (char *[]){ "name", NULL }, environ) == 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(read(ends[0], text, sizeof(text) - 1) > 0);
	SAY("%s", text);
	CHECK(posix_spawn(&child, "./absent", &actions, NULL, (char *[]){ "name", NULL }, environ) == ENOENT);
}

CASE(the_shell_executes_what_the_kernel_does_not_want)
{
	int status;
	pid_t child;

	script("s", "echo shell $0 $1\n");
	CHECK(posix_spawnp(&child, "./s", NULL, NULL, (char *[]){ "name", "one", NULL }, environ) == ENOEXEC);
	child = fork();
	if (child == 0) {
		execvp("./s", (char *[]){ "name", "one", NULL });
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

CASE(a_script_that_fails_changes_nothing)
{
	char text[2000] = "";
	int ends[2];

	CHECK(pipe(ends) == 0);
	script("s", "#!/absent/interpreter\n");
	FAILS(ENOENT, execl("./s", "s", NULL));
	int null = open("/dev/null", O_WRONLY);

	FAILS(ENOENT, execl("./s", "s", NULL));
	CHECK(write(null, "x", 1) == 1 && write(ends[1], "y", 1) == 1 &&
	      read(ends[0], text, 10) == 1 && text[0] == 'y');
}

CASE(special_files_and_folders_are_not_executed)
{
	mkfifo("fifo", 0777);
	chmod("fifo", 0777);
	FAILS(EACCES, execl("./fifo", "fifo", NULL));
	FAILS(EACCES, execl(".", ".", NULL));
}

CASE(a_descriptor_goes_through_two_programs)
{
	char text[2000] = "";
	int ends[2], status;
	pid_t child;

	CHECK(pipe(ends) == 0);
	dup2(ends[1], PIPE);
	child = fork();
	if (child == 0) {
		script("s", "#!/bin/sh\nexec ./t $0\n");
		script("t", "#!% last\n");
		execl("./s", "s", NULL);
		_exit(1);
	}
	memset(text, 0, sizeof(text));
	CHECK(waitpid(child, &status, 0) == child && status == 0 &&
	      read(ends[0], text, sizeof(text) - 1) > 0);
	SAY("%s", text);
}

#define AT(what, directory, path, flags) \
	run_at(what, directory, path, (char *[]){ "name", "one", NULL }, flags)

CASE(execveat_finds_a_program_below_a_directory)
{
	int here = open(".", O_PATH | O_DIRECTORY), file = open("/etc/passwd", O_RDONLY);

	unlink("x");
	unlink("t");
	CHECK(here >= 0 && file >= 0 && symlink(self, "x") == 0 && symlink("absent", "t") == 0);
	AT("a link", here, "x", 0);
	AT("a link, where none is followed", here, "x", AT_SYMLINK_NOFOLLOW);
	AT("a link to nothing", here, "t", 0);
	AT("the same, where none is followed", here, "t", AT_SYMLINK_NOFOLLOW);
	AT("by its path", here, self, 0);
	AT("by its path and no descriptor", -1, self, 0);
	AT("by its path, where no link is followed", -1, self, AT_SYMLINK_NOFOLLOW);
	AT("from the working directory", AT_FDCWD, "x", AT_SYMLINK_NOFOLLOW);
	AT("nothing", here, "absent", 0);
	AT("no descriptor", -1, "x", 0);
	AT("a closed descriptor", 77, "x", 0);
	AT("in no directory", file, "x", 0);
	AT("unknown flags", here, "x", 1);
	AT("unknown flags, and no name", here, "", 1);
	script("s", "#!% argument\n");
	AT("a script", here, "s", 0);
	fcntl(here, F_SETFD, FD_CLOEXEC);
	AT("a script below what is closed", here, "s", 0);
	AT("a program below what is closed", here, "x", 0);
}

CASE(execveat_takes_the_file_of_a_descriptor)
{
	int program = open(self, O_PATH), readable = open(self, O_RDONLY | O_CLOEXEC);
	int here = open(".", O_RDONLY), local = eventfd(0, 0), data = open("/etc/passwd", O_RDONLY);

	CHECK(program >= 0 && readable >= 0 && here >= 0 && local >= 0 && data >= 0);
	AT("by a path alone", program, "", AT_EMPTY_PATH);
	AT("by a path alone, where no link is followed", program, "",
	   AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
	AT("readable, and closed", readable, "", AT_EMPTY_PATH);
	AT("no name", program, "", 0);
	AT("a directory", here, "", AT_EMPTY_PATH);
	AT("the working directory", AT_FDCWD, "", AT_EMPTY_PATH);
	AT("no program", data, "", AT_EMPTY_PATH);
	AT("no file", local, "", AT_EMPTY_PATH);
	AT("below no file", local, "x", AT_EMPTY_PATH);
	AT("no descriptor", -1, "", AT_EMPTY_PATH);
	AT("a closed descriptor", 77, "", AT_EMPTY_PATH);
	script("s", "#!% argument\n");
	int open_script = open("s", O_RDONLY), closed_script = open("s", O_RDONLY | O_CLOEXEC);

	AT("a script", open_script, "", AT_EMPTY_PATH);
	AT("a script that is closed", closed_script, "", AT_EMPTY_PATH);
	CHECK(unlink("s") == 0);
	AT("a script that is not there any more", open_script, "", AT_EMPTY_PATH);
}

CASE(execveat_takes_a_name_as_others_do)
{
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *end = page + 4096, *arguments[] = { "name", NULL };
	size_t length = strlen(self) + 1;

	CHECK(page != MAP_FAILED && munmap(end, 4096) == 0);
	FAILS(EFAULT, syscall(SYS_execveat, AT_FDCWD, NULL, arguments, environ, 0));
	FAILS(EFAULT, syscall(SYS_execveat, AT_FDCWD, end, arguments, environ, 0));
	memset(page, 'a', 4096);
	FAILS(EFAULT, syscall(SYS_execveat, AT_FDCWD, end - 10, arguments, environ, 0));
	FAILS(ENAMETOOLONG, syscall(SYS_execveat, AT_FDCWD, page, arguments, environ, 0));
	page[4095] = 0;
	FAILS(ENAMETOOLONG, syscall(SYS_execveat, AT_FDCWD, page + 1, arguments, environ, 0));
	memcpy(end - length, self, length);
	run_at("at the end of memory", AT_FDCWD, end - length, arguments, 0);
	run_at("at the end of memory", 0, end - length, arguments, AT_SYMLINK_NOFOLLOW);
}

CASE(fexecve_executes_a_file_without_a_name)
{
	int memory = memfd_create("program", MFD_CLOEXEC), file = open(self, O_RDONLY), got;
	static char bytes[1 << 16];

	CHECK(memory >= 0 && file >= 0);
	while ((got = read(file, bytes, sizeof(bytes))) > 0)
		CHECK(write(memory, bytes, got) == got);
	int ends[2], status;

	CHECK(pipe(ends) == 0);
	pid_t child = fork();

	if (child == 0) {
		dup2(ends[1], PIPE);
		fexecve(memory, (char *[]){ "name", "one", NULL }, environ);
		_exit(99);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK((got = read(ends[0], bytes, 20)) > 0);
	bytes[got] = 0;
	SAY("%s", bytes);
}

int main(int count, char **arguments)
{
	if (fcntl(PIPE, F_GETFD) == 0)
		return readlink("/proc/self/exe", self, sizeof(self) - 1) < 0 ? 1 : interpret(count, arguments);
	return run_cases(count, arguments);
}
