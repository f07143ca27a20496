// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of Linux: what it has, what its devices may have, and the tables by which it has
//! these translate.

use core::sync::atomic::{AtomicU64, Ordering};

use crtos_abi::PAGE_SIZE;
use crtos_iommu::{copies, tables};
use crtos_partition::address::PhysAddr;
use crtos_partition::nested::{Access, PhysicalMemory, RootTables};

use crate::arch::NestedFormat;
use crate::devices::Devices;
use crate::frames::Frames;
use crate::{direct_map, launch_info, processor};

type Tables = RootTables<NestedFormat>;

/// Tells whether all of it is RAM that Linux has.
pub(crate) fn owns(tables: &Tables, frames: &Frames, address: PhysAddr, size: u64) -> bool {
    is_ram(address, size) && tables.owns(frames, address, size)
}

/// The same, where Linux's writes may exit.
fn reads(tables: &Tables, frames: &Frames, address: PhysAddr, size: u64) -> bool {
    is_ram(address, size) && tables.reads(frames, address, size)
}

/// Tells whether Linux's devices may have all of it: RAM of Linux, or devices of Linux. Behind the
/// RAM there are devices only, none of which is the hypervisor's.
fn devices_may_reach(tables: &Tables, frames: &Frames, address: PhysAddr, size: u64) -> bool {
    if address.checked_add(size).is_none() || launch_info::has_controller(address, size) {
        return false;
    }
    let ram_end = direct_map::memory_end().get().next_multiple_of(1 << 30);
    let in_ram = ram_end.saturating_sub(address.get()).min(size);
    in_ram == 0 || tables.reads(frames, address, in_ram)
}

/// Tells whether all of it lies below the end of RAM, and no interrupt controller or timer there.
fn is_ram(address: PhysAddr, size: u64) -> bool {
    let end = address.checked_add(size);
    end.is_some_and(|end| end <= direct_map::memory_end())
        && !launch_info::has_controller(address, size)
}

/// What Linux has, and the hypervisor's frames.
pub(crate) struct LinuxMemory<'a> {
    pub(crate) frames: &'a mut Frames,
    /// Linux's nested tables.
    pub(crate) tables: &'a mut Tables,
    /// What cells have of it that is no memory.
    pub(crate) devices: &'a Devices,
}

impl LinuxMemory<'_> {
    /// The words of Linux from `address` on, if it has all of them, if only to read.
    pub(crate) fn words(&self, address: PhysAddr, count: usize) -> Option<&[AtomicU64]> {
        let there =
            address.is_aligned(8) && reads(self.tables, self.frames, address, 8 * count as u64);
        // SAFETY: RAM that Linux has, so that the direct map reaches it, and no Rust object lives
        // in it; it is aligned.
        there.then(|| unsafe {
            core::slice::from_raw_parts(direct_map::pointer::<AtomicU64>(address), count)
        })
    }

    /// Reads words, likewise.
    pub(crate) fn read(&self, address: PhysAddr, words: &mut [u64]) -> bool {
        let Some(places) = self.words(address, words.len()) else { return false };
        for (word, place) in words.iter_mut().zip(places) {
            *word = place.load(Ordering::Acquire);
        }
        true
    }

    /// Changes the word of a table at `address` by one store. `change` makes the new word of the
    /// old one, and may be asked again; false if Linux does not have the table.
    pub(crate) fn change_word(
        &mut self,
        address: PhysAddr,
        mut change: impl FnMut(u64) -> u64,
    ) -> bool {
        self.words(address, 1).is_some_and(|words| {
            let change = |old| Some(change(old));
            words[0].fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
        })
    }

    /// Tells whether all of it is RAM that Linux has.
    pub(crate) fn owns(&self, address: PhysAddr, size: u64) -> bool {
        owns(self.tables, self.frames, address, size)
    }
}

impl tables::Memory for LinuxMemory<'_> {
    fn may_reach(&self, address: PhysAddr, size: u64) -> bool {
        devices_may_reach(self.tables, self.frames, address, size)
            && !self.devices.reserve(address, size)
    }
}

impl copies::Memory for LinuxMemory<'_> {
    fn read_linux(&self, address: PhysAddr, words: &mut [u64]) -> bool {
        self.read(address, words)
    }

    fn watch(&mut self, page: PhysAddr) -> bool {
        // What Linux cannot write to anyway would be its to write afterwards.
        self.owns(page, PAGE_SIZE)
            && self.tables.protect(self.frames, page, Access::READ_ONLY).is_ok()
    }

    fn unwatch(&mut self, page: PhysAddr) {
        // It was split when it was watched, so nothing is missing.
        let _ = self.tables.protect(self.frames, page, Access::FULL);
    }

    fn end(&self) -> u64 {
        direct_map::memory_end().get().next_multiple_of(1 << 32)
    }

    fn allocate(&mut self) -> Option<PhysAddr> {
        self.frames.allocate_table()
    }

    fn free(&mut self, frame: PhysAddr) {
        self.frames.free_table(frame);
    }

    fn word(&self, address: PhysAddr) -> u64 {
        PhysicalMemory::read(self.frames, address)
    }

    fn set_word(&mut self, address: PhysAddr, word: u64) {
        PhysicalMemory::write(self.frames, address, word);
        // There may be a unit that does not look into caches.
        processor::write_back_line(direct_map::pointer::<u8>(address));
    }
}
