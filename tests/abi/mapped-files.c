// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/*
 * Mappings of files of a disk, of shm_open and of memfd. Other processes see the shared ones, and
 * read(2) does after msync, munmap and exit. The private ones are the program's own.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "check.h"
#include "children.h"
#include "touch.h"

/* Makes a shared mapping. */
static char *map(int fd, size_t length, int protection, off_t offset)
{
	return mmap(NULL, length, protection, MAP_SHARED, fd, offset);
}

/* Makes a private mapping of the file's start. */
static char *private(int fd)
{
	return mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
}

/* Tells whether a new private mapping shows this. */
static int shows(int fd, const char *text)
{
	char *own = private(fd);
	int same = own != MAP_FAILED && !strcmp(own, text);

	munmap(own, 2 * PAGE);
	return same;
}

/* Makes a file without a name. */
static int make(void)
{
	char path[] = "/tmp/mapped-XXXXXX";
	int fd = mkstemp(path);

	CHECK(fd >= 0 && unlink(path) == 0);
	return fd;
}

/* Makes a file of one page that begins with this text. */
static int make_with(const char *text)
{
	int fd = make();

	CHECK(pwrite(fd, text, strlen(text) + 1, 0) == (ssize_t)strlen(text) + 1);
	return fd;
}

BEFORE_EACH
{
	signal(SIGBUS, caught);
	signal(SIGSEGV, caught);
}

/* The name of a POSIX shared memory that only this process uses. */
static char name[64];

static int make_shared_memory(void)
{
	int fd;

	snprintf(name, sizeof(name), "/crtos-test-%d", getpid());
	shm_unlink(name);
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && ftruncate(fd, 3 * PAGE) == 0);
	return fd;
}

/* A mutex in that memory works. */
CASE(two_processes_share_memory_by_its_name)
{
	pthread_mutexattr_t shared;
	pthread_mutex_t *mutex;
	char *a;
	pid_t child;

	int fd = make_shared_memory();

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
	CHECK(status_of(child) == 0 && !strcmp(a, "child") && *(int *)(a + 2 * PAGE) == 400);
	CHECK(munmap(a, 3 * PAGE) == 0 && shm_unlink(name) == 0);
}

CASE(read_shows_shared_memory_after_msync)
{
	char *a, buffer[16] = "";

	int other = make_shared_memory(), fd = shm_open(name, O_RDONLY, 0);

	a = map(other, 3 * PAGE, PROT_READ | PROT_WRITE, 0);
	CHECK(a != MAP_FAILED && close(other) == 0);
	strcpy(a, "synced");
	CHECK(msync(a, 3 * PAGE, MS_SYNC) == 0);
	CHECK(fd >= 0 && read(fd, buffer, 7) == 7 && !strcmp(buffer, "synced"));
	CHECK(munmap(a, 3 * PAGE) == 0 && close(fd) == 0 && shm_unlink(name) == 0);
}

CASE(a_read_only_descriptor_gives_read_only_memory)
{
	char *a, *b, buffer[16] = "";

	int other = make_shared_memory(), fd = shm_open(name, O_RDONLY, 0);

	a = map(other, 3 * PAGE, PROT_READ | PROT_WRITE, 0);
	CHECK(a != MAP_FAILED && close(other) == 0);
	strcpy(a, "synced");
	b = map(fd, PAGE, PROT_READ, 0);
	CHECK(b != MAP_FAILED && !strcmp(b, "synced"));
	strcpy(a, "again");
	CHECK(!strcmp(b, "again"));
	FAILS(EACCES, mprotect(b, PAGE, PROT_READ | PROT_WRITE));
	CHECK(map(fd, PAGE, PROT_READ | PROT_WRITE, 0) == MAP_FAILED && errno == EACCES);
	CHECK(munmap(a, 3 * PAGE) == 0 && munmap(b, PAGE) == 0);
	CHECK(pread(fd, buffer, 6, 0) == 6 && !strcmp(buffer, "again"));
	CHECK(close(fd) == 0 && shm_unlink(name) == 0);
}

CASE(a_mapping_for_reading_may_come_first)
{
	char *a, *b, buffer[16] = "";
	int fd, other;

	CHECK(close(make_shared_memory()) == 0);
	fd = shm_open(name, O_RDONLY, 0);
	b = map(fd, PAGE, PROT_READ, 0);
	other = shm_open(name, O_RDWR, 0);
	a = map(other, PAGE, PROT_READ | PROT_WRITE, 0);
	strcpy(a, "third");
	CHECK(!strcmp(b, "third") && msync(a, PAGE, MS_SYNC) == 0 && pread(fd, buffer, 6, 0) == 6 &&
	      !strcmp(buffer, "third"));
	CHECK(munmap(a, PAGE) == 0 && munmap(b, PAGE) == 0 && close(other) == 0);
	CHECK(close(fd) == 0 && shm_unlink(name) == 0);
}

/* It is there as soon as the file grows. */
CASE(memory_behind_the_end_of_the_file_is_not_there)
{
	int fd = make();
	char *a;

	CHECK(fd >= 0 && ftruncate(fd, PAGE + 10) == 0 && pwrite(fd, "first", 5, 0) == 5 &&
	      pwrite(fd, "second", 6, PAGE) == 6);
	a = map(fd, 4 * PAGE, PROT_READ | PROT_WRITE, 0);
	CHECK(a != MAP_FAILED && !memcmp(a, "first", 5) && !memcmp(a + PAGE, "second", 6) &&
	      a[PAGE + 100] == 0);
	CHECK(touch(a + 2 * PAGE, 0) == SIGBUS && touch(a + 3 * PAGE, 0) == SIGBUS);
	CHECK(ftruncate(fd, 3 * PAGE) == 0 && touch(a + 2 * PAGE, 0) == 0 &&
	      touch(a + 3 * PAGE, 0) == SIGBUS);
	CHECK(munmap(a, 4 * PAGE) == 0);
}

/* The child does not call munmap. */
CASE(what_a_child_writes_stays_when_it_ends)
{
	int fd = make();
	char *a, *b, buffer[16] = "";
	pid_t child;

	CHECK(fd >= 0 && ftruncate(fd, PAGE + 10) == 0 && pwrite(fd, "first", 5, 0) == 5 &&
	      pwrite(fd, "second", 6, PAGE) == 6);
	a = map(fd, 4 * PAGE, PROT_READ | PROT_WRITE, 0);
	CHECK(a != MAP_FAILED && ftruncate(fd, 3 * PAGE) == 0);
	b = map(fd, PAGE, PROT_READ | PROT_WRITE, PAGE);
	CHECK(b != MAP_FAILED && !memcmp(b, "second", 6));
	child = fork();
	if (!child) {
		memcpy(a, "FIRST", 5);
		memcpy(b, "SECOND", 6);
		_exit(0);
	}
	CHECK(status_of(child) == 0 && !memcmp(a, "FIRST", 5) && !memcmp(a + PAGE, "SECOND", 6));
	CHECK(pread(fd, buffer, 5, 0) == 5 && !memcmp(buffer, "FIRST", 5));
	CHECK(pread(fd, buffer, 6, PAGE) == 6 && !memcmp(buffer, "SECOND", 6));
	CHECK(munmap(a, 4 * PAGE) == 0 && munmap(b, PAGE) == 0);
}

CASE(read_goes_into_the_mapping_of_its_file)
{
	int fd = make();
	char *a, *b, buffer[16] = "";
	struct stat stat;

	CHECK(fd >= 0 && ftruncate(fd, PAGE + 10) == 0 && pwrite(fd, "first", 5, 0) == 5 &&
	      pwrite(fd, "second", 6, PAGE) == 6);
	a = map(fd, 4 * PAGE, PROT_READ | PROT_WRITE, 0);
	CHECK(a != MAP_FAILED && ftruncate(fd, 3 * PAGE) == 0);
	b = map(fd, PAGE, PROT_READ | PROT_WRITE, PAGE);
	CHECK(pwrite(fd, "linux", 5, 2 * PAGE) == 5 && pread(fd, a + 100, 5, 2 * PAGE) == 5 &&
	      !memcmp(a + 100, "linux", 5));
	CHECK(munmap(a, 4 * PAGE) == 0 && pread(fd, buffer, 5, 100) == 5 && !memcmp(buffer, "linux", 5));
	CHECK(munmap(b, PAGE) == 0 && fstat(fd, &stat) == 0 && stat.st_size == 3 * PAGE);
}

CASE(mappings_that_the_file_does_not_allow_are_refused)
{
	char path[] = "/tmp/mapped-XXXXXX";
	int fd = mkstemp(path), other;

	other = open(path, O_WRONLY);
	CHECK(map(other, PAGE, PROT_WRITE, 0) == MAP_FAILED && errno == EACCES);
	close(other);
	CHECK(map(-1, PAGE, PROT_READ, 0) == MAP_FAILED && errno == EBADF);
	CHECK(map(fd, PAGE, PROT_READ, 1) == MAP_FAILED && errno == EINVAL);
	other = open("/tmp", O_RDONLY);
	CHECK(map(other, PAGE, PROT_READ, 0) == MAP_FAILED && errno == ENODEV);
	close(other);
	CHECK(close(fd) == 0 && unlink(path) == 0);
}

/* The descriptor comes first, then length and kind, then the rights. */
CASE(a_mapping_that_is_wrong_in_two_ways_has_the_error_of_linux)
{
	char path[] = "/tmp/mapped-XXXXXX";
	int fd = mkstemp(path), other = open(path, O_WRONLY);
	char *taken = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(taken != MAP_FAILED);
	FAILS(EBADF, (long)mmap(NULL, 0, PROT_READ, MAP_SHARED, -1, 0));
	FAILS(EINVAL, (long)mmap(NULL, 0, PROT_READ, MAP_SHARED, -1, 1));
	FAILS(EINVAL, (long)mmap(NULL, 0, PROT_READ, MAP_SHARED, other, 0));
	FAILS(EINVAL, (long)mmap(NULL, PAGE, PROT_READ, 0, other, 0));
	FAILS(EBADF, (long)mmap(NULL, PAGE, PROT_READ, 0, -1, 0));
	FAILS(EACCES, (long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, other, 0));
	FAILS(EINVAL, (long)mmap(taken + 8, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, other, 0));
	FAILS(EBADF, (long)mmap(taken + 8, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, -1, 0));
	FAILS(EEXIST, (long)mmap(taken, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_FIXED_NOREPLACE,
				 fd, 0));
	FAILS(EEXIST, (long)mmap(taken, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE,
				 other, 0));
	FAILS(EEXIST, (long)mmap(taken, PAGE, PROT_READ, MAP_FIXED_NOREPLACE, fd, 0));
	CHECK(munmap(taken, PAGE) == 0);
	FAILS(EOPNOTSUPP, (long)mmap(taken, PAGE, PROT_READ,
				     MAP_SHARED_VALIDATE | MAP_FIXED_NOREPLACE, fd, 0));
	CHECK(close(other) == 0 && close(fd) == 0 && unlink(path) == 0);
}

/* Says whether a mapping of a file with these flags fails with that error. */
static int refuses(int fd, int flags, int error)
{
	return mmap(NULL, PAGE, PROT_READ, flags, fd, 0) == MAP_FAILED && errno == error;
}

/* Who asks for storage that keeps what is stored (MAP_SYNC) has to know that it is none. */
CASE(flags_that_the_file_does_not_know_are_refused)
{
	int fd = make_with("text"), other = make_shared_memory();
	const int files[] = { fd, other };

	for (int i = 0; i < 2; i++) {
		const int unknown[] = { MAP_SYNC, MAP_FIXED_NOREPLACE, 0x800000 };

		for (int j = 0; j < 3; j++)
			CHECK(refuses(files[i], MAP_SHARED_VALIDATE | unknown[j], EOPNOTSUPP));
		CHECK(refuses(files[i], MAP_SHARED | MAP_HUGETLB, EINVAL));
		CHECK(refuses(files[i], MAP_PRIVATE | MAP_HUGETLB, EINVAL));
		CHECK(refuses(files[i], MAP_SHARED | MAP_GROWSDOWN, EINVAL));
		CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_POPULATE,
			   files[i], 0) != MAP_FAILED);
	}
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0) ==
	      MAP_FAILED && errno == EINVAL);
	CHECK(close(fd) == 0 && close(other) == 0 && shm_unlink(name) == 0);
}

/* Programs read it then. */
CASE(what_the_kernel_makes_up_when_it_is_read_cannot_be_mapped)
{
	static const char *const paths[] = { "/proc/self/maps", "/sys/kernel/mm/ksm/run" };

	for (int i = 0; i < 2; i++) {
		int fd = open(paths[i], O_RDONLY);

		CHECK(fd >= 0);
		FAILS(ENODEV, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
		FAILS(ENODEV, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0));
		CHECK(close(fd) == 0);
	}
}

CASE(only_memory_of_no_file_can_be_freed_later)
{
	int fd = make_with("text");
	char *shared = map(fd, PAGE, PROT_READ | PROT_WRITE, 0), *own = private(fd);
	char *none = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	strcpy(shared, "shared");
	strcpy(own, "own");
	strcpy(none, "none");
	FAILS(EINVAL, madvise(shared, PAGE, MADV_FREE));
	FAILS(EINVAL, madvise(own, PAGE, MADV_FREE));
	FAILS(EINVAL, madvise(none, PAGE, MADV_FREE));
	CHECK(!strcmp(shared, "shared") && !strcmp(own, "own") && !strcmp(none, "none"));
	CHECK(munmap(shared, PAGE) == 0 && munmap(own, 2 * PAGE) == 0 && munmap(none, PAGE) == 0);
	CHECK(close(fd) == 0);
}

CASE(a_private_mapping_shows_what_the_file_has)
{
	int fd = make_with("what was there before");

	CHECK(shows(fd, "what was there before"));
	CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, "first", 6, 0) == 6);
	CHECK(shows(fd, "first") && pwrite(fd, "other", 6, 0) == 6 && shows(fd, "other"));
}

/* The file has not changed for long, so its pages may be cached. */
CASE(private_mappings_do_not_show_each_others_changes)
{
	int fd = make_with("other");
	char *a, *b;
	pid_t child;

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
	CHECK(status_of(child) == 0 && !strcmp(b, "other"));
	CHECK(munmap(a, 2 * PAGE) == 0 && munmap(b, 2 * PAGE) == 0);
}

/* The program has not changed the page before. */
CASE(read_goes_into_a_private_page)
{
	int fd = make_with("other");
	char *b;

	usleep(1200000);
	b = private(fd);
	CHECK(pread(fd, b + 10, 6, 0) == 6 && !strcmp(b + 10, "other") && b[20] == 0 && shows(fd, "other"));
	CHECK(munmap(b, 2 * PAGE) == 0);
}

CASE(a_new_private_mapping_shows_a_change_of_the_file)
{
	int fd = make_with("other");
	char *a, *b;

	a = private(fd);
	b = private(fd);
	CHECK(!strcmp(a, "other") && !strcmp(b, "other"));
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
}

CASE(a_populated_private_mapping_is_the_programs_own)
{
	int fd = make_with("twice");
	char *a;

	a = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	strcpy(a, "mine");
	CHECK(!strcmp(a, "mine") && shows(fd, "twice") && munmap(a, PAGE) == 0);
}

CASE(locking_pages_behind_the_end_fails)
{
	int fd = make_with("locked");
	char *a;

	a = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	FAILS(ENOMEM, mlock(a, 2 * PAGE));
	FAILS(EFAULT, madvise(a, 2 * PAGE, MADV_POPULATE_READ));
	CHECK(munmap(a, 2 * PAGE) == 0);
}

/* Dynamic linkers need that. */
CASE(a_mapping_beyond_the_end_succeeds_while_all_is_locked)
{
	int fd = make_with("locked");
	char *a, *b;

	a = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(mlock(a, PAGE) == 0 && mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
	for (int flags = MAP_SHARED; flags <= MAP_PRIVATE; flags++) {
		b = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
		CHECK(b != MAP_FAILED && !strcmp(b, "locked") && touch(b + PAGE, 0) == SIGBUS &&
		      munmap(b, 3 * PAGE) == 0);
	}
	b = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, PAGE);
	CHECK(b != MAP_FAILED && touch(b, 0) == SIGBUS && munmap(b, PAGE) == 0);
	CHECK(munlockall() == 0 && munmap(a, 2 * PAGE) == 0 && close(fd) == 0);
}

/* Linux refuses the seal while somebody may write to the pages, or holds them. */
CASE(a_file_is_free_when_its_last_user_has_ended)
{
	for (int turn = 0; turn < 10; turn++) {
		int fd = memfd_create("free", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		pid_t child;
		char *a;

		CHECK(fd >= 0 && ftruncate(fd, 3 * PAGE) == 0);
		child = fork();
		if (!child) {
			a = map(fd, 3 * PAGE, PROT_READ | PROT_WRITE, 0);
			memset(a, 'c', 3 * PAGE);
			if (turn % 2)
				kill(getpid(), SIGKILL);
			_exit(0);
		}
		CHECK(waitpid(child, NULL, 0) == child);
		CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0 && close(fd) == 0);
	}
}

CASE(a_file_is_free_when_it_is_unmapped)
{
	for (int turn = 0; turn < 10; turn++) {
		int fd = memfd_create("free", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		char *a;

		CHECK(fd >= 0 && ftruncate(fd, 3 * PAGE) == 0);
		a = map(fd, 3 * PAGE, PROT_READ | PROT_WRITE, 0);
		memset(a, 'u', 3 * PAGE);
		CHECK(munmap(a, 3 * PAGE) == 0);
		CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0 && close(fd) == 0);
	}
}

CASE(a_child_writes_to_a_memfd)
{
	int fd;
	char *a, *b;
	pid_t child;

	fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0);
	a = map(fd, 2 * PAGE, PROT_READ | PROT_WRITE, 0);
	child = fork();
	if (!child) {
		b = map(fd, PAGE, PROT_READ | PROT_WRITE, PAGE);
		b[0] = 'm';
		_exit(0);
	}
	CHECK(status_of(child) == 0 && a[PAGE] == 'm');
	CHECK(munmap(a, 2 * PAGE) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
	CHECK(map(fd, PAGE, PROT_READ | PROT_WRITE, 0) == MAP_FAILED && errno == EPERM);
	close(fd);
}

CASE(parts_of_a_file_that_follow_each_other_are_mapped_by_themselves)
{
	int files[] = { make(), make_shared_memory(), memfd_create("parts", 0) };

	shm_unlink(name);
	for (int i = 0; i < 3; i++) {
		int fd = files[i];
		char *whole, *part[4];

		CHECK(ftruncate(fd, 4 * PAGE) == 0);
		for (int k = 0; k < 4; k++) {
			part[k] = map(fd, PAGE, PROT_READ | (k == 2 ? 0 : PROT_WRITE), k * PAGE);
			CHECK(part[k] != MAP_FAILED && touch(part[k], k != 2) == 0);
		}
		whole = map(fd, 4 * PAGE, PROT_READ | PROT_WRITE, 0);
		CHECK(whole[0] == 1 && whole[PAGE] == 1 && whole[3 * PAGE] == 1);
		whole[2 * PAGE] = 'w';
		CHECK(part[2][0] == 'w' && munmap(part[1], PAGE) == 0);
		whole[2 * PAGE] = 'x';
		CHECK(part[2][0] == 'x' && part[3][0] == 1 && touch(part[2], 1) == SIGSEGV);
		CHECK(munmap(whole, 4 * PAGE) == 0 && part[3][0] == 1 && close(fd) == 0);
		for (int k = 0; k < 4; k++)
			munmap(part[k], PAGE);
	}
}

/* As a program has more of a file that others make longer. */
CASE(a_mapping_of_a_file_in_memory_becomes_longer)
{
	int files[] = { make_shared_memory(), memfd_create("longer", 0) };

	shm_unlink(name);
	for (int i = 0; i < 2; i++) {
		int fd = files[i];
		char *a, *b, *room;

		CHECK(ftruncate(fd, 2 * PAGE) == 0);
		a = map(fd, PAGE, PROT_READ | PROT_WRITE, PAGE);
		a[0] = 'a';
		a = mremap(a, PAGE, 3 * PAGE, MREMAP_MAYMOVE);
		CHECK(a != MAP_FAILED && a[0] == 'a' && touch(a + PAGE, 1) == SIGBUS);
		CHECK(ftruncate(fd, 8 * PAGE) == 0 && touch(a + 2 * PAGE, 1) == 0);
		CHECK(close(fd) == 0);
		room = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(mremap(a, 3 * PAGE, 7 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room) == room);
		CHECK(room[0] == 'a' && room[2 * PAGE] == 1 && touch(room + 6 * PAGE, 1) == 0);
		/* A second mapping, longer than the first one. */
		b = mremap(room, 0, 9 * PAGE, MREMAP_MAYMOVE);
		CHECK(b != MAP_FAILED && b[6 * PAGE] == 1 && touch(b + 7 * PAGE, 1) == SIGBUS);
		CHECK(munmap(room, 7 * PAGE) == 0 && b[2 * PAGE] == 1);
		b[3 * PAGE] = 'b';
		if (!fork()) {
			b = mremap(b, 9 * PAGE, 30 * PAGE, MREMAP_MAYMOVE);
			_exit(b == MAP_FAILED || b[3 * PAGE] != 'b' || touch(b + PAGE, 1));
		}
		CHECK(status_of(-1) == 0 && b[PAGE] == 1 && munmap(b, 9 * PAGE) == 0);
	}
}

CASE(memory_that_is_mapped_locked_is_locked)
{
	int fd = make_shared_memory();
	char *a = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_LOCKED, fd, 0);

	shm_unlink(name);
	/* The file has three pages. */
	CHECK(a != MAP_FAILED && touch(a + 3 * PAGE, 0) == SIGBUS);
	FAILS(EBUSY, msync(a, PAGE, MS_INVALIDATE));
	FAILS(EINVAL, madvise(a, PAGE, MADV_DONTNEED));
	FAILS(EINVAL, madvise(a, PAGE, MADV_REMOVE));
	FAILS(EINVAL, madvise(a, PAGE, MADV_COLD));
	FAILS(EINVAL, madvise(a, PAGE, MADV_PAGEOUT));
	CHECK(munlock(a, 4 * PAGE) == 0 && madvise(a, PAGE, MADV_PAGEOUT) == 0);
	CHECK(munmap(a, 4 * PAGE) == 0 && close(fd) == 0);
}

/* Tells which of the pages are in memory, as a number in base 2. */
static unsigned present(char *memory, int pages)
{
	unsigned char vector[32];
	unsigned all = 0;

	CHECK(mincore(memory, pages * PAGE, vector) == 0);
	for (int i = 0; i < pages; i++)
		all |= (vector[i] & 1u) << i;
	return all;
}

CASE(pages_of_a_file_in_memory_are_there_when_they_are_made)
{
	int fd = memfd_create("pages", 0);
	struct stat status;
	char *a;

	CHECK(ftruncate(fd, 8 * PAGE) == 0);
	a = map(fd, 8 * PAGE, PROT_READ | PROT_WRITE, 0);
	CHECK(present(a, 8) == 0);
	a[2 * PAGE] = 1;
	CHECK(pwrite(fd, "w", 1, 5 * PAGE) == 1 && present(a, 8) == 0x24);
	CHECK(mprotect(a, PAGE, PROT_READ) == 0 && present(a + PAGE, 6) == 0x12);
	/* No memory is taken for what is only to be locked when it comes. */
	CHECK(mlock2(a, 8 * PAGE, MLOCK_ONFAULT) == 0 && present(a, 8) == 0x24);
	CHECK(fstat(fd, &status) == 0 && status.st_blocks == 2 * 8 && munlock(a, 8 * PAGE) == 0);
	CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * PAGE, PAGE) == 0);
	CHECK(present(a, 8) == 0x20 && fstat(fd, &status) == 0 && status.st_blocks == 8);
	CHECK(mlock(a + 6 * PAGE, PAGE) == 0 && present(a, 8) == 0x60);
	CHECK(munlock(a, 8 * PAGE) == 0 && ftruncate(fd, PAGE) == 0 && present(a, 8) == 0);
	CHECK(mlock2(a, 8 * PAGE, MLOCK_ONFAULT) == 0 && munlock(a, 8 * PAGE) == 0);
	CHECK(munmap(a, 8 * PAGE) == 0 && close(fd) == 0);
}

CASE(pages_of_a_file_in_memory_move_and_leave_their_mapping)
{
	int fd = memfd_create("moved", 0);
	char *a, *b, *own;

	CHECK(ftruncate(fd, 4 * PAGE) == 0);
	a = map(fd, 4 * PAGE, PROT_READ | PROT_WRITE, 0);
	memset(a, 'a', 4 * PAGE);
	b = (char *)syscall(SYS_mremap, a + PAGE, 2 * PAGE, 2 * PAGE,
			    MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(b != MAP_FAILED && b[0] == 'a' && a[PAGE] == 'a');
	a[PAGE] = 'b';
	CHECK(b[0] == 'b' && munmap(a, 4 * PAGE) == 0 && b[PAGE] == 'a');
	b[PAGE] = 'c';
	own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 2 * PAGE);
	own[1] = 'o';
	a = (char *)syscall(SYS_mremap, own, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(a != MAP_FAILED && a[0] == 'c' && a[1] == 'o' && own[0] == 'c' && own[1] == 'a');
	CHECK(munmap(a, PAGE) == 0 && munmap(own, PAGE) == 0 && munmap(b, 2 * PAGE) == 0);
	CHECK(close(fd) == 0);
}

CASE(no_file_is_mapped_to_grow_down)
{
	int fd = make_with("file");

	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_GROWSDOWN, fd, 0));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_GROWSDOWN, fd, 0));
	CHECK(close(fd) == 0);
	/* What cannot be mapped anyhow. */
	fd = open("/dev/shm", O_RDONLY);
	FAILS(ENODEV, mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_GROWSDOWN, fd, 0));
	FAILS(ENODEV, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_GROWSDOWN, fd, 0));
	CHECK(close(fd) == 0);
	fd = open("/dev/shm", O_TMPFILE | O_WRONLY, 0600);
	FAILS(EACCES, mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_GROWSDOWN, fd, 0));
	FAILS(EACCES, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_GROWSDOWN, fd, 0));
	CHECK(close(fd) == 0);
}

/* Since Linux 6.7, whatever rights the mapping has. */
CASE(who_may_write_to_a_file_makes_holes)
{
	int fd = make_shared_memory(), reader = shm_open(name, O_RDONLY, 0), major, minor;
	char *a = map(fd, PAGE, PROT_READ, 0), *b = map(reader, PAGE, PROT_READ, 0);
	struct utsname about;

	shm_unlink(name);
	CHECK(pwrite(fd, "a", 1, 0) == 1 && a[0] == 'a');
	FAILS(EACCES, madvise(b, PAGE, MADV_REMOVE));
	CHECK(uname(&about) == 0 && sscanf(about.release, "%d.%d", &major, &minor) == 2);
	if (major > 6 || (major == 6 && minor >= 7))
		CHECK(madvise(a, PAGE, MADV_REMOVE) == 0 && a[0] == 0 && b[0] == 0);
	CHECK(munmap(a, PAGE) == 0 && munmap(b, PAGE) == 0 && close(fd) == 0 && close(reader) == 0);
}

CASE(a_private_mapping_makes_no_hole)
{
	int fd = make_shared_memory();
	char *a = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	shm_unlink(name);
	FAILS(EACCES, madvise(a, PAGE, MADV_REMOVE));
	CHECK(munmap(a, PAGE) == 0 && close(fd) == 0);
}

/* While another part of it stays mapped. */
CASE(a_part_of_a_file_that_nobody_maps_is_cut_as_well)
{
	int files[] = { make_shared_memory(), memfd_create("cut", 0) };

	shm_unlink(name);
	for (int turn = 0; turn < 4; turn++) {
		int fd = files[turn % 2];
		char *stays, *a, byte;
		pid_t child = 0;

		CHECK(ftruncate(fd, 4 * PAGE) == 0);
		stays = map(fd, PAGE, PROT_READ | PROT_WRITE, 0);
		stays[0] = 's';
		if (turn >= 2)
			child = fork();
		if (!child) {
			a = map(fd, PAGE, PROT_READ | PROT_WRITE, 2 * PAGE);
			a[0] = 'a';
			if (turn >= 2)
				kill(getpid(), SIGKILL);
			CHECK(munmap(a, PAGE) == 0);
		} else {
			CHECK(waitpid(child, NULL, 0) == child);
		}
		CHECK(pread(fd, &byte, 1, 2 * PAGE) == 1 && byte == 'a');
		CHECK(ftruncate(fd, PAGE) == 0 && ftruncate(fd, 4 * PAGE) == 0);
		a = map(fd, PAGE, PROT_READ | PROT_WRITE, 2 * PAGE);
		CHECK(a[0] == 0 && stays[0] == 's');
		a[0] = 'b';
		CHECK(pread(fd, &byte, 1, 2 * PAGE) == 1 && byte == 'b');
		CHECK(munmap(a, PAGE) == 0 && munmap(stays, PAGE) == 0);
	}
}
