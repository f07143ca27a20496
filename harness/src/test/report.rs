// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came out, told as it happens and summed up at the end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::vm::interrupted;

/// The end of one test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Passed,
    /// Not as it should be: all there is to know.
    Failed(String),
    /// It says that it cannot run here.
    Skipped,
}

#[derive(Default)]
struct Tally {
    passed: usize,
    skipped: usize,
    /// Name and command line to run it again.
    failed: Vec<(String, String)>,
}

/// Collects verdicts from several threads.
#[derive(Default)]
pub struct Report {
    tally: Mutex<Tally>,
}

impl Report {
    /// Tells and counts one test; `again` is how to repeat it.
    pub fn add(&self, name: &str, verdict: Verdict, time: Duration, again: &str) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = time.as_secs_f64();
        match verdict {
            Verdict::Passed => {
                tally.passed += 1;
                println!("ok       {name} ({seconds:.1} s)");
            }
            Verdict::Skipped => {
                tally.skipped += 1;
                println!("skipped  {name} ({seconds:.1} s)");
            }
            Verdict::Failed(why) => {
                tally.failed.push((name.to_owned(), again.to_owned()));
                println!("FAILED   {name} ({seconds:.1} s)");
                // What the test says to be good would hide what is not.
                let (good, rest): (Vec<&str>, Vec<&str>) =
                    why.trim_end().lines().partition(|line| line.starts_with("ok "));
                for line in rest {
                    println!("    {line}");
                }
                if !good.is_empty() {
                    println!("    ({} lines with ok are left out)", good.len());
                }
            }
        }
    }

    /// Tells what failed and the sum, and returns the exit status.
    pub fn finish(&self) -> u8 {
        let tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        if !tally.failed.is_empty() {
            println!("\nfailed:");
            for (name, again) in &tally.failed {
                println!("    {name}: {again}");
            }
        }
        let stopped = interrupted().load(std::sync::atomic::Ordering::Relaxed);
        if stopped {
            println!("\ninterrupted");
        }
        let mut sum = format!("{} passed, {} failed", tally.passed, tally.failed.len());
        if tally.skipped > 0 {
            sum += &format!(", {} skipped", tally.skipped);
        }
        println!("{sum}");
        u8::from(stopped || !tally.failed.is_empty())
    }
}
