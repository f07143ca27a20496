// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gaps between regions: where there is room.
//!
//! They are kept by size, in classes that begin at powers of two. So only gaps of about the size
//! that is looked for are looked at one by one: a search takes logarithmic time, unless many of
//! them are slightly too small.

use crate::FRAME_SIZE;
use alloc::{boxed::Box, collections::BTreeMap};
use core::ops::Range;
use crtos_abi::UserAddr;

/// How many classes there are: of a page and of two, up to half of all addresses.
const CLASSES: usize = (u64::BITS - FRAME_SIZE.trailing_zeros()) as usize;

/// Gaps that neither overlap nor meet.
#[derive(Debug)]
pub struct Gaps {
    /// Of each class the ends by the starts. Elsewhere in memory: address spaces exchange what they
    /// know with interrupts off.
    classes: Box<[BTreeMap<UserAddr, UserAddr>; CLASSES]>,
}

/// The class of gaps of that length in bytes, at least a page.
fn class(length: u64) -> usize {
    (length / FRAME_SIZE).max(1).ilog2() as usize
}

impl Gaps {
    /// None.
    pub fn new() -> Self {
        Self { classes: Box::new([const { BTreeMap::new() }; CLASSES]) }
    }

    /// Adds a gap, unless it is empty.
    pub fn add(&mut self, gap: Range<UserAddr>) {
        if gap.start < gap.end {
            self.classes[class(gap.end - gap.start)].insert(gap.start, gap.end);
        }
    }

    /// Removes a gap that was added, unless it is empty.
    pub fn remove(&mut self, gap: Range<UserAddr>) {
        if gap.start < gap.end {
            self.classes[class(gap.end - gap.start)].remove(&gap.start);
        }
    }

    /// Returns the highest address for `length` bytes in a gap below `top`, aligned to `align`.
    pub fn find(&self, length: u64, align: u64, top: UserAddr) -> Option<UserAddr> {
        let mut best = None;
        for gaps in &self.classes[class(length)..] {
            for (&start, &end) in gaps.range(..top).rev() {
                // Those below end before it.
                if best.is_some_and(|best| end <= best) {
                    break;
                }
                let found = end.min(top).checked_sub(length).map(|at| at.align_down(align));
                if let Some(found) = found.filter(|&found| found >= start) {
                    best = best.max(Some(found));
                    break;
                }
            }
        }
        best
    }
}
