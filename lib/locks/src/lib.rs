// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who waits for whom: pure logic, tested on the host.
//!
//! | module | concept |
//! |---|---|
//! | [`levels`] | a queue ordered by level |
//! | [`inheritance`] | the graph of priority inheritance |
//! | [`futex`] | the waiters of futexes |
//! | [`orders`] | wake-ups that somebody else is to carry out |
//! | [`tids`] | threads by their ids |
//!
//! Threads are small indices. Nothing allocates. Every operation takes a bounded number of steps,
//! which its documentation names, because the kernel calls it under a spin lock.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod futex;
pub mod inheritance;
pub mod levels;
pub mod orders;
pub mod tids;

pub use futex::{Key, Table};
pub use inheritance::Graph;
pub use levels::{LevelQueue, Node};
pub use tids::Tids;

/// The index of no thread, and of no lock.
pub const NONE: u16 = u16::MAX;
