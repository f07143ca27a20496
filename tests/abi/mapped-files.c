// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/* Shared mappings of files: shm_open, memfd, files of a disk; seen by other processes and, after msync, munmap and exit, by read(2). Private ones. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"
#include "touch.h"

static char *map(int fd, size_t length, int protection, off_t offset)
{
	return mmap(NULL, length, protection, MAP_SHARED, fd, offset);
}

static int status(pid_t child)
{
	int result = -1;

	return waitpid(child, &result, 0) == child ? result : -1;
}

/* A private mapping of the file's start. */
static char *private(int fd)
{
	return mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
}

/* What a new private mapping shows. */
static int shows(int fd, const char *text)
{
	char *own = private(fd);
	int same = own != MAP_FAILED && !strcmp(own, text);

	munmap(own, 2 * PAGE);
	return same;
}

/* Private mappings show what the file has when they are made, also of a file that nobody has changed for long. */
static void privately(int fd)
{
	char *a, *b;
	pid_t child;

	CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, "first", 6, 0) == 6);
	CHECK(shows(fd, "first") && pwrite(fd, "other", 6, 0) == 6 && shows(fd, "other"));
	usleep(1200000);
	a = private(fd);
	b = private(fd);
	CHECK(!strcmp(a, "other") && !strcmp(b, "other") && touch(a + PAGE, 0) == SIGBUS);
	CHECK(mprotect(b, PAGE, PROT_READ) == 0 && mprotect(b, PAGE, PROT_READ | PROT_WRITE) == 0);
	strcpy(a, "mine");
	CHECK(!strcmp(a, "mine") && !strcmp(b, "other") && shows(fd, "other") && b[100] == 0);
	child = fork();
	if (!child) {
		strcpy(b, "child");
		_exit(strcmp(a, "mine") || !shows(fd, "other"));
	}
	CHECK(status(child) == 0 && !strcmp(b, "other"));
	/* read(2) into a page that is still the file's. */
	CHECK(pread(fd, b + 10, 6, 0) == 6 && !strcmp(b + 10, "other") && b[20] == 0 && shows(fd, "other"));
	CHECK(pwrite(fd, "OTHER", 6, 0) == 6 && shows(fd, "OTHER") && munmap(a, 2 * PAGE) == 0);
	usleep(1200000);
	CHECK(shows(fd, "OTHER"));
	a = map(fd, PAGE, PROT_READ | PROT_WRITE, 0);
	strcpy(a, "again");
	CHECK(msync(a, PAGE, MS_SYNC) == 0 && shows(fd, "again"));
	usleep(1200000);
	CHECK(shows(fd, "again"));
	strcpy(a, "twice");
	CHECK(msync(a, PAGE, MS_SYNC) == 0 && shows(fd, "twice"));
	CHECK(munmap(a, PAGE) == 0 && munmap(b, 2 * PAGE) == 0 && shows(fd, "twice"));
	a = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	strcpy(a, "mine");
	CHECK(!strcmp(a, "mine") && shows(fd, "twice") && munmap(a, PAGE) == 0);
}

/* Locked memory beyond the end of its file: mappings succeed, as dynamic linkers need it, and only who asks for just these pages is told. */
static void locked(void)
{
	char path[] = "/tmp/mapped-XXXXXX", *a, *b;
	int fd = mkstemp(path);

	CHECK(fd >= 0 && pwrite(fd, "locked", 7, 0) == 7);
	a = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	FAILS(ENOMEM, mlock(a, 2 * PAGE));
	FAILS(EFAULT, madvise(a, 2 * PAGE, MADV_POPULATE_READ));
	CHECK(mlock(a, PAGE) == 0 && mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
	for (int flags = MAP_SHARED; flags <= MAP_PRIVATE; flags++) {
		b = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
		CHECK(b != MAP_FAILED && !strcmp(b, "locked") && touch(b + PAGE, 0) == SIGBUS && munmap(b, 3 * PAGE) == 0);
	}
	b = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, PAGE);
	CHECK(b != MAP_FAILED && touch(b, 0) == SIGBUS && munmap(b, PAGE) == 0);
	CHECK(munlockall() == 0 && munmap(a, 2 * PAGE) == 0 && close(fd) == 0 && unlink(path) == 0);
}

int main(void)
{
	char name[64], path[] = "/tmp/mapped-XXXXXX", buffer[16] = "";
	pthread_mutexattr_t shared;
	pthread_mutex_t *mutex;
	struct stat stat;
	char *a, *b;
	int fd, other;
	pid_t child;

	signal(SIGBUS, caught);
	signal(SIGSEGV, caught);

	/* POSIX shared memory, opened by name in two processes. */
	snprintf(name, sizeof(name), "/crtos-test-%d", getpid());
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && ftruncate(fd, 3 * PAGE) == 0);
	a = map(fd, 3 * PAGE, PROT_READ | PROT_WRITE, 0);
	CHECK(a != MAP_FAILED && a[0] == 0 && close(fd) == 0);
	strcpy(a, "parent");
	mutex = (void *)(a + PAGE);
	pthread_mutexattr_init(&shared);
	pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(mutex, &shared);
	child = fork();
	if (!child) {
		int own = shm_open(name, O_RDWR, 0);
		char *mine = map(own, 3 * PAGE, PROT_READ | PROT_WRITE, 0);

		if (mine == MAP_FAILED || mine == a || strcmp(mine, "parent"))
			_exit(1);
		for (int i = 0; i < 200; i++) {
			pthread_mutex_lock((void *)(mine + PAGE));
			++*(int *)(mine + 2 * PAGE);
			pthread_mutex_unlock((void *)(mine + PAGE));
		}
		strcpy(mine, "child");
		_exit(0);
	}
	for (int i = 0; i < 200; i++) {
		pthread_mutex_lock(mutex);
		++*(int *)(a + 2 * PAGE);
		pthread_mutex_unlock(mutex);
	}
	CHECK(status(child) == 0 && !strcmp(a, "child") && *(int *)(a + 2 * PAGE) == 400);
	/* What read(2) sees after msync. */
	strcpy(a, "synced");
	CHECK(msync(a, 3 * PAGE, MS_SYNC) == 0);
	fd = shm_open(name, O_RDONLY, 0);
	CHECK(fd >= 0 && read(fd, buffer, 7) == 7 && !strcmp(buffer, "synced"));
	b = map(fd, PAGE, PROT_READ, 0);
	CHECK(b != MAP_FAILED && !strcmp(b, "synced"));
	strcpy(a, "again");
	CHECK(!strcmp(b, "again"));
	FAILS(EACCES, mprotect(b, PAGE, PROT_READ | PROT_WRITE));
	CHECK(map(fd, PAGE, PROT_READ | PROT_WRITE, 0) == MAP_FAILED && errno == EACCES);
	CHECK(munmap(a, 3 * PAGE) == 0 && munmap(b, PAGE) == 0);
	CHECK(pread(fd, buffer, 6, 0) == 6 && !strcmp(buffer, "again"));
	/* The same when the first mapping is one that may only be read. */
	b = map(fd, PAGE, PROT_READ, 0);
	other = shm_open(name, O_RDWR, 0);
	a = map(other, PAGE, PROT_READ | PROT_WRITE, 0);
	strcpy(a, "third");
	CHECK(!strcmp(b, "third") && msync(a, PAGE, MS_SYNC) == 0 && pread(fd, buffer, 6, 0) == 6 && !strcmp(buffer, "third"));
	CHECK(munmap(a, PAGE) == 0 && munmap(b, PAGE) == 0 && close(other) == 0);
	CHECK(close(fd) == 0 && shm_unlink(name) == 0);

	/* A file that has contents; the end of the file; a child that ends without munmap. */
	fd = mkstemp(path);
	CHECK(fd >= 0 && ftruncate(fd, PAGE + 10) == 0 && pwrite(fd, "first", 5, 0) == 5 && pwrite(fd, "second", 6, PAGE) == 6);
	a = map(fd, 4 * PAGE, PROT_READ | PROT_WRITE, 0);
	CHECK(a != MAP_FAILED && !memcmp(a, "first", 5) && !memcmp(a + PAGE, "second", 6) && a[PAGE + 100] == 0);
	CHECK(touch(a + 2 * PAGE, 0) == SIGBUS && touch(a + 3 * PAGE, 0) == SIGBUS);
	CHECK(ftruncate(fd, 3 * PAGE) == 0 && touch(a + 2 * PAGE, 0) == 0 && touch(a + 3 * PAGE, 0) == SIGBUS);
	b = map(fd, PAGE, PROT_READ | PROT_WRITE, PAGE);
	CHECK(b != MAP_FAILED && !memcmp(b, "second", 6));
	child = fork();
	if (!child) {
		memcpy(a, "FIRST", 5);
		memcpy(b, "SECOND", 6);
		_exit(0);
	}
	CHECK(status(child) == 0 && !memcmp(a, "FIRST", 5) && !memcmp(a + PAGE, "SECOND", 6));
	CHECK(pread(fd, buffer, 5, 0) == 5 && !memcmp(buffer, "FIRST", 5));
	CHECK(pread(fd, buffer, 6, PAGE) == 6 && !memcmp(buffer, "SECOND", 6));
	/* read(2) into the mapping. */
	CHECK(pwrite(fd, "linux", 5, 2 * PAGE) == 5 && pread(fd, a + 100, 5, 2 * PAGE) == 5 && !memcmp(a + 100, "linux", 5));
	CHECK(munmap(a, 4 * PAGE) == 0 && pread(fd, buffer, 5, 100) == 5 && !memcmp(buffer, "linux", 5));
	CHECK(munmap(b, PAGE) == 0 && fstat(fd, &stat) == 0 && stat.st_size == 3 * PAGE);
	/* Errors. */
	other = open(path, O_WRONLY);
	CHECK(map(other, PAGE, PROT_WRITE, 0) == MAP_FAILED && errno == EACCES);
	close(other);
	CHECK(map(-1, PAGE, PROT_READ, 0) == MAP_FAILED && errno == EBADF);
	CHECK(map(fd, PAGE, PROT_READ, 1) == MAP_FAILED && errno == EINVAL);
	other = open("/tmp", O_RDONLY);
	CHECK(map(other, PAGE, PROT_READ, 0) == MAP_FAILED && errno == ENODEV);
	close(other);
	privately(fd);
	locked();
	close(fd);
	unlink(path);

	/* memfd, over fork. */
	fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0);
	a = map(fd, 2 * PAGE, PROT_READ | PROT_WRITE, 0);
	child = fork();
	if (!child) {
		b = map(fd, PAGE, PROT_READ | PROT_WRITE, PAGE);
		b[0] = 'm';
		_exit(0);
	}
	CHECK(status(child) == 0 && a[PAGE] == 'm');
	CHECK(munmap(a, 2 * PAGE) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
	CHECK(map(fd, PAGE, PROT_READ | PROT_WRITE, 0) == MAP_FAILED && errno == EPERM);
	close(fd);
	return finish();
}
