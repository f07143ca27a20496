// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page tables: the kernel's own half, which all address spaces share, and the half of one program.

use super::cpu;
use crate::mm::frames;
use crate::mm::layout::{self, STACK_AREA};
use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use crtos_abi::boot::{
    BootInfo, CHANNEL_ADDRESS, DIRECT_MAP, IMAGE_ADDRESS, KERNEL_BASE, SHARED_POOL,
};
use crtos_vm::entry::{index, span};
use crtos_vm::{BLOCK_SIZE, Entry, FRAME_SIZE, Flags, Frame, FrameSize, Protection};

const TABLE_FLAGS: Flags = Flags::PRESENT.union(Flags::WRITE);
const CODE: Flags = Flags::PRESENT.union(Flags::GLOBAL);
const READ_ONLY: Flags = CODE.union(Flags::NO_EXECUTE);
const DATA: Flags = READ_ONLY.union(Flags::WRITE);

static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

/// A table as the processor sees it: it sets bits in entries by itself.
type Table = [AtomicU64; 512];

fn table(frame: Frame) -> &'static Table {
    // SAFETY: only frames that were made tables get here; they stay tables until their space is
    // gone, are mapped for ever at the direct map, and are accessed atomically only.
    unsafe { &*layout::direct(frame.0).cast::<Table>() }
}

fn load(slot: &AtomicU64) -> Entry {
    Entry(slot.load(Ordering::Relaxed))
}

fn store(slot: &AtomicU64, entry: Entry) {
    slot.store(entry.0, Ordering::Relaxed);
}

/// Builds the kernel's tables from memory that `allocate` gives (zeroed frames, reachable through
/// the initial tables) and loads them. On the first CPU at boot.
pub fn build_kernel(info: &BootInfo, mut allocate: impl FnMut() -> Frame) {
    let root = allocate();
    let image = layout::image();
    let mut map = |address: u64, frame: u64, size: FrameSize, flags: Flags| {
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
        store(&table(at)[index(address, last)], Entry::new(Frame(frame), flags));
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
        map(KERNEL_BASE + address, address, FrameSize::Small, rights(address));
    }
    // All memory; what the image must not change is read-only here too, and not executable.
    for block in (0..info.private_size).step_by(BLOCK_SIZE as usize) {
        if block < image.end && block + BLOCK_SIZE > IMAGE_ADDRESS {
            for address in (block..block + BLOCK_SIZE).step_by(FRAME_SIZE as usize) {
                map(
                    DIRECT_MAP + address,
                    address,
                    FrameSize::Small,
                    rights(address) | Flags::NO_EXECUTE,
                );
            }
        } else {
            map(DIRECT_MAP + block, block, FrameSize::Large, DATA);
        }
    }
    if info.has_channel != 0 {
        map(DIRECT_MAP + CHANNEL_ADDRESS, CHANNEL_ADDRESS, FrameSize::Large, DATA);
    }
    for block in (SHARED_POOL..SHARED_POOL + info.shared_size).step_by(BLOCK_SIZE as usize) {
        map(DIRECT_MAP + block, block, FrameSize::Large, DATA);
    }
    // The root entry of the kernel's stacks is in every address space from the start.
    store(&table(root)[index(STACK_AREA, 3)], Entry::new(allocate(), TABLE_FLAGS));
    KERNEL_ROOT.store(root.0, Ordering::Release);
    load_root(root);
}

/// Maps a page of a kernel stack. In thread context or at boot; not concurrently.
pub fn map_stack_page(address: u64, frame: Frame) -> Result<(), NoFrames> {
    let mut at = Frame(KERNEL_ROOT.load(Ordering::Acquire));
    for level in (1..4).rev() {
        let slot = &table(at)[index(address, level)];
        if !load(slot).is_present() {
            store(slot, Entry::new(frames::zeroed_kernel_table().ok_or(NoFrames)?, TABLE_FLAGS));
        }
        at = load(slot).frame();
    }
    store(&table(at)[index(address, 0)], Entry::new(frame, DATA));
    Ok(())
}

/// The root that this CPU uses.
pub fn loaded_root() -> u64 {
    let root: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr3", out(reg) root, options(nostack, preserves_flags, nomem)) };
    root & !0xfff
}

fn load_root(root: Frame) {
    // SAFETY: every root maps the kernel alike; what a program's half maps does not matter to Rust.
    unsafe { asm!("mov cr3, {}", in(reg) root.0, options(nostack, preserves_flags)) }
}

/// Has this CPU use the program's half under `root`. Interrupts off.
pub fn activate(root: Frame) {
    if loaded_root() != root.0 {
        load_root(root);
    }
}

/// Has this CPU use no program's half if it uses that of `root`, which is about to go.
pub fn deactivate(root: Frame) {
    let interrupts = cpu::disable_interrupts();
    if loaded_root() == root.0 {
        load_root(Frame(KERNEL_ROOT.load(Ordering::Acquire)));
    }
    cpu::restore_interrupts(interrupts);
}

/// Forgets what this CPU remembers of the page at `address` of the space under `root`.
fn flush(root: Frame, address: u64) {
    if loaded_root() == root.0 {
        // SAFETY: only drops a cached translation.
        unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) }
    }
}

/// The private pool has no frame for another table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoFrames;

/// What a scan met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    /// A page at an address.
    Page(u64, Entry, FrameSize),
    /// No page below that address; go on there.
    Continue(u64),
}

/// The page tables of one program.
pub struct Tables {
    root: Frame,
}

impl Tables {
    /// Empty tables; `None` without memory.
    pub fn new() -> Option<Self> {
        let root = frames::zeroed_table()?;
        let kernel = table(Frame(KERNEL_ROOT.load(Ordering::Acquire)));
        for (slot, entry) in table(root).iter().zip(kernel).skip(256) {
            store(slot, load(entry));
        }
        Some(Self { root })
    }

    /// The root.
    pub fn root(&self) -> Frame {
        self.root
    }

    /// The entry that maps `address`, and its size.
    fn slot(&self, address: u64) -> Option<(&'static AtomicU64, FrameSize)> {
        let mut at = self.root;
        for level in (1..4).rev() {
            let slot = &table(at)[index(address, level)];
            let entry = load(slot);
            if !entry.is_present() {
                return None;
            }
            if entry.flags().contains(Flags::LARGE) {
                return Some((slot, FrameSize::Large));
            }
            at = entry.frame();
        }
        let slot = &table(at)[index(address, 0)];
        load(slot).is_present().then_some((slot, FrameSize::Small))
    }

    /// The page at `address`.
    pub fn get(&self, address: u64) -> Option<(Entry, FrameSize)> {
        self.slot(address).map(|(slot, size)| (load(slot), size))
    }

    /// Marks the page at `address` as known to Linux.
    pub fn expose(&mut self, address: u64) {
        if let Some((slot, _)) = self.slot(address) {
            slot.fetch_or(Flags::EXPOSED.bits(), Ordering::Relaxed);
        }
    }

    /// Makes the tables down to the entry for `address`, and gives that entry. `None` if pages of 4
    /// KiB are in the way of one of 2 MiB.
    fn make(
        &mut self,
        address: u64,
        size: FrameSize,
    ) -> Result<Option<&'static AtomicU64>, NoFrames> {
        let last = if size == FrameSize::Large { 1 } else { 0 };
        let mut at = self.root;
        for level in (last + 1..4).rev() {
            let slot = &table(at)[index(address, level)];
            let entry = load(slot);
            if !entry.is_present() {
                store(slot, Entry::table(frames::zeroed_table().ok_or(NoFrames)?));
            } else if entry.flags().contains(Flags::LARGE) {
                return Ok(None);
            }
            at = load(slot).frame();
        }
        let slot = &table(at)[index(address, last)];
        let entry = load(slot);
        if size == FrameSize::Large && entry.is_present() && !entry.flags().contains(Flags::LARGE) {
            if table(entry.frame()).iter().any(|slot| load(slot).is_present()) {
                return Ok(None);
            }
            store(slot, Entry::EMPTY);
            flush(self.root, address);
            frames::free_table(entry.frame());
        }
        Ok(Some(slot))
    }

    /// Makes the tables for pages of 4 KiB at `address` without mapping anything.
    pub fn reserve(&mut self, address: u64) -> Result<(), NoFrames> {
        self.make(address, FrameSize::Small).map(|_| ())
    }

    /// Maps a page where there is none; `false` if something is there.
    pub fn map(&mut self, address: u64, size: FrameSize, entry: Entry) -> Result<bool, NoFrames> {
        match self.make(address, size)? {
            Some(slot) if !load(slot).is_present() => {
                store(slot, entry);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Unmaps the page at `address`.
    pub fn take(&mut self, address: u64) -> Option<(Entry, FrameSize)> {
        let (slot, size) = self.slot(address)?;
        let entry = Entry(slot.swap(0, Ordering::Relaxed));
        flush(self.root, address);
        Some((entry, size))
    }

    /// Changes the rights of the page at `address`; returns the entry before.
    pub fn protect(&mut self, address: u64, protection: Protection) -> Option<Entry> {
        let (slot, _) = self.slot(address)?;
        let before = load(slot);
        store(slot, before.with_protection(protection));
        flush(self.root, address);
        Some(before)
    }

    /// Turns the page of 2 MiB that `address` lies in, if it does, into pages of 4 KiB.
    pub fn split(&mut self, address: u64) -> Result<(), NoFrames> {
        let Some((slot, FrameSize::Large)) = self.slot(address) else { return Ok(()) };
        let lower = frames::zeroed_table().ok_or(NoFrames)?;
        let entry = load(slot);
        for (i, slot) in table(lower).iter().enumerate() {
            let frame = Frame(entry.frame().0 + i as u64 * FRAME_SIZE);
            store(slot, Entry::new(frame, entry.flags().difference(Flags::LARGE)));
        }
        store(slot, Entry::table(lower));
        flush(self.root, address);
        Ok(())
    }

    /// Looks for the first page in `range`; looks at a bounded number of entries.
    pub fn scan(&self, range: Range<u64>) -> Scan {
        let mut address = range.start;
        for _ in 0..64 {
            if address >= range.end {
                break;
            }
            let mut at = self.root;
            let mut level = 3;
            loop {
                let entry = load(&table(at)[index(address, level)]);
                if !entry.is_present() {
                    address = (address & !(span(level) - 1)).saturating_add(span(level));
                    break;
                }
                if level == 0 || entry.flags().contains(Flags::LARGE) {
                    let size = if level == 0 { FrameSize::Small } else { FrameSize::Large };
                    return Scan::Page(address & !(span(level) - 1), entry, size);
                }
                at = entry.frame();
                level -= 1;
            }
        }
        Scan::Continue(address)
    }

    /// Frees the lowest tables in `range` that map nothing any more. Looks at a bounded number of
    /// tables and returns where to go on.
    pub fn prune(&mut self, range: Range<u64>) -> u64 {
        let mut address = range.start;
        for _ in 0..4 {
            if address >= range.end {
                break;
            }
            let mut at = self.root;
            let mut level = 3;
            loop {
                let slot = &table(at)[index(address, level)];
                let entry = load(slot);
                let is_table = entry.is_present() && !entry.flags().contains(Flags::LARGE);
                if is_table && level > 1 {
                    at = entry.frame();
                    level -= 1;
                    continue;
                }
                if is_table && !table(entry.frame()).iter().any(|slot| load(slot).is_present()) {
                    store(slot, Entry::EMPTY);
                    flush(self.root, address);
                    frames::free_table(entry.frame());
                }
                address = (address & !(span(level) - 1)).saturating_add(span(level));
                break;
            }
        }
        address
    }
}

impl Drop for Tables {
    /// Frees the tables (not the pages, which the owner took out before). Preemptible.
    fn drop(&mut self) {
        deactivate(self.root);
        for slot in &table(self.root)[..256] {
            free_below(load(slot), 2);
        }
        frames::free_table(self.root);
    }
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
