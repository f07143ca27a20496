// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changing what is mapped: mmap, munmap, mprotect, mremap, brk, and giving up contents.
//!
//! Everything here holds `changes` ([`Changes`]).

use super::changes::{Changes, LOW};
use super::revoke::{Collected, LIMIT, Revoked};
use super::{AddressSpace, Attributes, Map, NOTHING, Region, pages_of, whole_pages};
use crate::arch::paging::{NoFrames, Parts, Steps};
use crate::arch::tlb::Stale;
use crate::mm::{frames, heap, object::Object};
use crate::task;
use crate::time::Nanos;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;
use crtos_abi::UserAddr;
use crtos_vm::{
    BLOCK_SIZE, FRAME_SIZE, Flags, FrameSize, Kind, Lock, MapError, OnFork, Placement, Protection,
};

/// Where a mapping may go (mremap).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// It stays where it is.
    No,
    /// Anywhere, if it cannot stay (MREMAP_MAYMOVE).
    Anywhere,
    /// There, in place of what is there (MREMAP_FIXED).
    To(UserAddr),
    /// Its pages go, and the mapping stays (MREMAP_DONTUNMAP).
    Pages {
        /// There, if nothing is there; else anywhere. [`UserAddr::NULL`]: anywhere.
        to: UserAddr,
        /// There, in place of what is there.
        replaces: bool,
    },
}

/// Most pages taken out of the tables at a time.
const BATCH: usize = 32;
/// Most of them that are taken with interrupts off.
const STEP: usize = 4;
/// The same where their rights change, which takes longer.
const RIGHTS_STEP: usize = 4;

impl AddressSpace {
    /// Maps; returns the address.
    pub fn map(&self, request: Map) -> Result<UserAddr, MapError> {
        let Map { placement, length, protection, kind, backing, populate, locked, is_own } =
            request;
        let align = if kind == Kind::Large { BLOCK_SIZE } else { FRAME_SIZE };
        let length = match length {
            0 => return Err(MapError::Invalid),
            length => whole_pages(length)
                .ok_or(MapError::NoMemory)?
                .checked_next_multiple_of(align)
                .ok_or(MapError::NoMemory)?,
        };
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        let mut changes = self.changes();
        let (future, populate_files) = {
            let layout = self.layout.lock();
            (layout.future, layout.populate_files)
        };
        let lock = match future {
            Lock::None if locked => Lock::Present,
            future => future,
        };
        let attributes = Attributes { backing, lock, ..Attributes::plain(protection, kind) };
        if !is_own {
            let replaced = match placement {
                Placement::Fixed(start) => start..start.saturating_add(length),
                _ => NOTHING,
            };
            changes.admit(length, &attributes, &replaced)?;
        }
        let start = match placement {
            Placement::Anywhere { hint } => match changes.hinted(hint, length, align) {
                Some(start) => start,
                None => changes.room(length, align)?,
            },
            Placement::Low { hint } => match changes.hinted(hint, length, align) {
                Some(start) if start + length <= LOW.end => start,
                _ => changes.low_room(length, align)?,
            },
            Placement::NoReplace(start) | Placement::Fixed(start) => {
                if !start.is_aligned(align) {
                    return Err(MapError::Invalid);
                }
                if start.checked_add(length).is_none_or(|end| end > UserAddr::END) {
                    return Err(MapError::NoMemory);
                }
                if !changes.regions.is_allowed(start, length) {
                    return Err(MapError::Denied);
                }
                if matches!(placement, Placement::Fixed(_))
                    && !changes.regions.is_free(start, length)
                {
                    let range = start..start + length;
                    changes.begin([range.clone(), NOTHING]);
                    changes.clear(range)?;
                }
                start
            }
        };
        // MAP_POPULATE does not count for memory that is locked when it is touched.
        let populate =
            populate && future != Lock::OnFault || attributes.backing.is_some() && populate_files;
        let populate_all = future == Lock::Present;
        changes.apply(|regions| regions.insert(start, length, attributes.clone()))?;
        drop(changes);
        if (populate || populate_all) && !protection.is_empty() {
            let result = self.lock_present(start, length);
            // MAP_POPULATE is a wish, and so is MAP_LOCKED; memory that must be present and is not
            // was not mapped.
            if populate_all && result.is_err() {
                self.unmap(start, length)?;
                return result.map(|()| start);
            }
        }
        Ok(start)
    }

    /// Unmaps all in the range; holes are fine.
    pub fn unmap(&self, start: UserAddr, length: u64) -> Result<(), MapError> {
        let range = pages_of(start, length)?;
        self.changes().unmap(range)
    }

    /// Takes all pages of `range` out of the tables: frees those that Linux does not know and hands
    /// the others to `revoke`. Preemptible between batches.
    pub(super) fn sweep(
        &self,
        range: Range<UserAddr>,
        revoke: &mut dyn FnMut(Revoked),
    ) -> Result<(), MapError> {
        self.split_edges(&range)?;
        let mut collected = Collected::new();
        let mut at = range.start;
        while at < range.end {
            at = self.take_batch(at..range.end, &mut collected, revoke);
        }
        if let Some(pages) = collected.finish() {
            revoke(pages);
        }
        let mut at = range.start;
        while at < range.end {
            let mut stale = Stale::new(self.root);
            at = self.tables.lock().prune(at..range.end, &mut stale);
        }
        Ok(())
    }

    /// Frees all pages; what is mapped stays so. For a space that no thread has any more, and of
    /// which Linux keeps no page. Thread context; may sleep. Preemptible between batches.
    pub fn free_pages(&self) {
        let _changes = self.changes();
        let mut collected = Collected::new();
        let mut at = UserAddr::NULL;
        while at < UserAddr::END && self.present.load(Ordering::Relaxed) > 0 {
            at = self.take_batch(at..UserAddr::END, &mut collected, &mut drop);
        }
        drop(collected.finish());
    }

    /// Takes the first few pages of `range` out of the tables, of which none lies across an end of
    /// it: frees those that Linux does not know, and adds the others to `collected`, or hands them
    /// to `revoke` where those are many. Returns where to go on.
    fn take_batch(
        &self,
        range: Range<UserAddr>,
        collected: &mut Collected,
        revoke: &mut dyn FnMut(Revoked),
    ) -> UserAddr {
        let mut at = range.start;
        reserve(&mut collected.pages, BATCH);
        let mut unknown = [None; BATCH];
        let mut stale = Stale::new(self.root);
        'batch: for step in unknown.chunks_mut(STEP) {
            let mut tables = self.tables.lock();
            let mut steps = Steps::of_section();
            for free in step {
                let scan = tables.scan(at..range.end, &mut steps);
                let Some((address, entry, size)) = scan.page(&mut at) else { break 'batch };
                steps.take_page();
                // Take it before looking: a fault of Linux may have exposed it meanwhile.
                let taken = tables.take(address, &mut stale);
                let entry = taken.map_or(entry, |(entry, _)| entry);
                if entry.flags().contains(Flags::EXPOSED) {
                    collected.add(self, address..at, (entry.frame(), size));
                } else {
                    self.count_out(size.bytes());
                    *free = Some((entry.frame(), size));
                }
            }
        }
        stale.settle();
        unknown.into_iter().flatten().for_each(|(frame, size)| frames::release(frame, size));
        if collected.pages.len() + BATCH > LIMIT
            && let Some(pages) = core::mem::replace(collected, Collected::new()).finish()
        {
            revoke(pages);
        }
        at
    }

    /// Turns large pages that lie across an end of `range` into small ones.
    fn split_edges(&self, range: &Range<UserAddr>) -> Result<(), NoFrames> {
        for edge in [range.start, range.end] {
            if !edge.is_aligned(BLOCK_SIZE) {
                self.split(edge)?;
            }
        }
        Ok(())
    }

    /// Turns the page of 2 MiB that `address` lies in, if it does, into pages of 4 KiB. Preemptible
    /// but for the exchange.
    pub(super) fn split(&self, address: UserAddr) -> Result<(), NoFrames> {
        loop {
            let page = self.tables.lock().get(address);
            let Some((whole, FrameSize::Large)) = page else { return Ok(()) };
            let mut parts = Parts::of(whole)?;
            let mut stale = Stale::new(self.root);
            // Again if it was accessed for the first time, written to, or shown to Linux meanwhile.
            if self.tables.lock().split(address, &mut parts, &mut stale) {
                return Ok(());
            }
        }
    }

    /// Changes rights. [`MapError::NoMemory`] (ENOMEM) if there is a hole. Private memory that is
    /// locked and can be written to now is made present, as far as there is memory: that of a
    /// thread's stack, which the C library maps without rights at first.
    pub fn protect(
        &self,
        start: UserAddr,
        length: u64,
        protection: Protection,
    ) -> Result<(), MapError> {
        let range = pages_of(start, length)?;
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        let mut changes = self.changes();
        changes.admit_rights(&range, protection)?;
        self.split_edges(&range)?;
        changes.apply(|regions| regions.protect(range.start, length, protection))?;
        let mut reduced = Collected::new();
        let mut at = range.start;
        while at < range.end {
            // Dropped, and so settled, after the lock.
            let mut stale = Stale::new(self.root);
            'batch: for _ in 0..BATCH / RIGHTS_STEP {
                let mut tables = self.tables.lock();
                let mut steps = Steps::of_section();
                for _ in 0..RIGHTS_STEP {
                    let scan = tables.scan(at..range.end, &mut steps);
                    let Some((address, entry, size)) = scan.page(&mut at) else { break 'batch };
                    steps.take_page();
                    // The first write to a page with other users asks for a copy.
                    let mut rights = protection;
                    if frames::is_retired(entry.frame()) {
                        rights = Protection::empty();
                    }
                    if rights.contains(Protection::WRITE)
                        && size == FrameSize::Small
                        && frames::is_shared(entry.frame())
                    {
                        rights.remove(Protection::WRITE);
                    }
                    let before = tables.protect(address, rights, &mut stale);
                    let before = before.unwrap_or(entry).flags();
                    let loses_write =
                        before.contains(Flags::WRITE) && !protection.contains(Protection::WRITE);
                    let loses_all = before.contains(Flags::USER) && protection.is_empty();
                    if before.contains(Flags::EXPOSED) && (loses_write || loses_all) {
                        reduced.extend(address..at);
                    }
                }
            }
        }
        if let Some(pages) = reduced.finish() {
            self.revoke.revoke(pages);
        }
        drop(changes);
        if protection.contains(Protection::WRITE) {
            self.populate_locked(range);
        }
        Ok(())
    }

    /// Changes what a forked process gets of a range. [`MapError::NoMemory`] if there is a hole.
    pub fn set_on_fork(
        &self,
        start: UserAddr,
        length: u64,
        set: impl Fn(&mut OnFork),
    ) -> Result<(), MapError> {
        let Range { start, end } = pages_of(start, length)?;
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        self.changes().apply(|regions| regions.set_on_fork(start, end - start, &set))
    }

    /// Locks a range, or unlocks it. [`MapError::NoMemory`] if there is a hole.
    pub fn lock(&self, start: UserAddr, length: u64, lock: Lock) -> Result<(), MapError> {
        let Range { start, end } = pages_of(start, length)?;
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        self.changes().apply(|regions| regions.lock(start, end - start, lock))
    }

    /// Locks all that is mapped, or unlocks it.
    pub fn lock_all(&self, lock: Lock) -> Result<(), MapError> {
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        self.changes().apply(|regions| {
            regions.lock_all(lock);
            Ok(())
        })
    }

    /// Gives up the contents of a range (MADV_DONTNEED): it reads as zero afterwards.
    /// [`MapError::Invalid`] at memory that is locked, unless that is to go as well; what lies
    /// before it is given up. [`MapError::NoMemory`] if there is a hole; all else is given up.
    pub fn discard(&self, start: UserAddr, length: u64, even_locked: bool) -> Result<(), MapError> {
        let range = pages_of(start, length)?;
        let changes = self.changes();
        let end = if even_locked { range.end } else { self.next_locked(&range) };
        if end > range.start {
            self.sweep(range.start..end, &mut |pages| self.have_let_go(pages))?;
        }
        match changes.regions.is_mapped(range.start, range.end) {
            _ if end < range.end => Err(MapError::Invalid),
            true => Ok(()),
            false => Err(MapError::NoMemory),
        }
    }

    /// Says whether a part of a range is locked.
    pub fn is_locked(&self, start: UserAddr, length: u64) -> bool {
        let end = start + length;
        self.next_locked(&(start..end)) < end
    }

    /// Where in a range memory begins that does not have these rights; its end if all has.
    pub fn next_without(&self, start: UserAddr, length: u64, rights: Protection) -> UserAddr {
        let range = start..start + length;
        let first = self.first_region(&range, |region| !region.protection().contains(rights));
        first.map_or(range.end, |region| region.start.max(range.start))
    }

    /// Where in a range memory begins that is locked; its end if none is.
    fn next_locked(&self, range: &Range<UserAddr>) -> UserAddr {
        let first = self.first_region(range, |region| region.attributes.lock.is_locked());
        first.map_or(range.end, |region| region.start.max(range.start))
    }

    /// Maps the shared memory at `start` a second time (mremap with an old length of 0).
    /// [`MapError::Invalid`] if it is private, [`MapError::Fault`] if it is of a link,
    /// [`MapError::NoMemory`] if it may not be elsewhere.
    pub fn map_again(&self, start: UserAddr, length: u64, to: Move) -> Result<UserAddr, MapError> {
        let region = self.layout.lock().regions.find(start).ok_or(MapError::Fault)?;
        let Attributes { protection, kind, backing, .. } =
            region.attributes.from(start - region.start);
        let backing = backing.filter(|backing| backing.shared).ok_or(MapError::Invalid)?;
        if backing.object.is_link() {
            return Err(MapError::Fault);
        }
        let placement = match to {
            Move::No => return Err(MapError::NoMemory),
            Move::To(target) => Placement::Fixed(target),
            _ => Placement::Anywhere { hint: UserAddr::NULL },
        };
        let map = Map::private(placement, length, protection);
        self.map(Map { kind, backing: Some(backing), ..map })
    }

    /// Gives up the contents of shared memory for everybody (MADV_REMOVE): it reads as zero
    /// afterwards. [`MapError::Invalid`] if a part is private or locked.
    pub fn punch(&self, start: UserAddr, length: u64) -> Result<(), MapError> {
        let range = pages_of(start, length)?;
        let mut at = range.start;
        while at < range.end {
            let region = self.layout.lock().regions.find(at).ok_or(MapError::NoMemory)?;
            let end = region.end.min(range.end);
            match region.object_at(at) {
                _ if region.attributes.lock.is_locked() => return Err(MapError::Invalid),
                Some((object, offset)) if region.attributes.is_shared() => {
                    if !region.attributes.may_write() {
                        return Err(MapError::Access);
                    }
                    object.zero(offset, offset + (end - at))?;
                }
                Some((object, _)) if object.limit() != u64::MAX => return Err(MapError::Access),
                _ => return Err(MapError::Invalid),
            }
            at = end;
        }
        Ok(())
    }

    /// Moves or resizes a mapping (mremap). A mapping of a file does not become longer: what
    /// follows in the file was not read. Where the pages are Linux's, a mirror has to show them.
    pub fn remap(
        &self,
        start: UserAddr,
        old_length: u64,
        new_length: u64,
        to: Move,
    ) -> Result<UserAddr, MapError> {
        let fixed = if let Move::To(target) = to { Some(target) } else { None };
        let stays = matches!(to, Move::Pages { .. });
        let old = pages_of(start, old_length)?;
        let new_length = pages_of(UserAddr::NULL, new_length)?.end.get();
        let old_length = old.end - old.start;
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        let mut changes = self.changes();
        let region = changes.regions.find(old.start).ok_or(MapError::Fault)?;
        // What only becomes shorter may consist of several regions.
        if new_length <= old_length && fixed.is_none() && !stays {
            if new_length < old_length {
                changes.unmap(old.start + new_length..old.end)?;
            }
            return Ok(start);
        }
        if region.end < old.end && new_length >= old_length {
            return Err(MapError::Fault);
        }
        let is_limited = |object: &Object| {
            object.is_link() || object.limit() != u64::MAX && !object.is_of_no_file()
        };
        if let Some(backing) =
            region.attributes.backing.as_ref().filter(|backing| is_limited(&backing.object))
            && new_length > old_length
        {
            // Linux says so of what must not grow.
            return Err(if backing.object.is_link() {
                MapError::Fault
            } else {
                MapError::NoMemory
            });
        }
        if new_length > old_length {
            let replaced = fixed.map_or(NOTHING, |target| target..target + new_length);
            changes.admit(new_length - old_length, &region.attributes, &replaced)?;
        }
        if let Move::Pages { to, replaces } = to {
            return changes.move_pages(old, &region, to, replaces);
        }
        if let Some(target) = fixed {
            let new = pages_of(target, new_length)?;
            if new.start < old.end && old.start < new.end {
                return Err(MapError::Invalid);
            }
            if !changes.regions.is_allowed(new.start, new_length) {
                return Err(MapError::Denied);
            }
        }
        if new_length < old_length {
            changes.unmap(old.start + new_length..old.end)?;
        }
        let kept = old.start..old.end.min(old.start + new_length);
        let region = changes.regions.find(old.start).ok_or(MapError::Fault)?;
        if region.end < kept.end {
            return Err(MapError::Fault);
        }
        if let Some(target) = fixed {
            let new = target..target + new_length;
            changes.begin([kept.clone(), new.clone()]);
            changes.clear(new)?;
            return changes.move_region(kept, &region, (target, new_length), false);
        }
        let more = new_length - old_length;
        let attributes = region.attributes.from(old.end - region.start);
        if changes.apply(|regions| regions.insert(old.end, more, attributes.clone())).is_ok() {
            drop(changes);
            if region.attributes.lock == Lock::Present
                && let Err(error) = self.lock_present(old.end, more)
            {
                self.unmap(old.end, more)?;
                return Err(error);
            }
            return Ok(start);
        }
        if to == Move::No {
            return Err(MapError::NoMemory);
        }
        let target = changes.room(new_length, FRAME_SIZE)?;
        changes.begin([kept.clone(), target..target + new_length]);
        changes.move_region(kept, &region, (target, new_length), false)
    }

    /// Sets where the heap starts (exec); the break is there then.
    pub fn set_brk_start(&self, start: UserAddr) {
        let mut layout = self.layout.lock();
        layout.heap_start = start;
        layout.heap_end = start;
    }

    /// Sets where mappings go (exec): downwards from `top`, a multiple of the page size.
    pub fn set_mmap_top(&self, top: UserAddr) {
        self.layout.lock().mmap_top = top;
    }

    /// Where mappings go.
    pub fn mmap_top(&self) -> UserAddr {
        self.layout.lock().mmap_top
    }

    /// `brk`: returns the new break, or the old one if `address` is not possible.
    pub fn brk(&self, address: UserAddr) -> UserAddr {
        let mut changes = self.changes();
        let (start, old, lock) = {
            let layout = self.layout.lock();
            (layout.heap_start, layout.heap_end, layout.future)
        };
        let (Some(old_page), Some(new_page)) = (old.page_up(), address.page_up()) else {
            return old;
        };
        if address < start || !heap::has_reserve() {
            return old;
        }
        if new_page > old_page {
            let rights = Protection::READ | Protection::WRITE;
            let attributes = Attributes { lock, ..Attributes::plain(rights, Kind::Heap) };
            let more = new_page - old_page;
            if changes.admit(more, &attributes, &NOTHING).is_err() {
                return old;
            }
            if changes.apply(|regions| regions.insert(old_page, more, attributes.clone())).is_err()
            {
                return old;
            }
        }
        if new_page < old_page && changes.unmap(new_page..old_page).is_err() {
            return old;
        }
        self.layout.lock().heap_end = address;
        drop(changes);
        if lock == Lock::Present
            && new_page > old_page
            && self.populate(old_page, new_page - old_page).is_err()
        {
            // As under Linux: the break has moved; what is missing comes on demand.
            return address;
        }
        address
    }
}

impl Changes<'_> {
    /// Moves the pages of `old`, a part of `region`, which stays mapped (MREMAP_DONTUNMAP).
    fn move_pages(
        mut self,
        old: Range<UserAddr>,
        region: &Region,
        to: UserAddr,
        replaces: bool,
    ) -> Result<UserAddr, MapError> {
        let length = old.end - old.start;
        if region.attributes.backing.as_ref().is_some_and(|backing| backing.object.is_fixed()) {
            return Err(MapError::Invalid);
        }
        let end = to.checked_add(length).filter(|&end| end <= UserAddr::END);
        let end = end.ok_or(MapError::Invalid)?;
        if to < old.end && old.start < end {
            return Err(MapError::Invalid);
        }
        let attributes = Attributes { lock: Lock::None, ..region.attributes.clone() };
        self.admit(length, &attributes, &if replaces { to..end } else { NOTHING })?;
        let target = match self.hinted(to, length, FRAME_SIZE) {
            _ if replaces => to,
            Some(target) => target,
            None => self.room(length, FRAME_SIZE)?,
        };
        if !self.regions.is_allowed(target, length) {
            return Err(MapError::Denied);
        }
        let new = target..target + length;
        self.begin([old.clone(), new.clone()]);
        if replaces {
            self.clear(new)?;
        }
        self.move_region(old, region, (target, length), true)
    }
}

/// Makes room for `more` entries, and waits for memory if there is none: what was unmapped must not
/// be lost.
fn reserve<T>(list: &mut Vec<T>, more: usize) {
    while list.try_reserve(more).is_err() {
        task::sleep_until(crate::time::now() + Nanos::from_millis(1));
    }
}
