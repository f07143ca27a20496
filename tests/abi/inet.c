// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * Sockets of UDP and TCP at the address of the network interface near, whose wire leads to a peer:
 * this program as `peer`, which runs under Linux in a network namespace that has the other end. In
 * the realm near is one of the realm's interfaces.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "check.h"
#include "driven.h"
#include "one-cpu.h"
#include "options.h"
#include "stations.h"
#include "waiting.h"

#define GROUP "239.1.2.3"
/* Port of the peer: commands. */
#define COMMAND 7001

/* What the peer is asked to do. */
struct command {
	enum { CONNECT, CONNECT_AND_RESET, SEND } what;
	uint32_t address;
	uint16_t port;
};

static int udp(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	return fd;
}

static int tcp(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	return fd;
}

static struct sockaddr_in peer_of(int fd)
{
	struct sockaddr_in name;
	socklen_t length = sizeof(name);

	CHECK(getpeername(fd, (struct sockaddr *)&name, &length) == 0 && length == sizeof(name));
	return name;
}

static int is_far(struct sockaddr_in at)
{
	return at.sin_family == AF_INET && at.sin_addr.s_addr == inet_addr(FAR);
}

static int is_near(struct sockaddr_in at)
{
	return at.sin_family == AF_INET && at.sin_addr.s_addr == inet_addr(NEAR);
}

/* Whether a list of interfaces of so many bytes has near, with its address. */
static int lists_near(struct ifconf list)
{
	struct sockaddr_in near = address(NEAR, 0);

	for (int at = 0; at < list.ifc_len / (int)sizeof(struct ifreq); at++) {
		struct sockaddr_in own;

		memcpy(&own, &list.ifc_req[at].ifr_addr, sizeof(own));
		if (strcmp(list.ifc_req[at].ifr_name, "near") == 0 && own.sin_family == AF_INET &&
		    own.sin_addr.s_addr == near.sin_addr.s_addr)
			return 1;
	}
	return 0;
}

/* A socket of UDP that is bound to the near address, at any port. */
static int bound_udp(void)
{
	int fd = udp();

	CHECK(bind(fd, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(name_of(fd).sin_port != 0);
	return fd;
}

static void command(struct command asked)
{
	int fd = bound_udp();

	CHECK(sendto(fd, &asked, sizeof(asked), 0, ADDRESS(FAR, COMMAND), LENGTH) == sizeof(asked));
	close(fd);
}

static int comes(int fd)
{
	return ready(fd, POLLIN, PATIENCE) & POLLIN;
}

static uint8_t bytes[70000], got[70000];
/* A thread has done what it was started for. */
static atomic_int ended;

static void fill(size_t length)
{
	for (size_t at = 0; at < length; at++)
		bytes[at] = at * 31 + at / 251 + length;
}

/* What is sent to the peer comes back. */
static void echoes(int fd, size_t length)
{
	PART("%zu bytes", length);
	fill(length);
	CHECK(sendto(fd, bytes, length, 0, ADDRESS(FAR, ECHO), LENGTH) == (ssize_t)length);
	CHECK(comes(fd));
	CHECK(recv(fd, got, sizeof(got), 0) == (ssize_t)length && memcmp(bytes, got, length) == 0);
}

CASE(a_datagram_comes_back)
{
	struct sockaddr_in from;
	socklen_t length = sizeof(from);
	int fd = udp();

	CHECK(sendto(fd, "hello", 5, 0, ADDRESS(FAR, ECHO), LENGTH) == 5);
	CHECK(name_of(fd).sin_addr.s_addr == INADDR_ANY && name_of(fd).sin_port != 0);
	CHECK(comes(fd));
	CHECK(recvfrom(fd, got, 100, 0, (struct sockaddr *)&from, &length) == 5);
	CHECK(memcmp(got, "hello", 5) == 0 && length == sizeof(from));
	CHECK(is_far(from) && from.sin_port == htons(ECHO));
}

CASE(a_signal_tells_of_a_datagram)
{
	int fd = udp(), group = -getpgrp();

	CHECK(drive(fd) && bind(fd, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(fcntl(fd, F_GETFL) == (O_RDWR | O_ASYNC) && fcntl(fd, F_GETOWN) == getpid());
	echoes(fd, 100);
	CHECK(is_driven(fd, POLL_IN));
	CHECK(ioctl(fd, SIOCSPGRP, &group) == 0 && fcntl(fd, F_GETOWN) == group);
	group = 0;
	CHECK(ioctl(fd, FIOGETOWN, &group) == 0 && group == -getpgrp());
}

CASE(datagrams_of_any_length)
{
	static const int lengths[] = { 0, 1, 17, 1471, 1472, 1473, 2960, 9000, 65507 };
	int fd = bound_udp();

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		echoes(fd, lengths[i]);
	FAILS(EMSGSIZE, sendto(fd, bytes, 65508, 0, ADDRESS(FAR, ECHO), LENGTH));
	CHECK(set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) == 0);
	FAILS(EMSGSIZE, sendto(fd, bytes, 1473, 0, ADDRESS(FAR, ECHO), LENGTH));
	echoes(fd, 1472);
}

CASE(a_port_is_one_sockets)
{
	int fd = udp(), other = udp();
	struct sockaddr_in taken;

	CHECK(bind(fd, ADDRESS(NEAR, 0), LENGTH) == 0);
	FAILS(EINVAL, bind(fd, ADDRESS(NEAR, 0), LENGTH));
	taken = name_of(fd);
	CHECK(is_near(taken));
	FAILS(EADDRINUSE, bind(other, (struct sockaddr *)&taken, LENGTH));
	FAILS(EADDRNOTAVAIL, bind(other, ADDRESS(NOBODY, 0), LENGTH));
	FAILS(EINVAL, bind(other, (struct sockaddr *)&taken, LENGTH - 1));
	close(fd);
	CHECK(bind(other, (struct sockaddr *)&taken, LENGTH) == 0);
	fd = udp();
	CHECK(set(fd, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
	FAILS(EADDRINUSE, bind(fd, (struct sockaddr *)&taken, LENGTH));
	CHECK(set(other, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
	CHECK(bind(fd, (struct sockaddr *)&taken, LENGTH) == 0);
}

CASE(a_socket_that_is_connected)
{
	struct sockaddr unspecified = { .sa_family = AF_UNSPEC };
	int fd = udp(), other = bound_udp();
	struct sockaddr_in own;

	FAILS(EDESTADDRREQ, send(other, "x", 1, 0));
	FAILS(ENOTCONN, getpeername(other, (struct sockaddr *)&own, &(socklen_t){ sizeof(own) }));
	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(is_near(name_of(fd)) && name_of(fd).sin_port != 0);
	CHECK(is_far(peer_of(fd)) && peer_of(fd).sin_port == htons(ECHO));
	CHECK(write(fd, "one", 3) == 3 && comes(fd) && read(fd, got, 100) == 3);
	/* What another one sends to it does not come. */
	own = name_of(fd);
	CHECK(sendto(other, "strange", 7, 0, (struct sockaddr *)&own, LENGTH) == 7);
	CHECK(!ready(fd, POLLIN, NEVER));
	/* What was not bound by itself is bound to nothing then. */
	CHECK(connect(fd, &unspecified, sizeof(unspecified)) == 0);
	FAILS(EDESTADDRREQ, send(fd, "x", 1, 0));
	CHECK(name_of(fd).sin_addr.s_addr == INADDR_ANY);
	echoes(fd, 10);
	own = name_of(other);
	CHECK(connect(other, ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(connect(other, &unspecified, sizeof(unspecified)) == 0);
	CHECK(is_near(name_of(other)) && name_of(other).sin_port == 0);
	CHECK(bind(other, (struct sockaddr *)&own, LENGTH) == 0);
	CHECK(connect(other, ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(connect(other, &unspecified, sizeof(unspecified)) == 0);
	CHECK(name_of(other).sin_port == own.sin_port);
	echoes(other, 10);
}

CASE(what_a_socket_of_udp_is_ready_for)
{
	const short all = POLLIN | POLLOUT | POLLWRNORM | POLLWRBAND | POLLRDHUP;
	int fd = udp();

	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(ready(fd, all, PATIENCE) == (POLLOUT | POLLWRNORM | POLLWRBAND));
	CHECK(shutdown(fd, SHUT_RD) == 0);
	CHECK(ready(fd, all, PATIENCE) == all);
}

CASE(nobody_has_the_port)
{
	int fd = udp(), other = bound_udp();

	CHECK(connect(fd, ADDRESS(FAR, CLOSED), LENGTH) == 0);
	CHECK(send(fd, "x", 1, 0) == 1);
	CHECK(ready(fd, POLLIN, PATIENCE) & POLLERR);
	FAILS(ECONNREFUSED, recv(fd, got, 100, 0));
	FAILS(EAGAIN, recv(fd, got, 100, MSG_DONTWAIT));
	CHECK(send(fd, "x", 1, 0) == 1);
	CHECK(ready(fd, POLLIN, PATIENCE) & POLLERR);
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == 0);
	/* Who is not connected is not told. */
	CHECK(sendto(other, "x", 1, 0, ADDRESS(FAR, CLOSED), LENGTH) == 1);
	CHECK(!ready(other, POLLIN, NEVER));
	echoes(other, 10);
}

/* What was received with MSG_ERRQUEUE, and its data in `got`. */
struct lost {
	ssize_t length;
	struct sockaddr_in6 to;
	socklen_t to_length;
	int level;
	struct {
		struct sock_extended_err error;
		struct sockaddr_in6 offender;
	} said;
	socklen_t said_length;
	struct in_pktinfo packet;
	int lifetime;
};

static struct lost lost(int fd)
{
	char control[500];
	struct lost lost = { .level = -1 };
	struct iovec vector = { got, sizeof(got) };
	struct msghdr message = { &lost.to, sizeof(lost.to), &vector, 1,
				  control, sizeof(control), 0 };

	lost.length = recvmsg(fd, &message, MSG_ERRQUEUE);
	CHECK(lost.length >= 0 && message.msg_flags == MSG_ERRQUEUE);
	lost.to_length = message.msg_namelen;
	for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
		size_t length = at->cmsg_len - CMSG_LEN(0);

		if (at->cmsg_level == SOL_IP && at->cmsg_type == IP_PKTINFO) {
			memcpy(&lost.packet, CMSG_DATA(at), sizeof(lost.packet));
		} else if (at->cmsg_level == SOL_IP && at->cmsg_type == IP_TTL) {
			memcpy(&lost.lifetime, CMSG_DATA(at), sizeof(lost.lifetime));
		} else {
			const int expected = at->cmsg_level == SOL_IP ? IP_RECVERR : IPV6_RECVERR;

			CHECK(at->cmsg_type == expected);
			CHECK(length <= sizeof(lost.said) && lost.level == -1);
			memcpy(&lost.said, CMSG_DATA(at), length);
			lost.said_length = length;
			lost.level = at->cmsg_level;
		}
	}
	return lost;
}

static int is_error(struct lost *lost, int error, int origin, int type, int code,
		    unsigned int info)
{
	struct sock_extended_err expected = { error, origin, type, code, 0, info, { 0 } };

	return memcmp(&lost->said.error, &expected, sizeof(expected)) == 0;
}

static int is_at(const void *address, const char *ip, int port)
{
	struct sockaddr_in expected = { .sin_family = AF_INET, .sin_port = htons(port),
					.sin_addr = { inet_addr(ip) } };

	return memcmp(address, &expected, sizeof(expected)) == 0;
}

/* A socket that is told what is lost, and how. */
static int told_of_errors(void)
{
	int fd = bound_udp();

	CHECK(get(fd, SOL_IP, IP_RECVERR) == 0);
	CHECK(set(fd, SOL_IP, IP_RECVERR, 5) == 0 && get(fd, SOL_IP, IP_RECVERR) == 1);
	CHECK(set(fd, SOL_IP, IP_PKTINFO, 1) == 0 && set(fd, SOL_IP, IP_RECVTTL, 1) == 0);
	FAILS(EAGAIN, recv(fd, got, 100, MSG_ERRQUEUE));
	return fd;
}

/* Sends that where nobody has the port, and waits for the answer. */
static void send_in_vain(int fd, const char *text)
{
	ssize_t length = strlen(text);

	CHECK(sendto(fd, text, length, 0, ADDRESS(FAR, CLOSED), LENGTH) == length);
	CHECK(ready(fd, POLLIN, PATIENCE) == POLLERR);
}

CASE(errors_are_told_with_what_is_lost)
{
	int fd = told_of_errors();
	struct lost at;

	send_in_vain(fd, "hello");
	FAILS(ECONNREFUSED, recv(fd, got, 100, MSG_DONTWAIT));
	FAILS(EAGAIN, recv(fd, got, 100, MSG_DONTWAIT));
	CHECK(ready(fd, POLLIN, 0) == POLLERR);
	at = lost(fd);
	CHECK(at.length == 5 && memcmp(got, "hello", 5) == 0);
	CHECK(at.to_length == LENGTH && is_at(&at.to, FAR, CLOSED));
	CHECK(at.level == SOL_IP && at.said_length == 16 + LENGTH);
	CHECK(is_error(&at, ECONNREFUSED, SO_EE_ORIGIN_ICMP, 3, 3, 0));
	CHECK(is_at(&at.said.offender, FAR, 0));
	CHECK(at.packet.ipi_ifindex == (int)if_nametoindex("near"));
	CHECK(at.packet.ipi_addr.s_addr == inet_addr(NEAR) && at.packet.ipi_spec_dst.s_addr == 0);
	CHECK(at.lifetime == 64);
	FAILS(EAGAIN, recv(fd, got, 100, MSG_ERRQUEUE));
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == 0 && ready(fd, POLLIN, 0) == 0);
}

CASE(errors_wait_in_their_order)
{
	int fd = told_of_errors();
	struct lost at;

	send_in_vain(fd, "one");
	FAILS(ECONNREFUSED, sendto(fd, "no", 2, 0, ADDRESS(FAR, CLOSED), LENGTH));
	send_in_vain(fd, "two");
	/* The second one is there as well. */
	while (recv(fd, got, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN)
		;
	CHECK(errno == ECONNREFUSED);
	at = lost(fd);
	CHECK(at.length == 3 && memcmp(got, "one", 3) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == 0);
	at = lost(fd);
	CHECK(at.length == 3 && memcmp(got, "two", 3) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == 0);
	/* Who does not want them any more has none. */
	send_in_vain(fd, "three");
	CHECK(set(fd, SOL_IP, IP_RECVERR, 0) == 0);
	FAILS(EAGAIN, recv(fd, got, 100, MSG_ERRQUEUE));
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == ECONNREFUSED && ready(fd, POLLIN, 0) == 0);
	echoes(fd, 10);
}

CASE(what_is_too_long_is_told_with_how_long_it_may_be)
{
	int fd = told_of_errors(), longest;
	struct lost at;

	CHECK(set(fd, SOL_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) == 0);
	FAILS(EMSGSIZE, sendto(fd, bytes, 20000, 0, ADDRESS(FAR, ECHO), LENGTH));
	CHECK(ready(fd, POLLIN, 0) == POLLERR && get(fd, SOL_SOCKET, SO_ERROR) == 0);
	at = lost(fd);
	CHECK(at.length == 0 && at.to_length == LENGTH && is_at(&at.to, FAR, 0));
	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	longest = get(fd, SOL_IP, IP_MTU);
	CHECK(is_error(&at, EMSGSIZE, SO_EE_ORIGIN_LOCAL, 0, 0, longest));
	CHECK(at.level == SOL_IP && at.said_length == 16 + LENGTH);
	CHECK(at.said.offender.sin6_family == 0);
	CHECK(at.packet.ipi_ifindex == 0 && at.lifetime == 0);
	FAILS(EMSGSIZE, send(fd, bytes, longest - 27, 0));
	at = lost(fd);
	CHECK(at.length == 0 && is_at(&at.to, FAR, ECHO));
	CHECK(is_error(&at, EMSGSIZE, SO_EE_ORIGIN_LOCAL, 0, 0, longest));
	/* Longer than any datagram, also of who has them cut; longer than can be said. */
	FAILS(EMSGSIZE, send(fd, bytes, 65536, 0));
	FAILS(EAGAIN, recv(fd, got, 100, MSG_ERRQUEUE));
	CHECK(set(fd, SOL_IP, IP_MTU_DISCOVER, IP_PMTUDISC_WANT) == 0);
	FAILS(EMSGSIZE, send(fd, bytes, 65508, 0));
	at = lost(fd);
	CHECK(is_error(&at, EMSGSIZE, SO_EE_ORIGIN_LOCAL, 0, 0, longest));
	CHECK(send(fd, bytes, longest - 28, 0) == longest - 28);
	CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) == longest - 28);
}

CASE(nobody_has_the_address)
{
	int fd = told_of_errors(), other = udp();
	struct lost at;

	CHECK(connect(other, ADDRESS(NOBODY, ECHO), LENGTH) == 0 && send(other, "x", 1, 0) == 1);
	CHECK(sendto(fd, "hello", 5, 0, ADDRESS(NOBODY, ECHO), LENGTH) == 5);
	CHECK(ready(fd, POLLIN, PATIENCE) == POLLERR);
	at = lost(fd);
	CHECK(at.length == 5 && memcmp(got, "hello", 5) == 0 && is_at(&at.to, NOBODY, ECHO));
	CHECK(is_error(&at, EHOSTUNREACH, SO_EE_ORIGIN_ICMP, 3, 1, 0));
	CHECK(is_at(&at.said.offender, NEAR, 0) && at.packet.ipi_addr.s_addr == inet_addr(NEAR));
	CHECK(at.packet.ipi_ifindex == 1 && at.lifetime == 64);
	/* Who has not asked is not told, although it talks to that address alone. */
	CHECK(!ready(other, POLLIN, NEVER) && get(other, SOL_SOCKET, SO_ERROR) == 0);
}

/* Bytes of a datagram of which the smallest buffer takes one, and how many wait. */
#define LARGE 1000
#define MANY 40

CASE(a_smaller_buffer_leaves_what_waits)
{
	struct sockaddr_in own;
	int fd = bound_udp(), sender = udp();

	own = name_of(fd);
	for (int i = 0; i <= MANY; i++) {
		memset(bytes, i, LARGE);
		if (i == MANY)
			CHECK(set(fd, SOL_SOCKET, SO_RCVBUF, 1) == 0);
		/* The last one finds no room any more. */
		CHECK(sendto(sender, bytes, LARGE, 0, (struct sockaddr *)&own, LENGTH) == LARGE);
	}
	for (int i = 0; i < MANY; i++) {
		CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) == LARGE);
		CHECK(got[0] == i && got[LARGE - 1] == i);
	}
	FAILS(EAGAIN, recv(fd, got, sizeof(got), MSG_DONTWAIT));
	CHECK(sendto(sender, "more", 4, 0, (struct sockaddr *)&own, LENGTH) == 4);
	CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) == 4);
	close(fd);
	close(sender);
}

CASE(a_list_of_interfaces)
{
	struct ifreq room[64];
	struct ifconf list = { .ifc_len = sizeof(room), .ifc_req = room };
	int fd = bound_udp();

	CHECK(ioctl(fd, SIOCGIFCONF, &list) == 0 && lists_near(list));
	/* How long it is, and less than there is no room for. */
	list.ifc_req = NULL;
	CHECK(ioctl(fd, SIOCGIFCONF, &list) == 0 && list.ifc_len >= (int)sizeof(struct ifreq));
	list.ifc_req = room;
	list.ifc_len = sizeof(struct ifreq) - 1;
	CHECK(ioctl(fd, SIOCGIFCONF, &list) == 0 && list.ifc_len == 0);
	FAILS(EFAULT, ioctl(fd, SIOCGIFCONF, NULL));
	close(fd);
}

/* A socket of the realm's is asked for interfaces that are Linux's. */
CASE(interfaces_of_linux)
{
	int fds[] = { bound_udp(), tcp(), tcp() };

	CHECK(connect(fds[1], ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(bind(fds[2], ADDRESS(NEAR, 0), LENGTH) == 0 && listen(fds[2], 1) == 0);
	for (int i = 0; i < 3; i++) {
		struct ifreq asked = { .ifr_name = "lo" };

		PART("socket %d", i);
		CHECK(ioctl(fds[i], SIOCGIFFLAGS, &asked) == 0 && asked.ifr_flags & IFF_LOOPBACK);
		CHECK(ioctl(fds[i], SIOCGIFMTU, &asked) == 0 && asked.ifr_mtu == 65536);
		CHECK(ioctl(fds[i], SIOCGIFINDEX, &asked) == 0);
		CHECK(asked.ifr_ifindex == (int)if_nametoindex("lo"));
		memset(asked.ifr_name, 0, sizeof(asked.ifr_name));
		CHECK(ioctl(fds[i], SIOCGIFNAME, &asked) == 0);
		CHECK(strcmp(asked.ifr_name, "lo") == 0);
		strcpy(asked.ifr_name, "none");
		FAILS(ENODEV, ioctl(fds[i], SIOCGIFFLAGS, &asked));
		FAILS(EFAULT, ioctl(fds[i], SIOCGIFFLAGS, NULL));
		FAILS(ENODEV, ioctl(fds[i], SIOCDEVPRIVATE + 7, &asked));
		close(fds[i]);
	}
}

/* A question for the station of an address, by an interface of that name. */
static struct arpreq about(const char *ip, const char *name)
{
	struct sockaddr_in protocol = address(ip, 0);
	struct arpreq made = { 0 };

	memcpy(&made.arp_pa, &protocol, sizeof(protocol));
	strcpy(made.arp_dev, name);
	return made;
}

/* The same with what is to be said of it. */
static struct arpreq station_is(const char *ip, const char *name, const uint8_t *station, int flags)
{
	struct arpreq made = about(ip, name);

	made.arp_ha.sa_family = ARPHRD_ETHER;
	memcpy(made.arp_ha.sa_data, station, 6);
	made.arp_flags = flags;
	return made;
}

/* To which station the next packet goes from near to NOBODY, as FD hears it. */
static int goes_to(int fd, const uint8_t *station)
{
	in_addr_t nobody = inet_addr(NOBODY);
	uint8_t frame[2000];

	while (comes(fd)) {
		ssize_t count = recv(fd, frame, sizeof(frame), 0);

		if (count >= 34 && frame[12] == 8 && frame[13] == 0 &&
		    memcmp(frame + 30, &nobody, 4) == 0)
			return memcmp(frame, station, 6) == 0;
	}
	return 0;
}

CASE(stations_that_programs_name)
{
	static const uint8_t station[] = { 2, 0, 0, 0, 0, 77 }, other[] = { 2, 0, 0, 0, 0, 78 };
	struct sockaddr_ll near = { .sll_family = AF_PACKET, .sll_protocol = htons(3) };
	struct arpreq asked;
	int fd = bound_udp(), free = udp(), wire = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

	near.sll_ifindex = if_nametoindex("near");
	CHECK(wire >= 0 && bind(wire, (struct sockaddr *)&near, sizeof(near)) == 0);
	/* One that has answered. */
	CHECK(sendto(fd, "x", 1, 0, ADDRESS(FAR, ECHO), LENGTH) == 1 && comes(fd));
	for (int i = 0; i < 3; i++) {
		asked = about(FAR, "near");
		CHECK(ioctl(i == 0 ? fd : i == 1 ? free : wire, SIOCGARP, &asked) == 0);
		CHECK(asked.arp_flags == ATF_COM && asked.arp_ha.sa_family == ARPHRD_ETHER);
		CHECK(memcmp(asked.arp_ha.sa_data, "\0\0\0\0\0", 6) != 0);
	}
	/* One that nobody has asked for: what is sent to it goes to the station that is named. */
	asked = about(NOBODY, "near");
	ioctl(fd, SIOCDARP, &asked);
	FAILS(ENXIO, ioctl(fd, SIOCGARP, &asked));
	FAILS(ENXIO, ioctl(fd, SIOCDARP, &asked));
	asked = station_is(NOBODY, "", station, ATF_COM);
	CHECK(ioctl(free, SIOCSARP, &asked) == 0);
	CHECK(sendto(fd, "x", 1, 0, ADDRESS(NOBODY, 9), LENGTH) == 1 && goes_to(wire, station));
	asked = about(NOBODY, "near");
	CHECK(ioctl(free, SIOCGARP, &asked) == 0 && asked.arp_flags == ATF_COM);
	CHECK(memcmp(asked.arp_ha.sa_data, station, 6) == 0);
	/* For good. */
	asked = station_is(NOBODY, "near", other, ATF_PERM);
	CHECK(ioctl(fd, SIOCSARP, &asked) == 0);
	CHECK(ioctl(fd, SIOCGARP, &asked) == 0 && asked.arp_flags == (ATF_COM | ATF_PERM));
	CHECK(sendto(fd, "x", 1, 0, ADDRESS(NOBODY, 9), LENGTH) == 1 && goes_to(wire, other));
	/* And no more. */
	asked = about(NOBODY, "");
	CHECK(ioctl(fd, SIOCDARP, &asked) == 0);
	asked = about(NOBODY, "near");
	FAILS(ENXIO, ioctl(fd, SIOCGARP, &asked));
	close(fd);
	close(free);
	close(wire);
}

CASE(stations_that_cannot_be_named)
{
	static const uint8_t station[] = { 2, 0, 0, 0, 0, 77 };
	struct arpreq asked = about(NOBODY, "");
	int fd = bound_udp();

	FAILS(ENODEV, ioctl(fd, SIOCGARP, &asked));
	asked = about(NOBODY, "none");
	FAILS(ENODEV, ioctl(fd, SIOCGARP, &asked));
	asked = station_is(NOBODY, "near", station, ATF_COM | ATF_NETMASK);
	FAILS(EINVAL, ioctl(fd, SIOCSARP, &asked));
	asked = station_is(NOBODY, "near", station, ATF_COM);
	asked.arp_ha.sa_family = ARPHRD_LOOPBACK;
	FAILS(EINVAL, ioctl(fd, SIOCSARP, &asked));
	asked = station_is(NOBODY, "", station, ATF_COM);
	asked.arp_ha.sa_family = 0;
	FAILS(EINVAL, ioctl(fd, SIOCSARP, &asked));
	/* Which one, nobody knows. */
	asked = about(NOBODY, "near");
	ioctl(fd, SIOCDARP, &asked);
	asked = station_is(NOBODY, "near", station, 0);
	FAILS(EINVAL, ioctl(fd, SIOCSARP, &asked));
	asked.arp_pa.sa_family = AF_UNSPEC;
	FAILS(EPFNOSUPPORT, ioctl(fd, SIOCSARP, &asked));
	FAILS(EFAULT, ioctl(fd, SIOCSARP, NULL));
	asked = about(NOBODY, "near");
	ioctl(fd, SIOCDARP, &asked);
	close(fd);
}

CASE(a_look_at_what_waits)
{
	char small[4];
	struct iovec vector = { small, sizeof(small) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };
	int fd = bound_udp(), count = -1;

	CHECK(ioctl(fd, FIONREAD, &count) == 0 && count == 0);
	CHECK(sendto(fd, "datagram", 8, 0, ADDRESS(FAR, ECHO), LENGTH) == 8);
	CHECK(comes(fd));
	CHECK(ioctl(fd, FIONREAD, &count) == 0 && count == 8);
	CHECK(recv(fd, small, 4, MSG_PEEK) == 4 && memcmp(small, "data", 4) == 0);
	CHECK(recv(fd, small, 4, MSG_PEEK | MSG_TRUNC) == 8);
	CHECK(recvmsg(fd, &message, MSG_PEEK) == 4 && message.msg_flags == MSG_TRUNC);
	CHECK(recv(fd, small, 4, 0) == 4);
	FAILS(EAGAIN, recv(fd, small, 4, MSG_DONTWAIT));
	CHECK(sendto(fd, "", 0, 0, ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(comes(fd) && recv(fd, small, 4, 0) == 0);
}

CASE(waiting_for_a_datagram)
{
	struct timeval time = { .tv_usec = 50000 }, told;
	struct epoll_event event = { .events = EPOLLIN };
	socklen_t length = sizeof(told);
	int fd = bound_udp(), set_of = epoll_create1(0);

	CHECK(epoll_ctl(set_of, EPOLL_CTL_ADD, fd, &event) == 0);
	CHECK(epoll_wait(set_of, &event, 1, 0) == 0);
	CHECK(ready(fd, POLLIN | POLLOUT, 0) == POLLOUT);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &told, &length) == 0);
	CHECK(length == sizeof(told) && told.tv_usec >= 50000 && told.tv_usec < 60000);
	FAILS(EAGAIN, recv(fd, got, 100, 0));
	CHECK(sendto(fd, "x", 1, 0, ADDRESS(FAR, ECHO), LENGTH) == 1);
	CHECK(epoll_wait(set_of, &event, 1, PATIENCE) == 1 && event.events == EPOLLIN);
	CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(read(fd, got, 100) == 1);
	FAILS(EAGAIN, read(fd, got, 100));
}

CASE(several_datagrams_in_one_call)
{
	struct iovec vectors[3] = { { "a", 1 }, { "bc", 2 }, { "def", 3 } };
	struct sockaddr_in to = address(FAR, ECHO);
	struct mmsghdr messages[3];
	int fd = bound_udp();

	for (int i = 0; i < 3; i++)
		messages[i].msg_hdr = (struct msghdr){ .msg_name = &to, .msg_namelen = LENGTH,
						       .msg_iov = vectors + i, .msg_iovlen = 1 };
	CHECK(sendmmsg(fd, messages, 3, 0) == 3);
	CHECK(messages[0].msg_len == 1 && messages[2].msg_len == 3);
	for (int i = 0; i < 3; i++) {
		vectors[i] = (struct iovec){ got + 10 * i, 10 };
		messages[i].msg_hdr.msg_name = NULL;
	}
	for (int done = 0; done < 3;) {
		int count = recvmmsg(fd, messages + done, 3 - done, MSG_WAITFORONE, NULL);

		CHECK(count > 0);
		done += count;
	}
	CHECK(messages[0].msg_len == 1 && messages[1].msg_len == 2 && messages[2].msg_len == 3);
	CHECK(memcmp(got + 20, "def", 3) == 0);
}

/* Sends the peer a byte after a while. */
static void *send_later(void *fd)
{
	usleep(200000);
	CHECK(sendto(*(int *)fd, "x", 1, 0, ADDRESS(FAR, ECHO), LENGTH) == 1);
	return NULL;
}

CASE(several_datagrams_within_a_time)
{
	struct iovec vector = { got, 10 };
	struct mmsghdr messages[3] = { 0 };
	struct timespec none = { 0 }, some = { .tv_nsec = 100000000 }, bad = { .tv_nsec = -1 };
	int fd = bound_udp();
	pthread_t sender;

	for (int i = 0; i < 3; i++)
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &vector, .msg_iovlen = 1 };
	FAILS(EINVAL, recvmmsg(fd, messages, 3, 0, &bad));
	CHECK(sendto(fd, "x", 1, 0, ADDRESS(FAR, ECHO), LENGTH) == 1);
	CHECK(recvmmsg(fd, messages, 3, 0, &none) == 1);
	CHECK(none.tv_sec == 0 && none.tv_nsec == 0);
	/* The time is looked at behind each datagram. */
	CHECK(sendto(fd, "x", 1, 0, ADDRESS(FAR, ECHO), LENGTH) == 1);
	CHECK(comes(fd));
	CHECK(pthread_create(&sender, NULL, send_later, &fd) == 0);
	CHECK(recvmmsg(fd, messages, 3, 0, &some) == 2);
	CHECK(some.tv_sec == 0 && some.tv_nsec == 0);
	pthread_join(sender, NULL);
	/* What is left of it is told. */
	some.tv_sec = PATIENCE;
	CHECK(sendto(fd, "x", 1, 0, ADDRESS(FAR, ECHO), LENGTH) == 1);
	CHECK(recvmmsg(fd, messages, 1, 0, &some) == 1);
	CHECK(some.tv_sec > 0 && some.tv_sec < PATIENCE);
}

CASE(sockets_of_the_same_address)
{
	int one = bound_udp(), other = bound_udp();
	struct sockaddr_in to = name_of(other), from;
	struct sockaddr *sender = (struct sockaddr *)&from;
	socklen_t length = sizeof(from);

	fill(9000);
	for (ssize_t size = 1; size <= 9000; size *= 9) {
		CHECK(sendto(one, bytes, size, 0, (struct sockaddr *)&to, LENGTH) == size);
		CHECK(comes(other));
		CHECK(recvfrom(other, got, sizeof(got), 0, sender, &length) == size);
		CHECK(memcmp(bytes, got, size) == 0);
		CHECK(from.sin_port == name_of(one).sin_port && is_near(from));
	}
	close(other);
	CHECK(connect(one, (struct sockaddr *)&to, LENGTH) == 0 && send(one, "x", 1, 0) == 1);
	CHECK(ready(one, POLLIN, PATIENCE) & POLLERR);
	FAILS(ECONNREFUSED, send(one, "x", 1, 0));
}

CASE(what_is_for_all)
{
	int fd = bound_udp();

	FAILS(EACCES, sendto(fd, "x", 1, 0, ADDRESS(ALL, ECHO), LENGTH));
	CHECK(get(fd, SOL_SOCKET, SO_BROADCAST) == 0);
	CHECK(set(fd, SOL_SOCKET, SO_BROADCAST, 1) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_BROADCAST) == 1);
	CHECK(sendto(fd, "all", 3, 0, ADDRESS(ALL, ECHO), LENGTH) == 3);
	CHECK(comes(fd) && recv(fd, got, 100, 0) == 3);
}

/* What is told of the next datagram in control messages. */
static int told(int fd, int type, void *value, size_t length)
{
	char control[200];
	struct iovec vector = { got, 100 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1,
				  .msg_control = control, .msg_controllen = sizeof(control) };

	CHECK(comes(fd) && recvmsg(fd, &message, MSG_PEEK) >= 0 && message.msg_flags == 0);
	for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head;
	     head = CMSG_NXTHDR(&message, head))
		if (head->cmsg_level == IPPROTO_IP && head->cmsg_type == type) {
			CHECK(head->cmsg_len == CMSG_LEN(length));
			memcpy(value, CMSG_DATA(head), length);
			return 1;
		}
	return 0;
}

CASE(options_of_ip)
{
	struct in_pktinfo info;
	int fd = bound_udp(), lifetime = 0;
	uint8_t service = 0;

	CHECK(get(fd, IPPROTO_IP, IP_TTL) == 64 && get(fd, IPPROTO_IP, IP_TOS) == 0);
	FAILS(EINVAL, set(fd, IPPROTO_IP, IP_TTL, 256));
	FAILS(EINVAL, set(fd, IPPROTO_IP, IP_TTL, 0));
	FAILS(ENOPROTOOPT, set(fd, IPPROTO_IP, 12345, 0));
	CHECK(set(fd, IPPROTO_IP, IP_TTL, 7) == 0 && get(fd, IPPROTO_IP, IP_TTL) == 7);
	CHECK(set(fd, IPPROTO_IP, IP_TOS, 0xb8) == 0 && get(fd, IPPROTO_IP, IP_TOS) == 0xb8);
	CHECK(set(fd, IPPROTO_IP, IP_PKTINFO, 1) == 0);
	CHECK(set(fd, IPPROTO_IP, IP_RECVTTL, 1) == 0);
	CHECK(set(fd, IPPROTO_IP, IP_RECVTOS, 1) == 0);
	CHECK(sendto(fd, "x", 1, 0, ADDRESS(FAR, ECHO), LENGTH) == 1);
	CHECK(told(fd, IP_PKTINFO, &info, sizeof(info)));
	CHECK(info.ipi_ifindex == (int)if_nametoindex("near"));
	CHECK(info.ipi_addr.s_addr == inet_addr(NEAR));
	CHECK(info.ipi_spec_dst.s_addr == inet_addr(NEAR));
	/* The peer answers as it is used to. */
	CHECK(told(fd, IP_TTL, &lifetime, sizeof(lifetime)) && lifetime == 64);
	CHECK(told(fd, IP_TOS, &service, sizeof(service)) && service == 0);
	/* Nothing is 0. */
	CHECK(setsockopt(fd, IPPROTO_IP, IP_RECVTOS, NULL, 0) == 0);
	CHECK(get(fd, IPPROTO_IP, IP_RECVTOS) == 0);
	FAILS(EINVAL, setsockopt(fd, IPPROTO_IP, IP_TTL, NULL, 0));
}

/* Sends a byte with a control message of IP's. */
static ssize_t send_with(int fd, struct sockaddr_in to, int kind, const void *value, size_t length)
{
	char control[CMSG_SPACE(16)] = { 0 };
	struct iovec vector = { "x", 1 };
	struct msghdr message = { .msg_name = &to, .msg_namelen = sizeof(to),
				  .msg_iov = &vector, .msg_iovlen = 1,
				  .msg_control = control, .msg_controllen = CMSG_SPACE(length) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = IPPROTO_IP;
	head->cmsg_type = kind;
	head->cmsg_len = CMSG_LEN(length);
	memcpy(CMSG_DATA(head), value, length);
	return sendmsg(fd, &message, 0);
}

/* What control messages say counts for one datagram, before what options say. */
CASE(a_datagram_with_options_of_its_own)
{
	static const int wrong[] = { -1, 0, 256 };
	int fd = bound_udp(), value = 9, lifetime = 0;
	struct sockaddr_in own = name_of(fd);
	uint8_t service = 0xb8, told_service = 0;

	CHECK(set(fd, IPPROTO_IP, IP_RECVTTL, 1) == 0);
	CHECK(set(fd, IPPROTO_IP, IP_RECVTOS, 1) == 0);
	CHECK(send_with(fd, own, IP_TTL, &value, sizeof(value)) == 1);
	CHECK(told(fd, IP_TTL, &lifetime, sizeof(lifetime)) && lifetime == 9);
	CHECK(told(fd, IP_TOS, &told_service, 1) && told_service == 0);
	CHECK(recv(fd, got, 100, 0) == 1);
	CHECK(send_with(fd, own, IP_TOS, &service, sizeof(service)) == 1);
	CHECK(told(fd, IP_TTL, &lifetime, sizeof(lifetime)) && lifetime == 64);
	CHECK(told(fd, IP_TOS, &told_service, 1) && told_service == 0xb8);
	CHECK(recv(fd, got, 100, 0) == 1);
	value = 0x20;
	CHECK(send_with(fd, own, IP_TOS, &value, sizeof(value)) == 1);
	CHECK(told(fd, IP_TOS, &told_service, 1) && told_service == 0x20);
	for (int i = 0; i < 3; i++)
		FAILS(EINVAL, send_with(fd, own, IP_TTL, &wrong[i], sizeof(wrong[i])));
	FAILS(EINVAL, send_with(fd, own, IP_TOS, &wrong[2], sizeof(wrong[2])));
	FAILS(EINVAL, send_with(fd, own, IP_TTL, &service, sizeof(service)));
	FAILS(EINVAL, send_with(fd, own, 12345, &value, sizeof(value)));
}

/* A datagram comes that is these bytes, and no more. */
static void comes_as(int fd, const char *expected)
{
	ssize_t length = strlen(expected);

	CHECK(comes(fd));
	CHECK(recv(fd, got, sizeof(got), 0) == length && memcmp(got, expected, length) == 0);
}

/* Where what is pending goes was said with its first part. */
CASE(a_datagram_that_several_calls_make)
{
	int fd = bound_udp();

	CHECK(sendto(fd, "ab", 2, MSG_MORE, ADDRESS(FAR, ECHO), LENGTH) == 2);
	CHECK(send(fd, "c", 1, MSG_MORE) == 1);
	CHECK(recv(fd, got, 10, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(sendto(fd, "def", 3, 0, ADDRESS(FAR, CLOSED), LENGTH) == 3);
	comes_as(fd, "abcdef");

	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(get(fd, IPPROTO_UDP, UDP_CORK) == 0 && set(fd, IPPROTO_UDP, UDP_CORK, 7) == 0);
	CHECK(get(fd, IPPROTO_UDP, UDP_CORK) == 1);
	CHECK(write(fd, "12", 2) == 2 && send(fd, "", 0, 0) == 0 && write(fd, "345", 3) == 3);
	/* It waits for more, whatever a call says. */
	CHECK(send(fd, "6", 1, 0) == 1);
	CHECK(set(fd, IPPROTO_UDP, UDP_CORK, 0) == 0);
	comes_as(fd, "123456");
	CHECK(send(fd, "x", 1, 0) == 1);
	comes_as(fd, "x");
	/* One without data. */
	CHECK(send(fd, "", 0, MSG_MORE) == 0 && send(fd, "", 0, 0) == 0);
	comes_as(fd, "");
	CHECK(recv(fd, got, 10, MSG_DONTWAIT) == -1 && errno == EAGAIN);

	/* Longer than a packet. */
	fill(60000);
	for (int part = 0; part < 3; part++)
		CHECK(send(fd, bytes + 20000 * part, 20000, part < 2 ? MSG_MORE : 0) == 20000);
	CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) == 60000);
	CHECK(memcmp(bytes, got, 60000) == 0);
}

CASE(a_part_that_cannot_be_sent_takes_the_others_along)
{
	int fd = bound_udp();

	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(send(fd, bytes, 40000, MSG_MORE) == 40000);
	FAILS(EMSGSIZE, send(fd, bytes, 40000, MSG_MORE));
	CHECK(send(fd, "a", 1, 0) == 1);
	comes_as(fd, "a");
	CHECK(send(fd, "b", 1, MSG_MORE) == 1);
	FAILS(EFAULT, send(fd, at(8), 10, 0));
	CHECK(send(fd, "c", 1, 0) == 1);
	comes_as(fd, "c");
	CHECK(set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) == 0);
	CHECK(send(fd, bytes, 1472, MSG_MORE) == 1472);
	FAILS(EMSGSIZE, send(fd, "d", 1, 0));
	CHECK(send(fd, "e", 1, MSG_MORE) == 1 && close(fd) == 0);
}

/* Sends that many bytes with a control message of UDP_SEGMENT. */
static ssize_t send_in_segments(int fd, size_t count, const void *value, size_t length)
{
	char control[CMSG_SPACE(16)] = { 0 };
	struct iovec vector = { bytes, count };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1,
				  .msg_control = control, .msg_controllen = CMSG_SPACE(length) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = IPPROTO_UDP;
	head->cmsg_type = UDP_SEGMENT;
	head->cmsg_len = CMSG_LEN(length);
	memcpy(CMSG_DATA(head), value, length);
	return sendmsg(fd, &message, 0);
}

/* The bytes come as datagrams of that length; the last one has the rest. */
static void comes_in_segments(int fd, size_t count, size_t length)
{
	for (size_t from = 0; from < count; from += length) {
		size_t part = count - from < length ? count - from : length;

		PART("%zu of %zu, from %zu", length, count, from);
		CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) == (ssize_t)part);
		CHECK(memcmp(got, bytes + from, part) == 0);
	}
}

CASE(datagrams_that_one_call_makes)
{
	static const uint16_t segment = 300, none = 0;
	int fd = bound_udp(), wrong = 300;

	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(get(fd, IPPROTO_UDP, UDP_SEGMENT) == 0);
	FAILS(EINVAL, set(fd, IPPROTO_UDP, UDP_SEGMENT, -1));
	FAILS(EINVAL, set(fd, IPPROTO_UDP, UDP_SEGMENT, 65536));
	FAILS(EINVAL, setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment)));
	CHECK(set(fd, IPPROTO_UDP, UDP_SEGMENT, 100) == 0);
	CHECK(get(fd, IPPROTO_UDP, UDP_SEGMENT) == 100);
	fill(1000);
	CHECK(send(fd, bytes, 250, 0) == 250);
	comes_in_segments(fd, 250, 100);
	CHECK(send(fd, bytes, 300, 0) == 300);
	comes_in_segments(fd, 300, 100);
	CHECK(send(fd, bytes, 99, 0) == 99);
	comes_in_segments(fd, 99, 100);
	/* A control message counts before that. */
	CHECK(send_in_segments(fd, 1000, &segment, sizeof(segment)) == 1000);
	comes_in_segments(fd, 1000, 300);
	CHECK(send_in_segments(fd, 1000, &none, sizeof(none)) == 1000);
	comes_in_segments(fd, 1000, 1000);
	FAILS(EINVAL, send_in_segments(fd, 1000, &wrong, sizeof(wrong)));
	/* Several calls make the data of several datagrams. */
	CHECK(send(fd, bytes, 130, MSG_MORE) == 130 && send(fd, bytes + 130, 500, 0) == 500);
	comes_in_segments(fd, 630, 100);

	CHECK(set(fd, IPPROTO_UDP, UDP_SEGMENT, 1) == 0);
	FAILS(EINVAL, send(fd, bytes, 129, 0));
	CHECK(set(fd, IPPROTO_UDP, UDP_SEGMENT, 1473) == 0);
	CHECK(send(fd, bytes, 1474, 0) == -1 && (errno == EINVAL || errno == EMSGSIZE));
	CHECK(set(fd, IPPROTO_UDP, UDP_SEGMENT, 1472) == 0);
	fill(20000);
	CHECK(send(fd, bytes, 20000, 0) == 20000);
	comes_in_segments(fd, 20000, 1472);
}

/* They change nothing of what is told of datagrams here. */
CASE(other_options_of_udp)
{
	int fd = bound_udp();

	CHECK(get(fd, IPPROTO_UDP, UDP_GRO) == 0 && set(fd, IPPROTO_UDP, UDP_GRO, 5) == 0);
	CHECK(get(fd, IPPROTO_UDP, UDP_GRO) == 1);
	CHECK(set(fd, IPPROTO_UDP, UDP_NO_CHECK6_TX, 1) == 0);
	CHECK(get(fd, IPPROTO_UDP, UDP_NO_CHECK6_TX) == 1);
	CHECK(get(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX) == 0);
	FAILS(ENOPROTOOPT, set(fd, IPPROTO_UDP, 12345, 1));
	echoes(fd, 100);
}

CASE(names_of_any_length_in_a_message)
{
	union {
		struct sockaddr_in in;
		char bytes[300];
	} name = { .in = address(FAR, ECHO) };
	struct iovec part = { "hello", 5 };
	struct msghdr message = { .msg_name = &name, .msg_iov = &part, .msg_iovlen = 1 };
	struct sockaddr_in peer;
	socklen_t length = sizeof(peer);
	int fd = bound_udp();

	/* None is there without bytes. */
	FAILS(EDESTADDRREQ, sendmsg(fd, &message, 0));
	message.msg_namelen = 15;
	FAILS(EINVAL, sendmsg(fd, &message, 0));
	message.msg_namelen = -1;
	FAILS(EINVAL, sendmsg(fd, &message, 0));
	message.msg_namelen = sizeof(name);
	CHECK(sendmsg(fd, &message, 0) == 5 && comes(fd) && recv(fd, got, 100, 0) == 5);
	FAILS(EINVAL, sendto(fd, "a", 1, 0, (struct sockaddr *)&name, sizeof(name)));
	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	message.msg_namelen = 0;
	CHECK(sendmsg(fd, &message, 0) == 5 && comes(fd) && recv(fd, got, 100, 0) == 5);
	/* The family may be left out. */
	name.in.sin_family = AF_UNSPEC;
	message.msg_namelen = sizeof(name.in);
	CHECK(sendmsg(fd, &message, 0) == 5 && comes(fd) && recv(fd, got, 100, 0) == 5);
	name.in.sin_family = AF_UNIX;
	FAILS(EAFNOSUPPORT, sendmsg(fd, &message, 0));
	/* Who talks to no port is told no other end. */
	CHECK(connect(fd, ADDRESS(FAR, 0), LENGTH) == 0);
	FAILS(ENOTCONN, getpeername(fd, (struct sockaddr *)&peer, &length));
	CHECK(is_near(name_of(fd)));
}

CASE(nobody_in_particular_is_oneself)
{
	int fd = udp(), other = udp(), device = udp(), listener = tcp(), caller = tcp(), port;

	CHECK(bind(fd, ADDRESS(NEAR, 0), LENGTH) == 0);
	port = ntohs(name_of(fd).sin_port);
	CHECK(bind(other, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(connect(other, ADDRESS("0.0.0.0", port), LENGTH) == 0);
	CHECK(is_near(peer_of(other)) && peer_of(other).sin_port == htons(port));
	CHECK(send(other, "hello", 5, 0) == 5 && comes(fd) && recv(fd, got, 100, 0) == 5);
	CHECK(sendto(fd, "again", 5, 0, ADDRESS("0.0.0.0", port), LENGTH) == 5);
	CHECK(comes(fd) && recv(fd, got, 100, 0) == 5 && memcmp(got, "again", 5) == 0);
	/* One that is bound to the interface means the address of that. */
	CHECK(setsockopt(device, SOL_SOCKET, SO_BINDTODEVICE, "near", 5) == 0);
	CHECK(connect(device, ADDRESS("0.0.0.0", port), LENGTH) == 0);
	CHECK(is_near(peer_of(device)) && is_near(name_of(device)));
	CHECK(bind(listener, ADDRESS(NEAR, 0), LENGTH) == 0 && listen(listener, 1) == 0);
	port = ntohs(name_of(listener).sin_port);
	CHECK(bind(caller, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(connect(caller, ADDRESS("0.0.0.0", port), LENGTH) == 0);
	CHECK(is_near(peer_of(caller)) && is_near(name_of(caller)));
	FAILS(ECONNREFUSED, connect(tcp(), ADDRESS("0.0.0.0", 1), LENGTH));
}

CASE(a_filter_says_which_datagrams_come)
{
	/* Those whose first byte is odd. It begins at the header of UDP. */
	struct sock_filter odd[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 8),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 3),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, SKF_NET_OFF + 9),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, ~0U),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	union {
		char bytes[256];
		struct cmsghdr first;
	} control;
	struct iovec part = { got, sizeof(got) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	struct sock_filter told[6];
	int fd = bound_udp();

	CHECK(set(fd, SOL_SOCKET, SO_RXQ_OVFL, 1) == 0);
	CHECK(filter_of(fd, told, 6) == 0);
	CHECK(ATTACH(fd, odd) == 0);
	/* Who has no room asks how long it is. */
	CHECK(filter_of(fd, NULL, 0) == 6 && filter_of(fd, told, 6) == 6);
	CHECK(memcmp(told, odd, sizeof(odd)) == 0);
	FAILS(EINVAL, filter_of(fd, told, 5));
	FAILS(EFAULT, filter_of(fd, NULL, 6));
	for (char byte = 2; byte < 6; byte++)
		CHECK(sendto(fd, (char[20]){ byte }, 20, 0, ADDRESS(FAR, ECHO), LENGTH) == 20);
	CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) == 20 && got[0] == 3);
	/* What a filter does not want counts as lost. */
	CHECK(comes(fd) && recvmsg(fd, &message, 0) == 20 && got[0] == 5);
	CHECK(control.first.cmsg_type == SO_RXQ_OVFL && *(int *)CMSG_DATA(&control.first) == 2);
	/* A part, of which the header is one. */
	odd[4].k = 15;
	CHECK(ATTACH(fd, odd) == 0);
	CHECK(sendto(fd, (char[20]){ 7 }, 20, 0, ADDRESS(FAR, ECHO), LENGTH) == 20);
	CHECK(comes(fd) && recv(fd, got, sizeof(got), MSG_TRUNC) == 7 && got[0] == 7);
	odd[4].k = 1;
	CHECK(ATTACH(fd, odd) == 0);
	CHECK(sendto(fd, (char[20]){ 9 }, 20, 0, ADDRESS(FAR, ECHO), LENGTH) == 20);
	CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) == 0);
	CHECK(set(fd, SOL_SOCKET, SO_DETACH_FILTER, 0) == 0);
	CHECK(sendto(fd, (char[20]){ 8 }, 20, 0, ADDRESS(FAR, ECHO), LENGTH) == 20);
	CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) == 20 && got[0] == 8);
}

CASE(where_a_datagram_was_to_go)
{
	struct sockaddr_in to;
	int fd = bound_udp();

	CHECK(get(fd, IPPROTO_IP, IP_RECVORIGDSTADDR) == 0);
	CHECK(set(fd, IPPROTO_IP, IP_RECVORIGDSTADDR, 1) == 0);
	CHECK(get(fd, IPPROTO_IP, IP_RECVORIGDSTADDR) == 1);
	CHECK(sendto(fd, "x", 1, 0, ADDRESS(FAR, ECHO), LENGTH) == 1);
	CHECK(told(fd, IP_ORIGDSTADDR, &to, sizeof(to)));
	CHECK(is_near(to) && to.sin_port == name_of(fd).sin_port);
}

CASE(where_a_datagram_is_sent_from)
{
	struct in_pktinfo by = { .ipi_spec_dst = { inet_addr(NEAR) } };
	struct sockaddr_in to = address(FAR, ECHO);
	int fd = udp();

	CHECK(set(fd, IPPROTO_IP, IP_PKTINFO, 1) == 0);
	for (int i = 0; i < 3; i++) {
		struct in_pktinfo info;

		/* By its address, by its interface too, by its interface alone. */
		by.ipi_ifindex = i ? (int)if_nametoindex("near") : 0;
		by.ipi_spec_dst.s_addr = i < 2 ? inet_addr(NEAR) : 0;
		CHECK(send_with(fd, to, IP_PKTINFO, &by, sizeof(by)) == 1);
		CHECK(told(fd, IP_PKTINFO, &info, sizeof(info)));
		CHECK(info.ipi_addr.s_addr == inet_addr(NEAR));
		CHECK(recv(fd, got, 100, 0) == 1);
	}
	by.ipi_spec_dst.s_addr = inet_addr(NOBODY);
	FAILS(ENETUNREACH, send_with(fd, to, IP_PKTINFO, &by, sizeof(by)));
	by.ipi_spec_dst.s_addr = inet_addr(GROUP);
	FAILS(EINVAL, send_with(fd, to, IP_PKTINFO, &by, sizeof(by)));
	by = (struct in_pktinfo){ .ipi_ifindex = 12345 };
	FAILS(ENODEV, send_with(fd, to, IP_PKTINFO, &by, sizeof(by)));
	FAILS(EINVAL, send_with(fd, to, IP_PKTINFO, &by, sizeof(by) - 1));
}

CASE(groups)
{
	struct ip_mreq wanted = { .imr_multiaddr = { inet_addr(GROUP) },
				  .imr_interface = { inet_addr(NEAR) } };
	struct in_addr own = { inet_addr(NEAR) };
	int fd = udp(), sender = bound_udp();
	const socklen_t length = sizeof(wanted);
	struct sockaddr_in at;

	CHECK(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &wanted, length) == 0);
	FAILS(EADDRINUSE, setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &wanted, length));
	CHECK(bind(fd, ADDRESS("0.0.0.0", 0), LENGTH) == 0);
	at = name_of(fd);
	/* From the wire. */
	command((struct command){ SEND, inet_addr(GROUP), ntohs(at.sin_port) });
	CHECK(comes(fd) && recv(fd, got, 100, 0) == 5);
	/* From here. */
	CHECK(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof(own)) == 0);
	CHECK(get(sender, IPPROTO_IP, IP_MULTICAST_TTL) == 1);
	CHECK(sendto(sender, "own", 3, 0, ADDRESS(GROUP, ntohs(at.sin_port)), LENGTH) == 3);
	CHECK(comes(fd) && recv(fd, got, 100, 0) == 3);
	CHECK(set(sender, IPPROTO_IP, IP_MULTICAST_LOOP, 0) == 0);
	CHECK(sendto(sender, "own", 3, 0, ADDRESS(GROUP, ntohs(at.sin_port)), LENGTH) == 3);
	CHECK(!ready(fd, POLLIN, NEVER));
	CHECK(setsockopt(fd, IPPROTO_IP, IP_DROP_MEMBERSHIP, &wanted, length) == 0);
	FAILS(EADDRNOTAVAIL, setsockopt(fd, IPPROTO_IP, IP_DROP_MEMBERSHIP, &wanted, length));
	command((struct command){ SEND, inet_addr(GROUP), ntohs(at.sin_port) });
	CHECK(!ready(fd, POLLIN, NEVER));
}

CASE(one_interface_alone)
{
	char name[IFNAMSIZ] = "";
	socklen_t length = sizeof(name);
	int fd = udp();

	CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "near", 5) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length) == 0);
	CHECK(strcmp(name, "near") == 0 && length == 5);
	CHECK(bind(fd, ADDRESS("0.0.0.0", 0), LENGTH) == 0);
	echoes(fd, 100);
	command((struct command){ SEND, inet_addr(NEAR), ntohs(name_of(fd).sin_port) });
	CHECK(comes(fd) && recv(fd, got, 100, 0) == 5);
}

CASE(shutdown_of_a_socket_of_udp)
{
	int fd = udp();

	FAILS(ENOTCONN, shutdown(fd, SHUT_RD));
	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	FAILS(EINVAL, shutdown(fd, 3));
	CHECK(shutdown(fd, SHUT_RDWR) == 0);
	CHECK(recv(fd, got, 100, 0) == 0);
	/* No signal tells of that: there is no stream. */
	signal(SIGPIPE, note);
	FAILS(EPIPE, send(fd, "x", 1, 0));
	FAILS(EPIPE, write(fd, "x", 1));
	CHECK(caught == 0);
}

/* Receives nothing. */
static void *receive_nothing(void *fd)
{
	return (void *)recv(*(int *)fd, got, 100, 0);
}

CASE(shutdown_ends_a_wait_without_a_connection)
{
	const short all = POLLIN | POLLOUT | POLLRDHUP;
	void *received = (void *)1;
	int fd = bound_udp();
	pthread_t reader;

	CHECK(pthread_create(&reader, NULL, receive_nothing, &fd) == 0);
	usleep(50000);
	FAILS(ENOTCONN, shutdown(fd, SHUT_RD));
	CHECK(pthread_join(reader, &received) == 0 && received == NULL);
	CHECK(ready(fd, all, PATIENCE) == all);
	FAILS(ENOTCONN, shutdown(fd, SHUT_WR));
	CHECK(ready(fd, all, PATIENCE) == (all | POLLHUP));
	FAILS(EPIPE, sendto(fd, "x", 1, MSG_NOSIGNAL, ADDRESS(FAR, ECHO), LENGTH));
}

/* Looks at a datagram again and again. */
static void *look_at_it(void *fd)
{
	for (int round = 0; round < 20000; round++)
		CHECK(recv(*(int *)fd, bytes, sizeof(bytes), MSG_PEEK) == 1400);
	ended = 1;
	return NULL;
}

CASE(who_looks_at_a_datagram_hides_it_from_nobody)
{
	struct timespec pause = { .tv_nsec = 30000 };
	int fd = bound_udp();
	pthread_t other;

	echoes(fd, 1);
	CHECK(sendto(fd, bytes, 1400, 0, ADDRESS(FAR, ECHO), LENGTH) == 1400 && comes(fd));
	ended = 0;
	CHECK(pthread_create(&other, NULL, look_at_it, &fd) == 0);
	while (!ended) {
		nanosleep(&pause, NULL);
		CHECK(ready(fd, POLLIN, 0) == POLLIN);
	}
	pthread_join(other, NULL);
}

CASE(a_group_that_is_the_address)
{
	struct group_req wanted = { .gr_interface = if_nametoindex("near") };
	const socklen_t length = sizeof(wanted);
	int fd = udp();

	memcpy(&wanted.gr_group, ADDRESS("239.1.2.4", 0), LENGTH);
	CHECK(bind(fd, ADDRESS("239.1.2.4", 7200), LENGTH) == 0);
	CHECK(setsockopt(fd, IPPROTO_IP, MCAST_JOIN_GROUP, &wanted, length) == 0);
	FAILS(EADDRINUSE, setsockopt(fd, IPPROTO_IP, MCAST_JOIN_GROUP, &wanted, length));
	FAILS(EINVAL, setsockopt(fd, IPPROTO_IP, MCAST_JOIN_GROUP, &wanted, length - 1));
	CHECK(name_of(fd).sin_addr.s_addr == inet_addr("239.1.2.4"));
	command((struct command){ SEND, inet_addr("239.1.2.4"), 7200 });
	CHECK(comes(fd) && recv(fd, got, 100, 0) == 5);
	/* What is for the station itself is not for the group. */
	command((struct command){ SEND, inet_addr(NEAR), 7200 });
	CHECK(!ready(fd, POLLIN, NEVER));
	CHECK(setsockopt(fd, IPPROTO_IP, MCAST_LEAVE_GROUP, &wanted, length) == 0);
	FAILS(EADDRNOTAVAIL, setsockopt(fd, IPPROTO_IP, MCAST_LEAVE_GROUP, &wanted, length));
	memcpy(&wanted.gr_group, ADDRESS(FAR, 0), LENGTH);
	FAILS(EINVAL, setsockopt(fd, IPPROTO_IP, MCAST_JOIN_GROUP, &wanted, length));
	close(fd);
	/* The same by an older option. */
	struct ip_mreqn named = { .imr_multiaddr = { inet_addr("239.1.2.4") },
				  .imr_ifindex = if_nametoindex("near") };
	fd = udp();
	CHECK(bind(fd, ADDRESS("239.1.2.4", 7200), LENGTH) == 0);
	CHECK(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &named, sizeof(named)) == 0);
	command((struct command){ SEND, inet_addr("239.1.2.4"), 7200 });
	CHECK(comes(fd) && recv(fd, got, 100, 0) == 5);
}

/* A connection to the peer, which sends back what comes. */
static int connected(void)
{
	int fd = tcp();

	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	return fd;
}

/* Reads so many bytes. */
static void take(int fd, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t count = recv(fd, got + done, length - done, 0);

		CHECK(count > 0);
		done += count;
	}
}

CASE(a_connection)
{
	int fd = connected();

	CHECK(is_near(name_of(fd)) && name_of(fd).sin_port != 0);
	CHECK(is_far(peer_of(fd)) && peer_of(fd).sin_port == htons(ECHO));
	FAILS(EISCONN, connect(fd, ADDRESS(FAR, ECHO), LENGTH));
	CHECK(send(fd, "hello", 5, 0) == 5);
	take(fd, 5);
	CHECK(memcmp(got, "hello", 5) == 0);
	CHECK(shutdown(fd, SHUT_WR) == 0);
	CHECK(recv(fd, got, 100, 0) == 0);
	signal(SIGPIPE, SIG_IGN);
	FAILS(EPIPE, send(fd, "x", 1, 0));
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == 0);
}

CASE(many_bytes_both_ways)
{
	const size_t all = 20 * 60000;
	size_t sent = 0, received = 0;
	int fd = connected();

	fill(60000);
	CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	while (received < all) {
		short events = ready(fd, POLLIN | (sent < all ? POLLOUT : 0), PATIENCE);
		ssize_t count;

		CHECK(events);
		if (events & POLLOUT) {
			count = send(fd, bytes + sent % 60000, 60000 - sent % 60000, 0);
			CHECK(count > 0 || errno == EAGAIN);
			sent += count > 0 ? count : 0;
		}
		if (events & POLLIN) {
			count = recv(fd, got, 60000 - received % 60000, 0);
			CHECK(count > 0);
			CHECK(memcmp(got, bytes + received % 60000, count) == 0);
			received += count;
		}
	}
	FAILS(EAGAIN, recv(fd, got, 100, 0));
}

CASE(nobody_listens)
{
	int fd = tcp();

	FAILS(ECONNREFUSED, connect(fd, ADDRESS(FAR, CLOSED), LENGTH));
	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	fd = tcp();
	FAILS(EHOSTUNREACH, connect(fd, ADDRESS(NOBODY, ECHO), LENGTH));
	fd = tcp();
	FAILS(ENOTCONN, recv(fd, got, 1, 0));
	FAILS(ENOTCONN, shutdown(fd, SHUT_WR));
}

CASE(a_connection_that_is_not_waited_for)
{
	int fd = tcp();

	CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(EINPROGRESS, connect(fd, ADDRESS(FAR, ECHO), LENGTH));
	CHECK(ready(fd, POLLOUT, PATIENCE) == POLLOUT);
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == 0);
	CHECK(is_far(peer_of(fd)));
	fd = tcp();
	CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(EINPROGRESS, connect(fd, ADDRESS(FAR, CLOSED), LENGTH));
	CHECK(ready(fd, POLLOUT, PATIENCE) & POLLERR);
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
}

CASE(an_attempt_is_told_of_once)
{
	int fd = tcp();

	CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(EINPROGRESS, connect(fd, ADDRESS(FAR, ECHO), LENGTH));
	CHECK(ready(fd, POLLOUT, PATIENCE) == POLLOUT);
	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	FAILS(EISCONN, connect(fd, ADDRESS(FAR, ECHO), LENGTH));
	fd = tcp();
	CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(EINPROGRESS, connect(fd, ADDRESS(FAR, CLOSED), LENGTH));
	CHECK(ready(fd, POLLOUT, PATIENCE) & POLLERR);
	FAILS(ECONNREFUSED, connect(fd, ADDRESS(FAR, ECHO), LENGTH));
	FAILS(EINPROGRESS, connect(fd, ADDRESS(FAR, CLOSED), LENGTH));
	CHECK(ready(fd, POLLOUT, PATIENCE) & POLLERR);
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
	FAILS(ECONNABORTED, connect(fd, ADDRESS(FAR, ECHO), LENGTH));
	FAILS(EINPROGRESS, connect(fd, ADDRESS(FAR, ECHO), LENGTH));
	CHECK(ready(fd, POLLOUT, PATIENCE) == POLLOUT);
}

static const struct sockaddr nowhere = { .sa_family = AF_UNSPEC };

CASE(a_connection_that_is_given_up)
{
	int fd = connected();
	struct sockaddr_in name;
	socklen_t length = sizeof(name);

	CHECK(connect(fd, &nowhere, sizeof(nowhere)) == 0);
	CHECK(ready(fd, POLLOUT, 0) & POLLHUP);
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == ECONNRESET && get(fd, SOL_SOCKET, SO_ERROR) == 0);
	FAILS(ENOTCONN, recv(fd, got, 1, 0));
	FAILS(ENOTCONN, getpeername(fd, (struct sockaddr *)&name, &length));
	CHECK(name_of(fd).sin_addr.s_addr == 0);
	CHECK(connect(fd, &nowhere, sizeof(nowhere)) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == 0);
	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(send(fd, "hello", 5, 0) == 5);
	take(fd, 5);
	/* While it asks. */
	fd = tcp();
	CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(EINPROGRESS, connect(fd, ADDRESS(NOBODY, ECHO), LENGTH));
	FAILS(EALREADY, connect(fd, ADDRESS(NOBODY, ECHO), LENGTH));
	CHECK(connect(fd, &nowhere, sizeof(nowhere)) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_ERROR) == ECONNRESET);
	FAILS(EINPROGRESS, connect(fd, ADDRESS(NOBODY, ECHO), LENGTH));
	CHECK(shutdown(fd, SHUT_WR) == 0);
	FAILS(EINPROGRESS, connect(fd, ADDRESS(FAR, ECHO), LENGTH));
	CHECK(ready(fd, POLLOUT, PATIENCE) == POLLOUT);
}

CASE(a_port_stays_when_a_connection_goes)
{
	int fd = tcp();

	CHECK(bind(fd, ADDRESS(NEAR, 7201), LENGTH) == 0);
	FAILS(ECONNREFUSED, connect(fd, ADDRESS(FAR, CLOSED), LENGTH));
	CHECK(is_near(name_of(fd)) && name_of(fd).sin_port == htons(7201));
	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(name_of(fd).sin_port == htons(7201));
	CHECK(connect(fd, &nowhere, sizeof(nowhere)) == 0);
	CHECK(is_near(name_of(fd)) && name_of(fd).sin_port == htons(7201));
	FAILS(EADDRINUSE, bind(tcp(), ADDRESS(NEAR, 7201), LENGTH));
	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(send(fd, "hello", 5, 0) == 5);
	take(fd, 5);
	CHECK(name_of(fd).sin_port == htons(7201));
}

/* A socket that waits for connections. */
static int listening(int backlog)
{
	int fd = tcp();

	CHECK(bind(fd, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(listen(fd, backlog) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_ACCEPTCONN) == 1);
	return fd;
}

/* The peer connects to it. */
static void have(int fd, int what)
{
	command((struct command){ what, inet_addr(NEAR), ntohs(name_of(fd).sin_port) });
}

CASE(connections_that_come)
{
	struct sockaddr_in from;
	socklen_t length = sizeof(from);
	int fd = listening(5), other;

	CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	FAILS(EAGAIN, accept(fd, NULL, NULL));
	FAILS(EINVAL, accept4(fd, NULL, NULL, 1));
	for (int round = 0; round < 12; round++) {
		have(fd, CONNECT);
		CHECK(comes(fd));
		other = accept4(fd, (struct sockaddr *)&from, &length,
				SOCK_NONBLOCK | SOCK_CLOEXEC);
		CHECK(other >= 0 && is_far(from) && length == sizeof(from));
		CHECK(fcntl(other, F_GETFL) == (O_RDWR | O_NONBLOCK));
		CHECK(fcntl(other, F_GETFD) == FD_CLOEXEC);
		CHECK(name_of(other).sin_port == name_of(fd).sin_port && is_near(name_of(other)));
		CHECK(send(other, "question", 8, 0) == 8);
		CHECK(comes(other) && recv(other, got, 100, 0) == 8);
		close(other);
	}
	FAILS(EINVAL, accept(other = tcp(), NULL, NULL));
}

CASE(nobody_waits_for_connections_any_more)
{
	int fd = tcp(), other;

	CHECK(set(fd, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
	CHECK(bind(fd, ADDRESS(NEAR, 7202), LENGTH) == 0 && listen(fd, 5) == 0);
	FAILS(EISCONN, connect(fd, ADDRESS(FAR, ECHO), LENGTH));
	CHECK(connect(fd, &nowhere, sizeof(nowhere)) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0 && get(fd, SOL_SOCKET, SO_ERROR) == 0);
	FAILS(EINVAL, accept(fd, NULL, NULL));
	FAILS(ECONNREFUSED, connect(tcp(), ADDRESS(NEAR, 7202), LENGTH));
	CHECK(listen(fd, 5) == 0 && shutdown(fd, SHUT_RD) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0);
	CHECK(name_of(fd).sin_port == htons(7202));
	CHECK(listen(fd, 5) == 0);
	have(fd, CONNECT);
	CHECK(comes(fd));
	other = accept(fd, NULL, NULL);
	CHECK(other >= 0 && name_of(other).sin_port == htons(7202));
}

CASE(a_port_whose_connections_are_still_there)
{
	int fd = tcp(), other;

	CHECK(set(fd, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
	CHECK(bind(fd, ADDRESS(NEAR, 7203), LENGTH) == 0 && listen(fd, 5) == 0);
	have(fd, CONNECT);
	CHECK(comes(fd));
	other = accept(fd, NULL, NULL);
	CHECK(other >= 0);
	close(fd);
	fd = tcp();
	FAILS(EADDRINUSE, bind(fd, ADDRESS(NEAR, 7203), LENGTH));
	CHECK(set(fd, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
	CHECK(bind(fd, ADDRESS(NEAR, 7203), LENGTH) == 0 && listen(fd, 5) == 0);
	have(fd, CONNECT);
	CHECK(comes(fd));
	CHECK(accept(fd, NULL, NULL) >= 0);
	CHECK(send(other, "question", 8, 0) == 8);
	CHECK(comes(other) && recv(other, got, 100, 0) == 8);
}

CASE(a_connection_waits_while_there_is_no_number)
{
	int fd = listening(1), other;
	struct rlimit before, low;

	have(fd, CONNECT);
	CHECK(comes(fd));
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	low = before;
	low.rlim_cur = fd + 1;
	CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
	FAILS(EMFILE, accept(fd, NULL, NULL));
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	other = accept(fd, NULL, NULL);
	CHECK(other >= 0 && send(other, "question", 8, 0) == 8);
	CHECK(comes(other) && recv(other, got, 100, 0) == 8);
}

static int read_by_two;

static void *hear_of_the_end(void *unused)
{
	char byte;

	(void)unused;
	if (recv(read_by_two, &byte, 1, 0) == 0)
		ended++;
	return NULL;
}

CASE(all_who_read_hear_of_the_end)
{
	pthread_t threads[2];

	read_by_two = connected();
	ended = 0;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, hear_of_the_end, NULL) == 0);
	usleep(50000);
	CHECK(shutdown(read_by_two, SHUT_WR) == 0);
	for (int i = 0; i < 5000 && ended < 2; i++)
		usleep(1000);
	CHECK(ended == 2);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

CASE(the_end_is_told_before_all_is_read)
{
	const short all = POLLIN | POLLOUT | POLLRDHUP;
	struct epoll_event event = { .events = EPOLLRDHUP | EPOLLET };
	int fd = listening(1), set_of = epoll_create1(0), other, count = 0;

	have(fd, CONNECT);
	CHECK(comes(fd));
	other = accept(fd, NULL, NULL);
	CHECK(other >= 0 && send(other, "hello", 5, 0) == 5);
	for (int i = 0; i < PATIENCE && count < 5; i++) {
		CHECK(ioctl(other, FIONREAD, &count) == 0);
		usleep(1000);
	}
	CHECK(epoll_ctl(set_of, EPOLL_CTL_ADD, other, &event) == 0);
	CHECK(epoll_wait(set_of, &event, 1, 0) == 0);
	CHECK(ready(other, all, 0) == (POLLIN | POLLOUT));
	CHECK(shutdown(other, SHUT_WR) == 0);
	CHECK(epoll_wait(set_of, &event, 1, PATIENCE) == 1);
	CHECK((event.events & EPOLLRDHUP) != 0);
	CHECK(ready(other, POLLRDHUP, PATIENCE) == (POLLRDHUP | POLLHUP));
	CHECK(ready(other, all, 0) == (all | POLLHUP));
	CHECK(set(other, SOL_SOCKET, SO_RCVLOWAT, 100) == 0);
	CHECK(ready(other, POLLIN, 0) == (POLLIN | POLLHUP));
	take(other, 5);
	CHECK(recv(other, got, 100, 0) == 0);
}

CASE(a_connection_that_is_reset)
{
	int fd = listening(1), other;

	have(fd, CONNECT_AND_RESET);
	CHECK(comes(fd));
	other = accept(fd, NULL, NULL);
	CHECK(other >= 0 && comes(other));
	CHECK(recv(other, got, 5, 0) == 5 && memcmp(got, "hello", 5) == 0);
	CHECK(send(other, "reset", 5, 0) == 5);
	CHECK(ready(other, POLLIN, PATIENCE) & POLLERR);
	FAILS(ECONNRESET, recv(other, got, 100, 0));
	CHECK(recv(other, got, 100, 0) == 0);
	signal(SIGPIPE, SIG_IGN);
	FAILS(EPIPE, send(other, "x", 1, 0));
	FAILS(EISCONN, connect(other, ADDRESS(FAR, ECHO), LENGTH));
}

CASE(bytes_that_wait)
{
	int fd = connected(), count = -1;

	CHECK(send(fd, "0123456789", 10, 0) == 10);
	CHECK(recv(fd, got, 10, MSG_WAITALL) == 10);
	CHECK(send(fd, "0123456789", 10, 0) == 10);
	do {
		CHECK(ioctl(fd, FIONREAD, &count) == 0);
	} while (count < 10);
	CHECK(recv(fd, got, 100, MSG_PEEK) == 10 && recv(fd, got, 4, 0) == 4);
	CHECK(ioctl(fd, FIONREAD, &count) == 0 && count == 6);
	CHECK(read(fd, got, 100) == 6 && memcmp(got, "456789", 6) == 0);
	/* A look that waits for all of it. */
	CHECK(send(fd, "01234", 5, 0) == 5 && comes(fd));
	CHECK(send(fd, "56789", 5, 0) == 5);
	CHECK(recv(fd, got, 10, MSG_PEEK | MSG_WAITALL) == 10);
	CHECK(recv(fd, got, 10, MSG_WAITALL) == 10 && memcmp(got, "0123456789", 10) == 0);
	FAILS(EAGAIN, recv(fd, got, 100, MSG_DONTWAIT));
	CHECK(ioctl(fd, SIOCOUTQ, &count) == 0 && count == 0);
}

/* Has the peer send a byte now and then, until all is over or for as long as anybody waits. */
static void *trickle(void *fd)
{
	for (int sent = 0; !ended && sent < PATIENCE / 100; sent++) {
		CHECK(send(*(int *)fd, "x", 1, 0) == 1);
		usleep(100000);
	}
	return NULL;
}

CASE(the_time_to_wait_is_that_of_the_call)
{
	const int ways[2] = { MSG_WAITALL, MSG_WAITALL | MSG_PEEK };
	struct timeval time = { .tv_usec = 500000 };
	int fd = connected();
	pthread_t sender;
	ssize_t count;

	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
	for (int way = 0; way < 2; way++) {
		ended = 0;
		CHECK(pthread_create(&sender, NULL, trickle, &fd) == 0);
		count = recv(fd, got, PATIENCE / 100 - 10, ways[way]);
		ended = 1;
		CHECK(count > 0 && count < PATIENCE / 100 - 10);
		pthread_join(sender, NULL);
	}
}

/* Has something be done with a connection, over and over again. */
static void *use(void *fd)
{
	struct sched_param own = { .sched_priority = 10 };

	/* Under Linux, not everybody may do that. */
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &own);
	while (!ended)
		CHECK(set(*(int *)fd, IPPROTO_IP, IP_TOS, 0) == 0);
	return NULL;
}

CASE(what_waits_is_sent_whoever_uses_the_connection)
{
	struct sched_param urgent = { .sched_priority = 20 };
	int fd = connected();
	pthread_t user;

	CHECK(share_a_cpu() == 0);
	pthread_setschedparam(pthread_self(), SCHED_FIFO, &urgent);
	for (int round = 0; round < 30; round++) {
		ended = 0;
		CHECK(pthread_create(&user, NULL, use, &fd) == 0);
		usleep(2000 + 137 * round);
		ended = 1;
		CHECK(send(fd, "x", 1, MSG_MORE) == 1);
		CHECK(comes(fd) && recv(fd, got, 100, 0) == 1);
		pthread_join(user, NULL);
	}
}

CASE(many_bytes_that_are_looked_at)
{
	int fd = connected();

	fill(60000);
	for (int round = 0; round < 20; round++) {
		CHECK(send(fd, bytes + round, 15000, 0) == 15000);
		CHECK(recv(fd, got, 15000, MSG_PEEK | MSG_WAITALL) == 15000);
		CHECK(memcmp(got, bytes + round, 15000) == 0);
		CHECK(recv(fd, got, 60000, MSG_PEEK) == 15000);
		take(fd, 15000);
		CHECK(memcmp(got, bytes + round, 15000) == 0);
	}
}

CASE(bytes_that_are_thrown_away)
{
	int fd = connected();

	CHECK(send(fd, "0123456789", 10, 0) == 10);
	CHECK(recv(fd, got, 10, MSG_PEEK | MSG_WAITALL) == 10);
	CHECK(recv(fd, NULL, 6, MSG_TRUNC) == 6);
	CHECK(recv(fd, got, 100, 0) == 4 && memcmp(got, "6789", 4) == 0);
}

CASE(fewer_bytes_than_are_wanted)
{
	int fd = connected();

	CHECK(get(fd, SOL_SOCKET, SO_RCVLOWAT) == 1);
	CHECK(set(fd, SOL_SOCKET, SO_RCVLOWAT, 5) == 0 && get(fd, SOL_SOCKET, SO_RCVLOWAT) == 5);
	CHECK(send(fd, "012", 3, 0) == 3 && !ready(fd, POLLIN, NEVER));
	CHECK(send(fd, "34", 2, 0) == 2 && comes(fd));
	CHECK(recv(fd, got, 100, 0) == 5);
	CHECK(send(fd, "012", 3, 0) == 3 && !ready(fd, POLLIN, NEVER));
	CHECK(recv(fd, got, 100, MSG_DONTWAIT) == 3);
	CHECK(set(fd, SOL_SOCKET, SO_RCVLOWAT, 0) == 0 && get(fd, SOL_SOCKET, SO_RCVLOWAT) == 1);
}

/*
 * Whether what was sent just now comes back within a time in which it does not if it waits; -1 if
 * the machine was too busy to tell.
 */
static int comes_soon(int fd, struct timespec since)
{
	int came = ready(fd, POLLIN, 50) != 0;
	struct timespec now;
	long passed;

	clock_gettime(CLOCK_MONOTONIC, &now);
	passed = (now.tv_sec - since.tv_sec) * 1000 + (now.tv_nsec - since.tv_nsec) / 1000000;
	return came && passed > 150 ? -1 : came;
}

/* Takes as many bytes as come back. */
static void comes_back(int fd, const char *expected)
{
	size_t length = strlen(expected);

	CHECK(recv(fd, got, length, MSG_WAITALL) == (ssize_t)length);
	CHECK(memcmp(got, expected, length) == 0);
}

/* What is asked of urgent data while there is none. */
CASE(nothing_is_urgent)
{
	int fd = tcp(), datagrams = bound_udp(), mark = 7;

	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0 && send(fd, "x", 1, 0) == 1);
	CHECK(comes(fd) && ready(fd, POLLIN | POLLPRI, 0) == POLLIN);
	FAILS(EINVAL, recv(fd, got, 10, MSG_OOB));
	CHECK(ioctl(fd, SIOCATMARK, &mark) == 0 && mark == 0);
	FAILS(EFAULT, ioctl(fd, SIOCATMARK, at(16)));
	CHECK(set(fd, SOL_SOCKET, SO_OOBINLINE, 1) == 0);
	FAILS(EINVAL, recv(fd, got, 10, MSG_OOB));
	CHECK(recv(fd, got, 10, 0) == 1);
	FAILS(ENOTTY, ioctl(datagrams, SIOCATMARK, &mark));
	CHECK(sendto(datagrams, "y", 1, 0, ADDRESS(FAR, ECHO), LENGTH) == 1 && comes(datagrams));
	CHECK(recv(datagrams, got, 10, MSG_OOB) == 1);
	FAILS(EOPNOTSUPP, sendto(datagrams, "y", 1, MSG_OOB, ADDRESS(FAR, ECHO), LENGTH));
}

CASE(short_segments_wait_for_more)
{
	struct timespec since;
	int fd = tcp(), soon;

	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	CHECK(send(fd, "x", 1, 0) == 1);
	comes_back(fd, "x");
	for (int round = 0; round < 6; round++) {
		PART("round %d", round);
		if (round % 2)
			CHECK(set(fd, IPPROTO_TCP, TCP_CORK, 1) == 0);
		clock_gettime(CLOCK_MONOTONIC, &since);
		CHECK(send(fd, "ab", 2, round % 2 ? 0 : MSG_MORE) == 2);
		CHECK(send(fd, "c", 1, round % 2 ? 0 : MSG_MORE) == 1);
		soon = comes_soon(fd, since);
		CHECK(soon <= 0);
		if (round == 5)
			CHECK(set(fd, IPPROTO_TCP, TCP_NODELAY, 1) == 0);
		else if (round % 2)
			CHECK(set(fd, IPPROTO_TCP, TCP_CORK, 0) == 0);
		else
			CHECK(send(fd, "d", 1, 0) == 1);
		comes_back(fd, round % 2 ? "abc" : "abcd");
	}
	/* Not for ever, and not longer than the end. */
	CHECK(send(fd, "e", 1, 0) == 1 && get(fd, IPPROTO_TCP, TCP_CORK) == 1);
	comes_back(fd, "e");
	fill(5000);
	CHECK(send(fd, bytes, 5000, 0) == 5000 && shutdown(fd, SHUT_WR) == 0);
	CHECK(recv(fd, got, 6000, MSG_WAITALL) == 5000 && memcmp(got, bytes, 5000) == 0);
}

CASE(options_of_tcp)
{
	struct linger linger = { 1, 3 }, told_linger;
	socklen_t length = sizeof(told_linger);
	int fd = connected();

	CHECK(get(fd, IPPROTO_TCP, TCP_NODELAY) == 0 && get(fd, SOL_SOCKET, SO_KEEPALIVE) == 0);
	CHECK(set(fd, IPPROTO_TCP, TCP_NODELAY, 1) == 0 && get(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
	CHECK(set(fd, SOL_SOCKET, SO_KEEPALIVE, 1) == 0 && get(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
	CHECK(get(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 7200);
	CHECK(set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5) == 0);
	CHECK(get(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 5);
	FAILS(EINVAL, set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 0));
	FAILS(ENOPROTOOPT, set(fd, IPPROTO_TCP, 12345, 0));
	CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_LINGER, &told_linger, &length) == 0);
	CHECK(told_linger.l_onoff == 1 && told_linger.l_linger == 3);
	/* The time stays when it is turned off. */
	linger = (struct linger){ 0, 9 };
	CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_LINGER, &told_linger, &length) == 0);
	CHECK(told_linger.l_onoff == 0 && told_linger.l_linger == 3);
	CHECK(get(fd, SOL_SOCKET, SO_OOBINLINE) == 0 && get(fd, SOL_SOCKET, SO_NO_CHECK) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
	CHECK(get(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET);
	CHECK(get(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP);
}

/* What a socket that has to do with no protocol of that number is asked is another error. */
CASE(options_of_other_protocols)
{
	int datagrams = bound_udp(), fd = connected();
	socklen_t length = 4;
	char value[16];

	FAILS(EOPNOTSUPP, getsockopt(datagrams, IPPROTO_TCP, TCP_NODELAY, value, &length));
	FAILS(ENOPROTOOPT, set(datagrams, IPPROTO_TCP, TCP_NODELAY, 1));
	FAILS(EOPNOTSUPP, getsockopt(fd, IPPROTO_UDP, 1, value, &length));
	FAILS(EINVAL, set(fd, SOL_IP, IP_MULTICAST_TTL, 1));
	FAILS(EPROTO, set(fd, SOL_IP, IP_ADD_MEMBERSHIP, 1));
	CHECK(get(fd, SOL_IP, IP_MTU) > 500);
	CHECK(set(fd, SOL_IP, IP_TOS, 0xbb) == 0 && get(fd, SOL_IP, IP_TOS) == 0xb8);
	FAILS(EINVAL, set(datagrams, SOL_IP, IP_MULTICAST_ALL, 2));
	CHECK(set(datagrams, SOL_IP, IP_MULTICAST_IF, 0) == 0);
}

/* A value is cut off where there is less room, but for a name. */
CASE(values_of_options_that_find_little_room)
{
	struct tcp_info info;
	socklen_t length = sizeof(info);
	int fd = connected();
	char name[16];

	CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0);
	CHECK(length == sizeof(info) && info.tcpi_state == TCP_ESTABLISHED);
	length = 1;
	CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && length == 1);
	length = 4;
	CHECK(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 && length == 4);
	length = 16;
	CHECK(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 && length == 16);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "near", 5) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length) == 0 && length == 5);
	FAILS(EINVAL, getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length));
}

CASE(options_of_tcp_that_keep_a_number)
{
	static const struct {
		int name, given, told;
	} taken[] = {
		{ TCP_CORK, 5, 1 },	      { TCP_CORK, 0, 0 },
		{ TCP_QUICKACK, 0, 0 },	      { TCP_QUICKACK, 1, 1 },
		{ TCP_SYNCNT, 3, 3 },	      { TCP_LINGER2, 7, 7 },
		{ TCP_LINGER2, 121, 120 },    { TCP_LINGER2, 0, 60 },
		{ TCP_LINGER2, -5, -1 },      { TCP_DEFER_ACCEPT, 1, 1 },
		{ TCP_DEFER_ACCEPT, 2, 3 },   { TCP_DEFER_ACCEPT, 300, 367 },
		{ TCP_DEFER_ACCEPT, -1, 0 },  { TCP_WINDOW_CLAMP, 5, 1152 },
		{ TCP_WINDOW_CLAMP, 5000, 5000 }, { TCP_WINDOW_CLAMP, 0, 0 },
		{ TCP_THIN_LINEAR_TIMEOUTS, 1, 1 },
		{ TCP_NOTSENT_LOWAT, -1, -1 }, { TCP_MAXSEG, 88, 88 },
		{ TCP_MAXSEG, 0, 536 },
	}, refused[] = {
		{ TCP_SYNCNT, 0, 0 },	      { TCP_SYNCNT, 128, 0 },
		{ TCP_MAXSEG, 87, 0 },	      { TCP_MAXSEG, 32768, 0 },
		{ TCP_THIN_LINEAR_TIMEOUTS, 2, 0 }, { TCP_USER_TIMEOUT, -1, 0 },
		{ TCP_KEEPINTVL, 0, 0 },      { TCP_KEEPCNT, 128, 0 },
	};
	int fd = tcp();

	CHECK(bind(fd, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(get(fd, IPPROTO_TCP, TCP_MAXSEG) == 536 && get(fd, IPPROTO_TCP, TCP_LINGER2) == 60);
	CHECK(get(fd, IPPROTO_TCP, TCP_SYNCNT) == 6 && get(fd, IPPROTO_TCP, TCP_QUICKACK) == 1);
	for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++) {
		CHECK(set(fd, IPPROTO_TCP, taken[i].name, taken[i].given) == 0);
		CHECK(get(fd, IPPROTO_TCP, taken[i].name) == taken[i].told);
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		FAILS(EINVAL, set(fd, IPPROTO_TCP, refused[i].name, refused[i].given));
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0);
	FAILS(ENOENT, setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "ren", 3));
	FAILS(EINVAL, setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "", 0));
}

CASE(segments_are_as_short_as_is_wanted)
{
	int fd = tcp(), most;

	CHECK(set(fd, IPPROTO_TCP, TCP_MAXSEG, 600) == 0);
	CHECK(bind(fd, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(get(fd, IPPROTO_TCP, TCP_MAXSEG) == 600);
	CHECK(connect(fd, ADDRESS(FAR, ECHO), LENGTH) == 0);
	most = get(fd, IPPROTO_TCP, TCP_MAXSEG);
	/* Linux takes some of it for a time stamp. */
	CHECK(most > 500 && most <= 600);
	CHECK(send(fd, bytes, 5000, 0) == 5000);
	CHECK(recv(fd, got, 5000, MSG_WAITALL) == 5000 && memcmp(got, bytes, 5000) == 0);
}

CASE(who_is_too_far_away_is_not_heard)
{
	int fd = connected();

	CHECK(get(fd, SOL_IP, IP_MINTTL) == 0);
	FAILS(EINVAL, set(fd, SOL_IP, IP_MINTTL, 256));
	CHECK(set(fd, SOL_IP, IP_MINTTL, 65) == 0 && get(fd, SOL_IP, IP_MINTTL) == 65);
	CHECK(send(fd, "hello", 5, 0) == 5);
	CHECK(!ready(fd, POLLIN, NEVER));
	CHECK(set(fd, SOL_IP, IP_MINTTL, 64) == 0);
	CHECK(comes(fd) && recv(fd, got, 100, 0) == 5);
}

CASE(both_ends_at_the_same_address)
{
	int fd = listening(5), one = tcp(), other;
	struct sockaddr_in to = name_of(fd);
	pid_t child;

	CHECK(connect(one, (struct sockaddr *)&to, LENGTH) == 0);
	other = accept(fd, NULL, NULL);
	CHECK(other >= 0);
	fill(60000);
	child = fork();
	if (child == 0) {
		for (size_t done = 0; done < 60000;) {
			ssize_t count = send(one, bytes + done, 60000 - done, 0);

			CHECK(count > 0);
			done += count;
		}
		_exit(0);
	}
	close(one);
	take(other, 60000);
	CHECK(memcmp(bytes, got, 60000) == 0);
	CHECK(recv(other, got, 1, 0) == 0);
	CHECK(waitpid(child, NULL, 0) == child);
}

/* The same address, as programs of IPv6 write it. */
static struct sockaddr_in6 mapped(const char *ip, int port)
{
	struct sockaddr_in6 made = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	char text[64];

	snprintf(text, sizeof(text), "::ffff:%s", ip);
	CHECK(inet_pton(AF_INET6, text, &made.sin6_addr) == 1);
	return made;
}

#define MAPPED(ip, port) ((struct sockaddr *)&(struct sockaddr_in6[]){ mapped(ip, port) })
#define LONG sizeof(struct sockaddr_in6)

/* Says whether that is the mapped address, and stores its port. */
static int is_mapped(const struct sockaddr_in6 *at, socklen_t length, const char *ip, int *port)
{
	struct sockaddr_in6 expected = mapped(ip, 0);

	*port = ntohs(at->sin6_port);
	return length == LONG && at->sin6_family == AF_INET6 && !at->sin6_scope_id &&
	       !memcmp(&at->sin6_addr, &expected.sin6_addr, sizeof(expected.sin6_addr));
}

/* The port of a socket of IPv6 that is bound to the near address. */
static int mapped_port(int fd)
{
	struct sockaddr_in6 name;
	socklen_t length = sizeof(name);
	int port = 0;

	CHECK(getsockname(fd, (struct sockaddr *)&name, &length) == 0);
	CHECK(is_mapped(&name, length, NEAR, &port) && port != 0);
	return port;
}

CASE(datagrams_of_a_socket_of_ipv6)
{
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), only, port;
	struct sockaddr_in6 from;
	socklen_t length = sizeof(from);

	CHECK(bind(fd, MAPPED(NEAR, 0), LONG) == 0);
	FAILS(EINVAL, bind(fd, MAPPED(NEAR, 0), LONG));
	mapped_port(fd);
	FAILS(ENOTCONN, getpeername(fd, (struct sockaddr *)&from, &length));
	CHECK(sendto(fd, "hello", 5, 0, MAPPED(FAR, ECHO), LONG) == 5 && comes(fd));
	CHECK(recvfrom(fd, got, 100, 0, (struct sockaddr *)&from, &length) == 5);
	CHECK(is_mapped(&from, length, FAR, &port) && port == ECHO);
	/* An address of IPv4 as it is will do, too. */
	CHECK(sendto(fd, "again", 5, 0, ADDRESS(FAR, ECHO), LENGTH) == 5 && comes(fd));
	CHECK(recv(fd, got, 100, 0) == 5);
	FAILS(EINVAL, sendto(fd, "x", 1, 0, MAPPED(FAR, ECHO), LENGTH));
	CHECK(connect(fd, MAPPED(FAR, ECHO), LONG) == 0);
	CHECK(getpeername(fd, (struct sockaddr *)&from, &length) == 0);
	CHECK(is_mapped(&from, length, FAR, &port) && port == ECHO);
	CHECK(write(fd, "one", 3) == 3 && comes(fd) && read(fd, got, 100) == 3);
	CHECK(connect(fd, MAPPED(FAR, CLOSED), LONG) == 0);
	CHECK(send(fd, "x", 1, 0) == 1 && ready(fd, POLLIN, PATIENCE) & POLLERR);
	FAILS(ECONNREFUSED, recv(fd, got, 100, 0));
	/* One that connects at once has its address from there. */
	fd = socket(AF_INET6, SOCK_DGRAM, 0);
	CHECK(connect(fd, MAPPED(FAR, ECHO), LONG) == 0);
	mapped_port(fd);
	CHECK(write(fd, "two", 3) == 3 && comes(fd) && read(fd, got, 100) == 3);
	only = socket(AF_INET6, SOCK_DGRAM, 0);
	CHECK(set(only, IPPROTO_IPV6, IPV6_V6ONLY, 1) == 0);
	FAILS(EINVAL, bind(only, MAPPED(NEAR, 0), LONG));
}

CASE(errors_of_sockets_of_ipv6)
{
	int fd = socket(AF_INET6, SOCK_DGRAM, 0), port;
	struct lost at;

	CHECK(bind(fd, MAPPED(NEAR, 0), LONG) == 0);
	CHECK(set(fd, SOL_IPV6, IPV6_RECVERR, 7) == 0 && get(fd, SOL_IPV6, IPV6_RECVERR) == 1);
	CHECK(set(fd, SOL_IPV6, IPV6_RECVERR, 0) == 0 && get(fd, SOL_IPV6, IPV6_RECVERR) == 0);
	CHECK(set(fd, SOL_IP, IP_RECVERR, 1) == 0 && get(fd, SOL_IP, IP_RECVERR) == 1);
	CHECK(sendto(fd, "hello", 5, 0, MAPPED(FAR, CLOSED), LONG) == 5);
	CHECK(ready(fd, POLLIN, PATIENCE) == POLLERR);
	at = lost(fd);
	CHECK(at.length == 5 && is_mapped(&at.to, at.to_length, FAR, &port) && port == CLOSED);
	CHECK(is_error(&at, ECONNREFUSED, SO_EE_ORIGIN_ICMP, 3, 3, 0));
	CHECK(at.level == SOL_IPV6);
	CHECK(is_mapped(&at.said.offender, at.said_length - 16, FAR, &port) && port == 0);
}

CASE(connections_of_sockets_of_ipv6)
{
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), other, port;
	struct sockaddr_in6 from;
	socklen_t length = sizeof(from);

	CHECK(bind(fd, MAPPED(NEAR, 0), LONG) == 0 && listen(fd, 5) == 0);
	port = mapped_port(fd);
	command((struct command){ CONNECT, inet_addr(NEAR), port });
	CHECK(comes(fd));
	other = accept(fd, (struct sockaddr *)&from, &length);
	CHECK(other >= 0 && is_mapped(&from, length, FAR, &(int){ 0 }));
	CHECK(mapped_port(other) == port);
	CHECK(get(other, SOL_SOCKET, SO_DOMAIN) == AF_INET6);
	CHECK(send(other, "question", 8, 0) == 8 && comes(other) && recv(other, got, 100, 0) == 8);
	/* Sockets of both families have the same ports. */
	FAILS(EADDRINUSE, bind(tcp(), ADDRESS(NEAR, port), LENGTH));
	fd = socket(AF_INET6, SOCK_STREAM, 0);
	FAILS(ECONNREFUSED, connect(fd, MAPPED(FAR, CLOSED), LONG));
	CHECK(connect(fd, MAPPED(FAR, ECHO), LONG) == 0);
	FAILS(EISCONN, connect(fd, MAPPED(FAR, ECHO), LONG));
	CHECK(getpeername(fd, (struct sockaddr *)&from, &length) == 0);
	CHECK(is_mapped(&from, length, FAR, &port) && port == ECHO);
	CHECK(send(fd, "hello", 5, 0) == 5);
	take(fd, 5);
	fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
	FAILS(EINPROGRESS, connect(fd, MAPPED(FAR, ECHO), LONG));
	CHECK(ready(fd, POLLOUT, PATIENCE) == POLLOUT && get(fd, SOL_SOCKET, SO_ERROR) == 0);
}

CASE(options_of_sockets_of_ipv6)
{
	int fd = socket(AF_INET6, SOCK_STREAM, 0);

	CHECK(set(fd, IPPROTO_IPV6, IPV6_TCLASS, 8) == 0);
	CHECK(bind(fd, MAPPED(NEAR, 0), LONG) == 0);
	CHECK(get(fd, IPPROTO_IPV6, IPV6_TCLASS) == 8 && get(fd, IPPROTO_IPV6, IPV6_V6ONLY) == 0);
	FAILS(EINVAL, set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1));
	CHECK(set(fd, IPPROTO_IPV6, IPV6_TCLASS, 16) == 0);
	CHECK(get(fd, IPPROTO_IPV6, IPV6_TCLASS) == 16);
	CHECK(set(fd, IPPROTO_IPV6, IPV6_TCLASS, -1) == 0);
	CHECK(get(fd, IPPROTO_IPV6, IPV6_TCLASS) == 0);
	FAILS(EINVAL, set(fd, IPPROTO_IPV6, IPV6_TCLASS, 256));
	CHECK(get(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS) == 64);
	FAILS(EINVAL, set(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, -2));
	CHECK(set(fd, IPPROTO_IP, IP_TOS, 16) == 0 && get(fd, IPPROTO_IP, IP_TOS) == 16);
	CHECK(set(fd, IPPROTO_TCP, TCP_NODELAY, 1) == 0 && get(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
}

/* What waits at the port of the peer for a byte, and takes part in a case. */
static void serve_connection(int fd)
{
	ssize_t count;

	while ((count = recv(fd, got, sizeof(got), 0)) > 0)
		for (ssize_t done = 0; done < count;) {
			ssize_t sent = send(fd, got + done, count - done, MSG_NOSIGNAL);

			if (sent < 0)
				return;
			done += sent;
		}
}

static void obey(const struct command *asked)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(asked->port),
				  .sin_addr = { asked->address } };
	struct linger at_once = { 1, 0 };
	int fd = asked->what == SEND ? udp() : tcp();

	if (asked->what == SEND) {
		sendto(fd, "hello", 5, 0, (struct sockaddr *)&to, sizeof(to));
		return;
	}
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)))
		return;
	if (asked->what == CONNECT) {
		serve_connection(fd);
		return;
	}
	send(fd, "hello", 5, 0);
	recv(fd, got, 5, 0);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

ROLE(peer)
{
	struct pollfd all[3] = { { udp(), POLLIN, 0 }, { udp(), POLLIN, 0 }, { tcp(), POLLIN, 0 } };
	struct sockaddr_in from;

	(void)count;
	(void)arguments;
	signal(SIGCHLD, SIG_IGN);
	CHECK(set(all[2].fd, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
	CHECK(bind(all[0].fd, ADDRESS("0.0.0.0", ECHO), LENGTH) == 0);
	CHECK(bind(all[1].fd, ADDRESS("0.0.0.0", COMMAND), LENGTH) == 0);
	CHECK(bind(all[2].fd, ADDRESS("0.0.0.0", ECHO), LENGTH) == 0 && listen(all[2].fd, 50) == 0);
	SAY("answers");
	while (poll(all, 3, -1) > 0) {
		socklen_t length = sizeof(from);

		if (all[0].revents) {
			ssize_t size = recvfrom(all[0].fd, got, sizeof(got), 0,
						(struct sockaddr *)&from, &length);

			if (size >= 0)
				sendto(all[0].fd, got, size, 0, (struct sockaddr *)&from, length);
		}
		if (all[1].revents) {
			struct command asked;

			size_t size = recv(all[1].fd, &asked, sizeof(asked), 0);

			if (size == sizeof(asked) && fork() == 0) {
				obey(&asked);
				_exit(0);
			}
		}
		if (all[2].revents) {
			int fd = accept(all[2].fd, NULL, NULL);

			if (fork() == 0) {
				serve_connection(fd);
				_exit(0);
			}
			close(fd);
		}
	}
	return 1;
}

/* Has as many sockets as a program gets, until it is killed. */
ROLE(holds)
{
	struct sockaddr_in at;
	int fd;

	(void)count;
	(void)arguments;
	for (int round = 0; round < 40; round++) {
		fd = bound_udp();
		CHECK(sendto(fd, "x", 1, 0, ADDRESS(FAR, ECHO), LENGTH) == 1);
	}
	for (int round = 0; round < 10; round++) {
		fd = listening(8);
		at = name_of(fd);
		CHECK(connect(tcp(), (struct sockaddr *)&at, LENGTH) == 0);
		CHECK(send(connected(), bytes, 1000, 0) == 1000);
	}
	SAY("holds");
	pause();
	return 0;
}

/* Sends back what comes by connections to a port of the near address, one after the other. */
ROLE(serves)
{
	int fd = tcp();

	CHECK(count == 2);
	CHECK(set(fd, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
	CHECK(bind(fd, ADDRESS(NEAR, atoi(arguments[1])), LENGTH) == 0 && listen(fd, 8) == 0);
	SAY("serves");
	for (;;) {
		int connection = accept(fd, NULL, NULL);

		CHECK(connection >= 0);
		serve_connection(connection);
		close(connection);
	}
}
