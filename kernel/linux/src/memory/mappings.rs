// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings of files. Linux has the files; the realm has pages of its own for them.
//!
//! What a private mapping shows is read when it is made, or was read before
//! ([`crate::memory::contents`]), or when it is touched if it is large and no real-time thread is
//! in the process. For shared mappings there is one [`Object`] for
//! each file, found by its identity, so that all programs of the realm see the same pages. The
//! shadow maps the file as well, in its own range of addresses: this *mirror* makes Linux check
//! what may be mapped, keeps the file after its descriptor is closed, and takes what is written
//! back by msync, munmap, and at the end of a program. Linux's own writes to the file are seen by
//! mappings that are made later, for pages that no program of the realm has mapped. What programs
//! of the realm read and write by read(2) and write(2) agrees with them ([`moved`]).
//!
//! Of files that are in Linux's memory alone there is no copy: their pages are Linux's own
//! ([`crate::memory::shared`]).

use alloc::sync::Arc;
use core::ops::Range;

use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_channel::{
    Operation,
    operation::{self, Identity},
};
use linux_raw_sys::general as linux;

use crtos_core::mm::{
    held::Held,
    object::{self, Known, Object},
    space::{AddressSpace, Backing, Map, Placement, Protection, Target},
    window,
};

use crate::{
    abi::{Errno, linux_result},
    files::Memory,
    futex::across,
    memory::{
        contents::{self, Contents, Source, Status},
        named, shared,
    },
    process::spares,
    remote,
};

/// What a program asks for.
pub struct Request {
    /// Where, how long, which rights. The backing is filled in here.
    pub map: Map,
    /// MAP_SHARED, MAP_SHARED_VALIDATE or MAP_PRIVATE.
    pub kind: u32,
    /// MAP_HUGETLB: fails where the file has no huge pages.
    pub huge: bool,
    /// MAP_GROWSDOWN: fails.
    pub grows: bool,
    /// Descriptor of the shadow.
    pub fd: u64,
    /// Offset in the file, a multiple of the page size.
    pub offset: u64,
}

/// Bytes that [`moved`] copies at a time.
const PIECE: usize = 512;

/// The access mode in a file's status flags.
const ACCESS_MODE: u64 = 3;

/// Fails with EBADF if there is no such descriptor. May sleep, and asks Linux.
pub fn is_open(fd: u64) -> Result<(), Errno> {
    Status::of(fd).map(|_| ())
}

/// Maps a file and returns the address. May sleep, and asks Linux.
pub fn map(space: &AddressSpace, request: Request) -> Result<UserAddr, Errno> {
    let status = Status::of(request.fd)?;
    let is_readable =
        matches!((status.flags & ACCESS_MODE) as u32, linux::O_RDONLY | linux::O_RDWR);
    let is_shared = match request.kind {
        linux::MAP_SHARED | linux::MAP_SHARED_VALIDATE => true,
        linux::MAP_PRIVATE => false,
        _ => return Err(Errno::EINVAL),
    };
    match is_shared {
        _ if !is_readable => Err(Errno::EACCES),
        _ if request.grows => Err(refusal(space, &request)),
        true => shared(space, request, &status),
        // The pages are the realm's, which has no huge ones.
        false if request.huge => Err(Errno::EINVAL),
        false => private(space, request, &status),
    }
}

/// Why Linux does not map what is to grow down.
fn refusal(space: &AddressSpace, request: &Request) -> Errno {
    let Request { map, kind, fd, offset, .. } = request;
    let Ok(at) = space.reserve_mirror(map.length) else { return Errno::ENOMEM };
    let flags = u64::from(kind | linux::MAP_FIXED | linux::MAP_GROWSDOWN);
    let args = [at.get(), map.length, map.protection.bits().into(), flags, *fd, *offset];
    let asked = remote::linux(linux::__NR_mmap, &args);
    space.forget_mirror(at);
    asked.err().unwrap_or(Errno::EINVAL)
}

/// Private memory with the file's contents, as they are now: the first write to each page gets a
/// copy.
fn private(space: &AddressSpace, request: Request, status: &Status) -> Result<UserAddr, Errno> {
    let Request { map, fd, offset, .. } = request;
    // What Linux makes up when it is read has no blocks either, as below /proc.
    if status.file.is_empty {
        contents::can_be_mapped(space, fd)?;
    }
    let (length, protection) = (map.length, map.protection);
    let contents = Contents::with(space, fd, status, is_shared)?;
    let end = offset.checked_add(map.length).ok_or(Errno::EOVERFLOW)?;
    let at_once = map.populate || space.populates_files();
    let mirror = contents.cover(offset..end, at_once).map_err(|error| match error {
        Errno::ENOMEM => error,
        // What cannot be read at a position cannot be mapped: pipes, sockets, directories.
        _ => Errno::ENODEV,
    })?;
    let object = named::named((fd, contents.identity), contents.object);
    let backing = Backing::private(object.clone(), offset);
    let mapped = space.map(Map { backing: Some(backing), ..map });
    if let Some(mirror) = mirror {
        space.use_mirror(mirror);
    }
    if mapped.is_err() {
        tidy(space);
    }
    let start = mapped?;
    named::tell(&object, start..start + length, protection, offset);
    Ok(start)
}

fn shared(space: &AddressSpace, request: Request, status: &Status) -> Result<UserAddr, Errno> {
    let Request { map, kind, huge, fd, offset, .. } = request;
    let (length, protection) = (map.length, map.protection);
    let named = |object: Held| named::named((fd, status.file.identity), object);
    let tell = |object: &Held, start: UserAddr| {
        named::tell(object, start..start + length, protection, offset);
    };
    let source = Source::of(fd, status);
    let mut may_write = status.may_write();
    let mirror = {
        let at = space.reserve_mirror(length)?;
        // Linux says whether the file can be mapped like that.
        let huge = if huge { linux::MAP_HUGETLB } else { 0 };
        let flags = u64::from(kind | huge | linux::MAP_FIXED);
        let wanted = u64::from(map.protection.bits()) | u64::from(linux::PROT_READ);
        let most = wanted | if may_write { u64::from(linux::PROT_WRITE) } else { 0 };
        let mmap = |protection| {
            remote::linux(linux::__NR_mmap, &[at.get(), length, protection, flags, fd, offset])
        };
        let mapped = match mmap(most) {
            // A file that is sealed against writing.
            Err(Errno::EPERM | Errno::EACCES) if most != wanted => {
                may_write = false;
                mmap(wanted)
            }
            other => other,
        };
        if let Err(error) = mapped {
            space.forget_mirror(at);
            return Err(error);
        }
        at
    };
    let mapped = (|| {
        // Devices have memory of their own, which is not the realm's.
        let kept = source.vouched.ok_or(Errno::ENODEV)?;
        // Others map that very file: Linux's kernel keeps it, and has the last word on writing.
        let from = operation::Source::Descriptor(fd as i32);
        may_write &= contents::keep(from, mirror, kept)?;
        if map.protection.contains(Protection::WRITE) && !may_write {
            return Err(Errno::EACCES);
        }
        if let Placement::Fixed(start) = map.placement {
            write_back(space, start, length);
        }
        if status.file.is_sharable {
            let object = shared::object(kept, may_write)?;
            spares::reserve_spare()?;
            across::prepare();
            let held = named(object.clone().into());
            let backing = Backing::shared(held.clone(), offset, may_write);
            space.set_mirror(mirror, Target::of_linux(object, offset, kept));
            let start = space.map(Map { backing: Some(backing), ..map })?;
            space.use_mirror(mirror);
            tell(&held, start);
            return Ok(start);
        }
        let object = Held::new(FILES.get(kept, Object::anonymous)?, space.quota())?;
        object.set_limit(status.file.size);
        if may_write {
            object.extend_reach(offset.saturating_add(length));
        }
        let part = offset..offset.saturating_add(length).min(status.file.size);
        let at_once = map.populate || space.populates_files();
        let is_large = contents::is_large(&part);
        if !status.file.is_empty && is_large && !at_once && spares::reserve_spare().is_ok() {
            object.read_on_demand();
        } else if !status.file.is_empty {
            contents::load(space, &object, source, part)?;
        }
        let held = named(object);
        let backing = Backing::shared(held.clone(), offset, may_write);
        let object = Arc::clone(&held);
        let target = Target { object, offset, writable: may_write, attachment: false, kept };
        space.set_mirror(mirror, target);
        let start = space.map(Map { backing: Some(backing), ..map })?;
        space.use_mirror(mirror);
        tell(&held, start);
        Ok(start)
    })();
    if mapped.is_err() {
        contents::unmap_mirror(space, mirror, length);
    }
    mapped
}

/// Has the shadow show `length` bytes of a file in Linux's memory, from what is mapped at `start`
/// on, so that they can be mapped there. `None`: it does, or what is there is something else. What
/// is returned is to be used (`use_mirror`) or unmapped. May sleep, and asks Linux.
pub fn show(space: &AddressSpace, start: UserAddr, length: u64) -> Result<Option<UserAddr>, Errno> {
    let Some(region) = space.region(start) else { return Ok(None) };
    let backing = region.object_at(start).filter(|(object, _)| object.is_linuxs());
    let Some((object, offset)) = backing.filter(|(object, _)| !object.is_link()) else {
        return Ok(None);
    };
    let Some((target, at, shown)) = space.target_at(object, offset) else { return Ok(None) };
    if shown >= length {
        return Ok(None);
    }
    // Linux would count another attachment of the segment.
    if target.attachment {
        return Err(Errno::ENOMEM);
    }
    let mirror = space.reserve_mirror(length)?;
    // A length of 0 asks for a second mapping.
    let flags = linux::MREMAP_MAYMOVE | linux::MREMAP_FIXED;
    let args = [at.get(), 0, length, flags.into(), mirror.get()];
    if let Err(error) = remote::linux(linux::__NR_mremap, &args) {
        space.forget_mirror(mirror);
        return Err(error);
    }
    let from = operation::Source::Mirror(at - (offset - target.offset));
    if let Err(error) = contents::keep(from, mirror, target.kept) {
        contents::unmap_mirror(space, mirror, length);
        return Err(error);
    }
    space.set_mirror(mirror, Target::of_linux(target.object, offset, target.kept));
    Ok(Some(mirror))
}

/// The objects of files that programs of the realm have mapped, by device and number.
static FILES: Known = Known::none();

/// Whether programs of the realm map a file shared, and so change it without Linux's knowledge.
pub fn is_shared(identity: Identity) -> bool {
    FILES.find(identity).is_some() || shared::is_written(identity)
}

/// After the size of the file of `fd` has changed, and `cleared` of it was cleared: what is mapped
/// ends where the file ends. What was behind that is not there when the file grows again.
pub fn resized(fd: u64, cleared: Option<Range<u64>>) {
    if FILES.is_empty() {
        return;
    }
    let object = Status::of(fd).ok().and_then(|status| FILES.find(status.file.identity));
    let Some(object) = object else { return };
    // Who makes the file longer meanwhile waits here, before it stores anything there.
    let _loading = object.loading();
    let Ok(status) = Status::of(fd) else { return };
    // The shadow tells that it was cleared. It may not change more than the descriptor allows.
    let mode = (status.flags & ACCESS_MODE) as u32;
    if let Some(cleared) = cleared.filter(|_| matches!(mode, linux::O_WRONLY | linux::O_RDWR)) {
        object.clear(cleared);
    }
    if status.file.size < object.limit() {
        object.clear(status.file.size..object.limit());
    }
    object.set_limit(status.file.size);
}

/// A call of [`moved`].
pub struct Transfer {
    /// Descriptor of the shadow.
    pub fd: u64,
    /// Where in the file; `None`: where the descriptor was.
    pub position: Option<u64>,
    /// To the file.
    pub writes: bool,
    /// To its end.
    pub appends: bool,
}

/// Whether [`moved`] has anything to do.
pub fn is_concerned() -> bool {
    object::any_changing()
}

/// After Linux has moved bytes between the file of a descriptor and the program, all that `memory`
/// has left: what programs of the realm have mapped shared of that file, and may change, takes
/// part. Bytes that were written go to these pages as well; bytes that were read come from them,
/// because Linux may not have what was stored there. May sleep, and asks Linux.
pub fn moved(space: &AddressSpace, transfer: &Transfer, mut memory: Memory) -> Result<(), Errno> {
    let &Transfer { fd, position, writes, appends } = transfer;
    let status = Status::of(fd)?;
    // The shadow tells what was moved. It may not change more than the descriptor allows.
    let allowed = if writes { linux::O_WRONLY } else { linux::O_RDONLY };
    let mode = (status.flags & ACCESS_MODE) as u32;
    let object = FILES.find(status.file.identity).filter(|object| object.reach() > 0);
    let Some(object) = object.filter(|_| mode == allowed || mode == linux::O_RDWR) else {
        return Ok(());
    };
    let count = memory.left();
    let appends = writes && (appends || status.flags & u64::from(linux::O_APPEND) != 0);
    let start = match position {
        _ if appends => status.file.size.saturating_sub(count),
        Some(position) => position,
        None => {
            let args = [fd, 0, linux::SEEK_CUR.into()];
            remote::linux(linux::__NR_lseek, &args)?.saturating_sub(count)
        }
    };
    if writes {
        // New pages stay for those who map them, and count for the writer if it is one.
        let object = Held::new(object.clone(), space.quota())?;
        let limit = object.limit();
        object.set_limit(status.file.size);
        // Pages that have appeared behind what was the end.
        let part = start..start.saturating_add(count).min(object.reach());
        if !object.is_on_demand()
            && part.start < part.end
            && contents::load(space, &object, Source::of(fd, &status), part.clone()).is_err()
        {
            // The descriptor is for writing alone. What was written there is all that these pages
            // have.
            let first = limit.max(part.start & !(PAGE_SIZE - 1));
            for page in (first..part.end).step_by(PAGE_SIZE as usize) {
                object.set(page, &[])?;
            }
        }
    }
    let mut bytes = [0; PIECE];
    let mut at = start;
    while memory.left() > 0 {
        let in_page = (PAGE_SIZE - at % PAGE_SIZE).min(memory.left()) as usize;
        let piece = &mut bytes[..in_page.min(PIECE)];
        let done = if !writes && object.peek(at, piece) {
            memory.write(piece)
        } else {
            memory.read(piece)
        };
        if writes {
            object.poke(at, &piece[..done]);
        }
        if done < piece.len() {
            break;
        }
        at += done as u64;
    }
    Ok(())
}

/// Writes what the program has changed in shared mappings of files back to Linux. May sleep; a
/// program without such mappings loses no time.
pub fn write_back(space: &AddressSpace, start: UserAddr, length: u64) {
    if !space.has_mirrors() {
        return;
    }
    let mut at = start;
    while let Some(dirty) = space.next_dirty(at, start.saturating_add(length)) {
        let copy = Operation::Copy { to: dirty.mirror, from: dirty.start, length: dirty.length };
        // A file that became shorter has no place for it.
        let _ = remote::request(copy).map(linux_result);
        at = dirty.start + dirty.length;
    }
}

/// The same for all that is mapped: before a program ends or executes another.
pub fn write_back_all(space: &AddressSpace) {
    write_back(space, UserAddr::NULL, UserAddr::END.get());
}

/// Unmaps all files that a program maps shared, which has ended: whoever has waited for it finds
/// nobody who uses them. May sleep, and asks Linux.
pub fn leave_files(space: &AddressSpace) {
    if !space.has_mirrors() {
        return;
    }
    space.regions(&mut |region| {
        let mut object = region.object_at(region.start);
        object = object.filter(|_| region.attributes.is_shared());
        if object.is_some_and(|(object, offset)| space.in_mirror(object, offset).is_some()) {
            // Otherwise it goes with all of the memory.
            let _ = space.unmap(region.start, region.length());
        }
    });
    tidy(space);
    window::give_up();
}

/// Whether something of a mirror may be mapped in a range: when that has gone, [`tidy`] is due. It
/// looks through all mappings, which the end of mere memory is not to wait for.
pub fn concern(space: &AddressSpace, start: UserAddr, length: u64) -> bool {
    space.has_mirrors() && space.shows_any(start, length)
}

/// After mappings went: gives up mirrors that nothing needs any more.
pub fn tidy(space: &AddressSpace) {
    while space.has_mirrors()
        && let Some((mirror, length)) = space.unused_mirror()
    {
        contents::unmap_mirror(space, mirror, length);
    }
}
