// SPDX-License-Identifier: MIT OR Apache-2.0
//! A processor of the host for each guest that keeps to one.
//!
//! Of a guest in virtual time, one thread of QEMU runs the CPUs, and another one the timers. They
//! hand over to each other all the time, at each short turn. On two processors that takes about
//! twice as long as on one.
//!
//! A guest whose CPUs have a thread each keeps to one processor because of a race in QEMU
//! ([`crate::qemu::Machine`]).

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::paths::{self, Lock};

/// A processor of the host.
pub struct Processor {
    number: usize,
    /// Held if no other guest has this processor until this is dropped.
    _lock: Option<Lock>,
}

impl Processor {
    /// Takes one that the harness may use; `None` if other guests have all of them.
    pub fn take() -> Result<Option<Self>> {
        let folder = paths::target().join("locks");
        for number in usable()? {
            let lock = paths::try_lock(&folder, &format!("processor-{number}"))?;
            if lock.is_some() {
                return Ok(Some(Self { number, _lock: lock }));
            }
        }
        Ok(None)
    }

    /// Takes one that the harness may use, or shares one if other guests have all of them.
    pub fn take_or_share() -> Result<Self> {
        if let Some(processor) = Self::take()? {
            return Ok(processor);
        }
        let number = usable()?.next().context("no processor may be used")?;
        Ok(Self { number, _lock: None })
    }

    /// Its number, as Linux counts.
    pub fn number(&self) -> usize {
        self.number
    }
}

/// The numbers of those that the harness may use.
fn usable() -> Result<impl Iterator<Item = usize>> {
    let allowed = sched_getaffinity(None).context("ask for the processors")?;
    Ok((0..CpuSet::MAX_CPU).filter(move |&number| allowed.is_set(number)))
}
