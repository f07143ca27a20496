// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `crtos run` chooses for a program, and so for those that this executes: the first word of a
//! shadow's command line says it.

use core::ffi::CStr;

/// What becomes of something that has no worst case, if a real-time thread does it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strict {
    /// It is done.
    #[default]
    No = 0,
    /// It is done, and gives the thread a signal.
    Signal = 1,
    /// A call that Linux would make fails; the rest as with `Signal`.
    Error = 2,
}

impl Strict {
    /// Reads a word; `None` if it is none.
    pub const fn from_word(word: u64) -> Option<Self> {
        match word {
            0 => Some(Self::No),
            1 => Some(Self::Signal),
            2 => Some(Self::Error),
            _ => None,
        }
    }
}

/// What was chosen for a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// It knows the realm's CPUs by numbers of their own.
    pub renumbers: bool,
    /// What becomes of what its real-time threads do that has no worst case.
    pub strict: Strict,
    /// A socket that it binds to no address (0.0.0.0 or ::) is the realm's.
    pub wildcard: bool,
}

/// The bit of a word that is [`Choices::wildcard`].
const WILDCARD: u64 = 1 << 3;

/// The names, by the bits below [`WILDCARD`]: without that, and with it.
const NAMES: [[&CStr; 6]; 2] = [
    [
        c"shadow",
        c"shadow-renumbering",
        c"shadow-strict",
        c"shadow-renumbering-strict",
        c"shadow-strict-error",
        c"shadow-renumbering-strict-error",
    ],
    [
        c"shadow-wildcard",
        c"shadow-renumbering-wildcard",
        c"shadow-strict-wildcard",
        c"shadow-renumbering-strict-wildcard",
        c"shadow-strict-error-wildcard",
        c"shadow-renumbering-strict-error-wildcard",
    ],
];

impl Choices {
    /// Bytes of the longest name, with its zero.
    pub const LONGEST_NAME: usize = 48;

    /// Returns the first word of the shadow's command line.
    pub fn name(self) -> &'static CStr {
        NAMES[usize::from(self.wildcard)][(self.to_word() % WILDCARD) as usize]
    }

    /// Returns what a first word says; nothing was chosen if it is none of these.
    pub fn from_name(name: &CStr) -> Self {
        (0..2 * WILDCARD)
            .map(Self::from_word)
            .find(|choices| choices.name() == name)
            .unwrap_or_default()
    }

    /// Returns what holds if both were chosen.
    pub fn and(self, other: Self) -> Self {
        Self {
            renumbers: self.renumbers || other.renumbers,
            strict: if self.strict > other.strict { self.strict } else { other.strict },
            wildcard: self.wildcard || other.wildcard,
        }
    }

    /// Returns it as a word.
    pub const fn to_word(self) -> u64 {
        self.renumbers as u64 | (self.strict as u64) << 1 | (self.wildcard as u64) << 3
    }

    /// Reads a word.
    pub const fn from_word(word: u64) -> Self {
        let strict = match Strict::from_word((word % WILDCARD) >> 1) {
            Some(strict) => strict,
            None => Strict::No,
        };
        Self { renumbers: word & 1 != 0, strict, wildcard: word & WILDCARD != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_words_say_what_was_chosen() {
        let stricts = [Strict::No, Strict::Signal, Strict::Error];
        let both = [false, true];
        for (renumbers, strict, wildcard) in both.into_iter().flat_map(|one| {
            stricts.into_iter().flat_map(move |two| both.map(|three| (one, two, three)))
        }) {
            let choices = Choices { renumbers, strict, wildcard };
            assert_eq!(Choices::from_name(choices.name()), choices);
            assert_eq!(Choices::from_word(choices.to_word()), choices);
            assert!(choices.name().to_bytes_with_nul().len() <= Choices::LONGEST_NAME);
            assert_eq!(choices.and(Choices::default()), choices);
            assert_eq!(
                choices.and(Choices { strict: Strict::Error, ..choices }).strict,
                Strict::Error
            );
        }
        assert_eq!(Choices::from_name(c"sh"), Choices::default());
    }
}
