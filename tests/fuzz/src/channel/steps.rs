// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a script for the channel consists of.

use core::mem::offset_of;

use bolero::TypeGenerator;
use crtos_abi::{MAX_CELL_CPUS, channel as raw};

use crate::numbers::{Few, Rare, Word};

/// What Linux and the kernel do, one step after the other.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Input {
    #[generator(bolero::produce::<Vec<Step>>().with().len(0..400_usize))]
    pub(super) steps: Vec<Step>,
}

/// One step of either end.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub enum Step {
    Linux(LinuxStep),
    Kernel(SlotChoice, SlotStep),
    Realm(RealmStep),
}

/// What Linux does.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub enum LinuxStep {
    /// Stores any word, half of it or a small number.
    Store(Place, Value),
    /// Offers a slot: as the first of a process, or as a further one of it.
    Offer { slot: SlotChoice, first: bool, process: u8, parent: Word },
    /// Takes a request, if one is there.
    Take(SlotChoice),
    /// Stores a result, whether or not there was a request.
    Reply(SlotChoice, i64),
    /// Asks for a page, mostly for one that a program may have.
    Ask(SlotChoice, u8, bool, Rare<Word>),
    /// Tells of a signal.
    Signal(SlotChoice, Word),
    /// Tells that a shadow thread is gone.
    Gone(SlotChoice),
    /// Reports a revocation as carried out, whether or not it is posted.
    Done(Few),
    /// Reports so many of them from the first one on.
    DoneMany(u16),
}

/// What the kernel does with one slot.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub enum SlotStep {
    /// Takes the slot over, if Linux offers it.
    Accept,
    /// Asks for a system call.
    Call {
        nr: u16,
        args: [Word; 6],
        rank: u8,
        cpu: u8,
    },
    /// Asks for an operation, if the words are one.
    Request {
        op: u8,
        args: [Word; 6],
    },
    Poll,
    Answer {
        page: Option<(u16, bool)>,
    },
    Interrupt,
    TakeReply,
    TakeSignal,
    Publish(Word),
    /// What lies in the slot is read as an operation, as the shadow does.
    Decode,
    /// Posts a revocation, or rarely so many that the table is full.
    Post(Rare<()>),
    /// Gives back what waits for the process of a thread whose shadow is gone.
    Release(Few),
    /// Frees the slot of a thread whose shadow is gone.
    Free,
}

/// What the kernel does with the rest of the channel.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub enum RealmStep {
    Attach,
    Collect(Few),
    SetRank(u8, u32),
    PublishIdle(u8),
    ReadClock(u8, Word),
    CountDoorbells(u8),
}

/// One of the slots that the script uses, mostly the first.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub struct SlotChoice(u8);

impl SlotChoice {
    /// The first and the last, and those beside a bound of a bitmap's words.
    pub const ALL: [usize; 4] = [0, 63, 64, raw::SLOTS - 1];

    /// Its number in the channel.
    pub fn number(self) -> usize {
        let index = usize::from(self.0).saturating_sub(192);
        Self::ALL[index % Self::ALL.len()]
    }
}

/// Half a word of the channel.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub enum Place {
    InSlot(SlotChoice, u8),
    InRevocation(Few, u8),
    InReplies(u8),
    InRequests(u8),
    InPosted(u8),
    InRanks(u8),
    InTime(u8),
    Anywhere(u32),
}

impl Place {
    /// Its offset in the channel, bytes.
    pub fn offset(self) -> usize {
        let within = |index: u8, size: usize| usize::from(index) * 4 % size;
        match self {
            Self::InSlot(slot, index) => {
                in_slot(slot.number(), 0) + within(index, size_of::<raw::Slot>())
            }
            Self::InRevocation(number, index) => {
                let entry = number.value() as usize % raw::REVOCATIONS;
                in_revocation(entry, 0) + within(index, size_of::<raw::Revocation>())
            }
            Self::InReplies(index) => offset_of!(raw::Channel, replies) + within(index, 128),
            Self::InRequests(index) => offset_of!(raw::Channel, requests) + within(index, 128),
            Self::InPosted(index) => offset_of!(raw::Channel, posted) + within(index, 128),
            Self::InRanks(index) => {
                offset_of!(raw::Channel, ranks) + within(index, MAX_CELL_CPUS * 4)
            }
            Self::InTime(index) => offset_of!(raw::Channel, time) + within(index, 80),
            Self::Anywhere(index) => index as usize % (size_of::<raw::Channel>() / 4) * 4,
        }
    }
}

/// Half a word that Linux stores.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub enum Value {
    Small(u8),
    Bit(u8),
    Low(Word),
    High(Word),
}

impl Value {
    /// The value.
    pub fn get(self) -> u32 {
        match self {
            Self::Small(value) => u32::from(value % 16),
            Self::Bit(bit) => 1 << (bit % 32),
            Self::Low(word) => word.value() as u32,
            Self::High(word) => (word.value() >> 32) as u32,
        }
    }
}

/// Offset of a field of a slot.
pub fn in_slot(slot: usize, field: usize) -> usize {
    offset_of!(raw::Channel, slots) + slot * size_of::<raw::Slot>() + field
}

/// Offset of a field of a revocation.
pub fn in_revocation(index: usize, field: usize) -> usize {
    offset_of!(raw::Channel, revocations) + index * size_of::<raw::Revocation>() + field
}
