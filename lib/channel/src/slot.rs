// SPDX-License-Identifier: MIT OR Apache-2.0
//! The number of a slot, and its place in bitmaps of slots.

use core::fmt;

use crtos_abi::channel::{SLOT_WORDS, SLOTS};

/// A slot of the channel, by its number, which is below [`SLOTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u16);

const _: () = assert!(SLOTS.is_power_of_two() && SLOTS == SLOT_WORDS * 64 && SLOTS <= 1 << 16);

impl Slot {
    /// Returns the slot of that number, whoever names it; `None` if there is none.
    pub const fn new(number: usize) -> Option<Self> {
        if number < SLOTS { Some(Self(number as u16)) } else { None }
    }

    /// Returns the first slot among `bits`, word `word` of a bitmap of slots.
    #[inline]
    pub const fn first_in(word: usize, bits: u64) -> Option<Self> {
        if bits == 0 {
            return None;
        }
        Self::new(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Iterates over the slots among `bits`, word `word` of a bitmap of slots, lowest first.
    #[inline]
    pub fn all_in(word: usize, bits: u64) -> impl Iterator<Item = Self> {
        let mut left = bits;
        core::iter::from_fn(move || {
            let slot = Self::first_in(word, left);
            left &= left.wrapping_sub(1);
            slot
        })
    }

    /// Returns the word that names a slot where there may be none: 1 and its number, or 0.
    pub const fn to_word(slot: Option<Self>) -> u32 {
        match slot {
            Some(Self(number)) => 1 + number as u32,
            None => 0,
        }
    }

    /// Returns the slot that such a word names, if there is such a one.
    pub const fn from_word(word: u32) -> Option<Self> {
        match word {
            0 => None,
            _ => Self::new(word as usize - 1),
        }
    }

    /// Returns its number.
    #[inline]
    pub const fn get(self) -> usize {
        // It is below anyway: with the remainder, an index needs no second check.
        self.0 as usize % SLOTS
    }

    /// Returns the word of a bitmap of slots that has its bit.
    #[inline]
    pub const fn word(self) -> usize {
        self.get() / 64
    }

    /// Returns its bit in that word.
    #[inline]
    pub const fn bit(self) -> u64 {
        1 << (self.0 % 64)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_with_the_last() {
        assert_eq!(Slot::new(SLOTS - 1).map(Slot::get), Some(SLOTS - 1));
        assert_eq!(Slot::new(SLOTS), None);
        assert_eq!(Slot::first_in(SLOT_WORDS, 1), None);
    }

    #[test]
    fn a_word_names_a_slot_or_none() {
        for slot in [None, Slot::new(0), Slot::new(SLOTS - 1)] {
            assert_eq!(Slot::from_word(Slot::to_word(slot)), slot);
        }
        assert_eq!([SLOTS as u32 + 1, u32::MAX].map(Slot::from_word), [None; 2]);
    }

    #[test]
    fn finds_slots_in_a_bitmap() {
        let found =
            Slot::all_in(2, 1 << 5 | 1 << 63).map(|slot| (slot.get(), slot.word(), slot.bit()));
        assert!(found.eq([(133, 2, 1 << 5), (191, 2, 1 << 63)]));
        assert_eq!(Slot::first_in(2, 0), None);
    }
}
