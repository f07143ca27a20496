// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways into the kernel and out of it.
//!
//! SYSCALL, exceptions and interrupts all leave a [`UserContext`] on the kernel stack: an
//! exception's error code lies in `orig_rax`. GS is swapped exactly when the interrupted code was a
//! program's. Exceptions that can hit the few instructions between (NMI, debug, double fault,
//! machine check) have stacks of their own and do not trust GS.

use super::context::{INTERRUPT_FLAG, TRAP_FLAG, UserContext};
use super::interrupts::WayBack;
use super::percpu::{CARRIED, CURRENT, DUE, KERNEL_STACK, SCRATCH};
use super::traps::{Cause, Exception};
use super::{apic, cpu, gdt, percpu, traps};
use crate::personality::{self, FAST, FAST_NUMBERS};
use crate::task::{Thread, scheduler};
use crate::{sections, task, trace};
use core::arch::{global_asm, naked_asm};
use core::mem::offset_of;
use crtos_abi::channel::{TRACE_INTERRUPT, TRACE_INTERRUPT_END, USER_END};
use crtos_registers::{exception, msr};

/// Bytes from one interrupt entry to the next.
pub const STUB_SIZE: u64 = 16;

unsafe extern "sysv64" {
    /// The entries of vectors 0..=255, [`STUB_SIZE`] bytes each.
    pub fn interrupt_stubs();
}

// Exceptions 8, 10..=14, 17, 21, 29, 30 push an error code; the others get a 0 (interrupts: all
// ones, [`NO_ERROR_CODE`]).
global_asm!(
    ".balign 16",
    ".globl interrupt_stubs",
    "interrupt_stubs:",
    ".set vector, 0",
    ".rept 256",
    ".balign 16",
    ".if vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30",
    "push rdi",
    "mov edi, vector",
    "jmp {with_error_code}",
    ".else",
    ".if vector < 32",
    "push 0",
    ".else",
    "push -1",
    ".endif",
    "push rdi",
    "mov edi, vector",
    "jmp {common}",
    ".endif",
    ".set vector, vector + 1",
    ".endr",
    common = sym interrupt_common,
    with_error_code = sym with_error_code,
);

/// What takes the place of an error code where the processor pushed none.
const NO_ERROR_CODE: u64 = u64::MAX;

/// On the stack: RDI, and what the processor pushed for a vector whose exception has an error code.
/// An interrupt with that vector has none, which shows in the alignment: the processor aligned the
/// stack to 16 before it pushed five words, or six.
#[unsafe(naked)]
unsafe extern "sysv64" fn with_error_code() {
    naked_asm!(
        "test spl, 8",
        "jnz {common}",
        "push qword ptr [rsp]",
        "mov qword ptr [rsp + 8], {none}",
        "jmp {common}",
        common = sym interrupt_common,
        none = const NO_ERROR_CODE as i64,
    )
}

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
        cs = const offset_of!(UserContext, cs),
        handle = sym handle_interrupt,
        leave = sym leave_to_user,
        restore = sym restore_context,
    )
}

/// Takes all registers of a [`UserContext`] at RSP, which then points to its `orig_rax`.
macro_rules! pop_registers {
    () => {
        concat!(
            "pop r15;", "pop r14;", "pop r13;", "pop r12;", "pop rbp;", "pop rbx;", "pop r11;",
            "pop r10;", "pop r9;", "pop r8;", "pop rax;", "pop rcx;", "pop rdx;", "pop rsi;",
            "pop rdi;",
        )
    };
}

/// RSP = a [`UserContext`] of the kernel or a program, GS as it needs it: goes on there.
#[unsafe(naked)]
unsafe extern "sysv64" fn restore_context() {
    naked_asm!(pop_registers!(), "add rsp, 8", "iretq",)
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
        pop_registers!(),
        "mov rsp, [rsp + {rsp_above}]",
        "swapgs",
        "sysretq",
        prepare = sym prepare_return,
        restore = sym restore_context,
        rsp_above = const offset_of!(UserContext, rsp) - offset_of!(UserContext, orig_rax),
    )
}

/// Where SYSCALL arrives: the fast path, on which most calls end, and the full path.
///
/// The fast path keeps only what C code may clobber, in the place that it has in a
/// [`UserContext`], and calls the number's handler in [`FAST`] with interrupts off. A handler
/// that cannot finish the call leaves it to the full path, which completes the context. Whoever
/// makes a system call is a thread of a program, so what handlers are given is there.
///
/// # Safety
/// Only for the processor: interrupts off, GS the program's, RCX = next instruction, R11 = flags.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn syscall_entry() {
    naked_asm!(
        "swapgs",
        // Stays there while interrupts are off.
        "mov gs:[{scratch}], rsp",
        "mov rsp, gs:[{kernel_stack}]",
        // A context has 21 words; calls want the stack aligned to 16.
        "sub rsp, {frame}",
        "mov [rsp + {orig_rax}], rax",
        "mov [rsp + {rip}], rcx",
        "mov [rsp + {rflags}], r11",
        "mov [rsp + {rdi}], rdi",
        "mov [rsp + {rsi}], rsi",
        "mov [rsp + {rdx}], rdx",
        "mov [rsp + {r10}], r10",
        "mov [rsp + {r8}], r8",
        "mov [rsp + {r9}], r9",
        "cmp eax, {numbers}",
        "jae 2f",
        // SYSRET does not restore a set trap flag as IRET does.
        "test r11d, {trap_flag}",
        "jnz 2f",
        // The full path tells of the call.
        "cmp byte ptr [{tracing}], 0",
        "jne 2f",
        // Also where the processor executes this ahead of the comparison.
        "and eax, {numbers} - 1",
        "mov rcx, r10",
        "mov r8, gs:[{carried}]",
        "call qword ptr [{handlers} + rax * 8]",
        "test edx, edx",
        "jz 2f",
        "mov rcx, gs:[{current}]",
        "inc qword ptr [rcx + {fast_calls}]",
        "cmp dword ptr gs:[{due}], 0",
        "jne 3f",
        "mov rdi, [rsp + {rdi}]",
        "mov rsi, [rsp + {rsi}]",
        "mov rdx, [rsp + {rdx}]",
        "mov r10, [rsp + {r10}]",
        "mov r8, [rsp + {r8}]",
        "mov r9, [rsp + {r9}]",
        "mov rcx, [rsp + {rip}]",
        "mov r11, [rsp + {rflags}]",
        "mov rsp, gs:[{scratch}]",
        "swapgs",
        "sysretq",
        // The full path.
        "2:",
        "mov rax, [rsp + {orig_rax}]",
        "call {complete}",
        "call {handle}",
        "add rsp, 8",
        "jmp {leave}",
        // The fast path finished the call (RAX = result), but something else is due.
        "3:",
        "call {complete}",
        "call {leave_fast}",
        "add rsp, 8",
        "jmp {leave}",
        scratch = const SCRATCH,
        kernel_stack = const KERNEL_STACK,
        due = const DUE,
        current = const CURRENT,
        carried = const CARRIED,
        fast_calls = const Thread::FAST_CALLS,
        frame = const size_of::<UserContext>() + 8,
        orig_rax = const 8 + offset_of!(UserContext, orig_rax),
        rip = const 8 + offset_of!(UserContext, rip),
        rflags = const 8 + offset_of!(UserContext, rflags),
        rdi = const 8 + offset_of!(UserContext, rdi),
        rsi = const 8 + offset_of!(UserContext, rsi),
        rdx = const 8 + offset_of!(UserContext, rdx),
        r10 = const 8 + offset_of!(UserContext, r10),
        r8 = const 8 + offset_of!(UserContext, r8),
        r9 = const 8 + offset_of!(UserContext, r9),
        numbers = const FAST_NUMBERS,
        trap_flag = const TRAP_FLAG,
        tracing = sym trace::ON,
        handlers = sym FAST,
        complete = sym complete_context,
        handle = sym handle_syscall,
        leave_fast = sym leave_fast,
        leave = sym leave_to_user,
    )
}

/// Fills in what the fast path left out of the context that lies 16 bytes above the stack pointer;
/// RAX goes to its `rax`. Returns its address in RDI.
#[unsafe(naked)]
unsafe extern "sysv64" fn complete_context() {
    naked_asm!(
        "lea rdi, [rsp + 16]",
        "mov [rdi + {rax}], rax",
        "mov rcx, [rdi + {rip}]",
        "mov [rdi + {rcx}], rcx",
        "mov rcx, [rdi + {rflags}]",
        "mov [rdi + {r11}], rcx",
        "mov rcx, gs:[{scratch}]",
        "mov [rdi + {rsp}], rcx",
        "mov qword ptr [rdi + {cs}], {user_code}",
        "mov qword ptr [rdi + {ss}], {user_data}",
        "mov [rdi + {rbx}], rbx",
        "mov [rdi + {rbp}], rbp",
        "mov [rdi + {r12}], r12",
        "mov [rdi + {r13}], r13",
        "mov [rdi + {r14}], r14",
        "mov [rdi + {r15}], r15",
        "ret",
        scratch = const SCRATCH,
        user_data = const gdt::USER_DATA,
        user_code = const gdt::USER_CODE,
        rax = const offset_of!(UserContext, rax),
        rcx = const offset_of!(UserContext, rcx),
        r11 = const offset_of!(UserContext, r11),
        rip = const offset_of!(UserContext, rip),
        rflags = const offset_of!(UserContext, rflags),
        rsp = const offset_of!(UserContext, rsp),
        cs = const offset_of!(UserContext, cs),
        ss = const offset_of!(UserContext, ss),
        rbx = const offset_of!(UserContext, rbx),
        rbp = const offset_of!(UserContext, rbp),
        r12 = const offset_of!(UserContext, r12),
        r13 = const offset_of!(UserContext, r13),
        r14 = const offset_of!(UserContext, r14),
        r15 = const offset_of!(UserContext, r15),
    )
}

/// On a stack of its own, with what the processor pushed for an exception of a program without an
/// error code: goes on at the kernel stack of the current thread, as other exceptions begin there.
macro_rules! leave_own_stack {
    () => {
        concat!(
            "swapgs;",
            "mov gs:[{scratch}], rdi;",
            "mov rdi, rsp;",
            "mov rsp, gs:[{kernel_stack}];",
            "push qword ptr [rdi + 32];",
            "push qword ptr [rdi + 24];",
            "push qword ptr [rdi + 16];",
            "push qword ptr [rdi + 8];",
            "push qword ptr [rdi];",
            "push 0;",
            "push qword ptr gs:[{scratch}];",
            "swapgs;",
        )
    };
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
        leave_own_stack!(),
        "mov edi, 1",
        "jmp {common}",
        scratch = const SCRATCH,
        kernel_stack = const KERNEL_STACK,
        common = sym interrupt_common,
    )
}

/// Machine checks come on a stack of their own, since they may come anywhere. An interrupt with
/// their number comes here as well, and after it a program goes on.
///
/// # Safety
/// Only for the processor, as a gate with a stack of its own.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn machine_check_entry() {
    naked_asm!(
        "test byte ptr [rsp + 8], 3",
        "jz 1f",
        leave_own_stack!(),
        "mov edi, {vector}",
        "jmp {common}",
        // From the kernel it is the last one, or an interrupt. Between an entry and its SWAPGS,
        // where no interrupt comes, GS is still the program's, which can have any value: the stack
        // knows the kernel's, behind what the processor has pushed.
        "1:",
        "push 0",
        "push rdi",
        "push rax",
        "push rcx",
        "push rdx",
        "mov ecx, {gs_base}",
        "mov eax, [rsp + {own_gs}]",
        "mov edx, [rsp + {own_gs} + 4]",
        "wrmsr",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "mov edi, {vector}",
        "jmp {common}",
        gs_base = const msr::GS_BASE,
        // Five words here, five of the processor.
        own_gs = const 10 * size_of::<u64>(),
        vector = const traps::MACHINE_CHECK,
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
    let from_on = context.rflags & INTERRUPT_FLAG != 0;
    if from_on {
        let stub = interrupt_stubs as *const () as u64 + u64::from(vector) * STUB_SIZE;
        sections::begin_at(stub);
    }
    if vector < 32 && !is_interrupt(vector as u8, context) {
        traps::exception(vector, context);
    } else {
        trace::event(TRACE_INTERRUPT, vector.into(), 0);
        traps::interrupt(vector as u8);
        trace::event(TRACE_INTERRUPT_END, vector.into(), 0);
        // On the stack of machine checks nothing else may come, and no thread wait: what is due is
        // looked at after the next interrupt.
        let on_own_stack = vector == traps::MACHINE_CHECK && !context.is_user();
        if percpu::is_preempted() && !on_own_stack {
            percpu::interrupt_window_before_switch();
            scheduler::reschedule();
        }
    }
    // The way to user mode goes on by [`prepare_return`].
    if from_on && !context.is_user() {
        sections::end();
    }
}

/// Whether what came with the vector of an exception is an interrupt, which Linux can have devices
/// send: the processor pushed no error code, or the local APIC has it in service. That one delivers
/// vectors from 16 on (APM vol. 2, 16.6.1).
#[inline]
fn is_interrupt(vector: u8, context: &UserContext) -> bool {
    const FIRST: u8 = 16;
    if exception::has_error_code(vector) {
        return context.orig_rax == NO_ERROR_CODE;
    }
    vector >= FIRST && apic::in_service(vector)
}

/// Called for SYSCALL. Interrupts off before and after.
extern "sysv64" fn handle_syscall(context: &mut UserContext) {
    // The few steps from the entry to here are no section that is measured, nor is the fast path.
    x86_64::instructions::interrupts::enable();
    personality::system_call(context);
    cpu::turn_interrupts_off();
}

/// Called when a call is finished on the fast path and something else is due. Interrupts off.
extern "sysv64" fn leave_fast() {
    sections::begin();
}

/// What is due before a return to user mode: another thread's turn, attention. Interrupts off
/// before and after. Says whether SYSRET will do.
extern "sysv64" fn prepare_return(context: &mut UserContext) -> bool {
    loop {
        context.sanitize();
        if !percpu::is_preempted() && !task::current().attention() && context.rip < USER_END {
            break;
        }
        do_due(context);
    }
    percpu::this().set_attention(false);
    sections::end();
    context.fits_sysret()
}

/// Does what is due first. Interrupts off before and after.
#[inline(never)]
fn do_due(context: &mut UserContext) {
    percpu::preempt_if_needed();
    let current = task::current();
    if current.attention() {
        if !personality::attend_own(context, &current, &mut WayBack::new()) {
            cpu::restore_interrupts(true);
            personality::attend(context);
            cpu::turn_interrupts_off();
        }
    } else if context.rip >= USER_END {
        fault_at_end(context);
    }
}

/// The program goes on where its addresses end: IRET there would fault in the kernel, or the
/// program would fetch from the page that is kept free.
#[cold]
#[inline(never)]
fn fault_at_end(context: &mut UserContext) {
    let exception =
        Exception { vector: traps::GENERAL_PROTECTION, error: 0, cause: Cause::Instruction };
    cpu::restore_interrupts(true);
    personality::exception(context, exception);
    cpu::turn_interrupts_off();
}

/// Sets up SYSCALL on this CPU (APM vol. 2, 6.1).
pub fn set_up_syscall() {
    /// Everything that a program could disturb the entry with: TF, IF, DF, IOPL, NT, RF, AC, ID and
    /// the arithmetic flags.
    const CLEARED: u64 = 0x25_7fd5;
    let star = u64::from(gdt::USER_CODE_32) << 48 | u64::from(gdt::KERNEL_CODE) << 32;
    // SAFETY: every cell has these registers; the entries handle what arrives, and EFER.SCE is on
    // from the start.
    unsafe {
        cpu::write_msr(msr::STAR, star);
        cpu::write_msr(msr::LSTAR, syscall_entry as *const () as u64);
        cpu::write_msr(msr::SFMASK, CLEARED);
    }
}
