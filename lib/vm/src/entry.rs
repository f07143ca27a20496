// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of page tables (AMD APM vol. 2, 5.3; Intel SDM vol. 3, 4.5): four levels, pages of 4 KiB
//! and 2 MiB.
//!
//! A page with contents that the program may not access (PROT_NONE) stays in its entry, but hidden
//! from the processor. The kernel reaches programs' memory at their own addresses, and must not
//! reach such a page either.

use crate::{FRAME_SIZE, Frame, FrameSize, Protection};
use bitflags::bitflags;

bitflags! {
    /// The bits of an entry beside the address.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u64 {
        /// The entry is valid.
        const PRESENT = 1;
        /// Writes are allowed.
        const WRITE = 1 << 1;
        /// Privilege level 3 may access.
        const USER = 1 << 2;
        /// Accesses go to the device behind the address, one by one and in their order.
        const UNCACHED = 1 << 3 | 1 << 4;
        /// The processor has written to the page, or the kernel has on behalf of the program or of
        /// Linux.
        const DIRTY = 1 << 6;
        /// A page of 2 MiB (in a page directory).
        const LARGE = 1 << 7;
        /// The translation survives a change of the address space.
        const GLOBAL = 1 << 8;
        /// For software: Linux was given the page.
        const EXPOSED = 1 << 9;
        /// For software: the entry is valid, but to the processor it is not present.
        const HIDDEN = 1 << 10;
        /// For software: the page was cleared when it was put here. Unless it is `DIRTY` it holds
        /// zeros.
        const CLEARED = 1 << 11;
        /// No instruction fetch.
        const NO_EXECUTE = 1 << 63;
    }
}

/// The bits of the address of a frame.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// An entry that points to a table of level 0 counts here how many entries of that table are in
/// use. The processor ignores these bits.
const USED_SHIFT: u32 = 52;
const USED: u64 = 0x3ff << USED_SHIFT;

/// An entry of a page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(pub u64);

impl Entry {
    /// An entry that is not in use.
    pub const EMPTY: Self = Self(0);

    /// Makes an entry for `frame`.
    pub const fn new(frame: Frame, flags: Flags) -> Self {
        Self(frame.0 & ADDRESS | flags.bits())
    }

    /// Makes the entry that points to a lower table of a program.
    pub const fn table(frame: Frame) -> Self {
        Self::new(frame, Flags::PRESENT.union(Flags::WRITE).union(Flags::USER))
    }

    /// Makes the entry that points to a table whose entries are all in use, those of the parts of a
    /// large page.
    pub const fn full_table(frame: Frame) -> Self {
        Self(Self::table(frame).0 | (ENTRIES as u64) << USED_SHIFT)
    }

    /// The value to add to an entry that points to a table of level 0 for each entry of that table
    /// that comes into use.
    pub const ONE_USED: u64 = 1 << USED_SHIFT;

    /// Returns how many entries of the table of level 0 that this entry points to are in use.
    pub const fn used(self) -> u64 {
        (self.0 & USED) >> USED_SHIFT
    }

    /// Makes the entry for part `index` of a large page, one of the [`ENTRIES`] small pages that it
    /// becomes. A part does not count as cleared, because a processor may still note a write to the
    /// large page.
    pub fn part(self, index: usize) -> Self {
        let frame = Frame(self.frame().0 + index as u64 * FRAME_SIZE);
        Self::new(frame, self.flags().difference(Flags::LARGE | Flags::CLEARED))
    }

    /// Makes the entry for a page of a program.
    pub fn user_page(frame: Frame, size: FrameSize, protection: Protection) -> Self {
        let flags = if size == FrameSize::Large { Flags::LARGE } else { Flags::empty() };
        Self::new(frame, flags).with_protection(protection)
    }

    /// Makes the entry for the same page with other rights. Writable and executable memory is
    /// readable, as under Linux. The page no longer counts as cleared, because a processor may note
    /// a write to it meanwhile.
    pub fn with_protection(self, protection: Protection) -> Self {
        let mut flags = self.flags()
            & (Flags::LARGE | Flags::EXPOSED | Flags::GLOBAL | Flags::DIRTY | Flags::UNCACHED);
        flags.set(Flags::PRESENT, !protection.is_empty());
        flags.set(Flags::HIDDEN, protection.is_empty());
        flags.set(Flags::USER, !protection.is_empty());
        flags.set(Flags::WRITE, protection.contains(Protection::WRITE));
        flags.set(Flags::NO_EXECUTE, !protection.contains(Protection::EXECUTE));
        Self::new(self.frame(), flags)
    }

    /// Says whether nobody has written to the page since it was cleared.
    pub fn is_untouched(self) -> bool {
        self.flags().contains(Flags::CLEARED) && !self.flags().contains(Flags::DIRTY)
    }

    /// Adds flags.
    pub fn with(self, flags: Flags) -> Self {
        Self(self.0 | flags.bits())
    }

    /// Says whether it is valid, visible to the processor or hidden from it.
    pub fn is_present(self) -> bool {
        self.flags().intersects(Flags::PRESENT | Flags::HIDDEN)
    }

    /// Returns the flags.
    pub fn flags(self) -> Flags {
        Flags::from_bits_truncate(self.0)
    }

    /// Returns the frame that it points to.
    pub fn frame(self) -> Frame {
        Frame(self.0 & ADDRESS)
    }
}

/// Entries of a table.
pub const ENTRIES: usize = 512;

/// Returns the index of a virtual address in the table of `level` (3 is the root, 0 holds pages of
/// 4 KiB).
pub const fn index(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * level)) as usize & 511
}

/// Returns the bytes that one entry of a table of `level` covers.
pub const fn span(level: u32) -> u64 {
    1 << (12 + 9 * level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rights_become_bits() {
        let page = |p| Entry::user_page(Frame(0x1234_5000), FrameSize::Small, p).flags();
        assert_eq!(page(Protection::empty()), Flags::HIDDEN | Flags::NO_EXECUTE);
        assert_eq!(page(Protection::READ), Flags::PRESENT | Flags::USER | Flags::NO_EXECUTE);
        assert_eq!(
            page(Protection::WRITE),
            Flags::PRESENT | Flags::USER | Flags::WRITE | Flags::NO_EXECUTE
        );
        assert_eq!(page(Protection::READ | Protection::EXECUTE), Flags::PRESENT | Flags::USER);
    }

    #[test]
    fn memory_of_a_device_stays_uncached_whatever_the_rights() {
        let page = Entry::user_page(Frame(0xe000_0000), FrameSize::Small, Protection::WRITE);
        let registers = page.with(Flags::UNCACHED);
        for rights in [Protection::empty(), Protection::READ, Protection::WRITE] {
            assert!(registers.with_protection(rights).flags().contains(Flags::UNCACHED));
            assert!(!page.with_protection(rights).flags().intersects(Flags::UNCACHED));
        }
    }

    #[test]
    fn a_page_is_untouched_until_it_is_written_to_or_its_rights_change() {
        let page = Entry::user_page(Frame(0x1234_5000), FrameSize::Large, Protection::WRITE);
        assert!(!page.is_untouched());
        let cleared = page.with(Flags::CLEARED);
        assert!(cleared.is_untouched() && cleared.with(Flags::EXPOSED).is_untouched());
        assert!(!cleared.with(Flags::DIRTY).is_untouched());
        assert!(!cleared.with_protection(Protection::WRITE).is_untouched());
    }

    #[test]
    fn a_large_page_becomes_small_ones_with_its_rights_and_history() {
        let large = Entry::user_page(Frame(0x40_0000), FrameSize::Large, Protection::WRITE)
            .with(Flags::EXPOSED | Flags::DIRTY);
        for index in [0, 1, ENTRIES - 1] {
            let part = large.part(index);
            assert_eq!(part.frame(), Frame(0x40_0000 + index as u64 * 4096));
            assert_eq!(part.flags(), large.flags().difference(Flags::LARGE));
        }
        let hidden = large.with_protection(Protection::empty()).part(7);
        assert!(hidden.is_present() && !hidden.flags().intersects(Flags::PRESENT | Flags::LARGE));
        // A write that a processor notes later would be lost.
        let cleared = Entry::user_page(Frame(0x40_0000), FrameSize::Large, Protection::WRITE)
            .with(Flags::CLEARED);
        assert!(cleared.is_untouched() && !cleared.part(0).is_untouched());
    }

    proptest! {
        #[test]
        fn what_is_in_use_is_counted_beside_the_rest(
            frame in 0..1_u64 << 40,
            changes in proptest::collection::vec(any::<bool>(), 0..2000),
            accessed: bool,
        ) {
            let frame = Frame(frame << 12);
            let mut entry = Entry::table(frame);
            let mut count = 0;
            for more in changes {
                match more {
                    true if count < ENTRIES as u64 => {
                        entry.0 += Entry::ONE_USED;
                        count += 1;
                    }
                    false if count > 0 => {
                        entry.0 -= Entry::ONE_USED;
                        count -= 1;
                    }
                    _ => {}
                }
                // The processor notes that it walked through it.
                entry.0 |= u64::from(accessed) << 5;
                prop_assert_eq!(entry.used(), count);
                prop_assert_eq!(entry.frame(), frame);
                prop_assert_eq!(entry.flags(), Entry::table(frame).flags());
            }
        }
    }

    #[test]
    fn a_table_of_parts_is_full() {
        let entry = Entry::full_table(Frame(0x1234_5000));
        assert_eq!(entry.used(), ENTRIES as u64);
        assert_eq!(Entry(entry.0 & !USED), Entry::table(Frame(0x1234_5000)));
        assert_eq!(Entry(entry.0 - ENTRIES as u64 * Entry::ONE_USED).used(), 0);
    }

    #[test]
    fn exposure_and_size_survive_a_change_of_rights() {
        let entry = Entry::user_page(Frame(0x40_0000), FrameSize::Large, Protection::WRITE)
            .with(Flags::EXPOSED);
        let entry = entry.with_protection(Protection::empty());
        assert!(entry.flags().contains(Flags::EXPOSED | Flags::LARGE));
        assert_eq!(entry.frame(), Frame(0x40_0000));
        assert!(!entry.flags().intersects(Flags::USER | Flags::WRITE));
    }
}
