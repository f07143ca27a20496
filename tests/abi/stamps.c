// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * Time stamps (SO_TIMESTAMPING) of frames on the network interface near, whose wire has the
 * interface far at its other end, and reports of when frames were sent (MSG_ERRQUEUE): of packet
 * sockets and of UDP. In the realm near is one of the realm's interfaces, and far Linux's.
 */
#define _GNU_SOURCE
#include <time.h>

#include <linux/errqueue.h>
#include <linux/ethtool.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "check.h"
#include "waiting.h"
#include "wire.h"

#define GROUP "239.1.2.3"
#define PORT 7319

enum {
	TX = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE,
	RX = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE,
};

/* Has a socket of near ask for these stamps. */
static int stamped(int flags)
{
	int fd = bound(NEAR, SOCK_RAW, PROTOCOL);

	CHECK(set(fd, SOL_SOCKET, SO_TIMESTAMPING, flags) == 0);
	return fd;
}

/* What is told of a message or a report. */
struct told {
	ssize_t length;
	int flags;
	struct timespec stamps[3];
	struct sock_extended_err error;
	struct sockaddr_in offender;
	struct in_pktinfo packet;
	uint8_t data[2000];
};

/* Says which control messages came, in their order. */
static void look(struct msghdr *message, struct told *told)
{
	char said[200] = "";

	for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
		size_t length = at->cmsg_len - CMSG_LEN(0);
		size_t used = strlen(said);

		snprintf(said + used, sizeof(said) - used, " %d/%d of %zu", at->cmsg_level,
			 at->cmsg_type, length);
		if (at->cmsg_level == SOL_SOCKET &&
		    (at->cmsg_type == SO_TIMESTAMPING || at->cmsg_type == SO_TIMESTAMPING_NEW))
			memcpy(told->stamps, CMSG_DATA(at), sizeof(told->stamps));
		if ((at->cmsg_level == SOL_PACKET && at->cmsg_type == PACKET_TX_TIMESTAMP) ||
		    (at->cmsg_level == SOL_IP && at->cmsg_type == IP_RECVERR))
			memcpy(&told->error, CMSG_DATA(at), sizeof(told->error));
		if (at->cmsg_level == SOL_IP && at->cmsg_type == IP_RECVERR)
			memcpy(&told->offender, CMSG_DATA(at) + sizeof(told->error),
			       sizeof(told->offender));
		if (at->cmsg_level == SOL_IP && at->cmsg_type == IP_PKTINFO)
			memcpy(&told->packet, CMSG_DATA(at), sizeof(told->packet));
	}
	SAY("%zd bytes, flags %x, told%s", told->length, message->msg_flags, said);
}

/* Receives with these flags, into so much room. */
static struct told take(int fd, int flags, size_t room)
{
	struct told told = { 0 };
	char control[400];
	struct sockaddr_storage from;
	struct iovec vector = { told.data, room };
	struct msghdr message = {
		.msg_name = &from,
		.msg_namelen = sizeof(from),
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};

	told.length = recvmsg(fd, &message, flags);
	if (told.length < 0)
		return told;
	told.flags = message.msg_flags;
	look(&message, &told);
	if (flags & MSG_ERRQUEUE) {
		SAY("error %d, origin %d, type %d, code %d, what %d, number %d, name of %d bytes",
		    told.error.ee_errno, told.error.ee_origin, told.error.ee_type,
		    told.error.ee_code, told.error.ee_info, told.error.ee_data,
		    message.msg_namelen);
	}
	return told;
}

/* Waits for a report, and receives it. */
static struct told report(int fd)
{
	struct told told;

	CHECK(ready(fd, 0, PATIENCE) == POLLERR);
	told = take(fd, MSG_ERRQUEUE, sizeof(told.data));
	CHECK(told.length >= 0);
	return told;
}

static int none(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_ERRQUEUE) == -1 && errno == EAGAIN;
}

static int has_passed(const struct timespec *stamp, time_t since)
{
	/* The realm's clock and Linux's differ by less than that. */
	return stamp->tv_sec >= since - 1 && stamp->tv_sec <= time(NULL) + 1;
}

static int is_none(const struct timespec *stamp)
{
	return stamp->tv_sec == 0 && stamp->tv_nsec == 0;
}

/*
 * Waits until what comes is stamped: Linux begins with that some time after the first socket has
 * asked for it, and goes on until the last one is closed.
 */
static void begin_stamps(void)
{
	int near = stamped(RX), far = bound(FAR, SOCK_RAW, PROTOCOL);

	for (int tries = 0; tries < 1000; tries++) {
		char control[200];
		struct msghdr message = {
			.msg_control = control,
			.msg_controllen = sizeof(control),
		};

		put(far, FAR, 0, 60);
		CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
		CHECK(recvmsg(near, &message, 0) == 0);
		if (message.msg_controllen > 0)
			return;
		usleep(1000);
	}
	CHECK(!"stamped");
}

CASE(flags_are_kept_as_they_are_set)
{
	const int refused[] = {
		1 << 20,
		SOF_TIMESTAMPING_OPT_STATS,
		SOF_TIMESTAMPING_OPT_STATS | SOF_TIMESTAMPING_OPT_ID,
		1 << 16,
	};
	int fds[] = { opened(SOCK_RAW), bound(NEAR, SOCK_RAW, PROTOCOL) };
	struct {
		int flags, clock;
	} value = { TX, 0 };
	socklen_t length = sizeof(value);

	for (int i = 0; i < 2; i++) {
		CHECK(get(fds[i], SOL_SOCKET, SO_TIMESTAMPING) == 0);
		for (int k = 0; k < 4; k++) {
			PART("flags %x", refused[k]);
			CHECK(set(fds[i], SOL_SOCKET, SO_TIMESTAMPING, refused[k]) == -1 &&
			      errno == EINVAL);
		}
		CHECK(set(fds[i], SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_BIND_PHC) == -1 &&
		      errno == EOPNOTSUPP);
		CHECK(setsockopt(fds[i], SOL_SOCKET, SO_TIMESTAMPING, &value, 3) == -1 &&
		      errno == EINVAL);
		CHECK(set(fds[i], SOL_SOCKET, SO_TIMESTAMPING, 0x7f) == 0);
		CHECK(get(fds[i], SOL_SOCKET, SO_TIMESTAMPING) == 0x7f);
		CHECK(setsockopt(fds[i], SOL_SOCKET, SO_TIMESTAMPING_NEW, &value,
				 sizeof(value)) == 0);
		CHECK(getsockopt(fds[i], SOL_SOCKET, SO_TIMESTAMPING, &value, &length) == 0);
		SAY("%d bytes, flags %x, clock %d", length, value.flags, value.clock);
	}
	CHECK(set(fds[1], SOL_SOCKET, SO_TIMESTAMPING, 0) == 0);
	CHECK(get(fds[1], SOL_SOCKET, SO_SELECT_ERR_QUEUE) == 0);
}

CASE(an_interface_tells_which_stamps_it_has)
{
	const unsigned int all = TX | RX;
	struct ethtool_ts_info told = { .cmd = ETHTOOL_GET_TS_INFO };
	struct ifreq asked = { .ifr_data = (char *)&told };
	int fds[] = { socket(AF_INET, SOCK_DGRAM, 0), bound(NEAR, SOCK_RAW, PROTOCOL) };

	strcpy(asked.ifr_name, NEAR);
	for (int i = 0; i < 2; i++) {
		told.so_timestamping = 0;
		CHECK(ioctl(fds[i], SIOCETHTOOL, &asked) == 0);
		CHECK((told.so_timestamping & all) == all && told.cmd == ETHTOOL_GET_TS_INFO);
	}
	strcpy(asked.ifr_name, "none");
	CHECK(ioctl(fds[0], SIOCETHTOOL, &asked) == -1 && errno == ENODEV);
	asked.ifr_data = NULL;
	strcpy(asked.ifr_name, NEAR);
	CHECK(ioctl(fds[0], SIOCETHTOOL, &asked) == -1 && errno == EFAULT);
}

CASE(what_was_asked_for_before_a_bind_holds)
{
	struct sockaddr_ll to = address(NEAR, PROTOCOL);
	int near = opened(SOCK_RAW), far = bound(FAR, SOCK_RAW, PROTOCOL);
	time_t before = time(NULL);
	struct told told;

	begin_stamps();
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, TX | RX) == 0);
	CHECK(set(near, SOL_SOCKET, SO_SELECT_ERR_QUEUE, 1) == 0);
	CHECK(bind(near, (struct sockaddr *)&to, sizeof(to)) == 0);
	CHECK(get(near, SOL_SOCKET, SO_TIMESTAMPING) == (TX | RX));
	put(far, FAR, 1, 60);
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	told = take(near, 0, sizeof(told.data));
	CHECK(told.length == 74 && has_passed(&told.stamps[0], before));
	put(near, NEAR, 2, 60);
	CHECK(ready(near, POLLPRI, PATIENCE) == (POLLERR | POLLPRI));
	told = take(near, MSG_ERRQUEUE, sizeof(told.data));
	CHECK(told.length == 74 && has_passed(&told.stamps[0], before));
}

CASE(a_frame_has_the_stamp_of_when_it_came)
{
	int near, far = bound(FAR, SOCK_RAW, PROTOCOL);
	time_t before = time(NULL);
	struct told told;

	begin_stamps();
	near = stamped(RX);
	put(far, FAR, 1, 60);
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	told = take(near, 0, sizeof(told.data));
	CHECK(told.length == 74 && has_passed(&told.stamps[0], before));
	CHECK(is_none(&told.stamps[1]) && is_none(&told.stamps[2]));
	CHECK(ready(near, 0, 0) == 0 && none(near));
	/* By the other number. */
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING_NEW, RX) == 0);
	put(far, FAR, 1, 60);
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	told = take(near, 0, sizeof(told.data));
	CHECK(told.length == 74 && has_passed(&told.stamps[0], before));
	/* With a simple stamp as well. */
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, RX) == 0);
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPNS, 1) == 0);
	put(far, FAR, 1, 60);
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	told = take(near, 0, sizeof(told.data));
	CHECK(told.length == 74 && has_passed(&told.stamps[0], before));
	/* None. */
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPNS, 0) == 0);
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE) == 0);
	put(far, FAR, 1, 60);
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	CHECK(take(near, 0, sizeof(told.data)).length == 74);
}

CASE(a_frame_that_is_sent_is_reported)
{
	int near = stamped(TX), far = bound(FAR, SOCK_RAW, PROTOCOL);
	time_t before = time(NULL);
	struct told told;
	struct frame sent;
	size_t length = make(&sent, hardware(FAR), NEAR, PROTOCOL, 7, 100);

	CHECK(none(near) && ready(near, POLLIN, 0) == 0);
	CHECK(send(near, &sent, length, 0) == (ssize_t)length);
	CHECK(ready(far, POLLIN, PATIENCE) & POLLIN);
	/* It is no error of a call. */
	CHECK(get(near, SOL_SOCKET, SO_ERROR) == 0);
	CHECK(recv(near, told.data, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	told = report(near);
	CHECK(told.length == (ssize_t)length && memcmp(told.data, &sent, length) == 0);
	CHECK(has_passed(&told.stamps[0], before));
	CHECK(is_none(&told.stamps[1]) && is_none(&told.stamps[2]));
	CHECK(ready(near, 0, 0) == 0 && none(near));
	/* With little room; it is away then. */
	CHECK(send(near, &sent, length, 0) == (ssize_t)length);
	CHECK(ready(near, 0, PATIENCE) == POLLERR);
	CHECK(take(near, MSG_ERRQUEUE | MSG_PEEK, 20).length == 20);
	CHECK(none(near));
	/* Stamps that are made and not told. */
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE) == 0);
	CHECK(send(near, &sent, length, 0) == (ssize_t)length);
	CHECK(report(near).length == (ssize_t)length);
	/* Nothing. */
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, 0) == 0);
	CHECK(send(near, &sent, length, 0) == (ssize_t)length);
	CHECK(ready(near, 0, NEVER) == 0 && none(near));
	/* What is refused is not reported. */
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, TX) == 0);
	CHECK(send(near, &sent, 13, 0) == -1 && errno == EINVAL);
	CHECK(ready(near, 0, NEVER) == 0 && none(near));
}

CASE(reports_are_numbered)
{
	const int numbered = TX | SOF_TIMESTAMPING_OPT_ID;
	int near = stamped(numbered);

	for (int i = 0; i < 3; i++) {
		put(near, NEAR, i, 60);
		CHECK(report(near).error.ee_data == (unsigned int)i);
	}
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, numbered | SOF_TIMESTAMPING_TX_SCHED) == 0);
	put(near, NEAR, 3, 60);
	for (int i = 0; i < 2; i++)
		CHECK(report(near).error.ee_data == 3);
	/* Without reports nothing is numbered. */
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_OPT_ID) == 0);
	put(near, NEAR, 4, 60);
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, numbered) == 0);
	put(near, NEAR, 5, 60);
	CHECK(report(near).error.ee_data == 4);
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, TX) == 0);
	put(near, NEAR, 6, 60);
	CHECK(report(near).error.ee_data == 0);
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, numbered) == 0);
	put(near, NEAR, 7, 60);
	CHECK(report(near).error.ee_data == 0);
}

CASE(a_report_may_come_without_its_frame)
{
	int near = stamped(TX | SOF_TIMESTAMPING_OPT_TSONLY);

	put(near, NEAR, 1, 60);
	CHECK(report(near).length == 0);
}

/* Sends a frame with a control message of near's. */
static ssize_t put_with(int near, int kind, const void *value, size_t length)
{
	char control[CMSG_SPACE(16)] = { 0 };
	struct frame frame;
	struct iovec vector = { &frame, make(&frame, hardware(FAR), NEAR, PROTOCOL, 1, 60) };
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = CMSG_SPACE(length),
	};
	struct cmsghdr *first = CMSG_FIRSTHDR(&message);

	first->cmsg_level = SOL_SOCKET;
	first->cmsg_type = kind;
	first->cmsg_len = CMSG_LEN(length);
	memcpy(CMSG_DATA(first), value, length);
	return sendmsg(near, &message, 0);
}

CASE(a_message_may_ask_for_its_report)
{
	int near = stamped(SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID);
	uint32_t flags[4] = { SOF_TIMESTAMPING_TX_SOFTWARE };

	put(near, NEAR, 1, 60);
	CHECK(ready(near, 0, NEVER) == 0);
	CHECK(put_with(near, SO_TIMESTAMPING, flags, 4) == 74);
	CHECK(report(near).error.ee_data == 0);
	CHECK(put_with(near, SO_TIMESTAMPING, flags, 8) == -1 && errno == EINVAL);
	CHECK(put_with(near, 4711, flags, 4) == -1 && errno == EINVAL);
	flags[0] = RX;
	CHECK(put_with(near, SO_TIMESTAMPING, flags, 4) == -1 && errno == EINVAL);
	/* One may ask for none, too. */
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, TX) == 0);
	flags[0] = 0;
	CHECK(put_with(near, SO_TIMESTAMPING, flags, 4) == 74);
	CHECK(ready(near, 0, NEVER) == 0);
	/* What has no meaning has its length. */
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, 0) == 0);
	CHECK(put_with(near, SO_MARK, flags, 4) == 74);
	CHECK(put_with(near, SO_MARK, flags, 8) == -1 && errno == EINVAL);
	CHECK(put_with(near, SCM_RIGHTS, flags, 4) == 74);
}

CASE(what_is_no_control_message_is_refused)
{
	static char control[1 << 20];
	struct cmsghdr *first = (struct cmsghdr *)control;
	int near = stamped(TX);
	struct frame frame;
	struct iovec vector = { &frame, make(&frame, hardware(FAR), NEAR, PROTOCOL, 1, 60) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control };
	const size_t lengths[] = { 0, 15, 33, ~0UL, 1UL << 63 };

	message.msg_controllen = 32;
	for (int i = 0; i < 5; i++) {
		first->cmsg_len = lengths[i];
		PART("length %zu", lengths[i]);
		CHECK(sendmsg(near, &message, 0) == -1 && errno == EINVAL);
	}
	/* What is too short for one, and what another level means. */
	message.msg_controllen = 15;
	CHECK(sendmsg(near, &message, 0) == 74);
	*first = (struct cmsghdr){ CMSG_LEN(4), SOL_IP, IP_TTL };
	message.msg_controllen = CMSG_SPACE(4);
	CHECK(sendmsg(near, &message, 0) == 74);
	for (int i = 0; i < 2; i++)
		CHECK(report(near).length == 74);
	message.msg_controllen = sizeof(control);
	CHECK(sendmsg(near, &message, 0) == -1 && errno == ENOBUFS);
	message.msg_control = (void *)64;
	message.msg_controllen = 32;
	CHECK(sendmsg(near, &message, 0) == -1 && errno == EFAULT);
	CHECK(none(near));
}

CASE(reports_are_waited_for)
{
	struct epoll_event event = { .events = EPOLLPRI };
	int near = stamped(TX), set_of_one = epoll_create1(EPOLL_CLOEXEC);

	CHECK(epoll_ctl(set_of_one, EPOLL_CTL_ADD, near, &event) == 0);
	CHECK(epoll_wait(set_of_one, &event, 1, 0) == 0);
	put(near, NEAR, 1, 60);
	CHECK(epoll_wait(set_of_one, &event, 1, PATIENCE) == 1);
	SAY("events %x", event.events);
	CHECK(set(near, SOL_SOCKET, SO_SELECT_ERR_QUEUE, 1) == 0);
	CHECK(get(near, SOL_SOCKET, SO_SELECT_ERR_QUEUE) == 1);
	CHECK(epoll_wait(set_of_one, &event, 1, PATIENCE) == 1);
	SAY("events %x", event.events);
	CHECK(ready(near, POLLPRI, PATIENCE) == (POLLERR | POLLPRI));
	CHECK(recv(near, &event, 1, MSG_ERRQUEUE) == 1);
	CHECK(epoll_wait(set_of_one, &event, 1, 0) == 0);
}

CASE(each_report_is_news)
{
	struct epoll_event event = { .events = EPOLLET };
	int near = stamped(TX), set_of_one = epoll_create1(EPOLL_CLOEXEC);

	CHECK(epoll_ctl(set_of_one, EPOLL_CTL_ADD, near, &event) == 0);
	for (int i = 0; i < 3; i++) {
		put(near, NEAR, i, 60);
		CHECK(epoll_wait(set_of_one, &event, 1, PATIENCE) == 1);
		SAY("events %x", event.events);
		CHECK(epoll_wait(set_of_one, &event, 1, 0) == 0);
	}
	for (int i = 0; i < 3; i++)
		CHECK(report(near).length == 74);
}

CASE(a_frame_without_its_header_is_reported_with_it)
{
	struct sockaddr_ll to = address(NEAR, PROTOCOL);
	int near = bound(NEAR, SOCK_DGRAM, PROTOCOL);
	char data[60] = "cooked";
	struct told told;

	to.sll_halen = ETH_ALEN;
	memcpy(to.sll_addr, hardware(FAR), ETH_ALEN);
	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPING, TX) == 0);
	CHECK(sendto(near, data, 60, 0, (struct sockaddr *)&to, sizeof(to)) == 60);
	told = report(near);
	CHECK(told.length == 74 && memcmp(told.data, hardware(FAR), ETH_ALEN) == 0);
	CHECK(memcmp(told.data + 14, data, 60) == 0);
}

CASE(control_messages_of_a_report_are_cut)
{
	const size_t rooms[] = { 0, 15, 16, 17, 64, 70, 80, 95, 96, 97, 100, 200 };
	int near = stamped(TX);

	for (int i = 0; i < 12; i++) {
		char control[200];
		struct msghdr message = { .msg_control = control, .msg_controllen = rooms[i] };

		put(near, NEAR, i, 60);
		CHECK(ready(near, 0, PATIENCE) == POLLERR);
		CHECK(recvmsg(near, &message, MSG_ERRQUEUE) == 0);
		SAY("of %zu bytes %zu, flags %x", rooms[i], message.msg_controllen,
		    message.msg_flags);
	}
}

CASE(reports_come_several_at_once)
{
	struct mmsghdr messages[4] = { 0 };
	int near = stamped(TX);

	for (int i = 0; i < 3; i++)
		put(near, NEAR, i, 60);
	while (recvmmsg(near, messages, 1, MSG_ERRQUEUE | MSG_PEEK, NULL) != 1)
		CHECK(errno == EAGAIN && ready(near, 0, PATIENCE) == POLLERR);
	usleep(1000 * NEVER);
	CHECK(recvmmsg(near, messages, 4, MSG_ERRQUEUE, NULL) == 2);
	for (int i = 0; i < 2; i++)
		SAY("%d bytes, flags %x", messages[i].msg_len, messages[i].msg_hdr.msg_flags);
	CHECK(recvmmsg(near, messages, 4, MSG_ERRQUEUE, NULL) == -1 && errno == EAGAIN);
}

CASE(reports_that_nobody_takes_are_bounded)
{
	int near = stamped(TX | SOF_TIMESTAMPING_OPT_ID), count = 0;
	struct frame got;

	for (int i = 0; i < 1500; i++)
		put(near, NEAR, i, 60);
	CHECK(ready(near, 0, PATIENCE) == POLLERR);
	while (recv(near, &got, sizeof(got), MSG_ERRQUEUE) == 74) {
		PART("report %d", count);
		CHECK(got.data[0] == (uint8_t)count);
		count++;
	}
	CHECK(count > 20 && count < 1500);
	put(near, NEAR, 1, 60);
	CHECK(report(near).error.ee_data == 1500);
	/* What waits when it is closed is gone. */
	for (int i = 0; i < 20; i++) {
		put(near, NEAR, i, 1000);
		close(near);
		near = stamped(TX);
	}
}

/* A socket of UDP that has to do with near alone. */
static int udp_of_near(int flags)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	CHECK(set(fd, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, NEAR, sizeof(NEAR)) == 0);
	CHECK(set(fd, SOL_SOCKET, SO_TIMESTAMPING, flags) == 0);
	return fd;
}

static struct sockaddr_in place(const char *ip)
{
	struct sockaddr_in made = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	inet_aton(ip, &made.sin_addr);
	return made;
}

static void say_to(int fd, const char *ip, size_t length)
{
	struct sockaddr_in to = place(ip);
	char data[4000] = { 0 };

	CHECK(sendto(fd, data, length, 0, (struct sockaddr *)&to, sizeof(to)) == (ssize_t)length);
}

CASE(a_datagram_that_is_sent_is_reported)
{
	int udp = udp_of_near(TX | SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_TX_SCHED);
	time_t before = time(NULL);
	struct told told;

	CHECK(none(udp));
	say_to(udp, GROUP, 100);
	for (int i = 0; i < 2; i++) {
		told = report(udp);
		CHECK(told.length == 142 && has_passed(&told.stamps[0], before));
		/* The frame: for the group, of IP, with its length. */
		SAY("to %02x:%02x, protocol %02x%02x, length %d, of %d", told.data[0], told.data[2],
		    told.data[12], told.data[13], told.data[17], told.data[23]);
		SAY("offender %d at %s", told.offender.sin_family,
		    inet_ntoa(told.offender.sin_addr));
	}
	CHECK(none(udp));
	/* One that is cut is reported once. */
	say_to(udp, GROUP, 3000);
	for (int i = 0; i < 2; i++) {
		CHECK(ready(udp, 0, PATIENCE) == POLLERR);
		CHECK(recv(udp, told.data, 1, MSG_ERRQUEUE) == 1);
	}
	CHECK(none(udp));
	say_to(udp, GROUP, 1);
	CHECK(report(udp).error.ee_data == 2 && report(udp).error.ee_data == 2);
}

CASE(a_datagram_may_have_control_messages_of_others)
{
	char control[CMSG_SPACE(4)] = { 0 }, data[10] = { 0 };
	struct sockaddr_in to = place(GROUP);
	struct iovec vector = { data, sizeof(data) };
	struct msghdr message = {
		.msg_name = &to,
		.msg_namelen = sizeof(to),
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *first = CMSG_FIRSTHDR(&message);
	int udp = udp_of_near(TX | SOF_TIMESTAMPING_OPT_TSONLY);

	*first = (struct cmsghdr){ CMSG_LEN(4), SOL_IPV6, 4711 };
	CHECK(sendmsg(udp, &message, 0) == 10);
	CHECK(report(udp).length == 0);
	first->cmsg_level = SOL_IP;
	CHECK(sendmsg(udp, &message, 0) == -1 && errno == EINVAL);
	first->cmsg_level = SOL_UDP;
	CHECK(sendmsg(udp, &message, 0) == -1 && errno == EINVAL);
	CHECK(none(udp));
}

CASE(a_report_tells_by_which_interface_a_datagram_went)
{
	int udp = udp_of_near(TX | SOF_TIMESTAMPING_OPT_CMSG);
	struct told told;

	say_to(udp, GROUP, 10);
	told = report(udp);
	SAY("offender %d at %s", told.offender.sin_family, inet_ntoa(told.offender.sin_addr));
	CHECK(set(udp, SOL_IP, IP_PKTINFO, 1) == 0);
	say_to(udp, GROUP, 10);
	told = report(udp);
	SAY("offender %d at %s", told.offender.sin_family, inet_ntoa(told.offender.sin_addr));
	SAY("from %s", inet_ntoa(told.packet.ipi_spec_dst));
	SAY("to %s", inet_ntoa(told.packet.ipi_addr));
	CHECK(told.packet.ipi_ifindex == (int)if_nametoindex(NEAR));
	CHECK(set(udp, SOL_SOCKET, SO_TIMESTAMPING,
		  TX | SOF_TIMESTAMPING_OPT_CMSG | SOF_TIMESTAMPING_OPT_TSONLY) == 0);
	say_to(udp, GROUP, 10);
	told = report(udp);
	CHECK(told.length == 0 && told.offender.sin_family == 0);
}

/* Answers the question for the station with an address that nobody has. */
static void answer(int far, const uint8_t *question)
{
	struct frame frame;
	size_t length = make(&frame, hardware(NEAR), FAR, ETH_P_ARP, 0, 46);

	memcpy(frame.data, question, 28);
	frame.data[7] = 2;
	memcpy(frame.data + 8, hardware(FAR), ETH_ALEN);
	memcpy(frame.data + 14, question + 24, 4);
	memcpy(frame.data + 18, question + 8, 10);
	CHECK(send(far, &frame, length, 0) == (ssize_t)length);
}

/* Waits for the question for the station with an address that ends so. */
static struct frame asked_for(int far, uint8_t end)
{
	struct frame question;

	do
		CHECK(ready(far, POLLIN, PATIENCE) & POLLIN);
	while (recv(far, &question, sizeof(question), 0) < 42 || question.data[27] != end);
	return question;
}

CASE(a_report_comes_when_the_frame_has_gone)
{
	int udp = udp_of_near(TX | SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_TX_SCHED);
	int far = bound(FAR, SOCK_RAW, ETH_P_ARP);
	struct frame question;
	struct told told;

	say_to(udp, "10.9.0.88", 10);
	question = asked_for(far, 88);
	CHECK(none(udp) && ready(udp, 0, 0) == 0);
	answer(far, question.data);
	for (int i = 0; i < 2; i++) {
		told = report(udp);
		CHECK(told.length == 52 && memcmp(told.data, hardware(FAR), ETH_ALEN) == 0);
	}
}

CASE(a_report_comes_also_if_none_is_asked_for_any_more)
{
	int udp = udp_of_near(TX), far = bound(FAR, SOCK_RAW, ETH_P_ARP);
	time_t before = time(NULL);
	struct frame question;
	struct told told;

	say_to(udp, "10.9.0.89", 10);
	question = asked_for(far, 89);
	CHECK(set(udp, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE) == 0);
	CHECK(set(udp, SOL_SOCKET, SO_PRIORITY, 1) == 0);
	answer(far, question.data);
	told = report(udp);
	CHECK(told.length == 52 && has_passed(&told.stamps[0], before));
	CHECK(none(udp));
}

CASE(a_datagram_has_the_stamp_of_when_it_came)
{
	int udp = udp_of_near(RX), far = bound(FAR, SOCK_RAW, 0);
	struct sockaddr_in own = place("10.9.0.1");
	time_t before = time(NULL);
	/* From 10.9.0.9 to 10.9.0.1, 18 bytes behind the headers, without a checksum of these. */
	static const uint8_t packet[46] = {
		0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0x66, 0xa3, 10, 9, 0, 9, 10, 9, 0, 1,
		PORT >> 8, PORT & 255, PORT >> 8, PORT & 255, 0, 26, 0, 0, 's', 't', 'a', 'm', 'p',
	};
	struct frame frame;
	size_t length = make(&frame, hardware(NEAR), FAR, ETH_P_IP, 0, sizeof(packet));
	struct told told;

	begin_stamps();
	CHECK(bind(udp, (struct sockaddr *)&own, sizeof(own)) == 0);
	memcpy(frame.data, packet, sizeof(packet));
	CHECK(send(far, &frame, length, 0) == (ssize_t)length);
	CHECK(ready(udp, POLLIN, PATIENCE) & POLLIN);
	told = take(udp, 0, sizeof(told.data));
	CHECK(told.length == 18 && memcmp(told.data, "stamp", 5) == 0);
	CHECK(has_passed(&told.stamps[0], before));
	CHECK(is_none(&told.stamps[1]) && is_none(&told.stamps[2]));
}

CASE(a_ring_tells_whose_stamps_it_has)
{
	const unsigned int kinds = TP_STATUS_TS_SOFTWARE | TP_STATUS_TS_RAW_HARDWARE;
	struct tpacket_req wanted = { 4096, 4, 2048, 8 };
	int near, far = bound(FAR, SOCK_RAW, PROTOCOL);
	volatile struct tpacket2_hdr *head;
	time_t before = time(NULL);

	begin_stamps();
	near = stamped(RX);
	CHECK(get(near, SOL_PACKET, PACKET_TIMESTAMP) == 0);
	CHECK(set(near, SOL_PACKET, PACKET_TIMESTAMP, SOF_TIMESTAMPING_RAW_HARDWARE) == 0);
	CHECK(get(near, SOL_PACKET, PACKET_TIMESTAMP) == SOF_TIMESTAMPING_RAW_HARDWARE);
	CHECK(set(near, SOL_PACKET, PACKET_VERSION, TPACKET_V2) == 0);
	CHECK(setsockopt(near, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof(wanted)) == 0);
	head = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, near, 0);
	CHECK(head != MAP_FAILED);
	put(far, FAR, 1, 60);
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	SAY("status %x", head->tp_status & (kinds | TP_STATUS_USER));
	CHECK(has_passed(&(struct timespec){ head->tp_sec, 0 }, before));
}
