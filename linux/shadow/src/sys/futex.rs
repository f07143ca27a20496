// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for a word to change: futex(2).

use core::sync::atomic::AtomicU32;

use linux_raw_sys::general as linux;

use super::{Errno, call};

/// Who waits for a word.
#[derive(Clone, Copy)]
pub enum Waiters {
    /// Threads that share all memory.
    Threads,
    /// Also processes that share the word.
    Processes,
}

impl Waiters {
    fn flag(self) -> u32 {
        match self {
            Self::Threads => linux::FUTEX_PRIVATE_FLAG,
            Self::Processes => 0,
        }
    }
}

/// The longest wait: 10 ms.
static PATIENCE: linux::__kernel_timespec =
    linux::__kernel_timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Waits while `word` is `value`, until somebody wakes waiters. ETIMEDOUT after 10 ms, EAGAIN if
/// the word is another value, EINTR after a signal.
pub fn wait(word: &AtomicU32, value: u32, waiters: Waiters) -> Result<(), Errno> {
    let operation = linux::FUTEX_WAIT | waiters.flag();
    let time = &raw const PATIENCE as u64;
    let args = [word.as_ptr() as u64, operation.into(), value.into(), time];
    // SAFETY: Linux reads the word and the time.
    unsafe { call(linux::__NR_futex, args) }.map(drop)
}

/// Wakes one who waits for `word`.
pub fn wake(word: &AtomicU32, waiters: Waiters) {
    let operation = linux::FUTEX_WAKE | waiters.flag();
    // SAFETY: Linux takes the address to find who waits.
    let _ = unsafe { call(linux::__NR_futex, [word.as_ptr() as u64, operation.into(), 1]) };
}
