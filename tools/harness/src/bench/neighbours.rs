// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a thread that changes memory holds one of a higher priority in the same program.
//!
//! `tests/programs/neighbour.c` wakes up at 10 kHz, and needs what is known of the program's
//! memory, while another thread does with 256 MiB of it whatever can be done. What counts is how
//! much longer than beside a thread that only computes the wake-ups take, of their CPU's own.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crtos_results::Histogram;

use super::machine::Measuring;
use super::system::{CPU, Target};
use crate::kernels::Flavour;
use crate::programs::PROGRAMS;
use crate::progress;

/// What the neighbour does, in the program's words. The first one is what the others are compared
/// with.
const NEIGHBOURS: [&str; 10] =
    ["nothing", "map", "protect", "move", "replace", "share", "lock", "discard", "fork", "thread"];
/// Microseconds from one wake-up to the next.
const INTERVAL_US: u64 = 100;
/// The most, in nanoseconds, before the gate fails: a section with interrupts off.
pub const MOST_NS: u64 = 1_500;
/// How long a neighbour may take in real time on a busy host.
const PATIENCE: Duration = Duration::from_secs(400);

/// What one neighbour costs.
pub struct Delay {
    /// What it does.
    pub neighbour: &'static str,
    /// The latest wake-up, in nanoseconds.
    pub latest: u64,
    /// How much later that is than beside a neighbour that computes.
    pub delay: u64,
}

impl Delay {
    /// Whether it is longer than it may be.
    pub fn is_too_long(&self) -> bool {
        self.delay > MOST_NS
    }
}

/// Measures each of them in the realm beside Linux 6.1.
///
/// # Errors
/// That the machine or the program fails, or wake-ups were missed.
pub fn neighbours() -> Result<Vec<Delay>> {
    let mut machine = Measuring::boot_for_own(Target::realm(Flavour::V6_1))?;
    machine.realm_on(&CPU.to_string())?;
    machine.short_turns(true)?;
    let mut delays: Vec<Delay> = Vec::new();
    for neighbour in NEIGHBOURS {
        let latest = latest(&mut machine, neighbour).with_context(|| neighbour.to_owned())?;
        let alone = delays.first().map_or(latest, |first| first.latest);
        delays.push(Delay { neighbour, latest, delay: latest.saturating_sub(alone) });
    }
    Ok(delays)
}

/// The latest wake-up beside a neighbour.
fn latest(machine: &mut Measuring, neighbour: &str) -> Result<u64> {
    let _step = progress::step(format!("wake-ups beside a thread that does: {neighbour}"));
    let program = format!("{PROGRAMS}/neighbour");
    let words = ["crtos", "run", "--", &program, neighbour, "all"].map(str::to_owned);
    let text = machine.run(&words, PATIENCE)?;
    let mut told = Histogram::default();
    for line in text.lines() {
        told.add(line.parse().with_context(|| format!("a latency: {line}"))?, 1);
    }
    let own = machine.own(&[told], INTERVAL_US)?;
    let summary = own.first().and_then(Histogram::summary);
    let summary = summary.context("nobody has observed the CPU")?;
    ensure!(summary.max < INTERVAL_US * 1000, "wake-ups were missed");
    Ok(summary.max)
}
