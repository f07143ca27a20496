// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices of Linux that it has given up for the realm, of all kinds.

use crtos_abi::cell::PortRange;

use crate::{
    can::{self, Can},
    failure::Result,
    machine::Machine,
    net::{self, Net},
    port_ranges,
    uart::{self, Uart},
};

/// Devices that Linux has given up. It gets them back when this is dropped, unless they are kept.
pub struct Borrowed(bool);

impl Borrowed {
    /// Has Linux give up `uarts` and `cans`, and learns on which lines the latter interrupt. `nets`
    /// it gives up later, and `ports` with the memory.
    pub fn take(
        machine: &Machine,
        uarts: &[Uart],
        cans: &mut [Can],
        nets: &[Net],
        ports: &[PortRange],
    ) -> Result<Self> {
        let borrowed = Self(true);
        port_ranges::take(ports)?;
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
    port_ranges::give_back();
}
