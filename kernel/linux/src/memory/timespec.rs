// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times as programs store them.

use crtos_abi::UserAddr;

use crtos_core::{mm::space::BadAddress, time::Nanos};

use super::user;
use crate::abi::Errno;

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// Reads a `struct timespec`.
pub fn read_timespec(address: UserAddr) -> Result<Nanos, Errno> {
    let [seconds, nanoseconds] = user::read_words(address)?;
    timespec(seconds, nanoseconds)
}

/// What a `struct timespec` says; EINVAL if it is negative or not normal.
pub fn timespec(seconds: u64, nanoseconds: u64) -> Result<Nanos, Errno> {
    if seconds > i64::MAX as u64 || nanoseconds >= SECOND {
        return Err(Errno::EINVAL);
    }
    Ok(Nanos(seconds.saturating_mul(SECOND).saturating_add(nanoseconds)))
}

/// Writes a `struct timespec`.
pub fn write_timespec(address: UserAddr, time: Nanos) -> Result<(), BadAddress> {
    user::write_words(address, [time.0 / SECOND, time.0 % SECOND])
}
