// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of Linux's files, for what maps or executes them: a page is read at most once while
//! the file stays what it is ([`page_cache`]). Large parts are read when they are touched.
//!
//! Programs of different users share them. So Linux's kernel tells which file a descriptor is, and
//! fills the pages; the shadow, over which its user has power, takes no part.

use alloc::sync::Arc;
use core::ops::Range;

use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_channel::{
    Operation,
    operation::{self, FileStatus, Identity},
};
use linux_raw_sys::general as linux;

use crtos_core::{
    mm::{
        held::Held,
        object::Object,
        page_cache::{self, Version},
        space::{AddressSpace, Batch, Filling, Target},
    },
    time::{self, Clock, Nanos},
};

use crate::{
    abi::{Errno, linux_result},
    process::spares,
    remote,
};

/// A file that has not changed for so long changes no more without its time of change telling so:
/// that moves with Linux's ticks.
const SETTLED: Nanos = Nanos::from_millis(1000);

/// Parts of files that are larger are read when they are touched, unless they have to be there at
/// once.
const LARGE: u64 = 4 << 20;

/// What fstat(2) tells, and fcntl(2): by Linux's kernel, not by the shadow, because others find
/// what is kept of the file by it.
pub struct Status {
    /// Flags of the open file.
    pub flags: u64,
    /// What is known of the file.
    pub file: FileStatus,
}

impl Status {
    /// Of descriptor `fd` of the shadow.
    pub fn of(fd: u64) -> Result<Self, Errno> {
        let (result, words) = remote::request_words(Operation::Status { fd: fd as i32 })?;
        Ok(Self { flags: linux_result(result)?, file: FileStatus::from_words(&words) })
    }

    /// Whether it is a file of bytes.
    pub fn is_regular(&self) -> bool {
        self.file.mode & linux::S_IFMT == linux::S_IFREG
    }

    /// Whether the descriptor reads and writes, as a mapping that is written to needs.
    pub fn may_write(&self) -> bool {
        (self.flags as u32) & linux::O_ACCMODE == linux::O_RDWR
    }

    /// Whether Linux's kernel can read it for all programs.
    fn can_be_shared(&self) -> bool {
        self.is_regular() && self.file.is_readable
    }

    /// What tells this version of the file from later ones; `None` if it may change without a
    /// trace.
    fn version(&self) -> Option<Version> {
        let [seconds, nanoseconds] = self.file.changed;
        let changed = seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)?;
        let age = time::linux(Clock::Realtime).0.checked_sub(changed)?;
        // Empty is also what Linux makes up when it is read.
        let stays = self.can_be_shared() && self.file.is_trusted && !self.file.is_empty;
        let version = Version { size: self.file.size, changed: self.file.changed };
        (stays && age > SETTLED.0).then_some(version)
    }
}

/// From where the pages of an object are read.
#[derive(Clone, Copy)]
pub struct Source {
    /// Descriptor of the shadow.
    pub fd: u64,
    /// The file, if Linux's kernel reads it: others may see the pages. Otherwise the shadow does.
    pub vouched: Option<Identity>,
}

impl Source {
    /// The file of descriptor `fd` with that status.
    pub fn of(fd: u64, status: &Status) -> Self {
        Self { fd, vouched: status.can_be_shared().then_some(status.file.identity) }
    }
}

/// A file that is read page by page.
pub struct Contents<'a> {
    space: &'a AddressSpace,
    source: Source,
    /// Which file.
    pub identity: Identity,
    /// Bytes; of what is no file of bytes there may be any number.
    pub size: u64,
    /// Its pages, of which those are there that [`load`](Self::load) was asked for.
    pub object: Held,
}

impl<'a> Contents<'a> {
    /// Of descriptor `fd` of the shadow. With `is_written` programs of the realm may write to the
    /// file unseen.
    pub fn of(
        space: &'a AddressSpace,
        fd: u64,
        is_written: impl FnOnce(Identity) -> bool,
    ) -> Result<Self, Errno> {
        Self::with(space, fd, &Status::of(fd)?, is_written)
    }

    /// The same where the status of the file is known.
    pub fn with(
        space: &'a AddressSpace,
        fd: u64,
        status: &Status,
        is_written: impl FnOnce(Identity) -> bool,
    ) -> Result<Self, Errno> {
        let version = status.version().filter(|_| !is_written(status.file.identity));
        let quota = space.quota();
        let object = match version {
            Some(version) => page_cache::object(status.file.identity, version, quota)?,
            None => Held::new(Object::anonymous()?, quota)?,
        };
        let size = if status.is_regular() { status.file.size } else { u64::MAX };
        object.set_limit(size);
        let identity = status.file.identity;
        Ok(Self { space, source: Source::of(fd, status), identity, size, object })
    }

    /// The descriptor of the shadow.
    pub fn fd(&self) -> u64 {
        self.source.fd
    }

    /// Sees to it that the pages of `range` are there, up to the end of the file.
    pub fn load(&self, range: Range<u64>) -> Result<(), Errno> {
        let range = range.start..range.end.min(self.size);
        load(self.space, &self.object, self.source, range)
    }

    /// Sees to it that the pages of `range` are there, or with `at_once` unset that they will be
    /// when they are touched. The result is the mirror through which they are read then: to be
    /// used, or given up, once they are mapped.
    pub fn cover(&self, range: Range<u64>, at_once: bool) -> Result<Option<UserAddr>, Errno> {
        let part = range.start..range.end.min(self.size);
        if !at_once
            && is_large(&part)
            && self.object.missing(part.clone(), PAGE_SIZE).is_some()
            && let Ok(mirror) = self.mirror(part)
        {
            return Ok(Some(mirror));
        }
        self.load(range).map(|()| None)
    }

    /// Has Linux keep the file, from which pages of a part of it are read when they are touched.
    fn mirror(&self, part: Range<u64>) -> Result<UserAddr, Errno> {
        let kept = self.source.vouched.ok_or(Errno::ENODEV)?;
        spares::reserve_spare()?;
        let length = (part.end - part.start).next_multiple_of(PAGE_SIZE);
        let at = self.space.reserve_mirror(length)?;
        let (rights, flags) = (linux::PROT_READ.into(), linux::MAP_PRIVATE | linux::MAP_FIXED);
        let fd = self.source.fd;
        let args = [at.get(), length, rights, flags.into(), fd, part.start];
        let mapped = remote::linux(linux::__NR_mmap, &args);
        let from = operation::Source::Descriptor(fd as i32);
        if let Err(error) = mapped.and_then(|_| keep(from, at, kept)) {
            unmap_mirror(self.space, at, length);
            return Err(error);
        }
        let object = Arc::clone(&self.object);
        let offset = part.start;
        let target = Target { object, offset, writable: false, attachment: false, kept };
        self.space.set_mirror(at, target);
        self.object.read_on_demand();
        Ok(at)
    }

    /// Copies bytes that lie at `offset`; returns how many there are.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize, Errno> {
        let end = offset.saturating_add(to.len() as u64).min(self.size);
        self.load(offset..end)?;
        let length = end.saturating_sub(offset) as usize;
        self.object.read(offset, &mut to[..length])?;
        Ok(length)
    }
}

/// Whether a part of a file is read when it is touched, if it has not to be there at once.
pub fn is_large(part: &Range<u64>) -> bool {
    part.end.saturating_sub(part.start) > LARGE
}

/// Has Linux's kernel keep the file `from`, if that is the one of that identity, for the mirror at
/// `mirror`. Tells whether it permits to write to the file there.
pub fn keep(from: operation::Source, mirror: UserAddr, identity: Identity) -> Result<bool, Errno> {
    let operation = Operation::Keep { from, mirror, identity };
    Ok(linux_result(remote::request(operation)?)? == 1)
}

/// Fails as Linux does where it does not map the file of descriptor `fd`, though it can be read.
pub fn can_be_mapped(space: &AddressSpace, fd: u64) -> Result<(), Errno> {
    // Without a place to try, reading it has to tell.
    let Ok(mirror) = space.reserve_mirror(PAGE_SIZE) else { return Ok(()) };
    let (rights, flags) = (linux::PROT_READ.into(), linux::MAP_PRIVATE | linux::MAP_FIXED);
    let args = [mirror.get(), PAGE_SIZE, rights, flags.into(), fd, 0];
    let mapped = remote::linux(linux::__NR_mmap, &args);
    match mapped {
        Ok(_) => unmap_mirror(space, mirror, PAGE_SIZE),
        Err(_) => space.forget_mirror(mirror),
    }
    mapped.map(|_| ())
}

/// Has Linux let go of the mirror at `mirror`, and of its file.
pub fn unmap_mirror(space: &AddressSpace, mirror: UserAddr, length: u64) {
    let _ = remote::linux(linux::__NR_munmap, &[mirror.get(), length]);
    let _ = remote::request(Operation::LetGo { mirror });
    space.forget_mirror(mirror);
}

/// Reads those pages in `range` of a file that its object does not have.
pub fn load(
    space: &AddressSpace,
    object: &Held,
    source: Source,
    range: Range<u64>,
) -> Result<(), Errno> {
    let mut at = range.start;
    if object.missing(at..range.end, PAGE_SIZE).is_none() {
        return Ok(());
    }
    let fd = source.fd;
    if let Some(identity) = source.vouched {
        let _loading = object.loading();
        return read_missing(object, operation::Source::Descriptor(fd as i32), identity, range);
    }
    let buffer = space.bounce_buffer();
    let _loading = object.loading();
    while let Some(missing) = object.missing(at..range.end, Filling::LENGTH) {
        let length = missing.end - missing.start;
        let count = fill(fd, missing.start, length)?;
        for page in (0..length).step_by(PAGE_SIZE as usize) {
            let present = count.saturating_sub(page).min(PAGE_SIZE);
            let frame = buffer.page(page, present).ok_or(Errno::ENOMEM)?;
            object.put(missing.start + page, frame)?;
        }
        at = missing.end;
    }
    Ok(())
}

/// Has Linux's kernel read those pages in `range` of a file that its object does not have, if it is
/// the file of that identity. What lies behind the file's end is zero. The caller keeps others from
/// reading them ([`Object::loading`]).
pub fn read_missing(
    object: &Held,
    from: operation::Source,
    identity: Identity,
    mut range: Range<u64>,
) -> Result<(), Errno> {
    while let Some(missing) = object.missing(range.clone(), Batch::LENGTH) {
        let (offset, length) = (missing.start, missing.end - missing.start);
        let batch = Batch::new(length)?;
        let pages = batch.list();
        let operation = Operation::Read { from, offset, length, pages, identity };
        // Linux stops early at the end of the file, and where it cannot go on: when the shadow is
        // killed, for instance. Then it says why when it is asked for the rest.
        let there = match linux_result(remote::request(operation)?)? {
            0 => length,
            count => count.min(length).next_multiple_of(PAGE_SIZE),
        };
        batch.put(object, offset, there)?;
        range.start = offset + there;
    }
    Ok(())
}

/// Reads up to `length` bytes at `offset` of descriptor `fd` into the bounce buffer, which the
/// caller holds; returns how many there were.
fn fill(fd: u64, offset: u64, length: u64) -> Result<u64, Errno> {
    let mut done = 0;
    while done < length {
        let args = [fd, (Filling::START + done).get(), length - done, offset + done];
        match remote::linux(linux::__NR_pread64, &args) {
            Ok(0) => break,
            Ok(count) => done += count.min(length - done),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
