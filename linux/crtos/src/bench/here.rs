// SPDX-License-Identifier: MIT OR Apache-2.0
//! This machine, and the systems on it that can be measured.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::UNIX_EPOCH;

use crtos_results::System;
use crtos_results::model::Machine as Described;

use crate::code::Code;
use crate::device::{self, Device};
use crate::failure::{Failure, Result};
use crate::install;
use crate::machine::Machine;

/// What the command does, for the messages of failures.
const ASKED: &str = "measure";

/// A system, by the name in command lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Which {
    /// The running Linux.
    Linux,
    /// The real-time realm.
    Realm,
}

/// A system and its CPUs for measuring.
pub struct Place {
    pub system: System,
    pub cpu: u32,
    pub other_cpu: Option<u32>,
}

/// Returns the systems that were asked for, or all that exist if none was.
pub fn places(wanted: &[Which], cpu: Option<u32>) -> Result<Vec<Place>> {
    let wants = |which| wanted.is_empty() || wanted.contains(&which);
    let mut places = Vec::new();
    if wants(Which::Linux) {
        places.push(linux(&Machine::here(), cpu)?);
    }
    match realm() {
        Some(place) if wants(Which::Realm) => places.push(place),
        None if wanted.contains(&Which::Realm) => return Err(device::not_up(ASKED)),
        _ => {}
    }
    Ok(places)
}

fn linux(machine: &Machine, cpu: Option<u32>) -> Result<Place> {
    let (online, isolated) = (machine.online(), machine.isolated());
    let last = |cpus: &crate::cpulist::CpuList| cpus.iter().filter(|c| online.contains(*c)).last();
    let cpu = cpu.or_else(|| last(&isolated)).or_else(|| last(&online));
    let cpu = cpu.filter(|cpu| online.contains(*cpu)).ok_or_else(|| {
        Failure::new(Code::CpuAbsent, ASKED, "Linux has no such CPU")
            .remedy(format!("choose one of {online} with --cpu"))
    })?;
    let kernel = machine.release().unwrap_or_default();
    // As in PREEMPT_RT's /proc/version: "#1 SMP PREEMPT_RT Debian …".
    let preempt_rt = machine.read("/proc/version").is_some_and(|v| v.contains("PREEMPT_RT"));
    let is_isolated = isolated.contains(cpu);
    let name = format!("Linux {kernel}{}", if is_isolated { " isolated" } else { "" });
    let system = System { name, kernel, realm: false, preempt_rt, isolated: is_isolated };
    let other_cpu = online.iter().filter(|other| *other != cpu).last();
    Ok(Place { system, cpu, other_cpu })
}

/// Returns the realm, if it is up.
fn realm() -> Option<Place> {
    let device = Device::open().ok()?;
    let realm = device::realm(&device.info(ASKED).ok()?)?;
    let cpus = device.report(ASKED).ok()?.cpus_of(realm);
    let machine = Machine::here();
    let preempt_rt = machine.read("/proc/version").is_some_and(|v| v.contains("PREEMPT_RT"));
    let kernel = machine.release()?;
    let mut last_first = cpus.iter().collect::<Vec<_>>().into_iter().rev();
    Some(Place {
        system: System {
            name: format!("realm beside {kernel}"),
            kernel,
            realm: true,
            preempt_rt,
            isolated: false,
        },
        cpu: last_first.next()?,
        other_cpu: last_first.next(),
    })
}

/// Returns what a reader of the results needs to know about the machine.
pub fn machine() -> Described {
    let machine = Machine::here();
    let total = machine.read("/proc/meminfo").unwrap_or_default();
    let kib = total.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    let mut described = Described {
        processor: machine.model().unwrap_or_default(),
        cpus: u32::try_from(machine.present().len()).unwrap_or_default(),
        memory_mib: kib.unwrap_or_default() / 1024,
        emulator: None,
        versions: [("crtos".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
    };
    for program in ["cyclictest", "stress-ng"] {
        if let Some(version) = version(program) {
            described.versions.insert(program.to_owned(), version);
        }
    }
    described
}

/// Returns the version that a program tells: the first line of `--version`, or else of `--help`,
/// without its name.
fn version(program: &str) -> Option<String> {
    let first_line = |arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().next()?.trim();
        let rest = line.strip_prefix(program).unwrap_or(line);
        let rest = rest.trim_start_matches([' ', ',']).split(" (").next().unwrap_or_default();
        (!rest.is_empty()).then(|| rest.to_owned())
    };
    first_line(&["--version"]).or_else(|| first_line(&["--help"]))
}

/// Returns when the parts of the installation were made, which tells it from another.
pub fn fingerprint() -> String {
    let made = |path: PathBuf| {
        let time = fs::metadata(path).and_then(|about| about.modified()).ok()?;
        Some(time.duration_since(UNIX_EPOCH).ok()?.as_nanos().to_string())
    };
    let module = install::module_path(&Machine::here()).unwrap_or_default();
    let parts = [install::kernel(), install::shadow(), install::part("bench/timer"), module];
    parts.map(|path| made(path).unwrap_or_default()).join(" ")
}
