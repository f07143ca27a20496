// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the scheduler knows of a thread.

use core::cell::Cell;

use crtos_sched::{CpuSet, Level, Urgency, clock::Ticks, deadline::Server};

use crate::task::{Policy, Scheduling, WakeReason, cpu_states::CPU_STATES};
use crate::time::Nanos;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::task) enum Progress {
    /// Not started.
    New,
    /// On the CPU.
    Running,
    /// In the run queue.
    Ready,
    /// On its way to the CPU that it is assigned to.
    Moving,
    /// In [`super::block`].
    Blocked,
    /// In [`super::sleep_until`].
    Sleeping,
    /// In [`super::wait_for_grant`].
    Locked,
    /// Its budget is used up; waits for its next period.
    Throttled,
    /// Ended.
    Exited,
}

/// The scheduler's knowledge of a thread; see [`super::State::of`].
pub(in crate::task) struct Sched {
    pub(in crate::task) progress: Cell<Progress>,
    pub(in crate::task) scheduling: Cell<Scheduling>,
    /// With SCHED_DEADLINE, what serves it.
    pub(in crate::task) server: Cell<Option<Server>>,
    /// The level that it inherits from those who wait for it.
    pub(in crate::task) inherited: Cell<Level>,
    /// What follows from these three.
    pub(in crate::task) urgency: Cell<Urgency>,
    pub(in crate::task) affinity: Cell<CpuSet>,
    /// How often it was sent on since it was last decided where it runs.
    pub(in crate::task) hops: Cell<u8>,
    /// Whether it is counted among those that could run elsewhere.
    pub(in crate::task) movable: Cell<Option<Class>>,
    /// A wake came while it was not blocked.
    pub(in crate::task) token: Cell<bool>,
    /// What it waits for in [`super::wait_for_grant`] was handed to it.
    pub(in crate::task) granted: Cell<bool>,
    /// What it waits for in [`super::block`] was handed to it.
    pub(in crate::task) handed: Cell<bool>,
    pub(in crate::task) reason: Cell<WakeReason>,
    /// What it will have run when its slice is used up.
    pub(in crate::task) slice_until: Cell<Ticks>,
    /// What it had run when it was last woken from a sleep.
    pub(in crate::task) rested: Cell<Ticks>,
    /// What becomes of its turn when the CPU looks for another thread.
    pub(in crate::task) turn: Cell<Turn>,
}

/// What becomes of the turn of a thread that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::task) enum Turn {
    /// It goes on before the others of its level.
    #[default]
    Kept,
    /// It goes on behind the first of its level.
    Interrupted,
    /// It goes on behind all of its level.
    GivenUp,
}

// SAFETY: the cells are reached through `State::of` alone, under the lock of the one CPU that the
// thread is assigned to.
unsafe impl Sync for Sched {}

/// What counts as one when threads are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::task) enum Class {
    Ordinary,
    RealTime,
}

impl Sched {
    pub(in crate::task) const fn new(scheduling: Scheduling, affinity: CpuSet) -> Self {
        Self {
            progress: Cell::new(Progress::New),
            scheduling: Cell::new(scheduling),
            server: Cell::new(None),
            inherited: Cell::new(Level::ORDINARY),
            urgency: Cell::new(Urgency::of_level(scheduling.level)),
            affinity: Cell::new(affinity),
            hops: Cell::new(0),
            movable: Cell::new(None),
            token: Cell::new(false),
            granted: Cell::new(false),
            handed: Cell::new(false),
            reason: Cell::new(WakeReason::Woken),
            slice_until: Cell::new(Ticks::ZERO),
            rested: Cell::new(Ticks::ZERO),
            turn: Cell::new(Turn::Kept),
        }
    }

    pub(in crate::task) fn urgency(&self) -> Urgency {
        self.urgency.get()
    }

    /// By its deadline while it has a budget, else by its level: of a thread whose budget is used
    /// up the one that it inherits.
    pub(super) fn renew_urgency(&self) {
        let own = match self.server.get() {
            Some(_) => Level::ORDINARY,
            None => self.scheduling.get().level,
        };
        self.urgency.set(match self.deadline() {
            Some(deadline) => Urgency::of_deadline(deadline),
            None => Urgency::of_level(own.max(self.inherited.get())),
        });
    }

    pub(in crate::task) fn inherited(&self) -> Level {
        self.inherited.get()
    }

    pub(in crate::task) fn server(&self) -> Option<Server> {
        self.server.get()
    }

    pub(in crate::task) fn set_server(&self, server: Option<Server>) {
        self.server.set(server);
        self.renew_urgency();
    }

    /// The deadline by which it competes.
    pub(in crate::task) fn deadline(&self) -> Option<Nanos> {
        self.server.get().filter(|server| !server.is_exhausted()).map(|server| server.deadline())
    }

    /// Whether its policy has time slices.
    pub(super) fn has_slices(&self) -> bool {
        !matches!(self.scheduling.get().policy, Policy::Fifo | Policy::Deadline)
    }

    /// Whether it shares its level by time slices: not while it runs on somebody else's behalf.
    pub(super) fn is_sliced(&self) -> bool {
        self.has_slices() && self.inherited.get() <= self.scheduling.get().level
    }

    /// The CPUs that it may run on and that run.
    pub(in crate::task) fn allowed(&self) -> CpuSet {
        let allowed = self.affinity.get().and(CPU_STATES.online());
        if allowed.is_empty() { CPU_STATES.online() } else { allowed }
    }
}
