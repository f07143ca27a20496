// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of files that programs map: for `/proc/self/maps` ([`super::maps`]), and for a trace
//! of those that they execute, so that who reads it can name functions and find callers.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::ops::Range;

use crtos_abi::UserAddr;
use crtos_channel::{
    Operation,
    operation::{Identity, NAME_PART},
};
use crtos_core::{
    mm::{
        heap,
        held::{Held, Name},
        space::Protection,
    },
    sync::SpinLock,
    task, trace,
};

use crate::{
    abi::{Errno, linux_result},
    process::ThreadExt as _,
    remote,
};

/// What a process has called the last file that it has mapped: a library has several mappings.
pub struct Last(SpinLock<Option<(Identity, Arc<Name>)>>);

impl Last {
    /// None so far.
    pub const fn none() -> Self {
        Self(SpinLock::new(None))
    }

    fn of(&self, identity: Identity) -> Option<Arc<Name>> {
        let last = self.0.lock();
        last.as_ref().filter(|(known, _)| *known == identity).map(|(_, name)| name.clone())
    }

    fn put(&self, identity: Identity, name: Arc<Name>) {
        let before = self.0.lock().replace((identity, name));
        drop(before);
    }
}

/// `object` with the name that the calling program has for it, which is about to map it as the file
/// of descriptor `fd` of the shadow. Others see the same object by names of their own: this one may
/// be that of a directory which the program alone has there. May sleep, and asks Linux.
pub fn named((fd, identity): (u64, Identity), object: Held) -> Held {
    let current = task::current();
    let Some(user) = current.user() else { return object };
    let last = &user.process.last_name;
    let name = last.of(identity).or_else(|| {
        if !heap::has_reserve() {
            return None;
        }
        let [_, device, number] = identity;
        let name = Arc::new(Name::File { device: device as u32, number, path: path(fd).ok()? });
        last.put(identity, name.clone());
        Some(name)
    });
    object.named(name)
}

/// The program of the calling thread has mapped `object` in `range`, from `offset` on: tells that
/// to those who want to know.
pub fn tell(object: &Held, range: Range<UserAddr>, protection: Protection, offset: u64) {
    if trace::wants_lapses()
        && protection.contains(Protection::EXECUTE)
        && let Some(name) = object.name()
        && let Name::File { path, .. } = &**name
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
