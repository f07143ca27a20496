// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks of processor time.
//!
//! All time counts as that of the user: a thread's own system calls are a small part of it.

use alloc::sync::Arc;

use crtos_abi::ids::{Pid, Tid};
use crtos_core::{task, time::Nanos};

use super::{Process, ThreadExt as _, threads};
use crate::abi::Errno;

use linux_raw_sys::general as linux;

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
    /// The clock of this number: CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, or the
    /// complement of an id and three bits that say what of it (clock_getcpuclockid(3)). Thread
    /// context; may sleep.
    pub fn of_clock(clock: u32) -> Result<Self, Errno> {
        let current = task::current();
        let own = &current.user().ok_or(Errno::EINVAL)?.process;
        let (id, of_thread) = parts(clock).ok_or(Errno::EINVAL)?;
        let find = |id| Tid::new(id).and_then(|tid| threads::find(own, tid));
        match (id, of_thread) {
            (0, true) => Ok(Self::Thread(current.arc())),
            (0, false) => Ok(Self::Process(own.clone())),
            (id, true) => {
                let thread = find(id).ok_or(Errno::EINVAL)?;
                let user = thread.user().filter(|user| Arc::ptr_eq(&user.process, own));
                user.is_some().then(|| Self::Thread(thread.clone())).ok_or(Errno::EINVAL)
            }
            (id, false) => {
                let process = Pid::new(id).and_then(|pid| threads::find_process(own, pid));
                Ok(process.map_or(Self::Elsewhere, Self::Process))
            }
        }
    }

    /// What the clock shows, if it is that of a child of the calling process that has ended and was
    /// not waited for. Thread context; may sleep.
    pub fn of_ended(clock: u32) -> Option<Nanos> {
        let (id, of_thread) = parts(clock)?;
        let pid = Pid::new(id).filter(|_| !of_thread)?;
        task::current().user()?.process.account().clock_of_ended(pid)
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

/// The id in the number of a clock, 0 for the caller's, and whether it is a thread's.
fn parts(clock: u32) -> Option<(u32, bool)> {
    /// The clock is a thread's; the bits that say which time; no such time.
    const OF_THREAD: u32 = 4;
    const WHICH: u32 = 3;
    const NONE: u32 = 3;
    match clock {
        linux::CLOCK_PROCESS_CPUTIME_ID => Some((0, false)),
        linux::CLOCK_THREAD_CPUTIME_ID => Some((0, true)),
        _ if (clock as i32) < 0 && clock & WHICH != NONE => {
            Some((!((clock as i32 >> 3) as u32), clock & OF_THREAD != 0))
        }
        _ => None,
    }
}
