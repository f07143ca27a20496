// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who waits for whom: queues ordered by level, the graph of priority inheritance, and the waiters of
//! futexes. Pure logic, tested on the host.
//!
//! Threads are small indices. Nothing allocates; every operation takes a bounded number of steps,
//! which its documentation names, because the kernel calls it under a spin lock.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod futex;
pub mod inheritance;
pub mod levels;
pub mod tids;

pub use futex::{Key, Table};
pub use inheritance::Graph;
pub use levels::{LevelQueue, Node};
pub use tids::Tids;

/// No thread, no lock.
pub const NONE: u16 = u16::MAX;
