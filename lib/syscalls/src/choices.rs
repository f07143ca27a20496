// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `crtos run` chooses for a program, and so for those that this executes: the first word of a
//! shadow's command line says it.

use core::ffi::CStr;

/// What was chosen for a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// It knows the realm's CPUs by numbers of their own.
    pub renumbers: bool,
    /// Its real-time threads get a signal when they do something that has no worst case.
    pub strict: bool,
}

/// The names, by their words.
const NAMES: [&CStr; 4] =
    [c"shadow", c"shadow-renumbering", c"shadow-strict", c"shadow-renumbering-strict"];

impl Choices {
    /// Bytes of the longest name, with its zero.
    pub const LONGEST_NAME: usize = 26;

    /// Returns the first word of the shadow's command line.
    pub fn name(self) -> &'static CStr {
        NAMES[self.to_word() as usize]
    }

    /// Returns what a first word says; nothing was chosen if it is none of these.
    pub fn from_name(name: &CStr) -> Self {
        let place = NAMES.iter().position(|one| *one == name);
        Self::from_word(place.unwrap_or(0) as u64)
    }

    /// Returns what holds if both were chosen.
    pub fn and(self, other: Self) -> Self {
        Self::from_word(self.to_word() | other.to_word())
    }

    /// Returns it as a word.
    pub const fn to_word(self) -> u64 {
        self.renumbers as u64 | (self.strict as u64) << 1
    }

    /// Reads a word.
    pub const fn from_word(word: u64) -> Self {
        Self { renumbers: word & 1 != 0, strict: word & 2 != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_words_say_what_was_chosen() {
        for (renumbers, strict) in [(false, false), (false, true), (true, false), (true, true)] {
            let choices = Choices { renumbers, strict };
            assert_eq!(Choices::from_name(choices.name()), choices);
            assert_eq!(Choices::from_word(choices.to_word()), choices);
            assert!(choices.name().to_bytes_with_nul().len() <= Choices::LONGEST_NAME);
            assert_eq!(choices.and(Choices::default()), choices);
        }
        assert_eq!(Choices::from_name(c"sh"), Choices::default());
    }
}
