// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every structure and number that two parts of crtos share, and nothing else.
//!
//! | module | shared by |
//! |---|---|
//! | [`address`] | real-time kernel, its libraries: addresses of programs |
//! | [`image`] | module, hypervisor: the hypervisor's image and its launch |
//! | [`hypercall`] | module, cells, hypervisor |
//! | [`cell`] | module, hypervisor: what a cell may touch |
//! | [`report`] | hypervisor, module, command line: counters, cell states, log |
//! | [`boot`] | command line, real-time kernel, inmates: how a cell starts |
//! | [`channel`] | module, real-time kernel: the remote path |
//! | [`ids`] | real-time kernel, shadow: types of numbers that name something |
//! | [`ring`] | every log ring |
//! | [`ioctl`] | module, command line, shadow |
//! | [`share`] | hypervisor, module, real-time kernel: where a cell sees pages of Linux |
//! | [`link`] | module, real-time kernel, inmates: memory that Linux and cells share |
//! | [`note`] | real-time kernel, shadow, command line: the version that a program tells of itself |
//!
//! `linux/module/abi.h` is generated from these files; the test `header` fails when it
//! is out of date. Rules that keep both languages in step: `#[repr(C)]`, integers
//! of a fixed width, no padding that is not named, constants with literal values.
//!
//! A field that the other side may write at any time holds an allegation: read it
//! once, check it, then use the copy.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod address;
pub mod boot;
pub mod cell;
pub mod channel;
pub mod device;
pub mod hypercall;
pub mod ids;
pub mod image;
pub mod ioctl;
pub mod link;
pub mod note;
pub mod report;
pub mod ring;
pub mod share;

pub use address::UserAddr;

/// Changes whenever anything in this crate changes meaning. The module, the
/// hypervisor, the real-time kernel, the shadow and the command line refuse to
/// work with another version and say both numbers.
pub const ABI_VERSION: u32 = 1;

/// Bytes in a small page.
pub const PAGE_SIZE: u64 = 4096;

/// Bytes in a large page, the unit in which memory moves between owners.
pub const LARGE_PAGE_SIZE: u64 = 0x20_0000;

/// Most CPUs of a machine that the hypervisor manages.
pub const MAX_CPUS: usize = 256;

/// Most CPUs of one cell.
pub const MAX_CELL_CPUS: usize = 32;

/// Most cells beside the root cell.
pub const MAX_CELLS: usize = 16;
