// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/sys/devices/system/cpu/online` as a program of the realm sees it: the CPUs of Linux and those of the realms.
//!
//! To Linux the realm's CPUs are offline, but the program runs there. The C library counts processors by this file, and
//! programs go through affinity masks up to that count.

use core::fmt::{self, Write};

use crtos_abi::ioctl::{IOC_INFO, Info};
use crtos_syscalls::cpulist::CpuList;
use linux_raw_sys::{errno, general as linux};

use crate::sys::{self, Errno};

const PATH: &[u8] = b"/sys/devices/system/cpu/online\0";
/// The longest list of 256 CPUs.
const MAX_LIST: usize = 1024;

struct Text {
    bytes: [u8; MAX_LIST],
    length: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let place = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Whether the name at `path`, an address of the program, is this file's.
pub fn is_named(path: u64) -> bool {
    let mut name = [0; PATH.len()];
    sys::copy_in(path, name.as_mut_ptr(), name.len()).is_ok() && name == PATH
}

/// Opens it, with `flags` of open(2). A copy: it does not follow later changes.
pub fn open(flags: u64) -> i64 {
    if flags & u64::from(linux::O_ACCMODE) != u64::from(linux::O_RDONLY) {
        return -i64::from(errno::EACCES);
    }
    match list().and_then(|text| {
        sys::memory_file(
            c"online",
            flags & u64::from(linux::O_CLOEXEC) != 0,
            text.bytes.get(..text.length).unwrap_or_default(),
        )
    }) {
        Ok(fd) => fd.into(),
        Err(Errno(error)) => -i64::from(error),
    }
}

fn list() -> Result<Text, Errno> {
    let mut text = Text { bytes: [0; MAX_LIST], length: 0 };
    let fd = sys::open(PATH.as_ptr() as u64, linux::O_RDONLY | linux::O_CLOEXEC)?;
    let length = sys::read(fd, &mut text.bytes);
    sys::close(fd);
    let bytes = usize::try_from(length).ok().and_then(|length| text.bytes.get(..length));
    let linux = bytes.and_then(CpuList::parse).ok_or(Errno(errno::EIO))?;
    let mut info = Info {
        abi_version: 0,
        enabled: 0,
        cells: 0,
        realm: 0,
        tsc_khz: 0,
        x2apic: 0,
        processes: 0,
        reserved: 0,
        cell_cpus: [0; 4],
    };
    sys::ioctl(sys::device(), IOC_INFO, &raw mut info as u64)?;
    text.length = 0;
    write!(text, "{}", linux.union(CpuList(info.cell_cpus))).map_err(|_| Errno(errno::EIO))?;
    Ok(text)
}
