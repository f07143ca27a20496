// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel in ordinary memory, of which Linux can write any word. The only module with unsafe
//! code.
#![allow(unsafe_code)]

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use crtos_abi::channel as raw;
use crtos_channel::Channel;
use crtos_vdso::{Clock, Reading};

/// The memory of a channel; zeros at first.
pub struct Memory(NonNull<raw::Channel>);

impl Memory {
    /// Allocates it.
    pub fn new() -> Self {
        let layout = Layout::new::<raw::Channel>();
        // SAFETY: the layout has a size. Zeros are valid, since all fields are integers.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base.cast()) else { handle_alloc_error(layout) };
        Self(base)
    }

    /// The kernel's view, to be used for as long as the memory lives.
    pub fn channel(&self) -> Channel {
        // SAFETY: whoever made the memory keeps both, and all accesses are atomic.
        unsafe { Channel::new(self.0) }
    }

    /// Reads a clock from the time page, when the time stamp counter is `tsc`.
    pub fn read_clock(&self, clock: Clock, tsc: u64) -> Reading {
        // SAFETY: the page lies in the channel, which is allocated.
        unsafe { crtos_vdso::read(&raw const (*self.0.as_ptr()).time, clock, || tsc) }
    }

    /// Half a word, as the kernel sees it. `offset` is in bytes, a multiple of 4.
    fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < size_of::<raw::Channel>());
        // SAFETY: the half lies in the channel, and is aligned.
        unsafe { AtomicU32::from_ptr(self.0.as_ptr().byte_add(offset).cast()) }
    }

    /// Loads half a word.
    pub fn load(&self, offset: usize) -> u32 {
        self.half(offset).load(Ordering::SeqCst)
    }

    /// Loads a word, one half after the other.
    pub fn load64(&self, offset: usize) -> u64 {
        u64::from(self.load(offset)) | u64::from(self.load(offset + 4)) << 32
    }

    /// Stores half a word.
    pub fn store(&self, offset: usize, value: u32) {
        self.half(offset).store(value, Ordering::SeqCst);
    }

    /// Stores a word, one half after the other.
    pub fn store64(&self, offset: usize, value: u64) {
        self.store(offset, value as u32);
        self.store(offset + 4, (value >> 32) as u32);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` has allocated it with this layout.
        unsafe { dealloc(self.0.as_ptr().cast(), Layout::new::<raw::Channel>()) }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}
