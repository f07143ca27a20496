// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux has given up for the realm beside CPUs and memory from anywhere: devices of all
//! kinds, and pages of its pool.

use crtos_abi::cell::PortRange;

use crate::{
    driven,
    failure::Result,
    huge_pages,
    machine::Machine,
    net::{self, Net},
    port_ranges,
    size::Size,
};

/// What Linux has given up. It gets that back when this is dropped, unless it is kept.
pub struct Borrowed(bool);

impl Borrowed {
    /// Takes `pooled` memory out of the pool of huge pages, and notes what Linux gives up further:
    /// `ports` with the memory, `nets` and what is [`driven`] later.
    pub fn take(
        machine: &Machine,
        pooled: Option<Size>,
        nets: &[Net],
        ports: &[PortRange],
    ) -> Result<Self> {
        let borrowed = Self(true);
        pooled.map_or(Ok(()), |memory| huge_pages::take(machine, memory))?;
        port_ranges::take(ports)?;
        net::take(nets)?;
        Ok(borrowed)
    }

    /// Leaves it with the realm.
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

/// Gives Linux back what was taken from it, whichever command took it. No cell may have any of it
/// any more.
pub fn give_back() {
    driven::give_back();
    net::give_back();
    port_ranges::give_back();
    huge_pages::give_back();
}
