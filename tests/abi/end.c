// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/* Ends in the way that the argument names. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define OWN_MAIN
#include "check.h"

/* Reads the address, whatever the compiler thinks of it. */
static int load(uint64_t address)
{
	int value;

	__asm__ volatile("mov (%1), %0" : "=r"(value) : "r"(address));
	return value;
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";
	volatile int zero = 0;

	printf("%s\n", way);
	fflush(stdout);
	if (strncmp(way, "exit", 4) == 0)
		syscall(SYS_exit_group, atoi(way + 4));
	if (strcmp(way, "thread-exit") == 0)
		syscall(SYS_exit, 9);
	if (strcmp(way, "read") == 0)
		return load(8);
	if (strcmp(way, "write") == 0)
		*(volatile int *)(uintptr_t)main = 0;
	if (strcmp(way, "kernel") == 0)
		return load(0xffffffff80200000);
	if (strcmp(way, "noncanonical") == 0)
		return load(0x8000000000000000);
	if (strcmp(way, "jump") == 0)
		((void (*)(void))16)();
	if (strcmp(way, "far-jump") == 0)
		__asm__ volatile("movabs $0x8000000000000000, %rax; jmp *%rax");
	if (strcmp(way, "data") == 0) {
		char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		*code = (char)0xc3;
		((void (*)(void))(uintptr_t)code)();
	}
	if (strcmp(way, "stack") == 0)
		__asm__ volatile("mov $0x1234, %rsp; push %rax");
	if (strcmp(way, "bad-stack-call") == 0)
		__asm__ volatile("mov $-8, %rsp; mov $39, %eax; syscall; push %rax");
	if (strcmp(way, "divide") == 0)
		return 100 / zero;
	if (strcmp(way, "illegal") == 0)
		__asm__ volatile("ud2");
	if (strcmp(way, "breakpoint") == 0)
		__asm__ volatile("int3");
	if (strcmp(way, "step") == 0)
		__asm__ volatile("pushfq; orq $0x100, (%rsp); popfq; nop; nop");
	if (strcmp(way, "halt") == 0)
		__asm__ volatile("hlt");
	if (strcmp(way, "port") == 0)
		__asm__ volatile("outb %al, $0x80");
	if (strcmp(way, "clear-interrupts") == 0)
		__asm__ volatile("cli");
	if (strcmp(way, "control") == 0)
		__asm__ volatile("mov %%cr3, %%rax" ::: "rax");
	if (strcmp(way, "register") == 0)
		__asm__ volatile("rdmsr" :: "c"(0xc0000080) : "rax", "rdx");
	if (strcmp(way, "xsetbv") == 0)
		__asm__ volatile("xsetbv" : : "a"(7), "d"(0), "c"(0));
	if (strcmp(way, "vmrun") == 0)
		__asm__ volatile("vmrun" : : "a"(0));
	if (strcmp(way, "monitor") == 0)
		__asm__ volatile("monitor" : : "a"(0), "c"(0), "d"(0));
	if (strcmp(way, "invd") == 0)
		__asm__ volatile("invd");
	if (strcmp(way, "vmcall") == 0)
		__asm__ volatile("vmmcall" :: "a"(6), "D"(0));
	/* What became of Linux: both kernels may ask, and programs are denied it. */
	if (strcmp(way, "root-state") == 0) {
		long answer = 12;

		__asm__ volatile("vmmcall" : "+a"(answer));
		return answer != -6;
	}
	if (strcmp(way, "software-interrupt") == 0)
		__asm__ volatile("int $0x20");
	if (strcmp(way, "abort") == 0)
		abort();
	if (strncmp(way, "raise", 5) == 0)
		raise(atoi(way + 5));
	if (strncmp(way, "kill", 4) == 0)
		kill(getpid(), atoi(way + 4));
	return 0;
}
