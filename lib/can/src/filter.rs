// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which frames a socket wants: CAN_RAW_FILTER, CAN_RAW_ERR_FILTER, CAN_RAW_JOIN_FILTERS.

use alloc::vec::Vec;

use crate::{
    Frame,
    frame::{ERROR, EXTENDED, EXTENDED_MASK, STANDARD_MASK},
};

/// Most filters of a socket (CAN_RAW_FILTER_MAX).
pub const MAX_FILTERS: usize = 512;

/// In the identifier of a filter: all frames pass but those that match (CAN_INV_FILTER).
const INVERTED: u32 = 1 << 29;

/// `struct can_filter`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// The identifier, with flags.
    pub id: u32,
    /// The bits of it that count.
    pub mask: u32,
}

impl Filter {
    /// Bytes of a `struct can_filter`.
    pub const SIZE: usize = 8;

    /// What a program hands over.
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self { id: u32::from_ne_bytes([a, b, c, d]), mask: u32::from_ne_bytes([e, f, g, h]) }
    }

    /// As a program gets it.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&self.id.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.mask.to_ne_bytes());
        bytes
    }

    /// Whether a frame with that identifier passes. A filter whose mask has the flag of errors is
    /// one for these alone. Of an identifier of 11 bits, no others count where the filter says
    /// which of the two it means.
    fn passes(self, id: u32) -> bool {
        if (self.mask | id) & ERROR != 0 {
            return self.mask & id & ERROR != 0 && self.mask & id & EXTENDED_MASK != 0;
        }
        let mut mask = self.mask;
        if mask & EXTENDED != 0 && self.id & EXTENDED == 0 {
            mask &= !EXTENDED_MASK | STANDARD_MASK;
        }
        ((id ^ self.id) & mask == 0) != (self.id & INVERTED != 0)
    }
}

/// The filters of a socket.
#[derive(Clone, Debug)]
pub struct Filters {
    /// A frame passes if one of them lets it.
    pub all: Vec<Filter>,
    /// It passes only if all of them do.
    pub are_joined: bool,
    /// The kinds of errors of which the socket is told.
    pub errors: u32,
}

impl Default for Filters {
    /// Every frame, and no error.
    fn default() -> Self {
        Self { all: Vec::from([Filter::default()]), are_joined: false, errors: 0 }
    }
}

impl Filters {
    /// Whether the socket wants the frame. In the time that [`MAX_FILTERS`] comparisons take.
    pub fn want(&self, frame: &Frame) -> bool {
        let id = frame.id();
        let of_error = Filter { id: 0, mask: ERROR | self.errors };
        let passed = self.all.iter().chain([&of_error]).filter(|filter| filter.passes(id));
        let needed = if self.are_joined { self.all.len().max(1) } else { 1 };
        passed.take(needed).count() == needed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filters(all: &[(u32, u32)], are_joined: bool) -> Filters {
        let all = all.iter().map(|&(id, mask)| Filter { id, mask }).collect();
        Filters { all, are_joined, errors: 0 }
    }

    fn wants(filters: &Filters, id: u32) -> bool {
        filters.want(&Frame::new(id, &[]).unwrap())
    }

    #[test]
    fn one_of_several_is_enough() {
        let some = filters(&[(0x100, 0x7ff), (0x200, 0x700)], false);
        for (id, wanted) in [(0x100, true), (0x101, false), (0x2ab, true), (0x300, false)] {
            assert_eq!(wants(&some, id), wanted, "{id:x}");
        }
        assert!(!wants(&filters(&[], false), 0x100));
    }

    #[test]
    fn joined_ones_all_have_to_match() {
        let joined = filters(&[(0x100, 0x700), (0x111 | INVERTED, 0x7ff)], true);
        for (id, wanted) in [(0x100, true), (0x111, false), (0x211, false)] {
            assert_eq!(wants(&joined, id), wanted, "{id:x}");
        }
    }

    #[test]
    fn inverted_ones_let_the_others_pass() {
        let inverted = filters(&[(0x123 | INVERTED, 0x7ff)], false);
        assert!(!wants(&inverted, 0x123));
        assert!(wants(&inverted, 0x124));
    }

    #[test]
    fn flags_of_the_identifier_count() {
        let standard = filters(&[(0x123, 0x7ff | EXTENDED | crate::frame::REMOTE)], false);
        assert!(wants(&standard, 0x123));
        assert!(!wants(&standard, 0x123 | EXTENDED));
        assert!(!wants(&standard, 0x123 | crate::frame::REMOTE));
        // The upper bits of an identifier that has 11.
        let wide = filters(&[(0x123, EXTENDED_MASK | EXTENDED)], false);
        assert!(wants(&wide, 0x123));
    }

    #[test]
    fn errors_pass_by_a_filter_of_their_own() {
        let mut some = filters(&[(0, 0)], false);
        let off = Frame::error(crate::frame::error::BUS_OFF, [0; 8]);
        assert!(!some.want(&off));
        some.errors = crate::frame::error::BUS_OFF;
        assert!(some.want(&off));
        assert!(!some.want(&Frame::error(crate::frame::error::CONTROLLER, [0; 8])));
        some.all.clear();
        assert!(some.want(&off));
        // A filter whose mask has their flag is one of them.
        let mask = ERROR | crate::frame::error::BUS_OFF;
        let only = filters(&[(0, mask)], false);
        assert!(only.want(&off) && !wants(&only, 0));
    }

    proptest! {
        #[test]
        fn as_bytes_it_stays_what_it_is(id: u32, mask: u32) {
            let filter = Filter { id, mask };
            prop_assert_eq!(Filter::from_bytes(filter.to_bytes()), filter);
        }

        #[test]
        fn an_inverted_filter_is_the_opposite(
            id in 0..1u32 << 29,
            mask: u32,
            other in 0..1u32 << 29,
        ) {
            let plain = filters(&[(id, mask & !INVERTED)], false);
            let inverted = filters(&[(id | INVERTED, mask & !INVERTED)], false);
            prop_assert_ne!(wants(&plain, other), wants(&inverted, other));
        }
    }
}
