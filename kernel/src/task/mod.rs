// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads and what they wait for.

pub mod mutex;
pub mod thread;
pub mod timer;
pub mod wait;

pub use mutex::Mutex;
pub use thread::*;
pub use timer::Timer;
pub use wait::WaitQueue;
