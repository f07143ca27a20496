// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A plugin of QEMU that ends the turn of a virtual CPU after so many instructions, where one thread
 * runs all CPUs in turn. `./x bench` compiles and loads it.
 *
 * Argument: `turn=FILE`, which holds one number that the harness may change at any time: the
 * instructions of a turn, 0 for turns that last until the CPU waits or a timer expires. A turn ends
 * with the block of instructions in which it has that many.
 */
#include "plugin.h"

extern __thread void *current_cpu;
/* QEMU's own, for its modules: the CPU leaves its loop before the next block. */
void cpu_exit(void *cpu);

static volatile uint64_t *turn;
static void *runs;
static uint64_t length;

static void block(unsigned unused, void *count)
{
	uint64_t most = *turn;

	(void)unused;
	if (current_cpu != runs) {
		runs = current_cpu;
		length = 0;
	}
	length += (uint64_t)count;
	if (most && length >= most) {
		length = 0;
		cpu_exit(runs);
	}
}

static void observe_block(struct tb *tb)
{
	qemu_plugin_register_vcpu_tb_exec_cb(tb, block, NO_REGISTERS,
					     (void *)qemu_plugin_tb_n_insns(tb));
}

#if INTERFACE >= 7
static void translated(struct tb *tb, void *unused)
{
	(void)unused;
	observe_block(tb);
}
#else
static void translated(uint64_t id, struct tb *tb)
{
	(void)id;
	observe_block(tb);
}
#endif

EXPORT int qemu_plugin_install(uint64_t id, const struct info *info, int count, char **arguments)
{
	(void)info;
	if (count != 1 || strncmp(arguments[0], "turn=", 5) ||
	    !(turn = map(arguments[0] + 5, sizeof *turn)))
		return fprintf(stderr, "turns: of no use\n"), -1;
#if INTERFACE >= 7
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
#else
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
#endif
	return 0;
}
