// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks and sleeping.

use linux_raw_sys::general as linux;

use super::{Args, Errno, SysResult};
use crate::{
    mm::space::BadAddress,
    remote, signal, task,
    time::{self, Clock, Nanos},
    user,
};

const SECOND: u64 = 1_000_000_000;

/// Reads a `struct timespec`.
pub fn read_timespec(address: u64) -> Result<Nanos, Errno> {
    let [seconds, nanoseconds] = user::read_words(address)?;
    if seconds > i64::MAX as u64 || nanoseconds >= SECOND {
        return Err(Errno::EINVAL);
    }
    Ok(Nanos(seconds.saturating_mul(SECOND).saturating_add(nanoseconds)))
}

fn write_timespec(address: u64, time: Nanos) -> Result<(), BadAddress> {
    user::write_words(address, [time.0 / SECOND, time.0 % SECOND])
}

/// What a clock number stands for.
enum Source {
    /// One of Linux's clocks, and what is added to it.
    Clock(Clock, u64),
    /// Processor time of the process, which has one thread.
    Processor,
}

fn source(clock: u64) -> Result<Source, Errno> {
    Ok(match clock as u32 {
        linux::CLOCK_REALTIME | linux::CLOCK_REALTIME_COARSE => Source::Clock(Clock::Realtime, 0),
        linux::CLOCK_MONOTONIC | linux::CLOCK_MONOTONIC_RAW | linux::CLOCK_MONOTONIC_COARSE => {
            Source::Clock(Clock::Monotonic, 0)
        }
        linux::CLOCK_BOOTTIME => Source::Clock(Clock::Boottime, 0),
        linux::CLOCK_TAI => {
            let offset = remote::block()
                .and_then(|block| block.clocks())
                .map_or(0, |clocks| clocks.tai_offset);
            Source::Clock(Clock::Realtime, u64::from(offset) * SECOND)
        }
        linux::CLOCK_PROCESS_CPUTIME_ID | linux::CLOCK_THREAD_CPUTIME_ID => Source::Processor,
        _ => return Err(Errno::EINVAL),
    })
}

/// clock_gettime(clock, time).
pub fn clock_gettime([clock, address, ..]: Args) -> SysResult {
    let time = match source(clock)? {
        Source::Clock(clock, offset) => Nanos(time::linux(clock).0.saturating_add(offset)),
        Source::Processor => task::current().run_time(),
    };
    write_timespec(address, time)?;
    Ok(0)
}

/// clock_getres(clock, resolution).
pub fn clock_getres([clock, address, ..]: Args) -> SysResult {
    source(clock)?;
    if address != 0 {
        write_timespec(address, Nanos(1))?;
    }
    Ok(0)
}

/// gettimeofday(time, zone).
pub fn gettimeofday([address, zone, ..]: Args) -> SysResult {
    let now = time::linux(Clock::Realtime).0;
    if address != 0 {
        user::write_words(address, [now / SECOND, now % SECOND / 1000])?;
    }
    if zone != 0 {
        // UTC: minutes west of Greenwich and kind of summer time.
        user::write_words(zone, [0])?;
    }
    Ok(0)
}

/// time(address).
pub fn time([address, ..]: Args) -> SysResult {
    let seconds = time::linux(Clock::Realtime).0 / SECOND;
    if address != 0 {
        user::write_words(address, [seconds])?;
    }
    Ok(seconds)
}

/// nanosleep(request, remainder).
pub fn nanosleep([request, remainder, ..]: Args) -> SysResult {
    let duration = read_timespec(request)?;
    sleep_for(duration, remainder)
}

/// clock_nanosleep(clock, flags, request, remainder).
pub fn clock_nanosleep([clock, flags, request, remainder, ..]: Args) -> SysResult {
    let Source::Clock(clock, offset) = source(clock)? else { return Err(Errno::EINVAL) };
    let time = read_timespec(request)?;
    if flags & u64::from(linux::TIMER_ABSTIME) == 0 {
        return sleep_for(time, remainder);
    }
    signal::sleep(Some(time::deadline(clock, Nanos(time.0.saturating_sub(offset)))))?;
    Ok(0)
}

fn sleep_for(duration: Nanos, remainder: u64) -> SysResult {
    let deadline = time::now().0.saturating_add(duration.0);
    signal::sleep(Some(Nanos(deadline))).or_else(|error| {
        if remainder != 0 {
            write_timespec(remainder, Nanos(deadline.saturating_sub(time::now().0)))?;
        }
        Err(error)
    })?;
    Ok(0)
}

/// Clock ticks (`USER_HZ`) in nanoseconds.
const TICK: u64 = 10_000_000;

/// times(buffer).
pub fn times([buffer, ..]: Args) -> SysResult {
    if buffer != 0 {
        user::write_words(buffer, [task::current().run_time().0 / TICK, 0, 0, 0])?;
    }
    Ok(time::linux(Clock::Monotonic).0 / TICK)
}

/// getrusage(who, usage).
pub fn getrusage([who, address, ..]: Args) -> SysResult {
    let mut usage = [0; 18];
    match who as i32 {
        RUSAGE_SELF | RUSAGE_THREAD => {
            let current = task::current();
            let time = current.run_time().0;
            (usage[0], usage[1]) = (time / SECOND, time % SECOND / 1000);
            usage[4] = current.space().map_or(0, |space| space.usage().1 / 1024);
            usage[16] = current.switches();
        }
        RUSAGE_CHILDREN => {}
        _ => return Err(Errno::EINVAL),
    }
    user::write_words(address, usage)?;
    Ok(0)
}

const RUSAGE_SELF: i32 = 0;
const RUSAGE_THREAD: i32 = 1;
const RUSAGE_CHILDREN: i32 = -1;

/// getitimer(which, value): Linux's timer sends its signal to the shadow, which forwards it.
pub fn getitimer(args: Args) -> SysResult {
    real_timer(linux::__NR_getitimer, args)
}

/// setitimer(which, value, old).
pub fn setitimer(args: Args) -> SysResult {
    real_timer(linux::__NR_setitimer, args)
}

fn real_timer(nr: u32, args: Args) -> SysResult {
    if args[0] as u32 != linux::ITIMER_REAL {
        return Err(Errno::EINVAL);
    }
    super::linux(nr, &args)
}
