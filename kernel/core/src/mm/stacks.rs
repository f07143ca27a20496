// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel stacks: one for each number of a thread, with a guard below. A stack stays for the next
//! thread of that number; since the lowest free number is taken first, there are as many as there
//! were threads at a time.

use super::frames::PRIVATE;
use super::layout::{STACK_SIZE, stack_top};
use crate::arch::paging::{NoFrames, map_stack_page};
use crate::sync::SpinLock;
use crate::task::MAX_THREADS;
use crtos_vm::{FRAME_SIZE, FrameSize};

static MAPPED: SpinLock<[u64; MAX_THREADS.div_ceil(64)]> =
    SpinLock::new([0; MAX_THREADS.div_ceil(64)]);

/// Makes the stack of number `thread` present and returns its top.
pub fn make(thread: u16) -> Result<u64, NoFrames> {
    let top = stack_top(thread);
    let (word, bit) = (usize::from(thread) / 64, 1 << (thread % 64));
    let mut mapped = MAPPED.lock();
    if mapped[word] & bit == 0 {
        // Enough for the stack and the tables on the way, so that nothing fails half-way.
        if PRIVATE.usage().1 < STACK_SIZE / FRAME_SIZE + 4 {
            return Err(NoFrames);
        }
        for address in (top - STACK_SIZE..top).step_by(FRAME_SIZE as usize) {
            let frame = PRIVATE.allocate(FrameSize::Small).ok_or(NoFrames)?;
            map_stack_page(address, frame)?;
        }
        mapped[word] |= bit;
    }
    Ok(top)
}
