// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the tables of a unit refer to each other, of which there are [copies].

use crtos_partition::address::PhysAddr;

use super::context::{self, PROCESS_TABLE_ORDER};
use super::paging::{FirstStage, SecondStage};
use crate::attachment::{Attachment, Stage, Translation};
use crate::copies::{self, Access, Asked, Layout, MAX_WORDS, Memory, Piece, Words};
use crate::tables::{Entry, Format, Rights};
use crate::{DomainId, bit, field};

const ADDRESS: u64 = !0xfff;
/// Order of the number of entries of a directory that are copied: those of a page. Linux has more
/// where it has more processes than anybody.
const DIRECTORY_ORDER: u32 = 9;
const _: () = assert!(8 << PROCESS_TABLE_ORDER == 512);

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
}

/// The tables of a unit.
#[derive(Clone, Copy, Debug)]
pub struct Vtd;

impl Layout for Vtd {
    type Kind = Kind;
    const KINDS: &'static [Kind] = &[
        Kind::Root,
        Kind::Context,
        Kind::ScalableRoot,
        Kind::ScalableContext,
        Kind::Directory,
        Kind::Processes,
        Kind::Second(1),
        Kind::Second(2),
        Kind::Second(3),
        Kind::Second(4),
        Kind::Second(5),
        Kind::First(1),
        Kind::First(2),
        Kind::First(3),
        Kind::First(4),
        Kind::First(5),
    ];

    fn level(kind: Kind) -> Option<u8> {
        match kind {
            Kind::Second(level) | Kind::First(level) => Some(level),
            _ => None,
        }
    }

    fn below(kind: Kind) -> Kind {
        match kind {
            Kind::Second(level) => Kind::Second(level - 1),
            Kind::First(level) => Kind::First(level - 1),
            kind => kind,
        }
    }

    fn decode(kind: Kind, bits: u64) -> Entry {
        match kind {
            Kind::Second(level) => SecondStage::decode(bits, level),
            Kind::First(level) => FirstStage::decode(bits, level),
            _ => Entry::None,
        }
    }

    fn encode(kind: Kind, entry: Entry) -> u64 {
        match kind {
            Kind::First(_) => FirstStage::encode(entry),
            _ => SecondStage::encode(entry),
        }
    }

    fn is_harmless(kind: Kind, top: PhysAddr, memory: &impl Memory) -> bool {
        match kind {
            Kind::Second(level) => copies::is_harmless::<SecondStage>(level, top, memory),
            Kind::First(level) => copies::is_harmless::<FirstStage>(level, top, memory),
            _ => false,
        }
    }

    fn words(kind: Kind) -> usize {
        match kind {
            Kind::Root | Kind::Context => 2,
            Kind::ScalableContext => 4,
            Kind::Processes => 8,
            Kind::ScalableRoot | Kind::Directory | Kind::Second(_) | Kind::First(_) => 1,
        }
    }

    fn asked(kind: Kind, raw: &Words) -> Asked<Kind> {
        let [low, high, third, fourth, ..] = *raw;
        let table = |kind| match context::table(low) {
            Ok(None) => Asked::Nothing,
            Ok(Some(page)) => Asked::Table { page, kind },
            Err(_) => Asked::Unfit,
        };
        let attachment = match kind {
            Kind::Root if high == 0 => return table(Kind::Context),
            Kind::Root => return Asked::Unfit,
            Kind::ScalableRoot => return table(Kind::ScalableContext),
            Kind::Directory => return table(Kind::Processes),
            Kind::Second(_) | Kind::First(_) => {
                return match Self::decode(kind, low) {
                    Entry::None => Asked::Nothing,
                    Entry::Table { address, .. } => {
                        Asked::Table { page: address, kind: Self::below(kind) }
                    }
                    Entry::Leaf { address, order, rights, caching } => {
                        Asked::Memory(Piece { address, order, access: Access { rights, caching } })
                    }
                    Entry::Malformed => Asked::Unfit,
                };
            }
            Kind::Context => Attachment::of_context(u128::from(high) << 64 | u128::from(low)),
            Kind::ScalableContext => Attachment::of_scalable_context([low, high, third, fourth]),
            Kind::Processes => Attachment::of_process(*raw),
        };
        match attachment.map(|attachment| attachment.translation) {
            Ok(Translation::Blocked) => Asked::Nothing,
            Ok(Translation::PassThrough(_)) => Asked::Untranslated,
            Ok(Translation::Tables { stage, top, levels, .. }) => {
                let kind = match stage {
                    Stage::First => Kind::First(levels),
                    Stage::Second => Kind::Second(levels),
                };
                Asked::Table { page: top, kind }
            }
            Ok(Translation::Processes { directory, .. }) => {
                Asked::Table { page: directory, kind: Kind::Directory }
            }
            Ok(Translation::Nested) | Err(_) => Asked::Unfit,
        }
    }

    fn link(kind: Kind, raw: &Words, table: PhysAddr, lower: Kind) -> Words {
        let mut entry = [0; MAX_WORDS];
        let [low, high, third, fourth, ..] = *raw;
        match (kind, lower) {
            (Kind::Context, Kind::Second(levels)) => {
                let domain = DomainId(field(high, 8, 16) as u16);
                let context = context::context(table, levels, domain, bit(low, 1));
                (entry[0], entry[1]) = (context as u64, (context >> 64) as u64);
            }
            (Kind::ScalableContext, _) => {
                let found = Attachment::of_scalable_context([low, high, third, fourth]);
                if let Ok(Attachment { translation, silent, .. }) = found
                    && let Translation::Processes { order, process, others, .. } = translation
                {
                    let order = order.min(DIRECTORY_ORDER);
                    let context = context::scalable_context(table, order, process, others, silent);
                    entry[..4].copy_from_slice(&context);
                }
            }
            (Kind::Processes, Kind::Second(levels)) => {
                let domain = DomainId(high as u16);
                entry = context::process(*raw, Stage::Second, table, levels, domain);
            }
            (Kind::Processes, Kind::First(levels)) => {
                let domain = DomainId(high as u16);
                entry = context::process(*raw, Stage::First, table, levels, domain);
            }
            (Kind::Second(_) | Kind::First(_), lower) => {
                let rights = match Self::decode(kind, low) {
                    Entry::Table { rights, .. } => rights,
                    _ => Rights::ALL,
                };
                let level = Self::level(lower).unwrap_or(1);
                entry[0] = Self::encode(kind, Entry::Table { address: table, level, rights });
            }
            (Kind::Root | Kind::ScalableRoot | Kind::Directory, _) => entry[0] = table.get() | 1,
            // First-stage tables are for processes.
            (Kind::Context, _) | (Kind::Processes, _) => (),
        }
        entry
    }

    fn linked(kind: Kind, entry: &Words) -> Option<PhysAddr> {
        let low = entry[0];
        match kind {
            Kind::Second(_) | Kind::First(_) => match Self::decode(kind, low) {
                Entry::Table { address, .. } => Some(address),
                _ => None,
            },
            _ if !bit(low, 0) => None,
            Kind::Processes if field(low, 6, 3) == 1 => Some(PhysAddr::new(entry[2] & ADDRESS)),
            _ => Some(PhysAddr::new(low & ADDRESS)),
        }
    }

    fn untranslated(kind: Kind) -> (Words, Option<Kind>) {
        let mut raw = [0; MAX_WORDS];
        // All devices have the same tables, so any domain will do.
        let lower = match kind {
            Kind::Root => Some(Kind::Context),
            Kind::ScalableRoot => Some(Kind::ScalableContext),
            Kind::ScalableContext => {
                raw[0] = 1;
                Some(Kind::Directory)
            }
            Kind::Directory => Some(Kind::Processes),
            Kind::Processes => {
                raw[1] = 1;
                None
            }
            _ => {
                raw[1] = 1 << 8;
                None
            }
        };
        (raw, lower)
    }
}
