// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that devices reach: they stay what they are until they are given back, whatever their
//! program does meanwhile.
//!
//! A pin is one more use of a page. So the page outlives what is mapped there, the program itself,
//! and the time until Linux has let it go.

use super::fault::lookup;
use super::{Access, AddressSpace, FaultError, MapError};
use crate::mm::{frames, heap};
use crate::task;
use alloc::collections::{BTreeMap, btree_map::OccupiedEntry};
use alloc::sync::Arc;
use core::mem;
use core::sync::atomic::{AtomicU64, Ordering};
use crtos_abi::UserAddr;
use crtos_vm::{FRAME_SIZE, Frame, FrameSize, Protection};

/// Pages of a program, as many as were asked for. They are given back when this is dropped.
pub struct Pinned {
    /// Pages that lie one behind the other: at which page they begin, the first one, and how many.
    /// In a list, as many as a program can have would be more than the heap gives in one piece.
    runs: BTreeMap<u64, (Frame, u64)>,
    /// Bytes that the program has pinned, these among them.
    of_program: Arc<AtomicU64>,
}

impl AddressSpace {
    /// Bytes that are pinned.
    pub fn pinned(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Pins the pages of `length` bytes from `start` on, both multiples of the page size; to be
    /// written to, if `write` says so. [`MapError::Fault`] if the program may not do that itself,
    /// or if it is no memory. Preemptible. Thread context; may sleep.
    pub fn pin(&self, start: UserAddr, length: u64, write: bool) -> Result<Pinned, MapError> {
        let end = start.checked_add(length).filter(|&end| end <= UserAddr::END);
        let end = end.ok_or(MapError::Fault)?;
        let mut pinned = Pinned { runs: BTreeMap::new(), of_program: self.pinned.clone() };
        let mut at = start;
        while at < end {
            if !heap::has_reserve() {
                return Err(MapError::NoMemory);
            }
            pinned.add(self.pin_page(at, write)?);
            at += FRAME_SIZE;
            task::reschedule_point();
        }
        Ok(pinned)
    }

    /// Counts one more use of the page at `address`. If the program may write to it, it has that
    /// page alone from now on, and not a copy once it writes. A page of 2 MiB becomes small ones:
    /// only these have uses, and are given back one by one.
    fn pin_page(&self, address: UserAddr, write: bool) -> Result<Frame, MapError> {
        loop {
            let region = self.region_at(address).ok_or(MapError::Fault)?;
            let writable = region.protection().contains(Protection::WRITE);
            let access = if write || writable { Access::Write } else { Access::Read };
            {
                let mut tables = self.tables.lock();
                let is_small = matches!(tables.get(address), Some((_, FrameSize::Small)));
                if is_small && let Some(page) = lookup(&tables, address, access) {
                    if write && !page.dirty {
                        // No processor will note what the device writes.
                        tables.mark_dirty(address);
                    }
                    return frames::pin(page.frame).then_some(page.frame).ok_or(MapError::Fault);
                }
            }
            self.split(address)?;
            self.fault_in(address, access).map_err(|error| match error {
                FaultError::NoMemory => MapError::NoMemory,
                _ => MapError::Fault,
            })?;
        }
    }
}

impl Pinned {
    /// Adds a page, of which the caller has a use.
    fn add(&mut self, frame: Frame) {
        self.of_program.fetch_add(FRAME_SIZE, Ordering::Relaxed);
        let end = self.pages();
        match self.runs.last_entry().map(OccupiedEntry::into_mut) {
            Some((first, pages)) if first.0 + *pages * FRAME_SIZE == frame.0 => *pages += 1,
            _ => _ = self.runs.insert(end, (frame, 1)),
        }
    }

    /// How many pages there are.
    pub fn pages(&self) -> u64 {
        self.runs.last_key_value().map_or(0, |(begin, (_, pages))| begin + pages)
    }

    /// Pieces of at most `most` pages that lie one behind the other: at which page each begins, its
    /// first frame, its pages.
    pub(crate) fn pieces(&self, most: u64) -> impl Iterator<Item = (u64, Frame, u64)> {
        self.runs.iter().flat_map(move |(&start, &(first, pages))| {
            (0..pages).step_by(most as usize).map(move |page| {
                let frame = Frame(first.0 + page * FRAME_SIZE);
                (start + page, frame, most.min(pages - page))
            })
        })
    }

    /// Never gives the pages back: a device may reach them for ever.
    pub(crate) fn lose(mut self) {
        mem::take(&mut self.runs);
    }
}

impl Drop for Pinned {
    /// Preemptible between pages.
    fn drop(&mut self) {
        for &(first, pages) in self.runs.values() {
            for page in 0..pages {
                frames::release(Frame(first.0 + page * FRAME_SIZE), FrameSize::Small);
                task::reschedule_point();
            }
            self.of_program.fetch_sub(pages * FRAME_SIZE, Ordering::Relaxed);
        }
    }
}
