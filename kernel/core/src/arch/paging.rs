// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page tables: the kernel's own half, which all address spaces share, and the half of one program.

use super::tlb::{self, Stale, TABLES};
use crate::mm::frames;
use crate::mm::layout::{self, DEVICE_AREA, STACK_AREA};
use crate::sync::SpinLock;
use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use crtos_abi::UserAddr;
use crtos_abi::boot::{
    BootInfo, CHANNEL_ADDRESS, DIRECT_MAP, IMAGE_ADDRESS, KERNEL_BASE, SHARED_POOL,
};
use crtos_abi::device::{DEVICE_MEMORY, DEVICE_MEMORY_END};
use crtos_abi::link::{LINK_MEMORY, LINK_SIZE_MAX, MAX_LINKS};
use crtos_abi::share::{SHARE_WINDOW, SHARE_WINDOW_END};
use crtos_vm::entry::{ENTRIES, index, span};
use crtos_vm::{BLOCK_SIZE, Entry, FRAME_SIZE, Flags, Frame, FrameSize, Protection};

const TABLE_FLAGS: Flags = Flags::PRESENT.union(Flags::WRITE);
const CODE: Flags = Flags::PRESENT.union(Flags::GLOBAL);
const READ_ONLY: Flags = CODE.union(Flags::NO_EXECUTE);
const DATA: Flags = READ_ONLY.union(Flags::WRITE);

/// A table as the processor sees it: it sets bits in entries by itself.
type Table = [AtomicU64; ENTRIES];

fn table(frame: Frame) -> &'static Table {
    // SAFETY: only frames that were made tables get here; they stay tables until their space is
    // gone, are mapped for ever at the direct map, and are accessed atomically only.
    unsafe { &*layout::direct(frame).cast::<Table>() }
}

fn load(slot: &AtomicU64) -> Entry {
    Entry(slot.load(Ordering::Relaxed))
}

fn store(slot: &AtomicU64, entry: Entry) {
    // What the entry points to is there before the entry.
    slot.store(entry.0, Ordering::Release);
}

/// Builds the kernel's tables from memory that `allocate` gives (zeroed frames, reachable through
/// the initial tables) and loads them. On the first CPU at boot.
pub fn build_kernel(info: &BootInfo, mut allocate: impl FnMut() -> Frame) {
    let root = allocate();
    let image = layout::image();
    let mut map = |address: u64, frame: Frame, size: FrameSize, flags: Flags| {
        let last = if size == FrameSize::Large { 1 } else { 0 };
        let mut at = root;
        for level in (last + 1..4).rev() {
            let slot = &table(at)[index(address, level)];
            if !load(slot).is_present() {
                store(slot, Entry::new(allocate(), TABLE_FLAGS));
            }
            at = load(slot).frame();
        }
        let flags = if size == FrameSize::Large { flags | Flags::LARGE } else { flags };
        store(&table(at)[index(address, last)], Entry::new(frame, flags));
    };
    let rights = |address: u64| {
        if image.text.contains(&address) {
            CODE
        } else if image.rodata.contains(&address) {
            READ_ONLY
        } else {
            DATA
        }
    };
    // The image where it is linked.
    for address in (IMAGE_ADDRESS..image.end).step_by(FRAME_SIZE as usize) {
        map(KERNEL_BASE + address, Frame(address), FrameSize::Small, rights(address));
    }
    // All memory; what the image must not change is read-only here too, and not executable.
    for block in (0..info.private_size).step_by(BLOCK_SIZE as usize) {
        if block < image.end && block + BLOCK_SIZE > IMAGE_ADDRESS {
            for address in (block..block + BLOCK_SIZE).step_by(FRAME_SIZE as usize) {
                map(
                    DIRECT_MAP + address,
                    Frame(address),
                    FrameSize::Small,
                    rights(address) | Flags::NO_EXECUTE,
                );
            }
        } else {
            map(DIRECT_MAP + block, Frame(block), FrameSize::Large, DATA);
        }
    }
    if info.has_channel != 0 {
        map(DIRECT_MAP + CHANNEL_ADDRESS, Frame(CHANNEL_ADDRESS), FrameSize::Large, DATA);
    }
    // Only what the link's sizes say is touched.
    for link in (0..MAX_LINKS).filter(|&link| info.peer(link).is_some()) {
        let first = LINK_MEMORY + link as u64 * LINK_SIZE_MAX;
        for block in (first..first + LINK_SIZE_MAX).step_by(BLOCK_SIZE as usize) {
            map(DIRECT_MAP + block, Frame(block), FrameSize::Large, DATA);
        }
    }
    // Only what is at a place is touched.
    for block in (SHARE_WINDOW..SHARE_WINDOW_END).step_by(BLOCK_SIZE as usize) {
        map(DIRECT_MAP + block, Frame(block), FrameSize::Large, DATA);
    }
    for block in (SHARED_POOL..SHARED_POOL + info.shared_size).step_by(BLOCK_SIZE as usize) {
        map(DIRECT_MAP + block, Frame(block), FrameSize::Large, DATA);
    }
    // The root entry of the kernel's stacks is in every address space from the start.
    store(&table(root)[index(STACK_AREA, 3)], Entry::new(allocate(), TABLE_FLAGS));
    tlb::set_kernel_root(root);
}

/// Held while a page is mapped in the kernel's half.
static IN_KERNEL: SpinLock<()> = SpinLock::new(());

/// Makes a page of a kernel stack present, if it is not, by a frame of `allocate`. In thread
/// context or at boot.
pub fn map_stack_page(
    address: u64,
    allocate: impl FnOnce() -> Option<Frame>,
) -> Result<(), NoFrames> {
    let _held = IN_KERNEL.lock();
    let slot = kernel_slot(address)?;
    if !load(slot).is_present() {
        store(slot, Entry::new(allocate().ok_or(NoFrames)?, DATA));
    }
    Ok(())
}

/// Maps a page of registers of a device that the cell may have, for ever, and returns where that
/// is. `None` if it is no such page, or memory runs low. Thread context.
pub fn map_registers(frame: Frame) -> Option<*mut u32> {
    if !(DEVICE_MEMORY..DEVICE_MEMORY_END).contains(&frame.0) {
        return None;
    }
    let address = DEVICE_AREA + (frame.0 - DEVICE_MEMORY);
    map_kernel_page(address, Entry::new(frame, DATA.union(Flags::UNCACHED))).ok()?;
    Some(address as *mut u32)
}

fn map_kernel_page(address: u64, entry: Entry) -> Result<(), NoFrames> {
    let _held = IN_KERNEL.lock();
    store(kernel_slot(address)?, entry);
    Ok(())
}

/// The entry for the page at `address` in the kernel's half; [`IN_KERNEL`] is held.
fn kernel_slot(address: u64) -> Result<&'static AtomicU64, NoFrames> {
    let mut at = tlb::kernel_root();
    for level in (1..4).rev() {
        let slot = &table(at)[index(address, level)];
        if !load(slot).is_present() {
            store(slot, Entry::new(frames::zeroed_kernel_table().ok_or(NoFrames)?, TABLE_FLAGS));
        }
        at = load(slot).frame();
    }
    Ok(&table(at)[index(address, 0)])
}

/// The root that this CPU uses.
pub fn loaded_root() -> Frame {
    let root: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr3", out(reg) root, options(nostack, preserves_flags, nomem)) };
    Frame(root & !0xfff)
}

/// The private pool has no frame for another table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoFrames;

/// How much a section with the tables locked may still do. One step is a look at an entry, about
/// twenty instructions.
pub struct Steps(u32);

impl Steps {
    /// A walk from the root.
    const WALK: u32 = 3;
    /// What is done with a page that was found.
    const PAGE: u32 = 6;

    /// All that one section may do.
    pub const fn of_section() -> Self {
        Self(40)
    }

    /// Takes some, if there are any left.
    fn take(&mut self, steps: u32) -> bool {
        let any = self.0 > 0;
        self.0 = self.0.saturating_sub(steps);
        any
    }

    /// Something is done with a page.
    pub fn take_page(&mut self) {
        self.take(Self::PAGE);
    }
}

/// What a scan met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    /// A page at an address.
    Page(UserAddr, Entry, FrameSize),
    /// No page below that address; go on there.
    Continue(UserAddr),
}

impl Scan {
    /// The page that was met, if one was; `at` is where to go on then.
    #[inline(always)]
    pub fn page(self, at: &mut UserAddr) -> Option<(UserAddr, Entry, FrameSize)> {
        match self {
            Self::Page(address, entry, size) => {
                *at = address + size.bytes();
                Some((address, entry, size))
            }
            Self::Continue(next) => {
                *at = next;
                None
            }
        }
    }
}

/// The page tables of one program.
pub struct Tables {
    root: Frame,
}

/// The place of a page of a program.
#[derive(Clone, Copy)]
struct Place {
    /// Its entry.
    slot: &'static AtomicU64,
    size: FrameSize,
    /// The entry that points to the table of that.
    above: &'static AtomicU64,
}

impl Place {
    fn load(self) -> Entry {
        load(self.slot)
    }

    /// Puts `entry` where there is none.
    fn fill(self, entry: Entry) {
        store(self.slot, entry);
        if self.size == FrameSize::Small {
            // A processor sets bits there.
            self.above.fetch_add(Entry::ONE_USED, Ordering::Relaxed);
        }
    }

    /// Takes the entry, which is there, away.
    fn empty(self) -> Entry {
        if self.size == FrameSize::Small {
            self.above.fetch_sub(Entry::ONE_USED, Ordering::Relaxed);
        }
        Entry(self.slot.swap(0, Ordering::Relaxed))
    }
}

/// The table of the small pages that a large one becomes. It is filled before the tables are
/// locked.
pub struct Parts {
    whole: Entry,
    /// None once it is in use.
    table: Option<Frame>,
}

impl Parts {
    /// The parts of the large page `whole`.
    pub fn of(whole: Entry) -> Result<Self, NoFrames> {
        let lower = frames::zeroed_table().ok_or(NoFrames)?;
        for (index, slot) in table(lower).iter().enumerate() {
            store(slot, whole.part(index));
        }
        Ok(Self { whole, table: Some(lower) })
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if let Some(frame) = self.table {
            frames::free_table(frame);
        }
    }
}

impl Tables {
    /// Empty tables; `None` without memory.
    pub fn new() -> Option<Self> {
        let root = frames::zeroed_table()?;
        let kernel = table(tlb::kernel_root());
        for (slot, entry) in table(root).iter().zip(kernel).skip(256) {
            store(slot, load(entry));
        }
        Some(Self { root })
    }

    /// The root.
    pub fn root(&self) -> Frame {
        self.root
    }

    /// Where the page at `address` is, if there is one.
    fn place(&self, address: UserAddr) -> Option<Place> {
        let place = self.walk(address, FrameSize::Small, |_| None)?;
        place.load().is_present().then_some(place)
    }

    /// Goes down to the entry for a page of `size` at `address`, or to that of a larger page. Where
    /// a table is missing, `missing` puts one into the entry, or ends the walk.
    #[inline(always)]
    fn walk(
        &self,
        address: UserAddr,
        size: FrameSize,
        missing: impl Fn(&AtomicU64) -> Option<()>,
    ) -> Option<Place> {
        let mut at = self.root;
        let mut above = &table(at)[index(address.get(), 3)];
        for level in (1..4).rev() {
            let slot = &table(at)[index(address.get(), level)];
            let is_last = size == FrameSize::Large && level == 1;
            if is_last || load(slot).flags().contains(Flags::LARGE) {
                return Some(Place { slot, size: FrameSize::Large, above });
            }
            if !load(slot).is_present() {
                missing(slot)?;
            }
            (at, above) = (load(slot).frame(), slot);
        }
        Some(Place { slot: &table(at)[index(address.get(), 0)], size: FrameSize::Small, above })
    }

    /// The page at `address`.
    pub fn get(&self, address: UserAddr) -> Option<(Entry, FrameSize)> {
        self.place(address).map(|place| (place.load(), place.size))
    }

    /// Marks the page at `address` as known to Linux.
    pub fn expose(&mut self, address: UserAddr) {
        if let Some(Place { slot, .. }) = self.place(address) {
            slot.fetch_or(Flags::EXPOSED.bits(), Ordering::Relaxed);
        }
    }

    /// Marks the page at `address` as written to.
    pub fn mark_dirty(&mut self, address: UserAddr) {
        if let Some(Place { slot, .. }) = self.place(address) {
            slot.fetch_or(Flags::DIRTY.bits(), Ordering::Relaxed);
        }
    }

    /// Marks the page of 4 KiB at `address`, if it was written to, as not written to; returns the
    /// entry before.
    pub fn clean(&mut self, address: UserAddr, stale: &mut Stale) -> Option<Entry> {
        let Place { slot, size, .. } = self.place(address)?;
        if size == FrameSize::Large || !load(slot).flags().contains(Flags::DIRTY) {
            return None;
        }
        let before = Entry(slot.fetch_and(!Flags::DIRTY.bits(), Ordering::Relaxed));
        // The processor sets the bit again only when it looks at the tables.
        stale.add(address);
        Some(before)
    }

    /// Makes the tables down to the entry for `address`, and gives the place of that. `None` if
    /// pages of 4 KiB are in the way of one of 2 MiB.
    fn make(
        &mut self,
        address: UserAddr,
        size: FrameSize,
        stale: &mut Stale,
    ) -> Result<Option<Place>, NoFrames> {
        let add =
            |slot: &AtomicU64| frames::zeroed_table().map(|table| store(slot, Entry::table(table)));
        let place = self.walk(address, size, add).ok_or(NoFrames)?;
        if place.size != size {
            return Ok(None);
        }
        let entry = place.load();
        if size == FrameSize::Large && entry.is_present() && !entry.flags().contains(Flags::LARGE) {
            if entry.used() != 0 {
                return Ok(None);
            }
            store(place.slot, Entry::EMPTY);
            stale.add_table(address, entry.frame());
        }
        Ok(Some(place))
    }

    /// Makes the tables for pages of 4 KiB at `address` without mapping anything.
    pub fn reserve(&mut self, address: UserAddr, stale: &mut Stale) -> Result<(), NoFrames> {
        self.make(address, FrameSize::Small, stale).map(|_| ())
    }

    /// Whether no page is in the way of one of 2 MiB at `block`.
    pub fn has_room_for_block(&self, block: UserAddr) -> bool {
        let Some(place) = self.walk(block, FrameSize::Large, |_| None) else { return true };
        let entry = place.load();
        let is_table = !entry.flags().contains(Flags::LARGE);
        !entry.is_present() || is_table && entry.used() == 0
    }

    /// Maps a page where there is none; `false` if something is there.
    pub fn map(
        &mut self,
        address: UserAddr,
        size: FrameSize,
        entry: Entry,
        stale: &mut Stale,
    ) -> Result<bool, NoFrames> {
        match self.make(address, size, stale)? {
            Some(place) if !place.load().is_present() => {
                place.fill(entry);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Unmaps the page at `address`.
    pub fn take(&mut self, address: UserAddr, stale: &mut Stale) -> Option<(Entry, FrameSize)> {
        let place = self.place(address)?;
        stale.add(address);
        Some((place.empty(), place.size))
    }

    /// Changes the rights of the page at `address`; returns the entry before. A CPU that remembers
    /// fewer rights faults and looks again, so that only a loss of rights makes something stale.
    pub fn protect(
        &mut self,
        address: UserAddr,
        protection: Protection,
        stale: &mut Stale,
    ) -> Option<Entry> {
        let Place { slot, .. } = self.place(address)?;
        let before = load(slot);
        let after = before.with_protection(protection);
        store(slot, after);
        if loses_rights(before.flags(), after.flags()) {
            stale.add(address);
        }
        Some(before)
    }

    /// Puts `parts` in place of the page of 2 MiB at `address`; `false` if that is not any more
    /// what it was when they were made. CPUs may go on with the large page, which has the same
    /// meaning.
    pub fn split(&mut self, address: UserAddr, parts: &mut Parts, stale: &mut Stale) -> bool {
        let (Some(place), Some(lower)) = (self.place(address), parts.table) else { return false };
        // A processor may note an access at the same time. What it does later it notes in the
        // parts.
        let replaced = place.slot.compare_exchange(
            parts.whole.0,
            Entry::full_table(lower).0,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if replaced.is_ok() {
            parts.table = None;
            stale.add(address);
        }
        replaced.is_ok()
    }

    /// Looks for the first page in `range`, for `steps` of the section.
    pub fn scan(&self, range: Range<UserAddr>, steps: &mut Steps) -> Scan {
        let mut address = range.start;
        while address < range.end && steps.take(Steps::WALK) {
            let mut at = self.root;
            let mut level = 3;
            loop {
                let entry = load(&table(at)[index(address.get(), level)]);
                if !entry.is_present() {
                    address = address.align_down(span(level)).saturating_add(span(level));
                    break;
                }
                if entry.flags().contains(Flags::LARGE) {
                    return Scan::Page(address.align_down(span(level)), entry, FrameSize::Large);
                }
                at = entry.frame();
                level -= 1;
                if level > 0 {
                    continue;
                }
                // The lowest table is looked through without walking down again.
                for slot in &table(at)[index(address.get(), 0)..] {
                    let entry = load(slot);
                    if address >= range.end || !steps.take(1) {
                        break;
                    }
                    if entry.is_present() {
                        return Scan::Page(address.page_down(), entry, FrameSize::Small);
                    }
                    address = address.page_down() + FRAME_SIZE;
                }
                return Scan::Continue(address);
            }
        }
        Scan::Continue(address)
    }

    /// Frees the first few of the lowest tables in `range` that map nothing any more, and returns
    /// where to go on.
    pub fn prune(&mut self, range: Range<UserAddr>, stale: &mut Stale) -> UserAddr {
        let mut address = range.start;
        let mut walks = TABLES;
        while address < range.end && walks > 0 {
            walks -= 1;
            let mut at = self.root;
            let mut level = 3;
            loop {
                let slot = &table(at)[index(address.get(), level)];
                let entry = load(slot);
                let is_table = entry.is_present() && !entry.flags().contains(Flags::LARGE);
                if is_table && level > 1 {
                    at = entry.frame();
                    level -= 1;
                    continue;
                }
                if is_table && entry.used() == 0 {
                    store(slot, Entry::EMPTY);
                    stale.add_table(address, entry.frame());
                }
                address = address.align_down(span(level)).saturating_add(span(level));
                break;
            }
        }
        address
    }
}

impl Drop for Tables {
    /// Frees the tables (not the pages, which the owner took out before). Preemptible.
    fn drop(&mut self) {
        tlb::evict(self.root, true);
        for slot in &table(self.root)[..256] {
            free_below(load(slot), 2);
        }
        frames::free_table(self.root);
    }
}

/// Whether `after` lacks a right that `before` has.
fn loses_rights(before: Flags, after: Flags) -> bool {
    let rights = Flags::PRESENT | Flags::USER | Flags::WRITE;
    !(before & rights).difference(after).is_empty()
        || after.contains(Flags::NO_EXECUTE) && !before.contains(Flags::NO_EXECUTE)
}

/// Frees the table that `entry` points to, whose own level is `level`, and those below it.
fn free_below(entry: Entry, level: u32) {
    if !entry.is_present() || entry.flags().contains(Flags::LARGE) {
        return;
    }
    if level > 0 {
        for slot in table(entry.frame()) {
            free_below(load(slot), level - 1);
        }
    }
    frames::free_table(entry.frame());
}
