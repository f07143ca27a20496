// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address space of a process: its regions, page tables and pages.

use alloc::boxed::Box;
use alloc::sync::Arc;
pub use crtos_vm::{Kind, MapError, Placement, Protection};

/// A request to map memory.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// Where.
    pub placement: Placement,
    /// Bytes; rounded up to pages.
    pub length: u64,
    /// Rights.
    pub protection: Protection,
    /// What it is.
    pub kind: Kind,
    /// Fill it now (MAP_POPULATE, MAP_LOCKED); the whole space has its own switch, [`AddressSpace::set_populate`].
    pub populate: bool,
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Fetch an instruction.
    Execute,
}

/// Why an access is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// Nothing is mapped there (SEGV_MAPERR).
    Unmapped,
    /// It is mapped without that right (SEGV_ACCERR).
    Protected,
    /// The pool is used up.
    NoMemory,
}

/// A page that backs an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Address in the cell of the 4 KiB frame.
    pub frame: u64,
    /// A program may write to it.
    pub writable: bool,
}

/// The address is not that of memory of the program with that right, or memory ran out: EFAULT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadAddress;

/// Pages that Linux may still use: freed when this is dropped.
pub struct Revoked {
    /// Start of the range.
    pub start: u64,
    /// Bytes.
    pub length: u64,
}

/// Told of pages that Linux was given and must let go.
pub trait Revoke: Send + Sync {
    /// The range was unmapped or its rights were reduced. The implementor posts a drop and keeps `pages` until Linux has carried
    /// it out. Thread context, no lock of the space held; may sleep. Called before the call that unmapped returns.
    fn revoke(&self, pages: Revoked);
}

/// An address space.
pub struct AddressSpace {}

impl AddressSpace {
    /// An empty one; `revoke` is told of pages that Linux must let go.
    /// Drop the last reference only when Linux has let go of everything (the shadow is gone): pages are freed at once, preemptibly.
    pub fn new(_revoke: Box<dyn Revoke>) -> Result<Arc<Self>, MapError> {
        unimplemented!()
    }

    /// Maps; returns the address.
    pub fn map(&self, _request: Map) -> Result<u64, MapError> {
        unimplemented!()
    }

    /// Unmaps all in the range; holes are fine.
    pub fn unmap(&self, _start: u64, _length: u64) -> Result<(), MapError> {
        unimplemented!()
    }

    /// Changes rights. [`MapError::NoMemory`] (ENOMEM) if there is a hole.
    pub fn protect(&self, _start: u64, _length: u64, _protection: Protection) -> Result<(), MapError> {
        unimplemented!()
    }

    /// Gives up the contents of a range (MADV_DONTNEED): it reads as zero afterwards.
    pub fn discard(&self, _start: u64, _length: u64) -> Result<(), MapError> {
        unimplemented!()
    }

    /// Moves or resizes a mapping (mremap).
    pub fn remap(&self, _start: u64, _old_length: u64, _new_length: u64, _may_move: bool, _fixed: Option<u64>) -> Result<u64, MapError> {
        unimplemented!()
    }

    /// Makes all pages of the range present.
    pub fn populate(&self, _start: u64, _length: u64) -> Result<(), MapError> {
        unimplemented!()
    }

    /// Whether future mappings are populated at once (mlockall MCL_FUTURE).
    pub fn set_populate(&self, _on: bool) {
        unimplemented!()
    }

    /// Populates all that is mapped (mlockall MCL_CURRENT).
    pub fn populate_all(&self) -> Result<(), MapError> {
        unimplemented!()
    }

    /// Sets where the heap starts (exec); the break is there then.
    pub fn set_brk_start(&self, _start: u64) {
        unimplemented!()
    }

    /// `brk`: returns the new break, or the old one if `address` is not possible.
    pub fn brk(&self, _address: u64) -> u64 {
        unimplemented!()
    }

    /// Bytes that are mapped, and bytes that are present.
    pub fn usage(&self) -> (u64, u64) {
        unimplemented!()
    }

    /// The regions in order: for /proc/self/maps.
    pub fn regions(&self, _each: &mut dyn FnMut(u64, u64, Protection, Kind)) {
        unimplemented!()
    }

    /// Makes the page present for `access` and says which frame it is.
    pub fn resolve(&self, _address: u64, _access: Access) -> Result<Page, FaultError> {
        unimplemented!()
    }

    /// Like [`AddressSpace::resolve`], and marks the page as exposed to Linux: unmapping it goes through [`Revoke`].
    pub fn expose(&self, _address: u64, _access: Access) -> Result<Page, FaultError> {
        unimplemented!()
    }

    /// Copies from the program. May sleep; faults pages in. On failure part of `to` may be written.
    pub fn read(&self, _from: u64, _to: &mut [u8]) -> Result<(), BadAddress> {
        unimplemented!()
    }

    /// Copies to the program. On failure a part may be written.
    pub fn write(&self, _to: u64, _from: &[u8]) -> Result<(), BadAddress> {
        unimplemented!()
    }

    /// Copies to the program like [`AddressSpace::write`], whatever the protection of the region (for the loader).
    pub fn write_forced(&self, _to: u64, _from: &[u8]) -> Result<(), BadAddress> {
        unimplemented!()
    }

    /// Copies a string up to and without its zero; returns its length. `Ok(None)` if there is no zero within `to`.
    pub fn read_cstr(&self, _from: u64, _to: &mut [u8]) -> Result<Option<usize>, BadAddress> {
        unimplemented!()
    }

    /// Writes `length` zeros.
    pub fn zero(&self, _to: u64, _length: u64) -> Result<(), BadAddress> {
        unimplemented!()
    }

    /// Atomically replaces the aligned 32-bit word at `address` by `f(word)` if that gives one, and returns the word before
    /// (futexes). `f` is called with interrupts off and may be called again.
    pub fn update_u32(&self, _address: u64, _f: impl FnMut(u32) -> Option<u32>) -> Result<u32, BadAddress> {
        unimplemented!()
    }

    /// Reads the aligned 32-bit word at `address` atomically.
    pub fn load_u32(&self, _address: u64) -> Result<u32, BadAddress> {
        unimplemented!()
    }
}
