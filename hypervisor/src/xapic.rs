// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's writes to the local APIC's page, on machines where it runs in xAPIC mode. The page is
//! read-only in the nested tables; each write exits and is carried out here, commands through the
//! filter.

use core::sync::atomic::Ordering;

use crtos_machine::apic;
use crtos_machine::arch::VirtualCpu;
use crtos_machine::local::Local;
use crtos_partition::address::GuestAddr;
use crtos_partition::icr::Command;
use crtos_registers::apic::Register;

use crate::{guest, interrupts};

/// Carries out the write at which Linux was left; false if the instruction is not understood.
pub fn write(local: &mut Local, address: GuestAddr) -> bool {
    let Some(store) = guest::store(local) else { return false };
    let register = Register::from_offset(address.offset_in(4096));
    let apic = apic::get();
    if store.long {
        return false;
    }
    let old = if store.reads() { apic.read(register) } else { 0 };
    let value = guest::carry_out(local, &store, old.into()) as u32;
    match register {
        Register::COMMAND => {
            let high = apic.read(Register::COMMAND_HIGH);
            interrupts::root_command(local, Command::from_xapic(high, value));
        }
        Register::LOGICAL_DESTINATION => local.cpu().logical.store(value, Ordering::Relaxed),
        Register::DESTINATION_FORMAT => local.cpu().format.store(value, Ordering::Relaxed),
        _ => (),
    }
    // By its id the hypervisor calls the CPU.
    if register != Register::COMMAND && register != Register::ID {
        apic.write(register, value);
    }
    local.vcpu().skip(store.length.into());
    true
}
