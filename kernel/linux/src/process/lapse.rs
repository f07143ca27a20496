// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lapses: what a real-time thread does that has no worst case. It has Linux do something, touches
//! a page that is not there, or changes its memory.
//!
//! A trace records them. If the process is strict, a lapse gives the thread SIGXCPU when it returns
//! to its program, as Xenomai's SIGDEBUG is, with the same words in `si_value`. A thread that
//! blocks the signal, as its handler does, gets none. With [`Strict::Error`] a call that Linux
//! would make fails before anything is done, and is no lapse ([`refuse`]); what the kernel asks
//! Linux for on the way stays one.

use core::sync::atomic::Ordering;

use crtos_abi::channel::{LAPSE_FAULT, LAPSE_MEMORY, LAPSE_REMOTE};
use crtos_core::{
    task::{self, Level},
    trace,
};
use crtos_signal::{Info, Set, info::SI_QUEUE};
use crtos_syscalls::choices::Strict;
use linux_raw_sys::general::SIGXCPU;

use super::{End, ThreadExt as _, UserThread};
use crate::{
    abi::{Errno, SysResult},
    signal,
};

/// prctl: how strict the process is: a [`Strict`] as a number.
pub const PR_GET_STRICT: u32 = 0x4352_5401;
/// prctl: makes it so strict.
pub const PR_SET_STRICT: u32 = 0x4352_5402;

/// In the upper half of `si_value.sival_int`, as Xenomai's `sigdebug_marker`.
const MARKER: u32 = 0xfccf_0000;
/// Xenomai's SIGDEBUG_MIGRATE_SYSCALL and SIGDEBUG_MIGRATE_FAULT, and a reason of our own.
const BY_SYSCALL: u32 = 2;
const BY_FAULT: u32 = 3;
const BY_MEMORY: u32 = 64;

/// The calling thread is about to change the memory of its program.
#[inline]
pub fn memory() {
    trace::lapse(LAPSE_MEMORY);
    note(LAPSE_MEMORY);
}

/// The calling thread is about to have Linux do something.
#[inline]
pub fn remote() {
    note(LAPSE_REMOTE);
}

/// The program of the calling thread has touched a page that is not there.
#[inline]
pub fn fault() {
    note(LAPSE_FAULT);
}

#[inline(always)]
fn note(kind: u32) {
    let is_strict = |user: &UserThread| user.process.strict.load(Ordering::Relaxed) != 0;
    if task::current().user().is_some_and(is_strict) {
        note_strict(kind);
    }
}

/// The calling thread is about to have Linux make the call that its program makes, of which nothing
/// is done yet: EREMOTE if that is to fail.
#[inline]
pub fn refuse() -> Result<(), Errno> {
    const ERROR: u32 = Strict::Error as u32;
    let current = task::current();
    let is_refused = current.user().is_some_and(|user| {
        user.process.strict.load(Ordering::Relaxed) == ERROR && !user.is_ending()
    }) && current.effective_level() > Level::ORDINARY;
    if is_refused { Err(Errno::EREMOTE) } else { Ok(()) }
}

/// Notes a lapse for [`tell`].
#[cold]
fn note_strict(kind: u32) {
    let current = task::current();
    if let Some(user) = current.user().filter(|user| !user.is_ending())
        && current.effective_level() > Level::ORDINARY
    {
        // The first one before it returns is told of.
        let _ = user.lapse.compare_exchange(0, kind, Ordering::Relaxed, Ordering::Relaxed);
        current.set_attention();
    }
}

/// The calling thread has just become a real-time one: what that took is no lapse.
pub fn forgive() {
    if let Some(user) = task::current().user() {
        user.lapse.store(0, Ordering::Relaxed);
    }
}

/// Sends the calling thread the signal of a lapse, if there was one and it is a real-time thread
/// still. On the way to its program.
pub fn tell() {
    let current = task::current();
    let Some(user) = current.user().filter(|user| user.lapse.load(Ordering::Relaxed) != 0) else {
        return;
    };
    let reason = match user.lapse.swap(0, Ordering::Relaxed) {
        LAPSE_FAULT => BY_FAULT,
        LAPSE_MEMORY => BY_MEMORY,
        _ => BY_SYSCALL,
    };
    let is_real_time = current.effective_level() > Level::ORDINARY;
    if is_real_time && signal::mask() & Set::of(SIGXCPU).0 == 0 {
        let process = &user.process;
        if process.is_init() && !signal::is_handled(process, SIGXCPU) {
            // It would not end by the signal of somebody else.
            process.end(End::Signal(SIGXCPU));
            return;
        }
        let info = Info::from_process(SIGXCPU, SI_QUEUE, process.pid, process.uid)
            .with_value((MARKER | reason).into());
        // It is not of the kind that fails.
        let _ = signal::to_thread(user, info);
    }
}

/// PR_GET_STRICT and PR_SET_STRICT. Linux has no such options, and says EINVAL.
pub fn control(option: u32, argument: u64) -> SysResult {
    let current = task::current();
    let strict = &current.user().ok_or(Errno::ESRCH)?.process.strict;
    if option == PR_GET_STRICT {
        return Ok(strict.load(Ordering::Relaxed).into());
    }
    let wanted = Strict::from_word(argument).ok_or(Errno::EINVAL)?;
    strict.store(wanted as u32, Ordering::Relaxed);
    Ok(0)
}
