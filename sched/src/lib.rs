// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure logic of the scheduler: time, priorities, deadlines, placement, run queues and timers, tested on the host.
//!
//! Everything is bounded and allocates nothing after it was made: threads and timers are small
//! indices into arrays.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod clock;
pub mod deadline;
pub mod interval;
pub mod placement;
pub mod queue;
pub mod time;
pub mod timers;

pub use placement::{CpuSet, Urgency};
pub use queue::{Level, RunQueue};
pub use time::Nanos;
pub use timers::TimerQueue;
