// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of page tables of the host (IOMMU 2.2.3), of up to six levels. An entry says the level
//! of the table below it, so levels can be left out.

use crtos_partition::address::PhysAddr;

use crate::tables::{Entry, Format, Rights, order_of_level};
use crate::{bit, field, flag};

const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Where the level of the table below starts, 3 bits.
const NEXT: u32 = 9;
/// Instead of a level: memory of as many bytes as the address says.
const SIZED: u64 = 7;

/// Tables of the host.
#[derive(Clone, Copy, Debug)]
pub struct HostTables;

impl HostTables {
    /// FC: accesses are coherent.
    const CACHING: u64 = 1 << 60;
}

impl Format for HostTables {
    fn decode(bits: u64, level: u8) -> Entry {
        if !bit(bits, 0) {
            return Entry::None;
        }
        let rights = Rights { read: bit(bits, 61), write: bit(bits, 62) };
        let address = bits & ADDRESS;
        let leaf = |address, order| Entry::Leaf {
            address: PhysAddr::new(address),
            order,
            rights,
            caching: bits & Self::CACHING,
        };
        let own = order_of_level(level);
        match field(bits, NEXT, 3) {
            0 if address & ((1 << own) - 1) == 0 => leaf(address, own),
            0 => Entry::Malformed,
            SIZED => {
                // The lowest bit of the address that is clear says the size: the one above it is
                // the first that counts.
                let order = (address | 0xfff).trailing_ones() + 1;
                if (own + 1..own + 9).contains(&order) {
                    leaf(address & !((1 << order) - 1), order)
                } else {
                    Entry::Malformed
                }
            }
            lower => Entry::Table { address: PhysAddr::new(address), level: lower as u8, rights },
        }
    }

    fn encode(entry: Entry) -> u64 {
        let (address, rights, rest) = match entry {
            Entry::None | Entry::Malformed => return 0,
            Entry::Table { address, level, rights } => (address, rights, u64::from(level) << NEXT),
            Entry::Leaf { address, rights, caching, .. } => {
                (address, rights, caching & Self::CACHING)
            }
        };
        address.get() | 1 | flag(rights.read, 61) | flag(rights.write, 62) | rest
    }
}
