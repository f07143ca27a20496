// SPDX-License-Identifier: MIT OR Apache-2.0
//! The banks of machine checks of the CPU that executes this.

use core::arch::x86_64::__cpuid;

use crtos_partition::grants::Banks;
use crtos_registers::machine_check::{self, Status};
use crtos_registers::{cpuid, msr};

use super::msr::read_for_guest as read;

fn is_scalable() -> bool {
    __cpuid(cpuid::EXTENDED).eax >= cpuid::RELIABILITY
        && __cpuid(cpuid::RELIABILITY).ebx & 1 << cpuid::EBX_SCALABLE_MACHINE_CHECK != 0
}

/// Which banks there are; `None` if there are none. All CPUs have the same.
pub fn banks() -> Option<Banks> {
    let count = read(msr::MACHINE_CHECK_CAPABILITIES)
        .filter(|_| __cpuid(cpuid::FEATURES).edx & 1 << cpuid::EDX_MACHINE_CHECK != 0)?;
    let count = (count as u32 & 0xff).min(machine_check::MAX_BANKS);
    let identity = |bank| read(machine_check::identity(bank)).unwrap_or_default();
    Some(Banks { count, own: machine_check::own_banks(is_scalable(), count, identity) })
}

/// What is wrong, as one bank tells.
pub(crate) struct Report {
    pub bank: u32,
    pub status: Status,
    pub address: u64,
}

/// What the banks tell. The CPU is in host mode.
pub(crate) fn reports() -> impl Iterator<Item = Report> {
    let value = |register| read(register).unwrap_or_default();
    (0..banks().map_or(0, |banks| banks.count))
        .map(move |bank| Report {
            bank,
            status: Status(value(machine_check::status(bank))),
            address: value(machine_check::address(bank)),
        })
        .filter(|report| report.status.is_valid())
}

/// Their status as a whole.
pub(crate) fn global_status() -> u64 {
    read(msr::MACHINE_CHECK_STATUS).unwrap_or_default()
}
