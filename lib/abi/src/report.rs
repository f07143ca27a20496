// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the hypervisor tells: counters of exits, states of cells and its log. The root cell can
//! read this area, but not write to it. It stays readable when the hypervisor is gone.

use crate::{MAX_CELLS, MAX_CPUS, cell::CELL_NAME_LEN, device::MAX_DEVICES, ring::RingHeader};

/// Reasons for an exit; the index into [`CpuReport::exits`].
pub const EXIT_NMI: usize = 0;
/// Write to the interrupt command register.
pub const EXIT_ICR: usize = 1;
/// Another trapped MSR.
pub const EXIT_MSR: usize = 2;
/// Hypercall.
pub const EXIT_HYPERCALL: usize = 3;
/// Nested page fault.
pub const EXIT_NESTED_FAULT: usize = 4;
/// CPUID.
pub const EXIT_CPUID: usize = 5;
/// I/O port.
pub const EXIT_PORT: usize = 6;
/// Access to the xAPIC's page or, in a cell on a machine in xAPIC mode, to x2APIC registers.
pub const EXIT_APIC: usize = 7;
/// XSETBV.
pub const EXIT_XSETBV: usize = 8;
/// Instruction that is hidden from guests.
pub const EXIT_HIDDEN: usize = 9;
/// Triple fault.
pub const EXIT_SHUTDOWN: usize = 10;
/// Anything else.
pub const EXIT_OTHER: usize = 11;
/// Debug exception or alignment check of a cell.
pub const EXIT_EXCEPTION: usize = 12;
/// Entries of [`CpuReport::exits`].
pub const EXIT_REASONS: usize = 13;

/// Counters of a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CpuReport {
    /// Exits by reason since the launch.
    pub exits: [u64; EXIT_REASONS],
    /// Doorbells rung from this CPU.
    pub doorbells: u64,
    /// Ticks of the time stamp counter that the CPU has spent in the hypervisor since the launch,
    /// from each exit to the next entry. While it waits for a guest it spends none.
    pub ticks: u64,
    /// Cell that has the CPU, [`CPU_ROOT`] or [`CPU_PARKED`].
    pub owner: u32,
    /// Zero.
    pub reserved: u32,
}

/// The CPU belongs to Linux.
pub const CPU_ROOT: u32 = 0xffff_ffff;
/// The CPU waits for a start-up IPI or a cell.
pub const CPU_PARKED: u32 = 0xffff_fffe;

/// No such cell.
pub const CELL_NONE: u32 = 0;
/// Created, never started.
pub const CELL_CREATED: u32 = 1;
/// Running.
pub const CELL_RUNNING: u32 = 2;
/// Stopped by the root cell.
pub const CELL_STOPPED: u32 = 3;
/// Stopped because it broke its bounds; `CellReport` says how.
pub const CELL_FAILED: u32 = 4;
/// Running, and locked: it ends when it agrees, or breaks its bounds.
pub const CELL_LOCKED: u32 = 5;

/// State of a cell. `cpu` to `qualification` describe the last failure.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CellReport {
    /// `CELL_*`.
    pub state: u32,
    /// CPU on which the cell failed.
    pub cpu: u32,
    /// `EXIT_*` reason of the failure.
    pub reason: u32,
    /// Zero.
    pub reserved: u32,
    /// Guest instruction pointer at the failure.
    pub rip: u64,
    /// Address in the cell, port or register that was touched.
    pub address: u64,
    /// The processor's exit code.
    pub code: u64,
    /// The processor's first exit information word (access type and so on).
    pub qualification: u64,
    /// Bytes of private memory.
    pub private_bytes: u64,
    /// Bytes of shared memory.
    pub shared_bytes: u64,
    /// Name, zero padded.
    pub name: [u8; CELL_NAME_LEN],
}

/// Most devices whose faults are counted.
pub const MAX_FAULTING_DEVICES: usize = 16;

/// Requests of a device that IOMMUs have refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceFaults {
    /// Its bus, device and function number (8, 5 and 3 bits).
    pub device: u32,
    /// How many of them Linux took note of; 0 if there is no device.
    pub count: u32,
}

/// A function or a platform device that a cell has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceReport {
    /// Bus, device and function number (8, 5 and 3 bits), or the number of the platform device.
    pub function: u16,
    /// 1 if a function is here, 2 if a platform device is.
    pub present: u16,
    /// The cell.
    pub cell: u32,
}

/// The report area. The log's bytes follow `log` and fill it to [`crate::image::REPORT_SIZE`] or
/// less.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// [`crate::ABI_VERSION`].
    pub abi_version: u32,
    /// CPUs in `cpus`.
    pub cpu_count: u32,
    /// 1 while the hypervisor runs; 2 after it stopped because of a fault of its own (the log says
    /// which).
    pub state: u32,
    /// IOMMUs that the hypervisor knows.
    pub iommus: u32,
    /// Those of them that it has, as long as there is a cell; the others are Linux's.
    pub iommus_taken: u32,
    /// Those that have copies of the tables by which Linux's devices translate.
    pub iommus_confining: u32,
    /// 1 if these copies leave out Linux's own page tables, which are checked instead:
    /// [`crate::ioctl::ENABLE_CHECKED_DMA`].
    pub dma_checked: u32,
    /// Those of `iommus_taken` that have copies of the entries by which Linux's devices interrupt.
    pub iommus_remapping: u32,
    /// Free pages of the hypervisor.
    pub free_pages: u64,
    /// How often the hypervisor refused an entry or a message of Linux's for an interrupt, in an
    /// IOMMU.
    pub iommu_refusals: u64,
    /// How often it refused an entry of Linux's for memory there.
    pub dma_refusals: u64,
    /// How often there was no memory for what Linux mapped for a device, so that it is missing.
    pub dma_missing: u64,
    /// Devices whose requests IOMMUs have refused, in the order in which that was seen; those that
    /// come later are not counted.
    pub device_faults: [DeviceFaults; MAX_FAULTING_DEVICES],
    /// Functions of cells.
    pub devices: [DeviceReport; MAX_DEVICES],
    /// Counters of each CPU.
    pub cpus: [CpuReport; MAX_CPUS],
    /// State of each cell.
    pub cells: [CellReport; MAX_CELLS],
    /// The hypervisor's log.
    pub log: RingHeader,
}

/// Capacity of the hypervisor's log in bytes.
pub const REPORT_LOG_SIZE: u32 = 0x2_0000;
