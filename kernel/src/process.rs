// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rich real-time processes.

use crate::arch::UserContext;

/// What the process side keeps for each thread; [`crate::task::Thread::data`]. `Default` for threads of the kernel.
#[derive(Default)]
pub struct ThreadData {}

/// Called before every return to user mode while the thread's attention flag is set
/// (see [`crate::task::Thread::set_attention`]). Interrupts on, may sleep.
pub fn return_to_user(_context: &mut UserContext) {}
