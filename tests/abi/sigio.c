// SPDX-License-Identifier: MIT OR Apache-2.0
/* A signal tells the owner of a file that it is ready (O_ASYNC), by pipes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <time.h>

#include "check.h"
#include "children.h"
#include "driven.h"

static int ends[2];

/* Waits for the signal for some milliseconds at most; returns its number or -1. */
static int signalled(int signal, siginfo_t *info, int milliseconds)
{
	struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, signal);
	return sigtimedwait(&set, info, &time);
}

static void block(int signal)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, signal);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
}

static void on(int fd)
{
	CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC) == 0);
}

BEFORE_EACH
{
	siginfo_t info;

	block(SIGIO);
	block(TELLS);
	while (signalled(SIGIO, &info, 0) > 0 || signalled(TELLS, &info, 0) > 0)
		;
	CHECK(pipe(ends) == 0);
}

CASE(the_reader_is_told_of_what_is_written)
{
	CHECK(drive(ends[0]) && fcntl(ends[0], F_GETFL) == (O_RDONLY | O_ASYNC));
	CHECK(write(ends[1], "a", 1) == 1 && is_driven(ends[0], POLL_IN));
	/* Also while something waits to be read. */
	CHECK(write(ends[1], "b", 1) == 1 && is_driven(ends[0], POLL_IN));
	CHECK(close(ends[1]) == 0 && is_driven(ends[0], POLL_IN));
}

CASE(the_writer_is_told_of_room)
{
	static char page[65536];

	CHECK(write(ends[1], page, sizeof(page)) == sizeof(page) && drive(ends[1]));
	CHECK(read(ends[0], page, sizeof(page)) == sizeof(page) && is_driven(ends[1], POLL_OUT));
	CHECK(close(ends[0]) == 0 && is_driven(ends[1], POLL_OUT));
}

CASE(the_usual_signal_tells_nothing_else)
{
	siginfo_t info;

	CHECK(fcntl(ends[0], F_SETOWN, getpid()) == 0);
	on(ends[0]);
	CHECK(write(ends[1], "a", 1) == 1 && signalled(SIGIO, &info, 20000) == SIGIO);
	CHECK(info.si_code == SI_KERNEL && info.si_pid == 0 && info.si_uid == 0);
	/* Asked for by its number it tells more. */
	CHECK(fcntl(ends[0], F_SETSIG, SIGIO) == 0 && write(ends[1], "b", 1) == 1);
	CHECK(signalled(SIGIO, &info, 20000) == SIGIO && info.si_code == POLL_IN);
	CHECK(info.si_fd == ends[0] && info.si_band == (POLLIN | POLLRDNORM));
}

CASE(a_signal_whose_codes_mean_something_else)
{
	siginfo_t info;

	block(SIGCHLD);
	CHECK(drive(ends[0]) && fcntl(ends[0], F_SETSIG, SIGCHLD) == 0);
	CHECK(write(ends[1], "a", 1) == 1 && signalled(SIGCHLD, &info, 20000) == SIGCHLD);
	CHECK(info.si_code == SI_SIGIO);
}

CASE(nobody_is_told_any_more)
{
	siginfo_t info;

	CHECK(drive(ends[0]) && fcntl(ends[0], F_SETFL, 0) == 0);
	CHECK(fcntl(ends[0], F_GETFL) == O_RDONLY);
	CHECK(write(ends[1], "a", 1) == 1 && signalled(TELLS, &info, 100) == -1);
	/* Nobody owns it. */
	CHECK(fcntl(ends[0], F_SETOWN, 0) == 0);
	on(ends[0]);
	CHECK(write(ends[1], "a", 1) == 1 && signalled(TELLS, &info, 100) == -1);
	/* It is told again. */
	CHECK(fcntl(ends[0], F_SETOWN, getpid()) == 0);
	CHECK(write(ends[1], "a", 1) == 1 && is_driven(ends[0], POLL_IN));
}

CASE(a_signal_ends_who_does_not_expect_it)
{
	sigset_t none;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		fcntl(ends[0], F_SETOWN, getpid());
		fcntl(ends[0], F_SETFL, O_ASYNC);
		if (write(ends[1], "a", 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	CHECK(ends_by(child, SIGIO));
}

CASE(an_ioctl_asks_for_it_as_well)
{
	int yes = 1, no = 0, event = eventfd(0, 0);

	CHECK(fcntl(ends[0], F_SETOWN, getpid()) == 0 && fcntl(ends[0], F_SETSIG, TELLS) == 0);
	CHECK(ioctl(ends[0], FIOASYNC, &yes) == 0);
	CHECK(fcntl(ends[0], F_GETFL) == (O_RDONLY | O_ASYNC));
	CHECK(write(ends[1], "a", 1) == 1 && is_driven(ends[0], POLL_IN));
	CHECK(ioctl(ends[0], FIOASYNC, &no) == 0 && fcntl(ends[0], F_GETFL) == O_RDONLY);
	FAILS(EFAULT, ioctl(ends[0], FIOASYNC, 1));
	/* What cannot signal says so to one of them. */
	FAILS(ENOTTY, ioctl(event, FIOASYNC, &yes));
	CHECK(ioctl(event, FIOASYNC, &no) == 0);
	CHECK(fcntl(event, F_SETFL, O_ASYNC) == 0 && fcntl(event, F_GETFL) == O_RDWR);
}

/* Waits for the signal as the only thread that it may go to. */
static void *owns(void *unused)
{
	struct f_owner_ex own = { F_OWNER_TID, gettid() };
	siginfo_t info;

	(void)unused;
	CHECK(fcntl(ends[0], F_SETOWN_EX, &own) == 0 && fcntl(ends[0], F_SETSIG, TELLS) == 0);
	on(ends[0]);
	CHECK(write(ends[1], "a", 1) == 1 && signalled(TELLS, &info, 20000) == TELLS);
	CHECK(info.si_fd == ends[0]);
	/* One that stays pending is the thread's. */
	CHECK(write(ends[1], "b", 1) == 1);
	return NULL;
}

CASE(a_thread_owns_it)
{
	pthread_t thread;
	siginfo_t info;

	CHECK(pthread_create(&thread, NULL, owns, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0 && signalled(TELLS, &info, 100) == -1);
	/* Of who has ended nothing is told. */
	CHECK(write(ends[1], "c", 1) == 1 && signalled(TELLS, &info, 100) == -1);
}

CASE(another_process_owns_it)
{
	int ready[2];
	siginfo_t info;
	char byte;
	pid_t child;

	CHECK(pipe(ready) == 0 && (child = fork()) >= 0);
	if (child == 0) {
		int told = write(ready[1], "r", 1) == 1 && signalled(TELLS, &info, 20000) == TELLS;

		_exit(!(told && info.si_code == POLL_IN && info.si_fd == ends[0]));
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	CHECK(fcntl(ends[0], F_SETOWN, child) == 0 && fcntl(ends[0], F_SETSIG, TELLS) == 0);
	on(ends[0]);
	CHECK(write(ends[1], "a", 1) == 1 && exits_with(child, 0));
	/* Nobody hears of what comes after its end. */
	CHECK(write(ends[1], "b", 1) == 1 && signalled(TELLS, &info, 100) == -1);
}

CASE(who_may_not_be_signalled_hears_nothing)
{
	siginfo_t info;
	pid_t child, root = getpid();

	CHECK((child = fork()) >= 0);
	if (child == 0) {
		if (setuid(65534) || fcntl(ends[0], F_SETSIG, TELLS) ||
		    fcntl(ends[0], F_SETOWN, root) || fcntl(ends[0], F_SETFL, O_ASYNC))
			_exit(1);
		_exit(write(ends[1], "a", 1) != 1);
	}
	CHECK(exits_with(child, 0) && signalled(TELLS, &info, 100) == -1);
	/* Also while others write. */
	CHECK(write(ends[1], "b", 1) == 1 && signalled(TELLS, &info, 100) == -1);
}

CASE(an_end_of_the_file_goes_before_its_copies)
{
	siginfo_t info;
	pid_t child;

	CHECK(drive(ends[0]) && (child = fork()) >= 0);
	if (child == 0) {
		close(ends[0]);
		_exit(write(ends[1], "a", 1) != 1);
	}
	CHECK(exits_with(child, 0) && is_driven(ends[0], POLL_IN));
	CHECK(close(ends[0]) == 0 && signalled(TELLS, &info, 100) == -1);
}

/* Writes to a pipe that the program before this one has asked about. */
ROLE(goes_on)
{
	int fd = atoi(arguments[1]), written = atoi(arguments[2]);

	(void)count;
	return !(write(written, "a", 1) == 1 && is_driven(fd, POLL_IN));
}

CASE(a_program_goes_on_as_its_owner)
{
	char fd[12], written[12];
	pid_t child = fork();

	CHECK(child >= 0);
	snprintf(fd, sizeof(fd), "%d", ends[0]);
	snprintf(written, sizeof(written), "%d", ends[1]);
	if (child == 0) {
		if (drive(ends[0]))
			execl("/proc/self/exe", "goes_on", fd, written, NULL);
		_exit(2);
	}
	CHECK(exits_with(child, 0));
}

CASE(a_signalfd_tells_of_it)
{
	struct signalfd_siginfo told;
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, TELLS);
	CHECK((fd = signalfd(-1, &set, 0)) >= 0 && drive(ends[0]));
	CHECK(write(ends[1], "a", 1) == 1 && read(fd, &told, sizeof(told)) == sizeof(told));
	CHECK(told.ssi_signo == (uint32_t)TELLS && told.ssi_code == POLL_IN);
	CHECK(told.ssi_fd == ends[0] && told.ssi_band == (POLLIN | POLLRDNORM));
}

CASE(what_does_not_fit_is_told_by_the_usual_signal)
{
	siginfo_t info;
	int i, count = 0;
	struct rlimit few = { 4, 4 };

	CHECK(setrlimit(RLIMIT_SIGPENDING, &few) == 0 && drive(ends[0]));
	for (i = 0; i < 10; i++)
		CHECK(write(ends[1], "a", 1) == 1);
	CHECK(signalled(SIGIO, &info, 20000) == SIGIO && info.si_code == SI_KERNEL);
	while (signalled(TELLS, &info, 0) == TELLS)
		count++;
	CHECK(count <= 4);
}
