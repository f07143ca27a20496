// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUs as all of them see each other: who owns which, and what is asked of it. All of it is
//! atomic, since interrupt commands look at it without a lock.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crtos_abi::MAX_CPUS;
use crtos_abi::report::{CPU_PARKED, CPU_ROOT};
use crtos_partition::budget::Budget;
use crtos_partition::cpuset::CpuSet;
use crtos_partition::icr::Address;
use crtos_partition::ids::{CellId, CpuIndex};

use crate::{launch_info, report};

/// Who owns a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Linux, without the hypervisor underneath.
    Outside,
    /// Linux.
    Root,
    /// Nobody; it waits for a start-up IPI or a cell.
    Parked,
    /// A cell.
    Cell(CellId),
}

const OUTSIDE: u32 = 0xffff_fffd;

impl Owner {
    #[inline]
    fn code(self) -> u32 {
        match self {
            Self::Outside => OUTSIDE,
            Self::Root => CPU_ROOT,
            Self::Parked => CPU_PARKED,
            Self::Cell(cell) => cell.get() as u32,
        }
    }

    #[inline]
    fn from_code(code: u32) -> Self {
        match CellId::new(code as usize) {
            Some(cell) => Self::Cell(cell),
            None if code == CPU_ROOT => Self::Root,
            None if code == CPU_PARKED => Self::Parked,
            None => Self::Outside,
        }
    }

    /// Tells whether Linux runs on such a CPU.
    #[inline]
    pub fn is_linux(self) -> bool {
        matches!(self, Self::Root | Self::Outside)
    }
}

const NO_CELL: u8 = 0xff;

/// A CPU as the others see it.
pub struct Cpu {
    owner: AtomicU32,
    /// Cell that the CPU was given to, from its creation to its destruction.
    assigned: AtomicU8,
    /// What others want of it; see [`crate::local`].
    pub(crate) requests: AtomicU32,
    /// An NMI of the hypervisor's is on its way.
    pub(crate) kicked: AtomicBool,
    /// Page of the last start-up IPI.
    pub start_up_page: AtomicU8,
    /// The last generation of flushes that it has done.
    pub(crate) flushed: AtomicU64,
    /// It refused to be taken since it was not offline.
    pub refused: AtomicBool,
    /// xAPIC mode: logical destination register, as Linux set it.
    pub logical: AtomicU32,
    /// xAPIC mode: destination format register.
    pub format: AtomicU32,
    /// Doorbells of Linux that it may get.
    pub doorbells: Budget,
}

impl Cpu {
    const fn new() -> Self {
        Self {
            owner: AtomicU32::new(OUTSIDE),
            assigned: AtomicU8::new(NO_CELL),
            requests: AtomicU32::new(0),
            kicked: AtomicBool::new(false),
            start_up_page: AtomicU8::new(0),
            flushed: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            logical: AtomicU32::new(0),
            format: AtomicU32::new(!0),
            doorbells: Budget::new(),
        }
    }

    /// Who owns it.
    #[inline]
    pub fn owner(&self) -> Owner {
        Owner::from_code(self.owner.load(Ordering::SeqCst))
    }

    /// The cell that it was given to.
    pub fn assigned(&self) -> Option<CellId> {
        CellId::new(self.assigned.load(Ordering::SeqCst).into())
    }

    /// Gives it to a cell, or back.
    pub fn assign(&self, cell: Option<CellId>) {
        self.assigned.store(cell.map_or(NO_CELL, |cell| cell.get() as u8), Ordering::SeqCst);
    }

    /// Tells whether it has done the flushes up to `generation`.
    pub fn has_flushed(&self, generation: u64) -> bool {
        self.flushed.load(Ordering::SeqCst) >= generation
    }
}

/// No CPU of Linux goes on, and none starts.
static ROOT_HALTED: AtomicBool = AtomicBool::new(false);

/// Tells whether Linux was halted, on all its CPUs and for good.
pub fn root_is_halted() -> bool {
    ROOT_HALTED.load(Ordering::SeqCst)
}

/// Says that no CPU of Linux goes on. False if somebody has said so before.
pub(crate) fn set_root_halted() -> bool {
    !ROOT_HALTED.swap(true, Ordering::SeqCst)
}

static CPUS: [Cpu; MAX_CPUS] = [const { Cpu::new() }; MAX_CPUS];

/// A CPU, whether the machine has it or not.
#[inline]
pub fn get(index: CpuIndex) -> &'static Cpu {
    &CPUS[index.get()]
}

/// Changes the owner of a CPU.
pub fn set_owner(index: CpuIndex, owner: Owner) {
    get(index).owner.store(owner.code(), Ordering::SeqCst);
    report::owner(index, if owner.is_linux() { CPU_ROOT } else { owner.code() });
}

/// The CPUs that `wanted` is true for.
pub fn those(wanted: impl Fn(&Cpu) -> bool) -> CpuSet {
    launch_info::cpus().filter(|index| wanted(get(*index))).collect()
}

/// How a CPU is addressed in interrupt commands.
pub fn apic_address(index: CpuIndex) -> Address {
    let cpu = get(index);
    Address {
        id: launch_info::apic_id(index),
        logical: (cpu.logical.load(Ordering::Relaxed) >> 24) as u8,
        clustered: cpu.format.load(Ordering::Relaxed) >> 28 == 0,
    }
}
