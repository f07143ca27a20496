// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the programs of `tools/bench/` print: one line of JSON with a histogram in ticks of their
//! clock.

use serde::Deserialize;

use crate::Histogram;

#[derive(Deserialize)]
struct Line {
    figure: String,
    /// How many ticks are a microsecond.
    ticks_per_us: f64,
    /// Pairs of value and count.
    histogram: Vec<(u64, u64)>,
}

/// Reads the line about a figure. With `virtual_time` a tick is a nanosecond, whatever the
/// program measured it to be.
///
/// # Errors
/// What is not as expected.
pub fn read(text: &str, figure: &str, virtual_time: bool) -> Result<Histogram, String> {
    let line: Line = serde_json::from_str(text.trim())
        .map_err(|error| format!("the program printed no histogram: {error}"))?;
    if line.figure != figure {
        return Err(format!("the program measured `{}`", line.figure));
    }
    if line.ticks_per_us.is_nan() || line.ticks_per_us <= 0.0 {
        return Err(format!(
            "the program's clock has {} ticks in a microsecond",
            line.ticks_per_us
        ));
    }
    let ns = |ticks: u64| match virtual_time {
        true => ticks,
        false => (ticks as f64 * 1000.0 / line.ticks_per_us).round() as u64,
    };
    Ok(line.histogram.into_iter().map(|(ticks, count)| (ns(ticks), count)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"figure":"getpid","ticks_per_us":2500.0,"histogram":[[250,3],[500,1]]}"#;

    #[test]
    fn ticks_become_nanoseconds() {
        let summary = read(LINE, "getpid", false).unwrap().summary().unwrap();
        assert_eq!((summary.min, summary.max, summary.count), (100, 200, 4));
        assert_eq!(read(LINE, "getpid", true).unwrap().summary().unwrap().max, 500);
        assert!(read(LINE, "pipe", true).is_err());
        assert!(read("", "getpid", true).is_err());
    }
}
