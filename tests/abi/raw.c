// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * Sockets of raw packets and of echoes at the address of the network interface near, whose wire
 * leads to a peer that Linux is, with the program `peer` of inet.c. In the realm near is one of the
 * realm's interfaces.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/icmp.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "check.h"
#include "options.h"
#include "stations.h"
#include "waiting.h"

/* A protocol for experiments, which the peer does not know. */
#define STRANGE 253

#ifndef SOL_RAW
#define SOL_RAW 255
#endif

static int made(int kind, int protocol)
{
	int fd = socket(AF_INET, kind | SOCK_CLOEXEC, protocol);

	CHECK(fd >= 0);
	return fd;
}

static int raw(int protocol)
{
	return made(SOCK_RAW, protocol);
}

/* A raw socket that hears answers alone: what was told to others before may come late. */
static int raw_icmp(void)
{
	int fd = raw(IPPROTO_ICMP), filter = ~(1 << ICMP_ECHOREPLY);

	CHECK(setsockopt(fd, SOL_RAW, ICMP_FILTER, &filter, sizeof(filter)) == 0);
	return fd;
}

/* A socket of echoes, which everybody may have here. */
static int echoes(void)
{
	int fd = open("/proc/sys/net/ipv4/ping_group_range", O_WRONLY);

	CHECK(write(fd, "0 2147483647", 12) == 12);
	close(fd);
	return made(SOCK_DGRAM, IPPROTO_ICMP);
}

static int comes(int fd)
{
	return ready(fd, POLLIN, PATIENCE) & POLLIN;
}

static uint16_t sum_of(const void *bytes, size_t length)
{
	const uint8_t *at = bytes;
	uint32_t sum = 0;

	for (size_t i = 0; i < length; i++)
		sum += i % 2 ? at[i] : at[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons(~sum);
}

/* A request for an echo. */
struct request {
	struct icmphdr head;
	uint8_t data[60000];
};

static struct request asked;
static uint8_t got[70000];

/* Makes a request with so many bytes of data. Returns the length of the whole. */
static size_t request(uint16_t ident, uint16_t number, size_t length)
{
	asked.head = (struct icmphdr){ .type = ICMP_ECHO };
	asked.head.un.echo.id = htons(ident);
	asked.head.un.echo.sequence = htons(number);
	for (size_t at = 0; at < length; at++)
		asked.data[at] = at * 31 + at / 251 + number;
	asked.head.checksum = sum_of(&asked, sizeof(asked.head) + length);
	return sizeof(asked.head) + length;
}

static void ask(int fd, size_t length)
{
	CHECK(sendto(fd, &asked, length, 0, ADDRESS(FAR, 0), LENGTH) == (ssize_t)length);
}

/* Whether the answer to the last request lies there. */
static int is_answer(const void *message, size_t length)
{
	const struct icmphdr *head = message;

	return head->type == ICMP_ECHOREPLY && sum_of(message, length) == 0 &&
	       head->un.echo.id == asked.head.un.echo.id &&
	       head->un.echo.sequence == asked.head.un.echo.sequence &&
	       memcmp(head + 1, asked.data, length - sizeof(*head)) == 0;
}

/* Takes the answer to the last request, of so many bytes, from a raw socket. */
static void answered(int fd, size_t length)
{
	const struct iphdr *header = (void *)got;
	struct sockaddr_in from;
	socklen_t size = sizeof(from);

	CHECK(comes(fd));
	CHECK(recvfrom(fd, got, sizeof(got), 0, (struct sockaddr *)&from, &size) ==
	      (ssize_t)(sizeof(*header) + length));
	CHECK(from.sin_family == AF_INET && from.sin_port == 0);
	CHECK(from.sin_addr.s_addr == inet_addr(FAR) && size == sizeof(from));
	CHECK(header->version == 4 && header->ihl == 5 && header->protocol == IPPROTO_ICMP);
	CHECK(header->saddr == inet_addr(FAR) && header->daddr == inet_addr(NEAR));
	CHECK(header->frag_off == 0 || header->frag_off == htons(IP_DF));
	CHECK(ntohs(header->tot_len) == sizeof(*header) + length);
	CHECK(sum_of(header, sizeof(*header)) == 0 && header->ttl == 64);
	CHECK(is_answer(header + 1, length));
}

CASE(a_raw_socket_asks_for_an_echo)
{
	static const size_t lengths[] = { 0, 1, 56, 1472, 1473, 4000, 60000 };
	int fd = raw_icmp();

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		size_t length = request(0x1234, i, lengths[i]);

		PART("%zu bytes", lengths[i]);
		ask(fd, length);
		answered(fd, length);
	}
}

CASE(a_raw_socket_hears_what_others_ask_for)
{
	int fd = raw_icmp(), other = raw_icmp(), strange = raw(STRANGE);
	size_t length = request(1, 2, 8);

	CHECK(bind(other, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(bind(strange, ADDRESS(NEAR, 0), LENGTH) == 0);
	ask(fd, length);
	answered(fd, length);
	answered(other, length);
	CHECK(!ready(strange, POLLIN, NEVER));
}

CASE(types_that_a_socket_does_not_hear)
{
	int fd = raw(IPPROTO_ICMP), all = raw(IPPROTO_ICMP), other = raw(STRANGE);
	size_t length = request(3, 4, 8);
	socklen_t size = 2;

	CHECK(get(fd, SOL_RAW, ICMP_FILTER) == 0);
	CHECK(set(fd, SOL_RAW, ICMP_FILTER, ~(1 << ICMP_ECHOREPLY)) == 0);
	ask(fd, length);
	answered(fd, length);
	CHECK(get(fd, SOL_RAW, ICMP_FILTER) == ~(1 << ICMP_ECHOREPLY));
	CHECK(set(fd, SOL_RAW, ICMP_FILTER, -1) == 0);
	ask(all, length);
	answered(all, length);
	CHECK(!ready(fd, POLLIN, NEVER));
	/* A part of the value is told, and set. */
	CHECK(getsockopt(fd, SOL_RAW, ICMP_FILTER, got, &size) == 0 && size == 2);
	CHECK(setsockopt(fd, SOL_RAW, ICMP_FILTER, "\2", 1) == 0);
	CHECK(get(fd, SOL_RAW, ICMP_FILTER) == (int)0xffffff02);
	CHECK(bind(other, ADDRESS(NEAR, 0), LENGTH) == 0);
	FAILS(EOPNOTSUPP, set(other, SOL_RAW, ICMP_FILTER, 0));
	FAILS(ENOPROTOOPT, set(fd, SOL_RAW, 77, 0));
}

CASE(a_filter_says_what_a_raw_socket_hears)
{
	/* As ping sets it: answers to requests with that number. It begins at the header. */
	struct sock_filter own[] = {
		BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
		BPF_STMT(BPF_LD | BPF_H | BPF_IND, 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xaaaa, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, ~0U),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	/* The same by another way, and a part of the packet. */
	struct sock_filter part[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 36, 0, 5),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, SKF_NET_OFF + 24),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xaaaa, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PROTOCOL),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x800, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 23),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	int fd = raw_icmp();

	/* Set before it is the realm's. */
	CHECK(ATTACH(fd, own) == 0);
	ask(fd, request(0xbbbb, 1, 8));
	ask(fd, request(0xaaaa, 2, 8));
	answered(fd, 16);
	CHECK(ATTACH(fd, part) == 0);
	ask(fd, request(0xbbbb, 3, 8));
	ask(fd, request(0xaaaa, 4, 8));
	CHECK(comes(fd) && recv(fd, got, sizeof(got), MSG_TRUNC) == 23 && got[9] == IPPROTO_ICMP);
	/* In fragments. */
	part[1].k = 20 + 8 + 4000;
	CHECK(ATTACH(fd, part) == 0);
	ask(fd, request(0xaaaa, 5, 4000));
	CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) == 23);
	CHECK(get(fd, SOL_SOCKET, SO_LOCK_FILTER) == 0);
	CHECK(set(fd, SOL_SOCKET, SO_LOCK_FILTER, 0) == 0);
	CHECK(set(fd, SOL_SOCKET, SO_DETACH_FILTER, 0) == 0);
	FAILS(ENOENT, set(fd, SOL_SOCKET, SO_DETACH_FILTER, 0));
	ask(fd, request(0xcccc, 6, 8));
	answered(fd, 16);
	FAILS(EINVAL, attach(fd, own, 0));
	FAILS(EINVAL, attach(fd, own, 3));
	FAILS(EINVAL, setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, own, 8));
	CHECK(set(fd, SOL_SOCKET, SO_LOCK_FILTER, 1) == 0);
	CHECK(get(fd, SOL_SOCKET, SO_LOCK_FILTER) == 1);
	FAILS(EPERM, ATTACH(fd, own));
	FAILS(EPERM, set(fd, SOL_SOCKET, SO_DETACH_FILTER, 0));
	FAILS(EPERM, set(fd, SOL_SOCKET, SO_LOCK_FILTER, 0));
}

CASE(a_filter_of_a_socket_of_echoes_sees_the_message)
{
	struct sock_filter last[] = {
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 6),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 2, 0, 3),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, SKF_NET_OFF + 9),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_ICMP, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 11),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	int fd = echoes();

	/* It stays as it was set before. */
	CHECK(ATTACH(fd, last) == 0 && set(fd, SOL_SOCKET, SO_LOCK_FILTER, 1) == 0);
	ask(fd, request(0, 1, 56));
	ask(fd, request(0, 2, 56));
	CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) == 11);
	CHECK(got[0] == ICMP_ECHOREPLY && got[7] == 2);
	FAILS(EPERM, set(fd, SOL_SOCKET, SO_DETACH_FILTER, 0));
}

CASE(one_socket_sends_what_another_one_hears_of)
{
	struct iphdr header = { .version = 4, .ihl = 5, .ttl = 7, .protocol = IPPROTO_ICMP,
				.daddr = inet_addr(FAR) };
	struct iovec parts[2] = { { &header, sizeof(header) }, { &asked, request(5, 6, 100) } };
	struct msghdr message = { .msg_name = ADDRESS(FAR, 0), .msg_namelen = LENGTH,
				  .msg_iov = parts, .msg_iovlen = 2 };
	int sends = raw(IPPROTO_RAW), hears = raw_icmp();

	/* As mtr does: neither is bound to anything. */
	CHECK(sendmsg(sends, &message, 0) == (ssize_t)(20 + parts[1].iov_len));
	answered(hears, parts[1].iov_len);
	CHECK(!ready(sends, POLLIN, 0));
}

CASE(a_header_of_the_programs_own)
{
	struct iphdr header = { .version = 4, .ihl = 5, .ttl = 7, .protocol = IPPROTO_ICMP,
				.daddr = inet_addr(FAR) };
	struct iovec parts[2] = { { &header, sizeof(header) }, { &asked, request(5, 6, 100) } };
	struct msghdr message = { .msg_name = ADDRESS(FAR, 0), .msg_namelen = LENGTH,
				  .msg_iov = parts, .msg_iovlen = 2 };
	int fd = raw_icmp(), hears = raw_icmp(), other = raw(IPPROTO_RAW);

	CHECK(bind(hears, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(get(fd, IPPROTO_IP, IP_HDRINCL) == 0 && get(other, IPPROTO_IP, IP_HDRINCL) == 1);
	CHECK(set(fd, IPPROTO_IP, IP_HDRINCL, 1) == 0);
	CHECK(sendmsg(fd, &message, 0) == (ssize_t)(20 + parts[1].iov_len));
	answered(hears, parts[1].iov_len);
	CHECK(get(fd, IPPROTO_IP, IP_HDRINCL) == 1);
	parts[1].iov_len = request(7, 8, 100);
	CHECK(sendmsg(other, &message, 0) == (ssize_t)(20 + parts[1].iov_len));
	answered(hears, parts[1].iov_len);
	CHECK(get(other, IPPROTO_IP, IP_HDRINCL) == 1);
	parts[1].iov_len = request(7, 8, 2000);
	FAILS(EMSGSIZE, sendmsg(fd, &message, 0));
	FAILS(EINVAL, sendto(fd, &header, 19, 0, ADDRESS(FAR, 0), LENGTH));
	header.ihl = 15;
	FAILS(EINVAL, sendto(fd, &header, 20, 0, ADDRESS(FAR, 0), LENGTH));
	CHECK(set(fd, IPPROTO_IP, IP_HDRINCL, 0) == 0);
	ask(fd, request(9, 10, 100));
	answered(hears, 108);
}

CASE(a_socket_of_echoes_hears_its_own)
{
	static const size_t lengths[] = { 0, 56, 1472, 4000 };
	int fd = echoes(), other = echoes(), hears = raw_icmp();
	struct sockaddr_in from;
	socklen_t size = sizeof(from);

	CHECK(bind(hears, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(bind(other, ADDRESS(NEAR, 0), LENGTH) == 0 && name_of(other).sin_port != 0);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		size_t length = request(0, i, lengths[i]);

		PART("%zu bytes", lengths[i]);
		ask(fd, length);
		/* It is known by a number of the system's, which the program learns. */
		asked.head.un.echo.id = name_of(fd).sin_port;
		CHECK(asked.head.un.echo.id != 0 && name_of(fd).sin_addr.s_addr == INADDR_ANY);
		CHECK(comes(fd));
		CHECK(recvfrom(fd, got, sizeof(got), 0, (struct sockaddr *)&from, &size) ==
		      (ssize_t)length);
		CHECK(from.sin_addr.s_addr == inet_addr(FAR) && from.sin_port == 0);
		CHECK(is_answer(got, length));
		answered(hears, length);
	}
	CHECK(!ready(other, POLLIN, NEVER));
	asked.head.type = ICMP_ECHOREPLY;
	FAILS(EINVAL, sendto(fd, &asked, 8, 0, ADDRESS(FAR, 0), LENGTH));
	asked.head = (struct icmphdr){ .type = ICMP_ECHO, .code = 1 };
	FAILS(EINVAL, sendto(fd, &asked, 8, 0, ADDRESS(FAR, 0), LENGTH));
	FAILS(ENOPROTOOPT, set(fd, IPPROTO_IP, IP_HDRINCL, 1));
}

CASE(a_number_is_one_sockets)
{
	int fd = echoes(), other = echoes();

	CHECK(bind(fd, ADDRESS(NEAR, 777), LENGTH) == 0);
	CHECK(name_of(fd).sin_port == htons(777));
	CHECK(name_of(fd).sin_addr.s_addr == inet_addr(NEAR));
	FAILS(EINVAL, bind(fd, ADDRESS(NEAR, 778), LENGTH));
	/* Who says so shares it, as all do at first. */
	CHECK(get(fd, SOL_SOCKET, SO_REUSEADDR) == 1);
	CHECK(bind(echoes(), ADDRESS(NEAR, 777), LENGTH) == 0);
	CHECK(set(other, SOL_SOCKET, SO_REUSEADDR, 0) == 0);
	FAILS(EADDRINUSE, bind(other, ADDRESS(NEAR, 777), LENGTH));
	FAILS(EADDRNOTAVAIL, bind(other, ADDRESS(NOBODY, 777), LENGTH));
	CHECK(bind(other, ADDRESS(NEAR, 778), LENGTH) == 0);
}

CASE(whom_a_raw_socket_talks_to)
{
	struct sockaddr unspecified = { .sa_family = AF_UNSPEC };
	struct sockaddr_in name;
	socklen_t size = sizeof(name);
	int fd = raw_icmp();
	size_t length = request(11, 12, 8);

	CHECK(bind(fd, ADDRESS(NEAR, 5), LENGTH) == 0);
	CHECK(name_of(fd).sin_port == htons(IPPROTO_ICMP));
	CHECK(name_of(fd).sin_addr.s_addr == inet_addr(NEAR));
	FAILS(EDESTADDRREQ, send(fd, &asked, length, 0));
	CHECK(connect(fd, ADDRESS(NOBODY, 0), LENGTH) == 0);
	ask(fd, length);
	CHECK(!ready(fd, POLLIN, NEVER));
	CHECK(connect(fd, ADDRESS(FAR, 0), LENGTH) == 0);
	FAILS(ENOTCONN, getpeername(fd, (struct sockaddr *)&name, &size));
	CHECK(send(fd, &asked, length, 0) == (ssize_t)length);
	answered(fd, length);
	CHECK(get(fd, IPPROTO_IP, IP_MTU) == 1500);
	CHECK(connect(fd, &unspecified, sizeof(unspecified)) == 0);
	FAILS(EDESTADDRREQ, send(fd, &asked, length, 0));
	FAILS(EOPNOTSUPP, listen(fd, 1));
	FAILS(EOPNOTSUPP, sendto(fd, &asked, length, MSG_OOB, ADDRESS(FAR, 0), LENGTH));
	FAILS(EACCES, sendto(fd, &asked, length, 0, ADDRESS(ALL, 0), LENGTH));
	FAILS(EADDRNOTAVAIL, bind(raw_icmp(), ADDRESS(NOBODY, 0), LENGTH));
}

CASE(the_family_of_an_address_may_be_left_out)
{
	struct sockaddr_in to = address(FAR, 0);
	int fd = raw_icmp(), own = echoes();
	size_t length = request(30, 31, 8);

	CHECK(bind(fd, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(bind(own, ADDRESS(NEAR, 0), LENGTH) == 0);
	to.sin_family = AF_UNSPEC;
	CHECK(sendto(fd, &asked, length, 0, (struct sockaddr *)&to, sizeof(to)) == (ssize_t)length);
	answered(fd, length);
	FAILS(EAFNOSUPPORT, sendto(own, &asked, length, 0, (struct sockaddr *)&to, sizeof(to)));
	to.sin_family = AF_UNIX;
	FAILS(EAFNOSUPPORT, sendto(fd, &asked, length, 0, (struct sockaddr *)&to, sizeof(to)));
}

CASE(a_socket_that_talks_to_nobody_is_shut_down)
{
	struct iphdr header = { .version = 4, .ihl = 5, .daddr = inet_addr(FAR) };
	int fd = raw_icmp(), hears = raw_icmp();

	CHECK(bind(hears, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(bind(fd, ADDRESS(NEAR, 0), LENGTH) == 0);
	/* It is told to be none, and woken all the same. */
	FAILS(ENOTCONN, shutdown(fd, SHUT_RDWR));
	CHECK(ready(fd, POLLIN | POLLRDHUP, 0) == (POLLIN | POLLRDHUP | POLLHUP));
	CHECK(recv(fd, got, 100, 0) == 0);
	/* Only who makes the header itself sends no more. */
	ask(fd, request(0, 0, 8));
	answered(hears, 16);
	CHECK(set(fd, IPPROTO_IP, IP_HDRINCL, 1) == 0);
	FAILS(EPIPE, sendto(fd, &header, sizeof(header), MSG_NOSIGNAL, ADDRESS(FAR, 0), LENGTH));
	fd = echoes();
	CHECK(connect(fd, ADDRESS(FAR, 0), LENGTH) == 0 && shutdown(fd, SHUT_WR) == 0);
	FAILS(EPIPE, send(fd, &asked, request(0, 0, 8), MSG_NOSIGNAL));
}

CASE(what_waits_to_be_received)
{
	int fd = raw_icmp(), waiting = -1;
	size_t length = request(13, 14, 100);
	struct timeval none = { 0, 1000 };

	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none)) == 0);
	ask(fd, length);
	CHECK(comes(fd));
	CHECK(ioctl(fd, FIONREAD, &waiting) == 0 && waiting == 128);
	CHECK(recv(fd, got, 30, MSG_PEEK) == 30 && recv(fd, got, 30, MSG_PEEK | MSG_TRUNC) == 128);
	answered(fd, length);
	FAILS(EAGAIN, recv(fd, got, 100, MSG_DONTWAIT));
	FAILS(EAGAIN, recv(fd, got, 100, 0));
	CHECK(ready(fd, POLLOUT, 0) == POLLOUT);
}

CASE(what_control_messages_tell)
{
	union {
		char bytes[256];
		struct cmsghdr first;
	} control;
	struct iovec part = { got, sizeof(got) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	int fd = raw_icmp();
	size_t length = request(15, 16, 8);

	CHECK(set(fd, IPPROTO_IP, IP_RECVTTL, 1) == 0 && set(fd, IPPROTO_IP, IP_PKTINFO, 1) == 0);
	CHECK(set(fd, SOL_SOCKET, SO_TIMESTAMP, 1) == 0);
	ask(fd, length);
	CHECK(comes(fd) && recvmsg(fd, &message, 0) == (ssize_t)(20 + length));
	for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
		const struct in_pktinfo *packet = (void *)CMSG_DATA(at);

		SAY("level %d kind %d length %zu", at->cmsg_level, at->cmsg_type,
		    (size_t)at->cmsg_len);
		if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_TTL)
			CHECK(*(int *)CMSG_DATA(at) == 64);
		if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_PKTINFO)
			CHECK(packet->ipi_addr.s_addr == inet_addr(NEAR) &&
			      packet->ipi_spec_dst.s_addr == inet_addr(NEAR));
	}
}

/* Says what is told of a packet that did not arrive. */
static void lost(int fd, size_t head)
{
	union {
		char bytes[256];
		struct cmsghdr first;
	} control;
	struct sockaddr_in to;
	struct iovec part = { got, sizeof(got) };
	struct msghdr message = { .msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = &part,
				  .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	ssize_t length;

	CHECK(ready(fd, 0, PATIENCE) & POLLERR);
	length = recvmsg(fd, &message, MSG_ERRQUEUE);
	CHECK(length >= (ssize_t)head && message.msg_flags == MSG_ERRQUEUE);
	CHECK(memcmp(got, &asked, head) == 0);
	SAY("to %s", inet_ntoa(to.sin_addr));
	for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
		struct sock_extended_err *told = (void *)CMSG_DATA(at);

		if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_RECVERR)
			SAY("error %u origin %u type %u code %u by %s", told->ee_errno,
			    told->ee_origin, told->ee_type, told->ee_code,
			    inet_ntoa(((struct sockaddr_in *)SO_EE_OFFENDER(told))->sin_addr));
	}
	FAILS(EAGAIN, recvmsg(fd, &message, MSG_ERRQUEUE));
}

CASE(a_packet_that_nobody_takes)
{
	int fd = raw(STRANGE);

	CHECK(set(fd, IPPROTO_IP, IP_RECVERR, 1) == 0);
	ask(fd, request(17, 18, 20));
	lost(fd, 28);
	/* Who has not asked for errors hears of none, unless it talks to that station alone. */
	CHECK(set(fd, IPPROTO_IP, IP_RECVERR, 0) == 0);
	ask(fd, 28);
	CHECK(!ready(fd, POLLIN, NEVER) && get(fd, SOL_SOCKET, SO_ERROR) == 0);
	CHECK(connect(fd, ADDRESS(FAR, 0), LENGTH) == 0);
	ask(fd, 28);
	CHECK(ready(fd, POLLIN, PATIENCE) & POLLERR);
	FAILS(ENOPROTOOPT, recv(fd, got, 100, 0));
}

CASE(a_station_that_is_not_there)
{
	int fd = raw(IPPROTO_ICMP), own = echoes(), hears = raw(IPPROTO_ICMP);
	const struct iphdr *header = (void *)got;
	const struct icmphdr *message = (void *)(header + 1);

	CHECK(bind(hears, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(set(hears, SOL_RAW, ICMP_FILTER, ~(1 << ICMP_DEST_UNREACH)) == 0);
	CHECK(set(fd, IPPROTO_IP, IP_RECVERR, 1) == 0);
	CHECK(sendto(fd, &asked, request(19, 20, 20), 0, ADDRESS(NOBODY, 0), LENGTH) == 28);
	lost(fd, 28);
	CHECK(comes(hears));
	SAY("%zd bytes", recv(hears, got, sizeof(got), 0));
	CHECK(header->saddr == inet_addr(NEAR) && header->daddr == inet_addr(NEAR));
	CHECK(message->type == ICMP_DEST_UNREACH && message->code == ICMP_HOST_UNREACH);
	CHECK(sum_of(message, 8 + 20 + 28) == 0);
	CHECK(memcmp((char *)(message + 1) + 20, &asked, 28) == 0);
	CHECK(set(own, IPPROTO_IP, IP_RECVERR, 1) == 0);
	CHECK(sendto(own, &asked, request(0, 22, 20), 0, ADDRESS(NOBODY, 0), LENGTH) == 28);
	CHECK(ready(own, 0, PATIENCE) & POLLERR);
	FAILS(EHOSTUNREACH, recv(own, got, 100, MSG_DONTWAIT));
}

CASE(a_raw_socket_hears_datagrams_as_well)
{
	const struct iphdr *header = (void *)got;
	const struct udphdr *datagram = (void *)(header + 1);
	int fd = raw(IPPROTO_UDP), other = made(SOCK_DGRAM, 0);

	CHECK(bind(fd, ADDRESS(NEAR, 0), LENGTH) == 0);
	CHECK(sendto(other, "hello", 5, 0, ADDRESS(FAR, ECHO), LENGTH) == 5);
	CHECK(comes(other) && recv(other, got, 100, 0) == 5);
	do {
		CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) >= 28);
	} while (datagram->source != htons(ECHO));
	CHECK(header->protocol == IPPROTO_UDP && datagram->len == htons(13));
	CHECK(datagram->dest == name_of(other).sin_port && memcmp(datagram + 1, "hello", 5) == 0);
}

CASE(a_packet_for_oneself)
{
	const struct iphdr *header = (void *)got;
	const struct icmphdr *message = (void *)(header + 1);
	int fd = raw(IPPROTO_ICMP);
	size_t length = request(21, 22, 8);

	CHECK(sendto(fd, &asked, length, 0, ADDRESS(NEAR, 0), LENGTH) == (ssize_t)length);
	/* It hears the request, and the answer. */
	CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) == (ssize_t)(20 + length));
	CHECK(message->type == ICMP_ECHO && memcmp(message, &asked, length) == 0);
	CHECK(comes(fd) && recv(fd, got, sizeof(got), 0) == (ssize_t)(20 + length));
	CHECK(header->saddr == inet_addr(NEAR) && is_answer(message, length));
}
