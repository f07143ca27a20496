// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables by which the devices of a cell translate: they find its memory where the cell sees
//! it, and nothing else.

use crtos_partition::address::PhysAddr;

use crate::DomainId;
use crate::copies::Memory;
use crate::layout::{Access, Kind, Piece};
use crate::tables::{ENTRIES, Entry, Rights, order_of_level};

/// The tables of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CellTables {
    /// Where the top table lies.
    pub top: PhysAddr,
    /// What it is.
    pub kind: Kind,
    /// By which number units tag what they cache of them.
    pub domain: DomainId,
}

impl CellTables {
    /// Tables of `kind`, which maps memory, by which nothing is found. `None` if there is no
    /// memory.
    pub fn new(memory: &mut impl Memory, kind: Kind, domain: DomainId) -> Option<Self> {
        kind.level()?;
        Some(Self { top: memory.allocate()?, kind, domain })
    }

    /// Has devices find `piece` at `input`; both are aligned to its size, that of a page of some
    /// level below the top one. False if there is no memory, or something is there.
    pub fn map(&self, memory: &mut impl Memory, input: u64, piece: Piece) -> bool {
        let Piece { address, order, access: Access { rights, caching } } = piece;
        let (mut table, mut kind) = (self.top, self.kind);
        while let Some(level) = kind.level() {
            let place = table + 8 * (input >> order_of_level(level) & (ENTRIES - 1));
            let bits = memory.word(place);
            if order_of_level(level) == order {
                let leaf = Entry::Leaf { address, order, rights, caching };
                if bits != 0 {
                    return false;
                }
                memory.set_word(place, kind.encode(leaf));
                return true;
            }
            if level == 1 {
                break;
            }
            table = match kind.decode(bits) {
                Entry::Table { address, .. } => address,
                Entry::None => {
                    let Some(address) = memory.allocate() else { return false };
                    let lower = Entry::Table { address, level: level - 1, rights: Rights::ALL };
                    memory.set_word(place, kind.encode(lower));
                    address
                }
                Entry::Leaf { .. } | Entry::Malformed => return false,
            };
            kind = kind.below();
        }
        false
    }

    /// Gives their memory back. No device translates by them, and the units have forgotten them.
    pub fn free(self, memory: &mut impl Memory) {
        free(memory, self.top, self.kind);
    }
}

/// Gives a table back, and those below it, of which there are few levels.
fn free(memory: &mut impl Memory, table: PhysAddr, kind: Kind) {
    for place in (0..ENTRIES).map(|index| table + 8 * index) {
        if let Entry::Table { address, .. } = kind.decode(memory.word(place)) {
            free(memory, address, kind.below());
        }
    }
    memory.free(table);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::tests::Model;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// What is found at `input`.
    fn find(model: &Model, tables: &CellTables, input: u64) -> Option<(u64, Rights)> {
        let (mut table, mut kind) = (tables.top, tables.kind);
        loop {
            let level = kind.level().expect("it maps memory");
            let index = input >> order_of_level(level) & (ENTRIES - 1);
            match kind.decode(model.word(table + 8 * index)) {
                Entry::Table { address, .. } => (table, kind) = (address, kind.below()),
                Entry::Leaf { address, order, rights, .. } => {
                    return Some((address.get() + (input & ((1 << order) - 1)), rights));
                }
                Entry::None => return None,
                Entry::Malformed => panic!("malformed"),
            }
        }
    }

    proptest! {
        /// Devices find what was mapped, and it goes as it came.
        #[test]
        fn devices_find_what_is_mapped(
            kind in prop::sample::select(vec![
                Kind::Second(3), Kind::Second(4), Kind::First(4), Kind::Host(3), Kind::Host(5),
            ]),
            pieces in
                prop::collection::vec((0u64..8, 0u64..4, any::<bool>(), any::<bool>()), 1..12),
            probe in 0u64..8 << 21,
        ) {
            let mut model = Model::default();
            let tables = CellTables::new(&mut model, kind, DomainId(7)).expect("memory");
            let mut expected = BTreeMap::new();
            for (number, (block, page, large, write)) in pieces.into_iter().enumerate() {
                let order = if large { 21 } else { 12 };
                let input = if large { block << 21 } else { block << 21 | page << 12 };
                let rights = Rights { read: true, write };
                let address = PhysAddr::new((number as u64 + 1) << 21);
                let access = Access { rights, caching: 0 };
                if tables.map(&mut model, input, Piece { address, order, access }) {
                    let clash = expected.insert(input, (address.get(), order, rights));
                    prop_assert!(clash.is_none());
                }
            }
            let last = expected.range(..=probe).next_back();
            let found = last.filter(|(input, (_, order, _))| probe < *input + (1u64 << order));
            let wanted =
                found.map(|(input, (address, _, rights))| (address + probe - input, *rights));
            prop_assert_eq!(find(&model, &tables, probe), wanted);
            tables.free(&mut model);
            prop_assert!(model.is_left_alone());
        }
    }

    #[test]
    fn without_memory_nothing_is_mapped() {
        let mut model = Model::default();
        model.limit = Some(2);
        let tables = CellTables::new(&mut model, Kind::Second(4), DomainId(7)).expect("memory");
        let access = Access::FULL;
        let piece = Piece { address: PhysAddr::new(0x1000), order: 12, access };
        assert!(!tables.map(&mut model, 0, piece));
        assert_eq!(find(&model, &tables, 0), None);
        tables.free(&mut model);
        assert!(model.is_left_alone());
    }
}
