// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting until a file has what a call wants of it.

use crtos_core::{
    task::{WaitError, WaitQueue},
    time::Nanos,
};

use crate::{abi::Errno, signal};

/// What `take` finds, if need be after a wait in `queue`. EAGAIN instead of the wait if the file
/// does not block; a signal ends it, and the call is made again.
pub fn take<T>(
    queue: &WaitQueue,
    nonblocking: bool,
    take: impl FnMut() -> Option<T>,
) -> Result<T, Errno> {
    let deadline = nonblocking.then_some(Nanos::ZERO);
    queue.wait_until(deadline, |_| signal::is_interrupted(), take).map_err(|error| match error {
        WaitError::Timeout => Errno::EAGAIN,
        WaitError::Interrupted => Errno::RESTART,
    })
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
    self::take(queue, false, take)
}
