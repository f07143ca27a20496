// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hypervisor's own memory: 4 KiB frames of the 2 MiB blocks that the module gave it at launch.
//!
//! The pool only keeps books; frames are neither read nor written here.

use crtos_abi::{LARGE_PAGE_SIZE, PAGE_SIZE, image::MAX_HYPERVISOR_BLOCKS};

const FRAMES: usize = (LARGE_PAGE_SIZE / PAGE_SIZE) as usize;

#[derive(Clone, Copy)]
struct Block {
    address: u64,
    used: [u64; FRAMES / 64],
}

impl Block {
    const NONE: Self = Self { address: 0, used: [!0; FRAMES / 64] };

    fn is_used(&self, frame: usize) -> bool {
        self.used[frame / 64] & (1 << (frame % 64)) != 0
    }

    fn set_used(&mut self, frame: usize, used: bool) {
        let bit = 1 << (frame % 64);
        if used {
            self.used[frame / 64] |= bit;
        } else {
            self.used[frame / 64] &= !bit;
        }
    }
}

/// Free and used frames.
pub struct FramePool {
    blocks: [Block; MAX_HYPERVISOR_BLOCKS],
    count: usize,
    free: usize,
}

impl FramePool {
    /// A pool without memory.
    pub const fn new() -> Self {
        Self { blocks: [Block::NONE; MAX_HYPERVISOR_BLOCKS], count: 0, free: 0 }
    }

    /// Adds the block at physical `address`, whose first `head` and last `tail` frames are in use already.
    /// More than [`MAX_HYPERVISOR_BLOCKS`] blocks are ignored.
    pub fn add_block(&mut self, address: u64, head: usize, tail: usize) {
        let Some(block) = self.blocks.get_mut(self.count) else { return };
        *block = Block { address, ..Block::NONE };
        for frame in head..FRAMES.saturating_sub(tail) {
            block.set_used(frame, false);
            self.free += 1;
        }
        self.count += 1;
    }

    /// Takes `count` contiguous frames whose address is a multiple of `align` frames (a power of two).
    /// Their content is undefined.
    pub fn allocate(&mut self, count: usize, align: usize) -> Option<u64> {
        for block in &mut self.blocks[..self.count] {
            let mut first = 0;
            while first + count <= FRAMES {
                match (first..first + count).rev().find(|frame| block.is_used(*frame)) {
                    Some(used) => first = (used + 1).next_multiple_of(align),
                    None => {
                        (first..first + count).for_each(|frame| block.set_used(frame, true));
                        self.free -= count;
                        return Some(block.address + first as u64 * PAGE_SIZE);
                    }
                }
            }
        }
        None
    }

    /// Gives back `count` frames from `address`, which came from [`Self::allocate`].
    pub fn free(&mut self, address: u64, count: usize) {
        let block = self.blocks[..self.count]
            .iter_mut()
            .find(|block| (block.address..block.address + LARGE_PAGE_SIZE).contains(&address));
        let Some(block) = block else { return };
        let first = ((address - block.address) / PAGE_SIZE) as usize;
        for frame in first..(first + count).min(FRAMES) {
            if block.is_used(frame) {
                block.set_used(frame, false);
                self.free += 1;
            }
        }
    }

    /// Free frames.
    pub fn free_frames(&self) -> usize {
        self.free
    }
}

impl Default for FramePool {
    fn default() -> Self {
        Self::new()
    }
}
