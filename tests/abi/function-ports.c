// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * I/O ports of a PCI function: of QEMU's pci-serial, which the variable FUNCTION names, by the file
 * that Linux has for them (resource0), by instructions, and by /dev/port; and, with VFIO set,
 * by VFIO. In Linux no driver has the function meanwhile, or vfio-pci. Its scratch register
 * keeps what is written there, and in loopback it receives what it sends.
 */
#define _GNU_SOURCE
#include <linux/vfio.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "check.h"
#include "children.h"

/* Ports of the UART: data, modem control, state, scratch. */
#define DATA 0
#define INTERRUPT_ENABLE 1
#define CONTROL 4
#define LOOPBACK 0x10
#define STATE 5
#define RECEIVED 1
#define SCRATCH 7
#define COUNT 8

static const char *path(const char *file)
{
	static char name[256];

	snprintf(name, sizeof(name), "/sys/bus/pci/devices/%.64s/%s",
		 getenv("FUNCTION") ? getenv("FUNCTION") : "", file);
	return name;
}

static int opened(int flags)
{
	int fd = open(path("resource0"), flags);

	CHECK(fd >= 0);
	return fd;
}

static unsigned short first_port(void)
{
	char text[64] = "";
	int fd = open(path("resource"), O_RDONLY);

	CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strtol(text, NULL, 0);
}

static uint8_t scratch(int fd)
{
	uint8_t byte = 0;

	CHECK(pread(fd, &byte, 1, SCRATCH) == 1);
	return byte;
}

CASE(the_file_tells_how_many_ports_there_are)
{
	struct stat status;
	int fd = opened(O_RDWR);

	CHECK(fstat(fd, &status) == 0 && S_ISREG(status.st_mode));
	SAY("%ld bytes, mode %o", (long)status.st_size, status.st_mode & 07777);
	CHECK(lseek(fd, 0, SEEK_END) == COUNT);
	FAILS(EINVAL, lseek(fd, -9, SEEK_END));
	FAILS(EINVAL, lseek(fd, -1, SEEK_SET));
	FAILS(EINVAL, lseek(fd, 0, 99));
	CHECK(lseek(fd, 3, SEEK_SET) == 3 && lseek(fd, 2, SEEK_CUR) == 5);
	FAILS(ENODEV, mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
	FAILS(ENOTTY, ioctl(fd, TIOCGWINSZ, NULL));
}

CASE(an_access_is_one_of_the_ports)
{
	uint8_t bytes[16] = { 0 }, *volatile nowhere = NULL;
	int fd = opened(O_RDWR);

	CHECK(pwrite(fd, "\x5a", 1, SCRATCH) == 1 && scratch(fd) == 0x5a);
	CHECK(pwrite(fd, "\xa5", 1, SCRATCH) == 1 && scratch(fd) == 0xa5);
	CHECK(pread(fd, bytes, 2, SCRATCH - 1) == 2 && bytes[1] == 0xa5);
	CHECK(pread(fd, bytes, 4, SCRATCH - 3) == 4 && bytes[3] == 0xa5);
	CHECK(pwrite(fd, "\x00\x33", 2, SCRATCH - 1) == 2 && scratch(fd) == 0x33);
	/* Up to the end. */
	CHECK(pread(fd, bytes, 16, SCRATCH) == 1 && bytes[0] == 0x33);
	CHECK(pread(fd, bytes, 4, SCRATCH - 1) == 2 && bytes[1] == 0x33);
	CHECK(pread(fd, bytes, 1, COUNT) == 0 && pread(fd, bytes, 1, 1 << 20) == 0);
	CHECK(pread(fd, bytes, 0, 0) == 0 && pwrite(fd, bytes, 0, 0) == 0);
	FAILS(EFBIG, pwrite(fd, bytes, 1, COUNT));
	FAILS(EINVAL, pread(fd, bytes, 3, 0));
	FAILS(EINVAL, pread(fd, bytes, 8, 0));
	FAILS(EINVAL, pread(fd, bytes, 16, 0));
	FAILS(EINVAL, pwrite(fd, bytes, 3, 4));
	FAILS(EINVAL, pread(fd, bytes, 1, -1));
	FAILS(EFAULT, pwrite(fd, nowhere, 1, SCRATCH));
	FAILS(EFAULT, pread(fd, nowhere, 1, SCRATCH));
	CHECK(scratch(fd) == 0x33);
}

CASE(the_position_moves_on)
{
	uint8_t bytes[2];
	int fd = opened(O_RDWR), again;
	char name[64];

	CHECK(lseek(fd, SCRATCH, SEEK_SET) == SCRATCH && write(fd, "\x77", 1) == 1);
	CHECK(lseek(fd, 0, SEEK_CUR) == COUNT && read(fd, bytes, 1) == 0);
	CHECK(lseek(fd, -2, SEEK_CUR) == SCRATCH - 1 && read(fd, bytes, 2) == 2);
	CHECK(bytes[1] == 0x77);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	again = open(name, O_RDONLY);
	CHECK(again >= 0 && scratch(again) == 0x77);
	FAILS(EBADF, write(again, bytes, 1));
	FAILS(EBADF, read(opened(O_WRONLY), bytes, 1));
}

CASE(instructions_reach_them)
{
	unsigned short first = first_port();
	int fd = opened(O_RDWR);

	CHECK(ioperm(first, COUNT, 1) == 0);
	outb(0x81, first + SCRATCH);
	CHECK(inb(first + SCRATCH) == 0x81 && scratch(fd) == 0x81);
	outb(0, first + INTERRUPT_ENABLE);
	outb(LOOPBACK, first + CONTROL);
	outb(0xc3, first + DATA);
	while (!(inb(first + STATE) & RECEIVED))
		;
	CHECK(inb(first + DATA) == 0xc3);
	outb(0, first + CONTROL);
	CHECK(inl(first + 4) >> 24 == 0x81);
	CHECK(ioperm(first, COUNT, 0) == 0);
}

CASE(iopl_opens_them)
{
	unsigned short first = first_port();

	CHECK(iopl(3) == 0);
	outb(0x42, first + SCRATCH);
	CHECK(inb(first + SCRATCH) == 0x42);
	CHECK(iopl(0) == 0);
}

CASE(dev_port_shows_them)
{
	unsigned short first = first_port();
	int fd = opened(O_RDWR), port = open("/dev/port", O_RDWR);
	uint8_t byte;

	CHECK(port >= 0 && pwrite(port, "\x24", 1, first + SCRATCH) == 1 && scratch(fd) == 0x24);
	CHECK(pread(port, &byte, 1, first + SCRATCH) == 1 && byte == 0x24);
}

CASE(who_was_not_allowed_them_gets_a_signal)
{
	unsigned short first = first_port();
	pid_t child = fork();

	if (child == 0) {
		inb(first + SCRATCH);
		_exit(0);
	}
	CHECK(ends_by(child, SIGSEGV));
	child = fork();
	if (child == 0) {
		if (setresuid(65534, 65534, 65534))
			_exit(1);
		FAILS(EPERM, ioperm(first, COUNT, 1));
		FAILS(EPERM, iopl(3));
		FAILS(EACCES, open(path("resource0"), O_RDONLY));
		_exit(3);
	}
	CHECK(exits_with(child, 3));
}

CASE(a_region_of_vfio_is_read_and_written)
{
	struct vfio_region_info region = { .argsz = sizeof(region) };
	int container, group, device;
	char link[256] = "", name[64];
	uint8_t bytes[16];

	if (!getenv("VFIO"))
		return;
	CHECK(readlink(path("iommu_group"), link, sizeof(link) - 1) > 0 && strrchr(link, '/'));
	snprintf(name, sizeof(name), "/dev/vfio/%.32s", strrchr(link, '/') + 1);
	container = open("/dev/vfio/vfio", O_RDWR);
	group = open(name, O_RDWR);
	CHECK(container >= 0 && group >= 0);
	CHECK(ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) == 0);
	CHECK(ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) == 0);
	device = ioctl(group, VFIO_GROUP_GET_DEVICE_FD, getenv("FUNCTION"));
	CHECK(device >= 0);
	CHECK(ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &region) == 0);
	SAY("%llu bytes, flags %u", region.size, region.flags);
	CHECK(pwrite(device, "\x5a", 1, region.offset + SCRATCH) == 1);
	CHECK(pread(device, bytes, 4, region.offset + 4) == 4 && bytes[3] == 0x5a);
	CHECK(pread(device, bytes, 8, region.offset) == 8 && bytes[7] == 0x5a);
	CHECK(pread(device, bytes, 16, region.offset + SCRATCH) == 1 && bytes[0] == 0x5a);
	FAILS(EINVAL, pread(device, bytes, 1, region.offset + COUNT));
	FAILS(EINVAL, mmap(NULL, 4096, PROT_READ, MAP_SHARED, device, region.offset));
}
