// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A shadow in the hands of its owner: runs a command under ptrace and forges what Linux tells it.
 *
 *	forge status TRUE CLAIMED COMMAND...	fstat of TRUE tells what that of CLAIMED would
 *	forge contents OLD NEW COMMAND...	what pread reads has NEW in place of OLD
 *	forge copies NEW COMMAND...		a page that the shadow copies for the kernel is NEW
 *	forge segment ASKED GIVEN COMMAND...	who asks for a segment of shared memory gets another
 *	forge socket DOMAIN TYPE COMMAND...	sockets are told to be of that family and type
 *	forge success CALL COMMAND...		system call number CALL succeeds instead of EBADF,
 *						EPERM or EACCES
 *	forge answer CALL RESULT COMMAND...	it tells RESULT instead
 *	forge halt CALL COMMAND...		who makes it does nothing any more
 *	forge freeze FILE COMMAND...		nobody does anything any more as soon as FILE exists
 *	forge seize COMMAND...			keeps the file of a program that is about to be
 *						executed, and kills who executes it
 *
 * and the programs that are run so, or are to be deceived:
 *
 *	forge say		says what its file contains
 *	forge hold FILE		maps FILE shared (of a number: attaches that segment), stores "secret",
 *				and tells what is there in the end
 *	forge look FILE		maps it, tells what is there, and waits for a line
 *	forge take FILE		maps it, tells what is there, and stores "forged"
 *	forge put FILE		opens FILE for reading, and writes "forged" to it
 *	forge punch FILE	opens FILE for reading, and makes a hole of its first page
 *	forge raise		asks for SCHED_FIFO, and tells what Linux and the caller have
 *	forge port		asks for port 0xe9
 *	forge nice		asks for the nice value -20, and tells which one it has
 *	forge queue		asks for room for 1000 signals, and tells how many there is for
 *	forge packets NUMBER	binds a socket of UDP to the interface of that number, as if it
 *				were one of packets
 *	forge raw ADDRESS	sends by a socket of UDP, and tells whether it is a raw one then
 *	forge wire NUMBER	binds a socket of packets to the interface of that number
 *	forge away ADDRESS	sends by a socket of UDP, and tells whether there is a way
 *	forge sealed		changes a file that it has sealed against writing, and tells what is
 *				there
 *	forge called FILE	maps it, and tells what /proc/self/maps calls it
 *	forge keep		tells its id and where it has "secret", and waits for a line; with a
 *				further word it has SCHED_DEADLINE
 *	forge state PID		tells on how many CPUs another process may run, how much it may
 *				map, and for how long it may run
 *	forge confine PID	has it run on one CPU; with a further word it does so again and
 *				again, while the mask is there, and is not
 *	forge limit PID		has it map nothing further
 *	forge starve PID	has it run for shorter
 *	forge peek PID ADDRESS	tells what another process has there
 *	forge promote		asks for SCHED_FIFO for its second thread, which tells what it has
 *	forge touch FILE SECONDS	maps it, and touches it that much later
 *	forge nest SECONDS	has an epoll set be a member of another that much later
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile char text[] = "GENUINE!";

static struct stat real, claimed;
static const char *old, *new, *copied;
static long forged_call = -1, forged_result, halted_call = -1, asked = -1, given;
static const char *freezer;
static int domain, type;
static int seizes;

static void say(const char *what, const volatile char *bytes)
{
	printf("%s %.6s\n", what, (const char *)bytes);
	fflush(stdout);
}

static char *map(const char *name)
{
	char *end, *page;
	long segment = strtol(name, &end, 10);
	int file;

	if (*end) {
		file = open(name, O_RDWR);
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	} else {
		page = shmat(segment, NULL, 0);
		if (page == MAP_FAILED && errno == EACCES)
			page = shmat(segment, NULL, SHM_RDONLY);
	}
	if (page == MAP_FAILED) {
		perror(name);
		exit(1);
	}
	return page;
}

/* What the line of an address in /proc/self/maps ends with. */
static int called(const char *name)
{
	const char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, open(name, O_RDONLY), 0);
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[1024];

	while (maps && fgets(line, sizeof(line), maps))
		if (strtoul(line, NULL, 16) == (unsigned long)page)
			return printf("called %s", strchr(line, '/') ?: "nothing\n") < 0;
	return 1;
}

static pid_t second;

static void *look(void *nothing)
{
	int policy = 0;

	second = gettid();
	for (int i = 0; i < 100 && policy == 0; i++) {
		usleep(20000);
		policy = sched_getscheduler(0);
	}
	printf("policy %d\n", policy);
	exit(0);
}

static int promote(void)
{
	struct sched_param parameters = { .sched_priority = 50 };
	pthread_t thread;

	if (pthread_create(&thread, NULL, look, NULL))
		return 1;
	while (!*(volatile pid_t *)&second)
		usleep(1000);
	sched_setscheduler(second, SCHED_FIFO, &parameters);
	return pthread_join(thread, NULL);
}

/* As of sched_setattr(2). */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static int reserve(pid_t pid, uint64_t runtime)
{
	struct attributes wanted = { .size = sizeof(wanted), .policy = 6, .runtime = runtime };

	wanted.deadline = wanted.period = 100000000;
	return syscall(SYS_sched_setattr, pid, &wanted, 0);
}

static int state(pid_t pid)
{
	struct attributes is = { 0 };
	struct rlimit limit;
	cpu_set_t cpus;

	if (sched_getaffinity(pid, sizeof(cpus), &cpus) || prlimit(pid, RLIMIT_AS, NULL, &limit) ||
	    syscall(SYS_sched_getattr, pid, &is, sizeof(is), 0))
		return 1;
	return printf("%d CPUs, %lx bytes, %lu ns\n", CPU_COUNT(&cpus), limit.rlim_cur,
		      is.runtime) < 0;
}

static cpu_set_t *one;

static void *hide(void *nothing)
{
	for (;;) {
		mprotect(one, 4096, PROT_NONE);
		mprotect(one, 4096, PROT_READ | PROT_WRITE);
	}
	return nothing;
}

static int confine(pid_t pid, int tries)
{
	pthread_t hider;
	cpu_set_t all;
	int result, cpu = 0;

	one = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sched_getaffinity(0, sizeof(all), &all);
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_SET(cpu, one);
	if (tries > 1)
		pthread_create(&hider, NULL, hide, NULL);
	do
		result = sched_setaffinity(pid, sizeof(*one), one);
	while (result && --tries);
	return printf("confined %d\n", result) < 0;
}

static int peek(const char *pid, const char *address)
{
	char found[8] = "nothing";
	struct iovec own = { found, 6 }, other = { (void *)strtoul(address, NULL, 16), 6 };

	if (process_vm_readv(atoi(pid), &own, 1, &other, 1, 0) == 6)
		found[6] = 0;
	return printf("peeked %s\n", found) < 0;
}

static int nest(unsigned int seconds)
{
	int outer = epoll_create1(0), inner = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };

	puts("ready");
	fflush(stdout);
	sleep(seconds);
	return epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) || puts("nested") < 0;
}

static int play(const char *role, const char *name, const char *more)
{
	char byte;

	if (strcmp(role, "called") == 0)
		return called(name);
	if (strcmp(role, "promote") == 0)
		return promote();
	if (strcmp(role, "peek") == 0)
		return peek(name, more);
	if (strcmp(role, "nest") == 0)
		return nest(atoi(name));
	if (strcmp(role, "state") == 0)
		return state(atoi(name));
	if (strcmp(role, "confine") == 0)
		return confine(atoi(name), *more ? 3000 : 1);
	if (strcmp(role, "limit") == 0) {
		struct rlimit none = { 0, RLIM_INFINITY };

		return printf("limited %d\n", prlimit(atoi(name), RLIMIT_AS, &none, NULL)) < 0;
	}
	if (strcmp(role, "starve") == 0)
		return printf("starved %d\n", reserve(atoi(name), 1000000)) < 0;
	if (strcmp(role, "keep") == 0) {
		static char secret[] = "secret";

		if (*name && reserve(0, 10000000))
			return 1;
		printf("%d %lx\n", getpid(), (unsigned long)secret);
		fflush(stdout);
		return read(STDIN_FILENO, &byte, 1) < 0;
	}
	if (strcmp(role, "touch") == 0) {
		volatile char *page = mmap(NULL, 8 << 20, PROT_READ, MAP_PRIVATE,
					   open(name, O_RDONLY), 0);

		puts("ready");
		fflush(stdout);
		sleep(atoi(more));
		return page[1 << 20] + puts("touched") < 0;
	}
	if (strcmp(role, "say") == 0)
		return printf("%s\n", (const char *)text) < 0;
	if (strcmp(role, "hold") == 0) {
		char *page = map(name);

		memcpy(page, "secret", 6);
		say("holds", page);
		if (read(STDIN_FILENO, &byte, 1) < 0)
			return 1;
		say("held", page);
		return 0;
	}
	if (strcmp(role, "look") == 0) {
		say("found", map(name));
		return read(STDIN_FILENO, &byte, 1) < 0;
	}
	if (strcmp(role, "take") == 0) {
		char *page = map(name);

		say("took", page);
		memcpy(page, "forged", 6);
		return 0;
	}
	if (strcmp(role, "put") == 0) {
		int file = open(name, O_RDONLY);

		printf("put %zd\n", write(file, "forged", 6));
		return 0;
	}
	if (strcmp(role, "punch") == 0) {
		const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

		printf("punched %d\n", fallocate(open(name, O_RDONLY), hole, 0, 4096));
		return 0;
	}
	if (strcmp(role, "raise") == 0) {
		struct sched_param parameters = { .sched_priority = 50 };
		int result = sched_setscheduler(0, SCHED_FIFO, &parameters);

		printf("raised %d policy %d\n", result, sched_getscheduler(0));
		return 0;
	}
	if (strcmp(role, "port") == 0) {
		printf("port %d\n", ioperm(0xe9, 1, 1));
		return 0;
	}
	if (strcmp(role, "nice") == 0) {
		struct {
			uint32_t size, policy;
			uint64_t flags;
			int32_t nice;
			uint32_t rest[7];
		} is;

		setpriority(PRIO_PROCESS, 0, -20);
		if (syscall(SYS_sched_getattr, 0, &is, sizeof(is), 0))
			return 1;
		printf("nice %d\n", is.nice);
		return 0;
	}
	if (strcmp(role, "queue") == 0) {
		struct rlimit limit = { 1000, 1000 };
		sigset_t set;
		int count = 0;

		setrlimit(RLIMIT_SIGPENDING, &limit);
		sigemptyset(&set);
		sigaddset(&set, SIGRTMIN);
		sigprocmask(SIG_BLOCK, &set, NULL);
		while (count < 900 && !sigqueue(getpid(), SIGRTMIN, (union sigval){ 0 }))
			count++;
		printf("%s\n", count < 900 ? "few" : "many");
		return 0;
	}
	if (strcmp(role, "packets") == 0) {
		struct sockaddr_ll address = { .sll_family = AF_PACKET,
					       .sll_protocol = htons(ETH_P_ALL),
					       .sll_ifindex = atoi(name) };
		int fd = socket(AF_INET, SOCK_DGRAM, 0);
		int result = bind(fd, (struct sockaddr *)&address, sizeof(address));

		printf("packets %s\n", result ? strerrorname_np(errno) : "yes");
		return 0;
	}
	if (strcmp(role, "wire") == 0) {
		struct sockaddr_ll address = { .sll_family = AF_PACKET,
					       .sll_protocol = htons(ETH_P_ALL),
					       .sll_ifindex = atoi(name) };
		int fd = socket(AF_PACKET, SOCK_RAW, 0);
		int result = fd < 0 ? fd : bind(fd, (struct sockaddr *)&address, sizeof(address));

		printf("wire %s\n", result ? strerrorname_np(errno) : "yes");
		return 0;
	}
	if (strcmp(role, "away") == 0) {
		struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(9) };
		int fd = socket(AF_INET, SOCK_DGRAM, 0);
		ssize_t sent;

		inet_aton(name, &address.sin_addr);
		sent = sendto(fd, "x", 1, 0, (struct sockaddr *)&address, sizeof(address));
		printf("away %s\n", sent == 1 ? "yes" : strerrorname_np(errno));
		return 0;
	}
	if (strcmp(role, "raw") == 0) {
		struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(9) };
		int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;

		inet_aton(name, &address.sin_addr);
		if (sendto(fd, "x", 1, 0, (struct sockaddr *)&address, sizeof(address)) != 1)
			return 1;
		printf("raw %s\n", setsockopt(fd, IPPROTO_IP, IP_HDRINCL, &on, sizeof(on)) ?
		       "no" : "yes");
		return 0;
	}
	if (strcmp(role, "sealed") == 0) {
		int file = memfd_create("sealed", MFD_ALLOW_SEALING);
		char *page;

		if (write(file, "secret", 6) != 6 || fcntl(file, F_ADD_SEALS, F_SEAL_WRITE))
			return 1;
		page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		if (page != MAP_FAILED)
			memcpy(page, "forged", 6);
		say("sealed", page == MAP_FAILED ? "secret" : page);
		return 0;
	}
	return 2;
}

static void copy_in(pid_t thread, uint64_t address, void *to, size_t length)
{
	struct iovec local = { to, length }, remote = { (void *)address, length };

	if (process_vm_readv(thread, &local, 1, &remote, 1, 0) != (ssize_t)length)
		memset(to, 0, length);
}

static void copy_out(pid_t thread, uint64_t address, void *from, size_t length)
{
	struct iovec local = { from, length }, remote = { (void *)address, length };

	if (process_vm_writev(thread, &local, 1, &remote, 1, 0) != (ssize_t)length)
		fprintf(stderr, "forge: cannot write\n");
}

/* Before a system call of a thread: does it go on? */
static int mislead(pid_t thread)
{
	struct user_regs_struct registers;

	if (ptrace(PTRACE_GETREGS, thread, NULL, &registers))
		return 1;
	if ((long)registers.orig_rax == halted_call)
		return 0;
	if ((registers.orig_rax == SYS_shmat || registers.orig_rax == SYS_shmctl) &&
	    (long)registers.rdi == asked) {
		registers.rdi = given;
		ptrace(PTRACE_SETREGS, thread, NULL, &registers);
	}
	return 1;
}

/* What the kernel asks the shadow for; struct crtos_remote. */
struct remote {
	uint32_t slot, has_result;
	int64_t result;
	uint32_t op, number;
	uint64_t arguments[6];
};

#define REMOTE	0xc048c722
#define REOPEN	0xc724
#define COPY	13

/* After a shadow thread got a request: one to copy a page copies another. */
static void forge_copy(pid_t thread, const struct user_regs_struct *registers)
{
	uint64_t place = (registers->rsp & -4096ull) - 2 * 4096;
	char page[4096] = { 0 };
	struct remote remote;

	copy_in(thread, registers->rdx, &remote, sizeof(remote));
	if (remote.op != COPY || remote.arguments[2] != sizeof(page))
		return;
	strcpy(page, copied);
	copy_out(thread, place, page, sizeof(page));
	remote.arguments[1] = place;
	copy_out(thread, registers->rdx, &remote, sizeof(remote));
}

static pid_t traced;

/* After a system call of a thread. */
static void forge(pid_t thread)
{
	struct user_regs_struct registers;

	if (ptrace(PTRACE_GETREGS, thread, NULL, &registers))
		return;
	if (registers.orig_rax == SYS_fstat && registers.rax == 0 && claimed.st_ino) {
		struct stat status;

		copy_in(thread, registers.rsi, &status, sizeof(status));
		if (status.st_dev == real.st_dev && status.st_ino == real.st_ino)
			copy_out(thread, registers.rsi, &claimed, sizeof(claimed));
	} else if (registers.orig_rax == SYS_pread64 && (long)registers.rax > 0 && old) {
		char *bytes = malloc(registers.rax), *at = bytes;
		size_t length = strlen(old);

		copy_in(thread, registers.rsi, bytes, registers.rax);
		while ((at = memmem(at, bytes + registers.rax - at, old, length))) {
			copy_out(thread, registers.rsi + (at - bytes), (void *)new, length);
			at += length;
		}
		free(bytes);
	} else if (registers.orig_rax == SYS_ioctl && (uint32_t)registers.rsi == REMOTE &&
		   registers.rax == 0 && copied) {
		forge_copy(thread, &registers);
	} else if (registers.orig_rax == SYS_ioctl && registers.rsi == REOPEN &&
		   registers.rdx == 0 && (long)registers.rax >= 0 && seizes) {
		int process = syscall(SYS_pidfd_open, traced, 0);

		say("seized", syscall(SYS_pidfd_getfd, process, registers.rax, 0) < 0 ? "none" :
									       "file");
		kill(traced, SIGKILL);
	} else if (registers.orig_rax == SYS_getsockopt && registers.rax == 0 && domain &&
		   registers.rsi == SOL_SOCKET &&
		   (registers.rdx == SO_DOMAIN || registers.rdx == SO_TYPE)) {
		copy_out(thread, registers.r10, registers.rdx == SO_DOMAIN ? &domain : &type,
			 sizeof(domain));
	} else if ((long)registers.orig_rax == forged_call &&
		   ((long)registers.rax == -EBADF || (long)registers.rax == -EPERM ||
		    (long)registers.rax == -EACCES)) {
		registers.rax = forged_call == SYS_write ? registers.rdx : forged_result;
		ptrace(PTRACE_SETREGS, thread, NULL, &registers);
	}
}

/* Has all threads stop where they are, as soon as that is due. */
static void look_for_freezer(int signal)
{
	char name[64];

	if (!freezer || access(freezer, F_OK))
		return;
	for (pid_t tid = traced; tid < traced + 1000; tid++) {
		snprintf(name, sizeof(name), "/proc/%d/task/%d", traced, tid);
		if (!access(name, F_OK))
			syscall(SYS_tgkill, traced, tid, SIGSTOP);
	}
	freezer = NULL;
	halted_call = SYS_ioctl;
}

static int trace(char **command)
{
	const struct sigaction action = { .sa_handler = look_for_freezer, .sa_flags = SA_RESTART };
	const struct itimerval often = { { 0, 200000 }, { 0, 200000 } };
	const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
			     PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
	pid_t first = fork(), thread;
	int status, result = 1;

	if (!first) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		execvp(command[0], command);
		_exit(127);
	}
	waitpid(first, &status, 0);
	traced = first;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	ptrace(PTRACE_SETOPTIONS, first, NULL, options);
	ptrace(PTRACE_SYSCALL, first, NULL, NULL);
	while ((thread = waitpid(-1, &status, __WALL)) > 0) {
		struct __ptrace_syscall_info info;
		long signal = 0;

		if (!WIFSTOPPED(status)) {
			if (thread == first)
				result = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
			continue;
		}
		if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info) > 0) {
				if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
					forge(thread);
				else if (!mislead(thread))
					continue;
			}
		} else if (WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP) {
			signal = WSTOPSIG(status);
		}
		ptrace(PTRACE_SYSCALL, thread, NULL, signal);
	}
	while (seizes)
		pause();
	return result;
}

int main(int count, char **arguments)
{
	if (count > 4 && strcmp(arguments[1], "status") == 0) {
		if (stat(arguments[2], &real) || stat(arguments[3], &claimed))
			return 2;
		return trace(arguments + 4);
	}
	if (count > 4 && strcmp(arguments[1], "contents") == 0) {
		old = arguments[2];
		new = arguments[3];
		return trace(arguments + 4);
	}
	if (count > 3 && strcmp(arguments[1], "copies") == 0) {
		copied = arguments[2];
		return trace(arguments + 3);
	}
	if (count > 4 && strcmp(arguments[1], "segment") == 0) {
		asked = atol(arguments[2]);
		given = atol(arguments[3]);
		return trace(arguments + 4);
	}
	if (count > 4 && strcmp(arguments[1], "socket") == 0) {
		domain = atoi(arguments[2]);
		type = atoi(arguments[3]);
		return trace(arguments + 4);
	}
	if (count > 3 && strcmp(arguments[1], "success") == 0) {
		forged_call = atol(arguments[2]);
		return trace(arguments + 3);
	}
	if (count > 4 && strcmp(arguments[1], "answer") == 0) {
		forged_call = atol(arguments[2]);
		forged_result = atol(arguments[3]);
		return trace(arguments + 4);
	}
	if (count > 3 && strcmp(arguments[1], "halt") == 0) {
		halted_call = atol(arguments[2]);
		return trace(arguments + 3);
	}
	if (count > 3 && strcmp(arguments[1], "freeze") == 0) {
		freezer = arguments[2];
		return trace(arguments + 3);
	}
	if (count > 2 && strcmp(arguments[1], "seize") == 0) {
		seizes = 1;
		return trace(arguments + 2);
	}
	return play(count > 1 ? arguments[1] : "", count > 2 ? arguments[2] : "",
		    count > 3 ? arguments[3] : "");
}
