// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure logic of memory, tested on the host.
//!
//! | module | concept |
//! |---|---|
//! | [`frames`] | pools of physical memory: [`Frame`] is an address in the cell |
//! | [`regions`] | which addresses a program may use: each is a [`UserAddr`], virtual |
//! | `gaps` | where there is room between them |
//! | [`sizes`] | classes of the sizes of pieces of the kernel's heap |
//! | [`entry`] | entries of page tables, where the two meet |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod entry;
pub mod frames;
mod gaps;
pub mod regions;
pub mod sizes;

pub use entry::{Entry, Flags};
pub use frames::{BLOCK_SIZE, FRAME_SIZE, Frame, FramePool, FrameSize};
pub use regions::{Attributes, Backing, Lock, OnFork, Region, Regions, Usage};

use bitflags::bitflags;
use crtos_abi::UserAddr;

bitflags! {
    /// The rights of a program to its memory; the bits are those of PROT_READ, PROT_WRITE,
    /// PROT_EXEC.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Protection: u8 {
        /// PROT_READ.
        const READ = 1;
        /// PROT_WRITE.
        const WRITE = 2;
        /// PROT_EXEC.
        const EXECUTE = 4;
    }
}

/// The use of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// mmap, of memory or of a file.
    Anonymous,
    /// The same, in pages of 2 MiB.
    Large,
    /// The heap that `brk` moves.
    Heap,
    /// A stack that the kernel made.
    Stack,
}

/// Where a mapping goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Anywhere, near the hint if that is free ([`UserAddr::NULL`]: no hint).
    Anywhere {
        /// The preferred address.
        hint: UserAddr,
    },
    /// As anywhere, below 2 GiB (MAP_32BIT).
    Low {
        /// The preferred address.
        hint: UserAddr,
    },
    /// At this address; what is mapped there goes (MAP_FIXED).
    Fixed(UserAddr),
    /// At this address if nothing is mapped there (MAP_FIXED_NOREPLACE).
    NoReplace(UserAddr),
}

/// Why memory cannot be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// ENOMEM: no room in the address space, no memory, too many regions, or a hole in the range.
    NoMemory,
    /// EINVAL: not aligned, or of length 0.
    Invalid,
    /// EEXIST: something is mapped there.
    Exists,
    /// EPERM: below the lowest address or in the shadow's range.
    Denied,
    /// EACCES: the object may not be written.
    Access,
    /// EFAULT: nothing is mapped there (mremap).
    Fault,
    /// EAGAIN: more would be locked than may be.
    Again,
}
