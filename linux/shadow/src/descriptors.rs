// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of descriptors. The program has local files, which live in the real-time realm, at
//! numbers that Linux must not give to others. Placeholders lie there: copies of the descriptor of
//! the executable, close-on-exec. A placeholder is recognised by being that file.

use core::ffi::CStr;

use crtos_abi::UserAddr;
use crtos_channel::operation::{DescriptorLimits, DescriptorsInUse, Device};
use linux_raw_sys::general as linux;

use crate::{
    dirent::Entry,
    own,
    sys::{
        Errno,
        file::{self, Owned},
        process,
    },
};

/// Returns the name of a device, and its number in Linux.
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

/// Stores the status of a device at an address of the program.
pub fn device_status(device: Device, to: UserAddr) -> Result<(), Errno> {
    let (name, _) = named(device);
    file::store_status_of(name, to)
}

/// Returns the limit of descriptors, and whether the devices are where they should be.
pub fn limits() -> DescriptorLimits {
    let most = process::limits(linux::RLIMIT_NOFILE).rlim_cur;
    DescriptorLimits {
        most: u32::try_from(most).unwrap_or(u32::MAX),
        devices: Device::ALL.into_iter().all(|device| {
            let (name, number) = named(device);
            is_device(name, number)
        }),
    }
}

/// Tells whether `name` is the character device `number` that everybody may use.
fn is_device(name: &CStr, number: u64) -> bool {
    const ALL_MAY_USE: u32 = 0o666;
    file::status_of_link(name).is_ok_and(|status| {
        status.device_of_file == number
            && status.mode & (linux::S_IFMT | ALL_MAY_USE) == linux::S_IFCHR | ALL_MAY_USE
    })
}

/// Returns which of the 32 numbers from `first` on are in use, and which is the next one.
pub fn in_use(first: u32) -> DescriptorsInUse {
    let is_open = |bit: &u32| file::is_open(first.wrapping_add(*bit) as i32);
    let near = (0..32).filter(is_open).fold(0, |bits, bit| bits | 1 << bit);
    DescriptorsInUse { near, next: next_in_use(first.saturating_add(32)).unwrap_or(0) }
}

/// How many numbers are looked at. Higher ones are of no interest.
const MOST: u32 = 4096;

/// Returns the first number in use from `from` on, below [`MOST`].
fn next_in_use(from: u32) -> Option<u32> {
    let flags = linux::O_RDONLY | linux::O_DIRECTORY | linux::O_CLOEXEC;
    let Ok(folder) = file::open(c"/proc/self/fd", flags).map(Owned::new) else {
        // Without /proc, one by one.
        return (from..MOST).find(|&number| file::is_open(number as i32));
    };
    let mut found: Option<u32> = None;
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = file::read_directory(folder.fd(), &mut buffer) {
        let mut rest = buffer.get(..length).unwrap_or_default();
        while let Some(entry) = Entry::parse(rest) {
            // The names `.` and `..` are no numbers.
            let number = core::str::from_utf8(entry.name).ok().and_then(|name| name.parse().ok());
            if let Some(number) = number
                && number >= from
                && number != folder.fd() as u32
                && found.is_none_or(|found| number < found)
            {
                found = Some(number);
            }
            rest = &rest[entry.size..];
        }
    }
    found.filter(|&found| found < MOST)
}

/// Puts placeholders at the numbers `first + n` with bit `n` in `place`, and takes away those in
/// `remove`. Files of Linux's own stay.
pub fn agree(first: u32, place: u64, remove: u64) {
    let numbers = |bits: u64| {
        let set = (0..64).filter(move |bit| bits >> bit & 1 == 1);
        set.map(move |bit| first.wrapping_add(bit) as i32)
    };
    let executable = own::executable();
    for number in numbers(remove) {
        if file::are_same(number, executable) {
            file::close(number);
        }
    }
    for number in numbers(place) {
        if let Ok(placed) = file::copy_from(executable, number as u64)
            && placed != number
        {
            file::close(placed);
        }
    }
}

/// Opens a device as descriptor `number`, with `flags` of open(2).
pub fn open(device: Device, flags: u32, number: u32) -> Result<(), Errno> {
    let (name, _) = named(device);
    let fd = file::open(name, flags)?;
    match fd as u32 == number {
        true => Ok(()),
        false => file::replace(fd, number as i32, flags & linux::O_CLOEXEC),
    }
}
