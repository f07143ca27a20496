// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor of the host on which a machine is emulated.
//!
//! QEMU (10.0) runs a thread for each virtual CPU. When one of them restores its floating-point registers, QEMU clears a flag of the
//! *first* CPU (IGNNE#), in the word that also says whether that CPU is in a guest, has its global interrupt flag set and
//! uses nested paging, and does so without a lock. If the first CPU enters or leaves a guest in the same nanoseconds on another processor,
//! the word is stored over: the state of the hypervisor ends up as that of Linux, or Linux waits for interrupts that never
//! come. That was seen once in some minutes of much switching. On one processor it cannot happen, since the flag is cleared by one instruction.

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::paths::{self, Lock};

/// A processor, reserved for one machine as long as there are enough.
pub struct Processor {
    number: usize,
    _lock: Option<Lock>,
}

impl Processor {
    /// Takes one that no machine uses; if there is none, or nothing can be found out, shares one.
    pub fn take() -> Self {
        let allowed = sched_getaffinity(None).map_or_else(|_| vec![0], |set| numbers(&set));
        let folder = std::env::temp_dir().join("crtos-processors");
        for &number in &allowed {
            if let Ok(Some(lock)) = paths::try_lock(&folder, &number.to_string()) {
                return Self { number, _lock: Some(lock) };
            }
        }
        let number = allowed[std::process::id() as usize % allowed.len()];
        Self { number, _lock: None }
    }

    /// Its number in the host.
    pub fn number(&self) -> usize {
        self.number
    }
}

/// The numbers in a set; never none.
fn numbers(set: &CpuSet) -> Vec<usize> {
    let numbers: Vec<_> = (0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect();
    if numbers.is_empty() { vec![0] } else { numbers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_taken_at_once_differ_while_there_are_enough() {
        let own: Vec<_> = (0..2).map(|_| Processor::take()).collect();
        let reserved: Vec<_> =
            own.iter().filter(|one| one._lock.is_some()).map(Processor::number).collect();
        assert!(reserved.len() < 2 || reserved[0] != reserved[1]);
    }
}
