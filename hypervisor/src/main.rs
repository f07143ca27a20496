// SPDX-License-Identifier: MIT OR Apache-2.0
//! The partitioning hypervisor.
//!
//! It is launched underneath a running Linux (the *root cell*), takes CPUs and memory from it for other *cells*, and
//! does nothing afterwards: interrupts, timers and memory of a cell are its own, so in steady state no CPU
//! leaves guest mode. It trusts nobody: what Linux or a cell passes is copied once and checked.
//!
//! | module | concept |
//! |---|---|
//! | [`launch`] | underneath Linux and away again |
//! | [`arch`] | what a virtualization technology provides; SVM |
//! | [`host`] | the processor state of the hypervisor itself |
//! | [`machine`] | what all CPUs share: who owns which CPU, states of cells |
//! | [`local`] | what one CPU keeps for itself; requests and kicks |
//! | [`park`] | a CPU between two owners |
//! | [`exits`] | why a guest was left, and what follows |
//! | [`root`] | exits of Linux |
//! | [`cell`] | exits of the other cells; their failures |
//! | [`interrupts`] | interrupt commands, filtered |
//! | [`apic`], [`xapic`] | the local APIC, and Linux's writes to it where it has no x2APIC |
//! | [`hypercall`] | calls from Linux and cells |
//! | [`management`] | creating, starting, stopping, destroying cells |
//! | [`memory`] | the hypervisor's own memory; the machine's memory |
//! | [`guest`] | reading through Linux's page tables; faults that Linux gets to see |
//! | [`fpu`] | floating-point state when a CPU changes its owner |
//! | [`report`] | counters, states and the log, for Linux to read |
//!
//! Lock order: there is one lock, [`management::lock`]. While a CPU waits for it or for another CPU it goes on serving
//! requests, so that two CPUs never wait for each other. Interrupt commands take no lock.
#![no_std]
#![no_main]

mod apic;
mod arch;
mod cell;
mod exits;
mod fpu;
mod guest;
mod host;
mod hypercall;
mod interrupts;
mod launch;
mod local;
mod machine;
mod management;
mod memory;
mod park;
mod report;
mod root;
mod xapic;

use core::panic::PanicInfo;

/// A bug of the hypervisor: the CPU stops, the log says where.
#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    report::died(format_args!("{info}"));
    host::halt()
}
