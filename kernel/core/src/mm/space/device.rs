// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of devices that programs have mapped, when the realm loses the device.

use super::AddressSpace;
use crate::arch::paging::{Scan, Steps};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use crtos_abi::UserAddr;

/// How often devices were withdrawn from a program.
static LOSSES: AtomicU64 = AtomicU64::new(0);

/// How often devices were withdrawn from a program. Any context.
pub(crate) fn losses() -> u64 {
    LOSSES.load(Ordering::SeqCst)
}

impl AddressSpace {
    /// Takes memory of devices out of the tables that the realm does not have any more: whoever
    /// touches it gets [`super::FaultError::Beyond`]. Says whether there was any. Asks the
    /// hypervisor; thread context; may sleep.
    pub fn withdraw_devices(&self) -> bool {
        let changes = self.changes();
        let mut found = false;
        let mut at = UserAddr::NULL;
        while let Some(region) = self.next_region(at) {
            at = region.end;
            let Some((object, _)) = region.object_at(region.start) else { continue };
            if !object.registers().is_some_and(|registers| registers.is_gone()) {
                continue;
            }
            let range = region.start..region.end;
            found |= self.is_any_present(&range);
            // Nothing there is a page of 2 MiB, so this takes no memory, and Linux knows none.
            let _ = self.sweep(range, &mut |pages| self.revoke.revoke(pages));
        }
        if found {
            LOSSES.fetch_add(1, Ordering::SeqCst);
        }
        drop(changes);
        found
    }

    /// Whether programs reach a page in a range.
    fn is_any_present(&self, range: &Range<UserAddr>) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.tables.lock().scan(at..range.end, &mut Steps::of_section()) {
                Scan::Page(..) => return true,
                Scan::Continue(next) => at = next,
            }
        }
        false
    }
}
