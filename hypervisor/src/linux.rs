// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUs that run Linux: they forget translations, or are held for a moment.

use crtos_machine::cpu::{self, Owner};
use crtos_machine::local::{self, Hold, Local, Request};
use crtos_machine::processor;
use crtos_partition::cpuset::CpuSet;
use crtos_partition::error::Refusal;
use crtos_partition::ids::CpuIndex;

/// How long a CPU may take to react.
pub const REACTION_MS: u64 = 2000;

/// CPUs that run Linux.
pub fn cpus() -> CpuSet {
    cpu::those(|cpu| cpu.owner() == Owner::Root)
}

/// Makes these CPUs, which run Linux, leave it and forget cached translations. The lock is held.
pub fn flush(local: &mut Local, cpus: CpuSet) -> Result<(), Refusal> {
    let generation = local::next_flush();
    local.flush();
    let own = local.index();
    let others = || cpus.iter().filter(|index| *index != own);
    others().for_each(|index| local::request(index, Request::Flush));
    let deadline = processor::deadline(REACTION_MS);
    let done = |index: CpuIndex| {
        let cpu = cpu::get(index);
        cpu.owner() == Owner::Parked || cpu.has_flushed(generation)
    };
    while !others().all(done) {
        if processor::tsc() > deadline {
            return Err(Refusal::Timeout);
        }
        core::hint::spin_loop();
    }
    Ok(())
}

/// Has no CPU of Linux run until the result is dropped. None goes on with cached translations. The
/// lock is held.
pub fn hold(local: &mut Local) -> Result<Hold, Refusal> {
    let hold = Hold::new();
    flush(local, cpus())?;
    Ok(hold)
}
