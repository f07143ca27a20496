// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos latency`: what the real-time threads of a program do that has no worst case.
//!
//! | file | concept |
//! |---|---|
//! | `mod.rs` | the command: runs the program, counts, reports |
//! | [`lapses`] | lapses, made of events |
//! | [`places`] | where in the program that was, and who called |

mod lapses;
mod places;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ffi::OsString,
    fs,
    path::PathBuf,
    process::{Child, Command},
    sync::atomic::Ordering,
    thread::sleep,
};

use crtos_abi::{
    channel::{TRACE_CALL_END, TRACE_WANT_EVENTS, TRACE_WANT_LAPSES, TRACE_WANT_STACKS},
    ids::Tid,
};
use nix::{
    libc::{SYS_clone, SYS_clone3, SYS_fork, SYS_vfork},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Serialize;

use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};

use crate::{
    code::Code,
    device::{Device, Refusal},
    failure::{Asked, Failure, Result},
    machine::Machine,
    requirements, text,
    trace::{
        PERIOD,
        collect::{Collector, Event, Name},
        exit_status, noted,
        order::Order,
    },
};
use lapses::{Kind, Lapse, Mapping, Reader, Told};
use places::{Binaries, Frame, Program};

/// Most files that are remembered of a thread of which it is not known yet whose it is.
const MOST_MAPPINGS: usize = 64;

/// What the command does, for the messages of failures.
const ASKED: &str = "look for what is not real time";

/// Run a program in the real-time realm and report what its real-time threads do that has no worst
/// case
///
/// Such a lapse is a system call that Linux makes (remote), a page that is touched for the first
/// time or is to be copied (page fault), or a system call that changes the program's memory, such
/// as mmap and brk for malloc (memory). Lapses of ordinary threads do not count, nor what a thread
/// does before it takes a policy of real time (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE); those of a
/// thread count that has a real-time priority because it holds a lock that another one waits for.
///
/// The report has a line for each thread and place: what it was and what Linux did meanwhile, how
/// often, how long the longest took, and where in the program. It comes when the program has ended,
/// on standard error. Processes that the program starts are in it.
///
/// The place is the instruction behind the system call, or the one that touched the page: often in
/// the C library. With --backtrace its callers are shown. They are found by the tables for
/// exceptions in the program's files (.eh_frame) or by frame pointers, from the last 4 KiB of the
/// stack; what a just-in-time compiler has made has neither. Functions are named by the symbols of
/// the files, source lines by their debug information; without these, there are addresses.
///
/// While the program runs, all system calls of the realm take the full path, and with --backtrace
/// each lapse takes some microseconds more, so times are longer than otherwise. If lapses come
/// faster than they are read, some are lost; the report says how many events were. A thread that
/// lived for a few milliseconds only may have `?` for its name. The command needs root, as what it
/// runs then has.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos latency -- cyclictest -p 80 -i 1000 -l 1000
  crtos latency --backtrace --json --output lapses.json -- ./control

With --json an object: lost_events, and lapses, an array of: pid, tid, command, kind (\"remote\",
\"page-fault\" or \"memory\"), what, inside (array: what Linux did within it), count, longest_ns,
total_ns, frames (array, the innermost first: address, and null if unknown: object, offset,
function, file, line).

Exit status: the program's own, as that of `crtos run`; 1 failed; 2 usage.")]
pub struct Latency {
    /// Show the callers of each place
    #[arg(short, long)]
    backtrace: bool,
    /// Report in JSON
    #[arg(long)]
    json: bool,
    /// File for the report, instead of standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, num_args = 1.., value_names = ["PROGRAM", "ARG"])]
    command: Vec<OsString>,
}

/// The report.
#[derive(Serialize)]
struct Report {
    /// Events that were overwritten before they were read; lapses may be missing.
    lost_events: u64,
    lapses: Vec<Row>,
}

/// The lapses of one kind at one place of a thread.
#[derive(Serialize)]
struct Row {
    pid: u32,
    tid: u32,
    command: String,
    kind: Kind,
    what: String,
    inside: BTreeSet<String>,
    count: u64,
    longest_ns: u64,
    total_ns: u64,
    frames: Vec<Frame>,
}

/// What lapses have in common that are counted together.
type Key = (u32, Kind, String, Vec<u64>);

/// How often and how long.
#[derive(Default)]
struct Count {
    inside: BTreeSet<String>,
    count: u64,
    longest_ns: u64,
    total_ns: u64,
}

impl Latency {
    /// Runs the command. Returns its exit status.
    pub fn run(self) -> Result<u8> {
        let device = Device::require(ASKED)?;
        requirements::root(&Machine::here(), ASKED, "only root may: it looks into the program")?;
        let realm = device.realm(ASKED)?;
        let cpus = device.report(ASKED)?.cpus_of(realm).len();
        // A file that cannot be written is told before the program runs.
        if let Some(path) = &self.output {
            fs::write(path, "").asked(format!("write {}", path.display()))?;
        }
        // Ctrl-C and SIGTERM end the program; this command then reports.
        noted(&[SIGINT, SIGQUIT], ASKED)?;
        let stop = noted(&[SIGTERM], ASKED)?;
        let refused = |refusal: Refusal| refusal.asked(ASKED);
        let stacks = if self.backtrace { TRACE_WANT_STACKS } else { 0 };
        let want = TRACE_WANT_EVENTS | TRACE_WANT_LAPSES | stacks;
        let mut collector = Collector::begin(&device, realm, cpus, want).map_err(refused)?;
        let mut child = self.start()?;
        let family = Family { members: [child.id()].into(), ..Family::default() };
        let mut account = Account { root: child.id(), family, ..Account::default() };
        let status = loop {
            collector.read().map_err(refused)?;
            account.take(&mut collector);
            if let Some(ended) = child.try_wait().map_err(|error| Failure::io(ASKED, &error))? {
                break exit_status(ended);
            }
            if stop.swap(false, Ordering::Relaxed) {
                // It is reported when the program has ended.
                let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
            }
            sleep(PERIOD);
        };
        collector.end().map_err(refused)?;
        // What came last is in order after a further round.
        for _ in 0..2 {
            collector.read().map_err(refused)?;
            account.take(&mut collector);
        }
        let report = account.finish(collector);
        let text = if self.json { json(&report)? } else { report.show(self.backtrace) };
        match &self.output {
            Some(path) => {
                let text = anstream::adapter::strip_str(&text);
                fs::write(path, format!("{text}\n")).asked(format!("write {}", path.display()))?;
            }
            None => anstream::eprintln!("{text}"),
        }
        Ok(status)
    }

    fn start(&self) -> Result<Child> {
        let own = std::env::current_exe().asked(ASKED)?;
        let mut command = Command::new(own);
        command.args(["run", "--"]).args(&self.command).spawn().asked(ASKED)
    }
}

fn json(report: &Report) -> Result<String> {
    serde_json::to_string_pretty(report)
        .map_err(|error| Failure::new(Code::Internal, "print JSON", error))
}

/// The threads of a program and of what it starts.
#[derive(Default)]
struct Family {
    members: HashSet<u32>,
    /// Whom others have started, in case that they belong to it.
    started: BTreeMap<u32, Vec<u32>>,
}

impl Family {
    /// Takes an event. Returns who belongs to it from now on.
    fn add(&mut self, event: &Event) -> Vec<u32> {
        let starts = [SYS_clone, SYS_fork, SYS_vfork, SYS_clone3].map(|call| call as u64);
        let is_start = event.kind == TRACE_CALL_END && starts.contains(&event.first);
        let Some(started) = u32::try_from(event.second).ok().filter(|id| is_start && *id > 0)
        else {
            return Vec::new();
        };
        if !self.members.contains(&event.thread) {
            self.started.entry(event.thread).or_default().push(started);
            return Vec::new();
        }
        let mut new = vec![started];
        let mut next = 0;
        while let Some(id) = new.get(next).copied() {
            self.members.insert(id);
            // A child may have gone ahead of its parent.
            new.extend(self.started.remove(&id).unwrap_or_default());
            next += 1;
        }
        new
    }
}

/// Counts the lapses of a program and of what it starts.
#[derive(Default)]
struct Account {
    /// The program.
    root: u32,
    family: Family,
    /// What threads have mapped that do not belong to it yet.
    strangers: BTreeMap<u32, Vec<Mapping>>,
    order: Order,
    reader: Reader,
    binaries: Binaries,
    programs: BTreeMap<u32, Program>,
    /// Process and command name of each thread.
    names: BTreeMap<u32, (u32, String)>,
    counts: BTreeMap<Key, Count>,
}

impl Account {
    /// Takes the events that were read.
    fn take(&mut self, collector: &mut Collector<'_>) {
        self.name(collector.names());
        let events = self.order.add(collector.events(0));
        collector.forget_before(u64::MAX);
        for event in events {
            for new in self.family.add(&event) {
                for mapping in self.strangers.remove(&new).unwrap_or_default() {
                    self.map(&mapping);
                }
            }
            match self.reader.add(&event) {
                Some(Told::Lapse(lapse)) => self.count(lapse),
                Some(Told::Mapping(mapping)) if self.family.members.contains(&mapping.thread) => {
                    self.map(&mapping);
                }
                Some(Told::Mapping(mapping)) => {
                    let known = self.strangers.entry(mapping.thread).or_default();
                    if known.len() < MOST_MAPPINGS {
                        known.push(mapping);
                    }
                }
                None => {}
            }
        }
    }

    fn name<'a>(&mut self, names: impl Iterator<Item = (&'a Tid, &'a Name)>) {
        for (tid, name) in names {
            self.names.insert(tid.get(), (name.pid.get(), name.command.clone()));
        }
    }

    fn map(&mut self, mapping: &Mapping) {
        let process = self.process(mapping.thread);
        self.programs.entry(process).or_default().map(mapping, &mut self.binaries);
    }

    /// Returns the process of a thread. One that was not named yet is the first of its process.
    fn process(&self, thread: u32) -> u32 {
        self.names.get(&thread).map_or(thread, |(process, _)| *process)
    }

    /// Returns the files of a process: those of the program if it has mapped none of its own, since
    /// a fork has them from there.
    fn program(&mut self, process: u32) -> &mut Program {
        let known = self.programs.contains_key(&process);
        self.programs.entry(if known { process } else { self.root }).or_default()
    }

    fn count(&mut self, lapse: Lapse) {
        let process = self.process(lapse.thread);
        let callers = self.program(process).callers(&lapse.place);
        let count = self.counts.entry((lapse.thread, lapse.kind, lapse.what, callers)).or_default();
        let duration = lapse.duration.unwrap_or(0);
        count.count += 1;
        count.longest_ns = count.longest_ns.max(duration);
        count.total_ns += duration;
        count.inside.extend(lapse.inside);
    }

    fn finish(mut self, collector: Collector<'_>) -> Report {
        let record = collector.finish();
        self.name(record.names.iter());
        for lapse in std::mem::take(&mut self.reader).finish() {
            self.count(lapse);
        }
        let mut rows = Vec::new();
        for ((tid, kind, what, callers), count) in std::mem::take(&mut self.counts) {
            if !self.family.members.contains(&tid) {
                continue;
            }
            let pid = self.process(tid);
            let program = self.program(pid);
            let frames = callers.iter().map(|address| program.frame(*address)).collect();
            let command = self.names.get(&tid).map_or("?".into(), |(_, name)| name.clone());
            let Count { inside, count, longest_ns, total_ns } = count;
            rows.push(Row {
                pid,
                tid,
                command,
                kind,
                what,
                inside,
                count,
                longest_ns,
                total_ns,
                frames,
            });
        }
        rows.sort_by_key(|row| (row.pid, row.tid, std::cmp::Reverse(row.longest_ns)));
        Report { lost_events: record.lost, lapses: rows }
    }
}

impl Report {
    fn show(&self, callers: bool) -> String {
        let mut parts = Vec::new();
        if self.lapses.is_empty() {
            parts.push("crtos: no real-time thread did anything that has no worst case".into());
        } else {
            let header = ["THREAD", "KIND", "WHAT", "COUNT", "LONGEST (µs)", "WHERE"];
            let table = text::table(&header, &[3, 4], self.lapses.iter().map(Row::show).collect());
            let mut lines = table.lines();
            parts.extend(lines.next().map(String::from));
            for (line, row) in lines.zip(&self.lapses) {
                parts.push(line.into());
                let callers = row.frames.iter().skip(1).filter(|_| callers);
                parts.extend(callers.map(|frame| format!("    from {}", frame.show())));
            }
        }
        if self.lost_events > 0 {
            parts.push(format!("crtos: {} events were lost: there may be more", self.lost_events));
        }
        parts.join("\n")
    }
}

impl Row {
    fn show(&self) -> Vec<String> {
        let kind = match self.kind {
            Kind::Remote => "remote",
            Kind::PageFault => "page fault",
            Kind::Memory => "memory",
        };
        let inside: Vec<_> = self.inside.iter().map(String::as_str).collect();
        let inside = match inside[..] {
            [] => String::new(),
            _ => format!(" (Linux: {})", inside.join(", ")),
        };
        vec![
            format!("{} ({})", self.command, self.tid),
            kind.into(),
            format!("{}{inside}", self.what),
            self.count.to_string(),
            format!("{:.1}", self.longest_ns as f64 / 1e3),
            self.frames.first().map_or("?".into(), Frame::show),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_line_for_each_place() {
        let frame = |function: &str| Frame {
            object: Some("/usr/bin/x".into()),
            function: Some(function.into()),
            ..Frame::default()
        };
        let row = Row {
            pid: 7,
            tid: 8,
            command: "x".into(),
            kind: Kind::Memory,
            what: "mmap".into(),
            inside: ["fstat".to_string()].into(),
            count: 3,
            longest_ns: 12_345,
            total_ns: 20_000,
            frames: vec![frame("inner"), frame("outer")],
        };
        let report = Report { lost_events: 5, lapses: vec![row] };
        let text = report.show(true);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "x (8)   memory  mmap (Linux: fstat)      3          12.3  inner (x)");
        assert_eq!(lines[2], "    from outer (x)");
        assert!(lines[3].contains("5 events were lost"));
        assert!(!report.show(false).contains("outer"));
        let none = Report { lost_events: 0, lapses: Vec::new() };
        assert!(none.show(false).contains("no real-time thread"));
    }
}
