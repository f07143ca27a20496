// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transceiver of a card for copper (IEEE 802.3, clause 22), which Linux's driver switches off
//! when it leaves.

use super::becomes;
use crate::card::Registers;

/// The register by which it is reached: the data, the number of its register, its own number,
/// whether that is written or read, that this is done, and that it failed.
pub const ACCESS: u32 = 0x0020;
pub(super) const REGISTER: u32 = 16;
const OWN: u32 = 1 << 21;
pub(super) const WRITE: u32 = 1 << 26;
pub(super) const READ: u32 = 1 << 27;
pub(super) const DONE: u32 = 1 << 28;
const FAILED: u32 = 1 << 30;

/// Registers of its own: control and status.
pub(super) const CONTROL: u32 = 0;
pub(super) const STATUS: u32 = 1;
/// [`CONTROL`]: it finds its speed; it is off; it is apart from the card; it finds its speed again.
pub(super) const FIND_SPEED: u16 = 1 << 12;
pub(super) const OFF: u16 = 1 << 11;
const APART: u16 = 1 << 10;
pub(super) const FIND_AGAIN: u16 = 1 << 9;
/// [`STATUS`]: it has found its speed.
pub(super) const HAS_FOUND: u16 = 1 << 5;

/// Switches it on, and has it find its speed if it has not. The link comes some seconds later, at
/// most. `None` if it does not answer, which takes ten milliseconds.
pub fn wake(registers: &impl Registers) -> Option<()> {
    let control = access(registers, READ | CONTROL << REGISTER)?;
    let status = access(registers, READ | STATUS << REGISTER)?;
    if control & (OFF | APART) != 0 || control & FIND_SPEED == 0 || status & HAS_FOUND == 0 {
        let control = control & !(OFF | APART) | FIND_SPEED | FIND_AGAIN;
        access(registers, WRITE | CONTROL << REGISTER | u32::from(control))?;
    }
    Some(())
}

fn access(registers: &impl Registers, what: u32) -> Option<u16> {
    registers.write(ACCESS, what | OWN);
    becomes(registers, ACCESS, DONE, DONE)?;
    let answer = registers.read(ACCESS);
    (answer & FAILED == 0).then_some(answer as u16)
}
