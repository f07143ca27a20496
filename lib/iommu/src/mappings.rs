// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables by which one function of a cell translates that finds nothing of its own accord: the
//! cell says page by page what it finds.
//!
//! Units may have cached a table until they are told to forget: so [`Mappings::carry_out`] takes
//! tables out that have become empty, and they are [freed](Gone::free) after that.

use core::ops::Range;

use crtos_abi::PAGE_SIZE;
use crtos_abi::device::{MAPPED_READ, MAPPED_WRITE, MAX_MAPPED_PAGES};
use crtos_partition::address::PhysAddr;
use crtos_partition::error::Refusal;

use crate::DomainId;
use crate::cell_tables::CellTables;
use crate::copies::Memory;
use crate::layout::{Access, Kind, Piece};
use crate::tables::{ENTRIES, Entry, Rights, order_of_level};

/// Most pages that are mapped or unmapped at once.
const MOST_PAGES: u64 = MAX_MAPPED_PAGES;
/// So few pages lie in two tables of a level at most.
const MOST_GONE: usize = 8;

/// The tables of a function.
#[derive(Clone, Copy, Debug)]
pub struct Mappings {
    tables: CellTables,
    /// Tables below the top one.
    below: u32,
}

/// What a cell asks for: see [`crtos_abi::hypercall::HC_DEVICE_MAP`] and
/// [`crtos_abi::hypercall::HC_DEVICE_UNMAP`].
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// The function is to find these pages.
    Map {
        /// First address that it names.
        input: u64,
        /// Where the cell has the memory, and what the function may do.
        memory: u64,
        /// How many.
        pages: u64,
    },
    /// It is to find none of these any more.
    Unmap {
        /// First address that it names.
        input: u64,
        /// How many.
        pages: u64,
    },
}

/// Tables that nothing leads to any more, and that units may have cached.
#[derive(Debug, Default)]
#[must_use]
pub struct Gone([Option<PhysAddr>; MOST_GONE]);

impl Gone {
    fn add(&mut self, table: PhysAddr) {
        // There is room for all.
        if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
            *place = Some(table);
        }
    }

    /// Gives their memory back; the units have forgotten them.
    pub fn free(self, memory: &mut impl Memory) {
        self.0.into_iter().flatten().for_each(|table| memory.free(table));
    }
}

/// Bits of the addresses that tables of `kind` translate. The upper half of first-stage addresses
/// is left out.
fn width(kind: Kind) -> u32 {
    let own = kind.level().map_or(0, |level| order_of_level(level + 1)).min(63);
    if matches!(kind, Kind::First(_)) { own - 1 } else { own }
}

impl Mappings {
    /// Tables of `kind`, which maps memory, by which nothing is found. `None` if there is no
    /// memory.
    pub fn new(memory: &mut impl Memory, kind: Kind, domain: DomainId) -> Option<Self> {
        Some(Self { tables: CellTables::new(memory, kind, domain)?, below: 0 })
    }

    /// What the function translates by.
    pub fn tables(&self) -> CellTables {
        self.tables
    }

    /// Bits of the addresses that the function names.
    pub fn width(&self) -> u32 {
        width(self.tables.kind)
    }

    /// How many tables there are below the top one.
    pub fn below(&self) -> u32 {
        self.below
    }

    /// The `pages` from `input` on, if they are ones that can be mapped or unmapped at once.
    fn range(&self, input: u64, pages: u64) -> Option<Range<u64>> {
        let fits = input.is_multiple_of(PAGE_SIZE) && (1..=MOST_PAGES).contains(&pages);
        let end = input.checked_add(pages.min(MOST_PAGES) * PAGE_SIZE)?;
        (fits && end <= 1 << self.width()).then_some(input..end)
    }

    /// Carries out a request. At most `most` tables are below the top one; `memory_of` says where a
    /// page of the cell's memory lies, and whether the cell may write to it. Whatever comes of it,
    /// the units have to forget what they cached: before the memory is anybody else's, and before
    /// the tables that are gone are freed. A request to map that is refused for want of memory may
    /// leave pages mapped, and tables: one to unmap takes both back.
    pub fn carry_out<M: Memory>(
        &mut self,
        memory: &mut M,
        request: Request,
        most: u32,
        memory_of: impl Fn(&M, u64) -> Option<(PhysAddr, bool)>,
    ) -> Result<Gone, Refusal> {
        match request {
            Request::Map { input, memory: start, pages } => {
                let has = |bit| start & bit != 0;
                let rights = Rights { read: has(MAPPED_READ), write: has(MAPPED_WRITE) };
                let start = start & !(MAPPED_READ | MAPPED_WRITE);
                self.map(memory, input, pages, rights, most, |memory, page| {
                    let own = start.checked_add(page * PAGE_SIZE);
                    let own = own.filter(|own| own.is_multiple_of(PAGE_SIZE))?;
                    let (address, writable) = memory_of(memory, own)?;
                    (writable || !rights.write).then_some(address)
                })
            }
            Request::Unmap { input, pages } => self.unmap(memory, input, pages),
        }
    }

    /// Has the function find pages from `input` on, where nothing is: page number `n` at what
    /// `memory_of(n)` says.
    fn map<M: Memory>(
        &mut self,
        memory: &mut M,
        input: u64,
        pages: u64,
        rights: Rights,
        most: u32,
        memory_of: impl Fn(&M, u64) -> Option<PhysAddr>,
    ) -> Result<Gone, Refusal> {
        let range = self.range(input, pages).ok_or(Refusal::Invalid)?;
        // All is looked at before anything is found.
        let known = (0..pages).all(|page| memory_of(memory, page).is_some());
        if !known || rights.is_none() || self.finds(memory, range) {
            return Err(Refusal::Invalid);
        }
        for page in 0..pages {
            let at = input + page * PAGE_SIZE;
            let (missing, address) = (self.missing(memory, at), memory_of(memory, page));
            if self.below + missing > most {
                return Err(Refusal::NoMemory);
            }
            let address = address.ok_or(Refusal::Invalid)?;
            let piece = Piece { address, order: 12, access: Access { rights, caching: 0 } };
            let mapped = self.tables.map(memory, at, piece);
            self.below += missing - self.missing(memory, at);
            if !mapped {
                return Err(Refusal::NoMemory);
            }
        }
        Ok(Gone::default())
    }

    /// Has the function find none of these pages any more.
    fn unmap(&mut self, memory: &mut impl Memory, input: u64, pages: u64) -> Result<Gone, Refusal> {
        let range = self.range(input, pages).ok_or(Refusal::Invalid)?;
        let mut gone = Gone::default();
        let CellTables { top, kind, .. } = self.tables;
        self.clear(memory, top, kind, range, &mut gone);
        Ok(gone)
    }

    /// How many tables are missing on the way to the page at `input`.
    fn missing(&self, memory: &impl Memory, input: u64) -> u32 {
        let (mut table, mut kind) = (self.tables.top, self.tables.kind);
        while let Some(level @ 2..) = kind.level() {
            let place = table + 8 * (input >> order_of_level(level) & (ENTRIES - 1));
            let Entry::Table { address, .. } = kind.decode(memory.word(place)) else {
                return u32::from(level) - 1;
            };
            (table, kind) = (address, kind.below());
        }
        0
    }

    /// Tells whether one of these pages is found.
    fn finds(&self, memory: &impl Memory, range: Range<u64>) -> bool {
        range.step_by(PAGE_SIZE as usize).any(|input| {
            let (mut table, mut kind) = (self.tables.top, self.tables.kind);
            while let Some(level) = kind.level() {
                let place = table + 8 * (input >> order_of_level(level) & (ENTRIES - 1));
                match kind.decode(memory.word(place)) {
                    Entry::Table { address, .. } => (table, kind) = (address, kind.below()),
                    Entry::None => return false,
                    Entry::Leaf { .. } | Entry::Malformed => return true,
                }
            }
            false
        })
    }

    /// Clears what a table has of `range`, and takes tables out that are empty then.
    fn clear(
        &mut self,
        memory: &mut impl Memory,
        table: PhysAddr,
        kind: Kind,
        range: Range<u64>,
        gone: &mut Gone,
    ) {
        let Some(level) = kind.level() else { return };
        let order = order_of_level(level);
        for number in range.start >> order..=(range.end - 1) >> order {
            let place = table + 8 * (number & (ENTRIES - 1));
            match kind.decode(memory.word(place)) {
                Entry::Leaf { .. } => memory.set_word(place, 0),
                Entry::Table { address, .. } => {
                    let (start, end) = (number << order, (number + 1) << order);
                    let part = range.start.max(start)..range.end.min(end);
                    self.clear(memory, address, kind.below(), part, gone);
                    if (0..ENTRIES).all(|index| memory.word(address + 8 * index) == 0) {
                        memory.set_word(place, 0);
                        gone.add(address);
                        self.below -= 1;
                    }
                }
                Entry::None | Entry::Malformed => (),
            }
        }
    }

    /// Gives all memory back. The function does not translate by them, and the units have forgotten
    /// them.
    pub fn free(self, memory: &mut impl Memory) {
        self.tables.free(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::tests::Model;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// What a unit finds for a page.
    fn find(model: &Model, mappings: &Mappings, input: u64) -> Option<(u64, Rights)> {
        let CellTables { top: mut table, mut kind, .. } = mappings.tables();
        loop {
            let level = kind.level().expect("it maps memory");
            let index = input >> order_of_level(level) & (ENTRIES - 1);
            match kind.decode(model.word(table + 8 * index)) {
                Entry::Table { address, .. } => (table, kind) = (address, kind.below()),
                Entry::Leaf { address, rights, .. } => return Some((address.get(), rights)),
                Entry::None => return None,
                Entry::Malformed => panic!("malformed"),
            }
        }
    }

    const KINDS: [Kind; 6] = [
        Kind::Second(3),
        Kind::Second(4),
        Kind::Second(5),
        Kind::First(4),
        Kind::Host(3),
        Kind::Host(5),
    ];

    proptest! {
        /// The function finds what is mapped and nothing else, tables are counted, and those that
        /// are empty go, after the units were told.
        #[test]
        fn functions_find_what_is_mapped_and_not_unmapped(
            kind in prop::sample::select(&KINDS[..]),
            steps in prop::collection::vec(
                (any::<bool>(), 0u64..6, 0u64..512, 0u64..=MOST_PAGES + 1, any::<bool>()),
                1..24,
            ),
            most in 0u32..16,
            limit in 3usize..24,
        ) {
            let mut model = Model::default();
            model.limit = Some(limit);
            let mut mappings = Mappings::new(&mut model, kind, DomainId(9)).expect("memory");
            let mut expected = BTreeMap::new();
            let mut touched = BTreeSet::new();
            for (number, (map, place, page, pages, write)) in steps.into_iter().enumerate() {
                // Far apart, so that tables of all levels come and go; the last is too high.
                let start = [0, 1 << 21, 1 << 30, (1 << 38) - (1 << 21), 5 << 30, 1 << 62];
                let input = start[place as usize] + (page << 12);
                let inputs = (0..pages).map(|page| input + (page << 12));
                let sound = (1..=MOST_PAGES).contains(&pages) && place < 5;
                let rights = Rights { read: true, write };
                let of = |page: u64| (((number as u64 + 1) << 32) + (page << 12), rights);
                if map {
                    let before = (mappings.below(), model.frames.len());
                    let done = mappings.map(&mut model, input, pages, rights, most, |_, page| {
                        Some(PhysAddr::new(of(page).0))
                    });
                    let free = inputs.clone().all(|input| !expected.contains_key(&input));
                    match done {
                        Ok(_) => {
                            prop_assert!(sound && free);
                            expected.extend(inputs.clone().zip((0..).map(of)));
                        }
                        Err(Refusal::Invalid) => {
                            prop_assert!(!sound || !free);
                            prop_assert_eq!(before, (mappings.below(), model.frames.len()));
                        }
                        Err(other) if other != Refusal::NoMemory => panic!("{other:?}"),
                        Err(_) => {
                            prop_assert!(sound && free);
                            let gone = mappings.unmap(&mut model, input, pages).expect("sound");
                            gone.free(&mut model);
                        }
                    }
                    touched.extend(inputs);
                } else {
                    let frames = model.frames.len();
                    let gone = mappings.unmap(&mut model, input, pages);
                    prop_assert_eq!(gone.is_ok(), sound);
                    // Until the units are told, all is still there.
                    prop_assert_eq!(model.frames.len(), frames);
                    gone.into_iter().for_each(|gone| gone.free(&mut model));
                    if sound {
                        expected.retain(|input, _| !inputs.clone().any(|gone| gone == *input));
                    }
                }
                for &input in touched.iter().filter(|input| **input < 1 << 38) {
                    let found = find(&model, &mappings, input);
                    prop_assert_eq!(found, expected.get(&input).copied());
                }
                prop_assert_eq!(model.frames.len(), 1 + mappings.below() as usize);
                prop_assert!(mappings.below() <= most);
                // No table is empty.
                let blocks: BTreeSet<_> = expected.keys().map(|input| input >> 21).collect();
                let least = if expected.is_empty() { 0 } else { blocks.len() };
                prop_assert!(mappings.below() as usize >= least);
                prop_assert!(!expected.is_empty() || mappings.below() == 0);
            }
            mappings.free(&mut model);
            prop_assert!(model.is_left_alone());
        }

        /// Memory that the cell does not have is not mapped, nor what lies beside it.
        #[test]
        fn all_pages_have_to_be_the_cells(missing in 0u64..8) {
            let mut model = Model::default();
            let kind = Kind::Second(4);
            let mut mappings = Mappings::new(&mut model, kind, DomainId(9)).expect("memory");
            let of = |_: &Model, page: u64| (page != missing).then(|| PhysAddr::new(page << 12));
            let done = mappings.map(&mut model, 0x1000, 8, Rights::ALL, 9, of);
            prop_assert_eq!(done.err(), Some(Refusal::Invalid));
            prop_assert!((1..9).all(|page| find(&model, &mappings, page << 12).is_none()));
            prop_assert_eq!(mappings.below(), 0);
        }
    }

    /// A function gets no rights that the cell does not have.
    #[test]
    fn rights_are_those_of_the_cell() {
        let mut model = Model::default();
        let kind = Kind::Second(4);
        let mut mappings = Mappings::new(&mut model, kind, DomainId(9)).expect("memory");
        let mut ask = |memory, pages| {
            let request = Request::Map { input: 0x7000_0000, memory, pages };
            let of = |_: &Model, own: u64| Some((PhysAddr::new(0x100_0000 + own), own < 0x2000));
            let done = mappings.carry_out(&mut model, request, 9, of);
            let found = find(&model, &mappings, 0x7000_0000);
            let request = Request::Unmap { input: 0x7000_0000, pages: 64 };
            let gone = mappings.carry_out(&mut model, request, 9, of).expect("sound");
            gone.free(&mut model);
            (done.err(), found)
        };
        let of = |read, write| Some((0x100_1000, Rights { read, write }));
        let refused = (Some(Refusal::Invalid), None);
        assert_eq!(ask(0x1000, 1), refused);
        assert_eq!(ask(0x1000 | MAPPED_READ, 1), (None, of(true, false)));
        assert_eq!(ask(0x1000 | MAPPED_WRITE, 1), (None, of(false, true)));
        assert_eq!(ask(0x1000 | MAPPED_WRITE, 2), refused);
        assert_eq!(ask(0x1000 | MAPPED_READ, 2), (None, of(true, false)));
        assert_eq!(ask(0x1004 | MAPPED_READ, 1), refused);
        assert_eq!(ask(!0, 1), refused);
    }

    #[test]
    fn addresses_have_as_many_bits_as_the_tables_translate() {
        assert_eq!([39, 48, 57, 47, 39, 57], KINDS.map(width));
    }
}
