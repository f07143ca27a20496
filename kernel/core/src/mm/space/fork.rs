// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a forked process.
//!
//! What the parent may write is copied at once, so that its own pages stay as they are and no later
//! write of it faults: but for pages that nobody has written to since they were cleared, which the
//! child gets when it touches them. Pages that the parent may not write now are used by both;
//! shared memory stays shared. What the parent has so marked (madvise) is left out, or empty.

use super::{AddressSpace, FaultError, MapError, Region};
use crate::arch::paging::{Scan, Steps};
use crate::mm::frames::OwnedPage;
use crate::mm::{frames, heap};
use crate::task;
use core::sync::atomic::Ordering;
use crtos_abi::UserAddr;
use crtos_vm::{Entry, FRAME_SIZE, Flags, Frame, FrameSize, Lock, Protection};

impl AddressSpace {
    /// Makes this space, which is empty and nobody uses yet, a copy of `parent`. Threads of the
    /// parent that change what is mapped wait; others go on, and the copy may have some of what
    /// they write. Returns whether something is left out. Thread context; preemptible.
    pub fn copy_from(&self, parent: &AddressSpace) -> Result<bool, MapError> {
        let _changes = parent.changes();
        {
            // The child's shadow inherits them.
            let from = parent.mirrors.lock();
            let mut to = self.mirrors.lock();
            to.try_reserve(from.len()).map_err(|_| MapError::NoMemory)?;
            to.extend(from.iter().cloned());
        }
        self.barriers.store(parent.barriers.load(Ordering::Relaxed), Ordering::Relaxed);
        {
            let from = parent.layout.lock();
            let mut to = self.layout.lock();
            to.heap_start = from.heap_start;
            to.heap_end = from.heap_end;
            to.mmap_top = from.mmap_top;
        }
        let mut changes = self.changes();
        let (mut at, mut is_partial) = (UserAddr::NULL, false);
        while let Some(region) = parent.next_region(at) {
            at = region.end;
            let on_fork = region.attributes.on_fork;
            if on_fork.omitted {
                is_partial = true;
                continue;
            }
            if !heap::has_reserve() {
                return Err(MapError::NoMemory);
            }
            // Locks are not inherited.
            let mut attributes = region.attributes.clone();
            attributes.lock = Lock::None;
            changes.apply(|regions| {
                regions.insert(region.start, region.length(), attributes.clone())
            })?;
            // What is shared is found in its object.
            if !region.attributes.is_shared() && !on_fork.cleared {
                self.copy_pages(parent, &region)?;
            }
        }
        Ok(is_partial)
    }

    fn copy_pages(&self, parent: &AddressSpace, region: &Region) -> Result<(), MapError> {
        let mut at = region.start;
        while at < region.end {
            let scan = {
                let tables = parent.tables.lock();
                match tables.scan(at..region.end, &mut Steps::of_section()) {
                    Scan::Page(address, entry, size) if entry.is_untouched() => {
                        Scan::Continue((address + size.bytes()).min(region.end))
                    }
                    // It stays while it is looked at.
                    Scan::Page(address, entry, FrameSize::Small) => frames::share(entry.frame())
                        .then_some(Scan::Page(address, entry, FrameSize::Small))
                        .ok_or(MapError::NoMemory)?,
                    other => other,
                }
            };
            match scan {
                Scan::Page(address, entry, FrameSize::Small) => {
                    at = address + FRAME_SIZE;
                    self.take_over(address, entry, region.protection())?;
                }
                Scan::Page(address, entry, FrameSize::Large) => {
                    let first = at.max(address);
                    at = (address + FrameSize::Large.bytes()).min(region.end);
                    if at - first == FrameSize::Large.bytes()
                        && self.put_large_copy(first, entry.frame(), region.protection())?
                    {
                        continue;
                    }
                    for offset in (first - address..at - address).step_by(FRAME_SIZE as usize) {
                        let frame = Frame(entry.frame().0 + offset);
                        self.put_copy(address + offset, frame, region.protection())?;
                    }
                }
                Scan::Continue(next) => at = next,
            }
            task::reschedule_point();
        }
        Ok(())
    }

    /// Maps a page of the parent, of which the caller has a use, or a copy of it.
    fn take_over(
        &self,
        address: UserAddr,
        entry: Entry,
        mut protection: Protection,
    ) -> Result<(), MapError> {
        let frame = entry.frame();
        if entry.flags().contains(Flags::WRITE) {
            let copied = self.put_copy(address, frame, protection);
            frames::release(frame, FrameSize::Small);
            return copied;
        }
        protection.remove(Protection::WRITE);
        if frames::is_retired(frame) {
            protection = Protection::empty();
        }
        self.put_new(address, frame, protection)
    }

    fn put_copy(
        &self,
        address: UserAddr,
        from: Frame,
        protection: Protection,
    ) -> Result<(), MapError> {
        let copy = OwnedPage::copy_of(from).ok_or(MapError::NoMemory)?;
        self.put_new(address, copy.into_frame(), protection)
    }

    /// A copy of a page of 2 MiB; `false` if there is none free, or something is in the way.
    fn put_large_copy(
        &self,
        address: UserAddr,
        from: Frame,
        protection: Protection,
    ) -> Result<bool, MapError> {
        let copy = frames::evicting(|| frames::copied_page(from, FrameSize::Large));
        let Some(frame) = copy else { return Ok(false) };
        self.put_page(address, frame, FrameSize::Large, protection)
    }

    fn put_new(
        &self,
        address: UserAddr,
        frame: Frame,
        protection: Protection,
    ) -> Result<(), MapError> {
        let put = self.put_page(address, frame, FrameSize::Small, protection)?;
        put.then_some(()).ok_or(MapError::NoMemory)
    }

    /// Maps a page; `false` if something is in the way.
    fn put_page(
        &self,
        address: UserAddr,
        frame: Frame,
        size: FrameSize,
        protection: Protection,
    ) -> Result<bool, MapError> {
        let entry = Entry::user_page(frame, size, protection);
        self.put(address, entry, size).map_err(|error| match error {
            FaultError::NoMemory => MapError::NoMemory,
            _ => MapError::Fault,
        })
    }
}
