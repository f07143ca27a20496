// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments of System V shared memory: shmat(2) and shmdt(2).
//!
//! Linux has the segments: their keys and rights, how often they are attached, and when one is
//! gone. The shadow attaches a segment whenever the program does, as a mirror; that is the
//! attachment which Linux counts. A fork of the shadow inherits it, execve and the end of the
//! shadow detach it. The pages are Linux's own ([`crate::memory::shared`]). Segments of huge pages,
//! which have none that can be shared, cannot be attached.

use alloc::vec::Vec;
use crtos_syscalls::structs::ShmStatus;
use zerocopy::IntoBytes;

use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_channel::{Operation, operation::FileStatus};
use linux_raw_sys::general as linux;

use crtos_core::mm::{
    heap,
    held::Held,
    space::{AddressSpace, Backing, Map, MapError, Placement, Protection, Target},
};

use crate::{
    abi::{Args, Errno, SysResult, linux_result},
    futex::across,
    memory::{Scratch, contents, mappings, shared, user},
    process::{lapse, spares},
    remote,
};

/// Flags of shmat(2).
const SHM_RDONLY: u32 = 0o10000;
const SHM_RND: u32 = 0o20000;
const SHM_REMAP: u32 = 0o40000;
const SHM_EXEC: u32 = 0o100000;
/// Command of shmctl(2).
const IPC_STAT: u64 = 2;

/// The size in bytes that shmctl(2) tells.
fn size(space: &AddressSpace, scratch: &Scratch, id: u64) -> Result<u64, Errno> {
    remote::linux(linux::__NR_shmctl, &[id, IPC_STAT, scratch.start.get()])?;
    let mut status = ShmStatus::default();
    space.read(scratch.start, status.as_mut_bytes())?;
    Ok(status.size)
}

/// Where shmat(2) is asked to attach.
fn placement(address: UserAddr, flags: u32) -> Result<Placement, Errno> {
    let replaces = flags & SHM_REMAP != 0;
    let rounded = address.page_down();
    match address {
        _ if replaces && rounded.is_null() => Err(Errno::EINVAL),
        UserAddr::NULL => Ok(Placement::Anywhere { hint: UserAddr::NULL }),
        _ if rounded != address && flags & SHM_RND == 0 => Err(Errno::EINVAL),
        _ if replaces => Ok(Placement::Fixed(rounded)),
        _ => Ok(Placement::NoReplace(rounded)),
    }
}

/// shmat(id, address, flags).
pub fn shmat([id, address, flags, ..]: Args) -> SysResult {
    lapse::memory();
    let flags = flags as u32;
    let placement = placement(UserAddr::new(address), flags)?;
    let space = user::space()?;
    let size = size(&space, &Scratch::open(&space, PAGE_SIZE)?, id)?;
    let length = size.next_multiple_of(PAGE_SIZE);
    let mirror = space.reserve_mirror(length)?;
    // Linux says whether it may be attached like that.
    let rights = flags & (SHM_RDONLY | SHM_EXEC);
    let attached =
        remote::linux(linux::__NR_shmat, &[id, mirror.get(), (rights | SHM_REMAP).into()]);
    if let Err(error) = attached {
        space.forget_mirror(mirror);
        return Err(error);
    }
    let result = (|| {
        // Linux's kernel says which segment that is, not the shadow: others attach it as well.
        let (rights, words) = remote::request_words(Operation::Segment { mirror })?;
        let rights = linux_result(rights)?;
        let status = FileStatus::from_words(&words);
        if !status.is_sharable {
            return Err(Errno::ENOMEM);
        }
        spares::reserve_spare()?;
        across::prepare();
        if let Placement::Fixed(start) = placement {
            mappings::write_back(&space, start, length);
        }
        let may_write = flags & SHM_RDONLY == 0 && rights == 1;
        let object = shared::object(status.identity, may_write)?;
        let mut protection = Protection::READ;
        protection.set(Protection::WRITE, may_write);
        protection.set(Protection::EXECUTE, flags & SHM_EXEC != 0);
        let backing = Backing::shared(object.clone().into(), 0, may_write);
        let map = Map::private(placement, length, protection);
        let target = Target::of_linux(object, 0, status.identity);
        space.set_mirror(mirror, Target { attachment: true, ..target });
        let start =
            space.map(Map { backing: Some(backing), ..map }).map_err(|error| match error {
                MapError::Exists => Errno::EINVAL,
                other => other.into(),
            })?;
        space.use_mirror(mirror);
        Ok(start.get())
    })();
    if result.is_err() {
        contents::unmap_mirror(&space, mirror, length);
    }
    mappings::tidy(&space);
    result
}

/// shmdt(address): what is left of the attachment that began there.
pub fn shmdt([address, ..]: Args) -> SysResult {
    lapse::memory();
    let address = UserAddr::new(address);
    let space = user::space()?;
    let mut parts: Vec<(Held, UserAddr, u64)> = Vec::new();
    let mut is_full = false;
    space.regions(&mut |region| {
        let Some((object, offset)) = region.object_at(region.start) else { return };
        if region.start.checked_sub(offset) == Some(address)
            && parts.first().is_none_or(|(first, ..)| first == object)
            && space.is_attached(object)
        {
            let bytes = (parts.len() + 1) * size_of::<(Held, UserAddr, u64)>();
            is_full |= !heap::lends(bytes) || parts.try_reserve(1).is_err();
            if !is_full {
                parts.push((object.clone(), region.start, region.length()));
            }
        }
    });
    if is_full {
        return Err(Errno::ENOMEM);
    }
    if parts.is_empty() {
        return Err(Errno::EINVAL);
    }
    for (_, start, length) in parts {
        space.unmap(start, length)?;
    }
    mappings::tidy(&space);
    Ok(0)
}
