// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A shadow in the hands of its owner: runs a command under ptrace and forges what Linux tells it.
 *
 *	forge status TRUE CLAIMED COMMAND...	fstat of TRUE tells what that of CLAIMED would
 *	forge contents OLD NEW COMMAND...	what pread reads has NEW in place of OLD
 *	forge copies NEW COMMAND...		a page that the shadow copies for the kernel is NEW
 *	forge segment ASKED GIVEN COMMAND...	who asks for a segment of shared memory gets another
 *	forge success CALL COMMAND...		system call number CALL succeeds instead of EBADF,
 *						EPERM or EACCES
 *
 * and the programs that are run so, or are to be deceived:
 *
 *	forge say		says what its file contains
 *	forge hold FILE		maps FILE shared (of a number: attaches that segment), stores "secret",
 *				and tells what is there in the end
 *	forge look FILE		maps it, tells what is there, and waits for a line
 *	forge take FILE		maps it, tells what is there, and stores "forged"
 *	forge put FILE		opens FILE for reading, and writes "forged" to it
 *	forge raise		asks for SCHED_FIFO, and tells what Linux and the caller have
 *	forge port		asks for port 0xe9
 *	forge nice		asks for the nice value -20, and tells which one it has
 *	forge queue		asks for room for 1000 signals, and tells how many there is for
 *	forge sealed		changes a file that it has sealed against writing, and tells what is
 *				there
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile char text[] = "GENUINE!";

static struct stat real, claimed;
static const char *old, *new, *copied;
static long forged_call = -1, asked = -1, given;

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

static int play(const char *role, const char *name)
{
	char byte;

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

/* Before a system call of a thread. */
static void mislead(pid_t thread)
{
	struct user_regs_struct registers;

	if (asked < 0 || ptrace(PTRACE_GETREGS, thread, NULL, &registers))
		return;
	if ((registers.orig_rax == SYS_shmat || registers.orig_rax == SYS_shmctl) &&
	    (long)registers.rdi == asked) {
		registers.rdi = given;
		ptrace(PTRACE_SETREGS, thread, NULL, &registers);
	}
}

/* What the kernel asks the shadow for; struct crtos_remote. */
struct remote {
	uint32_t slot, has_result;
	int64_t result;
	uint32_t op, number;
	uint64_t arguments[6];
};

#define REMOTE	0xc048c722
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
	} else if ((long)registers.orig_rax == forged_call &&
		   ((long)registers.rax == -EBADF || (long)registers.rax == -EPERM ||
		    (long)registers.rax == -EACCES)) {
		registers.rax = forged_call == SYS_write ? registers.rdx : 0;
		ptrace(PTRACE_SETREGS, thread, NULL, &registers);
	}
}

static int trace(char **command)
{
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
				if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
					mislead(thread);
				else
					forge(thread);
			}
		} else if (WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP) {
			signal = WSTOPSIG(status);
		}
		ptrace(PTRACE_SYSCALL, thread, NULL, signal);
	}
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
	if (count > 3 && strcmp(arguments[1], "success") == 0) {
		forged_call = atol(arguments[2]);
		return trace(arguments + 3);
	}
	return play(count > 1 ? arguments[1] : "", count > 2 ? arguments[2] : "");
}
