// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scheduling of shadow threads, by value: the program's memory may change between the real-time
//! kernel's look and Linux's.

use crtos_abi::ids::Tid;
use crtos_channel::operation::Scheduling;
use crtos_syscalls::sched::{Attributes, RESET_ON_FORK, SIZE};
use linux_raw_sys::general as linux;

use crate::sys::{self, Errno};

/// Sets the scheduling of thread `tid`, or with `None` of the calling one.
pub fn set(tid: Option<Tid>, scheduling: Scheduling) -> Result<(), Errno> {
    let tid = tid.map_or(0, Tid::get);
    let wanted = Attributes {
        policy: scheduling.policy.into(),
        priority: scheduling.priority.into(),
        nice: scheduling.nice.into(),
        flags: if scheduling.reset_on_fork { RESET_ON_FORK } else { 0 },
        ..Attributes::default()
    };
    let bytes = wanted.to_bytes(SIZE as u32);
    let args = [tid.into(), bytes.as_ptr() as u64, 0];
    // SAFETY: Linux reads `bytes`.
    unsafe { sys::call(linux::__NR_sched_setattr, args) }.map(drop)
}
