// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * What a program starts with: arguments, environment, auxiliary vector, thread-local storage,
 * descriptors and ids.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define OWN_MAIN
#include "check.h"

static __thread int initialised = 42;
static __thread char zero[100];

extern char **environ;

/* What main was called with. */
static int argc;
static char **argv;
static int is_aligned;

CASE(arguments_and_environment_lie_in_order)
{
	for (int i = 0; i < argc; i++)
		SAY("argument %d: %s", i, i ? argv[i] : strrchr(argv[i], '/') + 1);
	CHECK(argv[argc] == NULL);
	CHECK(getenv("CHECKED") && strcmp(getenv("CHECKED"), "a b=c") == 0);
	CHECK((uintptr_t)argv < (uintptr_t)environ && environ == argv + argc + 1);
}

CASE(the_stack_is_aligned)
{
	CHECK(is_aligned);
}

CASE(the_auxiliary_vector_says_what_is_so)
{
	const Elf64_Phdr *headers = (void *)getauxval(AT_PHDR);
	const unsigned char *random = (void *)getauxval(AT_RANDOM);

	CHECK(getauxval(AT_PAGESZ) == 4096 && getauxval(AT_CLKTCK) == 100);
	CHECK(getauxval(AT_PHENT) == sizeof(Elf64_Phdr) && getauxval(AT_PHNUM) > 0);
	CHECK(headers[0].p_type != 0 && getauxval(AT_ENTRY) != 0 && getauxval(AT_BASE) == 0);
	CHECK(getauxval(AT_UID) == getuid() && getauxval(AT_EUID) == geteuid());
	CHECK(getauxval(AT_GID) == getgid() && getauxval(AT_EGID) == getegid());
	CHECK(getauxval(AT_SECURE) == 0 && strcmp((char *)getauxval(AT_PLATFORM), "x86_64") == 0);
	CHECK(strcmp(strrchr((char *)getauxval(AT_EXECFN), '/'), strrchr(argv[0], '/')) == 0);
	CHECK(random && memcmp(random, random + 8, 8) != 0);
	CHECK(getauxval(AT_MINSIGSTKSZ) >= 1000 && getauxval(AT_MINSIGSTKSZ) < 20000);
	CHECK(getauxval(AT_HWCAP) != 0);
}

CASE(variables_of_the_thread_have_their_values)
{
	CHECK(initialised == 42 && zero[99] == 0);
	initialised = 7;
	CHECK(initialised == 7);
}

CASE(the_process_has_ids)
{
	CHECK(getpid() == syscall(SYS_gettid) && getppid() > 0);
}

CASE(proc_shows_the_process)
{
	char line[256] = "", path[64];
	int fd;

	fd = open("/proc/self/stat", O_RDONLY);
	CHECK(fd == 3);
	CHECK(read(fd, line, sizeof(line) - 1) > 0 && atoi(line) == getpid());
	close(fd);
	sprintf(path, "/proc/%d/cmdline", getpid());
	fd = open(path, O_RDONLY);
	CHECK(read(fd, line, sizeof(line)) > 0 && strcmp(line, argv[0]) == 0);
	close(fd);
	fd = open("/proc/self/comm", O_RDONLY);
	memset(line, 0, sizeof(line));
	CHECK(read(fd, line, sizeof(line) - 1) > 0);
	SAY("comm: %.*s", (int)strcspn(line, "\n"), line);
	close(fd);
}

/* Programs look for themselves so: by their own link in /proc, and by that of their number. */
CASE(links_of_proc_lead_to_the_executable)
{
	char own[4096] = "", link[64], path[4096];
	const char *links[] = { "/proc/self/exe", link };
	struct stat file, found;

	sprintf(link, "/proc/%d/exe", getpid());
	CHECK(readlink("/proc/self/exe", own, sizeof(own) - 1) > 0 && stat(own, &file) == 0);
	for (int i = 0; i < 2; i++) {
		int fd;

		PART("%s", links[i]);
		memset(path, 0, sizeof(path));
		CHECK(readlinkat(AT_FDCWD, links[i], path, sizeof(path) - 1) > 0);
		CHECK(strcmp(path, own) == 0);
		CHECK(stat(links[i], &found) == 0 && found.st_ino == file.st_ino);
		CHECK(found.st_size == file.st_size && found.st_dev == file.st_dev);
		fd = open(links[i], O_RDONLY);
		CHECK(fd >= 0 && fstat(fd, &found) == 0 && found.st_ino == file.st_ino);
		CHECK(found.st_dev == file.st_dev && close(fd) == 0);
		CHECK(syscall(SYS_open, links[i], O_RDONLY) == fd && close(fd) == 0);
		CHECK(access(links[i], X_OK) == 0);
		FAILS(ELOOP, open(links[i], O_RDONLY | O_NOFOLLOW));
	}
	sprintf(link, "/proc/%d/exec", getpid());
	FAILS(ENOENT, open(link, O_RDONLY));
}

CASE(nothing_else_is_open)
{
	int fd;

	for (fd = 3; fd < 64 && fcntl(fd, F_GETFD) == -1; fd++)
		;
	CHECK(fd == 64);
}

int main(int count, char **arguments)
{
	argc = count;
	argv = arguments;
	is_aligned = ((uintptr_t)__builtin_frame_address(0) & 15) == 0;
	return run_cases(1, arguments);
}
