// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers in digits.

use core::ffi::CStr;

/// Most digits of a number.
const DIGITS: usize = 10;

/// A number in digits.
pub struct Decimal {
    /// The digits at the end, before a zero.
    text: [u8; DIGITS + 1],
    /// Where they begin.
    start: usize,
}

impl Decimal {
    /// Writes a number.
    pub fn new(mut number: u32) -> Self {
        let mut text = [0; DIGITS + 1];
        let mut start = DIGITS;
        loop {
            start -= 1;
            text[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Self { text, start };
            }
        }
    }

    /// Returns the digits.
    pub fn digits(&self) -> &[u8] {
        &self.text[self.start..DIGITS]
    }

    /// Returns the digits with a zero behind them.
    pub fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text[self.start..]).unwrap_or_default()
    }
}

/// Reads the number of a descriptor; `None` if the text is none.
pub fn parse(text: &CStr) -> Option<i32> {
    text.to_str().ok()?.parse().ok().filter(|&number| number >= 0)
}
