/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* QEMU's device edu, driven by a program through /dev/uioN. */
#ifndef EDU_BY_UIO_H
#define EDU_BY_UIO_H

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>

#include "check.h"

/* Registers of edu, in words. */
#define IDENTIFICATION 0
#define LIVENESS 1
#define CAUSES 9
#define RAISE 24
#define ACKNOWLEDGE 25
#define PAGE 4096L

static char device[64];

/* Finds /dev/uioN, of which Linux tells in that folder, as libraries do. */
static void find_device(const char *folder)
{
	DIR *all = opendir(folder);
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

static volatile uint32_t *mapped(int fd, long length)
{
	void *registers = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(registers != MAP_FAILED);
	return registers;
}

static void acknowledge(volatile uint32_t *registers)
{
	registers[ACKNOWLEDGE] = registers[CAUSES];
}

/* Waits for an interrupt, and gives how many there were. */
static uint32_t count_of(int fd)
{
	uint32_t count = 0;

	CHECK(read(fd, &count, sizeof(count)) == sizeof(count));
	return count;
}

#endif
