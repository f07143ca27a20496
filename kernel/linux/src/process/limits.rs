// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits that are enforced here: how many signals may be queued for a process, how many
//! descriptors it may have, what its threads may run. Linux keeps them, and its kernel tells them:
//! the shadow, over which its user has power, is not asked.
//!
//! What a process may map is kept here alone ([`Own`], decision 0061). The shadow maps every
//! address that its program may have, and could not do anything any more if Linux knew of such a
//! limit.

use alloc::sync::Arc;

use crtos_abi::PAGE_SIZE;
use crtos_channel::{
    Operation,
    operation::{Limits, MemoryLimits},
};
use linux_raw_sys::general as linux;

use super::Process;
use crate::{
    abi::{Errno, linux_result},
    memory::{Scratch, user},
    remote, timers,
};

/// A limit: soft and hard.
pub type Limit = [u64; 2];

/// Limits that Linux is not told of: RLIMIT_AS and RLIMIT_DATA.
#[derive(Clone, Copy, Debug)]
pub struct Own([Limit; 2]);

impl Own {
    /// There are none.
    pub const NONE: Self = Self([[u64::MAX; 2]; 2]);
    const RESOURCES: [u32; 2] = [linux::RLIMIT_AS, linux::RLIMIT_DATA];

    /// Which of them that is (`RLIMIT_*`).
    fn place(resource: u32) -> Option<usize> {
        Self::RESOURCES.iter().position(|&own| own == resource)
    }

    /// What Linux has for a program that begins. Sleeps.
    fn of_linux() -> Result<Self, Errno> {
        let MemoryLimits { all, data, .. } = of_memory()?;
        Ok(Self([all, data]))
    }

    /// Changes what Linux has for the shadow of the calling thread. Sleeps.
    pub fn tell_linux(self) -> Result<(), Errno> {
        let space = user::space()?;
        let scratch = Scratch::open(&space, PAGE_SIZE)?;
        for (resource, limit) in Self::RESOURCES.into_iter().zip(self.0) {
            user::write_words(scratch.start, limit)?;
            let args = [0, resource.into(), scratch.start.get(), 0];
            remote::linux(linux::__NR_prlimit64, &args)?;
        }
        Ok(())
    }
}

/// What Linux's kernel says of the memory of the calling thread's shadow. Sleeps.
pub fn of_memory() -> Result<MemoryLimits, Errno> {
    let (result, words) = remote::request_words(Operation::MemoryLimits)?;
    linux_result(result)?;
    Ok(MemoryLimits::from_words(&words))
}

/// Bytes that the program of the calling thread may lock, in all, and keep in memory for devices.
/// Sleeps.
pub fn lockable() -> Result<u64, Errno> {
    if remote::is_capable(linux::CAP_IPC_LOCK)? {
        return Ok(u64::MAX);
    }
    let [soft, _] = of_memory()?.locked;
    Ok(soft)
}

impl Process {
    /// The limit of a resource, if Linux is not told of that. Any context.
    pub fn own_limit(&self, resource: u32) -> Option<Limit> {
        Own::place(resource).map(|at| self.own_limits.lock().0[at])
    }

    /// Changes it. Any context.
    pub fn set_own_limit(&self, resource: u32, limit: Limit) {
        self.change_own_limits(|own| {
            if let Some(at) = Own::place(resource) {
                own.0[at] = limit;
            }
        });
    }

    /// Changes all of them. Any context.
    pub fn set_own_limits(&self, all: Own) {
        self.change_own_limits(|own| *own = all);
    }

    /// A process whose memory is another's does not limit that one.
    fn change_own_limits(&self, change: impl FnOnce(&mut Own)) {
        let mut own = self.own_limits.lock();
        change(&mut own);
        let Own([[all, _], [data, _]]) = *own;
        if !self.is_guest {
            self.space.set_limits(all, data);
        }
    }

    /// Tells Linux of the soft ones, for a program that goes on there. Returns what Linux had, if
    /// there are any. Sleeps.
    pub fn hand_over_limits(&self) -> Result<Option<Own>, Errno> {
        let Own(own) = *self.own_limits.lock();
        if own.iter().all(|&[soft, _]| soft == u64::MAX) {
            return Ok(None);
        }
        let before = Own::of_linux()?;
        let lower = |at: usize| [own[at][0].min(before.0[at][1]), before.0[at][1]];
        Own([lower(0), lower(1)]).tell_linux()?;
        Ok(Some(before))
    }
}

/// Notes the limits of a process that begins, but for that of descriptors. `own`: those that Linux
/// is not told of, if the program was executed in the realm.
pub fn begin(process: &Arc<Process>, own: Option<Own>) -> Result<(), Errno> {
    process.set_own_limits(match own {
        Some(own) => own,
        None => Own::of_linux()?,
    });
    let limits = of(process)?;
    for resource in [linux::RLIMIT_SIGPENDING, linux::RLIMIT_CPU, linux::RLIMIT_RTTIME] {
        note(process, resource, &limits)?;
    }
    Ok(())
}

/// Notes a limit (`RLIMIT_*`) that Linux may have changed.
pub fn renew(process: &Arc<Process>, resource: u32) -> Result<(), Errno> {
    match resource {
        linux::RLIMIT_SIGPENDING
        | linux::RLIMIT_NOFILE
        | linux::RLIMIT_CPU
        | linux::RLIMIT_RTTIME => note(process, resource, &of(process)?),
        linux::RLIMIT_MEMLOCK => note_lockable(process),
        _ => Ok(()),
    }
}

/// Linux says how much may be locked when something is. What is locked without a further call
/// (MCL_FUTURE) counts by what it said last.
fn note_lockable(process: &Process) -> Result<(), Errno> {
    let space = user::space()?;
    if Arc::ptr_eq(&process.space, &space) {
        space.set_lock_limit(lockable()?);
    }
    Ok(())
}

fn of(process: &Process) -> Result<Limits, Errno> {
    let tid = Some(process.pid.leader());
    let (result, words) = remote::request_words(Operation::Limits { tid })?;
    linux_result(result)?;
    Ok(Limits::from_words(&words))
}

fn note(process: &Arc<Process>, resource: u32, limits: &Limits) -> Result<(), Errno> {
    match resource {
        linux::RLIMIT_NOFILE => process.files().set_limit(limits.descriptors),
        linux::RLIMIT_SIGPENDING => process.signals.lock().group.account.limit = limits.signals,
        linux::RLIMIT_CPU => timers::limit(process, resource, limits.processor)?,
        _ => timers::limit(process, resource, limits.real_time)?,
    }
    Ok(())
}
