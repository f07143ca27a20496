// SPDX-License-Identifier: MIT OR Apache-2.0
//! The expirations of a timerfd: how many there were since the last read, and when the next one is.
//!
//! As under Linux, a periodic timer that has expired is not armed again before a call reads it or
//! asks for its time. That call counts the intervals that went by, and the next expiry lies on the
//! same grid. So a timer that nobody reads costs nothing, and no timer drifts.

use crtos_sched::{Nanos, interval::forward};

/// When a timer expires, and how often it has expired. All times are of the clock that the timer
/// counts in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expirations {
    /// The next expiry, or with `expired` the one that has come.
    expiry: Option<Nanos>,
    /// 0: the timer expires once.
    interval: Nanos,
    /// The expiry has come, and no call has asked since.
    expired: bool,
    /// Expirations since the last read.
    count: u64,
}

impl Expirations {
    /// Sets the timer: it expires at `expiry`, if at all, and unless `interval` is 0 every
    /// `interval` after that. Forgets what was counted.
    pub fn set(&mut self, expiry: Option<Nanos>, interval: Nanos) {
        *self = Self { expiry, interval, expired: false, count: 0 };
    }

    /// Returns the moment for which the processor's timer is to be armed.
    pub fn next(&self) -> Option<Nanos> {
        self.expiry.filter(|_| !self.expired)
    }

    /// Notes the expiry if it has come by `now`. `false` if it has not, or was noted before.
    pub fn expire(&mut self, now: Nanos) -> bool {
        let due = self.next().is_some_and(|expiry| expiry <= now);
        if due {
            self.expired = true;
            self.count += 1;
        }
        due
    }

    /// Says whether there were expirations since the last read.
    pub fn has_any(&self) -> bool {
        self.count > 0
    }

    /// Takes the number of expirations since the last read, if there were any. A periodic timer
    /// gets its next expiry: see [`next`](Self::next).
    pub fn take(&mut self, now: Nanos) -> Option<u64> {
        if !self.has_any() {
            return None;
        }
        self.go_on(now);
        self.expired = false;
        if self.interval == Nanos::ZERO {
            self.expiry = None;
        }
        Some(core::mem::take(&mut self.count))
    }

    /// Forgets what was counted, and an expiry that has come. One that has not come yet still does.
    pub fn cancel(&mut self) {
        self.count = 0;
        if core::mem::take(&mut self.expired) {
            self.expiry = None;
        }
    }

    /// Returns the time until the next expiry (0 if there is none), and the interval. A periodic
    /// timer gets its next expiry: see [`next`](Self::next).
    pub fn remaining(&mut self, now: Nanos) -> (Nanos, Nanos) {
        self.go_on(now);
        (self.expiry.map_or(Nanos::ZERO, |expiry| expiry - now), self.interval)
    }

    /// Gives a periodic timer that has expired its next expiry, and counts those that went by.
    fn go_on(&mut self, now: Nanos) {
        if self.interval == Nanos::ZERO || !core::mem::take(&mut self.expired) {
            return;
        }
        if let Some(expiry) = self.expiry {
            let (next, expired) = forward(expiry, self.interval, now);
            self.expiry = Some(next);
            self.count += expired.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_single_expiry_is_read_once() {
        let mut timer = Expirations::default();
        timer.set(Some(Nanos(100)), Nanos::ZERO);
        assert_eq!(timer.remaining(Nanos(40)), (Nanos(60), Nanos::ZERO));
        assert!(!timer.expire(Nanos(99)));
        assert_eq!(timer.take(Nanos(99)), None);
        assert!(timer.expire(Nanos(100)));
        assert!(!timer.expire(Nanos(101)));
        assert_eq!(timer.next(), None);
        assert_eq!(timer.remaining(Nanos(105)), (Nanos::ZERO, Nanos::ZERO));
        assert_eq!(timer.take(Nanos(110)), Some(1));
        assert_eq!(timer.take(Nanos(120)), None);
        assert_eq!(timer.next(), None);
    }

    #[test]
    fn setting_it_forgets_what_was_counted() {
        let mut timer = Expirations::default();
        timer.set(Some(Nanos(10)), Nanos(10));
        assert!(timer.expire(Nanos(15)));
        timer.set(None, Nanos::ZERO);
        assert!(!timer.has_any() && timer.next().is_none());
        assert_eq!(timer.remaining(Nanos(30)), (Nanos::ZERO, Nanos::ZERO));
    }

    proptest! {
        /// Whenever the interrupt comes and whenever somebody reads or asks, all expirations are
        /// counted once and none drifts.
        #[test]
        fn expirations_are_counted_once_and_on_the_grid(
            first in 1u64..1000,
            interval in 1u64..1000,
            steps in proptest::collection::vec((0u64..700, 0u8..3), 1..60),
        ) {
            let mut timer = Expirations::default();
            timer.set(Some(Nanos(first)), Nanos(interval));
            let (mut now, mut seen) = (0, 0);
            for (step, what) in steps {
                now += step;
                match what {
                    0 => {
                        timer.expire(Nanos(now));
                    }
                    1 => {
                        let had = timer.has_any();
                        let taken = timer.take(Nanos(now));
                        prop_assert_eq!(taken.is_some(), had);
                        if let Some(taken) = taken {
                            seen += taken;
                            let due = if now < first { 0 } else { (now - first) / interval + 1 };
                            // What came later than a look at the timer waits for its interrupt.
                            prop_assert!(
                                seen == due || timer.next().is_some_and(|next| next.0 <= now)
                            );
                        }
                    }
                    _ => {
                        let (rest, every) = timer.remaining(Nanos(now));
                        prop_assert_eq!(every.0, interval);
                        prop_assert!(rest.0 <= interval.max(first));
                    }
                }
                if let Some(next) = timer.next() {
                    prop_assert_eq!((next.0 - first) % interval, 0);
                    prop_assert_eq!((next.0 - first) / interval, seen + timer.count);
                }
            }
        }
    }
}
