// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's writes to the I/O APICs. Their pages are read-only in the nested tables; each write
//! exits and is carried out here. An entry that would interrupt a CPU of a cell raises nothing.

use crtos_machine::arch::VirtualCpu;
use crtos_machine::local::Local;
use crtos_machine::ownership;
use crtos_partition::address::GuestAddr;
use crtos_partition::decode::{self, Operation};

use crate::{guest, interrupts};

/// Carries out the write at which Linux was left; false if the instruction is not understood.
pub fn write(local: &mut Local, address: GuestAddr) -> bool {
    let (bytes, length) = guest::instruction(local);
    let Some(store) = decode::store(&bytes[..length], local.vcpu().registers()) else {
        return false;
    };
    // Nobody has a use for the other ones here.
    let Operation::Write(value) = store.operation else { return false };
    let refused = ownership::lock(local).io_apics.write(address, value, interrupts::is_harmless);
    if let Some(entry) = refused {
        guest::complain(local, format_args!("entry of an I/O APIC refused: {:#x}", entry.0));
    }
    local.vcpu().skip(store.length.into());
    true
}
