// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is received by version 3 of rings in memory that programs map: frames of any length, one
//! behind the other in blocks. A program gets a block when it is full, or when its time is over.
//!
//! The kernel fills one block at a time, the open one. Where the next block is the program's still,
//! the ring is frozen: frames are lost until the program gives that block back. All that the kernel
//! needs to know it keeps itself; of the memory it reads only whose the next block is.

use crate::ring::{
    ADDRESS, DESCRIPTION, Front, Geometry, KERNEL, LOSING, Request, Told, USER, Unsound,
};

/// What frames in a block are aligned to.
const ALIGNMENT: u32 = 8;
/// Bytes of the description of a block.
const BLOCK: u32 = 48;
/// Where in it the word is that says whose the block is.
const STATUS: u64 = 8;
/// [`LOSING`] and the like: the block is the program's because its time is over.
const TIMED_OUT: u32 = 1 << 5;
/// The number of the version, in the description of a block.
const VERSION: u32 = 2;

/// The memory of a ring. What is read there is an allegation.
pub trait Memory {
    /// Copies from there.
    fn read(&self, at: u64, to: &mut [u8]);
    /// Copies there. The program sees what is written in that order.
    fn write(&self, at: u64, from: &[u8]);
}

/// What a program asks for besides a [`Request`] (`struct tpacket_req3`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extra {
    /// Milliseconds after which a block with frames is the program's; 0 for what suits the card.
    pub timeout: u32,
    /// Bytes of each block that are the program's own.
    pub private: u32,
    /// Features; see [`FILL_HASH`].
    pub features: u32,
}

/// [`Extra::features`]: frames are told with the number of their flow.
pub const FILL_HASH: u32 = 1;

/// A moment (CLOCK_REALTIME): seconds and nanoseconds.
pub type Moment = (u32, u32);

/// The state of such a ring.
#[derive(Debug)]
pub struct Blocks {
    front: Front,
    block_size: u32,
    blocks: u32,
    /// Where in a block frames begin.
    first: u32,
    /// Nanoseconds.
    timeout: u64,
    fills_hash: bool,
    /// The block that is open, or would be next.
    active: u32,
    is_frozen: bool,
    /// The number of the next block that is opened.
    number: u64,
    /// Since when it is open: as programs are told, and in nanoseconds of the kernel's time.
    opened: Moment,
    since: u64,
    /// When its time is over, if it has frames; the largest number otherwise.
    due: u64,
    /// Where in it there is room, how many frames are there, where the last one begins, and when
    /// that came.
    next: u32,
    frames: u32,
    last: u32,
    last_stamp: Moment,
    /// How often it was frozen since somebody asked.
    freezes: u32,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    /// It is there.
    pub is_kept: bool,
    /// A block became the program's.
    pub has_given: bool,
    /// The frame is the first of its block, which is the program's at that time (nanoseconds of the
    /// kernel's time), or before.
    pub due: Option<u64>,
}

/// A frame that was received.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its bytes that are wanted.
    pub bytes: &'a [u8],
    /// How many of these are the header.
    pub header: u32,
    /// How many bytes it had.
    pub length: u32,
    /// When it came.
    pub stamp: Moment,
    /// The number of its flow.
    pub hash: u32,
    /// Bits of its status besides.
    pub status: u32,
    /// Where it came from: a `struct sockaddr_ll`.
    pub from: &'a [u8; ADDRESS as usize],
}

/// What time it is, by two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// CLOCK_REALTIME.
    pub moment: Moment,
    /// Nanoseconds of the kernel's time.
    pub nanos: u64,
}

impl Blocks {
    /// A ring of that kind in cleared memory, whose first block is open.
    pub fn new(request: Request, front: Front, extra: Extra, now: Now) -> Result<Self, Unsound> {
        Geometry::new(request, front)?;
        let first = u64::from(BLOCK) + u64::from(extra.private).next_multiple_of(ALIGNMENT.into());
        let block_size = request.block_size;
        if u64::from(block_size) < first + front.least() {
            return Err(Unsound);
        }
        /// A gigabit each second: a block's time is what it takes to be filled, and 1 ms.
        const MEGABIT: u64 = 1024 * 1024 / 8;
        let timeout = match extra.timeout {
            0 => u64::from(block_size) / MEGABIT + 1,
            timeout => timeout.into(),
        };
        let mut blocks = Self {
            front,
            block_size,
            blocks: request.blocks,
            first: first as u32,
            timeout: timeout * 1_000_000,
            fills_hash: extra.features & FILL_HASH != 0,
            active: 0,
            is_frozen: false,
            number: 1,
            opened: (0, 0),
            since: 0,
            due: u64::MAX,
            next: 0,
            frames: 0,
            last: 0,
            last_stamp: (0, 0),
            freezes: 0,
        };
        blocks.open(now);
        Ok(blocks)
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.place(self.blocks)
    }

    /// Whether the numbers of flows are wanted.
    pub fn fills_hash(&self) -> bool {
        self.fills_hash
    }

    /// How often it was frozen since that was asked.
    pub fn take_freezes(&mut self) -> u32 {
        core::mem::take(&mut self.freezes)
    }

    /// Where a block begins.
    fn place(&self, block: u32) -> u64 {
        u64::from(block) * u64::from(self.block_size)
    }

    fn is_users(&self, memory: &impl Memory, block: u32) -> bool {
        let mut word = [0; 4];
        memory.read(self.place(block) + STATUS, &mut word);
        u32::from_ne_bytes(word) & USER != 0
    }

    /// The active block is the kernel's and empty.
    fn open(&mut self, now: Now) {
        (self.opened, self.since) = (now.moment, now.nanos);
        self.is_frozen = false;
        (self.next, self.frames, self.due) = (self.first, 0, u64::MAX);
    }

    /// The open block becomes the program's, and the next one is open if it is free.
    fn give(&mut self, memory: &impl Memory, now: Now, status: u32, were_lost: bool) {
        self.due = u64::MAX;
        let place = self.place(self.active);
        let last_stamp = if self.frames > 0 {
            // There is no frame behind the last one.
            memory.write(place + u64::from(self.last), &[0; 4]);
            self.last_stamp
        } else {
            now.moment
        };
        let status = status | USER | if were_lost { LOSING } else { 0 };
        let number = self.number;
        self.number += 1;
        let words = [
            VERSION,
            // Where the program's own bytes are.
            BLOCK,
            status,
            self.frames,
            self.first,
            self.next,
            number as u32,
            (number >> 32) as u32,
            self.opened.0,
            self.opened.1,
            last_stamp.0,
            last_stamp.1,
        ];
        let bytes = words.map(u32::to_ne_bytes);
        let bytes = bytes.as_flattened();
        let (status_at, behind) = (STATUS as usize, STATUS as usize + 4);
        memory.write(place, &bytes[..status_at]);
        memory.write(place + behind as u64, &bytes[behind..]);
        // Last: what is before it is there then.
        memory.write(place + STATUS, &bytes[status_at..behind]);
        self.active = if self.active + 1 >= self.blocks { 0 } else { self.active + 1 };
        if self.is_users(memory, self.active) {
            self.is_frozen = true;
            self.freezes = self.freezes.wrapping_add(1);
        } else {
            self.open(now);
        }
    }

    /// Puts a frame into the open block, or the next one. Bounded: a copy, and at most one block
    /// that is given. `were_lost` says that frames were lost since somebody asked.
    pub fn fill(
        &mut self,
        memory: &impl Memory,
        frame: &Frame,
        now: Now,
        were_lost: bool,
    ) -> Filled {
        let mut filled = Filled { is_kept: false, has_given: false, due: None };
        if self.is_frozen {
            if self.is_users(memory, self.active) {
                return filled;
            }
            self.open(now);
        }
        let most = self.block_size - self.first;
        let (start, network) = self.front.starts(frame.header);
        // What stands before a frame finds room, but perhaps no byte of it.
        let start = start.min(most);
        let there = (frame.bytes.len() as u32).min(most - start);
        let whole = (start + there).next_multiple_of(ALIGNMENT);
        if self.next + whole >= self.block_size {
            self.give(memory, now, 0, were_lost);
            filled.has_given = true;
            if self.is_frozen {
                return filled;
            }
        }
        let place = self.place(self.active) + u64::from(self.next);
        let told = Told { length: frame.length, there, stamp: frame.stamp };
        let mut description = self.front.describe((start, network), told);
        description[..4].copy_from_slice(&whole.to_ne_bytes());
        description[20..24].copy_from_slice(&(USER | frame.status).to_ne_bytes());
        let hash = if self.fills_hash { frame.hash } else { 0 };
        description[28..32].copy_from_slice(&hash.to_ne_bytes());
        memory.write(place, &description);
        memory.write(place + DESCRIPTION as u64, frame.from);
        memory.write(place + u64::from(start), &frame.bytes[..there as usize]);
        if self.frames == 0 {
            let periods = now.nanos.saturating_sub(self.since) / self.timeout + 1;
            self.due = self.since.saturating_add(self.timeout.saturating_mul(periods));
            filled.due = Some(self.due);
        }
        (self.last, self.last_stamp) = (self.next, frame.stamp);
        self.next += whole;
        self.frames += 1;
        filled.is_kept = true;
        filled
    }

    /// Gives the open block to the program if it has frames and its time is over; says whether it
    /// was. Bounded.
    pub fn expire(&mut self, memory: &impl Memory, now: Now, were_lost: bool) -> bool {
        let is_due = !self.is_frozen && self.due <= now.nanos;
        if is_due {
            self.give(memory, now, TIMED_OUT, were_lost);
        }
        is_due
    }

    /// Whether a block waits for the program: the one before the active one.
    pub fn has_given(&self, memory: &impl Memory) -> bool {
        let before = self.active.checked_sub(1).unwrap_or(self.blocks - 1);
        let mut word = [0; 4];
        memory.read(self.place(before) + STATUS, &mut word);
        u32::from_ne_bytes(word) != KERNEL
    }
}

const _: () = assert!(DESCRIPTION == 48);

#[cfg(test)]
mod tests {
    use core::cell::RefCell;

    use super::*;
    use crate::ring::Version;

    struct Bytes(RefCell<Vec<u8>>);

    impl Bytes {
        fn new(length: u64) -> Self {
            Self(RefCell::new(vec![0; length as usize]))
        }

        fn word(&self, at: u64) -> u32 {
            let mut word = [0; 4];
            self.read(at, &mut word);
            u32::from_ne_bytes(word)
        }

        fn set(&self, at: u64, word: u32) {
            self.write(at, &word.to_ne_bytes());
        }
    }

    impl Memory for Bytes {
        // Beyond the end these panic.
        fn read(&self, at: u64, to: &mut [u8]) {
            to.copy_from_slice(&self.0.borrow()[at as usize..][..to.len()]);
        }

        fn write(&self, at: u64, from: &[u8]) {
            self.0.borrow_mut()[at as usize..][..from.len()].copy_from_slice(from);
        }
    }

    const MS: u64 = 1_000_000;

    fn ring(blocks: u32, private: u32, timeout: u32) -> (Blocks, Bytes) {
        let request = Request { block_size: 4096, blocks, frame_size: 2048, frames: 2 * blocks };
        let extra = Extra { timeout, private, features: FILL_HASH };
        let front = Front::new(Version::Third, 0);
        let blocks = Blocks::new(request, front, extra, now(0)).unwrap();
        (blocks, Bytes::new(u64::from(request.block_size) * u64::from(request.blocks)))
    }

    fn now(nanos: u64) -> Now {
        Now { moment: (100, nanos as u32), nanos }
    }

    fn frame(bytes: &[u8], number: u32) -> Frame<'_> {
        let length = bytes.len() as u32;
        Frame {
            bytes,
            header: 14,
            length,
            stamp: (7, number),
            hash: number,
            status: 0,
            from: &[3; 20],
        }
    }

    #[test]
    fn a_block_is_as_linux_has_it() {
        let (mut ring, memory) = ring(2, 13, 10);
        let first = ring.fill(&memory, &frame(&[1; 60], 11), now(25 * MS), false);
        // At the end of the third period.
        assert_eq!(first, Filled { is_kept: true, has_given: false, due: Some(30 * MS) });
        let second = ring.fill(&memory, &frame(&[2; 100], 12), now(26 * MS), false);
        assert_eq!(second, Filled { is_kept: true, has_given: false, due: None });
        assert!(!ring.expire(&memory, now(29 * MS), false));
        assert!(!ring.has_given(&memory));
        assert!(ring.expire(&memory, now(30 * MS), true));
        assert!(ring.has_given(&memory));
        // Frames of 82 and 60, or 100, bytes.
        let whole = (144, 184);
        let words: Vec<u32> = (0..12).map(|word| memory.word(4 * word)).collect();
        let end = 64 + whole.0 + whole.1;
        assert_eq!(words, [2, 48, 1 | 4 | 32, 2, 64, end, 1, 0, 100, 0, 7, 12]);
        let words: Vec<u32> = (0..12).map(|word| memory.word(64 + 4 * word)).collect();
        assert_eq!(words, [whole.0, 7, 11, 60, 60, USER, 82 | 96 << 16, 11, 0, 0, 0, 0]);
        assert_eq!(memory.word(64 + 48), 0x0303_0303);
        assert_eq!(memory.word(64 + 82), 0x0101_0101);
        assert_eq!(memory.word(64 + u64::from(whole.0)), 0);
        // The program's own bytes are left.
        assert_eq!(memory.word(48), 0);
        assert!(!ring.expire(&memory, now(100 * MS), false));
    }

    #[test]
    fn a_ring_that_nobody_empties_is_frozen() {
        let (mut ring, memory) = ring(2, 0, 10);
        let long = [0; 1500];
        let mut fill = || ring.fill(&memory, &frame(&long, 0), now(0), false);
        let kept: Vec<(bool, bool)> =
            (0..6).map(|_| fill()).map(|filled| (filled.is_kept, filled.has_given)).collect();
        let (yes, no) = (true, false);
        assert_eq!(kept, [(yes, no), (yes, no), (yes, yes), (yes, no), (no, yes), (no, no)]);
        assert!(!ring.expire(&memory, now(50 * MS), false));
        memory.set(STATUS, KERNEL);
        let filled = ring.fill(&memory, &frame(&long, 0), now(55 * MS), false);
        assert_eq!(filled.due, Some(65 * MS));
        assert!(ring.expire(&memory, now(65 * MS), false));
        assert_eq!((ring.take_freezes(), ring.take_freezes()), (2, 0));
        // The number tells that nothing was left out.
        assert_eq!(memory.word(24), 3);
    }

    #[test]
    fn what_linux_does_not_take() {
        let front = Front::new(Version::Third, 0);
        let new = |request, private| {
            let extra = Extra { private, ..Extra::default() };
            Blocks::new(request, front, extra, now(0)).map(|_| ())
        };
        let request = Request { block_size: 4096, blocks: 2, frame_size: 2048, frames: 4 };
        assert_eq!(new(request, 4096 - 48 - 68 - 4), Ok(()));
        assert_eq!(new(request, 4096 - 48 - 68 - 3), Err(Unsound));
        assert_eq!(new(request, u32::MAX), Err(Unsound));
        assert_eq!(new(Request { frame_size: 64, frames: 128, ..request }, 0), Err(Unsound));
    }

    proptest::proptest! {
        /// Whatever a program writes, nothing is written outside the ring. A program that keeps to
        /// the rules gets all frames that were kept, in their order.
        #[test]
        fn frames_come_in_their_order(
            count in 1u32..5,
            private in 0u32..4000,
            reserve in 0u32..5000,
            timeout in 1u32..4,
            is_hostile: bool,
            steps in proptest::collection::vec((0u8..8, 0usize..1600, 0u64.., 0u32..), 1..300),
        ) {
            let request =
                Request { block_size: 8192, blocks: count, frame_size: 8192, frames: count };
            let front = Front::new(Version::Third, reserve);
            let extra = Extra { timeout, private, features: 0 };
            let Ok(mut ring) = Blocks::new(request, front, extra, now(0)) else { return Ok(()) };
            let memory = Bytes::new(8192 * u64::from(count));
            let (mut time, mut number, mut block, mut blocks) = (0, 0u32, 0u64, 0u64);
            let mut expected = std::collections::VecDeque::new();
            for (what, length, at, word) in steps {
                time += MS / 3;
                match what {
                    0..4 => {
                        number += 1;
                        let bytes = vec![number as u8; length];
                        let filled = ring.fill(&memory, &frame(&bytes, number), now(time), false);
                        if filled.is_kept {
                            expected.push_back((number, length as u32));
                        }
                    }
                    4 => { ring.expire(&memory, now(time), false); }
                    5 if is_hostile => memory.set(at % (8192 * u64::from(count) / 4) * 4, word),
                    _ if is_hostile => {}
                    _ => {
                        let start = block % u64::from(count) * 8192;
                        if memory.word(start + STATUS) & USER == 0 {
                            assert!(!ring.has_given(&memory) || count > 1);
                            continue;
                        }
                        blocks += 1;
                        assert_eq!(memory.word(start + 24), blocks as u32);
                        let frames = memory.word(start + 12);
                        let mut at = start + u64::from(memory.word(start + 16));
                        for index in 0..frames {
                            let (number, length) = expected.pop_front().unwrap();
                            assert_eq!(memory.word(at + 8), number);
                            assert_eq!(memory.word(at + 16), length);
                            let there = memory.word(at + 12);
                            let mut bytes = vec![0; there as usize];
                            let begin = memory.word(at + 24) & 0xffff;
                            memory.read(at + u64::from(begin), &mut bytes);
                            assert!(bytes.iter().all(|&byte| byte == number as u8));
                            let next = memory.word(at);
                            assert_eq!(next == 0, index + 1 == frames);
                            at += u64::from(next);
                        }
                        memory.set(start + STATUS, KERNEL);
                        block += 1;
                    }
                }
            }
        }
    }
}
