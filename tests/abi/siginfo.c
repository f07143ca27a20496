// SPDX-License-Identifier: MIT OR Apache-2.0
/* What siginfo says of signals by kill, tgkill and sigqueue, and of children. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

static volatile sig_atomic_t count;
/* Volatile, because the compiler does not expect that a call runs a handler. */
static volatile siginfo_t seen;
static volatile int order[8];

static void note(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	seen = *info;
	if (count < 8)
		order[count] = info->si_signo;
	count++;
}

static void handle(int number, int flags)
{
	struct sigaction action = { .sa_sigaction = note, .sa_flags = SA_SIGINFO | flags };

	sigfillset(&action.sa_mask);
	CHECK(sigaction(number, &action, NULL) == 0);
}

/* Tells whether what has no meaning is zero. */
static int rest_is_zero(void)
{
	const volatile char *bytes = (const volatile char *)&seen;
	size_t i;

	for (i = 48; i < sizeof(seen); i++)
		if (bytes[i])
			return 0;
	return seen.si_errno == 0;
}

BEFORE_EACH
{
	count = 0;
	handle(SIGUSR1, 0);
	handle(SIGUSR2, 0);
	handle(SIGRTMIN, 0);
	handle(SIGRTMIN + 3, 0);
	handle(SIGCHLD, 0);
}

CASE(kill_tells_its_sender)
{
	CHECK(kill(getpid(), SIGUSR1) == 0 && count == 1);
	CHECK(seen.si_code == SI_USER && seen.si_pid == getpid() && seen.si_uid == getuid());
	CHECK(seen.si_signo == SIGUSR1 && rest_is_zero());
}

CASE(raise_and_tkill_tell_that_a_thread_is_meant)
{
	CHECK(raise(SIGUSR2) == 0 && count == 1);
	CHECK(seen.si_code == SI_TKILL && seen.si_pid == getpid() && seen.si_signo == SIGUSR2);
	CHECK(syscall(SYS_tkill, getpid(), SIGUSR1) == 0 && seen.si_code == SI_TKILL && count == 2);
}

CASE(sigqueue_gives_a_value)
{
	union sigval value = { .sival_ptr = (void *)0x123456789abcdef0 };

	CHECK(sigqueue(getpid(), SIGRTMIN, value) == 0 && count == 1);
	CHECK(seen.si_code == SI_QUEUE && seen.si_pid == getpid() && seen.si_uid == getuid());
	CHECK(seen.si_value.sival_ptr == value.sival_ptr && rest_is_zero());
	CHECK(sigqueue(getpid(), SIGUSR2, value) == 0 && count == 2);
	CHECK(seen.si_value.sival_ptr == value.sival_ptr && seen.si_signo == SIGUSR2);
}

CASE(a_process_may_tell_itself_anything)
{
	siginfo_t own;

	memset(&own, 0, sizeof(own));
	own.si_code = SI_KERNEL;
	own.si_value.sival_int = 77;
	CHECK(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &own) == 0 && count == 1);
	CHECK(seen.si_code == SI_KERNEL && seen.si_value.sival_int == 77 &&
	      seen.si_signo == SIGUSR1);
	CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGUSR1, &own) == 0 && count == 2);
	own.si_code = SI_QUEUE;
	CHECK(syscall(SYS_rt_sigqueueinfo, getpid(), 0, &own) == 0 && count == 2);
}

CASE(nobody_pretends_to_others)
{
	siginfo_t own;

	memset(&own, 0, sizeof(own));
	own.si_code = SI_KERNEL;
	FAILS(EPERM, syscall(SYS_rt_sigqueueinfo, getppid(), SIGUSR1, &own));
	own.si_code = SI_USER;
	FAILS(EPERM, syscall(SYS_rt_sigqueueinfo, getppid(), 0, &own));
}

static pthread_barrier_t barrier;
static pid_t other;

/* A thread that blocks all signals. What looks like the kernel's it may not send to the process. */
static void *pretend(void *error)
{
	siginfo_t own;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	other = syscall(SYS_gettid);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	memset(&own, 0, sizeof(own));
	own.si_code = SI_KERNEL;
	if (syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR2, &own))
		*(int *)error = errno;
	if (syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGUSR2, &own))
		*(int *)error += errno;
	return NULL;
}

CASE(the_id_of_any_thread_names_the_process)
{
	pthread_t thread;
	siginfo_t own;
	int error = 0;

	pthread_barrier_init(&barrier, NULL, 2);
	CHECK(!pthread_create(&thread, NULL, pretend, &error));
	pthread_barrier_wait(&barrier);
	CHECK(kill(other, SIGUSR1) == 0 && count == 1);
	CHECK(seen.si_code == SI_USER && seen.si_pid == getpid());
	memset(&own, 0, sizeof(own));
	own.si_code = SI_QUEUE;
	own.si_value.sival_int = 78;
	CHECK(syscall(SYS_rt_sigqueueinfo, other, SIGUSR1, &own) == 0 && count == 2);
	CHECK(seen.si_code == SI_QUEUE && seen.si_value.sival_int == 78);
	own.si_code = SI_KERNEL;
	FAILS(EPERM, syscall(SYS_rt_sigqueueinfo, other, SIGUSR1, &own));
	FAILS(EPERM, syscall(SYS_rt_tgsigqueueinfo, getpid(), other, SIGUSR1, &own));
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	CHECK(error == 2 * EPERM && count == 2);
}

CASE(bad_information_is_refused)
{
	siginfo_t own;

	memset(&own, 0, sizeof(own));
	own.si_code = SI_USER;
	FAILS(EFAULT, syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, (void *)8));
	FAILS(EINVAL, syscall(SYS_rt_tgsigqueueinfo, 0, getpid(), SIGUSR1, &own));
	own.si_code = SI_QUEUE;
	FAILS(EINVAL, syscall(SYS_rt_sigqueueinfo, getpid(), 65, &own));
}

CASE(bad_numbers_and_targets_are_refused)
{
	FAILS(EINVAL, kill(getpid(), 65));
	FAILS(EINVAL, kill(getpid(), -1));
	FAILS(EINVAL, syscall(SYS_tkill, 0, SIGUSR1));
	FAILS(EINVAL, syscall(SYS_tkill, -1, SIGUSR1));
	FAILS(EINVAL, syscall(SYS_tgkill, getpid(), 0, SIGUSR1));
	FAILS(EINVAL, syscall(SYS_tgkill, -1, getpid(), SIGUSR1));
	FAILS(EINVAL, syscall(SYS_tgkill, getpid(), getpid(), 65));
	FAILS(ESRCH, syscall(SYS_tgkill, 0x3fffffff, getpid(), SIGUSR1));
	FAILS(ESRCH, syscall(SYS_tkill, 0x3fffffff, SIGUSR1));
	CHECK(kill(getpid(), 0) == 0 && syscall(SYS_tgkill, getpid(), getpid(), 0) == 0 &&
	      count == 0);
}

/* Handlers nest: the one that was entered last runs first. */
CASE(the_lowest_comes_first_and_queued_ones_each_time)
{
	union sigval value = { .sival_ptr = (void *)0x123456789abcdef0 };
	sigset_t block, old;
	int i;

	sigfillset(&block);
	CHECK(sigprocmask(SIG_BLOCK, &block, &old) == 0);
	count = 0;
	for (i = 0; i < 3; i++) {
		value.sival_int = i;
		CHECK(sigqueue(getpid(), SIGRTMIN + 3, value) == 0);
		CHECK(sigqueue(getpid(), SIGUSR2, value) == 0);
	}
	value.sival_int = 9;
	CHECK(sigqueue(getpid(), SIGRTMIN, value) == 0);
	CHECK(count == 0);
	CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
	CHECK(count == 5);
	CHECK(order[0] == SIGRTMIN + 3 || order[0] == SIGUSR2);
}

CASE(a_child_tells_its_exit_status)
{
	pid_t child;
	int status;

	child = fork();
	if (child == 0)
		_exit(42);
	while (count == 0)
		usleep(1000);
	CHECK(seen.si_signo == SIGCHLD && seen.si_code == CLD_EXITED && seen.si_pid == child);
	CHECK(seen.si_status == 42 && seen.si_uid == getuid());
	CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 42);
}

CASE(a_child_tells_which_signal_has_killed_it)
{
	pid_t child;
	int status;

	child = fork();
	if (child == 0) {
		kill(getpid(), SIGTERM);
		_exit(1);
	}
	while (count == 0)
		usleep(1000);
	CHECK(seen.si_code == CLD_KILLED && seen.si_status == SIGTERM && seen.si_pid == child);
	CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGTERM);
}

CASE(another_process_sends_a_value)
{
	union sigval value = { .sival_ptr = (void *)0x123456789abcdef0 };
	pid_t child;
	int status;

	child = fork();
	if (child == 0) {
		value.sival_int = 1234;
		sigqueue(getppid(), SIGRTMIN, value);
		_exit(0);
	}
	while (count < 2)
		usleep(1000);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

CASE(another_process_tells_its_id)
{
	pid_t child;
	int status;

	child = fork();
	if (child == 0) {
		kill(getppid(), SIGUSR1);
		pause();
		_exit(0);
	}
	while (count == 0)
		usleep(1000);
	CHECK(seen.si_signo == SIGUSR1 && seen.si_code == SI_USER && seen.si_pid == child);
	CHECK(kill(child, SIGKILL) == 0);
	CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
}
