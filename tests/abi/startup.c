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
