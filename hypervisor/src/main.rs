// SPDX-License-Identifier: MIT OR Apache-2.0
//! The partitioning hypervisor: its policy.
//!
//! It is launched underneath a running Linux (the *root cell*), takes CPUs and memory from it for
//! other *cells*, and does nothing afterwards: interrupts, timers and memory of a cell are its own,
//! so in steady state no CPU leaves guest mode. It trusts nobody: what Linux or a cell passes is
//! copied once and checked.
//!
//! This crate decides what follows from an exit. What touches the machine is in [`crtos_machine`],
//! with all of the `unsafe` code; what needs no hardware is in [`crtos_partition`].
//!
//! The modules are declared in layers below; a module uses those of the layers above its own only,
//! which `./x lint` checks.
//!
//! | module | concept |
//! |---|---|
//! | [`reason`] | reasons of exits, as they are counted and reported |
//! | [`interrupts`] | interrupt commands, filtered |
//! | [`guest`] | reading through Linux's page tables; faults that Linux gets to see |
//! | [`linux`] | the CPUs of Linux forget translations, or are held |
//! | [`management`] | creating, starting, stopping, destroying cells |
//! | [`devices`] | PCI functions of cells |
//! | [`console`] | lines that cells write to the log |
//! | [`cpuid`] | CPUID as cells see it |
//! | [`configuration`] | Linux's writes to PCI configuration space where some of it is not Linux's |
//! | [`resets`] | Linux wants the machine to be reset; ports by which it does |
//! | [`sources`] | Linux's writes to I/O APICs and timers, which raise interrupts |
//! | [`iommu`] | Linux's accesses to IOMMUs, and to tables by which its devices translate |
//! | [`xapic`] | Linux's writes to the local APIC where it has no x2APIC |
//! | [`hypercall`] | calls from Linux and cells |
//! | [`root`] | exits of Linux |
//! | [`cell`] | exits of the other cells; their failures |
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

mod console;
mod cpuid;
mod guest;
mod interrupts;
mod linux;
mod reason;

mod configuration;
mod devices;
mod iommu;
mod sources;

mod management;

mod hypercall;
mod resets;
mod xapic;

mod cell;
mod root;

use core::panic::PanicInfo;

use crtos_machine::arch::Exit;
use crtos_machine::local::Local;
use crtos_machine::run::Policy;
use crtos_machine::{image, processor, report};

/// The policy of this hypervisor.
struct Partition;

impl Policy for Partition {
    #[inline]
    fn handle(local: &mut Local, exit: Exit) {
        local.count(reason::of(exit));
        match local.cell() {
            None => root::handle(local, exit),
            Some(id) => cell::handle(local, id, exit),
        }
    }
}

image!(Partition);

/// Stops the CPU at a bug of the hypervisor; the log says where.
#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    report::died(format_args!("{info}"));
    processor::halt()
}
