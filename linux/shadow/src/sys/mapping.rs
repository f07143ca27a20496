// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that the shadow maps for itself.
//!
//! Memory wherever there is room lies in the shadow's range of addresses, because everything else
//! belongs to the program.

use core::{mem, ops::Deref, ptr::NonNull, slice, sync::atomic::AtomicU32};

use crtos_abi::PAGE_SIZE;
use linux_raw_sys::general as linux;

use super::{Errno, call};

/// Fresh memory of this process, aligned to a page. It holds zeros first, and is unmapped when its
/// owner is dropped.
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    /// Maps `length` bytes at `address`. EEXIST if something is there.
    pub fn at(address: u64, length: usize) -> Result<Self, Errno> {
        Self::new(address, length, linux::MAP_PRIVATE | linux::MAP_FIXED_NOREPLACE)
    }

    /// Maps `length` bytes wherever there is room.
    pub fn anywhere(length: usize) -> Result<Self, Errno> {
        Self::new(0, length, linux::MAP_PRIVATE)
    }

    fn new(address: u64, length: usize, flags: u32) -> Result<Self, Errno> {
        let protection = linux::PROT_READ | linux::PROT_WRITE;
        let flags = flags | linux::MAP_ANONYMOUS;
        let args = [address, length as u64, protection.into(), flags.into(), u64::MAX, 0];
        // SAFETY: without MAP_FIXED no mapping changes that is there.
        let start = unsafe { call(linux::__NR_mmap, args) }?;
        let start = NonNull::new(start as *mut u8).ok_or(Errno::ENOMEM)?;
        Ok(Self { start, length })
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the memory as words, without a rest that is no word.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: the mapping owns this memory, which is aligned to a page, and any bytes are
        // words.
        unsafe { slice::from_raw_parts_mut(self.start.cast().as_ptr(), self.length / 8) }
    }

    /// Gives up the ownership: the memory stays mapped for good.
    pub fn leak(self) -> &'static mut [u8] {
        let (start, length) = (self.start, self.length);
        mem::forget(self);
        // SAFETY: the mapping owned this memory, and nobody unmaps it any more.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// Makes the owner of `length` bytes at `address` anew.
    ///
    /// # Safety
    /// These are the address and the length of a mapping that was made, and whose owner neither was
    /// dropped nor will be. Nothing refers to the memory.
    pub unsafe fn take_over(address: NonNull<u8>, length: usize) -> Self {
        Self { start: address, length }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let args = [self.address(), self.length as u64];
        // SAFETY: the mapping owns the memory, so nothing refers to it any more.
        let _ = unsafe { call(linux::__NR_munmap, args) };
    }
}

/// A word in memory that this process shares with those that it forks; 0 first. Each of them
/// unmaps its own view of it.
pub struct SharedWord(Mapping);

impl SharedWord {
    /// Maps the word.
    pub fn new() -> Result<Self, Errno> {
        Mapping::new(0, PAGE_SIZE as usize, linux::MAP_SHARED).map(Self)
    }
}

impl Deref for SharedWord {
    type Target = AtomicU32;

    fn deref(&self) -> &AtomicU32 {
        // SAFETY: the mapping is aligned to a page and large enough; the word is an atomic for
        // everybody who shares it.
        unsafe { self.0.start.cast().as_ref() }
    }
}
