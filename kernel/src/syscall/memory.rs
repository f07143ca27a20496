// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory calls. None of them but a mapping of a file asks anything of Linux.

use alloc::sync::Arc;

use crtos_abi::{PAGE_SIZE, channel::USER_END};
use linux_raw_sys::general as linux;

use super::{Args, Errno, SysResult};
use crate::{
    mm::space::{AddressSpace, Kind, Map, MapError, Placement, Protection},
    user,
};

impl From<MapError> for Errno {
    fn from(error: MapError) -> Self {
        match error {
            MapError::NoMemory => Self::ENOMEM,
            MapError::Invalid => Self::EINVAL,
            MapError::Exists => Self::EEXIST,
            MapError::Denied => Self::EPERM,
            MapError::Access => Self::EACCES,
            MapError::Fault => Self::EFAULT,
        }
    }
}

fn space() -> Result<Arc<AddressSpace>, Errno> {
    Ok(user::space()?)
}

/// Rounds a length up to pages; ENOMEM when that is more than there are addresses.
fn pages(length: u64) -> Result<u64, Errno> {
    length
        .checked_next_multiple_of(PAGE_SIZE)
        .filter(|&length| length <= USER_END)
        .ok_or(Errno::ENOMEM)
}

/// Start and length of a range of pages that calls like mprotect(2) are given.
fn range(start: u64, length: u64) -> Result<(u64, u64), Errno> {
    if !start.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    let length = length.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::ENOMEM)?;
    start.checked_add(length).filter(|&end| end <= USER_END).ok_or(Errno::ENOMEM)?;
    Ok((start, length))
}

fn protection(bits: u64) -> Protection {
    Protection::from_bits_truncate(bits as u8 & 7)
}

/// mmap(address, length, protection, flags, fd, offset).
pub fn mmap([address, length, bits, flags, fd, offset]: Args) -> SysResult {
    let flags = flags as u32;
    let has = |flag: u32| flags & flag != 0;
    if offset % PAGE_SIZE != 0 || length == 0 {
        return Err(Errno::EINVAL);
    }
    let anonymous = has(linux::MAP_ANONYMOUS);
    if !anonymous {
        check_file(fd, flags)?;
    } else if !matches!(flags & linux::MAP_TYPE, linux::MAP_SHARED | linux::MAP_PRIVATE) {
        return Err(Errno::EINVAL);
    }
    if has(linux::MAP_HUGETLB) {
        return Err(Errno::ENOMEM);
    }
    let length = pages(length)?;
    let placement = if has(linux::MAP_FIXED_NOREPLACE) {
        Placement::NoReplace(address)
    } else if has(linux::MAP_FIXED) {
        Placement::Fixed(address)
    } else {
        Placement::Anywhere { hint: address & !(PAGE_SIZE - 1) }
    };
    let space = space()?;
    let wanted = protection(bits);
    let first = if anonymous { wanted } else { Protection::READ | Protection::WRITE };
    let populate = anonymous && has(linux::MAP_POPULATE | linux::MAP_LOCKED);
    let start =
        space.map(Map { placement, length, protection: first, kind: Kind::Anonymous, populate })?;
    if !anonymous {
        if let Err(error) = read_file(fd, start, length, offset) {
            space.unmap(start, length)?;
            return Err(error);
        }
        if wanted != first {
            space.protect(start, length, wanted)?;
        }
    }
    Ok(start)
}

/// Whether the file of `fd` can be mapped with these flags.
fn check_file(fd: u64, flags: u32) -> Result<(), Errno> {
    /// The access mode in a file's status flags, and what forbids to read.
    const ACCESS_MODE: u64 = 3;
    const WRITE_ONLY: u64 = 1;
    let status = super::linux(linux::__NR_fcntl, &[fd, linux::F_GETFL.into(), 0])?;
    match flags & linux::MAP_TYPE {
        linux::MAP_SHARED | linux::MAP_SHARED_VALIDATE => Err(Errno::ENODEV),
        linux::MAP_PRIVATE if status & ACCESS_MODE == WRITE_ONLY => Err(Errno::EACCES),
        linux::MAP_PRIVATE => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Reads `length` bytes at `offset` of a file to `start`; behind its end there are zeros.
fn read_file(fd: u64, start: u64, length: u64, offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < length {
        match super::linux(linux::__NR_pread64, &[fd, start + done, length - done, offset + done]) {
            Ok(0) => break,
            Ok(count) => done += count.min(length - done),
            Err(Errno::EINTR) => {}
            // What cannot be read at a position cannot be mapped: pipes, sockets, directories.
            Err(Errno::EFAULT) => return Err(Errno::ENOMEM),
            Err(_) => return Err(Errno::ENODEV),
        }
    }
    Ok(())
}

/// munmap(address, length).
pub fn munmap([address, length, ..]: Args) -> SysResult {
    let (start, length) = range(address, length).map_err(|_| Errno::EINVAL)?;
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    space()?.unmap(start, length)?;
    Ok(0)
}

/// mprotect(address, length, protection).
pub fn mprotect([address, length, bits, ..]: Args) -> SysResult {
    let known = linux::PROT_READ | linux::PROT_WRITE | linux::PROT_EXEC | linux::PROT_SEM;
    if bits & !u64::from(known) != 0 {
        return Err(Errno::EINVAL);
    }
    let (start, length) = range(address, length)?;
    if length > 0 {
        space()?.protect(start, length, protection(bits))?;
    }
    Ok(0)
}

/// pkey_mprotect(address, length, protection, key): there are no keys.
pub fn pkey_mprotect(args: Args) -> SysResult {
    if args[3] as i32 == -1 { mprotect(args) } else { Err(Errno::EINVAL) }
}

/// brk(address).
pub fn brk([address, ..]: Args) -> SysResult {
    Ok(space()?.brk(address))
}

/// mremap(address, old length, new length, flags, new address).
pub fn mremap([address, old, new, flags, to, _]: Args) -> SysResult {
    let flags = flags as u32;
    let may_move = flags & linux::MREMAP_MAYMOVE != 0;
    let fixed = flags & linux::MREMAP_FIXED != 0;
    let known = linux::MREMAP_MAYMOVE | linux::MREMAP_FIXED;
    if flags & !known != 0
        || fixed && (!may_move || to % PAGE_SIZE != 0)
        || address % PAGE_SIZE != 0
        || new == 0
    {
        return Err(Errno::EINVAL);
    }
    let (old, new) =
        (pages(old).map_err(|_| Errno::EINVAL)?, pages(new).map_err(|_| Errno::EINVAL)?);
    // An old length of 0 asks for a second mapping of shared memory, which private memory does not give.
    if old == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(space()?.remap(address, old, new, may_move, fixed.then_some(to))?)
}

/// msync(address, length, flags): nothing has to be written back.
pub fn msync([address, length, flags, ..]: Args) -> SysResult {
    let known = linux::MS_ASYNC | linux::MS_INVALIDATE | linux::MS_SYNC;
    let both = linux::MS_ASYNC | linux::MS_SYNC;
    if flags & !u64::from(known) != 0 || flags as u32 & both == both {
        return Err(Errno::EINVAL);
    }
    let (start, length) = range(address, length)?;
    if is_mapped(&*space()?, start, length) { Ok(0) } else { Err(Errno::ENOMEM) }
}

/// Whether all of a range is mapped.
fn is_mapped(space: &AddressSpace, start: u64, length: u64) -> bool {
    let (mut at, end) = (start, start + length);
    space.regions(&mut |first, last, _, _| {
        if (first..last).contains(&at) {
            at = last;
        }
    });
    at >= end
}

/// mincore(address, length, vector): memory is never paged out.
pub fn mincore([address, length, vector, ..]: Args) -> SysResult {
    let (start, length) = range(address, length)?;
    let space = space()?;
    if !is_mapped(&space, start, length) {
        return Err(Errno::ENOMEM);
    }
    for page in 0..length / PAGE_SIZE {
        space.write(vector.wrapping_add(page), &[1])?;
    }
    Ok(0)
}

/// madvise(address, length, advice).
pub fn madvise([address, length, advice, ..]: Args) -> SysResult {
    const LAST_ADVICE: u32 = 25;
    let (start, length) = range(address, length).map_err(|_| Errno::EINVAL)?;
    let space = space()?;
    match advice as u32 {
        linux::MADV_DONTNEED | linux::MADV_FREE => {
            if !is_mapped(&space, start, length) {
                return Err(Errno::ENOMEM);
            }
            if length > 0 {
                space.discard(start, length)?;
            }
            Ok(0)
        }
        linux::MADV_POPULATE_READ | linux::MADV_POPULATE_WRITE => {
            if length > 0 {
                space.populate(start, length)?;
            }
            Ok(0)
        }
        0..=LAST_ADVICE if !is_mapped(&space, start, length) => Err(Errno::ENOMEM),
        linux::MADV_REMOVE => Err(Errno::EINVAL),
        0..=LAST_ADVICE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// mlock(address, length).
pub fn mlock([address, length, ..]: Args) -> SysResult {
    let offset = address % PAGE_SIZE;
    let (start, length) = range(address - offset, length.saturating_add(offset))?;
    let space = space()?;
    if !is_mapped(&space, start, length) {
        return Err(Errno::ENOMEM);
    }
    if length > 0 {
        space.populate(start, length)?;
    }
    Ok(0)
}

/// mlock2(address, length, flags).
pub fn mlock2(args: Args) -> SysResult {
    if args[2] as u32 & !linux::MLOCK_ONFAULT != 0 { Err(Errno::EINVAL) } else { mlock(args) }
}

/// munlock(address, length): memory stays present.
pub fn munlock([address, length, ..]: Args) -> SysResult {
    let offset = address % PAGE_SIZE;
    let (start, length) = range(address - offset, length.saturating_add(offset))?;
    if is_mapped(&*space()?, start, length) { Ok(0) } else { Err(Errno::ENOMEM) }
}

/// mlockall(flags).
pub fn mlockall([flags, ..]: Args) -> SysResult {
    let flags = flags as u32;
    let known = linux::MCL_CURRENT | linux::MCL_FUTURE | linux::MCL_ONFAULT;
    if flags & !known != 0 || flags & (linux::MCL_CURRENT | linux::MCL_FUTURE) == 0 {
        return Err(Errno::EINVAL);
    }
    let space = space()?;
    if flags & linux::MCL_ONFAULT == 0 {
        if flags & linux::MCL_FUTURE != 0 {
            space.set_populate(true);
        }
        if flags & linux::MCL_CURRENT != 0 {
            space.populate_all()?;
        }
    }
    Ok(0)
}

/// munlockall().
pub fn munlockall() -> SysResult {
    space()?.set_populate(false);
    Ok(0)
}
