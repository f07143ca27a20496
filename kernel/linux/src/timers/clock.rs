// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which clock a timer or sleeper counts.

use linux_raw_sys::general as linux;

use crtos_core::time::{self, Clock, Deadline, Nanos};

use crate::abi::Errno;

/// A clock that a timer counts in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counting(Clock);

impl Counting {
    /// CLOCK_MONOTONIC.
    pub const MONOTONIC: Self = Self(Clock::Monotonic);

    /// The clock of this number, if timers can count in it.
    pub fn of(clock: u64) -> Result<Self, Errno> {
        match clock as u32 {
            linux::CLOCK_MONOTONIC => Ok(Self(Clock::Monotonic)),
            linux::CLOCK_REALTIME => Ok(Self(Clock::Realtime)),
            linux::CLOCK_BOOTTIME => Ok(Self(Clock::Boottime)),
            linux::CLOCK_TAI => Ok(Self(Clock::Tai)),
            // They can be read, but not waited for; the last two for want of a clock that wakes the
            // machine.
            linux::CLOCK_MONOTONIC_RAW
            | linux::CLOCK_MONOTONIC_COARSE
            | linux::CLOCK_REALTIME_COARSE
            | linux::CLOCK_THREAD_CPUTIME_ID
            | linux::CLOCK_PROCESS_CPUTIME_ID
            | linux::CLOCK_REALTIME_ALARM
            | linux::CLOCK_BOOTTIME_ALARM => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::EINVAL),
        }
    }

    /// What it shows now.
    pub fn now(self) -> Nanos {
        time::linux(self.0)
    }

    /// When it will show `time`.
    pub fn deadline(self, time: Nanos) -> Deadline {
        Deadline::of(self.0, time)
    }

    /// Whether it is CLOCK_REALTIME.
    pub fn is_realtime(self) -> bool {
        self.0 == Clock::Realtime
    }
}
