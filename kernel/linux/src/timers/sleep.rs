// SPDX-License-Identifier: MIT OR Apache-2.0
//! nanosleep and clock_nanosleep.

use crtos_abi::UserAddr;
use linux_raw_sys::general as linux;

use crtos_core::{
    task,
    time::{self, Nanos},
};

use super::{
    clock::Counting,
    processor::{self, Counted},
};
use crate::{
    abi::{Args, Errno, SysResult},
    memory::timespec::{read_timespec, write_timespec},
    process::{Restart, ThreadExt as _},
    signal,
};

/// nanosleep(request, remainder).
pub fn nanosleep([request, remainder, ..]: Args) -> SysResult {
    let [request, remainder] = [request, remainder].map(UserAddr::new);
    let duration = read_timespec(request)?;
    until(time::now() + duration, remainder)
}

/// clock_nanosleep(clock, flags, request, remainder).
pub fn clock_nanosleep([clock, flags, request, remainder, ..]: Args) -> SysResult {
    let [request, remainder] = [request, remainder].map(UserAddr::new);
    let is_absolute = flags & u64::from(linux::TIMER_ABSTIME) != 0;
    if Counted::is_named(clock) {
        return processor::clock_nanosleep(clock, is_absolute, request, remainder);
    }
    let counting = Counting::of(clock)?;
    let time = read_timespec(request)?;
    if !is_absolute {
        return until(time::now() + time, remainder);
    }
    signal::sleep(Some(counting.deadline(time)))?;
    Ok(0)
}

/// Sleeps until `deadline`. A signal without handler does not shorten it.
fn until(deadline: Nanos, remainder: UserAddr) -> SysResult {
    if signal::sleep(Some(deadline.into())).is_ok() {
        return Ok(0);
    }
    let rest = deadline - time::now();
    if rest == Nanos::ZERO {
        return Ok(0);
    }
    if !remainder.is_null() {
        write_timespec(remainder, rest)?;
    }
    if let Some(user) = task::current().user() {
        *user.restart.lock() = Some(Restart::Sleep { deadline, remainder });
    }
    Err(Errno::RESTART_BLOCK)
}

/// Goes on with a sleep that a signal interrupted.
pub fn go_on(deadline: Nanos, remainder: UserAddr) -> SysResult {
    until(deadline, remainder)
}
