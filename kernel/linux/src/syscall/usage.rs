// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processor time: clocks of threads and processes, getrusage, times.
//!
//! All time counts as that of the user: a thread's own system calls are a small part of it.

use crtos_abi::UserAddr;

use crtos_core::{
    task,
    time::{self, Clock},
};
use crtos_syscalls::structs::Rusage;

use crate::{
    abi::{Args, Errno, SysResult},
    memory::{timespec::SECOND, user},
    process::{ThreadExt as _, account::Usage},
};

/// times(buffer).
pub fn times([buffer, ..]: Args) -> SysResult {
    /// Clock ticks (`USER_HZ`) in nanoseconds.
    const TICK: u64 = 10_000_000;
    let buffer = UserAddr::new(buffer);
    if !buffer.is_null() {
        let current = task::current();
        let process = &current.user().ok_or(Errno::EINVAL)?.process;
        let [own, children] = [process.used(), process.account().waited_for()];
        user::write_words(buffer, [own.time.0 / TICK, 0, children.time.0 / TICK, 0])?;
    }
    Ok(time::linux(Clock::Monotonic).0 / TICK)
}

/// getrusage(who, usage).
pub fn getrusage([who, address, ..]: Args) -> SysResult {
    const RUSAGE_SELF: i32 = 0;
    const RUSAGE_THREAD: i32 = 1;
    const RUSAGE_CHILDREN: i32 = -1;
    let current = task::current();
    let process = &current.user().ok_or(Errno::EINVAL)?.process;
    let used = match who as i32 {
        RUSAGE_SELF => process.used(),
        RUSAGE_THREAD => Usage { most_present: process.used().most_present, ..Usage::of(&current) },
        RUSAGE_CHILDREN => process.account().waited_for(),
        _ => return Err(Errno::EINVAL),
    };
    write(UserAddr::new(address), used)?;
    Ok(0)
}

/// Stores a `struct rusage` at `address` of the program.
pub fn write(address: UserAddr, used: Usage) -> Result<(), Errno> {
    let usage = Rusage {
        user_time: [used.time.0 / SECOND, used.time.0 % SECOND / 1000],
        largest_resident: used.most_present / 1024,
        voluntary_switches: used.switches,
        ..Rusage::default()
    };
    Ok(user::write_struct(address, &usage)?)
}
