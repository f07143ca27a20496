// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of Linux's tables for devices, which are what the units get.
//!
//! There is one copy of each table of Linux, as far as it can be reached from what Linux gave a
//! unit. An entry of a copy refers to the copy of the lower table, or to memory that Linux's
//! devices may have; otherwise it is empty. A table of Linux that has a copy is *watched*: Linux's
//! stores there exit, so that the copy changes with the table. Whatever gets into a table unseen
//! gets into no copy.
//!
//! Where Linux does not translate, a copy maps all that Linux's devices may have to itself.
//!
//! Who wants no exits for Linux's stores to page tables has these *checked* only: what tells of
//! devices is copied, and refers to Linux's own page tables, which are walked through when they are
//! attached and when memory changes its owner ([`Copies::look_again`]). A Linux that changes them
//! in between is believed.
//!
//! Functions of *cells* translate by those cells' tables, or not at all, whatever Linux's tables
//! say of them ([`Copies::set_function`]). A table of functions is copied for each bus of which a
//! cell has one: two buses of Linux's may have the same.
//!
//! A copy that is not referred to any more stays until the units have forgotten it:
//! [`Copies::collect`]. Memory that becomes private is withdrawn from all copies, and the units
//! forget it, before a cell has it.

use core::hash::Hash;
use core::ops::RangeInclusive;

use crtos_abi::device::MAX_DEVICES;
use crtos_abi::{MAX_CELLS, PAGE_SIZE};
use crtos_partition::address::PhysAddr;
use crtos_partition::ids::CellId;
use heapless::Vec;
use heapless::index_map::FnvIndexMap;

use crate::cell_tables::CellTables;
use crate::layout::{Access, Asked, Kind, MAX_WORDS, Piece, Words};
use crate::tables::{self, Entry, Rights, order_of_level};
use crate::{DomainId, Requester};

/// Most tables that there are copies of. Tests keep them on their stack.
pub const MAX_TABLES: usize = if cfg!(test) { 64 } else { 4096 };
const PAGE: u64 = PAGE_SIZE;
/// Units have so many domains at most, of which the highest ones are the hypervisor's. One that has
/// fewer than [`FEW`] has none for cells.
const MANY: u32 = 1 << 16;
const FEW: u32 = 1 << 8;
/// Tables for buses: each device is told of by one for its bus or by one for half of it, and by
/// another while the mode changes.
const MAX_BUSES: usize = 2 * MAX_DEVICES;
const WORDS: u64 = PAGE / 8;
/// Words that are read of a table at once.
const CHUNK: usize = 16;
/// Most entries that are read of page tables that are checked only. What lies beyond is believed.
const STEPS: u32 = 1 << 18;
/// Order of the largest pieces that a copy maps. Larger ones of Linux are mapped by pieces, since
/// Linux may have a part of them only.
const LARGE: u32 = 21;

/// What copies take of the machine.
pub trait Memory: tables::Memory {
    /// Reads words of a page of Linux; false if Linux does not have it.
    fn read_linux(&self, address: PhysAddr, words: &mut [u64]) -> bool;
    /// Has Linux's stores to this page exit; false if it cannot write there anyway, or if memory
    /// does not suffice.
    fn watch(&mut self, page: PhysAddr) -> bool;
    /// Undoes that.
    fn unwatch(&mut self, page: PhysAddr);
    /// End of the addresses that Linux's devices see where Linux does not translate.
    fn end(&self) -> u64;
    /// Takes a frame full of zeroes for a copy.
    fn allocate(&mut self) -> Option<PhysAddr>;
    /// Gives the frame of a copy back.
    fn free(&mut self, frame: PhysAddr);
    /// Reads a word of a copy.
    fn word(&self, address: PhysAddr) -> u64;
    /// Writes a word of a copy, by one store, for the units to see.
    fn set_word(&mut self, address: PhysAddr, word: u64);
}

/// What Linux gave a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Top {
    /// A table of it.
    Table(PhysAddr, Kind),
    /// It does not translate.
    Untranslated(Kind),
    /// Nothing that can be copied: no device gets through.
    Blocked(Kind),
}

impl Top {
    /// What the table is that the unit gets.
    pub fn kind(&self) -> Kind {
        match *self {
            Self::Table(_, kind) | Self::Untranslated(kind) | Self::Blocked(kind) => kind,
        }
    }
}

/// A function of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its number among those of cells, below [`MAX_DEVICES`].
    pub place: usize,
    /// By what it translates; `None` if by nothing.
    pub tables: Option<CellTables>,
}

/// What a copy is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Of {
    /// This.
    Top(Top),
    /// No table: memory by its own addresses from `start` on, in a table of `kind`.
    Identity { start: PhysAddr, kind: Kind, access: Access },
    /// A table of functions from `first` on, of which cells have some.
    Bus { first: Requester, top: Top },
    /// No table: what leads to those of a cell, in a table of `kind`.
    Cell { tables: CellTables, kind: Kind },
}

/// Whether Linux's stores to a table exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    On,
    /// Linux has made a store that was not understood: not until it tells its unit something.
    Lost,
    /// The processor translates by it as well, and its walks count as writes.
    Never,
}

#[derive(Clone, Copy, Debug)]
struct Copied {
    copy: PhysAddr,
    /// Where it is not, it is empty.
    watch: Watch,
    /// So many entries and units refer to it.
    references: u32,
}

/// All copies.
pub struct Copies {
    tables: FnvIndexMap<Of, Copied, MAX_TABLES>,
    /// The kind of the top table where Linux does not translate.
    identity: Kind,
    /// Page tables of Linux are checked only.
    checked: bool,
    /// Units have so many domains.
    domains: u32,
    /// Functions of cells, and by what they translate.
    functions: [Option<(Requester, Option<CellTables>)>; MAX_DEVICES],
    /// The first functions of tables that have, or had, a copy for their bus.
    buses: Vec<Requester, MAX_BUSES>,
    /// As what Linux's table in a page has copies: [`Kind::bit`]s. Each store of Linux is looked up
    /// here.
    pages: FnvIndexMap<PhysAddr, u32, MAX_TABLES>,
    /// Some are not referred to any more.
    unused: bool,
    /// Some are lost.
    lost: bool,
    refused: u64,
    missing: u64,
}

impl Copies {
    /// None. Where Linux does not translate, top tables are of the kind `identity`.
    pub const fn new(identity: Kind) -> Self {
        let tables = FnvIndexMap::new();
        Self {
            tables,
            identity,
            checked: false,
            domains: MANY,
            functions: [None; MAX_DEVICES],
            buses: Vec::new(),
            pages: FnvIndexMap::new(),
            unused: false,
            lost: false,
            refused: 0,
            missing: 0,
        }
    }

    /// Has page tables of Linux checked only, or not, while there are no copies.
    pub fn set_checked(&mut self, checked: bool) {
        debug_assert!(self.is_empty());
        self.checked = checked;
    }

    /// Tells whether page tables of Linux are checked only.
    pub fn is_checked(&self) -> bool {
        self.checked
    }

    /// How often an entry of Linux's was refused, each time that it was looked at.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// How often there was no memory for a copy: what Linux maps there is missing.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// The kind of the top table where Linux does not translate.
    pub fn identity(&self) -> Kind {
        self.identity
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Changes [`Self::identity`], while there are no copies.
    pub fn set_identity(&mut self, identity: Kind) {
        debug_assert!(self.is_empty());
        self.identity = identity;
    }

    /// Says that a unit has so many domains.
    pub fn limit_domains(&mut self, count: u32) {
        self.domains = self.domains.min(count);
    }

    /// The hypervisor's domains, which Linux may not use.
    pub fn own_domains(&self) -> RangeInclusive<DomainId> {
        let first = self.first_own();
        // None, if there is no first one.
        DomainId(first.unwrap_or(1))..=DomainId(first.map_or(0, |first| first + (OWN - 1)))
    }

    fn first_own(&self) -> Option<u16> {
        (self.domains >= FEW).then(|| (self.domains - u32::from(OWN)) as u16)
    }

    /// The domain of the devices of a cell; `None` if a unit has too few.
    pub fn domain_of(&self, cell: CellId) -> Option<DomainId> {
        self.first_own().map(|first| DomainId(first + cell.get() as u16))
    }

    /// The domain of the function of cells at `place`, below [`MAX_DEVICES`], if that has tables of
    /// its own; likewise.
    pub fn domain_of_function(&self, place: usize) -> Option<DomainId> {
        self.first_own().map(|first| DomainId(first + (MAX_CELLS + place % MAX_DEVICES) as u16))
    }

    /// A function that a cell has; `None` if none has it.
    pub fn function(&self, function: Requester) -> Option<Function> {
        self.functions.iter().enumerate().find_map(|(place, known)| match *known {
            Some((of, tables)) if of == function => Some(Function { place, tables }),
            _ => None,
        })
    }

    /// Says by what a function translates that a cell has, or that no cell has it any more
    /// (`None`). False if there are too many. What [`Self::refer`] needs is needed here, too; then
    /// the units have to forget what they cached.
    pub fn set_function(
        &mut self,
        memory: &mut impl Memory,
        function: Requester,
        tables: Option<Option<CellTables>>,
    ) -> bool {
        let is_its = |place: &Option<(Requester, _)>| place.is_some_and(|(of, _)| of == function);
        let place = self.functions.iter().position(is_its);
        let place = place.or_else(|| self.functions.iter().position(Option::is_none));
        let Some(place) = place else { return false };
        self.functions[place] = tables.map(|tables| (function, tables));
        self.note_buses();
        let mut index = 0;
        while let Some((of, copied)) = self.tables.get_index(index) {
            let (of, copied) = (*of, *copied);
            index += 1;
            let tells = match of {
                Of::Top(top) => top.kind().functions(0).is_some(),
                Of::Bus { .. } => true,
                _ => false,
            };
            if tells && copied.references > 0 && copied.watch == Watch::On {
                self.fill(memory, of, copied.copy);
            }
        }
        true
    }

    /// Notes of which buses there are copies, or may be.
    fn note_buses(&mut self) {
        self.buses.clear();
        let copied = self.tables.keys().filter_map(|of| match of {
            Of::Bus { first, .. } => Some(*first),
            _ => None,
        });
        // Whether a table tells of a whole bus or of half of it depends on the mode.
        let functions = self.functions.iter().flatten().flat_map(|(function, _)| {
            [Requester(function.0 & !0xff), Requester(function.0 & !0x7f)]
        });
        for first in copied.chain(functions) {
            if !self.buses.contains(&first) {
                // There is room for all.
                let _ = self.buses.push(first);
            }
        }
    }

    /// Tells whether a cell has one of these functions.
    fn any_of_cells(&self, functions: &RangeInclusive<u16>) -> bool {
        self.functions.iter().flatten().any(|(function, _)| functions.contains(&function.0))
    }

    /// Refers to the copy of what Linux gave a unit, and returns where it lies; `None` if there is
    /// no memory. No CPU of Linux runs meanwhile, and none goes on with cached translations.
    pub fn refer(&mut self, memory: &mut impl Memory, top: Top) -> Option<PhysAddr> {
        self.acquire(memory, Of::Top(top))
    }

    /// Refers in the same way to the copy of the page table of Linux at `page`; to that itself if
    /// it is checked only. `None` also if Linux may not have it.
    pub fn attach(
        &mut self,
        memory: &mut impl Memory,
        page: PhysAddr,
        kind: Kind,
    ) -> Option<PhysAddr> {
        if self.checked {
            let harmless = is_harmless(kind, page, memory);
            self.refused += u64::from(!harmless);
            return harmless.then_some(page);
        }
        if !memory.read_linux(page, &mut [0]) {
            self.refused += 1;
            return None;
        }
        self.refer(memory, Top::Table(page, kind))
    }

    /// Refers in the same way to the tables by which all that Linux's devices may have has its own
    /// addresses. They are of the kind [`Self::identity`].
    pub fn attach_identity(&mut self, memory: &mut impl Memory) -> Option<PhysAddr> {
        self.acquire(memory, self.whole())
    }

    fn whole(&self) -> Of {
        Of::Identity { start: PhysAddr::new(0), kind: self.identity, access: Access::FULL }
    }

    /// Refers no more to the copy at `copy`, which goes when it is collected.
    pub fn forget(&mut self, memory: &mut impl Memory, copy: PhysAddr) {
        self.release(memory, copy);
    }

    /// Tells whether a copy waits to be collected.
    pub fn has_unused(&self) -> bool {
        self.unused
    }

    /// Gives the memory of copies back that nobody refers to. All units have forgotten what they
    /// cached of them.
    pub fn collect(&mut self, memory: &mut impl Memory) {
        self.unused = false;
        let mut any_bus = false;
        // The last one comes in the place of one that goes.
        for index in (0..self.tables.len()).rev() {
            let Some((of, copied)) = self.tables.get_index(index) else { continue };
            if copied.references > 0 {
                continue;
            }
            let (of, Copied { copy, watch, .. }) = (*of, *copied);
            self.tables.swap_remove(&of);
            self.note_gone(of);
            memory.free(copy);
            any_bus |= matches!(of, Of::Bus { .. });
            let was_watched = watch == Watch::On;
            if let Some(page) = of.page().filter(|page| was_watched && !self.is_watched(*page)) {
                memory.unwatch(page);
            }
        }
        if any_bus {
            self.note_buses();
        }
    }

    /// Tells whether Linux's table at `page` has a copy.
    pub fn is_watched(&self, page: PhysAddr) -> bool {
        self.watched(page).next().is_some()
    }

    /// Tells whether a change of the table at `page` may give other tables copies, so that it needs
    /// what [`Self::refer`] needs; `None` if the table has no copy.
    pub fn tells_of_tables(&self, page: PhysAddr) -> Option<bool> {
        let tell = |of: Of| of.kind().level() != Some(1);
        self.watched(page).map(tell).reduce(|one, other| one || other)
    }

    /// Lets Linux write to the table at `page` by itself, since what it does there is not
    /// understood. Devices find nothing there until it [tells](Self::find_lost) its unit of it.
    pub fn lose(&mut self, memory: &mut impl Memory, page: PhysAddr) {
        self.lost = true;
        self.give_up(memory, page, Watch::Lost);
    }

    /// Lets the processor translate by the table at `page`. Devices find nothing there until nobody
    /// refers to it any more.
    pub fn shun(&mut self, memory: &mut impl Memory, page: PhysAddr) {
        self.give_up(memory, page, Watch::Never);
    }

    fn give_up(&mut self, memory: &mut impl Memory, page: PhysAddr, watch: Watch) {
        for of in self.copied_of(page) {
            let Some(copied) = self.tables.get_mut(&of) else { continue };
            copied.watch = watch;
            let copy = copied.copy;
            self.empty(memory, copy, of.kind());
        }
        memory.unwatch(page);
    }

    /// Tells whether a table is lost.
    pub fn has_lost(&self) -> bool {
        self.lost
    }

    /// Makes copies again of tables that are lost. What [`Self::refer`] needs is needed here, too.
    pub fn find_lost(&mut self, memory: &mut impl Memory) {
        self.lost = false;
        let mut index = 0;
        while let Some((of, copied)) = self.tables.get_index(index) {
            let (of, copied) = (*of, *copied);
            index += 1;
            let Some(page) = of.page().filter(|_| copied.watch == Watch::Lost) else { continue };
            if copied.references == 0 || !self.is_watched(page) && !memory.watch(page) {
                continue;
            }
            if let Some(found) = self.tables.get_mut(&of) {
                found.watch = Watch::On;
            }
            self.fill(memory, of, copied.copy);
        }
    }

    /// What the table at `page` is, and is watched as; a hostile Linux may use it as several kinds.
    fn watched(&self, page: PhysAddr) -> impl Iterator<Item = Of> {
        self.copied_of(page)
            .filter(|of| self.tables.get(of).is_some_and(|copied| copied.watch == Watch::On))
    }

    /// Looks at the entry again in which the word at `address` lies, which Linux has changed.
    pub fn changed(&mut self, memory: &mut impl Memory, address: PhysAddr) {
        let page = address.align_down(PAGE);
        for of in self.copied_of(page) {
            let is_used = |copied: &&Copied| copied.references > 0 && copied.watch == Watch::On;
            let Some(copied) = self.tables.get(&of).filter(is_used) else { continue };
            let (copy, count) = (copied.copy, of.kind().words());
            let at = address.offset_in(PAGE) / 8 / count as u64 * count as u64;
            let mut raw = [0; MAX_WORDS];
            if memory.read_linux(page + 8 * at, &mut raw[..count]) {
                self.copy_entry(memory, of, copy, at, &raw);
            }
        }
    }

    /// Has no copy map memory of the 2 MiB block at `block` any more. It is not Linux's any more.
    pub fn withdraw(&mut self, memory: &mut impl Memory, block: PhysAddr) {
        for (of, copied) in &self.tables {
            let kind = of.kind();
            if kind.level().is_none() {
                continue;
            }
            for at in 0..WORDS {
                let place = copied.copy + 8 * at;
                let bits = memory.word(place);
                let Entry::Leaf { address, order, .. } = kind.decode(bits) else { continue };
                let order = order.max(LARGE);
                if bits != 0 && (address.get() ^ block.get()) >> order == 0 {
                    memory.set_word(place, 0);
                }
            }
        }
    }

    /// Looks at all tables of Linux again, since it has got memory back. What [`Self::refer`] needs
    /// is needed here as well.
    pub fn look_again(&mut self, memory: &mut impl Memory) {
        let mut index = 0;
        // Those that are new come last.
        while let Some((of, copied)) = self.tables.get_index(index) {
            if copied.references > 0 && copied.watch == Watch::On {
                let (of, copy) = (*of, copied.copy);
                self.fill(memory, of, copy);
            }
            index += 1;
        }
    }

    /// Refers to a copy, which is made if there is none.
    fn acquire(&mut self, memory: &mut impl Memory, of: Of) -> Option<PhysAddr> {
        if let Some(copied) = self.tables.get_mut(&of) {
            copied.references += 1;
            let (copy, watch) = (copied.copy, copied.watch);
            if copied.references == 1 && watch == Watch::On {
                self.fill(memory, of, copy);
            }
            return Some(copy);
        }
        let copy = self.make(memory, of);
        self.missing += u64::from(copy.is_none());
        copy
    }

    fn make(&mut self, memory: &mut impl Memory, of: Of) -> Option<PhysAddr> {
        if self.tables.len() == MAX_TABLES {
            return None;
        }
        let copy = memory.allocate()?;
        if of.page().is_some_and(|page| !self.is_watched(page) && !memory.watch(page)) {
            memory.free(copy);
            return None;
        }
        // It is not full.
        let _ = self.tables.insert(of, Copied { copy, watch: Watch::On, references: 1 });
        if let Some(page) = of.page() {
            // There is room for as many as there are tables.
            let kinds = self.pages.get(&page).copied().unwrap_or(0);
            let _ = self.pages.insert(page, kinds | of.kind().bit());
        }
        self.fill(memory, of, copy);
        Some(copy)
    }

    /// Notes that there is no copy of this any more.
    fn note_gone(&mut self, of: Of) {
        let (Some(page), kind) = (of.page(), of.kind()) else { return };
        let is_left = self.copied_of(page).any(|of| of.kind() == kind && self.has(&of));
        let Some(kinds) = self.pages.get_mut(&page).filter(|_| !is_left) else { return };
        *kinds &= !kind.bit();
        if *kinds == 0 {
            self.pages.swap_remove(&page);
        }
    }

    fn has(&self, of: &Of) -> bool {
        self.tables.contains_key(of)
    }

    /// All that a copy of the table at `page` can be.
    fn copied_of(&self, page: PhysAddr) -> impl Iterator<Item = Of> + use<> {
        const OF_BUSES: u32 = Kind::Context.bit() | Kind::ScalableContext.bit();
        let kinds = self.pages.get(&page).copied().unwrap_or(0);
        let buses = if kinds & OF_BUSES != 0 { self.buses.clone() } else { Vec::new() };
        Kind::of_bits(kinds).flat_map(move |kind| {
            let top = Top::Table(page, kind);
            let buses = if kind.bit() & OF_BUSES != 0 { buses.clone() } else { Vec::new() };
            let of_buses = buses.into_iter().map(move |first| Of::Bus { first, top });
            core::iter::once(Of::Top(top)).chain(of_buses)
        })
    }

    /// Makes a copy of all entries.
    fn fill(&mut self, memory: &mut impl Memory, of: Of, copy: PhysAddr) {
        let count = of.kind().words();
        for first in (0..WORDS).step_by(CHUNK) {
            let mut words = [0; CHUNK];
            if of.page().is_some_and(|page| !memory.read_linux(page + 8 * first, &mut words)) {
                words.fill(0);
            }
            for (number, entry) in words.chunks_exact(count).enumerate() {
                let mut raw = [0; MAX_WORDS];
                raw[..count].copy_from_slice(entry);
                self.copy_entry(memory, of, copy, first + (number * count) as u64, &raw);
            }
        }
    }

    /// Makes a copy of the entry whose words, from word `at` on, are `raw`.
    fn copy_entry(
        &mut self,
        memory: &mut impl Memory,
        of: Of,
        copy: PhysAddr,
        at: u64,
        raw: &Words,
    ) {
        let kind = of.kind();
        let (place, count) = (copy + 8 * at, kind.words());
        let old = read(memory, place, kind);
        // The new one first: what both refer to stays.
        let new = self.translate(memory, of, at, raw);
        if new != old {
            // The first word says whether there is an entry. While the others change there is none.
            if count > 1 && old[0] != 0 {
                memory.set_word(place, 0);
            }
            for number in (0..count).rev() {
                memory.set_word(place + 8 * number as u64, new[number]);
            }
        }
        if let Some(table) = kind.linked(&old) {
            self.release(memory, table);
        }
    }

    /// The entry of a copy where Linux has `raw`.
    fn translate(&mut self, memory: &mut impl Memory, of: Of, at: u64, raw: &Words) -> Words {
        let kind = of.kind();
        let number = at / kind.words() as u64;
        let next = match of {
            Of::Bus { first, top } => match self.function(Requester(first.0 + number as u16)) {
                Some(Function { tables: Some(tables), .. }) => lead(tables, kind),
                Some(Function { tables: None, .. }) => Next::NOTHING,
                None => self.next(memory, Of::Top(top), at, raw),
            },
            Of::Cell { tables, kind } => lead(tables, kind),
            of => self.next(memory, of, at, raw),
        };
        let (raw, table) = match self.of_bus(kind, number, next) {
            Next::Entry(entry) => return entry,
            Next::Table(raw, table) => (raw, table),
        };
        let Some(copy) = self.acquire(memory, table) else { return NOTHING };
        match (table, kind.level()) {
            // Not as Linux has it: it maps memory there.
            (Of::Identity { .. }, Some(level)) => {
                let level = level - 1;
                word(kind.encode(Entry::Table { address: copy, level, rights: Rights::ALL }))
            }
            (table, _) => kind.link(&raw, copy, table.kind()),
        }
    }

    /// Entry `number` of a table of `kind` is to be `next`. If it tells of functions of which cells
    /// have some, these have a table of their own, whatever Linux has.
    fn of_bus(&self, kind: Kind, number: u64, next: Next) -> Next {
        let Some((functions, lower)) = kind.functions(number) else { return next };
        if !self.any_of_cells(&functions) {
            return next;
        }
        let (raw, top) = match next {
            Next::Table(raw, Of::Top(top)) => (raw, top),
            Next::Table(raw, _) => (raw, Top::Blocked(lower)),
            Next::Entry(raw) => (raw, Top::Blocked(lower)),
        };
        Next::Table(raw, Of::Bus { first: Requester(*functions.start()), top })
    }

    /// What the entry of a copy is to be where Linux has `raw`, in what is no cell's.
    fn next(&mut self, memory: &mut impl Memory, of: Of, at: u64, raw: &Words) -> Next {
        let kind = of.kind();
        let whole = self.whole();
        match of {
            Of::Top(Top::Blocked(_)) | Of::Bus { .. } | Of::Cell { .. } => Next::NOTHING,
            // All devices have the same tables, so any domain of Linux's will do.
            Of::Top(Top::Untranslated(kind)) => match kind.leading(DomainId(1)) {
                (raw, Some(lower)) => Next::Table(raw, Of::Top(Top::Untranslated(lower))),
                (raw, None) => Next::Table(raw, whole),
            },
            Of::Identity { start, kind, access } => {
                let order = own(kind);
                let address = start + (at << order);
                if address.get() >= memory.end() {
                    return Next::NOTHING;
                }
                if order <= LARGE {
                    let piece = Piece { address, order, access };
                    return Next::Entry(Self::map(memory, kind, piece).unwrap_or(NOTHING));
                }
                Next::Table(*raw, Of::Identity { start: address, kind: kind.below(), access })
            }
            Of::Top(Top::Table(..)) => match kind.asked(raw, &self.own_domains()) {
                Asked::Nothing => Next::NOTHING,
                Asked::Table { page, kind: lower } if self.checked && lower.level().is_some() => {
                    if !is_harmless(lower, page, memory) {
                        self.refused += 1;
                        return Next::NOTHING;
                    }
                    Next::Entry(kind.link(raw, page, lower))
                }
                Asked::Table { page, kind } if memory.read_linux(page, &mut [0]) => {
                    Next::Table(*raw, Of::Top(Top::Table(page, kind)))
                }
                Asked::Untranslated => Next::Table(*raw, whole),
                Asked::Memory(piece) if own(kind) > LARGE => {
                    let Piece { address, access, .. } = piece.part(own(kind), at);
                    Next::Table(*raw, Of::Identity { start: address, kind: kind.below(), access })
                }
                Asked::Memory(piece) => {
                    let entry = Self::map(memory, kind, piece.part(own(kind), at));
                    self.refused += u64::from(entry.is_none());
                    Next::Entry(entry.unwrap_or(NOTHING))
                }
                Asked::Unfit | Asked::Table { .. } => {
                    self.refused += 1;
                    Next::NOTHING
                }
            },
        }
    }

    /// An entry that maps `piece`, if Linux's devices may have all of it.
    fn map(memory: &impl Memory, kind: Kind, piece: Piece) -> Option<Words> {
        let Piece { address, order, access: Access { rights, caching } } = piece;
        memory
            .may_reach(address, 1 << order)
            .then(|| word(kind.encode(Entry::Leaf { address, order, rights, caching })))
    }

    /// Refers no more to a copy. If nobody does, neither does it refer to others.
    fn release(&mut self, memory: &mut impl Memory, copy: PhysAddr) {
        let mut tables = self.tables.iter_mut();
        let Some((of, copied)) = tables.find(|(_, copied)| copied.copy == copy) else { return };
        copied.references -= 1;
        if copied.references > 0 {
            return;
        }
        self.unused = true;
        let kind = of.kind();
        if kind.level() != Some(1) {
            self.empty(memory, copy, kind);
        }
    }

    /// Empties a copy.
    fn empty(&mut self, memory: &mut impl Memory, copy: PhysAddr, kind: Kind) {
        for at in (0..WORDS).step_by(kind.words()) {
            let place = copy + 8 * at;
            let entry = read(memory, place, kind);
            if entry[0] != 0 {
                memory.set_word(place, 0);
            }
            if let Some(table) = kind.linked(&entry) {
                self.release(memory, table);
            }
        }
    }
}

/// An entry that says nothing.
const NOTHING: Words = [0; MAX_WORDS];
/// So many domains are the hypervisor's.
const OWN: u16 = (MAX_CELLS + MAX_DEVICES) as u16;

/// What the entry of a copy is to be.
enum Next {
    /// This.
    Entry(Words),
    /// One that refers to a copy of this, and else is as Linux's entry.
    Table(Words, Of),
}

impl Next {
    const NOTHING: Self = Self::Entry(NOTHING);
}

/// An entry of `kind` that leads to the tables of a cell.
fn lead(tables: CellTables, kind: Kind) -> Next {
    // What its functions do wrong is not reported: Linux would hear of that, as often as the cell
    // likes.
    match kind.leading(tables.domain) {
        (raw, Some(lower)) => Next::Table(kind.silent(raw), Of::Cell { tables, kind: lower }),
        (raw, None) => Next::Entry(kind.link(&kind.silent(raw), tables.top, tables.kind)),
    }
}

impl Of {
    fn page(&self) -> Option<PhysAddr> {
        match self {
            Self::Top(Top::Table(page, _)) | Self::Bus { top: Top::Table(page, _), .. } => {
                Some(*page)
            }
            _ => None,
        }
    }

    fn kind(&self) -> Kind {
        match *self {
            Self::Top(top) | Self::Bus { top, .. } => top.kind(),
            Self::Identity { kind, .. } | Self::Cell { kind, .. } => kind,
        }
    }
}

/// Order of what an entry of a table that maps memory has.
fn own(kind: Kind) -> u32 {
    order_of_level(kind.level().unwrap_or(1))
}

/// Tells whether the page table of Linux at `page` maps nothing but what its devices may have, as
/// far as it is looked at.
fn is_harmless(kind: Kind, page: PhysAddr, memory: &impl Memory) -> bool {
    let read = |address| {
        let mut word = [0];
        memory.read_linux(address, &mut word).then_some(word[0])
    };
    matches!(kind.check(page, STEPS, read, memory), Ok(()) | Err(tables::Refused::TooLarge))
}

/// An entry of one word.
fn word(bits: u64) -> Words {
    let mut words = [0; MAX_WORDS];
    words[0] = bits;
    words
}

/// Reads an entry of a copy.
fn read(memory: &impl Memory, place: PhysAddr, kind: Kind) -> Words {
    let mut entry = [0; MAX_WORDS];
    for (number, word) in entry.iter_mut().take(kind.words()).enumerate() {
        *word = memory.word(place + 8 * number as u64);
    }
    entry
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Linux's RAM ends here. Behind it are devices.
    const RAM: u64 = 0x200_0000;
    const BLOCK: u64 = 0x20_0000;
    /// Linux's tables are the first pages, and those behind them are no RAM of it.
    const TABLES: u64 = 10;
    const FRAMES: u64 = 0x100_0000_0000;
    /// The hypervisor's domains, which only its own tables use.
    const OWN_DOMAINS: RangeInclusive<DomainId> = DomainId(0xffe0)..=DomainId(0xffff);
    const ALL_DOMAINS: RangeInclusive<DomainId> = DomainId(1)..=DomainId(0);
    /// Where a cell has its memory.
    const OF_CELL: u64 = 0x4000_0000;

    #[derive(Clone, Default)]
    pub(crate) struct Model {
        pub(crate) linux: BTreeMap<u64, u64>,
        pub(crate) frames: BTreeMap<u64, std::vec::Vec<u64>>,
        pub(crate) watched: BTreeSet<u64>,
        /// Blocks that Linux does not have.
        pub(crate) private: BTreeSet<u64>,
        next: u64,
        /// So many frames at most.
        pub(crate) limit: Option<usize>,
    }

    impl tables::Memory for Model {
        fn may_reach(&self, address: PhysAddr, size: u64) -> bool {
            let Some(end) = address.get().checked_add(size) else { return false };
            end <= FRAMES
                && !self.private.iter().any(|block| *block < end && address.get() < block + BLOCK)
        }
    }

    impl Memory for Model {
        fn read_linux(&self, address: PhysAddr, words: &mut [u64]) -> bool {
            for (number, word) in words.iter_mut().enumerate() {
                let place = address.get() + 8 * number as u64;
                *word = self.linux.get(&place).copied().unwrap_or(0);
            }
            address.get() < RAM && tables::Memory::may_reach(self, address, 8)
        }

        fn watch(&mut self, page: PhysAddr) -> bool {
            assert!(self.watched.insert(page.get()));
            true
        }

        fn unwatch(&mut self, page: PhysAddr) {
            assert!(self.watched.remove(&page.get()));
        }

        fn end(&self) -> u64 {
            RAM
        }

        fn allocate(&mut self) -> Option<PhysAddr> {
            if self.limit.is_some_and(|limit| self.frames.len() >= limit) {
                return None;
            }
            self.next += PAGE;
            let frame = FRAMES + self.next;
            self.frames.insert(frame, vec![0; 512]);
            Some(PhysAddr::new(frame))
        }

        fn free(&mut self, frame: PhysAddr) {
            assert!(self.frames.remove(&frame.get()).is_some());
        }

        fn word(&self, address: PhysAddr) -> u64 {
            let frame = address.align_down(PAGE).get();
            self.frames[&frame][(address.offset_in(PAGE) / 8) as usize]
        }

        fn set_word(&mut self, address: PhysAddr, word: u64) {
            let frame = address.align_down(PAGE).get();
            let words = self.frames.get_mut(&frame).expect("a frame of a copy");
            words[(address.offset_in(PAGE) / 8) as usize] = word;
        }
    }

    impl Model {
        /// Reads as a unit does: Linux's tables, or copies.
        fn read(&self, address: u64) -> u64 {
            match address < FRAMES {
                true => self.linux.get(&address).copied().unwrap_or(0),
                false => self.word(PhysAddr::new(address)),
            }
        }

        /// Where a device gets to, and with which rights. Linux's tables are `native`: of these,
        /// what lies elsewhere than in its RAM is nothing.
        pub(crate) fn walk(&self, top: Top, device: u16, input: u64) -> Option<(u64, Rights)> {
            let untranslated = || {
                let block = PhysAddr::new(input & !(BLOCK - 1));
                let is_there = input < RAM && tables::Memory::may_reach(self, block, BLOCK);
                is_there.then_some((input, Rights::ALL))
            };
            let root = match top {
                Top::Table(page, _) => page.get(),
                Top::Untranslated(_) => return untranslated(),
                Top::Blocked(_) => return None,
            };
            let readable = |page: PhysAddr| {
                self.frames.contains_key(&page.get())
                    || page.get() < RAM && tables::Memory::may_reach(self, page, PAGE)
            };
            let (mut table, mut kind, mut process) = (PhysAddr::new(root), top.kind(), 0);
            let mut rights = Rights::ALL;
            loop {
                if !readable(table) {
                    return None;
                }
                let index = match kind {
                    Kind::Root => device >> 8,
                    Kind::Context => device & 0xff,
                    Kind::ScalableRoot => device >> 7,
                    Kind::ScalableContext => device & 0x7f,
                    Kind::Directory => (process >> 6) as u16,
                    Kind::Processes => (process & 63) as u16,
                    Kind::Second(level) | Kind::First(level) | Kind::Host(level) => {
                        (input >> order_of_level(level) & 511) as u16
                    }
                };
                let count = kind.words() as u64;
                let mut entry = [0; MAX_WORDS];
                for (word, at) in entry.iter_mut().zip(0..count) {
                    // No process has so high a number here.
                    if u64::from(index) * count < WORDS {
                        *word = self.read(table.get() + 8 * (u64::from(index) * count + at));
                    }
                }
                if kind == Kind::ScalableContext {
                    process = entry[1] & 0xf_ffff;
                }
                let own = match self.frames.contains_key(&table.get()) {
                    true => ALL_DOMAINS,
                    false => OWN_DOMAINS,
                };
                match kind.asked(&entry, &own) {
                    Asked::Table { page, kind: lower } => {
                        if let Some(level) = lower.level()
                            && kind.level().is_none()
                            && input >> order_of_level(level + 1) != 0
                        {
                            return None;
                        }
                        // Tables of processes are for devices' processes only.
                        if kind == Kind::ScalableContext && process >> 6 >= 512 {
                            return None;
                        }
                        if let Entry::Table { rights: allowed, .. } = kind.decode(entry[0]) {
                            rights = rights.and(allowed);
                        }
                        (table, kind) = (page, lower);
                    }
                    Asked::Untranslated => return untranslated(),
                    Asked::Memory(Piece { address, order, access }) => {
                        let offset = input & ((1 << order) - 1);
                        // Of larger ones of Linux there may be a part.
                        let part = order.min(LARGE);
                        let first = (address.get() + offset) & !((1 << part) - 1);
                        let is_there = address.get() == OF_CELL
                            || tables::Memory::may_reach(self, PhysAddr::new(first), 1 << part)
                                && (order <= LARGE || first < RAM);
                        let rights = rights.and(access.rights);
                        return (is_there && !rights.is_none())
                            .then_some((address.get() + offset, rights));
                    }
                    Asked::Nothing | Asked::Unfit => return None,
                }
            }
        }
    }

    impl Model {
        pub(crate) fn is_left_alone(&self) -> bool {
            self.frames.is_empty() && self.watched.is_empty()
        }

        pub(crate) fn has_frame(&self, address: u64) -> bool {
            self.frames.contains_key(&address)
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A store of Linux to a word of one of its tables.
        Store(u64, u64),
        /// Behind the hypervisor's back.
        Unseen(u64, u64),
        Take(u64),
        GiveBack(u64),
        Collect,
        /// A function becomes a cell's, which lets it have memory or not, or nobody's any more.
        Function(u16, Option<bool>),
    }

    /// Of an input address, the pieces that differ between few tables.
    pub(crate) fn input() -> impl Strategy<Value = u64> {
        (0u64..4, 0u64..4, 0u64..4, 0u64..4, 0u64..4096).prop_map(
            |(four, three, two, one, offset)| {
                four << 39 | three << 30 | two << 21 | one << 12 | offset
            },
        )
    }

    fn device() -> impl Strategy<Value = u16> {
        prop::sample::select(vec![0, 1, 4, 0x100])
    }

    fn value() -> impl Strategy<Value = u64> {
        let page = (0..TABLES + 2)
            .prop_map(|page| if page < TABLES { page << 12 } else { RAM + (page << 12) })
            .boxed();
        let leaf = prop_oneof![
            (0..RAM / PAGE + 8).prop_map(|page| page << 12),
            (0..RAM / BLOCK + 2).prop_map(|block| block << 21 | 1 << 7),
            Just(1 << 7),
        ];
        // Of both stages.
        let rights = prop::sample::select(vec![1u64, 3, 3, 2, 5, 7, 7]);
        prop_oneof![
            6 => (page.clone(), rights.clone()).prop_map(|(page, rights)| page | rights),
            3 => (leaf, rights).prop_map(|(leaf, rights)| leaf | rights),
            // First and second words of context entries.
            2 => (page.clone(), 0u64..4).prop_map(|(page, kind)| page | kind << 2 | 1),
            2 => (1u64..4, prop_oneof![0u64..9, 0xffefu64..0xfff1])
                .prop_map(|(width, domain)| width | domain << 8),
            // Of entries for processes.
            2 => (page.clone(), 0u64..5, 0u64..4).prop_map(|(page, kind, width)| {
                page | 1 | kind << 6 | width << 2
            }),
            2 => Just(0u64),
            1 => any::<u64>(),
        ]
    }

    /// A store to a word of one of Linux's tables.
    pub(crate) fn store() -> impl Strategy<Value = (u64, u64)> {
        let place = (0..TABLES, 0u64..11).prop_map(|(page, word)| page << 12 | word << 3);
        (place, value())
    }

    fn step() -> impl Strategy<Value = Step> {
        let block = (1..RAM / BLOCK).prop_map(|block| block * BLOCK);
        prop_oneof![
            20 => store().prop_map(|(place, value)| Step::Store(place, value)),
            1 => store().prop_map(|(place, value)| Step::Unseen(place, value)),
            2 => block.clone().prop_map(Step::Take),
            1 => block.prop_map(Step::GiveBack),
            1 => Just(Step::Collect),
            2 => (device(), prop::option::of(any::<bool>()))
                .prop_map(|(device, has_memory)| Step::Function(device, has_memory)),
        ]
    }

    /// Linux's table at 0, and a device that has a context there.
    fn start(kind: Kind) -> (Model, Copies, PhysAddr) {
        let mut model = match kind {
            Kind::ScalableRoot => booted_in_scalable_mode(),
            _ => booted(),
        };
        let mut copies = Copies::new(Kind::Second(4));
        let copy = copies.refer(&mut model, linux(kind)).expect("memory");
        (model, copies, copy)
    }

    const fn linux(kind: Kind) -> Top {
        Top::Table(PhysAddr::new(0), kind)
    }

    const LINUX: Top = linux(Kind::Root);

    fn model(words: &[(u64, u64)]) -> Model {
        Model { linux: words.iter().copied().collect(), ..Model::default() }
    }

    /// Tables of Linux, the root table at 0.
    pub(crate) fn booted() -> Model {
        model(&[
            (0, 0x1001),
            (0x1000, 0x2001),
            (0x1008, 2 | 7 << 8),
            (0x2000, 0x3003),
            (0x3000, 0x4003),
            (0x4000, 0x5003),
            (0x5000, 0x40_0003),
        ])
    }

    /// The same with processes, one of which has first-stage tables.
    fn booted_in_scalable_mode() -> Model {
        model(&[
            (0, 0x1001),
            (0x1000, 0x2001 | 3 << 9),
            (0x1020, 0x2001),
            (0x1028, 1),
            (0x2000, 0x3001),
            (0x3000, 0x4001 | 2 << 6 | 2 << 2),
            (0x3008, 7),
            (0x3040, 1 | 1 << 6),
            (0x3048, 8),
            (0x3050, 0x4000),
            (0x4000, 0x5007),
            (0x5000, 0x6007),
            (0x6000, 0x7007),
            (0x7000, 0x40_0007),
        ])
    }

    /// Tables of a cell that has one block.
    fn cell_tables(model: &mut Model, domain: DomainId) -> CellTables {
        let tables = CellTables::new(model, Kind::Second(4), domain).expect("memory");
        let piece = Piece { address: PhysAddr::new(OF_CELL), order: LARGE, access: Access::FULL };
        assert!(tables.map(model, 0, piece));
        tables
    }

    fn copied(copy: PhysAddr) -> Top {
        Top::Table(copy, Kind::Root)
    }

    fn root() -> impl Strategy<Value = Kind> {
        prop::sample::select(vec![Kind::Root, Kind::ScalableRoot])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// A device gets where Linux's tables say, as far as Linux has that memory, and nowhere
        /// else; when all is given back nothing is left.
        #[test]
        fn copies_are_linuxs_tables_as_far_as_they_may_be(
            root in root(),
            steps in prop::collection::vec(step(), 0..60),
            inputs in prop::collection::vec((device(), input()), 12),
        ) {
            let (mut model, mut copies, copy) = start(root);
            let domain = CellId::new(3).and_then(|cell| copies.domain_of(cell)).expect("domains");
            let of_cell = cell_tables(&mut model, domain);
            let mut functions = BTreeMap::new();
            let mut seen = true;
            for step in &steps {
                match *step {
                    Step::Store(place, value) => {
                        model.linux.insert(place, value);
                        if model.watched.contains(&(place & !0xfff)) {
                            prop_assert!(copies.is_watched(PhysAddr::new(place & !0xfff)));
                            copies.changed(&mut model, PhysAddr::new(place));
                        }
                    }
                    Step::Unseen(place, value) => {
                        model.linux.insert(place, value);
                        seen = false;
                    }
                    Step::Take(block) => {
                        model.private.insert(block);
                        copies.withdraw(&mut model, PhysAddr::new(block));
                    }
                    Step::GiveBack(block) => {
                        model.private.remove(&block);
                        copies.look_again(&mut model);
                        seen = true;
                    }
                    Step::Collect => copies.collect(&mut model),
                    Step::Function(device, has_memory) => {
                        let tables = has_memory.map(|has_memory| has_memory.then_some(of_cell));
                        prop_assert!(copies.set_function(&mut model, Requester(device), tables));
                        let function = copies.function(Requester(device));
                        prop_assert_eq!(function.map(|function| function.tables), tables);
                        match has_memory {
                            Some(has_memory) => functions.insert(device, has_memory),
                            None => functions.remove(&device),
                        };
                    }
                }
                for (device, input) in &inputs {
                    let found = model.walk(Top::Table(copy, root), *device, *input);
                    if let Some(has_memory) = functions.get(device) {
                        let expected = (*has_memory && *input < BLOCK)
                            .then_some((OF_CELL + input, Rights::ALL));
                        prop_assert_eq!(found, expected);
                        continue;
                    }
                    if let Some((address, _)) = found {
                        let page = PhysAddr::new(address & !0xfff);
                        prop_assert!(tables::Memory::may_reach(&model, page, PAGE));
                    }
                    if seen {
                        let asked = model.walk(linux(root), *device, *input);
                        prop_assert_eq!(found, asked, "{:x?}", step);
                    }
                }
            }
            copies.forget(&mut model, copy);
            prop_assert!(copies.has_unused());
            copies.collect(&mut model);
            of_cell.free(&mut model);
            prop_assert!(model.frames.is_empty());
            prop_assert!(model.watched.is_empty());
        }

        /// Without memory something is missing, and nothing else happens.
        #[test]
        fn memory_may_run_out(
            root in root(),
            steps in prop::collection::vec(step(), 0..60),
            limit in 1usize..8,
            device in 0u16..2,
            input in input(),
        ) {
            let (mut model, mut copies, copy) = start(root);
            model.limit = Some(limit);
            for step in &steps {
                if let Step::Store(place, value) = *step {
                    model.linux.insert(place, value);
                    copies.changed(&mut model, PhysAddr::new(place));
                }
                copies.collect(&mut model);
                let found = model.walk(Top::Table(copy, root), device, input);
                let asked = model.walk(linux(root), device, input);
                prop_assert!(found.is_none() || found == asked);
                prop_assert!(found == asked || copies.missing() > 0);
            }
            copies.forget(&mut model, copy);
            copies.collect(&mut model);
            prop_assert!(model.frames.is_empty() && model.watched.is_empty());
        }
    }

    #[test]
    fn processes_have_tables_of_either_stage() {
        let (mut model, mut copies, copy) = start(Kind::ScalableRoot);
        let top = Top::Table(copy, Kind::ScalableRoot);
        let mapped = Some((0x40_0000, Rights::ALL));
        assert_eq!(model.walk(top, 0, 0), mapped);
        assert_eq!(model.walk(top, 1, 0), mapped);
        // Read-only, by the first stage alone.
        model.linux.insert(0x7000, 0x40_0005);
        copies.changed(&mut model, PhysAddr::new(0x7000));
        assert_eq!(model.walk(top, 0, 0), Some((0x40_0000, Rights { read: true, write: false })));
        assert_eq!(model.walk(top, 1, 0), Some((0x40_0000, Rights { read: true, write: false })));
        let untranslated = copies.refer(&mut model, Top::Untranslated(Kind::ScalableRoot));
        let top = Top::Table(untranslated.expect("memory"), Kind::ScalableRoot);
        assert_eq!(model.walk(top, 0x1234, 0x5678), Some((0x5678, Rights::ALL)));
    }

    #[test]
    fn a_table_that_is_lost_is_found_when_linux_tells_of_it() {
        let (mut model, mut copies, copy) = start(Kind::Root);
        copies.lose(&mut model, PhysAddr::new(0x4000));
        copies.collect(&mut model);
        assert_eq!(model.walk(copied(copy), 0, 0), None);
        model.linux.insert(0x4008, 0x5003);
        assert!(copies.has_lost());
        copies.find_lost(&mut model);
        assert!(!copies.has_lost() && model.watched.contains(&0x4000));
        for input in [0, BLOCK] {
            assert_eq!(model.walk(copied(copy), 0, input), model.walk(LINUX, 0, input));
            assert!(model.walk(LINUX, 0, input).is_some());
        }
        copies.lose(&mut model, PhysAddr::new(0x4000));
        copies.forget(&mut model, copy);
        copies.find_lost(&mut model);
        copies.collect(&mut model);
        assert!(model.is_left_alone());
    }

    #[test]
    fn a_table_of_the_processor_leads_nowhere() {
        let (mut model, mut copies, copy) = start(Kind::Root);
        copies.shun(&mut model, PhysAddr::new(0x3000));
        assert!(!copies.is_watched(PhysAddr::new(0x3000)) && !model.watched.contains(&0x3000));
        assert!(copies.has_unused());
        copies.collect(&mut model);
        assert!(!model.watched.contains(&0x4000));
        copies.look_again(&mut model);
        copies.changed(&mut model, PhysAddr::new(0x3000));
        assert_eq!(model.walk(copied(copy), 0, 0), None);
        // Linked once more.
        model.linux.insert(0x2008, 0x3003);
        copies.changed(&mut model, PhysAddr::new(0x2008));
        assert_eq!(model.walk(copied(copy), 0, 1 << 39), None);
        copies.forget(&mut model, copy);
        copies.collect(&mut model);
        assert!(model.is_left_alone());
    }

    #[test]
    fn what_linux_does_not_translate_is_its_memory() {
        let mut model = Model::default();
        let mut copies = Copies::new(Kind::Second(3));
        let copy = copies.refer(&mut model, Top::Untranslated(Kind::Root)).expect("memory");
        for device in [0, 0xffff, 0x1234] {
            assert_eq!(model.walk(copied(copy), device, 0x12_3456), Some((0x12_3456, Rights::ALL)));
            assert_eq!(model.walk(copied(copy), device, RAM), None);
        }
        // All buses have the same copies.
        assert_eq!(model.frames.len(), 4);
        model.private.insert(0);
        copies.withdraw(&mut model, PhysAddr::new(0));
        assert_eq!(model.walk(copied(copy), 0, 0x12_3456), None);
        assert_eq!(model.walk(copied(copy), 0, BLOCK), Some((BLOCK, Rights::ALL)));
        model.private.clear();
        copies.look_again(&mut model);
        assert_eq!(model.walk(copied(copy), 0, 0x12_3456), Some((0x12_3456, Rights::ALL)));
        let blocked = copies.refer(&mut model, Top::Blocked(Kind::Root)).expect("memory");
        assert_eq!(model.walk(copied(blocked), 0, 0), None);
    }

    #[test]
    fn page_tables_that_are_checked_are_linuxs_own() {
        let mut model = booted();
        let mut copies = Copies::new(Kind::Second(4));
        copies.set_checked(true);
        let copy = copies.refer(&mut model, LINUX).expect("memory");
        let mapped = Some((0x40_0000, Rights::ALL));
        assert_eq!(model.walk(copied(copy), 0, 0), mapped);
        // Of buses and functions alone.
        assert_eq!((model.frames.len(), model.watched.len()), (2, 2));
        model.private.insert(0x40_0000);
        copies.look_again(&mut model);
        assert_eq!(model.walk(copied(copy), 0, 0), None);
        assert_eq!(copies.refused(), 1);
        model.private.clear();
        copies.look_again(&mut model);
        assert_eq!(model.walk(copied(copy), 0, 0), mapped);
        // What Linux does not translate is as confined as otherwise.
        model.linux.insert(0x1000, 2 << 2 | 1);
        copies.changed(&mut model, PhysAddr::new(0x1000));
        assert_eq!(model.walk(copied(copy), 0, 0x12_3456), Some((0x12_3456, Rights::ALL)));
        model.private.insert(0);
        copies.withdraw(&mut model, PhysAddr::new(0));
        assert_eq!(model.walk(copied(copy), 0, 0x12_3456), None);
        copies.forget(&mut model, copy);
        copies.collect(&mut model);
        assert!(model.is_left_alone());
    }

    #[test]
    fn a_function_of_a_cell_is_alone_on_its_bus() {
        let mut model = booted();
        // Another bus has the same table.
        model.linux.insert(16, 0x1001);
        let mut copies = Copies::new(Kind::Second(4));
        let copy = copies.refer(&mut model, LINUX).expect("memory");
        let domain = CellId::new(0).and_then(|cell| copies.domain_of(cell)).expect("domains");
        let of_cell = cell_tables(&mut model, domain);
        let of_linux = Some((0x40_0000, Rights::ALL));
        assert!(copies.set_function(&mut model, Requester(0), Some(Some(of_cell))));
        assert_eq!(model.walk(copied(copy), 0, 8), Some((OF_CELL + 8, Rights::ALL)));
        assert_eq!(model.walk(copied(copy), 0x100, 0), of_linux);
        // Linux takes the table away, and the bus, and changes the table then.
        model.linux.insert(0, 0);
        copies.changed(&mut model, PhysAddr::new(0));
        assert_eq!(model.walk(copied(copy), 0, 8), Some((OF_CELL + 8, Rights::ALL)));
        model.linux.insert(0x1000, 0);
        copies.changed(&mut model, PhysAddr::new(0x1000));
        assert_eq!(model.walk(copied(copy), 0x100, 0), None);
        assert_eq!(model.walk(copied(copy), 0, 8), Some((OF_CELL + 8, Rights::ALL)));
        // A table that is lost is so for the others of the bus alone.
        model.linux.insert(0, 0x1001);
        copies.changed(&mut model, PhysAddr::new(0));
        copies.lose(&mut model, PhysAddr::new(0x1000));
        assert_eq!(model.walk(copied(copy), 0, 8), None);
        copies.find_lost(&mut model);
        assert_eq!(model.walk(copied(copy), 0, 8), Some((OF_CELL + 8, Rights::ALL)));
        assert!(copies.set_function(&mut model, Requester(0), Some(None)));
        assert_eq!(model.walk(copied(copy), 0, 8), None);
        assert!(copies.set_function(&mut model, Requester(0), None));
        copies.collect(&mut model);
        of_cell.free(&mut model);
        copies.forget(&mut model, copy);
        copies.collect(&mut model);
        assert!(model.is_left_alone());
    }

    #[test]
    fn a_unit_with_few_domains_has_none_for_cells() {
        let mut copies = Copies::new(Kind::Second(4));
        let cell = CellId::new(15).expect("a cell");
        assert_eq!(copies.domain_of(cell), Some(DomainId(0xffef)));
        assert_eq!(copies.domain_of_function(0), Some(DomainId(0xfff0)));
        assert_eq!(copies.domain_of_function(MAX_DEVICES - 1), Some(DomainId(0xffff)));
        copies.limit_domains(1 << 8);
        assert_eq!(copies.own_domains(), DomainId(0xe0)..=DomainId(0xff));
        copies.limit_domains(1 << 6);
        assert!(copies.own_domains().is_empty());
        assert_eq!((copies.domain_of(cell), copies.domain_of_function(0)), (None, None));
    }

    #[test]
    fn a_gibibyte_of_linux_is_mapped_by_pieces() {
        let (mut model, mut copies, copy) = start(Kind::Root);
        model.private.insert(BLOCK);
        model.linux.insert(0x3000, 1 << 7 | 3);
        copies.changed(&mut model, PhysAddr::new(0x3000));
        assert_eq!(model.walk(copied(copy), 0, 0x1234), Some((0x1234, Rights::ALL)));
        assert_eq!(model.walk(copied(copy), 0, BLOCK), None);
        assert!(!copies.is_watched(PhysAddr::new(0x4000)) || copies.has_unused());
    }
}
