/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What observers use of QEMU's interface for plugins, version 3 (QEMU 9.1), and of GLib: their
 * headers are in no package that only runs machines. QEMU 11.1 takes version 7 and no older one,
 * which `turns` knows as well.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#ifndef INTERFACE
#define INTERFACE 3
#endif

struct tb;
struct insn;
struct info;
struct scoreboard;
struct counter {
	struct scoreboard *board;
	size_t offset;
};
struct array {
	char *data;
	unsigned length;
};
struct bytes {
	uint8_t *data;
	unsigned length;
};
struct description {
	void *handle;
	const char *name, *feature;
};
enum { NO_REGISTERS = 0, READS_REGISTERS = 1 };
enum { ADD = 0 };
enum { READS_AND_WRITES = 3 };
typedef void observe(unsigned cpu, void *word);
typedef void observe_access(unsigned cpu, uint32_t how, uint64_t address, void *word);

void qemu_plugin_register_vcpu_init_cb(uint64_t id, void (*begun)(uint64_t, unsigned));
#if INTERFACE >= 7
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(struct tb *, void *),
					   void *word);
#else
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(uint64_t, struct tb *));
#endif
size_t qemu_plugin_tb_n_insns(const struct tb *);
uint64_t qemu_plugin_tb_vaddr(const struct tb *);
struct insn *qemu_plugin_tb_get_insn(const struct tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct insn *);
size_t qemu_plugin_insn_data(const struct insn *, void *data, size_t length);
void qemu_plugin_register_vcpu_tb_exec_cb(struct tb *, observe *, int flags, void *word);
void qemu_plugin_register_vcpu_insn_exec_cb(struct insn *, observe *, int flags, void *word);
void qemu_plugin_register_vcpu_mem_cb(struct insn *, observe_access *, int flags, int which,
				      void *word);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct insn *, int op, struct counter,
							 uint64_t);
struct scoreboard *qemu_plugin_scoreboard_new(size_t);
uint64_t qemu_plugin_u64_get(struct counter, unsigned cpu);
struct array *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(void *handle, struct bytes *);
struct bytes *g_byte_array_new(void);
struct bytes *g_byte_array_set_size(struct bytes *, unsigned);

EXPORT int qemu_plugin_version = INTERFACE;

/* The first bytes of a file that the harness reads as well; NULL if they cannot be reached. */
static inline void *map(const char *path, size_t length)
{
	int file = open(path, O_RDWR);
	void *mapped = file < 0 ? MAP_FAILED
				: mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	if (file >= 0)
		close(file);
	return mapped == MAP_FAILED ? NULL : mapped;
}
