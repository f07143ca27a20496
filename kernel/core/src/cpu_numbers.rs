// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers by which a program knows the CPUs of the realm: those of the machine, which Linux
//! uses as well, or numbers of the realm's own, from 0 on (`crtos run --renumber-cpus`).

use core::sync::atomic::{AtomicBool, Ordering};

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

/// The numbering that was chosen for a process, a thread or a CPU.
#[derive(Default)]
pub struct Chosen(AtomicBool);

impl Chosen {
    /// The machine's.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Which it is.
    pub fn get(&self) -> Numbering {
        if self.0.load(Ordering::Relaxed) { Numbering::Realm } else { Numbering::Machine }
    }

    /// Sets it. Threads that have begun keep what they had.
    pub fn set(&self, numbering: Numbering) {
        self.0.store(numbering == Numbering::Realm, Ordering::Relaxed);
    }
}
