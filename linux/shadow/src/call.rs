// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of the program, which a forwarded signal ends.
//!
//! A handler forwards signals to the realm. It also makes the system call end that it interrupts,
//! so that the handler of the program can run. A signal may come when a call is decided on but not
//! made yet; that call must end as well. So the handler looks whether it interrupted the few
//! instructions in between (the *window*), and skips the call if so.

use core::{arch::global_asm, sync::atomic::Ordering};

use crtos_abi::channel::{INTERRUPT_SIGNAL, RESULT_NOT_MADE};
use linux_raw_sys::general as linux;

use crate::{
    device,
    sys::{self, Errno},
    threads,
};

/// What a handler gets as its context: Linux's `struct ucontext` up to the instruction pointer.
#[repr(C)]
pub struct Context {
    /// `uc_flags`, `uc_link`, `uc_stack`.
    head: [u64; 5],
    /// R8 to R15, RDI, RSI, RBP, RBX, RDX, RAX, RCX, RSP.
    registers: [u64; 16],
    rip: u64,
}

unsafe extern "C" {
    /// Makes system call `nr`, unless a signal was forwarded since the last call of the thread.
    fn crtos_call(nr: u64, args: *const [u64; 6]) -> i64;
    /// The start of the window.
    static crtos_call_window: u8;
    /// Its end: the instruction behind the system call.
    static crtos_call_made: u8;
    /// What returns in place of the system call.
    static crtos_call_skip: u8;
    /// What a handler returns to.
    fn crtos_restore();
}

global_asm!(
    "crtos_call:",
    "mov rax, rdi",
    "mov rdi, [rsi]",
    "mov rdx, [rsi + 16]",
    "mov r10, [rsi + 24]",
    "mov r8, [rsi + 32]",
    "mov r9, [rsi + 40]",
    "mov rsi, [rsi + 8]",
    "crtos_call_window:",
    "cmp byte ptr fs:[{forwarded}], 0",
    "jne crtos_call_skip",
    "syscall",
    "crtos_call_made:",
    "ret",
    "crtos_call_skip:",
    "mov rax, {not_made}",
    "ret",
    "crtos_restore:",
    "mov eax, {sigreturn}",
    "syscall",
    forwarded = const threads::FORWARDED,
    not_made = const RESULT_NOT_MADE,
    sigreturn = const linux::__NR_rt_sigreturn,
);

/// Makes a system call for the program. A signal that is forwarded meanwhile ends it; if it was not
/// made yet, the error is that of [`RESULT_NOT_MADE`].
///
/// # Safety
/// The call must do to the shadow's own memory and threads only what the code of the shadow
/// expects. What a program does to them by its own arguments is its own fault: see
/// [`crate::program`].
pub unsafe fn call(nr: u32, args: &[u64; 6]) -> Result<u64, Errno> {
    // SAFETY: the caller ensures that the call does to the shadow only what its code expects.
    let result = unsafe { crtos_call(nr.into(), args) };
    threads::own().forwarded.store(0, Ordering::Relaxed);
    sys::split(result)
}

/// Forwards a signal to the realm, unless it came from there. It is a handler with SA_SIGINFO.
///
/// # Safety
/// Linux calls it, as the handler of a signal.
pub unsafe extern "C" fn forward(signal: i32, info: *const linux::siginfo, context: *mut Context) {
    threads::own().forwarded.store(1, Ordering::Relaxed);
    // SAFETY: Linux passes the information of the signal. The code is there for every signal.
    let (info, code) = unsafe { (&*info, (*info).__bindgen_anon_1.__bindgen_anon_1.si_code) };
    let interrupts = signal == INTERRUPT_SIGNAL as i32 && code == linux::SI_KERNEL as i32;
    if !interrupts {
        device::forward(info);
    }
    let window = (&raw const crtos_call_window) as u64..(&raw const crtos_call_made) as u64;
    // SAFETY: Linux passes the context that it restores when the handler returns; nobody else looks
    // at it.
    let context = unsafe { &mut *context };
    if window.contains(&context.rip) {
        context.rip = (&raw const crtos_call_skip) as u64;
    }
}

/// Returns the address of [`forward`].
pub fn handler() -> u64 {
    forward as *const () as u64
}

/// Returns the address of the code that a handler returns to (SA_RESTORER).
pub fn restorer() -> u64 {
    crtos_restore as *const () as u64
}
