// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the realm has to reach, and whether it does: a list that is checked after every run.

use crate::catalogue::{CYCLICTEST, LOADS, NO_LOAD, OVERHEAD};
use crate::histogram::Summary;
use crate::model::{Cell, Measurement, Results, System};
use crate::table::{microseconds, times};

/// The longest way from a timer's expiry to the thread with the machine idle, in nanoseconds.
const IDLE_MAX: u64 = 1_000;
/// The same under any load, the emulator's own artefact included.
const LOADED_MAX: u64 = 4_000;
/// How much better than PREEMPT_RT's maximum the realm's has to be.
const BETTER_THAN_RT: u64 = 10;
/// How much faster than Linux a local system call has to be.
const FASTER_THAN_LINUX: u64 = 5;
/// Median of a remote read or write, in nanoseconds.
const REMOTE_MEDIAN: u64 = 8_000;
/// Its maximum with Linux idle.
const REMOTE_MAX: u64 = 20_000;
/// Figures of interrupts of devices.
const DEVICES: [&str; 5] = ["uio", "uio-poll", "uart", "can", "net"];
/// The median of these without load, in nanoseconds; [`LOADED_MAX`] is for them as well.
const DEVICE_MEDIAN: u64 = 1_400;
/// The longest of these under any load, without what other CPUs have of it.
const DEVICE_OWN_MAX: u64 = 1_600;
/// Limits of the medians of local system calls, net of reading the clock, in nanoseconds.
const LOCAL_CALLS: &[(&str, u64)] =
    &[("getpid", 60), ("read-zero", 120), ("write-null", 120), ("open-close", 900)];
/// Limits of the medians of threads' and processes' figures, in nanoseconds.
const MEDIANS: &[(&str, u64)] = &[
    ("futex-wake", 1_000),
    ("futex-wake-across", 1_500),
    ("switch-process", 1_000),
    ("switch-thread", 1_000),
    ("pipe", 3_500),
    ("signal", 1_000),
    ("thread-start", 20_000),
];

/// A goal and what was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The system that it is about.
    pub system: String,
    /// What is asked.
    pub goal: String,
    /// What was measured; empty if nothing was.
    pub measured: String,
    /// Whether it is met; `None` if it was not measured.
    pub met: Option<bool>,
}

/// Which CPUs' work is in a latency.
#[derive(Clone, Copy)]
enum Work {
    /// That of all CPUs, where an emulator's time is the sum over them.
    All,
    /// Only that of the CPU that is measured.
    Own,
}

impl Work {
    fn of(self, cell: &Cell) -> Option<Summary> {
        match self {
            Self::All => cell.outcome.as_ref().ok()?.summary(),
            Self::Own => cell.own.as_ref()?.summary(),
        }
    }

    /// A figure with that.
    fn of_figure(self, figure: &str) -> String {
        match self {
            Self::All => figure.to_owned(),
            Self::Own => format!("{figure}, its CPU's own"),
        }
    }
}

/// All goals, for each system with a realm among the results, in the same order for each.
pub fn check(results: &Results) -> Vec<Goal> {
    let systems = results.systems();
    let realms = systems.iter().filter(|system| system.realm);
    realms.flat_map(|realm| Checker { results, realm }.all()).collect()
}

/// The goals about which something was measured.
pub fn measured(results: &Results) -> Vec<Goal> {
    let mut goals = check(results);
    goals.retain(|goal| goal.met.is_some());
    goals
}

struct Checker<'a> {
    results: &'a Results,
    realm: &'a System,
}

impl Checker<'_> {
    fn all(&self) -> Vec<Goal> {
        let mut goals = self.latencies(Work::All);
        let has_own = self.results.cells.iter().any(|cell| cell.own.is_some());
        if has_own {
            goals.extend(self.latencies(Work::Own));
        }
        for figure in DEVICES {
            goals.push(self.at_most(figure, "median", DEVICE_MEDIAN, |m| m.summary.median));
            goals.push(self.loaded(figure, Work::All, LOADED_MAX));
            if has_own {
                goals.push(self.loaded(figure, Work::Own, DEVICE_OWN_MAX));
            }
        }
        goals.push(self.no_exits());
        for (figure, limit) in LOCAL_CALLS {
            goals.push(self.local_call(figure, *limit));
            goals.push(self.against_linux(figure));
        }
        for figure in ["file-read", "file-write"] {
            goals.push(self.at_most(figure, "median", REMOTE_MEDIAN, |m| m.summary.median));
            goals.push(self.at_most(figure, "maximum", REMOTE_MAX, |m| m.summary.max));
        }
        for (figure, limit) in MEDIANS {
            goals.push(self.at_most(figure, "median", *limit, |m| m.summary.median));
        }
        goals
    }

    fn goal(&self, goal: String, verdict: Option<(String, bool)>) -> Goal {
        let (measured, met) = match verdict {
            Some((measured, met)) => (measured, Some(met)),
            None => (String::new(), None),
        };
        Goal { system: self.realm.name.clone(), goal, measured, met }
    }

    fn of_realm(&self, figure: &str) -> Option<Measurement<'_>> {
        self.results.find(&self.realm.name, NO_LOAD, figure)
    }

    fn at_most(
        &self,
        figure: &str,
        statistic: &str,
        limit: u64,
        value: impl Fn(&Measurement<'_>) -> u64,
    ) -> Goal {
        let verdict = self.of_realm(figure).map(|measurement| {
            let value = value(&measurement);
            (format!("{} µs", microseconds(value)), value <= limit)
        });
        self.goal(format!("{figure}: {statistic} at most {} µs", microseconds(limit)), verdict)
    }

    fn latencies(&self, work: Work) -> Vec<Goal> {
        vec![self.idle(work), self.loaded(CYCLICTEST, work, LOADED_MAX), self.against_rt(work)]
    }

    fn idle(&self, work: Work) -> Goal {
        let verdict = self.most(&self.realm.name, NO_LOAD, CYCLICTEST, work);
        let verdict = verdict.map(|max| (format!("{} µs", microseconds(max)), max <= IDLE_MAX));
        let limit = microseconds(IDLE_MAX);
        self.goal(
            format!("{}: without load, maximum at most {limit} µs", work.of_figure(CYCLICTEST)),
            verdict,
        )
    }

    /// The maximum of a latency on a system under a load.
    fn most(&self, system: &str, load: &str, figure: &str, work: Work) -> Option<u64> {
        Some(work.of(self.results.cell(system, load, figure)?)?.max)
    }

    /// The worst over the loads, with the load's name.
    fn worst(&self, system: &str, figure: &str, work: Work) -> Option<(u64, &'static str)> {
        let loads = LOADS.iter().map(|load| load.name);
        loads.filter_map(|load| Some((self.most(system, load, figure, work)?, load))).max()
    }

    fn loaded(&self, figure: &str, work: Work, limit: u64) -> Goal {
        let verdict = self
            .worst(&self.realm.name, figure, work)
            .map(|(max, load)| (format!("{} µs under `{load}`", microseconds(max)), max <= limit));
        let limit = microseconds(limit);
        self.goal(
            format!("{}: under every load, maximum at most {limit} µs", work.of_figure(figure)),
            verdict,
        )
    }

    fn against_rt(&self, work: Work) -> Goal {
        let systems = self.results.systems();
        let rt = systems.iter().find(|system| {
            system.preempt_rt
                && !system.realm
                && !system.isolated
                && series(&system.kernel) == series(&self.realm.kernel)
        });
        let worst_of_rt = rt.and_then(|rt| self.worst(&rt.name, CYCLICTEST, work));
        let verdict = self.worst(&self.realm.name, CYCLICTEST, work).zip(worst_of_rt).map(
            |((own, _), (rt, load))| against(own, rt, &format!(" under `{load}`"), BETTER_THAN_RT),
        );
        self.goal(
            format!("{}: maximum at most a tenth of PREEMPT_RT's", work.of_figure(CYCLICTEST)),
            verdict,
        )
    }

    fn no_exits(&self) -> Goal {
        let cells = self.results.cells.iter().filter(|cell| {
            cell.system.name == self.realm.name && cell.figure == CYCLICTEST && cell.outcome.is_ok()
        });
        let exits: Vec<u64> = cells.filter_map(|cell| cell.exits_of_program()).collect();
        let verdict = (!exits.is_empty()).then(|| {
            let sum: u64 = exits.iter().sum();
            (format!("{sum} in {} runs", exits.len()), sum == 0)
        });
        self.goal(format!("{CYCLICTEST}: no VM exits of its CPU"), verdict)
    }

    /// Median less the median of reading the clock twice, on a system.
    fn net(&self, system: &str, figure: &str) -> Option<(u64, u64)> {
        let median = self.results.find(system, NO_LOAD, figure)?.summary.median;
        let overhead = self.results.find(system, NO_LOAD, OVERHEAD)?.summary.median;
        Some((median.saturating_sub(overhead), overhead))
    }

    fn local_call(&self, figure: &str, limit: u64) -> Goal {
        let verdict = self.net(&self.realm.name, figure).map(|(net, overhead)| {
            let text = format!(
                "{} µs, without {} µs for the clock",
                microseconds(net),
                microseconds(overhead)
            );
            (text, net <= limit)
        });
        self.goal(format!("{figure}: median at most {} µs", microseconds(limit)), verdict)
    }

    fn against_linux(&self, figure: &str) -> Goal {
        let systems = self.results.systems();
        let linux = systems
            .iter()
            .find(|system| !system.realm && !system.isolated && system.kernel == self.realm.kernel);
        let linux = linux.and_then(|linux| self.net(&linux.name, figure));
        let verdict = self
            .net(&self.realm.name, figure)
            .zip(linux)
            .map(|((own, _), (linux, _))| against(own, linux, "", FASTER_THAN_LINUX));
        self.goal(format!("{figure}: median at most a fifth of Linux's"), verdict)
    }
}

/// An own time beside another's, taken under some circumstances, and whether it is shorter by
/// `factor`.
fn against(own: u64, other: u64, circumstances: &str, factor: u64) -> (String, bool) {
    let text = format!(
        "{} µs against {} µs{circumstances}: {}",
        microseconds(own),
        microseconds(other),
        times(other, own)
    );
    (text, own.saturating_mul(factor) <= other)
}

/// The numbers of a kernel's release that tell its series: `6.1` of `6.1.0-32-rt-amd64`.
fn series(release: &str) -> &str {
    let end = release.match_indices('.').nth(1).map_or(release.len(), |(at, _)| at);
    &release[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::example::{cell, results};

    fn met(results: &Results, goal: &str) -> Option<bool> {
        let goals = check(results);
        goals.iter().find(|g| g.goal.starts_with(goal)).unwrap_or_else(|| panic!("{goal}")).met
    }

    #[test]
    fn goals_are_met_missed_or_unknown() {
        let mut results = results();
        assert_eq!(met(&results, "cyclictest: without load"), Some(true));
        assert_eq!(met(&results, "cyclictest: under every load"), Some(true));
        assert_eq!(met(&results, "cyclictest: maximum at most a tenth"), Some(true));
        assert_eq!(met(&results, "cyclictest: no VM exits"), Some(true));
        assert_eq!(met(&results, "getpid: median at most 0.06"), None, "no figure of the clock");
        for system in ["6.1", "realm beside 6.1"] {
            results.cells.push(cell(system, "none", "overhead", &[(8, 10)]));
        }
        assert_eq!(met(&results, "getpid: median at most 0.06"), Some(true));
        assert_eq!(met(&results, "getpid: median at most a fifth"), Some(true));
        assert_eq!(met(&results, "thread-start"), None);
        assert!(measured(&results).iter().any(|goal| goal.goal.starts_with("cyclictest")));
        assert!(measured(&results).iter().all(|goal| !goal.goal.starts_with("thread-start")));
        results.cells.push(cell("realm beside 6.1", "cpu", "cyclictest", &[(5_100, 1)]));
        assert_eq!(met(&results, "cyclictest: under every load"), Some(false));
        assert_eq!(met(&results, "cyclictest: maximum at most a tenth"), Some(false));
        assert!(check(&results).iter().all(|goal| !goal.goal.contains("own")));
        for cell in results.cells.iter_mut().filter(|cell| cell.figure == "cyclictest") {
            let is_realm = cell.system.realm;
            cell.own = Some([(if is_realm { 900 } else { 8_000 }, 1)].into_iter().collect());
        }
        assert_eq!(met(&results, "cyclictest, its CPU's own: without load"), Some(true));
        assert_eq!(met(&results, "cyclictest, its CPU's own: under every load"), Some(true));
        assert_eq!(met(&results, "cyclictest, its CPU's own: maximum at most"), Some(false));
        let mut uart = cell("realm beside 6.1", "cpu", "uart", &[(3_900, 1)]);
        uart.own = Some([(1_700, 1)].into_iter().collect());
        results.cells.push(uart);
        assert_eq!(met(&results, "uart: under every load"), Some(true));
        assert_eq!(met(&results, "uart, its CPU's own: under every load"), Some(false));
    }

    #[test]
    fn kernels_have_series() {
        assert_eq!(series("6.1.0-32-rt-amd64"), "6.1");
        assert_eq!(series("6.12.9+deb12-amd64"), "6.12");
        assert_eq!(series("7.0"), "7.0");
    }
}
