// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links below `/proc/self` to files that this process has open.

use core::ffi::CStr;

use crate::{
    decimal::Decimal,
    sys::file::{self, Path},
};

const FOLDER: &[u8] = b"/proc/self/fd/";
const MOST_DIGITS: usize = 10;

/// The name `/proc/self/fd/N`.
pub struct Link([u8; FOLDER.len() + MOST_DIGITS + 1]);

impl Link {
    /// Returns the link to the file of descriptor `fd`.
    pub fn to(fd: i32) -> Self {
        let mut text = [0; FOLDER.len() + MOST_DIGITS + 1];
        let number = Decimal::new(fd as u32);
        let (folder, rest) = text.split_at_mut(FOLDER.len());
        folder.copy_from_slice(FOLDER);
        for (to, from) in rest.iter_mut().zip(number.digits()) {
            *to = *from;
        }
        Self(text)
    }

    /// Returns the name.
    pub fn name(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }

    /// Returns the address of the name, as an argument of a system call that reads it.
    pub fn argument(&self) -> u64 {
        Path::Own(self.name()).argument()
    }
}

/// Reads the path of the file of descriptor `fd`, as far as there is room.
pub fn path_of(fd: i32, room: &mut [u8]) -> &[u8] {
    let length = file::read_link(Link::to(fd).name(), room).unwrap_or(0);
    room.get(..length).unwrap_or_default()
}
