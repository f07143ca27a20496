// SPDX-License-Identifier: MIT OR Apache-2.0
//! What sockets of CAN may have together, because interrupts pay for it: each frame that comes is
//! compared with all that is wanted, and each cyclic frame takes a timer.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::abi::Errno;

/// Filters, and jobs that receive with the frames that tell changes, of all sockets.
pub static COMPARED: Budget = Budget(AtomicU32::new(1024));
/// Frames that jobs send in a second. A bus of 1 Mbit/s has not time for more.
pub static CYCLIC: Budget = Budget(AtomicU32::new(20_000));

/// How much is left.
pub struct Budget(AtomicU32);

/// What somebody has of a budget. Dropping it gives that back.
pub struct Share {
    budget: &'static Budget,
    amount: u32,
}

impl Share {
    /// Nothing.
    pub const fn of(budget: &'static Budget) -> Self {
        Self { budget, amount: 0 }
    }

    /// Has `amount` of it from now on; ENOMEM if others leave not so much, and then as much as
    /// before. Any context.
    pub fn change(&mut self, amount: u32) -> Result<(), Errno> {
        let own = self.amount;
        let rest = |left: u32| (left + own).checked_sub(amount);
        let changed = self.budget.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        changed.map_err(|_| Errno::ENOMEM)?;
        self.amount = amount;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.amount, Ordering::Relaxed);
    }
}
