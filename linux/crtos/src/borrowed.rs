// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices of Linux that it has given up for the realm, of all kinds.

use crtos_abi::cell::PortRange;

use crate::{
    driven,
    failure::Result,
    net::{self, Net},
    port_ranges,
};

/// Devices that Linux has given up. It gets them back when this is dropped, unless they are kept.
pub struct Borrowed(bool);

impl Borrowed {
    /// Notes what Linux gives up: `ports` with the memory, `nets` and what is [`driven`] later.
    pub fn take(nets: &[Net], ports: &[PortRange]) -> Result<Self> {
        let borrowed = Self(true);
        port_ranges::take(ports)?;
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
    driven::give_back();
    net::give_back();
    port_ranges::give_back();
}
