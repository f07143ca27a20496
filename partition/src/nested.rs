// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nested page tables: which of the machine's memory a guest sees, and where (AMD APM vol. 2, 15.25).
//!
//! Four levels of 512 entries. A leaf maps 4 KiB (level 1), 2 MiB (level 2) or 1 GiB (level 3). A software bit in
//! a leaf remembers that the memory is *private*: that it was taken from the root cell and has to be
//! cleared and given back. Entries change by single 64-bit stores, so that other CPUs may walk the tables meanwhile.

use core::marker::PhantomData;

use crtos_abi::{LARGE_PAGE_SIZE, PAGE_SIZE};

/// Entries of a table.
pub const ENTRIES: u64 = 512;
/// Level of the top table.
const TOP: u8 = 4;
/// End of the guest addresses that four levels reach.
const ADDRESS_END: u64 = 1 << 48;

/// Access to the memory that tables lie in.
pub trait PhysicalMemory {
    /// Reads the entry at physical `address`.
    fn read(&self, address: u64) -> u64;
    /// Writes the entry at physical `address` by one store.
    fn write(&mut self, address: u64, entry: u64);
    /// Takes a frame full of zeroes for a table.
    fn allocate_table(&mut self) -> Option<u64>;
    /// Gives the frame of a table back.
    fn free_table(&mut self, address: u64);
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
    /// Physical address of its first byte.
    pub physical: u64,
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
    /// A table at a physical address.
    Table(u64),
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

/// Format of AMD's nested paging: that of ordinary page tables; every access counts as one of user mode.
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
            Entry::Table(address) => address | Self::PRESENT | Self::WRITE | Self::FIXED,
            Entry::Leaf(leaf) => {
                leaf.physical
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
            Entry::Table(bits & Self::ADDRESS)
        } else {
            Entry::Leaf(Leaf {
                physical: bits & Self::ADDRESS,
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
    top: u64,
    format: PhantomData<F>,
}

fn size_of_level(level: u8) -> u64 {
    PAGE_SIZE << (9 * (level - 1))
}

fn entry_address(table: u64, guest: u64, level: u8) -> u64 {
    table + (guest / size_of_level(level) % ENTRIES) * 8
}

impl<F: Format> NestedTables<F> {
    /// Empty tables.
    pub fn new(memory: &mut impl PhysicalMemory) -> Option<Self> {
        Some(Self { top: memory.allocate_table()?, format: PhantomData })
    }

    /// Physical address of the top table.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Maps `leaf` at `guest`, both aligned to the leaf's size.
    pub fn map(
        &mut self,
        memory: &mut impl PhysicalMemory,
        guest: u64,
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
        guest: u64,
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
        guest: u64,
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
    pub fn lookup(&self, memory: &impl PhysicalMemory, guest: u64) -> Option<Leaf> {
        if guest >= ADDRESS_END {
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

    /// Physical address that `guest` lies at.
    pub fn translate(&self, memory: &impl PhysicalMemory, guest: u64) -> Option<u64> {
        self.lookup(memory, guest).map(|leaf| leaf.physical + guest % leaf.size())
    }

    /// Is `size` bytes from `guest` mapped writable throughout? Looks at one leaf after the other.
    pub fn is_writable(&self, memory: &impl PhysicalMemory, guest: u64, size: u64) -> bool {
        let Some(end) = guest.checked_add(size) else { return false };
        let mut at = guest;
        while at < end {
            match self.lookup(memory, at) {
                Some(leaf) if leaf.access.write => at = (at / leaf.size() + 1) * leaf.size(),
                _ => return false,
            }
        }
        true
    }

    /// Does any leaf map a part of the `size` bytes of the machine's memory from `physical`?
    pub fn reaches(&self, memory: &impl PhysicalMemory, physical: u64, size: u64) -> bool {
        self.table_reaches(memory, self.top, TOP, physical, size)
    }

    fn table_reaches(
        &self,
        memory: &impl PhysicalMemory,
        table: u64,
        level: u8,
        physical: u64,
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

    /// Removes the first leaf and returns it; frees tables that it finds empty. `None` when nothing is mapped.
    /// Looks at a bounded number of entries: those of one table of each level, and those of the tables it frees,
    /// which it meets once.
    pub fn take_leaf(&mut self, memory: &mut impl PhysicalMemory) -> Option<Leaf> {
        Self::take_from(memory, self.top, TOP)
    }

    fn take_from(memory: &mut impl PhysicalMemory, table: u64, level: u8) -> Option<Leaf> {
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

    /// Address of the entry of `level` for `guest`. Splits larger leaves on the way; makes tables if `create`.
    fn reach(
        &mut self,
        memory: &mut impl PhysicalMemory,
        guest: u64,
        level: u8,
        create: bool,
    ) -> Result<u64, MapError> {
        if guest >= ADDRESS_END {
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
            tables.extend(memory, address).ok()?;
        }
        Some(tables)
    }

    /// The tables themselves.
    pub fn tables(&self) -> &NestedTables<F> {
        &self.0
    }

    /// Maps the 1 GiB around `address`. [`MapError::Occupied`] if something is there already, or was taken
    /// away from there: taking away never leaves a whole GiB empty.
    pub fn extend(
        &mut self,
        memory: &mut impl PhysicalMemory,
        address: u64,
    ) -> Result<(), MapError> {
        let physical = address & !((1 << 30) - 1);
        let leaf = Leaf { physical, level: 3, access: Access::FULL, private: false };
        self.0.map(memory, physical, leaf)
    }

    /// Takes the 2 MiB block at `address` away. [`MapError::Absent`] if the root cell does not have it as a
    /// whole.
    pub fn take(&mut self, memory: &mut impl PhysicalMemory, address: u64) -> Result<(), MapError> {
        self.0.unmap(memory, address, 2)
    }

    /// Gives the 2 MiB block at `address` back, after [`Self::take`].
    pub fn give_back(
        &mut self,
        memory: &mut impl PhysicalMemory,
        address: u64,
    ) -> Result<(), MapError> {
        let leaf = Leaf { physical: address, level: 2, access: Access::FULL, private: false };
        self.0.map(memory, address, leaf)
    }

    /// Makes the 4 KiB page at `address` read-only.
    pub fn write_protect(
        &mut self,
        memory: &mut impl PhysicalMemory,
        address: u64,
    ) -> Result<(), MapError> {
        self.0.protect(memory, address, Access::READ_ONLY)
    }

    /// Does the root cell have all of `size` bytes from `address`, writable?
    pub fn owns(&self, memory: &impl PhysicalMemory, address: u64, size: u64) -> bool {
        self.0.is_writable(memory, address, size)
    }

    /// Does the root cell have the 2 MiB block at `address` as a whole?
    pub fn owns_block(&self, memory: &impl PhysicalMemory, address: u64) -> bool {
        self.owns(memory, address, LARGE_PAGE_SIZE)
            && self.0.lookup(memory, address).is_some_and(|leaf| leaf.level >= 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap, HashSet};

    #[derive(Default)]
    struct Memory {
        words: HashMap<u64, u64>,
        tables: HashSet<u64>,
        next: u64,
    }

    impl PhysicalMemory for Memory {
        fn read(&self, address: u64) -> u64 {
            assert!(self.tables.contains(&(address & !0xfff)), "read outside of a table");
            *self.words.get(&address).unwrap_or(&0)
        }
        fn write(&mut self, address: u64, entry: u64) {
            assert!(self.tables.contains(&(address & !0xfff)), "write outside of a table");
            self.words.insert(address, entry);
        }
        fn allocate_table(&mut self) -> Option<u64> {
            self.next += 0x1000;
            self.tables.insert(self.next);
            Some(self.next)
        }
        fn free_table(&mut self, address: u64) {
            assert!(self.tables.remove(&address), "freed twice");
            self.words.retain(|word, _| word & !0xfff != address);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Map(u64, Leaf),
        Unmap(u64, u8),
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
                    Step::Map(guest % 1024 * size, Leaf { physical, level, access, private })
                }
            ),
            1 => (level, 0u64..1024).prop_map(|(level, n)| Step::Unmap(n * size_of_level(level), level)),
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
            let mut model: BTreeMap<u64, (u64, Leaf)> = BTreeMap::new();
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
                            let (&first, &(physical, _)) = model.iter().next().expect("model has it");
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
                }
            }
            tables.free(&mut memory);
            prop_assert!(memory.tables.is_empty());
        }

        /// Whatever is taken from the root cell and given back, it sees exactly what was not taken, at its own addresses.
        #[test]
        fn the_root_cell_sees_what_was_not_taken(blocks in prop::collection::vec((0u64..1024, any::<bool>()), 0..80)) {
            let mut memory = Memory::default();
            let mut root = RootTables::<Npt>::new(&mut memory, 2 << 30).expect("memory");
            let mut taken = HashSet::new();
            for (block, take) in blocks {
                let address = block * LARGE_PAGE_SIZE;
                if take {
                    prop_assert_eq!(root.owns_block(&memory, address), !taken.contains(&block));
                    prop_assert_eq!(root.take(&mut memory, address).is_ok(), taken.insert(block));
                } else {
                    prop_assert_eq!(root.give_back(&mut memory, address).is_ok(), taken.remove(&block));
                }
            }
            for block in 0..1024 {
                let address = block * LARGE_PAGE_SIZE + 0x1234;
                let expected = (!taken.contains(&block)).then_some(address);
                prop_assert_eq!(root.tables().translate(&memory, address), expected);
            }
            prop_assert_eq!(root.extend(&mut memory, 0), Err(MapError::Occupied));
        }
    }

    #[test]
    fn a_protected_page_splits_what_is_around_it() {
        let mut memory = Memory::default();
        let mut root = RootTables::<Npt>::new(&mut memory, 1 << 30).expect("memory");
        root.write_protect(&mut memory, 0x40_1000).expect("mapped");
        assert!(!root.owns(&memory, 0x40_1000, 1));
        assert!(root.owns(&memory, 0x40_0000, 0x1000));
        assert!(!root.owns(&memory, 0x40_0000, 0x1001));
        assert!(!root.owns_block(&memory, 0x40_0000));
        assert!(root.owns_block(&memory, 0x60_0000));
        assert_eq!(root.tables().translate(&memory, 0x40_1234), Some(0x40_1234));
        assert!(root.take(&mut memory, 0x40_0000).is_err());
    }
}
