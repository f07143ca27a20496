// SPDX-License-Identifier: MIT OR Apache-2.0
//! I/O ports of a device.

use core::ops::RangeInclusive;

use x86_64::instructions::port::Port;

/// The I/O ports of a device, which the realm has exclusively. There is such a value only for ports
/// that root has named as those of a device of the realm.
pub struct IoPorts {
    range: RangeInclusive<u16>,
}

impl IoPorts {
    pub(super) const fn new(range: RangeInclusive<u16>) -> Self {
        Self { range }
    }

    /// The first port.
    pub fn first(&self) -> u16 {
        *self.range.start()
    }

    fn at(&self, offset: u8) -> Option<u16> {
        let port = self.range.start().checked_add(offset.into())?;
        self.range.contains(&port).then_some(port)
    }

    /// Reads a byte from the port at `offset`; all ones if that is no port of the device. Any
    /// context. On a bus as slow as a PC's oldest one, it takes about a microsecond.
    pub fn read(&self, offset: u8) -> u8 {
        let Some(port) = self.at(offset) else { return 0xff };
        // SAFETY: root gave the realm this port as one of a device that masters no bus, so no
        // memory changes by it. The hypervisor stops a cell that uses a port that it does not have.
        unsafe { Port::new(port).read() }
    }

    /// Writes a byte to the port at `offset`, as [`read`](Self::read).
    pub fn write(&self, offset: u8, value: u8) {
        let Some(port) = self.at(offset) else { return };
        // SAFETY: no memory changes by a port of a device that masters no bus, which is what root
        // gave the realm here.
        unsafe { Port::new(port).write(value) }
    }
}
