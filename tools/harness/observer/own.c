// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A plugin of QEMU that notes which CPU executes, and for how long, before a thread that has slept
 * reads the clock. `./x bench --own` compiles and loads it.
 *
 * Arguments: `mark=ADDRESS` (in hex, several times), the instructions at which a program reads the
 * clock before it gives a device a reason to interrupt; and `trace=FILE`, a file of zeros, as large
 * as `struct trace`. It has a word for each thing that happens, 4 bits for what it is and 60 for a
 * number:
 *
 *   a CPU's number  it executes so many instructions before another one does
 *   WAITED          until now all CPUs waited
 *   FORGOTTEN       what came before is not kept
 *   WOKE            a thread, told by the base of its own data, has slept until a certain time
 *                   (`clock_nanosleep`, absolute, CLOCK_MONOTONIC), or until a device interrupted
 *   READ            it finds so much in the time stamp counter, for the first time since; the CPU
 *                   is that of the last turn. Without WOKE before it, a thread is about to give a
 *                   device its reason
 *
 * It begins with the first thread that sleeps so or gives a reason, and pauses while none has done
 * it for long.
 */
#include "blocks.h"

enum { WAITED = 12, FORGOTTEN, WOKE, READ };
#define NUMBER ((1ull << 60) - 1)
#define WORDS (1ull << 26)
/* What is kept before a wake-up: with short turns, half a millisecond. */
#define RECENT 2048
#define SLEEPERS 16
#define MARKS 16
/* In instructions: nobody sleeps for so long. */
#define LONGEST (1ull << 26)
/* Linux's numbers. */
#define CLOCK_NANOSLEEP 230
#define MONOTONIC 1
#define ABSOLUTE 1

/* What the harness reads. */
static struct trace {
	/* Words; more happened if it is WORDS. */
	uint64_t count;
	uint64_t words[WORDS];
} *trace;

/* Registers by QEMU's names. */
static struct named {
	const char *name;
	void *handle;
} rax = { "rax", NULL }, rdx = { "rdx", NULL }, rdi = { "rdi", NULL }, rsi = { "rsi", NULL },
  fs = { "fs_base", NULL };
static struct bytes *value;
static int is_on;
/* Who executes, and for how long until now. */
static uint64_t runs, length;
/* Instructions since somebody began to sleep. */
static uint64_t since;
/* CPUs that exist, and those that have said that they wait. */
static uint64_t all, waiting;
/* The threads that sleep, by the base of their own data; 0 where there is none. */
static uint64_t sleepers[SLEEPERS];
/* The place that is taken when none is free. */
static unsigned next;
/* Where devices are given their reasons; who has just done so, or 0, and on which CPU. */
static uint64_t marks[MARKS], giver, giver_cpu;
static size_t mark_count;
/* What happened last, in a ring, and how much since a thread woke. */
static uint64_t recent[RECENT], happened;
/* The words that are to hold what CPUs have just found in their counters. */
static uint64_t *readings[CPUS];

/* To be called as a CPU begins. */
static void find_register(struct named *wanted)
{
	struct array *registers = qemu_plugin_get_registers();
	struct description *all = (struct description *)registers->data;

	for (unsigned i = 0; i < registers->length && !wanted->handle; i++)
		if (!strcmp(all[i].name, wanted->name))
			wanted->handle = all[i].handle;
	if (!value)
		value = g_byte_array_new();
}

static uint64_t read_register(const struct named *wanted)
{
	uint64_t word = 0;

	g_byte_array_set_size(value, 0);
	if (qemu_plugin_read_register(wanted->handle, value) == sizeof word)
		memcpy(&word, value->data, sizeof word);
	return word;
}

static uint64_t *put(uint64_t word)
{
	uint64_t at = trace->count;

	if (at < WORDS)
		trace->words[trace->count++] = word;
	return &trace->words[at < WORDS ? at : WORDS - 1];
}

static uint64_t entry(uint64_t what, uint64_t number)
{
	return what << 60 | (number & NUMBER);
}

static void note(uint64_t what, uint64_t number)
{
	recent[happened++ % RECENT] = entry(what, number);
}

static void end_turn(void)
{
	if (length)
		note(runs, length);
	length = 0;
}

static void write_recent(void)
{
	uint64_t kept = happened < RECENT ? happened : RECENT;

	if (happened > kept)
		put(entry(FORGOTTEN, 0));
	for (uint64_t at = happened - kept; at < happened; at++)
		put(recent[at % RECENT]);
	happened = 0;
}

/* The place of a thread among those that sleep, or a free one for 0. None if there is not. */
static uint64_t *find(uint64_t thread)
{
	for (unsigned i = 0; i < SLEEPERS; i++)
		if (sleepers[i] == thread)
			return &sleepers[i];
	return NULL;
}

static void begun(unsigned unused, void *word)
{
	const struct block *block = word;
	uint64_t cpu;

	(void)unused;
	if (!is_on)
		return;
	cpu = current();
	begins(cpu, block);
	if (cpu != runs || waiting >> cpu & 1)
		end_turn();
	if (waiting == all)
		note(WAITED, 0);
	waiting &= ~(1ull << cpu);
	if (readings[cpu]) {
		*readings[cpu] |= (read_register(&rdx) << 32 | (read_register(&rax) & 0xffffffff)) &
				  NUMBER;
		readings[cpu] = NULL;
	}
	runs = cpu;
	length += block->count;
	since += block->count;
	if (since > LONGEST)
		is_on = 0;
}

static void cut(const struct block *block, uint64_t rest)
{
	(void)block;
	if (is_on && current() == runs && length >= rest)
		length -= rest;
}

static void waits(unsigned unused, void *word)
{
	(void)unused;
	(void)word;
	if (is_on)
		waiting |= 1ull << current();
}

/* The others wait, as far as one knows: each that does not will show up. */
static void begin(void)
{
	runs = current();
	waiting = all & ~(1ull << runs);
	length = 0;
	happened = 0;
	note(FORGOTTEN, 0);
	memset(readings, 0, sizeof readings);
	is_on = 1;
}

static void calls(unsigned unused, void *word)
{
	uint64_t thread, *place;

	(void)unused;
	(void)word;
	if (read_register(&rax) != CLOCK_NANOSLEEP || read_register(&rdi) != MONOTONIC ||
	    !(read_register(&rsi) & ABSOLUTE))
		return;
	if (!is_on)
		begin();
	since = 0;
	thread = read_register(&fs);
	place = find(thread);
	if (!place)
		place = find(0);
	/* Some sleepers never read the clock. */
	if (!place)
		place = &sleepers[next++ % SLEEPERS];
	*place = thread;
}

/* `after`: instructions of the block that come after this one, where a turn is divided. */
static void divide(void *after)
{
	length -= (uint64_t)after;
	end_turn();
	length = (uint64_t)after;
}

/* Before what others do is of interest. */
static void gives(unsigned unused, void *after)
{
	(void)unused;
	if (is_on) {
		divide(after);
	} else {
		begin();
		length = (uint64_t)after;
	}
	since = 0;
	happened = 0;
	giver = read_register(&fs);
	giver_cpu = runs;
	readings[runs] = put(entry(READ, 0));
}

/* Whether a thread that reads the clock has slept, until a time or a device's interrupt. */
static int has_slept(uint64_t thread)
{
	uint64_t *place;

	if (giver && thread != giver && runs == giver_cpu) {
		giver = 0;
		return 1;
	}
	place = thread ? find(thread) : NULL;
	if (place)
		*place = 0;
	return !!place;
}

static void reads(unsigned unused, void *after)
{
	uint64_t thread;

	(void)unused;
	if (!is_on)
		return;
	thread = read_register(&fs);
	if (!has_slept(thread))
		return;
	divide(after);
	write_recent();
	put(entry(WOKE, thread));
	readings[runs] = put(entry(READ, 0));
}

static int is_marked(const struct insn *insn)
{
	for (size_t i = 0; i < mark_count; i++)
		if (marks[i] == qemu_plugin_insn_vaddr(insn))
			return 1;
	return 0;
}

static void translated(uint64_t id, struct tb *tb)
{
	const uint64_t count = observe_block(tb, begun, READS_REGISTERS)->count;

	(void)id;
	for (size_t i = 0; i < count; i++) {
		struct insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t code[2] = { 0 };

		qemu_plugin_insn_data(insn, code, sizeof code);
		if (code[0] == 0xf4)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, waits, READS_REGISTERS, NULL);
		if (qemu_plugin_insn_vaddr(insn) < PROGRAMS && code[0] == 0x0f && code[1] == 0x05)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, calls, READS_REGISTERS, NULL);
		if (reads_clock(insn))
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, is_marked(insn) ? gives : reads, READS_REGISTERS,
				(void *)(count - i - 1));
	}
}

static void starts(uint64_t id, unsigned cpu)
{
	(void)id;
	for (struct named **wanted = (struct named *[]){ &rax, &rdx, &rdi, &rsi, &fs, NULL };
	     *wanted; wanted++)
		find_register(*wanted);
	all |= 1ull << cpu;
}

EXPORT int qemu_plugin_install(uint64_t id, const struct info *info, int count, char **arguments)
{
	(void)info;
	for (int i = 0; i < count; i++) {
		if (!strncmp(arguments[i], "mark=", 5) && mark_count < MARKS)
			marks[mark_count++] = strtoull(arguments[i] + 5, NULL, 16);
		else if (strncmp(arguments[i], "trace=", 6) ||
			 !(trace = map(arguments[i] + 6, sizeof *trace)))
			return fprintf(stderr, "own: %s: of no use\n", arguments[i]), -1;
	}
	if (!trace)
		return -1;
	qemu_plugin_register_vcpu_init_cb(id, starts);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
