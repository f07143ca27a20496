// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a trace tells of the files that a program executes, so that who reads it can name functions
//! and find callers.

use alloc::format;
use core::ops::Range;

use crtos_abi::UserAddr;
use crtos_core::{
    mm::space::{AddressSpace, Protection},
    trace,
};
use linux_raw_sys::general as linux;

use super::Scratch;
use crate::{abi::Errno, remote};

/// Tells that `range` of the program of the calling thread is the file of descriptor `fd` of the
/// shadow, from `offset` on; nothing if nobody wants to know. Asks Linux for the path.
pub fn tell(
    space: &AddressSpace,
    fd: u64,
    range: Range<UserAddr>,
    protection: Protection,
    offset: u64,
) {
    if trace::wants_lapses() && protection.contains(Protection::EXECUTE) {
        // Without its name it is not told.
        let _ = with_path(space, fd, |path| {
            trace::mapping(range.start, range.end - range.start, offset, path);
        });
    }
}

fn with_path(space: &AddressSpace, fd: u64, then: impl FnOnce(&[u8])) -> Result<(), Errno> {
    const AT_FDCWD: u64 = -100_i64 as u64;
    const LINK: u64 = 64;
    const ROOM: u64 = 512;
    let scratch = Scratch::open(space, LINK + ROOM)?;
    space.write(scratch.start, format!("/proc/self/fd/{fd}\0").as_bytes())?;
    let room = scratch.start + LINK;
    let args = [AT_FDCWD, scratch.start.get(), room.get(), ROOM];
    let length = remote::linux(linux::__NR_readlinkat, &args)?.min(ROOM);
    let mut path = [0; ROOM as usize];
    let path = &mut path[..length as usize];
    space.read(room, path)?;
    then(path);
    Ok(())
}
