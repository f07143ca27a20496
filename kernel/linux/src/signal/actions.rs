// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the program and its shadow do on each signal.

use crtos_abi::UserAddr;
use crtos_channel::{Operation, operation::Disposition};
use crtos_signal::{
    Action, Info, Set,
    group::{DEFAULT, IGNORE},
    info::SI_USER,
    set::{COUNT, SIGCONT},
};
use crtos_syscalls::structs::SigAction;
use linux_raw_sys::general as linux;

use crtos_core::task;

use super::{POOL, SET_SIZE, join, mask};
use crate::{
    abi::{Args, Errno, SysResult},
    memory::user,
    process::{Process, ThreadExt as _, UserThread, clone::Wanted},
    remote,
};

/// Takes over what the shadow was started with: what it blocks and ignores.
pub fn inherit(user: &UserThread, blocked: u64, ignored: u64) -> Result<(), remote::Gone> {
    {
        let mut state = user.process.signals.lock();
        for signal in (Set(ignored) - Set::UNCATCHABLE).iter() {
            state.set_disposition(signal, Disposition::Ignore);
            state.group.set_action(signal, Action { handler: IGNORE, ..Action::default() });
        }
    }
    // The shadow blocks nothing from here on.
    let blocked = Set(blocked) - Set::UNCATCHABLE;
    let to_forward = note_forwarded(user, blocked);
    mask::set(user, blocked);
    if !blocked.is_empty() {
        remote::request(Operation::ForwardSignals { signals: to_forward.0 })?;
    }
    Ok(())
}

/// Gives a forked process what its parent has: actions, mask and signal stack, but nothing that is
/// pending.
pub fn copy(child: &UserThread, parent: &UserThread, wanted: &Wanted) {
    let (mut actions, shadow, by_default, mask, stack, limit) = {
        let state = parent.process.signals.lock();
        let member = state.group.member(parent.signals.index());
        let (mask, stack) =
            member.map_or_else(Default::default, |member| (member.mask(), member.own.stack));
        let limit = state.group.account.limit;
        (*state.group.actions(), state.shadow, state.by_default, mask, stack, limit)
    };
    if wanted.flags & linux::CLONE_CLEAR_SIGHAND != 0 {
        // What the shadow forwards nevertheless has its default action here.
        for action in actions.iter_mut().filter(|action| action.handler != IGNORE) {
            *action = Action::default();
        }
    }
    {
        let mut state = child.process.signals.lock();
        state.group.set_actions(actions);
        state.shadow = shadow;
        state.by_default = by_default;
        state.group.account.limit = limit;
        if let Some(member) = state.group.member_mut(child.signals.index()) {
            member.own.stack = stack;
        }
    }
    if parent.process.certain_uid().is_none() {
        child.process.doubt_ids();
    }
    mask::set(child, mask);
}

/// How often what the shadow of `process` does on signals was changed; none of these changes is
/// under way. Thread context; may sleep.
pub fn changes(process: &Process) -> u64 {
    let _changing = process.changing_action.lock();
    process.signals.lock().changes
}

/// Has the shadow of `user`, the calling thread, do on all signals what is noted here.
pub fn tell_shadow(user: &UserThread) -> Result<(), remote::Gone> {
    for signal in (Set::ALL - Set::UNCATCHABLE).iter() {
        let (disposition, flags) = {
            let state = user.process.signals.lock();
            (state.disposition(signal), state.group.action(signal).flags)
        };
        remote::request(Operation::SetDisposition { signal, disposition, flags })?;
    }
    Ok(())
}

/// Gives a new thread of the process, which has not begun, what its parent has: the mask.
pub fn copy_to_thread(child: &UserThread, parent: &UserThread) -> Result<(), Errno> {
    join(child)?;
    mask::set(child, mask::of(parent));
    Ok(())
}

/// Sends `signal` to the calling thread itself. Thread context.
pub fn raise(signal: u32) {
    let current = task::current();
    let Some(user) = current.user() else { return };
    let info = Info::from_process(signal, SI_USER, user.process.pid, user.process.uid);
    let _ = super::to_thread(user, info);
}

/// rt_sigaction(signal, action, old, size).
pub fn sigaction([signal, action, old, size, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let signal = signal as u32;
    if size != SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let [action, old] = [action, old].map(UserAddr::new);
    let new = if action.is_null() {
        None
    } else {
        let SigAction { handler, flags, restorer, mask } = user::read_struct(action)?;
        let [handler, restorer] = [handler, restorer].map(UserAddr::new);
        Some(Action { handler, flags, restorer, mask: Set(mask) })
    };
    if !(1..=COUNT).contains(&signal) || new.is_some() && Set::UNCATCHABLE.contains(signal) {
        return Err(Errno::EINVAL);
    }
    let before = match new {
        Some(new) => set(user, signal, new)?,
        None => user.process.signals.lock().group.action(signal),
    };
    if !old.is_null() {
        let Action { handler, flags, restorer, mask } = before;
        let [handler, restorer] = [handler, restorer].map(UserAddr::get);
        user::write_struct(old, &SigAction { handler, flags, restorer, mask: mask.0 })?;
    }
    Ok(0)
}

/// Sets an action, here and in the shadow; returns what it was.
fn set(user: &UserThread, signal: u32, new: Action) -> Result<Action, Errno> {
    if new.is_handled() {
        // What the handler blocks: when it begins, nothing can be asked of Linux.
        forward(user, with_cont(new.mask, Set::of(signal)))?;
    }
    // What Linux has to know of the flags.
    let of_children = u64::from(linux::SA_NOCLDSTOP | linux::SA_NOCLDWAIT);
    // Otherwise the shadow could do what one thread wants, and the program what another one does.
    let _changing = user.process.changing_action.lock();
    let (before, wanted, changed) = {
        let mut state = user.process.signals.lock();
        let before = state.group.action(signal);
        // Somebody else may block it, or the handler of another signal.
        let masks = |action: &Action| action.is_handled() && action.mask.contains(signal);
        let blocked = signal == SIGCONT && state.keeps_stops()
            || state.group.places().0 > 1
            || state.group.actions().iter().any(masks)
            || state
                .group
                .member(user.signals.index())
                .is_some_and(|member| member.mask().contains(signal));
        let wanted = match new.handler {
            IGNORE => Disposition::Ignore,
            DEFAULT if !blocked => Disposition::Default,
            _ => Disposition::Forward,
        };
        state.group.set_action(signal, new);
        let shadow = state.set_disposition(signal, wanted);
        (before, wanted, shadow != wanted || (before.flags ^ new.flags) & of_children != 0)
    };
    if new.ignores(signal) {
        discard(user, signal);
    }
    if changed {
        remote::request(Operation::SetDisposition {
            signal,
            disposition: wanted,
            flags: new.flags,
        })?;
    }
    Ok(before)
}

/// Drops what waits of a signal that is ignored from now on, a step at a time.
fn discard(user: &UserThread, signal: u32) {
    let set = Set::of(signal);
    let mut places = 0;
    let mut place = None;
    while place.is_none_or(|place| place < places) {
        let mut state = user.process.signals.lock();
        places = state.group.places().1;
        if !state.group.discard(&mut POOL.lock(), place, set) {
            place = Some(place.map_or(0, |place| place + 1));
        }
    }
}

/// Before signals are blocked: those whose default action Linux would carry out are forwarded from
/// now on.
pub(super) fn forward(user: &UserThread, blocked: Set) -> Result<(), Errno> {
    let blocked = blocked - Set::UNCATCHABLE;
    if !user.process.signals.lock().needs_linux(blocked) {
        return Ok(());
    }
    let _changing = user.process.changing_action.lock();
    let set = note_forwarded(user, blocked);
    if !set.is_empty() {
        remote::request(Operation::ForwardSignals { signals: set.0 })?;
    }
    Ok(())
}

/// Adds SIGCONT to `signals` if one of `kept` stops: that one may be pending here, where SIGCONT
/// discards it.
fn with_cont(signals: Set, kept: Set) -> Set {
    if (kept & Set::STOPPING).is_empty() { signals } else { signals.with(SIGCONT) }
}

/// Those of `signals` that the shadow has to be told to forward.
fn note_forwarded(user: &UserThread, signals: Set) -> Set {
    let mut state = user.process.signals.lock();
    let set = with_cont(signals, signals & state.by_default) & state.by_default;
    for signal in set.iter() {
        state.set_disposition(signal, Disposition::Forward);
    }
    set
}
