// SPDX-License-Identifier: MIT OR Apache-2.0
//! Into the guest, out of it, and out of SVM: what cannot be said in Rust.

use core::arch::{asm, global_asm, naked_asm};
use core::mem::offset_of;

use crtos_registers::msr;

use super::Vcpu;
use crate::arch::Runner;

/// Operand of LGDT and LIDT.
#[repr(C, packed)]
pub struct Descriptor {
    pub limit: u16,
    pub base: u64,
}

/// State of the guest that becomes the bare system.
#[repr(C)]
pub struct Leave {
    pub gdt: Descriptor,
    pub idt: Descriptor,
    pub host_cr3: u64,
    pub trampoline: u64,
    pub cr0: u64,
    pub cr2: u64,
    pub dr6: u64,
    pub dr7: u64,
    pub efer: u64,
    pub cr3: u64,
    pub cr4: u64,
    pub rsp: u64,
    pub rip: u64,
}

/// Runs the guest of `this` for ever; [`Runner::exited`] is called at each exit.
///
/// # Safety
/// `this` is valid for ever, with a valid control block, and nobody else refers to it; SVM is on,
/// the global interrupt flag is clear.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn run<R: Runner>(this: *mut R) -> ! {
    // The virtual CPU is at the start of `this`. The word at the top of the stack keeps `this`;
    // VMRUN keeps RSP, and exchanges RAX (APM vol. 2, 15.5.1); the other general registers are
    // exchanged here. An exit clears the global interrupt flag (15.6), and VMRUN sets it.
    naked_asm!(
        "lea rsp, [rdi + {stack_top} - 16]",
        "mov [rsp], rdi",
        "call {prepare}",
        "2:",
        "mov rdi, [rsp]",
        "mov rax, [rdi + {vmcb}]",
        "mov rcx, [rdi + 8 * 1]",
        "mov rdx, [rdi + 8 * 2]",
        "mov rbx, [rdi + 8 * 3]",
        "mov rbp, [rdi + 8 * 5]",
        "mov rsi, [rdi + 8 * 6]",
        "mov r8, [rdi + 8 * 8]",
        "mov r9, [rdi + 8 * 9]",
        "mov r10, [rdi + 8 * 10]",
        "mov r11, [rdi + 8 * 11]",
        "mov r12, [rdi + 8 * 12]",
        "mov r13, [rdi + 8 * 13]",
        "mov r14, [rdi + 8 * 14]",
        "mov r15, [rdi + 8 * 15]",
        "mov rdi, [rdi + 8 * 7]",
        "vmrun rax",
        "mov [rsp + 8], rdi",
        "mov rdi, [rsp]",
        "mov [rdi + 8 * 1], rcx",
        "mov [rdi + 8 * 2], rdx",
        "mov [rdi + 8 * 3], rbx",
        "mov [rdi + 8 * 5], rbp",
        "mov [rdi + 8 * 6], rsi",
        "mov [rdi + 8 * 8], r8",
        "mov [rdi + 8 * 9], r9",
        "mov [rdi + 8 * 10], r10",
        "mov [rdi + 8 * 11], r11",
        "mov [rdi + 8 * 12], r12",
        "mov [rdi + 8 * 13], r13",
        "mov [rdi + 8 * 14], r14",
        "mov [rdi + 8 * 15], r15",
        "mov rax, [rsp + 8]",
        "mov [rdi + 8 * 7], rax",
        "cld",
        "call {handle}",
        "jmp 2b",
        stack_top = const R::STACK_TOP,
        vmcb = const offset_of!(Vcpu, vmcb),
        prepare = sym R::prepare,
        handle = sym R::exited,
    )
}

/// Makes the guest the bare system: descriptor tables, control registers, SVM off; then the
/// trampoline. With Linux's tables loaded and the module's page tables, a pending NMI is Linux's
/// own.
///
/// # Safety
/// `leave` describes the guest of this CPU; the page tables that it names map this code, the stack
/// and the trampoline.
pub unsafe fn leave(leave: &Leave) -> ! {
    // SAFETY: The state of the guest is complete, and the page tables that are loaded first map
    // this code and the trampoline.
    unsafe {
        asm!(
            "mov rax, [r12 + {host_cr3}]",
            "mov cr3, rax",
            "mov rax, [r12 + {cr0}]",
            "mov cr0, rax",
            "mov rax, [r12 + {cr2}]",
            "mov cr2, rax",
            "mov rax, [r12 + {dr6}]",
            "mov dr6, rax",
            "lgdt [r12 + {gdt}]",
            "lidt [r12 + {idt}]",
            "stgi",
            "mov rax, [r12 + {efer}]",
            "mov rdx, rax",
            "shr rdx, 32",
            "mov ecx, {msr_efer}",
            "wrmsr",
            "mov rax, [r12 + {dr7}]",
            "mov dr7, rax",
            "mov rdi, [r12 + {cr3}]",
            "mov rsi, [r12 + {cr4}]",
            "mov rdx, [r12 + {rsp}]",
            "mov rcx, [r12 + {rip}]",
            "mov rax, [r12 + {trampoline}]",
            "xor ebx, ebx",
            "jmp rax",
            in("r12") leave,
            msr_efer = const msr::EFER,
            host_cr3 = const offset_of!(Leave, host_cr3),
            cr0 = const offset_of!(Leave, cr0),
            cr2 = const offset_of!(Leave, cr2),
            dr6 = const offset_of!(Leave, dr6),
            dr7 = const offset_of!(Leave, dr7),
            gdt = const offset_of!(Leave, gdt),
            idt = const offset_of!(Leave, idt),
            efer = const offset_of!(Leave, efer),
            cr3 = const offset_of!(Leave, cr3),
            cr4 = const offset_of!(Leave, cr4),
            rsp = const offset_of!(Leave, rsp),
            rip = const offset_of!(Leave, rip),
            trampoline = const offset_of!(Leave, trampoline),
            options(noreturn)
        )
    }
}

unsafe extern "sysv64" {
    /// Waits for an NMI. The handler of NMIs skips the halt when the NMI came before it.
    ///
    /// # Safety
    /// In host mode, with the global interrupt flag and the interrupt flag clear.
    pub unsafe fn wait_for_nmi();
}

global_asm!(
    ".global wait_for_nmi",
    ".global wait_for_nmi_halt",
    "wait_for_nmi:",
    "stgi",
    "wait_for_nmi_halt:",
    "hlt",
    "clgi",
    "ret",
);
