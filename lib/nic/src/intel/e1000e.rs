// SPDX-License-Identifier: MIT OR Apache-2.0
//! An Intel 82574L (data sheet 317694, revision 3.4; chapter 10 for its registers), with legacy
//! descriptors.

use super::{
    COLLISIONS, FILL_UP, LINK_UP, PAUSES, RECEIVE_BROADCAST, RECEIVE_ON, STRIP_CHECKSUM,
    TRANSMIT_ON, change,
    register::{CONTROL, EXTENDED_CONTROL, FLOW, RECEIVE, TRANSMIT},
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

    /// Causes of interrupts; a bit that is written is cleared.
    pub const CAUSES: u32 = 0x00c0;
    /// For which causes it interrupts: bits that are written are set.
    pub const LET: u32 = 0x00d0;
    /// The same: bits that are written are cleared.
    pub const MASK: u32 = 0x00d8;
    /// Causes that a message clears.
    pub const AUTO_CLEAR: u32 = 0x00dc;
    /// Which cause has which message.
    pub const MESSAGES: u32 = 0x00e4;
    /// Least time between two messages; the first of five.
    pub const THROTTLE: u32 = 0x00e8;
    /// Gaps between frames.
    pub const GAPS: u32 = 0x0410;
    /// The receive ring.
    pub const RECEIVE_RING: Ring = Ring(0x2800);
    /// The transmit ring.
    pub const TRANSMIT_RING: Ring = Ring(0x3800);
    /// How long interrupts of a ring wait, and how long at most: behind the start of its registers.
    pub const DELAYS: [u32; 2] = [0x20, 0x2c];
    /// Arbitration of the first transmit ring.
    pub const ARBITRATION: u32 = 0x3840;
    /// Receive filter control.
    pub const RECEIVE_FILTER: u32 = 0x5008;
    /// Bytes up to behind the last of them.
    pub const END: u64 = 0x6000;
}

/// [`CONTROL`]: it finds its speed.
const FIND_SPEED: u32 = 1 << 5;
/// [`EXTENDED_CONTROL`]: messages clear what is pending; as Linux sets it for this card.
const CLEAR_PENDING: u32 = 1 << 31;
const FOR_82574: u32 = 1 << 22;
const NOT_FOR_82574: u32 = 1 << 23;
/// [`register::CAUSES`]: the first receive ring, the link, and other causes than rings.
pub(super) const RECEIVED: u32 = 1 << 20;
const LINK_CHANGED: u32 = 1 << 2;
const OTHER: u32 = 1 << 24;
/// For what it interrupts.
const WANTED: u32 = RECEIVED | LINK_CHANGED | OTHER;
/// [`register::MESSAGES`]: the first receive ring, the first transmit ring and the rest have
/// message 0.
const ALL_BY_FIRST: u32 = 0x8 | 0x8 << 8 | 0x8 << 16;
/// [`register::GAPS`] for copper, as Linux sets them.
const COPPER_GAPS: u32 = 8 | 8 << 10 | 6 << 20;
/// [`Ring::control`] of the transmit ring: to be on with this card; descriptors are written back
/// one by one.
const TRANSMIT_RING: u32 = 1 << 22 | 1 << 24 | 1 << 16;
/// [`register::ARBITRATION`]: as Linux sets it for this card.
const NOT_ARBITRATED: u32 = 0xf << 27;
const ARBITRATED: u32 = 1 << 26;
/// [`register::RECEIVE_FILTER`]: a work-around of Linux for interrupts that come without a cause.
const NO_ACKNOWLEDGEMENTS: u32 = 1 << 12;

/// The second word of a receive descriptor: it is done; it holds the end of a frame; errors of the
/// receiver (the checksum of the frame, alignment and the like).
pub(super) const DONE: u64 = 1 << 32;
pub(super) const END_OF_FRAME: u64 = 1 << 33;
const ERRORS: u64 = 0b1001_0111 << 40;

/// Legacy descriptors.
#[derive(Debug)]
pub struct Legacy;

impl Format for Legacy {
    const RECEIVE: Ring = register::RECEIVE_RING;
    const TRANSMIT: Ring = register::TRANSMIT_RING;
    const RECEIVED: u64 = DONE;

    fn length(word: u64) -> Option<usize> {
        let is_sound = word & END_OF_FRAME != 0 && word & ERRORS == 0;
        is_sound.then_some(usize::from(word as u16))
    }

    /// The end of a frame; it gets a checksum; the card says when it is done.
    fn command(length: usize) -> u64 {
        length as u64 | (1 | 2 | 8) << 24
    }
}

/// An 82574L.
#[derive(Debug)]
pub struct E1000e;

impl Kind for E1000e {
    const ABOUT: About = About { name: "82574L", driver: "e1000e", ids: &[(0x8086, 0x10d3)] };
    const MEMORY: u64 = rings::MEMORY;
    type Receiver = rings::Receiver<Legacy>;
    type Transmitter = rings::Transmitter<Legacy>;

    fn find(_: impl Fn(u64) -> u32) -> Option<Self> {
        Some(Self)
    }

    fn place(&self) -> Place {
        Place { base: 0, length: register::END }
    }

    fn reset(&self, registers: &impl Registers) {
        registers.write(register::MASK, u32::MAX);
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
        registers.write(MASK, u32::MAX);
        registers.write(CAUSES, u32::MAX);
        let change = |register, off: u32, on: u32| change(registers, register, off, on);
        change(CONTROL, PAUSES, LINK_UP | FIND_SPEED);
        FLOW.into_iter().for_each(|register| registers.write(register, 0));
        change(EXTENDED_CONTROL, NOT_FOR_82574, FOR_82574 | CLEAR_PENDING);
        change(RECEIVE_FILTER, 0, NO_ACKNOWLEDGEMENTS);
        change(ARBITRATION, NOT_ARBITRATED, ARBITRATED);
        registers.write(MESSAGES, ALL_BY_FIRST);
        registers.write(AUTO_CLEAR, RECEIVED);
        for message in 0..5 {
            registers.write(THROTTLE + 4 * message, 0);
        }
        let parts = rings::set_up::<Legacy>(registers, memory, base);
        for ring in [RECEIVE_RING, register::TRANSMIT_RING] {
            DELAYS.into_iter().for_each(|delay| registers.write(ring.0 + delay, 0));
        }
        change(register::TRANSMIT_RING.control(), 0, self::TRANSMIT_RING);
        registers.write(GAPS, COPPER_GAPS);
        super::set_filter(registers, &Filter::default(), own);
        change(TRANSMIT, COLLISIONS, TRANSMIT_ON | FILL_UP | COLLISIONS);
        change(RECEIVE, 0, RECEIVE_ON | RECEIVE_BROADCAST | STRIP_CHECKSUM);
        rings::fill::<Legacy>(registers);
        Ok(parts)
    }

    fn let_interrupt(
        &self,
        registers: &impl Registers,
        _: &impl Memory,
        _: &Self::Receiver,
    ) -> bool {
        registers.write(register::LET, WANTED);
        false
    }

    fn mask(&self, registers: &impl Registers, _: &impl Memory) {
        registers.write(register::MASK, u32::MAX);
    }

    fn take_causes(&self, registers: &impl Registers) {
        // Which they are is nothing to anybody, and a read would wait for the card.
        registers.write(register::CAUSES, u32::MAX);
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
