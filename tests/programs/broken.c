// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Reads a page until it is broken: the program gets SIGBUS as under Linux, at that access and at
 * the next one, and can use the address again once it has unmapped the page.
 *
 * broken FILE [shared]: has Linux write the page to FILE, and prints where it is; its second byte
 * is 8 once it is only read; the page is one that others may map as well
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static volatile char *page;
static sigjmp_buf back;
static siginfo_t seen;

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	seen = *info;
	siglongjmp(back, 1);
}

static void fail(const char *what)
{
	printf("FAILED %s: code %d address %p bits %d\n", what, seen.si_code, seen.si_addr,
	       seen.si_addr_lsb);
	exit(1);
}

/* The page is broken. */
static void check(const char *what)
{
	char *address = seen.si_addr;

	if (seen.si_signo != SIGBUS || seen.si_code != BUS_MCEERR_AR || seen.si_addr_lsb != 12 ||
	    address < page || address >= page + PAGE)
		fail(what);
	memset(&seen, 0, sizeof(seen));
}

/* Neither reads nor writes succeed. */
static void touch(const char *what)
{
	if (!sigsetjmp(back, 1)) {
		(void)*page;
		fail(what);
	}
	check(what);
	if (!sigsetjmp(back, 1)) {
		*page = 8;
		fail(what);
	}
	check(what);
}

static char *map(void *where, int flags)
{
	void *mapped = mmap(where, PAGE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);

	if (mapped == MAP_FAILED)
		fail("mmap");
	return mapped;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	int file = open(argc > 1 ? argv[1] : "", O_CREAT | O_WRONLY, 0600);
	int status;
	pid_t child;

	page = map(NULL, argc > 2 ? MAP_SHARED : MAP_PRIVATE);
	memset((char *)page, 7, PAGE);
	if (file < 0 || sigaction(SIGBUS, &action, NULL) ||
	    pwrite(file, (char *)page, PAGE, 0) != PAGE)
		fail("start");
	printf("%p\n", (void *)page);
	fflush(stdout);
	page[1] = 8;
	if (!sigsetjmp(back, 1))
		for (;;)
			if (*page != 7)
				fail("contents");
	check("while it is read");
	touch("at the next access");
	if (mprotect((char *)page, PAGE, PROT_READ) ||
	    mprotect((char *)page, PAGE, PROT_READ | PROT_WRITE))
		fail("mprotect");
	touch("after mprotect");
	if (pwrite(file, (char *)page, PAGE, 0) >= 0)
		fail("Linux reads it");
	child = fork();
	if (!child) {
		touch("in a child");
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		fail("a child");
	if (munmap((char *)page, PAGE))
		fail("munmap");
	if (map((char *)page, MAP_PRIVATE | MAP_FIXED) != page || *page)
		fail("another page");
	*page = 1;
	puts("fine");
	return 0;
}
