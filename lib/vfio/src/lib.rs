// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's interface for drivers in programs (VFIO, `include/uapi/linux/vfio.h`), as far as it
//! needs no hardware. It is tested on the host.
//!
//! | module | concept |
//! |---|---|
//! | [`abi`] | numbers of calls, flags, sizes of structures |
//! | [`ranges`] | what a container has mapped |
//! | [`interrupts`] | what a program asks for of interrupts |
//! | [`configuration`] | what a program may write to configuration space |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod abi;
pub mod configuration;
pub mod interrupts;
pub mod ranges;

/// Why a call is refused; the names are those of Linux's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// EINVAL.
    Invalid,
    /// EEXIST.
    Exists,
    /// ENOSPC.
    Full,
}
