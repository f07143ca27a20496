// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices of Linux that it has given up for the realm, of all kinds.

use crate::{
    can::{self, Can},
    failure::Result,
    machine::Machine,
    net::{self, Net},
    uart::{self, Uart},
};

/// Devices that Linux has given up. It gets them back when this is dropped, unless they are kept.
pub struct Borrowed(bool);

impl Borrowed {
    /// Has Linux give up `uarts` and `cans`, and learns on which lines the latter interrupt. `nets`
    /// it gives up later.
    pub fn take(machine: &Machine, uarts: &[Uart], cans: &mut [Can], nets: &[Net]) -> Result<Self> {
        let borrowed = Self(true);
        uart::take(machine, uarts)?;
        can::take(cans)?;
        net::take(nets)?;
        Ok(borrowed)
    }

    /// Leaves them with the realm.
    pub fn keep(mut self) {
        self.0 = false;
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if self.0 {
            give_back();
        }
    }
}

/// Gives Linux the devices back that were taken from it, whichever command took them. No cell may
/// have them any more.
pub fn give_back() {
    uart::give_back();
    can::give_back();
    net::give_back();
}
