// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A plugin of QEMU that counts how many instructions the realm's kernel executes between the places
 * where sections with interrupts off begin and end. `./x bench sections` compiles and loads it.
 *
 * Arguments: `places=FILE`, what to observe, a line each:
 *     c START END   instructions from START to before END are counted
 *     f ADDRESS     from here on sections of this CPU are kept
 *     s ADDRESS     an interrupt or exception enters the kernel
 *     b ADDRESS     a section begins
 *     e ADDRESS     a section begins that began with the entry
 *     l ADDRESS     a section ends
 *     p ADDRESS     an instruction in a loop that waits for another CPU
 * and `table=FILE`, a file of zeros, as large as `struct table`, where the longest are at any time.
 *
 * An instruction counts when it begins, so one of a string counts once.
 */
#include "plugin.h"

#define CPUS 8
#define PAIRS 16384
#define PLACES 16384
#define RANGES 4
/* From one time round a waiting loop to the next. */
#define ROUND 32

/* What the harness reads. */
static struct table {
	/* Sections for which there was no room. */
	uint64_t lost;
	struct pair {
		uint64_t begin, end;
		/* The most instructions without those of waiting loops, and the most of these. */
		uint64_t own, waiting;
	} pairs[CPUS][PAIRS];
} *table;

static struct counter counter;

static struct cpu {
	int is_on;
	/* The last entry. */
	uint64_t entry, entered;
	/* The section that goes on. */
	uint64_t begin, began, waiting;
	/* The last time in a waiting loop. */
	uint64_t loop, looped;
} cpus[CPUS];

static struct place {
	uint64_t address;
	observe *observe;
} places[PLACES];
static size_t place_count;

static struct range {
	uint64_t start, end;
} ranges[RANGES];
static size_t range_count;

static void keep(unsigned cpu, uint64_t begin, uint64_t end, uint64_t own, uint64_t waiting)
{
	size_t hash = (begin * 31 + end) * 0x9e3779b97f4a7c15u >> 50;

	for (size_t i = 0; i < PAIRS; i++) {
		struct pair *pair = &table->pairs[cpu][(hash + i) % PAIRS];

		if (!pair->begin) {
			pair->end = end;
			pair->begin = begin;
		}
		if (pair->begin == begin && pair->end == end) {
			if (own > pair->own)
				pair->own = own;
			if (waiting > pair->waiting)
				pair->waiting = waiting;
			return;
		}
	}
	__atomic_fetch_add(&table->lost, 1, __ATOMIC_RELAXED);
}

static void from_now_on(unsigned cpu, void *place)
{
	(void)place;
	cpus[cpu].is_on = 1;
	cpus[cpu].begin = 0;
}

static void entry(unsigned cpu, void *place)
{
	cpus[cpu].entry = (uint64_t)place;
	cpus[cpu].entered = qemu_plugin_u64_get(counter, cpu);
}

static void begin(unsigned cpu, void *place)
{
	cpus[cpu].begin = (uint64_t)place;
	cpus[cpu].began = qemu_plugin_u64_get(counter, cpu);
	cpus[cpu].waiting = 0;
	cpus[cpu].loop = 0;
}

static void begin_by_entry(unsigned cpu, void *place)
{
	begin(cpu, place);
	cpus[cpu].begin = cpus[cpu].entry;
	cpus[cpu].began = cpus[cpu].entered;
}

static void end(unsigned cpu, void *place)
{
	uint64_t length = qemu_plugin_u64_get(counter, cpu) - cpus[cpu].began;

	if (cpus[cpu].is_on && cpus[cpu].begin)
		keep(cpu, cpus[cpu].begin, (uint64_t)place, length - cpus[cpu].waiting,
		     cpus[cpu].waiting);
}

static void loop(unsigned cpu, void *place)
{
	uint64_t now = qemu_plugin_u64_get(counter, cpu);

	if (cpus[cpu].loop == (uint64_t)place && now - cpus[cpu].looped <= ROUND)
		cpus[cpu].waiting += now - cpus[cpu].looped;
	cpus[cpu].loop = (uint64_t)place;
	cpus[cpu].looped = now;
}

static int is_counted(uint64_t address)
{
	for (size_t i = 0; i < range_count; i++)
		if (ranges[i].start <= address && address < ranges[i].end)
			return 1;
	return 0;
}

static void translated(uint64_t id, struct tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);

	(void)id;
	for (size_t i = 0; i < count; i++) {
		struct insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t address = qemu_plugin_insn_vaddr(insn);

		if (!is_counted(address))
			continue;
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, ADD, counter, 1);
		for (size_t j = 0; j < place_count; j++)
			if (places[j].address == address)
				qemu_plugin_register_vcpu_insn_exec_cb(
					insn, places[j].observe, NO_REGISTERS, (void *)address);
	}
}

static int read_places(const char *path)
{
	static observe *const kinds[128] = {
		['f'] = from_now_on,	['s'] = entry, ['b'] = begin,
		['e'] = begin_by_entry, ['l'] = end,   ['p'] = loop,
	};
	FILE *file = fopen(path, "r");
	char line[80];

	if (!file)
		return -1;
	while (fgets(line, sizeof line, file)) {
		uint64_t address, behind = 0;
		char kind;

		if (sscanf(line, "%c %lx %lx", &kind, &address, &behind) < 2)
			return -1;
		if (kind == 'c' && range_count < RANGES)
			ranges[range_count++] = (struct range){ address, behind };
		else if (kind > 0 && kinds[(int)kind] && place_count < PLACES)
			places[place_count++] = (struct place){ address, kinds[(int)kind] };
		else
			return -1;
	}
	fclose(file);
	return 0;
}

EXPORT int qemu_plugin_install(uint64_t id, const struct info *info, int count, char **arguments)
{
	(void)info;
	for (int i = 0; i < count; i++) {
		int result = -1;

		if (!strncmp(arguments[i], "places=", 7))
			result = read_places(arguments[i] + 7);
		else if (!strncmp(arguments[i], "table=", 6))
			result = (table = map(arguments[i] + 6, sizeof *table)) ? 0 : -1;
		if (result) {
			fprintf(stderr, "sections: %s: of no use\n", arguments[i]);
			return result;
		}
	}
	if (!table || !place_count)
		return -1;
	counter.board = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
