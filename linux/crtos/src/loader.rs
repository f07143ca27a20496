// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has to lie in a cell's memory before it starts (see [`crtos_abi::boot`]): the segments of
//! an ELF file at their physical addresses, the boot information, and the initial page tables.
//!
//! It makes pieces of memory out of bytes, and touches nothing else.

use std::mem::{offset_of, size_of};

use crtos_abi::{
    ABI_VERSION, LARGE_PAGE_SIZE, MAX_CELL_CPUS, PAGE_SIZE,
    boot::{
        BOOT_INFO_ADDRESS, BOOT_MAGIC, BootInfo, DIRECT_MAP, IMAGE_ADDRESS, INITIAL_TABLES,
        INITIAL_TABLES_SIZE, KERNEL_BASE, MAX_PRIVATE,
    },
};
use object::{
    LittleEndian,
    elf::{EM_X86_64, ET_EXEC, FileHeader64, PF_X, PT_INTERP, PT_LOAD},
    read::elf::{FileHeader, ProgramHeader},
};

/// Most bytes of a command line, without the zero at its end.
pub const COMMAND_LINE_MAX: usize = 511;

/// Why a file cannot be loaded into a cell.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It is no ELF file, or a damaged one.
    #[error("it is not an ELF file for x86-64, or it is damaged")]
    NotElf,
    /// It is relocatable, shared or dynamically linked.
    #[error("it is not statically linked at fixed addresses")]
    NotStatic,
    /// It has nothing to load.
    #[error("it contains nothing to load")]
    Empty,
    /// It lies below the addresses that images are loaded at.
    #[error("it is linked at {0:#x}, but images begin at {IMAGE_ADDRESS:#x}")]
    TooLow(u64),
    /// It is larger than the private memory.
    #[error("it needs {needed} bytes of private memory, the cell has {private}")]
    TooLarge {
        /// Bytes up to the image's end.
        needed: u64,
        /// Bytes of private memory.
        private: u64,
    },
    /// The entry address is in no executable segment.
    #[error("its entry address {0:#x} is not part of its code")]
    Entry(u64),
    /// The command line is too long.
    #[error("the command line has {0} bytes, but at most {COMMAND_LINE_MAX} are possible")]
    CommandLine(usize),
}

/// What a cell is made of, as its boot information tells it.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize, PartialEq, Eq)]
pub struct CellFacts {
    /// Linux's numbers of its CPUs, ascending.
    pub cpus: Vec<u32>,
    /// Their APIC ids.
    pub apic_ids: Vec<u32>,
    /// Bytes of private memory.
    pub private_size: u64,
    /// Bytes of the pool.
    pub shared_size: u64,
    /// Vector of its doorbell.
    pub doorbell_vector: u32,
    /// Ticks of the time stamp counter per millisecond.
    pub tsc_khz: u32,
    /// Whether it has the block for the remote path, or shared with Linux.
    pub has_channel: bool,
    /// Which peer it is of each link.
    #[serde(default)]
    pub links: u32,
}

/// Bytes that have to lie at an address of the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Address in the cell.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// All that has to be loaded.
#[derive(Clone, Debug)]
pub struct Loadable {
    /// Where the cell starts.
    pub entry: u64,
    /// Pieces, in no particular order, which do not overlap.
    pub pieces: Vec<Piece>,
}

/// Lays out `elf` for a cell.
pub fn layout(elf: &[u8], facts: &CellFacts, command_line: &str) -> Result<Loadable, LoadError> {
    let header = FileHeader64::<LittleEndian>::parse(elf).map_err(|_| LoadError::NotElf)?;
    let endian = header.endian().map_err(|_| LoadError::NotElf)?;
    if header.e_machine(endian) != EM_X86_64 {
        return Err(LoadError::NotElf);
    }
    let segments = header.program_headers(endian, elf).map_err(|_| LoadError::NotElf)?;
    let dynamic = segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP);
    if header.e_type(endian) != ET_EXEC || dynamic {
        return Err(LoadError::NotStatic);
    }

    let entry = header.e_entry(endian);
    let (mut pieces, mut end, mut entry_found) = (Vec::new(), 0, false);
    let loaded = |segment: &&_| {
        ProgramHeader::p_type(*segment, endian) == PT_LOAD
            && ProgramHeader::p_memsz(*segment, endian) != 0
    };
    for segment in segments.iter().filter(loaded) {
        let (address, size) = (segment.p_paddr(endian), segment.p_memsz(endian));
        let content = segment.data(endian, elf).map_err(|()| LoadError::NotElf)?;
        if content.len() as u64 > size {
            return Err(LoadError::NotElf);
        }
        if address < IMAGE_ADDRESS {
            return Err(LoadError::TooLow(address));
        }
        let private = facts.private_size.min(MAX_PRIVATE);
        let needed = address.saturating_add(size);
        if needed > private {
            return Err(LoadError::TooLarge { needed, private });
        }
        end = end.max(needed);
        entry_found |= segment.p_flags(endian) & PF_X != 0
            && (0..size).contains(&entry.wrapping_sub(segment.p_vaddr(endian)));
        // The zeros behind the content are part of it: a cell that starts again has used its
        // memory.
        let mut bytes = content.to_vec();
        bytes.resize(size as usize, 0);
        pieces.push(Piece { address, bytes });
    }
    if pieces.is_empty() {
        return Err(LoadError::Empty);
    }
    if !entry_found {
        return Err(LoadError::Entry(entry));
    }

    let image_end = end.next_multiple_of(PAGE_SIZE);
    pieces.push(boot_info(facts, image_end, command_line)?);
    pieces.push(Piece { address: INITIAL_TABLES, bytes: initial_tables() });
    Ok(Loadable { entry, pieces })
}

/// Makes the boot information at its address.
fn boot_info(facts: &CellFacts, image_end: u64, command_line: &str) -> Result<Piece, LoadError> {
    if command_line.len() > COMMAND_LINE_MAX {
        return Err(LoadError::CommandLine(command_line.len()));
    }
    let count = facts.cpus.len().min(MAX_CELL_CPUS);
    let mut info = crate::view::Builder::new(size_of::<BootInfo>());
    info.u64(offset_of!(BootInfo, magic), BOOT_MAGIC)
        .u32(offset_of!(BootInfo, abi_version), ABI_VERSION)
        .u32(offset_of!(BootInfo, cpu_count), count as u32)
        .u64(offset_of!(BootInfo, private_size), facts.private_size)
        .u64(offset_of!(BootInfo, shared_size), facts.shared_size)
        .u64(offset_of!(BootInfo, image_end), image_end)
        .u32(offset_of!(BootInfo, tsc_khz), facts.tsc_khz)
        .u32(offset_of!(BootInfo, doorbell_vector), facts.doorbell_vector)
        .u32(offset_of!(BootInfo, has_channel), facts.has_channel.into())
        .u32(offset_of!(BootInfo, links), facts.links)
        .bytes(offset_of!(BootInfo, command_line), command_line.as_bytes());
    for (index, (cpu, apic_id)) in facts.cpus.iter().zip(&facts.apic_ids).take(count).enumerate() {
        info.u32(offset_of!(BootInfo, linux_cpus) + 4 * index, *cpu)
            .u32(offset_of!(BootInfo, apic_ids) + 4 * index, *apic_id);
    }
    Ok(Piece { address: BOOT_INFO_ADDRESS, bytes: info.finish() })
}

/// Page table entry: present, writable (AMD APM vol. 2, 5.3.3).
const TABLE: u64 = 0b11;
/// Page table entry: present, writable, accessed, dirty, a page of 2 MiB.
const LARGE_PAGE: u64 = 0b1110_0011;

/// Makes the initial page tables: the first 4 GiB at 0 and at [`DIRECT_MAP`], the first 2 GiB at
/// [`KERNEL_BASE`].
///
/// Tables in order: PML4, the PDPT of the first two ranges, the PDPT of the third, four PDs with 1
/// GiB each.
fn initial_tables() -> Vec<u8> {
    const ENTRIES: u64 = 512;
    let address = |table: u64| INITIAL_TABLES + table * PAGE_SIZE;
    let pml4_index = |address: u64| address >> 39 & 0x1ff;
    let pdpt_index = |address: u64| address >> 30 & 0x1ff;

    let mut tables = crate::view::Builder::new(INITIAL_TABLES_SIZE as usize);
    let mut put = |table: u64, index: u64, entry: u64| {
        tables.u64((table * PAGE_SIZE + index * 8) as usize, entry);
    };
    put(0, 0, address(1) | TABLE);
    put(0, pml4_index(DIRECT_MAP), address(1) | TABLE);
    put(0, pml4_index(KERNEL_BASE), address(2) | TABLE);
    for gib in 0..4 {
        put(1, gib, address(3 + gib) | TABLE);
    }
    for gib in 0..2 {
        put(2, pdpt_index(KERNEL_BASE) + gib, address(3 + gib) | TABLE);
    }
    for gib in 0..4 {
        for index in 0..ENTRIES {
            put(3 + gib, index, ((gib * ENTRIES + index) * LARGE_PAGE_SIZE) | LARGE_PAGE);
        }
    }
    tables.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Builder, View};
    use proptest::prelude::*;

    /// Walks the tables as the processor does; `None` where nothing is mapped.
    fn walk(tables: &[u8], virtual_address: u64) -> Option<u64> {
        let mut table = INITIAL_TABLES;
        for shift in [39, 30, 21] {
            let index = virtual_address >> shift & 0x1ff;
            let entry = View(tables).u64((table - INITIAL_TABLES + index * 8) as usize);
            if entry & 1 == 0 {
                return None;
            }
            assert_eq!(entry & 2, 2, "writable");
            assert_eq!(entry >> 63, 0, "executable");
            if entry & 0x80 != 0 {
                assert_eq!(shift, 21);
                return Some((entry & 0x000f_ffff_ffe0_0000) + virtual_address % LARGE_PAGE_SIZE);
            }
            table = entry & 0x000f_ffff_ffff_f000;
        }
        None
    }

    /// An ELF file with one segment: virtual and physical address, content, size in memory.
    fn elf(virt: u64, phys: u64, content: &[u8], memory: u64, entry: u64) -> Vec<u8> {
        let mut file = Builder::new(64 + 56 + content.len());
        file.bytes(0, b"\x7fELF\x02\x01\x01")
            .bytes(16, &[2, 0, 62, 0, 1])
            .u64(24, entry)
            .u64(32, 64)
            .bytes(52, &[64, 0, 56, 0, 1, 0, 64, 0])
            .u32(64, 1)
            .u32(68, 5)
            .u64(72, 120)
            .u64(80, virt)
            .u64(88, phys)
            .u64(96, content.len() as u64)
            .u64(104, memory)
            .u64(112, 4096)
            .bytes(120, content);
        file.finish()
    }

    fn facts() -> CellFacts {
        CellFacts {
            cpus: vec![2, 3],
            apic_ids: vec![4, 6],
            private_size: 32 << 20,
            shared_size: 64 << 20,
            doorbell_vector: 0xc0,
            tsc_khz: 2_400_000,
            has_channel: true,
            links: 0x20,
        }
    }

    proptest! {
        #[test]
        fn tables_map_the_first_gibibytes_three_times(address in 0u64..1 << 32) {
            let tables = initial_tables();
            prop_assert_eq!(walk(&tables, address), Some(address));
            prop_assert_eq!(walk(&tables, DIRECT_MAP + address), Some(address));
            prop_assert_eq!(walk(&tables, KERNEL_BASE + address / 2), Some(address / 2));
        }

        #[test]
        fn tables_map_nothing_else(address in (1u64 << 32)..(1 << 47)) {
            prop_assume!(DIRECT_MAP | address < KERNEL_BASE);
            let tables = initial_tables();
            prop_assert_eq!(walk(&tables, address), None);
            prop_assert_eq!(walk(&tables, DIRECT_MAP | address), None);
        }

        #[test]
        fn damaged_files_are_refused_or_loaded_within_bounds(at in 0usize..120, byte: u8) {
            let mut file = elf(IMAGE_ADDRESS, IMAGE_ADDRESS, &[0x90; 100], 8192, IMAGE_ADDRESS);
            file[at] = byte;
            if let Ok(loadable) = layout(&file, &facts(), "") {
                for piece in loadable.pieces {
                    prop_assert!(piece.address + piece.bytes.len() as u64 <= facts().private_size);
                }
            }
        }
    }

    #[test]
    fn an_image_lies_at_its_physical_address_with_zeros_behind() {
        let base = KERNEL_BASE + IMAGE_ADDRESS;
        let file = elf(base, IMAGE_ADDRESS, b"code", 10_000, base + 2);
        let loadable = layout(&file, &facts(), "quiet").unwrap();
        assert_eq!(loadable.entry, base + 2);
        let image = &loadable.pieces[0];
        assert_eq!(image.address, IMAGE_ADDRESS);
        assert_eq!(image.bytes.len(), 10_000);
        assert!(image.bytes.starts_with(b"code\0\0"));
        let at = |address| loadable.pieces.iter().find(|piece| piece.address == address).unwrap();
        assert_eq!(walk(&at(INITIAL_TABLES).bytes, loadable.entry), Some(IMAGE_ADDRESS + 2));

        let info = View(&at(BOOT_INFO_ADDRESS).bytes);
        assert_eq!(info.0.len(), size_of::<BootInfo>());
        assert_eq!(info.u64(offset_of!(BootInfo, magic)), BOOT_MAGIC);
        assert_eq!(info.u32(offset_of!(BootInfo, cpu_count)), 2);
        assert_eq!(info.u64(offset_of!(BootInfo, image_end)), IMAGE_ADDRESS + 12288);
        assert_eq!(info.u32(offset_of!(BootInfo, apic_ids) + 4), 6);
        assert_eq!(info.u32(offset_of!(BootInfo, linux_cpus) + 4), 3);
        assert_eq!(info.bytes(offset_of!(BootInfo, command_line), 6), b"quiet\0");
    }

    #[test]
    fn refusals_say_why() {
        let error = |file: &[u8]| layout(file, &facts(), "").unwrap_err();
        let low = IMAGE_ADDRESS - 4096;
        assert_eq!(error(b"#!/bin/sh"), LoadError::NotElf);
        assert_eq!(error(&elf(low, low, b"x", 1, low)), LoadError::TooLow(low));
        assert_eq!(
            error(&elf(IMAGE_ADDRESS, IMAGE_ADDRESS, b"x", 1 << 30, IMAGE_ADDRESS)),
            LoadError::TooLarge { needed: IMAGE_ADDRESS + (1 << 30), private: 32 << 20 }
        );
        assert_eq!(error(&elf(IMAGE_ADDRESS, IMAGE_ADDRESS, b"x", 1, 5)), LoadError::Entry(5));
        let mut other = elf(IMAGE_ADDRESS, IMAGE_ADDRESS, b"x", 1, IMAGE_ADDRESS);
        other[16] = 3;
        assert_eq!(error(&other), LoadError::NotStatic);
        other[18] = 183;
        assert_eq!(error(&other), LoadError::NotElf);
        let file = elf(IMAGE_ADDRESS, IMAGE_ADDRESS, b"x", 1, IMAGE_ADDRESS);
        let long = "x".repeat(600);
        assert_eq!(layout(&file, &facts(), &long).unwrap_err(), LoadError::CommandLine(600));
    }
}
