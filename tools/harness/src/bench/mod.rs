// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x bench`: the systems side by side, in emulation, in virtual time.
//!
//! Each system is booted once, in the same machine with the same settings, and `crtos bench` in the
//! guest measures one cell at a time: a program on a system under a load. Cells are kept in
//! `target/bench`, so a run that was interrupted goes on where it was.
//!
//! | module | concept |
//! |---|---|
//! | [`system`] | the systems that are compared |
//! | [`machine`] | a machine in virtual time, set up for measuring |
//! | [`mod@gate`] | path lengths against those in the tree |
//! | [`mod@neighbours`] | how long a thread that changes memory holds another one |
//! | [`soak`] | everything at once for long |
//! | [`sections`] | the longest sections with interrupts off |
//! | [`calls`] | what calls and wake-ups spend their instructions on |
//! | [`observer`] | plugins of QEMU |
//! | [`turns`] | the turns of virtual CPUs |
//! | [`own`] | what is the measured CPU's own of a wake-up |
//! | [`publish`] | tables, JSON, the page |

mod calls;
mod gate;
mod listing;
mod machine;
mod neighbours;
mod observer;
mod own;
mod publish;
mod sections;
mod soak;
mod system;
pub mod turns;

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use crtos_results::catalogue::{FIGURES, LOADS, NO_LOAD};
use crtos_results::model::{FORMAT, Machine, Method};
use crtos_results::order::{Choice, FULL, QUICK, Size, named};
use crtos_results::{Cell, Order, Results, Store, table};

use crate::vm::interrupted;
use crate::{kernels, parts, paths, progress, run, setup, vm_command};
use machine::Measuring;
use soak::Latencies;
use system::{CPU, CPUS, ISOLATION, LOAD_CPU, OTHER_CPU, SHADOW_ISOLATION, Target};
use turns::SHORT;

pub use gate::gate;

/// Everything in a night: a second of virtual time takes up to ten, so samples are not as far apart
/// as on a real machine.
const NIGHT: Size = Size { interval_us: 100, ..FULL };

/// Options of `./x bench`.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    /// The full set: every system, every load, 100,000 samples of each latency. A night.
    /// Without it: three systems, two loads, 2,000 samples; some minutes.
    #[arg(long)]
    full: bool,
    /// Only these systems, such as 6.1, 6.12-rt-isolated, realm-6.1.
    #[arg(long, value_delimiter = ',')]
    systems: Vec<Target>,
    /// Only these loads, such as none, hackbench; `crtos bench --list` names them.
    #[arg(long, value_delimiter = ',')]
    loads: Vec<String>,
    /// Only these figures, such as cyclictest, getpid.
    #[arg(long, value_delimiter = ',')]
    figures: Vec<String>,
    /// Samples of each latency.
    #[arg(long)]
    samples: Option<u64>,
    /// Microseconds between them.
    #[arg(long)]
    interval: Option<u64>,
    /// Also tell which part of cyclictest's latencies is that of the CPU that is measured, without
    /// what other CPUs executed meanwhile. Takes several times as long.
    #[arg(long)]
    own: bool,
    /// Begin anew instead of going on where the last run was.
    #[arg(long)]
    fresh: bool,
    /// Write the results as JSON there as well [default: only target/bench/results.json].
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the page there as well [default: only target/bench/results.html].
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Measure nothing: tables and page of results that were written before
    /// [without FILE: target/bench/results.json].
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    from: Option<Option<PathBuf>>,
    /// Also write the statistics of a run that was not interrupted to docs/results.md.
    #[arg(long)]
    publish: bool,
    /// Take the staging tree as it is instead of building first.
    #[arg(long, global = true, env = vm_command::NO_BUILD,
        value_parser = clap::builder::FalseyValueParser::new())]
    no_build: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Compare the lengths of the realm's paths with those in tools/bench/expected.json.
    Gate {
        /// Write what was measured to tools/bench/expected.json.
        #[arg(long)]
        update: bool,
    },
    /// Count the instructions of the longest sections with interrupts off, over the programs of
    /// tests/abi and some of rt-tests.
    Sections {
        /// Only programs whose command contains this.
        #[arg(long, default_value = "")]
        only: String,
        /// Only on so many CPUs, 1 or 2.
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2))]
        cpus: Option<u8>,
    },
    /// Tell by CPU and function what the instructions of a call or a wake-up are spent on, of the
    /// median and the longest ones.
    Calls {
        /// A system with a realm, such as realm-6.12.
        #[arg(long, default_value = "realm-6.1-isolated")]
        system: Target,
        /// A figure of system calls, such as file-write, or of a device, such as uart; cyclictest.
        #[arg(long, default_value = "file-read")]
        figure: String,
        /// What keeps Linux busy, with cyclictest.
        #[arg(long, default_value = NO_LOAD)]
        load: String,
        /// How many calls.
        #[arg(long, default_value_t = 10_000)]
        calls: u64,
        /// Print each instruction of the median as well.
        #[arg(long)]
        listing: bool,
    },
    /// pi_stress and cyclictest on two CPUs of the realm at once, with hackbench in the realm and
    /// stress-ng in Linux.
    Soak {
        /// How many seconds of virtual time.
        #[arg(long, default_value_t = 600)]
        seconds: u64,
        /// Judge the latencies as well: virtual CPUs take short turns then, which takes a minute
        /// for each second. With `own`, that part of them which is the own of the CPU that wakes
        /// up, without what other CPUs executed meanwhile; that takes several times as long again.
        #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "all")]
        latencies: Option<Latencies>,
        /// Beside this kernel.
        #[arg(long, default_value = "6.1")]
        kernel: kernels::Flavour,
    },
}

/// Does what the command line says; returns the exit status: 0 if everything that was asked for was
/// measured.
pub fn bench(options: &Options) -> Result<u8> {
    vm_command::watch_signals()?;
    if let Some(file) = &options.from {
        let file = file.clone().unwrap_or_else(|| paths::target().join("bench/results.json"));
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let results = Results::from_json(&text)?;
        if options.publish {
            publish::into_docs(&results)?;
        }
        return publish::show(&results, options);
    }
    setup::ensure()?;
    if !options.no_build {
        parts::build(&[])?;
    }
    match &options.action {
        Some(Action::Gate { update }) => return gate(*update),
        Some(Action::Sections { only, cpus }) => return sections::sections(only, *cpus),
        Some(Action::Calls { system, figure, load, calls: samples, listing }) => {
            return calls::calls(*system, figure, load, *samples, *listing);
        }
        Some(Action::Soak { seconds, latencies, kernel }) => {
            return soak::soak(Duration::from_secs(*seconds), *latencies, *kernel);
        }
        None => {}
    }
    let (targets, choice) = options.choose()?;
    if let Some(target) =
        targets.iter().find(|target| target.isolated && !target.realm && options.own)
    {
        bail!(
            "{target} has its timers on other CPUs: nothing can be said about its CPU's own part"
        );
    }
    let cells = if options.own { "bench/own" } else { "bench/cells" };
    let store = Store::open(&paths::target().join(cells), options.fresh)?;
    let plan: Vec<(Target, Vec<Order>)> = targets
        .into_iter()
        .map(|target| {
            let system = target.describe()?;
            let mut orders = choice.orders(&system, CPU, Some(OTHER_CPU));
            for order in &mut orders {
                order.load_cpus = (order.load != NO_LOAD).then(|| target.load_cpus());
                order.shadow_cpu = target.shadow_cpu();
                order.own = options.own;
            }
            Ok((target, orders))
        })
        .collect::<Result<_>>()?;
    let mut campaign = Campaign {
        store,
        total: plan.iter().map(|(_, orders)| orders.len()).sum(),
        done: 0,
        cells: Vec::new(),
        versions: None,
    };
    for (target, orders) in &plan {
        campaign.system(*target, orders)?;
    }
    let is_over = !interrupted().load(Ordering::Relaxed);
    let results = campaign.results(&choice)?;
    let status = publish::show(&results, options)?;
    if !is_over {
        let published = if options.publish { "; nothing was published" } else { "" };
        eprintln!("x bench: interrupted{published}; the same command goes on where this one was");
        return Ok(crate::FAILURE);
    }
    if options.publish {
        publish::into_docs(&results)?;
    }
    Ok(status)
}

impl Options {
    fn choose(&self) -> Result<(Vec<Target>, Choice)> {
        let set = if self.full { NIGHT } else { QUICK };
        let systems = match (self.systems.is_empty(), self.full) {
            (false, _) => self.systems.clone(),
            (true, true) => Target::all(),
            (true, false) => Target::few(),
        };
        let loads = match self.loads.is_empty() && !self.full {
            true => vec!["none".to_owned(), "hackbench".to_owned()],
            false => self.loads.clone(),
        };
        let choice = Choice {
            figures: named("figure", FIGURES, |f| f.name, &self.figures).map_err(|e| anyhow!(e))?,
            loads: named("load", LOADS, |l| l.name, &loads).map_err(|e| anyhow!(e))?,
            size: Size {
                samples: self.samples.unwrap_or(set.samples),
                interval_us: self.interval.unwrap_or(set.interval_us),
                ..set
            },
            virtual_time: true,
        };
        Ok((systems, choice))
    }
}

/// A run over all systems.
struct Campaign {
    store: Store,
    total: usize,
    done: usize,
    cells: Vec<Cell>,
    /// Versions of the programs in the guest, once there is one.
    versions: Option<Versions>,
}

/// Names with versions.
type Versions = std::collections::BTreeMap<String, String>;

impl Campaign {
    /// Measures what is missing of a system, in one boot unless a measurement breaks it.
    fn system(&mut self, target: Target, orders: &[Order]) -> Result<()> {
        let fingerprint = fingerprint(target)?;
        let mut machine = None;
        for order in orders {
            let kept = self.store.get(order, &fingerprint);
            if kept.is_none() && interrupted().load(Ordering::Relaxed) {
                continue;
            }
            self.done += 1;
            let cell = match kept {
                Some(cell) => cell,
                None => {
                    let cell = self.measure(&mut machine, target, order);
                    if interrupted().load(Ordering::Relaxed) {
                        continue;
                    }
                    self.store.put(order, &fingerprint, &cell)?;
                    eprintln!("[{}/{}] {}", self.done, self.total, table::outcome(&cell));
                    cell
                }
            };
            self.cells.push(cell);
        }
        Ok(())
    }

    /// Carries out one order; a machine that it broke is given up.
    fn measure(&mut self, machine: &mut Option<Measuring>, target: Target, order: &Order) -> Cell {
        let name = format!(
            "[{}/{}] {target}: {} under {}",
            self.done, self.total, order.figure, order.load
        );
        let _step = progress::step(name);
        let mut attempt = || -> Result<Cell> {
            let measuring = match machine.as_mut() {
                Some(measuring) => measuring,
                None if order.own => machine.insert(Measuring::boot_for_own(target)?),
                None => machine.insert(Measuring::boot(target)?),
            };
            if self.versions.is_none() {
                self.versions = Some(publish::versions(measuring));
            }
            measuring.measure(order)
        };
        attempt().unwrap_or_else(|error| {
            *machine = None;
            failed(order, &format!("{error:#}"))
        })
    }

    fn results(self, choice: &Choice) -> Result<Results> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let file = paths::target().join("bench/versions.json");
        let versions = match self.versions {
            Some(versions) => {
                fs::write(&file, serde_json::to_string(&versions)?)?;
                versions
            }
            // Nothing had to be measured: those of the run before.
            None => fs::read_to_string(&file)
                .ok()
                .and_then(|text| serde_json::from_str(&text).ok())
                .unwrap_or_default(),
        };
        Ok(Results {
            format: FORMAT,
            time,
            machine: Machine {
                processor: "EPYC".to_owned(),
                cpus: CPUS,
                memory_mib: 2048,
                emulator: Some(qemu_version()?),
                versions,
            },
            method: Method {
                virtual_time: true,
                samples: choice.size.samples,
                interval_us: choice.size.interval_us,
                remarks: remarks(),
            },
            cells: self.cells,
        })
    }
}

/// How it was measured, for readers of the results.
fn remarks() -> Vec<String> {
    vec![
        "Everything ran in QEMU's software emulation with `-icount shift=0,sleep=off`: time is the \
         number of executed instructions, one is one nanosecond, and waiting is skipped. CPUs take \
         turns, so time is the sum over all of them. Figures are lengths of paths; they say \
         nothing about caches, memory bandwidth, or parallel work."
            .to_owned(),
        format!(
            "The artefact: while other CPUs are busy, one that should react has to wait for its \
             turn, and time goes on while the others have theirs. For latencies, with and without \
             load, a turn ends after {SHORT} instructions, so that with one other busy CPU \
             everything takes twice its time. For the other figures a CPU keeps its turn until it \
             waits, and a path has its exact length. The setting is the same for every system."
        ),
        format!(
            "Every system has {CPUS} CPUs; programs are measured on CPU {CPU}; figures across CPUs \
             use CPU {OTHER_CPU} as well. Each busy CPU adds a turn to the artefact, so the load \
             runs on CPU {LOAD_CPU}, and on CPU {CPU} as well where that is neither isolated nor \
             in the realm. Isolated systems are booted with `{ISOLATION}`, the isolated ones with \
             a realm with `{SHADOW_ISOLATION}` (the CPU is the shadow's, and takes the realm's \
             doorbells)."
        ),
        "Real-time throttling is off under Linux (`sched_rt_runtime_us` is -1). Nothing is \
         subtracted from a sample: what reading the clock costs is a figure of its own."
            .to_owned(),
    ]
}

fn failed(order: &Order, why: &str) -> Cell {
    Cell {
        system: order.system.clone(),
        load: order.load.clone(),
        figure: order.figure.clone(),
        command: String::new(),
        outcome: Err(why.to_owned()),
        own: None,
        exits: None,
        cpu: order.cpu,
        seconds: 0.0,
    }
}

fn qemu_version() -> Result<String> {
    let text = run::output(std::process::Command::new("qemu-system-x86_64").arg("--version"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Tells what a measurement depends on: the programs, the guest, the kernel, and in the realm what
/// runs there.
fn fingerprint(target: Target) -> Result<String> {
    let stage = paths::stage();
    let mut files: Vec<PathBuf> = fs::read_dir(stage.join("usr/lib/crtos/bench"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let release = kernels::ensure(target.flavour)?.release;
    if target.realm {
        files.push(stage.join("usr/lib/crtos/kernel.elf"));
        files.push(stage.join("usr/lib/crtos/shadow"));
        files.push(stage.join("usr/lib/modules").join(&release).join("updates/crtos.ko"));
    }
    let mut hasher = DefaultHasher::new();
    (release, target.boot_parameters(), SHORT).hash(&mut hasher);
    for file in files {
        fs::read(&file).with_context(|| format!("read {}", file.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}
