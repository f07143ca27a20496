// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hypervisor's image, and how the module launches it underneath Linux.
//!
//! The image is flat and linked at [`HYPERVISOR_BASE`]. Its first page is an
//! [`ImageHeader`] followed, at [`LAUNCH_INFO_OFFSET`], by a [`LaunchInfo`] that
//! the module fills in before it calls `init` once and `enter` on every CPU.
//!
//! # Launch
//!
//! 1. The module takes `block_count` blocks of [`LARGE_PAGE_SIZE`](crate::LARGE_PAGE_SIZE),
//!    copies the image to their start and zeroes the rest.
//! 2. It builds page tables (in the last four pages of block 0): Linux's upper
//!    half copied from its CR3, the identity map of the first 512 GiB at 0, the
//!    blocks in order at [`HYPERVISOR_BASE`].
//! 3. With interrupts off and those tables loaded (CR4.PGE and CR4.PCIDE clear) it
//!    calls `init() -> i64` (System V): 0, or a [`launch_error`](self) number.
//! 4. On every CPU, in the same way, it jumps to `enter` with RDI = index of the CPU
//!    in `apic_ids`, RSI = address in module text to go on at as a guest,
//!    RDX = stack pointer to go on with, RCX = Linux's CR3, R8 = Linux's CR4.
//!    On success the CPU goes on at RSI as a guest with RAX = 0 and every other
//!    general register undefined (the module has saved what it needs on its stack); on
//!    failure `enter` goes on there too, *not* as a guest, still under the
//!    hypervisor's page tables, with RAX = a negative launch error.
//! 5. To leave, each CPU makes the hypercall `LEAVE`, which jumps to `leave_trampoline` (module
//!    text) in host mode, SVM off, Linux's GDT and IDT loaded, interrupts off, with RDI = guest
//!    CR3, RSI = guest CR4, RDX = guest RSP, RCX = address behind the hypercall, RBX = 0 on
//!    success. The trampoline loads CR3, CR4 and RSP, reloads CS, SS, DS, ES and goes on.

use crate::MAX_CPUS;

/// Virtual address that the hypervisor's image is linked at (host mode only).
pub const HYPERVISOR_BASE: u64 = 0x7000_0000_0000;

/// `ImageHeader::magic`: "CRTOSHV1", little endian.
pub const IMAGE_MAGIC: u64 = 0x3156_4853_4f54_5243;

/// Offset of the [`LaunchInfo`] in the image.
pub const LAUNCH_INFO_OFFSET: u64 = 512;

/// Most blocks of 2 MiB that the hypervisor consists of.
pub const MAX_HYPERVISOR_BLOCKS: usize = 44;

/// Most I/O ports of a watchdog.
pub const MAX_WATCHDOG_PORTS: u32 = 32;
/// Most I/O APICs of a machine.
pub const MAX_IO_APICS: usize = 32;
/// Most high-precision event timers of a machine.
pub const MAX_HPETS: usize = 8;
/// Most IOMMUs of a machine.
pub const MAX_IOMMUS: usize = 8;
/// Most ranges of registers in configuration space that Linux may not write.
pub const MAX_CONFIGURATIONS: usize = 64;

/// `Iommu::kind`: Intel's (VT-d).
pub const IOMMU_VTD: u32 = 0;
/// `Iommu::kind`: AMD's (AMD-Vi).
pub const IOMMU_AMD_VI: u32 = 1;

/// `LaunchInfo::mmconfig`: in several places. No cell has a PCI function then.
pub const MMCONFIG_SCATTERED: u64 = !0;

/// Bytes of the report area (see [`crate::report`]), physically contiguous and aligned to itself.
pub const REPORT_SIZE: u64 = 0x4_0000;

/// Start of the image. Written by the build, read by the module.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ImageHeader {
    /// [`IMAGE_MAGIC`].
    pub magic: u64,
    /// [`crate::ABI_VERSION`].
    pub abi_version: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes of the image including its zeroed data.
    pub image_size: u64,
    /// Address of `init` in the linked image.
    pub init: u64,
    /// Address of `enter` in the linked image.
    pub enter: u64,
}

/// The registers of an IOMMU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Iommu {
    /// Physical address of the first one, a multiple of 4,096.
    pub address: u64,
    /// How many bytes there are, a multiple of 4,096. Of AMD's kind these are those before the
    /// performance counters, whether there are any.
    pub size: u64,
    /// `IOMMU_*`: what the registers are.
    pub kind: u32,
    /// Of AMD's kind: its PCI function, as in [`Configuration`]; 0 otherwise.
    pub function: u32,
}

/// Registers in the configuration space of PCI segment 0 that Linux may not write while an IOMMU is
/// the hypervisor's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// The function: bus in bits 15..8, device in bits 7..3, function in bits 2..0.
    pub function: u16,
    /// The first register: a byte, at most 0xfff.
    pub first: u16,
    /// The last one.
    pub last: u16,
    /// 1 if the others say something, 0 where there is none.
    pub present: u16,
}

/// What the module tells the hypervisor at launch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchInfo {
    /// Physical address of the page tables described in the module documentation.
    pub host_cr3: u64,
    /// Address in module text; see step 5 of the launch.
    pub leave_trampoline: u64,
    /// Physical address of the report area, [`REPORT_SIZE`] bytes.
    pub report_address: u64,
    /// One past the highest physical address of RAM.
    pub memory_end: u64,
    /// Ticks of the time stamp counter per millisecond.
    pub tsc_khz: u32,
    /// 1 if Linux runs its local APICs in x2APIC mode, 0 for xAPIC.
    pub x2apic: u32,
    /// Valid entries of `apic_ids`.
    pub cpu_count: u32,
    /// Valid entries of `blocks`.
    pub block_count: u32,
    /// I/O port by which software raises system-management interrupts, as ACPI's FADT names it; 0
    /// if there is none.
    pub smi_port: u32,
    /// I/O port of the reset register that ACPI's FADT names; 0 if there is none.
    pub reset_port: u32,
    /// What resets the machine there.
    pub reset_value: u32,
    /// I/O ports of the bytes whose bit 5 (SLP_EN) puts the machine to sleep or switches it off:
    /// the upper halves of PM1a and PM1b control, and sleep control; 0 if there is none.
    pub sleep_ports: [u32; 3],
    /// 1 if Linux's own page tables for devices are used, and checked; 0 if copies of them.
    pub dma_checked: u32,
    /// Zero.
    pub reserved: u32,
    /// First I/O port of the chipset's watchdog (TCO); 0 if there is none.
    pub watchdog_port: u32,
    /// Number of its I/O ports, at most [`MAX_WATCHDOG_PORTS`].
    pub watchdog_ports: u32,
    /// Physical addresses of the I/O APICs that ACPI's MADT lists; 0 where there is none.
    pub io_apics: [u64; MAX_IO_APICS],
    /// Physical addresses of the high-precision event timers that ACPI's HPET tables list; 0 where
    /// there is none.
    pub hpets: [u64; MAX_HPETS],
    /// The IOMMUs that ACPI lists, in DMAR (Intel's kind) and in IVRS (AMD's kind); zeroes where
    /// there is none.
    pub iommus: [Iommu; MAX_IOMMUS],
    /// Registers in configuration space that Linux may not write.
    pub configurations: [Configuration; MAX_CONFIGURATIONS],
    /// Physical address at which the configuration space of bus 0 of PCI segment 0 is memory, as
    /// ACPI's MCFG tells; 0 if it is not, [`MMCONFIG_SCATTERED`] if it is in several places. Those
    /// of the other buses follow, 1 MiB each.
    pub mmconfig: u64,
    /// How many buses there are in it, at most 256.
    pub mmconfig_buses: u64,
    /// Physical addresses of the hypervisor's blocks, in the order of their virtual addresses.
    pub blocks: [u64; MAX_HYPERVISOR_BLOCKS],
    /// APIC id of each CPU, all ones if the machine has no such CPU; the index is the CPU's number
    /// everywhere else. Linux's CPU numbers are used. Each CPU of the machine is here and enters.
    pub apic_ids: [u32; MAX_CPUS],
}

/// The CPU has no SVM (or no VMX).
pub const LAUNCH_NO_VIRTUALIZATION: i64 = -1;
/// SVM is disabled by firmware (VM_CR.SVMDIS).
pub const LAUNCH_DISABLED_BY_FIRMWARE: i64 = -2;
/// Another hypervisor (such as KVM) already uses virtualization on this CPU.
pub const LAUNCH_IN_USE: i64 = -3;
/// No nested paging.
pub const LAUNCH_NO_NESTED_PAGING: i64 = -4;
/// The image and the module speak different versions of this interface.
pub const LAUNCH_VERSION: i64 = -5;
/// The hypervisor's memory does not suffice for this machine.
pub const LAUNCH_NO_MEMORY: i64 = -6;
/// The launch information contradicts itself or the machine.
pub const LAUNCH_BAD_INFO: i64 = -7;
/// Memory encryption is on, so that all memory has a second address.
pub const LAUNCH_MEMORY_ENCRYPTION: i64 = -8;
