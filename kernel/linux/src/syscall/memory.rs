// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory calls. None of them but a mapping of a file asks anything of Linux.

use alloc::sync::Arc;
use core::{ops::Range, sync::atomic::Ordering};

use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_channel::Operation;
use crtos_syscalls::Row;
use linux_raw_sys::general as linux;

use crtos_core::devices::links::Link;
use crtos_core::mm::{
    held::Held,
    object::Object,
    space::{AddressSpace, Backing, Lock, Map, MapError, Move, Placement, Protection, Region},
};

use super::descriptors::remote;
use crate::{
    abi::{Args, Errno, SysResult},
    devices,
    files::{self, Description, Object as File, device::Device},
    memory::{mappings, shared, user},
    process::{lapse, limits},
    remote,
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
            MapError::Again => Self::EAGAIN,
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
        .filter(|&length| length <= UserAddr::END.get())
        .ok_or(Errno::ENOMEM)
}

/// Start and length of a range of pages that calls like mprotect(2) are given.
fn range(start: UserAddr, length: u64) -> Result<(UserAddr, u64), Errno> {
    if !start.is_page_aligned() {
        return Err(Errno::EINVAL);
    }
    let length = length.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::ENOMEM)?;
    start.checked_add(length).filter(|&end| end <= UserAddr::END).ok_or(Errno::ENOMEM)?;
    Ok((start, length))
}

/// The pages in which a range of bytes lies, as mlock(2) is given. A length that is too large wraps
/// around, as under Linux.
fn pages_around(address: UserAddr, length: u64) -> Result<Range<UserAddr>, Errno> {
    let start = address.page_down();
    let last = length.wrapping_add(address.page_offset()).wrapping_add(PAGE_SIZE - 1);
    let end = start.checked_add(last & !(PAGE_SIZE - 1)).ok_or(Errno::EINVAL)?;
    Ok(start..end)
}

fn protection(bits: u64) -> Protection {
    Protection::from_bits_truncate(bits as u8 & 7)
}

/// Flags of mmap(2) that MAP_SHARED_VALIDATE knows for files without any of their own: all that are
/// older than itself. Those of a size count with MAP_HUGETLB.
const VALID: u32 = linux::MAP_TYPE
    | linux::MAP_FIXED
    | linux::MAP_ANONYMOUS
    | linux::MAP_DENYWRITE
    | linux::MAP_EXECUTABLE
    | linux::MAP_UNINITIALIZED
    | linux::MAP_GROWSDOWN
    | linux::MAP_LOCKED
    | linux::MAP_NORESERVE
    | linux::MAP_POPULATE
    | linux::MAP_NONBLOCK
    | linux::MAP_STACK
    | linux::MAP_HUGETLB
    | linux::MAP_32BIT
    | linux::MAP_ABOVE4G
    | linux::MAP_HUGE_2MB
    | linux::MAP_HUGE_1GB;

/// mmap(address, length, protection, flags, fd, offset).
pub fn mmap([address, length, bits, flags, fd, offset]: Args) -> SysResult {
    lapse::memory();
    let flags = flags as u32;
    let has = |flag: u32| flags & flag != 0;
    if offset % PAGE_SIZE != 0 {
        return Err(Errno::EINVAL);
    }
    let kind = flags & linux::MAP_TYPE;
    let what = match has(linux::MAP_ANONYMOUS) {
        true => What::Memory { may_write: true },
        false => what(fd, flags, bits)?,
    };
    if length == 0 {
        if matches!(what, What::File) {
            mappings::is_open(fd)?;
        }
        return Err(Errno::EINVAL);
    }
    let address = UserAddr::new(address);
    if let Some(error) = misplaced(address, length, flags)? {
        // Before what the file has to say, but that there is none.
        if matches!(what, What::File) {
            mappings::is_open(fd)?;
        }
        return Err(error);
    }
    let anonymous = matches!(what, What::Memory { .. });
    let kind = match kind {
        linux::MAP_SHARED_VALIDATE if has(linux::MAP_ANONYMOUS) => return Err(Errno::EINVAL),
        // MAP_SYNC is among them: what is mapped is memory.
        linux::MAP_SHARED_VALIDATE if flags & !VALID != 0 => return Err(Errno::EOPNOTSUPP),
        linux::MAP_SHARED_VALIDATE => linux::MAP_SHARED,
        kind => kind,
    };
    if anonymous && !matches!(kind, linux::MAP_SHARED | linux::MAP_PRIVATE) {
        return Err(Errno::EINVAL);
    }
    // Memory that is private and of no file grows down; of a file of Linux, Linux says that it does
    // not.
    let grows = has(linux::MAP_GROWSDOWN);
    let may_grow = has(linux::MAP_ANONYMOUS) && kind == linux::MAP_PRIVATE;
    if grows && !may_grow && !matches!(what, What::File) {
        return Err(Errno::EINVAL);
    }
    if anonymous && has(linux::MAP_HUGETLB) {
        return Err(Errno::ENOMEM);
    }
    let length = pages(length)?;
    if !has(linux::MAP_ANONYMOUS) && !matches!(what, What::File) {
        offset.checked_add(length).ok_or(Errno::EOVERFLOW)?;
    }
    let placement = if has(linux::MAP_FIXED_NOREPLACE) {
        Placement::NoReplace(address)
    } else if has(linux::MAP_FIXED) {
        Placement::Fixed(address)
    } else if has(linux::MAP_32BIT) {
        Placement::Low { hint: address.page_down() }
    } else {
        Placement::Anywhere { hint: address.page_down() }
    };
    let space = space()?;
    let locked = has(linux::MAP_LOCKED);
    if locked {
        lock_limit(&space)?;
    }
    let populate = locked || has(linux::MAP_POPULATE);
    let map = Map { populate, locked, ..Map::private(placement, length, protection(bits)) };
    let concerned = has(linux::MAP_FIXED) && mappings::concern(&space, address, length);
    let locked_before = space.mapped().locked;
    let start = if let What::Device(file) = what {
        let backing = registers(&file, &map, kind, offset)?;
        space.map(Map { backing: Some(backing), ..map })?
    } else if !anonymous {
        let huge = has(linux::MAP_HUGETLB);
        let request = mappings::Request { map, kind, huge, grows, fd, offset };
        match devices::registers(&space, &request)? {
            Some(backing) => space.map(Map { backing: Some(backing), ..request.map })?,
            None => mappings::map(&space, request)?,
        }
    } else if let (linux::MAP_SHARED, What::Memory { may_write }) = (kind, what) {
        // It has as many bytes as are mapped, also where /dev/zero is mapped from an offset on.
        let offset = if has(linux::MAP_ANONYMOUS) { 0 } else { offset };
        let object = Held::new(Object::of_no_file(length)?, space.quota())?;
        space.map(Map { backing: Some(Backing::shared(object, offset, may_write)), ..map })?
    } else {
        space.map(map)?
    };
    if concerned {
        mappings::tidy(&space);
    }
    if locked {
        tell_locked(&space, locked_before);
    }
    Ok(start.get())
}

/// Why nothing can be mapped at a fixed address, whatever it is.
fn misplaced(address: UserAddr, length: u64, flags: u32) -> Result<Option<Errno>, Errno> {
    let keeps = flags & linux::MAP_FIXED_NOREPLACE != 0;
    if !keeps && flags & linux::MAP_FIXED == 0 {
        return Ok(None);
    }
    if !address.is_page_aligned() {
        return Ok(Some(Errno::EINVAL));
    }
    let end = address.checked_add(pages(length)?).filter(|&end| end <= UserAddr::END);
    Ok(match end {
        None => Some(Errno::ENOMEM),
        Some(end) => (keeps && space()?.is_taken(&(address..end))).then_some(Errno::EEXIST),
    })
}

/// What is mapped.
enum What {
    /// Memory that is zero at first. Without `may_write` who shares it may never write to it.
    Memory { may_write: bool },
    /// A file of Linux.
    File,
    /// A device of the realm.
    Device(Arc<Description>),
}

/// What `fd` is: the local /dev/zero is memory. Other local files cannot be mapped, but for devices
/// that say otherwise.
fn what(fd: u64, flags: u32, bits: u64) -> Result<What, Errno> {
    let files = files::table()?;
    if !files.is_hidden(fd) {
        return Ok(What::File);
    }
    let file = files.find(fd).ok_or(Errno::EBADF)?;
    let shared = flags & linux::MAP_TYPE != linux::MAP_PRIVATE;
    match &file.object {
        _ if !file.reads => Err(Errno::EACCES),
        _ if shared && bits & u64::from(linux::PROT_WRITE) != 0 && !file.writes => {
            Err(Errno::EACCES)
        }
        File::Device(Device::Zero) => Ok(What::Memory { may_write: file.writes }),
        File::Character(_) | File::Socket(_) => Ok(What::Device(file)),
        _ => Err(Errno::ENODEV),
    }
}

/// Memory of a device, which is the same for everybody: a private mapping of it is not written to.
fn registers(file: &Description, map: &Map, kind: u32, offset: u64) -> Result<Backing, Errno> {
    if let File::Character(special) = &file.object
        && let Some((link, object)) = special.file.link()
    {
        return section(file, map, kind, (link, object), offset);
    }
    let is_shared = match kind {
        linux::MAP_SHARED | linux::MAP_SHARED_VALIDATE => true,
        linux::MAP_PRIVATE if !map.protection.contains(Protection::WRITE) => false,
        _ => return Err(Errno::EINVAL),
    };
    let object = match &file.object {
        File::Character(special) => special.file.map(offset, map.length)?,
        File::Socket(socket) => socket.map(offset, map.length)?,
        _ => return Err(Errno::ENODEV),
    };
    Ok(Backing::shared(object.into(), 0, is_shared && file.writes))
}

/// Sections of a link, which programs write where the realm may.
fn section(
    file: &Description,
    map: &Map,
    kind: u32,
    (link, object): (&Link, &Arc<Object>),
    offset: u64,
) -> Result<Backing, Errno> {
    if !matches!(kind, linux::MAP_SHARED | linux::MAP_SHARED_VALIDATE) {
        return Err(Errno::EINVAL);
    }
    if map.protection.contains(Protection::EXECUTE) {
        return Err(Errno::EACCES);
    }
    let bytes = link.layout().bytes(offset, map.length).ok_or(Errno::ENXIO)?;
    let may_write = link.layout().may_write(link.own(), &bytes);
    if map.protection.contains(Protection::WRITE) && !may_write {
        return Err(Errno::EACCES);
    }
    let backing = Backing::shared(object.clone().into(), offset, may_write && file.writes);
    Ok(Backing { may_execute: false, ..backing })
}

/// munmap(address, length).
pub fn munmap([address, length, ..]: Args) -> SysResult {
    lapse::memory();
    let (start, length) = range(UserAddr::new(address), length).map_err(|_| Errno::EINVAL)?;
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    let space = space()?;
    mappings::write_back(&space, start, length);
    let concerned = mappings::concern(&space, start, length);
    space.unmap(start, length)?;
    if concerned {
        mappings::tidy(&space);
    }
    Ok(0)
}

/// ftruncate(fd, length): shared mappings end where the file ends.
pub fn ftruncate(row: &Row, args: Args) -> SysResult {
    let result = remote(row, args)?;
    mappings::resized(args[0], None);
    Ok(result)
}

/// fallocate(fd, mode, offset, length): shared mappings show which part was cleared, and end where
/// the file ends.
pub fn fallocate(row: &Row, args: Args) -> SysResult {
    let result = remote(row, args)?;
    let [fd, mode, offset, length, ..] = args;
    let clears = linux::FALLOC_FL_PUNCH_HOLE | linux::FALLOC_FL_ZERO_RANGE;
    let cleared = mode as u32 & clears != 0;
    mappings::resized(fd, cleared.then(|| offset..offset.saturating_add(length)));
    Ok(result)
}

/// mprotect(address, length, protection).
pub fn mprotect([address, length, bits, ..]: Args) -> SysResult {
    lapse::memory();
    let known = linux::PROT_READ | linux::PROT_WRITE | linux::PROT_EXEC | linux::PROT_SEM;
    if bits & !u64::from(known) != 0 {
        return Err(Errno::EINVAL);
    }
    let (start, length) = range(UserAddr::new(address), length)?;
    let (space, end) = (space()?, start + length);
    // Up to a hole, as under Linux.
    let hole = space.mapped_until(&(start..end));
    if hole > start {
        space.protect(start, hole - start, protection(bits))?;
    }
    if hole < end { Err(Errno::ENOMEM) } else { Ok(0) }
}

/// pkey_mprotect(address, length, protection, key): there are no keys.
pub fn pkey_mprotect(args: Args) -> SysResult {
    if args[3] as i32 == -1 { mprotect(args) } else { Err(Errno::EINVAL) }
}

/// brk(address).
pub fn brk([address, ..]: Args) -> SysResult {
    lapse::memory();
    Ok(space()?.brk(UserAddr::new(address)).get())
}

/// mremap(address, old length, new length, flags, new address).
pub fn mremap([address, old, new, flags, to, _]: Args) -> SysResult {
    lapse::memory();
    let [address, to] = [address, to].map(UserAddr::new);
    let flags = flags as u32;
    let may_move = flags & linux::MREMAP_MAYMOVE != 0;
    let fixed = flags & linux::MREMAP_FIXED != 0;
    let stays = flags & linux::MREMAP_DONTUNMAP != 0;
    let known = linux::MREMAP_MAYMOVE | linux::MREMAP_FIXED | linux::MREMAP_DONTUNMAP;
    if flags & !known != 0
        || fixed && !may_move
        || stays && (!may_move || old != new)
        || (fixed || stays) && !to.is_page_aligned()
        || !address.is_page_aligned()
        || new == 0
    {
        return Err(Errno::EINVAL);
    }
    let (old, new) =
        (pages(old).map_err(|_| Errno::EINVAL)?, pages(new).map_err(|_| Errno::EINVAL)?);
    let space = space()?;
    // Before what lies behind the first page has to say.
    let overlaps = address.saturating_add(old) > to && to.saturating_add(new) > address;
    let is_beyond = to.saturating_add(new) > UserAddr::END;
    let begins = space.is_taken(&(address..address.saturating_add(PAGE_SIZE)));
    if (fixed || stays) && (overlaps || is_beyond) && begins {
        return Err(Errno::EINVAL);
    }
    let concerned =
        mappings::concern(&space, address, old) || fixed && mappings::concern(&space, to, new);
    let how = match may_move {
        _ if stays => Move::Pages { to, replaces: fixed },
        _ if fixed => Move::To(to),
        true => Move::Anywhere,
        false => Move::No,
    };
    let mirror = if new > old { mappings::show(&space, address, new)? } else { None };
    // An old length of 0 asks for a second mapping of shared memory.
    let moved = match old {
        0 => space.map_again(address, new, how),
        _ => space.remap(address, old, new, how),
    };
    if moved.is_err_and(|error| error != MapError::Denied) && fixed && begins {
        // Linux makes room before it looks whether what begins there can be moved as a whole.
        space.unmap(to, new)?;
    }
    if let Some(mirror) = mirror {
        space.use_mirror(mirror);
    }
    if concerned || mirror.is_some() {
        mappings::tidy(&space);
    }
    Ok(moved?.get())
}

/// msync(address, length, flags).
pub fn msync([address, length, flags, ..]: Args) -> SysResult {
    let known = linux::MS_ASYNC | linux::MS_INVALIDATE | linux::MS_SYNC;
    let both = linux::MS_ASYNC | linux::MS_SYNC;
    if flags & !u64::from(known) != 0 || flags as u32 & both == both {
        return Err(Errno::EINVAL);
    }
    let (start, length) = range(UserAddr::new(address), length)?;
    let space = space()?;
    if flags as u32 & linux::MS_INVALIDATE != 0 && space.is_locked(start, length) {
        return Err(Errno::EBUSY);
    }
    mappings::write_back(&space, start, length);
    if space.is_mapped(start, length) { Ok(0) } else { Err(Errno::ENOMEM) }
}

/// mincore(address, length, vector): memory is never paged out. Linux tells which pages its files
/// have.
pub fn mincore([address, length, vector, ..]: Args) -> SysResult {
    let (start, length) = range(UserAddr::new(address), length)?;
    let space = space()?;
    if !space.is_mapped(start, length) {
        return Err(Errno::ENOMEM);
    }
    let vector = UserAddr::new(vector);
    let (mut at, end) = (start, start + length);
    while at < end {
        let told = vector.wrapping_add((at - start) / PAGE_SIZE);
        if let Some((mirror, part)) = shared::mirror(&space, at, end) {
            remote::linux(linux::__NR_mincore, &[mirror.get(), part, told.get()])?;
            at += part;
            continue;
        }
        space.write(told, &[space.is_resident(at).into()])?;
        at += PAGE_SIZE;
    }
    Ok(0)
}

/// mbind(address, length, mode, nodes, count, flags). Linux tells whether there can be such a
/// policy; pages of the realm stay on the node where Linux had them.
pub fn mbind(row: &Row, args: Args) -> SysResult {
    let (start, length) = range(UserAddr::new(args[0]), args[1]).map_err(|_| Errno::EINVAL)?;
    remote::pass(row, args)?;
    if space()?.is_mapped(start, length) { Ok(0) } else { Err(Errno::EFAULT) }
}

/// Flags of get_mempolicy(2): the node, and of a page.
const MPOL_F_NODE: u32 = 1;
const MPOL_F_ADDR: u32 = 2;

/// get_mempolicy(mode, nodes, count, address, flags): that of the thread, or the node of a page.
pub fn get_mempolicy(row: &Row, args: Args) -> SysResult {
    let (address, flags) = (UserAddr::new(args[3]), args[4] as u32);
    // Linux refuses other flags beside it.
    if flags & MPOL_F_ADDR != 0 && flags & !(MPOL_F_ADDR | MPOL_F_NODE) == 0 {
        let page = address.page_down();
        if page >= UserAddr::END || !space()?.is_mapped(page, PAGE_SIZE) {
            return Err(Errno::EFAULT);
        }
    }
    remote::pass(row, args)
}

/// madvise(address, length, advice).
pub fn madvise([address, length, advice, ..]: Args) -> SysResult {
    lapse::memory();
    const LAST_ADVICE: u32 = linux::MADV_COLLAPSE;
    let (start, advice) = (UserAddr::new(address), advice as u32);
    // There are none by the numbers in between.
    if !matches!(advice, 0..5 | linux::MADV_FREE..=LAST_ADVICE) || !start.is_page_aligned() {
        return Err(Errno::EINVAL);
    }
    let length = length.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::EINVAL)?;
    let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
    if end == start {
        return Ok(0);
    }
    // Nothing is mapped behind the program's addresses.
    if start < UserAddr::END {
        let space = space()?;
        advise(&space, start..end.min(UserAddr::END), advice)?;
    }
    if end > UserAddr::END { Err(Errno::ENOMEM) } else { Ok(0) }
}

/// Does what a program says of a range: part by part, up to one for which that is wrong. ENOMEM in
/// the end if there is a hole.
fn advise(space: &AddressSpace, range: Range<UserAddr>, advice: u32) -> Result<(), Errno> {
    let Range { start, end } = range;
    match advice {
        linux::MADV_DONTNEED | linux::MADV_DONTNEED_LOCKED => {
            let even_locked = advice == linux::MADV_DONTNEED_LOCKED;
            Ok(space.discard(start, end - start, even_locked)?)
        }
        linux::MADV_POPULATE_READ | linux::MADV_POPULATE_WRITE => {
            let rights = match advice {
                linux::MADV_POPULATE_READ => Protection::READ,
                _ => Protection::WRITE,
            };
            let until = space.next_without(start, end - start, rights);
            if until > start {
                space.populate(start, until - start)?;
            }
            if until < end { Err(Errno::EINVAL) } else { Ok(()) }
        }
        _ => each_part(space, start..end, |region, start, length| {
            match advice {
                // What a program has of a file is not to be lost.
                linux::MADV_FREE if region.attributes.backing.is_some() => Err(Errno::EINVAL),
                linux::MADV_FREE => Ok(space.discard(start, length, false)?),
                linux::MADV_REMOVE => shared::punch(space, start, length),
                linux::MADV_DONTFORK
                | linux::MADV_DOFORK
                | linux::MADV_WIPEONFORK
                | linux::MADV_KEEPONFORK => {
                    Ok(space.set_on_fork(start, length, |on_fork| match advice {
                        linux::MADV_DONTFORK => on_fork.omitted = true,
                        linux::MADV_DOFORK => on_fork.omitted = false,
                        linux::MADV_WIPEONFORK => on_fork.cleared = true,
                        _ => on_fork.cleared = false,
                    })?)
                }
                linux::MADV_COLD | linux::MADV_PAGEOUT if region.attributes.lock.is_locked() => {
                    Err(Errno::EINVAL)
                }
                linux::MADV_COLLAPSE if !region.has_block() => Err(Errno::EINVAL),
                _ => Ok(()),
            }
        }),
    }
}

/// Calls `visit` with the start and length of each part of a range that is of one mapping, up to
/// one that fails. ENOMEM in the end if there is a hole.
fn each_part(
    space: &AddressSpace,
    range: Range<UserAddr>,
    visit: impl Fn(&Region, UserAddr, u64) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (mut at, mut is_whole) = (range.start, true);
    while at < range.end {
        let region = space.next_region(at).filter(|region| region.start < range.end);
        let Some(region) = region else { return Err(Errno::ENOMEM) };
        let (start, end) = (region.start.max(at), region.end.min(range.end));
        is_whole &= start == at;
        visit(&region, start, end - start)?;
        at = end;
    }
    if is_whole { Ok(()) } else { Err(Errno::ENOMEM) }
}

/// Bytes that the program may lock; EPERM if that is none. What Linux said last counts where it
/// does not answer any more.
fn lock_limit(space: &AddressSpace) -> Result<u64, Errno> {
    if let Ok(limit) = limits::lockable() {
        space.set_lock_limit(limit);
    }
    match space.lock_limit() {
        0 => Err(Errno::EPERM),
        limit => Ok(limit),
    }
}

/// Has Linux tell how much is locked, if that is not what it was `before` (VmLck).
fn tell_locked(space: &AddressSpace, before: u64) {
    let bytes = space.mapped().locked;
    if bytes != before {
        // Nothing depends on it.
        let _ = remote::request(Operation::Locked { bytes });
    }
}

/// Locks the pages in which a range of bytes lies, up to a hole.
fn lock(address: u64, length: u64, lock: Lock) -> SysResult {
    lapse::memory();
    let space = space()?;
    let limit = lock_limit(&space)?;
    let range = pages_around(UserAddr::new(address), length);
    if let Ok(range) = &range
        && space.locked_with(Some(range.clone())) > limit
    {
        return Err(Errno::ENOMEM);
    }
    let range = range?;
    let before = space.mapped().locked;
    let is_whole = change_lock(&space, &range, lock);
    tell_locked(&space, before);
    is_whole?;
    if lock == Lock::Present && !range.is_empty() {
        space.populate(range.start, range.end - range.start).map_err(|error| match error {
            MapError::Fault => Errno::ENOMEM,
            other => other.into(),
        })?;
    }
    Ok(0)
}

/// Changes how a range is locked; ENOMEM where a hole begins, up to which that is done.
fn change_lock(space: &AddressSpace, range: &Range<UserAddr>, lock: Lock) -> Result<(), Errno> {
    let end = space.mapped_until(range);
    if end > range.start {
        space.lock(range.start, end - range.start, lock)?;
    }
    if end < range.end { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// mlock(address, length).
pub fn mlock([address, length, ..]: Args) -> SysResult {
    lock(address, length, Lock::Present)
}

/// mlock2(address, length, flags).
pub fn mlock2([address, length, flags, ..]: Args) -> SysResult {
    match flags as u32 {
        0 => lock(address, length, Lock::Present),
        linux::MLOCK_ONFAULT => lock(address, length, Lock::OnFault),
        _ => Err(Errno::EINVAL),
    }
}

/// munlock(address, length): memory stays present.
pub fn munlock([address, length, ..]: Args) -> SysResult {
    let range = pages_around(UserAddr::new(address), length)?;
    let space = space()?;
    let before = space.mapped().locked;
    let is_whole = change_lock(&space, &range, Lock::None);
    tell_locked(&space, before);
    is_whole.map(|()| 0)
}

/// mlockall(flags).
pub fn mlockall([flags, ..]: Args) -> SysResult {
    lapse::memory();
    let flags = flags as u32;
    let has = |flag: u32| flags & flag != 0;
    let known = linux::MCL_CURRENT | linux::MCL_FUTURE | linux::MCL_ONFAULT;
    if flags & !known != 0 || !has(linux::MCL_CURRENT | linux::MCL_FUTURE) {
        return Err(Errno::EINVAL);
    }
    let space = space()?;
    let limit = lock_limit(&space)?;
    if has(linux::MCL_CURRENT) && space.locked_with(None) > limit {
        return Err(Errno::ENOMEM);
    }
    let lock = if has(linux::MCL_ONFAULT) { Lock::OnFault } else { Lock::Present };
    space.lock_future(if has(linux::MCL_FUTURE) { lock } else { Lock::None });
    if has(linux::MCL_CURRENT) {
        let before = space.mapped().locked;
        space.lock_all(lock)?;
        tell_locked(&space, before);
        if lock == Lock::Present {
            space.populate_all()?;
        }
    }
    Ok(0)
}

/// munlockall().
pub fn munlockall() -> SysResult {
    let space = space()?;
    space.lock_future(Lock::None);
    let before = space.mapped().locked;
    space.lock_all(Lock::None)?;
    tell_locked(&space, before);
    Ok(0)
}

/// Kinds of barriers that membarrier(2) offers; the next higher bit registers for one.
const BARRIERS: u32 = PRIVATE | PRIVATE_SYNC_CORE;
const PRIVATE: u32 = linux::membarrier_cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED as u32;
const PRIVATE_SYNC_CORE: u32 =
    linux::membarrier_cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE as u32;

/// membarrier(command, flags, cpu): among the threads of the process. CPUs that run others are not
/// disturbed.
pub fn membarrier([command, flags, ..]: Args) -> SysResult {
    let command = command as u32;
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let space = space()?;
    match command {
        0 => Ok((BARRIERS | BARRIERS << 1).into()),
        PRIVATE | PRIVATE_SYNC_CORE => {
            if space.barriers.load(Ordering::Relaxed) & command == 0 {
                return Err(Errno::EPERM);
            }
            space.barrier();
            Ok(0)
        }
        _ if command.is_power_of_two() && command >> 1 & BARRIERS != 0 => {
            space.barriers.fetch_or(command >> 1, Ordering::Relaxed);
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}
