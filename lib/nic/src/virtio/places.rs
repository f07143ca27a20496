// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a function has its structures of registers: its capabilities tell (4.1.4). All have to be
//! in the memory of one base address register.

use virtio_spec::pci::CapCfgType;

use super::{Common, DEVICE_END};

/// Where in configuration space the base address registers are, and the first capability is told.
const BASES: u64 = 0x10;
const BASE_COUNT: u8 = 6;
const FIRST: u64 = 0x34;
/// Of a base address register: it tells of I/O ports.
const IS_PORTS: u32 = 1;
/// The id of a capability that is the vendor's.
const VENDORS: u8 = 0x09;
/// As many capabilities as there is room for.
const MOST_CAPABILITIES: usize = 48;
/// More of a memory is not reached.
const MOST_BYTES: u32 = 0x1_0000;

/// Where the structures are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// The base address register that tells of their memory.
    pub base: u32,
    /// Bytes from the beginning of that up to behind the last of them.
    pub length: u64,
    /// Where in it the common configuration is.
    pub common: u32,
    /// That of a network device.
    pub device: u32,
    /// Where the device is notified of queues.
    notify: Structure,
    /// Bytes between the places for two queues.
    multiplier: u32,
}

/// A structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Structure {
    base: u8,
    offset: u32,
    end: u32,
}

impl Places {
    /// Finds them by `read`, which reads four bytes of configuration space. Bounded, whatever is
    /// read. `None` if one is missing, or is not where it can be reached.
    pub fn find(read: impl Fn(u64) -> u32) -> Option<Self> {
        let (mut common, mut notify, mut device) = (None, None, None);
        let mut at = read(FIRST) & 0xfc;
        for _ in 0..MOST_CAPABILITIES {
            if at == 0 {
                break;
            }
            let word = |index: u32| read(u64::from(at + 4 * index));
            let [id, next, length, kind] = word(0).to_le_bytes();
            let structure = |least: u32| {
                let (base, offset, length) = (word(1) as u8, word(2), word(3));
                let end = offset.checked_add(length.min(MOST_BYTES))?;
                let is_memory =
                    base < BASE_COUNT && read(BASES + 4 * u64::from(base)) & IS_PORTS == 0;
                let fits = length >= least && end <= MOST_BYTES && offset.is_multiple_of(4);
                (is_memory && fits).then_some(Structure { base, offset, end })
            };
            // Of several the first is preferred that can be reached.
            match CapCfgType::from(kind) {
                _ if id != VENDORS || length < 16 => {}
                CapCfgType::Common => common = common.or_else(|| structure(Common::END)),
                CapCfgType::Device => device = device.or_else(|| structure(DEVICE_END)),
                CapCfgType::Notify if length >= 20 => {
                    notify = notify.or_else(|| Some((structure(2)?, word(4))));
                }
                _ => {}
            }
            at = u32::from(next & 0xfc);
        }
        let (common, (notify, multiplier), device) = (common?, notify?, device?);
        let end = common.end.max(notify.end).max(device.end);
        (common.base == notify.base && common.base == device.base).then_some(Self {
            base: common.base.into(),
            length: end.into(),
            common: common.offset,
            device: device.offset,
            notify,
            multiplier,
        })
    }

    /// Where the device is notified of a queue that has `number` for that.
    pub fn bell(&self, number: u32) -> Option<u32> {
        let offset = number.checked_mul(self.multiplier)?.checked_add(self.notify.offset)?;
        (offset.is_multiple_of(2) && offset.checked_add(2)? <= self.notify.end).then_some(offset)
    }
}
