// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results against expected ones, so that a path that got longer is noticed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalogue::NO_LOAD;
use crate::model::Results;

/// What is expected: medians of figures in virtual time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// By how many percent a median may differ if its entry does not say.
    pub tolerance_percent: f64,
    /// The figures by name.
    pub figures: BTreeMap<String, Entry>,
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The median in nanoseconds.
    pub median_ns: u64,
    /// A tolerance of its own, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance_percent: Option<f64>,
}

impl Entry {
    /// Whether a median differs from the expected one by at most so many percent.
    fn allows(&self, median_ns: u64, percent: f64) -> bool {
        change(median_ns, self.median_ns).abs() <= percent
    }
}

/// By how many percent a measured median is longer than the expected one.
fn change(measured_ns: u64, expected_ns: u64) -> f64 {
    (measured_ns as f64 - expected_ns as f64) / (expected_ns.max(1) as f64) * 100.0
}

impl Expected {
    /// Whether a median of the figure `name` is no longer than allowed; not, if none is expected.
    pub fn allows(&self, name: &str, median_ns: u64) -> bool {
        self.figures.get(name).is_some_and(|entry| {
            let most = entry.tolerance_percent.unwrap_or(self.tolerance_percent);
            change(median_ns, entry.median_ns) <= most
        })
    }
}

/// How a figure compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the tolerance.
    Same,
    /// Longer than allowed.
    Worse,
    /// Shorter by more than the tolerance: good, and the expectation is out of date.
    Better,
    /// It is expected, and was not measured.
    Missing,
    /// It was measured, and nothing is expected.
    New,
}

impl Verdict {
    /// For a table.
    pub fn words(self) -> &'static str {
        match self {
            Self::Same => "as expected",
            Self::Worse => "WORSE",
            Self::Better => "better: update",
            Self::Missing => "NOT MEASURED",
            Self::New => "new: update",
        }
    }

    /// Whether it fails a comparison.
    pub fn fails(self) -> bool {
        self != Self::Same
    }
}

/// A figure and how it compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Name of the figure.
    pub name: String,
    /// Expected median, in nanoseconds.
    pub expected: Option<u64>,
    /// Measured median, in nanoseconds.
    pub measured: Option<u64>,
    /// Allowed difference, in percent.
    pub tolerance: Option<f64>,
    /// What follows.
    pub verdict: Verdict,
}

impl Finding {
    /// By how many percent the measured median is longer.
    pub fn change(&self) -> Option<f64> {
        Some(change(self.measured?, self.expected?))
    }
}

/// The medians of all figures of a system without load.
fn medians<'a>(results: &'a Results, system: &'a str) -> BTreeMap<&'a str, u64> {
    let cells =
        results.cells.iter().filter(|cell| cell.system.name == system && cell.load == NO_LOAD);
    let median =
        |cell: &'a crate::Cell| Some((cell.figure.as_str(), cell.measurement()?.summary.median));
    cells.filter_map(median).collect()
}

/// Compares the figures of a system with what is expected.
pub fn compare(results: &Results, system: &str, expected: &Expected) -> Vec<Finding> {
    let measured = medians(results, system);
    let mut findings: Vec<Finding> = expected
        .figures
        .iter()
        .map(|(name, entry)| {
            let tolerance = entry.tolerance_percent.unwrap_or(expected.tolerance_percent);
            let mut finding = Finding {
                name: name.clone(),
                expected: Some(entry.median_ns),
                measured: measured.get(name.as_str()).copied(),
                tolerance: Some(tolerance),
                verdict: Verdict::Missing,
            };
            finding.verdict = match finding.change() {
                None => Verdict::Missing,
                // One instruction is no change: whole nanoseconds are counted.
                Some(_)
                    if finding
                        .measured
                        .zip(finding.expected)
                        .is_some_and(|(m, e)| m.abs_diff(e) <= 1) =>
                {
                    Verdict::Same
                }
                Some(change) if change > tolerance => Verdict::Worse,
                Some(change) if change < -tolerance => Verdict::Better,
                Some(_) => Verdict::Same,
            };
            finding
        })
        .collect();
    let new = measured.iter().filter(|(name, _)| !expected.figures.contains_key(**name));
    findings.extend(new.map(|(name, median)| Finding {
        name: (*name).to_owned(),
        expected: None,
        measured: Some(*median),
        tolerance: None,
        verdict: Verdict::New,
    }));
    findings
}

/// The expectation with the measured medians in place of those that differ; what was not measured
/// goes. An entry with a tolerance of its own stays as long as that allows the measured median: it
/// stands for several that occur, of which a run sees one.
pub fn update(results: &Results, system: &str, expected: &Expected) -> Expected {
    let entry = |(name, median): (&str, u64)| {
        let old = expected.figures.get(name);
        let tolerance_percent = old.and_then(|old| old.tolerance_percent);
        let median_ns = match old {
            Some(old) if old.median_ns.abs_diff(median) <= 1 => old.median_ns,
            Some(old) if old.tolerance_percent.is_some_and(|own| old.allows(median, own)) => {
                old.median_ns
            }
            _ => median,
        };
        (name.to_owned(), Entry { median_ns, tolerance_percent })
    };
    Expected {
        tolerance_percent: expected.tolerance_percent,
        figures: medians(results, system).into_iter().map(entry).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::example::{cell, results};

    const REALM: &str = "realm beside 6.1";

    fn expected(median_ns: u64) -> Expected {
        let entry = Entry { median_ns, tolerance_percent: None };
        Expected {
            tolerance_percent: 5.0,
            figures: [
                ("getpid".into(), entry),
                ("cyclictest".into(), Entry { median_ns: 900, ..entry }),
            ]
            .into(),
        }
    }

    fn verdict(median_ns: u64) -> Verdict {
        let findings = compare(&results(), REALM, &expected(median_ns));
        findings.iter().find(|finding| finding.name == "getpid").unwrap().verdict
    }

    #[test]
    fn a_median_is_allowed_that_is_no_longer() {
        let expected = expected(100);
        let allowed = [1, 100, 105].map(|median| expected.allows("getpid", median));
        assert_eq!(allowed, [true; 3]);
        assert!(!expected.allows("getpid", 106) && !expected.allows("nothing", 1));
    }

    #[test]
    fn longer_paths_are_worse_and_shorter_ones_better() {
        assert_eq!(verdict(58), Verdict::Same);
        assert_eq!(verdict(59), Verdict::Same);
        assert_eq!(verdict(50), Verdict::Worse);
        assert_eq!(verdict(70), Verdict::Better);
    }

    #[test]
    fn an_update_makes_the_comparison_succeed() {
        let mut results = results();
        results.cells.push(cell(REALM, "none", "pipe", &[(3000, 1)]));
        let mut old = expected(20);
        old.figures.insert("gone".into(), Entry { median_ns: 1, tolerance_percent: None });
        let failing = compare(&results, REALM, &old);
        assert_eq!(failing.iter().filter(|finding| finding.verdict.fails()).count(), 3);
        let new = update(&results, REALM, &old);
        assert!(compare(&results, REALM, &new).iter().all(|finding| !finding.verdict.fails()));
    }

    #[test]
    fn an_update_leaves_what_stands_for_several_medians() {
        let updated = |median_ns, tolerance_percent| {
            let mut old = expected(58);
            old.figures.insert("getpid".into(), Entry { median_ns, tolerance_percent });
            update(&results(), REALM, &old).figures["getpid"].median_ns
        };
        assert_eq!(updated(50, Some(40.0)), 50);
        assert_eq!(updated(50, None), updated(20, Some(40.0)));
    }
}
