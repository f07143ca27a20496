// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address space of a process: its regions, page tables and pages.
//!
//! Pages come from the pool that Linux shares, cleared, when they are first touched or when they
//! are asked for in advance. Linux learns of a page by [`AddressSpace::expose`]; from then on the
//! page is not used for anything else before Linux let it go ([`Revoke`]).
//!
//! Three locks, taken in this order: `changes` serialises the calls that change what is mapped and
//! is held until Linux is told; `layout` protects the regions and is what a fault waits for;
//! `tables` is a spin lock around a bounded number of entries.

use super::frames::{self, SHARED};
use super::{heap, layout};
use crate::arch::paging::{NoFrames, Scan, Tables};
use crate::sync::SpinLock;
use crate::task::{self, Mutex};
use crate::time::Nanos;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crtos_abi::channel::{SHADOW_END, SHADOW_START, USER_END, USER_START};
use crtos_vm::{BLOCK_SIZE, Entry, FRAME_SIZE, Flags, Frame, FrameSize, Region, Regions};
pub use crtos_vm::{Kind, MapError, Placement, Protection};

/// Where mappings go by default: downwards from here. Above lie the stack and its gap, as under
/// Linux without randomisation.
pub const MMAP_TOP: u64 = 0x7fff_f7ff_f000;

/// Most bytes that a copy moves with interrupts off.
const COPY_STEP: u64 = 1024;
/// Most pages taken out of the tables at a time.
const BATCH: usize = 32;
/// Most pages of one [`Revoked`].
const REVOKE_LIMIT: usize = 4096;

/// A request to map memory.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// Where.
    pub placement: Placement,
    /// Bytes; rounded up to pages.
    pub length: u64,
    /// Rights.
    pub protection: Protection,
    /// What it is.
    pub kind: Kind,
    /// Fill it now (MAP_POPULATE, MAP_LOCKED); the whole space has its own switch,
    /// [`AddressSpace::set_populate`].
    pub populate: bool,
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Fetch an instruction.
    Execute,
}

impl Access {
    fn allowed_by(self, protection: Protection) -> bool {
        match self {
            Self::Read => !protection.is_empty(),
            Self::Write => protection.contains(Protection::WRITE),
            Self::Execute => protection.contains(Protection::EXECUTE),
        }
    }

    fn allowed_in(self, flags: Flags) -> bool {
        flags.contains(Flags::USER)
            && match self {
                Self::Read => true,
                Self::Write => flags.contains(Flags::WRITE),
                Self::Execute => !flags.contains(Flags::NO_EXECUTE),
            }
    }
}

/// Why an access is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// Nothing is mapped there (SEGV_MAPERR).
    Unmapped,
    /// It is mapped without that right (SEGV_ACCERR).
    Protected,
    /// The pool is used up.
    NoMemory,
}

/// A page that backs an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Address in the cell of the 4 KiB frame.
    pub frame: u64,
    /// A program may write to it.
    pub writable: bool,
}

/// The address is not that of memory of the program with that right, or memory ran out: EFAULT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadAddress;

/// A range whose pages Linux may still use: they are freed when this is dropped.
pub struct Revoked {
    /// Start of the range, page aligned.
    pub start: u64,
    /// Bytes, a multiple of the page size.
    pub length: u64,
    pages: Vec<(Frame, FrameSize)>,
}

impl Drop for Revoked {
    fn drop(&mut self) {
        for &(frame, size) in &self.pages {
            SHARED.free(frame, size);
        }
    }
}

/// Told of pages that Linux was given and must let go.
pub trait Revoke: Send + Sync {
    /// The range was unmapped or its rights were reduced. The implementor posts a drop and keeps
    /// `pages` until Linux has carried it out. Thread context; may sleep; must not change what is
    /// mapped in the space, but may copy and resolve faults. Called before the call that unmapped
    /// returns.
    fn revoke(&self, pages: Revoked);
}

struct Layout {
    regions: Regions,
    heap_start: u64,
    heap_end: u64,
    populate: bool,
}

/// An address space.
pub struct AddressSpace {
    revoke: Box<dyn Revoke>,
    changes: Mutex<()>,
    layout: Mutex<Layout>,
    tables: SpinLock<Tables>,
    root: Frame,
    present: AtomicU64,
}

impl From<NoFrames> for MapError {
    fn from(_: NoFrames) -> Self {
        Self::NoMemory
    }
}

const fn page_up(value: u64) -> Option<u64> {
    match value.checked_add(FRAME_SIZE - 1) {
        Some(sum) => Some(sum & !(FRAME_SIZE - 1)),
        None => None,
    }
}

/// The pages of `start..start + length` if `start` is aligned and the length neither 0 nor out of
/// range.
fn pages_of(start: u64, length: u64) -> Result<Range<u64>, MapError> {
    let length = page_up(length).ok_or(MapError::NoMemory)?;
    let end = start.checked_add(length).ok_or(MapError::Invalid)?;
    if !start.is_multiple_of(FRAME_SIZE) || length == 0 || end > USER_END {
        return Err(MapError::Invalid);
    }
    Ok(start..end)
}

/// Pages taken out of the tables that Linux knows, until they are told.
struct Collected {
    range: Option<Range<u64>>,
    pages: Vec<(Frame, FrameSize)>,
}

impl Collected {
    const fn new() -> Self {
        Self { range: None, pages: Vec::new() }
    }

    fn extend(&mut self, range: Range<u64>) {
        let whole = self.range.take().unwrap_or_else(|| range.clone());
        self.range = Some(whole.start.min(range.start)..whole.end.max(range.end));
    }

    fn finish(self) -> Option<Revoked> {
        let Self { range, pages } = self;
        range.map(|range| Revoked { start: range.start, length: range.end - range.start, pages })
    }
}

impl AddressSpace {
    /// An empty one; `revoke` is told of pages that Linux must let go. Drop the last reference only
    /// when Linux has let go of everything (the shadow is gone): pages are freed at once,
    /// preemptibly.
    pub fn new(revoke: Box<dyn Revoke>) -> Result<Arc<Self>, MapError> {
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        let tables = Tables::new().ok_or(MapError::NoMemory)?;
        let root = tables.root();
        let regions = Regions::new(&[USER_START..SHADOW_START, SHADOW_END..USER_END]);
        Ok(Arc::new(Self {
            revoke,
            changes: Mutex::new(()),
            layout: Mutex::new(Layout { regions, heap_start: 0, heap_end: 0, populate: false }),
            tables: SpinLock::new(tables),
            root,
            present: AtomicU64::new(0),
        }))
    }

    /// The root of its page tables.
    pub fn root(&self) -> Frame {
        self.root
    }

    /// Maps; returns the address.
    pub fn map(&self, request: Map) -> Result<u64, MapError> {
        let Map { placement, length, protection, kind, populate } = request;
        let align = if kind == Kind::Large { BLOCK_SIZE } else { FRAME_SIZE };
        let length = match length {
            0 => return Err(MapError::Invalid),
            length => page_up(length)
                .ok_or(MapError::NoMemory)?
                .checked_next_multiple_of(align)
                .ok_or(MapError::NoMemory)?,
        };
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        let _changes = self.changes.lock();
        let mut layout = self.layout.lock();
        let mut revoked = Vec::new();
        let start = match placement {
            Placement::Anywhere { hint } => {
                let hint = hint & !(align - 1);
                if hint != 0
                    && layout.regions.is_allowed(hint, length)
                    && layout.regions.is_free(hint, length)
                {
                    hint
                } else {
                    layout.regions.find_free(length, align, MMAP_TOP).ok_or(MapError::NoMemory)?
                }
            }
            Placement::NoReplace(start) | Placement::Fixed(start) => {
                if start % align != 0 {
                    return Err(MapError::Invalid);
                }
                if start.checked_add(length).is_none_or(|end| end > USER_END) {
                    return Err(MapError::NoMemory);
                }
                if !layout.regions.is_allowed(start, length) {
                    return Err(MapError::Denied);
                }
                if matches!(placement, Placement::Fixed(_))
                    && !layout.regions.is_free(start, length)
                {
                    layout.regions.remove(start, length, |_| ())?;
                    self.sweep(start..start + length, &mut |pages| revoked.push(pages))?;
                }
                start
            }
        };
        layout.regions.insert(start, length, protection, kind)?;
        let locked = layout.populate;
        drop(layout);
        revoked.into_iter().for_each(|pages| self.revoke.revoke(pages));
        drop(_changes);
        if (populate || locked) && !protection.is_empty() {
            let result = self.populate(start, length);
            // MAP_POPULATE is a wish; memory that must be present and is not was not mapped.
            if locked && result.is_err() {
                self.unmap(start, length)?;
                return result.map(|()| start);
            }
        }
        Ok(start)
    }

    /// Unmaps all in the range; holes are fine.
    pub fn unmap(&self, start: u64, length: u64) -> Result<(), MapError> {
        let range = pages_of(start, length)?;
        let _changes = self.changes.lock();
        self.unmap_locked(range)
    }

    fn unmap_locked(&self, range: Range<u64>) -> Result<(), MapError> {
        self.layout.lock().regions.remove(range.start, range.end - range.start, |_| ())?;
        self.sweep(range, &mut |pages| self.revoke.revoke(pages))
    }

    /// Takes all pages of `range` out of the tables: frees those that Linux does not know and hands
    /// the others to `revoke`. Preemptible between batches.
    fn sweep(&self, range: Range<u64>, revoke: &mut dyn FnMut(Revoked)) -> Result<(), MapError> {
        {
            let mut tables = self.tables.lock();
            for edge in [range.start, range.end] {
                if edge % BLOCK_SIZE != 0 {
                    tables.split(edge)?;
                }
            }
        }
        let mut collected = Collected::new();
        let mut at = range.start;
        while at < range.end {
            reserve(&mut collected.pages, BATCH);
            let mut unknown = [None; BATCH];
            let mut tables = self.tables.lock();
            for free in &mut unknown {
                match tables.scan(at..range.end) {
                    Scan::Page(address, entry, size) => {
                        at = address + size.bytes();
                        // Take it before looking: a fault of Linux may have exposed it meanwhile.
                        let entry = tables.take(address).map_or(entry, |(entry, _)| entry);
                        self.present.fetch_sub(size.bytes(), Ordering::Relaxed);
                        if entry.flags().contains(Flags::EXPOSED) {
                            collected.extend(address..at);
                            collected.pages.push((entry.frame(), size));
                        } else {
                            *free = Some((entry.frame(), size));
                        }
                    }
                    Scan::Continue(next) => {
                        at = next;
                        break;
                    }
                }
            }
            drop(tables);
            unknown.into_iter().flatten().for_each(|(frame, size)| SHARED.free(frame, size));
            if collected.pages.len() + BATCH > REVOKE_LIMIT
                && let Some(pages) = core::mem::replace(&mut collected, Collected::new()).finish()
            {
                revoke(pages);
            }
        }
        if let Some(pages) = collected.finish() {
            revoke(pages);
        }
        let mut at = range.start;
        while at < range.end {
            at = self.tables.lock().prune(at..range.end);
        }
        Ok(())
    }

    /// Changes rights. [`MapError::NoMemory`] (ENOMEM) if there is a hole.
    pub fn protect(&self, start: u64, length: u64, protection: Protection) -> Result<(), MapError> {
        let range = pages_of(start, length)?;
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        let _changes = self.changes.lock();
        {
            let mut tables = self.tables.lock();
            for edge in [range.start, range.end] {
                if edge % BLOCK_SIZE != 0 {
                    tables.split(edge)?;
                }
            }
        }
        self.layout.lock().regions.protect(range.start, range.end - range.start, protection)?;
        let mut reduced = Collected::new();
        let mut at = range.start;
        while at < range.end {
            let mut tables = self.tables.lock();
            for _ in 0..BATCH {
                match tables.scan(at..range.end) {
                    Scan::Page(address, entry, size) => {
                        at = address + size.bytes();
                        let before = tables.protect(address, protection).unwrap_or(entry).flags();
                        let loses_write = before.contains(Flags::WRITE)
                            && !protection.contains(Protection::WRITE);
                        let loses_all = before.contains(Flags::USER) && protection.is_empty();
                        if before.contains(Flags::EXPOSED) && (loses_write || loses_all) {
                            reduced.extend(address..at);
                        }
                    }
                    Scan::Continue(next) => {
                        at = next;
                        break;
                    }
                }
            }
        }
        if let Some(range) = reduced.finish() {
            self.revoke.revoke(range);
        }
        Ok(())
    }

    /// Gives up the contents of a range (MADV_DONTNEED): it reads as zero afterwards.
    pub fn discard(&self, start: u64, length: u64) -> Result<(), MapError> {
        let range = pages_of(start, length)?;
        let _changes = self.changes.lock();
        if !self.layout.lock().regions.is_mapped(range.start, range.end) {
            return Err(MapError::NoMemory);
        }
        self.sweep(range, &mut |pages| self.revoke.revoke(pages))
    }

    /// Moves or resizes a mapping (mremap). `fixed` replaces what is there.
    pub fn remap(
        &self,
        start: u64,
        old_length: u64,
        new_length: u64,
        may_move: bool,
        fixed: Option<u64>,
    ) -> Result<u64, MapError> {
        let old = pages_of(start, old_length)?;
        let new_length = pages_of(0, new_length)?.end;
        let old_length = old.end - old.start;
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        let _changes = self.changes.lock();
        let region = self
            .layout
            .lock()
            .regions
            .find(old.start)
            .filter(|region| region.end >= old.end)
            .ok_or(MapError::Fault)?;
        if let Some(target) = fixed {
            let new = pages_of(target, new_length)?;
            if !may_move || (new.start < old.end && old.start < new.end) {
                return Err(MapError::Invalid);
            }
            if !self.layout.lock().regions.is_allowed(new.start, new_length) {
                return Err(MapError::Denied);
            }
            self.unmap_locked(new)?;
        }
        if new_length < old_length {
            self.unmap_locked(old.start + new_length..old.end)?;
        }
        let kept = old.start..old.end.min(old.start + new_length);
        if fixed.is_none() {
            if new_length <= old_length {
                return Ok(start);
            }
            let mut layout = self.layout.lock();
            let more = new_length - old_length;
            if layout.regions.insert(old.end, more, region.protection, region.kind).is_ok() {
                let populate = layout.populate;
                drop(layout);
                drop(_changes);
                if populate && let Err(error) = self.populate(old.end, more) {
                    self.unmap(old.end, more)?;
                    return Err(error);
                }
                return Ok(start);
            }
            if !may_move {
                return Err(MapError::NoMemory);
            }
        }
        self.move_pages(kept, region, new_length, fixed)
    }

    /// Moves the pages of `kept` to a new place of `new_length` bytes. `changes` is held.
    fn move_pages(
        &self,
        kept: Range<u64>,
        region: Region,
        new_length: u64,
        fixed: Option<u64>,
    ) -> Result<u64, MapError> {
        let mut layout = self.layout.lock();
        let target = match fixed {
            Some(target) => target,
            None => layout
                .regions
                .find_free(new_length, FRAME_SIZE, MMAP_TOP)
                .ok_or(MapError::NoMemory)?,
        };
        // Everything that can fail comes first. Large pages move as small ones.
        for block in (kept.start & !(BLOCK_SIZE - 1)..kept.end).step_by(BLOCK_SIZE as usize) {
            self.tables.lock().split(block.max(kept.start))?;
        }
        let end = target + (kept.end - kept.start);
        for block in (target & !(BLOCK_SIZE - 1)..end).step_by(BLOCK_SIZE as usize) {
            self.tables.lock().reserve(block.max(target))?;
        }
        let kind = if region.kind == Kind::Large { Kind::Anonymous } else { region.kind };
        layout.regions.insert(target, new_length, region.protection, kind)?;
        layout.regions.remove(kept.start, kept.end - kept.start, |_| ())?;
        let mut exposed = Collected::new();
        let mut at = kept.start;
        while at < kept.end {
            let mut tables = self.tables.lock();
            match tables.scan(at..kept.end) {
                Scan::Page(address, ..) => {
                    at = address + FRAME_SIZE;
                    if let Some((entry, size)) = tables.take(address) {
                        if entry.flags().contains(Flags::EXPOSED) {
                            exposed.extend(address..at);
                        }
                        tables.map(target + (address - kept.start), size, entry)?;
                    }
                }
                Scan::Continue(next) => at = next,
            }
        }
        drop(layout);
        if let Some(range) = exposed.finish() {
            self.revoke.revoke(range);
        }
        Ok(target)
    }

    /// Makes all pages of the range present. Holes and inaccessible regions:
    /// [`MapError::NoMemory`].
    pub fn populate(&self, start: u64, length: u64) -> Result<(), MapError> {
        let range = pages_of(start, length)?;
        let mut at = range.start;
        while at < range.end {
            let layout = self.layout.lock();
            let region = layout.regions.find(at).ok_or(MapError::NoMemory)?;
            if region.protection.is_empty() {
                return Err(MapError::NoMemory);
            }
            let present = self.tables.lock().get(at);
            let size = match present {
                Some((_, size)) => size,
                None => self.fill(&region, at, true).map_err(|_| MapError::NoMemory)?,
            };
            at = (at & !(size.bytes() - 1)) + size.bytes();
            drop(layout);
            task::reschedule_point();
        }
        Ok(())
    }

    /// Whether future mappings are populated at once (mlockall MCL_FUTURE).
    pub fn set_populate(&self, on: bool) {
        self.layout.lock().populate = on;
    }

    /// Populates all that is mapped and accessible (mlockall MCL_CURRENT).
    pub fn populate_all(&self) -> Result<(), MapError> {
        let mut at = 0;
        while let Some(region) = self.next_region(at) {
            if !region.protection.is_empty() {
                self.populate(region.start, region.end - region.start)?;
            }
            at = region.end;
        }
        Ok(())
    }

    fn next_region(&self, from: u64) -> Option<Region> {
        self.layout.lock().regions.find_from(from)
    }

    /// Sets where the heap starts (exec); the break is there then.
    pub fn set_brk_start(&self, start: u64) {
        let mut layout = self.layout.lock();
        layout.heap_start = start;
        layout.heap_end = start;
    }

    /// `brk`: returns the new break, or the old one if `address` is not possible.
    pub fn brk(&self, address: u64) -> u64 {
        let changes = self.changes.lock();
        let mut layout = self.layout.lock();
        let old = layout.heap_end;
        let (Some(old_page), Some(new_page)) = (page_up(old), page_up(address)) else { return old };
        if address < layout.heap_start || !heap::has_reserve() {
            return old;
        }
        if new_page > old_page {
            let rights = Protection::READ | Protection::WRITE;
            if layout.regions.insert(old_page, new_page - old_page, rights, Kind::Heap).is_err() {
                return old;
            }
        }
        layout.heap_end = address;
        let populate = layout.populate;
        drop(layout);
        if new_page < old_page && self.unmap_locked(new_page..old_page).is_err() {
            self.layout.lock().heap_end = old;
            return old;
        }
        drop(changes);
        if populate && new_page > old_page && self.populate(old_page, new_page - old_page).is_err()
        {
            // As under Linux: the break has moved; what is missing comes on demand.
            return address;
        }
        address
    }

    /// Bytes that are mapped, and bytes that are present.
    pub fn usage(&self) -> (u64, u64) {
        (self.layout.lock().regions.mapped(), self.present.load(Ordering::Relaxed))
    }

    /// The regions in order, for /proc/self/maps: start, end, rights, kind. No lock is held during
    /// `each`.
    pub fn regions(&self, each: &mut dyn FnMut(u64, u64, Protection, Kind)) {
        let mut at = 0;
        while let Some(region) = self.next_region(at) {
            each(region.start, region.end, region.protection, region.kind);
            at = region.end;
        }
    }

    /// Makes the page present for `access` and says which frame it is. May sleep.
    pub fn resolve(&self, address: u64, access: Access) -> Result<Page, FaultError> {
        self.find_page(address, access, false)
    }

    /// Like [`AddressSpace::resolve`], and marks the page as exposed to Linux: unmapping it goes
    /// through [`Revoke`].
    pub fn expose(&self, address: u64, access: Access) -> Result<Page, FaultError> {
        self.find_page(address, access, true)
    }

    fn find_page(&self, address: u64, access: Access, expose: bool) -> Result<Page, FaultError> {
        loop {
            {
                let mut tables = self.tables.lock();
                if let Some(page) = lookup(&tables, address, access) {
                    if expose {
                        tables.expose(address);
                    }
                    return Ok(page);
                }
            }
            self.fault_in(address, access)?;
        }
    }

    /// Makes the page at `address` present if the region allows `access`.
    fn fault_in(&self, address: u64, access: Access) -> Result<(), FaultError> {
        let layout = self.layout.lock();
        let region = layout.regions.find(address).ok_or(FaultError::Unmapped)?;
        if !access.allowed_by(region.protection) {
            return Err(FaultError::Protected);
        }
        let present = self.tables.lock().get(address);
        match present {
            // Another thread was faster, or the rights changed meanwhile.
            Some((entry, _)) if access.allowed_in(entry.flags()) => Ok(()),
            Some(_) => {
                self.tables.lock().protect(address, region.protection);
                Ok(())
            }
            None => self.fill(&region, address, false).map(|_| ()),
        }
    }

    /// Puts a cleared page at `address` in `region`. The layout is locked, and there is no page
    /// yet.
    fn fill(&self, region: &Region, address: u64, eager: bool) -> Result<FrameSize, FaultError> {
        let block = address & !(BLOCK_SIZE - 1);
        let fits = region.start <= block && block + BLOCK_SIZE <= region.end;
        if fits
            && (region.kind == Kind::Large || eager)
            && self.fill_size(region, block, FrameSize::Large)?
        {
            return Ok(FrameSize::Large);
        }
        let page = address & !(FRAME_SIZE - 1);
        if !self.fill_size(region, page, FrameSize::Small)? {
            return Err(FaultError::NoMemory);
        }
        Ok(FrameSize::Small)
    }

    /// `false` if there is no frame of that size or smaller pages are in the way.
    fn fill_size(
        &self,
        region: &Region,
        address: u64,
        size: FrameSize,
    ) -> Result<bool, FaultError> {
        let Some(frame) = frames::zeroed_page(size) else { return Ok(false) };
        let entry = Entry::user_page(frame, size, region.protection);
        let mapped = self.tables.lock().map(address, size, entry);
        if mapped != Ok(true) {
            SHARED.free(frame, size);
        }
        match mapped {
            Ok(true) => {
                self.present.fetch_add(size.bytes(), Ordering::Relaxed);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(NoFrames) => Err(FaultError::NoMemory),
        }
    }

    /// Calls `f` with each piece of `start..start + length`, its address for the kernel and its
    /// offset, while the piece stays where it is. Pieces are short, do not cross pages, and `f`
    /// runs with interrupts off.
    fn for_each_piece(
        &self,
        start: u64,
        length: u64,
        access: Access,
        forced: bool,
        mut f: impl FnMut(*mut u8, Range<usize>) -> bool,
    ) -> Result<(), BadAddress> {
        let end = start.checked_add(length).filter(|&end| end <= USER_END).ok_or(BadAddress)?;
        let mut at = start;
        while at < end {
            let length = COPY_STEP.min(end - at).min(FRAME_SIZE - at % FRAME_SIZE);
            let more = {
                let tables = self.tables.lock();
                let page =
                    if forced { lookup_any(&tables, at) } else { lookup(&tables, at, access) };
                page.map(|page| {
                    let offset = (at - start) as usize;
                    f(
                        layout::direct(page.frame + at % FRAME_SIZE),
                        offset..offset + length as usize,
                    )
                })
            };
            match more {
                Some(true) => at += length,
                Some(false) => return Ok(()),
                None => {
                    let access =
                        if forced { self.any_access(at).ok_or(BadAddress)? } else { access };
                    self.fault_in(at, access).map_err(|_| BadAddress)?;
                }
            }
        }
        Ok(())
    }

    /// An access that the region at `address` allows.
    fn any_access(&self, address: u64) -> Option<Access> {
        let protection = self.layout.lock().regions.find(address)?.protection;
        [Access::Read, Access::Write, Access::Execute]
            .into_iter()
            .find(|access| access.allowed_by(protection))
    }

    /// Copies from the program. May sleep; faults pages in. On failure part of `to` may be written.
    pub fn read(&self, from: u64, to: &mut [u8]) -> Result<(), BadAddress> {
        self.for_each_piece(from, to.len() as u64, Access::Read, false, |piece, range| {
            // SAFETY: the piece is memory of the program of that length, and `to` is the kernel's
            // own.
            unsafe { copy(to[range.clone()].as_mut_ptr(), piece, range.len()) };
            true
        })
    }

    /// Copies from the program like [`AddressSpace::read`], whatever the rights of the region: for
    /// pages that are present.
    pub fn read_forced(&self, from: u64, to: &mut [u8]) -> Result<(), BadAddress> {
        self.for_each_piece(from, to.len() as u64, Access::Read, true, |piece, range| {
            // SAFETY: as in `read`.
            unsafe { copy(to[range.clone()].as_mut_ptr(), piece, range.len()) };
            true
        })
    }

    /// The first page at or behind `from` that is present: its address and bytes.
    pub fn next_present(&self, from: u64) -> Option<(u64, u64)> {
        let mut at = from;
        while at < USER_END {
            let scan = self.tables.lock().scan(at..USER_END);
            match scan {
                Scan::Page(address, _, size) => return Some((address, size.bytes())),
                Scan::Continue(next) => at = next,
            }
        }
        None
    }

    /// Copies to the program. On failure a part may be written.
    pub fn write(&self, to: u64, from: &[u8]) -> Result<(), BadAddress> {
        self.write_with(to, from, false)
    }

    /// Copies to the program like [`AddressSpace::write`], whatever the rights of the (accessible)
    /// region: for the loader.
    pub fn write_forced(&self, to: u64, from: &[u8]) -> Result<(), BadAddress> {
        self.write_with(to, from, true)
    }

    fn write_with(&self, to: u64, from: &[u8], forced: bool) -> Result<(), BadAddress> {
        self.for_each_piece(to, from.len() as u64, Access::Write, forced, |piece, range| {
            // SAFETY: the piece is memory of the program of that length, and `from` is the kernel's
            // own.
            unsafe { copy(piece, from[range.clone()].as_ptr(), range.len()) };
            true
        })
    }

    /// Copies a string up to and without its zero; returns its length. `Ok(None)` if there is no
    /// zero within `to`.
    pub fn read_cstr(&self, from: u64, to: &mut [u8]) -> Result<Option<usize>, BadAddress> {
        let mut length = None;
        let limit = (to.len() as u64).min(USER_END.saturating_sub(from));
        self.for_each_piece(from, limit, Access::Read, false, |piece, range| {
            // SAFETY: as in `read`.
            unsafe { copy(to[range.clone()].as_mut_ptr(), piece, range.len()) };
            length =
                to[range.clone()].iter().position(|&byte| byte == 0).map(|at| range.start + at);
            length.is_none()
        })?;
        if length.is_none() && limit < to.len() as u64 { Err(BadAddress) } else { Ok(length) }
    }

    /// Writes `length` zeros.
    pub fn zero(&self, to: u64, length: u64) -> Result<(), BadAddress> {
        const ZEROS: [u8; COPY_STEP as usize] = [0; COPY_STEP as usize];
        self.for_each_piece(to, length, Access::Write, false, |piece, range| {
            // SAFETY: the piece is memory of the program of that length.
            unsafe { copy(piece, ZEROS.as_ptr(), range.len()) };
            true
        })
    }

    /// Calls `f` with the aligned word at `address`, interrupts off.
    fn with_word<R>(
        &self,
        address: u64,
        access: Access,
        mut f: impl FnMut(&AtomicU32) -> R,
    ) -> Result<R, BadAddress> {
        if !address.is_multiple_of(4) {
            return Err(BadAddress);
        }
        let mut result = None;
        self.for_each_piece(address, 4, access, false, |piece, _| {
            // SAFETY: four aligned bytes of memory of the program, which is accessed atomically
            // only here.
            result = Some(f(unsafe { AtomicU32::from_ptr(piece.cast()) }));
            true
        })?;
        result.ok_or(BadAddress)
    }

    /// Atomically replaces the aligned 32-bit word at `address` by `f(word)` if that gives one, and
    /// returns the word before (futexes). `f` is called with interrupts off and may be called
    /// again.
    pub fn update_u32(
        &self,
        address: u64,
        mut f: impl FnMut(u32) -> Option<u32>,
    ) -> Result<u32, BadAddress> {
        self.with_word(address, Access::Write, |word| {
            match word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, &mut f) {
                Ok(before) | Err(before) => before,
            }
        })
    }

    /// Reads the aligned 32-bit word at `address` atomically.
    pub fn load_u32(&self, address: u64) -> Result<u32, BadAddress> {
        self.with_word(address, Access::Read, |word| word.load(Ordering::SeqCst))
    }
}

impl Drop for AddressSpace {
    /// Frees all pages. Preemptible: nobody else can reach the space.
    fn drop(&mut self) {
        let mut at = 0;
        while at < USER_END {
            let scan = self.tables.lock().scan(at..USER_END);
            match scan {
                Scan::Page(address, entry, size) => {
                    SHARED.free(entry.frame(), size);
                    at = address + size.bytes();
                }
                Scan::Continue(next) => at = next,
            }
        }
    }
}

/// The page at `address` if it is present and allows `access`.
fn lookup(tables: &Tables, address: u64, access: Access) -> Option<Page> {
    let (entry, size) = tables.get(address).filter(|_| address < USER_END)?;
    access.allowed_in(entry.flags()).then(|| page_of(entry, size, address))
}

/// The page at `address` if it is present.
fn lookup_any(tables: &Tables, address: u64) -> Option<Page> {
    let (entry, size) = tables.get(address).filter(|_| address < USER_END)?;
    Some(page_of(entry, size, address))
}

fn page_of(entry: Entry, size: FrameSize, address: u64) -> Page {
    // The address of a large page has bit 12 (PAT) in no entry that the kernel makes.
    let frame = entry.frame().0 + (address & (size.bytes() - 1) & !(FRAME_SIZE - 1));
    Page { frame, writable: entry.flags().contains(Flags::WRITE) }
}

/// Copies memory of which one side belongs to a program: other threads and Linux may write to it
/// meanwhile, so the compiler must not know what is copied.
///
/// # Safety
/// Both sides are mapped, have `length` bytes and do not overlap.
unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: by contract; the direction flag is clear.
    unsafe {
        asm!("rep movsb", inout("rdi") to => _, inout("rsi") from => _, inout("rcx") length => _,
            options(nostack, preserves_flags));
    }
}

/// Makes room for `more` entries, and waits for memory if there is none: what was unmapped must not
/// be lost.
fn reserve<T>(list: &mut Vec<T>, more: usize) {
    while list.try_reserve(more).is_err() {
        task::sleep_until(crate::time::now() + Nanos::from_millis(1));
    }
}
