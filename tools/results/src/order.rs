// SPDX-License-Identifier: MIT OR Apache-2.0
//! One measurement that somebody wants: what the harness tells `crtos bench` in a guest.

use serde::{Deserialize, Serialize};

use crate::catalogue::{Figure, How, Load, NO_LOAD};
use crate::model::System;

/// What to measure, where and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Where.
    pub system: System,
    /// Name of the load.
    pub load: String,
    /// Name of the figure.
    pub figure: String,
    /// Number of samples.
    pub samples: u64,
    /// Time between samples of cyclictest, in microseconds.
    pub interval_us: u64,
    /// The CPU that the program runs on, by Linux's number.
    pub cpu: u32,
    /// Another one of the same system, for figures across CPUs and for what goes on beside a
    /// latency.
    pub other_cpu: Option<u32>,
    /// The CPUs that the load may use, as a list; all if none is given.
    #[serde(default)]
    pub load_cpus: Option<String>,
    /// The CPU of Linux that a program's shadow is to use; any if none is given.
    #[serde(default)]
    pub shadow_cpu: Option<u32>,
    /// Time is the number of executed instructions, and the time stamp counter counts nanoseconds.
    pub virtual_time: bool,
    /// An observer tells CPUs apart meanwhile, and everything takes longer: exits are not counted.
    #[serde(default)]
    pub own: bool,
}

/// Size of a set of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Samples of latencies per cell.
    pub samples: u64,
    /// Time between them, in microseconds.
    pub interval_us: u64,
    /// Other figures have their samples divided by this.
    pub divisor: u64,
}

/// A few minutes.
pub const QUICK: Size = Size { samples: 2_000, interval_us: 200, divisor: 10 };
/// Hours.
pub const FULL: Size = Size { samples: 100_000, interval_us: 1000, divisor: 1 };

/// No figure has fewer samples.
const LEAST_SAMPLES: u64 = 20;

impl Size {
    /// How many samples of a figure.
    pub fn samples_of(&self, figure: &Figure) -> u64 {
        match (figure.under_load(), figure.how) {
            (true, _) => self.samples,
            (false, How::UpDown) => (figure.samples / self.divisor).max(3),
            (false, _) => (figure.samples / self.divisor).max(LEAST_SAMPLES).min(figure.samples),
        }
    }
}

/// What somebody chose.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The figures.
    pub figures: Vec<&'static Figure>,
    /// The loads.
    pub loads: Vec<&'static Load>,
    /// How much of it.
    pub size: Size,
    /// Time is the number of executed instructions.
    pub virtual_time: bool,
}

impl Choice {
    /// The measurements on a system: latencies under every load that was chosen, the other figures
    /// without load; those that need two CPUs, or restart the realm, come last. Devices are those
    /// of the emulated machine, which has virtual time.
    pub fn orders(&self, system: &System, cpu: u32, other_cpu: Option<u32>) -> Vec<Order> {
        let is_there = |figure: &&&Figure| {
            (system.realm || !figure.realm_only) && (self.virtual_time || !figure.devices)
        };
        let mut figures: Vec<_> = self.figures.iter().filter(is_there).collect();
        figures.sort_by_key(|figure| (figure.two_cpus, figure.devices, figure.how == How::UpDown));
        let mut orders = Vec::new();
        for figure in figures {
            for load in &self.loads {
                if load.name != NO_LOAD && !figure.under_load() {
                    continue;
                }
                orders.push(Order {
                    system: system.clone(),
                    load: load.name.to_owned(),
                    figure: figure.name.to_owned(),
                    samples: self.size.samples_of(figure),
                    interval_us: self.size.interval_us,
                    cpu,
                    other_cpu: other_cpu.filter(|_| figure.two_cpus || figure.under_load()),
                    load_cpus: None,
                    shadow_cpu: None,
                    virtual_time: self.virtual_time,
                    own: false,
                });
            }
        }
        orders
    }
}

/// The figures or loads of the given names; all if there are none.
///
/// # Errors
/// The first name that is none, with those that are.
pub fn named<T: 'static>(
    what: &str,
    all: &'static [T],
    name: impl Fn(&T) -> &'static str,
    names: &[String],
) -> Result<Vec<&'static T>, String> {
    if names.is_empty() {
        return Ok(all.iter().collect());
    }
    let find = |wanted: &String| {
        all.iter().find(|item| name(item) == wanted).ok_or_else(|| {
            let known: Vec<_> = all.iter().map(&name).collect();
            format!("there is no {what} `{wanted}`; there are {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{FIGURES, LOADS};
    use crate::model::example::system;

    #[test]
    fn only_latencies_are_measured_under_load() {
        let choice = Choice {
            figures: FIGURES.iter().collect(),
            loads: LOADS.iter().collect(),
            size: QUICK,
            virtual_time: true,
        };
        let orders = choice.orders(&system("6.1"), 3, Some(2));
        let under = |figure: &str| orders.iter().filter(|order| order.figure == figure).count();
        assert_eq!((under("cyclictest"), under("getpid"), under("up")), (LOADS.len(), 1, 0));
        let realm = choice.orders(&system("realm beside 6.1"), 3, Some(2));
        assert!(realm.last().unwrap().other_cpu.is_some());
        let across = realm.iter().find(|order| order.figure == "pipe-across").unwrap();
        assert_eq!(across.other_cpu, Some(2));
    }

    #[test]
    fn names_that_are_none_are_told() {
        let some = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            named("load", LOADS, |load| load.name, &names).map(|loads| loads.len())
        };
        assert_eq!(some(&[]), Ok(LOADS.len()));
        assert_eq!(some(&["vm", "none"]), Ok(2));
        assert!(some(&["heat"]).unwrap_err().contains("hackbench"));
    }
}
