// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * uio-hostile DEVICE WHAT
 *
 * Misuses QEMU's device edu, which DEVICE (/dev/uioN) leads to:
 *
 * hold		keeps the file open and its memory mapped, in a child as well, and touches a
 *		register every millisecond. SIGBUS ends it, with "lost" if the file then says EIO.
 * mapped	the same without the file, which it has closed; SIGBUS ends it, with "lost".
 * storm	has it interrupt for a third of a second as often as it can, while nobody reads.
 * copy		has it copy to and from the first pages of the kernel, each of which takes edu
 *		a tenth of a second.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIVENESS 1
#define RAISE 24
#define ACKNOWLEDGE 25
#define SOURCE 32
#define DESTINATION 34
#define LENGTH 36
#define COMMAND 38

#define COPY 1
#define TO_MEMORY 2
#define BUFFER 0x40000
#define PAGE 4096UL
/* Where the kernel's image is in the cell. */
#define IMAGE 0x200000UL

static volatile uint32_t *registers;
static sigjmp_buf lost;
static void *volatile where;

static void on_bus_error(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	where = info->si_code == BUS_ADRERR ? info->si_addr : NULL;
	siglongjmp(lost, 1);
}

static int touch(int fd)
{
	struct sigaction action = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };
	struct timespec pause = { 0, 1000000 };
	uint32_t number;

	sigaction(SIGBUS, &action, NULL);
	if (sigsetjmp(lost, 1)) {
		if (where != &registers[LIVENESS]) {
			fprintf(stderr, "SIGBUS at %p\n", where);
			return 1;
		}
		if (fd >= 0 && (read(fd, &number, sizeof(number)) != -1 || errno != EIO)) {
			perror("read");
			return 1;
		}
		return 0;
	}
	for (;;) {
		registers[LIVENESS] = 5;
		if (registers[LIVENESS] != ~5u) {
			fprintf(stderr, "the register is %#x\n", registers[LIVENESS]);
			return 1;
		}
		nanosleep(&pause, NULL);
	}
}

static int hold(int fd)
{
	pid_t child = fork();
	int status, result = touch(fd);

	if (child == 0)
		_exit(result);
	if (waitpid(child, &status, 0) != child || status != 0)
		return 1;
	puts("lost");
	return result;
}

static int storm(int fd)
{
	struct timespec now, end;
	uint32_t first, last;
	unsigned long raised = 0;

	registers[RAISE] = 1;
	if (read(fd, &first, sizeof(first)) != sizeof(first))
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &end);
	do {
		for (int i = 0; i < 100; i++)
			registers[RAISE] = 1;
		raised += 100;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - end.tv_sec + (now.tv_nsec - end.tv_nsec) * 1e-9 < 0.3);
	if (read(fd, &last, sizeof(last)) != sizeof(last))
		return 1;
	/* Its pin, which is off, would stay raised. */
	registers[ACKNOWLEDGE] = ~0u;
	printf("%lu raised, %u came\n", raised, last - first);
	return 0;
}

static void copy(unsigned long from, unsigned long to, uint32_t direction)
{
	registers[SOURCE] = from;
	registers[SOURCE + 1] = from >> 32;
	registers[DESTINATION] = to;
	registers[DESTINATION + 1] = to >> 32;
	registers[LENGTH] = 4096;
	registers[LENGTH + 1] = 0;
	registers[COMMAND] = COPY | direction;
	while (registers[COMMAND] & COPY)
		;
}

int main(int argc, char **argv)
{
	int fd;

	if (argc != 3)
		return 2;
	fd = open(argv[1], O_RDWR);
	if (fd < 0) {
		perror(argv[1]);
		return 1;
	}
	registers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (registers == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	if (strcmp(argv[2], "hold") == 0)
		return hold(fd);
	if (strcmp(argv[2], "mapped") == 0) {
		close(fd);
		if (touch(-1))
			return 1;
		puts("lost");
		return 0;
	}
	if (strcmp(argv[2], "storm") == 0)
		return storm(fd);
	if (strcmp(argv[2], "copy") == 0) {
		for (unsigned long page = IMAGE; page < IMAGE + 20 * PAGE; page += PAGE) {
			copy(page, BUFFER, 0);
			copy(BUFFER, page, TO_MEMORY);
		}
		return 0;
	}
	return 2;
}
