// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks: remote calls wake by priority (cRTOS, VEE'20, section 4.2).
//!
//! Linux interrupts a CPU of the realm for a reply only if the caller may run there: if what runs
//! outranks the caller on all CPUs, the reply is picked up when the rank of one of them falls.

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

/// Where a reply to a caller of rank `caller`, which was on the CPU `own`, is worth an interrupt,
/// if the CPUs run something of `ranks`: on its own CPU if the caller outranks what runs there,
/// else on the one that runs the least. Who has the same rank is interrupted: threads of one level
/// take turns, or give way to one another, and the one with the earlier deadline runs.
pub fn rings(caller: u32, own: usize, ranks: &[u32]) -> Option<usize> {
    if caller > ranks[own] {
        return Some(own);
    }
    let least = (0..ranks.len()).min_by_key(|&cpu| (ranks[cpu], cpu != own))?;
    (caller >= ranks[least]).then_some(least)
}
