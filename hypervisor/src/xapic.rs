// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's writes to the local APIC's page, on machines where it runs in xAPIC mode. The page is read-only in the
//! nested tables; each write exits and is carried out here, commands through the filter.

use core::sync::atomic::Ordering;

use crtos_partition::decode::{self, Operation};
use crtos_partition::icr::Command;

use crate::apic::{self, COMMAND, COMMAND_HIGH, DESTINATION_FORMAT, ID, LOGICAL_DESTINATION};
use crate::arch::VirtualCpu;
use crate::local::Local;
use crate::{guest, interrupts};

/// Carries out the write at which Linux was left; false if the instruction is not understood.
pub fn write(local: &mut Local, address: u64) -> bool {
    let (bytes, length) = guest::instruction(local);
    let Some(store) = decode::store(&bytes[..length], local.vcpu.registers()) else { return false };
    let number = (address & 0xfff) as u32 / 16;
    let apic = apic::get();
    let value = match store.operation {
        Operation::Write(value) => value,
        Operation::Exchange(register) => {
            let old = apic.read(number);
            let register = &mut local.vcpu.registers()[usize::from(register)];
            let value = *register as u32;
            *register = old.into();
            value
        }
        Operation::Or(value) => apic.read(number) | value,
        Operation::And(value) => apic.read(number) & value,
    };
    match number {
        COMMAND => {
            let high = apic.read(COMMAND_HIGH);
            interrupts::root_command(local, Command::from_xapic(high, value));
        }
        LOGICAL_DESTINATION => local.cpu().logical.store(value, Ordering::Relaxed),
        DESTINATION_FORMAT => local.cpu().format.store(value, Ordering::Relaxed),
        _ => (),
    }
    // By its id the hypervisor calls the CPU.
    if number != COMMAND && number != ID {
        apic.write(number, value);
    }
    local.vcpu.skip(store.length.into());
    true
}
