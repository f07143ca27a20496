// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * QEMU's device edu, driven by a program through /dev/uioN, of the PCI function that the variable
 * FUNCTION names: its registers, its interrupts, what is refused. Under Linux uio_pci_generic has
 * it, which takes interrupts from the function's pin and keeps that off afterwards. In the realm
 * they are messages, and the pin is of no account.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"
#include "driven.h"
#include "children.h"
#include "moments.h"
#include "uio.h"
#include "waiting.h"

/* Further registers of edu, in words. */
#define FACTORIAL 2
#define STATUS 8

#define COMPUTING 1u
#define SIZE 0x100000L

/* The command register of configuration space, and in it: the pin does not interrupt. */
#define COMMAND 4
#define PIN_OFF 0x400

static const char *function(void)
{
	const char *name = getenv("FUNCTION");

	return name ? name : "";
}

BEFORE_EACH
{
	char folder[256];

	snprintf(folder, sizeof(folder), "/sys/bus/pci/devices/%s/uio", function());
	find_device(folder);
}

/* Lets the pin interrupt, which Linux's driver keeps off after each interrupt. */
static void let_pin(void)
{
	char path[256];
	uint16_t command;
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/config", function());
	fd = open(path, O_RDWR);
	CHECK(fd >= 0);
	CHECK(pread(fd, &command, sizeof(command), COMMAND) == sizeof(command));
	command &= ~PIN_OFF;
	CHECK(pwrite(fd, &command, sizeof(command), COMMAND) == sizeof(command));
	close(fd);
}

static void raise_interrupt(volatile uint32_t *registers)
{
	let_pin();
	registers[RAISE] = 1;
}

/* Raises one, waits for it, and gives its number. */
static uint32_t interrupt(int fd, volatile uint32_t *registers)
{
	uint32_t count;

	raise_interrupt(registers);
	count = count_of(fd);
	acknowledge(registers);
	return count;
}

static long number_in(const char *file)
{
	char path[256], text[64] = "";
	int fd;

	snprintf(path, sizeof(path), "/sys/class/uio/%s/maps/map0/%s", strrchr(device, '/') + 1, file);
	fd = open(path, O_RDONLY);
	CHECK(fd >= 0);
	CHECK(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strtol(text, NULL, 0);
}

CASE(linux_lists_the_memory)
{
	struct stat status;

	SAY("map0: %#lx bytes at offset %#lx", number_in("size"), number_in("offset"));
	CHECK(stat(device, &status) == 0 && S_ISCHR(status.st_mode));
	CHECK(fstat(opened(O_RDWR), &status) == 0 && S_ISCHR(status.st_mode));
}

CASE(registers_are_the_devices)
{
	volatile uint32_t *registers = mapped(opened(O_RDWR), SIZE);

	SAY("it is %#x", registers[IDENTIFICATION]);
	registers[LIVENESS] = 0x12345678;
	SAY("inverted: %#x", registers[LIVENESS]);
	for (uint32_t of = 3; of < 13; of += 3) {
		registers[FACTORIAL] = of;
		while (registers[STATUS] & COMPUTING)
			;
		SAY("%u! = %u", of, registers[FACTORIAL]);
	}
}

CASE(a_map_ends_where_the_memory_ends)
{
	int fd = opened(O_RDWR);

	FAILS(EINVAL, mmap(NULL, SIZE + PAGE, PROT_READ, MAP_SHARED, fd, 0));
	FAILS(EINVAL, mmap(NULL, SIZE + 1, PROT_READ, MAP_SHARED, fd, 0));
	for (long map = 1; map < 8; map++)
		FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, map * PAGE));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 1));
	FAILS(EINVAL, mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0));
	CHECK(mapped(fd, SIZE)[IDENTIFICATION] == mapped(fd, 1)[IDENTIFICATION]);
}

CASE(rights_are_those_of_the_descriptor)
{
	int reads = opened(O_RDONLY), writes = opened(O_WRONLY);
	volatile uint32_t *registers;
	uint32_t count;

	FAILS(EACCES, mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, reads, 0));
	FAILS(EACCES, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, writes, 0));
	FAILS(EBADF, read(writes, &count, sizeof(count)));
	FAILS(EBADF, write(reads, &count, sizeof(count)));
	registers = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reads, 0);
	CHECK(registers != MAP_FAILED && registers[IDENTIFICATION] != 0);
	FAILS(EACCES, mprotect((void *)registers, PAGE, PROT_READ | PROT_WRITE));
}

static void touch(volatile uint32_t *registers)
{
	(void)registers[IDENTIFICATION];
	_exit(0);
}

CASE(a_map_outlives_its_descriptor_and_is_gone_when_unmapped)
{
	int fd = opened(O_RDWR);
	volatile uint32_t *registers = mapped(fd, 2 * PAGE);
	pid_t child;

	CHECK(close(fd) == 0);
	registers[LIVENESS] = 1;
	CHECK(registers[LIVENESS] == ~1u);
	CHECK(mprotect((void *)registers, PAGE, PROT_NONE) == 0);
	child = fork();
	if (child == 0)
		touch(registers);
	CHECK(ends_by(child, SIGSEGV));
	CHECK(mprotect((void *)registers, PAGE, PROT_READ | PROT_WRITE) == 0);
	registers[LIVENESS] = 2;
	CHECK(registers[LIVENESS] == ~2u);
	CHECK(munmap((void *)registers, PAGE) == 0);
	child = fork();
	if (child == 0)
		touch(registers);
	CHECK(ends_by(child, SIGSEGV));
	CHECK(registers[PAGE / 4] != 1);
}

CASE(a_child_has_the_same_registers)
{
	volatile uint32_t *registers = mapped(opened(O_RDWR), PAGE);
	pid_t child;

	registers[LIVENESS] = 1;
	child = fork();
	if (child == 0) {
		CHECK(registers[LIVENESS] == ~1u);
		registers[LIVENESS] = 7;
		_exit(3);
	}
	CHECK(exits_with(child, 3));
	CHECK(registers[LIVENESS] == ~7u);
}

CASE(each_interrupt_counts)
{
	int fd = opened(O_RDWR);
	volatile uint32_t *registers = mapped(fd, PAGE);
	uint32_t first = interrupt(fd, registers);

	for (uint32_t i = 1; i <= 50; i++)
		CHECK(interrupt(fd, registers) == first + i);
}

CASE(each_opening_counts_for_itself)
{
	int one = opened(O_RDWR), other = opened(O_RDWR), late, same;
	volatile uint32_t *registers = mapped(one, PAGE);
	uint32_t first = interrupt(one, registers);

	CHECK(interrupt(one, registers) == first + 1);
	CHECK(interrupt(one, registers) == first + 2);
	late = opened(O_RDWR | O_NONBLOCK);
	CHECK(count_of(other) == first + 2);
	FAILS(EAGAIN, read(late, &first, sizeof(first)));
	/* A copy of a descriptor is the same opening. */
	same = dup(one);
	CHECK(fcntl(same, F_SETFL, O_NONBLOCK) == 0);
	FAILS(EAGAIN, read(one, &first, sizeof(first)));
}

CASE(poll_select_and_epoll_tell_of_one)
{
	int fd = opened(O_RDWR), set = epoll_create1(0);
	volatile uint32_t *registers = mapped(fd, PAGE);
	struct epoll_event event = { EPOLLIN | EPOLLOUT, { .u32 = 5 } };
	struct timeval never = { 0, 0 };
	fd_set reads;

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	CHECK(ready(fd, POLLIN | POLLOUT, 0) == 0);
	CHECK(epoll_wait(set, &event, 1, 0) == 0);
	for (int round = 0; round < 3; round++) {
		raise_interrupt(registers);
		CHECK(ready(fd, POLLIN | POLLRDNORM | POLLOUT, 10000) == (POLLIN | POLLRDNORM));
		CHECK(epoll_wait(set, &event, 1, 10000) == 1);
		CHECK(event.events == EPOLLIN && event.data.u32 == 5);
		FD_ZERO(&reads);
		FD_SET(fd, &reads);
		CHECK(select(fd + 1, &reads, NULL, NULL, &never) == 1 && FD_ISSET(fd, &reads));
		count_of(fd);
		acknowledge(registers);
		CHECK(ready(fd, POLLIN, 0) == 0);
		CHECK(epoll_wait(set, &event, 1, 0) == 0);
	}
}

CASE(a_signal_tells_of_one)
{
	int fd = opened(O_RDWR);
	volatile uint32_t *registers = mapped(fd, PAGE);

	CHECK(drive(fd));
	for (int round = 0; round < 3; round++) {
		raise_interrupt(registers);
		CHECK(is_driven(fd, POLL_IN));
		count_of(fd);
		acknowledge(registers);
	}
	/* What is mapped stays open. */
	CHECK(fcntl(fd, F_SETFL, 0) == 0);
}

static void *raise_later(void *registers)
{
	pause_for(50);
	raise_interrupt(registers);
	return NULL;
}

CASE(a_read_waits_for_one)
{
	int fd = opened(O_RDWR);
	volatile uint32_t *registers = mapped(fd, PAGE);
	struct epoll_event event = { EPOLLIN, { 0 } };
	int set = epoll_create1(0);
	uint32_t first = interrupt(fd, registers);
	pthread_t thread;

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
	CHECK(pthread_create(&thread, NULL, raise_later, (void *)registers) == 0);
	CHECK(count_of(fd) == first + 1);
	acknowledge(registers);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, raise_later, (void *)registers) == 0);
	CHECK(epoll_wait(set, &event, 1, -1) == 1);
	CHECK(count_of(fd) == first + 2);
	acknowledge(registers);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void *reads_one(void *fd)
{
	return (void *)(uintptr_t)count_of(*(int *)fd);
}

CASE(all_who_read_get_it)
{
	volatile uint32_t *registers;
	pthread_t threads[6];
	uint32_t first;
	int fds[6];

	for (int i = 0; i < 6; i++)
		fds[i] = opened(O_RDWR);
	registers = mapped(fds[0], PAGE);
	first = interrupt(fds[0], registers);
	for (int i = 1; i < 6; i++)
		CHECK(count_of(fds[i]) == first);
	for (int i = 0; i < 6; i++)
		CHECK(pthread_create(&threads[i], NULL, reads_one, &fds[i]) == 0);
	pause_for(50);
	raise_interrupt(registers);
	for (int i = 0; i < 6; i++) {
		void *count;

		CHECK(pthread_join(threads[i], &count) == 0);
		CHECK((uintptr_t)count == first + 1);
	}
	acknowledge(registers);
}

static void *signals_later(void *thread)
{
	pause_for(50);
	pthread_kill(*(pthread_t *)thread, SIGUSR1);
	return NULL;
}

CASE(a_signal_ends_a_read)
{
	struct sigaction action = { .sa_handler = note };
	pthread_t self = pthread_self(), thread;
	int fd = opened(O_RDWR);
	uint32_t count;

	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, signals_later, &self) == 0);
	FAILS(EINTR, read(fd, &count, sizeof(count)));
	CHECK(caught == SIGUSR1);
	CHECK(pthread_join(thread, NULL) == 0);
}

CASE(wrong_sizes_and_addresses_are_refused)
{
	int fd = opened(O_RDWR);
	volatile uint32_t *registers = mapped(fd, PAGE);
	uint32_t words[2] = { 1, 0 }, first = interrupt(fd, registers);

	FAILS(EINVAL, read(fd, words, 0));
	FAILS(EINVAL, read(fd, words, 3));
	FAILS(EINVAL, read(fd, words, 8));
	FAILS(EINVAL, write(fd, words, 0));
	FAILS(EINVAL, write(fd, words, 3));
	FAILS(EINVAL, write(fd, words, 8));
	/* The driver has nothing to switch interrupts by. */
	FAILS(ENOSYS, write(fd, words, 4));
	FAILS(EFAULT, write(fd, at(8), 4));
	FAILS(ENOTTY, ioctl(fd, FIONREAD, words));
	raise_interrupt(registers);
	CHECK(ready(fd, POLLIN, 10000) == POLLIN);
	/* What cannot be stored is not read. */
	FAILS(EFAULT, read(fd, at(8), 4));
	CHECK(count_of(fd) == first + 1);
	acknowledge(registers);
}
