// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real-time kernel: fixed-priority preemptive scheduling, address spaces and Linux's x86-64 system
//! calls, in a cell of the hypervisor.
#![no_std]
#![no_main]

extern crate alloc;

pub mod account;
pub mod arch;
pub mod boot;
pub mod clone;
mod contents;
pub mod exec;
mod file_map;
pub mod files;
pub mod fork;
pub mod futex;
pub mod log;
pub mod mm;
pub mod numbering;
mod process;
pub mod remote;
pub mod replies;
pub mod sections;
pub mod segments;
#[cfg(feature = "self-test")]
pub mod self_test;
pub mod signal;
pub mod spawn;
pub mod sync;
pub mod syscall;
pub mod task;
pub mod threads;
pub mod time;
mod timers;
pub mod trace;
pub mod user;

/// Tells `crtos version` and `crtos check` which version of the interface this kernel speaks.
// SAFETY: nothing else is in this section, which is only data.
#[used]
#[unsafe(link_section = ".note.crtos")]
static NOTE: crtos_abi::note::Note = crtos_abi::note::Note::new();
