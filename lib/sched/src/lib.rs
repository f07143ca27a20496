// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure logic of the scheduler, tested on the host.
//!
//! | module | concept |
//! |---|---|
//! | [`time`], [`clock`] | nanoseconds; the time stamp counter as a clock |
//! | [`steer`] | a clock that another one leads |
//! | [`queue`] | priority levels and the run queue |
//! | [`placement`] | on which CPU a thread runs |
//! | [`deadline`] | SCHED_DEADLINE |
//! | [`timers`], [`interval`] | the timer queue; periodic timers |
//!
//! Threads and timers are small indices into arrays. An object allocates when it is made and never
//! afterwards; every operation takes a bounded number of steps.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod clock;
pub mod deadline;
pub mod interval;
pub mod placement;
pub mod queue;
pub mod steer;
pub mod time;
pub mod timers;

pub use placement::{AtomicCpu, CpuSet, Urgency};
pub use queue::{Level, RunQueue};
pub use time::Nanos;
pub use timers::TimerQueue;
