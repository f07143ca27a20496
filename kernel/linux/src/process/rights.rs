// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program may do to another one. Linux's kernel tells that, not the shadow: over that its
//! owner has power, who may have it say anything.

use alloc::sync::Arc;

use crtos_channel::Operation;
pub use crtos_channel::operation::Deed;
use crtos_core::task;

use super::{Process, ThreadExt as _, UserThread};
use crate::{
    abi::{Errno, linux_result},
    remote,
};

/// Fails unless the calling thread may do that to `other`. To its own process it may. May sleep,
/// and asks Linux.
pub fn check(other: &UserThread, deed: Deed) -> Result<(), Errno> {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    if Arc::ptr_eq(&user.process, &other.process) {
        return Ok(());
    }
    let may = Operation::May { deed, slot: other.slot, pid: other.process.outer_pid };
    linux_result(remote::request(may)?).map(drop)
}

/// The same of a process.
pub fn check_process(other: &Process, deed: Deed) -> Result<(), Errno> {
    let first = other.members.lock().threads.first().cloned();
    let first = first.as_deref().and_then(|thread| thread.user()).ok_or(Errno::ESRCH)?;
    check(first, deed)
}
