// SPDX-License-Identifier: MIT OR Apache-2.0
//! A log ring: bytes that one writer appends and many readers follow, also after the writer died.
//!
//! The writer keeps its own copy of the position and never reads the shared one. `written` counts
//! all bytes ever written; the byte number `n` lies at `n % capacity`. A reader copies, then reads
//! `written` again and drops what was overwritten meanwhile. Each line ends with a newline and
//! starts with `seconds.microseconds` of the time stamp counter.

/// Head of a log ring; `capacity` bytes follow it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RingHeader {
    /// Bytes ever written. Stored with release order after the bytes.
    pub written: u64,
    /// Bytes that follow, a power of two.
    pub capacity: u32,
    /// Zero.
    pub reserved: u32,
}
