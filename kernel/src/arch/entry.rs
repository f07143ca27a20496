// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways into the kernel and out of it.
//!
//! SYSCALL, exceptions and interrupts all leave a [`UserContext`] on the kernel stack: an
//! exception's error code lies in `orig_rax`. GS is swapped exactly when the interrupted code was a
//! program's. Exceptions that can hit the few instructions between (NMI, debug, double fault,
//! machine check) have stacks of their own and do not look at GS.

use super::context::UserContext;
use super::percpu::{KERNEL_STACK, SCRATCH};
use super::{cpu, gdt, percpu, traps};
use crate::signal::{self, Fault};
use crate::{process, syscall, task};
use core::arch::{global_asm, naked_asm};
use crtos_abi::channel::USER_END;

/// Bytes from one interrupt entry to the next.
pub const STUB_SIZE: u64 = 16;

unsafe extern "sysv64" {
    /// The entries of vectors 0..=255, [`STUB_SIZE`] bytes each.
    pub fn interrupt_stubs();
}

// Exceptions 8, 10..=14, 17, 21, 29, 30 push an error code; the others get a 0 (interrupts: all
// ones).
global_asm!(
    ".balign 16",
    ".globl interrupt_stubs",
    "interrupt_stubs:",
    ".set vector, 0",
    ".rept 256",
    ".balign 16",
    ".if vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30",
    ".else",
    ".if vector < 32",
    "push 0",
    ".else",
    "push -1",
    ".endif",
    ".endif",
    "push rdi",
    "mov edi, vector",
    "jmp {common}",
    ".set vector, vector + 1",
    ".endr",
    common = sym interrupt_common,
);

/// On the stack: RDI, error code, and what the processor pushed. EDI = vector.
#[unsafe(naked)]
unsafe extern "sysv64" fn interrupt_common() {
    naked_asm!(
        "push rsi",
        "push rdx",
        "push rcx",
        "push rax",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "cld",
        "test byte ptr [rsp + {cs}], 3",
        "jz 1f",
        "swapgs",
        "lfence",
        "mov rsi, rsp",
        // The processor aligned the stack to 16 before it pushed; a context has 21 words.
        "sub rsp, 8",
        "call {handle}",
        "add rsp, 8",
        "jmp {leave}",
        "1:",
        "mov rsi, rsp",
        "sub rsp, 8",
        "call {handle}",
        "add rsp, 8",
        "jmp {restore}",
        cs = const core::mem::offset_of!(UserContext, cs),
        handle = sym handle_interrupt,
        leave = sym leave_to_user,
        restore = sym restore_context,
    )
}

/// RSP = a [`UserContext`] of the kernel or a program, GS as it needs it: goes on there.
#[unsafe(naked)]
unsafe extern "sysv64" fn restore_context() {
    naked_asm!(
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rax",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "add rsp, 8",
        "iretq",
    )
}

/// RSP = a [`UserContext`] at the top of the current thread's kernel stack, interrupts off: does
/// what is due and goes on in user mode.
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn leave_to_user() {
    naked_asm!(
        "mov rdi, rsp",
        "sub rsp, 8",
        "call {prepare}",
        "add rsp, 8",
        "test al, al",
        "jnz 1f",
        "swapgs",
        "jmp {restore}",
        "1:",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rax",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "mov rsp, [rsp + {rsp_above}]",
        "swapgs",
        "sysretq",
        prepare = sym prepare_return,
        restore = sym restore_context,
        rsp_above = const core::mem::offset_of!(UserContext, rsp) - core::mem::offset_of!(UserContext, orig_rax),
    )
}

/// Where SYSCALL arrives.
///
/// # Safety
/// Only for the processor: interrupts off, GS the program's, RCX = next instruction, R11 = flags.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn syscall_entry() {
    naked_asm!(
        "swapgs",
        "mov gs:[{scratch}], rsp",
        "mov rsp, gs:[{kernel_stack}]",
        "push {user_data}",
        "push qword ptr gs:[{scratch}]",
        "push r11",
        "push {user_code}",
        "push rcx",
        "push rax",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push rax",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov rdi, rsp",
        "sub rsp, 8",
        "call {handle}",
        "add rsp, 8",
        "jmp {leave}",
        scratch = const SCRATCH,
        kernel_stack = const KERNEL_STACK,
        user_data = const gdt::USER_DATA,
        user_code = const gdt::USER_CODE,
        handle = sym handle_syscall,
        leave = sym leave_to_user,
    )
}

/// Debug exceptions come on a stack of their own: one that hits the kernel (a program's trap flag
/// at an entry) is dropped with the flag, one from a program goes on like any other exception.
///
/// # Safety
/// Only for the processor, as a gate with a stack of its own.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn debug_entry() {
    naked_asm!(
        "test byte ptr [rsp + 8], 3",
        "jnz 1f",
        "and qword ptr [rsp + 16], ~0x100",
        "iretq",
        "1:",
        "swapgs",
        "mov gs:[{scratch}], rdi",
        "mov rdi, rsp",
        "mov rsp, gs:[{kernel_stack}]",
        "push qword ptr [rdi + 32]",
        "push qword ptr [rdi + 24]",
        "push qword ptr [rdi + 16]",
        "push qword ptr [rdi + 8]",
        "push qword ptr [rdi]",
        "push 0",
        "push qword ptr gs:[{scratch}]",
        "swapgs",
        "mov edi, 1",
        "jmp {common}",
        scratch = const SCRATCH,
        kernel_stack = const KERNEL_STACK,
        common = sym interrupt_common,
    )
}

/// NMIs are counted: nothing sends them to a cell but the hypervisor, which takes them itself.
///
/// # Safety
/// Only for the processor, as a gate with a stack of its own.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn nmi_entry() {
    naked_asm!("lock inc qword ptr [rip + {count}]", "iretq", count = sym traps::NMIS)
}

/// Called for every vector but NMI. Interrupts off before and after.
extern "sysv64" fn handle_interrupt(vector: u32, context: &mut UserContext) {
    if vector < 32 {
        traps::exception(vector, context);
    } else {
        traps::interrupt(vector as u8);
        if !context.is_user() {
            percpu::preempt_if_needed();
        }
    }
}

/// Called for SYSCALL. Interrupts off before and after.
extern "sysv64" fn handle_syscall(context: &mut UserContext) {
    x86_64::instructions::interrupts::enable();
    syscall::dispatch(context);
    x86_64::instructions::interrupts::disable();
}

/// What is due before a return to user mode: another thread's turn, attention. Interrupts off
/// before and after. Says whether SYSRET will do.
extern "sysv64" fn prepare_return(context: &mut UserContext) -> bool {
    loop {
        percpu::preempt_if_needed();
        context.sanitize();
        if task::current().attention() {
            x86_64::instructions::interrupts::enable();
            process::return_to_user(context);
            x86_64::instructions::interrupts::disable();
        } else if context.rip >= USER_END {
            // IRET there would fault in the kernel, or the program would fetch from the page that
            // is kept free.
            let fault = Fault { signal: 11, code: 0x80, address: 0, trap: 13, error: 0 };
            x86_64::instructions::interrupts::enable();
            signal::fault(context, fault);
            x86_64::instructions::interrupts::disable();
        } else {
            break;
        }
    }
    task::prepare_user();
    context.fits_sysret()
}

/// Sets up SYSCALL on this CPU (APM vol. 2, 6.1).
pub fn set_up_syscall() {
    const STAR: u32 = 0xc000_0081;
    const LSTAR: u32 = 0xc000_0082;
    const SFMASK: u32 = 0xc000_0084;
    /// Everything that a program could disturb the entry with: TF, IF, DF, IOPL, NT, RF, AC, ID and
    /// the arithmetic flags.
    const CLEARED: u64 = 0x25_7fd5;
    let star = u64::from(gdt::USER_CODE_32) << 48 | u64::from(gdt::KERNEL_CODE) << 32;
    // SAFETY: every cell has these registers; the entries handle what arrives, and EFER.SCE is on
    // from the start.
    unsafe {
        cpu::write_msr(STAR, star);
        cpu::write_msr(LSTAR, syscall_entry as *const () as u64);
        cpu::write_msr(SFMASK, CLEARED);
    }
}
