// SPDX-License-Identifier: MIT OR Apache-2.0
//! An Intel 82576 (data sheet 320961; chapter 8 for its registers), with advanced descriptors
//! (7.1.5 and 7.2.2) and extended interrupts (7.3). Its virtual functions are not used.

use super::{
    COLLISIONS, FILL_UP, LINK_UP, PAUSES, RECEIVE_BROADCAST, RECEIVE_ON, STRIP_CHECKSUM,
    TRANSMIT_ON, becomes, change, phy,
    register::{CONTROL, EXTENDED_CONTROL, FLOW, RECEIVE, STATUS, TRANSMIT},
    rings::{self, Format, Ring},
};
use crate::{
    HardwareAddress,
    card::{About, Kind, Memory, Place, Registers},
    reception::Filter,
};

/// Registers of its own.
pub mod register {
    use super::Ring;

    /// Causes of interrupts that are no rings; reading clears them ([`MODE`]).
    pub const CAUSES: u32 = 0x1500;
    /// For which of these it interrupts: bits that are written are set.
    pub const LET: u32 = 0x1508;
    /// The same: bits that are written are cleared.
    pub const MASK: u32 = 0x150c;
    /// How it interrupts.
    pub const MODE: u32 = 0x1514;
    /// For which messages it interrupts: bits that are written are set.
    pub const LET_MESSAGES: u32 = 0x1524;
    /// The same: bits that are written are cleared.
    pub const MASK_MESSAGES: u32 = 0x1528;
    /// Messages that are pending no more when they are sent.
    pub const AUTO_CLEAR: u32 = 0x152c;
    /// Messages that are pending; a bit that is written is cleared.
    pub const PENDING: u32 = 0x1580;
    /// Least time between two messages; the first of 25.
    pub const THROTTLE: u32 = 0x1680;
    /// Which messages the first rings have.
    pub const RING_MESSAGES: u32 = 0x1700;
    /// Which messages other causes have.
    pub const OTHER_MESSAGES: u32 = 0x1740;
    /// The first receive ring.
    pub const RECEIVE_RING: Ring = Ring(0xc000);
    /// Its buffers, and the kind of its descriptors.
    pub const BUFFERS: u32 = 0xc00c;
    /// The first transmit ring.
    pub const TRANSMIT_RING: Ring = Ring(0xe000);
    /// Bytes up to behind the last of them.
    pub const END: u64 = 0x1_0000;
}

/// [`CONTROL`]: it masters the bus no more; speed and duplex are forced.
const NO_MASTER: u32 = 1 << 2;
const FORCED: u32 = 3 << 11;
/// [`STATUS`]: it masters the bus.
const IS_MASTER: u32 = 1 << 19;
/// [`EXTENDED_CONTROL`]: a driver has the card.
const HAS_DRIVER: u32 = 1 << 28;
/// [`register::CAUSES`]: the link has changed.
const LINK_CHANGED: u32 = 1 << 2;
/// [`register::MODE`]: reading causes clears all of them; a message for each ring; letting a
/// message interrupt clears that it waits in the table.
const READING_CLEARS: u32 = 1;
const MANY_MESSAGES: u32 = 1 << 4;
const CLEAR_WAITING: u32 = 1 << 31;
/// The first message, which is the only one.
pub(super) const FIRST: u32 = 1;
/// [`register::RING_MESSAGES`]: the receive ring has the first message, the transmit ring none.
pub(super) const RECEIVED_BY_FIRST: u32 = 0x80;
/// [`register::OTHER_MESSAGES`]: other causes have it as well.
const OTHERS_BY_FIRST: u32 = 0x80 << 8;
/// [`register::BUFFERS`]: 2 KiB; advanced descriptors with one buffer each.
pub(super) const ONE_BUFFER: u32 = 2 | 1 << 25;
/// [`Ring::control`]: the ring is on. Descriptors are fetched as Linux has them fetched with this
/// card, and written back one by one.
pub(super) const RING_ON: u32 = 1 << 25;
const FETCH_RECEIVE: u32 = 8 | 8 << 8 | 1 << 16;
const FETCH_TRANSMIT: u32 = 8 | 1 << 8 | 1 << 16;

/// The second word of a receive descriptor: it is done; it holds the end of a frame; errors of the
/// receiver; where the length is.
pub(super) const RECEIVED: u64 = 1;
pub(super) const END_OF_FRAME: u64 = 1 << 1;
const ERRORS: u64 = 0b1001_0111 << 24;
pub(super) const LENGTH: u32 = 32;
/// The second word of a transmit descriptor: where the length of the whole frame is.
pub(super) const WHOLE_LENGTH: u32 = 46;

/// Advanced descriptors.
#[derive(Debug)]
pub struct Advanced;

impl Format for Advanced {
    const RECEIVE: Ring = register::RECEIVE_RING;
    const TRANSMIT: Ring = register::TRANSMIT_RING;
    const RECEIVED: u64 = RECEIVED;

    fn length(word: u64) -> Option<usize> {
        let is_sound = word & END_OF_FRAME != 0 && word & ERRORS == 0;
        is_sound.then_some(usize::from((word >> LENGTH) as u16))
    }

    /// Data, of an advanced descriptor; the end of a frame; it gets a checksum; the card says when
    /// it is done.
    fn command(length: usize) -> u64 {
        const COMMAND: u64 = 3 << 20 | 1 << 24 | 1 << 25 | 1 << 27 | 1 << 29;
        length as u64 | COMMAND | (length as u64) << WHOLE_LENGTH
    }
}

/// An 82576.
#[derive(Debug)]
pub struct Igb;

impl Kind for Igb {
    const ABOUT: About = About { name: "82576", driver: "igb", ids: &[(0x8086, 0x10c9)] };
    const MEMORY: u64 = rings::MEMORY;
    type Receiver = rings::Receiver<Advanced>;
    type Transmitter = rings::Transmitter<Advanced>;

    fn find(_: impl Fn(u64) -> u32) -> Option<Self> {
        Some(Self)
    }

    fn place(&self) -> Place {
        Place { base: 0, length: register::END }
    }

    fn reset(&self, registers: &impl Registers) {
        registers.write(register::MASK_MESSAGES, u32::MAX);
        registers.write(register::MASK, u32::MAX);
        // What it has begun to move is moved before (5.2.3.3).
        change(registers, CONTROL, 0, NO_MASTER);
        becomes(registers, STATUS, IS_MASTER, 0);
        super::reset(registers);
    }

    fn is_reset(&self, registers: &impl Registers) -> bool {
        super::is_reset(registers)
    }

    fn start(
        &self,
        registers: &impl Registers,
        memory: &impl Memory,
        base: u64,
        own: HardwareAddress,
    ) -> Result<(Self::Receiver, Self::Transmitter), &'static str> {
        use register::*;
        let change = |register, off: u32, on: u32| change(registers, register, off, on);
        registers.write(MASK_MESSAGES, u32::MAX);
        registers.write(MASK, u32::MAX);
        registers.write(MODE, READING_CLEARS | MANY_MESSAGES | CLEAR_WAITING);
        registers.write(AUTO_CLEAR, FIRST);
        registers.write(THROTTLE, 0);
        registers.write(RING_MESSAGES, RECEIVED_BY_FIRST);
        registers.write(OTHER_MESSAGES, OTHERS_BY_FIRST);
        self.take_causes(registers);
        registers.write(LET, LINK_CHANGED);
        change(CONTROL, PAUSES | FORCED | NO_MASTER, LINK_UP);
        FLOW.into_iter().for_each(|register| registers.write(register, 0));
        change(EXTENDED_CONTROL, 0, HAS_DRIVER);
        phy::wake(registers).ok_or("its transceiver does not answer")?;
        let (receive, transmit) = (RECEIVE_RING.control(), TRANSMIT_RING.control());
        for ring in [receive, transmit] {
            registers.write(ring, 0);
            becomes(registers, ring, RING_ON, 0).ok_or("its rings do not stop")?;
        }
        let parts = rings::set_up::<Advanced>(registers, memory, base);
        registers.write(BUFFERS, ONE_BUFFER);
        super::set_filter(registers, &Filter::default(), own);
        registers.write(receive, FETCH_RECEIVE | RING_ON);
        registers.write(transmit, FETCH_TRANSMIT | RING_ON);
        for ring in [receive, transmit] {
            becomes(registers, ring, RING_ON, RING_ON).ok_or("its rings do not start")?;
        }
        change(TRANSMIT, COLLISIONS, TRANSMIT_ON | FILL_UP | COLLISIONS);
        change(RECEIVE, 0, RECEIVE_ON | RECEIVE_BROADCAST | STRIP_CHECKSUM);
        rings::fill::<Advanced>(registers);
        Ok(parts)
    }

    fn let_interrupt(
        &self,
        registers: &impl Registers,
        _: &impl Memory,
        _: &Self::Receiver,
    ) -> bool {
        registers.write(register::LET_MESSAGES, FIRST);
        false
    }

    fn mask(&self, registers: &impl Registers, _: &impl Memory) {
        registers.write(register::MASK_MESSAGES, u32::MAX);
    }

    fn take_causes(&self, registers: &impl Registers) {
        registers.read(register::CAUSES);
        registers.write(register::PENDING, FIRST);
    }

    fn has_link(&self, registers: &impl Registers) -> bool {
        super::has_link(registers)
    }

    fn set_filter(
        &self,
        registers: &impl Registers,
        _: &impl Memory,
        filter: &Filter,
        own: HardwareAddress,
    ) {
        super::set_filter(registers, filter, own);
    }
}
