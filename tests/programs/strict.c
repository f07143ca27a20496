// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * strict: asks for a signal at each lapse of its real-time thread, by prctl, and says which come:
 * of a call of Linux, of a page that is touched for the first time, and of memory that is mapped.
 * Under Linux, which has no such option, it says so. With the argument `errors` it tells which
 * calls fail where that was asked for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
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

static void urgent(int policy, int priority)
{
	struct sched_param parameters = { .sched_priority = priority };

	if (sched_setscheduler(0, policy, &parameters))
		perror("sched_setscheduler");
}

#define CALLS 12
static struct {
	const char *name;
	int failed, error, signals, reason;
} calls[CALLS];
static int call_count;

static void note(const char *name, int failed)
{
	int error = errno;

	calls[call_count].name = name;
	calls[call_count].failed = failed;
	calls[call_count].error = error;
	calls[call_count].signals = count;
	calls[call_count++].reason = value;
	count = value = 0;
}

/* Calls of a real-time thread that Linux would make fail; nothing of them is done. */
static int with_errors(void)
{
	char byte = 'x', *arguments[] = { "/bin/false", NULL };
	int file = open("/etc/passwd", O_RDONLY), ends[2], i;
	pid_t pid = getpid();

	printf("from the start: %d\n", prctl(GET_STRICT));
	fflush(stdout);
	if (pipe(ends))
		perror("pipe");
	memset(calls, 0, sizeof(calls));
	urgent(SCHED_FIFO, 50);
	count = value = 0;
	note("access", access("/etc/passwd", R_OK) < 0);
	note("read", read(file, &byte, 1) < 0);
	note("close", close(file) < 0);
	note("kill", kill(1, 0) < 0);
	note("fork", fork() < 0);
	note("execve", execv(arguments[0], arguments) < 0);
	note("own signal", kill(pid, 0) < 0);
	note("queued signal", getuid() || geteuid() || getgid() || getegid() ||
			      sigqueue(pid, SIGURG, (union sigval) { 0 }) < 0);
	note("pipe", write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1);
	note("mapping", mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	urgent(SCHED_OTHER, 0);
	note("ordinary", lseek(file, 0, SEEK_CUR) != 0);
	for (i = 0; i < call_count; i++)
		printf("%s: %s, %d, %#x\n", calls[i].name,
		       !calls[i].failed ? "done" : calls[i].error == EREMOTE ? "EREMOTE" : "wrong",
		       calls[i].signals, calls[i].reason);
	return 0;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = lapsed, .sa_flags = SA_SIGINFO };
	volatile char *memory = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	sigaction(SIGXCPU, &action, NULL);
	if (argc > 1 && !strcmp(argv[1], "errors"))
		return with_errors();
	if (prctl(SET_STRICT, 1)) {
		printf("%s\n", errno == EINVAL ? "no such option" : strerror(errno));
		return 0;
	}
	if (prctl(GET_STRICT) != 1 || !prctl(SET_STRICT, 3) || errno != EINVAL)
		printf("the option is wrong\n");
	access("/etc/passwd", R_OK);
	tell("an ordinary thread");
	urgent(SCHED_FIFO, 50);
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
	urgent(SCHED_OTHER, 0);
	tell("the end of real time");
	return 0;
}
