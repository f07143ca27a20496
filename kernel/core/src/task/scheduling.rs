// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread competes for its CPU: policy and parameters.

use crate::time::Nanos;
use crtos_sched::Level;
use crtos_sched::deadline::Reservation;

/// A policy of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// SCHED_OTHER: time slices, as long as the nice value says.
    Ordinary,
    /// SCHED_BATCH: the same.
    Batch,
    /// SCHED_IDLE: the shortest slices, and gives way to the two above at once.
    Idle,
    /// SCHED_FIFO.
    Fifo,
    /// SCHED_RR.
    RoundRobin,
    /// SCHED_DEADLINE.
    Deadline,
}

/// Policy and parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheduling {
    /// Policy.
    pub policy: Policy,
    /// [`Level::ORDINARY`] for the first three policies, [`Level::DEADLINE`] for the last.
    pub level: Level,
    /// -20..=19; counts for SCHED_OTHER and SCHED_BATCH.
    pub nice: i8,
    /// Children start with SCHED_OTHER.
    pub reset_on_fork: bool,
    /// For SCHED_DEADLINE.
    pub reservation: Reservation,
    /// SIGXCPU when the budget is used up.
    pub tells_overrun: bool,
    /// The flag SCHED_FLAG_RECLAIM, which is kept and means nothing.
    pub reclaims: bool,
}

/// A time slice of SCHED_OTHER with nice value 0.
pub const SLICE: Nanos = Nanos::from_millis(10);
/// A time slice of SCHED_RR, as in Linux.
pub const ROUND: Nanos = Nanos::from_millis(100);
/// The shortest and the longest slice of the others.
const SHORTEST: Nanos = Nanos::from_micros(100);
const LONGEST: Nanos = Nanos::from_millis(100);

impl Scheduling {
    /// SCHED_OTHER.
    pub const ORDINARY: Self = Self {
        policy: Policy::Ordinary,
        level: Level::ORDINARY,
        nice: 0,
        reset_on_fork: false,
        reservation: Reservation { runtime: Nanos(0), deadline: Nanos(0), period: Nanos(0) },
        tells_overrun: false,
        reclaims: false,
    };

    /// SCHED_FIFO at `priority` (1..=99).
    pub const fn fifo(priority: u32) -> Option<Self> {
        match Level::new(priority) {
            Some(level) if priority > 0 => {
                Some(Self { policy: Policy::Fifo, level, ..Self::ORDINARY })
            }
            _ => None,
        }
    }

    /// How long the thread runs before it is another one's turn; nothing for those that are not
    /// sliced.
    pub fn slice(&self) -> Nanos {
        let mut slice = SLICE.0;
        match self.policy {
            Policy::Ordinary | Policy::Batch => {
                // Each step of the nice value is a quarter, as in Linux.
                for _ in 0..self.nice.unsigned_abs() {
                    slice = if self.nice > 0 { slice * 4 / 5 } else { slice * 5 / 4 };
                }
                Nanos(slice).clamp(SHORTEST, LONGEST)
            }
            Policy::Idle => SHORTEST,
            Policy::RoundRobin => ROUND,
            Policy::Fifo | Policy::Deadline => Nanos::ZERO,
        }
    }

    /// How a child of a thread with this scheduling starts; `None` if it may have none (EAGAIN).
    pub fn of_child(&self) -> Option<Self> {
        match (self.policy, self.reset_on_fork) {
            (Policy::Deadline, false) => None,
            (Policy::Deadline | Policy::Fifo | Policy::RoundRobin, true) => Some(Self::ORDINARY),
            (_, true) => Some(Self { nice: self.nice.max(0), reset_on_fork: false, ..*self }),
            (_, false) => Some(*self),
        }
    }

    /// Its share of a CPU, in parts of [`Reservation::WHOLE`], if it has a reservation.
    pub fn share(&self) -> u64 {
        if self.policy == Policy::Deadline { self.reservation.share() } else { 0 }
    }
}
