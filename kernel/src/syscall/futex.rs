// SPDX-License-Identifier: MIT OR Apache-2.0
//! futex: a process has one thread and shares no memory with another, so a waiter is never woken but by its
//! timeout or a signal, and a wake-up finds nobody.

use linux_raw_sys::general::{
    FUTEX_CLOCK_REALTIME, FUTEX_CMD_MASK, FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAKE,
    FUTEX_WAKE_BITSET,
};

use super::{Args, Errno, SysResult, time::read_timespec};
use crate::{
    signal,
    time::{self, Clock, Nanos},
    user,
};

/// futex(address, operation, value, timeout, address2, bitset).
pub fn futex([address, operation, value, timeout, _, bitset]: Args) -> SysResult {
    let operation = operation as u32;
    let command = operation & FUTEX_CMD_MASK as u32;
    if !matches!(command, FUTEX_WAIT | FUTEX_WAKE | FUTEX_WAIT_BITSET | FUTEX_WAKE_BITSET) {
        return Err(Errno::ENOSYS);
    }
    let with_bitset = matches!(command, FUTEX_WAIT_BITSET | FUTEX_WAKE_BITSET);
    if address % 4 != 0 || with_bitset && bitset as u32 == 0 {
        return Err(Errno::EINVAL);
    }
    let word = user::space()?.load_u32(address)?;
    if matches!(command, FUTEX_WAKE | FUTEX_WAKE_BITSET) {
        return Ok(0);
    }
    let deadline = match timeout {
        0 => None,
        at => {
            let time = read_timespec(at)?;
            Some(match (command, operation & FUTEX_CLOCK_REALTIME) {
                (FUTEX_WAIT, _) => Nanos(time::now().0.saturating_add(time.0)),
                (_, 0) => time::deadline(Clock::Monotonic, time),
                _ => time::deadline(Clock::Realtime, time),
            })
        }
    };
    if word != value as u32 {
        return Err(Errno::EAGAIN);
    }
    match signal::sleep(deadline) {
        Ok(()) => Err(Errno::ETIMEDOUT),
        Err(_) if deadline.is_none() => Err(Errno::RESTART),
        Err(error) => Err(error),
    }
}
