// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals as Linux has them, free of hardware and tested on the host.
//!
//! | module | concept |
//! |---|---|
//! | [`set`] | numbers, sets, and what each signal does by default |
//! | [`info`](mod@info) | `siginfo` |
//! | [`pool`] | where queued signals are kept, and the queues of what is pending |
//! | [`group`] | the signals of a process: actions, what is pending for it and its threads, which thread takes one |
//! | [`signalfd`] | what a signalfd says of a signal |
//! | [`frame`] | what lies on the stack while a handler runs |
//!
//! Every operation takes a number of steps that does not depend on how many signals are pending or how many
//! threads there are, and allocates nothing unless it says so.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod frame;
pub mod group;
pub mod info;
pub mod pool;
pub mod set;
pub mod signalfd;

pub use group::{Action, Generated, Group, Target};
pub use info::Info;
pub use pool::{Account, Pending, Pool, Taken, Ticket};
pub use set::Set;
