// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of crtos.
//!
//! There is one file for each verb, with its arguments, the text of `--help`, and `run`. They use:
//!
//! | module | concept |
//! |---|---|
//! | [`device`] | `/dev/crtos` with safe calls |
//! | `config` | the options of `crtos up` that a file gives |
//! | `requirements`, `start` | which CPUs and memory a cell may have; how it starts |
//! | `refused_module` | why Linux did not take the module |
//! | `borrowed`, `uart`, `can`, `serial_port` | devices that Linux gives up |
//! | [`loader`] | what lies in a cell's memory before it starts |
//! | [`machine`], [`install`] | what Linux tells about the machine; the installed parts |
//! | [`report`], [`threads`], [`ring`] | what hypervisor and real-time kernel tell |
//! | [`failure`], [`code`] | failures: what was asked, why it was refused, what to do; their codes |
//! | [`cpulist`], [`size`], [`ranges`], [`text`], [`view`] | words and bytes |
#![deny(unsafe_code)]

mod bench;
mod borrowed;
mod bug_report;
mod can;
mod cell;
mod check;
pub mod code;
mod config;
mod confinement;
mod cpu_choice;
pub mod cpulist;
#[allow(unsafe_code)]
pub mod device;
mod devices;
mod down;
mod driven;
mod ethernet;
mod explain;
pub mod failure;
mod function;
mod huge_pages;
pub mod install;
mod ip;
mod kvm;
mod latency;
mod link;
pub mod loader;
mod locked;
mod log;
pub mod machine;
mod man;
mod net;
mod plan;
mod port_ranges;
mod ps;
pub mod ranges;
mod refused_module;
pub mod report;
mod requirements;
pub mod ring;
mod run;
mod screen;
mod seal;
#[allow(unsafe_code)]
mod serial_port;
mod silent;
pub mod size;
mod start;
mod state;
mod stats;
mod symbols;
pub mod text;
pub mod threads;
mod top;
mod trace;
mod uart;
mod up;
mod user_limit;
mod version;
pub mod view;
mod watch;

use clap::{CommandFactory, Parser, Subcommand};

use failure::Result;

/// Run ordinary Linux programs with hard real-time latency, beside the Linux that is already
/// running
///
/// crtos divides the machine: Linux gives up some CPUs and some memory, and a small real-time
/// kernel runs there, isolated by a hypervisor that is started under the running Linux. Programs
/// run in this real-time realm unmodified; what the real-time kernel does not do itself, it has
/// Linux do. No reboot, no kernel patch; `crtos down` gives everything back.
#[derive(Parser)]
#[command(
    name = "crtos",
    version,
    max_term_width = 100,
    after_long_help = "\
Examples:
  crtos check                           check whether this machine can run crtos
  crtos plan >realm.toml                propose a configuration for this machine
  crtos up --cpus 3 --memory 512M       CPU 3 and 512 MiB become the real-time realm
  crtos run -- busybox md5sum /bin/sh   run a program there
  crtos ps                              what runs there
  crtos top                             what CPUs and threads do there, once a second
  crtos stats                           VM exits by CPU and reason, memory, doorbells
  crtos bench                           latencies of Linux and of the realm, measured
  crtos trace --duration 1              record what happens there, for Perfetto
  crtos latency -- cyclictest -p 80     what in a program is not real time
  crtos down                            give Linux its CPU and its memory back

Exit status:
  0    done
  1    refused or failed; the reason and a remedy are on standard error
  2    the command line was not understood
  of `crtos run`: the program's own, or
  125  crtos could not start the program
  126  the program was found but cannot be run
  127  the program was not found

Environment:
  NO_COLOR  if set, no colours; without it, colours only on a terminal

Files:
  /etc/crtos/realm.toml                   options of `crtos up` (realm.toml(5))
  /dev/crtos                              the module's device; group `crtos` may use `crtos run`
  /usr/lib/crtos/kernel.elf               the real-time kernel
  /lib/modules/VERSION/updates/crtos.ko   the module, with the hypervisor in it
  /usr/src/crtos-VERSION                  the module's sources, to build it for another kernel"
)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Check(check::Check),
    Plan(plan::Plan),
    Up(up::Up),
    Down(down::Down),
    Run(run::Run),
    Seal(seal::Seal),
    Ps(ps::Ps),
    Stats(stats::Stats),
    Log(log::Log),
    Trace(trace::Trace),
    Latency(latency::Latency),
    Top(top::Top),
    Watch(watch::Watch),
    Cell(cell::Cell),
    Device(devices::Devices),
    Link(link::Link),
    Bench(bench::Bench),
    Version(version::Version),
    Explain(explain::Explain),
    Report(bug_report::BugReport),
    Man(man::Man),
}

/// Does what the command line says. Returns the exit status.
pub fn main() -> u8 {
    let arguments = match config::complete(Cli::command(), std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(failure) => return failure.tell(),
    };
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output, and are no errors.
            let _ = error.print();
            if error.use_stderr() {
                let code = code::Code::Usage;
                anstream::eprintln!("  remedy: {}", code.remedy());
                anstream::eprintln!("  more: crtos explain {}", code.name());
            }
            return error.exit_code() as u8;
        }
    };
    match cli.verb.run() {
        Ok(status) => status,
        Err(failure) => failure.tell(),
    }
}

impl Verb {
    fn run(self) -> Result<u8> {
        match self {
            Verb::Check(check) => check.run(),
            Verb::Plan(plan) => plan.run().map(|()| 0),
            Verb::Up(up) => up.run().map(|()| 0),
            Verb::Down(down) => down.run().map(|()| 0),
            Verb::Run(run) => Err(run.run()),
            Verb::Seal(seal) => seal.run().map(|()| 0),
            Verb::Ps(ps) => ps.run().map(|()| 0),
            Verb::Stats(stats) => stats.run().map(|()| 0),
            Verb::Log(log) => log.run().map(|()| 0),
            Verb::Trace(trace) => trace.run(),
            Verb::Latency(latency) => latency.run(),
            Verb::Top(top) => top.run().map(|()| 0),
            Verb::Watch(watch) => watch.run(),
            Verb::Cell(cell) => cell.run().map(|()| 0),
            Verb::Device(devices) => devices.run().map(|()| 0),
            Verb::Link(link) => link.run().map(|()| 0),
            Verb::Bench(bench) => bench.run(),
            Verb::Version(version) => version.run(),
            Verb::Report(report) => report.run().map(|()| 0),
            Verb::Explain(explain) => explain.run().map(|()| 0),
            Verb::Man(man) => man.run(Cli::command()).map(|()| 0),
        }
    }
}

/// Prints JSON for `--json`.
fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| failure::Failure::new(code::Code::Internal, "print JSON", error))?;
    anstream::println!("{text}");
    Ok(())
}
