// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure logic of memory: frames, regions and page-table entries, tested on the host.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod entry;
pub mod frames;
pub mod regions;

pub use entry::{Entry, Flags};
pub use frames::{BLOCK_SIZE, FRAME_SIZE, Frame, FramePool, FrameSize};
pub use regions::{Attributes, Backing, OnFork, Region, Regions, Usage};

use bitflags::bitflags;

bitflags! {
    /// Rights of a program to its memory (PROT_READ, PROT_WRITE, PROT_EXEC have the same values).
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

/// What a region is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// mmap without a file, and copies of files.
    Anonymous,
    /// The same with pages of 2 MiB (MAP_HUGETLB).
    Large,
    /// The heap that `brk` moves.
    Heap,
    /// A stack that the kernel made.
    Stack,
}

/// Where a mapping goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Anywhere, near the hint if that is free (0: no hint).
    Anywhere {
        /// Preferred address.
        hint: u64,
    },
    /// Exactly there; what is there is unmapped (MAP_FIXED).
    Fixed(u64),
    /// Exactly there or not at all (MAP_FIXED_NOREPLACE).
    NoReplace(u64),
}

/// Why memory cannot be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// ENOMEM: no room, no memory, too many regions, or a hole.
    NoMemory,
    /// EINVAL: not aligned or length 0.
    Invalid,
    /// EEXIST: something is there.
    Exists,
    /// EPERM: below the lowest address or in the shadow's range.
    Denied,
    /// EACCES.
    Access,
    /// EFAULT: not mapped (mremap).
    Fault,
}
