// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's accesses to the registers of IOMMUs, and its stores to tables of which these have
//! copies. Each exits and is carried out here.

use crtos_iommu::fault::Fault;
use crtos_machine::arch::VirtualCpu;
use crtos_machine::local::Local;
use crtos_machine::ownership;
use crtos_partition::address::GuestAddr;
use crtos_partition::decode::{Operation, Store};

use crate::guest;
use crate::interrupts::OfCells;
use crate::linux;

/// Carries out the access at which Linux was left; false if the instruction is not understood.
pub fn access(local: &mut Local, address: GuestAddr, write: bool) -> bool {
    let length = if write { store(local, address) } else { load(local, address) };
    match length {
        Some(Some(length)) => local.vcpu().skip(length.into()),
        // It comes again; interrupts of Linux come in between.
        Some(None) => (),
        None => return false,
    }
    true
}

/// Returns the length of the instruction, or `Some(None)` if it has to be made again.
fn store(local: &mut Local, address: GuestAddr) -> Option<Option<u8>> {
    let store = guest::store(local)?;
    let Operation::Write(value) = store.operation else { return None };
    if !address.is_aligned(if store.long { 8 } else { 4 }) {
        return None;
    }
    let words = [Some(value as u32), store.long.then_some((value >> 32) as u32)];
    let mut ownership = ownership::lock(local);
    // One that does not react changes tables unseen, at the worst.
    let hold = ownership.writes_tables(address, value as u32).then(|| linux::hold(local));
    let (mut again, mut refused, mut fault) = (false, false, None);
    for (offset, word) in [0, 4].into_iter().zip(words) {
        let Some(word) = word else { continue };
        let written = ownership.write_iommu(address + offset, word, &OfCells);
        again |= written.again;
        refused |= written.refused;
        fault = written.fault.or(fault);
    }
    drop((hold, ownership));
    if refused {
        guest::complain(local, format_args!("interrupt of a device refused by the IOMMU"));
    }
    fault.iter().for_each(|fault| tell(local, fault));
    Some((!again).then_some(store.length))
}

/// Tells of a fault of a device.
fn tell(local: &mut Local, fault: &Fault) {
    let Fault { device, page, read, reason } = *fault;
    let what = if read { "read" } else { "write" };
    guest::complain(
        local,
        format_args!("device {device}: {what} at {page:#x} refused, reason {reason:#x}"),
    );
}

fn load(local: &mut Local, address: GuestAddr) -> Option<Option<u8>> {
    let load = guest::load(local)?;
    if !address.is_aligned(if load.long { 8 } else { 4 }) {
        return None;
    }
    let mut ownership = ownership::lock(local);
    let (low, fault) = ownership.read_iommu(address);
    let mut value = u64::from(low);
    if load.long {
        value |= u64::from(ownership.read_iommu(address + 4).0) << 32;
    }
    drop(ownership);
    fault.iter().for_each(|fault| tell(local, fault));
    local.vcpu().registers()[usize::from(load.register)] = value;
    Some(Some(load.length))
}

/// Carries out the write at which Linux was left if it is one to a table by which its devices
/// translate; false if it is not. If the instruction is not understood, Linux makes it itself, and
/// its devices do not have the table until it tells an IOMMU something.
pub fn write_table(local: &mut Local, address: GuestAddr) -> bool {
    let mut ownership = ownership::lock(local);
    let Some(tells_of_tables) = ownership.device_table(address) else { return false };
    let is_aligned = |store: &Store| address.is_aligned(if store.long { 8 } else { 4 });
    let Some(store) = guest::store_or_fill(local).filter(is_aligned) else {
        drop(ownership);
        return give_table_up(local, address, false);
    };
    // As for the registers.
    let hold = tells_of_tables.then(|| linux::hold(local));
    let shift = 8 * address.offset_in(8);
    let mask = if store.long { u64::MAX } else { u64::from(u32::MAX) << shift };
    let registers = *local.vcpu().registers();
    let mut operand = 0;
    let written = ownership.change_device_table(address, |old| {
        operand = old >> shift;
        let (value, _) = store.carry_out(operand, &mut registers.clone());
        old & !mask | value << shift
    });
    drop((hold, ownership));
    guest::carry_out(local, &store, operand);
    if !store.goes_on(local.vcpu().registers()) {
        local.vcpu().skip(store.length.into());
    }
    if written.refused {
        guest::complain(local, format_args!("memory refused that Linux maps for a device"));
    }
    true
}

/// The processor walked through a page table of Linux at `address`. If Linux's devices translate by
/// it as well, they do so no more; false if they do not.
pub fn walk_table(local: &mut Local, address: GuestAddr) -> bool {
    give_table_up(local, address, true)
}

/// Lets Linux write by itself to a table at `address` by which its devices translate; false if they
/// do not, or another CPU did this a moment ago.
fn give_table_up(local: &mut Local, address: GuestAddr, processor: bool) -> bool {
    let is_table = ownership::lock(local).give_device_table_up(address, processor);
    if is_table {
        local.vcpu().flush();
        let rip = local.vcpu().rip();
        let what = match processor {
            true => "a table of the processor is no table of devices",
            false => "cannot decode a write to a table of devices",
        };
        guest::complain(local, format_args!("{what}: address {address:#x} rip {rip:#x}"));
    }
    is_table
}
