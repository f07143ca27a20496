// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * uio-e1000e DEVICE
 *
 * Has an e1000e network card, which DEVICE (/dev/uioN) leads to, interrupt ten times by messages of
 * its table (MSI-X), by each of three entries, and prints how often one came.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Registers, in words. */
#define CAUSE (0xc0 / 4)
#define RAISE (0xc8 / 4)
#define PERMIT (0xd0 / 4)
#define ENTRIES (0xe4 / 4)

/* A queue has received. */
#define RECEIVED (1u << 20)
/* In ENTRIES: that is told by the entry in the lower bits. */
#define VALID 8u

int main(int argc, char **argv)
{
	volatile uint32_t *registers;
	uint32_t count = 0;
	int came = 0;
	int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;

	if (fd < 0) {
		perror("uio-e1000e");
		return 1;
	}
	registers = mmap(NULL, 0x20000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (registers == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	registers[PERMIT] = RECEIVED;
	for (int i = 0; i < 10; i++) {
		registers[ENTRIES] = VALID | i % 3;
		registers[CAUSE] = ~0u;
		registers[RAISE] = RECEIVED;
		if (read(fd, &count, sizeof(count)) != sizeof(count)) {
			perror("read");
			return 1;
		}
		came++;
		/* The card may send one more, which is not to count as the next. */
		while (poll(&(struct pollfd){ fd, POLLIN, 0 }, 1, 20) == 1)
			if (read(fd, &count, sizeof(count)) != sizeof(count))
				return 1;
	}
	printf("%d\n", came);
	return 0;
}
