// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scheduling of shadow threads, by value: the program's memory may change between the real-time kernel's look
//! and Linux's.

use crtos_syscalls::sched::{Attributes, RESET_ON_FORK, SIZE};
use linux_raw_sys::general as linux;

use crate::sys;

/// `OP_SCHEDULE`: reads the scheduling of thread `tid`, or sets it.
pub fn schedule(tid: u64, sets: u64, word: u64) -> i64 {
    if sets == 0 { get(tid) } else { set(tid, word) }
}

fn get(tid: u64) -> i64 {
    let mut bytes = [0; SIZE];
    let args = [tid, bytes.as_mut_ptr() as u64, SIZE as u64, 0, 0, 0];
    // SAFETY: the call writes to `bytes` alone, within its size.
    match unsafe { sys::raw(linux::__NR_sched_getattr, args) } {
        0 => {
            let found = Attributes::from_bytes(&bytes);
            i64::from(found.policy & 0xff)
                | i64::from(found.priority & 0xff) << 8
                | i64::from(found.nice + 20) << 16
                | i64::from(found.flags & RESET_ON_FORK != 0) << 24
        }
        error => error,
    }
}

fn set(tid: u64, word: u64) -> i64 {
    let wanted = Attributes {
        policy: word as u32 & 0xff,
        priority: (word >> 8) as u32 & 0xff,
        nice: ((word >> 16) as i32 & 0xff) - 20,
        flags: if word >> 24 & 1 != 0 { RESET_ON_FORK } else { 0 },
        ..Attributes::default()
    };
    let bytes = wanted.to_bytes(SIZE as u32);
    // SAFETY: the call only reads `bytes`.
    unsafe { sys::raw(linux::__NR_sched_setattr, [tid, bytes.as_ptr() as u64, 0, 0, 0, 0]) }
}
