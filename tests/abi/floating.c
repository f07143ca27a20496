// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program keeps its extended state over system calls, over sleeps, and while other programs run.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <stdint.h>
#include <time.h>

#include "check.h"

static int has_avx(void)
{
	unsigned int a, b, c, d, low, high;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX))
		return 0;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (low & 6) == 6;
}

/* Loads all sixteen registers, makes a system call (nanosleep), and stores them. */
#define ROUND(load, store, step, clobbers...) \
	__asm__ volatile( \
		load(0) load(1) load(2) load(3) load(4) load(5) load(6) load(7) \
		load(8) load(9) load(10) load(11) load(12) load(13) load(14) load(15) \
		"syscall\n" \
		store(0) store(1) store(2) store(3) store(4) store(5) store(6) store(7) \
		store(8) store(9) store(10) store(11) store(12) store(13) store(14) store(15) \
		: "=a"(result) \
		: "a"(35), "D"(&pause), "S"(0), [in] "r"(in), [out] "r"(out) \
		: "rcx", "r11", "memory", ##clobbers)

#define SSE_LOAD(n) "movdqu " #n "*16(%[in]), %%xmm" #n "\n"
#define SSE_STORE(n) "movdqu %%xmm" #n ", " #n "*16(%[out])\n"
#define AVX_LOAD(n) "vmovdqu " #n "*32(%[in]), %%ymm" #n "\n"
#define AVX_STORE(n) "vmovdqu %%ymm" #n ", " #n "*32(%[out])\n"
#define REGISTERS "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", \
	"xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

CASE(the_control_words_have_their_defaults)
{
	unsigned int mxcsr;
	unsigned short control;

	__asm__("stmxcsr %0" : "=m"(mxcsr));
	__asm__("fnstcw %0" : "=m"(control));
	CHECK(mxcsr == 0x1f80 && control == 0x37f);
}

CASE(vector_registers_survive_sleeps)
{
	struct timespec pause = { 0, 300000 };
	unsigned char in[512], out[512];
	int same = 1, signs = 1, avx = has_avx();
	long result;

	for (int round = 0; round < 200; round++) {
		for (int i = 0; i < 512; i++)
			in[i] = (unsigned char)(rand() >> 8) ^ (unsigned char)getpid();
		memset(out, 0, sizeof(out));
		if (avx) {
			ROUND(AVX_LOAD, AVX_STORE, 32, REGISTERS);
			same &= memcmp(in, out, 512) == 0;
		} else {
			ROUND(SSE_LOAD, SSE_STORE, 16, REGISTERS);
			same &= memcmp(in, out, 256) == 0;
		}
		signs &= result == 0;
	}
	CHECK(same && signs);
}

CASE(the_control_words_survive_a_sleep)
{
	struct timespec pause = { 0, 300000 };
	unsigned int mxcsr;
	unsigned short control;

	mxcsr = 0x7f80;
	control = 0x77f;
	__asm__ volatile("ldmxcsr %0" :: "m"(mxcsr));
	__asm__ volatile("fldcw %0" :: "m"(control));
	nanosleep(&pause, NULL);
	__asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
	__asm__ volatile("fnstcw %0" : "=m"(control));
	CHECK((mxcsr & 0xff80) == 0x7f80 && control == 0x77f);
	mxcsr = 0x1f80;
	control = 0x37f;
	__asm__ volatile("ldmxcsr %0" :: "m"(mxcsr));
	__asm__ volatile("fldcw %0" :: "m"(control));
}

/* The computation takes long enough to be interrupted often. */
CASE(a_sum_is_the_same_everywhere)
{
	double sum = 0;

	for (int i = 1; i < 3000000; i++)
		sum += 1.0 / ((double)i * i);
	SAY("%.12f", sum);
}
