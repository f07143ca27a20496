// SPDX-License-Identifier: MIT OR Apache-2.0
//! Walks through hostile page tables, compared with a unit that translates one address after the
//! other.

use std::collections::HashMap;

use crtos_iommu::amd::paging::HostTables;
use crtos_iommu::tables::{self, Entry, Format, Mapping, Memory, Refused, Rights, Walk};
use crtos_iommu::vtd::paging::{FirstStage, SecondStage};
use crtos_partition::address::PhysAddr;
use proptest::prelude::*;

const PAGE: u64 = 0x1000;
/// Tables lie in the frames below.
const TABLES: u64 = 8;
/// The entries that are in use.
const INDEXES: [u64; 3] = [0, 1, 511];
/// What a page of a cell is: a frame between tables and other memory, and the second GiB.
const FOREIGN: [(u64, u64); 2] = [(0x9000, 0xb000), (1 << 30, 2 << 30)];

struct Owners;

impl Memory for Owners {
    fn may_reach(&self, address: PhysAddr, size: u64) -> bool {
        let (start, end) = (address.get(), address.get() + size);
        FOREIGN.iter().all(|(first, last)| end <= *first || *last <= start)
    }
}

/// Tables of Linux.
#[derive(Clone, Debug, Default)]
struct Linux(HashMap<u64, u64>);

impl Linux {
    fn read(&self, address: u64) -> Option<u64> {
        // Some tables lie where Linux has no memory.
        let frame = address / PAGE;
        (frame < TABLES).then(|| self.0.get(&address).copied().unwrap_or(0))
    }
}

/// A format, as the manuals draw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Second,
    First,
    Host,
}

/// What a unit does with an address: `None` if it reports a fault. The address, and whether it may
/// be read and written.
fn translate(kind: Kind, linux: &Linux, top: u64, levels: u8, input: u64) -> Option<(u64, Rights)> {
    let width = 12 + 9 * u32::from(levels);
    if width < 64 && input >> width != 0 {
        return None;
    }
    let (mut table, mut level, mut rights) = (top, levels, Rights::ALL);
    loop {
        let shift = 12 + 9 * (u32::from(level) - 1);
        let entry = linux.read(table + (input >> shift & 511) * 8)?;
        let address = entry & 0xf_ffff_ffff_f000;
        let own = match kind {
            Kind::Second => Rights { read: entry & 1 != 0, write: entry & 2 != 0 },
            // Of a user.
            Kind::First => {
                let present = entry & 0b101 == 0b101;
                Rights { read: present, write: present && entry & 2 != 0 }
            }
            Kind::Host => {
                let present = entry & 1 != 0;
                let (read, write) = (entry >> 61 & 1 != 0, entry >> 62 & 1 != 0);
                Rights { read: present && read, write: present && write }
            }
        };
        rights = rights.and(own);
        if rights.is_none() {
            return None;
        }
        // The order of the memory that the entry maps, or the level below.
        let (order, next) = match kind {
            Kind::Second | Kind::First => match (level, entry >> 7 & 1) {
                (1, _) => (12, 0),
                (2 | 3, 1) => (shift, 0),
                (_, 1) => return None,
                _ => (0, level - 1),
            },
            Kind::Host => match (entry >> 9 & 7) as u8 {
                0 => (shift, 0),
                7 => {
                    let clear = (12..52).find(|bit| entry >> bit & 1 == 0)?;
                    (clear + 1, 0)
                }
                next => (0, next),
            },
        };
        if next == 0 {
            let bits = (1 << order) - 1;
            let ignored = match kind {
                Kind::First if order > 12 => 1 << 12,
                Kind::Host if entry >> 9 & 7 == 7 => {
                    if order <= shift || order >= shift + 9 {
                        return None;
                    }
                    bits
                }
                _ => 0,
            };
            if address & bits & !ignored != 0 {
                return None;
            }
            return Some((address & !bits | input & bits, rights));
        }
        if next >= level {
            return None;
        }
        // A table has no place in some formats where caches are described.
        if kind == Kind::Second && entry & 1 << 11 != 0 {
            return None;
        }
        // Levels that are left out translate zeros only.
        let below = 12 + 9 * u32::from(next);
        if below < shift && input & ((1 << shift) - 1) & !((1 << below) - 1) != 0 {
            return None;
        }
        (table, level) = (address, next);
    }
}

/// The level of the host's table in a frame, mostly.
fn level_of(frame: u64) -> u64 {
    1 + frame % 3
}

/// An entry of the table in frame `own`: mostly a plain one for a table or for memory, sometimes
/// any.
fn entry(kind: Kind, own: u64) -> impl Strategy<Value = u64> {
    let frame = prop_oneof![6 => 0..TABLES, 3 => 0u64..16, 1 => Just(0x4_0000), 1 => Just(0x200)];
    (frame, 0u64..16, any::<u64>(), 0u32..32, 12u32..32).prop_map(
        move |(frame, choice, any, odd, order)| {
            // All rights, or some.
            let rights = if choice & 3 == 0 { any & 3 } else { 3 };
            let (present, size) = match kind {
                Kind::Second => (rights, 0),
                Kind::First => (5 | rights & 2, 0),
                Kind::Host if choice == 15 => {
                    (1 | rights << 61 | 7 << 9, ((1 << order) - 1) & !0xfff)
                }
                Kind::Host => {
                    let next = if level_of(own) == 1 { 0 } else { level_of(frame) };
                    (1 | rights << 61 | next << 9, 0)
                }
            };
            let large = if kind != Kind::Host && choice == 14 { 1 << 7 } else { 0 };
            match odd {
                0 => any,
                1 => (frame * PAGE) | present | any & 0xf80,
                _ => ((frame * PAGE) | present | large) & !size | size >> 1 & !0xfff,
            }
        },
    )
}

fn linux(kind: Kind) -> impl Strategy<Value = Linux> {
    let places = (0..TABLES).flat_map(|frame| INDEXES.map(|index| (frame, index)));
    let entries = places.clone().map(|(own, _)| prop::option::weighted(0.9, entry(kind, own)));
    entries.collect::<Vec<_>>().prop_map(move |entries| {
        let addresses = places.clone().map(|(frame, index)| frame * PAGE + index * 8);
        Linux(addresses.zip(entries).filter_map(|(at, entry)| Some((at, entry?))).collect())
    })
}

fn kind_and_linux() -> impl Strategy<Value = (Kind, Linux)> {
    prop::sample::select(vec![Kind::Second, Kind::First, Kind::Host])
        .prop_flat_map(|kind| (Just(kind), linux(kind)))
}

fn inputs(levels: u8) -> impl Strategy<Value = Vec<u64>> {
    let index = prop_oneof![9 => prop::sample::select(&INDEXES[..]), 1 => 0u64..512];
    let input = (prop::collection::vec(index, 6), 0..PAGE).prop_map(move |(indexes, offset)| {
        let parts = indexes.iter().take(levels.into()).enumerate();
        parts.fold(offset, |input, (level, index)| input | index << (12 + 9 * level).min(63))
    });
    prop::collection::vec(input, 64)
}

/// All that a walk finds, and how many entries it has read.
fn walk<F: Format>(
    linux: &Linux,
    top: u64,
    levels: u8,
    range: std::ops::RangeInclusive<u64>,
    steps: u32,
) -> (Vec<Result<Mapping, Refused>>, u32) {
    let mut walk = Walk::<F>::new(PhysAddr::new(top), levels, range, steps);
    let mut reads = 0;
    let mut read = |address: PhysAddr| {
        reads += 1;
        linux.read(address.get())
    };
    let mut found = Vec::new();
    while let Some(step) = walk.step(&mut read, &Owners) {
        found.extend(step.transpose());
    }
    (found, reads)
}

fn walk_of_kind(
    kind: Kind,
    linux: &Linux,
    top: u64,
    levels: u8,
    range: std::ops::RangeInclusive<u64>,
    steps: u32,
) -> (Vec<Result<Mapping, Refused>>, u32) {
    let walk = match kind {
        Kind::Second => walk::<SecondStage>,
        Kind::First => walk::<FirstStage>,
        Kind::Host => walk::<HostTables>,
    };
    walk(linux, top, levels, range, steps)
}

fn check_of_kind(kind: Kind, linux: &Linux, top: u64, levels: u8) -> Result<(), Refused> {
    let check = match kind {
        Kind::Second => tables::check::<SecondStage>,
        Kind::First => tables::check::<FirstStage>,
        Kind::Host => tables::check::<HostTables>,
    };
    let read = |address: PhysAddr| linux.read(address.get());
    check(PhysAddr::new(top), levels, 0..=u64::MAX, 1 << 22, read, &Owners)
}

fn is_foreign(address: u64) -> bool {
    !Owners.may_reach(PhysAddr::new(address), 1)
}

/// Enough for the small tables here, which may refer to each other.
const STEPS: u32 = 1 << 21;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What a unit would do with an address, the walk has found, and nothing else; what it would
    /// do to a cell, the walk has refused. This is what the confinement of memory stands on.
    #[test]
    fn a_walk_finds_what_a_unit_does(
        (kind, linux) in kind_and_linux(),
        levels in 3u8..=5,
        top in 0..TABLES,
        inputs in inputs(5),
    ) {
        let levels = if kind == Kind::First { levels.max(4) } else { levels };
        let top = top * PAGE;
        let (found, _) = walk_of_kind(kind, &linux, top, levels, 0..=u64::MAX, STEPS);
        prop_assume!(found.last() != Some(&Err(Refused::TooLarge)));
        // Some addresses, and some of those that are mapped.
        let width = 12 + 9 * u32::from(levels);
        let within = |(place, input): (usize, u64)| match place % 8 {
            0 => input,
            _ => input & ((1 << width) - 1),
        };
        let mapped = found.iter().filter_map(|found| match found {
            Ok(mapping) | Err(Refused::Foreign(mapping)) => Some(mapping),
            _ => None,
        });
        let mapped = mapped.step_by(1 + found.len() / 64).map(|mapping| mapping.input | 0x123);
        let inputs: Vec<_> = inputs.into_iter().enumerate().map(within).chain(mapped).collect();
        for input in inputs {
            let expected = translate(kind, &linux, top, levels, input);
            let contains = |mapping: &Mapping| {
                input >> mapping.order == mapping.input >> mapping.order
            };
            let offset = |mapping: &Mapping| input & ((1 << mapping.order) - 1);
            let mappings: Vec<_> = found.iter().flatten().filter(|m| contains(m)).collect();
            let foreign = found.iter().any(|found| match found {
                Err(Refused::Foreign(mapping)) => contains(mapping),
                _ => false,
            });
            match expected {
                Some((address, rights)) => {
                    prop_assert!(!is_foreign(address) || foreign, "{input:x} is {address:x}");
                    if !foreign {
                        let [mapping] = mappings[..] else { panic!("{input:x}: {mappings:x?}") };
                        prop_assert_eq!(mapping.address.get() + offset(mapping), address);
                        prop_assert_eq!(mapping.rights, rights);
                    }
                }
                None => prop_assert!(mappings.is_empty() && !foreign, "{input:x}: {mappings:x?}"),
            }
        }
        // The check is the walk's first refusal.
        let first = found.iter().find_map(|found| found.err());
        prop_assert_eq!(check_of_kind(kind, &linux, top, levels).err(), first);
    }

    /// A walk through a part finds what one through all finds there.
    #[test]
    fn a_part_is_a_part(
        (kind, linux) in kind_and_linux(),
        top in 0..TABLES,
        first in inputs(4),
        size in prop_oneof![Just(0), 0..PAGE, 0u64..1 << 40],
        aligned: bool,
    ) {
        let top = top * PAGE;
        let (all, _) = walk_of_kind(kind, &linux, top, 4, 0..=u64::MAX, STEPS);
        prop_assume!(all.last() != Some(&Err(Refused::TooLarge)));
        for first in first.into_iter().take(8) {
            let first = if aligned { first & !(PAGE - 1) } else { first };
            let range = first..=first.saturating_add(size);
            let (part, reads) = walk_of_kind(kind, &linux, top, 4, range.clone(), STEPS);
            let touches = |mapping: &Mapping| {
                mapping.input <= *range.end()
                    && *range.start() <= mapping.input + ((1 << mapping.order) - 1)
            };
            let expected: Vec<_> = all.iter().flatten().filter(|m| touches(m)).collect();
            prop_assert_eq!(part.iter().flatten().collect::<Vec<_>>(), expected);
            prop_assert!(size >= PAGE || reads <= 8, "{reads} reads for a page");
        }
    }

    /// Whatever the tables are, the number of steps is bounded.
    #[test]
    fn a_walk_ends((kind, linux) in kind_and_linux(), top in 0..TABLES, steps in 0u32..5000) {
        let (found, reads) = walk_of_kind(kind, &linux, top * PAGE, 4, 0..=u64::MAX, steps);
        prop_assert!(reads <= steps);
        let ended = found.iter().filter(|found| **found == Err(Refused::TooLarge)).count();
        prop_assert!(ended <= 1 && (ended == 0 || reads == steps));
    }

    #[test]
    fn what_is_written_is_what_is_meant(
        frame in 0u64..1 << 22,
        level in 1u8..=3,
        read: bool,
        write: bool,
        caching: u64,
    ) {
        let order = tables::order_of_level(level);
        let (address, rights) = (PhysAddr::new(frame << order), Rights { read, write });
        let leaf = |caching| Entry::Leaf { address, order, rights, caching };
        let table = Entry::Table { address: PhysAddr::new(frame << 12), level, rights };
        let same = |decoded: Entry, entry| match rights {
            rights if rights.is_none() => true,
            _ => decoded == entry,
        };
        let second = SecondStage::encode(leaf(caching));
        prop_assert!(same(SecondStage::decode(second, level), leaf(caching & 0x878)));
        prop_assert!(same(SecondStage::decode(SecondStage::encode(table), level + 1), table));
        let host = HostTables::encode(leaf(caching));
        prop_assert!(same(HostTables::decode(host, level), leaf(caching & 1 << 60)));
        prop_assert!(same(HostTables::decode(HostTables::encode(table), level + 1), table));
        let first = FirstStage::encode(leaf(caching));
        prop_assert!(!read || FirstStage::decode(first, level) == leaf(caching & 0x18));
        let first = FirstStage::encode(table);
        prop_assert!(!read || FirstStage::decode(first, level + 1) == table);
    }
}

/// A table that refers to itself on each level, which would be read 512^4 times.
#[test]
fn a_table_of_itself() {
    let mut linux = Linux::default();
    for index in 0..512 {
        linux.0.insert(index * 8, 3);
    }
    let (found, reads) = walk::<SecondStage>(&linux, 0, 5, 0..=u64::MAX, 10_000);
    assert_eq!(reads, 10_000);
    assert_eq!(found.last(), Some(&Err(Refused::TooLarge)));
    // Levels that do not descend are an error of the unit's.
    linux.0.insert(0, 1 | 4 << 9 | 3 << 61);
    let (found, _) = walk::<HostTables>(&linux, 0, 4, 0..=0xfff, 100);
    assert_eq!(found, [Err(Refused::Malformed(0))]);
}

/// Memory of 64 KiB is named by each of 16 entries. A unit may cache all of it when it has read one
/// of them, so each is refused if any part is a cell's.
#[test]
fn a_part_of_large_memory_is_refused_for_the_whole() {
    let mut linux = Linux::default();
    linux.0.insert(PAGE, 1 | 1 << 9 | 3 << 61);
    linux.0.insert(0, 0x7000 | 1 | 7 << 9 | 3 << 61);
    let (found, _) = walk::<HostTables>(&linux, PAGE, 2, 0..=0xfff, 100);
    let [Err(Refused::Foreign(mapping))] = found[..] else { panic!("{found:?}") };
    assert_eq!((mapping.address.get(), mapping.order), (0, 12));
}

/// Each of the entries that name the same memory of 64 KiB maps its own page of it.
#[test]
fn entries_of_large_memory_map_its_parts() {
    let mut linux = Linux::default();
    linux.0.insert(PAGE, 1 | 1 << 9 | 3 << 61);
    let entry = 0x4_0000 | 0x7000 | 1 | 7 << 9 | 3 << 61;
    linux.0.extend((0..16).map(|index| (index * 8, entry)));
    let (found, _) = walk::<HostTables>(&linux, PAGE, 2, 0..=u64::MAX, 2000);
    let pages = found.iter().map(|found| found.expect("Linux's"));
    let pages: Vec<_> = pages.map(|page| (page.input, page.address.get(), page.order)).collect();
    let expected = (0..16).map(|index| (index * PAGE, 0x4_0000 + index * PAGE, 12));
    assert_eq!(pages, expected.collect::<Vec<_>>());
}

/// Entries at which a unit reports an error.
#[test]
fn malformed_entries() {
    assert_eq!(SecondStage::decode(0x1000 | 1 << 11 | 3, 2), Entry::Malformed);
    assert!(matches!(SecondStage::decode(0x1000 | 1 << 11 | 3, 1), Entry::Leaf { .. }));
    assert_eq!(SecondStage::decode(0x1000 | 1 << 7 | 3, 2), Entry::Malformed);
    assert_eq!(SecondStage::decode(1 << 7 | 3, 4), Entry::Malformed);
    assert_eq!(FirstStage::decode(0x2000 | 1 << 7 | 5, 2), Entry::Malformed);
    assert!(matches!(FirstStage::decode(0x1000 | 1 << 7 | 5, 2), Entry::Leaf { .. }));
    assert_eq!(FirstStage::decode(0x1000 | 3, 1), Entry::None);
    let (leaf, sized) = (1 | 3 << 61, 1 | 7 << 9 | 3 << 61);
    assert_eq!(HostTables::decode(0x1000 | leaf, 2), Entry::Malformed);
    // As much as the next level's, and as little as its own.
    assert_eq!(HostTables::decode(0xf_f000 | sized, 1), Entry::Malformed);
    assert!(matches!(HostTables::decode(0x7_f000 | sized, 1), Entry::Leaf { order: 20, .. }));
    assert_eq!(HostTables::decode(0xf_f000 | sized, 2), Entry::Malformed);
    assert!(matches!(HostTables::decode(0x1f_f000 | sized, 2), Entry::Leaf { order: 22, .. }));
    assert_eq!(HostTables::decode(0xf_ffff_ffff_f000 | sized, 6), Entry::Malformed);
}

/// A table that lies elsewhere is refused once, and the walk goes on behind it.
#[test]
fn a_table_outside_of_memory() {
    let mut linux = Linux::default();
    linux.0.insert(PAGE, (0x100 * PAGE) | 3);
    linux.0.insert(PAGE + 8, 3);
    linux.0.insert(0, 0x2000 | 3);
    let (found, reads) = walk::<SecondStage>(&linux, PAGE, 2, 0..=u64::MAX, 2000);
    let [Err(Refused::Table(0)), Ok(mapping)] = found[..] else { panic!("{found:?}") };
    assert_eq!((mapping.input, mapping.address.get()), (0x20_0000, 0x2000));
    assert_eq!(reads, 1 + 512 + 512);
}

/// A page of a cell at the last place, behind everything else.
#[test]
fn one_foreign_page_is_found() {
    let mut linux = Linux::default();
    for level in 1..4 {
        linux.0.insert(level * PAGE + 511 * 8, ((level - 1) * PAGE) | 3);
    }
    linux.0.insert(511 * 8, 0x9000 | 1);
    let read = |address: PhysAddr| linux.read(address.get());
    let range = 0..=u64::MAX;
    let top = PhysAddr::new(3 * PAGE);
    let found = tables::check::<SecondStage>(top, 4, range, 4096, read, &Owners);
    let Err(Refused::Foreign(mapping)) = found else { panic!("{found:?}") };
    assert_eq!((mapping.input, mapping.address.get()), (0xffff_ffff_f000, 0x9000));
    assert_eq!(mapping.rights, Rights { read: true, write: false });
}
