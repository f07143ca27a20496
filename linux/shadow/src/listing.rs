// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the program finds in the directories of its descriptors below `/proc`: those of the shadow
//! are not there.

use linux_raw_sys::general as linux;

use crate::{process, signals, sys};

/// `statfs::f_type` of proc.
const PROC_SUPER_MAGIC: i64 = 0x9fa0;

/// Where the length and the name lie in a `struct linux_dirent64`.
const LENGTH: usize = 16;
const NAME: usize = 19;

/// Room for an entry of such a directory. Its names are numbers, `.` and `..`.
const ENTRY: usize = 64;

/// getdents64(2) of descriptor `args[0]`.
pub fn getdents64(args: &[u64; 6]) -> i64 {
    let [directory, buffer, ..] = *args;
    loop {
        let length = signals::call(linux::__NR_getdents64, args);
        if length <= 0 || !is_of_descriptors(directory as i32) {
            return length;
        }
        match filter(buffer, length as u64) {
            // Nothing is left: what comes next?
            Some(0) => {}
            Some(rest) => return rest as i64,
            None => return length,
        }
    }
}

/// Whether it is one of the directories `/proc/PID/…/fd` and `fdinfo` of this process.
fn is_of_descriptors(directory: i32) -> bool {
    if sys::file_system(directory) != PROC_SUPER_MAGIC {
        return false;
    }
    let mut room = [0; ENTRY];
    let path = process::path_of(directory, &mut room);
    let own = process::number(sys::pid());
    let rest = path.strip_prefix(b"/proc/").and_then(|path| path.strip_prefix(own.digits()));
    rest.is_some_and(|rest| {
        rest.starts_with(b"/") && (rest.ends_with(b"/fd") || rest.ends_with(b"/fdinfo"))
    })
}

/// Takes the shadow's own out of `length` bytes of entries at `buffer`, an address of the program.
/// Returns how many are left; `None` if they cannot be looked at.
fn filter(buffer: u64, length: u64) -> Option<u64> {
    let own = sys::own().map(|fd| process::number(fd as u32));
    let (mut from, mut to) = (0, 0);
    while from < length {
        let mut entry = [0; ENTRY];
        let head = &mut entry[..NAME + 1];
        sys::copy_in(buffer + from, head).ok()?;
        let size = usize::from(u16::from_le_bytes([entry[LENGTH], entry[LENGTH + 1]]));
        let entry = entry.get_mut(..size).filter(|entry| entry.len() > NAME)?;
        sys::copy_in(buffer + from, entry).ok()?;
        let name = entry[NAME..].split(|&byte| byte == 0).next()?;
        if !own.iter().any(|own| own.digits() == name) {
            if to < from {
                sys::copy_out(entry, buffer + to).ok()?;
            }
            to += size as u64;
        }
        from += size as u64;
    }
    Some(to)
}
