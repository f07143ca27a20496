// SPDX-License-Identifier: MIT OR Apache-2.0
//! SCHED_DEADLINE: each thread is served by a constant-bandwidth server (Abeni and Buttazzo, RTSS
//! 1998), and the server with the earliest deadline runs first.
//!
//! A thread that reserves `runtime` in every `period` has a budget and an absolute deadline. The
//! time that it runs is subtracted from the budget. When the budget is used up, the thread waits
//! for its next period, in which it gets a new budget and a later deadline. So a thread never takes
//! more than its share, whatever it does. A thread that wakes up keeps its budget and its deadline
//! if using the budget up before the deadline does not exceed its share; otherwise it starts anew.
//!
//! The rules are those of Linux (Documentation/scheduler/sched-deadline.rst). [`Admission`] keeps
//! the sum of all shares below what the CPUs have.

use crate::time::Nanos;

/// What a thread asks for (sched_setattr(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reservation {
    /// Processor time in each period.
    pub runtime: Nanos,
    /// Time from the start of a period to the moment by which the thread has had its runtime.
    pub deadline: Nanos,
    /// Time from one period to the next.
    pub period: Nanos,
}

impl Reservation {
    /// The share of a whole CPU; shares are fractions of this.
    pub const WHOLE: u64 = 1 << 20;

    /// Makes a reservation if it is valid. It checks what Linux checks: a runtime of at least 1024
    /// ns, `runtime <= deadline <= period`, a period from 100 µs to 4.19 s. A period of 0 stands
    /// for the deadline.
    pub fn new(runtime: Nanos, deadline: Nanos, period: Nanos) -> Option<Self> {
        const LEAST_RUNTIME: Nanos = Nanos(1024);
        const LEAST_PERIOD: Nanos = Nanos::from_micros(100);
        const MOST_PERIOD: Nanos = Nanos::from_micros(1 << 22);
        let period = if period == Nanos::ZERO { deadline } else { period };
        let valid = runtime >= LEAST_RUNTIME
            && runtime <= deadline
            && deadline <= period
            && (LEAST_PERIOD..=MOST_PERIOD).contains(&period);
        valid.then_some(Self { runtime, deadline, period })
    }

    /// Returns the share of a CPU, in parts of [`Self::WHOLE`].
    pub fn share(&self) -> u64 {
        (self.runtime.0 << 20).checked_div(self.period.0).unwrap_or(0)
    }
}

/// Whether a thread may run now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It runs, with the server's deadline.
    Runs,
    /// It waits until that moment, when [`Server::replenish`] is due.
    Waits(Nanos),
}

/// The constant-bandwidth server of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Server {
    reservation: Reservation,
    /// Nanoseconds that are left in this period; negative after an overrun.
    budget: i64,
    /// A moment in the kernel's time.
    deadline: Nanos,
}

impl Server {
    /// Makes a server whose first period begins at `now`.
    pub fn new(reservation: Reservation, now: Nanos) -> Self {
        let mut server = Self { reservation, budget: 0, deadline: now };
        server.begin(now);
        server
    }

    /// Serves another reservation, or the same again, from the next period on: what is left of the
    /// present one stays, and its deadline.
    pub fn change(&mut self, reservation: Reservation) {
        self.reservation = reservation;
        self.budget = self.budget.min(reservation.runtime.0 as i64);
    }

    /// Returns the reservation that it serves.
    pub const fn reservation(&self) -> Reservation {
        self.reservation
    }

    /// Returns the deadline, a moment in the kernel's time.
    pub const fn deadline(&self) -> Nanos {
        self.deadline
    }

    /// Returns what is left of the budget; 0 after an overrun.
    pub fn budget(&self) -> Nanos {
        Nanos(u64::try_from(self.budget).unwrap_or(0))
    }

    /// Says whether the budget is used up.
    pub const fn is_exhausted(&self) -> bool {
        self.budget <= 0
    }

    /// Starts anew: a full budget, and a period that begins at `now`.
    fn begin(&mut self, now: Nanos) {
        self.deadline = now + self.reservation.deadline;
        self.budget = self.reservation.runtime.0 as i64;
    }

    /// Returns the moment at which the next period begins.
    fn next_period(&self) -> Nanos {
        (self.deadline - self.reservation.deadline) + self.reservation.period
    }

    /// Subtracts `time`, for which the thread ran, from the budget.
    pub fn consume(&mut self, time: Nanos) {
        self.budget = self.budget.saturating_sub(i64::try_from(time.0).unwrap_or(i64::MAX));
    }

    /// Gives up the rest of the budget: the thread wants no more in this period (sched_yield(2)).
    pub fn give_up(&mut self) {
        self.budget = self.budget.min(0);
    }

    /// Decides what a thread does that wants to run and has used up its budget.
    pub fn exhausted(&mut self, now: Nanos) -> Verdict {
        match self.next_period() {
            next if next > now => Verdict::Waits(next),
            _ => {
                self.replenish(now);
                Verdict::Runs
            }
        }
    }

    /// Begins the next period: the budget grows by the runtime, less an overrun. A server that lags
    /// behind starts anew.
    pub fn replenish(&mut self, now: Nanos) {
        let Reservation { runtime, period, .. } = self.reservation;
        // An overrun may take the budget of several periods.
        let periods = self.budget.min(0).unsigned_abs() / runtime.0 + 1;
        self.deadline += Nanos(period.0.saturating_mul(periods));
        self.budget = self.budget.min(0).saturating_add((runtime.0.saturating_mul(periods)) as i64);
        if self.deadline <= now || self.budget <= 0 {
            self.begin(now);
        }
    }

    /// Decides what a thread does that wakes up.
    pub fn wake(&mut self, now: Nanos) -> Verdict {
        let Reservation { deadline, period, .. } = self.reservation;
        if self.deadline <= now {
            // The deadline has passed. Where it lies before the end of the period, the next period
            // may not have begun yet.
            if deadline < period && self.next_period() > now {
                self.give_up();
                return Verdict::Waits(self.next_period());
            }
            self.begin(now);
        } else if self.is_exhausted() {
            return self.exhausted(now);
        } else if self.exceeds_share(now) {
            if deadline == period {
                self.begin(now);
            } else {
                // The deadline stays; the budget shrinks to the share until then.
                let left = (self.deadline - now).0;
                self.budget = (u128::from(left) * u128::from(self.reservation.runtime.0)
                    / u128::from(deadline.0)) as i64;
                if self.is_exhausted() {
                    return self.exhausted(now);
                }
            }
        }
        Verdict::Runs
    }

    /// Says whether using up the budget by the deadline exceeds the share:
    /// `budget / (deadline - now) > runtime / deadline`.
    fn exceeds_share(&self, now: Nanos) -> bool {
        let left = (self.deadline - now).0;
        let Reservation { runtime, deadline, .. } = self.reservation;
        u128::from(self.budget().0) * u128::from(deadline.0)
            > u128::from(left) * u128::from(runtime.0)
    }
}

/// The sum of the shares of all deadline threads.
#[derive(Debug, Default)]
pub struct Admission {
    total: u64,
}

impl Admission {
    /// The share of each CPU that all deadline threads together may reserve: 95 %, Linux's default.
    const MOST: u64 = Reservation::WHOLE * 95 / 100;

    /// Makes an account without reservations.
    pub const fn new() -> Self {
        Self { total: 0 }
    }

    /// Replaces the share `old` of a thread by `new` (0: none) if the sum fits on `cpus` CPUs, and
    /// says whether it did. A smaller share always fits.
    pub fn change(&mut self, cpus: u32, old: u64, new: u64) -> bool {
        let total = self.total.saturating_sub(old) + new;
        let fits = new <= old || total <= Self::MOST * u64::from(cpus);
        if fits {
            self.total = total;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn reservation() -> impl Strategy<Value = Reservation> {
        (1u64..20, 0u64..20, 0u64..20).prop_map(|(runtime, more, rest)| Reservation {
            runtime: Nanos(runtime * MS),
            deadline: Nanos((runtime + more) * MS),
            period: Nanos((runtime + more + rest) * MS),
        })
    }

    #[test]
    fn what_linux_accepts() {
        let new = |r, d, p| Reservation::new(Nanos(r), Nanos(d), Nanos(p));
        assert_eq!(new(MS, 10 * MS, 0).map(|r| r.period), Some(Nanos(10 * MS)));
        assert!(new(1023, 10 * MS, 0).is_none() && new(1024, 10 * MS, 0).is_some());
        assert!(new(MS, 0, 0).is_none() && new(2 * MS, MS, 0).is_none());
        assert!(new(MS, 3 * MS, 2 * MS).is_none());
        assert!(new(1024, 99_999, 99_999).is_none() && new(1024, 100_000, 0).is_some());
        assert!(new(MS, 4_194_304_000, 0).is_some() && new(MS, 4_194_304_001, 0).is_none());
        assert!(new(1 << 63, 1 << 63, 1 << 63).is_none());
    }

    #[test]
    fn what_was_used_stays_used() {
        let reservation = |runtime, period| {
            Reservation::new(Nanos(runtime * MS), Nanos(period * MS), Nanos(period * MS)).unwrap()
        };
        let mut server = Server::new(reservation(10, 100), Nanos::ZERO);
        server.consume(Nanos(4 * MS));
        server.change(reservation(20, 50));
        assert_eq!((server.budget(), server.deadline()), (Nanos(6 * MS), Nanos(100 * MS)));
        server.consume(Nanos(6 * MS));
        server.change(reservation(20, 50));
        assert_eq!(server.exhausted(Nanos(20 * MS)), Verdict::Waits(Nanos(100 * MS)));
        server.replenish(Nanos(100 * MS));
        assert_eq!((server.budget(), server.deadline()), (Nanos(20 * MS), Nanos(150 * MS)));
        server.change(reservation(5, 50));
        assert_eq!(server.budget(), Nanos(5 * MS));
    }

    #[test]
    fn shares_are_limited() {
        let mut admission = Admission::new();
        let half = Reservation::WHOLE / 2;
        assert!(admission.change(1, 0, half));
        assert!(!admission.change(1, 0, half));
        assert!(admission.change(2, 0, half) && admission.change(2, 0, half));
        assert!(!admission.change(2, 0, half));
        assert!(admission.change(1, half, half / 2), "less always fits");
        assert!(admission.change(2, half, 0));
    }

    proptest! {
        /// However a thread runs and sleeps, in no window of whole periods that starts with one of
        /// its periods does it get more than its share and one budget.
        #[test]
        fn never_more_than_the_share(
            reservation in reservation(),
            steps in proptest::collection::vec(
                (0u64..30 * MS, 0u64..60 * MS, any::<bool>()),
                1..60,
            ),
        ) {
            let mut now = Nanos(1_000 * MS);
            let mut server = Server::new(reservation, now);
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for (wanted, sleep, gives_up) in steps {
                let mut wanted = wanted;
                if let Verdict::Waits(until) = server.wake(now) {
                    prop_assert!(until > now);
                    now = until;
                    server.replenish(now);
                }
                while wanted > 0 {
                    prop_assert!(!server.is_exhausted());
                    prop_assert!(server.deadline() > now);
                    // Alone on its CPU it meets its deadline.
                    prop_assert!(now + server.budget() <= server.deadline());
                    let ran = wanted.min(server.budget().0);
                    runs.push((now.0, now.0 + ran));
                    server.consume(Nanos(ran));
                    now += Nanos(ran);
                    wanted -= ran;
                    if gives_up && wanted > 0 {
                        server.give_up();
                    }
                    if server.is_exhausted()
                        && let Verdict::Waits(until) = server.exhausted(now)
                    {
                        prop_assert!(until > now);
                        now = until;
                        server.replenish(now);
                    }
                }
                now += Nanos(sleep);
            }
            let (runtime, period) = (reservation.runtime.0, reservation.period.0);
            for &(from, _) in &runs {
                for periods in 1..6 {
                    let to = from + periods * period;
                    let used: u64 =
                        runs.iter().map(|&(a, b)| b.min(to).saturating_sub(a.max(from))).sum();
                    prop_assert!(
                        used <= (periods + 1) * runtime,
                        "{used} in {periods} periods of {reservation:?}"
                    );
                }
            }
        }

        /// A thread that always wants to run gets its whole share in every period.
        #[test]
        fn the_whole_share(reservation in reservation(), late in 0u64..2 * MS) {
            let start = Nanos(1_000 * MS);
            let mut now = start;
            let mut server = Server::new(reservation, now);
            let mut used = 0;
            for _ in 0..50 {
                // The end of a budget is seen late.
                let ran = server.budget().0 + late;
                server.consume(Nanos(ran));
                (used, now) = (used + ran, now + Nanos(ran));
                if let Verdict::Waits(until) = server.exhausted(now) {
                    now = until;
                    server.replenish(now);
                }
            }
            let share = (now - start).0 as u128 * reservation.runtime.0 as u128
                / reservation.period.0 as u128;
            let slack = u128::from(2 * reservation.runtime.0 + 3 * late);
            if late == 0 || reservation.runtime.0 * 4 < reservation.period.0 {
                prop_assert!(u128::from(used) <= share + slack, "{used} {share}");
                prop_assert!(u128::from(used) + slack >= share, "{used} {share}");
            }
        }
    }
}
