// SPDX-License-Identifier: MIT OR Apache-2.0
//! An Intel 82574L (data sheet 317694, revision 3.4; chapter 10 for its registers).
//!
//! It reads and writes one piece of memory, which it finds at an address of its own: two rings of
//! descriptors, and a buffer for each of these. Who receives and who sends share nothing. The card
//! may be hostile: what it writes is read once, and no more than its buffers is believed.

use crate::{HardwareAddress, reception::Filter};

/// How its registers are reached.
pub trait Registers {
    /// Reads a register.
    fn read(&self, register: u32) -> u32;
    /// Writes a register.
    fn write(&self, register: u32, value: u32);
}

/// Memory that the card reaches as well.
pub trait Memory {
    /// Reads the word of 8 bytes at a multiple of 8.
    fn load(&self, offset: u64) -> u64;
    /// Writes it.
    fn store(&self, offset: u64, value: u64);
    /// Copies from there.
    fn read(&self, offset: u64, to: &mut [u8]);
    /// Copies there.
    fn write(&self, offset: u64, from: &[u8]);
}

/// Registers.
pub mod register {
    /// Device control.
    pub const CONTROL: u32 = 0x0000;
    /// Device status.
    pub const STATUS: u32 = 0x0008;
    /// Extended device control.
    pub const EXTENDED_CONTROL: u32 = 0x0018;
    /// Flow control: addresses and type.
    pub const FLOW: [u32; 4] = [0x0028, 0x002c, 0x0030, 0x0170];
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
    /// Receive control.
    pub const RECEIVE: u32 = 0x0100;
    /// Transmit control.
    pub const TRANSMIT: u32 = 0x0400;
    /// Gaps between frames.
    pub const GAPS: u32 = 0x0410;
    /// The receive ring: address, bytes, head and tail, delay, control.
    pub const RECEIVE_RING: Ring = Ring(0x2800);
    /// The transmit ring.
    pub const TRANSMIT_RING: Ring = Ring(0x3800);
    /// Arbitration of the first transmit ring.
    pub const ARBITRATION: u32 = 0x3840;
    /// Frames that found no room; reading clears it.
    pub const MISSED: u32 = 0x4010;
    /// Receive filter control.
    pub const RECEIVE_FILTER: u32 = 0x5008;
    /// The table of groups: 128 words.
    pub const GROUPS: u32 = 0x5200;
    /// Addresses that it receives: 16 pairs of words.
    pub const ADDRESSES: u32 = 0x5400;
    /// Bytes up to behind the last of them.
    pub const END: u64 = 0x6000;

    /// The registers of a ring.
    #[derive(Clone, Copy)]
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
        /// How long interrupts wait.
        pub const fn delay(self) -> u32 {
            self.0 + 0x20
        }
        /// How descriptors are fetched and written back.
        pub const fn control(self) -> u32 {
            self.0 + 0x28
        }
        /// How long interrupts wait at most.
        pub const fn longest_delay(self) -> u32 {
            self.0 + 0x2c
        }
    }
}

/// [`register::CONTROL`]: the link is to come up; it finds its speed; reset. These are to be off:
/// it obeys pauses and sends some.
const LINK_UP: u32 = 1 << 6;
const FIND_SPEED: u32 = 1 << 5;
const RESET: u32 = 1 << 26;
const PAUSES: u32 = 3 << 27;
/// [`register::STATUS`]: there is a link.
const HAS_LINK: u32 = 1 << 1;
/// [`register::EXTENDED_CONTROL`]: messages clear what is pending; as Linux sets it for this card.
const CLEAR_PENDING: u32 = 1 << 31;
const FOR_82574: u32 = 1 << 22;
const NOT_FOR_82574: u32 = 1 << 23;
/// [`register::CAUSES`]: the first receive ring, the link, and other causes than rings.
pub const RECEIVED: u32 = 1 << 20;
/// The link has changed.
pub const LINK_CHANGED: u32 = 1 << 2;
/// There is another cause than rings.
const OTHER: u32 = 1 << 24;
/// For what it interrupts.
const WANTED: u32 = RECEIVED | LINK_CHANGED | OTHER;
/// [`register::MESSAGES`]: the first receive ring, the first transmit ring and the rest have
/// message 0.
const ALL_BY_FIRST: u32 = 0x8 | 0x8 << 8 | 0x8 << 16;
/// [`register::RECEIVE`]: on; frames for all; without their checksums. Buffers have 2 KiB.
pub(crate) const RECEIVE_ON: u32 = 1 << 1;
const RECEIVE_BROADCAST: u32 = 1 << 15;
const STRIP_CHECKSUM: u32 = 1 << 26;
/// There as well: all frames; those for all groups.
pub(crate) const RECEIVE_ALL: u32 = 1 << 3;
pub(crate) const RECEIVE_GROUPS: u32 = 1 << 4;
/// [`register::TRANSMIT`]: on; short frames are filled up; collisions.
pub(crate) const TRANSMIT_ON: u32 = 1 << 1;
const FILL_UP: u32 = 1 << 3;
const COLLISIONS: u32 = 0x0f << 4 | 0x3f << 12;
/// [`register::GAPS`] for copper, as Linux sets them.
const COPPER_GAPS: u32 = 8 | 8 << 10 | 6 << 20;
/// [`register::Ring::control`] of the transmit ring: to be on with this card; descriptors are
/// written back one by one.
const TRANSMIT_RING: u32 = 1 << 22 | 1 << 24 | 1 << 16;
/// [`register::ARBITRATION`]: as Linux sets it for this card.
const NOT_ARBITRATED: u32 = 0xf << 27;
const ARBITRATED: u32 = 1 << 26;
/// [`register::RECEIVE_FILTER`]: a work-around of Linux for interrupts that come without a cause.
const NO_ACKNOWLEDGEMENTS: u32 = 1 << 12;
/// The high word of an address: it is valid.
pub(crate) const VALID: u32 = 1 << 31;

/// Descriptors of a ring.
pub const DESCRIPTORS: u16 = 256;
/// Bytes of a descriptor, of a ring, and of a buffer.
const DESCRIPTOR: u64 = 16;
const RING: u64 = DESCRIPTORS as u64 * DESCRIPTOR;
/// Bytes of a buffer.
pub const BUFFER: usize = 2048;
const BUFFERS: u64 = DESCRIPTORS as u64 * BUFFER as u64;
/// Where in the memory the rings and the buffers are.
const RECEIVE_AT: u64 = 0;
const TRANSMIT_AT: u64 = RING;
const RECEIVE_BUFFERS_AT: u64 = 2 * RING;
const TRANSMIT_BUFFERS_AT: u64 = RECEIVE_BUFFERS_AT + BUFFERS;
/// Bytes of the memory.
pub const MEMORY: u64 = TRANSMIT_BUFFERS_AT + BUFFERS;

/// A receive descriptor (its second word): it is done, and it holds the end of a frame; errors.
pub(crate) const DONE: u64 = 1 << 32;
pub(crate) const END_OF_FRAME: u64 = 1 << 33;
/// Checksum of the frame, alignment and the like, of the receiver.
const ERRORS: u64 = 0b1001_0111 << 40;
/// A transmit descriptor: the end of a frame; it gets a checksum; the card says when it is done.
pub(crate) const COMMAND: u64 = (1 | 2 | 8) << 24;

/// Begins to reset the card. It then interrupts no more, and moves nothing.
pub fn reset(registers: &impl Registers) {
    registers.write(register::MASK, u32::MAX);
    registers.write(register::RECEIVE, 0);
    registers.write(register::TRANSMIT, 0);
    let control = registers.read(register::CONTROL);
    registers.write(register::CONTROL, control | RESET);
}

/// Whether the reset is done, which takes some milliseconds at most.
pub fn is_reset(registers: &impl Registers) -> bool {
    registers.read(register::CONTROL) & RESET == 0
}

/// Sets a card up that was reset, with memory that it finds at `base`, and starts it. It does not
/// interrupt so far ([`let_interrupt`]).
pub fn start(
    registers: &impl Registers,
    memory: &impl Memory,
    base: u64,
    own: HardwareAddress,
) -> (Receiver, Transmitter) {
    use register::*;
    registers.write(MASK, u32::MAX);
    registers.write(CAUSES, u32::MAX);
    let change = |register, off: u32, on: u32| {
        registers.write(register, registers.read(register) & !off | on);
    };
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
    for index in 0..DESCRIPTORS {
        let (receive, transmit) = (descriptor(RECEIVE_AT, index), descriptor(TRANSMIT_AT, index));
        memory.store(receive, base + buffer(RECEIVE_BUFFERS_AT, index));
        memory.store(receive + 8, 0);
        memory.store(transmit, base + buffer(TRANSMIT_BUFFERS_AT, index));
        memory.store(transmit + 8, 0);
    }
    for (ring, at) in [(RECEIVE_RING, RECEIVE_AT), (TRANSMIT_RING, TRANSMIT_AT)] {
        let address = base + at;
        registers.write(ring.address(), address as u32);
        registers.write(ring.address() + 4, (address >> 32) as u32);
        registers.write(ring.length(), RING as u32);
        registers.write(ring.head(), 0);
        registers.write(ring.tail(), 0);
        registers.write(ring.delay(), 0);
        registers.write(ring.longest_delay(), 0);
    }
    change(register::TRANSMIT_RING.control(), 0, self::TRANSMIT_RING);
    registers.write(GAPS, COPPER_GAPS);
    Filter::default().apply(registers, own);
    change(TRANSMIT, COLLISIONS, TRANSMIT_ON | FILL_UP | COLLISIONS);
    change(RECEIVE, 0, RECEIVE_ON | RECEIVE_BROADCAST | STRIP_CHECKSUM);
    // All but one: a full ring would look like an empty one.
    registers.write(RECEIVE_RING.tail(), u32::from(DESCRIPTORS) - 1);
    let receiver = Receiver { base, next: 0, unsaid: 0 };
    (receiver, Transmitter { base, next: 0, oldest: 0, under_way: 0 })
}

/// It interrupts when a frame has come or the link has changed, at once if that is so.
pub fn let_interrupt(registers: &impl Registers) {
    registers.write(register::LET, WANTED);
}

/// It interrupts no more. Any context: one access.
pub fn mask(registers: &impl Registers) {
    registers.write(register::MASK, u32::MAX);
}

/// Takes why it has interrupted.
pub fn take_causes(registers: &impl Registers) -> u32 {
    let causes = registers.read(register::CAUSES);
    registers.write(register::CAUSES, causes);
    causes
}

/// Whether its cable leads to somebody.
pub fn has_link(registers: &impl Registers) -> bool {
    let status = registers.read(register::STATUS);
    // What is not there any more reads as all ones.
    status != u32::MAX && status & HAS_LINK != 0
}

/// How many frames found no room since this was asked.
pub fn take_missed(registers: &impl Registers) -> u32 {
    let missed = registers.read(register::MISSED);
    if missed == u32::MAX { 0 } else { missed }
}

fn descriptor(ring: u64, index: u16) -> u64 {
    ring + u64::from(index) * DESCRIPTOR
}

fn buffer(buffers: u64, index: u16) -> u64 {
    buffers + u64::from(index) * BUFFER as u64
}

fn after(index: u16) -> u16 {
    (index + 1) % DESCRIPTORS
}

/// What was in a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// A frame of so many bytes, without its checksum.
    Frame(usize),
    /// Something that is no whole and sound frame.
    Bad,
}

/// The receive ring.
#[derive(Debug)]
pub struct Receiver {
    base: u64,
    /// The descriptor that is done next.
    next: u16,
    /// Descriptors that are the card's again, without its knowledge.
    unsaid: u16,
}

impl Receiver {
    /// How many descriptors the card is told of at once.
    const TELL: u16 = 16;

    /// Takes the next frame that has come. Bounded: a copy, and some accesses.
    pub fn receive(
        &mut self,
        registers: &impl Registers,
        memory: &impl Memory,
        to: &mut [u8; BUFFER],
    ) -> Option<Found> {
        let at = descriptor(RECEIVE_AT, self.next);
        let word = memory.load(at + 8);
        if word & DONE == 0 {
            return None;
        }
        let length = usize::from(word as u16);
        let sound = word & END_OF_FRAME != 0 && word & ERRORS == 0 && length <= BUFFER;
        let found = if sound { Found::Frame(length) } else { Found::Bad };
        if sound {
            memory.read(buffer(RECEIVE_BUFFERS_AT, self.next), &mut to[..length]);
        }
        memory.store(at, self.base + buffer(RECEIVE_BUFFERS_AT, self.next));
        memory.store(at + 8, 0);
        self.next = after(self.next);
        self.unsaid += 1;
        if self.unsaid == Self::TELL {
            self.tell(registers);
        }
        Some(found)
    }

    /// Whether there is another one.
    pub fn has_more(&self, memory: &impl Memory) -> bool {
        memory.load(descriptor(RECEIVE_AT, self.next) + 8) & DONE != 0
    }

    /// Tells the card of the descriptors that are its again.
    pub fn tell(&mut self, registers: &impl Registers) {
        if self.unsaid > 0 {
            let last = (self.next + DESCRIPTORS - 1) % DESCRIPTORS;
            registers.write(register::RECEIVE_RING.tail(), last.into());
            self.unsaid = 0;
        }
    }
}

/// There is no room for a frame, or it is too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

/// The transmit ring.
#[derive(Debug)]
pub struct Transmitter {
    base: u64,
    next: u16,
    /// The first descriptor that the card may still have.
    oldest: u16,
    under_way: u16,
}

impl Transmitter {
    /// Most descriptors that are taken back at once.
    const TAKE: usize = 16;

    /// Most frames that are under way.
    pub const ROOM: u16 = DESCRIPTORS - 1;

    /// Takes back what the card has sent.
    fn take_back(&mut self, memory: &impl Memory) {
        for _ in 0..Self::TAKE {
            let done = memory.load(descriptor(TRANSMIT_AT, self.oldest) + 8) & DONE != 0;
            if self.under_way == 0 || !done {
                break;
            }
            self.oldest = after(self.oldest);
            self.under_way -= 1;
        }
    }

    /// Whether a frame finds room. Bounded.
    pub fn has_room(&mut self, memory: &impl Memory) -> bool {
        self.take_back(memory);
        self.under_way < Self::ROOM
    }

    /// Has the card send a frame. Bounded: a copy, and some accesses.
    pub fn transmit(
        &mut self,
        registers: &impl Registers,
        memory: &impl Memory,
        frame: &[u8],
    ) -> Result<(), NoRoom> {
        if frame.is_empty() || frame.len() > BUFFER || !self.has_room(memory) {
            return Err(NoRoom);
        }
        memory.write(buffer(TRANSMIT_BUFFERS_AT, self.next), frame);
        let at = descriptor(TRANSMIT_AT, self.next);
        memory.store(at, self.base + buffer(TRANSMIT_BUFFERS_AT, self.next));
        memory.store(at + 8, frame.len() as u64 | COMMAND);
        self.next = after(self.next);
        self.under_way += 1;
        registers.write(register::TRANSMIT_RING.tail(), self.next.into());
        Ok(())
    }
}
