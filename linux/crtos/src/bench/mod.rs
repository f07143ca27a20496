// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos bench`: measures the same programs under the running Linux and in the realm.
//!
//! | module | concept |
//! |---|---|
//! | [`cell`] | one program on one system under one load |
//! | [`exits`] | VM exits while a program runs |
//! | [`load`] | what keeps Linux busy while a program runs |
//! | [`up_down`] | how long `crtos up` and `crtos down` take |
//! | [`here`] | what this machine and its systems are |

mod cell;
mod exits;
mod here;
mod load;
mod up_down;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crtos_results::catalogue::{FIGURES, LOADS};
use crtos_results::model::{FORMAT, Method};
use crtos_results::order::{self, Choice, FULL, QUICK, Size, named};
use crtos_results::{Order, Results, Store, goals, page, table};

use crate::code::Code;
use crate::failure::{Asked, Failure, Result, STATUS_USAGE};

/// What the command does, for the messages of failures.
const ASKED: &str = "measure";
/// SCHED_FIFO priority of this command while it measures, so that no load delays it.
const PRIORITY: &str = "2";

/// Measure latencies, system calls, threads and processes, under Linux and in the realm
///
/// Runs the same executables on the running Linux and, if it is up, in the real-time realm:
/// cyclictest (Debian's package rt-tests), and programs that come with crtos. Latencies are
/// measured under each load; loads are hackbench and stress-ng (Debian's packages rt-tests and
/// stress-ng), which run in Linux.
///
/// The command stores what it has measured. A run that was interrupted continues where it was.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos bench                                   a few minutes
  crtos bench --full --html report.html         about a night
  crtos bench --figures cyclictest --loads none,hackbench --samples 10000
  crtos bench --list                            names of figures and loads

With --json: all results with raw histograms, in nanoseconds.

Exit status: 0 measured; 1 failed, or a cell could not be measured; 2 usage.")]
pub struct Bench {
    /// Systems to measure: linux, realm [default: both, if the realm is up]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    systems: Vec<here::Which>,
    /// Loads to measure under [default: all with --full, else none and hackbench]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    loads: Vec<String>,
    /// Figures to measure [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    figures: Vec<String>,
    /// Take 100,000 samples a millisecond apart, under every load
    #[arg(long)]
    full: bool,
    /// Number of samples of each latency
    #[arg(long, value_name = "NUMBER")]
    samples: Option<u64>,
    /// Microseconds between them
    #[arg(long, value_name = "NUMBER")]
    interval: Option<u64>,
    /// CPU of Linux on which programs are measured [default: an isolated one, else the last]
    #[arg(long, value_name = "CPU")]
    cpu: Option<u32>,
    /// Directory in which measurements are stored
    #[arg(long, value_name = "FOLDER", default_value = "crtos-bench")]
    output: PathBuf,
    /// Discard what was measured before
    #[arg(long)]
    fresh: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Write the results to a page (HTML) with figures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the names of figures and loads
    #[arg(long)]
    list: bool,
    /// Carry out an order (JSON) and print its result (JSON)
    #[arg(long, hide = true, value_name = "ORDER")]
    cell: Option<String>,
}

impl Bench {
    /// Runs the command. Returns its exit status.
    pub fn run(self) -> Result<u8> {
        if self.list {
            anstream::println!("{}", list());
            return Ok(0);
        }
        raise_priority()?;
        if let Some(order) = &self.cell {
            let order: Order = serde_json::from_str(order).map_err(|error| {
                Failure::new(Code::Usage, "read the order", error).status(STATUS_USAGE)
            })?;
            let cell = serde_json::to_string(&cell::measure(&order))
                .map_err(|error| Failure::new(Code::Internal, "print JSON", error))?;
            anstream::println!("{cell}");
            return Ok(0);
        }
        let results = self.measure()?;
        if let Some(file) = &self.html {
            let about = format!("write {}", file.display());
            fs::write(file, page::page(&results)).asked(about)?;
        }
        if self.json {
            let text = results
                .to_json()
                .map_err(|error| Failure::new(Code::Internal, "print JSON", error))?;
            anstream::print!("{text}");
        } else {
            anstream::println!("{}", table::results(&results));
            // Who measures a few figures did not ask for the goals of the others.
            let goals = goals::measured(&results);
            if !goals.is_empty() {
                anstream::println!("\n{}", table::goals(&goals));
            }
        }
        Ok(u8::from(results.cells.iter().any(|cell| cell.outcome.is_err())))
    }

    fn choice(&self) -> Result<Choice> {
        let usage = |why: String| Failure::new(Code::Usage, ASKED, why).status(STATUS_USAGE);
        let quick_loads = || vec!["none".to_owned(), "hackbench".to_owned()];
        let loads = match self.loads.is_empty() && !self.full {
            true => quick_loads(),
            false => self.loads.clone(),
        };
        let set = if self.full { FULL } else { QUICK };
        let size = Size {
            samples: self.samples.unwrap_or(set.samples),
            interval_us: self.interval.unwrap_or(set.interval_us),
            ..set
        };
        Ok(Choice {
            figures: named("figure", FIGURES, |figure| figure.name, &self.figures)
                .map_err(usage)?,
            loads: named("load", LOADS, |load| load.name, &loads).map_err(usage)?,
            size,
            virtual_time: false,
        })
    }

    /// Carries out all orders but those that were carried out already.
    fn measure(&self) -> Result<Results> {
        let choice = self.choice()?;
        let about = format!("keep measurements in {}", self.output.display());
        let store = Store::open(&self.output, self.fresh).asked(about.as_str())?;
        let mut orders = Vec::new();
        for place in here::places(&self.systems, self.cpu)? {
            orders.extend(choice.orders(&place.system, place.cpu, place.other_cpu));
        }
        let fingerprint = here::fingerprint();
        let mut cells = Vec::new();
        for (number, order) in orders.iter().enumerate() {
            let cell = match store.get(order, &fingerprint) {
                Some(cell) => cell,
                None => {
                    let cell = cell::measure(order);
                    store.put(order, &fingerprint, &cell).asked(about.as_str())?;
                    cell
                }
            };
            anstream::eprintln!("[{}/{}] {}", number + 1, orders.len(), table::outcome(&cell));
            cells.push(cell);
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Ok(Results {
            format: FORMAT,
            time,
            machine: here::machine(),
            method: Method {
                virtual_time: false,
                samples: choice.size.samples,
                interval_us: choice.size.interval_us,
                remarks: vec![
                    "Time is that of the machine's time stamp counter. Linux does not throttle real-time threads meanwhile."
                        .into(),
                ],
            },
            cells,
        })
    }
}

/// Lets this process run while a load keeps every CPU busy.
fn raise_priority() -> Result<()> {
    let mut command = Command::new("chrt");
    command.args(["-f", "-p", PRIORITY, &std::process::id().to_string()]);
    let done = command.status().asked("run chrt (package util-linux)")?;
    match done.success() {
        true => Ok(()),
        false => Err(Failure::new(
            Code::NotPermitted,
            ASKED,
            "no permission to use real-time priorities",
        )
        .remedy("run it as root")),
    }
}

fn list() -> String {
    let figures =
        FIGURES.iter().map(|figure| vec![figure.name.to_owned(), figure.title.to_owned()]);
    let loads = LOADS.iter().map(|load| vec![load.name.to_owned(), load.describe()]);
    [
        crate::text::table(&["FIGURE", "WHAT"], &[], figures.collect()),
        crate::text::table(&["LOAD", "COMMAND"], &[], loads.collect()),
    ]
    .join("\n\n")
}

/// Checks the sizes that the help names.
const _: () = assert!(order::FULL.samples == 100_000 && order::FULL.interval_us == 1000);
