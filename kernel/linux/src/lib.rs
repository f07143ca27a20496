// SPDX-License-Identifier: MIT OR Apache-2.0
//! The upper half of the real-time kernel: Linux's x86-64 system-call ABI for rich real-time
//! processes.
//!
//! | module | concept |
//! |---|---|
//! | [`personality`] | what the lower half calls |
//! | [`syscall`] | the dispatcher and the calls |
//! | [`devices`] | drivers of the realm's devices |
//! | [`sockets`] | families of sockets that the realm has |
//! | [`process`] | processes and their threads: start, clone, fork, exec, end, what they used |
//! | [`remote`] | the remote path: calls, replies, slots, revocation |
//! | [`memory`] | files in memory, System V shared memory, words in a program's memory |
//! | [`files`] | local descriptors |
//! | [`signal`], [`timers`], [`futex`] | as their names say |
//! | [`abi`] | arguments, results and errors of system calls |
//!
//! Imports run from top to bottom of this table, which `./x lint` checks, except among `process`,
//! `remote`, `memory`, `files`, `signal`, `timers` and `futex`. These seven refer to each other
//! because a [`process::Process`] is made of what the others define (descriptors, pending signals,
//! timers), and each of them works for the calling thread's process: a wait of any of them ends by
//! a signal, a signal may come from Linux by the remote path, and the remote path has the process
//! end when its shadow is gone.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod abi;

// A cycle: the reason is above.
mod files;
mod futex;
mod memory;
mod process;
mod remote;
mod signal;
mod timers;

mod sockets;

mod devices;

mod syscall;

mod personality;
