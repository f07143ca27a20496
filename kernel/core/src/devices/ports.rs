// SPDX-License-Identifier: MIT OR Apache-2.0
//! I/O ports of a device, and those that programs of the realm may use.

use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crtos_abi::device::{BASE_ADDRESSES, MAX_DEVICES};

use crate::arch::user_memory;
use crate::mm::layout;

/// The I/O ports of a device, which the realm has exclusively. Linux may take them away at any
/// time: from the first access on that finds nothing, all read as ones.
pub struct IoPorts {
    first: u16,
    /// How many; 0 as soon as there was nothing. An access that faults takes longer than many
    /// others.
    count: AtomicU32,
}

impl IoPorts {
    pub(super) fn new(range: RangeInclusive<u16>) -> Self {
        Self { first: *range.start(), count: AtomicU32::new(range.len() as u32) }
    }

    /// The first port.
    pub fn first(&self) -> u16 {
        self.first
    }

    /// The number of the port at `offset`, if that and so many behind it are the device's.
    #[inline(always)]
    fn at(&self, offset: u8, length: usize) -> Option<u16> {
        let end = u32::from(offset) + length as u32;
        // Nothing is left out: the last port of a range is one.
        (end <= self.count.load(Ordering::Relaxed))
            .then(|| self.first.wrapping_add(u16::from(offset)))
    }

    /// Reads as many ports as `value` has, from `offset` on, or writes them; `false` if they are
    /// not all the device's.
    #[inline(always)]
    fn access(&self, offset: u8, value: &mut [u8], write: bool) -> bool {
        let Some(port) = self.at(offset, value.len()) else { return false };
        // SAFETY: root gave the realm these ports as those of a device that masters no bus, so no
        // memory changes by them. The hypervisor looks whether the realm has them.
        let done = unsafe { user_memory::access_ports(port, value, write) };
        if !done {
            self.count.store(0, Ordering::Relaxed);
        }
        done
    }

    /// Reads a byte from the port at `offset`; all ones if that is no port of the device. Any
    /// context. On a bus as slow as a PC's oldest one, it takes about a microsecond.
    #[inline(always)]
    pub fn read(&self, offset: u8) -> u8 {
        let Some(port) = self.at(offset, 1) else { return u8::MAX };
        // SAFETY: root gave the realm these ports as those of a device that masters no bus, so no
        // memory changes by them. The hypervisor looks whether the realm has them.
        unsafe { user_memory::read_port(port, &self.count) }
    }

    /// Writes a byte to the port at `offset`, as [`read`](Self::read).
    #[inline(always)]
    pub fn write(&self, offset: u8, value: u8) {
        let Some(port) = self.at(offset, 1) else { return };
        // SAFETY: root gave the realm these ports as those of a device that masters no bus, so no
        // memory changes by them. The hypervisor looks whether the realm has them.
        unsafe { user_memory::write_port(port, value, &self.count) }
    }

    /// Reads the four ports from `offset` on at once; all ones if they are not all the device's.
    pub fn read_u32(&self, offset: u8) -> u32 {
        let mut value = [0; 4];
        let is_read = self.access(offset, &mut value, false);
        if is_read { u32::from_le_bytes(value) } else { u32::MAX }
    }

    /// Writes the four ports from `offset` on at once.
    pub fn write_u32(&self, offset: u8, value: u32) {
        self.access(offset, &mut value.to_le_bytes(), true);
    }
}

/// The I/O ports that root gave programs of the realm, each range of them: words such as
/// `ports=e9-e9,402-402` of the command line.
pub fn of_programs() -> impl Iterator<Item = RangeInclusive<u16>> {
    let words = layout::boot_info().words().filter_map(|word| word.strip_prefix(b"ports="));
    words.flat_map(|ports| ports.split(|&byte| byte == b',')).filter_map(|range| {
        let (first, last) = core::str::from_utf8(range).ok()?.split_once('-')?;
        let number = |text| u16::from_str_radix(text, 16).ok();
        Some(number(first)?..=number(last)?).filter(|range| !range.is_empty())
    })
}

/// The I/O ports of PCI functions that programs drive, and those that root gave them while the
/// realm ran, of a base address register each: the first and the last port in bits 15..0 and
/// 31..16, the function in 47..32, the register in 55..48, and a bit that there are some.
static OF_FUNCTIONS: [AtomicU64; MAX_DEVICES * BASE_ADDRESSES] =
    [const { AtomicU64::new(0) }; MAX_DEVICES * BASE_ADDRESSES];
const SOME: u64 = 1 << 63;

/// The I/O ports of a base address register of a PCI function, as long as programs drive that.
#[derive(Clone, Copy)]
pub struct FunctionPorts {
    /// Bus, device and function.
    pub function: u16,
    /// The register.
    pub register: u8,
}

impl FunctionPorts {
    /// Programs may use the ports. By the thread alone that has functions come and go.
    pub fn add(&self, ports: &RangeInclusive<u16>) {
        let (first, last) = (u64::from(*ports.start()), u64::from(*ports.end()));
        let word = first | last << 16 | self.tag();
        // All that the realm can have find room.
        if let Some(free) = OF_FUNCTIONS.iter().find(|free| free.load(Ordering::Relaxed) == 0) {
            free.store(word, Ordering::Relaxed);
        }
    }

    /// The bits that tell whose ports they are.
    fn tag(&self) -> u64 {
        u64::from(self.function) << 32 | u64::from(self.register) << 48 | SOME
    }

    fn range(&self) -> Option<RangeInclusive<u16>> {
        let mut words = OF_FUNCTIONS.iter().map(|word| word.load(Ordering::Relaxed));
        words.find(|word| word & !0xffff_ffff == self.tag()).map(range_of)
    }

    /// How many there are; `None` if programs do not drive the function (any more).
    pub fn count(&self) -> Option<u64> {
        self.range().map(|range| range.len() as u64)
    }

    /// Reads 1, 2 or 4 of them from `offset` on, or writes them; `false` if they are not there.
    /// Thread context.
    pub fn access(&self, offset: u64, value: &mut [u8], write: bool) -> bool {
        self.range().is_some_and(|range| access(&range, offset, value, write))
    }
}

fn range_of(word: u64) -> RangeInclusive<u16> {
    word as u16..=(word >> 16) as u16
}

/// The I/O ports of that function or platform device.
pub fn of(function: u16) -> impl Iterator<Item = RangeInclusive<u16>> {
    let values = OF_FUNCTIONS.iter().map(|word| word.load(Ordering::Relaxed));
    let its = move |value: &u64| value & SOME != 0 && (value >> 32) as u16 == function;
    values.filter(its).map(range_of)
}

/// Programs do not drive that function any more. One that was allowed its ports gets a fault there:
/// the hypervisor looks whose they are. By the thread alone that has functions come and go.
pub fn remove_function(function: u16) {
    for word in &OF_FUNCTIONS {
        let value = word.load(Ordering::Relaxed);
        if value & SOME != 0 && (value >> 32) as u16 == function {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// All I/O ports that programs may use: those that root gave them, and those of functions.
pub fn usable() -> impl Iterator<Item = RangeInclusive<u16>> {
    let values = OF_FUNCTIONS.iter().map(|word| word.load(Ordering::Relaxed));
    let of_functions = values.filter(|value| value & SOME != 0);
    of_programs().chain(of_functions.map(range_of))
}

/// Whether programs may use a port.
pub fn is_usable(number: u16) -> bool {
    usable().any(|range| range.contains(&number))
}

/// An I/O port that programs may use ([`usable`]).
pub struct ProgramPort(u16);

impl ProgramPort {
    /// The port with that number, if it is one.
    pub fn new(number: u16) -> Option<Self> {
        is_usable(number).then_some(Self(number))
    }

    /// Reads a byte; `None` if Linux has taken the port away. Any context.
    pub fn read(&self) -> Option<u8> {
        let mut value = [0];
        access(&(self.0..=self.0), 0, &mut value, false).then_some(value[0])
    }

    /// Writes a byte, likewise.
    pub fn write(&self, value: u8) -> Option<()> {
        access(&(self.0..=self.0), 0, &mut [value], true).then_some(())
    }
}

/// Reads 1, 2 or 4 ports of those that programs may use, from `offset` on, or writes them; `false`
/// if they are not there (any more). Any context.
pub(super) fn access(
    ports: &RangeInclusive<u16>,
    offset: u64,
    value: &mut [u8],
    write: bool,
) -> bool {
    let count = value.len() as u64;
    if offset.checked_add(count).is_none_or(|end| end > ports.len() as u64) {
        return false;
    }
    // SAFETY: programs may use the ports by themselves, so the kernel relies on nothing that is
    // changed by them. The hypervisor looks whether the realm has them.
    unsafe { user_memory::access_ports(ports.start() + offset as u16, value, write) }
}
