// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACPI's tables of IOMMUs: where the units are, which devices each has, and which memory a device
//! must reach.
//!
//! The firmware wrote the tables, and Linux says where they lie, so nothing about their bytes is
//! taken for granted. A reader ends at the first structure that does not fit.
//!
//! | module | concept |
//! |---|---|
//! | [`dmar`] | Intel's table |
//! | [`ivrs`] | AMD's table |

use core::ops::RangeInclusive;

pub mod dmar;
pub mod ivrs;

/// Offset of a table's length in the header that all begin with (ACPI 5.2.6).
const LENGTH: usize = 4;

/// Why a table cannot be used, or the rest of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// It is another table.
    Signature,
    /// It is shorter than it says, or than it has to be.
    Truncated,
    /// The sum of its bytes is not 0.
    Checksum,
    /// The structure at this offset is longer than what holds it, or shorter than it has to be.
    Structure(usize),
}

/// Checks header and sum of a table, and returns it as long as it says that it is.
fn table<'a>(bytes: &'a [u8], signature: &[u8; 4], shortest: usize) -> Result<&'a [u8], Error> {
    if !bytes.starts_with(signature) {
        return Err(Error::Signature);
    }
    let length = Reader(bytes).u32(LENGTH).ok_or(Error::Truncated)? as usize;
    let table = bytes.get(..length).filter(|_| length >= shortest).ok_or(Error::Truncated)?;
    match table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) {
        0 => Ok(table),
        _ => Err(Error::Checksum),
    }
}

/// Numbers in bytes, least significant byte first.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..offset.checked_add(N)?)?.try_into().ok()
    }

    fn u8(&self, offset: usize) -> Option<u8> {
        self.array(offset).map(u8::from_le_bytes)
    }

    fn u16(&self, offset: usize) -> Option<u16> {
        self.array(offset).map(u16::from_le_bytes)
    }

    fn u32(&self, offset: usize) -> Option<u32> {
        self.array(offset).map(u32::from_le_bytes)
    }

    fn u64(&self, offset: usize) -> Option<u64> {
        self.array(offset).map(u64::from_le_bytes)
    }
}

/// Structures that follow each other in a table.
#[derive(Clone, Debug)]
struct Structures<'a> {
    table: &'a [u8],
    at: usize,
    /// The length of the structure at the start of the bytes, if there is one.
    length: fn(&[u8]) -> Option<usize>,
}

impl<'a> Structures<'a> {
    /// What `read` makes of the next one. After an error there is none.
    fn next<T>(&mut self, read: impl FnOnce(&'a [u8]) -> Option<T>) -> Option<Result<T, Error>> {
        let rest = self.table.get(self.at..).filter(|rest| !rest.is_empty())?;
        let length = (self.length)(rest).filter(|length| *length > 0);
        match length.and_then(|length| Some((length, read(rest.get(..length)?)?))) {
            Some((length, found)) => {
                self.at += length;
                Some(Ok(found))
            }
            None => {
                let at = core::mem::replace(&mut self.at, self.table.len());
                Some(Err(Error::Structure(at)))
            }
        }
    }
}

/// The range that begins at `first` and has `size` bytes, more than 0.
fn range(first: u64, size: u64) -> Option<RangeInclusive<u64>> {
    Some(first..=first.checked_add(size.checked_sub(1)?)?)
}
