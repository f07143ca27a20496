// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of programs as Linux's ABI has it: words in it, contents of files, mappings of files,
//! memory that Linux shares, System V shared memory.

pub mod contents;
pub mod mappings;
pub mod maps;
pub mod named;
mod scratch;
pub mod shared;
pub mod sysv_shm;
pub mod timespec;
pub mod user;

pub use scratch::Scratch;
