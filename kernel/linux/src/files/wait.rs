// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting until a file has what a call wants of it.

use crtos_core::task::WaitQueue;

use crate::{abi::Errno, signal};

/// What `take` finds, if need be after a wait in `queue`. EAGAIN instead of the wait if the file
/// does not block; a signal ends it, and the call is made again.
pub fn take<T>(
    queue: &WaitQueue,
    nonblocking: bool,
    mut take: impl FnMut() -> Option<T>,
) -> Result<T, Errno> {
    match take() {
        Some(taken) => Ok(taken),
        None => take_later(queue, nonblocking, take),
    }
}

/// As [`take`] where there was nothing to take just before.
pub fn take_later<T>(
    queue: &WaitQueue,
    nonblocking: bool,
    take: impl FnMut() -> Option<T>,
) -> Result<T, Errno> {
    if nonblocking {
        return Err(Errno::EAGAIN);
    }
    queue.wait_until(None, |_| signal::is_interrupted(), take).map_err(|_| Errno::RESTART)
}
