// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A plugin of QEMU that notes what every CPU executes while a program takes its samples.
 * `./x bench calls` compiles and loads it.
 *
 * Arguments: `mark=ADDRESS` (in hex, several times), the instructions at which the program reads
 * its clock, or `from=ADDRESS` (in hex), where a path begins that ends when any program on that CPU
 * reads its clock; and `trace=FILE`, a file of zeros, as large as `struct trace`, which has a word
 * for each block of instructions that was executed from a mark on: 4 bits for the CPU, 12 for the
 * number of instructions (MARK if it is a mark), 48 for the address. The CPU that takes the samples
 * is the first that is seen, so its number is 0.
 */
#include "blocks.h"

#define MARKS 64
#define MARK 0xfffull
#define BLOCKS (1ull << 26)
/* No sample has so many. */
#define LONGEST (1ull << 18)
#define COUNT_SHIFT 48
#define ADDRESS ((1ull << COUNT_SHIFT) - 1)

/* What the harness reads. */
static struct trace {
	/* Blocks; more were executed if it is BLOCKS. */
	uint64_t count;
	uint64_t blocks[BLOCKS];
} *trace;

static uint64_t marks[MARKS];
static size_t mark_count;
/* A path ends when a program reads its clock. */
static int ends_with_reading;
static int is_on;
static uint64_t last_mark;

static void note(uint64_t word)
{
	if (trace->count < BLOCKS)
		trace->blocks[trace->count++] = word | current() << 60;
}

static uint64_t word_of(const struct block *block)
{
	return (block->addresses[0] & ADDRESS) | block->count << COUNT_SHIFT;
}

static void begun(unsigned unused, void *block)
{
	(void)unused;
	if (is_on) {
		begins(current(), block);
		note(word_of(block));
	}
	if (trace->count - last_mark > LONGEST)
		is_on = 0;
}

static void cut(const struct block *block, uint64_t rest)
{
	uint64_t last = trace->count - 1;

	if (is_on && trace->count < BLOCKS &&
	    trace->blocks[last] == (word_of(block) | current() << 60))
		trace->blocks[last] -= rest << COUNT_SHIFT;
}

static void mark(unsigned cpu, void *word)
{
	(void)cpu;
	is_on = 1;
	note((uint64_t)word);
	last_mark = trace->count;
}

static void reading(unsigned cpu, void *word)
{
	(void)cpu;
	if (is_on && !current()) {
		note((uint64_t)word);
		is_on = 0;
	}
}

static void translated(uint64_t id, struct tb *tb)
{
	const struct block *block = observe_block(tb, begun, NO_REGISTERS);

	(void)id;
	for (size_t i = 0; i < block->count; i++) {
		struct insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t address = block->addresses[i];
		void *word = (void *)((address & ADDRESS) | MARK << COUNT_SHIFT);

		for (size_t j = 0; j < mark_count; j++)
			if (marks[j] == address)
				qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, NO_REGISTERS,
								       word);
		if (ends_with_reading && reads_clock(insn))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, reading, NO_REGISTERS, word);
	}
}

EXPORT int qemu_plugin_install(uint64_t id, const struct info *info, int count, char **arguments)
{
	(void)info;
	for (int i = 0; i < count; i++) {
		if (!strncmp(arguments[i], "mark=", 5) && mark_count < MARKS)
			marks[mark_count++] = strtoull(arguments[i] + 5, NULL, 16);
		else if (!strncmp(arguments[i], "from=", 5) && !mark_count) {
			marks[mark_count++] = strtoull(arguments[i] + 5, NULL, 16);
			ends_with_reading = 1;
		} else if (strncmp(arguments[i], "trace=", 6) ||
			   !(trace = map(arguments[i] + 6, sizeof *trace)))
			return fprintf(stderr, "calls: %s: of no use\n", arguments[i]), -1;
	}
	if (!trace || !mark_count)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
