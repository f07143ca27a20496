// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a cell consists of and may touch. Everything that is not named here stops the cell, but for
//! I/O ports: a program of the cell, not its kernel, gets a general protection fault there.

use crate::MAX_CELL_CPUS;

/// Bytes of a cell's name, zero padded.
pub const CELL_NAME_LEN: usize = 32;
/// Most port ranges of a cell.
pub const MAX_PORT_RANGES: usize = 16;
/// Most MSR ranges of a cell.
pub const MAX_MSR_RANGES: usize = 16;

/// I/O ports `first..=last`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortRange {
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
    /// [`PORT_EXCLUSIVE`] or 0.
    pub flags: u32,
}

/// The root cell loses these ports while the cell exists; touching them there raises #GP.
pub const PORT_EXCLUSIVE: u32 = 1;

/// Model-specific registers `first..=last` that the cell may access beside those every cell has:
/// its x2APIC, segment bases, system-call entry, EFER, PAT, TSC_AUX, TSC_DEADLINE. It may be given
/// writes only to those that Linux may write.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsrRange {
    /// First register.
    pub first: u32,
    /// Last register.
    pub last: u32,
    /// [`MSR_READ`], [`MSR_WRITE`].
    pub flags: u32,
}

/// The cell may read the register.
pub const MSR_READ: u32 = 1;
/// The cell may write the register.
pub const MSR_WRITE: u32 = 2;

/// A cell without its memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CellConfig {
    /// Name for reports, zero padded.
    pub name: [u8; CELL_NAME_LEN],
    /// Vector (32..=255) on which the cell's doorbell arrives.
    pub doorbell_vector: u32,
    /// Vector (32..=255) on which it arrives if it rings for a link; may be the same one.
    pub link_vector: u32,
    /// Valid entries of `cpus`, at least 1.
    pub cpu_count: u32,
    /// Indices of CPUs (see [`crate::image::LaunchInfo::apic_ids`]); never the CPU that creates the
    /// cell.
    pub cpus: [u32; MAX_CELL_CPUS],
    /// Valid entries of `ports`.
    pub port_count: u32,
    /// Valid entries of `msrs`.
    pub msr_count: u32,
    /// Ports the cell may use.
    pub ports: [PortRange; MAX_PORT_RANGES],
    /// Registers the cell may use.
    pub msrs: [MsrRange; MAX_MSR_RANGES],
}

/// A piece of memory of a cell.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Where the cell sees it.
    pub cell_address: u64,
    /// Where it lies in the machine.
    pub physical: u64,
    /// Bytes, at most 2 MiB. A private region is 2 MiB, aligned to that on both sides; a shared one
    /// is aligned to 4 KiB.
    pub size: u64,
    /// `REGION_*`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// The cell may write (it may always read).
pub const REGION_WRITE: u32 = 1;
/// The cell may execute.
pub const REGION_EXECUTE: u32 = 2;
/// The root cell loses the memory until it is reclaimed.
pub const REGION_PRIVATE: u32 = 4;
