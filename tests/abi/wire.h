/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For tests of packet sockets: the network interface near, whose wire has the interface far at its
 * other end.
 */
#ifndef WIRE_H
#define WIRE_H

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "check.h"
#include "options.h"

#define NEAR "near"
#define FAR "far"
/* Protocols for experiments: nobody else sends them. */
#define PROTOCOL 0x88b5
#define OTHER 0x88b6
/* Milliseconds within which a frame arrives, however busy the host is. */
#define PATIENCE 20000
/* Milliseconds after which one does not come any more. */
#define NEVER 200

static const uint8_t all[ETH_ALEN] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

/* A frame with its header. */
struct frame {
	struct ethhdr header;
	uint8_t data[ETH_DATA_LEN + 100];
} __attribute__((packed));

static inline struct ifreq ask(unsigned long request, const char *name)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq asked;

	memset(&asked, 0, sizeof(asked));
	strcpy(asked.ifr_name, name);
	CHECK(ioctl(fd, request, &asked) == 0);
	close(fd);
	return asked;
}

static inline const uint8_t *hardware(const char *name)
{
	static uint8_t found[2][ETH_ALEN];
	uint8_t *to = found[name[0] == 'n'];
	struct ifreq asked = ask(SIOCGIFHWADDR, name);

	memcpy(to, asked.ifr_hwaddr.sa_data, ETH_ALEN);
	return to;
}

static inline struct sockaddr_ll address(const char *name, int protocol)
{
	return (struct sockaddr_ll){
		.sll_family = AF_PACKET,
		.sll_protocol = htons(protocol),
		.sll_ifindex = name ? (int)if_nametoindex(name) : 0,
	};
}

static inline int opened(int kind)
{
	/* With no protocol, so that nothing comes before it is bound. */
	int fd = socket(AF_PACKET, kind | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	return fd;
}

/* A socket that is bound to an interface. */
static inline int bound(const char *name, int kind, int protocol)
{
	struct sockaddr_ll to = address(name, protocol);
	int fd = opened(kind);

	CHECK(to.sll_ifindex > 0);
	CHECK(bind(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
	return fd;
}

/* Makes a frame of so many bytes behind the header; what is in it depends on `seed`. */
static inline size_t make(struct frame *frame, const uint8_t *to, const char *from, int protocol,
			  int seed, size_t length)
{
	memcpy(frame->header.h_dest, to, ETH_ALEN);
	memcpy(frame->header.h_source, hardware(from), ETH_ALEN);
	frame->header.h_proto = htons(protocol);
	for (size_t i = 0; i < length; i++)
		frame->data[i] = seed + 5 * i;
	return sizeof(frame->header) + length;
}

/* Sends such a frame by a socket of the interface `from`. */
static inline void put_to(int fd, const char *from, const uint8_t *to, int protocol, int seed,
			  size_t length)
{
	struct frame frame;
	size_t whole = make(&frame, to, from, protocol, seed, length);

	CHECK(send(fd, &frame, whole, 0) == (ssize_t)whole);
}

static inline void put(int fd, const char *from, int seed, size_t length)
{
	put_to(fd, from, hardware(from[0] == 'n' ? FAR : NEAR), PROTOCOL, seed, length);
}

#endif
