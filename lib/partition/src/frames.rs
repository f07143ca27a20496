// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hypervisor's own memory: 4 KiB frames of the 2 MiB blocks that the module gave it at launch.
//!
//! The pool only keeps books; frames are neither read nor written here.

use crtos_abi::{LARGE_PAGE_SIZE, PAGE_SIZE, image::MAX_HYPERVISOR_BLOCKS};

use crate::address::PhysAddr;

const FRAMES: usize = (LARGE_PAGE_SIZE / PAGE_SIZE) as usize;

#[derive(Clone, Copy)]
struct Block {
    address: PhysAddr,
    used: [u64; FRAMES / 64],
    /// Those of the used ones that hold page tables.
    tables: [u64; FRAMES / 64],
}

impl Block {
    const NONE: Self =
        Self { address: PhysAddr::new(0), used: [!0; FRAMES / 64], tables: [0; FRAMES / 64] };

    /// The frame in which `address` lies, if it is one of this block.
    fn frame_at(&self, address: PhysAddr) -> Option<usize> {
        let offset = address.get().checked_sub(self.address.get())?;
        (offset < LARGE_PAGE_SIZE).then_some((offset / PAGE_SIZE) as usize)
    }

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

    /// Adds the block at `address`, whose first `head` and last `tail` frames are in use already.
    /// More than [`MAX_HYPERVISOR_BLOCKS`] blocks are ignored.
    pub fn add_block(&mut self, address: PhysAddr, head: usize, tail: usize) {
        let Some(block) = self.blocks.get_mut(self.count) else { return };
        *block = Block { address, ..Block::NONE };
        for frame in head..FRAMES.saturating_sub(tail) {
            block.set_used(frame, false);
            self.free += 1;
        }
        self.count += 1;
    }

    /// Takes `count` contiguous frames whose address is a multiple of `align` frames (a power of
    /// two). Their content is undefined.
    pub fn allocate(&mut self, count: usize, align: usize) -> Option<PhysAddr> {
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
    pub fn free(&mut self, address: PhysAddr, count: usize) {
        let Some((block, first)) = self.find(address) else { return };
        let mut freed = 0;
        for frame in first..(first + count).min(FRAMES) {
            if block.is_used(frame) {
                block.set_used(frame, false);
                block.tables[frame / 64] &= !(1 << (frame % 64));
                freed += 1;
            }
        }
        self.free += freed;
    }

    /// Notes that the used frame at `address` holds a page table, until it is given back.
    pub fn mark_table(&mut self, address: PhysAddr) {
        if let Some((block, frame)) = self.find(address) {
            block.tables[frame / 64] |= 1 << (frame % 64);
        }
    }

    /// Tells whether `address` lies in a frame that holds a page table.
    pub fn is_table(&self, address: PhysAddr) -> bool {
        self.blocks[..self.count]
            .iter()
            .find_map(|block| Some((block, block.frame_at(address)?)))
            .is_some_and(|(block, frame)| block.tables[frame / 64] & 1 << (frame % 64) != 0)
    }

    fn find(&mut self, address: PhysAddr) -> Option<(&mut Block, usize)> {
        self.blocks[..self.count].iter_mut().find_map(|block| {
            let frame = block.frame_at(address)?;
            Some((block, frame))
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// No frame is handed out twice, and only what was marked is a table.
        #[test]
        fn every_frame_has_one_use(
            steps in prop::collection::vec((1usize..5, any::<bool>(), any::<bool>()), 1..200),
        ) {
            let mut pool = FramePool::new();
            pool.add_block(PhysAddr::new(LARGE_PAGE_SIZE), 3, 4);
            let total = pool.free_frames();
            let mut taken: Vec<(PhysAddr, usize, bool)> = Vec::new();
            for (count, table, give_back) in steps {
                if give_back {
                    let Some((address, count, _)) = taken.pop() else { continue };
                    pool.free(address, count);
                    prop_assert!(!pool.is_table(address));
                } else if let Some(address) = pool.allocate(count, 1) {
                    let end = address + count as u64 * PAGE_SIZE;
                    for (other, count, _) in &taken {
                        prop_assert!(
                            end <= *other || *other + *count as u64 * PAGE_SIZE <= address
                        );
                    }
                    if table {
                        pool.mark_table(address);
                    }
                    taken.push((address, count, table));
                }
                let used: usize = taken.iter().map(|(_, count, _)| count).sum();
                prop_assert_eq!(pool.free_frames(), total - used);
                for (address, _, table) in &taken {
                    prop_assert_eq!(pool.is_table(*address + 8), *table);
                }
            }
        }
    }
}
