// SPDX-License-Identifier: MIT OR Apache-2.0
/* /proc/self/maps: what is mapped, and by which names. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

/* A line. */
struct mapping {
	uintptr_t start, end;
	char rights[5], name[256];
	unsigned long offset, inode;
	unsigned major, minor;
};

/* The line of the mapping with that address, as the file of that name tells it. */
static int find(const char *path, const void *address, struct mapping *found)
{
	FILE *file = fopen(path, "re");
	char line[512];
	int seen = 0;

	if (!file)
		return 0;
	while (!seen && fgets(line, sizeof(line), file)) {
		memset(found, 0, sizeof(*found));
		if (sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %255[^\n]", &found->start, &found->end,
			   found->rights, &found->offset, &found->major, &found->minor,
			   &found->inode, found->name) < 7)
			break;
		/* The name stands in a column. */
		if (*found->name && strstr(line, found->name) - line != 73)
			break;
		seen = (uintptr_t)address >= found->start && (uintptr_t)address < found->end;
	}
	fclose(file);
	return seen;
}

static int is_named(const void *address, const char *name)
{
	struct mapping found;

	return find("/proc/self/maps", address, &found) && !strcmp(found.name, name);
}

CASE(rights)
{
	static const struct {
		int protection, flags;
		const char *rights;
	} all[] = {
		{ PROT_NONE, MAP_PRIVATE, "---p" },
		{ PROT_READ, MAP_PRIVATE, "r--p" },
		{ PROT_READ | PROT_WRITE, MAP_PRIVATE, "rw-p" },
		{ PROT_READ | PROT_WRITE, MAP_SHARED, "rw-s" },
		{ PROT_READ | PROT_EXEC, MAP_PRIVATE, "r-xp" },
		{ PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED, "rwxs" },
	};
	struct mapping found;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		/* It is not one with its neighbours. */
		int other = all[i].flags == MAP_PRIVATE ? MAP_SHARED : MAP_PRIVATE;
		char *first = mmap(NULL, 3 * 4096, PROT_NONE, other | MAP_ANONYMOUS, -1, 0);

		PART("%s", all[i].rights);
		CHECK(first != MAP_FAILED);
		CHECK(mmap(first + 4096, 4096, all[i].protection,
			   all[i].flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == first + 4096);
		CHECK(find("/proc/self/maps", first + 4096, &found));
		CHECK(found.start == (uintptr_t)first + 4096);
		CHECK(found.end == (uintptr_t)first + 8192);
		CHECK(!strcmp(found.rights, all[i].rights));
		CHECK(munmap(first, 3 * 4096) == 0);
		CHECK(!find("/proc/self/maps", first + 4096, &found));
	}
}

CASE(files)
{
	/* Linux tells another device than stat(2) of a file of overlayfs. */
	char path[] = "/dev/shm/maps-XXXXXX";
	struct mapping found;
	struct stat status;
	int fd = mkstemp(path);
	char *mapped;

	CHECK(fd >= 0 && ftruncate(fd, 3 * 4096) == 0 && fstat(fd, &status) == 0);
	for (int shared = 0; shared < 2; shared++) {
		PART("%s", shared ? "shared" : "private");
		mapped = mmap(NULL, 4096, PROT_READ, shared ? MAP_SHARED : MAP_PRIVATE, fd, 8192);
		CHECK(mapped != MAP_FAILED);
		CHECK(find("/proc/self/maps", mapped, &found));
		CHECK(!strcmp(found.name, path) && found.offset == 8192);
		CHECK(found.inode == status.st_ino && found.major == major(status.st_dev));
		CHECK(found.minor == minor(status.st_dev));
		CHECK(munmap(mapped, 4096) == 0);
	}
	CHECK(unlink(path) == 0);
}

CASE(parts_of_the_program)
{
	char own[256] = "", *heap = sbrk(4096);
	struct mapping found;
	int local;

	CHECK(readlink("/proc/self/exe", own, sizeof(own) - 1) > 0);
	CHECK(is_named((void *)find, own));
	CHECK(find("/proc/self/maps", (void *)find, &found) && !strcmp(found.rights, "r-xp"));
	CHECK(heap != (void *)-1 && is_named(heap, "[heap]"));
	CHECK(is_named(&local, "[stack]"));
	CHECK(is_named((void *)getauxval(AT_SYSINFO_EHDR), "[vdso]"));
}

static void *look(void *names)
{
	struct mapping found;
	char name[64];
	int local;

	snprintf(name, sizeof(name), "/proc/self/task/%d/maps", (int)syscall(SYS_gettid));
	return (void *)(uintptr_t)(find(name, &local, &found) &&
				   find("/proc/thread-self/maps", names, &found));
}

CASE(other_names_of_the_file)
{
	struct mapping found;
	pthread_t thread;
	char name[64];
	void *seen;
	int local;

	snprintf(name, sizeof(name), "/proc/%d/maps", getpid());
	CHECK(find(name, &local, &found));
	CHECK(pthread_create(&thread, NULL, look, &local) == 0);
	CHECK(pthread_join(thread, &seen) == 0 && seen);
	FAILS(ENOENT, open("/proc/self/mapss", O_RDONLY));
	FAILS(EACCES, access("/proc/self/maps", X_OK));
}

CASE(the_stack_that_glibc_finds)
{
	pthread_attr_t attributes;
	void *start;
	size_t size;
	int local;

	CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
	CHECK(pthread_attr_getstack(&attributes, &start, &size) == 0);
	CHECK((char *)&local >= (char *)start && (char *)&local < (char *)start + size);
}

/* However much there is. */
CASE(many_mappings)
{
	enum { COUNT = 1500 };
	char *all = mmap(NULL, 2 * COUNT * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static char whole[1 << 20], part[10];
	struct mapping found;
	size_t length = 0;
	ssize_t count;
	int fd;

	CHECK(all != MAP_FAILED);
	for (int i = 0; i < COUNT; i++)
		CHECK(mprotect(all + 2 * i * 4096, 4096, PROT_READ) == 0);
	CHECK(find("/proc/self/maps", all + 2 * (COUNT - 1) * 4096, &found));
	CHECK(!strcmp(found.rights, "r--p") && found.end - found.start == 4096);
	/* In whatever parts it is read. */
	fd = open("/proc/self/maps", O_RDONLY);
	while ((count = read(fd, whole + length, 1 + length % 777)) > 0)
		length += count;
	CHECK(count == 0 && length > COUNT * 50);
	for (size_t at = length - 10; at > 20000; at -= 9999)
		CHECK(pread(fd, part, 10, at) == 10 && !memcmp(part, whole + at, 10));
	CHECK(pread(fd, part, 10, length + 5) == 0 && close(fd) == 0);
	CHECK(munmap(all, 2 * COUNT * 4096) == 0);
}

/* What changes meanwhile is told from the beginning on. */
CASE(a_second_look)
{
	int fd = open("/proc/self/maps", O_RDONLY);
	static char before[1 << 16], after[1 << 16];
	char name[64], *mapped;

	CHECK(fd >= 0 && read(fd, before, sizeof(before) - 1) > 0);
	mapped = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(mapped != MAP_FAILED);
	snprintf(name, sizeof(name), "%08lx-%08lx r-xs", (long)mapped, (long)mapped + 4096);
	CHECK(!strstr(before, name));
	CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, after, sizeof(after) - 1) > 0);
	CHECK(strstr(after, name));
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	CHECK(find(name, mapped, &(struct mapping){ 0 }));
	CHECK(close(fd) == 0 && munmap(mapped, 4096) == 0);
}

CASE(a_descriptor_like_others)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), other;
	char first[64], again[64];

	CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK(read(fd, first, sizeof(first)) == sizeof(first));
	CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, again, sizeof(again)) == sizeof(again));
	CHECK(!memcmp(first, again, sizeof(first)));
	CHECK(pread(fd, again, sizeof(again), 10) == sizeof(again));
	CHECK(!memcmp(first + 10, again, sizeof(first) - 10));
	FAILS(EBADF, write(fd, again, 1));
	FAILS(ENODEV, mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
	other = open("/proc/self/maps", O_RDONLY);
	CHECK(other == fd + 1 && fcntl(other, F_GETFD) == 0);
	CHECK(close(fd) == 0 && close(other) == 0);
}
