// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything at once for long, in virtual time: priority inheritance and timers on two CPUs of the
//! realm, with load in both realms.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use crtos_results::cyclictest;

use super::machine::Measuring;
use super::system::Target;
use crate::kernels::Flavour;
use crate::progress;
use crate::test::PRELUDE;

/// What runs in the guest. Set before it: seconds, the most nanoseconds that a thread may be late,
/// and where the report of cyclictest goes.
const SCRIPT: &str = include_str!("../../../../tests/guest/soak.sh");
const REPORT: &str = "/tmp/soak.json";
/// What the line of the script begins with that says how far apart the wake-ups of a thread are, in
/// microseconds.
const INTERVAL: &str = "interval_us=";
/// 4 µs under load, and 1 for what runs beside on the same CPUs.
const MOST_NS: u64 = 5_000;
/// How much longer than in virtual time it may take in real time.
const SLOWNESS: u32 = 20;
const SLOWNESS_OF_SHORT_TURNS: u32 = 60;
const SLOWNESS_OF_OBSERVERS: u32 = 240;
/// What it may take beside.
const PATIENCE: Duration = Duration::from_secs(1200);

/// Which latencies are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Latencies {
    /// Those that cyclictest tells.
    All,
    /// The part of them that is the own of the CPU that wakes up.
    Own,
}

/// Runs it; returns 0 if nothing went wrong. Latencies are judged with short turns of the CPUs,
/// which makes it many times slower.
pub fn soak(time: Duration, latencies: Option<Latencies>, kernel: Flavour) -> Result<u8> {
    let target = Target::realm(kernel);
    let interval_us = interval_us()?;
    let mut machine = match latencies {
        Some(Latencies::Own) => Measuring::boot_for_own(target)?,
        Some(Latencies::All) | None => Measuring::boot(target)?,
    };
    machine.short_turns(latencies.is_some())?;
    let step = progress::step(format!("everything at once for {time:?} of virtual time"));
    let (most, slowness) = match latencies {
        None => (None, SLOWNESS),
        Some(Latencies::All) => (Some(MOST_NS), SLOWNESS_OF_SHORT_TURNS),
        // No wake-up is missed.
        Some(Latencies::Own) => (Some(interval_us * 1000), SLOWNESS_OF_OBSERVERS),
    };
    let most = most.map_or_else(String::new, |most| format!("MOST_NS={most}"));
    let script = format!("SOAK={} RESULT={REPORT} {most}\n{PRELUDE}\n{SCRIPT}", time.as_secs());
    let words = ["bash".to_owned(), "-c".to_owned(), script];
    match machine.run(&words, PATIENCE + time * slowness) {
        Ok(text) => println!("{text}"),
        Err(error) => {
            println!("{error:#}");
            return Ok(1);
        }
    }
    drop(step);
    if latencies != Some(Latencies::Own) {
        return Ok(0);
    }
    let report = machine.run(&["cat".to_owned(), REPORT.to_owned()], PATIENCE)?;
    let own = machine.own(&cyclictest::threads(&report)?, interval_us)?;
    println!("of them the CPUs' own, ns: thread, samples, least, median, 99.9 %, most");
    let mut most = 0;
    for (thread, own) in own.iter().enumerate() {
        let Some(s) = own.summary() else { continue };
        println!("{thread}\t{}\t{}\t{}\t{}\t{}", s.count, s.min, s.median, s.p999, s.max);
        most = most.max(s.max);
    }
    if most > MOST_NS {
        println!("FAILED of a latency {most} ns were the CPU's own, {MOST_NS} may be");
    }
    Ok(u8::from(most > MOST_NS))
}

/// From one wake-up of a thread to the next, in microseconds, as the script has it.
fn interval_us() -> Result<u64> {
    let value = SCRIPT.lines().find_map(|line| line.strip_prefix(INTERVAL));
    value
        .and_then(|value| value.parse().ok())
        .with_context(|| format!("no `{INTERVAL}` in the soak"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_script_tells_its_interval() {
        assert!(super::interval_us().unwrap() > 0);
    }
}
