// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * From the instruction that has a device interrupt to the thread that waits in read() or in poll():
 * it has read the clock. A thread of low priority on the same CPU gives the device its reason.
 *
 *   uio    QEMU's device edu, by /dev/uioN: a store to its register
 *   uio-poll the same, and the thread waits in poll()
 *   uart   ttyS1, whose UART hears itself: a byte to its port, which the program may use
 *   can    can0, by a socket: a command to the SJA1000 at the other end of its bus, which the
 *          program drives by the ports from $CAN_PORT on
 *   net    the network card near, by a packet socket: a frame by the card far at the other end of
 *          its wire, which such a socket sends
 *
 * Under Linux, uio_pci_generic takes edu's interrupt from its pin and keeps that off afterwards.
 * The program lets it interrupt again before each, outside of the sample.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/can.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>

/* Registers of edu, in words. */
#define RAISE 24
#define ACKNOWLEDGE 25
#define EDU "0x11e8"
/* The command register of configuration space, and in it: the pin does not interrupt. */
#define COMMAND 4
#define PIN_OFF 0x400

#define LINE "/dev/ttyS1"
#define PORT 0x2f8
/* Only <asm/termios.h> has them. */
#define TIOCM_OUT2 0x4000
#define TIOCM_LOOP 0x8000

/* Registers of an SJA1000. */
#define MODE 0
#define ISSUE 1
#define ENABLED 4
#define FRAME 16
#define CLOCK 31
/* As many ports as it has registers. */
#define PORTS 32
#define RESET 1
#define SINGLE_FILTER 8
#define SEND 1
#define PELICAN 0xcf

#define FUNCTIONS "/sys/bus/pci/devices"

static int device, configuration = -1;
/* The ports that the program drives, if the device has no registers of its own. */
static unsigned short first_port, ports = 1;
/* A byte that is a reason to interrupt, and the port that it goes to. */
static unsigned char reason = 'x';
static unsigned short port = PORT;
/* A socket that sends a frame, which is the reason. */
static int sender = -1;
static unsigned char frame[ETH_ZLEN];
/* Bytes of what is read. */
static size_t length = 1;
static volatile uint32_t *registers;
static volatile uint64_t start;
static volatile long done = -WARM_UP;

/* The first word of a file, or nothing. */
static void read_word(const char *path, char *word, size_t size)
{
	int fd = open(path, O_RDONLY);
	ssize_t length = fd < 0 ? 0 : read(fd, word, size - 1);

	word[length < 0 ? 0 : length] = '\0';
	word[strcspn(word, "\n")] = '\0';
	if (fd >= 0)
		close(fd);
}

/* Opens the file that leads to a function, if that is an edu which UIO shows. */
static int open_function(const char *name)
{
	char path[600], driver[300], word[32];
	struct dirent *entry;
	ssize_t length;
	DIR *all;

	snprintf(path, sizeof(path), FUNCTIONS "/%s/device", name);
	read_word(path, word, sizeof(word));
	snprintf(path, sizeof(path), FUNCTIONS "/%s/uio", name);
	all = strcmp(word, EDU) ? NULL : opendir(path);
	if (!all)
		return 0;
	while ((entry = readdir(all)) && strncmp(entry->d_name, "uio", 3))
		;
	if (entry) {
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		device = open(path, O_RDWR);
		if (device < 0)
			fail(path);
	}
	closedir(all);
	snprintf(path, sizeof(path), FUNCTIONS "/%s/driver", name);
	length = readlink(path, driver, sizeof(driver) - 1);
	driver[length < 0 ? 0 : length] = '\0';
	if (strstr(driver, "uio_pci_generic")) {
		snprintf(path, sizeof(path), FUNCTIONS "/%s/config", name);
		configuration = open(path, O_RDWR);
		if (configuration < 0)
			fail(path);
	}
	return device > 0;
}

static void open_uio(void)
{
	struct dirent *entry;
	DIR *all = opendir(FUNCTIONS);

	while (all && (entry = readdir(all)) && !open_function(entry->d_name))
		;
	if (!device) {
		errno = ENODEV;
		fail("edu by UIO");
	}
	closedir(all);
	length = sizeof(uint32_t);
	registers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0);
	if (registers == MAP_FAILED)
		fail("mmap");
}

static void open_uart(void)
{
	int lines = TIOCM_LOOP | TIOCM_OUT2 | TIOCM_DTR;
	struct termios settings;

	device = open(LINE, O_RDWR | O_NOCTTY | O_NONBLOCK);
	if (device < 0 || tcgetattr(device, &settings))
		fail(LINE);
	cfmakeraw(&settings);
	cfsetspeed(&settings, B115200);
	settings.c_cflag |= CREAD | CLOCAL;
	settings.c_cc[VMIN] = 1;
	settings.c_cc[VTIME] = 0;
	if (tcsetattr(device, TCSANOW, &settings) || fcntl(device, F_SETFL, 0) ||
	    ioctl(device, TIOCMSET, &lines))
		fail("settings");
	tcflush(device, TCIOFLUSH);
	first_port = PORT;
}

static void open_can(void)
{
	struct sockaddr_can to = { .can_family = AF_CAN, .can_ifindex = if_nametoindex("can0") };
	const char *first = getenv("CAN_PORT");

	device = socket(AF_CAN, SOCK_RAW, CAN_RAW);
	if (device < 0 || !to.can_ifindex || bind(device, (struct sockaddr *)&to, sizeof(to)))
		fail("can0");
	length = sizeof(struct can_frame);
	first_port = first ? strtoul(first, NULL, 0) : 0;
	if (!first_port) {
		errno = EINVAL;
		fail("CAN_PORT");
	}
	ports = PORTS;
	port = first_port + ISSUE;
	reason = SEND;
}

/* The controller at the other end is ready to send a frame without data. */
static void start_other_end(void)
{
	outb(RESET, first_port + MODE);
	outb(PELICAN, first_port + CLOCK);
	outb(0, first_port + ENABLED);
	outb(SINGLE_FILTER, first_port + MODE);
	outb(0, first_port + FRAME);
	outb(0x24, first_port + FRAME + 1);
	outb(0x60, first_port + FRAME + 2);
	if (inb(first_port + MODE) & RESET) {
		errno = EIO;
		fail("the controller");
	}
}

/* A packet socket of that interface, for frames of that protocol. */
static int open_card(const char *name, unsigned short protocol)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_protocol = htons(protocol),
				  .sll_ifindex = if_nametoindex(name) };
	int fd = socket(AF_PACKET, SOCK_RAW, 0);

	if (fd < 0 || !to.sll_ifindex || bind(fd, (struct sockaddr *)&to, sizeof(to)))
		fail(name);
	return fd;
}

static void open_net(void)
{
	device = open_card("near", ETH_P_802_EX1);
	/* It hears nothing. */
	sender = open_card("far", 0);
	memset(frame, 0xff, ETH_ALEN);
	frame[ETH_ALEN] = 2;
	frame[2 * ETH_ALEN] = ETH_P_802_EX1 >> 8;
	frame[2 * ETH_ALEN + 1] = ETH_P_802_EX1 & 0xff;
	length = sizeof(frame);
}

static void let_pin(void)
{
	uint16_t command;

	if (configuration < 0)
		return;
	if (pread(configuration, &command, sizeof(command), COMMAND) != sizeof(command))
		fail("configuration");
	command &= ~PIN_OFF;
	if (pwrite(configuration, &command, sizeof(command), COMMAND) != sizeof(command))
		fail("configuration");
}

/* Runs whenever the reader waits. */
static void *give_reasons(void *unused)
{
	struct timespec pause = { options.interval / 1000000, options.interval % 1000000 * 1000 };

	/* Linux's permissions are a thread's. */
	if (first_port && ioperm(first_port, ports, 1))
		fail("ioperm");
	if (wants("can"))
		start_other_end();
	for (long round = -WARM_UP; round < options.samples; round++) {
		nanosleep(&pause, NULL);
		if (registers) {
			let_pin();
			start = ticks();
			registers[RAISE] = 1;
		} else if (sender >= 0) {
			start = ticks();
			if (send(sender, frame, sizeof(frame), 0) != sizeof(frame))
				fail("send");
		} else {
			start = ticks();
			outb(reason, port);
		}
		while (done <= round)
			sched_yield();
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct sched_param less = { .sched_priority = 10 };
	pthread_attr_t attributes;
	pthread_t other;

	begin(argc, argv);
	if (wants("uio") || wants("uio-poll"))
		open_uio();
	else if (wants("uart"))
		open_uart();
	else if (wants("can"))
		open_can();
	else if (wants("net"))
		open_net();
	else
		return unknown();
	pthread_attr_init(&attributes);
	pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
	pthread_attr_setschedparam(&attributes, &less);
	errno = pthread_create(&other, &attributes, give_reasons, NULL);
	if (errno)
		fail("pthread_create");
	for (long round = -WARM_UP; round < options.samples; round++) {
		unsigned char bytes[sizeof(frame)];
		struct pollfd wanted = { .fd = device, .events = POLLIN };
		uint64_t end = 0;

		if (wants("uio-poll")) {
			if (poll(&wanted, 1, -1) != 1)
				fail("poll");
			end = ticks();
		}
		if (read(device, bytes, length) <= 0)
			fail("read");
		if (!end)
			end = ticks();
		if (registers)
			registers[ACKNOWLEDGE] = 1;
		sample(round, end - start);
		done = round + 1;
	}
	pthread_join(other, NULL);
	return report();
}
