// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/* What a program starts with: arguments, environment, auxiliary vector, thread-local storage, descriptors, ids. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include "check.h"

static __thread int initialised = 42;
static __thread char zero[100];

extern char **environ;

int main(int argc, char **argv)
{
	const Elf64_Phdr *headers = (void *)getauxval(AT_PHDR);
	const unsigned char *random = (void *)getauxval(AT_RANDOM);
	char line[256] = "", path[64];
	int fd;

	for (int i = 0; i < argc; i++)
		printf("argument %d: %s\n", i, i ? argv[i] : strrchr(argv[i], '/') + 1);
	CHECK(argv[argc] == NULL);
	CHECK(getenv("CHECKED") && strcmp(getenv("CHECKED"), "a b=c") == 0);
	CHECK((uintptr_t)argv < (uintptr_t)environ && environ == argv + argc + 1);
	CHECK(((uintptr_t)__builtin_frame_address(0) & 15) == 0);

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

	CHECK(initialised == 42 && zero[99] == 0);
	initialised = 7;
	CHECK(initialised == 7);

	CHECK(getpid() == syscall(SYS_gettid) && getppid() > 0);
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
	printf("comm: %s", line);
	close(fd);

	for (fd = 3; fd < 64 && fcntl(fd, F_GETFD) == -1; fd++)
		;
	CHECK(fd == 64);
	return finish();
}
