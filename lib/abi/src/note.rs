// SPDX-License-Identifier: MIT OR Apache-2.0
//! A note in the section `.note.crtos` of an ELF file: the version of the interface that the
//! program speaks.

use crate::ABI_VERSION;

/// The note, as the ELF specification lays it out.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// Bytes of the name with its zero.
    pub name_size: u32,
    /// Bytes of the description, which is `abi_version`.
    pub description_size: u32,
    /// Type of the note, always 1.
    pub kind: u32,
    /// "crtos", padded with zeros.
    pub name: [u8; 8],
    /// [`crate::ABI_VERSION`] that the program was built with.
    pub abi_version: u32,
}

impl Note {
    /// The note of a program that is built with this crate.
    pub const fn new() -> Self {
        Self {
            name_size: 6,
            description_size: 4,
            kind: 1,
            name: *b"crtos\0\0\0",
            abi_version: ABI_VERSION,
        }
    }
}

impl Default for Note {
    fn default() -> Self {
        Self::new()
    }
}
