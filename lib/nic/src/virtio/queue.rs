// SPDX-License-Identifier: MIT OR Apache-2.0
//! A split virtqueue (2.7): descriptors, the ring of those that the device may use, and the ring of
//! those that it has used.
//!
//! Memory is reached in words of 8 bytes. So the rings begin where each part of them that is read
//! or written at once is in a word of its own: the flags of the one, its index with the entries
//! behind it; each entry of the other. The flags are written in interrupts, while somebody else
//! writes the index.
//!
//! The device may be hostile: of its ring the index and an entry are read once. An entry that names
//! no descriptor that the device has is [`Bad`]. So an index that jumps is entries that are bad,
//! and what takes them is bounded by whoever asks.

use core::sync::atomic::{Ordering, fence};

use virtio_spec::virtq::{AvailF, DescF, UsedF};

use crate::card::Memory;

/// Most descriptors of a queue, a power of two.
pub const MOST: u16 = 256;

/// Bytes of a descriptor.
const DESCRIPTOR: u64 = 16;
/// The word whose last two bytes are the flags of the ring for the device.
const OFFERED_FLAGS: u64 = MOST as u64 * DESCRIPTOR;
/// The ring for the device: it begins with these flags.
const OFFERED: u64 = OFFERED_FLAGS + 6;
/// The word that begins with its index.
const OFFERED_INDEX: u64 = OFFERED + 2;
/// Its entries of 2 bytes.
const OFFERED_ENTRIES: u64 = OFFERED + 4;
/// The word whose last four bytes are flags and index of the device's ring.
const USED_INDEX: u64 = (OFFERED_ENTRIES + 2 * MOST as u64 + 2).next_multiple_of(8);
/// The device's ring: it begins there.
const USED: u64 = USED_INDEX + 4;
/// Its entries of 8 bytes.
const USED_ENTRIES: u64 = USED + 4;
/// Bytes of a queue, whole pages.
pub const BYTES: u64 = (USED_ENTRIES + 8 * MOST as u64 + 2).next_multiple_of(4096);

/// Where in memory a queue is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At(pub u64);

impl At {
    /// Where its descriptors, the ring for the device, and the device's ring begin.
    pub fn parts(self) -> [u64; 3] {
        [self.0, self.0 + OFFERED, self.0 + USED]
    }

    /// Asks the device to interrupt when it has used a descriptor, or not to. What it has used when
    /// this returns, it may not interrupt for: whoever has it interrupt looks then. Any context.
    pub fn let_interrupt(self, memory: &impl Memory, on: bool) {
        let flags = if on { AvailF::empty() } else { AvailF::NO_INTERRUPT };
        memory.store(self.0 + OFFERED_FLAGS, u64::from(flags.bits().to_ne()) << 48);
        // Pairs with the device's, between its index and the look at the flags.
        fence(Ordering::SeqCst);
    }
}

/// A descriptor that the device has used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Its number.
    pub first: u16,
    /// How many bytes the device says that it has written.
    pub length: u32,
}

/// An entry of the device's ring that names nothing that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bad;

/// The driver's half of a queue.
#[derive(Debug)]
pub struct Queue {
    at: At,
    size: u16,
    /// Index behind the last entry for the device.
    offered: u16,
    /// Index behind the last entry of the device's that was taken.
    taken: u16,
    /// Which descriptors the device has.
    has: [u64; MOST as usize / 64],
}

impl Queue {
    /// A queue with nothing in it, in memory that is cleared. The size is a power of two, and
    /// [`MOST`] at most. It does not interrupt so far.
    pub fn new(memory: &impl Memory, at: At, size: u16) -> Self {
        assert!(size.is_power_of_two() && size <= MOST);
        at.let_interrupt(memory, false);
        Self { at, size, offered: 0, taken: 0, has: [0; MOST as usize / 64] }
    }

    /// How many descriptors it has.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Writes a descriptor: where the device finds the bytes, how many, what it may do with them,
    /// and which descriptor follows.
    pub fn describe(
        &self,
        memory: &impl Memory,
        number: u16,
        (address, length): (u64, u32),
        flags: DescF,
        next: u16,
    ) {
        let at = self.at.0 + u64::from(number % self.size) * DESCRIPTOR;
        let flags = u64::from(flags.bits().to_ne());
        memory.store(at, address);
        memory.store(at + 8, u64::from(length) | flags << 32 | u64::from(next) << 48);
    }

    /// Which bit of which word of `has` stands for a descriptor.
    fn bit(number: u16) -> (usize, u64) {
        (usize::from(number / 64), 1 << (number % 64))
    }

    /// Gives the device a descriptor, and those that follow it. The device does not have it.
    pub fn offer(&mut self, memory: &impl Memory, first: u16) {
        let (word, bit) = Self::bit(first);
        self.has[word] |= bit;
        let entry = self.at.0 + OFFERED_ENTRIES + 2 * u64::from(self.offered % self.size);
        memory.write(entry, &first.to_le_bytes());
        self.offered = self.offered.wrapping_add(1);
        let at = self.at.0 + OFFERED_INDEX;
        // The entries behind the index are the driver's as well.
        memory.store(at, memory.load(at) & !0xffff | u64::from(self.offered));
    }

    /// Whether the device asks to be notified of what it was given. Behind the last
    /// [`offer`](Self::offer).
    pub fn wants_notice(&self, memory: &impl Memory) -> bool {
        // Pairs with the device's, between its flags and the look at the index.
        fence(Ordering::SeqCst);
        let flags = (memory.load(self.at.0 + USED_INDEX) >> 32) as u16;
        flags & UsedF::NO_NOTIFY.bits().to_ne() == 0
    }

    /// Whether the device has used one that was not taken back.
    pub fn has_more(&self, memory: &impl Memory) -> bool {
        (memory.load(self.at.0 + USED_INDEX) >> 48) as u16 != self.taken
    }

    /// Takes back the next one that the device has used. Some accesses to memory.
    pub fn take(&mut self, memory: &impl Memory) -> Option<Result<Done, Bad>> {
        if !self.has_more(memory) {
            return None;
        }
        let entry = self.at.0 + USED_ENTRIES + 8 * u64::from(self.taken % self.size);
        let entry = memory.load(entry);
        self.taken = self.taken.wrapping_add(1);
        let number = u16::try_from(entry & 0xffff_ffff).ok().filter(|&first| first < self.size);
        let Some(first) = number else { return Some(Err(Bad)) };
        let (word, bit) = Self::bit(first);
        if self.has[word] & bit == 0 {
            return Some(Err(Bad));
        }
        self.has[word] &= !bit;
        Some(Ok(Done { first, length: (entry >> 32) as u32 }))
    }
}
