/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Named cases with checks. A test is a list of cases, each a function:
 *
 *	CASE(a_pipe_without_writers_has_ended)
 *	{
 *		CHECK(read(ends[0], &byte, 1) == 0);
 *	}
 *
 * The program runs all cases in the order of the source, or those that its arguments name. It
 * names each case on stderr before it runs it, so that one that crashes or hangs is known, and
 * prints one line for it on stdout afterwards. It ends with 1 if a case failed.
 *
 * A check that fails ends its case, in whichever thread it is made: the program executes itself
 * and goes on with the next case, without the threads, handlers and memory of the one that failed.
 */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the program consists of. Exactly one of the functions is there. */
struct entry {
	const char *name;
	void (*run)(void);
	void (*prepare)(void);
	int (*play)(int count, char **arguments);
};

/* The linker makes a table of all that the source registers. */
extern const struct entry *const __start_entries[], *const __stop_entries[];

#define REGISTER(kind, label, ...) \
	static const struct entry entry_of_##kind##_##label = { __VA_ARGS__ }; \
	static const struct entry *const place_of_##kind##_##label \
		__attribute__((used, no_reorder, section("entries"))) = &entry_of_##kind##_##label

/* Defines a case: what the system guarantees is its name. */
#define CASE(label) \
	static void case_##label(void); \
	REGISTER(case, label, .name = #label, .run = case_##label); \
	static void case_##label(void)

/* Defines what is done before each case of the program. */
#define BEFORE_EACH \
	static void before_each(void); \
	REGISTER(preparation, each, .prepare = before_each); \
	static void before_each(void)

/*
 * Defines what the program does instead of running cases when it is executed with `label` as its
 * arguments[0]. It has the parameters of main, `count` and `arguments`, and gives the exit status.
 */
#define ROLE(label) \
	static int role_##label(int count, char **arguments); \
	REGISTER(role, label, .name = #label, .play = role_##label); \
	static int role_##label(int count, char **arguments)

/*
 * The environment variable that names the last failed case for the program that goes on after it.
 */
#define FAILED_CASE "FAILED_CASE"

/* The process that runs the cases, and what it had at its start. */
static struct {
	pid_t pid;
	char **arguments;
	const char *name;
	char part[100];
	char folder[PATH_MAX];
	cpu_set_t cpus;
	struct rlimit limits[RLIM_NLIMITS];
} runner;

/* Says which part of a case is about to run, say a round of a loop; a failure tells it. */
#define PART(...) snprintf(runner.part, sizeof(runner.part), __VA_ARGS__)

/* Prints a line of a case, which Linux and the realm have to print alike. */
#define SAY(format, ...) dprintf(STDOUT_FILENO, "  " format "\n", ##__VA_ARGS__)

/* Makes the defaults of all signals hold. Nothing is blocked or pending afterwards. */
static inline void reset_signals(void)
{
	struct sigaction action;
	sigset_t pending, none;

	sigpending(&pending);
	sigemptyset(&none);
	for (int number = 1; number <= SIGRTMAX; number++) {
		if (sigismember(&pending, number) == 1)
			signal(number, SIG_IGN);
		if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
			signal(number, SIG_DFL);
	}
	pthread_sigmask(SIG_SETMASK, &none, NULL);
}

/* Gives the process back what it had at its start, but for signals. */
static inline void restore(void)
{
	const struct itimerval never = { { 0, 0 }, { 0, 0 } };
	struct rlimit limit;
	cpu_set_t cpus;
	char folder[PATH_MAX];

	for (int which = ITIMER_REAL; which <= ITIMER_PROF; which++)
		setitimer(which, &never, NULL);
	sigaltstack(&(stack_t){ .ss_flags = SS_DISABLE }, NULL);
	syscall(SYS_close_range, 3, ~0U, 0);
	if (!getcwd(folder, sizeof(folder)) || strcmp(folder, runner.folder) != 0)
		chdir(runner.folder);
	if (sched_getscheduler(0) != SCHED_OTHER)
		sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
	if (sched_getaffinity(0, sizeof(cpus), &cpus) || !CPU_EQUAL(&cpus, &runner.cpus))
		sched_setaffinity(0, sizeof(cpus), &runner.cpus);
	for (int which = 0; which < RLIM_NLIMITS; which++)
		if (getrlimit(which, &limit) ||
		    memcmp(&limit, &runner.limits[which], sizeof(limit)) != 0)
			setrlimit(which, &runner.limits[which]);
}

/* Ends the children that a failed case has left. */
static inline void end_children(void)
{
	FILE *children = fopen("/proc/thread-self/children", "r");
	int child;

	if (!children)
		return;
	while (fscanf(children, "%d", &child) == 1) {
		kill(child, SIGKILL);
		waitpid(child, NULL, __WALL);
	}
	fclose(children);
}

/* Executes the program once more, for the cases after this one. */
static inline void go_on_anew(void)
{
	char failed[sizeof(FAILED_CASE) + 100];
	char *environment[200] = { failed };

	/* Timers may go on until execve. */
	for (int number = 1; number <= SIGRTMAX; number++)
		signal(number, SIG_IGN);
	snprintf(failed, sizeof(failed), FAILED_CASE "=%s", runner.name);
	for (int i = 0; environ[i] && i < 198; i++)
		environment[i + 1] = environ[i];
	restore();
	execve("/proc/self/exe", runner.arguments, environment);
	dprintf(STDOUT_FILENO, "FAILED to go on: %s\n", strerror(errno));
	_exit(1);
}

/*
 * Tells that a check failed, and ends its case or its child. Says nothing if another thread has
 * told.
 */
__attribute__((noreturn, format(printf, 3, 4)))
static inline void fail(const char *path, int line, const char *format, ...)
{
	static int told;
	const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
	const char *mark = *runner.part ? ", " : "";
	char text[1000];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (getpid() != runner.pid) {
		dprintf(STDOUT_FILENO, "  in a child%s%s: %s:%d: %s\n", mark, runner.part, file, line, text);
		_exit(1);
	}
	if (__atomic_exchange_n(&told, 1, __ATOMIC_SEQ_CST) == 0) {
		dprintf(STDOUT_FILENO, "FAILED %s%s%s: %s:%d: %s\n", runner.name, mark, runner.part, file, line,
			text);
		go_on_anew();
	}
	for (;;)
		pause();
}

/* The condition holds. */
#define CHECK(condition) \
	do { \
		if (!(condition)) \
			fail(__FILE__, __LINE__, "%s, errno %d (%s)", #condition, errno, strerror(errno)); \
	} while (0)

/* The call fails with this error. */
#define FAILS(error, call) \
	do { \
		errno = 0; \
		long result_ = (long)(call); \
		if (result_ != -1 || errno != (error)) \
			fail(__FILE__, __LINE__, "%s: not %s, got %ld, errno %d (%s)", #call, #error, result_, \
			     errno, strerror(errno)); \
	} while (0)

/* An address that the compiler does not know. */
static inline void *at(long address)
{
	volatile long hidden = address;

	return (void *)hidden;
}

/* The case of that name, or NULL. */
static inline const struct entry *case_of(const char *name)
{
	for (const struct entry *const *entry = __start_entries; entry < __stop_entries; entry++)
		if ((*entry)->run && strcmp((*entry)->name, name) == 0)
			return *entry;
	return NULL;
}

static inline void run_case(const struct entry *entry)
{
	runner.name = entry->name;
	runner.part[0] = 0;
	dprintf(STDERR_FILENO, "case %s\n", entry->name);
	for (const struct entry *const *other = __start_entries; other < __stop_entries; other++)
		if ((*other)->prepare)
			(*other)->prepare();
	entry->run();
	dprintf(STDOUT_FILENO, "ok %s\n", entry->name);
	/* Closing a file may signal its owner. */
	restore();
	reset_signals();
}

/*
 * Runs the cases that the arguments after the first name, or all. Returns the program's exit
 * status.
 */
static inline int run_cases(int count, char **arguments)
{
	const char *failed = getenv(FAILED_CASE);
	int has_failed = failed != NULL;

	runner.pid = getpid();
	if (!runner.arguments)
		runner.arguments = arguments;
	for (int i = 1; i < count; i++)
		if (!case_of(arguments[i])) {
			dprintf(STDERR_FILENO, "there is no case %s\n", arguments[i]);
			return 2;
		}
	if (!getcwd(runner.folder, sizeof(runner.folder)))
		return 2;
	if (sched_getaffinity(0, sizeof(runner.cpus), &runner.cpus))
		return 2;
	for (int which = 0; which < RLIM_NLIMITS; which++)
		getrlimit(which, &runner.limits[which]);
	if (failed) {
		reset_signals();
		end_children();
		unsetenv(FAILED_CASE);
	}
	for (const struct entry *const *entry = __start_entries; entry < __stop_entries; entry++) {
		int wanted = (*entry)->run && count <= 1;

		for (int i = 1; i < count; i++)
			wanted |= case_of(arguments[i]) == *entry;
		if (wanted && !failed)
			run_case(*entry);
		if (failed && (*entry)->run && strcmp(failed, (*entry)->name) == 0)
			failed = NULL;
	}
	return has_failed;
}

/* A source with a main of its own defines this before it includes this header. */
#ifndef OWN_MAIN
int main(int count, char **arguments)
{
	for (const struct entry *const *entry = __start_entries; entry < __stop_entries; entry++)
		if ((*entry)->play && strcmp(arguments[0], (*entry)->name) == 0)
			return (*entry)->play(count, arguments);
	return run_cases(count, arguments);
}
#endif

#endif
