// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * The platform device crtos-test, of QEMU's edu, driven by a program through /dev/uioN: its
 * registers, and its interrupt, a level that each interrupt disables until the program enables it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "check.h"
#include "waiting.h"

/* Registers of edu, in words. */
#define IDENTIFICATION 0
#define LIVENESS 1
#define CAUSES 9
#define RAISE 24
#define ACKNOWLEDGE 25
#define PAGE 4096L
#define FOLDER "/sys/bus/platform/devices/crtos-test/uio"

static char device[64];

/* Finds /dev/uioN of the device, as libraries do. */
BEFORE_EACH
{
	DIR *all = opendir(FOLDER);
	struct dirent *entry;

	while (all && (entry = readdir(all)))
		if (strncmp(entry->d_name, "uio", 3) == 0)
			snprintf(device, sizeof(device), "/dev/%.32s", entry->d_name);
	if (all)
		closedir(all);
}

static int opened(int flags)
{
	int fd = open(device, flags);

	CHECK(fd >= 0);
	return fd;
}

static volatile uint32_t *mapped(int fd)
{
	void *registers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(registers != MAP_FAILED);
	return registers;
}

static void enable(int fd, int32_t on)
{
	CHECK(write(fd, &on, sizeof(on)) == sizeof(on));
}

static uint32_t count_of(int fd)
{
	uint32_t count = 0;

	CHECK(read(fd, &count, sizeof(count)) == sizeof(count));
	return count;
}

static void acknowledge(volatile uint32_t *registers)
{
	registers[ACKNOWLEDGE] = registers[CAUSES];
}

CASE(registers_answer)
{
	volatile uint32_t *registers = mapped(opened(O_RDWR));

	CHECK((registers[IDENTIFICATION] & 0xff) == 0xed);
	registers[LIVENESS] = 0x12345678;
	CHECK(registers[LIVENESS] == ~0x12345678u);
}

CASE(an_interrupt_counts_once_until_it_is_enabled)
{
	int fd = opened(O_RDWR);
	volatile uint32_t *registers = mapped(fd);
	uint32_t first;

	enable(fd, 1);
	registers[RAISE] = 1;
	first = count_of(fd);
	/* The level stays, and tells nobody. */
	CHECK(!ready(fd, POLLIN, 100));
	registers[RAISE] = 2;
	CHECK(!ready(fd, POLLIN, 100));
	/* It is there still when it is enabled. */
	enable(fd, 1);
	CHECK(count_of(fd) == first + 1);
	acknowledge(registers);
	enable(fd, 1);
	CHECK(!ready(fd, POLLIN, 100));
}

CASE(each_interrupt_counts)
{
	int fd = opened(O_RDWR);
	volatile uint32_t *registers = mapped(fd);
	uint32_t first, i;

	enable(fd, 1);
	registers[RAISE] = 1;
	first = count_of(fd);
	for (i = 1; i <= 50; i++) {
		acknowledge(registers);
		enable(fd, 1);
		registers[RAISE] = i;
		CHECK(ready(fd, POLLIN, 5000) == POLLIN);
		CHECK(count_of(fd) == first + i);
	}
	acknowledge(registers);
	enable(fd, 1);
}

CASE(a_disabled_one_does_not_count)
{
	int fd = opened(O_RDWR);
	volatile uint32_t *registers = mapped(fd);

	enable(fd, 0);
	registers[RAISE] = 1;
	CHECK(!ready(fd, POLLIN, 100));
	acknowledge(registers);
	enable(fd, 1);
	CHECK(!ready(fd, POLLIN, 100));
}

CASE(what_is_wrong_is_refused)
{
	int fd = opened(O_RDWR | O_NONBLOCK);
	char bytes[8] = "";
	void *volatile nowhere = (void *)8;

	CHECK(write(fd, bytes, 3) == -1 && errno == EINVAL);
	CHECK(write(fd, bytes, 8) == -1 && errno == EINVAL);
	CHECK(write(fd, nowhere, 4) == -1 && errno == EFAULT);
	CHECK(read(fd, bytes, 8) == -1 && errno == EINVAL);
	CHECK(read(fd, bytes, 4) == -1 && errno == EAGAIN);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PAGE) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(ioctl(fd, 0, 0) == -1 && errno == ENOTTY);
}
