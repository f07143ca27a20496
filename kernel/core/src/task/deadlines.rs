// SPDX-License-Identifier: MIT OR Apache-2.0
//! SCHED_DEADLINE (see `crtos_sched::deadline`): who may reserve, and what happens when a budget is
//! used up.
//!
//! A thread whose budget is used up is *throttled*: it waits, in no queue, for its next period.
//! While others wait for it to release a lock, it goes on at the level that it inherits.

use super::cpu_states::CPU_STATES;
use super::scheduler::{self, Progress, State};
use super::scheduling::Scheduling;
use super::thread::Thread;
use crate::sync::SpinLock;
use crate::time;
use crtos_sched::Level;
use crtos_sched::deadline::{Admission, Server, Verdict};

/// The CPUs have not as much left as was to be reserved (EBUSY).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overload;

/// What deadline threads have reserved of all CPUs together.
static RESERVED: SpinLock<Admission> = SpinLock::new(Admission::new());

/// See [`Thread::try_set_scheduling`].
pub(super) fn set_scheduling(thread: &Thread, scheduling: Scheduling) -> Result<(), Overload> {
    let mut reserved = RESERVED.lock();
    if scheduler::has_ended(thread) {
        return Ok(());
    }
    let (old, new) = (thread.scheduling().share(), scheduling.share());
    if old != new && !reserved.change(CPU_STATES.online().count(), old, new) {
        return Err(Overload);
    }
    scheduler::set_scheduling(thread, scheduling);
    Ok(())
}

/// See [`Thread::take_over`].
pub(super) fn hand_over(from: &Thread, to: &Thread, what: Scheduling) -> Result<(), Overload> {
    let mut reserved = RESERVED.lock();
    let is_left = !scheduler::has_ended(from);
    // What has ended has given its share back.
    let given = if is_left { from.scheduling().share() } else { 0 };
    let old = to.scheduling().share() + given;
    if !reserved.change(CPU_STATES.online().count(), old, what.share()) {
        return Err(Overload);
    }
    if is_left {
        scheduler::set_scheduling(from, Scheduling::ORDINARY);
    }
    scheduler::set_scheduling(to, what);
    Ok(())
}

/// Takes back what `thread`, which has ended, had reserved.
pub(super) fn release(thread: &Thread) {
    let mut reserved = RESERVED.lock();
    let share = thread.scheduling().share();
    if share != 0 {
        // Less is never refused.
        let _ = reserved.change(CPU_STATES.online().count(), share, 0);
    }
}

impl State {
    /// Whether `thread`, which slept, may run; else it is throttled.
    #[inline(always)]
    pub(super) fn may_start(&mut self, thread: &Thread) -> bool {
        self.of(thread).server().is_none_or(|server| self.may_start_served(thread, server))
    }

    #[inline(never)]
    fn may_start_served(&mut self, thread: &Thread, mut server: Server) -> bool {
        let sched = self.of(thread);
        let verdict = server.wake(time::now());
        sched.set_server(Some(server));
        self.obey(thread, verdict)
    }

    /// Whether `thread`, which is in no queue, may run; else it is throttled.
    pub(super) fn may_go_on(&mut self, thread: &Thread) -> bool {
        let sched = self.of(thread);
        let Some(mut server) = sched.server() else { return true };
        if !server.is_exhausted() {
            return true;
        }
        let verdict = match sched.inherited() {
            Level::ORDINARY => server.exhausted(time::now()),
            _ => Verdict::Runs,
        };
        sched.set_server(Some(server));
        self.obey(thread, verdict)
    }

    /// Whether `thread`, which leaves the CPU without wanting to sleep, remains ready; else it is
    /// throttled. If it `yields`, it gives up what is left of its budget.
    pub(super) fn may_stay(&mut self, thread: &Thread, yields: bool) -> bool {
        let sched = self.of(thread);
        let Some(mut server) = sched.server() else { return true };
        if yields {
            server.give_up();
            sched.set_server(Some(server));
        }
        self.may_go_on(thread)
    }

    /// The next period of `thread`, which was throttled, has begun.
    pub(super) fn end_throttle(&mut self, thread: &Thread) {
        let sched = self.of(thread);
        if let Some(mut server) = sched.server() {
            server.replenish(time::now());
            sched.set_server(Some(server));
        }
        self.distribute(thread);
    }

    fn obey(&mut self, thread: &Thread, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Waits(until) if self.of(thread).inherited() == Level::ORDINARY => {
                self.of(thread).progress.set(Progress::Throttled);
                self.timers.arm(thread.id.0, until);
                // A CPU sets its own timer.
                match self.is_here() {
                    true => self.program(),
                    false => self.ask_reschedule(),
                }
                false
            }
            _ => true,
        }
    }
}
