// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's files about CPUs and memory nodes, opened for a program of the realm
//! ([`crtos_syscalls::topology`]).

use crtos_syscalls::{
    cpulist::CpuList,
    topology::{self, File, Text},
};
use linux_raw_sys::{errno, general as linux};

use crate::sys::{self, Errno};

/// Opens a file with `flags` of open(2) for the realm with these CPUs. A copy: it does not follow
/// later changes.
pub fn open(file: File, alone: bool, flags: u32, realm: CpuList) -> i64 {
    if flags & linux::O_ACCMODE != linux::O_RDONLY {
        return -i64::from(errno::EACCES);
    }
    let close_on_exec = flags & linux::O_CLOEXEC != 0;
    let result = content(file, realm, alone)
        .and_then(|text| sys::memory_file(c"topology", close_on_exec, text.bytes()));
    result.map_or_else(|Errno(error)| -i64::from(error), i64::from)
}

/// What the program reads.
fn content(file: File, realm: CpuList, alone: bool) -> Result<Text, Errno> {
    let fd = open_named(file, linux::O_RDONLY | linux::O_CLOEXEC)?;
    let linux = Text::filled(|place| usize::try_from(sys::read(fd, place)).unwrap_or(0));
    sys::close(fd);
    // The numbers by which the program knows the realm's CPUs, those of the file's node if it has
    // one.
    let mut shown = CpuList::default();
    let cpus = (0..CpuList::CPUS).filter(|&cpu| realm.contains(cpu));
    for (index, cpu) in cpus.enumerate() {
        if file.node().is_none_or(|node| is_on(node, cpu)) {
            shown.add(if alone { index } else { cpu });
        }
    }
    topology::show(file, linux, shown, alone).ok_or(Errno(errno::EIO))
}

/// Whether a CPU, online or not, belongs to a node.
fn is_on(node: u16, cpu: usize) -> bool {
    let link = format_args!("/sys/devices/system/node/node{node}/cpu{cpu}");
    open_named(link, linux::O_PATH | linux::O_CLOEXEC).map(sys::close).is_ok()
}

fn open_named(name: impl core::fmt::Display, flags: u32) -> Result<i32, Errno> {
    let name = Text::of(format_args!("{name}\0")).ok_or(Errno(errno::ENAMETOOLONG))?;
    sys::open(name.bytes().as_ptr() as u64, flags)
}
