// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that frees what threads leave behind: at ordinary level, preemptible, so that it is
//! never in a real-time thread's way.

use super::thread::{MAX_THREADS, by_id, forget};
use super::{Thread, block, idle, spawn};
use crate::task::{Spawn, SpawnError, ThreadId};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use spin::Once;

static REAPER: Once<Arc<Thread>> = Once::new();

/// Bit per number of a thread that ended.
static ENDED: [AtomicU64; MAX_THREADS / 64] = [const { AtomicU64::new(0) }; MAX_THREADS / 64];

/// Starts it.
pub fn start() -> Result<(), SpawnError> {
    let thread = spawn(Spawn { name: "reaper", ..Default::default() }, || {
        loop {
            for (index, word) in ENDED.iter().enumerate() {
                let mut bits = word.swap(0, Ordering::Acquire);
                while bits != 0 {
                    reap(index as u16 * 64 + bits.trailing_zeros() as u16);
                    bits &= bits - 1;
                }
            }
            idle::publish_memory();
            block(None);
        }
    })?;
    REAPER.call_once(|| thread);
    Ok(())
}

/// Has the reaper free the current thread, which is about to leave its CPU for good. Interrupts
/// off.
pub(super) fn bury(id: ThreadId) {
    ENDED[usize::from(id.0) / 64].fetch_or(1 << (id.0 % 64), Ordering::Release);
    if let Some(reaper) = REAPER.get() {
        reaper.wake();
    }
}

fn reap(id: u16) {
    // It leaves its CPU with interrupts off.
    // SAFETY: this thread alone frees others.
    let thread = unsafe { by_id(id) };
    while thread.stack_pointer.load(Ordering::Acquire) == 0 {
        core::hint::spin_loop();
    }
    drop(forget(id));
}
