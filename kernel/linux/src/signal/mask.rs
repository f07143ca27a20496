// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a thread blocks.

use crtos_abi::UserAddr;
use crtos_signal::Set;
use linux_raw_sys::general as linux;

use crtos_core::{arch::user_memory, task};

use super::{SET_SIZE, State, actions, collect, send};
use crate::{
    abi::{Args, Errno, SysResult},
    memory::user,
    process::{ThreadExt as _, UserThread},
};

/// The calling thread's mask.
pub fn mask() -> u64 {
    task::current().user().map_or(0, |user| of(user).0)
}

/// What `user` blocks.
pub(super) fn of(user: &UserThread) -> Set {
    let state = user.process.signals.lock();
    state.group.member(user.signals.index()).map_or(Set::EMPTY, |member| member.mask())
}

/// Sets what `user` blocks; has its thread look when something became deliverable. Result: what is
/// pending for the process and for others to take from now on.
pub(super) fn set(user: &UserThread, mask: Set) -> Set {
    apply(&mut user.process.signals.lock(), user.signals.index(), mask)
}

/// As [`set`], for a member.
pub(super) fn apply(state: &mut State, index: usize, mask: Set) -> Set {
    let left = state.group.set_mask(index, mask);
    if !state.group.deliverable(index).is_empty()
        && let Some(thread) =
            state.group.member(index).and_then(|member| member.own.thread.as_ref())
    {
        thread.set_attention();
    }
    left
}

/// Sets what the calling thread blocks, `user`'s.
pub(super) fn change(user: &UserThread, before: Set, mask: Set) -> Result<(), Errno> {
    let begun = mask - before;
    if !begun.is_empty() {
        actions::forward(user, begun)?;
    }
    let left = set(user, mask);
    send::search(&user.process, left);
    Ok(())
}

/// The mask after rt_sigprocmask(how, set).
fn changed(before: Set, how: u64, set: Set) -> Result<Set, Errno> {
    let mask = match how as u32 {
        linux::SIG_BLOCK => before | set,
        linux::SIG_UNBLOCK => before - set,
        linux::SIG_SETMASK => set,
        _ => return Err(Errno::EINVAL),
    };
    Ok(mask - Set::UNCATCHABLE)
}

/// rt_sigprocmask(how, set, old, size).
pub fn sigprocmask([how, set, old, size, ..]: Args) -> SysResult {
    let [set, old] = [set, old].map(UserAddr::new);
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    if size != SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let before = of(user);
    if !set.is_null() {
        let [set] = user::read_words(set)?;
        change(user, before, changed(before, how, Set(set))?)?;
    }
    if !old.is_null() {
        user::write_words(old, [before.0])?;
    }
    Ok(0)
}

/// rt_sigprocmask on the fast path: if Linux need not be told, and no other thread has to take what
/// this one blocks. Interrupts off.
pub fn sigprocmask_fast(user: &UserThread, [how, set, old, size]: [u64; 4]) -> Option<SysResult> {
    let [set, old] = [set, old].map(UserAddr::new);
    let mut state = user.process.signals.lock();
    let index = user.signals.index();
    let before = state.group.member(index)?.mask();
    if size != SET_SIZE {
        return None;
    }
    let mut mask = before;
    if !set.is_null() {
        let mut bytes = [0; 8];
        if user_memory::read(set, &mut bytes) < bytes.len() {
            return None;
        }
        mask = changed(before, how, Set(u64::from_le_bytes(bytes))).ok()?;
        let begun = mask - before;
        if !begun.is_empty() && (state.needs_linux(begun) || !state.group.is_private(begun)) {
            return None;
        }
    }
    if !old.is_null() && user_memory::write(old, &before.0.to_le_bytes()) < 8 {
        return None;
    }
    if mask != before {
        apply(&mut state, index, mask);
    }
    Some(Ok(0))
}

/// rt_sigpending(set, size).
pub fn sigpending([set, size, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    if size > SET_SIZE {
        return Err(Errno::EINVAL);
    }
    collect(user);
    let index = user.signals.index();
    let pending = {
        let state = user.process.signals.lock();
        state
            .group
            .member(index)
            .map_or(Set::EMPTY, |member| state.group.pending(index) & member.mask())
    };
    user::write(UserAddr::new(set), &pending.0.to_le_bytes()[..size as usize])?;
    Ok(0)
}
