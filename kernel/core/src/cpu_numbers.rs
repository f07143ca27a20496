// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers by which a program knows the CPUs of the realm: those of the machine, which Linux
//! uses as well, or numbers of the realm's own, from 0 on (`crtos run --renumber-cpus`).

use core::sync::atomic::{AtomicBool, Ordering};

use crate::mm::layout;

/// By which numbers CPUs are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbering {
    /// The machine's.
    Machine,
    /// The place in the realm.
    Realm,
}

impl Numbering {
    /// The number of the realm's CPU with that index.
    pub fn number(self, index: u32) -> u32 {
        match self {
            Self::Realm => index,
            Self::Machine => {
                layout::boot_info().linux_cpus.get(index as usize).copied().unwrap_or(0)
            }
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
