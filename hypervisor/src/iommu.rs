// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's accesses to the registers of IOMMUs. Each exits and is carried out here.

use crtos_machine::arch::VirtualCpu;
use crtos_machine::local::Local;
use crtos_machine::ownership;
use crtos_partition::address::GuestAddr;
use crtos_partition::decode::Operation;

use crate::guest;
use crate::interrupts::OfCells;

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
    let words = match store.operation {
        Operation::Write(value) if address.is_aligned(4) => [Some(value), None],
        Operation::WriteLong(value) if address.is_aligned(8) => {
            [Some(value as u32), Some((value >> 32) as u32)]
        }
        _ => return None,
    };
    let mut ownership = ownership::lock(local);
    let (mut again, mut refused) = (false, false);
    for (offset, word) in [0, 4].into_iter().zip(words) {
        let Some(word) = word else { continue };
        let written = ownership.write_iommu(address + offset, word, &OfCells);
        again |= written.again;
        refused |= written.refused;
    }
    drop(ownership);
    if refused {
        guest::complain(local, format_args!("interrupt of a device refused by the IOMMU"));
    }
    Some((!again).then_some(store.length))
}

fn load(local: &mut Local, address: GuestAddr) -> Option<Option<u8>> {
    let load = guest::load(local)?;
    if !address.is_aligned(if load.long { 8 } else { 4 }) {
        return None;
    }
    let mut ownership = ownership::lock(local);
    let mut value = u64::from(ownership.read_iommu(address));
    if load.long {
        value |= u64::from(ownership.read_iommu(address + 4)) << 32;
    }
    drop(ownership);
    local.vcpu().registers()[usize::from(load.register)] = value;
    Some(Some(load.length))
}
