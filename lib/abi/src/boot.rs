// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a cell starts.
//!
//! The command line loads an ELF file (by its physical addresses, which are addresses in the cell)
//! and a [`BootInfo`], builds initial page tables and has the hypervisor start all CPUs of the cell
//! at the entry address in 64-bit mode: CR0 = PE, ET, NE, WP, PG; CR4 = PAE; EFER = LME, LMA, NXE,
//! SCE; CR3 as loaded; flat segments; interrupts off; RDI = [`BOOT_INFO_ADDRESS`] (the argument of
//! the start), RSI = index of the CPU in the cell (0 first), RSP undefined, FPU as after FNINIT,
//! local APIC reset and disabled by its software switch (SVR), in x2APIC mode as far as the cell
//! can see.
//!
//! The initial tables map the cell's first 4 GiB three times, readable, writable and executable: at
//! 0, at [`DIRECT_MAP`], and its first 2 GiB at [`KERNEL_BASE`]. Programs that want more build
//! their own tables.
//!
//! Layout of a cell's addresses: private memory from 0, [`CHANNEL_ADDRESS`] for the shared block of
//! the remote path, [`crate::link::LINK_MEMORY`] for links, [`crate::share::SHARE_WINDOW`] for
//! pages of Linux, registers of devices behind it ([`crate::device::DEVICE_MEMORY`]),
//! [`SHARED_POOL`] for the pages of processes.

use crate::MAX_CELL_CPUS;
use crate::link::MAX_LINKS;

/// Address of the [`BootInfo`] in the cell.
pub const BOOT_INFO_ADDRESS: u64 = 0x1000;
/// Address of the initial page tables (PML4 first); [`INITIAL_TABLES_SIZE`] bytes.
pub const INITIAL_TABLES: u64 = 0x1_0000;
/// PML4, two PDPTs, four PDs.
pub const INITIAL_TABLES_SIZE: u64 = 7 * 4096;
/// Lowest address that an image is loaded at.
pub const IMAGE_ADDRESS: u64 = 0x20_0000;
/// Address of the channel (see [`crate::channel`]), one block of 2 MiB; inmates use it as memory
/// shared with Linux.
pub const CHANNEL_ADDRESS: u64 = 0xc000_0000;
/// Address of the pool of pages for processes, shared with Linux.
pub const SHARED_POOL: u64 = 0x1_0000_0000;
/// Most bytes of private memory.
pub const MAX_PRIVATE: u64 = 0x8000_0000;
/// Virtual address at which all memory of the cell is mapped.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// Virtual address at which the first 2 GiB of the cell are mapped; kernels are linked here.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// "CRTOSBI1", little endian.
pub const BOOT_MAGIC: u64 = 0x3149_4253_4f54_5243;

/// What a cell learns of itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BootInfo {
    /// [`BOOT_MAGIC`].
    pub magic: u64,
    /// [`crate::ABI_VERSION`].
    pub abi_version: u32,
    /// CPUs of the cell.
    pub cpu_count: u32,
    /// Bytes of private memory from address 0.
    pub private_size: u64,
    /// Bytes of the pool at [`SHARED_POOL`]; 0 if there is none.
    pub shared_size: u64,
    /// First byte of private memory behind the loaded image, page aligned.
    pub image_end: u64,
    /// Ticks of the time stamp counter per millisecond.
    pub tsc_khz: u32,
    /// Vector on which the doorbell arrives.
    pub doorbell_vector: u32,
    /// 1 if the channel is there.
    pub has_channel: u32,
    /// Four bits for each link, the first one's lowest: the number of the peer that the cell is, or
    /// 0 if it does not have that link.
    pub links: u32,
    /// APIC ids of the cell's CPUs, in the cell's order.
    pub apic_ids: [u32; MAX_CELL_CPUS],
    /// Linux's numbers of the cell's CPUs, in the cell's order.
    pub linux_cpus: [u32; MAX_CELL_CPUS],
    /// Command line of the cell, zero terminated.
    pub command_line: [u8; 512],
}

impl BootInfo {
    /// The number of the peer that the cell is of link `link`; `None` if it does not have that.
    pub fn peer(&self, link: usize) -> Option<usize> {
        let peer = self.links >> (4 * link.min(MAX_LINKS - 1)) & 0xf;
        (link < MAX_LINKS && peer != 0).then_some(peer as usize)
    }

    /// The command line, without the zeros behind it.
    pub fn line(&self) -> &[u8] {
        self.command_line.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// The words of the command line.
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.line().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
    }
}
