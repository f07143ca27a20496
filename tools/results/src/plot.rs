// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures as SVG that takes its colours from the page: box plots like the paper's figures 5 and 7,
//! histograms.

use maud::{Markup, html};

use crate::histogram::{Histogram, Summary};
use crate::model::{Measurement, System};
use crate::table::microseconds;

/// Width of a panel, in pixels of its own scale.
const WIDTH: f64 = 560.0;
/// Where the axis begins: the names of systems are left of it.
const LEFT: f64 = 150.0;
/// Room right of the axis, for the number at a whisker's end.
const RIGHT: f64 = 56.0;
/// Height of a box plot's line.
const ROW: f64 = 20.0;
/// Height of a box.
const BOX: f64 = 10.0;
/// Room beneath the lines, for the axis.
const BOTTOM: f64 = 22.0;

/// Width and height of a histogram, and the room beneath it.
const HISTOGRAM: (f64, f64, f64) = (360.0, 90.0, 20.0);
/// Number of a histogram's bins.
const BINS: usize = 90;

/// A logarithmic axis of nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    /// The axis on the page.
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis for values between two, with some room, on a line from `from` to `to`.
    pub fn new(least: u64, largest: u64, from: f64, to: f64) -> Self {
        let low = (least.max(1) as f64 * 0.85).ln();
        let high = (largest.max(least + 1) as f64 * 1.1).ln();
        Self { low, high, from, to }
    }

    /// Where a value is.
    pub fn at(&self, ns: u64) -> f64 {
        let part = ((ns.max(1) as f64).ln() - self.low) / (self.high - self.low);
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Values for labels: 1, 2 and 5 times powers of ten, or powers of ten alone when they would be
    /// too many.
    pub fn ticks(&self) -> Vec<u64> {
        let decades = (self.high - self.low) / 10_f64.ln();
        let steps: &[u64] = if decades > 2.5 { &[1] } else { &[1, 2, 5] };
        let powers = (0..12).map(|power| 10_u64.pow(power));
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * power));
        all.filter(|value| (self.low..self.high).contains(&(*value as f64).ln())).collect()
    }
}

/// The class that gives a system its colours.
fn class(system: &System) -> &'static str {
    match system {
        System { realm: true, isolated: true, .. } => "realm isolated",
        System { realm: true, .. } => "realm",
        System { preempt_rt: true, isolated: true, .. } => "rt isolated",
        System { preempt_rt: true, .. } => "rt",
        System { isolated: true, .. } => "linux isolated",
        System { .. } => "linux",
    }
}

/// The numbers of a summary in one line.
pub fn numbers(s: &Summary) -> String {
    format!(
        "least {}, quarter {}, median {}, three quarters {}, 99.9 % {}, most {} µs; {} samples",
        microseconds(s.min),
        microseconds(s.first_quartile),
        microseconds(s.median),
        microseconds(s.third_quartile),
        microseconds(s.p999),
        microseconds(s.max),
        s.count
    )
}

/// One box per measurement: whiskers to least and most, a box between the quartiles, a line at the
/// median, a tick at 99.9 %. `least` and `largest` are the ends of the axis, which panels of one
/// figure share.
pub fn boxes(measurements: &[Measurement<'_>], least: u64, largest: u64) -> Markup {
    let axis = Axis::new(least, largest, LEFT, WIDTH - RIGHT);
    let height = measurements.len() as f64 * ROW;
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (height + BOTTOM) } role="img" {
            @for tick in axis.ticks() {
                @let x = axis.at(tick);
                line .grid x1=(px(x)) x2=(px(x)) y1="0" y2=(px(height)) {}
                text .tick x=(px(x)) y=(px(height + 14.0)) { (microseconds(tick)) }
            }
            text .unit x=(px(LEFT - 6.0)) y=(px(height + 14.0)) { "µs" }
            @for (index, measurement) in measurements.iter().enumerate() {
                (one_box(measurement, &axis, (index as f64 + 0.5) * ROW))
            }
        }
    }
}

/// An upright line across a box.
fn mark(x: f64, middle: f64, half: f64) -> Markup {
    html! {
        line .whisker x1=(px(x)) x2=(px(x)) y1=(px(middle - half)) y2=(px(middle + half)) {}
    }
}

fn one_box(measurement: &Measurement<'_>, axis: &Axis, middle: f64) -> Markup {
    let (system, s) = (&measurement.cell.system, &measurement.summary);
    let [min, low, median, high, p999, max] =
        [s.min, s.first_quartile, s.median, s.third_quartile, s.p999, s.max].map(|ns| axis.at(ns));
    let (top, half) = (middle - BOX / 2.0, BOX / 2.0);
    html! {
        g class=(class(system)) {
            title { (system.name) ": " (numbers(s)) }
            rect .hit x="0" y=(px(middle - ROW / 2.0)) width=(WIDTH) height=(ROW) {}
            text .name x=(px(LEFT - 6.0)) y=(px(middle + 4.0)) { (system.name) }
            line .whisker x1=(px(min)) x2=(px(max)) y1=(px(middle)) y2=(px(middle)) {}
            (mark(min, middle, half * 0.7))
            (mark(max, middle, half * 0.7))
            (mark(p999, middle, half * 0.4))
            rect .box x=(px(low)) y=(px(top)) width=(px((high - low).max(2.0))) height=(BOX) {}
            line .median x1=(px(median)) x2=(px(median)) y1=(px(top)) y2=(px(top + BOX)) {}
            text .most x=(px(max + 5.0)) y=(px(middle + 4.0)) { (microseconds(s.max)) }
        }
    }
}

/// A histogram; the height of a bar grows with the logarithm of its count, so that single samples
/// are seen.
pub fn histogram(histogram: &Histogram, summary: &Summary) -> Markup {
    let (width, height, bottom) = HISTOGRAM;
    let axis = Axis::new(summary.min, summary.max, 4.0, width - 4.0);
    let bins = histogram.bins(axis.low.exp(), axis.high.exp(), BINS, true);
    let most = bins.iter().copied().max().unwrap_or(1).max(1);
    let tall = |count: u64| (1.0 + count as f64).ln() / (1.0 + most as f64).ln() * (height - 6.0);
    let step = (axis.to - axis.from) / BINS as f64;
    let mut path = String::new();
    for (index, count) in bins.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (x, y) = (axis.from + index as f64 * step, tall(*count));
        path += &format!(
            "M{} {}h{}V{}h-{}z",
            px(x),
            px(height),
            px(step * 0.9),
            px(height - y),
            px(step * 0.9)
        );
    }
    html! {
        svg viewBox={ "0 0 " (width) " " (height + bottom) } role="img" {
            @for tick in axis.ticks() {
                @let x = axis.at(tick);
                line .grid x1=(px(x)) x2=(px(x)) y1="0" y2=(height) {}
                text .tick x=(px(x)) y=(px(height + 13.0)) { (microseconds(tick)) }
            }
            path .bars d=(path) {}
        }
    }
}

/// A length with one digit behind the point.
fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::example::results;

    #[test]
    fn axes_are_logarithmic_and_have_labels() {
        let axis = Axis::new(1_000, 100_000, 0.0, 100.0);
        assert!(axis.at(1_000) < axis.at(10_000) && axis.at(10_000) < axis.at(100_000));
        assert!((axis.at(10_000) - 50.0).abs() < 3.0);
        assert_eq!(axis.ticks(), [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000]);
        assert_eq!(Axis::new(100, 1_000_000_000, 0.0, 1.0).ticks().len(), 8);
        // Equal values do not divide by zero.
        assert!(Axis::new(5, 5, 0.0, 1.0).at(5).is_finite());
    }

    #[test]
    fn boxes_tell_system_and_numbers() {
        let results = results();
        let measurements: Vec<_> = results.of_figure("cyclictest").collect();
        let svg = boxes(&measurements, 900, 59_000).into_string();
        assert!(svg.contains("realm beside 6.1: least 0.9") && svg.contains("class=\"realm\""));
        let first = &measurements[0];
        assert!(histogram(first.histogram, &first.summary).into_string().contains("<path"));
    }
}
