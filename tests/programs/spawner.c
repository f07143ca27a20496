// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * spawner hold FILE COUNT
 *
 * Has so many pages of a file in memory mapped shared, each by a mapping of its own; tells so, and
 * waits for a line.
 *
 * spawner race ROUNDS COMMAND...
 *
 * Runs the command, which is to hold pages in the realm, and asks again and again for a process
 * that is its child's: by hand, with the command's own descriptor of the device. Meanwhile another
 * thread has the same file, and ends that process as soon as there is one.
 *
 * spawner orphan ROUNDS COMMAND...
 *
 * Runs the command again and again, and kills it while several ask for processes that are its
 * children's.
 *
 * spawner execute
 *
 * Has a process by hand, with a thread that is another process of Linux's which shares its memory;
 * that one executes a program, and calls the device as that thread. Tells what it is answered.
 *
 * spawner bequeath COMMAND...
 *
 * Has a process by hand, says that it executes a program of the realm, and executes the command.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
/* Where the program would have memory. */
#define THERE 0x1000000000UL

#define ASSERT(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "line %d: %s: %m\n", __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

/* As in linux/module/abi.h. */
struct spawn {
	uint32_t process, slot, parent;
	int32_t parent_file;
	uint64_t reserved[2];
};
#define SPAWN _IOWR(0xc7, 0x20, struct spawn)
#define THREAD _IO(0xc7, 0x21)
struct remote {
	uint32_t slot, has_result;
	int64_t result;
	uint32_t op, nr;
	uint64_t args[6];
};
#define REMOTE _IOWR(0xc7, 0x22, struct remote)
#define REOPEN _IO(0xc7, 0x24)
#define SLOTS 1024
/* Who ask at once. */
#define ASKERS 3

static int hold(const char *name, unsigned long count)
{
	int file = open(name, O_RDWR | O_CREAT, 0600);

	ASSERT(file >= 0 && ftruncate(file, count * PAGE) == 0);
	/* Backwards, so that no two are one. */
	for (unsigned long at = count; at > 0; at--)
		ASSERT(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file,
			    (count - at) * PAGE) != MAP_FAILED);
	puts("holds");
	fflush(stdout);
	getchar();
	return 0;
}

/* The descriptor of the device that a shadow has, as one of the caller's. */
static int device_of(pid_t shadow)
{
	char folder[64], target[64];
	DIR *files;
	struct dirent *entry;
	int found = -1;

	snprintf(folder, sizeof(folder), "/proc/%d/fd", shadow);
	ASSERT((files = opendir(folder)) != NULL);
	while (found < 0 && (entry = readdir(files))) {
		ssize_t length = readlinkat(dirfd(files), entry->d_name, target,
					    sizeof(target) - 1);

		target[length < 0 ? 0 : length] = '\0';
		if (strcmp(target, "/dev/crtos") == 0)
			found = syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, shadow, 0),
					atoi(entry->d_name), 0);
	}
	closedir(files);
	ASSERT(found >= 0);
	return found;
}

struct race {
	int device;
	uint32_t number;
	volatile int over;
};

/* Ends the process by its last mapping, which it is the first to make. */
static void *end(void *argument)
{
	struct race *race = argument;
	off_t offset = (off_t)((uint64_t)race->number << 47 | THERE);
	void *there = MAP_FAILED;

	while (there == MAP_FAILED && !race->over)
		there = mmap((void *)THERE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, race->device,
			     offset);
	if (there != MAP_FAILED)
		munmap(there, PAGE);
	return NULL;
}

/* In a process of its own: asks for that of a child of the thread that has a slot. */
static void ask(int parent_file, uint32_t slot, uint32_t number)
{
	struct race race = { .device = open("/dev/crtos", O_RDWR | O_CLOEXEC), .number = number };
	struct spawn spawn = { .parent = 1 + slot, .parent_file = parent_file };
	pthread_t ender;

	ASSERT(race.device >= 0 && pthread_create(&ender, NULL, end, &race) == 0);
	ioctl(race.device, SPAWN, &spawn);
	race.over = 1;
	pthread_join(ender, NULL);
	_exit(0);
}

/* The slot of the shadow's thread, and the number of a process. */
static uint32_t find(int parent_file, uint32_t *slot)
{
	int device = open("/dev/crtos", O_RDWR | O_CLOEXEC);

	for (*slot = 0; *slot < SLOTS; ++*slot) {
		struct spawn spawn = { .parent = 1 + *slot, .parent_file = parent_file };

		if (ioctl(device, SPAWN, &spawn) == 0)
			return spawn.process;
	}
	return 0;
}

struct found {
	uint32_t slot, number;
};

/* A command that holds pages. */
struct held {
	pid_t shadow;
	int input, device;
	uint32_t slot, number;
};

/* Runs the command; returns when it holds them. */
static struct held begin(char **command)
{
	struct found *found = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				   -1, 0);
	struct held held;
	int input[2], output[2], status;
	pid_t child;
	char word[6];

	ASSERT(found != MAP_FAILED && pipe(input) == 0 && pipe(output) == 0);
	held.shadow = fork();
	if (held.shadow == 0) {
		dup2(input[0], 0);
		dup2(output[1], 1);
		close(input[1]);
		close(output[0]);
		execvp(command[0], command);
		_exit(127);
	}
	close(input[0]);
	close(output[1]);
	held.input = input[1];
	ASSERT(read(output[0], word, sizeof(word)) == 6);
	close(output[0]);
	held.device = device_of(held.shadow);
	child = fork();
	if (child == 0) {
		found->number = find(held.device, &found->slot);
		_exit(found->number == 0);
	}
	ASSERT(waitpid(child, &status, 0) == child && status == 0);
	held.slot = found->slot;
	held.number = found->number;
	munmap(found, PAGE);
	return held;
}

static int race(int rounds, char **command)
{
	struct held held = begin(command);
	int status;
	pid_t child;

	for (int round = 0; round < rounds; round++) {
		child = fork();
		if (child == 0)
			ask(held.device, held.slot, held.number + 1 + round);
		ASSERT(waitpid(child, &status, 0) == child && status == 0);
	}
	ASSERT(write(held.input, "\n", 1) == 1);
	ASSERT(waitpid(held.shadow, &status, 0) == held.shadow && status == 0);
	printf("%d rounds\n", rounds);
	return 0;
}

/* In a process of its own: asks for children until there is no such parent any more. */
static void ask_often(const struct held *held)
{
	for (;;) {
		struct spawn spawn = { .parent = 1 + held->slot, .parent_file = held->device };
		int device = open("/dev/crtos", O_RDWR | O_CLOEXEC);

		ASSERT(device >= 0);
		if (ioctl(device, SPAWN, &spawn) != 0 && errno == EINVAL)
			_exit(0);
		close(device);
	}
}

static int orphan(int rounds, char **command)
{
	int status;

	for (int round = 0; round < rounds; round++) {
		struct held held = begin(command);
		pid_t askers[ASKERS];

		for (int i = 0; i < ASKERS; i++) {
			askers[i] = fork();
			if (askers[i] == 0)
				ask_often(&held);
		}
		usleep(100000 + 30000 * (round % 5));
		ASSERT(kill(held.shadow, SIGKILL) == 0);
		ASSERT(waitpid(held.shadow, &status, 0) == held.shadow);
		for (int i = 0; i < ASKERS; i++)
			ASSERT(waitpid(askers[i], &status, 0) == askers[i] && status == 0);
		close(held.device);
		close(held.input);
	}
	printf("%d rounds\n", rounds);
	return 0;
}

/* Calls the device as a thread of the process that has it. */
static int call(int device, uint32_t slot)
{
	struct remote remote = { .slot = slot };

	/* As long as the module looks for those that have left, and frees what they had. */
	alarm(4);
	while (ioctl(device, REMOTE, &remote) == 0)
		remote.has_result = 1;
	printf("%m\n");
	return 0;
}

static int execute(void)
{
	int device = open("/dev/crtos", O_RDWR), status;
	struct spawn spawn = { 0 };
	pid_t child;

	ASSERT(device >= 0 && ioctl(device, SPAWN, &spawn) == 0);
	child = vfork();
	if (child == 0) {
		int slot = ioctl(device, THREAD, 1UL + spawn.slot);
		char words[2][16];

		snprintf(words[0], sizeof(words[0]), "%d", device);
		snprintf(words[1], sizeof(words[1]), "%d", slot);
		execl("/proc/self/exe", "spawner", "call", words[0], words[1], NULL);
		_exit(127);
	}
	ASSERT(waitpid(child, &status, 0) == child);
	if (status != 0)
		printf("it ends with status %x\n", status);
	return 0;
}

static int bequeath(char **command)
{
	int device = open("/dev/crtos", O_RDWR);
	struct spawn spawn = { 0 };

	ASSERT(device >= 0 && ioctl(device, SPAWN, &spawn) == 0);
	ASSERT(ioctl(device, REOPEN, 0) >= 0);
	execvp(command[0], command);
	return 127;
}

int main(int count, char **arguments)
{
	if (count == 4 && strcmp(arguments[1], "hold") == 0)
		return hold(arguments[2], strtoul(arguments[3], NULL, 10));
	if (count > 3 && strcmp(arguments[1], "race") == 0)
		return race(atoi(arguments[2]), arguments + 3);
	if (count > 3 && strcmp(arguments[1], "orphan") == 0)
		return orphan(atoi(arguments[2]), arguments + 3);
	if (count > 2 && strcmp(arguments[1], "bequeath") == 0)
		return bequeath(arguments + 2);
	if (count == 2 && strcmp(arguments[1], "execute") == 0)
		return execute();
	if (count == 4 && strcmp(arguments[1], "call") == 0)
		return call(atoi(arguments[2]), strtoul(arguments[3], NULL, 10));
	return 2;
}
