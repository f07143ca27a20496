// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pool of physical memory in blocks of 2 MiB, allocated whole or in frames of 4 KiB.
//!
//! All bookkeeping lies beside the pool, never in its free memory, because Linux may write to the
//! shared pool at any time. Every operation takes constant time. Frames come from blocks that are
//! broken already, and a block is whole again when its last frame comes back.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of a frame.
pub const FRAME_SIZE: u64 = 4096;
/// Bytes of a block.
pub const BLOCK_SIZE: u64 = 512 * FRAME_SIZE;
/// Frames of a block.
const FRAMES: u16 = 512;

/// The address in the cell of a frame, or of a block. It is a multiple of the size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Frame(pub u64);

/// The size of a frame or block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FrameSize {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Large,
}

impl FrameSize {
    /// Returns it in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Small => FRAME_SIZE,
            Self::Large => BLOCK_SIZE,
        }
    }
}

/// The end of a list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    /// Blocks of which all frames are free.
    Whole,
    /// Blocks of which some frames are free.
    Broken,
    /// Blocks without a free frame; they are in no list.
    Full,
}

#[derive(Clone)]
struct Block {
    /// A bit for each frame that is free.
    free: [u64; 8],
    /// Free frames.
    count: u16,
    list: List,
    next: u32,
    previous: u32,
}

/// The pool.
pub struct FramePool {
    /// Address of the first block.
    start: u64,
    blocks: Box<[Block]>,
    /// For each frame of each block, its users beyond the first. Empty if frames have one user.
    #[expect(clippy::vec_box, reason = "the heap serves blocks, not one array for all of them")]
    shares: Vec<Box<[u16; FRAMES as usize]>>,
    /// The first blocks of two lists.
    whole: u32,
    broken: u32,
    /// Free frames.
    free: u64,
}

impl FramePool {
    /// Makes a pool of the memory in `range`, all free; both ends are rounded inwards to blocks.
    /// Allocates its books.
    pub fn new(range: Range<u64>) -> Self {
        let start = range.start.next_multiple_of(BLOCK_SIZE);
        let count = (range.end.max(start) - start) / BLOCK_SIZE;
        let block = Block {
            free: [u64::MAX; 8],
            count: FRAMES,
            list: List::Full,
            next: NONE,
            previous: NONE,
        };
        let mut pool = Self {
            start,
            blocks: vec![block; count as usize].into_boxed_slice(),
            shares: Vec::new(),
            whole: NONE,
            broken: NONE,
            free: count * u64::from(FRAMES),
        };
        for block in (0..count as u32).rev() {
            pool.link(block, List::Whole);
        }
        pool
    }

    /// Makes a pool whose frames can have several users.
    pub fn with_shares(range: Range<u64>) -> Self {
        let mut pool = Self::new(range);
        pool.shares = pool.blocks.iter().map(|_| Box::new([0; FRAMES as usize])).collect();
        pool
    }

    /// Counts one more user of a frame that is in use, alone or within a block; `false` if it has
    /// 65,536 users already.
    #[must_use]
    pub fn share(&mut self, frame: Frame) -> bool {
        match self.users(frame) {
            Some(users) if *users < u16::MAX => {
                *users += 1;
                true
            }
            _ => false,
        }
    }

    /// Says whether a frame has several users.
    pub fn is_shared(&mut self, frame: Frame) -> bool {
        self.users(frame).is_some_and(|users| *users > 0)
    }

    /// Returns the count of the users of a frame beyond the first.
    fn users(&mut self, frame: Frame) -> Option<&mut u16> {
        let offset = frame.0.checked_sub(self.start)?;
        let block = self.shares.get_mut((offset / BLOCK_SIZE) as usize)?;
        block.get_mut((offset % BLOCK_SIZE / FRAME_SIZE) as usize)
    }

    /// Allocates a frame or a block; `None` if none is free.
    pub fn allocate(&mut self, size: FrameSize) -> Option<Frame> {
        match size {
            FrameSize::Small => self.allocate_small(),
            FrameSize::Large => self.allocate_large(),
        }
    }

    /// Frees a frame or a block. A frame with several users loses one of them. A block may also
    /// come back frame by frame, and has to if one of its frames was shared.
    ///
    /// # Panics
    /// If it is not from this pool, or free already: otherwise memory that is in use would be
    /// allocated again.
    pub fn free(&mut self, frame: Frame, size: FrameSize) {
        assert!(self.contains(frame), "frame {:#x} is not from this pool", frame.0);
        let offset = frame.0 - self.start;
        let index = (offset / BLOCK_SIZE) as u32;
        match size {
            FrameSize::Large => {
                let block = &mut self.blocks[index as usize];
                assert!(
                    offset.is_multiple_of(BLOCK_SIZE) && block.count == 0,
                    "block {:#x} is not in use",
                    frame.0
                );
                block.free = [u64::MAX; 8];
                block.count = FRAMES;
                self.free += u64::from(FRAMES);
                self.move_to(index, List::Whole);
            }
            FrameSize::Small => {
                if let Some(users) = self.users(frame)
                    && *users > 0
                {
                    *users -= 1;
                    return;
                }
                let bit = (offset % BLOCK_SIZE / FRAME_SIZE) as usize;
                let block = &mut self.blocks[index as usize];
                assert!(
                    block.free[bit / 64] & (1 << (bit % 64)) == 0,
                    "frame {:#x} is not in use",
                    frame.0
                );
                block.free[bit / 64] |= 1 << (bit % 64);
                block.count += 1;
                self.free += 1;
                let list = if block.count == FRAMES { List::Whole } else { List::Broken };
                self.move_to(index, list);
            }
        }
    }

    /// Says whether `frame` lies in the pool.
    pub fn contains(&self, frame: Frame) -> bool {
        frame.0 >= self.start && (frame.0 - self.start) / BLOCK_SIZE < self.blocks.len() as u64
    }

    /// Returns the number of frames of the pool.
    pub fn total(&self) -> u64 {
        self.blocks.len() as u64 * u64::from(FRAMES)
    }

    /// Returns the number of free frames.
    pub fn available(&self) -> u64 {
        self.free
    }

    fn allocate_small(&mut self) -> Option<Frame> {
        let index = if self.broken != NONE { self.broken } else { self.whole };
        let block = self.blocks.get_mut(index as usize)?;
        let word = block.free.iter().position(|&word| word != 0)?;
        let bit = block.free[word].trailing_zeros() as usize;
        block.free[word] &= !(1 << bit);
        block.count -= 1;
        self.free -= 1;
        let list = if block.count == 0 { List::Full } else { List::Broken };
        self.move_to(index, list);
        Some(Frame(
            self.start + u64::from(index) * BLOCK_SIZE + (word * 64 + bit) as u64 * FRAME_SIZE,
        ))
    }

    fn allocate_large(&mut self) -> Option<Frame> {
        let index = self.whole;
        let block = self.blocks.get_mut(index as usize)?;
        block.free = [0; 8];
        block.count = 0;
        self.free -= u64::from(FRAMES);
        self.move_to(index, List::Full);
        Some(Frame(self.start + u64::from(index) * BLOCK_SIZE))
    }

    fn head(&mut self, list: List) -> Option<&mut u32> {
        match list {
            List::Whole => Some(&mut self.whole),
            List::Broken => Some(&mut self.broken),
            List::Full => None,
        }
    }

    fn move_to(&mut self, index: u32, list: List) {
        if self.blocks[index as usize].list != list {
            self.unlink(index);
            self.link(index, list);
        }
    }

    fn link(&mut self, index: u32, list: List) {
        let mut next = NONE;
        if let Some(head) = self.head(list) {
            next = *head;
            *head = index;
        }
        if let Some(block) = self.blocks.get_mut(next as usize) {
            block.previous = index;
        }
        let block = &mut self.blocks[index as usize];
        (block.list, block.next, block.previous) = (list, next, NONE);
    }

    fn unlink(&mut self, index: u32) {
        let Block { list, next, previous, .. } = self.blocks[index as usize];
        if let Some(block) = self.blocks.get_mut(next as usize) {
            block.previous = previous;
        }
        if let Some(block) = self.blocks.get_mut(previous as usize) {
            block.next = next;
        } else if let Some(head) = self.head(list) {
            *head = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Step {
        Small,
        Large,
        FreeSmall(usize),
        FreeLarge(usize),
        FreeFromLarge(usize),
        Share(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => Just(Step::Small),
            2 => Just(Step::Large),
            4 => any::<usize>().prop_map(Step::FreeSmall),
            1 => any::<usize>().prop_map(Step::FreeLarge),
            1 => any::<usize>().prop_map(Step::FreeFromLarge),
            2 => any::<usize>().prop_map(Step::Share),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_handed_out_never_overlaps(steps in proptest::collection::vec(step(), 0..1200)) {
            let base = 7 * BLOCK_SIZE;
            let mut pool = FramePool::with_shares(base - 5..base + 3 * BLOCK_SIZE + 100);
            prop_assert_eq!(pool.total(), 3 * 512);
            let mut small: Vec<u64> = Vec::new();
            let mut large: Vec<u64> = Vec::new();
            let mut used: BTreeSet<u64> = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Small => match pool.allocate(FrameSize::Small) {
                        Some(frame) => {
                            prop_assert!(
                                frame.0 >= base
                                    && frame.0 < base + 3 * BLOCK_SIZE
                                    && frame.0 % FRAME_SIZE == 0
                            );
                            prop_assert!(used.insert(frame.0));
                            small.push(frame.0);
                        }
                        None => prop_assert_eq!(used.len(), 3 * 512),
                    },
                    Step::Large => {
                        let possible = (0..3).any(|b| {
                            used.range(base + b * BLOCK_SIZE..base + (b + 1) * BLOCK_SIZE)
                                .next()
                                .is_none()
                        });
                        let got = pool.allocate(FrameSize::Large);
                        prop_assert_eq!(got.is_some(), possible);
                        if let Some(frame) = got {
                            prop_assert_eq!(frame.0 % BLOCK_SIZE, 0);
                            for i in 0..512 {
                                prop_assert!(used.insert(frame.0 + i * FRAME_SIZE));
                            }
                            large.push(frame.0);
                        }
                    }
                    Step::FreeSmall(i) if !small.is_empty() => {
                        let frame = small.swap_remove(i % small.len());
                        prop_assert_eq!(pool.is_shared(Frame(frame)), small.contains(&frame));
                        if !small.contains(&frame) {
                            used.remove(&frame);
                        }
                        pool.free(Frame(frame), FrameSize::Small);
                    }
                    Step::FreeLarge(i) if !large.is_empty() => {
                        let frame = large.swap_remove(i % large.len());
                        (0..512).for_each(|i| {
                            used.remove(&(frame + i * FRAME_SIZE));
                        });
                        pool.free(Frame(frame), FrameSize::Large);
                    }
                    Step::FreeFromLarge(i) if !large.is_empty() => {
                        let frame = large.swap_remove(i % large.len());
                        (0..512).for_each(|i| small.push(frame + i * FRAME_SIZE));
                    }
                    Step::Share(i) if !small.is_empty() => {
                        let frame = small[i % small.len()];
                        prop_assert!(pool.share(Frame(frame)));
                        small.push(frame);
                    }
                    _ => {}
                }
                prop_assert_eq!(pool.available(), pool.total() - used.len() as u64);
            }
        }
    }

    #[test]
    #[should_panic(expected = "not in use")]
    fn a_frame_cannot_be_freed_twice() {
        let mut pool = FramePool::new(0..BLOCK_SIZE);
        let frame = pool.allocate(FrameSize::Small).unwrap();
        pool.free(frame, FrameSize::Small);
        pool.free(frame, FrameSize::Small);
    }
}
