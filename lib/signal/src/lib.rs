// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals as Linux has them: pure logic, tested on the host.
//!
//! | module | concept |
//! |---|---|
//! | [`set`] | numbers, sets, and what each signal does by default |
//! | [`info`](mod@info) | `siginfo` |
//! | [`pool`] | the entries of queued signals, and the queues of what is pending |
//! | [`group`] | the signals of a process: actions, what is pending, which thread takes a signal |
//! | [`signalfd`] | what a read of a signalfd returns |
//! | [`frame`] | the frame on the stack while a handler runs |
//!
//! The steps of an operation do not depend on the number of pending signals or of threads, and it
//! allocates nothing, unless its documentation says otherwise.
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
