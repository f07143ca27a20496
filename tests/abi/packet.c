// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * Packet sockets on the network interface near, whose wire has the interface far at its other end:
 * addresses, frames with and without headers, what is received, filters, statistics, options. In
 * the realm near is one of the realm's interfaces, and far Linux's.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "check.h"
#include "waiting.h"
#include "wire.h"

static const uint8_t group[ETH_ALEN] = { 0x01, 0x00, 0x5e, 0x7f, 0x12, 0x34 };
static const uint8_t nobody[ETH_ALEN] = { 0x02, 0x00, 0x00, 0x00, 0x00, 0x77 };

/*
 * Receives the next frame of this program, within `patience`; -1 if none comes. A socket that hears
 * everything hears what Linux sends by itself as well, when an interface is new.
 */
static ssize_t next(int fd, void *to, size_t room, struct sockaddr_ll *from, int patience)
{
	struct sockaddr_ll unused;
	socklen_t length;
	ssize_t count;

	from = from ?: &unused;
	do {
		if (!(ready(fd, POLLIN, patience) & POLLIN))
			return -1;
		length = sizeof(*from);
		count = recvfrom(fd, to, room, 0, (struct sockaddr *)from, &length);
	} while (count >= 0 && from->sll_protocol != htons(PROTOCOL) &&
		 from->sll_protocol != htons(OTHER));
	return count;
}

/* Whether the next frame is that one, of at least 46 bytes behind the header. */
static int gets(int fd, int seed, size_t length)
{
	struct frame got;
	ssize_t count = next(fd, &got, sizeof(got), NULL, PATIENCE);

	if (count != (ssize_t)(sizeof(got.header) + length)) {
		SAY("a frame of %zd bytes", count);
		return 0;
	}
	for (size_t i = 0; i < length; i++)
		if (got.data[i] != (uint8_t)(seed + 5 * i)) {
			SAY("a frame that begins with %d, not %d", got.data[0], (uint8_t)seed);
			return 0;
		}
	return 1;
}

static int nothing(int fd)
{
	struct frame got;

	return next(fd, &got, sizeof(got), NULL, NEVER) < 0;
}

CASE(an_interface_has_its_address)
{
	struct ifreq asked = ask(SIOCGIFFLAGS, NEAR);
	int fd = bound(NEAR, SOCK_RAW, PROTOCOL);

	CHECK(asked.ifr_flags & IFF_UP);
	CHECK(asked.ifr_flags & IFF_RUNNING);
	CHECK(asked.ifr_flags & IFF_BROADCAST);
	SAY("mtu %d", ask(SIOCGIFMTU, NEAR).ifr_mtu);
	SAY("kind %d", ask(SIOCGIFHWADDR, NEAR).ifr_hwaddr.sa_family);
	SAY("queue %d", ask(SIOCGIFTXQLEN, NEAR).ifr_qlen);
	asked = ask(SIOCGIFADDR, NEAR);
	SAY("address %s", inet_ntoa(((struct sockaddr_in *)&asked.ifr_addr)->sin_addr));
	asked = ask(SIOCGIFNETMASK, NEAR);
	SAY("mask %s", inet_ntoa(((struct sockaddr_in *)&asked.ifr_netmask)->sin_addr));
	memset(&asked, 0, sizeof(asked));
	asked.ifr_ifindex = if_nametoindex(NEAR);
	CHECK(ioctl(fd, SIOCGIFNAME, &asked) == 0);
	CHECK(strcmp(asked.ifr_name, NEAR) == 0);
	strcpy(asked.ifr_name, "none");
	CHECK(ioctl(fd, SIOCGIFINDEX, &asked) == -1 && errno == ENODEV);
	CHECK(ioctl(fd, SIOCGIFMTU, NULL) == -1 && errno == EFAULT);
	/* One of Linux's, of whatever socket. */
	strcpy(asked.ifr_name, "lo");
	CHECK(ioctl(fd, SIOCGIFINDEX, &asked) == 0);
	CHECK(asked.ifr_ifindex == (int)if_nametoindex("lo"));
}

CASE(flags_have_an_interface_receive_everything)
{
	struct ifreq asked = ask(SIOCGIFFLAGS, NEAR);
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, 0);
	short before = asked.ifr_flags;

	CHECK(!(before & IFF_PROMISC));
	/* As netsniff-ng does. */
	asked.ifr_flags |= IFF_PROMISC;
	CHECK(ioctl(far, SIOCSIFFLAGS, &asked) == 0 && ioctl(near, SIOCSIFFLAGS, &asked) == 0);
	CHECK(ask(SIOCGIFFLAGS, NEAR).ifr_flags == (before | IFF_PROMISC));
	put_to(far, FAR, (const uint8_t *)"\2none", PROTOCOL, 1, 60);
	CHECK(gets(near, 1, 60));
	asked.ifr_flags = before;
	CHECK(ioctl(near, SIOCSIFFLAGS, &asked) == 0);
	CHECK(ask(SIOCGIFFLAGS, NEAR).ifr_flags == before);
}

CASE(ethtool_tells_the_link_and_who_drives_it)
{
	struct ethtool_value link = { .cmd = ETHTOOL_GLINK };
	struct ethtool_drvinfo driver = { .cmd = ETHTOOL_GDRVINFO };
	struct ifreq asked = { .ifr_data = (char *)&link };
	int fd = bound(NEAR, SOCK_RAW, PROTOCOL);

	strcpy(asked.ifr_name, NEAR);
	CHECK(ioctl(fd, SIOCETHTOOL, &asked) == 0);
	CHECK(link.cmd == ETHTOOL_GLINK && link.data == 1);
	asked.ifr_data = (char *)&driver;
	CHECK(ioctl(fd, SIOCETHTOOL, &asked) == 0);
	CHECK(driver.cmd == ETHTOOL_GDRVINFO && driver.driver[0]);
	link.cmd = 1000;
	asked.ifr_data = (char *)&link;
	CHECK(ioctl(fd, SIOCETHTOOL, &asked) == -1 && errno == EOPNOTSUPP);
	close(fd);
}

CASE(a_socket_has_the_name_that_it_was_bound_to)
{
	struct sockaddr_ll to = address(NEAR, PROTOCOL);
	int fd = bound(NEAR, SOCK_RAW, PROTOCOL);
	struct sockaddr_storage room;
	struct sockaddr_ll *name = (struct sockaddr_ll *)&room;
	socklen_t length = sizeof(room);

	memset(&room, 0xee, sizeof(room));
	CHECK(getsockname(fd, (struct sockaddr *)&room, &length) == 0);
	SAY("%d bytes, family %d, protocol %x, hardware %d, %d bytes", length, name->sll_family,
	    ntohs(name->sll_protocol), name->sll_hatype, name->sll_halen);
	CHECK(name->sll_ifindex == to.sll_ifindex);
	CHECK(memcmp(name->sll_addr, hardware(NEAR), ETH_ALEN) == 0);
	CHECK(getpeername(fd, (struct sockaddr *)&room, &length) == -1 && errno == EOPNOTSUPP);
	/* With no protocol it stays what it was. */
	to.sll_protocol = 0;
	CHECK(bind(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	length = sizeof(room);
	CHECK(getsockname(fd, (struct sockaddr *)&room, &length) == 0);
	SAY("protocol %x", ntohs(name->sll_protocol));
}

CASE(what_is_no_address_is_refused)
{
	struct sockaddr_ll to = address(NEAR, PROTOCOL);
	int fd = bound(NEAR, SOCK_RAW, PROTOCOL);

	CHECK(bind(fd, (struct sockaddr *)&to, sizeof(to) - 1) == -1 && errno == EINVAL);
	to.sll_family = AF_INET;
	CHECK(bind(fd, (struct sockaddr *)&to, sizeof(to)) == -1 && errno == EINVAL);
	to = address(NEAR, PROTOCOL);
	to.sll_ifindex = 4711;
	CHECK(bind(fd, (struct sockaddr *)&to, sizeof(to)) == -1 && errno == ENODEV);
	CHECK(connect(fd, (struct sockaddr *)&to, sizeof(to)) == -1 && errno == EOPNOTSUPP);
	CHECK(sendto(fd, &to, sizeof(to), 0, (struct sockaddr *)&to, sizeof(to)) == -1 &&
	      errno == ENXIO);
	CHECK(listen(fd, 1) == -1 && errno == EOPNOTSUPP);
}

CASE(a_frame_comes_as_it_was_sent)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	struct sockaddr_ll from;
	socklen_t length = sizeof(from);
	struct frame got;

	for (int size = 46; size <= ETH_DATA_LEN; size += 101) {
		put(far, FAR, size, size);
		CHECK(gets(near, size, size));
	}
	put(far, FAR, 1, ETH_DATA_LEN);
	CHECK(gets(near, 1, ETH_DATA_LEN));
	put(far, FAR, 2, 60);
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	memset(&from, 0xee, sizeof(from));
	CHECK(recvfrom(near, &got, sizeof(got), 0, (struct sockaddr *)&from, &length) == 74);
	SAY("from: %d bytes, family %d, protocol %x, hardware %d, kind %d, %d bytes", length,
	    from.sll_family, ntohs(from.sll_protocol), from.sll_hatype, from.sll_pkttype,
	    from.sll_halen);
	CHECK(from.sll_ifindex == (int)if_nametoindex(NEAR));
	CHECK(memcmp(from.sll_addr, hardware(FAR), ETH_ALEN) == 0);
	CHECK(memcmp(&got.header.h_dest, hardware(NEAR), ETH_ALEN) == 0);
}

CASE(a_frame_goes_as_it_was_given)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	struct sockaddr_ll to = address(NEAR, PROTOCOL);
	struct frame made;
	size_t length;

	for (int size = 46; size <= ETH_DATA_LEN; size += 101) {
		put(near, NEAR, size, size);
		CHECK(gets(far, size, size));
	}
	put(near, NEAR, 1, ETH_DATA_LEN);
	CHECK(gets(far, 1, ETH_DATA_LEN));
	/* By an address, of a socket that is bound to nothing. */
	length = make(&made, all, NEAR, PROTOCOL, 3, 100);
	CHECK(sendto(opened(SOCK_RAW), &made, length, 0, (struct sockaddr *)&to, sizeof(to)) ==
	      114);
	CHECK(gets(far, 3, 100));
	/* In pieces. */
	struct iovec pieces[] = {
		{ &made, 10 },
		{ (char *)&made + 10, 20 },
		{ (char *)&made + 30, 84 },
	};
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 3 };

	CHECK(sendmsg(near, &message, 0) == 114);
	CHECK(gets(far, 3, 100));
	CHECK(write(near, &made, 114) == 114);
	CHECK(gets(far, 3, 100));
}

CASE(a_frame_of_no_sound_length_is_refused)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL);
	struct frame made;
	size_t length = make(&made, all, NEAR, PROTOCOL, 3, ETH_DATA_LEN + 1);

	CHECK(send(near, &made, length, 0) == -1 && errno == EMSGSIZE);
	CHECK(send(near, &made, length + 50, 0) == -1 && errno == EMSGSIZE);
	CHECK(send(near, &made, 13, 0) == -1 && errno == EINVAL);
	CHECK(send(near, NULL, 60, 0) == -1 && errno == EFAULT);
}

CASE(headers_are_made_and_taken_away)
{
	int near = bound(NEAR, SOCK_DGRAM, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	struct sockaddr_ll to = address(NEAR, PROTOCOL), from;
	socklen_t length = sizeof(from);
	uint8_t data[ETH_DATA_LEN + 1] = { 1, 2, 3 };
	struct frame got;

	CHECK(send(near, data, 60, 0) == -1 && errno == EINVAL);
	to.sll_halen = ETH_ALEN;
	memcpy(to.sll_addr, hardware(FAR), ETH_ALEN);
	CHECK(sendto(near, data, 60, 0, (struct sockaddr *)&to, sizeof(to)) == 60);
	CHECK(ready(far, POLLIN, PATIENCE) & POLLIN);
	CHECK(recv(far, &got, sizeof(got), 0) == 74);
	CHECK(memcmp(got.header.h_dest, hardware(FAR), ETH_ALEN) == 0);
	CHECK(memcmp(got.header.h_source, hardware(NEAR), ETH_ALEN) == 0);
	CHECK(got.header.h_proto == htons(PROTOCOL) && memcmp(got.data, data, 60) == 0);
	CHECK(sendto(near, data, sizeof(data), 0, (struct sockaddr *)&to, sizeof(to)) == -1 &&
	      errno == EMSGSIZE);
	put(far, FAR, 9, 100);
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	CHECK(recvfrom(near, data, sizeof(data), 0, (struct sockaddr *)&from, &length) == 100);
	CHECK(data[0] == 9 && data[1] == 14);
	CHECK(memcmp(from.sll_addr, hardware(FAR), ETH_ALEN) == 0);
}

CASE(a_long_frame_is_cut)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	struct frame got;
	struct iovec vector = { &got, 20 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };

	for (int i = 0; i < 4; i++)
		put(far, FAR, i, 100);
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	CHECK(recv(near, &got, 20, MSG_PEEK) == 20 && got.data[0] == 0);
	CHECK(recv(near, &got, 20, MSG_PEEK | MSG_TRUNC) == 114 && got.data[0] == 0);
	CHECK(recv(near, &got, 20, 0) == 20 && got.data[0] == 0);
	CHECK(recv(near, &got, 20, MSG_TRUNC) == 114 && got.data[0] == 1);
	CHECK(recvmsg(near, &message, 0) == 20 && got.data[0] == 2);
	CHECK(message.msg_flags == MSG_TRUNC);
	CHECK(recv(near, NULL, 0, 0) == 0);
	CHECK(recv(near, &got, 20, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(recv(near, &got, 20, MSG_OOB) == -1);
}

CASE(a_protocol_is_what_is_received)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), every = bound(NEAR, SOCK_RAW, ETH_P_ALL);
	int none = bound(NEAR, SOCK_RAW, 0), far = bound(FAR, SOCK_RAW, 0);

	/* One after the other: Linux does not always keep the order of two protocols. */
	put_to(far, FAR, hardware(NEAR), OTHER, 1, 60);
	CHECK(gets(every, 1, 60));
	put_to(far, FAR, hardware(NEAR), PROTOCOL, 2, 60);
	CHECK(gets(every, 2, 60));
	CHECK(gets(near, 2, 60));
	CHECK(nothing(none));
}

/* The kind of the next frame, which is that one. */
static int kind(int fd, int seed, size_t length)
{
	struct sockaddr_ll from;
	struct frame got;

	CHECK(next(fd, &got, sizeof(got), &from, PATIENCE) ==
	      (ssize_t)(sizeof(got.header) + length));
	CHECK(got.data[0] == (uint8_t)seed);
	return from.sll_pkttype;
}

CASE(what_is_sent_is_heard_by_others)
{
	int near = bound(NEAR, SOCK_RAW, ETH_P_ALL), other = bound(NEAR, SOCK_RAW, ETH_P_ALL);
	int cooked = bound(NEAR, SOCK_DGRAM, ETH_P_ALL), only = bound(NEAR, SOCK_RAW, PROTOCOL);
	struct frame got;

	put(near, NEAR, 7, 60);
	CHECK(kind(other, 7, 60) == PACKET_OUTGOING);
	CHECK(next(cooked, &got, sizeof(got), NULL, PATIENCE) == 60);
	CHECK(nothing(near));
	CHECK(nothing(only));
	CHECK(set(other, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1) == 0);
	CHECK(get(other, SOL_PACKET, PACKET_IGNORE_OUTGOING) == 1);
	CHECK(set(other, SOL_PACKET, PACKET_IGNORE_OUTGOING, 2) == -1 && errno == EINVAL);
	put(near, NEAR, 8, 60);
	CHECK(nothing(other));
}

/*
 * Whether a socket receives frames for that address, or does not, as expected. Linux tells a device
 * of virtio what to receive in a thread of its own, and does not say when it has; so this asks
 * again.
 */
static int hears(int near, int far, const uint8_t *to, int expected)
{
	for (int tries = 0; tries < 100; tries++) {
		struct frame got;
		int heard = 0;

		put_to(far, FAR, to, PROTOCOL, 100, 60);
		put_to(far, FAR, all, PROTOCOL, 101, 60);
		do {
			if (next(near, &got, sizeof(got), NULL, PATIENCE) < 0)
				return 0;
			heard |= got.data[0] == 100;
		} while (got.data[0] != 101);
		if (heard == expected)
			return 1;
		usleep(20000);
	}
	return 0;
}

CASE(frames_for_others_are_received_on_demand)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, 0);
	struct packet_mreq wanted = {
		.mr_ifindex = if_nametoindex(NEAR),
		.mr_type = PACKET_MR_PROMISC,
	};

	CHECK(hears(near, far, nobody, 0));
	put_to(far, FAR, nobody, PROTOCOL, 1, 60);
	put_to(far, FAR, all, PROTOCOL, 2, 60);
	CHECK(kind(near, 2, 60) == PACKET_BROADCAST);
	CHECK(setsockopt(near, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wanted, sizeof(wanted)) == 0);
	CHECK(hears(near, far, nobody, 1));
	put_to(far, FAR, nobody, PROTOCOL, 3, 60);
	CHECK(kind(near, 3, 60) == PACKET_OTHERHOST);
	CHECK(setsockopt(near, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &wanted, sizeof(wanted)) == 0);
	CHECK(setsockopt(near, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &wanted, sizeof(wanted)) == 0);
	CHECK(hears(near, far, nobody, 0));
	put_to(far, FAR, nobody, PROTOCOL, 4, 60);
	put(far, FAR, 5, 60);
	CHECK(kind(near, 5, 60) == PACKET_HOST);
	/* A group. */
	wanted.mr_type = PACKET_MR_MULTICAST;
	wanted.mr_alen = ETH_ALEN;
	memcpy(wanted.mr_address, group, ETH_ALEN);
	CHECK(hears(near, far, group, 0));
	put_to(far, FAR, group, PROTOCOL, 6, 60);
	CHECK(setsockopt(near, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wanted, sizeof(wanted)) == 0);
	CHECK(hears(near, far, group, 1));
	put_to(far, FAR, group, PROTOCOL, 7, 60);
	CHECK(kind(near, 7, 60) == PACKET_MULTICAST);
	wanted.mr_alen = 3;
	CHECK(setsockopt(near, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wanted, sizeof(wanted)) == -1 &&
	      errno == EINVAL);
	wanted.mr_ifindex = 4711;
	wanted.mr_alen = ETH_ALEN;
	CHECK(setsockopt(near, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wanted, sizeof(wanted)) == -1 &&
	      errno == ENODEV);
	/* A socket that ends takes its memberships with it. */
	close(near);
	near = bound(NEAR, SOCK_RAW, PROTOCOL);
	put_to(far, FAR, nobody, PROTOCOL, 8, 60);
	put(far, FAR, 9, 60);
	CHECK(kind(near, 9, 60) == PACKET_HOST);
}

CASE(a_filter_says_what_is_received)
{
	/* Frames whose first byte behind the header is odd, of which 30 bytes. */
	struct sock_filter odd[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ETH_HLEN),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 30),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_filter endless[] = { BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0) };
	struct sock_fprog program = { 4, odd }, unsound = { 1, endless }, none = { 0, odd };
	int near = opened(SOCK_RAW), far = bound(FAR, SOCK_RAW, 0);
	struct sockaddr_ll to = address(NEAR, PROTOCOL);
	struct frame got;

	/* Set before it is bound. */
	CHECK(setsockopt(near, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0);
	CHECK(bind(near, (struct sockaddr *)&to, sizeof(to)) == 0);
	put(far, FAR, 2, 60);
	put(far, FAR, 3, 60);
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	CHECK(recv(near, &got, sizeof(got), MSG_TRUNC) == 30 && got.data[0] == 3);
	odd[2].k = ~0U;
	CHECK(setsockopt(near, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0);
	put(far, FAR, 4, 60);
	put(far, FAR, 5, 60);
	CHECK(gets(near, 5, 60));
	CHECK(setsockopt(near, SOL_SOCKET, SO_ATTACH_FILTER, &unsound, sizeof(unsound)) == -1 &&
	      errno == EINVAL);
	CHECK(setsockopt(near, SOL_SOCKET, SO_ATTACH_FILTER, &none, sizeof(none)) == -1 &&
	      errno == EINVAL);
	program.filter = NULL;
	CHECK(setsockopt(near, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == -1 &&
	      errno == EINVAL);
	program.filter = (struct sock_filter *)64;
	CHECK(setsockopt(near, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == -1 &&
	      errno == EFAULT);
	CHECK(set(near, SOL_SOCKET, SO_DETACH_FILTER, 0) == 0);
	CHECK(set(near, SOL_SOCKET, SO_DETACH_FILTER, 0) == -1 && errno == ENOENT);
	put(far, FAR, 6, 60);
	CHECK(gets(near, 6, 60));
	CHECK(set(near, SOL_SOCKET, SO_LOCK_FILTER, 1) == 0);
	program.filter = odd;
	CHECK(setsockopt(near, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == -1 &&
	      errno == EPERM);
}

CASE(a_filter_that_was_set_before_stays)
{
	static struct sock_filter longest[4096], told[4096];
	struct sockaddr_ll to = address(NEAR, PROTOCOL);
	int near = opened(SOCK_RAW), far = bound(FAR, SOCK_RAW, 0);

	for (size_t i = 0; i < 4095; i++)
		longest[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0);
	longest[4095] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 30);
	CHECK(ATTACH(near, longest) == 0 && set(near, SOL_SOCKET, SO_LOCK_FILTER, 1) == 0);
	CHECK(bind(near, (struct sockaddr *)&to, sizeof(to)) == 0);
	CHECK(get(near, SOL_SOCKET, SO_LOCK_FILTER) == 1);
	CHECK(filter_of(near, told, 4096) == 4096 && memcmp(told, longest, sizeof(told)) == 0);
	put(far, FAR, 1, 60);
	CHECK(gets(near, 1, 30 - ETH_HLEN));
	FAILS(EPERM, set(near, SOL_SOCKET, SO_DETACH_FILTER, 0));
}

CASE(a_filter_knows_more_than_the_bytes)
{
	/* What is for everybody, or came with a protocol that is not wanted elsewhere. */
	struct sock_filter kinds[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_BROADCAST, 2, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PROTOCOL),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OTHER, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, ~0U),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = { 6, kinds };
	int near = bound(NEAR, SOCK_RAW, ETH_P_ALL), far = bound(FAR, SOCK_RAW, 0);

	CHECK(setsockopt(near, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0);
	put_to(far, FAR, hardware(NEAR), PROTOCOL, 1, 60);
	put_to(far, FAR, hardware(NEAR), OTHER, 2, 60);
	put_to(far, FAR, all, PROTOCOL, 3, 60);
	CHECK(gets(near, 2, 60) && gets(near, 3, 60));
}

CASE(what_finds_no_room_is_counted)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	int marker = bound(NEAR, SOCK_RAW, OTHER);
	struct tpacket_stats told;
	socklen_t length = sizeof(told);
	struct frame got;
	int count = 0;

	CHECK(set(near, SOL_SOCKET, SO_RCVBUF, 1) == 0);
	CHECK(getsockopt(near, SOL_PACKET, PACKET_STATISTICS, &told, &length) == 0);
	for (int i = 0; i < 20; i++)
		put(far, FAR, i, 1000);
	put_to(far, FAR, hardware(NEAR), OTHER, 1, 60);
	CHECK(gets(marker, 1, 60));
	while (recv(near, &got, sizeof(got), MSG_DONTWAIT) > 0)
		count++;
	CHECK(getsockopt(near, SOL_PACKET, PACKET_STATISTICS, &told, &length) == 0);
	SAY("%d, of %d bytes", told.tp_packets, length);
	CHECK(count > 0 && (int)told.tp_drops == 20 - count);
	CHECK(getsockopt(near, SOL_PACKET, PACKET_STATISTICS, &told, &length) == 0);
	CHECK(told.tp_packets == 0 && told.tp_drops == 0);
}

CASE(frames_have_the_time_when_they_came)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	struct timespec before, after, stamp = { 0 };
	char control[200];
	struct frame got;
	struct iovec vector = { &got, sizeof(got) };
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *first;

	CHECK(set(near, SOL_SOCKET, SO_TIMESTAMPNS, 1) == 0);
	clock_gettime(CLOCK_REALTIME, &before);
	put(far, FAR, 1, 60);
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	CHECK(recvmsg(near, &message, 0) == 74);
	clock_gettime(CLOCK_REALTIME, &after);
	first = CMSG_FIRSTHDR(&message);
	CHECK(first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SO_TIMESTAMPNS);
	memcpy(&stamp, CMSG_DATA(first), sizeof(stamp));
	/* The realm's clock and Linux's differ by less than that. */
	CHECK(stamp.tv_sec >= before.tv_sec - 1 && stamp.tv_sec <= after.tv_sec + 1);
	SAY("%zu bytes", (size_t)message.msg_controllen);
}

CASE(more_is_told_of_a_frame)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	struct tpacket_auxdata told;
	char control[200];
	struct frame got;
	struct iovec vector = { &got, 20 };
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *first;

	CHECK(get(near, SOL_PACKET, PACKET_AUXDATA) == 0);
	CHECK(set(near, SOL_PACKET, PACKET_AUXDATA, 1) == 0);
	CHECK(get(near, SOL_PACKET, PACKET_AUXDATA) == 1);
	put(far, FAR, 1, 60);
	CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
	CHECK(recvmsg(near, &message, 0) == 20);
	first = CMSG_FIRSTHDR(&message);
	CHECK(first && first->cmsg_level == SOL_PACKET && first->cmsg_type == PACKET_AUXDATA);
	memcpy(&told, CMSG_DATA(first), sizeof(told));
	SAY("status %x, %d bytes, of these %d, at %d and %d, tag %x", told.tp_status & 1, told.tp_len,
	    told.tp_snaplen, told.tp_mac, told.tp_net, told.tp_vlan_tci);
}

CASE(a_socket_is_waited_for)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	struct timeval soon = { 0, 50000 };
	struct epoll_event event = { .events = EPOLLIN };
	int set = epoll_create1(EPOLL_CLOEXEC), length = -1;
	struct frame got;

	CHECK(ready(near, POLLIN | POLLOUT, 0) == POLLOUT);
	CHECK(setsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) == 0);
	CHECK(recv(near, &got, sizeof(got), 0) == -1 && errno == EAGAIN);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, near, &event) == 0);
	CHECK(epoll_wait(set, &event, 1, 0) == 0);
	put(far, FAR, 1, 60);
	CHECK(epoll_wait(set, &event, 1, PATIENCE) == 1 && event.events == EPOLLIN);
	CHECK(ioctl(near, FIONREAD, &length) == 0 && length == 74);
	CHECK(ioctl(near, SIOCOUTQ, &length) == 0 && length == 0);
	CHECK(gets(near, 1, 60));
	CHECK(fcntl(near, F_SETFL, O_NONBLOCK) == 0);
	CHECK(recv(near, &got, sizeof(got), 0) == -1 && errno == EAGAIN);
	CHECK(shutdown(near, SHUT_RD) == -1 && errno == EOPNOTSUPP);
}

/* A thread that waits for a frame, and what it has got. */
struct reading {
	int fd;
	enum { BY_READ, BY_RECV, BY_RECVMSG } call;
	int flags;
	void *to;
	size_t room;
	ssize_t got;
	int error;
};

static void *waits(void *argument)
{
	struct reading *it = argument;
	struct sockaddr_ll from = { 0 };
	struct iovec parts[] = { { it->to, 20 }, { (char *)it->to + 20, it->room - 20 } };
	struct msghdr message = { &from, sizeof(from), parts, 2, NULL, 0, 0 };

	switch (it->call) {
	case BY_READ:
		it->got = read(it->fd, it->to, it->room);
		break;
	case BY_RECV:
		it->got = recv(it->fd, it->to, it->room, it->flags);
		break;
	case BY_RECVMSG:
		it->got = recvmsg(it->fd, &message, it->flags);
		if (from.sll_protocol != htons(PROTOCOL))
			it->got = -2;
	}
	it->error = errno;
	return NULL;
}

/* Has a thread, more urgent than what serves cards, wait for such a frame, and sends that. */
static void wait_for_one(struct reading *it, int far, int seed, size_t length)
{
	struct sched_param urgent = { .sched_priority = 70 };
	pthread_attr_t attributes;
	pthread_t reader;

	pthread_attr_init(&attributes);
	pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
	pthread_attr_setschedparam(&attributes, &urgent);
	CHECK(pthread_create(&reader, &attributes, waits, it) == 0);
	/* It waits by then, or finds the frame there, which is the same to it. */
	usleep(20000);
	put(far, FAR, seed, length);
	CHECK(pthread_join(reader, NULL) == 0);
}

CASE(who_waits_gets_a_frame_as_who_comes_later)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	char *fresh = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			   0);
	struct frame got, again;
	struct tpacket_stats counts;
	socklen_t length = sizeof(counts);
	struct reading it = { .fd = near, .to = &got, .room = sizeof(got) };

	CHECK(fresh != MAP_FAILED);
	for (it.call = BY_READ; it.call <= BY_RECVMSG; it.call++)
		for (size_t size = 60; size < 1500; size += 1400) {
			PART("%zu bytes, by call %d", size, it.call);
			memset(&got, 0, sizeof(got));
			wait_for_one(&it, far, 7, size);
			CHECK(it.got == (ssize_t)(ETH_HLEN + size));
			make(&again, hardware(NEAR), FAR, PROTOCOL, 7, size);
			CHECK(memcmp(&got, &again, ETH_HLEN + size) == 0);
		}
	/* One that is only looked at stays. */
	it.call = BY_RECV;
	it.flags = MSG_PEEK;
	wait_for_one(&it, far, 8, 60);
	CHECK(it.got == ETH_HLEN + 60 && got.data[0] == 8);
	CHECK(gets(near, 8, 60));
	/* What finds no room is cut off, and behind the room is nothing. */
	it.flags = MSG_TRUNC;
	it.room = 20;
	memset(&got, 0, sizeof(got));
	wait_for_one(&it, far, 9, 60);
	CHECK(it.got == ETH_HLEN + 60 && got.data[5] == 9 + 25 && got.data[6] == 0);
	CHECK(nothing(near));
	/* Memory that nobody has touched. */
	it.flags = 0;
	it.to = fresh + 4096 - 30;
	it.room = 2000;
	wait_for_one(&it, far, 10, 60);
	make(&again, hardware(NEAR), FAR, PROTOCOL, 10, 60);
	CHECK(it.got == ETH_HLEN + 60 && memcmp(it.to, &again, ETH_HLEN + 60) == 0);
	/* With memory that is not there, the frame is lost, and the next one is not. */
	CHECK(mprotect(fresh + 2 * 4096, 4096, PROT_NONE) == 0);
	it.to = fresh + 2 * 4096 - 30;
	wait_for_one(&it, far, 11, 60);
	CHECK(it.got == -1 && it.error == EFAULT);
	CHECK(nothing(near));
	/* All of them count. */
	CHECK(getsockopt(near, SOL_PACKET, PACKET_STATISTICS, &counts, &length) == 0);
	CHECK(counts.tp_packets == 10 && counts.tp_drops == 0);
	munmap(fresh, 4 * 4096);
}

CASE(many_frames_come_in_their_order)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 50; i++)
			put(far, FAR, 50 * round + i, 200);
		for (int i = 0; i < 50; i++) {
			PART("frame %d", 50 * round + i);
			CHECK(gets(near, 50 * round + i, 200));
		}
		for (int i = 0; i < 50; i++)
			put(near, NEAR, 50 * round + i, 200);
		for (int i = 0; i < 50; i++) {
			PART("frame %d back", 50 * round + i);
			CHECK(gets(far, 50 * round + i, 200));
		}
	}
}

CASE(options_are_those_of_linux)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL);

	SAY("domain %d, type %d, version %d, reserve %d", get(near, SOL_SOCKET, SO_DOMAIN),
	    get(near, SOL_SOCKET, SO_TYPE), get(near, SOL_PACKET, PACKET_VERSION),
	    get(near, SOL_PACKET, PACKET_RESERVE));
	FAILS(EINVAL, recv(near, NULL, 0, MSG_WAITALL | MSG_DONTWAIT));
	FAILS(EINVAL, recv(near, NULL, 0, MSG_OOB | MSG_DONTWAIT));
	CHECK(set(near, SOL_PACKET, 99, 1) == -1 && errno == ENOPROTOOPT);
	CHECK(set(near, SOL_IP, 1, 1) == -1 && errno == ENOPROTOOPT);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, near, 0) == MAP_FAILED);
}

/* A ring of `blocks` pages with two frames each. */
static int set_ring(int fd, int name, unsigned int blocks)
{
	struct tpacket_req wanted = { 4096, blocks, 2048, 2 * blocks };

	return setsockopt(fd, SOL_PACKET, name, &wanted, sizeof(wanted));
}

static volatile struct tpacket2_hdr *slot(char *ring, int index)
{
	return (volatile struct tpacket2_hdr *)(ring + 2048 * index);
}

CASE(frames_come_into_a_ring)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	struct sockaddr_ll *from;
	struct tpacket_stats told;
	socklen_t length = sizeof(told);
	char *ring;

	CHECK(set(near, SOL_PACKET, PACKET_VERSION, TPACKET_V2) == 0);
	CHECK(get(near, SOL_PACKET, PACKET_VERSION) == TPACKET_V2);
	CHECK(set_ring(near, PACKET_RX_RING, 4) == 0);
	CHECK(set_ring(near, PACKET_RX_RING, 4) == -1 && errno == EBUSY);
	CHECK(set(near, SOL_PACKET, PACKET_VERSION, TPACKET_V1) == -1 && errno == EBUSY);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, near, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, 16384, PROT_READ, MAP_SHARED, near, 4096) == MAP_FAILED &&
	      errno == EINVAL);
	ring = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, near, 0);
	CHECK(ring != MAP_FAILED);
	CHECK(set_ring(near, PACKET_RX_RING, 0) == -1 && errno == EBUSY);
	CHECK(ready(near, POLLIN, 0) == 0);
	for (int i = 0; i < 20; i++) {
		volatile struct tpacket2_hdr *head = slot(ring, i % 8);
		const uint8_t *data = (const uint8_t *)head + 80;

		put(far, FAR, i, 100 + i);
		CHECK(ready(near, POLLIN, PATIENCE) & POLLIN);
		CHECK(head->tp_status & TP_STATUS_USER);
		PART("frame %d", i);
		CHECK((int)head->tp_len == 114 + i && (int)head->tp_snaplen == 114 + i);
		CHECK(data[0] == (uint8_t)i && data[99] == (uint8_t)(i + 5 * 99));
		if (i == 3) {
			from = (struct sockaddr_ll *)((char *)head + TPACKET_ALIGN(sizeof(*head)));
			SAY("at %d and %d, tag %d, protocol %x, kind %d", head->tp_mac, head->tp_net,
			    head->tp_vlan_tci, ntohs(from->sll_protocol), from->sll_pkttype);
			CHECK(head->tp_sec > 0);
			CHECK(memcmp(from->sll_addr, hardware(FAR), ETH_ALEN) == 0);
		}
		head->tp_status = TP_STATUS_KERNEL;
		CHECK(ready(near, POLLIN, 0) == 0);
	}
	/* Nobody empties it. */
	CHECK(getsockopt(near, SOL_PACKET, PACKET_STATISTICS, &told, &length) == 0);
	for (int i = 0; i < 12; i++)
		put(far, FAR, i, 60);
	far = bound(NEAR, SOCK_RAW, OTHER);
	put_to(bound(FAR, SOCK_RAW, 0), FAR, hardware(NEAR), OTHER, 1, 60);
	CHECK(gets(far, 1, 60));
	CHECK(getsockopt(near, SOL_PACKET, PACKET_STATISTICS, &told, &length) == 0);
	SAY("%d, of these lost %d", told.tp_packets, told.tp_drops);
	CHECK(munmap(ring, 16384) == 0);
	CHECK(set_ring(near, PACKET_RX_RING, 0) == 0);
}

CASE(a_ring_may_be_there_before_an_interface_is_named)
{
	int near = opened(SOCK_RAW), far = bound(FAR, SOCK_RAW, PROTOCOL);
	struct sockaddr_ll to = address(NEAR, PROTOCOL);
	struct packet_mreq all = { .mr_ifindex = to.sll_ifindex, .mr_type = PACKET_MR_PROMISC };
	volatile struct tpacket2_hdr *head;
	char *ring;

	/* As netsniff-ng and trafgen do. */
	CHECK(set(near, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1) == 0);
	CHECK(set(near, SOL_PACKET, PACKET_VERSION, TPACKET_V2) == 0);
	CHECK(set_ring(near, PACKET_RX_RING, 1) == 0 && set_ring(near, PACKET_TX_RING, 1) == 0);
	CHECK(get(near, SOL_PACKET, PACKET_IGNORE_OUTGOING) == 1);
	ring = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, near, 0);
	CHECK(ring != MAP_FAILED);
	put(far, FAR, 1, 60);
	CHECK(!ready(near, POLLIN, NEVER));
	FAILS(ENXIO, send(near, NULL, 0, 0));
	CHECK(bind(near, (struct sockaddr *)&to, sizeof(to)) == 0);
	put(far, FAR, 2, 60);
	head = slot(ring, 0);
	CHECK((ready(near, POLLIN, PATIENCE) & POLLIN) && head->tp_status & TP_STATUS_USER);
	CHECK(head->tp_len == 74 && ((uint8_t *)head)[80] == 2);
	head = slot(ring, 2);
	head->tp_len = make((struct frame *)((char *)head + TPACKET2_HDRLEN -
					     sizeof(struct sockaddr_ll)),
			    hardware(FAR), NEAR, PROTOCOL, 3, 60);
	head->tp_status = TP_STATUS_SEND_REQUEST;
	CHECK(send(near, NULL, 0, 0) == 74 && gets(far, 3, 60));
	/* So does a membership. */
	near = opened(SOCK_RAW);
	CHECK(setsockopt(near, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)) == 0);
	CHECK(bind(near, (struct sockaddr *)&to, sizeof(to)) == 0);
	put_to(far, FAR, (const uint8_t *)"\2none", PROTOCOL, 4, 60);
	CHECK(gets(near, 4, 60));
}

CASE(a_ring_takes_frames_of_all_interfaces)
{
	int every = opened(SOCK_DGRAM), far = bound(FAR, SOCK_RAW, 0);
	int other = socket(AF_PACKET, SOCK_RAW, htons(PROTOCOL));
	struct sockaddr_ll to = address(NULL, PROTOCOL), *from;
	int fds[] = { every, other };

	/* One that is bound to none, and one that was opened so. */
	for (int i = 0; i < 2; i++) {
		volatile struct tpacket2_hdr *head;
		socklen_t length = sizeof(to);
		char *ring;

		CHECK(set(fds[i], SOL_PACKET, PACKET_VERSION, TPACKET_V2) == 0);
		CHECK(set_ring(fds[i], PACKET_RX_RING, 1) == 0);
		ring = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
		CHECK(ring != MAP_FAILED);
		if (i == 0)
			CHECK(bind(fds[i], (struct sockaddr *)&to, sizeof(to)) == 0);
		CHECK(getsockname(fds[i], (struct sockaddr *)&to, &length) == 0);
		CHECK(to.sll_ifindex == 0 && to.sll_protocol == htons(PROTOCOL));
		put(far, FAR, i, 60);
		CHECK(ready(fds[i], POLLIN, PATIENCE) & POLLIN);
		head = slot(ring, 0);
		from = (struct sockaddr_ll *)((char *)head + TPACKET_ALIGN(sizeof(*head)));
		CHECK(from->sll_ifindex == (int)if_nametoindex(NEAR));
		CHECK(((uint8_t *)head)[head->tp_net] == i);
		FAILS(ENXIO, send(fds[i], "", 0, 0));
	}
}

CASE(frames_go_from_a_ring)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	const size_t start = TPACKET2_HDRLEN - sizeof(struct sockaddr_ll);
	char *ring;

	CHECK(set(near, SOL_PACKET, PACKET_VERSION, TPACKET_V2) == 0);
	CHECK(set_ring(near, PACKET_TX_RING, 4) == 0);
	ring = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, near, 0);
	CHECK(ring != MAP_FAILED);
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 6; i++) {
			int number = 6 * round + i;
			volatile struct tpacket2_hdr *head = slot(ring, number % 8);
			struct frame *frame = (struct frame *)((char *)head + start);

			CHECK(head->tp_status == TP_STATUS_AVAILABLE);
			head->tp_len = make(frame, hardware(FAR), NEAR, PROTOCOL, number, 100);
			head->tp_status = TP_STATUS_SEND_REQUEST;
		}
		CHECK(send(near, NULL, 0, 0) == 6 * 114);
		for (int i = 0; i < 6; i++)
			CHECK(gets(far, 6 * round + i, 100));
	}
	/* What cannot be sent. */
	slot(ring, 0)->tp_len = 4000;
	slot(ring, 0)->tp_status = TP_STATUS_SEND_REQUEST;
	CHECK(send(near, NULL, 0, 0) == -1 && errno == EMSGSIZE);
	CHECK(slot(ring, 0)->tp_status == TP_STATUS_WRONG_FORMAT);
}

/* A ring of four blocks of one page, which are given after so many milliseconds. */
static char *blocks_of(int fd, unsigned int timeout, unsigned int private)
{
	struct tpacket_req3 wanted = {
		.tp_block_size = 4096,
		.tp_block_nr = 4,
		.tp_frame_size = 2048,
		.tp_frame_nr = 8,
		.tp_retire_blk_tov = timeout,
		.tp_sizeof_priv = private,
		.tp_feature_req_word = TP_FT_REQ_FILL_RXHASH,
	};
	char *ring;

	CHECK(set(fd, SOL_PACKET, PACKET_VERSION, TPACKET_V3) == 0);
	CHECK(get(fd, SOL_PACKET, PACKET_VERSION) == TPACKET_V3);
	CHECK(setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof(wanted)) == 0);
	ring = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(ring != MAP_FAILED);
	return ring;
}

static volatile struct tpacket_block_desc *block(char *ring, int index)
{
	return (volatile struct tpacket_block_desc *)(ring + 4096 * (index % 4));
}

/* Looks at the frames of a block, the first of which is that one; says how many there are. */
static int look(volatile struct tpacket_block_desc *block, int seed, size_t length)
{
	int count = block->hdr.bh1.num_pkts;
	char *at = (char *)block + block->hdr.bh1.offset_to_first_pkt;
	struct tpacket3_hdr *head = NULL;

	for (int i = 0; i < count; i++, at += head->tp_next_offset) {
		const uint8_t *data;

		head = (struct tpacket3_hdr *)at;
		data = (const uint8_t *)at + head->tp_mac + ETH_HLEN;
		CHECK(head->tp_len == ETH_HLEN + length && head->tp_snaplen == head->tp_len);
		CHECK(data[0] == (uint8_t)(seed + i));
		CHECK(data[length - 1] == (uint8_t)(seed + i + 5 * (length - 1)));
		CHECK((head->tp_next_offset == 0) == (i + 1 == count));
	}
	CHECK(head != NULL);
	CHECK(block->hdr.bh1.ts_last_pkt.ts_sec == head->tp_sec);
	CHECK(block->hdr.bh1.ts_last_pkt.ts_nsec == head->tp_nsec);
	return count;
}

/* Puts so many frames of 1000 bytes on the wire, three of which fill a block, and waits for all. */
static void fill(int far, int marker, int seed, int count)
{
	for (int i = 0; i < count; i++)
		put(far, FAR, seed + i, 1000);
	put_to(far, FAR, hardware(NEAR), OTHER, 1, 60);
	CHECK(gets(marker, 1, 60));
}

CASE(a_block_is_given_when_it_is_full)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	int marker = bound(NEAR, SOCK_RAW, OTHER);
	char *ring = blocks_of(near, 3600000, 13);
	volatile struct tpacket_block_desc *first = block(ring, 0);
	struct tpacket_stats_v3 told;
	socklen_t length = sizeof(told);
	struct tpacket3_hdr *head;
	struct sockaddr_ll *from;

	memset((char *)first + 48, 0x5a, 13);
	fill(far, marker, 0, 3);
	CHECK(ready(near, POLLIN, 0) == 0);
	CHECK(first->hdr.bh1.block_status == TP_STATUS_KERNEL);
	fill(far, marker, 3, 1);
	CHECK(ready(near, POLLIN, PATIENCE) == POLLIN);
	SAY("version %d, private at %d, status %x, %d frames from %d on, %d bytes, number %d",
	    first->version, first->offset_to_priv, first->hdr.bh1.block_status,
	    first->hdr.bh1.num_pkts, first->hdr.bh1.offset_to_first_pkt,
	    first->hdr.bh1.blk_len, (int)first->hdr.bh1.seq_num);
	CHECK(look(first, 0, 1000) == 3);
	for (int i = 0; i < 13; i++)
		CHECK(((char *)first)[48 + i] == 0x5a);
	head = (struct tpacket3_hdr *)((char *)first + first->hdr.bh1.offset_to_first_pkt);
	from = (struct sockaddr_ll *)((char *)head + TPACKET_ALIGN(sizeof(*head)));
	SAY("at %d and %d, next at %d, status %x, tag %d, protocol %x, kind %d", head->tp_mac,
	    head->tp_net, head->tp_next_offset, head->tp_status & 0xff,
	    head->hv1.tp_vlan_tci, ntohs(from->sll_protocol), from->sll_pkttype);
	CHECK(head->tp_sec > 0 && head->hv1.tp_rxhash != 0);
	CHECK(memcmp(from->sll_addr, hardware(FAR), ETH_ALEN) == 0);
	CHECK(from->sll_ifindex == (int)if_nametoindex(NEAR));
	first->hdr.bh1.block_status = TP_STATUS_KERNEL;
	CHECK(ready(near, POLLIN, 0) == 0);
	/* Blocks 1 to 3, and 0 again; then nobody empties them. */
	fill(far, marker, 4, 11);
	CHECK(block(ring, 3)->hdr.bh1.block_status & TP_STATUS_USER);
	CHECK(first->hdr.bh1.block_status == TP_STATUS_KERNEL);
	fill(far, marker, 15, 4);
	CHECK(getsockopt(near, SOL_PACKET, PACKET_STATISTICS, &told, &length) == 0);
	SAY("%d frames, of these lost %d, frozen %d, %d bytes", told.tp_packets, told.tp_drops,
	    told.tp_freeze_q_cnt, (int)length);
	SAY("status %x, number %d", first->hdr.bh1.block_status, (int)first->hdr.bh1.seq_num);
	CHECK(look(first, 12, 1000) == 3);
	for (int i = 1; i < 4; i++)
		CHECK(look(block(ring, i), 3 * i, 1000) == 3);
	/* One that is given back is filled again. */
	block(ring, 1)->hdr.bh1.block_status = TP_STATUS_KERNEL;
	fill(far, marker, 30, 4);
	CHECK(look(block(ring, 1), 30, 1000) == 3);
	SAY("status %x, number %d", block(ring, 1)->hdr.bh1.block_status,
	    (int)block(ring, 1)->hdr.bh1.seq_num);
	CHECK(getsockopt(near, SOL_PACKET, PACKET_STATISTICS, &told, &length) == 0);
	SAY("%d frames, of these lost %d, frozen %d", told.tp_packets, told.tp_drops,
	    told.tp_freeze_q_cnt);
	CHECK(munmap(ring, 16384) == 0);
}

CASE(a_block_is_given_when_its_time_is_over)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	struct epoll_event event = { .events = EPOLLIN };
	char *ring = blocks_of(near, 20, 0);
	int set = epoll_create1(EPOLL_CLOEXEC), number = 0;

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, near, &event) == 0);
	for (int round = 0; round < 6; round++) {
		int count = 0;

		PART("round %d", round);
		CHECK(epoll_wait(set, &event, 1, 50) == 0);
		for (int i = 0; i < 3; i++)
			put(far, FAR, 10 * round + i, 100);
		while (count < 3) {
			volatile struct tpacket_block_desc *given = block(ring, number++);

			CHECK(epoll_wait(set, &event, 1, PATIENCE) == 1);
			CHECK(given->hdr.bh1.block_status == (TP_STATUS_USER | TP_STATUS_BLK_TMO));
			CHECK((int)given->hdr.bh1.seq_num == number);
			count += look(given, 10 * round + count, 100);
			given->hdr.bh1.block_status = TP_STATUS_KERNEL;
		}
		CHECK(count == 3);
	}
	/* With the time that suits the card. */
	CHECK(munmap(ring, 16384) == 0);
	close(near);
	near = bound(NEAR, SOCK_RAW, PROTOCOL);
	ring = blocks_of(near, 0, 0);
	put(far, FAR, 1, 100);
	CHECK(ready(near, POLLIN, PATIENCE) == POLLIN);
	CHECK(look(block(ring, 0), 1, 100) == 1);
}

CASE(what_a_program_writes_into_blocks_is_its_own_harm)
{
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	int marker = bound(NEAR, SOCK_RAW, OTHER);
	char *ring = blocks_of(near, 5, 0);

	for (int round = 0; round < 8; round++) {
		memset(ring, 0xff >> round, 16384);
		fill(far, marker, 0, 5);
	}
	memset(ring, 0, 16384);
	fill(far, marker, 0, 3);
	CHECK(ready(near, POLLIN, PATIENCE) == POLLIN);
}

CASE(a_block_has_room_for_a_frame)
{
	struct tpacket_req3 wanted = { 4096, 4, 2048, 8, 10, 0, 0 };
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), version = TPACKET_V3;
	socklen_t length = sizeof(version);

	CHECK(getsockopt(near, SOL_PACKET, PACKET_HDRLEN, &version, &length) == 0);
	SAY("%d bytes", version);
	CHECK(set(near, SOL_PACKET, PACKET_VERSION, TPACKET_V3) == 0);
	CHECK(setsockopt(near, SOL_PACKET, PACKET_RX_RING, &wanted, 16) == -1 && errno == EINVAL);
	wanted.tp_sizeof_priv = 4096 - 48 - 68 + 1;
	CHECK(setsockopt(near, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof(wanted)) == -1 &&
	      errno == EINVAL);
	wanted.tp_sizeof_priv = ~0U;
	CHECK(setsockopt(near, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof(wanted)) == -1 &&
	      errno == EINVAL);
	wanted.tp_sizeof_priv = 0;
	CHECK(setsockopt(near, SOL_PACKET, PACKET_TX_RING, &wanted, sizeof(wanted)) == -1 &&
	      errno == EINVAL);
	wanted.tp_frame_size = 64;
	wanted.tp_frame_nr = 256;
	CHECK(setsockopt(near, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof(wanted)) == -1 &&
	      errno == EINVAL);
}

CASE(frames_go_from_a_ring_of_the_third_version)
{
	struct tpacket_req3 wanted = { .tp_block_size = 4096, .tp_block_nr = 4,
				       .tp_frame_size = 2048, .tp_frame_nr = 8 };
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), far = bound(FAR, SOCK_RAW, PROTOCOL);
	volatile struct tpacket3_hdr *head;
	char *ring;

	CHECK(set(near, SOL_PACKET, PACKET_VERSION, TPACKET_V3) == 0);
	CHECK(setsockopt(near, SOL_PACKET, PACKET_TX_RING, &wanted, sizeof(wanted)) == 0);
	ring = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, near, 0);
	CHECK(ring != MAP_FAILED);
	for (int i = 0; i < 20; i++) {
		head = (volatile struct tpacket3_hdr *)(ring + 2048 * (i % 8));
		CHECK(head->tp_status == TP_STATUS_AVAILABLE);
		head->tp_len = make((struct frame *)((char *)head + sizeof(*head)), hardware(FAR),
				    NEAR, PROTOCOL, i, 100);
		head->tp_status = TP_STATUS_SEND_REQUEST;
		CHECK(send(near, NULL, 0, 0) == 114);
		CHECK(gets(far, i, 100));
	}
	head = (volatile struct tpacket3_hdr *)(ring + 2048 * 4);
	head->tp_next_offset = 2048;
	head->tp_status = TP_STATUS_SEND_REQUEST;
	CHECK(send(near, NULL, 0, 0) == -1 && errno == EINVAL);
	CHECK(head->tp_status == TP_STATUS_WRONG_FORMAT);
}

CASE(no_ring_is_larger_than_memory)
{
	struct tpacket_req wanted = { 4096, 4, 2048, 8 };
	int near = bound(NEAR, SOCK_RAW, PROTOCOL), version = TPACKET_V2;
	socklen_t length = sizeof(version);

	CHECK(getsockopt(near, SOL_PACKET, PACKET_HDRLEN, &version, &length) == 0);
	SAY("%d bytes", version);
	version = 7;
	CHECK(getsockopt(near, SOL_PACKET, PACKET_HDRLEN, &version, &length) == -1 &&
	      errno == EINVAL);
	CHECK(set(near, SOL_PACKET, PACKET_VERSION, 7) == -1 && errno == EINVAL);
	wanted.tp_frame_nr = 9;
	CHECK(setsockopt(near, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof(wanted)) == -1 &&
	      errno == EINVAL);
	wanted = (struct tpacket_req){ 4095, 4, 2048, 8 };
	CHECK(setsockopt(near, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof(wanted)) == -1 &&
	      errno == EINVAL);
	wanted = (struct tpacket_req){ 4096, 4, 40, 8 };
	CHECK(setsockopt(near, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof(wanted)) == -1 &&
	      errno == EINVAL);
	CHECK(setsockopt(near, SOL_PACKET, PACKET_RX_RING, &wanted, 4) == -1 && errno == EINVAL);
	CHECK(set(near, SOL_PACKET, PACKET_RESERVE, -1) == -1 && errno == EINVAL);
	CHECK(set(near, SOL_PACKET, PACKET_RESERVE, 100) == 0);
	CHECK(get(near, SOL_PACKET, PACKET_RESERVE) == 100);
}
