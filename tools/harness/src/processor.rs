// SPDX-License-Identifier: MIT OR Apache-2.0
//! A processor of the host for each guest in virtual time.
//!
//! One thread of QEMU runs the guest's CPUs, and another one its timers: in virtual time they hand
//! over to each other all the time, at each short turn. On two processors that takes about twice as
//! long as on one.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::paths::{self, Lock};

/// A processor that no other guest in virtual time has until this is dropped.
pub struct Processor {
    number: usize,
    _lock: Lock,
}

impl Processor {
    /// One of those that the harness may use; `None` if all are taken.
    pub fn take() -> Result<Option<Self>> {
        let allowed = sched_getaffinity(None).context("ask for the processors")?;
        let folder = paths::target().join("locks");
        for number in (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number)) {
            if let Some(lock) = paths::try_lock(&folder, &format!("processor-{number}"))? {
                return Ok(Some(Self { number, _lock: lock }));
            }
        }
        Ok(None)
    }

    /// Its number, as Linux counts.
    pub fn number(&self) -> usize {
        self.number
    }
}
