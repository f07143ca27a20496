// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers by which a program knows the CPUs of the realm: those of the machine, which Linux
//! uses as well, or numbers of the realm's own, from 0 on (`crtos run --renumber-cpus`).

use core::sync::atomic::{AtomicU8, Ordering};

use crtos_abi::ids::RealmCpu;

use crate::mm::layout;

/// The number by which a program knows a CPU of the realm, in one [`Numbering`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuNumber(pub u32);

/// By which numbers CPUs are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbering {
    /// The machine's.
    Machine,
    /// The index in the realm.
    Realm,
}

impl Numbering {
    /// The number of `cpu`.
    pub fn number(self, cpu: RealmCpu) -> CpuNumber {
        match self {
            Self::Realm => CpuNumber(cpu.to_word()),
            Self::Machine => CpuNumber(layout::boot_info().linux_cpus[cpu.get()]),
        }
    }
}

const REALM: u8 = Numbering::Realm as u8;

/// The numbering that was chosen for a process, a thread or a CPU.
#[derive(Default)]
pub struct Chosen(AtomicU8);

impl Chosen {
    /// The machine's.
    pub const fn new() -> Self {
        Self(AtomicU8::new(Numbering::Machine as u8))
    }

    /// Which it is.
    pub fn get(&self) -> Numbering {
        match self.0.load(Ordering::Relaxed) {
            REALM => Numbering::Realm,
            _ => Numbering::Machine,
        }
    }

    /// Whether it is that of `other`.
    #[inline(always)]
    pub fn is(&self, other: &Self) -> bool {
        self.0.load(Ordering::Relaxed) == other.0.load(Ordering::Relaxed)
    }

    /// Sets it. Threads that have begun keep what they had.
    pub fn set(&self, numbering: Numbering) {
        self.0.store(numbering as u8, Ordering::Relaxed);
    }
}
