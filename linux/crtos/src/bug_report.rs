// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos report`: what somebody needs who looks for the cause of an error, in one file.
//!
//! It is made of what other verbs, Linux's files and dmesg(1) tell; nothing reads memory of
//! programs.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use flate2::{Compression, write::GzEncoder};

use crate::{
    config,
    failure::{Asked, Result, plain},
    machine::Machine,
};

/// Where a part of the report comes from.
enum Source {
    /// A verb of this command, with its arguments.
    Verb(&'static [&'static str]),
    /// Another program, and the word of the lines that are taken; all lines if it is empty.
    Program(&'static [&'static str], &'static str),
    /// A file.
    File(&'static str),
}

/// The parts: name in the archive, what it is, where it comes from.
const PARTS: &[(&str, &str, Source)] = &[
    ("version.json", "versions of the parts of crtos", Source::Verb(&["version", "--json"])),
    ("check.json", "what `crtos check` finds on this machine", Source::Verb(&["check", "--json"])),
    ("realm.toml", "the configuration", Source::File(config::PATH)),
    ("stats.json", "VM exits, memory, doorbells", Source::Verb(&["stats", "--json"])),
    ("ps.json", "programs in the realm: ids, names, times", Source::Verb(&["ps", "--json"])),
    ("cells.json", "cells and their states", Source::Verb(&["cell", "list", "--json"])),
    ("devices.json", "devices of cells", Source::Verb(&["device", "list", "--json"])),
    ("links.json", "links", Source::Verb(&["link", "list", "--json"])),
    ("hypervisor.log", "the hypervisor's log", Source::Verb(&["log", "--hypervisor"])),
    ("kernel.log", "the real-time kernel's log", Source::Verb(&["log", "--kernel"])),
    ("dmesg.txt", "lines of Linux's log about crtos", Source::Program(&["dmesg"], "crtos")),
    (
        "warnings.txt",
        "warnings and errors in Linux's log, with its last words",
        Source::Program(&["dmesg", "--level", "emerg,alert,crit,err,warn"], ""),
    ),
    ("linux.txt", "version of Linux", Source::File("/proc/version")),
    ("cmdline.txt", "parameters of Linux", Source::File("/proc/cmdline")),
    ("modules.txt", "loaded modules", Source::File("/proc/modules")),
    ("cpuinfo.txt", "processors", Source::File("/proc/cpuinfo")),
    ("meminfo.txt", "memory", Source::File("/proc/meminfo")),
    ("buddyinfo.txt", "free memory by size of its blocks", Source::File("/proc/buddyinfo")),
    ("interrupts.txt", "interrupts", Source::File("/proc/interrupts")),
];

/// Pack what a bug report needs into one file
///
/// The file is a compressed tar archive with logs, versions, configuration, what `crtos check`
/// finds, and what Linux tells about the machine. It has the names of programs in the realm and
/// nothing of their memory. The list of all parts is in it, CONTENTS, and is shown; read it before
/// you hand the file on.
///
/// Root gets all parts. Other users get those that they may read, and the list says why the others
/// are missing.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos report
  crtos report -o /tmp/report.tar.gz
  tar xzf crtos-report-1700000000.tar.gz

Exit status: 0 the file is written, perhaps with fewer parts; 1 it cannot be written; 2 usage.")]
pub struct BugReport {
    /// The file [default: crtos-report-TIME.tar.gz in this directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl BugReport {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let name = format!("crtos-report-{time}");
        let path = self.output.unwrap_or_else(|| format!("{name}.tar.gz").into());
        let asked = format!("write {}", path.display());

        let machine = Machine::here();
        let (mut contents, mut parts) = (String::new(), Vec::new());
        for (file, what, source) in PARTS {
            match source.read(&machine) {
                Ok(bytes) => {
                    contents.push_str(&format!("{file:<16} {what}\n"));
                    parts.push((*file, bytes));
                }
                Err(why) => contents.push_str(&format!("{file:<16} {what}: MISSING: {why}\n")),
            }
        }
        parts.insert(0, ("CONTENTS", contents.clone().into_bytes()));
        let archive = pack(&name, time, &parts).asked(asked.as_str())?;
        write(&path, &archive).asked(asked)?;
        anstream::print!("{contents}");
        anstream::println!("\nwritten to {}", path.display());
        Ok(())
    }
}

impl Source {
    /// Returns the part, or why it is missing, on one line.
    fn read(&self, machine: &Machine) -> std::result::Result<Vec<u8>, String> {
        match self {
            Self::Verb(arguments) => {
                let own = std::env::current_exe().map_err(|error| plain(&error))?;
                run(Command::new(own).args(*arguments))
            }
            Self::Program(words, word) => {
                let (program, arguments) = words.split_first().ok_or("no program")?;
                let all = run(Command::new(program).args(arguments))?;
                let lines = all.split_inclusive(|byte| *byte == b'\n');
                let is_taken = |line: &&[u8]| String::from_utf8_lossy(line).contains(word);
                Ok(lines.filter(is_taken).flatten().copied().collect())
            }
            Self::File(path) => fs::read(machine.path(path)).map_err(|error| plain(&error)),
        }
    }
}

/// Returns what a program prints. One that fails may have printed something all the same, as
/// `crtos check` does.
fn run(command: &mut Command) -> std::result::Result<Vec<u8>, String> {
    let done = command.stdin(Stdio::null()).output().map_err(|error| plain(&error))?;
    match done.status.success() || !done.stdout.is_empty() {
        true => Ok(done.stdout),
        false => {
            let said = crate::text::harmless(
                done.stderr.split(|byte| *byte == b'\n').next().unwrap_or_default(),
            );
            Err(said.trim_start_matches("crtos: ").to_owned())
        }
    }
}

/// Makes the archive: the parts in a folder `name`.
fn pack(name: &str, time: u64, parts: &[(&str, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (file, bytes) in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(time);
        archive.append_data(&mut header, Path::new(name).join(file), bytes.as_slice())?;
    }
    archive.into_inner()?.finish()
}

/// Writes the file, which only this user may read. One that was there before is replaced when all
/// is written; nothing is left of one that does not fit. What is no file is written to.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|about| !about.is_file() && !about.is_symlink()) {
        return fs::File::options().write(true).open(path)?.write_all(bytes);
    }
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let new = Path::new(&new);
    let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(new)?;
    let done = file.write_all(bytes).and_then(|()| fs::rename(new, path));
    done.inspect_err(|_| {
        let _ = fs::remove_file(new);
    })
}
