// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A plugin of QEMU that notes which CPU executes, and for how long, while a thread sleeps and wakes up. `./x bench --own` compiles and loads it.
 *
 * Argument: `trace=FILE`, a file of zeros, as large as `struct trace`. It has a word for each thing that happens, 4 bits for what it is and 60 for a number:
 *     a CPU's number   it executes so many instructions before another one does
 *     WAITED           until now all CPUs waited
 *     SLEEPS           a thread begins to sleep until a certain time (`clock_nanosleep`, absolute, CLOCK_MONOTONIC)
 *     READ             this thread has found so much in the time stamp counter, for the first time since; the CPU is that of the word before
 * It begins with the first thread that sleeps so, and pauses while none has done it for long.
 */
#include "cpus.h"

enum { WAITED = 12, SLEEPS, READ };
#define NUMBER ((1ull << 60) - 1)
#define WORDS (1ull << 26)
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
/* The thread that sleeps, by the base of its own data; none if 0. */
static uint64_t sleeper;
/* The word that is to hold what a CPU has just found in its counter, and that CPU. */
static uint64_t *reading, reader;

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

static void note(uint64_t what, uint64_t number)
{
	if (trace->count < WORDS)
		trace->words[trace->count++] = what << 60 | (number & NUMBER);
}

static void flush(void)
{
	if (length)
		note(runs, length);
	length = 0;
}

static void block(unsigned unused, void *count)
{
	uint64_t cpu;

	(void)unused;
	if (!is_on)
		return;
	cpu = current();
	if (cpu != runs || waiting >> cpu & 1)
		flush();
	if (waiting == all)
		note(WAITED, 0);
	waiting &= ~(1ull << cpu);
	if (reading && reader == cpu) {
		*reading |= (read_register(&rdx) << 32 | (read_register(&rax) & 0xffffffff)) & NUMBER;
		reading = NULL;
	}
	runs = cpu;
	length += (uint64_t)count;
	since += (uint64_t)count;
	if (since > LONGEST)
		is_on = 0;
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
	is_on = 1;
}

static void calls(unsigned unused, void *word)
{
	(void)unused;
	(void)word;
	if (read_register(&rax) != CLOCK_NANOSLEEP || read_register(&rdi) != MONOTONIC ||
	    !(read_register(&rsi) & ABSOLUTE))
		return;
	if (!is_on)
		begin();
	since = 0;
	reading = NULL;
	sleeper = read_register(&fs);
	flush();
	note(SLEEPS, 0);
}

/* `after`: instructions of its block that come after it. */
static void reads(unsigned unused, void *after)
{
	(void)unused;
	if (!is_on || !sleeper || read_register(&fs) != sleeper)
		return;
	sleeper = 0;
	length -= (uint64_t)after;
	flush();
	length = (uint64_t)after;
	note(READ, 0);
	reading = &trace->words[trace->count - 1];
	reader = runs;
}

static void translated(uint64_t id, struct tb *tb)
{
	uint64_t count = qemu_plugin_tb_n_insns(tb);

	(void)id;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, block, READS_REGISTERS, (void *)count);
	for (size_t i = 0; i < count; i++) {
		struct insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t code[2] = { 0 };

		qemu_plugin_insn_data(insn, code, sizeof code);
		if (code[0] == 0xf4)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, waits, READS_REGISTERS, NULL);
		if (qemu_plugin_insn_vaddr(insn) < PROGRAMS && code[0] == 0x0f && code[1] == 0x05)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, calls, READS_REGISTERS, NULL);
		if (reads_clock(insn))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, reads, READS_REGISTERS, (void *)(count - i - 1));
	}
}

static void begun(uint64_t id, unsigned cpu)
{
	(void)id;
	for (struct named **wanted = (struct named *[]){ &rax, &rdx, &rdi, &rsi, &fs, NULL }; *wanted; wanted++)
		find_register(*wanted);
	all |= 1ull << cpu;
}

EXPORT int qemu_plugin_install(uint64_t id, const struct info *info, int count, char **arguments)
{
	(void)info;
	if (count != 1 || strncmp(arguments[0], "trace=", 6) || !(trace = map(arguments[0] + 6, sizeof *trace)))
		return fprintf(stderr, "own: of no use\n"), -1;
	qemu_plugin_register_vcpu_init_cb(id, begun);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
