// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * net-hostile INTERFACE listen: hears everything by as many packet sockets as there are, each with
 * the longest filter that there is, and does not read.
 *
 * net-hostile INTERFACE wait: is more urgent than all others, and waits for a frame that never
 * comes, so that it may take one of others in place of the card's thread; again each 20 ms, since
 * it takes one each time that it waits.
 *
 * net-hostile INTERFACE rings: asks for rings that are larger than memory, again and again, and for
 * small ones, as many as it gets.
 *
 * net-hostile INTERFACE hold: has sockets, rings that are mapped, memberships, and waits.
 *
 * net-hostile INTERFACE lose: the same, until the interface is gone, which it is told.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *name;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int bound(void)
{
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = if_nametoindex(name),
	};
	int fd = socket(AF_PACKET, SOCK_RAW, 0);

	if (fd < 0 || !to.sll_ifindex)
		die(name);
	if (bind(fd, (struct sockaddr *)&to, sizeof(to))) {
		close(fd);
		return -1;
	}
	return fd;
}

static int ring(int fd, unsigned int blocks)
{
	struct tpacket_req wanted = { 4096, blocks, 2048, 2 * blocks };
	int version = TPACKET_V2;

	if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)))
		return -1;
	return setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &wanted, sizeof(wanted));
}

static void see_everything(int fd)
{
	struct packet_mreq all = {
		.mr_ifindex = if_nametoindex(name),
		.mr_type = PACKET_MR_PROMISC,
	};

	if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)))
		die("membership");
}

static int hear(void)
{
	static struct sock_filter longest[4096];
	struct sock_fprog program = { 4096, longest };
	int count = 0, fd;

	for (int i = 0; i < 4095; i++)
		longest[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_B | BPF_ABS, i % 60);
	longest[4095] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, ~0U);
	while (count < 8 && (fd = bound()) >= 0) {
		if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)))
			die("filter");
		see_everything(fd);
		count++;
	}
	printf("%d sockets\n", count);
	fflush(stdout);
	pause();
	return 0;
}

static int wait_for_nothing(void)
{
	struct sched_param urgent = { .sched_priority = 95 };
	struct timeval patience = { .tv_usec = 20000 };
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_802_EX1 + 1),
		.sll_ifindex = if_nametoindex(name),
	};
	int fd = socket(AF_PACKET, SOCK_RAW, 0);
	char byte;

	if (sched_setscheduler(0, SCHED_FIFO, &urgent))
		die("priority");
	if (fd < 0 || bind(fd, (struct sockaddr *)&to, sizeof(to)))
		die(name);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)))
		die("SO_RCVTIMEO");
	puts("waits");
	fflush(stdout);
	while (recv(fd, &byte, 1, 0) < 0 && errno == EAGAIN)
		;
	die("recv");
	return 1;
}

static int ask_for_rings(void)
{
	int fd, count = 0;

	for (int i = 0; i < 3; i++) {
		fd = bound();
		if (fd < 0)
			die("socket");
		if (ring(fd, 1 << 20) != -1 || (errno != ENOMEM && errno != ENOBUFS))
			die("4 GiB");
		if (ring(fd, 1U << 30) != -1)
			die("what cannot be");
		close(fd);
	}
	for (; count < 64; count++) {
		fd = bound();
		if (fd < 0 || ring(fd, 256))
			break;
	}
	printf("%d rings\n", count);
	/* As many as find room: 60 MiB are there. */
	return count < 40;
}

static int hold(int until_lost)
{
	struct pollfd polled;
	char *memory, byte;
	int fd = -1;

	for (int i = 0; i < 8; i++) {
		fd = bound();
		if (fd < 0 || ring(fd, 64))
			die("ring");
		see_everything(fd);
		memory = mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (memory == MAP_FAILED)
			die("mmap");
		memset(memory, i, 64 * 4096);
	}
	puts("holds");
	fflush(stdout);
	if (!until_lost)
		pause();
	polled = (struct pollfd){ fd, POLLIN, 0 };
	while (poll(&polled, 1, -1) == 1 && !(polled.revents & POLLERR))
		;
	if (recv(fd, &byte, 1, MSG_DONTWAIT) != -1 || errno != ENETDOWN)
		die("recv");
	if (if_nametoindex(name))
		die("it is there still");
	puts("lost");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	name = argv[1];
	if (strcmp(argv[2], "listen") == 0)
		return hear();
	if (strcmp(argv[2], "wait") == 0)
		return wait_for_nothing();
	if (strcmp(argv[2], "rings") == 0)
		return ask_for_rings();
	return hold(strcmp(argv[2], "lose") == 0);
}
