// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * halves KIND NAME ROLE: two programs, role 0 and role 1, on one piece of memory.
 *
 * KIND is `file` (NAME is its path), `memfd` (in the file NAME role 0 leaves where it is found),
 * or `sysv` (NAME is the key). The roles agree by the memory alone. Each prints what it saw; the
 * same whoever runs where. MESSAGES in the environment is how many they exchange, and how often
 * they count; 20,000 if it is not there.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define PAGES 64UL
/* Pages for agreement and messages. */
#define HEAD 9UL
#define SIZE (PAGES * PAGE)
#define TURNS 500
#define SLOTS 2048UL
#define PATIENCE 200

struct ring {
	_Atomic uint64_t written;
	_Atomic uint64_t read;
	uint64_t slots[SLOTS];
};

struct shared {
	_Atomic uint32_t magic;
	_Atomic uint32_t arrived[2];
	_Atomic uint32_t turn;
	_Atomic uint64_t counter;
	struct ring ring[2];
	_Alignas(4096) char pages[PAGES - HEAD][PAGE];
};

_Static_assert(sizeof(struct shared) == SIZE, "HEAD is what comes before the pages");

static struct shared *shared;
static int role, fd = -1;
static uint64_t messages = 20000;
static sigjmp_buf after_fault;
static struct timespec begin;

static void fail(const char *what)
{
	printf("role %d: %s: %s\n", role, what, strerror(errno));
	exit(1);
}

static void wait_a_little(void)
{
	struct timespec now;

	sched_yield();
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec - begin.tv_sec > PATIENCE) {
		errno = ETIMEDOUT;
		fail("the other one");
	}
}

/* Waits until both are here. */
static void meet(void)
{
	uint32_t mine = atomic_fetch_add(&shared->arrived[role], 1) + 1;

	while (atomic_load(&shared->arrived[!role]) < mine)
		wait_a_little();
}

static void open_memfd(const char *name)
{
	char path[64] = "";
	FILE *file;

	if (!role) {
		fd = memfd_create("halves", 0);
		if (fd < 0 || ftruncate(fd, SIZE))
			fail("memfd");
		snprintf(path, sizeof(path), "%s.new", name);
		file = fopen(path, "w");
		if (!file || fprintf(file, "/proc/%d/fd/%d", getpid(), fd) < 0 || fclose(file) ||
		    rename(path, name))
			fail(name);
		return;
	}
	for (;;) {
		file = fopen(name, "r");
		if (file) {
			if (!fgets(path, sizeof(path), file))
				fail(name);
			fclose(file);
			break;
		}
		wait_a_little();
	}
	fd = open(path, O_RDWR);
	if (fd < 0)
		fail(path);
}

static void open_file(const char *name)
{
	struct stat status;

	if (!role) {
		fd = open(name, O_RDWR | O_CREAT, 0600);
		if (fd < 0 || ftruncate(fd, SIZE))
			fail(name);
		return;
	}
	while ((fd = open(name, O_RDWR)) < 0 || fstat(fd, &status) ||
	       status.st_size < (off_t)SIZE) {
		close(fd);
		wait_a_little();
	}
}

static void *attach(const char *name)
{
	int id;

	while ((id = shmget(atoi(name), SIZE, role ? 0600 : 0600 | IPC_CREAT)) < 0) {
		if (!role)
			fail("shmget");
		wait_a_little();
	}
	return shmat(id, NULL, 0);
}

/* Pages that change hands, turn by turn. */
static void take_turns(void)
{
	uint32_t turn;

	meet();
	for (turn = role; turn < TURNS; turn += 2) {
		char *page = shared->pages[turn % (PAGES - HEAD)];
		char *before = shared->pages[(turn + PAGES - HEAD - 1) % (PAGES - HEAD)];

		while (atomic_load(&shared->turn) != turn)
			wait_a_little();
		if (turn && (before[0] != (char)(turn - 1) ||
			     before[PAGE - 1] != (char)~(turn - 1))) {
			errno = 0;
			fail("a store was not seen");
		}
		page[0] = turn;
		page[PAGE - 1] = ~turn;
		atomic_store(&shared->turn, turn + 1);
	}
	printf("turns: %d\n", TURNS);
}

static void count(void)
{
	uint64_t i;

	meet();
	for (i = 0; i < messages; i++)
		atomic_fetch_add(&shared->counter, 1);
	meet();
	printf("counter: %llu\n", (unsigned long long)atomic_load(&shared->counter));
}

static void exchange(void)
{
	struct ring *out = &shared->ring[role], *in = &shared->ring[!role];
	uint64_t sent = 0, received = 0, wrong = 0;

	meet();
	while (sent < messages || received < messages) {
		int idle = 1;

		if (sent < messages && sent - atomic_load(&out->read) < SLOTS) {
			out->slots[sent % SLOTS] = sent * 0x9e3779b97f4a7c15 + role;
			atomic_store(&out->written, ++sent);
			idle = 0;
		}
		if (received < messages && atomic_load(&in->written) > received) {
			wrong += in->slots[received % SLOTS] !=
				 received * 0x9e3779b97f4a7c15 + !role;
			atomic_store(&in->read, ++received);
			idle = 0;
		}
		if (idle)
			wait_a_little();
	}
	printf("messages: %llu, wrong: %llu\n", (unsigned long long)messages,
	       (unsigned long long)wrong);
}

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(after_fault, 1);
}

/* The first byte of one of the pages, or -1 if touching it is SIGBUS. */
static int touch(unsigned long page)
{
	if (sigsetjmp(after_fault, 1))
		return -1;
	return *(volatile unsigned char *)shared->pages[page];
}

/* Who did not make the change hears of it a moment later. */
static void see(const char *what, unsigned long page, int wanted, int at_once)
{
	int seen;

	while ((seen = touch(page)) != wanted && !at_once)
		wait_a_little();
	printf("%s: %d\n", what, seen);
}

static void cut(void)
{
	unsigned long page;

	for (page = 0; page < PAGES - HEAD; page++)
		if (!role)
			shared->pages[page][0] = 'x';
	meet();
	see("before", 8, 'x', 1);
	meet();
	if (!role && ftruncate(fd, (HEAD + 4) * PAGE + 100))
		fail("ftruncate");
	meet();
	see("cut, behind", 8, -1, !role);
	see("cut, last", 4, 'x', 1);
	meet();
	if (!role && ftruncate(fd, SIZE))
		fail("ftruncate");
	meet();
	see("longer", 8, 0, 1);
	meet();
	if (role)
		shared->pages[8][0] = 'y';
	meet();
	see("written again", 8, 'y', 1);
	meet();
	if (role && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (HEAD + 8) * PAGE,
			      PAGE))
		fail("fallocate");
	meet();
	see("hole", 8, 0, role);
	see("beside", 3, 'x', 1);
	meet();
	if (!role && madvise(shared->pages[3], PAGE, MADV_REMOVE))
		fail("madvise");
	meet();
	see("removed", 3, 0, !role);
	meet();
}

/* What Linux moves for one is what the other one sees. */
static void move(void)
{
	char *page = shared->pages[20], byte;
	int ends[2];

	if (!role)
		strcpy(page, "to a pipe and back");
	meet();
	if (role) {
		if (pipe(ends) || write(ends[1], page, 18) != 18 ||
		    read(ends[0], page + 100, 18) != 18)
			fail("pipe");
		if (fd >= 0 && pwrite(fd, "w", 1, (HEAD + 21) * PAGE) != 1)
			fail("pwrite");
		close(ends[0]);
		close(ends[1]);
	}
	meet();
	printf("moved: %s\n", page + 100);
	if (fd >= 0) {
		shared->pages[22][role] = 'a' + role;
		meet();
		if (pread(fd, &byte, 1, (HEAD + 22) * PAGE + !role) != 1)
			fail("pread");
		printf("written: %c, read: %s\n", shared->pages[21][0],
		       byte == 'a' + !role ? "what the other one stored" : "something else");
	}
	meet();
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_fault };
	const char *wanted = getenv("MESSAGES");

	if (argc != 4)
		return 2;
	if (wanted)
		messages = strtoull(wanted, NULL, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	role = atoi(argv[3]);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	sigaction(SIGBUS, &action, NULL);
	if (!strcmp(argv[1], "sysv")) {
		shared = attach(argv[2]);
	} else {
		if (!strcmp(argv[1], "memfd"))
			open_memfd(argv[2]);
		else
			open_file(argv[2]);
		shared = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	}
	if (shared == MAP_FAILED)
		fail("mmap");
	take_turns();
	count();
	exchange();
	move();
	if (fd >= 0)
		cut();
	return 0;
}
