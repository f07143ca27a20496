// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks: remote calls wake by priority (cRTOS, VEE'20, section 4.2).
//!
//! Linux interrupts a CPU of the realm for a reply only if the caller outranks what runs there;
//! otherwise the reply is picked up when the rank falls.

use crtos_abi::channel::{RANK_IDLE, RANK_NORMAL};

/// What a CPU runs, or what a caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// The idle loop.
    Idle,
    /// An ordinary thread (SCHED_OTHER) or kernel work of that kind.
    Ordinary,
    /// A thread of this real-time priority (1..=99).
    RealTime(u8),
}

impl Running {
    /// The number that stands for it in the channel.
    pub const fn rank(self) -> u32 {
        match self {
            Running::Idle => RANK_IDLE,
            Running::Ordinary => RANK_NORMAL,
            Running::RealTime(priority) => priority as u32 + 1,
        }
    }
}

/// Whether a reply to a caller of rank `caller` is worth an interrupt on a CPU that runs something
/// of rank `running`. Ordinary threads share the CPU in turns, so an ordinary caller interrupts an
/// ordinary thread.
pub const fn rings(caller: u32, running: u32) -> bool {
    caller > running || (caller == running && running <= RANK_NORMAL)
}
