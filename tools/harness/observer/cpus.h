/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Which CPU executes, and whether it reads the clock.
 *
 * Where one thread runs all virtual CPUs, QEMU (10.0) hands plugins the number of the CPU that
 * first executed a block. So this looks at QEMU's own variable, which there is for its modules.
 * CPUs have numbers in the order in which they are seen.
 */
#include "plugin.h"

#define CPUS 12
/* Addresses of programs are below. */
#define PROGRAMS (1ull << 47)

extern __thread const void *current_cpu;
static const void *cpus[CPUS];

static uint64_t current(void)
{
	uint64_t cpu;

	for (cpu = 0; cpu < CPUS - 1 && cpus[cpu] && cpus[cpu] != current_cpu; cpu++)
		;
	cpus[cpu] = current_cpu;
	return cpu;
}

/* Whether it is RDTSC or RDTSCP in a program. */
static int reads_clock(const struct insn *insn)
{
	uint8_t code[3] = { 0 };

	qemu_plugin_insn_data(insn, code, sizeof code);
	return qemu_plugin_insn_vaddr(insn) < PROGRAMS && code[0] == 0x0f &&
	       (code[1] == 0x31 || (code[1] == 0x01 && code[2] == 0xf9));
}
