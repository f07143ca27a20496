// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lapses: what a real-time thread does that has no worst case. It has Linux do something, touches
//! a page that is not there, or changes its memory.

use crtos_abi::channel::LAPSE_MEMORY;
use crtos_core::trace;

/// The calling thread is about to change the memory of its program.
#[inline]
pub fn memory() {
    trace::lapse(LAPSE_MEMORY);
}
