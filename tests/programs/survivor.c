// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Outlives Linux, and tells of it on the debug port 0xe9, a line at a time.
 *
 * survivor handler: waits in a call of Linux, with a handler for SIGPWR
 * survivor waits: waits for SIGPWR
 * survivor default: does nothing about SIGPWR
 * survivor memory: has a child that holds most of the realm's memory, and wants as much
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define REVOKED 1500	/* more than the table of revocations has entries */
#define MUCH (100ul << 20)

static const char *name;

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
	char line[256];
	int length = snprintf(line, sizeof(line), "%s: ", name);
	va_list list;

	va_start(list, format);
	length += vsnprintf(line + length, sizeof(line) - length - 1, format, list);
	va_end(list);
	line[length++] = '\n';
	for (int i = 0; i < length; i++)
		outb(line[i], 0xe9);
}

static void rest(long milliseconds)
{
	struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000 };

	nanosleep(&time, NULL);
}

/* Whether Linux still serves calls. */
static bool is_served(void)
{
	return syscall(SYS_getppid) >= 0;
}

static volatile sig_atomic_t told;

static void on_power(int signal, siginfo_t *info, void *context)
{
	told = info->si_code == SI_KERNEL ? signal : -1;
}

/* What the realm serves itself goes on. */
static void use_the_realm(void)
{
	struct sigaction action = { .sa_handler = SIG_IGN };
	char found[65536], byte = 'x';
	sigset_t set;
	int ends[2], words;
	ssize_t length, more;

	if (pipe(ends) || write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1)
		say("pipe: %m");
	sigfillset(&set);
	if (sigaction(SIGUSR1, &action, NULL) || sigprocmask(SIG_BLOCK, &set, NULL))
		say("signals: %m");
	words = open("/dev/last_kmsg", O_RDONLY | O_NONBLOCK);
	if (words < 0)
		say("open: %m");
	for (length = 0; (more = read(words, found, sizeof(found) - 1)) > 0; length = more)
		found[more] = 0;
	if (more || !length || !strstr(found, "Kernel panic"))
		say("last words: %zd bytes, %m", length);
	for (int i = 0; i < 20; i++)
		rest(10);
}

static void handler(void)
{
	struct sigaction action = { .sa_sigaction = on_power, .sa_flags = SA_SIGINFO };
	char *pages = mmap(NULL, 2 * REVOKED * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int file = open("/tmp/survivor", O_RDWR | O_CREAT, 0600);
	char byte;

	/* Pages that Linux has, each one apart. */
	for (int i = 0; i < REVOKED; i++)
		if (write(file, memset(pages + 2 * i * PAGE, i, PAGE), PAGE) != PAGE)
			say("write: %m");
	sigaction(SIGPWR, &action, NULL);
	say("ready");
	if (read(0, &byte, 1) != -1 || errno != EIO)
		say("read: %m");
	while (!told)
		rest(1);
	say("told by %d", told);
	if (is_served() || errno != EIO)
		say("getppid: %m");
	if (close(file) != -1 || errno != EIO)
		say("close: %m");
	for (int i = 0; i < REVOKED; i++)
		if (munmap(pages + 2 * i * PAGE, PAGE))
			say("munmap: %m");
	use_the_realm();
	say("done");
}

static void waits(void)
{
	struct timespec limit = { 1000, 0 };
	siginfo_t info = { 0 };
	sigset_t set;
	int signal;

	sigemptyset(&set);
	sigaddset(&set, SIGPWR);
	sigprocmask(SIG_BLOCK, &set, NULL);
	say("ready");
	signal = sigtimedwait(&set, &info, &limit);
	say("told by %d, code %d", signal, info.si_code);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	say("done");
}

static void by_default(void)
{
	say("ready");
	while (is_served())
		rest(10);
	for (int i = 0; i < 100; i++)
		rest(10);
	say("done");
}

static void *take(void)
{
	void *memory = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memset(memory, 1, MUCH);
}

static void memory(void)
{
	int ends[2];
	char byte;

	if (pipe(ends))
		say("pipe: %m");
	if (!fork()) {
		if (!take())
			say("child: %m");
		if (write(ends[1], "", 1) != 1)
			say("child: %m");
		while (is_served())
			rest(10);
		_exit(0);
	}
	close(ends[1]);
	if (read(ends[0], &byte, 1) != 1)
		say("read: %m");
	say("ready");
	/* The end of the pipe is the child's. Its memory comes back a little later. */
	while (read(ends[0], &byte, 1) > 0)
		;
	rest(1000);
	if (take())
		say("done");
}

int main(int argc, char **argv)
{
	name = argc > 1 ? argv[1] : "";
	if (ioperm(0xe9, 1, 1)) {
		perror("survivor: ioperm");
		return 1;
	}
	if (!strcmp(name, "handler"))
		handler();
	else if (!strcmp(name, "waits"))
		waits();
	else if (!strcmp(name, "default"))
		by_default();
	else
		memory();
	return 0;
}
