// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs of the realm that do not answer. The kernel there counts the doorbells that each CPU takes,
//! within a microsecond or two; a CPU that takes none is lost to the realm, say by an INIT that a
//! device sent.

use std::time::{Duration, Instant};

use crtos_abi::ids::RealmCpu;

use crate::cpulist::CpuList;
use crate::device::{Call, Device};
use crate::threads::KernelState;

/// How long an answer may take. Only who rings can be slow.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the counts are looked at.
const PAUSE: Duration = Duration::from_millis(2);

/// The CPUs among `cpus`, those of the realm in cell `cell`, that do not answer. None while its
/// kernel is not there. Waits 2 s if one does not. Needs CAP_SYS_ADMIN.
pub fn silent_cpus(device: &Device, cell: u32, cpus: &CpuList) -> Call<Vec<u32>> {
    let before = device.counters(cell)?;
    if !matches!(before.state, KernelState::Ready | KernelState::Sealed) {
        return Ok(Vec::new());
    }
    let mut waiting: Vec<_> = RealmCpu::all().zip(cpus.iter()).collect();
    for (index, _) in &waiting {
        device.doorbell(cell, *index)?;
    }
    let begun = Instant::now();
    while !waiting.is_empty() && begun.elapsed() < PATIENCE {
        std::thread::sleep(PAUSE);
        let now = device.counters(cell)?;
        waiting.retain(|(index, _)| {
            let index = index.get();
            now.doorbells_taken[index] == before.doorbells_taken[index]
        });
    }
    Ok(waiting.into_iter().map(|(_, cpu)| cpu).collect())
}
