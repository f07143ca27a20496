// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of Linux in programs: they come when they are touched or asked for, a few at a time, and
//! go when their file has lost them.

use super::revoke::Collected;
use super::{AddressSpace, FaultError, MapError};
use crate::arch::paging::{Scan, Steps};
use crate::arch::tlb::Stale;
use crate::mm::frames::{self, OwnedPage};
use crate::mm::object::Object;
use crate::mm::window::{self, Place};
use core::ops::Range;
use crtos_abi::UserAddr;
use crtos_abi::channel::MOST_SHARED_PAGES;
use crtos_vm::{FRAME_SIZE, Frame, FrameSize};

/// Most pages that are asked for at a time.
const PAGES: usize = MOST_SHARED_PAGES as usize;
/// The same in bytes; what is asked for does not cross a multiple of that.
const AHEAD: u64 = MOST_SHARED_PAGES * FRAME_SIZE;
/// Pages that are taken out of the tables at a time.
const BATCH: usize = 6;

/// Pages of a mirror that Linux is to share.
pub struct Shared {
    /// Where the mirror begins.
    pub mirror: UserAddr,
    /// The first of them, by its number in the mirror.
    pub page: u64,
    /// Address in the cell of a page with the addresses of the places.
    pub places: u64,
    /// How many.
    pub count: u32,
    /// The program may write to them.
    pub writes: bool,
    /// Those that the file does not have yet are made.
    pub all: bool,
}

/// Places at which Linux is to put pages.
struct Places {
    /// A page with the addresses of the places.
    list: OwnedPage,
    places: [Option<Place>; PAGES],
}

impl Places {
    /// As many places, or fewer, but at least one. Not under a lock.
    fn new(most: usize) -> Result<Self, MapError> {
        let mut places = [const { None }; PAGES];
        let mut list = [0; PAGES * size_of::<u64>()];
        for (free, word) in places.iter_mut().zip(list.chunks_exact_mut(8)).take(most) {
            let Some(place) = Place::take() else { break };
            word.copy_from_slice(&place.frame().0.to_le_bytes());
            *free = Some(place);
        }
        if places[0].is_none() {
            return Err(MapError::NoMemory);
        }
        let list = frames::filled_page(&list).ok_or(MapError::NoMemory)?;
        Ok(Self { list, places })
    }

    fn count(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Puts the pages at the first `count` places at `offset` of `object`. The other places are
    /// free.
    fn put(self, object: &Object, offset: u64, count: usize) -> Result<(), MapError> {
        let offsets = (offset..).step_by(FRAME_SIZE as usize);
        let pages = self.places.into_iter().take(count).flatten().map(Place::into_page);
        // Those that are not put are given up.
        pages
            .zip(offsets)
            .map(|(page, offset)| object.put(offset, page, None))
            .fold(Ok(()), Result::and)
    }
}

impl AddressSpace {
    /// Has Linux share the page at `offset` of `object`, and some behind it. No lock is held.
    /// Sleeps for as long as Linux takes. [`FaultError::Beyond`] where the file has none.
    pub(super) fn bring_in_shared(
        &self,
        object: &Object,
        offset: u64,
        writes: bool,
    ) -> Result<(), FaultError> {
        let (mirror, _, part) = self.mirror_of(object, offset).ok_or(FaultError::Beyond)?;
        let _loading = object.loading();
        let end = ((offset & !(AHEAD - 1)) + AHEAD).min(part.end);
        let missing = object.missing(offset..end, AHEAD);
        let Some(missing) = missing.filter(|missing| missing.start == offset) else {
            return Ok(());
        };
        let most = (missing.end - missing.start) / FRAME_SIZE;
        let places = Places::new(most as usize).map_err(|_| FaultError::NoMemory)?;
        let wanted = places.count();
        let shared = Shared {
            mirror,
            page: (offset - part.start) / FRAME_SIZE,
            places: places.list.frame().0,
            count: wanted as u32,
            writes,
            all: self.populates_files(),
        };
        let result = match self.revoke.share(&shared) {
            Some(count @ 1..) => places.put(object, offset, wanted.min(count as usize)),
            Some(EFAULT) => return Err(FaultError::Beyond),
            Some(_) => return Err(FaultError::NoMemory),
            None => {
                // Linux may have put pages there.
                places.places.into_iter().flatten().map(Place::into_page).for_each(drop);
                return Err(FaultError::Beyond);
            }
        };
        // What was lost before it was put was not found here.
        object.recall(missing);
        result.map_err(|_| FaultError::NoMemory)
    }

    /// Takes pages of Linux out of the tables that their files have lost: who touches them asks
    /// Linux again. Thread context; may sleep.
    pub fn withdraw_recalled(&self) {
        let changes = self.changes();
        let mut at = UserAddr::NULL;
        while let Some(region) = self.next_region(at) {
            at = region.end;
            let object = region.object_at(region.start);
            let is_linuxs = object.is_some_and(|(object, _)| object.is_linuxs());
            if is_linuxs {
                self.take_places(region.start..region.end, window::is_recalled);
            }
        }
        drop(changes);
    }

    /// Takes pages of Linux out of the tables in `range`, those that are `meant`. Preemptible
    /// between batches.
    pub(super) fn take_places(&self, range: Range<UserAddr>, meant: impl Fn(Frame) -> bool) {
        let mut at = range.start;
        while at < range.end {
            let mut exposed = Collected::new();
            let mut unknown = [None; BATCH];
            let mut stale = Stale::new(self.root);
            if exposed.pages.try_reserve(BATCH).is_err() {
                crate::task::sleep_until(crate::time::now() + crate::time::Nanos::from_millis(1));
                continue;
            }
            {
                let mut tables = self.tables.lock();
                let mut steps = Steps::of_section();
                for free in &mut unknown {
                    let (address, entry) = match tables.scan(at..range.end, &mut steps) {
                        Scan::Page(address, entry, _) => (address, entry),
                        Scan::Continue(next) => {
                            at = next;
                            break;
                        }
                    };
                    at = address + FRAME_SIZE;
                    steps.take_page();
                    if !window::contains(entry.frame()) || !meant(entry.frame()) {
                        continue;
                    }
                    // Take it before looking: a fault of Linux may have exposed it meanwhile.
                    let taken = tables.take(address, &mut stale);
                    let entry = taken.map_or(entry, |(entry, _)| entry);
                    if entry.flags().contains(crtos_vm::Flags::EXPOSED) {
                        exposed.add(self, address..at, (entry.frame(), FrameSize::Small));
                    } else {
                        self.count_out(FRAME_SIZE);
                        *free = Some(entry.frame());
                    }
                }
            }
            stale.settle();
            for frame in unknown.into_iter().flatten() {
                frames::release(frame, FrameSize::Small);
            }
            if let Some(pages) = exposed.finish() {
                self.revoke.revoke(pages);
            }
        }
    }
}

/// EFAULT of Linux.
const EFAULT: i64 = -14;
