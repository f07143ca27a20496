// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers that call a function.

use crate::task::SpawnError;
use crate::time::Nanos;
use alloc::boxed::Box;

/// A one-shot timer. Dropping it cancels it.
pub struct Timer {}

impl Timer {
    /// A timer that calls `expired` in interrupt context (interrupts off: bounded, no sleeping, no allocation; it may wake threads
    /// and arm timers, also its own). Allocates.
    pub fn new(_expired: Box<dyn Fn() + Send + Sync>) -> Result<Self, SpawnError> {
        unimplemented!()
    }

    /// Fires at `deadline` (kernel time) instead of whatever was set before.
    pub fn arm(&self, _deadline: Nanos) {
        unimplemented!()
    }

    /// Fires no more. When it returns, `expired` does not run.
    pub fn cancel(&self) -> bool {
        unimplemented!()
    }

    /// When it will fire.
    pub fn deadline(&self) -> Option<Nanos> {
        unimplemented!()
    }
}
