// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits that are enforced here: how many signals may be queued for a process, how many
//! descriptors it may have, what its threads may run. Linux keeps them, and its kernel tells them:
//! the shadow, over which its user has power, is not asked.

use alloc::sync::Arc;

use crtos_channel::{Operation, operation::Limits};
use linux_raw_sys::general as linux;

use super::Process;
use crate::{
    abi::{Errno, linux_result},
    remote, timers,
};

/// Notes the limits of a process that begins, but for that of descriptors.
pub fn begin(process: &Arc<Process>) -> Result<(), Errno> {
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
        _ => Ok(()),
    }
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
