// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the threads that a thread starts inherit of its shadow thread: user ids, capabilities, nice
//! value and all else that Linux copies when a thread is made.

/// A number that two shadow threads of a process share only if what would be inherited of them is
/// the same. The kernel chooses it, and has it handed on to the threads that a shadow thread makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heritage(u32);

impl Heritage {
    /// What the first thread of a process has, until that changes.
    pub const FIRST: Self = Self(0);

    /// Stands for what nobody else has.
    const UNIQUE: u32 = u32::MAX;

    /// Returns the heritage of that number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns its number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the next number, which no thread of the process ever had. When there are no further
    /// ones, the result is shared with nobody.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Says whether a shadow thread with this heritage will do for a thread that inherits `other`.
    #[inline]
    pub fn serves(self, other: Self) -> bool {
        self == other && self.0 != Self::UNIQUE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_run_out_without_harm() {
        let last = Heritage::new(u32::MAX - 1);
        assert!(last.serves(last) && !last.serves(last.next()));
        assert!(!last.next().serves(last.next()));
        assert_eq!(last.next().next(), last.next());
        assert!(!Heritage::FIRST.serves(Heritage::FIRST.next()));
    }
}
