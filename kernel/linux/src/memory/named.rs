// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of files that programs map: for `/proc/self/maps` ([`super::maps`]), and for a trace
//! of those that they execute, so that who reads it can name functions and find callers.

use alloc::{boxed::Box, vec::Vec};
use core::ops::Range;

use crtos_abi::UserAddr;
use crtos_channel::{
    Operation,
    operation::{Identity, NAME_PART},
};
use crtos_core::{
    mm::{
        object::{Name, Object},
        space::Protection,
    },
    trace,
};

use crate::{
    abi::{Errno, linux_result},
    remote,
};

/// After `range` of the program of the calling thread has become the file of descriptor `fd` of the
/// shadow, from `offset` of `object` on: the object gets its name, and who wants to know is told.
/// Asks Linux for the path of one that has none.
pub fn note(
    (fd, identity): (u64, Identity),
    object: &Object,
    range: Range<UserAddr>,
    protection: Protection,
    offset: u64,
) {
    let [_, device, number] = identity;
    if object.name().is_none()
        && let Ok(path) = path(fd)
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

/// What Linux calls the file of a descriptor of the shadow.
fn path(fd: u64) -> Result<Box<[u8]>, Errno> {
    /// Most bytes of it that are kept.
    const MOST: usize = 512;
    let mut path = Vec::new();
    path.try_reserve_exact(MOST).map_err(|_| Errno::ENOMEM)?;
    loop {
        let part = Operation::FileName { fd: fd as i32, from: path.len() as u32 };
        let (result, words) = remote::request_words(part)?;
        let length = linux_result(result)?.min(MOST as u64) as usize;
        let words = words.map(u64::to_le_bytes);
        let rest = length.saturating_sub(path.len()).min(NAME_PART);
        path.extend_from_slice(&words.as_flattened()[..rest]);
        if path.len() >= length {
            return Ok(path.into());
        }
    }
}
