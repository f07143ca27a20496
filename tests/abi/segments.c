// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/*
 * System V shared memory: keys, places, counts of attachments, other processes, what stays and what
 * goes.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "children.h"
#include "touch.h"

/* The status of a segment; -1 attachments if there is none. */
static struct shmid_ds segment(int id)
{
	struct shmid_ds status = { 0 };

	if (shmctl(id, IPC_STAT, &status))
		status.shm_nattch = -1;
	return status;
}

/* Returns how often a segment is attached, or -1. */
static long attached(int id)
{
	return segment(id).shm_nattch;
}

/* Attaches the segment of a key once more, after execve, and answers. */
ROLE(again)
{
	int id = shmget(strtol(arguments[1], NULL, 0), 0, 0);
	char *memory = shmat(id, NULL, 0);

	if (memory == (void *)-1 || strcmp(memory, "hello") || attached(id) != 2)
		return 1;
	strcpy(memory + 3 * PAGE, "from afar");
	return 0;
}

BEFORE_EACH
{
	signal(SIGSEGV, caught);
	signal(SIGBUS, caught);
}

/* Makes the segment of this process's key, three pages and a byte. */
static int make(void)
{
	key_t key = 0x43520000 + getpid();
	int id;

	/* A case that failed may have left it. */
	shmctl(shmget(key, 0, 0), IPC_RMID, NULL);
	id = shmget(key, 3 * PAGE + 1, IPC_CREAT | IPC_EXCL | 0600);
	CHECK(id >= 0);
	return id;
}

/* Removes a segment. */
static void remove_segment(int id)
{
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
}

CASE(a_key_finds_its_segment)
{
	key_t key = 0x43520000 + getpid();
	int id = shmget(key, 3 * PAGE + 1, IPC_CREAT | IPC_EXCL | 0600),
	    private = shmget(IPC_PRIVATE, 1, 0600);

	CHECK(id >= 0 && private >= 0 && id != private && shmget(key, 0, 0) == id &&
	      shmget(key, PAGE, IPC_CREAT | 0600) == id);
	FAILS(EEXIST, shmget(key, PAGE, IPC_CREAT | IPC_EXCL | 0600));
	FAILS(EINVAL, shmget(key, 4 * PAGE, 0));
	FAILS(ENOENT, shmget(key ^ 0x01000000, PAGE, 0));
	FAILS(EINVAL, shmget(IPC_PRIVATE, 0, 0600));
	remove_segment(id);
	remove_segment(private);
}

CASE(a_new_segment_has_a_status)
{
	int id = make();
	struct shmid_ds first = segment(id);

	CHECK(first.shm_segsz == 3 * PAGE + 1 && first.shm_nattch == 0 &&
	      first.shm_cpid == getpid() && first.shm_lpid == 0);
	CHECK(first.shm_atime == 0 && (first.shm_perm.mode & 0777) == 0600 &&
	      first.shm_perm.uid == geteuid());
	remove_segment(id);
}

CASE(an_attachment_is_zero_and_counted)
{
	int id = make();
	struct shmid_ds first = segment(id);
	char *memory;

	memory = shmat(id, NULL, 0);
	CHECK(memory != (void *)-1 && (unsigned long)memory % PAGE == 0 && memory[0] == 0 &&
	      memory[3 * PAGE] == 0);
	CHECK(touch(memory + 4 * PAGE - 1, 1) == 0 && attached(id) == 1 &&
	      segment(id).shm_lpid == getpid());
	CHECK(segment(id).shm_atime >= first.shm_ctime);
	CHECK(shmdt(memory) == 0);
	remove_segment(id);
}

CASE(another_program_finds_a_segment_by_its_key)
{
	key_t key = 0x43520000 + getpid();
	int id = make();
	char *memory = shmat(id, NULL, 0), arguments[16];

	strcpy(memory, "hello");
	snprintf(arguments, sizeof(arguments), "%#x", key);
	pid_t child = fork();

	if (child == 0) {
		execl("/proc/self/exe", "again", arguments, NULL);
		_exit(1);
	}
	CHECK(status_of(child) == 0 && strcmp(memory + 3 * PAGE, "from afar") == 0 && attached(id) == 1);
	CHECK(shmdt(memory) == 0);
	remove_segment(id);
}

CASE(what_was_written_stays_while_nobody_has_it_attached)
{
	int id = make();
	char *memory = shmat(id, NULL, 0);
	pid_t child;

	strcpy(memory, "hello");
	strcpy(memory + 3 * PAGE, "from afar");
	CHECK(shmdt(memory) == 0 && attached(id) == 0 && touch(memory, 0) == SIGSEGV);
	FAILS(EINVAL, shmdt(memory));
	memory = shmat(id, NULL, 0);
	CHECK(strcmp(memory, "hello") == 0 && strcmp(memory + 3 * PAGE, "from afar") == 0 && memory[PAGE] == 0);
	strcpy(memory + PAGE, "more");
	child = fork();
	if (child == 0) {
		strcpy(memory + 2 * PAGE, "by the child");
		_exit(0);
	}
	CHECK(status_of(child) == 0 && shmdt(memory) == 0);
	memory = shmat(id, NULL, SHM_RDONLY);
	CHECK(strcmp(memory + PAGE, "more") == 0 &&
	      strcmp(memory + 2 * PAGE, "by the child") == 0 && shmdt(memory) == 0);
	remove_segment(id);
}

CASE(a_removed_segment_is_unknown)
{
	key_t key = 0x43520000 + getpid();
	int id = shmget(key, 3 * PAGE + 1, IPC_CREAT | IPC_EXCL | 0600),
	    private = shmget(IPC_PRIVATE, 1, 0600);
	struct shmid_ds first;

	CHECK(shmctl(id, IPC_RMID, NULL) == 0 && shmctl(private, IPC_RMID, NULL) == 0);
	FAILS(ENOENT, shmget(key, 0, 0));
	FAILS(EINVAL, shmat(id, NULL, 0));
	FAILS(EINVAL, shmctl(id, IPC_STAT, &first));
}

/* A segment of two pages, and memory in which it may be attached. */
static int id;
static char *area;

static void make_area(void)
{
	id = shmget(IPC_PRIVATE, 2 * PAGE, 0600);
	area = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(id >= 0 && area != MAP_FAILED);
}

static void remove_area(void)
{
	CHECK(munmap(area, 16 * PAGE) == 0 && attached(id) == 0);
	remove_segment(id);
}

CASE(bad_places_are_refused)
{
	make_area();
	FAILS(EINVAL, shmat(-1, NULL, 0));
	FAILS(EINVAL, shmat(id, NULL, SHM_REMAP));
	FAILS(EINVAL, shmat(id, area + 1, SHM_REMAP));
	FAILS(EINVAL, shmat(id, (void *)1, SHM_REMAP | SHM_RND));
	FAILS(EINVAL, shmat(id, area, 0));
	FAILS(EINVAL, shmat(id, area + PAGE + 1, SHM_RND));
	FAILS(EINVAL, shmdt(area));
	FAILS(EINVAL, shmdt(area + 1));
	CHECK(attached(id) == 0);
	remove_area();
}

/* It may take the place of other memory. */
CASE(a_segment_is_attached_where_it_is_asked_for)
{
	make_area();
	CHECK(munmap(area + 4 * PAGE, 2 * PAGE) == 0 &&
	      shmat(id, area + 4 * PAGE + 5, SHM_RND) == area + 4 * PAGE);
	FAILS(EINVAL, shmat(id, area + 5 * PAGE, 0));
	area[8 * PAGE] = 'x';
	CHECK(shmat(id, area + 8 * PAGE, SHM_REMAP) == area + 8 * PAGE && area[8 * PAGE] == 0 &&
	      attached(id) == 2);
	strcpy(area + 4 * PAGE, "same");
	CHECK(strcmp(area + 8 * PAGE, "same") == 0 && area[10 * PAGE] == 0);
	remove_area();
}

CASE(an_attachment_takes_the_place_of_another)
{
	make_area();
	CHECK(shmat(id, area + 4 * PAGE, SHM_REMAP) == area + 4 * PAGE &&
	      shmat(id, area + 8 * PAGE, SHM_REMAP) == area + 8 * PAGE);
	strcpy(area + 4 * PAGE, "same");
	CHECK(shmat(id, area + 8 * PAGE, SHM_REMAP) == area + 8 * PAGE && attached(id) == 2 &&
	      strcmp(area + 8 * PAGE, "same") == 0);
	CHECK(shmdt(area + 4 * PAGE) == 0 && attached(id) == 1 &&
	      touch(area + 4 * PAGE, 0) == SIGSEGV && strcmp(area + 8 * PAGE, "same") == 0);
	remove_area();
}

/* shmdt takes the address at which the attachment began. */
CASE(munmap_takes_a_part_and_shmdt_the_rest)
{
	char *a;

	make_area();
	CHECK(shmat(id, area + 8 * PAGE, SHM_REMAP) == area + 8 * PAGE && attached(id) == 1);
	a = shmat(id, NULL, 0);
	CHECK(attached(id) == 2 && munmap(a, PAGE) == 0 && attached(id) == 2 &&
	      shmdt(a + PAGE) == -1 && errno == EINVAL);
	CHECK(mmap(a, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == a);
	CHECK(shmdt(a) == 0 && attached(id) == 1 && touch(a + PAGE, 0) == SIGSEGV &&
	      touch(a, 0) == 0 && munmap(a, PAGE) == 0);
	remove_area();
}

CASE(munmap_takes_all_of_an_attachment)
{
	char *a, *b;

	make_area();
	CHECK(shmat(id, area + 8 * PAGE, SHM_REMAP) == area + 8 * PAGE && attached(id) == 1);
	a = shmat(id, NULL, 0);
	b = shmat(id, NULL, 0);
	CHECK(a != b && attached(id) == 3 && munmap(a, 2 * PAGE) == 0 && attached(id) == 2 &&
	      shmdt(b) == 0 && attached(id) == 1);
	remove_area();
}

CASE(a_segment_may_hold_code)
{
	static const unsigned char seven[] = { 0xb8, 7, 0, 0, 0, 0xc3 };
	int code = shmget(IPC_PRIVATE, 1, 0700);
	char *a;

	a = shmat(code, NULL, SHM_EXEC);
	memcpy(a, seven, sizeof(seven));
	CHECK(((int (*)(void))a)() == 7 && shmdt(a) == 0 && shmctl(code, IPC_RMID, NULL) == 0);
}

CASE(a_read_only_attachment_stays_so)
{
	char *a;

	make_area();
	CHECK(shmat(id, area + 8 * PAGE, SHM_REMAP) == area + 8 * PAGE && attached(id) == 1);
	strcpy(area + 8 * PAGE, "same");
	a = shmat(id, NULL, SHM_RDONLY);
	CHECK(strcmp(a, "same") == 0 && touch(a, 1) == SIGSEGV);
	FAILS(EACCES, mprotect(a, PAGE, PROT_READ | PROT_WRITE));
	strcpy(area + 8 * PAGE, "changed");
	CHECK(strcmp(a, "changed") == 0 && shmdt(area + 8 * PAGE) == 0 &&
	      strcmp(a, "changed") == 0 && attached(id) == 1);
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	CHECK(shmdt(a) == 0);
	FAILS(EINVAL, shmat(id, NULL, 0));
	munmap(area, 16 * PAGE);
}

/* A number that two processes count up by turns. */
struct turns {
	pthread_mutex_t mutex;
	pthread_cond_t turn;
	int count;
};

/* Counts every other one up to ten, from the first. */
static void take_turns(struct turns *shared, int first)
{
	for (int i = first; i < 10; i += 2) {
		pthread_mutex_lock(&shared->mutex);
		while (shared->count != i)
			pthread_cond_wait(&shared->turn, &shared->mutex);
		shared->count++;
		pthread_cond_broadcast(&shared->turn);
		pthread_mutex_unlock(&shared->mutex);
	}
}

CASE(a_removed_segment_is_there_while_it_is_attached)
{
	int id = shmget(IPC_PRIVATE, 64 * PAGE, 0600);
	struct turns *shared = shmat(id, NULL, 0);

	CHECK(shmctl(id, IPC_RMID, NULL) == 0 && attached(id) == 1 &&
	      segment(id).shm_perm.mode & SHM_DEST);
	void *second = shmat(id, NULL, 0);

	CHECK(second != (void *)-1 && attached(id) == 2 && shmdt(second) == 0 && attached(id) == 1);
	CHECK(shmdt(shared) == 0 && shmctl(id, IPC_STAT, &(struct shmid_ds){ 0 }) == -1 &&
	      errno == EINVAL);
}

CASE(parent_and_child_wait_for_each_other_in_a_segment)
{
	int id = shmget(IPC_PRIVATE, 64 * PAGE, 0600);
	struct turns *shared = shmat(id, NULL, 0);
	pthread_mutexattr_t for_mutex;
	pthread_condattr_t for_turn;
	pid_t child;

	remove_segment(id);
	pthread_mutexattr_init(&for_mutex);
	pthread_mutexattr_setpshared(&for_mutex, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->mutex, &for_mutex);
	pthread_condattr_init(&for_turn);
	pthread_condattr_setpshared(&for_turn, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&shared->turn, &for_turn);
	child = fork();
	if (child == 0) {
		take_turns(shared, 1);
		_exit(attached(id) == 2 ? 0 : 1);
	}
	take_turns(shared, 0);
	CHECK(status_of(child) == 0 && shared->count == 10 && attached(id) == 1);
	CHECK(shmdt(shared) == 0 && shmctl(id, IPC_STAT, &(struct shmid_ds){ 0 }) == -1 &&
	      errno == EINVAL);
}

CASE(a_child_does_not_attach_what_is_not_for_it)
{
	int kept = make(), both = shmget(IPC_PRIVATE, PAGE, 0600);
	char *own = shmat(kept, NULL, 0), *shared = shmat(both, NULL, 0);

	CHECK(own != (void *)-1 && shared != (void *)-1);
	CHECK(madvise(own, 4 * PAGE, MADV_DONTFORK) == 0);
	pid_t child = fork();

	if (!child)
		_exit(attached(kept) != 1 || attached(both) != 2 || touch(own, 0) != SIGSEGV ||
		      touch(shared, 0));
	CHECK(exits_with(child, 0) && attached(kept) == 1 && attached(both) == 1);
	CHECK(shmdt(own) == 0 && shmdt(shared) == 0);
	remove_segment(kept);
	remove_segment(both);
}

CASE(execve_detaches_a_segment)
{
	int id = shmget(IPC_PRIVATE, 64 * PAGE, 0600), ends[2];
	struct turns *shared = shmat(id, NULL, 0);
	pid_t child;

	remove_segment(id);
	CHECK(pipe(ends) == 0);
	child = fork();
	if (child == 0) {
		dup2(ends[0], 0);
		close(ends[1]);
		execl("/bin/cat", "cat", NULL);
		_exit(1);
	}
	close(ends[0]);
	for (int i = 0; i < 3000 && attached(id) != 1; i++)
		usleep(10000);
	CHECK(attached(id) == 1 && close(ends[1]) == 0 && status_of(child) == 0);
	CHECK(shmdt(shared) == 0 && shmctl(id, IPC_STAT, &(struct shmid_ds){ 0 }) == -1 &&
	      errno == EINVAL);
}

CASE(a_killed_process_detaches_its_segments)
{
	int id = shmget(IPC_PRIVATE, 64 * PAGE, 0600), ends[2];
	struct turns *shared = shmat(id, NULL, 0);
	pid_t child;
	char byte;

	remove_segment(id);
	CHECK(pipe(ends) == 0);
	child = fork();
	if (child == 0) {
		shmat(id, NULL, 0);
		shared->count = 11;
		write(ends[1], "x", 1);
		pause();
		_exit(1);
	}
	CHECK(read(ends[0], &byte, 1) == 1 && attached(id) == 3 && kill(child, SIGKILL) == 0 &&
	      status_of(child) == SIGKILL);
	for (int i = 0; i < 3000 && attached(id) != 1; i++)
		usleep(10000);
	CHECK(attached(id) == 1 && shared->count == 11);
	CHECK(shmdt(shared) == 0 && shmctl(id, IPC_STAT, &(struct shmid_ds){ 0 }) == -1 &&
	      errno == EINVAL);
}
