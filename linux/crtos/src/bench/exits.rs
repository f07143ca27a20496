// SPDX-License-Identifier: MIT OR Apache-2.0
//! VM exits while a program runs: the hypervisor's counters, read repeatedly.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::report::{self, EXIT_NAMES};

/// VM exits by CPU and reason.
pub type Exits = BTreeMap<u32, BTreeMap<String, u64>>;

/// Readings of the counters while a program takes samples.
pub struct Watch {
    /// The time that the program takes samples for.
    sampling: Duration,
    readings: Vec<(Instant, Exits)>,
}

/// Number of readings while a program takes its samples. More would disturb it.
const READINGS: u32 = 10;

impl Watch {
    /// Takes the first reading; `None` without hypervisor.
    pub fn begin(sampling: Duration) -> Option<Self> {
        Some(Self { sampling, readings: vec![(Instant::now(), read()?)] })
    }

    /// Returns the time until the next reading.
    pub fn pause(&self) -> Duration {
        self.sampling / READINGS
    }

    /// Takes a further reading.
    pub fn look(&mut self) {
        self.readings.extend(read().map(|exits| (Instant::now(), exits)));
    }

    /// Returns the exits, once the program has ended: those in the stretch of four fifths of the
    /// sampling that has the fewest of `cpu`. That leaves out the start and the end of the program,
    /// which make calls of Linux. Exits that come with the samples are in every stretch.
    pub fn end(self, cpu: u32) -> Option<Exits> {
        let least = self.sampling * 4 / 5;
        let stretches = self.readings.iter().enumerate().filter_map(|(index, (begin, before))| {
            let (_, after) = self.readings[index..]
                .iter()
                .find(|(end, _)| end.duration_since(*begin) >= least)?;
            Some(difference(before, after))
        });
        let of_cpu = |exits: &Exits| exits.get(&cpu).map_or(0, |reasons| reasons.values().sum());
        stretches.min_by_key(|exits| -> u64 { of_cpu(exits) })
    }
}

/// Reads the counters; `None` without hypervisor.
pub fn read() -> Option<Exits> {
    const ASKED: &str = "count VM exits";
    let device = Device::open().ok()?;
    let info = device.info(ASKED).ok()?;
    if info.enabled == 0 {
        return None;
    }
    let report = device.report(ASKED).ok()?;
    let of_cpu = |cpu: &report::Cpu| {
        EXIT_NAMES.iter().map(|name| (*name).to_owned()).zip(cpu.exits).collect()
    };
    Some((0..).zip(report.cpus.iter().map(of_cpu)).collect())
}

/// Returns what was added, without zeros.
pub fn difference(before: &Exits, after: &Exits) -> Exits {
    let mut result = Exits::new();
    for (cpu, reasons) in after {
        for (reason, count) in reasons {
            let old = before.get(cpu).and_then(|reasons| reasons.get(reason)).unwrap_or(&0);
            if count > old {
                result.entry(*cpu).or_default().insert(reason.clone(), count - old);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exits(pairs: &[(u32, &str, u64)]) -> Exits {
        let mut exits = Exits::new();
        for (cpu, reason, count) in pairs {
            exits.entry(*cpu).or_default().insert((*reason).into(), *count);
        }
        exits
    }

    #[test]
    fn only_new_exits_count() {
        let before = exits(&[(0, "icr", 5), (3, "msr", 7)]);
        let after = exits(&[(0, "icr", 9), (3, "msr", 7)]);
        assert_eq!(difference(&before, &after), exits(&[(0, "icr", 4)]));
    }

    #[test]
    fn start_and_end_of_a_program_do_not_count() {
        let begin = Instant::now();
        let counts = [(0, 0), (100, 90), (500, 91), (900, 92), (1000, 92), (1100, 200)];
        let readings = counts
            .map(|(ms, count)| (begin + Duration::from_millis(ms), exits(&[(3, "icr", count)])));
        let watch = Watch { sampling: Duration::from_secs(1), readings: readings.into() };
        assert_eq!(watch.end(3), Some(exits(&[(3, "icr", 2)])));
    }
}
