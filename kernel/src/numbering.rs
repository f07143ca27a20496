// SPDX-License-Identifier: MIT OR Apache-2.0
//! By which numbers a program knows the CPUs of the realm: Linux's, or numbers of their own, from 0 on (`crtos run --renumber-cpus`).
//!
//! A process has its numbering from its start, and its children have it too. Linux's files about CPUs ([`open`]) show the same numbers.

use core::sync::atomic::{AtomicBool, Ordering};

use crtos_abi::channel::{OP_TOPOLOGY, TOPOLOGY_ALONE};
use crtos_sched::CpuSet;
use crtos_syscalls::{cpulist::CpuList, topology::File};

use crate::{
    files,
    mm::layout,
    remote,
    syscall::{SysResult, linux_result},
    task, user,
};

/// Bytes of an affinity mask with all numbers that there can be.
pub const MASK_BYTES: usize = CpuList::CPUS / 8;

/// By which numbers CPUs are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbering {
    /// Linux's.
    Linux,
    /// The place in the realm.
    Own,
}

impl Numbering {
    /// Of the calling thread's process.
    pub fn of_caller() -> Self {
        task::current().data.user().map_or(Self::Linux, |user| user.process.numbering.get())
    }

    /// The number of the realm's CPU with that index.
    pub fn number(self, index: u32) -> u32 {
        match self {
            Self::Own => index,
            Self::Linux => layout::boot_info().linux_cpus.get(index as usize).copied().unwrap_or(0),
        }
    }

    /// A mask of the numbers of CPUs of the realm.
    pub fn to_mask(self, cpus: CpuSet) -> [u8; MASK_BYTES] {
        let mut mask = [0; MASK_BYTES];
        for cpu in cpus.iter().map(|index| self.number(index)) {
            if let Some(byte) = mask.get_mut(cpu as usize / 8) {
                *byte |= 1 << (cpu % 8);
            }
        }
        mask
    }

    /// The CPUs of the realm in a mask.
    pub fn from_mask(self, mask: &[u8; MASK_BYTES]) -> CpuSet {
        let named = |&index: &u32| {
            let cpu = self.number(index);
            mask.get(cpu as usize / 8).is_some_and(|byte| byte >> (cpu % 8) & 1 != 0)
        };
        task::online().iter().filter(named).fold(CpuSet::default(), CpuSet::with)
    }
}

/// The numbering of a process.
#[derive(Default)]
pub struct Chosen(AtomicBool);

impl Chosen {
    /// Linux's.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Which it is.
    pub fn get(&self) -> Numbering {
        if self.0.load(Ordering::Relaxed) { Numbering::Own } else { Numbering::Linux }
    }

    /// Sets it. Threads that have begun keep what they had.
    pub fn set(&self, numbering: Numbering) {
        self.0.store(numbering == Numbering::Own, Ordering::Relaxed);
    }
}

/// Opens the file about CPUs that the name at `path`, an address of the program, means, if it means one.
pub fn open(path: u64, flags: u32) -> Option<SysResult> {
    let file = named(path)?;
    Some(open_file(file, flags))
}

fn named(path: u64) -> Option<File> {
    // Most names are others.
    const BEGINNING: u64 = u64::from_le_bytes(*b"/sys/dev");
    user::read_words(path).ok().filter(|&[word]| word == BEGINNING)?;
    let mut name = [0; File::LONGEST_NAME];
    let length = user::space().ok()?.read_cstr(path, &mut name).ok()??;
    File::named(name.get(..length)?)
}

fn open_file(file: File, flags: u32) -> SysResult {
    let files = files::table()?;
    files.agree()?;
    let alone = match Numbering::of_caller() {
        Numbering::Own => TOPOLOGY_ALONE,
        Numbering::Linux => 0,
    };
    let mut realm = CpuList::default();
    task::online().iter().for_each(|index| realm.add(Numbering::Linux.number(index) as usize));
    let [first, second, third, fourth] = realm.0;
    let args = [file.to_word() | alone, flags.into(), first, second, third, fourth];
    files.settle(linux_result(remote::request(OP_TOPOLOGY, 0, args)?)?)
}
