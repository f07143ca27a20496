// SPDX-License-Identifier: MIT OR Apache-2.0
//! The half of the hypervisor that touches the machine, with all of its `unsafe` code.
//!
//! What is public here is safe to call: whatever the policy above does with it, the hypervisor's
//! own memory and processor state stay the hypervisor's. A wrong policy can break the partition
//! between guests, not more.
//!
//! The modules are declared in layers below; a module uses those of the layers above its own only,
//! which `./x lint` checks.
//!
//! | module | concept |
//! |---|---|
//! | [`launch_info`] | what the module told at launch |
//! | [`processor`] | this CPU: time, model-specific registers, floating-point state |
//! | [`direct_map`] | the machine's memory as the hypervisor sees it |
//! | [`report`] | counters, states and the log, for Linux to read |
//! | `configuration` | PCI configuration space |
//! | `devices` | the PCI functions of cells |
//! | `frames` | the hypervisor's own memory |
//! | [`arch`] | what a virtualization technology provides; SVM |
//! | [`apic`] | the local APIC |
//! | [`io_apic`] | the I/O APICs |
//! | [`hpet`] | the high-precision event timers |
//! | `linux_memory` | the memory of Linux, and its devices' tables |
//! | [`iommu`] | the IOMMUs |
//! | [`cpu`] | the CPUs as all see them: owners and requests |
//! | [`cell`] | the cells as all CPUs see them |
//! | [`local`] | what one CPU keeps for itself; requests and kicks |
//! | [`ownership`] | who has which memory and which ports |
//! | `exceptions` | descriptor tables and handlers of the hypervisor |
//! | [`park`] | a CPU between two owners |
//! | [`run`] | the policy's place in the run loop |
//! | [`launch`] | underneath Linux, and away again |
//!
//! Lock order: there is one lock, [`ownership::lock`]. While a CPU waits for it or for another CPU
//! it goes on serving requests, so that two CPUs never wait for each other. Interrupt commands take
//! no lock.
#![no_std]

pub mod launch_info;

pub mod direct_map;
pub mod processor;

pub mod report;

mod configuration;
mod devices;
mod frames;

pub mod arch;

pub mod apic;
pub mod hpet;
pub mod io_apic;
mod linux_memory;

pub mod iommu;

pub mod cpu;

pub mod cell;

pub mod local;

mod exceptions;
pub mod ownership;
pub mod park;

pub mod run;

pub mod launch;
