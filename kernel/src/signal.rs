// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals.

use crate::arch::UserContext;

/// A synchronous fault of a program.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGTRAP.
    pub signal: u32,
    /// `si_code` as Linux gives it.
    pub code: i32,
    /// `si_addr`.
    pub address: u64,
    /// Number of the exception (`trapno` in a signal frame).
    pub trap: u32,
    /// Error code of the exception (`err`).
    pub error: u64,
}

/// Called in the thread that faulted. Interrupts on, may sleep. When it returns, the context is resumed.
pub fn fault(_context: &mut UserContext, _fault: Fault) {}
