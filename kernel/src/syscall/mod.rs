// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls.

use crate::arch::UserContext;

/// Called for the SYSCALL instruction: number in `rax`, arguments in `rdi rsi rdx r10 r8 r9`, result to `rax`. Interrupts on, may sleep.
pub fn dispatch(_context: &mut UserContext) {}
