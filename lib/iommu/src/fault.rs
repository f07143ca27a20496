// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of devices that a unit has refused.

use crate::{Requester, bit, field};

/// A request of a device that a unit has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which device.
    pub device: Requester,
    /// The page that it wanted. With VT-d also the number of its interrupt, in the upper 16 bits.
    pub page: u64,
    /// It wanted to read.
    pub read: bool,
    /// Why not: VT-d's reason, or the flags of AMD-Vi's event.
    pub reason: u16,
}

impl Fault {
    /// From a record (VT-d 11.4.7.6); `None` if there is no fault in it.
    pub fn of_vtd_record(low: u64, high: u64) -> Option<Self> {
        bit(high, 63).then_some(Self {
            device: Requester(high as u16),
            page: low & !0xfff,
            read: bit(high, 62),
            reason: field(high, 32, 8) as u16,
        })
    }

    /// From an entry of the event log (IOMMU 2.5.3); `None` if it tells of no page fault.
    pub fn of_amd_event(low: u64, high: u64) -> Option<Self> {
        const PAGE_FAULT: u64 = 2;
        (low >> 60 == PAGE_FAULT).then_some(Self {
            device: Requester(low as u16),
            page: high & !0xfff,
            read: !bit(low, 53),
            reason: field(low, 48, 12) as u16,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_that_of_a_device() {
        let record = (0x12_3456_7000, 1 << 63 | 1 << 62 | 6 << 32 | 0x48);
        let fault = Fault { device: Requester(0x48), page: record.0, read: true, reason: 6 };
        assert_eq!(Fault::of_vtd_record(record.0, record.1), Some(fault));
        assert_eq!(Fault::of_vtd_record(record.0, record.1 & !(1 << 63)), None);
    }

    #[test]
    fn events_of_amd() {
        let device = Requester(0x50);
        let fault = Fault { device, page: 0x1234_5000, read: false, reason: 0x28 };
        assert_eq!(Fault::of_amd_event(0x2028_0000_0000_0050, 0x1234_5678), Some(fault));
        assert_eq!(Fault::of_amd_event(0x5028_0000_0000_0050, 0), None);
    }
}
