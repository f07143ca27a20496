// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came out, told as it happens and summed up at the end.

use std::cmp::Reverse;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::vm::interrupted;

/// How many of the slowest are told at the end.
const SLOWEST: usize = 10;
/// What is faster is not told: the sum is not worth more lines than the tests.
const NOT_SLOW: Duration = Duration::from_secs(1);

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
    /// What took how long: tests, and what they need.
    times: Vec<(String, Duration)>,
    /// How many guests were booted, and how long that took.
    boots: (usize, Duration),
}

/// Collects verdicts from several threads.
#[derive(Default)]
pub struct Report {
    tally: Mutex<Tally>,
}

impl Report {
    /// Tells and counts one test; `again` is how to repeat it.
    pub fn add(&self, name: &str, verdict: Verdict, time: Duration, again: &str) {
        let mut tally = self.tally();
        tally.times.push((name.to_owned(), time));
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

    /// Prints lines of failed tests, and nothing of others between them.
    pub fn tell(&self, lines: &[String]) {
        let _tally = self.tally();
        lines.iter().for_each(|line| println!("    {line}"));
    }

    /// Notes how long something took that tests need, such as a build.
    pub fn note(&self, name: &str, time: Duration) {
        self.tally().times.push((name.to_owned(), time));
    }

    /// Notes how long a guest took to boot.
    pub fn note_boot(&self, time: Duration) {
        let boots = &mut self.tally().boots;
        *boots = (boots.0 + 1, boots.1 + time);
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells what failed, what was slow, and the sum, which is the last line. Returns the exit
    /// status.
    pub fn finish(&self) -> u8 {
        let tally = self.tally();
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
        for line in tally.slowest() {
            println!("{line}");
        }
        let mut sum = format!("{} passed, {} failed", tally.passed, tally.failed.len());
        if tally.skipped > 0 {
            sum += &format!(", {} skipped", tally.skipped);
        }
        println!("{sum}");
        u8::from(stopped || !tally.failed.is_empty())
    }
}

impl Tally {
    /// The lines about what took longest; none if nothing was slow, or one test alone ran.
    fn slowest(&self) -> Vec<String> {
        let (boots, booting) = self.boots;
        let mut times = self.times.clone();
        let is_one = self.passed + self.skipped + self.failed.len() < 2;
        times.push((format!("booting {boots} guests"), booting));
        let whole: Duration = times.iter().map(|(_, time)| *time).sum();
        times.retain(|(_, time)| *time >= NOT_SLOW);
        if is_one || times.is_empty() {
            return Vec::new();
        }
        times.sort_by_key(|(_, time)| Reverse(*time));
        let head = format!("\nslowest, of {:.0} s that all took one by one:", whole.as_secs_f64());
        let line = |(name, time): &(String, Duration)| {
            let (seconds, percent) = (time.as_secs_f64(), 100.0 * time.div_duration_f64(whole));
            format!("{seconds:8.1} s {percent:5.1} %  {name}")
        };
        [head].into_iter().chain(times.iter().take(SLOWEST).map(line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_come_first_with_their_share() {
        let seconds = |name: &str, seconds| (name.to_owned(), Duration::from_secs_f64(seconds));
        let mut times = vec![seconds("quick", 0.5), seconds("slow", 5.0)];
        times.extend((0..SLOWEST).map(|number| seconds(&format!("test {number}"), 2.0)));
        let boots = (2, Duration::from_millis(4500));
        let mut tally = Tally { passed: times.len(), times, boots, ..Tally::default() };
        let lines = tally.slowest();
        assert_eq!(lines[0], "\nslowest, of 30 s that all took one by one:");
        assert_eq!(lines[1], "     5.0 s  16.7 %  slow");
        assert_eq!(lines[2], "     4.5 s  15.0 %  booting 2 guests");
        assert_eq!(lines[3], "     2.0 s   6.7 %  test 0");
        assert_eq!(lines.len(), 1 + SLOWEST);
        tally.passed = 1;
        assert!(tally.slowest().is_empty());
    }
}
