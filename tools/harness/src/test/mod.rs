// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x test`: the tests of the host, and those that need the guest.

mod guest;
mod header;
mod host;
mod report;

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};

use crate::kernels::{self, Asked, Flavour};
use crate::vm::interrupted;
use crate::{parts, programs, setup, vm_command};
pub use guest::PRELUDE;
use report::Report;

/// Which tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Set {
    /// What `cargo test` runs.
    Host,
    /// What boots a guest.
    Guest,
    /// All of the host's, and [`QUICK`] in one guest.
    Quick,
}

/// The tests of guests in the quick set. They share one guest and pass through every part: the
/// module and the hypervisor to begin with, then the kernel, the shadow and the command line.
const QUICK: &[&str] = &[
    "guest/cli-run",
    "abi/epoll",
    "abi/files",
    "abi/fork",
    "abi/futex",
    "abi/memory",
    "abi/pi",
    "abi/pipes",
    "abi/posix-timers",
    "abi/processes",
    "abi/shared-memory",
    "abi/signals",
    "abi/threads",
];
/// The kernel of that guest, unless others are named.
const QUICK_KERNEL: Flavour = Flavour::V6_1;

/// Options of `./x test`.
#[derive(Args)]
pub struct Options {
    /// `host`, `guest`, `quick` (those of the host and a few in one guest), or a filter for tests
    /// of both.
    #[arg(value_name = "SET")]
    first: Option<String>,
    /// The name of the test to run, or a part of the names of several.
    filter: Option<String>,
    /// Also what takes long.
    #[arg(long)]
    full: bool,
    /// Only on these kernels: names as of `./x vm --kernel`, with commas between them, or `all`.
    /// What is for 6.12 runs on `newest` and `6.12-cloud` as well, what is for 6.1 on `6.1-cloud`.
    #[arg(long)]
    kernels: Option<Asked>,
    /// How many guests at once. No test judges times of the host's clock, so they may be as many as
    /// there are processors.
    #[arg(long, default_value_t = default_jobs())]
    jobs: usize,
    /// Take the staging tree as it is instead of building first.
    #[arg(long)]
    no_build: bool,
}

/// The most guests at once without being asked: each has gigabytes of memory.
const MOST_JOBS: usize = 4;

fn default_jobs() -> usize {
    thread::available_parallelism().map_or(1, |processors| processors.get().min(MOST_JOBS))
}

/// Which of the tests were asked for.
pub struct Selection {
    set: Option<Set>,
    filter: String,
    /// The filter is the name of one test.
    is_name: bool,
    full: bool,
    kernels: Vec<Flavour>,
}

impl Selection {
    fn new(options: &Options) -> Self {
        let first = options.first.clone().unwrap_or_default();
        let set = Set::from_str(&first, false).ok();
        let rest = if set.is_some() { String::new() } else { first };
        let filter = options.filter.clone().unwrap_or(rest);
        Self {
            set,
            is_name: programs::is_test(&filter),
            filter,
            full: options.full,
            kernels: options.kernels.clone().unwrap_or_default().0,
        }
    }

    /// Whether a test of guests with that name is wanted.
    fn wants(&self, name: &str) -> bool {
        let is_named = if self.is_name { name == self.filter } else { name.contains(&self.filter) };
        is_named && (self.set != Some(Set::Quick) || QUICK.contains(&name))
    }

    /// Whether runs on that kernel are wanted.
    fn wants_kernel(&self, kernel: Flavour) -> bool {
        match self.kernels.is_empty() {
            true => self.set != Some(Set::Quick) || kernel == QUICK_KERNEL,
            false => self.kernels.contains(&kernel),
        }
    }
}

/// Runs tests and returns 0 if none failed, else 1.
pub fn test(options: &Options) -> Result<u8> {
    vm_command::watch_signals()?;
    let selection = Selection::new(options);
    let report = Report::default();
    setup::ensure()?;
    thread::scope(|scope| {
        // A build often waits for one linker, and does not keep two processors busy.
        let host = (selection.set != Some(Set::Guest))
            .then(|| scope.spawn(|| host::run(&selection, &report)));
        let guests = match selection.set {
            Some(Set::Host) => Ok(()),
            _ => in_guests(&selection, options, &report),
        };
        let host = host.map_or(Ok(Ok(())), |host| host.join());
        host.map_err(|_| anyhow!("a thread failed"))?.and(guests)
    })?;
    Ok(report.finish())
}

/// Runs the tests of guests.
fn in_guests(selection: &Selection, options: &Options, report: &Report) -> Result<()> {
    let plan = guest::plan(selection)?;
    if plan.is_empty() {
        return Ok(());
    }
    if !options.no_build {
        for flavour in &selection.kernels {
            kernels::ensure(*flavour)?;
        }
        let start = Instant::now();
        parts::build(&[])?;
        report.note("build", start.elapsed());
    }
    if interrupted().load(Ordering::Relaxed) {
        return Ok(());
    }
    guest::run(plan, options.jobs, report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(set: Option<Set>, filter: &str, kernels: &[Flavour]) -> Selection {
        let (filter, is_name) = (filter.to_owned(), programs::is_test(filter));
        Selection { set, filter, is_name, full: false, kernels: kernels.to_vec() }
    }

    #[test]
    fn the_quick_set_is_one_guest_with_tests_that_exist() {
        let plan = guest::plan(&selection(Some(Set::Quick), "", &[])).unwrap();
        let [guest::Batch::Guest(kernel, cases)] = plan.as_slice() else { panic!("{plan:?}") };
        assert_eq!((*kernel, cases.len()), (QUICK_KERNEL, QUICK.len()));
    }

    #[test]
    fn the_quick_set_can_be_narrowed() {
        let quick = selection(Some(Set::Quick), "fu", &[Flavour::V6_12]);
        assert!(quick.wants("abi/futex") && !quick.wants("abi/fork") && !quick.wants("abi/fuzz"));
        assert!(quick.wants_kernel(Flavour::V6_12) && !quick.wants_kernel(Flavour::V6_1));
        assert!(selection(None, "fu", &[]).wants("abi/fuzz"));
    }

    #[test]
    fn a_name_is_that_of_one_test() {
        let (one, several) = (selection(None, "attack/dma", &[]), selection(None, "ck/dma", &[]));
        assert!(one.wants("attack/dma") && !one.wants("attack/dma-amd"));
        assert!(several.wants("attack/dma") && several.wants("attack/dma-amd"));
    }
}
