// SPDX-License-Identifier: MIT OR Apache-2.0
/* Policies, priorities and affinity of the calling process. Run as root. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

int main(void)
{
	struct sched_param param = { 0 };
	struct timespec interval;
	unsigned int cpu = 999, node;
	cpu_set_t set;

	CHECK(sched_getscheduler(0) == SCHED_OTHER && sched_getparam(0, &param) == 0 && param.sched_priority == 0);
	CHECK(sched_get_priority_min(SCHED_FIFO) == 1 && sched_get_priority_max(SCHED_RR) == 99);
	CHECK(sched_get_priority_max(SCHED_OTHER) == 0);
	FAILS(EINVAL, sched_get_priority_max(77));
	param.sched_priority = 42;
	CHECK(sched_setscheduler(0, SCHED_FIFO, &param) == 0 && sched_getscheduler(getpid()) == SCHED_FIFO);
	param.sched_priority = 0;
	CHECK(sched_getparam(0, &param) == 0 && param.sched_priority == 42);
	param.sched_priority = 7;
	CHECK(sched_setparam(0, &param) == 0 && sched_getscheduler(0) == SCHED_FIFO);
	CHECK(sched_setscheduler(0, SCHED_RR, &param) == 0 && sched_rr_get_interval(0, &interval) == 0);
	CHECK(interval.tv_sec == 0 && interval.tv_nsec > 0);
	CHECK(sched_yield() == 0);
	param.sched_priority = 100;
	FAILS(EINVAL, sched_setscheduler(0, SCHED_FIFO, &param));
	param.sched_priority = 0;
	FAILS(EINVAL, sched_setscheduler(0, SCHED_FIFO, &param));
	param.sched_priority = 1;
	FAILS(EINVAL, sched_setscheduler(0, SCHED_OTHER, &param));
	FAILS(EINVAL, sched_setscheduler(0, 77, &param));
	FAILS(ESRCH, sched_getscheduler(0x3fffffff));
	FAILS(EINVAL, sched_getscheduler(-1));
	param.sched_priority = 9;
	CHECK(sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) == 0);
	CHECK(sched_getscheduler(0) == (SCHED_FIFO | SCHED_RESET_ON_FORK));
	pid_t child = fork();
	if (child == 0)
		_exit(sched_getscheduler(0) != SCHED_OTHER || sched_getparam(0, &param) != 0 || param.sched_priority != 0);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	param.sched_priority = 0;
	CHECK(sched_setscheduler(0, SCHED_OTHER, &param) == 0);

	CHECK(sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0);
	CHECK(syscall(SYS_getcpu, &cpu, &node, NULL) == 0 && CPU_ISSET(cpu, &set));
	CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
	CPU_ZERO(&set);
	FAILS(EINVAL, sched_setaffinity(0, sizeof(set), &set));
	FAILS(EINVAL, syscall(SYS_sched_getaffinity, 0, 1, &set));
	FAILS(EFAULT, sched_setaffinity(0, sizeof(set), (cpu_set_t *)8));
	return finish();
}
