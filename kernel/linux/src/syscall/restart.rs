// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls with a timeout that go on after a signal without handler: restart_syscall(2).

use crtos_core::task;

use super::poll;
use crate::{
    abi::{Errno, SysResult},
    futex::wait,
    process::{Restart, ThreadExt as _},
    timers,
};

/// restart_syscall().
pub fn restart_syscall() -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let restart = user.restart.lock().take();
    match restart {
        Some(Restart::Sleep { deadline, remainder }) => timers::go_on(deadline, remainder),
        Some(Restart::ProcessorSleep { clock, deadline, remainder }) => {
            timers::processor_go_on(clock, deadline, remainder)
        }
        Some(Restart::Futex { address, value, bits, deadline }) => {
            wait::wait(address, value, bits, Some(deadline))
        }
        Some(Restart::Poll { fds, count, deadline }) => poll::go_on(fds, count, deadline),
        None => Err(Errno::EINTR),
    }
}
