// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks. The kernel's own clock counts from its boot and never steps; all deadlines are in it.
//! Linux's clocks follow from the channel.

pub use crtos_sched::Nanos;

/// Linux's clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// CLOCK_MONOTONIC.
    Monotonic,
    /// CLOCK_REALTIME.
    Realtime,
    /// CLOCK_BOOTTIME.
    Boottime,
}

/// Time since the kernel's boot. Any context.
pub fn now() -> Nanos {
    unimplemented!()
}

/// Time of one of Linux's clocks. Any context.
pub fn linux(_clock: Clock) -> Nanos {
    unimplemented!()
}

/// The kernel's time at which `clock` will show `time`; now or earlier if that has passed.
pub fn deadline(_clock: Clock, _time: Nanos) -> Nanos {
    unimplemented!()
}
