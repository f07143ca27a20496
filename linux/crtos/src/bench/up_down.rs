// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long `crtos down` and `crtos up` take: the realm ends and starts again with the same CPUs
//! and memory.

use std::process::Command;
use std::time::{Duration, Instant};

use crtos_results::{Histogram, Order};

use super::cell::output;
use crate::cpulist::CpuList;
use crate::device::{self, Device};
use crate::size::Size;

/// Longest time that one of them may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the command does, for the messages of failures.
const ASKED: &str = "measure how long `up` and `down` take";

/// Runs both, and measures the one that the order names.
pub fn measure(order: &Order, shown: &mut String) -> Result<Histogram, String> {
    let up = up_again().map_err(|failure| failure.to_string())?;
    let wants_up = order.figure == "up";
    *shown = format!("crtos {}", if wants_up { up.join(" ") } else { "down".into() });
    let mut histogram = Histogram::default();
    for _ in 0..order.samples {
        let down = time(&["down"])?;
        let up = time(&up.iter().map(String::as_str).collect::<Vec<_>>())?;
        histogram.add(if wants_up { up } else { down }, 1);
    }
    Ok(histogram)
}

/// Returns the arguments that start a realm like the present one.
fn up_again() -> crate::failure::Result<Vec<String>> {
    let device = Device::require(ASKED)?;
    let realm = device.realm(ASKED)?;
    let report = device.report(ASKED)?;
    let cell = report.cell(realm).ok_or_else(|| device::not_up(ASKED))?;
    let cpus: CpuList = report.cpus_of(realm);
    let mib = |bytes: u64| format!("{}M", Size(bytes).0 >> 20);
    let memory = mib(cell.private_bytes + cell.shared_bytes);
    let words = ["up", "--cpus", &cpus.to_string(), "--memory", &memory, "--private"];
    let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    words.push(mib(cell.private_bytes));
    Ok(words)
}

/// Runs this program with arguments. Returns the nanoseconds from its start to its end.
fn time(arguments: &[&str]) -> Result<u64, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let start = Instant::now();
    output(Command::new(own).args(arguments), PATIENCE, None)
        .map_err(|why| format!("crtos {}: {why}", arguments.join(" ")))?;
    Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
