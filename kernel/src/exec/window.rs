// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window: memory of the program that Linux reads files into, and from where they are copied. So Linux is given the pages of the window
//! alone, of which it asks for each once, and no page of the copy has to be taken back from it.

use linux_raw_sys::general as linux;

use crate::{
    mm::space::{AddressSpace, Map, MapError, Placement, Protection},
    syscall::{self, Errno},
};

/// A range of the address space that Linux reads files into.
pub struct Window<'a> {
    space: &'a AddressSpace,
    /// Its address.
    pub start: u64,
    length: u64,
}

impl<'a> Window<'a> {
    /// Length of a window through which files are read: Linux asks for each of its pages, and is called for each time that it is filled.
    pub const FOR_FILES: u64 = 64 * 1024;

    /// Maps a window of `length` bytes.
    pub fn open(space: &'a AddressSpace, length: u64) -> Result<Self, MapError> {
        let protection = Protection::READ | Protection::WRITE;
        let placement = Placement::Anywhere { hint: 0 };
        let start = space.map(Map::private(placement, length, protection))?;
        Ok(Self { space, start, length })
    }

    /// Reads up to `length` bytes at `offset` of descriptor `fd` into the window; returns how many there were.
    pub fn fill(&self, fd: u64, offset: u64, length: u64) -> Result<u64, Errno> {
        let length = length.min(self.length);
        let mut done = 0;
        while done < length {
            let args = [fd, self.start + done, length - done, offset + done];
            match syscall::linux(linux::__NR_pread64, &args) {
                Ok(0) => break,
                Ok(count) => done += count.min(length - done),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let _ = self.space.unmap(self.start, self.length);
    }
}
