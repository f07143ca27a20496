// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies between the kernel and a program's memory, whichever process runs; and single words,
//! atomically.
//!
//! Each piece is short and copied with the tables locked, so that the page stays where it is
//! meanwhile.

use super::fault::{lookup, lookup_any};
use super::{Access, AddressSpace, BadAddress};
use crate::arch::paging::{Scan, Steps};
use crate::mm::layout;
use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use crtos_abi::UserAddr;
use crtos_vm::{FRAME_SIZE, Flags};

/// Most bytes that a copy moves with interrupts off.
const COPY_STEP: u64 = 1024;

impl AddressSpace {
    /// Calls `f` with each piece of `start..start + length`, its address for the kernel and its
    /// offset, while the piece stays where it is. Pieces are short, do not cross pages, and `f`
    /// runs with interrupts off.
    fn for_each_piece(
        &self,
        start: UserAddr,
        length: u64,
        access: Access,
        forced: bool,
        mut f: impl FnMut(*mut u8, Range<usize>) -> bool,
    ) -> Result<(), BadAddress> {
        let end =
            start.checked_add(length).filter(|&end| end <= UserAddr::END).ok_or(BadAddress)?;
        let mut at = start;
        while at < end {
            let length = COPY_STEP.min(end - at).min(FRAME_SIZE - at.page_offset());
            let more = {
                let mut tables = self.tables.lock();
                let page =
                    if forced { lookup_any(&tables, at) } else { lookup(&tables, at, access) };
                // Linux may take a device away at any time, which ends a program, not the kernel.
                if page.is_some_and(|page| page.is_of_device) {
                    return Err(BadAddress);
                }
                page.map(|page| {
                    if access == Access::Write && !page.dirty {
                        tables.mark_dirty(at);
                    }
                    let offset = (at - start) as usize;
                    let piece = layout::direct(page.frame).wrapping_add(at.page_offset() as usize);
                    f(piece, offset..offset + length as usize)
                })
            };
            match more {
                Some(true) => at += length,
                Some(false) => return Ok(()),
                None => {
                    let access =
                        if forced { self.any_access(at).ok_or(BadAddress)? } else { access };
                    self.fault_in(at, access).map_err(|_| BadAddress)?;
                }
            }
        }
        Ok(())
    }

    /// An access that the region at `address` allows.
    fn any_access(&self, address: UserAddr) -> Option<Access> {
        let protection = self.region_at(address)?.protection();
        [Access::Read, Access::Write, Access::Execute]
            .into_iter()
            .find(|access| access.allowed_by(protection))
    }

    /// Copies from the program. May sleep; faults pages in. On failure part of `to` may be written.
    pub fn read(&self, from: UserAddr, to: &mut [u8]) -> Result<(), BadAddress> {
        self.for_each_piece(from, to.len() as u64, Access::Read, false, |piece, range| {
            // SAFETY: the piece is memory of the program of that length, and `to` is the kernel's
            // own.
            unsafe { copy(to[range.clone()].as_mut_ptr(), piece, range.len()) };
            true
        })
    }

    /// Copies from the program like [`AddressSpace::read`], whatever the rights of the region: for
    /// pages that are present.
    pub fn read_forced(&self, from: UserAddr, to: &mut [u8]) -> Result<(), BadAddress> {
        self.for_each_piece(from, to.len() as u64, Access::Read, true, |piece, range| {
            // SAFETY: `piece` is mapped and has as many bytes as `range`, which lies in `to`, the
            // kernel's own.
            unsafe { copy(to[range.clone()].as_mut_ptr(), piece, range.len()) };
            true
        })
    }

    /// The first page at or behind `from` that is present: its address and bytes.
    pub fn next_present(&self, from: UserAddr) -> Option<(UserAddr, u64)> {
        let mut at = from;
        while at < UserAddr::END {
            let scan = self.tables.lock().scan(at..UserAddr::END, &mut Steps::of_section());
            match scan {
                Scan::Page(address, entry, size) if entry.flags().contains(Flags::UNCACHED) => {
                    at = address + size.bytes();
                }
                Scan::Page(address, _, size) => return Some((address, size.bytes())),
                Scan::Continue(next) => at = next,
            }
        }
        None
    }

    /// Copies to the program. On failure a part may be written.
    pub fn write(&self, to: UserAddr, from: &[u8]) -> Result<(), BadAddress> {
        self.write_with(to, from, false)
    }

    /// Copies to the program like [`AddressSpace::write`], whatever the rights of the (accessible)
    /// region: for the loader.
    pub fn write_forced(&self, to: UserAddr, from: &[u8]) -> Result<(), BadAddress> {
        self.write_with(to, from, true)
    }

    fn write_with(&self, to: UserAddr, from: &[u8], forced: bool) -> Result<(), BadAddress> {
        self.for_each_piece(to, from.len() as u64, Access::Write, forced, |piece, range| {
            // SAFETY: the piece is memory of the program of that length, and `from` is the kernel's
            // own.
            unsafe { copy(piece, from[range.clone()].as_ptr(), range.len()) };
            true
        })
    }

    /// Copies a string up to and without its zero; returns its length. `Ok(None)` if there is no
    /// zero within `to`.
    pub fn read_cstr(&self, from: UserAddr, to: &mut [u8]) -> Result<Option<usize>, BadAddress> {
        let mut length = None;
        let limit = (to.len() as u64).min(UserAddr::END.get().saturating_sub(from.get()));
        self.for_each_piece(from, limit, Access::Read, false, |piece, range| {
            // SAFETY: `piece` is mapped and has as many bytes as `range`, which lies in `to`, the
            // kernel's own.
            unsafe { copy(to[range.clone()].as_mut_ptr(), piece, range.len()) };
            length =
                to[range.clone()].iter().position(|&byte| byte == 0).map(|at| range.start + at);
            length.is_none()
        })?;
        if length.is_none() && limit < to.len() as u64 { Err(BadAddress) } else { Ok(length) }
    }

    /// Writes `length` zeros.
    pub fn zero(&self, to: UserAddr, length: u64) -> Result<(), BadAddress> {
        const ZEROS: [u8; COPY_STEP as usize] = [0; COPY_STEP as usize];
        self.for_each_piece(to, length, Access::Write, false, |piece, range| {
            // SAFETY: the piece is memory of the program of that length.
            unsafe { copy(piece, ZEROS.as_ptr(), range.len()) };
            true
        })
    }

    /// Calls `f` with the aligned word at `address`, interrupts off.
    fn with_word<R>(
        &self,
        address: UserAddr,
        access: Access,
        mut f: impl FnMut(&AtomicU32) -> R,
    ) -> Result<R, BadAddress> {
        if !address.is_aligned(4) {
            return Err(BadAddress);
        }
        let mut result = None;
        self.for_each_piece(address, 4, access, false, |piece, _| {
            // SAFETY: four aligned bytes of memory of the program, which is accessed atomically
            // only here.
            result = Some(f(unsafe { AtomicU32::from_ptr(piece.cast()) }));
            true
        })?;
        result.ok_or(BadAddress)
    }

    /// Atomically replaces the aligned 32-bit word at `address` by `f(word)` if that gives one, and
    /// returns the word before (futexes). `f` is called with interrupts off and may be called
    /// again.
    pub fn update_u32(
        &self,
        address: UserAddr,
        mut f: impl FnMut(u32) -> Option<u32>,
    ) -> Result<u32, BadAddress> {
        self.with_word(address, Access::Write, |word| {
            match word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, &mut f) {
                Ok(before) | Err(before) => before,
            }
        })
    }

    /// Reads the aligned 32-bit word at `address` atomically.
    pub fn load_u32(&self, address: UserAddr) -> Result<u32, BadAddress> {
        self.with_word(address, Access::Read, |word| word.load(Ordering::SeqCst))
    }
}

/// Copies memory of which one side belongs to a program: other threads and Linux may write to it
/// meanwhile, so the compiler must not know what is copied.
///
/// # Safety
/// Both sides are mapped, have `length` bytes and do not overlap.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the caller says that both sides have these bytes; the direction flag is clear.
    unsafe {
        asm!("rep movsq", "mov ecx, edx", "rep movsb",
            inout("rdi") to => _, inout("rsi") from => _, inout("rcx") length / 8 => _, in("edx") length % 8,
            options(nostack, preserves_flags));
    }
}
