// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's files about CPUs and memory nodes, opened for a program of the realm
//! ([`crtos_syscalls::topology`]).

use core::{ffi::CStr, fmt::Display};

use crtos_syscalls::{
    cpulist::CpuList,
    topology::{self, File, Text},
};
use linux_raw_sys::general as linux;

use crate::sys::{
    Errno,
    file::{self, Owned},
};

/// Opens a file with `flags` of open(2) for the realm with these CPUs. Returns the descriptor of a
/// copy, which does not follow later changes. EACCES unless the file is opened for reading.
pub fn open(file: File, alone: bool, flags: u32, realm: CpuList) -> Result<i32, Errno> {
    if flags & linux::O_ACCMODE != linux::O_RDONLY {
        return Err(Errno::EACCES);
    }
    let text = content(file, realm, alone)?;
    file::in_memory(c"topology", flags & linux::O_CLOEXEC != 0, text.bytes())
}

/// Returns what the program reads.
fn content(file: File, realm: CpuList, alone: bool) -> Result<Text, Errno> {
    let source = open_named(file, linux::O_RDONLY | linux::O_CLOEXEC)?;
    let linux = Text::filled(|place| file::read(source.fd(), place).unwrap_or(0));
    drop(source);
    // The numbers by which the program knows the realm's CPUs, those of the file's node if it has
    // one.
    let mut shown = CpuList::default();
    let cpus = (0..CpuList::CPUS).filter(|&cpu| realm.contains(cpu));
    for (index, cpu) in cpus.enumerate() {
        if file.node().is_none_or(|node| is_on(node, cpu)) {
            shown.add(if alone { index } else { cpu });
        }
    }
    topology::show(file, linux, shown, alone).ok_or(Errno::EIO)
}

/// Tells whether a CPU, online or not, belongs to a node.
fn is_on(node: u16, cpu: usize) -> bool {
    let link = format_args!("/sys/devices/system/node/node{node}/cpu{cpu}");
    open_named(link, linux::O_PATH | linux::O_CLOEXEC).is_ok()
}

/// Opens the file that is named so, with `flags` of open(2).
fn open_named(name: impl Display, flags: u32) -> Result<Owned, Errno> {
    let text = Text::of(format_args!("{name}\0")).ok_or(Errno::ENAMETOOLONG)?;
    let name = CStr::from_bytes_until_nul(text.bytes()).map_err(|_| Errno::ENAMETOOLONG)?;
    file::open(name, flags).map(Owned::new)
}
