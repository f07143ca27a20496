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
        ((id ^ self.id) & self.narrow_mask() == 0) != (self.id & INVERTED != 0)
    }

    /// The bits that count, of a frame that is none of an error.
    fn narrow_mask(self) -> u32 {
        let is_standard = self.mask & EXTENDED != 0 && self.id & EXTENDED == 0;
        if is_standard { self.mask & (!EXTENDED_MASK | STANDARD_MASK) } else { self.mask }
    }
}

/// Filters as a program gives them, and as frames are compared with them: some instructions each,
/// since interrupts do that.
#[derive(Clone, Debug)]
pub struct List {
    given: Vec<Filter>,
    /// Those that are not for errors, with the bits that count; inverted ones are the last.
    compared: Vec<Filter>,
    /// How many of them are not inverted.
    plain: usize,
}

impl List {
    /// These filters.
    pub fn new(given: Vec<Filter>) -> Self {
        let of_kind = |inverted: bool| {
            let wanted = move |filter: &&Filter| {
                filter.mask & ERROR == 0 && (filter.id & INVERTED != 0) == inverted
            };
            given.iter().filter(wanted)
        };
        let (plain, inverted) = (of_kind(false), of_kind(true));
        let count = plain.clone().count();
        let narrowed = |filter: &Filter| Filter { mask: filter.narrow_mask(), ..*filter };
        let compared = plain.chain(inverted).map(narrowed).collect();
        Self { given, compared, plain: count }
    }

    /// As they were given.
    pub fn given(&self) -> &[Filter] {
        &self.given
    }

    /// Whether a frame with that identifier, which is none of an error, passes one of them, or all.
    fn pass(&self, id: u32, are_joined: bool) -> bool {
        let (plain, inverted) = self.compared.split_at(self.plain);
        let matches = |filter: &Filter| (id ^ filter.id) & filter.mask == 0;
        if are_joined {
            let are_all = !self.given.is_empty() && self.compared.len() == self.given.len();
            return are_all && plain.iter().all(matches) && !inverted.iter().any(matches);
        }
        plain.iter().any(matches) || !inverted.iter().all(matches)
    }
}

/// The filters of a socket.
#[derive(Clone, Debug)]
pub struct Filters {
    /// A frame passes if one of them lets it.
    pub all: List,
    /// It passes only if all of them do.
    pub are_joined: bool,
    /// The kinds of errors of which the socket is told.
    pub errors: u32,
}

impl Default for Filters {
    /// Every frame, and no error.
    fn default() -> Self {
        Self { all: List::new(Vec::from([Filter::default()])), are_joined: false, errors: 0 }
    }
}

impl Filters {
    /// Whether the socket wants the frame. In the time that [`MAX_FILTERS`] comparisons take.
    pub fn want(&self, frame: &Frame) -> bool {
        let id = frame.id();
        if id & ERROR == 0 {
            return self.all.pass(id, self.are_joined);
        }
        self.want_by_each(id)
    }

    /// The same, by the rule of each filter.
    fn want_by_each(&self, id: u32) -> bool {
        let given = self.all.given();
        let of_error = Filter { id: 0, mask: ERROR | self.errors };
        let passed = given.iter().chain([&of_error]).filter(|filter| filter.passes(id));
        let needed = if self.are_joined { given.len().max(1) } else { 1 };
        passed.take(needed).count() == needed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filters(all: &[(u32, u32)], are_joined: bool) -> Filters {
        let all = all.iter().map(|&(id, mask)| Filter { id, mask }).collect();
        Filters { all: List::new(all), are_joined, errors: 0 }
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
        some.all = List::new(Vec::new());
        assert!(some.want(&off));
        // A filter whose mask has their flag is one of them.
        let mask = ERROR | crate::frame::error::BUS_OFF;
        let only = filters(&[(0, mask)], false);
        assert!(only.want(&off) && !wants(&only, 0));
    }

    proptest! {
        #[test]
        fn frames_are_compared_by_the_rule_of_each_filter(
            all in prop::collection::vec(
                (prop::bits::u32::masked(0xe000_0103), prop::bits::u32::masked(0xe000_0103)),
                0..5,
            ),
            are_joined: bool,
            id in prop::bits::u32::masked(0xc000_0103),
        ) {
            let some = filters(&all, are_joined);
            prop_assert_eq!(some.all.pass(id, are_joined), some.want_by_each(id));
        }

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
