// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel stacks: one for each number of a thread, with a guard below. A stack stays for the next
//! thread of that number; since the lowest free number is taken first, there are as many as there
//! were threads at a time.

use core::sync::atomic::{AtomicU64, Ordering};

use super::frames::{self, PRIVATE};
use super::layout::{STACK_SIZE, stack_top};
use crate::arch::paging::{NoFrames, map_stack_page};
use crate::task::MAX_THREADS;
use crtos_vm::{FRAME_SIZE, FrameSize};

/// A bit for each number whose stack is present.
static PRESENT: [AtomicU64; MAX_THREADS.div_ceil(64)] =
    [const { AtomicU64::new(0) }; MAX_THREADS.div_ceil(64)];

/// Makes the stack of number `thread`, which the caller has, present and returns its top. That of a
/// program's thread leaves the reserve. In thread context or at boot; preemptible between pages.
pub fn make(thread: u16, is_programs: bool) -> Result<u64, NoFrames> {
    let top = stack_top(thread);
    let (word, bit) = (&PRESENT[usize::from(thread) / 64], 1 << (thread % 64));
    if word.load(Ordering::Relaxed) & bit == 0 {
        // Enough for the stack and the tables on the way. Where others take that meanwhile, the
        // pages that are there wait for the next thread of that number.
        let left = if is_programs { frames::RESERVE } else { 0 };
        if PRIVATE.usage().1 < left + STACK_SIZE / FRAME_SIZE + 4 {
            return Err(NoFrames);
        }
        for address in (top - STACK_SIZE..top).step_by(FRAME_SIZE as usize) {
            map_stack_page(address, || PRIVATE.allocate(FrameSize::Small))?;
        }
        word.fetch_or(bit, Ordering::Relaxed);
    }
    Ok(top)
}
