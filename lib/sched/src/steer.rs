// SPDX-License-Identifier: MIT OR Apache-2.0
//! A clock that is led by another one, whose owner is not trusted.
//!
//! The clock is a chain of lines through the time stamp counter. Each begins where the one before
//! it stands. From the other clock only its rate is taken, and a correction of the rate that lets
//! the two meet; both together stay within [`BOUND_PPM`] of the counter's nominal frequency. So the
//! clock never steps and never goes back, whatever the other one's owner says.

/// How far the clock's rate may be from the nominal one, in millionths.
///
/// An honest Linux slews by up to 500 for NTP's frequency and by up to 500 more for adjtime(3).
pub const BOUND_PPM: u64 = 1000;

/// What is further from the nominal rate than one over this is no rate of an honest Linux, which
/// can change the length of its ticks by a tenth.
const NONSENSE: u64 = 4;

/// The furthest apart that two clocks count as, in nanoseconds. The bound cuts corrections long
/// before that.
const FAR: i64 = 1 << 30;

/// A line: `base + ((tsc - start) * mult >> shift)` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The counter where it begins.
    pub start: u64,
    /// The time there.
    pub base: u64,
    /// Nanoseconds of a tick, times `2^shift`.
    pub mult: u32,
    /// Places after the binary point of `mult`.
    pub shift: u32,
}

impl Line {
    /// Returns the time at `tsc`; `base` before the start.
    pub const fn at(&self, tsc: u64) -> u64 {
        self.base.wrapping_add(self.since_start(tsc) as u64)
    }

    /// Returns the nanoseconds from the start to `tsc`.
    const fn since_start(&self, tsc: u64) -> u128 {
        (tsc.saturating_sub(self.start) as u128 * self.mult as u128) >> (self.shift & 63)
    }

    /// Returns the line's rate with `shift` places; `None` if that is no rate.
    fn rate(&self, shift: u32) -> Option<u64> {
        if self.shift > 32 {
            return None;
        }
        u64::try_from((u128::from(self.mult) << shift) >> self.shift).ok()
    }
}

/// The clock.
#[derive(Clone, Copy, Debug)]
pub struct Steered {
    line: Line,
    /// The nominal rate, with the line's shift.
    nominal: u32,
    /// How far from it the rate may be.
    reach: u32,
    /// The other clock's rate, as last known and within the bound.
    rate: u32,
    /// Ticks in a second.
    second: u64,
}

impl Steered {
    /// Makes a clock that shows `base` at tick `start` of a counter of `khz` kHz (not 0).
    pub fn new(khz: u32, start: u64, base: u64) -> Self {
        // As many places as leave room for the bound, and for a counter's odd frequency.
        let mut shift = 32;
        while (1_000_000 << shift) / u64::from(khz) > u64::from(u32::MAX) / 2 && shift > 1 {
            shift -= 1;
        }
        let nominal = ((1_000_000 << shift) / u64::from(khz)) as u32;
        let reach = (u64::from(nominal) * BOUND_PPM / 1_000_000) as u32;
        let line = Line { start, base, mult: nominal, shift };
        Self { line, nominal, reach, rate: nominal, second: u64::from(khz) * 1000 }
    }

    /// The line that holds now.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// Says whether the line is at least a tenth of a second old.
    pub fn is_due(&self, tsc: u64) -> bool {
        tsc.saturating_sub(self.line.start) >= self.second / 10
    }

    /// Returns the rate that lets the clock meet `other` a second after `tsc`, as near as the bound
    /// allows. Without another clock, or with one that makes no sense, that is the last rate that
    /// is known of it.
    pub fn plan(&mut self, tsc: u64, other: Option<&Line>) -> u32 {
        let known = other.and_then(|other| {
            let rate = other.rate(self.line.shift)?;
            let is_sensible =
                rate.abs_diff(self.nominal.into()) <= u64::from(self.nominal) / NONSENSE;
            // A line that begins in the future was written by nobody.
            (is_sensible && other.start <= tsc.saturating_add(self.second)).then_some((other, rate))
        });
        let Some((other, rate)) = known else { return self.rate };
        self.rate = self.bounded(rate as i64);
        let shown = i128::from(other.base) + other.since_start(tsc) as i128;
        let behind = shown - i128::from(self.line.at(tsc));
        let behind = behind.clamp((-FAR).into(), FAR.into()) as i64;
        // Twice the time since the last plan at least: a clock that is led seldom does not swing.
        let passed = tsc.saturating_sub(self.line.start).min(u64::from(u32::MAX) * 1024);
        let ticks = self.second.max(2 * passed) as i64;
        self.bounded(i64::from(self.rate) + (behind << self.line.shift) / ticks)
    }

    /// Begins a new line at `tsc`, with a rate that [`Steered::plan`] gave.
    ///
    /// It begins two nanoseconds above the old line: one for rates that differ, one for rounding.
    /// Whoever reads the counter up to 500 ns after `tsc`, and still finds the old line, has read
    /// no later time than the new one shows there.
    pub fn begin(&mut self, tsc: u64, mult: u32) {
        let base = self.line.at(tsc).saturating_add(2);
        self.line = Line { start: tsc.max(self.line.start), base, mult, ..self.line };
    }

    /// The rate in the bound that is nearest to `rate`.
    fn bounded(&self, rate: i64) -> u32 {
        let (nominal, reach) = (i64::from(self.nominal), i64::from(self.reach));
        rate.clamp(nominal - reach, nominal + reach) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    const GIGAHERTZ: u32 = 1_000_000;

    /// What somebody may say to a clock of `khz`: anything, or a line that makes sense.
    fn any_line(khz: u32) -> impl Strategy<Value = Option<Line>> {
        let line = |(start, base, mult, shift)| Some(Line { start, base, mult, shift });
        let mult = prop_oneof![any::<u32>(), Just(0), Just(u32::MAX)];
        let anything = (any::<u64>(), any::<u64>(), mult, 0u32..80).prop_map(line);
        let nominal = ((1_000_000u64 << 16) / u64::from(khz)) as u32;
        let sensible = (
            0u64..2000,
            prop_oneof![any::<u64>(), 0u64..1 << 40],
            nominal - nominal / 5..=nominal + nominal / 5,
            Just(16),
        );
        prop_oneof![Just(None), anything, sensible.prop_map(line)]
    }

    fn lead(clock: &mut Steered, tsc: u64, other: Option<&Line>) {
        let mult = clock.plan(tsc, other);
        clock.begin(tsc, mult);
    }

    proptest! {
        #[test]
        fn nothing_moves_it_back_or_out_of_its_bound(
            (khz, steps) in (20_000u32..6_000_000).prop_flat_map(|khz| {
                (Just(khz), vec((1u64..10_000_000_000, any_line(khz)), 1..50))
            }),
        ) {
            let mut clock = Steered::new(khz, 1000, 5);
            let (mut tsc, mut leads) = (1000, 0);
            for (ticks, other) in steps {
                let (before, from) = (clock.line().at(tsc), tsc);
                tsc += ticks;
                let end = clock.line().at(tsc);
                // A reader with the old line, up to 500 ns late.
                let late = clock.line().at(tsc + u64::from(khz) / 2000);
                lead(&mut clock, tsc, other.as_ref());
                leads += 1;
                prop_assert!(clock.line().at(tsc) > end);
                prop_assert!(clock.line().at(tsc + u64::from(khz) / 2000) >= late);
                let nominal = u128::from(tsc - from) * 1_000_000 / u128::from(khz);
                let slack = nominal * u128::from(BOUND_PPM + 2) / 1_000_000 + 4;
                let passed = u128::from(end - before);
                prop_assert!(passed.abs_diff(nominal) <= slack, "{passed} for {nominal}");
            }
            let nominal = u128::from(tsc - 1000) * 1_000_000 / u128::from(khz);
            let slack = nominal * u128::from(BOUND_PPM + 2) / 1_000_000 + 4 + 3 * leads;
            prop_assert!(u128::from(clock.line().at(tsc) - 5).abs_diff(nominal) <= slack);
        }

        #[test]
        fn an_honest_clock_that_slews_is_followed(
            rates in vec((-500i64..=500, 1u64..20), 1..40),
            intervals in vec(100u64..=300, 8),
            offset in 0u64..1_000_000_000,
        ) {
            let mut clock = Steered::new(GIGAHERTZ, 0, offset);
            let mut other = Line { start: 0, base: offset, mult: 1 << 24, shift: 24 };
            let (mut tsc, mut turn) = (0, 0);
            for (ppm, seconds) in rates {
                let base = other.at(tsc);
                let mult = ((1i64 << 24) + ((ppm << 24) / 1_000_000)) as u32;
                other = Line { start: tsc, base, mult, shift: 24 };
                let end = tsc + seconds * 1_000_000_000;
                while tsc < end {
                    tsc = end.min(tsc + intervals[turn % 8] * 1_000_000);
                    turn += 1;
                    let apart = clock.line().at(tsc).abs_diff(other.at(tsc));
                    // Two rates 1000 ppm apart, for the longest interval.
                    prop_assert!(apart <= 400_000, "{apart} ns apart");
                    lead(&mut clock, tsc, Some(&other));
                }
            }
            for _ in 0..100 {
                tsc += 250_000_000;
                lead(&mut clock, tsc, Some(&other));
            }
            tsc += 250_000_000;
            let apart = clock.line().at(tsc).abs_diff(other.at(tsc));
            prop_assert!(apart <= 10, "{apart} ns apart in the end");
        }

        #[test]
        fn a_clock_that_is_led_seldom_does_not_swing(seconds in 1u64..60, ahead in 0u64..100_000) {
            let mut clock = Steered::new(GIGAHERTZ, 0, 0);
            let other = Line { start: 0, base: ahead, mult: 1 << 24, shift: 24 };
            let tsc = |turn| turn * seconds * 1_000_000_000;
            for turn in 1..40 {
                lead(&mut clock, tsc(turn), Some(&other));
                let apart = clock.line().at(tsc(turn)).abs_diff(other.at(tsc(turn)));
                prop_assert!(apart <= ahead + 100);
            }
            prop_assert!(clock.line().at(tsc(40)).abs_diff(other.at(tsc(40))) <= 100);
        }
    }

    #[test]
    fn a_step_is_made_up_for_slowly() {
        let mut clock = Steered::new(3 * GIGAHERTZ, 0, 0);
        let mult = (1u64 << 24).div_ceil(3) as u32;
        let other = Line { start: 0, base: 15_000_000_000, mult, shift: 24 };
        let second = 3_000_000_000;
        lead(&mut clock, second, Some(&other));
        let gained = clock.line().at(11 * second) - clock.line().at(second);
        assert!(gained.abs_diff(10_010_000_000) < 100, "{gained}");
    }

    #[test]
    fn nonsense_is_ignored() {
        let mut clock = Steered::new(GIGAHERTZ, 0, 0);
        let second = 1_000_000_000;
        let faster = Line { start: 0, base: 0, mult: (1 << 24) + (1 << 24) / 10_000, shift: 24 };
        lead(&mut clock, second, Some(&faster));
        let rate = clock.plan(2 * second, None);
        for (mult, shift) in [(0, 24), (u32::MAX, 24), (1 << 24, 23), (1 << 24, 88), (2, 0)] {
            let other = Line { start: 0, base: 77 * second, mult, shift };
            assert_eq!(clock.plan(2 * second, Some(&other)), rate, "{other:?}");
        }
        let future = Line { start: 9 * second, ..faster };
        assert_eq!(clock.plan(2 * second, Some(&future)), rate);
        assert!((f64::from(rate) / f64::from(clock.nominal) - 1.0001).abs() < 1e-7);
    }
}
