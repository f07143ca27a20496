// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lower half of the real-time kernel: processors, memory, threads, scheduling, time. It has
//! all unsafe code of the kernel and knows nothing of Linux's ABI, which is the upper half's
//! ([`mod@personality`]).
//!
//! What is public here is safe to call with any value, in any order: the upper half forbids unsafe
//! code and cannot break what this half relies on. What could break it is visible in this crate
//! alone.
//!
//! | module | concept |
//! |---|---|
//! | `boot` | from the first instruction to the first thread |
//! | [`task`] | threads, the scheduler, sleeping locks, timers |
//! | [`mod@personality`] | what the upper half is asked to do |
//! | [`mm`] | frames, the heap, address spaces, memory objects |
//! | [`hazard`] | tables that are read without a lock |
//! | [`arch`] | the processor |
//! | [`sync`], [`sections`] | spin locks; how long interrupts are off |
//! | [`time`], [`trace`], [`log`] | as their names say |
//! | [`devices`] | devices of the realm: their ports and interrupts |
//! | [`cpu_numbers`] | by which numbers programs know CPUs |
//!
//! `arch`, `task`, `mm` and `sync` refer to each other: an interrupt asks the scheduler, which
//! switches stacks and page tables, and a page fault takes locks that put a thread to sleep.
#![no_std]

extern crate alloc;

pub mod arch;
mod boot;
pub mod cpu_numbers;
pub mod devices;
pub mod hazard;
pub mod log;
pub mod mm;
pub mod personality;
pub mod sections;
#[cfg(feature = "self-test")]
mod self_test;
pub mod sync;
pub mod task;
pub mod time;
pub mod trace;
