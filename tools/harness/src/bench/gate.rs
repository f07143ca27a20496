// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gate: lengths of the realm's paths against those in the tree, `tools/bench/expected.json`.
//!
//! In virtual time, with Linux idle, these figures are the same on every run to a few instructions,
//! those of wake-ups in the shortest of a few starts. So a path that got longer is told from noise,
//! by the name of its figure.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use crtos_results::catalogue::{FIGURES, Figure, How, NO_LOAD};
use crtos_results::compare::{Expected, compare, update};
use crtos_results::model::{FORMAT, Machine, Method};
use crtos_results::order::{Choice, Size, named};
use crtos_results::{Cell, Results, table};

use super::machine::Measuring;
use super::neighbours::{Delay, MOST_NS, neighbours};
use super::system::{CPU, OTHER_CPU, Target};
use crate::kernels::Flavour;
use crate::paths;

/// Enough for a median that does not move.
const SIZE: Size = Size { samples: 300, interval_us: 500, divisor: 50 };
/// How often a figure is measured at most whose thread sleeps until a time, as [`measure`] does.
const STARTS: usize = 12;
/// Percent by which a median may change, unless the file says something else.
const TOLERANCE: f64 = 5.0;
/// Figures that say nothing about a path of ours, or take too long for what they say.
const LEFT_OUT: &[&str] = &["overhead", "compute", "compute-timer", "thread-join", "signal-return"];

fn file() -> PathBuf {
    paths::root().join("tools/bench/expected.json")
}

/// Measures and compares, or replaces what is expected; returns 1 if something changed.
pub fn gate(replace: bool) -> Result<u8> {
    let expected = match fs::read_to_string(file()) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("{}", file().display()))?,
        Err(_) if replace => Expected { tolerance_percent: TOLERANCE, ..Expected::default() },
        Err(error) => return Err(error).with_context(|| format!("read {}", file().display())),
    };
    let target = Target::realm(Flavour::V6_1);
    let system = target.describe()?;
    let results = measure(target, &expected)?;
    if replace {
        let text = serde_json::to_string_pretty(&update(&results, &system.name, &expected))?;
        fs::write(file(), text + "\n").with_context(|| format!("write {}", file().display()))?;
        println!("{} holds what was measured", file().display());
        return Ok(0);
    }
    let findings = compare(&results, &system.name, &expected);
    println!("lengths of paths in the realm beside Linux {}, in instructions", target.flavour);
    println!("{}", table::findings(&findings));
    for cell in results.cells.iter().filter(|cell| cell.outcome.is_err()) {
        println!("{}", table::outcome(cell));
    }
    let delays = neighbours()?;
    println!(
        "a thread is ready later beside another one that does this with 256 MiB, in instructions of its CPU (at most {MOST_NS})"
    );
    for Delay { neighbour, latest, delay } in &delays {
        println!("{neighbour:>8}  latest {latest:>6}, later by {delay:>6}");
    }
    let changed: Vec<_> = findings.iter().filter(|finding| finding.verdict.fails()).collect();
    let too_long: Vec<_> =
        delays.iter().filter(|delay| delay.is_too_long()).map(|delay| delay.neighbour).collect();
    if !too_long.is_empty() {
        println!("threads of higher priority are held for too long: {}", too_long.join(", "));
    }
    if changed.is_empty() {
        return Ok(u8::from(!too_long.is_empty()));
    }
    let names: Vec<_> =
        changed.iter().map(|f| format!("{} ({})", f.name, f.verdict.words())).collect();
    println!(
        "changed: {}\nIf that is as it should be: `./x bench gate --update` writes tools/bench/expected.json; commit it with the change.",
        names.join(", ")
    );
    Ok(1)
}

/// Measures the figures.
///
/// Where the housekeeper sleeps is not the same after every start of a program. Its timer on the
/// measured CPU makes a wake-up there about 50 instructions longer. So of a wake-up's starts the
/// one with the shortest way counts, and further starts follow as long as that is longer than
/// expected: a path that got longer is longer in all of them.
fn measure(target: Target, expected: &Expected) -> Result<Results> {
    let names: Vec<String> = FIGURES
        .iter()
        .filter(|figure| figure.how != How::UpDown && !LEFT_OUT.contains(&figure.name))
        .map(|figure| figure.name.to_owned())
        .collect();
    let choice = Choice {
        figures: named("figure", FIGURES, |f| f.name, &names).map_err(|error| anyhow!(error))?,
        loads: crtos_results::catalogue::LOADS.iter().filter(|load| load.name == NO_LOAD).collect(),
        size: SIZE,
        virtual_time: true,
    };
    let mut machine = Measuring::boot(target)?;
    let mut cells = Vec::new();
    for order in choice.orders(&target.describe()?, CPU, Some(OTHER_CPU)) {
        let wakes_up = Figure::named(&order.figure).is_some_and(Figure::under_load);
        let is_too_long = |cell: &Cell| {
            length(cell).is_some_and(|length| !expected.allows(&order.figure, length))
        };
        let mut shortest = machine.measure(&order)?;
        let mut starts = 1;
        while wakes_up && starts < STARTS && is_too_long(&shortest) {
            let next = machine.measure(&order)?;
            if length(&next) < length(&shortest) {
                shortest = next;
            }
            starts += 1;
        }
        cells.push(shortest);
    }
    Ok(Results {
        format: FORMAT,
        time: 0,
        machine: Machine::default(),
        method: Method { virtual_time: true, ..Method::default() },
        cells,
    })
}

/// The median of a start; `None`, which is less than any, if it failed: no failure is hidden.
fn length(cell: &Cell) -> Option<u64> {
    cell.outcome.as_ref().ok()?.quantile(1, 2)
}
