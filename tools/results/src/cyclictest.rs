// SPDX-License-Identifier: MIT OR Apache-2.0
//! What cyclictest says with `--json`: one histogram per thread.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::Histogram;

/// The file as far as it matters here.
#[derive(Deserialize)]
struct File {
    thread: BTreeMap<String, Thread>,
}

/// One measuring thread; values in nanoseconds with `-N`.
#[derive(Deserialize)]
struct Thread {
    /// Value to number of samples; only values that occurred.
    #[serde(default)]
    histogram: BTreeMap<String, u64>,
    cycles: u64,
    max: u64,
}

/// The histograms of the threads of a file that `cyclictest -N -h LIMIT --json FILE` wrote.
///
/// # Errors
/// What is not as expected.
pub fn threads(text: &str) -> Result<Vec<Histogram>, serde_json::Error> {
    let file: File = serde_json::from_str(text)?;
    file.thread.values().map(histogram).collect()
}

fn histogram(thread: &Thread) -> Result<Histogram, serde_json::Error> {
    let mut histogram = Histogram::default();
    let mut told = 0;
    for (value, count) in &thread.histogram {
        let value = value.parse().map_err(serde::de::Error::custom)?;
        histogram.add(value, *count);
        told += count;
    }
    histogram.add_beyond(thread.cycles.saturating_sub(told), thread.max);
    Ok(histogram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_in_the_histogram_is_beyond() {
        let text = r#"{"file_version": 1, "num_threads": 1, "thread": {"0": {"histogram": {
            "4000": 7, "4100": 2}, "cycles": 10, "min": 4000, "max": 70000, "avg": 4010.5, "cpu": 3, "node": 0}}}"#;
        let summary = threads(text).unwrap()[0].summary().unwrap();
        assert_eq!(
            (summary.count, summary.min, summary.median, summary.max),
            (10, 4000, 4000, 70000)
        );
        assert!(threads("{}").is_err());
    }
}
