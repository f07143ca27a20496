// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion between ticks of the time stamp counter and nanoseconds.

use core::ops::{Add, Sub};

use crate::time::Nanos;

/// A factor `mult / 2^32`, applied in 128 bits: the result is exact to 2^-32 of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scale {
    mult: u64,
}

impl Scale {
    /// The factor `numerator / denominator`; `denominator` is not 0.
    const fn ratio(numerator: u64, denominator: u64) -> Self {
        Self { mult: (((numerator as u128) << 32) / denominator as u128) as u64 }
    }

    /// Multiplies `value` by the factor; saturates.
    const fn apply(self, value: u64) -> u64 {
        let wide = (value as u128 * self.mult as u128) >> 32;
        if wide > u64::MAX as u128 { u64::MAX } else { wide as u64 }
    }
}

/// A duration, or a moment, in ticks of the time stamp counter: what is only added up need not be
/// converted. Arithmetic saturates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Ticks(pub u64);

impl Ticks {
    /// None.
    pub const ZERO: Self = Self(0);
}

impl Add for Ticks {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Ticks {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// The time stamp counter as a clock that starts at 0.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    /// The tick at which the clock shows 0.
    start: u64,
    to_nanos: Scale,
    to_ticks: Scale,
}

impl TscClock {
    /// Makes a clock that shows 0 at tick `start`, of a counter of `khz` kHz (not 0).
    pub const fn new(start: u64, khz: u32) -> Self {
        Self {
            start,
            to_nanos: Scale::ratio(1_000_000, khz as u64),
            to_ticks: Scale::ratio(khz as u64, 1_000_000),
        }
    }

    /// Returns the time at tick `tsc`; 0 before the start.
    pub const fn time(&self, tsc: u64) -> Nanos {
        Nanos(self.to_nanos.apply(tsc.saturating_sub(self.start)))
    }

    /// Returns the first tick at which the clock shows `time`, or one tick later. Saturates.
    pub const fn tick(&self, time: Nanos) -> u64 {
        self.start.saturating_add(self.ticks(time).0).saturating_add(1)
    }

    /// Returns the ticks in the duration `time`, rounded down. Saturates.
    pub const fn ticks(&self, time: Nanos) -> Ticks {
        Ticks(self.to_ticks.apply(time.0))
    }

    /// Returns the duration of so many ticks, rounded down. Saturates.
    pub const fn duration(&self, ticks: Ticks) -> Nanos {
        Nanos(self.to_nanos.apply(ticks.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn time_never_goes_back(khz in 1_000u32..6_000_000, a in any::<u64>(), b in any::<u64>()) {
            let clock = TscClock::new(1000, khz);
            prop_assert!(clock.time(a.min(b)) <= clock.time(a.max(b)));
        }

        #[test]
        fn a_deadline_is_never_early(khz in 100_000u32..6_000_000, t in 0u64..1 << 55) {
            let clock = TscClock::new(77, khz);
            let shown = clock.time(clock.tick(Nanos(t)));
            // Exact to 2^-32 of the time since the start on each of the two ways.
            let tolerance = (t >> 28) + 20;
            prop_assert!(shown.0 + (t >> 28) + 1 >= t, "{shown:?} before {t}");
            prop_assert!(shown.0 <= t + tolerance + 2_000_000 / u64::from(khz), "{shown:?} long after {t}");
        }
    }

    #[test]
    fn one_second_at_three_gigahertz() {
        let clock = TscClock::new(5, 3_000_000);
        assert_eq!(clock.time(5), Nanos::ZERO);
        assert!(clock.time(5 + 3_000_000_000).0.abs_diff(1_000_000_000) <= 1);
    }
}
