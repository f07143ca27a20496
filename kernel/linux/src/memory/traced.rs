// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of files that programs map: for `/proc/self/maps` ([`super::maps`]), and for a trace
//! of those that they execute, so that who reads it can name functions and find callers.

use alloc::{boxed::Box, format};
use core::ops::Range;

use crtos_abi::UserAddr;
use crtos_channel::operation::Identity;
use crtos_core::{
    mm::{
        object::{Name, Object},
        space::{AddressSpace, Protection},
    },
    trace,
};
use linux_raw_sys::general as linux;

use super::Scratch;
use crate::{abi::Errno, remote};

/// After `range` of the program of the calling thread has become the file of descriptor `fd` of the
/// shadow, from `offset` of `object` on: the object gets its name, and who wants to know is told.
/// Asks Linux for the path of one that has none.
pub fn tell(
    space: &AddressSpace,
    (fd, identity): (u64, Identity),
    object: &Object,
    range: Range<UserAddr>,
    protection: Protection,
    offset: u64,
) {
    let [_, device, number] = identity;
    if object.name().is_none()
        && let Ok(path) = path(space, fd)
    {
        object.set_name(Name::File { device: device as u32, number, path });
    }
    if trace::wants_lapses()
        && protection.contains(Protection::EXECUTE)
        && let Some(name) = object.name()
        && let Name::File { path, .. } = &*name
    {
        trace::mapping(range.start, range.end - range.start, offset, path);
    }
}

fn path(space: &AddressSpace, fd: u64) -> Result<Box<[u8]>, Errno> {
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
    Ok((&*path).into())
}
