// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI configuration space. Under the lock of [`crate::ownership`], as each write to the ports'
//! address register is.

use core::arch::asm;

use crtos_abi::PAGE_SIZE;
use crtos_partition::address::PhysAddr;
use crtos_partition::configuration::{
    ADDRESS, DATA, ENABLE, FUNCTION_SHIFT, Touched, capability, messages,
};
use crtos_partition::resets::Access;
use x86_64::instructions::port::Port;

use crate::{direct_map, launch_info};

/// Tells whether Linux may not do that while an IOMMU is taken over: a write to ports that touches
/// a register which is listed.
pub(crate) fn is_kept(access: &Access) -> bool {
    let listed = || launch_info::configurations();
    if listed().next().is_none() {
        return false;
    }
    let touched = Touched::by_ports(address(), access);
    touched.is_some_and(|touched| listed().any(|registers| touched.meets(&registers)))
}

/// What the address register is.
fn address() -> u32 {
    // SAFETY: Reading it has no effect.
    unsafe { Port::<u32>::new(ADDRESS).read() }
}

/// Carries out a store of Linux to the page of a function that has registers which are listed;
/// false if it is lost: it touches one, and they are `kept`. `address` is a multiple of `size`.
pub(crate) fn store(address: PhysAddr, size: u8, value: u64, kept: bool) -> bool {
    let page = address.align_down(PAGE_SIZE);
    let is_page = launch_info::configuration_pages().any(|one| one == page);
    let offset = address.get().wrapping_sub(launch_info::get().mmconfig);
    let Some(touched) = Touched::by_memory(offset, size.into()) else { return false };
    let is_kept = kept && launch_info::configurations().any(|one| touched.meets(&one));
    if !is_page || is_kept || page >= direct_map::END || !address.is_aligned(size.into()) {
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
    let Some(place) = capability(messages::ID, |register| read(function, register)) else {
        set_address(before);
        return false;
    };
    let header = read(function, place);
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

/// Reads four bytes, and leaves the address there.
fn read(function: u16, register: u8) -> u32 {
    set_address(ENABLE | u32::from(function) << FUNCTION_SHIFT | u32::from(register & !3));
    // SAFETY: Reading has no effect: only capabilities of an IOMMU are read.
    unsafe { Port::new(*DATA.start()).read() }
}
