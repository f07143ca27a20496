/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* For programs that are peers of a link (lib/abi/src/link.rs), in Linux or in the realm. */
#ifndef LINK_H
#define LINK_H

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

struct link {
	int file;
	uint32_t own, peers;
	uint64_t common, output;
};

static inline void give_up(const char *what)
{
	perror(what);
	exit(1);
}

static inline void *section(const struct link *link, uint64_t offset, uint64_t size, int rights)
{
	void *at = mmap(NULL, size, rights, MAP_SHARED, link->file, offset);

	if (at == MAP_FAILED)
		give_up("mmap");
	return at;
}

static inline struct link open_link(const char *path, uint32_t own)
{
	struct link link = { .file = open(path, O_RDWR), .own = own };
	const struct { uint64_t magic; uint32_t version, peers; uint64_t common, output; } *header;

	if (link.file < 0)
		give_up(path);
	header = section(&link, 0, PAGE, PROT_READ);
	link.peers = header->peers;
	link.common = header->common;
	link.output = header->output;
	return link;
}

/* The state of a peer. */
static inline _Atomic uint32_t *state_of(const struct link *link, uint32_t peer)
{
	int rights = PROT_READ | (peer == link->own ? PROT_WRITE : 0);

	return section(link, (1 + peer) * PAGE, PAGE, rights);
}

/* The output section of a peer. */
static inline _Atomic uint64_t *output_of(const struct link *link, uint32_t peer)
{
	uint64_t start = (1 + link->peers) * PAGE + link->common + peer * link->output;

	return section(link, start, link->output,
		       PROT_READ | (peer == link->own ? PROT_WRITE : 0));
}

static inline void ring(const struct link *link, uint32_t peer)
{
	if (write(link->file, &peer, sizeof(peer)) != sizeof(peer))
		give_up("ring");
}

/* Waits until a peer rings, without a system call behind that. */
static inline void await_ring(const struct link *link)
{
	struct pollfd ready = { .fd = link->file, .events = POLLIN };

	if (poll(&ready, 1, -1) != 1)
		give_up("poll");
}

/* Takes the rings so far. */
static inline void take_rings(const struct link *link)
{
	uint32_t count;

	if (read(link->file, &count, sizeof(count)) != sizeof(count))
		give_up("read");
}

#endif
