// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Memory policies on a machine with one node, and the files in which libnuma looks for CPUs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "check.h"

enum { DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL };
#define NODE 1
#define ADDR 2
#define MEMS_ALLOWED 4
#define STRICT 1
#define MOVE 2

static const unsigned long node0 = 1, none, node40 = 1UL << 40;

static long get(int *mode, unsigned long *nodes, const void *address, int flags)
{
	return syscall(SYS_get_mempolicy, mode, nodes, nodes ? 1024 : 0, address, flags);
}

static long set(int mode, const unsigned long *nodes)
{
	return syscall(SYS_set_mempolicy, mode, nodes, nodes ? 64 : 0);
}

static long bind_to(void *start, size_t length, int mode, const unsigned long *nodes, int flags)
{
	return syscall(SYS_mbind, start, length, mode, nodes, nodes ? 64 : 0, flags);
}

CASE(a_process_starts_with_the_default_policy)
{
	unsigned long nodes[16] = { 0 };
	int mode = -1;

	CHECK(get(&mode, NULL, NULL, 0) == 0 && mode == DEFAULT);
	CHECK(get(NULL, nodes, NULL, MEMS_ALLOWED) == 0 && nodes[0] == 1);
	FAILS(EINVAL, get(&mode, NULL, &mode, 0));
}

CASE(a_policy_is_kept)
{
	unsigned long nodes[16] = { 0 };
	int mode = -1;

	CHECK(set(BIND, &node0) == 0);
	nodes[0] = 0;
	CHECK(get(&mode, nodes, NULL, 0) == 0 && mode == BIND && nodes[0] == 1);
	CHECK(set(PREFERRED, &node0) == 0);
	CHECK(get(&mode, nodes, NULL, 0) == 0 && mode == PREFERRED && nodes[0] == 1);
	CHECK(set(DEFAULT, NULL) == 0);
	CHECK(get(&mode, NULL, NULL, 0) == 0 && mode == DEFAULT);
}

CASE(policies_without_a_node_are_refused)
{
	FAILS(EINVAL, set(BIND, &none));
	FAILS(EINVAL, set(INTERLEAVE, &node40));
	FAILS(EINVAL, set(99, &node0));
}

CASE(a_page_is_on_the_node)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *area = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int node = -1;

	area[0] = 1;
	CHECK(get(&node, NULL, area, NODE | ADDR) == 0 && node == 0);
	CHECK(get(&node, NULL, area + page, NODE | ADDR) == 0 && node == 0);
}

CASE(memory_takes_any_policy)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *area = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	area[0] = 1;
	CHECK(bind_to(area, 4 * page, BIND, &node0, 0) == 0);
	CHECK(bind_to(area, 4 * page, PREFERRED, &node0, STRICT | MOVE) == 0);
	CHECK(bind_to(area, 4 * page, INTERLEAVE, &node0, 0) == 0);
	CHECK(bind_to(area, 4 * page, DEFAULT, NULL, 0) == 0);
	CHECK(bind_to(area, 0, DEFAULT, NULL, 0) == 0);
	CHECK(area[0] == 1 && area[page] == 0);
}

CASE(bad_policies_for_memory_are_refused)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *area = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	FAILS(EINVAL, bind_to(area + 1, page, BIND, &node0, 0));
	FAILS(EINVAL, bind_to(area, page, BIND, &none, 0));
	FAILS(EINVAL, bind_to(area, page, BIND, &node40, 0));
	FAILS(EINVAL, bind_to(area, page, 99, &node0, 0));
	FAILS(EINVAL, bind_to(area, page, BIND, &node0, 1 << 20));
	FAILS(EFAULT, bind_to(area, page, BIND, (void *)8, 0));
}

CASE(memory_with_a_hole_takes_no_policy)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *area = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int node = -1;

	munmap(area + page, page);
	FAILS(EFAULT, bind_to(area, 4 * page, BIND, &node0, 0));
	FAILS(EFAULT, get(&node, NULL, area + page, NODE | ADDR));
	FAILS(EFAULT, get(&node, NULL, area + page, ADDR));
	FAILS(EINVAL, get(&node, NULL, area + page, ADDR | 8));
	area[0] = 2;
	CHECK(area[0] == 2);
}

/* Returns what the file says, without the newline at its end. */
static const char *content(const char *path)
{
	static char text[256];
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = read(file, text, sizeof(text) - 1);

	close(file);
	text[length > 0 ? length - 1 : 0] = 0;
	return text;
}

/* Tells whether a list like 0-2,5 names the CPU. */
static int lists(const char *text, int cpu)
{
	while (*text) {
		char *end;
		long first = strtol(text, &end, 10),
		     last = *end == '-' ? strtol(end + 1, &end, 10) : first;

		if (first <= cpu && cpu <= last)
			return 1;
		text = *end == ',' ? end + 1 : end;
	}
	return 0;
}

CASE(files_list_the_cpu)
{
	int cpu = sched_getcpu();

	CHECK(cpu >= 0 && cpu < 64);
	CHECK(lists(content("/sys/devices/system/cpu/online"), cpu));
	CHECK(lists(content("/sys/devices/system/cpu/possible"), cpu));
	CHECK(lists(content("/sys/devices/system/cpu/present"), cpu));
	CHECK(lists(content("/sys/devices/system/node/node0/cpulist"), cpu));
	CHECK(strtoul(content("/sys/devices/system/node/node0/cpumap"), NULL, 16) >> cpu & 1);
	CHECK(strcmp(content("/sys/devices/system/node/online"), "0") == 0);
}

CASE(files_of_other_nodes_are_unknown)
{
	FAILS(ENOENT, open("/sys/devices/system/node/node7/cpumap", O_RDONLY));
	FAILS(ENOENT, open("/sys/devices/system/cpu/onlin", O_RDONLY));
}

CASE(a_file_is_opened_with_its_flags)
{
	int file;

	file = open("/sys/devices/system/cpu/online", O_RDONLY | O_CLOEXEC);
	CHECK(fcntl(file, F_GETFD) == FD_CLOEXEC);
	close(file);
	file = openat(AT_FDCWD, "/sys/devices/system/cpu/online", O_RDONLY);
	CHECK(fcntl(file, F_GETFD) == 0);
	close(file);
}
