// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: what the shadow does on them, and which it blocks.
//!
//! What the program leaves to the default action, Linux does to the shadow by itself. What the
//! program ignores, the shadow ignores. What it handles or blocks, a handler forwards to the realm
//! ([`call::forward`]).

use core::sync::atomic::{AtomicBool, Ordering};

use crtos_abi::channel::INTERRUPT_SIGNAL;
use crtos_channel::operation::Disposition;
use crtos_syscalls::structs::SigAction;
use linux_raw_sys::general as linux;

use crate::{
    call,
    sys::{self, Errno, process},
};

/// Handlers of sigaction(2) that are none.
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;

/// Bytes of a set of signals.
const SET_SIZE: u64 = size_of::<u64>() as u64;

/// Whether the program ignores [`INTERRUPT_SIGNAL`], which has a handler all the same.
static IGNORED: AtomicBool = AtomicBool::new(false);

/// Has the realm interrupt system calls. What the program inherited for that signal is kept for it.
pub fn accept_interrupts() {
    let before = change(INTERRUPT_SIGNAL, Some(Disposition::Forward), 0);
    IGNORED.store(before == Ok(Disposition::Ignore), Ordering::Relaxed);
}

/// Sets what a program that is executed inherits for [`INTERRUPT_SIGNAL`], or with `executes` false
/// what was before.
pub fn inherit_interrupts(executes: bool) {
    let ignored = IGNORED.load(Ordering::Relaxed) && executes;
    let disposition = if ignored { Disposition::Ignore } else { Disposition::Forward };
    let _ = change(INTERRUPT_SIGNAL, Some(disposition), 0);
}

/// Sets what happens on `signal`; `flags` are those of sigaction(2). [`INTERRUPT_SIGNAL`] keeps its
/// handler: the realm knows what the program does on it. Returns what happened before.
pub fn set(signal: u32, disposition: Disposition, flags: u64) -> Result<Disposition, Errno> {
    if signal != INTERRUPT_SIGNAL {
        return change(signal, Some(disposition), flags);
    }
    Ok(of_interrupts(IGNORED.swap(disposition == Disposition::Ignore, Ordering::Relaxed)))
}

/// Returns what happens on `signal` for the program.
fn disposition(signal: u32) -> Result<Disposition, Errno> {
    match signal {
        INTERRUPT_SIGNAL => Ok(of_interrupts(IGNORED.load(Ordering::Relaxed))),
        _ => change(signal, None, 0),
    }
}

/// Returns what happens on [`INTERRUPT_SIGNAL`] for the program.
fn of_interrupts(ignored: bool) -> Disposition {
    if ignored { Disposition::Ignore } else { Disposition::Default }
}

/// Sets what happens on `signal`, if a disposition is given. Of `flags`, which are those of
/// sigaction(2), SA_NOCLDSTOP and SA_NOCLDWAIT matter in Linux. Returns what happened before.
fn change(signal: u32, disposition: Option<Disposition>, flags: u64) -> Result<Disposition, Errno> {
    let kept = flags & u64::from(linux::SA_NOCLDSTOP | linux::SA_NOCLDWAIT);
    let action = SigAction {
        handler: match disposition {
            Some(Disposition::Forward) => call::handler(),
            Some(Disposition::Ignore) => SIG_IGN,
            Some(Disposition::Default) | None => SIG_DFL,
        },
        flags: kept | u64::from(linux::SA_RESTORER | linux::SA_SIGINFO),
        restorer: call::restorer(),
        mask: u64::MAX,
    };
    let new = if disposition.is_some() { &raw const action as u64 } else { 0 };
    let mut old = SigAction::default();
    let args = [signal.into(), new, &raw mut old as u64, SET_SIZE];
    // SAFETY: Linux reads and fills the structures. The handler has the signature of SA_SIGINFO,
    // and changes nothing of the code that it interrupts but the window of `call`.
    unsafe { sys::call(linux::__NR_rt_sigaction, args) }?;
    Ok(match old.handler {
        SIG_DFL => Disposition::Default,
        SIG_IGN => Disposition::Ignore,
        _ => Disposition::Forward,
    })
}

/// Returns the signals that the program ignores: bit `n - 1` for signal `n`.
pub fn ignored() -> u64 {
    (1..=64)
        .filter(|&signal| disposition(signal) == Ok(Disposition::Ignore))
        .fold(0, |all, signal| all | 1 << (signal - 1))
}

/// Forwards each signal of a set (bit `n - 1` for signal `n`), then unblocks everything. Returns
/// the set of signals that were blocked.
pub fn forward_all(signals: u64) -> u64 {
    for signal in (1..=64).filter(|signal| signals >> (signal - 1) & 1 == 1) {
        if disposition(signal) != Ok(Disposition::Forward) {
            let _ = set(signal, Disposition::Forward, 0);
        }
    }
    block(0)
}

/// Blocks exactly the signals of `mask`. Returns the set that was blocked.
pub fn block(mask: u64) -> u64 {
    let mut old = 0_u64;
    let args = [linux::SIG_SETMASK.into(), &raw const mask as u64, &raw mut old as u64, SET_SIZE];
    // SAFETY: Linux reads and writes a set each. Handlers may run from here on: `change` says why
    // that is sound.
    let _ = unsafe { sys::call(linux::__NR_rt_sigprocmask, args) };
    old
}

/// Returns the set of signals that are blocked.
pub fn blocked() -> u64 {
    let mut old = 0_u64;
    // SAFETY: Linux writes a set.
    let _ = unsafe { sys::call(linux::__NR_rt_sigprocmask, [0, 0, &raw mut old as u64, SET_SIZE]) };
    old
}

/// Ends the process by the default action of `signal`.
pub fn die(signal: u32) -> ! {
    // A core of the shadow would tell nothing of the program.
    process::forbid_core();
    let _ = change(signal, Some(Disposition::Default), 0);
    // For this thread: another one might get it only after this one has ended the process.
    let args = [process::pid().get().into(), process::tid().get().into(), signal.into()];
    // SAFETY: the default action ends this process.
    let _ = unsafe { sys::call(linux::__NR_tgkill, args) };
    block(0);
    process::exit(128 + signal as i32 % 64)
}
