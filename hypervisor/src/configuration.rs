// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's stores to PCI configuration space, where that is memory. The pages of functions of which
//! some registers are not Linux's are read-only in the nested tables; each store exits, and is
//! carried out here or lost.

use crtos_machine::arch::VirtualCpu;
use crtos_machine::local::Local;
use crtos_machine::{launch_info, ownership};
use crtos_partition::address::{GuestAddr, PhysAddr};

use crate::guest;

/// Tells whether `page` is one of those pages.
pub fn is_kept(local: &mut Local, page: u64) -> bool {
    launch_info::is_configuration(PhysAddr::new(page))
        && ownership::lock(local).keeps_configuration(page)
}

/// Carries out the store at which Linux was left; false if the instruction is not understood.
pub fn write(local: &mut Local, address: GuestAddr) -> bool {
    let Some(write) = guest::write(local) else { return false };
    if !address.is_aligned(write.size.into()) {
        return false;
    }
    let is_done = ownership::lock(local).write_configuration(address, write.size, write.value);
    if !is_done {
        complain(local);
    }
    local.vcpu().skip(write.length.into());
    true
}

/// Logs that a write is lost.
pub fn complain(local: &mut Local) {
    guest::complain(
        local,
        format_args!("write to configuration space refused that is not Linux's"),
    );
}
