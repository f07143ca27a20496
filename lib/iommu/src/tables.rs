// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page tables of devices, and the memory that they may map.
//!
//! All formats are trees: an entry is nothing, a lower table, or memory. [`Walk`] visits what a
//! table maps, step by step, and says of each piece whether Linux's devices may have it. The tables
//! are Linux's, so they may refer to themselves, or change meanwhile: each entry is read once, each
//! step reads one entry, levels only descend, and the number of steps is bounded.

use core::marker::PhantomData;
use core::ops::RangeInclusive;

use crtos_partition::address::PhysAddr;

/// Entries of a table.
pub const ENTRIES: u64 = 512;
/// Levels that there can be, at most (IOMMU 2.2.3).
pub const MAX_LEVELS: u8 = 6;

/// Who owns the machine's memory.
pub trait Memory {
    /// Tells whether devices of Linux may reach all of the `size` bytes at `address`.
    fn may_reach(&self, address: PhysAddr, size: u64) -> bool;
}

/// What a device may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rights {
    /// Read.
    pub read: bool,
    /// Write.
    pub write: bool,
}

impl Rights {
    /// Everything.
    pub const ALL: Self = Self { read: true, write: true };

    /// What both allow.
    pub fn and(self, other: Self) -> Self {
        Self { read: self.read && other.read, write: self.write && other.write }
    }

    /// Tells whether nothing is allowed.
    pub fn is_none(self) -> bool {
        !self.read && !self.write
    }
}

/// An entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing.
    None,
    /// A table.
    Table {
        /// Where it lies.
        address: PhysAddr,
        /// Its level, lower than that of the entry's table. Levels that are left out translate
        /// zeros only.
        level: u8,
        /// What is allowed below it.
        rights: Rights,
    },
    /// Memory.
    Leaf {
        /// Where its first byte lies.
        address: PhysAddr,
        /// 2^`order` bytes, `order` being at most 52. The address is aligned to them.
        order: u32,
        /// What is allowed.
        rights: Rights,
        /// Bits that say how caches are accessed, in their places.
        caching: u64,
    },
    /// The unit reports an error.
    Malformed,
}

/// How entries look to a unit.
pub trait Format {
    /// From bits, in a table of `level`, the lowest of which is 1.
    fn decode(bits: u64, level: u8) -> Entry;
    /// To bits; memory is 2^[`order_of_level`] bytes at an address that is aligned to them.
    fn encode(entry: Entry) -> u64;
}

/// A piece of memory that a table maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First input address.
    pub input: u64,
    /// Where its first byte lies.
    pub address: PhysAddr,
    /// 2^`order` bytes.
    pub order: u32,
    /// What is allowed.
    pub rights: Rights,
    /// Bits that say how caches are accessed.
    pub caching: u64,
}

/// Why a table is refused, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It maps memory that Linux's devices may not have.
    Foreign(Mapping),
    /// A table lies where Linux has no memory, at this input address.
    Table(u64),
    /// An entry at which the unit reports an error, at this input address.
    Malformed(u64),
    /// There are more entries than were to be read.
    TooLarge,
}

/// Where a walk is in one table.
#[derive(Clone, Copy, Debug)]
struct Place {
    table: PhysAddr,
    level: u8,
    /// First input address that the table translates.
    input: u64,
    rights: Rights,
    /// The entry to look at next.
    next: u64,
}

/// A walk through the tables below one top table.
#[derive(Clone, Debug)]
pub struct Walk<F> {
    places: [Option<Place>; MAX_LEVELS as usize],
    depth: usize,
    range: RangeInclusive<u64>,
    rest: u32,
    format: PhantomData<F>,
}

/// Bits of an input address below the part that selects an entry of a table of `level`.
pub const fn order_of_level(level: u8) -> u32 {
    12 + 9 * (level as u32 - 1)
}

impl<F: Format> Walk<F> {
    /// A walk through what the table at `top` of `level` (1 to [`MAX_LEVELS`]) maps in `range`,
    /// that reads at most `steps` entries.
    pub fn new(top: PhysAddr, level: u8, range: RangeInclusive<u64>, steps: u32) -> Self {
        let places = Default::default();
        let mut walk = Self { places, depth: 0, range, rest: steps, format: PhantomData };
        if (1..=MAX_LEVELS).contains(&level) {
            walk.enter(Place { table: top, level, input: 0, rights: Rights::ALL, next: 0 });
        }
        walk
    }

    fn enter(&mut self, place: Place) {
        let skipped = self.range.start().saturating_sub(place.input) >> order_of_level(place.level);
        self.places[self.depth] = Some(Place { next: skipped.min(ENTRIES), ..place });
        self.depth += 1;
    }

    /// Goes to the next entry: `input` and `next` are those of it alone.
    fn next(&mut self) -> Option<Place> {
        loop {
            let place = self.places[self.depth.checked_sub(1)?].as_mut()?;
            let order = order_of_level(place.level);
            // The top table of six levels has entries beyond the last address.
            let offset = place.next << order;
            let input = place.input | offset;
            let exists = place.next < ENTRIES && offset >> order == place.next;
            if exists && input <= *self.range.end() {
                place.next += 1;
                return Some(Place { input, next: place.next - 1, ..*place });
            }
            self.depth -= 1;
        }
    }

    /// Reads the next entry by `read`, which tells nothing where Linux has no memory. `None` when
    /// the walk has ended, `Some(Ok(None))` when the entry maps nothing itself. After a refusal it
    /// goes on behind it, but for [`Refused::TooLarge`].
    pub fn step(
        &mut self,
        read: &mut impl FnMut(PhysAddr) -> Option<u64>,
        memory: &impl Memory,
    ) -> Option<Result<Option<Mapping>, Refused>> {
        let Place { table, level, input, rights: above, next } = self.next()?;
        let Some(rest) = self.rest.checked_sub(1) else {
            self.depth = 0;
            return Some(Err(Refused::TooLarge));
        };
        self.rest = rest;
        let Some(bits) = read(table + next * 8) else {
            // Nor are there others of this table.
            self.depth -= 1;
            return Some(Err(Refused::Table(input)));
        };
        Some(match F::decode(bits, level) {
            Entry::None => Ok(None),
            Entry::Table { address, level: lower, rights } if (1..level).contains(&lower) => {
                let rights = above.and(rights);
                if !rights.is_none() {
                    self.enter(Place { table: address, level: lower, input, rights, next: 0 });
                }
                Ok(None)
            }
            Entry::Malformed | Entry::Table { .. } => Err(Refused::Malformed(input)),
            Entry::Leaf { address, order, rights, caching } => {
                // Entries for more than their level are repeated: each of them maps a part, but a
                // unit may cache the whole of what one says.
                let own = order.min(order_of_level(level));
                let offset = input & ((1 << order) - 1);
                let rights = above.and(rights);
                let address_of_part = address + offset;
                let mapping =
                    Mapping { input, address: address_of_part, order: own, rights, caching };
                if rights.is_none() {
                    Ok(None)
                } else if memory.may_reach(address, 1 << order) {
                    Ok(Some(mapping))
                } else {
                    Err(Refused::Foreign(mapping))
                }
            }
        })
    }
}

/// Refuses tables that map what Linux's devices may not have: the table at `top` of `level`, in
/// `range`, read in at most `steps` steps.
pub fn check<F: Format>(
    top: PhysAddr,
    level: u8,
    range: RangeInclusive<u64>,
    steps: u32,
    mut read: impl FnMut(PhysAddr) -> Option<u64>,
    memory: &impl Memory,
) -> Result<(), Refused> {
    let mut walk = Walk::<F>::new(top, level, range, steps);
    while let Some(found) = walk.step(&mut read, memory) {
        found?;
    }
    Ok(())
}
