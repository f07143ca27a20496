// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * The platform device crtos-test, of QEMU's edu, driven by a program through /dev/uioN: its
 * registers, and its interrupt, a level that each interrupt disables until the program enables it.
 */
#define _GNU_SOURCE
#include <sys/ioctl.h>

#include "check.h"
#include "uio.h"
#include "waiting.h"

BEFORE_EACH
{
	find_device("/sys/bus/platform/devices/crtos-test/uio");
}

static void enable(int fd, int32_t on)
{
	CHECK(write(fd, &on, sizeof(on)) == sizeof(on));
}

CASE(registers_answer)
{
	volatile uint32_t *registers = mapped(opened(O_RDWR), PAGE);

	CHECK((registers[IDENTIFICATION] & 0xff) == 0xed);
	registers[LIVENESS] = 0x12345678;
	CHECK(registers[LIVENESS] == ~0x12345678u);
}

CASE(an_interrupt_counts_once_until_it_is_enabled)
{
	int fd = opened(O_RDWR);
	volatile uint32_t *registers = mapped(fd, PAGE);
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
	volatile uint32_t *registers = mapped(fd, PAGE);
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
	volatile uint32_t *registers = mapped(fd, PAGE);

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
