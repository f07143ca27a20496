// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of programs.

use crate::PAGE_SIZE;
use crate::channel::{USER_END, USER_START};
use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A virtual address of a program, the same in the realm and in the shadow. It is an allegation: it
/// may be any number.
///
/// Lengths, offsets in files and physical addresses are other types. Arithmetic is that of `u64`:
/// where the sum may lie beyond its end, [`UserAddr::checked_add`] or [`UserAddr::wrapping_add`]
/// says what happens then.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct UserAddr(u64);

impl UserAddr {
    /// Address 0, where no program has anything: "none" in most system calls.
    pub const NULL: Self = Self(0);
    /// The lowest address of a program.
    pub const START: Self = Self(USER_START);
    /// One past the highest address of a program.
    pub const END: Self = Self(USER_END);

    /// Takes a word of a program or of the ABI for an address.
    #[inline(always)]
    pub const fn new(word: u64) -> Self {
        Self(word)
    }

    /// Returns the word that programs and the ABI have for it.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Says whether it is [`UserAddr::NULL`].
    #[inline(always)]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the address `bytes` further on; `None` if there is none.
    #[inline(always)]
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(address) => Some(Self(address)),
            None => None,
        }
    }

    /// Returns the address `bytes` before; `None` if there is none.
    #[inline(always)]
    pub const fn checked_sub(self, bytes: u64) -> Option<Self> {
        match self.0.checked_sub(bytes) {
            Some(address) => Some(Self(address)),
            None => None,
        }
    }

    /// Returns the address `bytes` further on, counted from 0 again behind the last one.
    #[inline(always)]
    pub const fn wrapping_add(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Returns the address `bytes` further on, or the last one if there is none.
    #[inline(always)]
    pub const fn saturating_add(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }

    /// Says whether it is a multiple of `size`, a power of two.
    #[inline(always)]
    pub const fn is_aligned(self, size: u64) -> bool {
        self.0 & (size - 1) == 0
    }

    /// Returns the start of the aligned piece of `size` bytes, a power of two, that it lies in.
    #[inline(always)]
    pub const fn align_down(self, size: u64) -> Self {
        Self(self.0 & !(size - 1))
    }

    /// Returns the bytes from the start of that piece.
    #[inline(always)]
    pub const fn offset_in(self, size: u64) -> u64 {
        self.0 & (size - 1)
    }

    /// Says whether a page starts there.
    #[inline(always)]
    pub const fn is_page_aligned(self) -> bool {
        self.is_aligned(PAGE_SIZE)
    }

    /// Returns the start of the page that it lies in.
    #[inline(always)]
    pub const fn page_down(self) -> Self {
        self.align_down(PAGE_SIZE)
    }

    /// Returns the start of the first page that does not begin before it; `None` if there is none.
    #[inline(always)]
    pub const fn page_up(self) -> Option<Self> {
        match self.checked_add(PAGE_SIZE - 1) {
            Some(address) => Some(address.page_down()),
            None => None,
        }
    }

    /// Returns the bytes from the start of its page.
    #[inline(always)]
    pub const fn page_offset(self) -> u64 {
        self.offset_in(PAGE_SIZE)
    }
}

impl Add<u64> for UserAddr {
    type Output = Self;

    #[inline(always)]
    fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl AddAssign<u64> for UserAddr {
    #[inline(always)]
    fn add_assign(&mut self, bytes: u64) {
        self.0 += bytes;
    }
}

impl Sub<u64> for UserAddr {
    type Output = Self;

    #[inline(always)]
    fn sub(self, bytes: u64) -> Self {
        Self(self.0 - bytes)
    }
}

impl Sub for UserAddr {
    type Output = u64;

    /// Returns the bytes from `other` to this address, which is not below it.
    #[inline(always)]
    fn sub(self, other: Self) -> u64 {
        self.0 - other.0
    }
}

impl fmt::Debug for UserAddr {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{:#x}", self.0)
    }
}

impl fmt::LowerHex for UserAddr {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_round_and_end_where_addresses_end() {
        let inside = UserAddr::new(0x1234_5678);
        assert_eq!(inside.page_down(), UserAddr::new(0x1234_5000));
        assert_eq!(inside.page_up(), Some(UserAddr::new(0x1234_6000)));
        assert_eq!(inside.page_offset(), 0x678);
        assert!(!inside.is_page_aligned() && inside.page_down().is_page_aligned());
        assert_eq!(inside.page_down().page_up(), Some(inside.page_down()));
        let last = UserAddr::new(u64::MAX);
        assert_eq!((last.page_up(), last.checked_add(1)), (None, None));
        assert_eq!((last.wrapping_add(1), last.saturating_add(1)), (UserAddr::NULL, last));
        assert_eq!(UserAddr::NULL.checked_sub(1), None);
    }

    #[test]
    fn addresses_are_shown_as_hexadecimal() {
        let address = UserAddr::new(0x7f00_1000);
        assert_eq!(
            std::format!("{address:?} {address:x} {address:#x}"),
            "0x7f001000 7f001000 0x7f001000"
        );
    }
}
