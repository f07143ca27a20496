// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A child has a pipe that becomes Linux's, and reads from it when its own shadow has gone. Tells
 * the child's id, and then whether the child got EIO.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int passed[2], answers[2];

static void die(const char *what)
{
	perror(what);
	_exit(1);
}

static void read_alone(void)
{
	const struct timespec pause = { 0, 1000000 };
	char byte;

	while (access("/", F_OK) == 0)
		nanosleep(&pause, NULL);
	byte = read(passed[0], &byte, 1) < 0 ? errno : 0;
	if (write(answers[1], &byte, 1) != 1)
		die("write");
	for (;;)
		nanosleep(&pause, NULL);
}

static void pass(int descriptor)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = "";
	struct iovec part = { "x", 1 };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof(control) };
	int pair[2];

	*CMSG_FIRSTHDR(&message) =
		(struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &descriptor, sizeof(descriptor));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || sendmsg(pair[0], &message, 0) != 1)
		die("pass");
}

int main(void)
{
	struct pollfd answer = { .events = POLLIN };
	pid_t child;
	char byte = 0;

	if (pipe(passed) || pipe(answers))
		die("pipe");
	child = fork();
	if (child < 0)
		die("fork");
	if (!child)
		read_alone();
	pass(passed[1]);
	printf("%d\n", child);
	fflush(stdout);
	answer.fd = answers[0];
	if (poll(&answer, 1, 20000) == 1 && read(answers[0], &byte, 1) != 1)
		die("read");
	kill(child, SIGKILL);
	printf("%s\n", byte == EIO ? "EIO" : "no answer");
	return 0;
}
