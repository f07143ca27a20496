// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers that call a function.

use super::SpawnError;
use super::scheduler;
use crate::arch::percpu;
use crate::time::Nanos;
use alloc::boxed::Box;
use alloc::sync::Arc;

/// Most timers.
pub const MAX_TIMERS: usize = 2048;

/// What happens when a timer fires.
pub(super) struct Expiry {
    pub expired: Box<dyn Fn() + Send + Sync>,
}

/// A one-shot timer of the CPU that made it. Dropping it cancels it.
pub struct Timer {
    cpu: u32,
    id: u16,
}

impl Timer {
    /// A timer that calls `expired` in interrupt context (interrupts off: bounded, no sleeping, no
    /// allocation; it may wake threads and arm timers, also its own). Allocates; thread context.
    pub fn new(expired: Box<dyn Fn() + Send + Sync>) -> Result<Self, SpawnError> {
        if !crate::mm::heap::has_reserve() {
            return Err(SpawnError);
        }
        let expiry = Arc::new(Expiry { expired });
        let id = scheduler::add_expiry(expiry).ok_or(SpawnError)?;
        Ok(Self { cpu: percpu::this().index, id })
    }

    /// Fires at `deadline` (kernel time) instead of whatever was set before. Any context.
    pub fn arm(&self, deadline: Nanos) {
        scheduler::set_expiry(self.cpu, self.id, Some(deadline));
    }

    /// Fires no more; says whether it was armed. When it returns, `expired` does not run. Any
    /// context.
    pub fn cancel(&self) -> bool {
        scheduler::set_expiry(self.cpu, self.id, None)
    }

    /// When it will fire.
    pub fn deadline(&self) -> Option<Nanos> {
        scheduler::expiry_deadline(self.cpu, self.id)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        drop(scheduler::remove_expiry(self.cpu, self.id));
    }
}
