// SPDX-License-Identifier: MIT OR Apache-2.0
//! IOMMUs without hardware: what their tables, queues and registers mean, and which of Linux's
//! entries may exist beside cells. It is tested on the host.
//!
//! The hypervisor gives an IOMMU tables of its own. What it puts there for a device of Linux is a
//! validated copy of what Linux wrote, made here: each entry of Linux is read once, as a whole,
//! decoded, checked and encoded anew. Nothing that is not understood gets into a copy.
//!
//! | module | concept |
//! |---|---|
//! | [`interrupt`] | interrupts that devices ask for, and whom they may reach |
//! | [`attachment`] | how the addresses of a device are translated |
//! | [`tables`] | page tables, and the memory that they may map |
//! | [`layout`] | how tables refer to each other |
//! | [`copies`] | copies of Linux's tables, which change with them |
//! | [`cell_tables`] | the tables by which the devices of a cell translate |
//! | [`mappings`] | the tables by which one function translates, page by page |
//! | [`effect`] | what a command of Linux means for the copies |
//! | [`fault`] | requests of devices that a unit has refused |
//! | [`machine`] | what driving a unit takes |
//! | [`mod@unit`] | a unit that was taken over, of either vendor |
//! | [`vtd`] | Intel's VT-d |
//! | [`amd`] | AMD-Vi |
//! | [`acpi`] | where the units are, and what is special about devices |
//!
//! "VT-d" with a number is a section of Intel's *Virtualization Technology for Directed I/O*
//! (D51397, Rev. 5.10), "IOMMU" with a number one of AMD's *I/O Virtualization Technology (IOMMU)
//! Specification* (48882, Rev. 3).
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

use core::fmt;

pub mod acpi;
pub mod amd;
pub mod attachment;
pub mod cell_tables;
pub mod copies;
pub mod effect;
pub mod fault;
pub mod interrupt;
pub mod layout;
pub mod machine;
pub mod mappings;
pub mod tables;
pub mod unit;
pub mod vtd;

/// A function that masters the bus: its bus, device and function number (16 bits: 8, 5, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requester(pub u16);

impl fmt::Display for Requester {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let [function, bus] = self.0.to_le_bytes();
        write!(formatter, "{bus:02x}:{:02x}.{}", function >> 3, function & 7)
    }
}

/// The number by which a unit tags what it caches of page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u16);

/// The `count` bits of `value` from bit `low` on; fewer than 64.
const fn field(value: u64, low: u32, count: u32) -> u64 {
    value >> low & ((1 << count) - 1)
}

/// Tells whether bit `number` of `value` is set.
const fn bit(value: u64, number: u32) -> bool {
    value >> number & 1 != 0
}

/// A word with bit `number` set, if `condition` holds.
const fn flag(condition: bool, number: u32) -> u64 {
    (condition as u64) << number
}
