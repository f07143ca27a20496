// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread is scheduled, and where: asked and changed from outside.

use crtos_sched::{CpuSet, Level, deadline::Server};

use super::{Progress, hold_of};
use crate::task::{Policy, Scheduling, Thread};
use crate::time::{self, Nanos};

/// Applies `scheduling` to `thread`; for [`crate::task::deadlines`].
pub(in crate::task) fn set_scheduling(thread: &Thread, scheduling: Scheduling) {
    let mut state = hold_of(thread);
    if state.is_current(thread) {
        // What it has run is not taken from what it is to have.
        state.charge(time::ticks());
    }
    let sched = state.of(thread);
    let before = sched.urgency();
    sched.scheduling.set(scheduling);
    state.renew_slice(thread);
    let reserved = scheduling.policy == Policy::Deadline;
    sched.set_server(reserved.then(|| match sched.server() {
        // Who asks again has used what it has used.
        Some(mut server) => {
            server.change(scheduling.reservation);
            server
        }
        None => Server::new(scheduling.reservation, time::now()),
    }));
    state.requeue(thread, before);
    if state.is_current(thread) {
        // Its rank and its slice follow from the policy.
        state.ask_reschedule();
    }
}

/// See [`Thread::scheduling`].
pub(in crate::task) fn scheduling(thread: &Thread) -> Scheduling {
    hold_of(thread).of(thread).scheduling.get()
}

/// See [`Thread::time_used`].
pub(in crate::task) fn time_used(thread: &Thread) -> Nanos {
    time::duration(hold_of(thread).time_used(thread))
}

/// See [`Thread::time_awake`].
pub(in crate::task) fn time_awake(thread: &Thread) -> Nanos {
    let state = hold_of(thread);
    time::duration(state.time_used(thread) - state.of(thread).rested.get())
}

/// See [`Thread::is_asleep`].
pub(in crate::task) fn is_asleep(thread: &Thread) -> bool {
    use Progress::{Blocked, Locked, Sleeping, Throttled};
    matches!(hold_of(thread).of(thread).progress.get(), Blocked | Locked | Sleeping | Throttled)
}

/// See [`Thread::affinity`].
pub(in crate::task) fn affinity(thread: &Thread) -> CpuSet {
    hold_of(thread).of(thread).affinity.get()
}

/// See [`Thread::set_affinity`].
pub(in crate::task) fn set_affinity(thread: &Thread, cpus: CpuSet) {
    let mut state = hold_of(thread);
    let sched = state.of(thread);
    sched.affinity.set(cpus);
    let stays = sched.allowed().contains(state.cpu.index);
    match sched.progress.get() {
        Progress::Ready if stays => state.recount(thread),
        Progress::Ready => {
            state.dequeue(thread);
            state.of(thread).hops.set(0);
            let there = state.best_place(thread);
            state.send(thread, there, false);
        }
        _ if state.is_current(thread) && !stays => state.ask_reschedule(),
        // It goes where it may when it becomes ready.
        _ => {}
    }
}

/// Sets the level that `thread` inherits from those who wait for it ([`Level::ORDINARY`]: none),
/// wherever it is. Any context.
pub(in crate::task) fn set_inherited(thread: &Thread, level: Level) {
    let mut state = hold_of(thread);
    let sched = state.of(thread);
    let before = sched.urgency();
    sched.inherited.set(level);
    sched.renew_urgency();
    state.requeue(thread, before);
}
