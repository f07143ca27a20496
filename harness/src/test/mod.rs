// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x test`: the tests of the host, and those that need the guest.

mod guest;
mod header;
mod host;
mod report;

use std::sync::atomic::Ordering;
use std::thread;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::kernels::Flavour;
use crate::vm::interrupted;
use crate::{parts, setup, vm_command};
use report::Report;

/// Which tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Set {
    /// What `cargo test` runs.
    Host,
    /// What boots a guest.
    Guest,
}

/// Options of `./x test`.
#[derive(Args)]
pub struct Options {
    /// `host`, `guest`, or a part of the names of tests of both.
    #[arg(value_name = "SET")]
    first: Option<String>,
    /// A part of the names of the tests to run.
    filter: Option<String>,
    /// Also what takes long.
    #[arg(long)]
    full: bool,
    /// Only on these kernels.
    #[arg(long, value_delimiter = ',')]
    kernels: Vec<Flavour>,
    /// How many guests at once. No test judges times of the host's clock, so they may be as many as there are processors.
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
    full: bool,
    kernels: Vec<Flavour>,
}

impl Selection {
    fn new(options: &Options) -> Self {
        let first = options.first.clone().unwrap_or_default();
        let set = Set::from_str(&first, false).ok();
        let rest = if set.is_some() { String::new() } else { first };
        Self {
            set,
            filter: options.filter.clone().unwrap_or(rest),
            full: options.full,
            kernels: options.kernels.clone(),
        }
    }

    /// Whether a test of that name is wanted.
    fn wants(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }

    /// Whether runs on that kernel are wanted.
    fn wants_kernel(&self, kernel: Flavour) -> bool {
        self.kernels.is_empty() || self.kernels.contains(&kernel)
    }
}

/// Runs tests and returns 0 if none failed, else 1.
pub fn test(options: &Options) -> Result<u8> {
    vm_command::watch_signals()?;
    let selection = Selection::new(options);
    let report = Report::default();
    setup::ensure()?;
    if selection.set != Some(Set::Guest) {
        host::run(&selection, &report)?;
    }
    if selection.set != Some(Set::Host) && !interrupted().load(Ordering::Relaxed) {
        let plan = guest::plan(&selection)?;
        if !plan.is_empty() {
            if !options.no_build {
                parts::build(&[], false)?;
            }
            guest::run(plan, options.jobs, &report)?;
        }
    }
    Ok(report.finish())
}
