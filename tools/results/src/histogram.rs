// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values with counts: all samples of a figure, without any loss, and their statistics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Samples in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// How often each value was seen.
    counts: BTreeMap<u64, u64>,
    /// Samples beyond what whoever measured could tell apart. Their largest value is `max`.
    #[serde(default, skip_serializing_if = "is_zero")]
    beyond: u64,
    /// The largest value among the samples beyond; 0 without any.
    #[serde(default, skip_serializing_if = "is_zero")]
    max_beyond: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The statistics that tables and figures show, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Number of samples.
    pub count: u64,
    /// The least.
    pub min: u64,
    /// A quarter of the samples is at most this.
    pub first_quartile: u64,
    /// Half of the samples is at most this.
    pub median: u64,
    /// Three quarters of the samples are at most this.
    pub third_quartile: u64,
    /// 99.9 % of the samples are at most this.
    pub p999: u64,
    /// The largest.
    pub max: u64,
    /// The arithmetic mean, rounded; samples beyond the histogram count as the largest.
    pub mean: u64,
}

impl Histogram {
    /// Adds `count` samples of a value.
    pub fn add(&mut self, value: u64, count: u64) {
        if count > 0 {
            *self.counts.entry(value).or_default() += count;
        }
    }

    /// Adds samples that were too large to be told apart; `max` is the largest of them.
    pub fn add_beyond(&mut self, count: u64, max: u64) {
        if count > 0 {
            self.beyond += count;
            self.max_beyond = self.max_beyond.max(max);
        }
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.counts.values().sum::<u64>() + self.beyond
    }

    /// The values with their counts, ascending; samples beyond come last, as the largest.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let beyond = (self.beyond > 0).then_some((self.max_beyond, self.beyond));
        self.counts.iter().map(|(value, count)| (*value, *count)).chain(beyond)
    }

    /// The statistics; `None` without samples.
    pub fn summary(&self) -> Option<Summary> {
        let count = self.count();
        let min = self.iter().next()?.0;
        let sum: u128 =
            self.iter().map(|(value, count)| u128::from(value) * u128::from(count)).sum();
        Some(Summary {
            count,
            min,
            first_quartile: self.quantile(1, 4)?,
            median: self.quantile(1, 2)?,
            third_quartile: self.quantile(3, 4)?,
            p999: self.quantile(999, 1000)?,
            max: self.iter().last()?.0,
            mean: u64::try_from((sum + u128::from(count) / 2) / u128::from(count)).ok()?,
        })
    }

    /// The least value such that `part` of `whole` samples, rounded up, are at most that (the
    /// nearest-rank definition); `None` without samples.
    pub fn quantile(&self, part: u64, whole: u64) -> Option<u64> {
        let rank = (u128::from(self.count()) * u128::from(part)).div_ceil(u128::from(whole)).max(1);
        let mut seen = 0_u128;
        self.iter().find_map(|(value, count)| {
            seen += u128::from(count);
            (seen >= rank).then_some(value)
        })
    }

    /// The samples in `bins` ranges of equal width between two values, or of equal ratio if
    /// `logarithmic`; the counts. Values outside are left out.
    pub fn bins(&self, from: f64, to: f64, bins: usize, logarithmic: bool) -> Vec<u64> {
        let scale = |value: f64| if logarithmic { value.max(1.0).ln() } else { value };
        let (low, high) = (scale(from), scale(to));
        let mut result = vec![0; bins];
        for (value, count) in self.iter() {
            let at = (scale(value as f64) - low) / (high - low) * bins as f64;
            if (0.0..=bins as f64).contains(&at) {
                result[(at as usize).min(bins - 1)] += count;
            }
        }
        result
    }
}

impl FromIterator<(u64, u64)> for Histogram {
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(pairs: T) -> Self {
        let mut histogram = Self::default();
        pairs.into_iter().for_each(|(value, count)| histogram.add(value, count));
        histogram
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let histogram: Histogram = (1..=1000).map(|value| (value, 1)).collect();
        let summary = histogram.summary().unwrap();
        assert_eq!((summary.min, summary.max, summary.count), (1, 1000, 1000));
        assert_eq!(
            (summary.first_quartile, summary.median, summary.third_quartile),
            (250, 500, 750)
        );
        assert_eq!((summary.p999, summary.mean), (999, 501));
        assert_eq!(Histogram::default().summary(), None);
    }

    #[test]
    fn samples_beyond_count_as_the_largest() {
        let mut histogram: Histogram = [(10, 98)].into_iter().collect();
        histogram.add_beyond(2, 5_000);
        let summary = histogram.summary().unwrap();
        assert_eq!(
            (summary.count, summary.median, summary.p999, summary.max),
            (100, 10, 5_000, 5_000)
        );
        let text = serde_json::to_string(&histogram).unwrap();
        assert_eq!(text, r#"{"counts":{"10":98},"beyond":2,"max_beyond":5000}"#);
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
    }

    proptest! {
        #[test]
        fn statistics_agree_with_sorting(
            mut samples in prop::collection::vec(0_u64..1000, 1..200),
        ) {
            let histogram: Histogram = samples.iter().map(|sample| (*sample, 1)).collect();
            samples.sort_unstable();
            let at = |part: usize, whole: usize| {
                samples[(samples.len() * part).div_ceil(whole).max(1) - 1]
            };
            let summary = histogram.summary().unwrap();
            prop_assert_eq!(summary.first_quartile, at(1, 4));
            prop_assert_eq!(summary.median, at(1, 2));
            prop_assert_eq!(summary.third_quartile, at(3, 4));
            prop_assert_eq!(summary.p999, at(999, 1000));
            prop_assert_eq!(summary.max, samples[samples.len() - 1]);
            for logarithmic in [false, true] {
                let bins = histogram.bins(1.0, 1000.0, 7, logarithmic);
                let inside = samples.iter().filter(|sample| **sample >= 1 || logarithmic).count();
                prop_assert_eq!(bins.iter().sum::<u64>(), inside as u64);
            }
        }
    }
}
