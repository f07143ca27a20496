// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cards of Intel's, which have most registers in common.
//!
//! | module | concept |
//! |---|---|
//! | [`e1000e`] | the 82574L |
//! | [`igb`] | the 82576 |
//! | [`phy`] | what is between the card and the cable |
//! | [`rings`] | the rings of descriptors, whatever these look like |
//! | `model` | cards that tests play |

pub mod e1000e;
pub mod igb;
#[cfg(feature = "model")]
pub mod model;
pub mod phy;
pub mod rings;

use crate::{
    HardwareAddress,
    card::Registers,
    reception::{Filter, is_group},
};

/// Registers that all have.
pub mod register {
    /// Device control.
    pub const CONTROL: u32 = 0x0000;
    /// Device status.
    pub const STATUS: u32 = 0x0008;
    /// Extended device control.
    pub const EXTENDED_CONTROL: u32 = 0x0018;
    /// Flow control: addresses and type.
    pub const FLOW: [u32; 4] = [0x0028, 0x002c, 0x0030, 0x0170];
    /// Receive control.
    pub const RECEIVE: u32 = 0x0100;
    /// Transmit control.
    pub const TRANSMIT: u32 = 0x0400;
    /// The table of groups: 128 words.
    pub const GROUPS: u32 = 0x5200;
    /// Addresses that it receives: 16 pairs of words.
    pub const ADDRESSES: u32 = 0x5400;
}

/// [`register::CONTROL`]: the link is to come up; it finds its speed; reset. These are to be off:
/// it obeys pauses and sends some.
const LINK_UP: u32 = 1 << 6;
const RESET: u32 = 1 << 26;
const PAUSES: u32 = 3 << 27;
/// [`register::STATUS`]: there is a link.
const HAS_LINK: u32 = 1 << 1;
/// [`register::RECEIVE`]: on; frames for all; without their checksums. Buffers have 2 KiB.
const RECEIVE_ON: u32 = 1 << 1;
const RECEIVE_BROADCAST: u32 = 1 << 15;
const STRIP_CHECKSUM: u32 = 1 << 26;
/// There as well: all frames; those for all groups.
const RECEIVE_ALL: u32 = 1 << 3;
const RECEIVE_GROUPS: u32 = 1 << 4;
/// [`register::TRANSMIT`]: on; short frames are filled up; collisions.
const TRANSMIT_ON: u32 = 1 << 1;
const FILL_UP: u32 = 1 << 3;
const COLLISIONS: u32 = 0x0f << 4 | 0x3f << 12;
/// The high word of an address: it is valid.
const VALID: u32 = 1 << 31;
/// Further addresses of its own that a card knows; with more it receives everything.
const OWN: usize = 15;
/// Words of the table of groups.
const WORDS: usize = 128;

/// Begins to reset a card that interrupts no more.
fn reset(registers: &impl Registers) {
    registers.write(register::RECEIVE, 0);
    registers.write(register::TRANSMIT, 0);
    let control = registers.read(register::CONTROL);
    registers.write(register::CONTROL, control | RESET);
}

/// Whether the reset is done.
fn is_reset(registers: &impl Registers) -> bool {
    registers.read(register::CONTROL) & RESET == 0
}

/// Changes a register: clears the bits `off`, and sets the bits `on`.
fn change(registers: &impl Registers, register: u32, off: u32, on: u32) {
    registers.write(register, registers.read(register) & !off | on);
}

/// How often a register is looked at that is to change within a millisecond: at a microsecond each,
/// ten times as long.
const LOOKS: u32 = 10_000;

/// Waits until the bits `mask` of a register are `value`; `None` if they do not become that.
fn becomes(registers: &impl Registers, register: u32, mask: u32, value: u32) -> Option<()> {
    (0..LOOKS).any(|_| registers.read(register) & mask == value).then_some(())
}

/// Whether its cable leads to somebody.
fn has_link(registers: &impl Registers) -> bool {
    let status = registers.read(register::STATUS);
    // What is not there any more reads as all ones.
    status != u32::MAX && status & HAS_LINK != 0
}

/// Has the card, whose own address is `own`, receive what `filter` says. Some 170 accesses.
fn set_filter(registers: &impl Registers, filter: &Filter, own: HardwareAddress) {
    let mut table = [0u32; WORDS];
    for group in filter.addresses().filter(is_group) {
        let hash = usize::from(group[4] >> 4) | usize::from(group[5]) << 4;
        table[hash >> 5] |= 1 << (hash & 31);
    }
    for (word, at) in table.into_iter().zip((register::GROUPS..).step_by(4)) {
        registers.write(at, word);
    }
    let further = || filter.addresses().filter(|address| !is_group(address));
    let mut own_ones = core::iter::once(own).chain(further().take(OWN));
    for place in 0..=OWN as u32 {
        let at = register::ADDRESSES + 8 * place;
        let [a, b, c, d, e, f] = own_ones.next().map_or([0; 6], |address| address);
        let is_there = [a, b, c, d, e, f] != [0; 6];
        registers.write(at, u32::from_le_bytes([a, b, c, d]));
        let high = u32::from_le_bytes([e, f, 0, 0]);
        registers.write(at + 4, high | if is_there { VALID } else { 0 });
    }
    let all = filter.wants_all() || further().count() > OWN;
    let on = if all { RECEIVE_ALL | RECEIVE_GROUPS } else { 0 };
    let groups = if filter.wants_groups() { RECEIVE_GROUPS } else { 0 };
    change(registers, register::RECEIVE, RECEIVE_ALL | RECEIVE_GROUPS, on | groups);
}
