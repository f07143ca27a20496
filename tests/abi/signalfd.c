// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * signalfd: what it says of signals from everywhere, waiting, changes of the set, sharing and
 * errors.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "children.h"

#define MS 1000000L
#define SIZE sizeof(struct signalfd_siginfo)

static sigset_t set_of(int first, int second)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, first);
	if (second)
		sigaddset(&set, second);
	return set;
}

static int make(int first, int second, int flags)
{
	sigset_t set = set_of(first, second);

	return signalfd(-1, &set, flags);
}

static int change(int fd, int first, int second)
{
	sigset_t set = set_of(first, second);

	return signalfd(fd, &set, 0);
}

static void block(int how, int first, int second)
{
	sigset_t set = set_of(first, second);

	pthread_sigmask(how, &set, NULL);
}

static int ready(int fd, int milliseconds)
{
	struct pollfd polled = { fd, POLLIN | POLLOUT, 0 };

	return poll(&polled, 1, milliseconds) == 1 ? polled.revents : 0;
}

static int by_select(int fd)
{
	struct timeval none = { 0, 0 };
	fd_set readable;

	FD_ZERO(&readable);
	FD_SET(fd, &readable);
	return select(fd + 1, &readable, NULL, NULL, &none);
}

static volatile int handled;

static void note(int signal)
{
	handled = signal;
}

static struct signalfd_siginfo info;

/* Reads one signal of the file in a thread, and says which. */
static void *reading(void *fd)
{
	struct signalfd_siginfo read_here;
	long length = read(*(int *)fd, &read_here, SIZE);

	return (void *)(length == SIZE ? (long)read_here.ssi_signo : -1L);
}

/* Does the same with a signal that the thread sends to itself. */
static void *own(void *fd)
{
	struct signalfd_siginfo read_here;
	int first = ready(*(int *)fd, 0);

	pthread_kill(pthread_self(), SIGUSR2);
	int then = ready(*(int *)fd, 0);
	long length = read(*(int *)fd, &read_here, SIZE);

	return (void *)(long)(first == 0 && then == POLLIN && length == SIZE &&
			      read_here.ssi_signo == SIGUSR2 && read_here.ssi_code == SI_TKILL);
}

static pthread_t main_thread;

/* Sends SIGUSR1 to the first thread after a while. */
static void *later(void *unused)
{
	usleep(20000);
	pthread_kill(main_thread, SIGUSR1);
	return unused;
}

/* Sends SIGUSR1 to the process after a while. */
static void *later_process(void *unused)
{
	usleep(20000);
	kill(getpid(), SIGUSR1);
	return unused;
}

/* Adds SIGUSR2 to the set of the file after a while. */
static void *widen(void *fd)
{
	usleep(20000);
	change(*(int *)fd, SIGUSR1, SIGUSR2);
	return fd;
}

BEFORE_EACH
{
	handled = 0;
	main_thread = pthread_self();
	block(SIG_BLOCK, SIGUSR1, SIGUSR2);
}

CASE(bad_files_are_not_made)
{
	sigset_t set = set_of(SIGUSR1, 0);

	FAILS(EINVAL, syscall(SYS_signalfd4, -1, &set, 4, 0));
	FAILS(EINVAL, syscall(SYS_signalfd4, -1, &set, 8, 1));
	FAILS(EFAULT, syscall(SYS_signalfd4, -1, 16, 8, 0));
	FAILS(EBADF, syscall(SYS_signalfd4, 77, &set, 8, 0));
	FAILS(EBADF, syscall(SYS_signalfd4, -2, &set, 8, 0));
	FAILS(EINVAL, syscall(SYS_signalfd4, 1, &set, 8, 0));
	FAILS(EINVAL, syscall(SYS_signalfd4, open("/dev/null", O_RDONLY), &set, 8, 0));
	close(3);
}

CASE(a_file_has_flags_and_a_status)
{
	sigset_t set = set_of(SIGUSR1, 0);
	struct stat status;
	int fd;

	fd = syscall(SYS_signalfd, -1, &set, 8);
	CHECK(fd == 3 && fcntl(fd, F_GETFD) == 0 && (fcntl(fd, F_GETFL) & ~O_LARGEFILE) == O_RDWR &&
	      close(fd) == 0);
	fd = make(SIGUSR1, 0, SFD_CLOEXEC | SFD_NONBLOCK);
	CHECK(fd == 3 && fcntl(fd, F_GETFD) == FD_CLOEXEC &&
	      (fcntl(fd, F_GETFL) & ~O_LARGEFILE) == (O_RDWR | O_NONBLOCK));
	CHECK(fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == 0);
}

CASE(only_whole_signals_are_read)
{
	struct signalfd_siginfo two[2];
	int fd;

	fd = make(SIGUSR1, 0, SFD_CLOEXEC | SFD_NONBLOCK);
	FAILS(EINVAL, read(fd, two, SIZE - 1));
	FAILS(EAGAIN, read(fd, two, SIZE));
	FAILS(EAGAIN, read(fd, two, 2 * SIZE));
	FAILS(EINVAL, write(fd, two, SIZE));
	FAILS(ESPIPE, pread(fd, two, SIZE, 0));
	FAILS(ENOTTY, ioctl(fd, FIONREAD, two));
}

CASE(as_many_signals_are_read_as_have_room)
{
	struct signalfd_siginfo two[2];
	int fd;

	fd = make(SIGUSR1, 0, SFD_CLOEXEC | SFD_NONBLOCK);
	raise(SIGUSR1);
	FAILS(EINVAL, read(fd, two, SIZE - 1));
	CHECK(read(fd, two, 2 * SIZE - 1) == SIZE && two[0].ssi_signo == SIGUSR1);
}

CASE(bad_memory_loses_the_signal)
{
	struct signalfd_siginfo two[2];
	int fd;

	fd = make(SIGUSR1, 0, SFD_CLOEXEC | SFD_NONBLOCK);
	raise(SIGUSR1);
	FAILS(EFAULT, read(fd, at(16), SIZE));
	FAILS(EAGAIN, read(fd, two, SIZE));
}

CASE(sigkill_and_sigstop_are_taken_out_of_the_set)
{
	struct signalfd_siginfo two[2];
	int fd;

	fd = make(SIGUSR1, 0, SFD_CLOEXEC | SFD_NONBLOCK);
	CHECK(change(fd, SIGKILL, SIGSTOP) == fd);
	raise(SIGUSR1);
	FAILS(EAGAIN, read(fd, two, SIZE));
	CHECK(change(fd, SIGUSR1, 0) == fd && read(fd, two, SIZE) == SIZE);
}

CASE(a_signal_of_kill_tells_its_sender)
{
	int fd = make(SIGUSR1, SIGUSR2, SFD_NONBLOCK);

	kill(getpid(), SIGUSR1);
	kill(getpid(), SIGUSR1);
	memset(&info, 0xff, SIZE);
	CHECK(read(fd, &info, SIZE) == SIZE && info.ssi_signo == SIGUSR1 && info.ssi_errno == 0 &&
	      info.ssi_code == SI_USER);
	CHECK(info.ssi_pid == (uint32_t)getpid() && info.ssi_uid == getuid());
	CHECK(info.ssi_fd == 0 && info.ssi_tid == 0 && info.ssi_band == 0 &&
	      info.ssi_overrun == 0 && info.ssi_trapno == 0);
	CHECK(info.ssi_status == 0 && info.ssi_int == 0 && info.ssi_ptr == 0 &&
	      info.ssi_utime == 0 && info.ssi_stime == 0);
	CHECK(info.ssi_addr == 0 && info.ssi_addr_lsb == 0 && info.ssi_call_addr == 0 &&
	      info.ssi_arch == 0);
	FAILS(EAGAIN, read(fd, &info, SIZE));
}

CASE(a_signal_of_tgkill_or_sigqueue_tells_its_sender)
{
	int fd = make(SIGUSR1, SIGUSR2, SFD_NONBLOCK);
	union sigval value = { .sival_ptr = (void *)0x1122334455667788 };

	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1);
	CHECK(read(fd, &info, SIZE) == SIZE && info.ssi_code == SI_TKILL &&
	      info.ssi_pid == (uint32_t)getpid());
	sigqueue(getpid(), SIGUSR2, value);
	CHECK(read(fd, &info, SIZE) == SIZE && info.ssi_signo == SIGUSR2 &&
	      info.ssi_code == SI_QUEUE);
	CHECK(info.ssi_ptr == 0x1122334455667788 && info.ssi_int == 0x55667788 &&
	      info.ssi_pid == (uint32_t)getpid());
}

/* siginfo tells them as well. */
CASE(a_timer_tells_its_overruns)
{
	int fd = make(SIGUSR1, SIGUSR2, SFD_NONBLOCK);
	union sigval value = { .sival_ptr = (void *)0x1122334455667788 };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL,
				  .sigev_signo = SIGUSR2,
				  .sigev_value = value };
	struct itimerspec soon = { { 0, 1 * MS }, { 0, 1 * MS } }, never = { { 0, 0 }, { 0, 0 } };
	timer_t timer;

	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 &&
	      timer_settime(timer, 0, &soon, NULL) == 0);
	usleep(10000);
	CHECK(read(fd, &info, SIZE) == SIZE && info.ssi_signo == SIGUSR2 &&
	      info.ssi_code == SI_TIMER);
	CHECK(info.ssi_overrun >= 5 && info.ssi_ptr == 0x1122334455667788 &&
	      info.ssi_int == 0x55667788 && info.ssi_pid == 0);
	CHECK(ready(fd, -1) == POLLIN && read(fd, &info, SIZE) == SIZE &&
	      info.ssi_code == SI_TIMER);
	timer_settime(timer, 0, &never, NULL);
	timer_delete(timer);
	while (read(fd, &info, SIZE) == SIZE)
		;
}

/*
 * Signals of the thread come before those of the process, standard before real-time ones, and these
 * in the order of sending. One read gives several.
 */
CASE(signals_come_in_their_order)
{
	int fd = make(SIGUSR1, SIGUSR2, SFD_NONBLOCK);
	struct signalfd_siginfo several[4];

	int first = SIGRTMIN + 1;
	sigset_t all = set_of(first, SIGUSR1);

	sigaddset(&all, SIGUSR2);
	block(SIG_BLOCK, first, 0);
	CHECK(signalfd(fd, &all, 0) == fd);
	for (long i = 1; i <= 3; i++)
		sigqueue(getpid(), first, (union sigval){ .sival_int = i });
	kill(getpid(), SIGUSR2);
	raise(SIGUSR1);
	CHECK(read(fd, several, sizeof(several)) == sizeof(several) &&
	      several[0].ssi_signo == SIGUSR1 && several[1].ssi_signo == SIGUSR2);
	CHECK(several[2].ssi_signo == (uint32_t)first && several[2].ssi_int == 1 &&
	      several[3].ssi_int == 2);
	struct iovec parts[2] = { { several, SIZE }, { several + 1, SIZE } };

	CHECK(readv(fd, parts, 2) == SIZE && several[0].ssi_int == 3);
	FAILS(EAGAIN, readv(fd, parts, 2));
}

CASE(the_end_of_a_child_is_told)
{
	int fd = make(SIGUSR1, SIGUSR2, SFD_NONBLOCK), status;

	block(SIG_BLOCK, SIGCHLD, 0);
	CHECK(change(fd, SIGCHLD, 0) == fd && ready(fd, 0) == 0);
	pid_t child = fork();

	if (child == 0)
		_exit(7);
	CHECK(ready(fd, -1) == POLLIN && read(fd, &info, SIZE) == SIZE &&
	      info.ssi_signo == SIGCHLD && info.ssi_code == CLD_EXITED);
	CHECK(info.ssi_pid == (uint32_t)child && info.ssi_status == 7 && info.ssi_uid == getuid() &&
	      ready(fd, 0) == 0);
	CHECK(waitpid(child, &status, 0) == child);
	child = fork();
	if (child == 0) {
		pause();
		_exit(1);
	}
	kill(child, SIGKILL);
	CHECK(ready(fd, -1) == POLLIN && read(fd, &info, SIZE) == SIZE &&
	      info.ssi_code == CLD_KILLED && info.ssi_status == SIGKILL);
	CHECK(waitpid(child, &status, 0) == child);
}

CASE(input_is_told_with_its_descriptor)
{
	int fd = make(SIGUSR1, SIGUSR2, SFD_NONBLOCK);

	int first = SIGRTMIN + 1, pair[2];

	block(SIG_BLOCK, first, 0);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	fcntl(pair[0], F_SETOWN, getpid());
	fcntl(pair[0], F_SETSIG, first);
	fcntl(pair[0], F_SETFL, O_ASYNC);
	CHECK(change(fd, first, 0) == fd && write(pair[1], "x", 1) == 1 &&
	      ready(fd, -1) == POLLIN && read(fd, &info, SIZE) == SIZE);
	CHECK(info.ssi_signo == (uint32_t)first && info.ssi_code == POLL_IN &&
	      info.ssi_fd == pair[0] && info.ssi_band & POLLIN);
	close(pair[0]);
	close(pair[1]);
}

CASE(signals_of_a_group_and_of_a_terminal_are_told)
{
	int fd = make(SIGUSR1, SIGUSR2, SFD_NONBLOCK), status;

	pid_t child = fork();

	if (child == 0) {
		int master = posix_openpt(O_RDWR | O_NOCTTY), failed = 0;

		setsid();
		grantpt(master);
		unlockpt(master);
		if (open(ptsname(master), O_RDWR) < 0)
			_exit(100);
		block(SIG_BLOCK, SIGINT, 0);
		change(fd, SIGINT, SIGUSR1);
		kill(0, SIGUSR1);
		failed |= ready(fd, -1) != POLLIN || read(fd, &info, SIZE) != SIZE ||
			  info.ssi_signo != SIGUSR1 || info.ssi_code != SI_USER;
		failed |= (write(master, "\003", 1) != 1) << 1;
		failed |= (ready(fd, -1) != POLLIN || read(fd, &info, SIZE) != SIZE ||
			   info.ssi_signo != SIGINT || info.ssi_code != SI_KERNEL)
			  << 2;
		_exit(failed);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* The signal is for the thread, or for the process. */
CASE(a_read_waits_for_a_signal)
{
	int fd = make(SIGUSR1, 0, 0);
	pthread_t thread;

	pthread_create(&thread, NULL, later, NULL);
	CHECK(read(fd, &info, SIZE) == SIZE && info.ssi_signo == SIGUSR1);
	pthread_join(thread, NULL);
	pthread_create(&thread, NULL, later_process, NULL);
	CHECK(read(fd, &info, SIZE) == SIZE && info.ssi_signo == SIGUSR1);
	pthread_join(thread, NULL);
}

/* Each gets its own signal. */
CASE(two_threads_read_two_files)
{
	int fd = make(SIGUSR1, 0, 0), other = make(SIGUSR2, 0, 0);
	pthread_t thread, more;
	void *result;

	pthread_create(&thread, NULL, reading, &fd);
	pthread_create(&more, NULL, reading, &other);
	usleep(20000);
	kill(getpid(), SIGUSR2);
	pthread_join(more, &result);
	CHECK((long)result == SIGUSR2);
	kill(getpid(), SIGUSR1);
	pthread_join(thread, &result);
	CHECK((long)result == SIGUSR1);
}

/* One of them gets the signal. */
CASE(two_threads_read_one_file)
{
	int fd = make(SIGUSR1, 0, 0);
	pthread_t thread, more;
	void *result;

	pthread_create(&thread, NULL, reading, &fd);
	pthread_create(&more, NULL, reading, &fd);
	usleep(20000);
	kill(getpid(), SIGUSR1);
	while (ready(fd, 0))
		usleep(1000);
	kill(getpid(), SIGUSR1);
	pthread_join(more, &result);
	CHECK((long)result == SIGUSR1 && pthread_join(thread, &result) == 0 &&
	      (long)result == SIGUSR1);
}

CASE(signals_for_a_thread_are_that_threads)
{
	int other = make(SIGUSR2, 0, 0);
	pthread_t thread;
	void *result;

	pthread_create(&thread, NULL, own, &other);
	CHECK(pthread_join(thread, &result) == 0 && result);
	pthread_create(&thread, NULL, reading, &other);
	usleep(10000);
	raise(SIGUSR2);
	usleep(10000);
	CHECK(ready(other, 0) == POLLIN && pthread_kill(thread, SIGUSR2) == 0 &&
	      pthread_join(thread, &result) == 0 && (long)result == SIGUSR2);
	CHECK(ready(other, 0) == POLLIN && read(other, &info, SIZE) == SIZE &&
	      ready(other, 0) == 0);
}

/* A thread waits in read, and then in poll. */
CASE(the_set_changes_while_somebody_waits)
{
	int fd = make(SIGUSR1, 0, 0);
	pthread_t thread;

	kill(getpid(), SIGUSR2);
	pthread_create(&thread, NULL, widen, &fd);
	CHECK(read(fd, &info, SIZE) == SIZE && info.ssi_signo == SIGUSR2 &&
	      pthread_join(thread, NULL) == 0);
	CHECK(change(fd, SIGUSR1, 0) == fd && kill(getpid(), SIGUSR2) == 0 && ready(fd, 0) == 0);
	pthread_create(&thread, NULL, widen, &fd);
	CHECK(ready(fd, -1) == POLLIN && read(fd, &info, SIZE) == SIZE &&
	      info.ssi_signo == SIGUSR2 && pthread_join(thread, NULL) == 0);
	CHECK(change(fd, SIGUSR1, 0) == fd);
}

/*
 * With SA_RESTART the call is made again. The signal comes again and again, because the first may
 * come before the call begins.
 */
CASE(a_handler_ends_a_read)
{
	int fd = make(SIGUSR1, 0, 0);
	struct sigaction action = { .sa_handler = note };
	struct itimerval soon = { { 0, 0 }, { 0, 20000 } },
			 again_and_again = { { 0, 20000 }, { 0, 20000 } };
	pthread_t thread, more;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &again_and_again, NULL);
	FAILS(EINTR, read(fd, &info, SIZE));
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	CHECK(handled == SIGALRM);
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	handled = 0;
	setitimer(ITIMER_REAL, &soon, NULL);
	pthread_create(&thread, NULL, widen, &fd);
	pthread_create(&more, NULL, later, NULL);
	CHECK(read(fd, &info, SIZE) == SIZE && info.ssi_signo == SIGUSR1 &&
	      pthread_join(thread, NULL) == 0 && pthread_join(more, NULL) == 0);
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
}

CASE(a_blocked_signal_of_an_interval_timer_is_read)
{
	int fd = make(SIGUSR1, 0, 0);
	struct itimerval soon = { { 0, 0 }, { 0, 20000 } };

	block(SIG_BLOCK, SIGALRM, 0);
	CHECK(change(fd, SIGALRM, 0) == fd && setitimer(ITIMER_REAL, &soon, NULL) == 0 &&
	      read(fd, &info, SIZE) == SIZE && info.ssi_signo == SIGALRM &&
	      info.ssi_code == SI_KERNEL);
}

CASE(each_of_many_signals_is_for_one_of_many_threads)
{
	int fd = make(SIGUSR1, 0, 0);
	void *result;

	struct itimerval often = { { 0, 5000 }, { 0, 20000 } };
	pthread_t readers[24];
	int served = 0;

	block(SIG_BLOCK, SIGALRM, 0);
	CHECK(change(fd, SIGALRM, 0) == fd);
	for (int i = 0; i < 24; i++)
		pthread_create(&readers[i], NULL, reading, &fd);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < 24; i++)
		served += pthread_join(readers[i], &result) == 0 && (long)result == SIGALRM;
	CHECK(served == 24);
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	while (ready(fd, 0))
		read(fd, &info, SIZE);
}

CASE(what_is_handled_or_ignored_cannot_be_read)
{
	int fd = make(SIGUSR1, 0, 0);
	struct sigaction action = { .sa_handler = note };

	CHECK(change(fd, SIGALRM, 0) == fd && sigaction(SIGALRM, &action, NULL) == 0);
	raise(SIGALRM);
	CHECK(handled == SIGALRM && ready(fd, 0) == 0);
	signal(SIGALRM, SIG_IGN);
	raise(SIGALRM);
	CHECK(ready(fd, 0) == 0);
	block(SIG_BLOCK, SIGALRM, 0);
	raise(SIGALRM);
	CHECK(ready(fd, 0) == POLLIN && read(fd, &info, SIZE) == SIZE && info.ssi_signo == SIGALRM);
}

static int events_of(int set, int milliseconds, uint32_t *events)
{
	struct epoll_event event = { 0 };
	int count = epoll_wait(set, &event, 1, milliseconds);

	*events = event.events;
	return count;
}

CASE(epoll_and_select_tell_of_a_signal)
{
	int fd = make(SIGUSR1, 0, SFD_NONBLOCK), set = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };
	uint32_t events;
	pthread_t thread;

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 && events_of(set, 0, &events) == 0 &&
	      by_select(fd) == 0);
	kill(getpid(), SIGUSR1);
	CHECK(events_of(set, -1, &events) == 1 && events == EPOLLIN && by_select(fd) == 1 &&
	      events_of(set, 0, &events) == 1);
	CHECK(read(fd, &info, SIZE) == SIZE && events_of(set, 0, &events) == 0 &&
	      by_select(fd) == 0);
	pthread_create(&thread, NULL, later, NULL);
	CHECK(events_of(set, -1, &events) == 1 && read(fd, &info, SIZE) == SIZE &&
	      pthread_join(thread, NULL) == 0);
}

CASE(an_edge_is_told_once)
{
	int fd = make(SIGUSR1, 0, SFD_NONBLOCK), set = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };
	uint32_t events;

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	event.events = EPOLLIN | EPOLLET;
	CHECK(epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0 && events_of(set, 0, &events) == 0);
	kill(getpid(), SIGUSR1);
	CHECK(events_of(set, -1, &events) == 1 && events_of(set, 0, &events) == 0 &&
	      read(fd, &info, SIZE) == SIZE);
	kill(getpid(), SIGUSR2);
	CHECK(events_of(set, 0, &events) == 0);
}

CASE(a_signal_is_told_beside_a_socket)
{
	int fd = make(SIGUSR1, 0, SFD_NONBLOCK), set = epoll_create1(0), pair[2];
	struct epoll_event event = { .events = EPOLLIN };
	uint32_t events;
	pthread_t thread;

	event.events = EPOLLIN | EPOLLET;
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	struct pollfd both[2] = { { pair[0], POLLIN, 0 }, { fd, POLLIN, 0 } };

	pthread_create(&thread, NULL, later, NULL);
	CHECK(poll(both, 2, -1) == 1 && both[0].revents == 0 && both[1].revents == POLLIN &&
	      pthread_join(thread, NULL) == 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event) == 0 &&
	      events_of(set, 0, &events) == 1 && read(fd, &info, SIZE) == SIZE);
	pthread_create(&thread, NULL, later, NULL);
	CHECK(events_of(set, -1, &events) == 1 && events == EPOLLIN &&
	      read(fd, &info, SIZE) == SIZE && pthread_join(thread, NULL) == 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0 &&
	      epoll_ctl(set, EPOLL_CTL_DEL, pair[0], NULL) == 0);
	kill(getpid(), SIGUSR1);
	CHECK(events_of(set, 0, &events) == 0 && read(fd, &info, SIZE) == SIZE);
}

/* It also knows of a change of the set when signalfd returns. */
CASE(who_watches_knows_of_a_signal_when_kill_returns)
{
	int fd = make(SIGUSR1, 0, SFD_NONBLOCK);
	struct epoll_event event = { .events = EPOLLIN };
	uint32_t events;

	int sets[4], known = 0;

	for (int i = 0; i < 4; i++) {
		sets[i] = epoll_create1(0);
		event.events = i % 2 ? EPOLLIN | EPOLLET : EPOLLIN;
		epoll_ctl(sets[i], EPOLL_CTL_ADD, fd, &event);
	}
	for (int turn = 0; turn < 100; turn++) {
		kill(getpid(), turn < 50 ? SIGUSR1 : SIGUSR2);
		if (turn >= 50)
			change(fd, SIGUSR2, 0);
		for (int i = 0; i < 4; i++)
			known += events_of(sets[i], 0, &events) == 1;
		if (read(fd, &info, SIZE) != SIZE)
			known = -1000;
		if (turn >= 50)
			change(fd, SIGUSR1, 0);
	}
	CHECK(known == 400);
	for (int i = 0; i < 4; i++)
		close(sets[i]);
}

/* The child uses its parent's file. It does not inherit pending signals. */
CASE(a_child_reads_its_own_signals)
{
	int fd = make(SIGUSR1, 0, SFD_NONBLOCK), status;
	pthread_t thread;

	kill(getpid(), SIGUSR1);
	pid_t child = fork();

	if (child == 0) {
		int failed = ready(fd, 0) != 0 || read(fd, &info, SIZE) != -1;

		kill(getppid(), SIGUSR2);
		pthread_create(&thread, NULL, later_process, NULL);
		failed |= ready(fd, -1) != POLLIN || read(fd, &info, SIZE) != SIZE ||
			  info.ssi_pid != (uint32_t)getpid();
		_exit(failed);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0 && read(fd, &info, SIZE) == SIZE &&
	      info.ssi_pid == (uint32_t)getpid());
	CHECK(change(fd, SIGUSR2, 0) == fd && read(fd, &info, SIZE) == SIZE);
}

/* The file leaves its set as well. */
CASE(the_last_descriptor_ends_the_file)
{
	int fd = make(SIGUSR1, 0, SFD_NONBLOCK), set = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };
	uint32_t events;

	event.events = EPOLLIN | EPOLLET;
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 && change(fd, SIGUSR1, 0) == fd &&
	      dup(fd) > 0);
	int copy = dup(fd);

	close(copy - 1);
	close(fd);
	kill(getpid(), SIGUSR1);
	CHECK(events_of(set, -1, &events) == 1 && close(copy) == 0 &&
	      events_of(set, 0, &events) == 0);
	fd = make(SIGUSR1, 0, SFD_NONBLOCK);
	CHECK(read(fd, &info, SIZE) == SIZE && close(fd) == 0 && close(set) == 0);
}

/* After execve: descriptor 9 is the file, 3 is closed, the mask is what it was. */
ROLE(again)
{
	int failed = fcntl(3, F_GETFD) != -1 || ready(9, 0) != 0;

	kill(getpid(), SIGUSR1);
	failed |= (ready(9, -1) != POLLIN || read(9, &info, SIZE) != SIZE ||
		   info.ssi_signo != SIGUSR1)
		  << 1;
	return failed;
}

/* A descriptor with close-on-exec is closed. */
CASE(execve_keeps_the_file)
{
	int fd, status;
	pid_t child;

	fd = make(SIGUSR1, 0, SFD_NONBLOCK);
	CHECK(fd == 3);
	child = fork();
	if (child == 0) {
		dup2(fd, 9);
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		execl("/proc/self/exe", "again", NULL);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* After execve: descriptor 9 is the file, 10 the set that has it. */
ROLE(watching)
{
	struct epoll_event event;

	kill(getpid(), SIGUSR1);
	return epoll_wait(10, &event, 1, 5000) == 1 && read(9, &info, SIZE) == SIZE &&
	       info.ssi_signo == SIGUSR1 && epoll_wait(10, &event, 1, 0) == 0 ? 0 : 1;
}

CASE(execve_keeps_the_file_in_its_set)
{
	struct epoll_event event = { .events = EPOLLIN };
	int fd = make(SIGUSR1, 0, SFD_NONBLOCK), set = epoll_create1(0), status;
	pid_t child;

	child = fork();
	if (child == 0) {
		dup2(fd, 9);
		dup2(set, 10);
		epoll_ctl(10, EPOLL_CTL_ADD, 9, &event);
		execl("/proc/self/exe", "watching", NULL);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}
