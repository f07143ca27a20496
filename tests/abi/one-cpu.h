/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Having threads share a CPU. */
#ifndef ONE_CPU_H
#define ONE_CPU_H

#include <sched.h>

/*
 * Has the calling thread, and those that it starts from now on, on the first of the CPUs that it
 * may use. The result is that of sched_setaffinity(2).
 */
static inline int share_a_cpu(void)
{
	cpu_set_t all, one;

	if (sched_getaffinity(0, sizeof(all), &all))
		return -1;
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one);
}

#endif
