/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Blocks of instructions, and how much of them is executed.
 *
 * An access to a device that is not the last instruction of its block ends the block there: QEMU
 * (10.0) executes that instruction once more, in a block of its own, of which plugins hear nothing
 * but the access, and what comes behind it as another block. It counts virtual time as it is; a
 * plugin that adds up whole blocks would count the rest of the first one twice.
 */
#include "cpus.h"

struct block {
	uint64_t count;
	uint64_t addresses[];		/* of its instructions */
};

/* What each CPU has begun last, as far as the plugin has said so by begins(), and if it has. */
static const struct block *begun_block[CPUS];
static int has_begun;

/* To be defined by the plugin: of @block, the last one, so many instructions are not executed. */
static void cut(const struct block *block, uint64_t rest);

static void begins(uint64_t cpu, const struct block *block)
{
	begun_block[cpu] = block;
	has_begun = 1;
}

static void accesses(unsigned unused, uint32_t how, uint64_t data, void *word)
{
	uint64_t cpu, address = *(uint64_t *)word;
	const struct block *block;

	(void)unused;
	(void)how;
	(void)data;
	/* The first CPU that begins is to be the first that is seen. */
	if (!has_begun)
		return;
	cpu = current();
	block = begun_block[cpu];
	for (uint64_t i = 0; block && i + 1 < block->count; i++)
		if (block->addresses[i] == address) {
			begun_block[cpu] = NULL;
			cut(block, block->count - i - 1);
			return;
		}
}

/* Has @begun called with what is returned whenever the block begins. */
static struct block *observe_block(struct tb *tb, observe *begun, int flags)
{
	uint64_t count = qemu_plugin_tb_n_insns(tb);
	struct block *block = malloc(sizeof *block + count * sizeof *block->addresses);

	if (!block)
		abort();
	block->count = count;
	for (uint64_t i = 0; i < count; i++)
		block->addresses[i] = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, i));
	qemu_plugin_register_vcpu_tb_exec_cb(tb, begun, flags, block);
	if (count == 1)
		qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, 0), accesses,
						 NO_REGISTERS, READS_AND_WRITES, block->addresses);
	return block;
}
