// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings up the further CPUs of the cell, one after the other: each starts on the boot stack,
//! which the one before has left, and takes its idle thread's.

use super::{SpawnError, scheduler, sleep_until};
use crate::arch::{apic, cpu, entry, fpu, percpu, tlb, traps};
use crate::cpu_numbers::Numbering;
use crate::mm::layout;
use crate::time::{Nanos, now};
use crate::{error, info};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use crtos_abi::ids::RealmCpu;
use crtos_registers::apic::ApicId;

/// The index of the CPU whose turn it is to start: `crate::boot` has the others wait for that.
pub static TURN: AtomicU32 = AtomicU32::new(0);

/// The data of the CPU whose turn it is.
static DATA: AtomicPtr<percpu::PerCpu> = AtomicPtr::new(core::ptr::null_mut());

/// How long a CPU may take.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// Starts all further CPUs. Once, in thread context.
pub fn start_all() {
    let info = layout::boot_info();
    for index in RealmCpu::all().take(info.cpu_count as usize).skip(1) {
        if let Err(reason) = start(index, ApicId(info.apic_ids[index.get()])) {
            // Its turn may still come, so that nobody else may start.
            error!("CPU {index} of the cell: {reason}; the realm goes on with {index}");
            return;
        }
    }
    if info.cpu_count > 1 {
        info!("{} CPUs", scheduler::online().count());
    }
}

fn start(index: RealmCpu, apic_id: ApicId) -> Result<(), &'static str> {
    let cpu = percpu::make(index, apic_id).ok_or("no memory for its data")?;
    scheduler::set_up(cpu).map_err(|SpawnError| "no memory for its scheduler")?;
    DATA.store(core::ptr::from_ref(cpu).cast_mut(), Ordering::Release);
    TURN.store(index.to_word(), Ordering::Release);
    let deadline = now() + PATIENCE;
    while !scheduler::online().contains(index) {
        if now() > deadline {
            return Err("does not start");
        }
        sleep_until(now() + Nanos::from_micros(10));
    }
    Ok(())
}

/// Where a further CPU goes on, on the boot stack, interrupts off.
pub extern "sysv64" fn run() -> ! {
    // SAFETY: stored before this CPU's turn came, for ever.
    let Some(cpu) = (unsafe { DATA.load(Ordering::Acquire).as_ref() }) else { cpu::halt() };
    percpu::attach(cpu);
    cpu.load_segments();
    cpu.set_numbering(Numbering::Machine);
    traps::load();
    cpu::set_up();
    fpu::set_up();
    tlb::load_kernel_root();
    apic::set_up();
    entry::set_up_syscall();
    scheduler::start()
}
