// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects: pages that several address spaces map, or one of them at several places.
//!
//! An object keeps its pages as long as it is mapped anywhere, and each of them once more than it
//! is mapped.

use super::frames::OwnedPage;
use super::quota::Quota;
use super::{frames, heap, window};
use crate::devices::{links::Presence, pci::Registers};
use crate::mm::space::{FaultError, MapError, Obstacle, Prepared};
use crate::sync::SpinLock;
use crate::task::{self, Mutex};
use crate::time::{self, Nanos};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::iter;
use core::mem;
use core::ops::{Bound, Range};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crtos_channel::operation::Identity;
use crtos_vm::{FRAME_SIZE, Frame, FrameSize};

/// Pages with a number of their own.
pub struct Object {
    id: u64,
    /// Pages below this offset that nobody put there are zero at first; behind it there are none.
    limit: AtomicU64,
    pages: Mutex<BTreeMap<u64, Frame>>,
    /// How many pages there are, for those who do not hold the lock.
    count: AtomicU64,
    /// Held while pages are read from Linux.
    loading: Mutex<()>,
    /// Since when that is held, or was held last.
    loading_since: AtomicU64,
    /// What is not there is read from Linux when it is touched.
    on_demand: AtomicBool,
    /// [`Object::reach`].
    reach: AtomicU64,
    owner: Owner,
    payers: SpinLock<Vec<Payer>>,
}

/// What the pages count for that the programs of a user have brought, besides the places where they
/// are mapped.
struct Payer {
    quota: &'static Quota,
    /// How often they hold the object.
    holds: usize,
    /// Bytes of these pages.
    bytes: u64,
}

/// Whose the pages of an object are.
enum Owner {
    /// The realm's.
    Realm,
    /// Those of memory that programs share, and that is of no file.
    Memory,
    /// A device's, and where they lie.
    Device(Registers),
    /// Those of a file of Linux.
    Linux(Linuxs),
    /// Those of a link. The program is a peer until nobody has the object.
    Link(#[expect(dead_code, reason = "kept for its end")] Presence),
}

/// A file of Linux.
struct Linuxs {
    /// Programs may write to them.
    writes: bool,
    /// The number by which futexes know the file.
    key: u64,
}

/// How long somebody may read pages of an object from Linux before others read them as well, and
/// how often these look.
const PATIENCE: Nanos = Nanos::from_millis(1000);
const PERIOD: Nanos = Nanos::from_micros(200);

/// How many objects programs can change as files ([`Object::extend_reach`]).
static CHANGING: AtomicU64 = AtomicU64::new(0);

/// Whether there are any such objects.
pub fn any_changing() -> bool {
    CHANGING.load(Ordering::Relaxed) > 0
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.id)
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Object {}

impl Object {
    /// Memory that is zero at first. Not on a real-time path.
    pub fn anonymous() -> Result<Arc<Self>, MapError> {
        Self::make(u64::MAX, BTreeMap::new(), Owner::Realm)
    }

    /// Memory of no file, of `size` bytes, that is zero at first. It never has more, however much
    /// of it is mapped. Not on a real-time path.
    pub fn of_no_file(size: u64) -> Result<Arc<Self>, MapError> {
        Self::make(size, BTreeMap::new(), Owner::Memory)
    }

    /// Whether it is memory of no file.
    pub fn is_of_no_file(&self) -> bool {
        matches!(self.owner, Owner::Memory)
    }

    /// Memory of a device. Not on a real-time path.
    pub fn of_registers(registers: Registers) -> Result<Arc<Self>, MapError> {
        Self::make(registers.size(), BTreeMap::new(), Owner::Device(registers))
    }

    /// The pages of a link, `size` bytes from `first` on, for a peer. No other ones. Not on a
    /// real-time path.
    pub fn of_link(first: Frame, size: u64, presence: Presence) -> Result<Arc<Self>, MapError> {
        let pages = (0..size / FRAME_SIZE).map(|page| (page, Frame(first.0 + page * FRAME_SIZE)));
        Self::make(0, pages.collect(), Owner::Link(presence))
    }

    /// Whether it is the memory of a link.
    pub fn is_link(&self) -> bool {
        matches!(self.owner, Owner::Link(_))
    }

    /// Whether it is memory that is where it is: of a device or of a link.
    pub fn is_fixed(&self) -> bool {
        matches!(self.owner, Owner::Device(_) | Owner::Link(_))
    }

    /// Pages of a file that Linux shares, which are at places of the share window. Each comes when
    /// it is touched. Of a file there is one object to read, and one to write; the second one is
    /// made beside the first. Not on a real-time path.
    pub fn of_linux(writes: bool, beside: Option<&Self>) -> Result<Arc<Self>, MapError> {
        let key = beside.and_then(Self::linuxs).map_or(0, |other| other.key);
        let owner = Owner::Linux(Linuxs { writes, key });
        let object = Self::make(u64::MAX, BTreeMap::new(), owner)?;
        object.read_on_demand();
        Ok(object)
    }

    /// The page in which the kernel keeps the clocks, and behind it `pages`. No other ones.
    pub fn behind_time_page(pages: impl Iterator<Item = OwnedPage>) -> Result<Arc<Self>, MapError> {
        let pages = iter::once(time::page_frame()).chain(pages.map(OwnedPage::into_frame));
        Self::make(0, (0..).zip(pages).collect(), Owner::Realm)
    }

    fn make(
        limit: u64,
        pages: BTreeMap<u64, Frame>,
        mut owner: Owner,
    ) -> Result<Arc<Self>, MapError> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        if let Owner::Linux(Linuxs { key: key @ 0, .. }) = &mut owner {
            *key = id;
        }
        let limit = AtomicU64::new(limit);
        let count = AtomicU64::new(pages.len() as u64);
        Ok(Arc::new(Self {
            id,
            limit,
            pages: Mutex::new(pages),
            count,
            loading: Mutex::new(()),
            loading_since: AtomicU64::new(0),
            on_demand: AtomicBool::new(false),
            reach: AtomicU64::new(0),
            owner,
            payers: SpinLock::new(Vec::new()),
        }))
    }

    fn linuxs(&self) -> Option<&Linuxs> {
        match &self.owner {
            Owner::Linux(linuxs) => Some(linuxs),
            _ => None,
        }
    }

    /// Its number, which no other object ever has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What futexes in it are known by: as its number, but the same for all objects of a file.
    pub fn key(&self) -> u64 {
        self.linuxs().map_or(self.id, |linuxs| linuxs.key)
    }

    /// Whether its pages are Linux's.
    pub fn is_linuxs(&self) -> bool {
        self.linuxs().is_some()
    }

    /// Whether its pages are Linux's, and programs may write to them.
    pub(super) fn linux_writes(&self) -> Option<bool> {
        self.linuxs().map(|linuxs| linuxs.writes)
    }

    /// Whether it has this page at `offset`.
    pub(super) fn has(&self, offset: u64, frame: Frame) -> bool {
        self.pages.lock().get(&(offset / FRAME_SIZE)) == Some(&frame)
    }

    /// Gives up pages of Linux in `range` that their file has lost: who needs them asks Linux
    /// again. Programs may still have them in their tables. Thread context; may sleep.
    pub fn recall(&self, range: Range<u64>) {
        /// Pages that are looked at, and given up, at a time.
        const LOOKED_AT: usize = 256;
        const GIVEN_UP: usize = 16;
        let (mut at, end) = (range.start / FRAME_SIZE, range.end.div_ceil(FRAME_SIZE));
        while self.is_linuxs() {
            let mut gone = [None; GIVEN_UP];
            let mut pages = self.pages.lock();
            let mut free = gone.iter_mut();
            let mut looked_at = 0;
            for (&index, &frame) in pages.range(at..end).take(LOOKED_AT) {
                looked_at += 1;
                if window::is_recalled(frame) {
                    let Some(free) = free.next() else { break };
                    *free = Some((index, frame));
                }
                at = index + 1;
            }
            for (index, _) in gone.iter().flatten() {
                pages.remove(index);
            }
            self.count.store(pages.len() as u64, Ordering::Relaxed);
            drop(pages);
            for (_, frame) in gone.into_iter().flatten() {
                frames::release(frame, FrameSize::Small);
            }
            if looked_at == 0 {
                return;
            }
        }
    }

    /// The memory of a device that it is.
    pub fn registers(&self) -> Option<&Registers> {
        match &self.owner {
            Owner::Device(registers) => Some(registers),
            _ => None,
        }
    }

    /// A use of the page at `offset`, which is a prepared one if there is none yet, and counts for
    /// `payer`. May sleep, for as long as others look for a page.
    pub(super) fn page(
        &self,
        offset: u64,
        prepared: &mut Prepared<'_>,
        payer: Option<&'static Quota>,
    ) -> Result<OwnedPage, Obstacle> {
        if let Some(registers) = self.registers() {
            let frame = registers.page(offset).ok_or(FaultError::Beyond)?;
            return OwnedPage::shared(frame).ok_or(FaultError::NoMemory.into());
        }
        let index = offset / FRAME_SIZE;
        let mut pages = self.pages.lock();
        let frame = match pages.get(&index) {
            Some(&frame) => frame,
            None if offset >= self.limit() => return Err(FaultError::Beyond.into()),
            None if self.is_on_demand() => return Err(Obstacle::Unread),
            None if !heap::has_reserve() => return Err(FaultError::NoMemory.into()),
            None => {
                let page = prepared.page()?;
                if !self.takes_bytes(FRAME_SIZE, payer) {
                    return Err(FaultError::NoMemory.into());
                }
                let frame = page.into_frame();
                pages.insert(index, frame);
                self.count.store(pages.len() as u64, Ordering::Relaxed);
                frame
            }
        };
        OwnedPage::shared(frame).ok_or(FaultError::NoMemory.into())
    }

    /// Ends the pages that appear by themselves where a file of `size` bytes ends.
    pub fn set_limit(&self, size: u64) {
        let limit = size.checked_next_multiple_of(FRAME_SIZE).unwrap_or(u64::MAX);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Clears the bytes in `range`, for everybody who maps them. Pages that are not there stay
    /// absent. Preemptible between pages.
    pub fn clear(&self, range: Range<u64>) {
        const ZEROS: [u8; 512] = [0; 512];
        let mut at = range.start;
        while at < range.end {
            // The lock keeps the page; waiting for it is for others who make pages of this object.
            let pages = self.pages.lock();
            let last = range.end.div_ceil(FRAME_SIZE);
            let Some((&index, &frame)) = pages.range(at / FRAME_SIZE..last).next() else { return };
            let page = index * FRAME_SIZE;
            at = at.max(page);
            let end = range.end.min(page + FRAME_SIZE);
            if end - at == FRAME_SIZE {
                frames::clear(frame, FRAME_SIZE);
            } else {
                for piece in (at..end).step_by(ZEROS.len()) {
                    let length = (end - piece).min(ZEROS.len() as u64);
                    frames::copy_in(frame, piece - page, &ZEROS[..length as usize]);
                }
            }
            at = end;
        }
    }

    /// Up to where there are pages.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// From now on its pages are read from Linux when they are touched: whoever maps it has a
    /// mirror of it, or has read what it maps.
    pub fn read_on_demand(&self) {
        self.on_demand.store(true, Ordering::Relaxed);
    }

    /// Whether its pages are read when they are touched.
    pub fn is_on_demand(&self) -> bool {
        self.on_demand.load(Ordering::Relaxed)
    }

    /// Up to where programs have it mapped as a file that they may change; 0 if none has.
    pub fn reach(&self) -> u64 {
        self.reach.load(Ordering::Relaxed)
    }

    /// Programs have it mapped up to `end`, as a file that they may change.
    pub fn extend_reach(&self, end: u64) {
        if self.reach.fetch_max(end, Ordering::Relaxed) == 0 && end > 0 {
            CHANGING.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keeps others from reading what Linux has of it meanwhile. May sleep, but waits for nobody
    /// who has done so for [`PATIENCE`]: the shadow that reads for them may be stopped, and the
    /// object be of many users. What two read at once is the same, and is put once.
    pub fn loading(&self) -> Option<impl Drop> {
        loop {
            let now = time::now();
            if let Some(held) = self.loading.try_lock() {
                self.loading_since.store(now.0, Ordering::Relaxed);
                return Some(held);
            }
            if now >= Nanos(self.loading_since.load(Ordering::Relaxed)) + PATIENCE {
                return None;
            }
            task::sleep_until(now + PERIOD);
        }
    }

    /// The first run of pages in `range` that are not there, of at most `most` bytes.
    pub fn missing(&self, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        let pages = self.pages.lock();
        let last = range.end.div_ceil(FRAME_SIZE);
        let mut first = range.start / FRAME_SIZE;
        let mut there = pages.range(first..last).map(|(&index, _)| index).peekable();
        while there.next_if_eq(&first).is_some() {
            first += 1;
        }
        let end = there.next().unwrap_or(last).min(first + most / FRAME_SIZE);
        (first < end).then_some(first * FRAME_SIZE..end * FRAME_SIZE)
    }

    /// Puts a page at `offset`, which counts for `payer`, unless one is there.
    pub(super) fn put(
        &self,
        offset: u64,
        page: OwnedPage,
        payer: Option<&'static Quota>,
    ) -> Result<(), MapError> {
        let mut pages = self.pages.lock();
        let is_there = pages.contains_key(&(offset / FRAME_SIZE));
        if is_there || !heap::has_reserve() || !self.takes_bytes(FRAME_SIZE, payer) {
            drop(pages);
            drop(page);
            return if is_there { Ok(()) } else { Err(MapError::NoMemory) };
        }
        pages.insert(offset / FRAME_SIZE, page.into_frame());
        self.count.store(pages.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Counts bytes of its pages for `payer`, who holds the object, if the quota has that. Linux's
    /// pages count where they are mapped alone. Any context.
    pub(super) fn takes_bytes(&self, bytes: u64, payer: Option<&'static Quota>) -> bool {
        let Some(quota) = payer.filter(|_| !self.is_linuxs()) else { return true };
        let mut payers = self.payers.lock();
        let payer = payers.iter_mut().find(|payer| ptr::eq(payer.quota, quota));
        payer.is_some_and(|payer| {
            let permitted = quota.take(bytes);
            payer.bytes += if permitted { bytes } else { 0 };
            permitted
        })
    }

    /// Programs with that quota hold it once more. Not on a real-time path.
    pub(super) fn enter(&self, quota: &'static Quota) -> Result<(), MapError> {
        loop {
            let most = {
                let mut payers = self.payers.lock();
                if let Some(payer) = payers.iter_mut().find(|payer| ptr::eq(payer.quota, quota)) {
                    payer.holds += 1;
                    return Ok(());
                }
                if payers.len() < payers.capacity() {
                    payers.push(Payer { quota, holds: 1, bytes: 0 });
                    return Ok(());
                }
                payers.len() + 1
            };
            // The heap is not for those who hold a spin lock.
            let mut larger = Vec::new();
            larger.try_reserve(most).map_err(|_| MapError::NoMemory)?;
            let mut payers = self.payers.lock();
            if payers.len() < larger.capacity() {
                larger.append(&mut payers);
                mem::swap(&mut *payers, &mut larger);
            }
            drop(payers);
        }
    }

    /// Programs with that quota hold it once less. Any context.
    pub(super) fn leave(&self, quota: &'static Quota) {
        let mut payers = self.payers.lock();
        let Some(at) = payers.iter().position(|payer| ptr::eq(payer.quota, quota)) else { return };
        payers[at].holds -= 1;
        if payers[at].holds == 0 {
            quota.give_back(payers.swap_remove(at).bytes);
        }
    }

    /// How many pages it has.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Copies what its pages have at `offset`. [`MapError::Fault`] if one is not there. Nobody
    /// writes to them meanwhile.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), MapError> {
        let pages = self.pages.lock();
        let mut done = 0;
        while done < to.len() {
            let at = offset + done as u64;
            let part = to.len().min(done + (FRAME_SIZE - at % FRAME_SIZE) as usize);
            let &frame = pages.get(&(at / FRAME_SIZE)).ok_or(MapError::Fault)?;
            frames::copy_out(frame, at % FRAME_SIZE, &mut to[done..part]);
            done = part;
        }
        Ok(())
    }

    /// Copies what its page has at `offset`, up to the end of that page, while programs may change
    /// it. `false` if the page is not there.
    pub fn peek(&self, offset: u64, to: &mut [u8]) -> bool {
        // The lock keeps the page.
        let pages = self.pages.lock();
        let page = pages.get(&(offset / FRAME_SIZE));
        page.inspect(|&&frame| frames::copy_out(frame, offset % FRAME_SIZE, to)).is_some()
    }

    /// Changes what its page has at `offset`, as [`peek`](Self::peek).
    pub fn poke(&self, offset: u64, from: &[u8]) -> bool {
        let pages = self.pages.lock();
        let page = pages.get(&(offset / FRAME_SIZE));
        page.inspect(|&&frame| frames::copy_in(frame, offset % FRAME_SIZE, from)).is_some()
    }

    /// Clears the pages in `start..end`, for everybody who maps them; new ones count for `payer`.
    /// Preemptible between pages.
    pub(super) fn zero(
        &self,
        start: u64,
        end: u64,
        payer: Option<&'static Quota>,
    ) -> Result<(), MapError> {
        if self.limit() == 0 || self.registers().is_some() || self.is_linuxs() {
            return Err(MapError::Access);
        }
        let mut absent = start..end;
        while self.is_on_demand()
            && let Some(Range { start, end }) = self.missing(absent.clone(), FRAME_SIZE)
        {
            // It does not come from Linux any more.
            self.put(start, OwnedPage::zeroed().ok_or(MapError::NoMemory)?, payer)?;
            absent.start = end;
        }
        let (mut at, last) = (start / FRAME_SIZE, end / FRAME_SIZE);
        loop {
            // The lock keeps the page; waiting for it is for others who make pages of this object.
            let pages = self.pages.lock();
            let Some((&index, &frame)) = pages.range(at..last).next() else { return Ok(()) };
            frames::clear(frame, FRAME_SIZE);
            at = index + 1;
        }
    }
}

impl Drop for Object {
    /// Preemptible between pages.
    fn drop(&mut self) {
        if self.reach() > 0 {
            CHANGING.fetch_sub(1, Ordering::Relaxed);
        }
        let pages = self.pages.lock();
        for &frame in pages.values() {
            frames::release(frame, FrameSize::Small);
        }
    }
}

/// Objects by what Linux knows them by, while anybody maps them.
pub struct Known(Mutex<BTreeMap<Identity, Weak<Object>>>);

impl Known {
    /// None.
    pub const fn none() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Whether there have been any. May sleep.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The object of an identity. May sleep.
    pub fn find(&self, identity: Identity) -> Option<Arc<Object>> {
        self.0.lock().get(&identity).and_then(Weak::upgrade)
    }

    /// Calls `each` with each of them. Nothing is locked meanwhile. May sleep.
    pub fn each(&self, mut each: impl FnMut(&Object)) {
        let mut after = Bound::Unbounded;
        loop {
            let next = {
                let objects = self.0.lock();
                let next = objects.range((after, Bound::Unbounded)).next();
                next.map(|(&identity, object)| (identity, object.upgrade()))
            };
            let Some((identity, object)) = next else { return };
            after = Bound::Excluded(identity);
            object.iter().for_each(|object| each(object));
        }
    }

    /// The object of an identity; the one that `make` makes if there is none.
    pub fn get(
        &self,
        identity: Identity,
        make: impl FnOnce() -> Result<Arc<Object>, MapError>,
    ) -> Result<Arc<Object>, MapError> {
        let mut objects = self.0.lock();
        if let Some(object) = objects.get(&identity).and_then(Weak::upgrade) {
            return Ok(object);
        }
        let object = make()?;
        objects.retain(|_, object| object.strong_count() > 0);
        objects.insert(identity, Arc::downgrade(&object));
        Ok(object)
    }
}
