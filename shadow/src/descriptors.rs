// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of descriptors: the program has local files, which live in the real-time realm, at numbers that Linux must not give to others. Placeholders
//! lie there. One is a copy of the descriptor of the executable, close-on-exec; it is recognised by being that file.

use core::ffi::CStr;

use crtos_abi::channel::{
    DESCRIPTORS_AGREE, DESCRIPTORS_IN_USE, DESCRIPTORS_LIMITS, DESCRIPTORS_OPEN, DESCRIPTORS_STAT,
};
use linux_raw_sys::{errno, general as linux};

use crate::sys::{self, Errno};

/// Names of the devices that the real-time kernel serves itself, and their numbers in Linux.
const DEVICES: [(&CStr, u64); 3] =
    [(c"/dev/null", makedev(1, 3)), (c"/dev/zero", makedev(1, 5)), (c"/dev/full", makedev(1, 7))];

const fn makedev(major: u64, minor: u64) -> u64 {
    major << 8 | minor
}

/// Carries out what the real-time kernel wants done: `DESCRIPTORS_*`.
pub fn execute(args: &[u64; 6]) -> i64 {
    match args[0] {
        DESCRIPTORS_LIMITS => limits() as i64,
        DESCRIPTORS_IN_USE => in_use(args[1]) as i64,
        DESCRIPTORS_AGREE => {
            agree(args[1], args[2], args[3]);
            0
        }
        DESCRIPTORS_OPEN => open(args[1], args[2], args[3]),
        DESCRIPTORS_STAT => {
            let Some((name, _)) = DEVICES.get(args[1] as usize) else {
                return -i64::from(errno::EINVAL);
            };
            // SAFETY: Linux writes to the program's address, which it checks.
            unsafe { sys::raw(linux::__NR_stat, [name.as_ptr() as u64, args[2], 0, 0, 0, 0]) }
        }
        _ => -i64::from(errno::EINVAL),
    }
}

/// Stores the status of a descriptor at `address`; its flags.
pub fn status(fd: u64, address: u64) -> i64 {
    // SAFETY: Linux writes to the program's address, which it checks, and looks at flags.
    unsafe {
        match sys::raw(linux::__NR_fstat, [fd, address, 0, 0, 0, 0]) {
            0 => sys::raw(linux::__NR_fcntl, [fd, linux::F_GETFL.into(), 0, 0, 0, 0]),
            error => error,
        }
    }
}

fn limits() -> u64 {
    let device = |(index, (name, number)): (usize, &(&CStr, u64))| {
        u64::from(is_device(name, *number)) << index
    };
    let devices = DEVICES.iter().enumerate().map(device).sum::<u64>();
    sys::limit(linux::RLIMIT_NOFILE).min(u32::MAX.into()) | devices << 32
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
fn in_use(first: u64) -> u64 {
    let near = (0..32).filter(|bit| is_open(first + bit)).fold(0, |bits, bit| bits | 1 << bit);
    near | next_in_use(first + 32).map_or(0, |next| next << 32)
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

/// Puts placeholders at the numbers `first + n` with bit `n` in `place`, and takes away those in `remove`. Files of Linux's own stay.
fn agree(first: u64, place: u64, remove: u64) {
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
fn open(device: u64, flags: u64, number: u64) -> i64 {
    let opened = DEVICES
        .get(device as usize)
        .ok_or(Errno(errno::EINVAL))
        .and_then(|(name, _)| sys::open(name.as_ptr() as u64, flags as u32));
    let placed = opened.and_then(|fd| match fd as u64 == number {
        true => Ok(()),
        false => sys::replace(fd, number as i32, flags as u32 & linux::O_CLOEXEC),
    });
    placed.map_or_else(|Errno(error)| -i64::from(error), |()| 0)
}
