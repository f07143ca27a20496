// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI configuration space. Under the lock of [`crate::ownership`], as each write to the ports'
//! address register is.

use core::arch::asm;

use crtos_abi::PAGE_SIZE;
use crtos_abi::image::Configuration;
use crtos_partition::address::PhysAddr;
use crtos_partition::configuration::*;
use crtos_partition::resets::Access;
use x86_64::instructions::port::Port;

use crate::{direct_map, launch_info};

/// Tells whether Linux may not do that: a write to ports that touches one of the registers that are
/// `kept`.
pub(crate) fn is_kept<I>(access: &Access, kept: impl Fn() -> I) -> bool
where
    I: Iterator<Item = Configuration>,
{
    if kept().next().is_none() {
        return false;
    }
    let touched = Touched::by_ports(address(), access);
    touched.is_some_and(|touched| kept().any(|registers| touched.meets(&registers)))
}

/// What the address register is.
fn address() -> u32 {
    // SAFETY: Reading it has no effect.
    unsafe { Port::<u32>::new(ADDRESS).read() }
}

/// Carries out a store of Linux to the page of a function; false if it is lost: it touches one of
/// the registers that are `kept`. `address` is a multiple of `size`.
pub(crate) fn store<I>(address: PhysAddr, size: u8, value: u64, kept: impl Fn() -> I) -> bool
where
    I: Iterator<Item = Configuration>,
{
    let page = address.align_down(PAGE_SIZE);
    let Some(first) = launch_info::configuration_memory() else { return false };
    let offset = address.get().wrapping_sub(first.get());
    let Some(touched) = Touched::by_memory(offset, size.into()) else { return false };
    let is_kept = kept().any(|one| touched.meets(&one));
    if is_kept || page >= direct_map::END || !address.is_aligned(size.into()) {
        return false;
    }
    let place = direct_map::pointer::<u8>(address);
    // SAFETY: Configuration space, in which no Rust object lives; Linux may do that by itself where
    // the store does not exit. Old processors want it from RAX (AMD BKDG family 10h, 2.11).
    unsafe {
        match size {
            1 => asm!("mov [{}], al", in(reg) place, in("al") value as u8, options(nostack)),
            2 => asm!("mov [{}], ax", in(reg) place, in("ax") value as u16, options(nostack)),
            4 => asm!("mov [{}], eax", in(reg) place, in("eax") value as u32, options(nostack)),
            _ => asm!("mov [{}], rax", in(reg) place, in("rax") value, options(nostack)),
        }
    }
    true
}

/// Has a function send messages or not; tells whether it did. Nothing happens if it cannot.
pub(crate) fn set_messages(function: u16, on: bool) -> bool {
    let before = address();
    let Some(place) = capability(messages::ID, |register| select_and_read(function, register))
    else {
        set_address(before);
        return false;
    };
    let header = select_and_read(function, place);
    let wanted = if on { header | messages::ENABLE } else { header & !messages::ENABLE };
    if wanted != header {
        // SAFETY: What follows is an interrupt that Linux has set up, or none.
        unsafe { Port::new(*DATA.start()).write(wanted) };
    }
    set_address(before);
    header & messages::ENABLE != 0
}

fn set_address(address: u32) {
    // SAFETY: Who uses it next writes it, or finds it as it was.
    unsafe { Port::new(ADDRESS).write(address) };
}

/// Reads four bytes of a function that is a cell's, or is to be.
pub(crate) fn read(function: u16, register: u8) -> u32 {
    let before = address();
    let value = select_and_read(function, register);
    set_address(before);
    value
}

/// Writes four bytes of a function that is a cell's.
pub(crate) fn write(function: u16, register: u8, value: u32) {
    let before = address();
    select(function, register);
    // SAFETY: An IOMMU confines what the function does.
    unsafe { Port::new(*DATA.start()).write(value) };
    set_address(before);
}

fn select(function: u16, register: u8) {
    set_address(ENABLE | u32::from(function) << FUNCTION_SHIFT | u32::from(register & !3));
}

/// Reads four bytes, and leaves the address there.
fn select_and_read(function: u16, register: u8) -> u32 {
    select(function, register);
    // SAFETY: Reading has no effect, or one on the function alone, which is a cell's.
    unsafe { Port::new(*DATA.start()).read() }
}
