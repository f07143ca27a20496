// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals (signal(7)).
//!
//! | file | concept |
//! |---|---|
//! | [`actions`] | what the program and its shadow do on each signal |
//! | [`mod@mask`] | what a thread blocks |
//! | [`send`] | sending: kill(2) and relatives, and for the rest of the kernel |
//! | [`own`] | what a thread sends to itself and takes at once |
//! | [`wait`] | waiting for signals, and sleeping until one comes |
//! | [`mod@deliver`] | what happens before a thread returns to its program |
//! | [`frame`] | the handler's frame, and the way back from it |
//!
//! The rules and the queues are in the crate `crtos-signal`. One lock for each process protects its
//! group: the actions and all that is pending for it and its threads. Inside it lie only the lock
//! of the pool of entries and those of the scheduler.
//!
//! Linux delivers signals to the shadow. Those left to the default action it carries out by itself,
//! those that the program ignores it ignores, and the others the shadow forwards to here. A signal
//! that the program blocks while its action is the default is forwarded from then on, too, and its
//! default action is carried out here when it is unblocked. So is one that it blocks while it
//! ignores it, since it may be handled once it is unblocked, and one that discards what may be
//! pending here. What one process of the realm sends to another (or a thread, or a timer) does not
//! touch Linux.

mod actions;
mod deliver;
mod exception;
mod frame;
mod mask;
mod overrun;
mod own;
mod send;
mod wait;

pub use actions::{
    changed_since, changes, copy, copy_to_thread, forward_again, inherit, leave_ignored, raise,
    sigaction, tell_shadow,
};
pub use deliver::deliver;
pub use exception::exception;
pub use frame::{frame_size, set_up, sigaltstack, sigreturn};
pub use mask::{mask, sigpending, sigprocmask, sigprocmask_fast};
pub use overrun::tell_overrun;
pub use own::deliver_own;
pub use send::{
    Recipient, Sent, forwarded, from_interrupt, kill, kill_fast, member, post, release, reserve,
    rt_sigqueueinfo, rt_tgsigqueueinfo, tell_end_of_linux, tgkill, tkill, to_process, to_thread,
};
pub use wait::{
    is_interrupted, is_pending, masked, pause, pending, sigsuspend, sigtimedwait, sleep, take,
    take_any,
};

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicUsize, Ordering};

use crtos_channel::{Slot, operation::Disposition};
use crtos_signal::{
    Group, Info, Pool, Set,
    frame::AltStack,
    group::{Member, Place},
    pool::Chunk,
    set::{SIGCHLD, SIGCONT},
};

use crtos_core::{mm::heap, sync::SpinLock, task::Thread};

use crate::{
    abi::Errno,
    process::{Process, ThreadExt as _, UserThread},
    remote::{self, slots},
};

/// Bytes of a signal set; calls with another size are EINVAL.
pub const SET_SIZE: u64 = 8;

/// The entries of all queues. Its lock is taken inside that of a process.
static POOL: SpinLock<Pool> = SpinLock::new(Pool::new());

/// What a thread keeps with the others of its group.
#[derive(Default)]
pub struct Own {
    /// The thread, once it runs: it is woken when it should look.
    thread: Option<Arc<Thread>>,
    /// What the mask was before rt_sigsuspend(2), until a handler's frame or the return takes it
    /// back.
    saved: Option<Set>,
    /// The alternate stack.
    stack: AltStack,
}

/// The signals of a process.
pub struct State {
    /// Actions and what is pending.
    pub group: Group<Own>,
    /// What the shadow does on each signal.
    shadow: [Disposition; crtos_signal::set::COUNT as usize],
    /// Those of which it carries out the default action.
    by_default: Set,
    /// Those that it ignores and could forward: not SIGCHLD, whose being ignored tells Linux that
    /// nobody waits for children.
    ignored: Set,
    /// How often what the shadow does was changed.
    changes: u64,
    /// Which of these changes was the last one of each signal.
    changed: [u64; crtos_signal::set::COUNT as usize],
}

/// Queued signals that a process may have until its limit is known.
const LIMIT: u64 = 1024;

impl Default for State {
    /// Nothing handled, nothing pending.
    fn default() -> Self {
        Self {
            group: Group::new(LIMIT),
            shadow: [Disposition::Default; crtos_signal::set::COUNT as usize],
            by_default: Set::ALL - Set::UNCATCHABLE,
            ignored: Set::EMPTY,
            changes: 0,
            changed: [0; crtos_signal::set::COUNT as usize],
        }
    }
}

impl State {
    /// Notes what the shadow does on `signal`. Returns what it did.
    fn set_disposition(&mut self, signal: u32, disposition: Disposition) -> Disposition {
        self.by_default = self.by_default - Set::of(signal);
        self.ignored = self.ignored - Set::of(signal);
        match disposition {
            Disposition::Default => self.by_default = self.by_default.with(signal),
            Disposition::Ignore if signal != SIGCHLD => self.ignored = self.ignored.with(signal),
            _ => {}
        }
        let index = signal as usize - 1;
        self.changes += 1;
        self.changed[index] = self.changes;
        core::mem::replace(&mut self.shadow[index], disposition)
    }

    /// The signals on which the shadow does something that was set after that many changes.
    fn changed_since(&self, changes: u64) -> Set {
        let is_changed = |&signal: &u32| self.changed[signal as usize - 1] > changes;
        Set::ALL.iter().filter(is_changed).fold(Set::EMPTY, Set::with)
    }

    /// What the shadow does on `signal`.
    fn disposition(&self, signal: u32) -> Disposition {
        self.shadow[signal as usize - 1]
    }

    /// Those that are not forwarded, and could be.
    fn left_to_linux(&self) -> Set {
        self.by_default | self.ignored
    }

    /// Whether a signal that stops can be pending here.
    fn keeps_stops(&self) -> bool {
        !(Set::STOPPING - Set::UNCATCHABLE - self.left_to_linux()).is_empty()
    }

    /// Whether SIGCONT can be pending here.
    fn keeps_cont(&self) -> bool {
        !self.left_to_linux().contains(SIGCONT)
    }

    /// Whether the shadow has to be told before `set` is blocked.
    fn needs_linux(&self, set: Set) -> bool {
        !(set & self.left_to_linux()).is_empty()
    }

    /// Has a member look at what is pending. `but` is the calling thread if it looks anyway.
    fn wake(&self, index: usize, but: Option<&Thread>) {
        let Some(thread) = self.group.member(index).and_then(|member| member.own.thread.as_ref())
        else {
            return;
        };
        thread.set_attention();
        if !but.is_some_and(|but| core::ptr::eq(but, &**thread)) {
            thread.wake();
            if let Some(user) = thread.user()
                && user.interruptible.load(Ordering::Relaxed)
            {
                remote::interrupt(user);
            }
        }
    }
}

/// A thread's place in the group of its process.
pub struct Membership(AtomicUsize);

impl Default for Membership {
    /// None yet.
    fn default() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }
}

impl Membership {
    /// Its number.
    fn index(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Gives `user` a place in its group, and returns that, if it has none yet. It blocks nothing.
/// Thread context; allocates.
pub fn join(user: &UserThread) -> Result<usize, Errno> {
    replenish();
    let index = user.signals.index();
    if index != usize::MAX {
        return Ok(index);
    }
    let process = &user.process;
    let mut member = Box::new(Member::new(user.tid, Set::EMPTY, Own::default()));
    loop {
        let (places, back) = {
            let mut state = process.signals.lock();
            match state.group.add(member) {
                Ok(index) => {
                    user.signals.0.store(index, Ordering::Relaxed);
                    return Ok(index);
                }
                Err(back) => (state.group.places().1, back),
            }
        };
        member = back;
        let mut table: Vec<Place<Own>> = Vec::new();
        table.try_reserve_exact((places * 2).max(4)).map_err(|_| Errno::ENOMEM)?;
        let old = process.signals.lock().group.move_to(table);
        drop(old);
    }
}

/// Whether `process` has a handler for `signal`. Any context.
pub fn is_handled(process: &Process, signal: u32) -> bool {
    process.signals.lock().group.action(signal).is_handled()
}

/// The thread can be woken by signals from now on; it looks what is pending before it runs its
/// program.
pub fn attach(thread: &Arc<Thread>) {
    let Some(user) = thread.user() else { return };
    thread.set_attention();
    let mut state = user.process.signals.lock();
    if let Some(member) = state.group.member_mut(user.signals.index()) {
        member.own.thread = Some(thread.clone());
    }
}

/// `user`'s thread ends: signals for the process go to others. Thread context.
pub fn retire(user: &UserThread) {
    let left = user.process.signals.lock().group.retire(user.signals.index());
    send::search(&user.process, left);
}

/// Takes `user`, whose thread ends, out of its group. What was pending for it is lost. Thread
/// context.
pub fn leave(user: &UserThread) {
    retire(user);
    forget(&user.process, user.signals.0.swap(usize::MAX, Ordering::Relaxed));
}

/// Gives up a place.
pub fn forget(process: &Process, index: usize) {
    drop_pending(process, Some(index));
    let member = process.signals.lock().group.remove(index);
    drop(member);
}

/// Calls `to` with each signal that is pending for `process`, which has no threads any more; they
/// are taken. Those of its timers end with these. Thread context.
pub fn bequeath(process: &Process, mut to: impl FnMut(Info)) {
    while let Some(taken) = with_group(process, |state, pool| state.group.take_shared(pool)) {
        if taken.cookie.is_none() {
            to(taken.info);
        }
    }
}

/// What is pending for `process`, or its member of this index, is lost. Thread context.
pub fn drop_pending(process: &Process, index: Option<usize>) {
    while with_group(process, |state, pool| state.group.discard(pool, index, Set::ALL)) {}
}

/// Sees to it that there are entries for signals. Thread context; allocates.
fn replenish() {
    while POOL.lock().is_short() {
        let Some(chunk) = heap::has_reserve().then(Chunk::new).flatten() else { return };
        let refused = POOL.lock().grow(chunk);
        if refused.is_err() {
            return;
        }
    }
}

/// Takes over what the shadow thread of `user`, the calling thread, has forwarded, if the doorbell
/// for it was not taken yet.
pub fn collect(user: &UserThread) {
    if let Some(sent) = slots::collect_signal(user.slot) {
        sent.finish(&user.process);
    }
}

/// Takes over what the shadow thread of `slot`, one of `process` that has no thread yet, has
/// forwarded. Thread context.
pub fn take_from(slot: Slot, process: &Process) {
    if let Some(info) = slots::take_unowned_signal(slot) {
        send::forwarded_to_process(process, info);
    }
}

/// Runs `f` with the group of `process` and the pool.
fn with_group<R>(process: &Process, f: impl FnOnce(&mut State, &mut Pool) -> R) -> R {
    let mut state = process.signals.lock();
    f(&mut state, &mut POOL.lock())
}
