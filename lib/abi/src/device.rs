// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices of cells: PCI functions that Linux has let go, and *platform devices*, which have
//! registers in memory, but no configuration space. A cell has a function's registers in
//! memory and ports to itself, its interrupts come to the cell's CPUs, and the function reaches the
//! cell's memory alone: all of it, or what the cell says.
//!
//! The cell finds its functions by [`crate::hypercall::HC_DEVICE_LIST`], and reads and writes their
//! configuration space by calls, too. What it reads in a base address register is where it sees the
//! memory itself. It may write there: I/O space, memory space and bus mastering in the command
//! register, errors in the status register; the capabilities of messages (MSI and MSI-X); and all
//! ones to a base address register, which reads as its size until it is written again. The
//! interrupt pin is off unless it raises a line of the cell ([`DEVICE_PIN`]): then the cell
//! switches it, in the command register as well. All other writes are lost.
//!
//! Of a platform device, which does not master the bus, the cell reads at `4 * n`, by the same
//! call, where it sees memory `n`, and in bits 11..0 how many pages that has, less 1; 0 if there is
//! none; and at `4 * (BASE_ADDRESSES + n)` the first of its ports `n` in bits 15..0 and the last in
//! bits 31..16, 0 if there are none. The other calls about functions are refused for it. What it
//! interrupts by is a line. A range of I/O ports that a cell gets while it runs is such a device,
//! too.
//!
//! An access to an address of devices where the cell has none (any more) raises a general
//! protection fault, with the error code 0: Linux may have taken the function away. So does, in a
//! cell that has had a function, an access to an I/O port that it does not have.

use crate::cell::PortRange;

/// Most functions and platform devices that cells have, in all.
pub const MAX_DEVICES: usize = 16;
/// Most messages of a function that interrupt a cell.
pub const MAX_MESSAGES: u32 = 64;
/// Most interrupt lines that cells have, in all.
pub const MAX_LINES: usize = 16;
/// Base address registers of a function.
pub const BASE_ADDRESSES: usize = 6;
/// Most bridges above a function.
pub const MAX_BRIDGES: usize = 8;

/// First address at which a cell sees memory of its devices.
pub const DEVICE_MEMORY: u64 = 0xe000_0000;
/// End of those addresses.
pub const DEVICE_MEMORY_END: u64 = 0xf000_0000;
/// Most bytes of one function's memory.
pub const MAX_DEVICE_MEMORY: u64 = 0x100_0000;

/// In [`DeviceConfig::flags`]: the function reaches no memory but what the cell maps for it by
/// [`crate::hypercall::HC_DEVICE_MAP`]. For cells that let programs drive it which they do not
/// trust. All functions of a cell have it, or none.
pub const DEVICE_WITHOUT_MEMORY: u32 = 1;
/// There as well: it is a platform device, and `function` the number by which all know it. No
/// function of a cell has that, there are no bridges, and memory may have any number of pages.
pub const DEVICE_PLATFORM: u32 = 2;
/// There as well: its pin raises a line of the cell, which may switch the pin on.
pub const DEVICE_PIN: u32 = 4;
/// In what [`crate::hypercall::HC_DEVICE_LIST`] returns, beside the function: likewise.
pub const LISTED_WITHOUT_MEMORY: i64 = 0x1_0000;
/// There as well: it is a platform device.
pub const LISTED_PLATFORM: i64 = 0x2_0000;
/// There as well: from this bit on, how many bits the addresses have that such a function names.
pub const LISTED_WIDTH_SHIFT: u32 = 24;

/// For [`crate::hypercall::HC_DEVICE_MAP`]: the function may read.
pub const MAPPED_READ: u64 = 1;
/// Likewise: it may write.
pub const MAPPED_WRITE: u64 = 2;
/// Most pages that are mapped or unmapped at once.
pub const MAX_MAPPED_PAGES: u64 = 64;
/// Most tables of 4 KiB that lead to what cells map for functions, in all. Each leads to 2 MiB.
pub const MAX_DEVICE_TABLES: u32 = 512;

/// What a base address register tells of: memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Where it lies in the machine, a multiple of 4 KiB.
    pub physical: u64,
    /// Bytes: of a function a power of two, at least 16, of which the cell gets whole pages; of a
    /// platform device a multiple of 4 KiB; 0 if the register tells of nothing or of ports.
    pub size: u64,
    /// Where the cell sees it, a multiple of 4 KiB, and of a function also of `size`.
    pub cell_address: u64,
}

/// A PCI function for a cell.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceConfig {
    /// Bus in bits 15..8, device in bits 7..3, function in bits 2..0; of segment 0. It is its
    /// requester as well.
    pub function: u16,
    /// Valid entries of `bridges`.
    pub bridge_count: u16,
    /// `DEVICE_WITHOUT_MEMORY`, `DEVICE_PLATFORM`, `DEVICE_PIN`, or 0.
    pub flags: u32,
    /// The bridges above it, whose headers Linux may not write meanwhile.
    pub bridges: [u16; MAX_BRIDGES],
    /// By base address register.
    pub memory: [DeviceMemory; BASE_ADDRESSES],
    /// By base address register: ports; `last` is 0 where there are none, and flags are 0.
    pub ports: [PortRange; BASE_ADDRESSES],
}
