// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nested page tables: which of the machine's memory a guest sees, and where (AMD APM vol. 2,
//! 15.25).
//!
//! Four levels of 512 entries. A leaf maps 4 KiB (level 1), 2 MiB (level 2) or 1 GiB (level 3). A
//! software bit in a leaf remembers that the memory is *private*: that it was taken from the root
//! cell and has to be cleared and given back. Entries change by single 64-bit stores, so that other
//! CPUs may walk the tables meanwhile. Where they allow less than before, whoever changes them has
//! the CPUs flush (15.16.1); an entry that was not present is in no cache.
//!
//! Leaves name the first memory type of the host's page attribute table, which is write-back; the
//! guest's own tables and the memory type ranges decide (15.25.8).

use core::marker::PhantomData;

use crtos_abi::{LARGE_PAGE_SIZE, PAGE_SIZE};

use crate::address::{GuestAddr, PhysAddr};

/// Entries of a table.
pub const ENTRIES: u64 = 512;
/// Level of the top table.
const TOP: u8 = 4;
/// End of the guest addresses that four levels reach.
const ADDRESS_END: u64 = 1 << 48;

/// Access to the memory that tables lie in.
pub trait PhysicalMemory {
    /// Reads the entry at `address`, which lies in a table.
    fn read(&self, address: PhysAddr) -> u64;
    /// Writes the entry at `address`, which lies in a table, by one store.
    fn write(&mut self, address: PhysAddr, entry: u64);
    /// Takes a frame full of zeroes for a table.
    fn allocate_table(&mut self) -> Option<PhysAddr>;
    /// Gives the frame of a table back.
    fn free_table(&mut self, address: PhysAddr);
}

/// What a guest may do with memory beside reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Write.
    pub write: bool,
    /// Fetch instructions.
    pub execute: bool,
}

impl Access {
    /// Everything.
    pub const FULL: Self = Self { write: true, execute: true };
    /// Read and execute.
    pub const READ_ONLY: Self = Self { write: false, execute: true };
}

/// A leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Where its first byte lies.
    pub physical: PhysAddr,
    /// 1 for 4 KiB, 2 for 2 MiB, 3 for 1 GiB.
    pub level: u8,
    /// What is allowed.
    pub access: Access,
    /// It was taken from the root cell.
    pub private: bool,
}

impl Leaf {
    /// Bytes it maps.
    pub fn size(&self) -> u64 {
        size_of_level(self.level)
    }
}

/// An entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing.
    None,
    /// A table.
    Table(PhysAddr),
    /// Memory.
    Leaf(Leaf),
}

/// How entries look to the processor.
pub trait Format {
    /// To bits.
    fn encode(entry: Entry) -> u64;
    /// From bits, in a table of `level`.
    fn decode(bits: u64, level: u8) -> Entry;
}

/// Format of AMD's nested paging: that of ordinary page tables; every access counts as one of user
/// mode.
pub struct Npt;

impl Npt {
    const PRESENT: u64 = 1 << 0;
    const WRITE: u64 = 1 << 1;
    /// User, accessed, dirty: always set, so that the processor never writes to an entry.
    const FIXED: u64 = 1 << 2 | 1 << 5 | 1 << 6;
    const LARGE: u64 = 1 << 7;
    const PRIVATE: u64 = 1 << 52;
    const NO_EXECUTE: u64 = 1 << 63;
    const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
}

impl Format for Npt {
    fn encode(entry: Entry) -> u64 {
        let flag = |condition: bool, bit: u64| if condition { bit } else { 0 };
        match entry {
            Entry::None => 0,
            Entry::Table(address) => address.get() | Self::PRESENT | Self::WRITE | Self::FIXED,
            Entry::Leaf(leaf) => {
                leaf.physical.get()
                    | Self::PRESENT
                    | Self::FIXED
                    | flag(leaf.access.write, Self::WRITE)
                    | flag(!leaf.access.execute, Self::NO_EXECUTE)
                    | flag(leaf.level > 1, Self::LARGE)
                    | flag(leaf.private, Self::PRIVATE)
            }
        }
    }

    fn decode(bits: u64, level: u8) -> Entry {
        if bits & Self::PRESENT == 0 {
            Entry::None
        } else if level > 1 && bits & Self::LARGE == 0 {
            Entry::Table(PhysAddr::new(bits & Self::ADDRESS))
        } else {
            Entry::Leaf(Leaf {
                physical: PhysAddr::new(bits & Self::ADDRESS),
                level,
                access: Access {
                    write: bits & Self::WRITE != 0,
                    execute: bits & Self::NO_EXECUTE == 0,
                },
                private: bits & Self::PRIVATE != 0,
            })
        }
    }
}

/// Why a change of the tables failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// No frame for a table.
    NoMemory,
    /// Something is mapped there already.
    Occupied,
    /// Nothing is mapped there.
    Absent,
}

/// A guest's nested tables.
pub struct NestedTables<F> {
    top: PhysAddr,
    format: PhantomData<F>,
}

fn size_of_level(level: u8) -> u64 {
    PAGE_SIZE << (9 * (level - 1))
}

fn entry_address(table: PhysAddr, guest: GuestAddr, level: u8) -> PhysAddr {
    table + (guest.get() / size_of_level(level) % ENTRIES) * 8
}

impl<F: Format> NestedTables<F> {
    /// Empty tables.
    pub fn new(memory: &mut impl PhysicalMemory) -> Option<Self> {
        Some(Self { top: memory.allocate_table()?, format: PhantomData })
    }

    /// Where the top table lies.
    pub fn top(&self) -> PhysAddr {
        self.top
    }

    /// Maps `leaf` at `guest`, both aligned to the leaf's size.
    pub fn map(
        &mut self,
        memory: &mut impl PhysicalMemory,
        guest: GuestAddr,
        leaf: Leaf,
    ) -> Result<(), MapError> {
        let address = self.reach(memory, guest, leaf.level, true)?;
        if F::decode(memory.read(address), leaf.level) != Entry::None {
            return Err(MapError::Occupied);
        }
        memory.write(address, F::encode(Entry::Leaf(leaf)));
        Ok(())
    }

    /// Removes what is mapped at the aligned piece of `level` at `guest`, splitting larger leaves.
    pub fn unmap(
        &mut self,
        memory: &mut impl PhysicalMemory,
        guest: GuestAddr,
        level: u8,
    ) -> Result<(), MapError> {
        let address = self.reach(memory, guest, level, false)?;
        match F::decode(memory.read(address), level) {
            Entry::Leaf(_) => memory.write(address, F::encode(Entry::None)),
            _ => return Err(MapError::Absent),
        }
        Ok(())
    }

    /// Changes what is allowed for the 4 KiB at `guest`, splitting larger leaves.
    pub fn protect(
        &mut self,
        memory: &mut impl PhysicalMemory,
        guest: GuestAddr,
        access: Access,
    ) -> Result<(), MapError> {
        let address = self.reach(memory, guest, 1, false)?;
        match F::decode(memory.read(address), 1) {
            Entry::Leaf(leaf) => {
                memory.write(address, F::encode(Entry::Leaf(Leaf { access, ..leaf })))
            }
            _ => return Err(MapError::Absent),
        }
        Ok(())
    }

    /// The leaf that maps `guest`, if any; `physical` is the address of the leaf's first byte.
    pub fn lookup(&self, memory: &impl PhysicalMemory, guest: GuestAddr) -> Option<Leaf> {
        if guest.get() >= ADDRESS_END {
            return None;
        }
        let mut table = self.top;
        for level in (1..=TOP).rev() {
            match F::decode(memory.read(entry_address(table, guest, level)), level) {
                Entry::None => return None,
                Entry::Table(next) => table = next,
                Entry::Leaf(leaf) => return Some(leaf),
            }
        }
        None
    }

    /// Where `guest` lies in the machine.
    pub fn translate(&self, memory: &impl PhysicalMemory, guest: GuestAddr) -> Option<PhysAddr> {
        self.lookup(memory, guest).map(|leaf| leaf.physical + guest.offset_in(leaf.size()))
    }

    /// Tells whether `size` bytes from `guest` are mapped writable throughout. Looks at one leaf
    /// after the other.
    pub fn is_writable(&self, memory: &impl PhysicalMemory, guest: GuestAddr, size: u64) -> bool {
        self.all_leaves(memory, guest, size, |leaf| leaf.access.write)
    }

    /// Tells whether `size` bytes from `guest` are mapped throughout.
    pub fn is_mapped(&self, memory: &impl PhysicalMemory, guest: GuestAddr, size: u64) -> bool {
        self.all_leaves(memory, guest, size, |_| true)
    }

    fn all_leaves(
        &self,
        memory: &impl PhysicalMemory,
        guest: GuestAddr,
        size: u64,
        fits: impl Fn(Leaf) -> bool,
    ) -> bool {
        let Some(end) = guest.checked_add(size) else { return false };
        let mut at = guest;
        while at < end {
            match self.lookup(memory, at) {
                Some(leaf) if fits(leaf) => at = at.align_down(leaf.size()) + leaf.size(),
                _ => return false,
            }
        }
        true
    }

    /// Tells whether any leaf maps a part of the `size` bytes of the machine's memory from
    /// `physical`.
    pub fn reaches(&self, memory: &impl PhysicalMemory, physical: PhysAddr, size: u64) -> bool {
        self.table_reaches(memory, self.top, TOP, physical, size)
    }

    fn table_reaches(
        &self,
        memory: &impl PhysicalMemory,
        table: PhysAddr,
        level: u8,
        physical: PhysAddr,
        size: u64,
    ) -> bool {
        (0..ENTRIES).any(|index| match F::decode(memory.read(table + index * 8), level) {
            Entry::None => false,
            Entry::Table(next) => self.table_reaches(memory, next, level - 1, physical, size),
            Entry::Leaf(leaf) => {
                leaf.physical < physical + size && physical < leaf.physical + leaf.size()
            }
        })
    }

    /// Where a guest, whose top table lies at `top`, sees the byte of the machine's memory at
    /// `physical`; the first place, if there are several. `read` reads an entry of a table.
    pub fn find(
        read: &impl Fn(PhysAddr) -> u64,
        top: PhysAddr,
        physical: PhysAddr,
    ) -> Option<GuestAddr> {
        Self::find_in(read, top, TOP, physical).map(GuestAddr::new)
    }

    fn find_in(
        read: &impl Fn(PhysAddr) -> u64,
        table: PhysAddr,
        level: u8,
        physical: PhysAddr,
    ) -> Option<u64> {
        (0..ENTRIES).find_map(|index| {
            let below = match F::decode(read(table + index * 8), level) {
                Entry::None => None,
                Entry::Table(next) => Self::find_in(read, next, level - 1, physical),
                Entry::Leaf(leaf) => {
                    let inside = physical.get().checked_sub(leaf.physical.get());
                    inside.filter(|offset| *offset < leaf.size())
                }
            };
            below.map(|offset| index * size_of_level(level) + offset)
        })
    }

    /// The first leaf that maps `guest` or an address behind it, and where it begins.
    pub fn leaf_from(
        &self,
        memory: &impl PhysicalMemory,
        guest: GuestAddr,
    ) -> Option<(GuestAddr, Leaf)> {
        let from = (guest.get() < ADDRESS_END).then_some(guest.get())?;
        Self::leaf_in(memory, self.top, TOP, 0, from)
    }

    /// The same in a table that maps addresses from `base` on.
    fn leaf_in(
        memory: &impl PhysicalMemory,
        table: PhysAddr,
        level: u8,
        base: u64,
        from: u64,
    ) -> Option<(GuestAddr, Leaf)> {
        let size = size_of_level(level);
        (from.saturating_sub(base) / size..ENTRIES).find_map(|index| {
            let start = base + index * size;
            match F::decode(memory.read(table + index * 8), level) {
                Entry::None => None,
                Entry::Table(next) => Self::leaf_in(memory, next, level - 1, start, from),
                Entry::Leaf(leaf) => Some((GuestAddr::new(start), leaf)),
            }
        })
    }

    /// Removes the first leaf and returns it; frees tables that it finds empty. `None` when nothing
    /// is mapped. Looks at a bounded number of entries: those of one table of each level, and those
    /// of the tables it frees, which it meets once.
    pub fn take_leaf(&mut self, memory: &mut impl PhysicalMemory) -> Option<Leaf> {
        Self::take_from(memory, self.top, TOP)
    }

    fn take_from(memory: &mut impl PhysicalMemory, table: PhysAddr, level: u8) -> Option<Leaf> {
        for index in 0..ENTRIES {
            let address = table + index * 8;
            match F::decode(memory.read(address), level) {
                Entry::None => (),
                Entry::Leaf(leaf) => {
                    memory.write(address, F::encode(Entry::None));
                    return Some(leaf);
                }
                Entry::Table(next) => {
                    let taken = Self::take_from(memory, next, level - 1);
                    if taken.is_some() {
                        return taken;
                    }
                    memory.write(address, F::encode(Entry::None));
                    memory.free_table(next);
                }
            }
        }
        None
    }

    /// Frees the tables; whatever is still mapped is forgotten.
    pub fn free(mut self, memory: &mut impl PhysicalMemory) {
        while self.take_leaf(memory).is_some() {}
        memory.free_table(self.top);
    }

    /// Address of the entry of `level` for `guest`. Splits larger leaves on the way; makes tables
    /// if `create`.
    fn reach(
        &mut self,
        memory: &mut impl PhysicalMemory,
        guest: GuestAddr,
        level: u8,
        create: bool,
    ) -> Result<PhysAddr, MapError> {
        if guest.get() >= ADDRESS_END {
            return Err(MapError::Absent);
        }
        let mut table = self.top;
        for current in (level + 1..=TOP).rev() {
            let address = entry_address(table, guest, current);
            table = match F::decode(memory.read(address), current) {
                Entry::Table(next) => next,
                Entry::None if !create => return Err(MapError::Absent),
                Entry::None => {
                    let next = memory.allocate_table().ok_or(MapError::NoMemory)?;
                    memory.write(address, F::encode(Entry::Table(next)));
                    next
                }
                Entry::Leaf(_) if create => return Err(MapError::Occupied),
                Entry::Leaf(leaf) => {
                    let next = memory.allocate_table().ok_or(MapError::NoMemory)?;
                    for index in 0..ENTRIES {
                        let piece = Leaf {
                            physical: leaf.physical + index * size_of_level(current - 1),
                            level: current - 1,
                            ..leaf
                        };
                        memory.write(next + index * 8, F::encode(Entry::Leaf(piece)));
                    }
                    memory.write(address, F::encode(Entry::Table(next)));
                    next
                }
            };
        }
        Ok(entry_address(table, guest, level))
    }
}

/// The root cell's tables: the machine's memory at its own addresses, except what was taken away.
pub struct RootTables<F>(NestedTables<F>);

impl<F: Format> RootTables<F> {
    /// Identity tables for the first `size` bytes (a multiple of 1 GiB).
    pub fn new(memory: &mut impl PhysicalMemory, size: u64) -> Option<Self> {
        let mut tables = Self(NestedTables::new(memory)?);
        for address in (0..size).step_by(1 << 30) {
            tables.extend(memory, GuestAddr::new(address)).ok()?;
        }
        Some(tables)
    }

    /// The tables themselves.
    pub fn tables(&self) -> &NestedTables<F> {
        &self.0
    }

    /// Maps the 1 GiB around `address`. [`MapError::Occupied`] if something is there already, or
    /// was taken away from there: taking away never leaves a whole GiB empty.
    pub fn extend(
        &mut self,
        memory: &mut impl PhysicalMemory,
        address: GuestAddr,
    ) -> Result<(), MapError> {
        let start = address.align_down(1 << 30);
        let physical = PhysAddr::of_root(start);
        self.0.map(memory, start, Leaf { physical, level: 3, access: Access::FULL, private: false })
    }

    /// [Extends](Self::extend) the tables if nothing is mapped at `address`, which is a device's.
    pub fn reach(
        &mut self,
        memory: &mut impl PhysicalMemory,
        address: PhysAddr,
    ) -> Result<(), MapError> {
        let guest = GuestAddr::of_root(address);
        match self.0.lookup(memory, guest) {
            Some(_) => Ok(()),
            None => self.extend(memory, guest),
        }
    }

    /// Takes the 2 MiB block at `address` away. [`MapError::Absent`] if the root cell does not have
    /// it as a whole.
    pub fn take(
        &mut self,
        memory: &mut impl PhysicalMemory,
        address: PhysAddr,
    ) -> Result<(), MapError> {
        self.0.unmap(memory, GuestAddr::of_root(address), 2)
    }

    /// Gives the 2 MiB block at `address` back, after [`Self::take`].
    pub fn give_back(
        &mut self,
        memory: &mut impl PhysicalMemory,
        address: PhysAddr,
    ) -> Result<(), MapError> {
        let leaf = Leaf { physical: address, level: 2, access: Access::FULL, private: false };
        self.0.map(memory, GuestAddr::of_root(address), leaf)
    }

    /// Changes what the root cell may do with the 4 KiB page at `address`.
    pub fn protect(
        &mut self,
        memory: &mut impl PhysicalMemory,
        address: PhysAddr,
        access: Access,
    ) -> Result<(), MapError> {
        self.0.protect(memory, GuestAddr::of_root(address), access)
    }

    /// Tells whether the root cell has the 2 MiB block at `address` as a whole, but by its pages.
    pub fn is_split(&self, memory: &impl PhysicalMemory, address: PhysAddr) -> bool {
        self.owns(memory, address, LARGE_PAGE_SIZE) && !self.owns_block(memory, address)
    }

    /// Makes the block at `address` one again that [is split](Self::is_split). No CPU of the root
    /// cell walks the tables meanwhile, or has cached what it knows of them.
    pub fn join(&mut self, memory: &mut impl PhysicalMemory, address: PhysAddr) {
        if !self.is_split(memory, address) {
            return;
        }
        let guest = GuestAddr::of_root(address);
        let Ok(place) = self.0.reach(memory, guest, 2, false) else { return };
        if let Entry::Table(table) = F::decode(memory.read(place), 2) {
            let leaf = Leaf { physical: address, level: 2, access: Access::FULL, private: false };
            memory.write(place, F::encode(Entry::Leaf(leaf)));
            memory.free_table(table);
        }
    }

    /// Tells whether the root cell has all of `size` bytes from `address`, if only to read.
    pub fn reads(&self, memory: &impl PhysicalMemory, address: PhysAddr, size: u64) -> bool {
        self.0.is_mapped(memory, GuestAddr::of_root(address), size)
    }

    /// Takes the 4 KiB page at `address` away, which is a device's.
    pub fn hide(
        &mut self,
        memory: &mut impl PhysicalMemory,
        address: PhysAddr,
    ) -> Result<(), MapError> {
        self.0.unmap(memory, GuestAddr::of_root(address), 1)
    }

    /// Gives the 4 KiB page at `address` back, after [`Self::hide`].
    pub fn show(
        &mut self,
        memory: &mut impl PhysicalMemory,
        address: PhysAddr,
    ) -> Result<(), MapError> {
        let leaf = Leaf { physical: address, level: 1, access: Access::FULL, private: false };
        self.0.map(memory, GuestAddr::of_root(address), leaf)
    }

    /// Tells whether the root cell has all of `size` bytes from `address`, writable.
    pub fn owns(&self, memory: &impl PhysicalMemory, address: PhysAddr, size: u64) -> bool {
        self.0.is_writable(memory, GuestAddr::of_root(address), size)
    }

    /// Tells whether the root cell has the 2 MiB block at `address` as a whole.
    pub fn owns_block(&self, memory: &impl PhysicalMemory, address: PhysAddr) -> bool {
        self.owns(memory, address, LARGE_PAGE_SIZE)
            && self
                .0
                .lookup(memory, GuestAddr::of_root(address))
                .is_some_and(|leaf| leaf.level >= 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap, HashSet};

    #[derive(Default)]
    struct Memory {
        words: HashMap<PhysAddr, u64>,
        tables: HashSet<PhysAddr>,
        next: u64,
    }

    impl PhysicalMemory for Memory {
        fn read(&self, address: PhysAddr) -> u64 {
            assert!(
                self.tables.contains(&address.align_down(PAGE_SIZE)),
                "read outside of a table"
            );
            *self.words.get(&address).unwrap_or(&0)
        }
        fn write(&mut self, address: PhysAddr, entry: u64) {
            assert!(
                self.tables.contains(&address.align_down(PAGE_SIZE)),
                "write outside of a table"
            );
            self.words.insert(address, entry);
        }
        fn allocate_table(&mut self) -> Option<PhysAddr> {
            self.next += PAGE_SIZE;
            let table = PhysAddr::new(self.next);
            self.tables.insert(table);
            Some(table)
        }
        fn free_table(&mut self, address: PhysAddr) {
            assert!(self.tables.remove(&address), "freed twice");
            self.words.retain(|word, _| word.align_down(PAGE_SIZE) != address);
        }
    }

    #[test]
    fn a_block_whose_pages_are_writable_again_is_joined() {
        let mut memory = Memory::default();
        let mut root = RootTables::<Npt>::new(&mut memory, 1 << 30).expect("memory");
        let (block, page) = (PhysAddr::new(0x40_0000), PhysAddr::new(0x40_3000));
        assert!(root.owns_block(&memory, block));
        root.protect(&mut memory, page, Access::READ_ONLY).expect("memory");
        let tables = memory.tables.len();
        assert!(!root.owns(&memory, page, 8) && root.reads(&memory, page, 8));
        assert!(!root.is_split(&memory, block));
        root.join(&mut memory, block);
        assert!(!root.owns(&memory, page, 8));
        root.protect(&mut memory, page, Access::FULL).expect("memory");
        assert!(root.is_split(&memory, block) && !root.owns_block(&memory, block));
        root.join(&mut memory, block);
        assert!(root.owns_block(&memory, block));
        assert_eq!(memory.tables.len(), tables - 1);
        root.take(&mut memory, block).expect("a block");
        assert!(!root.reads(&memory, page, 8));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Map(GuestAddr, Leaf),
        Unmap(GuestAddr, u8),
        Take,
    }

    fn step() -> impl Strategy<Value = Step> {
        let level = prop_oneof![Just(1u8), Just(2u8)];
        prop_oneof![
            3 => (level.clone(), 0u64..2048, 0u64..2048, any::<[bool; 3]>()).prop_map(
                |(level, guest, physical, [write, execute, private])| {
                    let size = size_of_level(level);
                    let physical = physical % 1024 * size;
                    let access = Access { write, execute };
                    let physical = PhysAddr::new(physical);
                    let guest = GuestAddr::new(guest % 1024 * size);
                    Step::Map(guest, Leaf { physical, level, access, private })
                }
            ),
            1 => (level, 0u64..1024).prop_map(|(level, n)| {
                Step::Unmap(GuestAddr::new(n * size_of_level(level)), level)
            }),
            1 => Just(Step::Take),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// The tables translate like a map from 4 KiB pages to pages.
        #[test]
        fn tables_agree_with_a_model(steps in prop::collection::vec(step(), 1..60)) {
            let mut memory = Memory::default();
            let mut tables = NestedTables::<Npt>::new(&mut memory).expect("memory");
            let mut model: BTreeMap<GuestAddr, (PhysAddr, Leaf)> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Map(guest, leaf) => {
                        let pages = guest..guest + leaf.size();
                        let result = tables.map(&mut memory, guest, leaf);
                        if result.is_ok() {
                            prop_assert!(model.range(pages).next().is_none());
                            for offset in (0..leaf.size()).step_by(4096) {
                                model.insert(guest + offset, (leaf.physical + offset, leaf));
                            }
                        } else {
                            // A table that became empty may stay until it is reclaimed.
                            prop_assert_eq!(result, Err(MapError::Occupied));
                            prop_assert!(leaf.level == 2 || model.range(pages).next().is_some());
                        }
                    }
                    Step::Unmap(guest, level) => {
                        if tables.unmap(&mut memory, guest, level).is_ok() {
                            for offset in (0..size_of_level(level)).step_by(4096) {
                                prop_assert!(model.remove(&(guest + offset)).is_some());
                            }
                        }
                    }
                    Step::Take => match tables.take_leaf(&mut memory) {
                        None => prop_assert!(model.is_empty()),
                        Some(leaf) => {
                            let (&first, &(physical, _)) =
                                model.iter().next().expect("model has it");
                            prop_assert_eq!(leaf.physical, physical);
                            for offset in (0..leaf.size()).step_by(4096) {
                                prop_assert!(model.remove(&(first + offset)).is_some());
                            }
                        }
                    },
                }
                for (guest, (physical, leaf)) in model.iter().step_by(1009) {
                    prop_assert_eq!(tables.translate(&memory, *guest + 5), Some(*physical + 5));
                    let found = tables.lookup(&memory, *guest).expect("mapped");
                    prop_assert_eq!((found.access, found.private), (leaf.access, leaf.private));
                    prop_assert!(tables.reaches(&memory, *physical, 4096));
                    let read = |address| memory.read(address);
                    let found = NestedTables::<Npt>::find(&read, tables.top(), *physical + 9);
                    // Another page may have the same memory.
                    prop_assert!(found.is_some_and(|found| found <= *guest + 9));
                    let back = found.and_then(|found| tables.translate(&memory, found));
                    prop_assert_eq!(back, Some(*physical + 9));
                }
            }
            tables.free(&mut memory);
            prop_assert!(memory.tables.is_empty());
        }

        /// Whatever is taken from the root cell and given back, it sees exactly what was not taken,
        /// at its own addresses.
        #[test]
        fn the_root_cell_sees_what_was_not_taken(
            blocks in prop::collection::vec((0u64..1024, any::<bool>()), 0..80),
        ) {
            let mut memory = Memory::default();
            let mut root = RootTables::<Npt>::new(&mut memory, 2 << 30).expect("memory");
            let mut taken = HashSet::new();
            for (block, take) in blocks {
                let address = PhysAddr::new(block * LARGE_PAGE_SIZE);
                if take {
                    prop_assert_eq!(root.owns_block(&memory, address), !taken.contains(&block));
                    prop_assert_eq!(root.take(&mut memory, address).is_ok(), taken.insert(block));
                } else {
                    prop_assert_eq!(
                        root.give_back(&mut memory, address).is_ok(),
                        taken.remove(&block)
                    );
                }
            }
            for block in 0..1024 {
                let address = PhysAddr::new(block * LARGE_PAGE_SIZE + 0x1234);
                let expected = (!taken.contains(&block)).then_some(address);
                prop_assert_eq!(
                    root.tables().translate(&memory, GuestAddr::of_root(address)),
                    expected
                );
            }
            prop_assert_eq!(root.extend(&mut memory, GuestAddr::new(0)), Err(MapError::Occupied));
        }
    }

    #[test]
    fn a_protected_page_splits_what_is_around_it() {
        let mut memory = Memory::default();
        let mut root = RootTables::<Npt>::new(&mut memory, 1 << 30).expect("memory");
        root.protect(&mut memory, PhysAddr::new(0x40_1000), Access::READ_ONLY).expect("mapped");
        assert!(!root.owns(&memory, PhysAddr::new(0x40_1000), 1));
        assert!(root.owns(&memory, PhysAddr::new(0x40_0000), 0x1000));
        assert!(!root.owns(&memory, PhysAddr::new(0x40_0000), 0x1001));
        assert!(!root.owns_block(&memory, PhysAddr::new(0x40_0000)));
        assert!(root.owns_block(&memory, PhysAddr::new(0x60_0000)));
        assert_eq!(
            root.tables().translate(&memory, GuestAddr::new(0x40_1234)),
            Some(PhysAddr::new(0x40_1234))
        );
        assert!(root.take(&mut memory, PhysAddr::new(0x40_0000)).is_err());
    }
}
