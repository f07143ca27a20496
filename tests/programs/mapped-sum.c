// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * mapped-sum FILE: says that it is ready, maps the file with all its pages, and says what they sum
 * up to, and how many are zero.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PAGE 4096

int main(int argc, char **argv)
{
	static const unsigned char zero[PAGE];
	const unsigned char *bytes;
	struct stat status;
	uint64_t sum = 14695981039346656037u;
	long zeros = 0;
	int fd;

	if (argc != 2 || (fd = open(argv[1], O_RDONLY)) < 0 || fstat(fd, &status)) {
		perror("mapped-sum");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	bytes = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	if (bytes == MAP_FAILED) {
		perror("mapped-sum: mmap");
		return 1;
	}
	for (long at = 0; at < status.st_size; at++)
		sum = (sum ^ bytes[at]) * 1099511628211u;
	for (long at = 0; at + PAGE <= status.st_size; at += PAGE)
		zeros += !memcmp(bytes + at, zero, PAGE);
	printf("%016lx, %ld pages are zero\n", sum, zeros);
	return 0;
}
