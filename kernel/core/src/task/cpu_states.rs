// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each CPU tells the others of itself (see `crtos_sched::placement`), readable without a
//! lock.
//!
//! Who adds a thread that does not run at once stores the surplus, then looks at what the others
//! run; a CPU stores what it runs, then looks at the others' surplus. With a full fence in between
//! on both sides one of the two sees the other.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crtos_abi::{MAX_CELL_CPUS, ids::RealmCpu};
use crtos_sched::placement::Cpus;
use crtos_sched::{CpuSet, Urgency};

/// One CPU's words, on a line of their own.
#[repr(align(64))]
pub(super) struct CpuState {
    running: AtomicU64,
    surplus: AtomicU64,
    waiting: AtomicU32,
}

/// All CPUs' words.
pub(super) struct CpuStates {
    states: [CpuState; MAX_CELL_CPUS],
    online: AtomicU32,
}

/// The states of all CPUs.
pub(super) static CPU_STATES: CpuStates = CpuStates {
    states: [const {
        CpuState {
            running: AtomicU64::new(0),
            surplus: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
        }
    }; MAX_CELL_CPUS],
    online: AtomicU32::new(0),
};

impl CpuState {
    /// How urgent what the CPU runs, or is about to run, is.
    pub fn running(&self) -> Urgency {
        Urgency::from_published(self.running.load(Ordering::SeqCst))
    }

    /// The CPU runs something of that urgency, or is about to.
    pub fn set_running(&self, urgency: Urgency) {
        self.running.store(urgency.get(), Ordering::Relaxed);
    }

    /// Whether something waits on the CPU, as it has told.
    pub fn has_surplus(&self) -> bool {
        self.surplus.load(Ordering::Relaxed) != Urgency::IDLE.get()
    }

    /// What waits on the CPU. A full fence if it is more than before.
    pub fn set_surplus(&self, surplus: Urgency, waiting: u32) {
        self.waiting.store(waiting, Ordering::Relaxed);
        if surplus.get() > self.surplus.load(Ordering::Relaxed) {
            self.surplus.swap(surplus.get(), Ordering::SeqCst);
        } else {
            self.surplus.store(surplus.get(), Ordering::Relaxed);
        }
    }
}

impl CpuStates {
    /// The words of `cpu`.
    pub fn of(&self, cpu: RealmCpu) -> &CpuState {
        &self.states[cpu.get()]
    }

    /// The CPUs that run threads.
    pub fn online(&self) -> CpuSet {
        CpuSet(self.online.load(Ordering::Relaxed))
    }

    /// `cpu` runs threads from now on.
    pub fn set_online(&self, cpu: RealmCpu) {
        self.online.fetch_or(CpuSet::one(cpu).0, Ordering::Release);
    }
}

impl Cpus for CpuStates {
    fn running(&self, cpu: RealmCpu) -> Urgency {
        self.of(cpu).running()
    }

    fn surplus(&self, cpu: RealmCpu) -> Urgency {
        Urgency::from_published(self.of(cpu).surplus.load(Ordering::SeqCst))
    }

    fn waiting(&self, cpu: RealmCpu) -> u32 {
        self.of(cpu).waiting.load(Ordering::Relaxed)
    }
}
