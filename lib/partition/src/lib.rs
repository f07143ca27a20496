// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partitioning logic of the hypervisor that needs no hardware, so that it is tested on the host.
//!
//! | module | concept |
//! |---|---|
//! | [`ids`] | numbers of CPUs, local APICs and cells |
//! | [`address`] | physical addresses of the machine and of guests |
//! | [`error`] | why a call or a launch is refused |
//! | [`requirements`] | what a processor has to offer for a launch |
//! | [`config`] | what a cell may have, checked |
//! | [`lifecycle`] | states of a cell and what leads from one to the next |
//! | [`cpuset`] | sets of CPUs |
//! | [`frames`] | the hypervisor's own memory, page by page |
//! | [`nested`] | nested page tables: what a guest sees of the machine's memory |
//! | [`permissions`] | bitmaps of I/O ports and model-specific registers |
//! | [`registers`] | registers: what Linux may write, what is reset |
//! | [`resets`] | ports that reset the machine, and what Linux may do there beside a locked cell |
//! | [`configuration`] | which registers of PCI configuration space an access touches |
//! | [`device`] | a PCI function of a cell, and what the cell may do with its configuration space |
//! | [`grants`] | what a cell may access without an exit |
//! | [`performance`] | how fast a CPU of a cell runs |
//! | [`doorbell`] | where a cell rings in the root cell |
//! | [`budget`] | how often doorbells interrupt a CPU |
//! | [`icr`] | who an interrupt command reaches |
//! | [`redirection`] | whom an entry of an I/O APIC may interrupt |
//! | [`message`] | whom a device may interrupt by a store |
//! | [`nmi`] | when a guest takes its next non-maskable interrupt |
//! | [`decode`] | the few instructions that the hypervisor has to understand |
//! | [`log`] | the log ring and its lines |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod address;
pub mod budget;
pub mod config;
pub mod configuration;
pub mod cpuset;
pub mod decode;
pub mod device;
pub mod doorbell;
pub mod error;
pub mod frames;
pub mod grants;
pub mod icr;
pub mod ids;
pub mod lifecycle;
pub mod log;
pub mod message;
pub mod nested;
pub mod nmi;
pub mod performance;
pub mod permissions;
pub mod redirection;
pub mod registers;
pub mod requirements;
pub mod resets;
