// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * Registers of PCI functions by the files that Linux has for them, resource0 in sysfs and /dev/mem,
 * and their configuration space: of QEMU's device edu, which the variable FUNCTION names, and of an
 * e1000e network card, CARD. In Linux no driver has them meanwhile; USED names a function that a
 * driver has.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "check.h"
#include "children.h"

/* Registers of edu, in words. */
#define IDENTIFICATION 0
#define LIVENESS 1
#define FACTORIAL 2
#define STATUS 8
#define COMPUTING 1u
#define SIZE 0x100000L

/* Of e1000e, in bytes: its address, in the sixth page. */
#define ADDRESS 0x5400L

#define PAGE 4096L

static const char *file_of(const char *function, const char *file)
{
	static char path[2][256];
	static int next;

	next = !next;
	snprintf(path[next], sizeof(path[next]), "/sys/bus/pci/devices/%.64s/%s",
		 getenv(function) ? getenv(function) : "", file);
	return path[next];
}

static int opened(const char *path, int flags)
{
	int fd = open(path, flags);

	CHECK(fd >= 0);
	return fd;
}

static volatile uint32_t *mapped(int fd, long length, long offset)
{
	void *registers = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);

	CHECK(registers != MAP_FAILED);
	return registers;
}

/* Where the memory of the first base address register is in the machine. */
static long address_of(const char *function)
{
	char text[64] = "";
	int fd = opened(file_of(function, "resource"), O_RDONLY);

	CHECK(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strtol(text, NULL, 0);
}

static volatile uint32_t *edu(void)
{
	return mapped(opened(file_of("FUNCTION", "resource0"), O_RDWR), SIZE, 0);
}

CASE(the_file_tells_how_much_memory_there_is)
{
	struct stat status;
	int fd = opened(file_of("FUNCTION", "resource0"), O_RDWR);

	CHECK(fstat(fd, &status) == 0 && S_ISREG(status.st_mode));
	SAY("%#lx bytes, mode %o", status.st_size, status.st_mode & 07777);
	CHECK(stat(file_of("CARD", "resource0"), &status) == 0);
	SAY("%#lx bytes of the card", status.st_size);
}

CASE(registers_are_the_devices)
{
	volatile uint32_t *registers = edu();

	SAY("it is %#x", registers[IDENTIFICATION]);
	registers[LIVENESS] = 0x12345678;
	SAY("inverted: %#x", registers[LIVENESS]);
	registers[FACTORIAL] = 9;
	while (registers[STATUS] & COMPUTING)
		;
	SAY("9! = %u", registers[FACTORIAL]);
}

CASE(an_offset_counts_from_the_beginning_of_the_memory)
{
	int fd = opened(file_of("CARD", "resource0"), O_RDWR);
	volatile uint32_t *all = mapped(fd, 8 * PAGE, 0);
	volatile uint32_t *part = mapped(fd, PAGE, ADDRESS & -PAGE);
	volatile uint32_t *one = &part[ADDRESS % PAGE / 4];

	CHECK(*one == all[ADDRESS / 4] && *one != 0 && *one != ~0u);
	SAY("the card's address begins with %02x:%02x:%02x", *one & 0xff, *one >> 8 & 0xff,
	    *one >> 16 & 0xff);
	all[ADDRESS / 4] = *one + 1;
	CHECK(*one == all[ADDRESS / 4]);
	*one -= 1;
	CHECK(*one == all[ADDRESS / 4]);
}

CASE(a_map_ends_where_the_memory_ends)
{
	int fd = opened(file_of("FUNCTION", "resource0"), O_RDWR);

	FAILS(EINVAL, mmap(NULL, SIZE + PAGE, PROT_READ, MAP_SHARED, fd, 0));
	FAILS(EINVAL, mmap(NULL, SIZE + 1, PROT_READ, MAP_SHARED, fd, 0));
	FAILS(EINVAL, mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, PAGE));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, SIZE));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 1));
	FAILS(EINVAL, mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, 0, fd, 0));
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, SIZE - PAGE) != MAP_FAILED);
	CHECK(mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED);
}

CASE(rights_are_those_of_the_descriptor)
{
	int reads = opened(file_of("FUNCTION", "resource0"), O_RDONLY);
	int writes = opened(file_of("FUNCTION", "resource0"), O_WRONLY);
	volatile uint32_t *registers;
	uint32_t word = 0;

	FAILS(EACCES, mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, reads, 0));
	FAILS(EACCES, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, writes, 0));
	registers = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reads, 0);
	CHECK(registers != MAP_FAILED && registers[IDENTIFICATION] != 0);
	FAILS(EACCES, mprotect((void *)registers, PAGE, PROT_READ | PROT_WRITE));
	registers = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, reads, 0);
	CHECK(registers != MAP_FAILED && registers[IDENTIFICATION] != 0);
	/* Memory is mapped alone. */
	FAILS(EIO, pread(reads, &word, sizeof(word), 0));
	FAILS(EIO, pwrite(writes, &word, sizeof(word), 0));
}

CASE(others_have_no_right)
{
	pid_t child = fork();

	if (child == 0) {
		if (setresuid(65534, 65534, 65534))
			_exit(1);
		FAILS(EACCES, open(file_of("FUNCTION", "resource0"), O_RDONLY));
		FAILS(EACCES, open("/dev/mem", O_RDONLY));
		_exit(3);
	}
	CHECK(exits_with(child, 3));
}

CASE(a_map_outlives_its_descriptor)
{
	int fd = opened(file_of("FUNCTION", "resource0"), O_RDWR);
	volatile uint32_t *registers = mapped(fd, 2 * PAGE, 0);
	pid_t child;

	CHECK(close(fd) == 0);
	registers[LIVENESS] = 1;
	child = fork();
	if (child == 0) {
		CHECK(registers[LIVENESS] == ~1u);
		registers[LIVENESS] = 7;
		_exit(3);
	}
	CHECK(exits_with(child, 3));
	CHECK(registers[LIVENESS] == ~7u);
	CHECK(mprotect((void *)registers, PAGE, PROT_NONE) == 0);
	CHECK(mprotect((void *)registers, PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(munmap((void *)registers, PAGE) == 0);
	child = fork();
	if (child == 0) {
		(void)registers[IDENTIFICATION];
		_exit(0);
	}
	CHECK(ends_by(child, SIGSEGV));
}

CASE(mem_shows_the_same_registers)
{
	volatile uint32_t *registers = edu();
	int mem = opened("/dev/mem", O_RDWR | O_SYNC);
	volatile uint32_t *same = mapped(mem, SIZE, address_of("FUNCTION"));
	volatile uint32_t *card = mapped(mem, PAGE, address_of("CARD") + (ADDRESS & -PAGE));

	SAY("it is %#x", same[IDENTIFICATION]);
	same[LIVENESS] = 5;
	CHECK(registers[LIVENESS] == ~5u);
	registers[LIVENESS] = 6;
	CHECK(same[LIVENESS] == ~6u);
	CHECK((card[ADDRESS % PAGE / 4] & 0xffffff) == 0x005452);
	CHECK(close(mem) == 0);
	CHECK(same[LIVENESS] == ~6u);
}

/* An address of Linux's own memory. */
static long memory_of_linux(void)
{
	FILE *all = fopen("/proc/iomem", "r");
	unsigned long start, end, found = 0;
	char line[256];

	CHECK(all);
	while (fgets(line, sizeof(line), all))
		if (strstr(line, "System RAM") && sscanf(line, " %lx-%lx", &start, &end) == 2 &&
		    start >= 1 << 20)
			found = (start + end) / 2 & -PAGE;
	fclose(all);
	CHECK(found);
	return found;
}

CASE(linux_refuses_its_memory_and_what_drivers_have)
{
	int mem = opened("/dev/mem", O_RDWR);

	FAILS(EPERM, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, mem, memory_of_linux()));
	FAILS(EPERM, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, mem, memory_of_linux()));
	FAILS(EPERM, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, mem, address_of("USED")));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED,
			   opened(file_of("USED", "resource0"), O_RDWR), 0));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, mem, -PAGE));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, mem, 1));
}

CASE(mem_reads_what_it_did)
{
	int mem = opened("/dev/mem", O_RDONLY);
	uint32_t word;

	CHECK(pread(mem, &word, 4, 0xf0000) == 4);
	FAILS(EPERM, pread(mem, &word, 4, memory_of_linux()));
	FAILS(EBADF, pwrite(mem, &word, 4, 0xf0000));
}

CASE(configuration_space_is_read)
{
	int fd = opened(file_of("FUNCTION", "config"), O_RDONLY);
	uint32_t words[16], base;
	uint16_t id;

	CHECK(pread(fd, words, sizeof(words), 0) == sizeof(words));
	SAY("ids %08x, class %08x", words[0], words[2]);
	CHECK((words[4] & ~0xfu) == (uint32_t)address_of("FUNCTION"));
	CHECK(pread(fd, &base, 4, 0x10) == 4 && base == words[4]);
	CHECK(pread(fd, &id, 2, 2) == 2 && id == words[0] >> 16);
	CHECK(lseek(fd, 0, SEEK_END) == 256);
	CHECK(read(fd, words, 4) == 0);
}
