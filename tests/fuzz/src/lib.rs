// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets for fuzzing: readers of bytes that somebody else wrote, and what has to hold of them
//! whatever the bytes are. A target panics if something does not hold.
//!
//! | module | reads | written by |
//! |---|---|---|
//! | [`decoder`] | instructions | Linux and programs, below the hypervisor |
//! | [`executable`] | ELF files, and the strings of a stack | whoever runs a program |
//! | [`script`] | the first line of a script | whoever runs it |
//! | [`frame`] | frames of signals | the program that returns from a handler |
//! | [`channel`] | all words of the channel | Linux |
//! | [`acpi`] | ACPI's tables of IOMMUs | the firmware, where Linux says |
//! | [`iommu`] | entries and commands of IOMMUs | Linux |
//! | [`inet`] | packets of UDP and TCP | stations of the network |
//!
//! `tests/targets.rs` runs each of them as a test, with random inputs. To have an engine look for
//! inputs that reach new code, install `cargo-bolero` and run, in this folder,
//! `cargo bolero test decoder --sanitizer NONE -T 60s`. What it finds it keeps below
//! `tests/__fuzz__`, where `cargo test` tries it again.
#![deny(unsafe_code)]

pub mod acpi;
pub mod channel;
pub mod decoder;
pub mod executable;
pub mod frame;
pub mod inet;
pub mod iommu;
mod memory;
pub mod numbers;
pub mod script;
mod time_limit;
