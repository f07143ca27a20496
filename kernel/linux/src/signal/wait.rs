// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for signals, and sleeping until one comes.

use core::sync::atomic::Ordering;

use crtos_abi::{
    UserAddr,
    channel::{THREAD_RUNNING, THREAD_SLEEPING},
};
use crtos_signal::{Info, Set, Taken, info};

use crtos_core::{
    task::{self, Thread, WakeReason},
    time::{self, Deadline, Nanos},
};

use super::{SET_SIZE, collect, mask, send, with_group};
use crate::{
    abi::{Args, Errno, SysResult},
    memory::{timespec::read_timespec, user},
    process::{self, ThreadExt as _, UserThread},
    remote::slots,
    timers,
};

/// Whether the calling thread has a signal to deal with.
pub fn is_pending() -> bool {
    let current = task::current();
    current.user().is_some_and(|user| has_to_look(&current, user) && has_signal(user))
}

/// Whether a wait of the calling thread must end: its shadow is gone, its process ends, or there is
/// a signal to deal with.
#[inline(always)]
pub fn is_interrupted() -> bool {
    let current = task::current();
    current.user().is_some_and(|user| has_to_look(&current, user) && has_to_end(user))
}

#[inline(never)]
fn has_to_end(user: &UserThread) -> bool {
    process::note_if_gone();
    user.process.is_ending() || has_signal(user)
}

/// Whether there can be anything to look for: whoever sends a signal, unblocks one or has the
/// process end has its thread pay attention before waking it, and what Linux says stands in the
/// channel.
#[inline(always)]
fn has_to_look(current: &Thread, user: &UserThread) -> bool {
    current.attention() || slots::has_notice(user.slot)
}

fn has_signal(user: &UserThread) -> bool {
    collect(user);
    !user.process.signals.lock().group.deliverable(user.signals.index()).is_empty()
}

/// Has `wait` run with the mask at `address`, if that is not [`UserAddr::NULL`]: ppoll(2) and its
/// relatives. If a signal ends it, the mask comes back when a handler has its frame, or at the
/// return to the program.
pub fn masked(address: UserAddr, size: u64, wait: impl FnOnce() -> SysResult) -> SysResult {
    if address.is_null() {
        return wait();
    }
    if size != SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let [mask] = user::read_words(address)?;
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    suspend(user, Set(mask))?;
    let result = wait().map_err(|error| match error {
        // A signal that the mask has let in has not come before the call.
        Errno::RESTART_ALWAYS => Errno::RESTART_NO_HANDLER,
        other => other,
    });
    if result.is_err_and(Errno::is_interruption) {
        return result;
    }
    let saved = {
        let mut state = user.process.signals.lock();
        state.group.member_mut(user.signals.index()).and_then(|member| member.own.saved.take())
    };
    if let Some(before) = saved {
        // What the other mask has let in, and the thread does not take.
        let left = mask::set(user, before);
        send::search(&user.process, left);
    }
    result
}

/// What waits for the calling thread and its process, blocked or not.
pub fn pending() -> Set {
    let current = task::current();
    current.user().map_or(Set::EMPTY, |user| {
        collect(user);
        user.process.signals.lock().group.pending(user.signals.index())
    })
}

/// Takes a signal of `set` that waits for the calling thread or its process. Thread context; may
/// sleep.
pub fn take(set: Set) -> Option<Info> {
    let current = task::current();
    let user = current.user()?;
    collect(user);
    take_for(user, set)
}

/// Takes a signal that waits for the calling thread, or else for its process, blocked or not. Says
/// whether it was for the thread. Thread context; may sleep.
pub fn take_any() -> Option<(Info, bool)> {
    let current = task::current();
    let user = current.user()?;
    collect(user);
    let (taken, is_own) = with_group(&user.process, |state, pool| {
        match state.group.take_own(pool, user.signals.index()) {
            Some(taken) => Some((taken, true)),
            None => state.group.take_shared(pool).map(|taken| (taken, false)),
        }
    })?;
    Some((complete(user, taken), is_own))
}

fn take_for(user: &UserThread, set: Set) -> Option<Info> {
    let taken = with_group(&user.process, |state, pool| {
        state.group.take(pool, user.signals.index(), set - Set::UNCATCHABLE)
    });
    taken.map(|taken| complete(user, taken))
}

/// What is to be done when a signal was taken: its timer goes on.
#[inline]
pub(super) fn complete(user: &UserThread, taken: Taken) -> Info {
    match taken.cookie {
        None => taken.info,
        Some(_) => timers::signal_taken(&user.process, taken),
    }
}

/// Sleeps until `deadline` or until a signal or the end of the process interrupts.
pub fn sleep(deadline: Option<Deadline>) -> Result<(), Errno> {
    let current = task::current();
    let Some(user) = current.user() else { return Ok(()) };
    user.state.store(THREAD_SLEEPING, Ordering::Relaxed);
    let result = loop {
        process::note_if_gone();
        if user.process.is_ending() || is_pending() {
            break Err(Errno::RESTART_NO_HANDLER);
        }
        if task::block_until(deadline) == WakeReason::Timeout {
            break Ok(());
        }
    };
    user.state.store(THREAD_RUNNING, Ordering::Relaxed);
    result
}

/// rt_sigsuspend(mask, size).
pub fn sigsuspend([set, size, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    if size != SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let [set] = user::read_words(UserAddr::new(set))?;
    suspend(user, Set(set))?;
    sleep(None)?;
    Err(Errno::RESTART_NO_HANDLER)
}

/// Sets the mask until a handler's frame or the return to the program takes the old one back
/// (ppoll(2) and relatives).
pub fn suspend(user: &UserThread, mask: Set) -> Result<(), Errno> {
    let before = mask::of(user);
    mask::change(user, before, mask - Set::UNCATCHABLE)?;
    let mut state = user.process.signals.lock();
    if let Some(member) = state.group.member_mut(user.signals.index()) {
        member.own.saved = Some(before);
        if let Some(thread) = &member.own.thread {
            thread.set_attention();
        }
    }
    Ok(())
}

/// pause().
pub fn pause() -> SysResult {
    sleep(None)?;
    Err(Errno::RESTART_NO_HANDLER)
}

/// rt_sigtimedwait(set, info, timeout, size).
pub fn sigtimedwait([set, info_at, timeout, size, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    if size != SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let [set] = user::read_words(UserAddr::new(set))?;
    let set = Set(set) - Set::UNCATCHABLE;
    let [info_at, timeout] = [info_at, timeout].map(UserAddr::new);
    let deadline = match timeout {
        UserAddr::NULL => None,
        _ => Some(time::now() + read_timespec(timeout)?),
    };
    super::actions::forward(user, set)?;
    let info = wait_for(user, set, deadline)?;
    if !info_at.is_null() {
        let mut bytes = [0; info::SIZE];
        bytes[..info::USED].copy_from_slice(&info.to_bytes());
        user::write(info_at, &bytes)?;
    }
    Ok(info.signal().into())
}

/// Waits for a signal of `set`. Fails with EAGAIN at the deadline, and with EINTR when another
/// signal is to be dealt with.
fn wait_for(user: &UserThread, set: Set, deadline: Option<Nanos>) -> Result<Info, Errno> {
    let index = user.signals.index();
    collect(user);
    if let Some(info) = take_for(user, set) {
        return Ok(info);
    }
    user.process.signals.lock().group.set_waiting(index, set);
    user.state.store(THREAD_SLEEPING, Ordering::Relaxed);
    let mut late = false;
    let result = loop {
        collect(user);
        if let Some(info) = take_for(user, set) {
            break Ok(info);
        }
        process::note_if_gone();
        if late {
            break Err(Errno::EAGAIN);
        }
        if user.process.is_ending() || is_pending() {
            break Err(Errno::EINTR);
        }
        late = task::block(deadline) == WakeReason::Timeout;
    };
    user.state.store(THREAD_RUNNING, Ordering::Relaxed);
    let (taken, left) = with_group(&user.process, |state, pool| {
        // One may have come since the last look, and woken nobody else.
        let taken = match result {
            Ok(_) => None,
            Err(_) => state.group.take(pool, index, set),
        };
        (taken, state.group.set_waiting(index, Set::EMPTY))
    });
    send::search(&user.process, left);
    taken.map_or(result, |taken| Ok(complete(user, taken)))
}
