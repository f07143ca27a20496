// SPDX-License-Identifier: MIT OR Apache-2.0
//! By which numbers a program knows the CPUs of the realm: Linux's, or numbers of their own, from 0
//! on (`crtos run --renumber-cpus`).
//!
//! A process has its numbering from its start, and its children have it too. Linux's files about
//! CPUs ([`open`]) show the same numbers.

use crtos_abi::{UserAddr, ids::RealmCpu};
use crtos_channel::Operation;
use crtos_sched::CpuSet;
use crtos_syscalls::{cpulist::CpuList, topology::File};

use crtos_core::{
    cpu_numbers::{CpuNumber, Numbering},
    task,
};

use crate::{
    abi::{SysResult, linux_result},
    files,
    memory::user,
    process::ThreadExt as _,
    remote,
};

/// Bytes of an affinity mask with all numbers that there can be.
pub const MASK_BYTES: usize = CpuList::CPUS / 8;

/// The numbering of the calling thread's process.
pub fn of_caller() -> Numbering {
    task::current().user().map_or(Numbering::Machine, |user| user.process.numbering.get())
}

/// A mask of the numbers of CPUs of the realm.
pub fn to_mask(numbering: Numbering, cpus: CpuSet) -> [u8; MASK_BYTES] {
    let mut mask = [0; MASK_BYTES];
    for CpuNumber(number) in cpus.iter().map(|cpu| numbering.number(cpu)) {
        if let Some(byte) = mask.get_mut(number as usize / 8) {
            *byte |= 1 << (number % 8);
        }
    }
    mask
}

/// The CPUs of the realm in a mask.
pub fn from_mask(numbering: Numbering, mask: &[u8; MASK_BYTES]) -> CpuSet {
    let named = |&cpu: &RealmCpu| {
        let CpuNumber(number) = numbering.number(cpu);
        mask.get(number as usize / 8).is_some_and(|byte| byte >> (number % 8) & 1 != 0)
    };
    task::online().iter().filter(named).fold(CpuSet::default(), CpuSet::with)
}

/// Opens the file about CPUs that the name at `path` means, if it means one.
pub fn open(path: UserAddr, flags: u32) -> Option<SysResult> {
    let file = named(path)?;
    Some(open_file(file, flags))
}

fn named(path: UserAddr) -> Option<File> {
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
    let alone = of_caller() == Numbering::Realm;
    let mut realm = CpuList::default();
    task::online().iter().for_each(|cpu| realm.add(Numbering::Machine.number(cpu).0 as usize));
    let open = Operation::OpenTopology { file, alone, flags, realm };
    files.settle(linux_result(remote::request(open)?)?)
}
