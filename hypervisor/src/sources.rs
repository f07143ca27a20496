// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's writes to sources of interrupts: the I/O APICs and the high-precision event timers.
//! Their pages are read-only in the nested tables; each write exits and is carried out here. What
//! would interrupt a CPU of a cell raises nothing.

use crtos_machine::arch::VirtualCpu;
use crtos_machine::io_apic;
use crtos_machine::local::Local;
use crtos_machine::ownership::{self, Ownership};
use crtos_partition::address::GuestAddr;
use crtos_partition::decode::Operation;

use crate::{guest, interrupts};

/// Carries out the write at which Linux was left; false if the instruction is not understood.
pub fn write(local: &mut Local, address: GuestAddr) -> bool {
    let Some(store) = guest::store(local) else { return false };
    if !address.is_aligned(4) {
        return false;
    }
    // Nobody has a use for others here.
    let Operation::Write(value) = store.operation else { return false };
    write_word(local, address, value as u32);
    if store.long {
        write_word(local, address + 4, (value >> 32) as u32);
    }
    local.vcpu().skip(store.length.into());
    true
}

fn write_word(local: &mut Local, address: GuestAddr, value: u32) {
    let mut ownership = ownership::lock(local);
    if io_apic::is_one(address) {
        let refused = ownership.write_io_apic(address, value, interrupts::may_raise);
        drop(ownership);
        if let Some(entry) = refused {
            guest::complain(local, format_args!("entry of an I/O APIC refused: {:#x}", entry.0));
        }
    } else {
        let refused = ownership.hpets.write(address, value, interrupts::may_send);
        drop(ownership);
        if let Some(message) = refused {
            guest::complain(local, format_args!("message of a timer refused: {message:x?}"));
        }
    }
}

/// Has no source interrupt a CPU of a cell. Returns how many pins and comparators did.
pub fn silence(ownership: &mut Ownership) -> usize {
    ownership.mask_io_apics(interrupts::may_raise) + ownership.hpets.silence(interrupts::may_send)
}
