// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processor time: clocks of threads and processes, getrusage, times.
//!
//! All time counts as that of the user: a thread's own system calls are a small part of it.

use alloc::sync::Arc;

use linux_raw_sys::general as linux;

use super::{Args, Errno, SysResult, time::SECOND};
use crate::{
    account::Usage,
    process::Process,
    task, threads,
    time::{self, Clock, Nanos},
    user,
};

/// Whose processor time a clock shows.
pub enum Meter {
    /// Of a thread of the calling process.
    Thread(Arc<task::Thread>),
    /// Of a process in the realm.
    Process(Arc<Process>),
    /// Of a process that Linux alone knows.
    Elsewhere,
}

impl Meter {
    /// The clock of this number: CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, or the complement of an id and three bits that say
    /// what of it (clock_getcpuclockid(3)). Thread context; may sleep.
    pub fn of_clock(clock: u32) -> Result<Self, Errno> {
        /// The clock is a thread's; the bits that say which time; no such time.
        const OF_THREAD: u32 = 4;
        const WHICH: u32 = 3;
        const NONE: u32 = 3;
        let current = task::current();
        let own = &current.data.user().ok_or(Errno::EINVAL)?.process;
        let (id, of_thread) = match clock {
            linux::CLOCK_PROCESS_CPUTIME_ID => (0, false),
            linux::CLOCK_THREAD_CPUTIME_ID => (0, true),
            _ if (clock as i32) < 0 && clock & WHICH != NONE => {
                (!((clock as i32 >> 3) as u32), clock & OF_THREAD != 0)
            }
            _ => return Err(Errno::EINVAL),
        };
        match (id, of_thread) {
            (0, true) => Ok(Self::Thread(current.arc())),
            (0, false) => Ok(Self::Process(own.clone())),
            (tid, true) => {
                let thread = threads::find(tid).ok_or(Errno::EINVAL)?;
                let user = thread.data.user().filter(|user| Arc::ptr_eq(&user.process, own));
                user.is_some().then(|| Self::Thread(thread.clone())).ok_or(Errno::EINVAL)
            }
            (pid, false) => Ok(threads::find_process(pid).map_or(Self::Elsewhere, Self::Process)),
        }
    }

    /// What it shows. Thread context; may sleep.
    pub fn read(&self) -> Option<Nanos> {
        match self {
            Self::Thread(thread) => Some(thread.time_used()),
            Self::Process(process) => Some(process.used().time),
            Self::Elsewhere => None,
        }
    }
}

/// times(buffer).
pub fn times([buffer, ..]: Args) -> SysResult {
    /// Clock ticks (`USER_HZ`) in nanoseconds.
    const TICK: u64 = 10_000_000;
    if buffer != 0 {
        let current = task::current();
        let process = &current.data.user().ok_or(Errno::EINVAL)?.process;
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
    let process = &current.data.user().ok_or(Errno::EINVAL)?.process;
    let used = match who as i32 {
        RUSAGE_SELF => process.used(),
        RUSAGE_THREAD => Usage { present: process.space.usage().1, ..Usage::of(&current) },
        RUSAGE_CHILDREN => process.account().waited_for(),
        _ => return Err(Errno::EINVAL),
    };
    write(address, used)?;
    Ok(0)
}

/// Stores a `struct rusage` at `address` of the program.
pub fn write(address: u64, used: Usage) -> Result<(), Errno> {
    let mut usage = [0; 18];
    (usage[0], usage[1]) = (used.time.0 / SECOND, used.time.0 % SECOND / 1000);
    usage[4] = used.present / 1024;
    usage[16] = used.switches;
    Ok(user::write_words(address, usage)?)
}
