// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: the shadow takes them where Linux delivers them.
//!
//! What the program leaves to the default action, Linux does to the shadow by itself. What the
//! program ignores, the shadow ignores. What it handles or blocks is forwarded to the realm by a
//! handler here, which also makes the system call that it interrupts end, so that the program's
//! handler can run.
//!
//! A signal that arrives when the call is already decided on but not yet made must end it as well:
//! the handler looks whether it interrupted the few instructions in between and steps over the
//! call.

use core::{
    arch::global_asm,
    sync::atomic::{AtomicBool, Ordering},
};

use crtos_abi::{
    channel::{INTERRUPT_SIGNAL, RESULT_NOT_MADE},
    ioctl::IOC_SIGNAL,
};
use crtos_channel::operation::Disposition;
use linux_raw_sys::general as linux;

use crate::{sys, threads};

/// Linux's `struct siginfo`, its start.
#[repr(C)]
struct Info {
    number: i32,
    error: i32,
    code: i32,
}

/// Context of a handler: Linux's `struct ucontext` up to the instruction pointer.
#[repr(C)]
struct Context {
    /// `uc_flags`, `uc_link`, `uc_stack`.
    head: [u64; 5],
    /// R8 to R15, RDI, RSI, RBP, RBX, RDX, RAX, RCX, RSP.
    registers: [u64; 16],
    rip: u64,
}

/// Handlers of sigaction(2) that are none.
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;

/// Linux's `struct sigaction` as rt_sigaction(2) takes it.
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

unsafe extern "C" {
    fn crtos_call(nr: u64, args: *const [u64; 6]) -> i64;
    static crtos_call_window: u8;
    static crtos_call_made: u8;
    static crtos_call_skip: u8;
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

/// Makes a system call for the program. A signal that is forwarded meanwhile ends it.
pub fn call(nr: u32, args: &[u64; 6]) -> i64 {
    // SAFETY: the syscall table lets nothing through that acts on the memory or threads of the
    // caller; the addresses are the program's, and Linux checks them.
    let result = unsafe { crtos_call(nr.into(), args) };
    set_forwarded(0);
    result
}

/// Notes whether a signal was forwarded since the calling thread's last call.
fn set_forwarded(value: u64) {
    // SAFETY: the word is the thread's own.
    unsafe { (&raw mut (*threads::own()).forwarded).write_volatile(value) };
}

/// Forwards a signal to the realm, unless it came from there.
extern "C" fn forward(signal: i32, info: *const Info, context: *mut Context) {
    set_forwarded(1);
    // SAFETY: Linux passes the signal's information.
    let interrupts =
        signal == INTERRUPT_SIGNAL as i32 && unsafe { (*info).code } == linux::SI_KERNEL as i32;
    if !interrupts {
        // SAFETY: the device reads the information that Linux passed.
        let _ = unsafe { sys::ioctl(sys::device(), IOC_SIGNAL, info as u64) };
    }
    let window = (&raw const crtos_call_window) as u64..(&raw const crtos_call_made) as u64;
    // SAFETY: Linux passes the context it will restore; nobody else looks at it.
    unsafe {
        if window.contains(&(*context).rip) {
            (*context).rip = (&raw const crtos_call_skip) as u64;
        }
    }
}

/// Whether the program ignores the signal that interrupts, which has a handler all the same.
static IGNORED: AtomicBool = AtomicBool::new(false);

/// Has the realm interrupt system calls. What the program inherited for that signal is kept for it.
pub fn accept_interrupts() {
    let before = change(INTERRUPT_SIGNAL, Some(Disposition::Forward), 0);
    IGNORED.store(before == Disposition::Ignore as i64, Ordering::Relaxed);
}

/// Before a program is executed: what it is to inherit, or if that failed, what was before.
pub fn inherit_interrupts(executes: bool) {
    let ignored = IGNORED.load(Ordering::Relaxed) && executes;
    let disposition = if ignored { Disposition::Ignore } else { Disposition::Forward };
    change(INTERRUPT_SIGNAL, Some(disposition), 0);
}

/// Sets what happens on `signal`; `flags` are those of sigaction(2). The signal that interrupts
/// keeps its handler: the realm knows what the program does on it. Result: what happened before, as
/// the number of a [`Disposition`], or an error.
pub fn set(signal: u32, disposition: Disposition, flags: u64) -> i64 {
    if signal != INTERRUPT_SIGNAL {
        return change(signal, Some(disposition), flags);
    }
    let ignored = IGNORED.swap(disposition == Disposition::Ignore, Ordering::Relaxed);
    i64::from(ignored)
}

/// What happens on `signal` for the program, by the same numbers as [`set`].
fn disposition(signal: u32) -> i64 {
    match signal {
        INTERRUPT_SIGNAL => IGNORED.load(Ordering::Relaxed).into(),
        _ => change(signal, None, 0),
    }
}

/// Sets what happens on `signal`, if a disposition is given. `flags` are those of sigaction(2) that
/// matter in Linux (SA_NOCLDSTOP, SA_NOCLDWAIT). Result: as [`set`].
fn change(signal: u32, disposition: Option<Disposition>, flags: u64) -> i64 {
    let kept = flags & u64::from(linux::SA_NOCLDSTOP | linux::SA_NOCLDWAIT);
    let restorer = u64::from(linux::SA_RESTORER | linux::SA_SIGINFO);
    let action = Action {
        handler: match disposition {
            Some(Disposition::Forward) => forward as *const () as usize,
            Some(Disposition::Ignore) => SIG_IGN,
            Some(Disposition::Default) | None => SIG_DFL,
        },
        flags: kept | restorer,
        restorer: crtos_restore as *const () as usize,
        mask: u64::MAX,
    };
    let new = if disposition.is_some() { &raw const action as u64 } else { 0 };
    let mut old = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    // SAFETY: the handler has the signature of SA_SIGINFO and touches nothing of the code that it
    // interrupts but the window above.
    match unsafe {
        sys::raw(linux::__NR_rt_sigaction, [signal.into(), new, &raw mut old as u64, 8, 0, 0])
    } {
        0 => old.handler.min(2) as i64,
        error => error,
    }
}

/// The signals that are ignored.
pub fn ignored() -> u64 {
    (1..=64)
        .filter(|&signal| disposition(signal) == Disposition::Ignore as i64)
        .fold(0, |all, signal| all | 1 << (signal - 1))
}

/// Forwards each signal of `set` (bit `n - 1`) whose action is the default, then unblocks
/// everything. Result: the set of signals that were blocked.
pub fn forward_defaults(set_of_signals: u64) -> i64 {
    for signal in (1..=64).filter(|signal| set_of_signals >> (signal - 1) & 1 == 1) {
        if disposition(signal) == Disposition::Default as i64 {
            set(signal, Disposition::Forward, 0);
        }
    }
    unblock()
}

/// Unblocks all signals. Result: the set that was blocked.
pub fn unblock() -> i64 {
    block(0) as i64
}

/// Blocks exactly the signals of `mask`. Result: the set that was blocked.
pub fn block(mask: u64) -> u64 {
    let mut old = 0_u64;
    let args = [linux::SIG_SETMASK.into(), &raw const mask as u64, &raw mut old as u64, 8, 0, 0];
    // SAFETY: handlers may run from here on, which `set` prepared them for.
    unsafe { sys::raw(linux::__NR_rt_sigprocmask, args) };
    old
}

/// The signals that are blocked.
pub fn blocked() -> u64 {
    let mut old = 0_u64;
    // SAFETY: Linux writes the 8 bytes.
    unsafe { sys::raw(linux::__NR_rt_sigprocmask, [0, 0, &raw mut old as u64, 8, 0, 0]) };
    old
}

/// Ends the process by the default action of `signal`.
pub fn die(signal: u32) -> ! {
    let none = [0_u64; 2];
    // SAFETY: a core of the shadow would tell nothing of the program, so there is none. Then the
    // default action ends this process.
    unsafe {
        sys::raw(
            linux::__NR_prlimit64,
            [0, linux::RLIMIT_CORE.into(), none.as_ptr() as u64, 0, 0, 0],
        );
    }
    change(signal, Some(Disposition::Default), 0);
    // For this thread: another one could be told later than this one exits.
    // SAFETY: neither call touches memory of this program.
    unsafe {
        let tid = sys::raw(linux::__NR_gettid, [0; 6]) as u64;
        sys::raw(linux::__NR_tgkill, [sys::pid().into(), tid, signal.into(), 0, 0, 0]);
    }
    unblock();
    sys::exit(128 + signal as i32 % 64)
}
