// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of page tables (VT-d 9.7 and 9.8).

use crtos_partition::address::PhysAddr;

use crate::tables::{Entry, Format, Rights, order_of_level};
use crate::{bit, field, flag};

const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// The entry maps memory, on level 2 or 3.
const PAGE: u32 = 7;

/// Second-stage tables, of three to five levels (VT-d 9.8). The rights are in bits 0 and 1: the
/// hypervisor does not enable the other place.
#[derive(Clone, Copy, Debug)]
pub struct SecondStage;

impl SecondStage {
    /// SNP, IPAT, EMT.
    const CACHING: u64 = 1 << 11 | 1 << 6 | 7 << 3;
}

/// First-stage tables, of four or five levels: those of the processor (VT-d 9.7). No request is a
/// supervisor's, since the hypervisor's entries for processes do not allow that.
#[derive(Clone, Copy, Debug)]
pub struct FirstStage;

impl FirstStage {
    /// PCD, PWT.
    const CACHING: u64 = 1 << 4 | 1 << 3;
}

/// What both formats have in common: a present entry with `rights`. `reserved` are bits of entries
/// that tell of tables, `caching` bits of those that map memory.
fn decode(bits: u64, level: u8, rights: Rights, reserved: u64, caching: u64) -> Entry {
    let is_leaf = level == 1 || (2..=3).contains(&level) && bit(bits, PAGE);
    // On higher levels the bit is reserved.
    if !is_leaf && bit(bits, PAGE) {
        return Entry::Malformed;
    }
    let address = PhysAddr::new(bits & ADDRESS);
    if !is_leaf {
        return match bits & reserved {
            0 => Entry::Table { address, level: level - 1, rights },
            _ => Entry::Malformed,
        };
    }
    let order = order_of_level(level);
    if address.is_aligned(1 << order) {
        Entry::Leaf { address, order, rights, caching: bits & caching }
    } else {
        Entry::Malformed
    }
}

impl Format for SecondStage {
    fn decode(bits: u64, level: u8) -> Entry {
        let rights = Rights { read: bit(bits, 0), write: bit(bits, 1) };
        if rights.is_none() {
            return Entry::None;
        }
        decode(bits, level, rights, 1 << 11, Self::CACHING)
    }

    fn encode(entry: Entry) -> u64 {
        let rights = |rights: Rights| flag(rights.read, 0) | flag(rights.write, 1);
        match entry {
            Entry::None | Entry::Malformed => 0,
            Entry::Table { address, rights: allowed, .. } => address.get() | rights(allowed),
            Entry::Leaf { address, order, rights: allowed, caching } => {
                let is_large = order > order_of_level(1);
                address.get() | rights(allowed) | flag(is_large, PAGE) | caching & Self::CACHING
            }
        }
    }
}

impl Format for FirstStage {
    fn decode(bits: u64, level: u8) -> Entry {
        // Present, and for users.
        if field(bits, 0, 1) & field(bits, 2, 1) == 0 {
            return Entry::None;
        }
        // Bit 12 of a large page is no part of its address (VT-d 9.7).
        let is_large = (2..=3).contains(&level) && bit(bits, PAGE);
        let bits = if is_large { bits & !(1 << 12) } else { bits };
        let rights = Rights { read: true, write: bit(bits, 1) };
        decode(bits, level, rights, 0, Self::CACHING)
    }

    fn encode(entry: Entry) -> u64 {
        /// Present, for users, accessed and dirty, so that the unit does not write to it.
        const FIXED: u64 = 1 | 1 << 2 | 1 << 5 | 1 << 6;
        match entry {
            Entry::Table { address, rights, .. } if rights.read => {
                address.get() | FIXED | flag(rights.write, 1)
            }
            Entry::Leaf { address, order, rights, caching } if rights.read => {
                let is_large = order > order_of_level(1);
                let bits = FIXED | flag(rights.write, 1) | flag(is_large, PAGE);
                address.get() | bits | caching & Self::CACHING
            }
            _ => 0,
        }
    }
}
