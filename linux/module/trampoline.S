/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The ways into the hypervisor and out of it.
 *
 * The hypervisor lives in page tables of its own, which share Linux's upper
 * half: this text, the stacks and the descriptor tables are mapped in both.
 * All of this runs with interrupts off. No unwinder can follow it, and none needs to.
 */

#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/nospec-branch.h>
#include <asm/segment.h>

/*
 * Bits of CR4 that are off in host mode: PGE so that no global entry of Linux
 * survives, PCIDE since CR3 changes under it, CET and LASS since the
 * hypervisor's code lies in the low half and has no landing pads.
 */
#define HOST_CR4_OFF	(1 << 7 | 1 << 17 | 1 << 23 | 1 << 27)

#define CR3_FLAGS	0xfff
#define HC_LEAVE	1

.macro SAVE_CALLEE_SAVED
	push	%rbp
	push	%rbx
	push	%r12
	push	%r13
	push	%r14
	push	%r15
.endm

.macro RESTORE_CALLEE_SAVED
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbx
	pop	%rbp
.endm

/*
 * Back to CR3 \cr3 and CR4 \cr4. PCIDE may be set only while the low bits of
 * CR3 are zero. Clobbers \scratch.
 */
.macro LOAD_LINUX_TABLES cr3 cr4 scratch
	mov	\cr3, \scratch
	and	$~CR3_FLAGS, \scratch
	mov	\scratch, %cr3
	mov	\cr4, %cr4
	mov	\cr3, %cr3
.endm

	.text

/*
 * s64 crtos_host_call(u64 function, u64 host_cr3)
 *
 * Calls a function of the hypervisor under its page tables.
 */
SYM_FUNC_START(crtos_host_call)
	SAVE_CALLEE_SAVED
	mov	%cr3, %rbx
	mov	%cr4, %rbp
	mov	%rsp, %r12
	and	$~15, %rsp
	mov	%rbp, %rax
	and	$~HOST_CR4_OFF, %rax
	mov	%rax, %cr4
	mov	%rsi, %cr3
	ANNOTATE_RETPOLINE_SAFE
	call	*%rdi
	mov	%r12, %rsp
	LOAD_LINUX_TABLES %rbx %rbp %rcx
	RESTORE_CALLEE_SAVED
	RET
SYM_FUNC_END(crtos_host_call)
STACK_FRAME_NON_STANDARD crtos_host_call

/*
 * s64 crtos_enter(u64 cpu, u64 entry, u64 host_cr3)
 *
 * Puts the hypervisor underneath this CPU. Returns 0 as its guest, or a
 * negative launch error on the bare CPU.
 */
SYM_FUNC_START(crtos_enter)
	SAVE_CALLEE_SAVED
	mov	%cr3, %rcx
	mov	%cr4, %r8
	push	%rcx
	push	%r8
	mov	%rsi, %rax
	mov	%rdx, %r9
	lea	.Lentered(%rip), %rsi
	mov	%rsp, %rdx
	mov	%r8, %r10
	and	$~HOST_CR4_OFF, %r10
	mov	%r10, %cr4
	mov	%r9, %cr3
	ANNOTATE_RETPOLINE_SAFE
	jmp	*%rax

.Lentered:
	cld
	pop	%r8
	pop	%rcx
	test	%rax, %rax
	jz	1f
	LOAD_LINUX_TABLES %rcx %r8 %rdx
1:	RESTORE_CALLEE_SAVED
	RET
SYM_FUNC_END(crtos_enter)
STACK_FRAME_NON_STANDARD crtos_enter

/*
 * s64 crtos_leave(void)
 *
 * Takes the hypervisor away from this CPU. Returns 0 on the bare CPU, or a
 * negative CRTOS_HV_* number, still as a guest.
 */
SYM_FUNC_START(crtos_leave)
	SAVE_CALLEE_SAVED
	mov	%ds, %ebx
	push	%rbx
	mov	%es, %ebx
	push	%rbx
	mov	$HC_LEAVE, %eax
	vmmcall
	pop	%rbx
	mov	%ebx, %es
	pop	%rbx
	mov	%ebx, %ds
	RESTORE_CALLEE_SAVED
	RET
SYM_FUNC_END(crtos_leave)

/*
 * Where the hypervisor jumps to when it has left: RDI = CR3, RSI = CR4,
 * RDX = RSP, RCX = address to go on at, RBX = result.
 */
SYM_FUNC_START(crtos_leave_trampoline)
	LOAD_LINUX_TABLES %rdi %rsi %rax
	mov	%rdx, %rsp
	mov	$__KERNEL_DS, %eax
	mov	%eax, %ss
	mov	%rbx, %rax
	cld
	pushq	$__KERNEL_CS
	push	%rcx
	lretq
SYM_FUNC_END(crtos_leave_trampoline)
STACK_FRAME_NON_STANDARD crtos_leave_trampoline

	.section .note.GNU-stack, "", @progbits
