// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos trace`: what happened in the real-time realm, on Linux's clock.
//!
//! | file | concept |
//! |---|---|
//! | `mod.rs` | the command: for how long, and where the result goes |
//! | [`collect`] | the rings in the channel, read while they are written |
//! | [`timeline`] | slices and instants of threads and CPUs, made of events |
//! | [`json`] | slices and instants in the trace event format |

mod collect;
mod json;
mod timeline;

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

use crate::{
    device::{self, Device},
    failure::{Failure, Result, plain},
};
use collect::Collector;

/// What the command does, for the messages of failures.
const ASKED: &str = "trace the real-time realm";

/// How often the rings are read. They have room for more than happens in that time, if the realm
/// has few CPUs.
const PERIOD: Duration = Duration::from_millis(2);

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
/// While it records, system calls of the realm take the full path; apart from that, tracing costs
/// next to nothing. The command needs root.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos trace --duration 1
  crtos trace --output wakeup.json -- crtos run -- cyclictest -m -p 80 -i 1000 -l 100

Exit status: 0 done; 1 failed; 2 usage; that of COMMAND if there is one.")]
pub struct Trace {
    /// File for the trace; `-` for standard output
    #[arg(short, long, default_value = "trace.json", value_name = "FILE")]
    output: PathBuf,
    /// How long to record, in seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Command to run meanwhile
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

impl Trace {
    /// Runs the command. Returns its exit status.
    pub fn run(self) -> Result<u8> {
        let device = Device::require(ASKED)?;
        let info = device.info(ASKED)?;
        let realm = device::realm(&info).ok_or_else(|| device::not_up(ASKED))?;
        let cpus: Vec<u32> = device.report(ASKED)?.cpus_of(realm).iter().collect();
        let mut output = self.open()?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, stop.clone())
                .map_err(|error| Failure::new(ASKED, plain(&error)))?;
        }

        let refused = |refusal: device::Refusal| refusal.asked(ASKED);
        let mut collector = Collector::new(&device, realm, cpus.len()).map_err(refused)?;
        device.trace(true).map_err(refused)?;
        let mut child = self.start()?;
        let end = self.duration.map(|duration| Instant::now() + duration);
        let mut status = 0;
        loop {
            collector.read().map_err(refused)?;
            if let Some(command) = &mut child
                && let Some(ended) =
                    command.try_wait().map_err(|error| Failure::new(ASKED, plain(&error)))?
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
        device.trace(false).map_err(refused)?;
        collector.read().map_err(refused)?;
        if let Some(mut command) = child {
            // Interrupted, or the time is over: the command goes on, and is waited for.
            status = command.wait().map_or(1, exit_status);
        }

        let record = collector.finish();
        let timeline = timeline::build(&record, &cpus);
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
        Failure::new(format!("write {}", self.output.display()), plain(error))
    }

    fn start(&self) -> Result<Option<Child>> {
        let Some((program, arguments)) = self.command.split_first() else { return Ok(None) };
        Command::new(program)
            .args(arguments)
            .spawn()
            .map(Some)
            .map_err(|error| Failure::new(format!("run {}", program.display()), plain(&error)))
    }
}

/// Returns an exit status as a shell does.
fn exit_status(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let signal = || status.signal().map_or(1, |signal| 128 + signal);
    status.code().unwrap_or_else(signal) as u8
}
