// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the program and its shadow do on each signal.

use crtos_abi::UserAddr;
use crtos_channel::{Operation, operation::Disposition};
use crtos_signal::{
    Action, Info, Set,
    group::{DEFAULT, IGNORE},
    info::SI_USER,
    set::{COUNT, SIGCHLD, SIGCONT},
};
use crtos_syscalls::structs::SigAction;
use linux_raw_sys::general as linux;

use crtos_core::task;

use super::{POOL, SET_SIZE, State, join, mask};
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
    let (mut actions, shadow, left_to_linux, mask, stack, limit) = {
        let state = parent.process.signals.lock();
        let member = state.group.member(parent.signals.index());
        let (mask, stack) =
            member.map_or_else(Default::default, |member| (member.mask(), member.own.stack));
        let limit = state.group.account.limit;
        let left_to_linux = (state.by_default, state.ignored);
        (*state.group.actions(), state.shadow, left_to_linux, mask, stack, limit)
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
        (state.by_default, state.ignored) = left_to_linux;
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

/// On which signals the shadow of `process` does something that was set after that many
/// [`changes`]. Any context.
pub fn changed_since(process: &Process, changes: u64) -> Set {
    process.signals.lock().changed_since(changes)
}

/// Has the shadow of `user`, the calling thread, do on `signals` what is noted here. A remote call
/// for each of them.
pub fn tell_shadow(user: &UserThread, signals: Set) -> Result<(), remote::Gone> {
    for signal in signals.iter() {
        let (disposition, flags) = {
            let state = user.process.signals.lock();
            (state.disposition(signal), state.group.action(signal).flags)
        };
        remote::request(Operation::SetDisposition { signal, disposition, flags })?;
    }
    Ok(())
}

/// Before `user`, the calling thread, has its shadow execute a program: that ignores what this one
/// ignores, of which Linux knows what the shadow ignores. Returns what it ignores from now on and
/// has forwarded, for [`forward_again`].
pub fn leave_ignored(user: &UserThread) -> Result<Set, remote::Gone> {
    let _changing = user.process.changing_action.lock();
    let forwarded = {
        let state = user.process.signals.lock();
        let is_forwarded = |&signal: &u32| {
            state.group.action(signal).handler == IGNORE
                && state.disposition(signal) == Disposition::Forward
        };
        (Set::ALL - Set::UNCATCHABLE).iter().filter(is_forwarded).fold(Set::EMPTY, Set::with)
    };
    for signal in forwarded.iter() {
        let disposition = Disposition::Ignore;
        remote::request(Operation::SetDisposition { signal, disposition, flags: 0 })?;
    }
    Ok(forwarded)
}

/// The program was not executed.
pub fn forward_again(forwarded: Set) -> Result<(), remote::Gone> {
    if !forwarded.is_empty() {
        remote::request(Operation::ForwardSignals { signals: forwarded.0 })?;
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
        let blocked = with_opposite(&user.process.signals.lock(), new.mask, Set::of(signal));
        forward(user, blocked)?;
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
        let stops = new.handler == IGNORE && Set::STOPPING.contains(signal);
        let blocked = signal == SIGCONT && state.keeps_stops()
            || stops && state.keeps_cont()
            || state.group.places().0 > 1
            || state.group.actions().iter().any(masks)
            || state
                .group
                .member(user.signals.index())
                .is_some_and(|member| member.mask().contains(signal));
        let wanted = match new.handler {
            IGNORE if !blocked || signal == SIGCHLD => Disposition::Ignore,
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

/// Before signals are blocked: those that Linux would ignore, or whose default action it would
/// carry out, are forwarded from now on.
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

/// Adds to `signals` what discards one of `kept`, which may be pending here: SIGCONT if one of
/// these stops, and what stops if it is SIGCONT. Of these the default action stays Linux's.
fn with_opposite(state: &State, signals: Set, kept: Set) -> Set {
    let mut all = signals;
    if !(kept & Set::STOPPING).is_empty() {
        all = all.with(SIGCONT);
    }
    if kept.contains(SIGCONT) { all | Set::STOPPING & state.ignored } else { all }
}

/// Those of `signals` that the shadow has to be told to forward.
fn note_forwarded(user: &UserThread, signals: Set) -> Set {
    let mut state = user.process.signals.lock();
    let left_to_linux = state.left_to_linux();
    let set = with_opposite(&state, signals, signals & left_to_linux) & left_to_linux;
    for signal in set.iter() {
        state.set_disposition(signal, Disposition::Forward);
    }
    set
}
