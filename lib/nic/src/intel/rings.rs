// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two rings of a card: 256 descriptors of 16 bytes each, and a buffer for each of these. How a
//! descriptor looks and where the card is told of it is the card's [`Format`].

use core::marker::PhantomData;

use crate::card::{BUFFER, Found, Frame, Memory, NoRoom, Receive, Registers, Transmit};

/// How descriptors look.
///
/// The first word of one that is the card's is the address of its buffer. Its second word tells
/// when the card has done with it: by [`RECEIVED`](Self::RECEIVED), and by [`SENT`].
pub trait Format: Send + 'static {
    /// The registers of the receive ring.
    const RECEIVE: Ring;
    /// Those of the transmit ring.
    const TRANSMIT: Ring;
    /// A bit of the second word of a receive descriptor: the card has done with it.
    const RECEIVED: u64;

    /// What the second word of such a one tells: how many bytes a frame has; `None` if it is no
    /// whole and sound one.
    fn length(word: u64) -> Option<usize>;

    /// The second word of a transmit descriptor that is the card's.
    fn command(length: usize) -> u64;
}

/// The registers of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Ring(pub u32);

impl Ring {
    /// The low half of its address; the high one is behind.
    pub const fn address(self) -> u32 {
        self.0
    }
    /// Its bytes.
    pub const fn length(self) -> u32 {
        self.0 + 0x08
    }
    /// The first descriptor that is the card's.
    pub const fn head(self) -> u32 {
        self.0 + 0x10
    }
    /// The first one that is not.
    pub const fn tail(self) -> u32 {
        self.0 + 0x18
    }
    /// How descriptors are fetched and written back.
    pub const fn control(self) -> u32 {
        self.0 + 0x28
    }
}

/// Descriptors of a ring.
pub const DESCRIPTORS: u16 = 256;
/// Bytes of a descriptor, of a ring, and of all its buffers.
const DESCRIPTOR: u64 = 16;
const RING: u64 = DESCRIPTORS as u64 * DESCRIPTOR;
const BUFFERS: u64 = DESCRIPTORS as u64 * BUFFER as u64;
/// Where in the memory the rings and the buffers are.
const RECEIVE_AT: u64 = 0;
const TRANSMIT_AT: u64 = RING;
const RECEIVE_BUFFERS_AT: u64 = 2 * RING;
const TRANSMIT_BUFFERS_AT: u64 = RECEIVE_BUFFERS_AT + BUFFERS;
/// Bytes of the memory.
pub const MEMORY: u64 = TRANSMIT_BUFFERS_AT + BUFFERS;

/// A bit of the second word of a transmit descriptor: the card has done with it.
pub const SENT: u64 = 1 << 32;

fn descriptor(ring: u64, index: u16) -> u64 {
    ring + u64::from(index) * DESCRIPTOR
}

fn buffer(buffers: u64, index: u16) -> u64 {
    buffers + u64::from(index) * BUFFER as u64
}

fn after(index: u16) -> u16 {
    (index + 1) % DESCRIPTORS
}

/// Fills the rings, of a card that finds the memory at `base` and moves nothing so far, and tells
/// it where they are.
pub fn set_up<F: Format>(
    registers: &impl Registers,
    memory: &impl Memory,
    base: u64,
) -> (Receiver<F>, Transmitter<F>) {
    for index in 0..DESCRIPTORS {
        let (receive, transmit) = (descriptor(RECEIVE_AT, index), descriptor(TRANSMIT_AT, index));
        memory.store(receive, base + buffer(RECEIVE_BUFFERS_AT, index));
        memory.store(receive + 8, 0);
        memory.store(transmit, base + buffer(TRANSMIT_BUFFERS_AT, index));
        memory.store(transmit + 8, 0);
    }
    for (ring, at) in [(F::RECEIVE, RECEIVE_AT), (F::TRANSMIT, TRANSMIT_AT)] {
        let address = base + at;
        registers.write(ring.address(), address as u32);
        registers.write(ring.address() + 4, (address >> 32) as u32);
        registers.write(ring.length(), RING as u32);
        registers.write(ring.head(), 0);
        registers.write(ring.tail(), 0);
    }
    let receiver = Receiver { base, next: 0, unsaid: 0, format: PhantomData };
    (receiver, Transmitter { base, next: 0, oldest: 0, under_way: 0, format: PhantomData })
}

/// Gives a card that receives all buffers but one: a full ring would look like an empty one.
pub fn fill<F: Format>(registers: &impl Registers) {
    registers.write(F::RECEIVE.tail(), u32::from(DESCRIPTORS) - 1);
}

/// The receive ring.
#[derive(Debug)]
pub struct Receiver<F> {
    base: u64,
    /// The descriptor that is done next.
    next: u16,
    /// Descriptors that are the card's again, without its knowledge.
    unsaid: u16,
    format: PhantomData<F>,
}

impl<F: Format> Receiver<F> {
    /// How many descriptors the card is told of at once.
    const TELL: u16 = 16;
}

impl<F: Format> Receive for Receiver<F> {
    #[inline(always)]
    fn receive(
        &mut self,
        registers: &impl Registers,
        memory: &impl Memory,
        to: &mut [u8],
    ) -> Option<Found> {
        let at = descriptor(RECEIVE_AT, self.next);
        let word = memory.load(at + 8);
        if word & F::RECEIVED == 0 {
            return None;
        }
        let length = F::length(word).filter(|&length| length <= BUFFER);
        if let Some(length) = length {
            memory.read(buffer(RECEIVE_BUFFERS_AT, self.next), &mut to[..length]);
        }
        memory.store(at, self.base + buffer(RECEIVE_BUFFERS_AT, self.next));
        memory.store(at + 8, 0);
        self.next = after(self.next);
        self.unsaid += 1;
        if self.unsaid == Self::TELL {
            self.tell(registers, memory);
        }
        Some(length.map_or(Found::Bad, |length| Found::Frame(Frame { length, stamp: None })))
    }

    #[inline(always)]
    fn has_more(&self, memory: &impl Memory) -> bool {
        memory.load(descriptor(RECEIVE_AT, self.next) + 8) & F::RECEIVED != 0
    }

    fn tell(&mut self, registers: &impl Registers, _: &impl Memory) {
        if self.unsaid > 0 {
            let last = (self.next + DESCRIPTORS - 1) % DESCRIPTORS;
            registers.write(F::RECEIVE.tail(), last.into());
            self.unsaid = 0;
        }
    }
}

/// The transmit ring.
#[derive(Debug)]
pub struct Transmitter<F> {
    base: u64,
    next: u16,
    /// The first descriptor that the card may still have.
    oldest: u16,
    under_way: u16,
    format: PhantomData<F>,
}

/// Most frames that are under way.
pub const ROOM: u16 = DESCRIPTORS - 1;
/// Most descriptors that are taken back at once.
const TAKE: usize = 16;

impl<F: Format> Transmitter<F> {
    /// Takes back what the card has sent.
    fn take_back(&mut self, memory: &impl Memory) {
        for _ in 0..TAKE {
            let done = memory.load(descriptor(TRANSMIT_AT, self.oldest) + 8) & SENT != 0;
            if self.under_way == 0 || !done {
                break;
            }
            self.oldest = after(self.oldest);
            self.under_way -= 1;
        }
    }
}

impl<F: Format> Transmit for Transmitter<F> {
    fn has_room(&mut self, _: &impl Registers, memory: &impl Memory) -> bool {
        self.take_back(memory);
        self.under_way < ROOM
    }

    fn transmit(
        &mut self,
        registers: &impl Registers,
        memory: &impl Memory,
        frame: &[u8],
    ) -> Result<(), NoRoom> {
        if frame.is_empty() || frame.len() > BUFFER || !self.has_room(registers, memory) {
            return Err(NoRoom);
        }
        memory.write(buffer(TRANSMIT_BUFFERS_AT, self.next), frame);
        let at = descriptor(TRANSMIT_AT, self.next);
        memory.store(at, self.base + buffer(TRANSMIT_BUFFERS_AT, self.next));
        memory.store(at + 8, F::command(frame.len()));
        self.next = after(self.next);
        self.under_way += 1;
        registers.write(F::TRANSMIT.tail(), self.next.into());
        Ok(())
    }
}
