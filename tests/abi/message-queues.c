// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/* POSIX message queues: who waits, who is told of a message (mq_notify), and by what. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include "check.h"
#include "children.h"
#include "moments.h"

/* A new queue without a name, of four messages of 16 bytes. */
static mqd_t queue(int flags)
{
	struct mq_attr attributes = { .mq_maxmsg = 4, .mq_msgsize = 16 };
	char name[32];
	mqd_t queue;

	snprintf(name, sizeof(name), "/queue-%d", getpid());
	queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL | flags, 0600, &attributes);
	CHECK(queue != -1 && !mq_unlink(name));
	return queue;
}

/* Blocks a signal and returns the set of it. */
static sigset_t blocked(int signal)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, signal);
	CHECK(!pthread_sigmask(SIG_BLOCK, &set, NULL));
	return set;
}

/* Has a child send a message. */
static pid_t sends(mqd_t queue)
{
	pid_t child = fork();

	if (!child)
		_exit(mq_send(queue, "there", 5, 0) != 0);
	CHECK(exits_with(child, 0));
	return child;
}

CASE(messages_come_by_priority)
{
	mqd_t own = queue(O_NONBLOCK);
	char text[16];
	unsigned int priority;

	CHECK(!mq_send(own, "low", 3, 1) && !mq_send(own, "high", 4, 7));
	CHECK(mq_receive(own, text, sizeof(text), &priority) == 4 && priority == 7);
	CHECK(mq_receive(own, text, sizeof(text), &priority) == 3 && priority == 1);
	FAILS(EAGAIN, mq_receive(own, text, sizeof(text), NULL));
	FAILS(EMSGSIZE, mq_receive(own, text, 8, NULL));
	mq_close(own);
}

CASE(a_signal_tells_of_a_message)
{
	mqd_t own = queue(0);
	sigset_t set = blocked(SIGRTMIN + 3);
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3,
				  .sigev_value.sival_int = 4711 };
	const struct timespec second = { 1, 0 }, moment = { 0, 50000000 };
	siginfo_t info;
	pid_t child;

	CHECK(!mq_notify(own, &event));
	FAILS(EBUSY, mq_notify(own, &event));
	child = sends(own);
	CHECK(sigtimedwait(&set, &info, &second) == SIGRTMIN + 3);
	CHECK(info.si_code == SI_MESGQ && info.si_value.sival_int == 4711 && info.si_pid == child &&
	      info.si_uid == getuid());
	/* Once, and not where there are messages. */
	sends(own);
	FAILS(EAGAIN, sigtimedwait(&set, &info, &moment));
	CHECK(!mq_notify(own, &event));
	sends(own);
	FAILS(EAGAIN, sigtimedwait(&set, &info, &moment));
	CHECK(!mq_notify(own, NULL) && !mq_notify(own, &event));
	mq_close(own);
}

static volatile sig_atomic_t handled;

static void handle(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	if (info->si_code == SI_MESGQ)
		handled = info->si_value.sival_int;
}

CASE(a_handler_runs_at_a_message)
{
	mqd_t own = queue(0);
	struct sigaction action = { .sa_sigaction = handle, .sa_flags = SA_SIGINFO };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1,
				  .sigev_value.sival_int = 12 };

	CHECK(!sigaction(SIGUSR1, &action, NULL) && !mq_notify(own, &event));
	sends(own);
	for (int waited = 0; waited < 5000 && !handled; waited++)
		pause_for(1);
	CHECK(handled == 12);
	mq_close(own);
}

static void tell(union sigval value)
{
	pthread_mutex_unlock(value.sival_ptr);
}

CASE(a_thread_runs_at_a_message)
{
	static pthread_mutex_t told = PTHREAD_MUTEX_INITIALIZER;
	mqd_t own = queue(0);
	struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = tell,
				  .sigev_value.sival_ptr = &told };
	struct timespec end;

	pthread_mutex_lock(&told);
	CHECK(!mq_notify(own, &event));
	sends(own);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 10;
	CHECK(!pthread_mutex_timedlock(&told, &end));
	mq_close(own);
}

CASE(what_is_no_queue_tells_of_no_message)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	mqd_t own = queue(0);
	int file = open("/etc/passwd", O_RDONLY), null = open("/dev/null", O_RDWR), ends[2];
	char text[16];

	CHECK(!pipe(ends));
	FAILS(EBADF, mq_notify(-1, &event));
	FAILS(EBADF, mq_notify(file, &event));
	FAILS(EBADF, mq_notify(null, &event));
	FAILS(EBADF, mq_notify(ends[0], &event));
	FAILS(EBADF, mq_send(null, "a", 1, 0));
	FAILS(EBADF, mq_receive(null, text, sizeof(text), NULL));
	FAILS(EBADF, mq_receive(ends[0], text, sizeof(text), NULL));
	event.sigev_signo = 100;
	FAILS(EINVAL, mq_notify(own, &event));
	event.sigev_notify = 100;
	FAILS(EINVAL, mq_notify(own, &event));
	close(file);
	close(null);
	close(ends[0]);
	close(ends[1]);
	mq_close(own);
}

CASE(a_full_queue_is_waited_for)
{
	mqd_t own = queue(0);
	struct timespec end;
	char text[16];
	pid_t child;

	for (int i = 0; i < 4; i++)
		CHECK(!mq_send(own, "there", 5, 0));
	clock_gettime(CLOCK_REALTIME, &end);
	end = timespec(nanoseconds(end) + 20000000);
	FAILS(ETIMEDOUT, mq_timedsend(own, "late", 4, 0, &end));
	child = fork();
	if (!child) {
		pause_for(30);
		_exit(mq_receive(own, text, sizeof(text), NULL) != 5);
	}
	CHECK(!mq_send(own, "fifth", 5, 9) && exits_with(child, 0));
	CHECK(mq_receive(own, text, sizeof(text), NULL) == 5 && !memcmp(text, "fifth", 5));
	mq_close(own);
}
