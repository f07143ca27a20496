// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address space of a process: its regions, page tables and pages.
//!
//! Pages come from the pool that Linux shares, cleared, when they are first touched or when they
//! are asked for in advance. Linux learns of a page by [`AddressSpace::expose`]; from then on the
//! page is not used for anything else before Linux let it go ([`Revoke`]).
//!
//! Locks: `changes` serialises the calls that change what is mapped, and is held until Linux is
//! told. `mirrors` knows where the shadow maps files. `layout` and `tables` are spin locks: around
//! a look for a region, and around a bounded number of entries. They are taken in this order.
//!
//! A fault holds nothing while a page is filled. It puts the page into the tables only if the
//! region is as it was ([`AddressSpace::in_tables`]), so none comes where a region has gone or has
//! other rights now.

mod broken;
mod changes;
pub(crate) mod copy;
pub(crate) mod device;
mod fault;
mod fork;
mod limits;
mod map;
mod mirror;
mod pin;
mod prepared;
mod reading;
mod revoke;
mod sharing;

use super::frames::SparePage;
use super::heap;
use super::held::Held;
use super::object::Object;
use super::quota::Quota;
use crate::arch::paging::{NoFrames, Tables};
use crate::arch::tlb;
use crate::sync::{SpinGuard, SpinLock};
use crate::task::Mutex;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crtos_abi::UserAddr;
use crtos_abi::channel::SHADOW_END;
use crtos_vm::{FRAME_SIZE, Flags, Frame, Usage};
pub use crtos_vm::{Kind, Lock, MapError, Placement, Protection};
pub(super) use fault::Obstacle;
use limits::Limits;
pub use map::Move;
use mirror::Mirror;
pub use mirror::Target;
pub use pin::Pinned;
pub(super) use prepared::Prepared;
pub use reading::{Batch, Filling, Piece};
pub use revoke::{Revoke, Revoked};
pub use sharing::Shared;

/// What is behind a region, if not memory of its own.
pub type Backing = crtos_vm::Backing<Held>;
/// What holds for all addresses of a region.
pub type Attributes = crtos_vm::Attributes<Held>;
/// A region.
pub type Region = crtos_vm::Region<Held>;
type Regions = crtos_vm::Regions<Held>;

/// Where mappings go before the program has a stack: downwards from here.
const MMAP_TOP: UserAddr = UserAddr::new(0x7fff_f7ff_f000);

/// A request to map memory.
#[derive(Clone, Debug)]
pub struct Map {
    /// Where.
    pub placement: Placement,
    /// Bytes; rounded up to pages.
    pub length: u64,
    /// Rights.
    pub protection: Protection,
    /// What it is.
    pub kind: Kind,
    /// An object; otherwise memory that is zero at first.
    pub backing: Option<Backing>,
    /// Fill it now (MAP_POPULATE, MAP_LOCKED); the whole space has its own switch,
    /// [`AddressSpace::lock_future`].
    pub populate: bool,
    /// It is locked (MAP_LOCKED), whether it can be filled now or not.
    pub locked: bool,
    /// It is the kernel's own, for the time of a call: no limit counts.
    pub is_own: bool,
}

impl Map {
    /// Private memory that is zero at first.
    pub fn private(placement: Placement, length: u64, protection: Protection) -> Self {
        Self {
            placement,
            length,
            protection,
            kind: Kind::Anonymous,
            backing: None,
            populate: false,
            locked: false,
            is_own: false,
        }
    }
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
    /// It is mapped, and there is nothing behind it (BUS_ADRERR).
    Beyond,
    /// The memory is broken (BUS_MCEERR_AR).
    Broken,
    /// The pool is used up.
    NoMemory,
}

/// A page that backs an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// The 4 KiB frame.
    pub frame: Frame,
    /// A program may write to it.
    pub writable: bool,
    /// It has been written to.
    pub dirty: bool,
    /// It is memory of a device, which the program alone reaches.
    pub is_of_device: bool,
}

/// The address is not that of memory of the program with that right, or memory ran out: EFAULT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadAddress;

struct Layout {
    regions: Regions,
    heap_start: UserAddr,
    heap_end: UserAddr,
    /// Where mappings go: downwards from here.
    mmap_top: UserAddr,
    /// How what is mapped from now on is locked (mlockall MCL_FUTURE).
    future: Lock,
    populate_files: bool,
    /// Where mappings come and go right now: whoever wants to know what is there waits for
    /// `changes` ([`AddressSpace::layout_at`]).
    in_change: [Range<UserAddr>; 2],
}

/// No address.
const NOTHING: Range<UserAddr> = UserAddr::NULL..UserAddr::NULL;

impl Layout {
    /// Whether mappings come and go in a part of `range` right now.
    fn is_in_change(&self, range: &Range<UserAddr>) -> bool {
        self.in_change.iter().any(|other| other.start < range.end && range.start < other.end)
    }
}

/// An address space.
pub struct AddressSpace {
    id: u64,
    revoke: Box<dyn Revoke>,
    /// The copy of the regions that is changed next; the other one is the layout's.
    changes: Mutex<Regions>,
    layout: SpinLock<Layout>,
    mirrors: Mutex<Vec<Mirror>>,
    tables: SpinLock<Tables>,
    root: Frame,
    present: AtomicU64,
    most_present: AtomicU64,
    limits: Limits,
    /// What its pages count for, together with those of other spaces.
    quota: Option<&'static Quota>,
    /// Bytes that devices reach, or may reach.
    pinned: Arc<AtomicU64>,
    /// A cleared page for the next fault.
    spare: SparePage,
    /// Kinds of barriers that the program has registered for.
    pub barriers: AtomicU32,
    bounce_buffer: reading::BounceBuffer,
}

impl From<NoFrames> for MapError {
    fn from(_: NoFrames) -> Self {
        Self::NoMemory
    }
}

/// Rounds a length up to pages; `None` if there is no such length.
const fn whole_pages(length: u64) -> Option<u64> {
    match length.checked_add(FRAME_SIZE - 1) {
        Some(sum) => Some(sum & !(FRAME_SIZE - 1)),
        None => None,
    }
}

/// The pages of `start..start + length` if `start` is aligned and the length neither 0 nor out of
/// range.
fn pages_of(start: UserAddr, length: u64) -> Result<Range<UserAddr>, MapError> {
    let length = whole_pages(length).ok_or(MapError::NoMemory)?;
    let end = start.checked_add(length).ok_or(MapError::Invalid)?;
    if !start.is_page_aligned() || length == 0 || end > UserAddr::END {
        return Err(MapError::Invalid);
    }
    Ok(start..end)
}

impl AddressSpace {
    /// An empty one; `revoke` is told of pages that Linux must let go, and pages count for `quota`.
    /// Drop the last reference only
    /// when Linux has let go of everything (the shadow is gone): pages are freed at once,
    /// preemptibly.
    pub fn new(
        revoke: Box<dyn Revoke>,
        quota: Option<&'static Quota>,
    ) -> Result<Arc<Self>, MapError> {
        if !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        let tables = Tables::new().ok_or(MapError::NoMemory)?;
        let root = tables.root();
        static LAST: AtomicU64 = AtomicU64::new(0);
        let below = UserAddr::START..reading::BOUNCE.start;
        let above = UserAddr::new(SHADOW_END)..UserAddr::END;
        let regions = || Regions::new(&[below.clone(), above.clone()]);
        Ok(Arc::new(Self {
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            revoke,
            changes: Mutex::new(regions()),
            layout: SpinLock::new(Layout {
                regions: regions(),
                heap_start: UserAddr::NULL,
                heap_end: UserAddr::NULL,
                mmap_top: MMAP_TOP,
                future: Lock::None,
                populate_files: false,
                in_change: [NOTHING; 2],
            }),
            mirrors: Mutex::new(Vec::new()),
            tables: SpinLock::new(tables),
            root,
            present: AtomicU64::new(0),
            most_present: AtomicU64::new(0),
            limits: Limits::none(),
            quota,
            pinned: Arc::new(AtomicU64::new(0)),
            spare: SparePage::none(),
            barriers: AtomicU32::new(0),
            bounce_buffer: reading::BounceBuffer::new(),
        }))
    }

    /// Locks the layout as soon as nothing is in change at `address`. May sleep. Not for those who
    /// hold `changes`.
    fn layout_at(&self, address: UserAddr) -> SpinGuard<'_, Layout> {
        loop {
            let layout = self.layout.lock();
            if !layout.in_change.iter().any(|range| range.contains(&address)) {
                return layout;
            }
            drop(layout);
            drop(self.changes.lock());
        }
    }

    /// The region at `address`, as soon as nothing is in change there. May sleep. Not for those who
    /// hold `changes`.
    fn region_at(&self, address: UserAddr) -> Option<Region> {
        self.layout_at(address).regions.find(address)
    }

    /// The region at `address`, as soon as nothing is in change there. May sleep.
    pub fn region(&self, address: UserAddr) -> Option<Region> {
        self.region_at(address)
    }

    /// Calls `act` with the tables, while the region is what it was for all of `range` and nothing
    /// is in change there; `None` if it is not. `act` is bounded, with interrupts off.
    fn in_tables<R>(
        &self,
        region: &Region,
        range: &Range<UserAddr>,
        act: impl FnOnce(&mut Tables) -> R,
    ) -> Option<R> {
        let layout = self.layout.lock();
        if layout.is_in_change(range) || !layout.regions.is_as_before(region, range) {
            return None;
        }
        Some(act(&mut self.tables.lock()))
    }

    /// Whether Linux has been told of all that is not mapped any more. Thread context; may sleep.
    pub fn is_linux_told(&self) -> bool {
        self.revoke.is_told()
    }

    /// Has each CPU that runs on this space pass a barrier that orders memory and instructions.
    /// Thread context.
    pub fn barrier(&self) {
        tlb::barrier(self.root);
    }

    /// The root of its page tables.
    pub fn root(&self) -> Frame {
        self.root
    }

    /// Its number, which no other space ever has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What a futex at `address`, which is mapped, is known by: threads of other processes may wait
    /// there too. Private futexes need not ask: theirs is `Key::Private` with the space's number.
    /// May sleep.
    pub fn futex_key(&self, address: UserAddr) -> Result<Key, BadAddress> {
        let region = self.region_at(address).ok_or(BadAddress)?;
        Ok(match region.object_at(address) {
            Some((object, offset)) if region.attributes.is_shared() => {
                let mirror = object.is_linuxs().then(|| self.in_mirror(object, offset)).flatten();
                let mirror = mirror.map(|(address, _)| address);
                Key::Shared { object: object.key(), offset, mirror }
            }
            _ => Key::Private { space: self.id, address },
        })
    }

    /// Bytes that are mapped, and bytes that are present.
    pub fn usage(&self) -> (u64, u64) {
        (self.layout.lock().regions.usage().mapped, self.present.load(Ordering::Relaxed))
    }

    /// Most bytes that were ever present at once.
    pub fn most_present(&self) -> u64 {
        self.most_present.load(Ordering::Relaxed)
    }

    /// Bytes that are mapped, by what resource limits count.
    pub fn mapped(&self) -> Usage {
        self.layout.lock().regions.usage()
    }

    /// The regions in order. No lock is held during `each`.
    pub fn regions(&self, each: &mut dyn FnMut(&Region)) {
        let mut at = UserAddr::NULL;
        while let Some(region) = self.next_region(at) {
            each(&region);
            at = region.end;
        }
    }

    /// Whether a part of an object is mapped.
    pub fn maps(&self, object: &Object) -> bool {
        let mut maps = false;
        self.regions(&mut |region| {
            maps |= region.object_at(region.start).is_some_and(|(other, _)| ***other == *object);
        });
        maps
    }

    /// Whether all of a range is mapped.
    pub fn is_mapped(&self, start: UserAddr, length: u64) -> bool {
        let range = start..start.saturating_add(length);
        range.is_empty() || self.mapped_until(&range) == range.end
    }

    /// Whether an object is mapped in a range, which may have holes.
    pub fn shows_any(&self, start: UserAddr, length: u64) -> bool {
        let range = start..start.saturating_add(length);
        self.first_region(&range, |region| region.attributes.backing.is_some()).is_some()
    }

    /// The first region in a range, which may have holes, that `is_meant`.
    fn first_region(
        &self,
        range: &Range<UserAddr>,
        is_meant: impl Fn(&Region) -> bool,
    ) -> Option<Region> {
        let mut at = range.start;
        while let Some(region) = self.next_region(at).filter(|region| region.start < range.end) {
            if is_meant(&region) {
                return Some(region);
            }
            at = region.end;
        }
        None
    }
}

/// What a futex is known by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Key {
    /// In memory of one address space.
    Private {
        /// [`AddressSpace::id`].
        space: u64,
        /// Address there.
        address: UserAddr,
    },
    /// In shared memory.
    Shared {
        /// [`Object::key`].
        object: u64,
        /// Offset there.
        offset: u64,
        /// Where the shadow has the word, if the page is Linux's.
        mirror: Option<UserAddr>,
    },
}

impl AddressSpace {
    /// Counts bytes that become present; `false` if they are too many for the quota. Thread
    /// context; sleeps where it is for Linux to let go of what is not mapped any more.
    fn count(&self, bytes: u64) -> bool {
        let permitted = self.quota.is_none_or(|quota| quota.take_waiting(bytes));
        if permitted {
            let present = self.present.fetch_add(bytes, Ordering::Relaxed) + bytes;
            self.most_present.fetch_max(present, Ordering::Relaxed);
        }
        permitted
    }

    /// Counts bytes that are present no more. Any context.
    fn count_out(&self, bytes: u64) {
        self.present.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(quota) = self.quota {
            quota.give_back(bytes);
        }
    }

    /// What its pages count for.
    pub fn quota(&self) -> Option<&'static Quota> {
        self.quota
    }

    /// Whether another space with the same quota may have so many bytes just now. Any context.
    pub fn is_within_quota(&self, bytes: u64) -> bool {
        self.quota.is_none_or(|quota| quota.has(bytes))
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        self.free_pages();
    }
}
