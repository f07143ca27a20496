// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the program finds in the directories of its descriptors below `/proc`: without the shadow's
//! own.

use crtos_abi::UserAddr;
use linux_raw_sys::general as linux;

use crate::{
    call,
    decimal::Decimal,
    dirent::{self, Entry},
    links, own,
    program::Memory,
    sys::{Errno, file, process},
};

/// Room for an entry of such a directory. Its names are numbers, `.` and `..`.
const ENTRY: usize = 64;

/// Makes getdents64(2) for the program.
///
/// # Safety
/// `args` are arguments of the program: see [`crate::program`].
pub unsafe fn getdents64(args: &[u64; 6]) -> Result<u64, Errno> {
    let [directory, buffer, ..] = *args;
    loop {
        // SAFETY: the arguments are the program's.
        let length = unsafe { call::call(linux::__NR_getdents64, args) }?;
        if length == 0 || !is_of_descriptors(directory as i32) {
            return Ok(length);
        }
        match filter(UserAddr::new(buffer), length) {
            // Nothing is left, so what comes next?
            Ok(0) => {}
            Ok(rest) => return Ok(rest),
            // They cannot be looked at.
            Err(_) => return Ok(length),
        }
    }
}

/// Tells whether a directory is `/proc/PID/…/fd` or `fdinfo` of this process.
fn is_of_descriptors(directory: i32) -> bool {
    if file::file_system(directory) != Ok(linux::PROC_SUPER_MAGIC.into()) {
        return false;
    }
    let mut room = [0; ENTRY];
    let path = links::path_of(directory, &mut room);
    let own = Decimal::new(process::pid().get());
    let rest = path.strip_prefix(b"/proc/").and_then(|path| path.strip_prefix(own.digits()));
    rest.is_some_and(|rest| {
        rest.starts_with(b"/") && (rest.ends_with(b"/fd") || rest.ends_with(b"/fdinfo"))
    })
}

/// Takes the shadow's own out of `length` bytes of entries at `buffer`. Returns how many bytes are
/// left.
fn filter(buffer: UserAddr, length: u64) -> Result<u64, Errno> {
    let own = own::both().map(|fd| Decimal::new(fd as u32));
    let (mut from, mut to) = (0, 0);
    while from < length {
        let mut room = [0; ENTRY];
        buffer.wrapping_add(from).read(&mut room[..dirent::HEAD])?;
        let size = dirent::size(&room).ok_or(Errno::EIO)?;
        let bytes = room.get_mut(..size).ok_or(Errno::EIO)?;
        buffer.wrapping_add(from).read(bytes)?;
        let entry = Entry::parse(bytes).filter(|entry| entry.size == size).ok_or(Errno::EIO)?;
        if !own.iter().any(|own| own.digits() == entry.name) {
            if to < from {
                buffer.wrapping_add(to).write(bytes)?;
            }
            to += size as u64;
        }
        from += size as u64;
    }
    Ok(to)
}
