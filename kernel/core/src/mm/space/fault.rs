// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making pages present: on a program's page fault, for Linux, for a copy, and ahead of all that.
//!
//! A page that has other users, and is not shared memory, is mapped read-only; the first write gets
//! a copy.

use super::prepared::{PageCopy, Prepared};
use super::revoke::Revoked;
use super::{Access, AddressSpace, FaultError, Page, Region, pages_of};
use crate::arch::paging::{NoFrames, Tables};
use crate::arch::tlb::Stale;
use crate::mm::frames::{self, OwnedPage};
use crate::mm::heap;
use crate::task;
use core::ops::Range;
use crtos_abi::UserAddr;
use crtos_vm::{
    BLOCK_SIZE, Entry, FRAME_SIZE, Flags, Frame, FrameSize, Kind, Lock, MapError, Protection,
};

/// Why a page cannot lie at an address yet.
pub(in crate::mm) enum Obstacle {
    /// It never can.
    Never(FaultError),
    /// Another thread has changed what is mapped there: all is looked at again.
    Changed,
    /// It has to be read from Linux before.
    Unread,
    /// A cleared page belongs there, which is not ready.
    NoPage,
    /// A copy of this page belongs there, which is not ready.
    NoCopy(OwnedPage),
    /// A cleared block of 2 MiB belongs there, which is not ready.
    NoBlock,
}

impl From<FaultError> for Obstacle {
    fn from(error: FaultError) -> Self {
        Self::Never(error)
    }
}

impl AddressSpace {
    /// Makes the page present for `access` and says which frame it is. May sleep.
    pub fn resolve(&self, address: UserAddr, access: Access) -> Result<Page, FaultError> {
        self.find_page(address, access, false)
    }

    /// Like [`AddressSpace::resolve`], and marks the page as exposed to Linux: unmapping it goes
    /// through [`Revoked`], for which there is memory.
    pub fn expose(&self, address: UserAddr, access: Access) -> Result<Page, FaultError> {
        if !heap::has_rest() {
            return Err(FaultError::NoMemory);
        }
        self.find_page(address, access, true)
    }

    fn find_page(
        &self,
        address: UserAddr,
        access: Access,
        expose: bool,
    ) -> Result<Page, FaultError> {
        if expose && let Some(page) = self.bounce_buffer.page(address) {
            return page;
        }
        loop {
            {
                let mut tables = self.tables.lock();
                if let Some(mut page) = lookup(&tables, address, access) {
                    if expose {
                        if page.is_of_device {
                            return Err(FaultError::Protected);
                        }
                        tables.expose(address);
                        if access == Access::Write && !page.dirty {
                            tables.mark_dirty(address);
                            page.dirty = true;
                        }
                    }
                    return Ok(page);
                }
            }
            self.fault_in(address, access)?;
        }
    }

    /// Makes the page at `address` present if the region allows `access`, or brings that nearer: to
    /// be called until it is.
    pub(super) fn fault_in(&self, address: UserAddr, access: Access) -> Result<(), FaultError> {
        let mut prepared = Prepared::new(self);
        loop {
            match self.make_present(address, access, &mut prepared) {
                Ok(()) => return Ok(()),
                Err(obstacle) => self.overcome(obstacle, address, &mut prepared)?,
            }
        }
    }

    /// Does what has to be done before a page can lie at `address`.
    fn overcome(
        &self,
        obstacle: Obstacle,
        address: UserAddr,
        prepared: &mut Prepared<'_>,
    ) -> Result<(), FaultError> {
        match obstacle {
            Obstacle::Never(error) => Err(error),
            Obstacle::Changed => Ok(()),
            Obstacle::Unread => self.bring_in(address),
            Obstacle::NoPage => prepared.add_page().ok_or(FaultError::NoMemory),
            Obstacle::NoCopy(from) => prepared.add_copy(from).ok_or(FaultError::NoMemory),
            Obstacle::NoBlock => {
                prepared.add_block();
                Ok(())
            }
        }
    }

    /// As [`fault_in`](Self::fault_in), if nothing stands in the way.
    fn make_present(
        &self,
        address: UserAddr,
        access: Access,
        prepared: &mut Prepared<'_>,
    ) -> Result<(), Obstacle> {
        let region = self.region_at(address).ok_or(FaultError::Unmapped)?;
        if !access.allowed_by(region.protection()) {
            return Err(FaultError::Protected.into());
        }
        let present = self.tables.lock().get(address);
        match present {
            // Another thread was faster, or the rights changed meanwhile.
            Some((entry, _)) if access.allowed_in(entry.flags()) => Ok(()),
            Some(_) => self.upgrade(&region, address, prepared),
            None => {
                self.fill(&region, address, access == Access::Write, false, prepared)?;
                Ok(())
            }
        }
    }

    /// Gives the page at `address` all rights of `region`, with a copy of its own if others use it
    /// too. If it has gone, nothing happens.
    fn upgrade(
        &self,
        region: &Region,
        address: UserAddr,
        prepared: &mut Prepared<'_>,
    ) -> Result<(), Obstacle> {
        let page = address.page_down();
        let range = page..page + FRAME_SIZE;
        let protection = region.protection();
        let mut stale = Stale::new(self.root);
        let shared = self.in_tables(region, &range, |tables| {
            let Some((entry, size)) = tables.get(page) else { return Ok(None) };
            if frames::is_retired(entry.frame()) {
                return Err(FaultError::Broken);
            }
            let own = size == FrameSize::Large
                || region.attributes.is_shared()
                || !frames::is_shared(entry.frame());
            if own || !protection.contains(Protection::WRITE) {
                tables.protect(page, protection, &mut stale);
                return Ok(None);
            }
            OwnedPage::shared(entry.frame()).ok_or(FaultError::NoMemory).map(Some)
        });
        let Some(shared) = shared.ok_or(Obstacle::Changed)?? else { return Ok(()) };
        let PageCopy { from, page: new } = prepared.copy_of(shared)?;
        let old = from.frame();
        let to = Entry::user_page(new.frame(), FrameSize::Small, protection);
        let replaced = self.in_tables(region, &range, |tables| match tables.get(page) {
            Some((entry, FrameSize::Small)) if entry.frame() == old => {
                // Linux may be shown the page until it is taken.
                let taken = tables.take(page, &mut stale);
                // The table is there: this cannot fail.
                let _ = tables.map(page, FrameSize::Small, to, &mut stale);
                taken.map(|(entry, _)| entry)
            }
            _ => None,
        });
        stale.settle();
        if let Some(entry) = replaced.ok_or(Obstacle::Changed)? {
            new.into_frame();
            if entry.flags().contains(Flags::EXPOSED) {
                self.revoke.revoke(Revoked::one(page, old));
            } else {
                frames::release(old, FrameSize::Small);
            }
        }
        Ok(())
    }

    /// Puts a page at `address` in `region`: of its object, a copy of that for a `write` to private
    /// memory, or a cleared one. There was no page just now.
    fn fill(
        &self,
        region: &Region,
        address: UserAddr,
        write: bool,
        eager: bool,
        prepared: &mut Prepared<'_>,
    ) -> Result<FrameSize, Obstacle> {
        let page = address.page_down();
        if let Some((object, offset)) = region.object_at(page) {
            let mut protection = region.protection();
            let mut content = object.page(offset, prepared)?;
            if !region.attributes.is_shared() {
                if write {
                    content = prepared.copy_of(content)?.page;
                } else {
                    protection.remove(Protection::WRITE);
                }
            }
            let mut entry = Entry::user_page(content.into_frame(), FrameSize::Small, protection);
            if object.registers().is_some() {
                entry = entry.with(Flags::UNCACHED);
            }
            let put = self.put_in(region, page, entry, FrameSize::Small)?;
            if object.is_linuxs() && !object.has(offset, entry.frame()) {
                // Its file has lost it, and whoever took it out of the tables may not have seen it.
                let lost = |frame| frame == entry.frame();
                self.take_places(page..page + FRAME_SIZE, lost);
                return Err(Obstacle::Changed);
            }
            return Ok(put);
        }
        let cleared =
            |frame, size| Entry::user_page(frame, size, region.protection()).with(Flags::CLEARED);
        let start = address.align_down(BLOCK_SIZE);
        let fits = region.start <= start && start + BLOCK_SIZE <= region.end;
        // Asked first: a frame that is of no use would be cleared for each page of the block.
        if fits
            && (region.attributes.kind == Kind::Large || eager)
            && self.tables.lock().has_room_for_block(start)
            && let Some(block) = prepared.block()?
        {
            let entry = cleared(block.into_frame(), FrameSize::Large);
            return self.put_in(region, start, entry, FrameSize::Large);
        }
        let frame = prepared.page()?.into_frame();
        self.put_in(region, page, cleared(frame, FrameSize::Small), FrameSize::Small)
    }

    /// Maps the page of `entry`, which the caller owns, in `region`, and returns its size.
    /// [`Obstacle::Changed`] also if something is in the way.
    fn put_in(
        &self,
        region: &Region,
        address: UserAddr,
        entry: Entry,
        size: FrameSize,
    ) -> Result<FrameSize, Obstacle> {
        let mut stale = Stale::new(self.root);
        let range = address..address + size.bytes();
        let map = || {
            let map = |tables: &mut Tables| tables.map(address, size, entry, &mut stale);
            self.in_tables(region, &range, map).unwrap_or(Ok(false))
        };
        match self.counted(entry, size, map)? {
            true => Ok(size),
            false => Err(Obstacle::Changed),
        }
    }

    /// Maps the page of `entry`, which the caller owns, where there is none, in a space that nobody
    /// uses yet. `false` if something is in the way.
    pub(super) fn put(
        &self,
        address: UserAddr,
        entry: Entry,
        size: FrameSize,
    ) -> Result<bool, FaultError> {
        let mut stale = Stale::new(self.root);
        self.counted(entry, size, || self.tables.lock().map(address, size, entry, &mut stale))
    }

    /// Counts the page of `entry` and has it mapped, or gives it back.
    fn counted(
        &self,
        entry: Entry,
        size: FrameSize,
        map: impl FnOnce() -> Result<bool, NoFrames>,
    ) -> Result<bool, FaultError> {
        if !self.count(size.bytes()) {
            frames::release(entry.frame(), size);
            return Err(FaultError::NoMemory);
        }
        let mapped = map();
        if mapped != Ok(true) {
            self.count_out(size.bytes());
            frames::release(entry.frame(), size);
        }
        mapped.map_err(|NoFrames| FaultError::NoMemory)
    }

    /// Makes all pages of the range present. Holes, inaccessible regions, and memory that is
    /// missing: [`MapError::NoMemory`]. Where a file has ended: [`MapError::Fault`], with all
    /// before it present.
    pub fn populate(&self, start: UserAddr, length: u64) -> Result<(), MapError> {
        let range = pages_of(start, length)?;
        let mut at = range.start;
        let mut prepared = Prepared::new(self);
        while at < range.end {
            prepared.refill();
            let region = self.region_at(at).ok_or(MapError::NoMemory)?;
            let protection = region.protection();
            if protection.is_empty() {
                return Err(MapError::NoMemory);
            }
            let writes = protection.contains(Protection::WRITE);
            let present = self.tables.lock().get(at);
            let filled = match present {
                // What a write would copy is copied now.
                Some((entry, size)) if writes && !entry.flags().contains(Flags::WRITE) => {
                    self.upgrade(&region, at, &mut prepared).map(|()| size)
                }
                Some((_, size)) => Ok(size),
                None => self.fill(&region, at, writes, true, &mut prepared),
            };
            let size = match filled {
                Ok(size) => size,
                Err(obstacle) => {
                    self.overcome(obstacle, at, &mut prepared).map_err(not_present)?;
                    continue;
                }
            };
            at = at.align_down(size.bytes()) + size.bytes();
            task::reschedule_point();
        }
        Ok(())
    }

    /// As [`populate`](Self::populate), of memory that is locked: what lies beyond the end of a
    /// file stays empty.
    pub(super) fn lock_present(&self, start: UserAddr, length: u64) -> Result<(), MapError> {
        match self.populate(start, length) {
            Err(MapError::Fault) => Ok(()),
            other => other,
        }
    }

    /// Whether the page at `address`, which is mapped, would be there at once. Of an object, all
    /// counts as there.
    pub fn is_resident(&self, address: UserAddr) -> bool {
        let of_object = self.region_at(address).is_some_and(|r| r.object_at(address).is_some());
        of_object || self.tables.lock().get(address).is_some()
    }

    /// Makes present what is private and locked in a range, as far as there is memory.
    pub(super) fn populate_locked(&self, range: Range<UserAddr>) {
        let mut at = range.start;
        while let Some(region) = self.next_region(at).filter(|region| region.start < range.end) {
            let (start, end) = (region.start.max(range.start), region.end.min(range.end));
            if region.attributes.lock == Lock::Present && !region.attributes.is_shared() {
                let _ = self.populate(start, end - start);
            }
            at = region.end;
        }
    }

    /// How what is mapped from now on is locked (mlockall MCL_FUTURE).
    pub fn lock_future(&self, lock: Lock) {
        self.layout.lock().future = lock;
    }

    /// Whether what is mapped of files from now on is populated at once.
    pub fn populates_files(&self) -> bool {
        let layout = self.layout.lock();
        layout.future == Lock::Present || layout.populate_files
    }

    /// Populates all that is mapped and accessible (mlockall MCL_CURRENT).
    pub fn populate_all(&self) -> Result<(), MapError> {
        let mut at = UserAddr::NULL;
        while let Some(region) = self.next_region(at) {
            if !region.protection().is_empty() {
                self.lock_present(region.start, region.length())?;
            }
            at = region.end;
        }
        Ok(())
    }

    /// Populates what is mapped of files and can be, now and at each later mapping: programs, with
    /// their libraries, that real-time threads run. Memory that is missing is no error. May sleep;
    /// takes time the first time.
    pub fn populate_files(&self) {
        if core::mem::replace(&mut self.layout.lock().populate_files, true) {
            return;
        }
        let mut at = UserAddr::NULL;
        while let Some(region) = self.next_region(at) {
            if region.attributes.backing.is_some() && !region.protection().is_empty() {
                let _ = self.populate(region.start, region.length());
            }
            at = region.end;
        }
    }

    /// The first region that ends behind `from`.
    pub fn next_region(&self, from: UserAddr) -> Option<Region> {
        self.layout.lock().regions.find_from(from)
    }
}

/// What [`AddressSpace::populate`] tells of a page that cannot be there.
fn not_present(error: FaultError) -> MapError {
    match error {
        FaultError::Beyond => MapError::Fault,
        _ => MapError::NoMemory,
    }
}

/// The page at `address` if it is present and allows `access`.
pub(super) fn lookup(tables: &Tables, address: UserAddr, access: Access) -> Option<Page> {
    let (entry, size) = tables.get(address).filter(|_| address < UserAddr::END)?;
    access.allowed_in(entry.flags()).then(|| page_of(entry, size, address))
}

/// The page at `address` if it is present.
pub(super) fn lookup_any(tables: &Tables, address: UserAddr) -> Option<Page> {
    let (entry, size) = tables.get(address).filter(|_| address < UserAddr::END)?;
    Some(page_of(entry, size, address))
}

fn page_of(entry: Entry, size: FrameSize, address: UserAddr) -> Page {
    // The address of a large page has bit 12 (PAT) in no entry that the kernel makes.
    let frame = Frame(entry.frame().0 + address.page_down().offset_in(size.bytes()));
    let has = |flag| entry.flags().contains(flag);
    Page {
        frame,
        writable: has(Flags::WRITE),
        dirty: has(Flags::DIRTY),
        is_of_device: has(Flags::UNCACHED),
    }
}
