// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the tables of a unit refer to each other, from those that tell of devices down to those that
//! map memory. [Copies](crate::copies) are made of them.

use core::ops::RangeInclusive;

use crtos_partition::address::PhysAddr;

use crate::amd::paging::HostTables;
use crate::attachment::{Attachment, Stage, Translation};
use crate::tables::{self, Entry, Format, Rights};
use crate::vtd::context::{self, PROCESS_TABLE_ORDER};
use crate::vtd::paging::{FirstStage, SecondStage};
use crate::{DomainId, bit, field};

/// Most words of an entry.
pub const MAX_WORDS: usize = 8;
/// An entry of so many words at most.
pub type Words = [u64; MAX_WORDS];

const ADDRESS: u64 = !0xfff;
/// Order of the number of entries of a directory that are copied: those of a page. Linux has more
/// where it has more processes than anybody.
const DIRECTORY_ORDER: u32 = 9;
const _: () = assert!(8 << PROCESS_TABLE_ORDER == 512);

/// What an entry of Linux's asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing.
    Nothing,
    /// The table of Linux at `page`.
    Table {
        /// Where it lies.
        page: PhysAddr,
        /// What it is.
        kind: Kind,
    },
    /// Memory by its own addresses.
    Untranslated,
    /// A piece of memory.
    Memory(Piece),
    /// What no copy is made of.
    Unfit,
}

/// A piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub address: PhysAddr,
    /// 2^`order` bytes, to which the address is aligned.
    pub order: u32,
    /// How a device may use it.
    pub access: Access,
}

impl Piece {
    /// What entry `number` of a table has of it whose entries have 2^`order` bytes each, if the
    /// piece is that large: then several entries in a row tell of all of it.
    pub fn part(self, order: u32, number: u64) -> Self {
        let larger = self.order.saturating_sub(order);
        let offset = (number & ((1 << larger) - 1)) << order;
        Self { address: self.address + offset, order: self.order.min(order), ..self }
    }
}

/// How a device may use memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// What is allowed.
    pub rights: Rights,
    /// Bits that say how caches are accessed, in their places.
    pub caching: u64,
}

impl Access {
    /// Everything.
    pub const FULL: Self = Self { rights: Rights::ALL, caching: 0 };
}

/// A table of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Of buses, in legacy mode.
    Root,
    /// Of the functions of a bus, in legacy mode.
    Context,
    /// Of halves of buses, in scalable mode.
    ScalableRoot,
    /// Of the functions of half a bus, in scalable mode.
    ScalableContext,
    /// Of tables of processes.
    Directory,
    /// Of processes.
    Processes,
    /// Of memory, in second-stage tables of this level.
    Second(u8),
    /// Of memory, in first-stage tables of this level.
    First(u8),
    /// Of memory, in tables of AMD-Vi's of this level.
    Host(u8),
}

impl Kind {
    /// All.
    pub const ALL: &'static [Self] = &[
        Self::Root,
        Self::Context,
        Self::ScalableRoot,
        Self::ScalableContext,
        Self::Directory,
        Self::Processes,
        Self::Second(1),
        Self::Second(2),
        Self::Second(3),
        Self::Second(4),
        Self::Second(5),
        Self::First(1),
        Self::First(2),
        Self::First(3),
        Self::First(4),
        Self::First(5),
        Self::Host(1),
        Self::Host(2),
        Self::Host(3),
        Self::Host(4),
        Self::Host(5),
        Self::Host(6),
    ];

    /// One bit for each of [`Self::ALL`], in their order.
    pub const fn bit(self) -> u32 {
        let number = match self {
            Self::Root => 0,
            Self::Context => 1,
            Self::ScalableRoot => 2,
            Self::ScalableContext => 3,
            Self::Directory => 4,
            Self::Processes => 5,
            Self::Second(level) => 5 + level,
            Self::First(level) => 10 + level,
            Self::Host(level) => 15 + level,
        };
        1 << number
    }

    /// The kinds that have these [bits](Self::bit).
    pub fn of_bits(mut bits: u32) -> impl Iterator<Item = Self> {
        core::iter::from_fn(move || {
            let kind = Self::ALL.get(bits.trailing_zeros() as usize)?;
            bits &= bits - 1;
            Some(*kind)
        })
    }

    /// The level of a table that maps memory, whose entries are words; `None` for other kinds.
    pub fn level(self) -> Option<u8> {
        match self {
            Self::Second(level) | Self::First(level) | Self::Host(level) => Some(level),
            _ => None,
        }
    }

    /// The kind of tables one level below one that maps memory.
    pub fn below(self) -> Self {
        match self {
            Self::Second(level) => Self::Second(level - 1),
            Self::First(level) => Self::First(level - 1),
            Self::Host(level) => Self::Host(level - 1),
            kind => kind,
        }
    }

    /// The functions of which entry `number` tells in a table of buses, and what the table of these
    /// is; `None` for other tables.
    pub fn functions(self, number: u64) -> Option<(RangeInclusive<u16>, Self)> {
        let (count, lower) = match self {
            Self::Root => (0x100, Self::Context),
            Self::ScalableRoot => (0x80, Self::ScalableContext),
            _ => return None,
        };
        let first = number as u16 * count;
        Some((first..=first + (count - 1), lower))
    }

    /// From bits of a table that maps memory.
    pub fn decode(self, bits: u64) -> Entry {
        match self {
            Self::Second(level) => SecondStage::decode(bits, level),
            Self::First(level) => FirstStage::decode(bits, level),
            Self::Host(level) => HostTables::decode(bits, level),
            _ => Entry::None,
        }
    }

    /// To bits of a table that maps memory.
    pub fn encode(self, entry: Entry) -> u64 {
        match self {
            Self::First(_) => FirstStage::encode(entry),
            Self::Host(_) => HostTables::encode(entry),
            _ => SecondStage::encode(entry),
        }
    }

    /// Walks through the page table at `top`, of this kind, as [`tables::check`] does.
    pub fn check(
        self,
        top: PhysAddr,
        steps: u32,
        read: impl FnMut(PhysAddr) -> Option<u64>,
        memory: &impl tables::Memory,
    ) -> Result<(), tables::Refused> {
        let all = 0..=u64::MAX;
        match self {
            Self::Second(level) => {
                tables::check::<SecondStage>(top, level, all, steps, read, memory)
            }
            Self::First(level) => tables::check::<FirstStage>(top, level, all, steps, read, memory),
            Self::Host(level) => tables::check::<HostTables>(top, level, all, steps, read, memory),
            _ => Err(tables::Refused::Malformed(0)),
        }
    }

    /// Words of an entry.
    pub fn words(self) -> usize {
        match self {
            Self::Root | Self::Context => 2,
            Self::ScalableContext => 4,
            Self::Processes => 8,
            _ => 1,
        }
    }

    /// What an entry of Linux's asks for; `own` are the hypervisor's domains.
    pub fn asked(self, raw: &Words, own: &RangeInclusive<DomainId>) -> Asked {
        let [low, high, third, fourth, ..] = *raw;
        let table = |kind| match context::table(low) {
            Ok(None) => Asked::Nothing,
            Ok(Some(page)) => Asked::Table { page, kind },
            Err(_) => Asked::Unfit,
        };
        let attachment = match self {
            Self::Root if high == 0 => return table(Self::Context),
            Self::Root => return Asked::Unfit,
            Self::ScalableRoot => return table(Self::ScalableContext),
            Self::Directory => return table(Self::Processes),
            Self::Second(_) | Self::First(_) | Self::Host(_) => {
                return match self.decode(low) {
                    Entry::None => Asked::Nothing,
                    Entry::Table { address, level, .. } => match self {
                        Self::Host(own) if level >= own => Asked::Unfit,
                        Self::Host(_) => Asked::Table { page: address, kind: Self::Host(level) },
                        _ => Asked::Table { page: address, kind: self.below() },
                    },
                    Entry::Leaf { address, order, rights, caching } => {
                        Asked::Memory(Piece { address, order, access: Access { rights, caching } })
                    }
                    Entry::Malformed => Asked::Unfit,
                };
            }
            Self::Context => Attachment::of_context(u128::from(high) << 64 | u128::from(low)),
            Self::ScalableContext => Attachment::of_scalable_context([low, high, third, fourth]),
            Self::Processes => Attachment::of_process(*raw),
        };
        let checked = attachment.and_then(|attachment| attachment.check(own).map(|()| attachment));
        match checked.map(|attachment| attachment.translation) {
            Ok(Translation::Blocked) => Asked::Nothing,
            Ok(Translation::PassThrough(_)) => Asked::Untranslated,
            Ok(Translation::Tables { stage, top, levels, .. }) => {
                let kind = match stage {
                    Stage::First => Self::First(levels),
                    Stage::Second => Self::Second(levels),
                };
                Asked::Table { page: top, kind }
            }
            Ok(Translation::Processes { directory, .. }) => {
                Asked::Table { page: directory, kind: Self::Directory }
            }
            Ok(Translation::Nested) | Err(_) => Asked::Unfit,
        }
    }

    /// An entry that refers to `table` of the kind `lower`, and else is as `raw`, an entry of
    /// Linux's that asked for it.
    pub fn link(self, raw: &Words, table: PhysAddr, lower: Self) -> Words {
        let mut entry = [0; MAX_WORDS];
        let [low, high, third, fourth, ..] = *raw;
        match (self, lower) {
            (Self::Context, Self::Second(levels)) => {
                let domain = DomainId(field(high, 8, 16) as u16);
                let context = context::context(table, levels, domain, bit(low, 1));
                (entry[0], entry[1]) = (context as u64, (context >> 64) as u64);
            }
            (Self::ScalableContext, _) => {
                let found = Attachment::of_scalable_context([low, high, third, fourth]);
                if let Ok(Attachment { translation, silent, .. }) = found
                    && let Translation::Processes { order, process, others, .. } = translation
                {
                    let order = order.min(DIRECTORY_ORDER);
                    let context = context::scalable_context(table, order, process, others, silent);
                    entry[..4].copy_from_slice(&context);
                }
            }
            (Self::Processes, Self::Second(levels)) => {
                let domain = DomainId(high as u16);
                entry = context::process(*raw, Stage::Second, table, levels, domain);
            }
            (Self::Processes, Self::First(levels)) => {
                let domain = DomainId(high as u16);
                entry = context::process(*raw, Stage::First, table, levels, domain);
            }
            (Self::Second(_) | Self::First(_) | Self::Host(_), lower) => {
                let rights = match self.decode(low) {
                    Entry::Table { rights, .. } => rights,
                    _ => Rights::ALL,
                };
                let level = lower.level().unwrap_or(1);
                entry[0] = self.encode(Entry::Table { address: table, level, rights });
            }
            (Self::Root | Self::ScalableRoot | Self::Directory, _) => entry[0] = table.get() | 1,
            // First-stage tables are for processes.
            (Self::Context, _) | (Self::Processes, _) => (),
        }
        entry
    }

    /// An entry of Linux's for functions or processes, but that faults are not reported.
    pub fn silent(self, mut raw: Words) -> Words {
        if matches!(self, Self::Context | Self::ScalableContext | Self::Processes) {
            raw[0] |= 1 << 1;
        }
        raw
    }

    /// The table that an entry of a copy refers to.
    pub fn linked(self, entry: &Words) -> Option<PhysAddr> {
        let low = entry[0];
        match self {
            Self::Second(_) | Self::First(_) | Self::Host(_) => match self.decode(low) {
                Entry::Table { address, .. } => Some(address),
                _ => None,
            },
            _ if !bit(low, 0) => None,
            Self::Processes if field(low, 6, 3) == 1 => Some(PhysAddr::new(entry[2] & ADDRESS)),
            _ => Some(PhysAddr::new(low & ADDRESS)),
        }
    }

    /// An entry as Linux would have it for [`Self::link`] to lead all that it is about to one table
    /// in `domain`, and the kind that follows; `None` if that is the table.
    pub fn leading(self, domain: DomainId) -> (Words, Option<Self>) {
        let mut raw = [0; MAX_WORDS];
        let domain = u64::from(domain.0);
        let lower = match self {
            Self::Root => Some(Self::Context),
            Self::ScalableRoot => Some(Self::ScalableContext),
            Self::ScalableContext => {
                raw[0] = 1;
                Some(Self::Directory)
            }
            Self::Directory => Some(Self::Processes),
            Self::Processes => {
                raw[1] = domain;
                None
            }
            _ => {
                raw[1] = domain << 8;
                None
            }
        };
        (raw, lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_bit() {
        for (number, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(kind.bit(), 1 << number);
        }
        let all = (1 << Kind::ALL.len()) - 1;
        assert!(Kind::of_bits(all).eq(Kind::ALL.iter().copied()));
        assert!(Kind::of_bits(u32::MAX).eq(Kind::ALL.iter().copied()));
        assert!(Kind::of_bits(1 << 3).eq([Kind::ScalableContext]));
    }
}
