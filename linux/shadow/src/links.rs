// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links below `/proc/self` to files that this process has open.

use core::ffi::CStr;

use crtos_abi::UserAddr;

use crate::{
    decimal::Decimal,
    program::Memory,
    sys::{
        file::{self, Path},
        process,
    },
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

/// Tells whether the name at `path` is `/proc/self/exe`, or `/proc/PID/exe` of this process.
pub fn is_own_executable(path: UserAddr) -> bool {
    let Some(name) = behind(path, b"/proc/") else { return false };
    let own = || Decimal::new(process::pid().get());
    let rest = behind(name, b"self").or_else(|| behind(name, own().digits()));
    rest.is_some_and(|rest| behind(rest, b"/exe\0").is_some())
}

/// Returns what is behind `text`, of at most [`MOST_DIGITS`], if that is at `at`.
fn behind(at: UserAddr, text: &[u8]) -> Option<UserAddr> {
    let mut room = [0; MOST_DIGITS];
    let there = room.get_mut(..text.len())?;
    at.read(there).ok()?;
    (there == text).then(|| at.wrapping_add(text.len() as u64))
}
