// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results: what was measured where and how. This is the JSON that `--json` and `--output` give.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Histogram, Summary};

/// Version of the format.
pub const FORMAT: u32 = 1;

/// A run, with everything that is needed to judge it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: u32,
    /// When it ended: seconds since 1970.
    pub time: u64,
    /// What it ran on.
    pub machine: Machine,
    /// How it was measured.
    pub method: Method,
    /// The measurements.
    pub cells: Vec<Cell>,
}

/// What the run ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor, or the emulator's name for it.
    pub processor: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The emulator with its version; none on a real machine.
    #[serde(default)]
    pub emulator: Option<String>,
    /// Other versions: `crtos`, `cyclictest`, `stress-ng`, ….
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
}

/// How it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// Time is the number of executed instructions: one is one nanosecond.
    pub virtual_time: bool,
    /// Samples of timer and interrupt latency per cell.
    pub samples: u64,
    /// Time between two of them, in microseconds.
    pub interval_us: u64,
    /// What a reader has to know, in sentences.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// Where programs run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct System {
    /// Short name, such as `6.1-rt` or `realm beside 6.1`.
    pub name: String,
    /// Linux's release.
    pub kernel: String,
    /// Programs run in the realm.
    pub realm: bool,
    /// Linux has PREEMPT_RT.
    pub preempt_rt: bool,
    /// The program's CPU was isolated by boot parameters; if it ran in the realm, its shadow's.
    pub isolated: bool,
}

/// One program on one system under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Where it ran.
    pub system: System,
    /// Name of the load in the catalogue.
    pub load: String,
    /// Name of the measurement in the catalogue.
    pub figure: String,
    /// The command that measured.
    pub command: String,
    /// The samples in nanoseconds, or why there are none.
    pub outcome: Result<Histogram, String>,
    /// The same without what other CPUs executed meanwhile, where an emulator's time is the sum
    /// over all of them and an observer told them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<Histogram>,
    /// VM exits meanwhile by CPU number and reason; only what was not 0. None without hypervisor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exits: Option<BTreeMap<u32, BTreeMap<String, u64>>>,
    /// The program's CPU.
    pub cpu: u32,
    /// How long it took in real time, in seconds; on the emulated machine's host.
    #[serde(default)]
    pub seconds: f64,
}

/// A cell that succeeded, with its statistics.
#[derive(Clone, Copy, Debug)]
pub struct Measurement<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Its samples.
    pub histogram: &'a Histogram,
    /// Their statistics.
    pub summary: Summary,
}

impl Cell {
    /// The measurement, if there is one.
    pub fn measurement(&self) -> Option<Measurement<'_>> {
        let histogram = self.outcome.as_ref().ok()?;
        Some(Measurement { cell: self, histogram, summary: histogram.summary()? })
    }

    /// VM exits of the program's CPU meanwhile; `None` without hypervisor.
    pub fn exits_of_program(&self) -> Option<u64> {
        let exits = self.exits.as_ref()?;
        Some(exits.get(&self.cpu).map_or(0, |reasons| reasons.values().sum()))
    }
}

impl Results {
    /// The systems in the order of their first cells.
    pub fn systems(&self) -> Vec<&System> {
        let mut systems: Vec<&System> = Vec::new();
        for cell in &self.cells {
            if !systems.iter().any(|system| system.name == cell.system.name) {
                systems.push(&cell.system);
            }
        }
        systems
    }

    /// The measurement of a figure on a system under a load.
    pub fn find(&self, system: &str, load: &str, figure: &str) -> Option<Measurement<'_>> {
        self.cell(system, load, figure)?.measurement()
    }

    /// The cell, whether it succeeded or not.
    pub fn cell(&self, system: &str, load: &str, figure: &str) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| cell.system.name == system && cell.load == load && cell.figure == figure)
    }

    /// All measurements of a figure.
    pub fn of_figure<'a>(&'a self, figure: &'a str) -> impl Iterator<Item = Measurement<'a>> {
        self.cells.iter().filter(move |cell| cell.figure == figure).filter_map(Cell::measurement)
    }

    /// Reads what [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// What is wrong with the text; a format that is not [`FORMAT`].
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        let results: Self = serde_json::from_str(text)?;
        match results.format {
            FORMAT => Ok(results),
            other => Err(serde::de::Error::custom(format!(
                "the results have format {other}, and this program reads format {FORMAT}"
            ))),
        }
    }

    /// The JSON, one cell a line, so that versions can be compared.
    ///
    /// # Errors
    /// None that a result can cause.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut value = serde_json::to_value(self)?;
        let cells: Vec<String> =
            self.cells.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        if let Some(object) = value.as_object_mut() {
            object.remove("cells");
        }
        let head = serde_json::to_string_pretty(&value)?;
        let head = head.trim_end_matches('}').trim_end();
        Ok(format!("{head},\n  \"cells\": [\n{}\n  ]\n}}\n", cells.join(",\n")))
    }
}

/// Results for the tests of this crate.
#[cfg(test)]
pub(crate) mod example {
    use super::*;

    pub fn system(name: &str) -> System {
        System {
            name: name.into(),
            kernel: "6.1.0-32-amd64".into(),
            realm: name.starts_with("realm"),
            preempt_rt: name.contains("-rt"),
            isolated: name.contains("isolated"),
        }
    }

    pub fn cell(name: &str, load: &str, figure: &str, pairs: &[(u64, u64)]) -> Cell {
        Cell {
            system: system(name),
            load: load.into(),
            figure: figure.into(),
            command: format!("{figure} -n 1"),
            outcome: Ok(pairs.iter().copied().collect()),
            own: None,
            exits: name.starts_with("realm").then(BTreeMap::new),
            cpu: 3,
            seconds: 1.5,
        }
    }

    pub fn results() -> Results {
        Results {
            format: FORMAT,
            time: 1_700_000_000,
            machine: Machine {
                processor: "EPYC".into(),
                cpus: 4,
                memory_mib: 2048,
                ..Machine::default()
            },
            method: Method {
                virtual_time: true,
                samples: 100,
                interval_us: 1000,
                remarks: vec!["Method.".into()],
            },
            cells: vec![
                cell("6.1", "none", "cyclictest", &[(4000, 90), (5600, 10)]),
                cell("6.1", "hackbench", "cyclictest", &[(5000, 90), (59_000, 10)]),
                cell("6.1-rt", "none", "cyclictest", &[(4000, 90), (7000, 10)]),
                cell("6.1-rt", "hackbench", "cyclictest", &[(5000, 90), (50_000, 10)]),
                cell("realm beside 6.1", "none", "cyclictest", &[(900, 99), (950, 1)]),
                cell("realm beside 6.1", "hackbench", "cyclictest", &[(900, 99), (3100, 1)]),
                cell("6.1", "none", "getpid", &[(370, 10)]),
                cell("realm beside 6.1", "none", "getpid", &[(58, 10)]),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_survives_the_trip() {
        let mut results = example::results();
        results.cells[0].outcome = Err("no such program".into());
        let text = results.to_json().unwrap();
        assert_eq!(Results::from_json(&text).unwrap(), results);
        results.format = 7;
        assert!(
            Results::from_json(&results.to_json().unwrap())
                .unwrap_err()
                .to_string()
                .contains("format 7")
        );
    }

    #[test]
    fn exits_of_the_programs_cpu_are_told_apart() {
        let mut cell = example::cell("realm beside 6.1", "none", "cyclictest", &[(1, 1)]);
        assert_eq!(cell.exits_of_program(), Some(0));
        cell.exits =
            Some([(0, [("icr".into(), 5)].into()), (3, [("msr".into(), 2)].into())].into());
        assert_eq!(cell.exits_of_program(), Some(2));
        cell.exits = None;
        assert_eq!(cell.exits_of_program(), None);
    }
}
