// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of a program while it is in the kernel, and of threads that do not run.

use super::{cpu, entry, gdt, percpu};
use crate::task;
use core::arch::{asm, naked_asm};
use crtos_abi::UserAddr;

/// General registers of a program while it is in the kernel, at the top of its kernel stack. The
/// order is that of Linux's `pt_regs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct UserContext {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// Number of the system call on entry by SYSCALL, else `u64::MAX` or the exception's error
    /// code.
    pub orig_rax: u64,
    /// Instruction pointer.
    pub rip: u64,
    /// Code segment; the kernel sets it.
    pub cs: u64,
    /// Flags; the kernel lets through only what a program may set.
    pub rflags: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// Stack segment; the kernel sets it.
    pub ss: u64,
}

/// Flags that a program may set: CF, PF, AF, ZF, SF, TF, DF, OF, NT, RF, AC, ID.
const USER_FLAGS: u64 = 0xcd5 | 1 << 8 | 1 << 14 | 1 << 16 | 1 << 18 | 1 << 21;
/// The bit that is always set, and IF.
const FIXED_FLAGS: u64 = 0x202;
pub(super) const INTERRUPT_FLAG: u64 = 1 << 9;
pub(super) const TRAP_FLAG: u64 = 1 << 8;
const RESUME_FLAG: u64 = 1 << 16;

impl UserContext {
    /// Makes that of a program which starts at `entry` with its stack pointer at `stack`: all other
    /// registers are 0, and no system call has to be made again.
    pub fn of_start(entry: UserAddr, stack: UserAddr) -> Self {
        let (rip, rsp) = (entry.get(), stack.get());
        Self { rip, rsp, rflags: FIXED_FLAGS, orig_rax: u64::MAX, ..Self::default() }
    }

    /// Whether the registers are those of a program, not of the kernel.
    pub const fn is_user(&self) -> bool {
        self.cs & 3 == 3
    }

    /// Makes the privileged parts those of a program, whatever they were.
    pub(super) const fn sanitize(&mut self) {
        self.cs = gdt::USER_CODE as u64;
        self.ss = gdt::USER_DATA as u64;
        self.rflags = self.rflags & USER_FLAGS | FIXED_FLAGS;
    }

    /// Whether SYSRET restores it exactly: it does not fault in the kernel where the instruction
    /// pointer is a program's.
    pub(super) const fn fits_sysret(&self) -> bool {
        self.rcx == self.rip
            && self.r11 == self.rflags
            && self.rflags & (TRAP_FLAG | RESUME_FLAG) == 0
    }
}

/// Leaves the kernel: the current thread goes on in user mode with `context`, FS base and GS base.
/// Its kernel stack starts anew: what the caller still owns is leaked, so drop it first. Goes
/// through [`crate::personality::Personality::attend`] if attention is set.
pub fn enter_user(context: &UserContext, fs_base: UserAddr, gs_base: UserAddr) -> ! {
    task::set_fs_base(fs_base);
    task::set_gs_base(gs_base);
    cpu::disable_interrupts();
    let top = percpu::this().kernel_stack.load(core::sync::atomic::Ordering::Relaxed);
    let copy = *context;
    // SAFETY: the top of the current thread's kernel stack has room for a context, interrupts are
    // off, and what lies above this function's frame is not used again.
    unsafe { resume_at(&copy, top) }
}

/// Copies `context` to the top of a kernel stack, takes that stack and leaves to user mode.
///
/// # Safety
/// Interrupts off; `top` is the top of the current thread's kernel stack.
#[unsafe(naked)]
unsafe extern "sysv64" fn resume_at(context: &UserContext, top: u64) -> ! {
    // `context` may overlap the place it is copied to, but lies below it: copying downwards from
    // the end is safe.
    naked_asm!(
        "lea rdi, [rdi + {size} - 8]",
        "xchg rsi, rdi",
        "sub rdi, 8",
        "mov ecx, {words}",
        "std",
        // Nothing may be pushed below: the stack pointer stays under both until the copy is
        // complete.
        "rep movsq",
        "cld",
        "lea rsp, [rdi + 8]",
        "jmp {leave}",
        size = const size_of::<UserContext>(),
        words = const size_of::<UserContext>() / 8,
        leave = sym entry::leave_to_user,
    )
}

/// Leaves the stack of the running thread, whose pointer goes to `save`, and goes on on another
/// one, where `load` points: it returns when somebody comes back to this one, perhaps on another
/// CPU. A word is 0 while its thread is on a CPU: what another CPU is about to leave is waited for,
/// after the own thread was let go, so that two CPUs never wait for each other.
///
/// # Safety
/// Interrupts off. `load` was stored by this function or made by [`initial_stack`], and no other
/// CPU takes it; nothing of the running thread is used any more.
#[inline(always)]
pub unsafe fn switch_stacks(save: *mut u64, load: *mut u64) {
    // SAFETY: the compiler keeps what it needs afterwards on the stack, in RBP and in RBX, all of
    // which are as they were; the caller answers for both words.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 4f]",
            "push rax",
            "mov [rdi], rsp",
            // From here on another CPU may run on this stack.
            "2:",
            "mov rax, [rsi]",
            "test rax, rax",
            "jz 3f",
            "mov rsp, rax",
            "mov qword ptr [rsi], 0",
            "ret",
            "3:",
            "pause",
            "jmp 2b",
            "4:",
            "pop rbx",
            "pop rbp",
            inout("rdi") save => _,
            inout("rsi") load => _,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("sysv64"),
        );
    }
}

/// Prepares the stack that ends at `top` so that [`switch_stacks`] to the returned pointer calls
/// `entry`, which never returns, with interrupts off.
///
/// # Safety
/// The 16 bytes below `top` are writable and not in use; `top` is aligned to 16.
pub unsafe fn initial_stack(top: u64, entry: extern "sysv64" fn() -> !) -> u64 {
    // At the entry of a function RSP + 8 is a multiple of 16: one word (a null return address) lies
    // above it.
    let words = (top - 16) as *mut [u64; 2];
    // SAFETY: the caller says that these bytes are writable and free.
    unsafe { words.write([entry as *const () as u64, 0]) }
    top - 16
}
