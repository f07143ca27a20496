// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the program.
//!
//! The shadow has the memory of the program at the program's addresses, so that Linux finds what
//! the arguments of system calls point to. So Linux reads, writes, maps and unmaps memory of this
//! process at addresses that come from a program.
//!
//! # Why that is sound
//!
//! - Everything that the shadow's own code uses lies from [`SHADOW_START`] to [`SHADOW_END`]: its
//!   image, its stacks, the memory that it maps. The range contains nothing of the program but
//!   mirrors, which have a part of it to themselves.
//! - No reference of the shadow's code leads out of that range once the process has entered the
//!   realm. The shadow reaches the program's memory by system calls alone. So Linux may do anything
//!   there, at any time, and other threads of the program may do so in the realm.
//! - Where the shadow's code chooses the system call, [`Memory::for_writing`] refuses addresses
//!   that are its own.
//! - Where the program chooses the system call, its arguments go to Linux as they are, because only
//!   Linux knows what each call does with each of them. A program that passes an address of the
//!   shadow's range overwrites its own shadow, just as it could overwrite its own C library. That
//!   is the program's fault, and the program's alone: the shadow has no right that the program
//!   lacks, the device checks what a shadow asks for, and nothing else trusts a shadow. Functions
//!   that hand such arguments on are `unsafe`, and pass this on to their callers.

use core::{ffi::CStr, slice};

use crtos_abi::{
    UserAddr,
    channel::{MIRRORS_END, MIRRORS_START, SHADOW_END, SHADOW_START},
    ioctl::CopyRange,
};

use crate::{device, sys::Errno};

/// What the shadow does with memory of the program at an address that the program gave. There may
/// be nothing, or memory of the shadow.
pub trait Memory {
    /// Returns the address as an argument of a system call that writes up to `length` bytes there.
    /// EFAULT if some of them are the shadow's own. Mirrors lie in the shadow's range, but hold
    /// files.
    fn for_writing(self, length: u64) -> Result<u64, Errno>;

    /// Fills `to` from here. EFAULT if not all of it is there.
    fn read(self, to: &mut [u8]) -> Result<(), Errno>;

    /// Reads a word. EFAULT if it is not there.
    fn read_word(self) -> Result<u64, Errno>;

    /// Copies the text that begins here, with the zero at its end. EFAULT if it is not there, E2BIG
    /// if there is no room for it.
    fn read_text(self, room: &mut [u8]) -> Result<&CStr, Errno>;

    /// Writes `bytes` here. EFAULT if not all of the memory is there, or if it is the shadow's own.
    fn write(self, bytes: &[u8]) -> Result<(), Errno>;

    /// Copies `length` bytes from `from` to here. EFAULT if not all of the memory is there, or if
    /// that here is the shadow's own.
    fn copy_from(self, from: Self, length: u64) -> Result<(), Errno>;
}

impl Memory for UserAddr {
    fn for_writing(self, length: u64) -> Result<u64, Errno> {
        let start = self.get();
        let end = start.checked_add(length).ok_or(Errno::EFAULT)?;
        let is_mirror = start >= MIRRORS_START && end <= MIRRORS_END;
        let is_programs = end <= SHADOW_START || start >= SHADOW_END || is_mirror;
        is_programs.then_some(start).ok_or(Errno::EFAULT)
    }

    fn read(self, to: &mut [u8]) -> Result<(), Errno> {
        let range =
            CopyRange { to: to.as_mut_ptr() as u64, from: self.get(), length: to.len() as u64 };
        // SAFETY: the device writes to the slice alone.
        unsafe { device::copy(&range) }
    }

    fn read_word(self) -> Result<u64, Errno> {
        let mut word = [0; 8];
        self.read(&mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn read_text(self, room: &mut [u8]) -> Result<&CStr, Errno> {
        for (index, byte) in room.iter_mut().enumerate() {
            // One by one: the text may end where memory ends.
            self.wrapping_add(index as u64).read(slice::from_mut(byte))?;
            if *byte == 0 {
                break;
            }
        }
        CStr::from_bytes_until_nul(room).map_err(|_| Errno::E2BIG)
    }

    fn write(self, bytes: &[u8]) -> Result<(), Errno> {
        let length = bytes.len() as u64;
        let to = self.for_writing(length)?;
        // SAFETY: the device reads the bytes, and writes to memory of the program.
        unsafe { device::copy(&CopyRange { to, from: bytes.as_ptr() as u64, length }) }
    }

    fn copy_from(self, from: Self, length: u64) -> Result<(), Errno> {
        let to = self.for_writing(length)?;
        // SAFETY: the device writes to memory of the program.
        unsafe { device::copy(&CopyRange { to, from: from.get(), length }) }
    }
}
