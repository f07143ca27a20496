// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/* System V shared memory: keys, attaching and detaching, counts of attachments, other processes, what stays and what goes, errors. */
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
#include "touch.h"

static struct shmid_ds status_of(int id)
{
	struct shmid_ds status = { 0 };

	if (shmctl(id, IPC_STAT, &status))
		status.shm_nattch = -1;
	return status;
}

static long attached(int id)
{
	return status_of(id).shm_nattch;
}

static int status(pid_t child)
{
	int result = -1;

	return waitpid(child, &result, 0) == child ? result : -1;
}

/* Attaches the segment of `key` once more, after execve, and answers. */
static int again(const char *key)
{
	int id = shmget(strtol(key, NULL, 0), 0, 0);
	char *memory = shmat(id, NULL, 0);

	if (memory == (void *)-1 || strcmp(memory, "hello") || attached(id) != 2)
		return 1;
	strcpy(memory + 3 * PAGE, "from afar");
	return 0;
}

static void keys(void)
{
	key_t key = 0x43520000 + getpid();
	int id = shmget(key, 3 * PAGE + 1, IPC_CREAT | IPC_EXCL | 0600), private = shmget(IPC_PRIVATE, 1, 0600);
	struct shmid_ds first;

	CHECK(id >= 0 && private >= 0 && id != private && shmget(key, 0, 0) == id && shmget(key, PAGE, IPC_CREAT | 0600) == id);
	FAILS(EEXIST, shmget(key, PAGE, IPC_CREAT | IPC_EXCL | 0600));
	FAILS(EINVAL, shmget(key, 4 * PAGE, 0));
	FAILS(ENOENT, shmget(key ^ 0x01000000, PAGE, 0));
	FAILS(EINVAL, shmget(IPC_PRIVATE, 0, 0600));
	first = status_of(id);
	CHECK(first.shm_segsz == 3 * PAGE + 1 && first.shm_nattch == 0 && first.shm_cpid == getpid() && first.shm_lpid == 0);
	CHECK(first.shm_atime == 0 && (first.shm_perm.mode & 0777) == 0600 && first.shm_perm.uid == geteuid());

	char *memory = shmat(id, NULL, 0), arguments[16];

	CHECK(memory != (void *)-1 && (unsigned long)memory % PAGE == 0 && memory[0] == 0 && memory[3 * PAGE] == 0);
	CHECK(touch(memory + 4 * PAGE - 1, 1) == 0 && attached(id) == 1 && status_of(id).shm_lpid == getpid());
	CHECK(status_of(id).shm_atime >= first.shm_ctime);

	/* A program of its own finds it by the key. */
	strcpy(memory, "hello");
	snprintf(arguments, sizeof(arguments), "%#x", key);
	pid_t child = fork();

	if (child == 0) {
		execl("/proc/self/exe", "again", arguments, NULL);
		_exit(1);
	}
	CHECK(status(child) == 0 && strcmp(memory + 3 * PAGE, "from afar") == 0 && attached(id) == 1);

	/* What was written stays when nobody has it attached. */
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
	CHECK(status(child) == 0 && shmdt(memory) == 0);
	memory = shmat(id, NULL, SHM_RDONLY);
	CHECK(strcmp(memory + PAGE, "more") == 0 && strcmp(memory + 2 * PAGE, "by the child") == 0 && shmdt(memory) == 0);
	CHECK(shmctl(id, IPC_RMID, NULL) == 0 && shmctl(private, IPC_RMID, NULL) == 0);
	FAILS(ENOENT, shmget(key, 0, 0));
	FAILS(EINVAL, shmat(id, NULL, 0));
	FAILS(EINVAL, shmctl(id, IPC_STAT, &first));
}

static void places(void)
{
	static const unsigned char seven[] = { 0xb8, 7, 0, 0, 0, 0xc3 };
	int id = shmget(IPC_PRIVATE, 2 * PAGE, 0600), code = shmget(IPC_PRIVATE, 1, 0700);
	char *area = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *a, *b;

	FAILS(EINVAL, shmat(-1, NULL, 0));
	FAILS(EINVAL, shmat(id, NULL, SHM_REMAP));
	FAILS(EINVAL, shmat(id, area + 1, SHM_REMAP));
	FAILS(EINVAL, shmat(id, (void *)1, SHM_REMAP | SHM_RND));
	FAILS(EINVAL, shmat(id, area, 0));
	FAILS(EINVAL, shmat(id, area + PAGE + 1, SHM_RND));
	FAILS(EINVAL, shmdt(area));
	FAILS(EINVAL, shmdt(area + 1));
	CHECK(attached(id) == 0);

	/* Where it is asked for, and in place of what was there. */
	CHECK(munmap(area + 4 * PAGE, 2 * PAGE) == 0 && shmat(id, area + 4 * PAGE + 5, SHM_RND) == area + 4 * PAGE);
	FAILS(EINVAL, shmat(id, area + 5 * PAGE, 0));
	area[8 * PAGE] = 'x';
	CHECK(shmat(id, area + 8 * PAGE, SHM_REMAP) == area + 8 * PAGE && area[8 * PAGE] == 0 && attached(id) == 2);
	strcpy(area + 4 * PAGE, "same");
	CHECK(strcmp(area + 8 * PAGE, "same") == 0 && area[10 * PAGE] == 0);

	/* In place of another attachment of itself. */
	CHECK(shmat(id, area + 8 * PAGE, SHM_REMAP) == area + 8 * PAGE && attached(id) == 2 && strcmp(area + 8 * PAGE, "same") == 0);
	CHECK(shmdt(area + 4 * PAGE) == 0 && attached(id) == 1 && touch(area + 4 * PAGE, 0) == SIGSEGV && strcmp(area + 8 * PAGE, "same") == 0);

	/* A part goes by munmap, the rest by shmdt, which goes by where it began. */
	a = shmat(id, NULL, 0);
	CHECK(attached(id) == 2 && munmap(a, PAGE) == 0 && attached(id) == 2 && shmdt(a + PAGE) == -1 && errno == EINVAL);
	CHECK(mmap(a, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == a);
	CHECK(shmdt(a) == 0 && attached(id) == 1 && touch(a + PAGE, 0) == SIGSEGV && touch(a, 0) == 0 && munmap(a, PAGE) == 0);
	/* All of it goes by munmap. */
	a = shmat(id, NULL, 0);
	b = shmat(id, NULL, 0);
	CHECK(a != b && attached(id) == 3 && munmap(a, 2 * PAGE) == 0 && attached(id) == 2 && shmdt(b) == 0 && attached(id) == 1);

	/* Rights. */
	a = shmat(code, NULL, SHM_EXEC);
	memcpy(a, seven, sizeof(seven));
	CHECK(((int (*)(void))a)() == 7 && shmdt(a) == 0 && shmctl(code, IPC_RMID, NULL) == 0);
	a = shmat(id, NULL, SHM_RDONLY);
	CHECK(strcmp(a, "same") == 0 && touch(a, 1) == SIGSEGV);
	FAILS(EACCES, mprotect(a, PAGE, PROT_READ | PROT_WRITE));
	strcpy(area + 8 * PAGE, "changed");
	CHECK(strcmp(a, "changed") == 0 && shmdt(area + 8 * PAGE) == 0 && strcmp(a, "changed") == 0 && attached(id) == 1);
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	CHECK(shmdt(a) == 0);
	FAILS(EINVAL, shmat(id, NULL, 0));
	munmap(area, 16 * PAGE);
}

/* What two processes count up by turns. */
struct turns {
	pthread_mutex_t mutex;
	pthread_cond_t turn;
	int count;
};

/* Every other one up to ten, from the first. */
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

/* With children: attachments are inherited, and end with the process. */
static void children(void)
{
	int id = shmget(IPC_PRIVATE, 64 * PAGE, 0600), ends[2];
	struct turns *shared = shmat(id, NULL, 0);
	pthread_mutexattr_t for_mutex;
	pthread_condattr_t for_turn;
	pid_t child;
	char byte;

	/* Gone by name, there as long as it is attached. */
	CHECK(shmctl(id, IPC_RMID, NULL) == 0 && attached(id) == 1 && status_of(id).shm_perm.mode & SHM_DEST);
	void *second = shmat(id, NULL, 0);

	CHECK(second != (void *)-1 && attached(id) == 2 && shmdt(second) == 0 && attached(id) == 1);
	pthread_mutexattr_init(&for_mutex);
	pthread_mutexattr_setpshared(&for_mutex, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->mutex, &for_mutex);
	pthread_condattr_init(&for_turn);
	pthread_condattr_setpshared(&for_turn, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&shared->turn, &for_turn);

	/* A child waits for its parent there, and the parent for its child. */
	child = fork();
	if (child == 0) {
		take_turns(shared, 1);
		_exit(attached(id) == 2 ? 0 : 1);
	}
	take_turns(shared, 0);
	CHECK(status(child) == 0 && shared->count == 10 && attached(id) == 1);

	/* Not kept over execve. */
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
	CHECK(attached(id) == 1 && close(ends[1]) == 0 && status(child) == 0);

	/* Nor after a signal that ends it. */
	CHECK(pipe(ends) == 0);
	child = fork();
	if (child == 0) {
		shmat(id, NULL, 0);
		shared->count = 11;
		write(ends[1], "x", 1);
		pause();
		_exit(1);
	}
	CHECK(read(ends[0], &byte, 1) == 1 && attached(id) == 3 && kill(child, SIGKILL) == 0 && status(child) == SIGKILL);
	for (int i = 0; i < 3000 && attached(id) != 1; i++)
		usleep(10000);
	CHECK(attached(id) == 1 && shared->count == 11);

	/* The last one takes it along. */
	CHECK(shmdt(shared) == 0 && shmctl(id, IPC_STAT, &(struct shmid_ds){ 0 }) == -1 && errno == EINVAL);
	close(ends[0]);
	close(ends[1]);
}

int main(int argc, char **argv)
{
	signal(SIGSEGV, caught);
	signal(SIGBUS, caught);
	if (argc > 1)
		return again(argv[1]);
	keys();
	places();
	children();
	return finish();
}
