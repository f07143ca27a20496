// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of descriptors: the program has local files, which live in the real-time realm, at
//! numbers that Linux must not give to others. Placeholders lie there. One is a copy of the
//! descriptor of the executable, close-on-exec; it is recognised by being that file.

use core::ffi::CStr;

use crtos_channel::operation::{DescriptorLimits, DescriptorsInUse, Device};
use linux_raw_sys::general as linux;

use crate::sys::{self, Errno};

/// The name of a device, and its number in Linux.
const fn named(device: Device) -> (&'static CStr, u64) {
    match device {
        Device::Null => (c"/dev/null", makedev(1, 3)),
        Device::Zero => (c"/dev/zero", makedev(1, 5)),
        Device::Full => (c"/dev/full", makedev(1, 7)),
    }
}

const fn makedev(major: u64, minor: u64) -> u64 {
    major << 8 | minor
}

/// Stores the status of a descriptor at `address`; its flags.
pub fn status(fd: i32, address: u64) -> i64 {
    // SAFETY: Linux writes to the program's address, which it checks, and looks at flags.
    unsafe {
        match sys::raw(linux::__NR_fstat, [fd as u64, address, 0, 0, 0, 0]) {
            0 => sys::raw(linux::__NR_fcntl, [fd as u64, linux::F_GETFL.into(), 0, 0, 0, 0]),
            error => error,
        }
    }
}

/// Stores the status of a device at `address`.
pub fn device_status(device: Device, address: u64) -> i64 {
    let (name, _) = named(device);
    // SAFETY: Linux writes to the program's address, which it checks.
    unsafe { sys::raw(linux::__NR_stat, [name.as_ptr() as u64, address, 0, 0, 0, 0]) }
}

/// The limit of descriptors, and whether the devices are where they should be.
pub fn limits() -> DescriptorLimits {
    DescriptorLimits {
        most: u32::try_from(sys::limit(linux::RLIMIT_NOFILE)).unwrap_or(u32::MAX),
        devices: Device::ALL.into_iter().all(|device| {
            let (name, number) = named(device);
            is_device(name, number)
        }),
    }
}

/// Whether `name` is the character device `number` that everybody may use.
fn is_device(name: &CStr, number: u64) -> bool {
    const KIND_AND_RIGHTS: u32 = linux::S_IFCHR | 0o666;
    // SAFETY: an all-zero stat is one.
    let mut status: linux::stat = unsafe { core::mem::zeroed() };
    let args = [name.as_ptr() as u64, &raw mut status as u64, 0, 0, 0, 0];
    // SAFETY: Linux writes the structure.
    let result = unsafe { sys::raw(linux::__NR_lstat, args) };
    result == 0
        && status.st_rdev == number
        && status.st_mode & (linux::S_IFMT | 0o666) == KIND_AND_RIGHTS
}

fn is_open(number: u64) -> bool {
    // SAFETY: looks at a flag.
    unsafe { sys::raw(linux::__NR_fcntl, [number, linux::F_GETFD.into(), 0, 0, 0, 0]) >= 0 }
}

/// Which of the 32 numbers from `first` on are in use, and which is the next one.
pub fn in_use(first: u32) -> DescriptorsInUse {
    let first = u64::from(first);
    let near = (0..32).filter(|bit| is_open(first + bit)).fold(0, |bits, bit| bits | 1 << bit);
    DescriptorsInUse { near, next: next_in_use(first + 32).map_or(0, |next| next as u32) }
}

/// Numbers that are looked at one by one without /proc, and the highest that are of interest.
const MOST: u64 = 4096;

/// The first number in use from `from` on.
fn next_in_use(from: u64) -> Option<u64> {
    let folder = sys::open(
        c"/proc/self/fd".as_ptr() as u64,
        linux::O_RDONLY | linux::O_DIRECTORY | linux::O_CLOEXEC,
    );
    let Ok(folder) = folder else { return (from..MOST).find(|&number| is_open(number)) };
    let mut found: Option<u64> = None;
    let mut buffer = [0_u64; 128];
    loop {
        let size = size_of_val(&buffer) as u64;
        let args = [folder as u64, buffer.as_mut_ptr() as u64, size, 0, 0, 0];
        // SAFETY: Linux fills the buffer.
        let length = unsafe { sys::raw(linux::__NR_getdents64, args) };
        let Ok(length @ 1..) = usize::try_from(length) else { break };
        let bytes = buffer.as_flattened_bytes();
        let mut at = 0;
        // struct linux_dirent64: d_ino, d_off, d_reclen (16 bits), d_type, d_name.
        while let Some(entry) = bytes[..length].get(at..).filter(|entry| entry.len() > 19) {
            let name = entry[19..].split(|&byte| byte == 0).next().unwrap_or_default();
            let number = core::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
            if let Some(number) = number
                && number >= from
                && number != folder as u64
                && found.is_none_or(|found| number < found)
            {
                found = Some(number);
            }
            at += usize::from(u16::from_le_bytes([entry[16], entry[17]])).max(1);
        }
    }
    sys::close(folder);
    found.filter(|&found| found < MOST)
}

/// The bytes of words.
trait FlattenedBytes {
    fn as_flattened_bytes(&self) -> &[u8];
}

impl FlattenedBytes for [u64] {
    fn as_flattened_bytes(&self) -> &[u8] {
        // SAFETY: any byte of a word is a byte.
        unsafe { core::slice::from_raw_parts(self.as_ptr().cast(), size_of_val(self)) }
    }
}

/// Puts placeholders at the numbers `first + n` with bit `n` in `place`, and takes away those in
/// `remove`. Files of Linux's own stay.
pub fn agree(first: u32, place: u64, remove: u64) {
    let first = u64::from(first);
    let numbers = |bits: u64| (0..64).filter(move |bit| bits >> bit & 1 == 1);
    let own = sys::identity(sys::executable());
    for bit in numbers(remove) {
        let number = (first + bit) as i32;
        if sys::identity(number) == own {
            sys::close(number);
        }
    }
    for bit in numbers(place) {
        let command = u64::from(linux::F_DUPFD_CLOEXEC);
        let args = [sys::executable() as u64, command, first + bit, 0, 0, 0];
        // SAFETY: touches no memory.
        if let Ok(number) = unsafe { sys::call(linux::__NR_fcntl, args) }
            && number != first + bit
        {
            sys::close(number as i32);
        }
    }
}

/// Opens a device as descriptor `number`.
pub fn open(device: Device, flags: u32, number: u32) -> i64 {
    let (name, _) = named(device);
    let opened = sys::open(name.as_ptr() as u64, flags);
    let placed = opened.and_then(|fd| match fd as u32 == number {
        true => Ok(()),
        false => sys::replace(fd, number as i32, flags & linux::O_CLOEXEC),
    });
    placed.map_or_else(|Errno(error)| -i64::from(error), |()| 0)
}
