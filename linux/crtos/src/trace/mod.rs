// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos trace`: what happened in the real-time realm, on Linux's clock.
//!
//! | file | concept |
//! |---|---|
//! | `mod.rs` | the command: for how long, and where the result goes |
//! | [`collect`] | the rings in the channel, read while they are written |
//! | [`order`] | events in the order of time |
//! | [`jobs`] | jobs of real-time threads, made of events |
//! | [`late`] | wake-ups, and which was the latest |
//! | [`timeline`] | slices and instants of threads and CPUs, made of events |
//! | [`json`] | slices and instants in the trace event format |

pub mod collect;
pub mod jobs;
pub mod json;
pub mod late;
pub mod order;
pub mod timeline;

use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
    process::{Child, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{
    device::{self, Device},
    failure::{Failure, Result, STATUS_FAILED},
    machine::Machine,
    requirements,
};
use collect::Collector;
use crtos_abi::channel::TRACE_WANT_EVENTS;
use jobs::Span;
use json::micros;
use late::Lateness;

/// What the command does, for the messages of failures.
const ASKED: &str = "trace the real-time realm";

/// How often the rings are read. They have room for more than happens in that time, if the realm
/// has few CPUs.
pub const PERIOD: Duration = Duration::from_millis(2);

/// What is kept of the time before a thread that is late, nanoseconds.
pub const BEFORE: u64 = 100_000_000;
/// What is recorded after it, nanoseconds.
pub const AFTER: u64 = 5_000_000;

/// Record what happens in the real-time realm
///
/// Records switches of threads, wake-ups, interrupts, system calls, requests to Linux, page faults
/// and doorbells, until COMMAND ends, the time is over, or Ctrl-C is pressed. COMMAND runs in
/// Linux; use `crtos run` in it to start a program in the realm.
///
/// The file is in the trace event format (JSON), which Perfetto (ui.perfetto.dev) and Trace Compass
/// (with its Trace Event Format add-on) open. Its times are those of CLOCK_MONOTONIC, as in a trace
/// of Linux that was recorded with the clock `mono`. Events that were overwritten before they could
/// be read are counted.
///
/// With --when-later-than it records until a real-time thread of a program runs later than that
/// after it was made ready, keeps what happened in the tenth of a second before and some
/// milliseconds after, and ends. It writes no file if there was no such thread. The time from the
/// event that a thread waits for to the moment in which the thread is made ready is not in it.
///
/// While it records, system calls of the realm take the full path; apart from that, tracing costs
/// next to nothing. The command needs root.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos trace --duration 1
  crtos trace --output wakeup.json -- crtos run -- cyclictest -m -p 80 -i 1000 -l 100

  crtos trace --when-later-than 20us --duration 3600

Exit status: 0 done; 1 failed, or no thread was later than the limit; 2 usage; that of COMMAND if
there is one.")]
pub struct Trace {
    /// File for the trace; `-` for standard output
    #[arg(short, long, default_value = "trace.json", value_name = "FILE")]
    output: PathBuf,
    /// How long to record, in seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Record around the first wake-up of a real-time thread that is later than this, such as 20us
    /// or 1ms
    #[arg(long, value_name = "TIME", value_parser = limit)]
    when_later_than: Option<Duration>,
    /// Command to run meanwhile
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Reads a time in seconds.
pub fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Reads a time with its unit.
pub fn limit(text: &str) -> std::result::Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; write one like 20us or 1ms");
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let scale = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(scale).map(Duration::from_nanos).ok_or_else(wrong)
}

/// Keeps signals from ending this process. What is returned becomes true when one comes.
pub fn noted(signals: &[i32], asked: &str) -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for &signal in signals {
        signal_hook::flag::register(signal, flag.clone())
            .map_err(|error| Failure::io(asked, &error))?;
    }
    Ok(flag)
}

impl Trace {
    /// Runs the command. Returns its exit status.
    pub fn run(self) -> Result<u8> {
        let device = Device::require(ASKED)?;
        requirements::root(
            &Machine::here(),
            ASKED,
            "only root may: it shows what all programs there do",
        )?;
        let realm = device.realm(ASKED)?;
        let cpus: Vec<u32> = device.report(ASKED)?.cpus_of(realm).iter().collect();
        // Around a wake-up that may never come, there is nothing to write yet.
        let mut output = match self.when_later_than {
            None => Some(self.open()?),
            Some(_) => None,
        };
        let stop = noted(&[SIGINT, SIGTERM], ASKED)?;

        let refused = |refusal: device::Refusal| refusal.asked(ASKED);
        let mut collector =
            Collector::begin(&device, realm, cpus.len(), TRACE_WANT_EVENTS).map_err(refused)?;
        let mut child = self.start()?;
        let end = self.duration.map(|duration| Instant::now() + duration);
        let mut status = 0;
        let mut watch = Watch::new(self.when_later_than);
        loop {
            collector.read().map_err(refused)?;
            if watch.is_over(&mut collector) {
                break;
            }
            if let Some(command) = &mut child
                && let Some(ended) =
                    command.try_wait().map_err(|error| Failure::io(ASKED, &error))?
            {
                status = exit_status(ended);
                child = None;
                if self.duration.is_none() {
                    break;
                }
            }
            if stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
            sleep(PERIOD);
        }
        collector.end().map_err(refused)?;
        collector.read().map_err(refused)?;
        // Threads of a command that ends have no names afterwards.
        collector.read_names().map_err(refused)?;
        if let Some(mut command) = child {
            // Interrupted, or the time is over: the command goes on, and is waited for.
            status = command.wait().map_or(1, exit_status);
        }

        // What came last is complete, too.
        for _ in 0..2 {
            watch.is_over(&mut collector);
        }
        let record = collector.finish();
        let mut timeline = timeline::build(&record, &cpus);
        if let Some(limit) = self.when_later_than {
            let name = |one: &Span| {
                let command =
                    record.name(one.thread).map_or("thread", |name| name.command.as_str());
                format!("{command} ({})", one.thread)
            };
            let Some(one) = watch.found else {
                let latest = watch.lateness.worst().map_or(String::new(), |one| {
                    format!(": the latest was {}, {} µs", name(&one), micros(one.length()))
                });
                anstream::eprintln!("crtos: no thread was later than {limit:?}{latest}");
                return Ok(if self.command.is_empty() { STATUS_FAILED } else { status });
            };
            let (name, latency) = (name(&one), micros(one.length()));
            anstream::eprintln!("crtos: {name} ran {latency} µs after it was ready");
            late::mark(&mut timeline, &record, &one);
            output = Some(self.open()?);
        }
        let Some(mut output) = output else { return Ok(status) };
        json::write(&mut output, &record, &timeline)
            .and_then(|()| output.flush())
            .map_err(|error| self.cannot_write(&error))?;
        let lost = match record.lost {
            0 => String::new(),
            lost => format!(", {lost} lost"),
        };
        anstream::eprintln!(
            "crtos: {} events{lost}: {}",
            record.events.len(),
            self.output.display()
        );
        Ok(status)
    }

    fn open(&self) -> Result<Box<dyn Write>> {
        if self.output.as_os_str() == "-" {
            return Ok(Box::new(io::stdout().lock()));
        }
        let file = File::create(&self.output).map_err(|error| self.cannot_write(&error))?;
        Ok(Box::new(BufWriter::new(file)))
    }

    fn cannot_write(&self, error: &io::Error) -> Failure {
        Failure::io(format!("write {}", self.output.display()), error)
    }

    fn start(&self) -> Result<Option<Child>> {
        let Some((program, arguments)) = self.command.split_first() else { return Ok(None) };
        Command::new(program)
            .args(arguments)
            .spawn()
            .map(Some)
            .map_err(|error| Failure::io(format!("run {}", program.display()), &error))
    }
}

/// Looks for the wake-up of `--when-later-than`.
struct Watch {
    limit: Option<Duration>,
    lateness: Lateness,
    /// How many events the collector has that were looked at.
    seen: usize,
    /// The last time of an event.
    last: u64,
    found: Option<Span>,
}

impl Watch {
    fn new(limit: Option<Duration>) -> Self {
        Self { limit, lateness: Lateness::default(), seen: 0, last: 0, found: None }
    }

    /// Looks at what was read. Tells whether everything around the wake-up is there.
    fn is_over(&mut self, collector: &mut Collector<'_>) -> bool {
        let Some(limit) = self.limit else { return false };
        let round = collector.events(self.seen);
        self.last = round.iter().map(|event| event.time).fold(self.last, u64::max);
        let latest = self.lateness.add(round);
        let is_late = |one: &Span| u128::from(one.length()) > limit.as_nanos();
        self.found = self.found.or(latest.filter(is_late));
        let around = self.found.map_or(self.last, |one| one.ready);
        self.seen = collector.forget_before(around.saturating_sub(BEFORE));
        self.found.is_some_and(|one| self.last >= one.end + AFTER)
    }
}

/// Returns an exit status as a shell does.
pub fn exit_status(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let signal = || status.signal().map_or(1, |signal| 128 + signal);
    status.code().unwrap_or_else(signal) as u8
}
