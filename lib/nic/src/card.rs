// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a card is to the kernel: a [`Kind`], its [`Receive`] and its [`Transmit`].
//!
//! A card reads and writes one piece of memory, which it finds at an address of its own. Who
//! receives and who sends share nothing. The card may be hostile: what it writes is read once, and
//! no more than its buffers is believed. Every operation has a bounded number of steps.

use crate::{HardwareAddress, reception::Filter};

/// How its registers are reached.
pub trait Registers {
    /// Reads a register of 1, 2 or 4 bytes; all ones if the card is gone.
    fn read_bytes(&self, register: u32, bytes: usize) -> u32;
    /// Writes such a register.
    fn write_bytes(&self, register: u32, bytes: usize, value: u32);

    /// Reads a register of 4 bytes.
    fn read(&self, register: u32) -> u32 {
        self.read_bytes(register, 4)
    }

    /// Writes one.
    fn write(&self, register: u32, value: u32) {
        self.write_bytes(register, 4, value);
    }
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

/// Bytes of a buffer of a card: the longest frame without jumbo frames, and more.
pub const BUFFER: usize = 2048;
/// Bytes of the longest frame without jumbo frames, with a tag of a VLAN.
pub const USUAL_LONGEST: usize = 1518;

/// What a kind of card is called, and how it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// Linux's driver of it.
    pub driver: &'static str,
    /// Vendor and device of its PCI functions.
    pub ids: &'static [(u16, u16)],
}

/// Where a card has its registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The base address register that tells of their memory.
    pub base: u32,
    /// Bytes from its beginning up to behind the last register.
    pub length: u64,
}

/// A kind of card. A value of it is a card that was found.
pub trait Kind: Sized + Send + Sync + 'static {
    /// What it is called, and how it is known.
    const ABOUT: About;
    /// Bytes of the memory that it shares with its driver.
    const MEMORY: u64;
    /// Bytes of the longest frame.
    const LONGEST: usize = USUAL_LONGEST;
    /// What takes frames.
    type Receiver: Receive + Send;
    /// What sends them.
    type Transmitter: Transmit + Send;

    /// The card whose configuration space `read` reads, four bytes at a multiple of 4; `None` if
    /// that is nothing sound.
    fn find(read: impl Fn(u64) -> u32) -> Option<Self>;

    /// Where its registers are.
    fn place(&self) -> Place;

    /// Begins to reset it. It then interrupts no more, and moves nothing.
    fn reset(&self, registers: &impl Registers);

    /// Whether the reset is done, which takes some milliseconds at most.
    fn is_reset(&self, registers: &impl Registers) -> bool;

    /// Sets it up after a reset, with memory that it finds at `base`, and starts it. It does not
    /// interrupt so far ([`let_interrupt`](Self::let_interrupt)). Otherwise says why it is not
    /// started.
    fn start(
        &self,
        registers: &impl Registers,
        memory: &impl Memory,
        base: u64,
        own: HardwareAddress,
    ) -> Result<(Self::Receiver, Self::Transmitter), &'static str>;

    /// It interrupts when a frame has come or the link has changed, at once if that is so already.
    /// Says whether `receiver` has to be looked at first, because it does not interrupt for what
    /// has come before.
    fn let_interrupt(
        &self,
        registers: &impl Registers,
        memory: &impl Memory,
        receiver: &Self::Receiver,
    ) -> bool;

    /// Whether an interrupt that it may share with others is its own. Any context.
    fn has_interrupted(&self, _memory: &impl Memory) -> bool {
        true
    }

    /// It interrupts no more. Any context: one access.
    fn mask(&self, registers: &impl Registers, memory: &impl Memory);

    /// Takes why it has interrupted: that is no cause any more.
    fn take_causes(&self, registers: &impl Registers);

    /// Most bytes of a frame behind its header, where the other end of the cable decides that.
    fn mtu(&self, _memory: &impl Memory) -> Option<usize> {
        None
    }

    /// Whether its cable leads to somebody.
    fn has_link(&self, registers: &impl Registers) -> bool;

    /// Has it, whose own address is `own`, receive what `filter` says. Some hundred accesses at
    /// most. Thread context; one at a time.
    fn set_filter(
        &self,
        registers: &impl Registers,
        memory: &impl Memory,
        filter: &Filter,
        own: HardwareAddress,
    );

    /// How far it is with that. Until it has done it, it is told nothing further. Thread context;
    /// one at a time.
    fn filter_progress(&self, _memory: &impl Memory) -> Progress {
        Progress::Done
    }
}

/// How far a card is with what it was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It has not answered all of it.
    Pending,
    /// It has done it.
    Done,
    /// It has refused some of it.
    Refused,
}

/// A frame in a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its bytes, without its checksum.
    pub length: usize,
    /// When it came by the card's clock, in nanoseconds, if the card has noted that.
    pub stamp: Option<u64>,
}

/// What was in a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// A frame.
    Frame(Frame),
    /// Something that is no whole and sound frame, or that nobody here wants.
    Bad,
}

/// What takes the frames that a card has received.
pub trait Receive {
    /// Takes the next frame that has come to `to`, which has room for a [`BUFFER`] and for the
    /// longest frame. When some buffers are the card's again, it tells the card. Bounded: a copy,
    /// and some accesses.
    fn receive(
        &mut self,
        registers: &impl Registers,
        memory: &impl Memory,
        to: &mut [u8],
    ) -> Option<Found>;

    /// Whether there is another one.
    fn has_more(&self, memory: &impl Memory) -> bool;

    /// Tells the card of all buffers that are its again.
    fn tell(&mut self, registers: &impl Registers, memory: &impl Memory);
}

/// There is no room for a frame, or it is too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

/// What has a card send frames.
pub trait Transmit {
    /// Whether a frame finds room. Bounded.
    fn has_room(&mut self, registers: &impl Registers, memory: &impl Memory) -> bool;

    /// Has the card send a frame. Bounded: a copy, and some accesses.
    fn transmit(
        &mut self,
        registers: &impl Registers,
        memory: &impl Memory,
        frame: &[u8],
    ) -> Result<(), NoRoom>;
}
