// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A thread begins with what its creator has (clone(2), credentials(7), capabilities(7), prctl(2)),
 * whatever the process did before, and however often it has started threads.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "check.h"
#include "children.h"

#define NOBODY 65534
#define MANY 16

/* A word of the calling thread's line in /proc/thread-self/stat, counted as in proc(5). */
static long word_of_stat(int number)
{
	char text[1000] = "", *word;
	int file = open("/proc/thread-self/stat", O_RDONLY);

	CHECK(file >= 0 && read(file, text, sizeof(text) - 1) > 0 && close(file) == 0);
	word = strrchr(text, ')');
	CHECK(word != NULL);
	for (int at = 2; at < number; at++) {
		word = strchr(word + 1, ' ');
		CHECK(word != NULL);
	}
	return atol(word);
}

static long reads_shadow(void)
{
	int file = open("/etc/shadow", O_RDONLY);

	if (file >= 0)
		close(file);
	return file >= 0;
}

/* Only the calling thread changes: glibc's functions would change all. */
static void set_uids(uid_t real, uid_t effective, uid_t saved)
{
	CHECK(syscall(SYS_setresuid, real, effective, saved) == 0);
}

static void change_user(void) { set_uids(NOBODY, NOBODY, NOBODY); }
static void change_effective(void) { set_uids(-1, NOBODY, -1); }
static void change_and_back(void)
{
	set_uids(-1, NOBODY, -1);
	set_uids(-1, 0, -1);
}
static long see_user(void) { return getuid() * 10 + reads_shadow(); }
static long see_effective(void) { return geteuid() * 10 + reads_shadow(); }

static void change_fsuid(void) { syscall(SYS_setfsuid, NOBODY); }
static long see_fsuid(void) { return syscall(SYS_setfsuid, -1) * 10 + reads_shadow(); }

static void change_group(void) { CHECK(syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY) == 0); }
static long see_group(void) { return getgid(); }

static void change_groups(void)
{
	gid_t groups[] = { 11, 12, 13 };

	CHECK(syscall(SYS_setgroups, 3, groups) == 0);
}
static long see_groups(void)
{
	gid_t groups[100] = { 0 };

	return getgroups(100, groups) * 100 + groups[0];
}

static void capabilities(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };

	CHECK(syscall(SYS_capget, &header, data) == 0);
}
static void set_capabilities(struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };

	CHECK(syscall(SYS_capset, &header, data) == 0);
}
static void change_capabilities(void)
{
	struct __user_cap_data_struct data[2];

	capabilities(data);
	data[0].effective &= ~(1U << CAP_SYS_ADMIN);
	data[0].permitted &= ~(1U << CAP_SYS_ADMIN | 1U << CAP_CHOWN);
	data[0].effective &= data[0].permitted;
	data[0].inheritable = 1U << CAP_KILL;
	set_capabilities(data);
}
static long see_capabilities(void)
{
	struct __user_cap_data_struct data[2];

	capabilities(data);
	return data[0].effective ^ (long)data[0].permitted << 8 ^ (long)data[0].inheritable << 16;
}

static void change_bounds(void) { CHECK(prctl(PR_CAPBSET_DROP, CAP_SYS_BOOT) == 0); }
static long see_bounds(void) { return prctl(PR_CAPBSET_READ, CAP_SYS_BOOT); }

static void change_ambient(void)
{
	struct __user_cap_data_struct data[2];

	capabilities(data);
	data[0].inheritable |= 1U << CAP_KILL;
	set_capabilities(data);
	CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0) == 0);
}
static long see_ambient(void)
{
	return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_KILL, 0, 0);
}

static void change_privileges(void) { CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0); }
static long see_privileges(void) { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); }

static void change_securebits(void) { CHECK(prctl(PR_SET_SECUREBITS, SECBIT_NOROOT) == 0); }
static long see_securebits(void) { return prctl(PR_GET_SECUREBITS); }

static void change_keepcaps(void) { CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0); }
static long see_keepcaps(void) { return prctl(PR_GET_KEEPCAPS); }

static void change_slack(void) { CHECK(prctl(PR_SET_TIMERSLACK, 123456) == 0); }
static long see_slack(void) { return prctl(PR_GET_TIMERSLACK); }

static void change_name(void) { CHECK(prctl(PR_SET_NAME, "another") == 0); }
static long see_name(void)
{
	char name[16] = "";

	CHECK(prctl(PR_GET_NAME, name) == 0);
	return strcmp(name, "another") == 0;
}

static void change_nice(void) { CHECK(setpriority(PRIO_PROCESS, 0, 5) == 0); }
static long see_nice(void) { return getpriority(PRIO_PROCESS, 0) * 100 + word_of_stat(19); }

static void change_policy(void)
{
	CHECK(sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 }) == 0);
}
static long see_policy(void) { return sched_getscheduler(0) * 100 + word_of_stat(41); }

static void change_reset(void)
{
	struct sched_param parameters = { .sched_priority = 7 };

	CHECK(sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &parameters) == 0);
}
/* The creator has priority 7, and what it starts has none. */
static long see_reset(void) { return word_of_stat(40) == (getpid() == gettid() ? 7 : 0); }

static void change_io(void) { CHECK(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 6) == 0); }
static long see_io(void) { return syscall(SYS_ioprio_get, 1, 0); }

static void change_policy_of_memory(void)
{
	unsigned long nodes = 1;

	CHECK(syscall(SYS_set_mempolicy, 2, &nodes, 8) == 0 || errno == ENOSYS);
}
static long see_policy_of_memory(void)
{
	int mode = 0;

	return syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) ? -errno : mode;
}

static void change_keyring(void)
{
	CHECK(syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) > 0 || errno == ENOSYS);
}
static long see_keyring(void)
{
	return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0);
}

static void change_mask(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
}
static long see_mask(void)
{
	sigset_t set;

	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0);
	return sigismember(&set, SIGUSR2);
}

/* What all threads of a process share. */
static void change_files(void)
{
	umask(0271);
	CHECK(chdir("/proc") == 0 && chroot("/proc") == 0);
}
static long see_files(void)
{
	struct stat status;
	char line[100];
	FILE *file = fopen("/thread-self/status", "r");
	unsigned int mask = 0;

	if (!file)
		return stat("/self", &status) == 0;
	while (fgets(line, sizeof(line), file))
		sscanf(line, "Umask: %o", &mask);
	fclose(file);
	return mask;
}

static const struct attribute {
	const char *name;
	void (*change)(void);
	long (*see)(void);
} attributes[] = {
	{ "user", change_user, see_user },
	{ "effective user", change_effective, see_effective },
	{ "effective user and back", change_and_back, see_effective },
	{ "user for files", change_fsuid, see_fsuid },
	{ "group", change_group, see_group },
	{ "further groups", change_groups, see_groups },
	{ "capabilities", change_capabilities, see_capabilities },
	{ "bounding set", change_bounds, see_bounds },
	{ "ambient set", change_ambient, see_ambient },
	{ "no_new_privs", change_privileges, see_privileges },
	{ "securebits", change_securebits, see_securebits },
	{ "keep capabilities", change_keepcaps, see_keepcaps },
	{ "timer slack", change_slack, see_slack },
	{ "name", change_name, see_name },
	{ "nice value", change_nice, see_nice },
	{ "policy", change_policy, see_policy },
	{ "reset on fork", change_reset, see_reset },
	{ "input and output", change_io, see_io },
	{ "memory policy", change_policy_of_memory, see_policy_of_memory },
	{ "keyring", change_keyring, see_keyring },
	{ "signal mask", change_mask, see_mask },
	{ "file system", change_files, see_files },
};

#define ATTRIBUTES (sizeof(attributes) / sizeof(attributes[0]))

/* Threads that look at an attribute, all at once. */
struct threads {
	const struct attribute *attribute;
	pthread_t threads[MANY];
	long seen[MANY];
	atomic_int next;
	pthread_barrier_t all;
};

static void *look(void *argument)
{
	struct threads *threads = argument;

	threads->seen[threads->next++] = threads->attribute->see();
	pthread_barrier_wait(&threads->all);
	return NULL;
}

/* Starts many threads, and returns how many of them see something else than `expected`. */
static int others_than(long expected, const struct attribute *attribute)
{
	struct threads threads = { .attribute = attribute };
	pthread_attr_t small;
	int others = 0;

	CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 1 << 16) == 0);
	CHECK(pthread_barrier_init(&threads.all, NULL, MANY) == 0);
	for (int i = 0; i < MANY; i++)
		CHECK(pthread_create(&threads.threads[i], &small, look, &threads) == 0);
	for (int i = 0; i < MANY; i++)
		CHECK(pthread_join(threads.threads[i], NULL) == 0);
	for (int i = 0; i < MANY; i++)
		others += threads.seen[i] != expected;
	return others;
}

static long nothing(void) { return 0; }

static const struct attribute none = { "none", NULL, nothing };

/* Has threads come and go, and lets what the system does behind them come to an end. */
static void warm_up(void)
{
	others_than(0, &none);
	usleep(50000);
}

/* Runs `body` in a child that has started threads, with each of the attributes. */
static void with_each(void (*body)(const struct attribute *))
{
	for (size_t i = 0; i < ATTRIBUTES; i++) {
		pid_t child;

		PART("%s", attributes[i].name);
		child = fork();
		if (!child) {
			warm_up();
			body(&attributes[i]);
			_exit(0);
		}
		CHECK(child > 0 && exits_with(child, 0));
	}
}

static void in_this_thread(const struct attribute *attribute)
{
	long before = attribute->see();

	CHECK(others_than(before, attribute) == 0 || attribute->change == change_reset);
	attribute->change();
	CHECK(others_than(attribute->see(), attribute) == 0);
}

CASE(a_thread_has_what_its_creator_has_changed)
{
	with_each(in_this_thread);
}

static void in_a_child(const struct attribute *attribute)
{
	pid_t child;

	attribute->change();
	child = fork();
	if (!child) {
		if (attribute->change == change_reset)
			_exit(0);
		CHECK(others_than(attribute->see(), attribute) == 0);
		warm_up();
		CHECK(others_than(attribute->see(), attribute) == 0);
		_exit(0);
	}
	CHECK(child > 0 && exits_with(child, 0));
}

CASE(so_has_a_thread_of_a_forked_child)
{
	with_each(in_a_child);
}

/* A thread that changes something for itself, and what it does afterwards in turn with another. */
struct one {
	const struct attribute *attribute;
	pthread_barrier_t turn;
	int others;
};

static void *change_alone(void *argument)
{
	struct one *one = argument;

	one->attribute->change();
	for (int round = 0; round < 2; round++) {
		pthread_barrier_wait(&one->turn);
		one->others += others_than(one->attribute->see(), one->attribute);
		pthread_barrier_wait(&one->turn);
	}
	return NULL;
}

static void beside_another(const struct attribute *attribute)
{
	struct one one = { .attribute = attribute };
	long before = attribute->see();
	pthread_t thread;

	/* That is not the thread's alone, or its children have something else. */
	if (attribute->change == change_files || attribute->change == change_reset)
		return;
	CHECK(pthread_barrier_init(&one.turn, NULL, 2) == 0);
	CHECK(pthread_create(&thread, NULL, change_alone, &one) == 0);
	for (int round = 0; round < 2; round++) {
		pthread_barrier_wait(&one.turn);
		CHECK(others_than(before, attribute) == 0);
		pthread_barrier_wait(&one.turn);
	}
	CHECK(pthread_join(thread, NULL) == 0 && one.others == 0);
	CHECK(attribute->see() == before && others_than(before, attribute) == 0);
}

CASE(a_thread_that_changes_alone_concerns_its_own_threads_alone)
{
	with_each(beside_another);
}

/* One of several threads, each of which has a group that no other has. */
struct member {
	pthread_barrier_t *all;
	pthread_t thread;
	gid_t group;
	int others;
};

static void *start_others(void *argument)
{
	static const struct attribute groups = { "further groups", change_groups, see_groups };
	struct member *member = argument;

	CHECK(syscall(SYS_setgroups, 1, &member->group) == 0);
	pthread_barrier_wait(member->all);
	for (int round = 0; round < 3; round++)
		member->others += others_than(100 + member->group, &groups);
	return NULL;
}

CASE(threads_with_different_groups_start_threads_at_the_same_time)
{
	enum { MEMBERS = 6 };
	struct member members[MEMBERS];
	pthread_barrier_t all;

	CHECK(pthread_barrier_init(&all, NULL, MEMBERS) == 0);
	for (int i = 0; i < MEMBERS; i++) {
		members[i] = (struct member){ .all = &all, .group = 20 + i };
		CHECK(pthread_create(&members[i].thread, NULL, start_others, &members[i]) == 0);
	}
	for (int i = 0; i < MEMBERS; i++)
		CHECK(pthread_join(members[i].thread, NULL) == 0 && members[i].others == 0);
}

/* A thread that starts others when it is told to. */
struct creator {
	const struct attribute *attribute;
	pthread_barrier_t turn;
	pid_t tid;
	int others;
};

static void *create_when_told(void *argument)
{
	struct creator *creator = argument;

	creator->tid = gettid();
	pthread_barrier_wait(&creator->turn);
	pthread_barrier_wait(&creator->turn);
	creator->others = others_than(creator->attribute->see(), creator->attribute);
	return NULL;
}

CASE(what_another_thread_changes_of_a_creator_is_inherited)
{
	static const struct attribute by_others[] = {
		{ "nice value", NULL, see_nice },
		{ "input and output", NULL, see_io },
		{ "policy", NULL, see_policy },
	};

	for (int i = 0; i < 3; i++) {
		const struct attribute *attribute = &by_others[i];
		struct creator creator = { .attribute = attribute };
		long before = attribute->see();
		pthread_t thread;

		PART("%s", attribute->name);
		warm_up();
		CHECK(pthread_barrier_init(&creator.turn, NULL, 2) == 0);
		CHECK(pthread_create(&thread, NULL, create_when_told, &creator) == 0);
		pthread_barrier_wait(&creator.turn);
		if (i == 0)
			CHECK(setpriority(PRIO_PROCESS, creator.tid, 7) == 0);
		if (i == 1)
			CHECK(syscall(SYS_ioprio_set, 1, creator.tid, 2 << 13 | 5) == 0);
		if (i == 2)
			CHECK(sched_setscheduler(creator.tid, SCHED_BATCH,
						 &(struct sched_param){ 0 }) == 0);
		pthread_barrier_wait(&creator.turn);
		CHECK(pthread_join(thread, NULL) == 0 && creator.others == 0);
		CHECK(others_than(before, attribute) == 0);
	}
}

/* How many threads of the process Linux has under another user. */
static int threads_of_others(uid_t user)
{
	DIR *folder = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	CHECK(folder != NULL);
	while ((entry = readdir(folder))) {
		char name[300], line[200];
		unsigned int ids[4];
		FILE *file;

		snprintf(name, sizeof(name), "/proc/self/task/%s/status", entry->d_name);
		file = *entry->d_name == '.' ? NULL : fopen(name, "r");
		while (file && fgets(line, sizeof(line), file))
			if (sscanf(line, "Uid: %u %u %u %u", ids, ids + 1, ids + 2, ids + 3) == 4)
				count += ids[0] != user || ids[1] != user || ids[2] != user ||
					 ids[3] != user;
		if (file)
			fclose(file);
	}
	closedir(folder);
	return count;
}

static void *start_and_wait(void *argument)
{
	pthread_barrier_t *turn = argument;
	static const struct attribute user = { "user", NULL, see_user };

	others_than(0, &none);
	pthread_barrier_wait(turn);
	pthread_barrier_wait(turn);
	CHECK(others_than(NOBODY * 10, &user) == 0);
	return NULL;
}

CASE(setuid_leaves_no_thread_its_rights)
{
	pid_t child = fork();

	if (!child) {
		pthread_barrier_t turn;
		pthread_t threads[3];

		warm_up();
		CHECK(pthread_barrier_init(&turn, NULL, 4) == 0);
		for (int i = 0; i < 3; i++)
			CHECK(pthread_create(&threads[i], NULL, start_and_wait, &turn) == 0);
		pthread_barrier_wait(&turn);
		CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
		pthread_barrier_wait(&turn);
		for (int i = 0; i < 3; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
		for (int i = 0; i < 100 && threads_of_others(NOBODY); i++)
			usleep(20000);
		CHECK(threads_of_others(NOBODY) == 0);
		_exit(0);
	}
	CHECK(child > 0 && exits_with(child, 0));
}

/* Linux sends the signals: one for each byte that arrives at a socket. */
CASE(signals_for_the_process_arrive_while_what_is_inherited_changes)
{
	enum { SIGNALS = 200 };
	int ends[2], number = 0;
	siginfo_t info;
	sigset_t set;
	pid_t child;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CHECK(fcntl(ends[0], F_SETOWN, getpid()) == 0 && fcntl(ends[0], F_SETSIG, SIGRTMIN) == 0 &&
	      fcntl(ends[0], F_SETFL, O_ASYNC) == 0);
	child = fork();
	if (!child) {
		for (int i = 0; i < SIGNALS; i++) {
			CHECK(write(ends[1], "", 1) == 1);
			usleep(500);
		}
		_exit(0);
	}
	for (int round = 0; round < 10; round++) {
		CHECK(prctl(PR_SET_TIMERSLACK, 50000 + round) == 0);
		others_than(0, &none);
	}
	CHECK(exits_with(child, 0));
	while (number < SIGNALS &&
	       sigtimedwait(&set, &info, &(struct timespec){ 5, 0 }) == SIGRTMIN)
		number++;
	CHECK(number == SIGNALS && fcntl(ends[0], F_SETFL, 0) == 0);
}
