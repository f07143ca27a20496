// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that PCI functions reach: that of programs, and some of the kernel's.
//!
//! A [`Mapping`] has the pages pinned, and they are given back only when the hypervisor has said of
//! every function that it reaches them no more. So no function ever reaches memory that is somebody
//! else's by then, whatever a program does or how it ends. The same holds for [`OwnMemory`], which
//! a driver of the kernel's shares with its function: one block that holds nothing else.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crtos_abi::device::{MAPPED_READ, MAPPED_WRITE, MAX_MAPPED_PAGES};
use crtos_abi::hypercall::{HC_DEVICE_MAP, HC_DEVICE_UNMAP, HV_BUSY, HV_INVALID, HV_NO_MEMORY};
use crtos_vm::{FRAME_SIZE, Frame, FrameSize};

use crate::arch::hypercall::call_device;
use crate::mm::space::Pinned;
use crate::mm::{frames, layout, space::copy::copy};
use crate::time::Nanos;
use crate::warn;

/// Why a function does not find memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The tables are full.
    NoMemory,
    /// The realm does not have the function any more, or the IOMMU does not react.
    Gone,
}

/// Pages that functions find at an address of their own.
pub struct Mapping {
    /// The first address.
    input: u64,
    /// `None` if it is lost.
    pinned: Option<Pinned>,
    /// `MAPPED_*`.
    rights: u64,
    functions: Vec<u16>,
}

impl Mapping {
    /// No function finds them so far. They may read, write, or both.
    pub fn new(input: u64, pinned: Pinned, read: bool, write: bool) -> Self {
        let rights = if read { MAPPED_READ } else { 0 } | if write { MAPPED_WRITE } else { 0 };
        Self { input, pinned: Some(pinned), rights, functions: Vec::new() }
    }

    /// Has a function find the pages: all of them or, if that fails, none. Asks the hypervisor;
    /// thread context; may sleep.
    pub fn attach(&mut self, function: u16) -> Result<(), Refused> {
        let Some(pinned) = &self.pinned else { return Err(Refused::Gone) };
        if self.functions.try_reserve(1).is_err() {
            return Err(Refused::NoMemory);
        }
        self.functions.push(function);
        let refused = pinned.pieces(MAX_MAPPED_PAGES).find_map(|(page, frame, pages)| {
            let input = self.input + page * FRAME_SIZE;
            let arguments = [function.into(), input, frame.0 | self.rights, pages];
            Some(call(HC_DEVICE_MAP, arguments)).filter(|&result| result != 0)
        });
        let Some(refused) = refused else { return Ok(()) };
        self.detach(function);
        Err(if refused == HV_NO_MEMORY { Refused::NoMemory } else { Refused::Gone })
    }

    /// Has a function find them no more. Asks the hypervisor; thread context; may sleep.
    pub fn detach(&mut self, function: u16) {
        let Some(place) = self.functions.iter().position(|&other| other == function) else {
            return;
        };
        self.functions.swap_remove(place);
        let pages = self.pinned.as_ref().map_or(0, Pinned::pages);
        for page in (0..pages).step_by(MAX_MAPPED_PAGES as usize) {
            let input = self.input + page * FRAME_SIZE;
            let count = MAX_MAPPED_PAGES.min(pages - page);
            // A function that is gone reaches nothing.
            if !matches!(call(HC_DEVICE_UNMAP, [function.into(), input, count, 0]), 0 | HV_INVALID)
            {
                warn!("the IOMMU does not react: {} pages are lost", pages);
                if let Some(pinned) = self.pinned.take() {
                    pinned.lose();
                }
                return;
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        while let Some(&function) = self.functions.last() {
            self.detach(function);
        }
    }
}

/// A block of the kernel's memory that one function reaches as well, and that holds nothing but
/// what both exchange. It is given back when the hypervisor has said that the function reaches it
/// no more.
pub struct OwnMemory {
    function: u16,
    block: Frame,
    /// Bytes of the block that the function finds: whole pages.
    bytes: u64,
    /// The function was told to find it no more.
    is_withdrawn: AtomicBool,
    /// The function may reach it for ever.
    is_lost: AtomicBool,
}

impl OwnMemory {
    /// Where the function finds it.
    pub const INPUT: u64 = FrameSize::Large.bytes();
    /// Most bytes.
    pub const MOST: u64 = FrameSize::Large.bytes();

    /// A cleared block of which `function` finds `bytes` from [`INPUT`](Self::INPUT) on. Asks the
    /// hypervisor; takes a quarter of a millisecond; thread context; may sleep.
    pub fn new(function: u16, bytes: u64) -> Result<Self, Refused> {
        let pages = bytes.div_ceil(FRAME_SIZE);
        if bytes > Self::MOST {
            return Err(Refused::NoMemory);
        }
        let block = frames::PRIVATE.allocate(FrameSize::Large).ok_or(Refused::NoMemory)?;
        frames::clear(block, Self::MOST);
        let (is_withdrawn, is_lost) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut memory = Self { function, block, bytes: 0, is_withdrawn, is_lost };
        for page in (0..pages).step_by(MAX_MAPPED_PAGES as usize) {
            let (offset, count) = (page * FRAME_SIZE, MAX_MAPPED_PAGES.min(pages - page));
            let place = (block.0 + offset) | MAPPED_READ | MAPPED_WRITE;
            // Of a call that is refused some pages may be there.
            memory.bytes = (page + count) * FRAME_SIZE;
            match call(HC_DEVICE_MAP, [function.into(), Self::INPUT + offset, place, count]) {
                0 => {}
                HV_NO_MEMORY => return Err(Refused::NoMemory),
                _ => return Err(Refused::Gone),
            }
        }
        Ok(memory)
    }

    /// The word of 8 bytes at a multiple of 8.
    #[inline(always)]
    fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes);
        let word = layout::direct(self.block).wrapping_add(offset as usize).cast::<u64>();
        // SAFETY: it is aligned, lies in the block, which is mapped as long as this is there, and
        // everybody reaches it by atomic accesses or copies that no reference stands for.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// Reads a word at a multiple of 8; what the function wrote before that word is there as well.
    /// Any context, as what follows.
    #[inline(always)]
    pub fn load(&self, offset: u64) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Writes a word; what was written before is there for a function that sees it.
    #[inline(always)]
    pub fn store(&self, offset: u64, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    /// Copies from there, while the function may write.
    #[inline(always)]
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        assert!(offset.saturating_add(to.len() as u64) <= self.bytes);
        // SAFETY: it lies in the block, which is mapped, and `to` is the kernel's own. The copy is
        // one of bytes that others may change.
        unsafe { copy(to.as_mut_ptr(), self.at(offset), to.len()) };
    }

    /// Copies there.
    pub fn write(&self, offset: u64, from: &[u8]) {
        assert!(offset.saturating_add(from.len() as u64) <= self.bytes);
        // SAFETY: as in `read`, the other way.
        unsafe { copy(self.at(offset), from.as_ptr(), from.len()) };
    }

    fn at(&self, offset: u64) -> *mut u8 {
        layout::direct(self.block).wrapping_add(offset as usize)
    }
}

impl OwnMemory {
    /// The function finds it no more. Asks the hypervisor; thread context; may sleep.
    pub fn withdraw(&self) {
        if self.is_withdrawn.swap(true, Ordering::AcqRel) {
            return;
        }
        let pages = self.bytes / FRAME_SIZE;
        for page in (0..pages).step_by(MAX_MAPPED_PAGES as usize) {
            let input = Self::INPUT + page * FRAME_SIZE;
            let count = MAX_MAPPED_PAGES.min(pages - page);
            let unmapped = call(HC_DEVICE_UNMAP, [self.function.into(), input, count, 0]);
            // A function that is gone reaches nothing.
            if !matches!(unmapped, 0 | HV_INVALID) {
                warn!("the IOMMU does not react: {} bytes are lost", Self::MOST);
                self.is_lost.store(true, Ordering::Release);
                return;
            }
        }
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        self.withdraw();
        if !*self.is_lost.get_mut() {
            frames::PRIVATE.free(self.block, FrameSize::Large);
        }
    }
}

/// Makes a call about devices, for some seconds while the hypervisor is busy with one of Linux.
fn call(number: u64, arguments: [u64; 4]) -> i64 {
    let result = call_device(number, arguments);
    if result != HV_BUSY {
        return result;
    }
    super::call_again(20_000, Nanos::from_micros(200), || call_device(number, arguments))
}
