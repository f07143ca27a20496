// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading through Linux's page tables, to find out which instruction did what; the faults that
//! Linux gets to see; what the log tells of it.

use core::fmt::Arguments;

use crtos_abi::PAGE_SIZE;
use crtos_machine::arch::{Event, Paging, VirtualCpu};
use crtos_machine::direct_map::read_word;
use crtos_machine::local::Local;
use crtos_machine::{launch_info, processor, report};
use crtos_partition::address::{GuestAddr, PhysAddr};
use crtos_partition::decode::{self, Load, MAX_LENGTH, Registers, Store, Write};
use x86_64::registers::control::Cr4Flags;

const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Where Linux sees what it names by the linear address `linear` (APM vol. 2, 5.3): RAM or a
/// device; `None` if it is not mapped. Permissions are not looked at: the processor did that.
fn translate(paging: Paging, linear: u64) -> Option<GuestAddr> {
    if !paging.long || Cr4Flags::from_bits_truncate(paging.cr4).contains(Cr4Flags::L5_PAGING) {
        return None;
    }
    let mut table = paging.cr3 & ADDRESS;
    for shift in [39, 30, 21, 12] {
        let entry = read_root(GuestAddr::new(table + (linear >> shift & 511) * 8))?;
        if entry & PRESENT == 0 {
            return None;
        }
        if shift == 12 || shift < 39 && entry & LARGE != 0 {
            let mask = (1 << shift) - 1;
            return Some(GuestAddr::new(entry & ADDRESS & !mask | linear & mask));
        }
        table = entry & ADDRESS;
    }
    None
}

/// Reads the word in which `address` of Linux lies. Whose RAM it is does not matter: the value only
/// tells how to report a fault.
fn read_root(address: GuestAddr) -> Option<u64> {
    read_word(PhysAddr::of_root(address))
}

/// The instruction at which Linux was left, as far as it can be read, and how far that is.
fn instruction(local: &mut Local) -> ([u8; MAX_LENGTH], usize) {
    let (paging, rip) = (local.vcpu().paging(), local.vcpu().rip());
    let (mut bytes, mut length) = ([0; MAX_LENGTH], 0);
    let mut page = None;
    while length < MAX_LENGTH {
        let linear = rip.wrapping_add(length as u64);
        if linear % PAGE_SIZE == 0 || page.is_none() {
            page = translate(paging, linear).map(|address| address.align_down(PAGE_SIZE));
        }
        // Each word once.
        let word = page.and_then(|page| read_root(page + linear % PAGE_SIZE));
        let Some(word) = word.map(u64::to_le_bytes) else { break };
        let read = &word[(linear % 8) as usize..];
        let count = read.len().min(MAX_LENGTH - length);
        bytes[length..length + count].copy_from_slice(&read[..count]);
        length += count;
    }
    (bytes, length)
}

/// Most bytes that an instruction other than string instructions touches at once.
const OPERAND: u64 = 64;

/// Lets Linux have a fault for an access to memory that it does not have.
///
/// The kernel gets a page fault at the address that it used, which it handles as any bad pointer:
/// `copy_from_kernel_nofault` and its like fail, anything else is reported with its address. A
/// program gets a general-protection fault, that is SIGSEGV: the kernel would take a page fault for
/// one that it has solved already, for ever.
pub fn reflect_fault(local: &mut Local, touched: GuestAddr, write: bool) {
    let event = match linear_address(local, touched) {
        Some(address) if local.vcpu().privilege() == 0 => Event::PageFault { address, write },
        _ => Event::GeneralProtection,
    };
    local.vcpu().inject(event);
}

/// The linear address by which the instruction touched the page of `touched`.
fn linear_address(local: &mut Local, touched: GuestAddr) -> Option<u64> {
    let (bytes, length) = instruction(local);
    let (paging, rip) = (local.vcpu().paging(), local.vcpu().rip());
    let bases = local.vcpu().segment_bases();
    let registers: Registers = *local.vcpu().registers();
    let same_page = |linear: u64| {
        translate(paging, linear)
            .is_some_and(|address| address.align_down(PAGE_SIZE) == touched.align_down(PAGE_SIZE))
    };
    decode::candidates(&bytes[..length], rip, &registers, bases).into_iter().flatten().find_map(
        |first| {
            let last = first.wrapping_add(OPERAND - 1);
            if same_page(first) { Some(first) } else { same_page(last).then_some(last & !0xfff) }
        },
    )
}

/// The store at which Linux was left; `None` if it is not understood.
pub fn store(local: &mut Local) -> Option<Store> {
    let (bytes, length) = instruction(local);
    decode::store(&bytes[..length], local.vcpu().registers())
}

/// The store of a value at which Linux was left, of any size; `None` if it is not understood.
pub fn write(local: &mut Local) -> Option<Write> {
    let (bytes, length) = instruction(local);
    decode::write(&bytes[..length], local.vcpu().registers())
}

/// The store at which Linux was left, which may be one of several that an instruction makes; `None`
/// if it is not understood.
pub fn store_or_fill(local: &mut Local) -> Option<Store> {
    let (bytes, length) = instruction(local);
    let (bytes, registers) = (&bytes[..length], local.vcpu().registers());
    decode::store(bytes, registers).or_else(|| decode::fill(bytes, registers))
}

/// Returns what a store makes of its operand, which was `old`. Linux gets its registers and flags.
pub fn carry_out(local: &mut Local, store: &Store, old: u64) -> u64 {
    let vcpu = local.vcpu();
    let (value, flags) = store.carry_out(old, vcpu.registers());
    if let Some(flags) = flags {
        vcpu.set_status_flags(flags);
    }
    value
}

/// The load at which Linux was left; `None` if it is not understood.
pub fn load(local: &mut Local) -> Option<Load> {
    let (bytes, length) = instruction(local);
    decode::load(&bytes[..length])
}

/// Logs what Linux did, at most once a second for each CPU.
pub fn complain(local: &mut Local, what: Arguments) {
    let (now, second) = (processor::tsc(), u64::from(launch_info::get().tsc_khz) * 1000);
    if local.last_complaint == 0 || now.wrapping_sub(local.last_complaint) > second {
        local.last_complaint = now;
        report::line(format_args!("cpu{} root: {what}", local.index()));
    }
}
