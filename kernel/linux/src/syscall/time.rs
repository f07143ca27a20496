// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading clocks.

use crtos_abi::UserAddr;

use crtos_core::time::{self, Clock, Nanos};

use crate::{
    abi::{Args, Errno, SysResult},
    memory::{
        timespec::{SECOND, write_timespec},
        user,
    },
    process::Meter,
    remote,
};

use linux_raw_sys::general as linux;

/// What a clock number stands for.
pub(super) enum Source {
    /// One of Linux's clocks.
    Clock(Clock),
    /// Processor time: see [`Meter`].
    Processor,
}

pub(super) fn source(clock: u64) -> Result<Source, Errno> {
    match clock as u32 {
        linux::CLOCK_PROCESS_CPUTIME_ID | linux::CLOCK_THREAD_CPUTIME_ID => Ok(Source::Processor),
        negative if (negative as i32) < 0 => Ok(Source::Processor),
        number => Clock::from_number(number).map(Source::Clock).ok_or(Errno::EINVAL),
    }
}

/// clock_gettime(clock, time).
pub fn clock_gettime([clock, address, ..]: Args) -> SysResult {
    let time = match source(clock)? {
        Source::Clock(clock) => time::linux(clock),
        Source::Processor => match Meter::of_clock(clock as u32)?.read() {
            Some(time) => time,
            None => {
                let result = remote::own_call(linux::__NR_clock_gettime, &[clock, address])?;
                // What Linux shows of a child that has ended is its shadow's alone.
                match Meter::of_ended(clock as u32) {
                    Some(time) => time,
                    None => return Ok(result),
                }
            }
        },
    };
    write_timespec(UserAddr::new(address), time)?;
    Ok(0)
}

/// clock_getres(clock, resolution).
pub fn clock_getres([clock, address, ..]: Args) -> SysResult {
    if let Source::Processor = source(clock)?
        && let Meter::Elsewhere = Meter::of_clock(clock as u32)?
    {
        return remote::own_call(linux::__NR_clock_getres, &[clock, address]);
    }
    let address = UserAddr::new(address);
    if !address.is_null() {
        let coarse = Clock::is_coarse(clock as u32);
        write_timespec(address, Nanos(if coarse { time::coarse_resolution() } else { 1 }))?;
    }
    Ok(0)
}

/// gettimeofday(time, zone).
pub fn gettimeofday([address, zone, ..]: Args) -> SysResult {
    let [address, zone] = [address, zone].map(UserAddr::new);
    let now = time::linux(Clock::Realtime).0;
    if !address.is_null() {
        user::write_words(address, [now / SECOND, now % SECOND / 1000])?;
    }
    if !zone.is_null() {
        // UTC: minutes west of Greenwich and kind of summer time.
        user::write_words(zone, [0])?;
    }
    Ok(0)
}

/// time(address).
pub fn time([address, ..]: Args) -> SysResult {
    let seconds = time::linux(Clock::Realtime).0 / SECOND;
    let address = UserAddr::new(address);
    if !address.is_null() {
        user::write_words(address, [seconds])?;
    }
    Ok(seconds)
}
