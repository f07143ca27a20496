// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers near the bounds at which code goes wrong. Of the words that are as likely as each other
//! almost none are.

use bolero::TypeGenerator;
use crtos_abi::PAGE_SIZE;
use crtos_abi::channel::USER_END;

/// A value that is there once in sixteen times: what makes most inputs be refused at once.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub struct Rare<T> {
    chance: u8,
    value: T,
}

impl<T> Rare<T> {
    /// The value, if it is there.
    pub fn get(self) -> Option<T> {
        (self.chance < 16).then_some(self.value)
    }
}

/// A number of up to 16 bits, of which small ones are as likely as large ones.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub struct Few(u16);

impl Few {
    /// The value.
    pub fn value(self) -> u64 {
        u64::from(self.0 >> (self.0 % 16))
    }
}

/// A word, as an address, a length or an offset.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub enum Word {
    /// A small number.
    Small(u8),
    /// A number of pages.
    Pages(u8),
    /// A number of pages, and some bytes.
    Within(u8, u16),
    /// Some bytes below the end of the programs' addresses, or above it.
    AroundUserEnd(i16),
    /// Some bytes below the largest word.
    NearMaximum(u16),
    /// Any word.
    Any(u64),
}

impl Word {
    /// The value.
    pub fn value(self) -> u64 {
        match self {
            Self::Small(number) => number.into(),
            Self::Pages(pages) => u64::from(pages) * PAGE_SIZE,
            Self::Within(pages, bytes) => u64::from(pages) * PAGE_SIZE + u64::from(bytes),
            Self::AroundUserEnd(bytes) => USER_END.wrapping_add_signed(bytes.into()),
            Self::NearMaximum(bytes) => u64::MAX - u64::from(bytes),
            Self::Any(word) => word,
        }
    }
}
