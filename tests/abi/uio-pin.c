// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * A PCI function that interrupts by its pin alone, QEMU's pci-serial, driven by a program through
 * /dev/uioN: FUNCTION, and OTHER on the same line. An interrupt switches the pin off
 * (uio_pci_generic); the program switches it on again by the command register. Such a UART asks for
 * an interrupt as long as it has room for a byte to send, once that is enabled.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/io.h>

#include "check.h"
#include "waiting.h"

/* Ports of a UART, and what enables the interrupt. */
#define INTERRUPT_ENABLE 1
#define ROOM 2
#define SCRATCH 7
#define PORTS 8

/* The command register of configuration space, and in it: the pin is off. */
#define COMMAND 4
#define PIN_OFF 0x400
/* The status register, and in it: the function asks. */
#define STATUS 6
#define ASKS 8

struct card {
	const char *name;
	int port, config, fd;
};

static struct card cards[2];

static const char *path(const struct card *card, const char *file)
{
	static char text[256];

	snprintf(text, sizeof(text), "/sys/bus/pci/devices/%.64s/%s", card->name ? card->name : "",
		 file);
	return text;
}

static uint16_t word(const struct card *card, int place)
{
	uint16_t value;

	CHECK(pread(card->config, &value, sizeof(value), place) == sizeof(value));
	return value;
}

static void set_pin(const struct card *card, int on)
{
	uint16_t command = word(card, COMMAND) & ~PIN_OFF;

	command |= on ? 0 : PIN_OFF;
	CHECK(pwrite(card->config, &command, sizeof(command), COMMAND) == sizeof(command));
}

static int is_off(const struct card *card)
{
	return !!(word(card, COMMAND) & PIN_OFF);
}

static int asks(const struct card *card)
{
	return !!(word(card, STATUS) & ASKS);
}

static void ask(const struct card *card)
{
	outb(ROOM, card->port + INTERRUPT_ENABLE);
}

static void serve(const struct card *card)
{
	outb(0, card->port + INTERRUPT_ENABLE);
}

static int opened(const struct card *card, int flags)
{
	DIR *all = opendir(path(card, "uio"));
	struct dirent *entry;
	char name[64] = "";
	int fd;

	while (all && (entry = readdir(all)))
		if (strncmp(entry->d_name, "uio", 3) == 0)
			snprintf(name, sizeof(name), "/dev/%.32s", entry->d_name);
	CHECK(all && closedir(all) == 0);
	fd = open(name, flags);
	CHECK(fd >= 0);
	return fd;
}

static void prepare(struct card *card, const char *variable)
{
	char text[64] = "";
	int fd;

	card->name = getenv(variable);
	fd = open(path(card, "resource"), O_RDONLY);
	CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && close(fd) == 0);
	card->port = strtol(text, NULL, 0);
	CHECK(ioperm(card->port, PORTS, 1) == 0);
	serve(card);
	card->config = open(path(card, "config"), O_RDWR);
	CHECK(card->config >= 0);
	set_pin(card, 1);
	card->fd = opened(card, O_RDWR);
}

BEFORE_EACH
{
	prepare(&cards[0], "FUNCTION");
	prepare(&cards[1], "OTHER");
}

/* Waits for an interrupt, and gives how many there were. */
static uint32_t count_of(int fd)
{
	uint32_t count = 0;

	CHECK(read(fd, &count, sizeof(count)) == sizeof(count));
	return count;
}

static int comes(int fd)
{
	return ready(fd, POLLIN, 10000) == POLLIN;
}

static int stays_away(int fd)
{
	return ready(fd, POLLIN, 50) == 0;
}

/* Has a card interrupt once, and gives the number of that. */
static uint32_t interrupt(const struct card *card)
{
	uint32_t count;

	ask(card);
	count = count_of(card->fd);
	serve(card);
	set_pin(card, 1);
	return count;
}

CASE(an_interrupt_switches_the_pin_off)
{
	struct card *card = &cards[0];

	SAY("at first: off %d, asks %d", is_off(card), asks(card));
	ask(card);
	CHECK(comes(card->fd));
	count_of(card->fd);
	SAY("then: off %d, asks %d", is_off(card), asks(card));
	serve(card);
	SAY("when it is served: off %d, asks %d", is_off(card), asks(card));
	set_pin(card, 1);
	SAY("at last: off %d, asks %d", is_off(card), asks(card));
	CHECK(stays_away(card->fd));
}

CASE(each_interrupt_counts)
{
	uint32_t first = interrupt(&cards[0]);

	for (uint32_t i = 1; i <= 50; i++)
		CHECK(interrupt(&cards[0]) == first + i);
}

CASE(none_comes_before_the_pin_is_on_again)
{
	struct card *card = &cards[0];
	uint32_t first = interrupt(card);

	ask(card);
	CHECK(count_of(card->fd) == first + 1);
	serve(card);
	ask(card);
	CHECK(stays_away(card->fd));
	set_pin(card, 1);
	CHECK(count_of(card->fd) == first + 2);
	/* It was not served: the level is there still. */
	set_pin(card, 1);
	CHECK(count_of(card->fd) == first + 3);
	serve(card);
	set_pin(card, 1);
	CHECK(stays_away(card->fd));
}

CASE(a_program_switches_the_pin_off)
{
	struct card *card = &cards[0];

	set_pin(card, 0);
	CHECK(is_off(card));
	ask(card);
	CHECK(stays_away(card->fd) && asks(card));
	set_pin(card, 1);
	CHECK(comes(card->fd) && is_off(card));
}

CASE(functions_on_one_line_are_told_apart)
{
	struct card *one = &cards[0], *other = &cards[1];
	uint32_t first = interrupt(one), second = interrupt(other);

	CHECK(stays_away(one->fd) && stays_away(other->fd));
	for (int i = 0; i < 10; i++) {
		CHECK(interrupt(one) == ++first);
		CHECK(interrupt(other) == ++second);
	}
	/* Both. Under Linux one that is not served counts again when the other interrupts. */
	ask(one);
	ask(other);
	CHECK(comes(one->fd) && comes(other->fd));
	CHECK(count_of(one->fd) >= first + 1);
	serve(other);
	second = count_of(other->fd);
	set_pin(other, 1);
	/* One that is not served keeps the other one from nothing. */
	CHECK(is_off(one) && asks(one) && !asks(other));
	CHECK(interrupt(other) == second + 1);
	while (ready(one->fd, POLLIN, 50))
		first = count_of(one->fd);
	set_pin(one, 1);
	CHECK(comes(one->fd));
	serve(one);
}

CASE(one_goes_on_when_the_other_is_closed)
{
	struct card *one = &cards[0], *other = &cards[1];
	uint32_t first = interrupt(one), second = interrupt(other);

	CHECK(close(other->fd) == 0);
	CHECK(interrupt(one) == ++first);
	other->fd = opened(other, O_RDWR);
	CHECK(close(one->fd) == 0);
	CHECK(interrupt(other) == ++second);
	one->fd = opened(one, O_RDWR);
	CHECK(interrupt(one) == ++first);
}

CASE(the_files_refuse_what_linux_refuses)
{
	struct card *card = &cards[0];
	uint32_t value = 1;
	uint8_t bytes[64];

	FAILS(EINVAL, read(card->fd, bytes, 3));
	FAILS(EINVAL, write(card->fd, bytes, 3));
	/* The driver has nothing to switch interrupts by. */
	FAILS(ENOSYS, write(card->fd, &value, sizeof(value)));
	FAILS(EINVAL, lseek(card->config, -1, SEEK_SET));
	CHECK(lseek(card->config, 2, SEEK_SET) == 2 && read(card->config, bytes, 3) == 3);
	CHECK(lseek(card->config, 0, SEEK_CUR) == 5);
	SAY("its kind: %02x%02x", bytes[1], bytes[0]);
	CHECK(pread(card->config, bytes, 64, 0) == 64);
	SAY("its vendor: %02x%02x, class %02x%02x", bytes[1], bytes[0], bytes[11], bytes[10]);
	CHECK(pread(card->config, bytes, 1, 4096) == 0);
	FAILS(EFBIG, pwrite(card->config, bytes, 1, 4096));
	FAILS(EFAULT, pread(card->config, at(8), 4, 0));
	FAILS(EFAULT, pwrite(card->config, at(8), 4, COMMAND));
}

CASE(one_byte_of_the_command_is_enough)
{
	struct card *card = &cards[0];
	uint8_t low, high = PIN_OFF >> 8;

	CHECK(pread(card->config, &low, 1, COMMAND) == 1);
	CHECK(pwrite(card->config, &high, 1, COMMAND + 1) == 1 && is_off(card));
	CHECK(pwrite(card->config, &low, 1, COMMAND) == 1 && is_off(card));
	ask(card);
	CHECK(stays_away(card->fd));
	high = 0;
	CHECK(pwrite(card->config, &high, 1, COMMAND + 1) == 1 && comes(card->fd));
}
