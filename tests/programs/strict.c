// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * strict: asks for a signal at each lapse of its real-time thread, by prctl, and says which come:
 * of a call of Linux, of a page that is touched for the first time, and of memory that is mapped.
 * Under Linux, which has no such option, it says so.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define GET_STRICT 0x43525401
#define SET_STRICT 0x43525402
#define PAGES 4

static volatile sig_atomic_t count, code, value;

static void lapsed(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	count++;
	code = info->si_code;
	value = info->si_value.sival_int;
}

static void tell(const char *what)
{
	int seen = count, reason = value, queued = code == SI_QUEUE;

	/* To print is a lapse as well. */
	prctl(SET_STRICT, 0);
	printf("%s: %d, %#x%s\n", what, seen, reason, queued || !seen ? "" : ", wrong code");
	fflush(stdout);
	count = value = 0;
	prctl(SET_STRICT, 1);
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = lapsed, .sa_flags = SA_SIGINFO };
	struct sched_param urgent = { .sched_priority = 50 };
	volatile char *memory = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (prctl(SET_STRICT, 1)) {
		printf("%s\n", errno == EINVAL ? "no such option" : strerror(errno));
		return 0;
	}
	if (prctl(GET_STRICT) != 1 || !prctl(SET_STRICT, 2) || errno != EINVAL)
		printf("the option is wrong\n");
	sigaction(SIGXCPU, &action, NULL);
	access("/etc/passwd", R_OK);
	tell("an ordinary thread");
	if (sched_setscheduler(0, SCHED_FIFO, &urgent))
		perror("sched_setscheduler");
	tell("the start of real time");
	getpid();
	tell("a call of the realm");
	access("/etc/passwd", R_OK);
	tell("a call of Linux");
	memory[0] = 1;
	tell("a page");
	memory[0] = 2;
	tell("the same page");
	mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	tell("a mapping");
	urgent.sched_priority = 0;
	sched_setscheduler(0, SCHED_OTHER, &urgent);
	tell("the end of real time");
	return 0;
}
