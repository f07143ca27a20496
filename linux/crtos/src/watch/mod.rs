// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos watch`: which jobs of a program's real-time threads came too late, and why the worst did.
//!
//! | file | concept |
//! |---|---|
//! | `mod.rs` | the command: what is counted, shown and written |
//! | [`account`] | what the CPU did meanwhile |

mod account;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, IsTerminal, Write},
    path::PathBuf,
    sync::atomic::Ordering,
    thread::sleep,
    time::{Duration, Instant},
};

use crtos_abi::ids::Pid;
use crtos_results::Histogram;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{
    code::Code,
    cpulist::CpuList,
    device::{Device, Refusal},
    failure::{Asked, Failure, Result},
    machine::Machine,
    requirements,
    screen::Screen,
    text,
    trace::{
        AFTER, BEFORE, PERIOD,
        collect::{Collector, Record},
        jobs::{Jobs, Part, Span},
        json::{self, micros},
        late, limit, noted, seconds, timeline,
    },
};
use account::Did;
use crtos_abi::channel::TRACE_WANT_EVENTS;

/// What the command does, for the messages of failures.
const ASKED: &str = "watch a program";
/// Exit status if a job came too late.
const STATUS_MISSED: u8 = 3;
/// The limit if none was given.
const LIMIT: Duration = Duration::from_micros(100);
/// The time from one table to the next.
const DELAY: Duration = Duration::from_secs(1);
/// For how long events are kept at most, nanoseconds: the trace of a longer job lacks its
/// beginning.
const KEPT: u64 = 10_000_000_000;
/// How many rounds of reading there are from one look for events to forget to the next.
const ROUNDS: u32 = 50;
/// How many things that the CPU did are told.
const TOLD: usize = 5;

/// Count the late jobs of a real-time program, and tell why the worst was late
///
/// A job of a thread begins when the thread is made ready, and ends when it waits again. Its
/// latency is the time to the moment in which the thread ran, its response the time to its end. A
/// job is late, and counts in MISSES, if its latency is above --limit or its response above
/// --deadline. Only threads with a real-time priority count. The time from the event that a thread
/// waits for to the moment in which the thread is made ready is in neither.
///
/// LEAST, MEAN and MOST are those of the latency; LONGEST is the longest response.
///
/// Every second there is a table, and at the end one of the whole time, with what the CPU did
/// during the worst miss; the trace around that is in a file that Perfetto (ui.perfetto.dev) opens.
/// The command ends when the program does, when the time is over, or by Ctrl-C.
///
/// While it watches, system calls of the realm take the full path, some 200 instructions more each.
/// The command needs root.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos watch --limit 20us --duration 60 1234
  crtos watch --deadline 1ms $(pidof control)

With --json an object a line: seconds (since the last one), lost_events, threads (array of: tid,
command, jobs, least_ns, mean_ns, most_ns (of the latency), most_response_ns, misses). The last one
has also: whole (true), worst (null, or: tid, command, part (latency or response), cpu, ns, ready_ns
(CLOCK_MONOTONIC), did (array of: what, ns)), trace (the file, or null).

Exit status: 0 no job was late; 1 failed; 2 usage; 3 a job was late.")]
pub struct Watch {
    /// The program: its process id
    #[arg(value_name = "PID", value_parser = process)]
    pid: Pid,
    /// The most that may pass until a thread runs which is ready, such as 20us or 1ms [default:
    /// 100us, without --deadline none]
    #[arg(short, long, value_name = "TIME", value_parser = limit)]
    limit: Option<Duration>,
    /// The most that a job may take from the moment in which its thread is ready
    #[arg(long, value_name = "TIME", value_parser = limit)]
    deadline: Option<Duration>,
    /// How long to watch, in seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// File for the trace around the worst miss
    #[arg(short, long, default_value = "watch.json", value_name = "FILE")]
    output: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Reads a process id.
fn process(text: &str) -> std::result::Result<Pid, String> {
    text.parse().ok().and_then(Pid::new).ok_or_else(|| "no process id".into())
}

/// What may pass of a job, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Limits {
    latency: Option<u64>,
    response: Option<u64>,
}

impl Limits {
    fn new(limit: Option<Duration>, deadline: Option<Duration>) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let limit = limit.or(deadline.is_none().then_some(LIMIT));
        Self { latency: limit.map(nanos), response: deadline.map(nanos) }
    }

    /// By how much it is above its limit; `None` if it is not.
    fn excess(&self, span: &Span) -> Option<u64> {
        let limit = match span.part {
            Part::Latency => self.latency,
            Part::Response => self.response,
        };
        span.length().checked_sub(limit?).filter(|excess| *excess > 0)
    }
}

/// What is known of a thread's jobs in some time.
#[derive(Debug, Default)]
struct Tally {
    latency: Histogram,
    most_response: Option<u64>,
    misses: u64,
}

/// The jobs of some time, by threads.
#[derive(Debug, Default)]
struct Tallies(BTreeMap<u32, Tally>);

impl Tallies {
    fn add(&mut self, span: &Span, is_miss: bool) {
        let tally = self.0.entry(span.thread).or_default();
        match span.part {
            Part::Latency => tally.latency.add(span.length(), 1),
            Part::Response => tally.most_response = tally.most_response.max(Some(span.length())),
        }
        tally.misses += u64::from(is_miss);
    }

    fn misses(&self) -> u64 {
        self.0.values().map(|tally| tally.misses).sum()
    }
}

/// What is shown of some time.
#[derive(Serialize)]
struct Page {
    seconds: f64,
    lost_events: u64,
    threads: Vec<ThreadRow>,
}

#[derive(Serialize)]
struct ThreadRow {
    tid: u32,
    command: String,
    jobs: u64,
    least_ns: Option<u64>,
    mean_ns: Option<u64>,
    most_ns: Option<u64>,
    most_response_ns: Option<u64>,
    misses: u64,
}

/// What is shown in the end.
#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    page: Page,
    whole: bool,
    worst: Option<Worst>,
    trace: Option<PathBuf>,
}

/// The worst miss.
#[derive(Debug, Serialize)]
struct Worst {
    tid: u32,
    command: String,
    part: &'static str,
    cpu: Option<u32>,
    ns: u64,
    ready_ns: u64,
    did: Vec<Did>,
}

/// The jobs of one program, as events of them are read.
struct Watching<'a> {
    collector: Collector<'a>,
    pid: Pid,
    limits: Limits,
    jobs: Jobs,
    /// How many events the collector has that were looked at.
    seen: usize,
    /// The last time of an event.
    last: u64,
    rounds: u32,
    /// Those of the last second, and of the whole time.
    now: Tallies,
    whole: Tallies,
    /// The worst miss by its excess, and the events around it once they are there.
    worst: Option<(u64, Span)>,
    around: Option<Record>,
}

impl Watching<'_> {
    /// Reads what came, and looks at it.
    fn read(&mut self) -> std::result::Result<(), Refusal> {
        self.collector.read()?;
        self.look();
        self.rounds += 1;
        if self.rounds.is_multiple_of(ROUNDS) {
            let wanted = self.worst.filter(|_| self.around.is_none()).map(|(_, span)| span.ready);
            let from = [self.jobs.oldest(), wanted].into_iter().flatten().fold(self.last, u64::min);
            let from = from.max(self.last.saturating_sub(KEPT));
            self.seen = self.collector.forget_before(from.saturating_sub(BEFORE));
        }
        Ok(())
    }

    fn look(&mut self) {
        let round = self.collector.events(self.seen);
        self.last = round.iter().map(|event| event.time).fold(self.last, u64::max);
        let spans = self.jobs.add(round);
        self.seen += round.len();
        for span in spans {
            let is_its = self.collector.name(span.thread).is_some_and(|name| name.pid == self.pid);
            if !is_its {
                continue;
            }
            let excess = self.limits.excess(&span);
            self.now.add(&span, excess.is_some());
            self.whole.add(&span, excess.is_some());
            if let Some(excess) = excess
                && self.worst.is_none_or(|(most, _)| excess > most)
            {
                self.worst = Some((excess, span));
                self.around = None;
            }
        }
        if let Some((_, span)) = self.worst
            && self.around.is_none()
            && self.last >= span.end + AFTER
        {
            self.keep(&span);
        }
    }

    fn keep(&mut self, span: &Span) {
        let from = span.ready.saturating_sub(BEFORE);
        self.around = Some(self.collector.between(from, span.end + AFTER));
    }

    /// Looks at what came last. No events come any more.
    fn finish(&mut self) -> std::result::Result<(), Refusal> {
        self.collector.read()?;
        for _ in 0..3 {
            self.look();
        }
        if let Some((_, span)) = self.worst
            && self.around.is_none()
        {
            self.keep(&span);
        }
        Ok(())
    }

    fn command(&self, thread: u32) -> String {
        self.collector
            .name(thread)
            .map_or_else(String::new, |name| text::harmless(name.command.as_bytes()))
    }

    fn page(&self, tallies: &Tallies, passed: Duration, lost_events: u64) -> Page {
        let row = |(&tid, tally): (&u32, &Tally)| {
            let summary = tally.latency.summary();
            ThreadRow {
                tid,
                command: self.command(tid),
                jobs: tally.latency.count(),
                least_ns: summary.map(|summary| summary.min),
                mean_ns: summary.map(|summary| summary.mean),
                most_ns: summary.map(|summary| summary.max),
                most_response_ns: tally.most_response,
                misses: tally.misses,
            }
        };
        let threads = tallies.0.iter().map(row).collect();
        Page { seconds: passed.as_secs_f64(), lost_events, threads }
    }
}

impl Page {
    fn show(&self) -> String {
        let header =
            ["TID", "COMMAND", "JOBS", "LEAST (µs)", "MEAN", "MOST", "LONGEST (µs)", "MISSES"];
        let time = |ns: Option<u64>| ns.map_or("-".into(), micros);
        let rows = self.threads.iter().map(|row| {
            vec![
                row.tid.to_string(),
                row.command.clone(),
                row.jobs.to_string(),
                time(row.least_ns),
                time(row.mean_ns),
                time(row.most_ns),
                time(row.most_response_ns),
                row.misses.to_string(),
            ]
        });
        let mut text = text::table(&header, &[0, 2, 3, 4, 5, 6, 7], rows.collect());
        if self.lost_events > 0 {
            text += &format!("\n{} events were lost", self.lost_events);
        }
        text
    }
}

impl Worst {
    fn show(&self) -> String {
        let Self { tid, command, cpu, .. } = self;
        let cpu = cpu.map_or(String::new(), |cpu| format!(" CPU {cpu}"));
        let took = match self.part {
            LATENCY => "ran",
            _ => "had done its job",
        };
        let did: Vec<_> = self
            .did
            .iter()
            .take(TOLD)
            .map(|did| format!("{} for {} µs", did.what, micros(did.ns)))
            .collect();
        format!(
            "the worst: {command} ({tid}) {took} {} µs after it was ready; meanwhile{cpu} ran {}",
            micros(self.ns),
            did.join(", ")
        )
    }
}

/// The names of parts in what is shown.
const LATENCY: &str = "latency";
const RESPONSE: &str = "response";

impl Watch {
    /// Runs the command. Returns its exit status.
    pub fn run(self) -> Result<u8> {
        let device = Device::require(ASKED)?;
        requirements::root(
            &Machine::here(),
            ASKED,
            "only root may: it sees what all programs of the realm do",
        )?;
        let realm = device.realm(ASKED)?;
        let cpus = device.report(ASKED)?.cpus_of(realm);
        let refused = |refusal: Refusal| refusal.asked(ASKED);
        let lives = || -> Result<bool> {
            let threads = device.threads(realm).map_err(refused)?;
            Ok(threads.iter().any(|thread| thread.pid == self.pid && thread.lives()))
        };
        if !lives()? {
            let reason = format!("no program of the realm has the process id {}", self.pid.get());
            return Err(Failure::new(Code::ProcessUnknown, ASKED, reason)
                .remedy("choose among those that `crtos ps` lists"));
        }
        let stop = noted(&[SIGINT, SIGTERM], ASKED)?;
        let mut watching = Watching {
            collector: Collector::begin(&device, realm, cpus.len(), TRACE_WANT_EVENTS)
                .map_err(refused)?,
            pid: self.pid,
            limits: Limits::new(self.limit, self.deadline),
            jobs: Jobs::default(),
            seen: 0,
            last: 0,
            rounds: 0,
            now: Tallies::default(),
            whole: Tallies::default(),
            worst: None,
            around: None,
        };
        let is_live = !self.json && io::stdout().is_terminal();
        let screen = is_live.then(Screen::enter);
        let start = Instant::now();
        let end = self.duration.map(|duration| start + duration);
        let (mut before, mut lost) = (start, 0);
        let is_over =
            |now: Instant| stop.load(Ordering::Relaxed) || end.is_some_and(|end| now >= end);
        while !is_over(Instant::now()) {
            watching.read().map_err(refused)?;
            let now = Instant::now();
            if now < before + DELAY {
                sleep(PERIOD);
                continue;
            }
            let tallies = std::mem::take(&mut watching.now);
            let all = watching.collector.lost();
            let page = watching.page(&tallies, now - before, all - lost);
            (before, lost) = (now, all);
            match &screen {
                Some(screen) => screen.show(&page.show()),
                None => self.print(&page, Page::show)?,
            }
            if !lives()? {
                break;
            }
        }
        watching.collector.end().map_err(refused)?;
        watching.finish().map_err(refused)?;
        // Its table goes, and that of the whole time stays.
        drop(screen);
        self.conclude(&watching, start.elapsed(), &cpus)
    }

    fn print<T: Serialize>(&self, page: &T, show: impl Fn(&T) -> String) -> Result<()> {
        if self.json {
            let line = serde_json::to_string(page);
            let line = line.map_err(|error| Failure::new(Code::Internal, ASKED, error))?;
            anstream::println!("{line}");
        } else {
            anstream::println!("{}\n", show(page));
        }
        // Whoever reads this sees each table when it is made.
        io::stdout().flush().asked(ASKED)
    }

    /// Tells of the whole time. Returns the exit status.
    fn conclude(&self, watching: &Watching<'_>, passed: Duration, cpus: &CpuList) -> Result<u8> {
        let mut worst = None;
        if let (Some((_, span)), Some(record)) = (&watching.worst, &watching.around) {
            worst = Some(self.write(watching, span, record, cpus)?);
        }
        let whole = Whole {
            page: watching.page(&watching.whole, passed, watching.collector.lost()),
            whole: true,
            trace: worst.is_some().then(|| self.output.clone()),
            worst,
        };
        self.print(&whole, |whole| match &whole.worst {
            Some(worst) => format!("{}\n{}", whole.page.show(), worst.show()),
            None => whole.page.show(),
        })?;
        if let Some(file) = &whole.trace {
            anstream::eprintln!("crtos: the trace around the worst: {}", file.display());
        }
        Ok(if watching.whole.misses() > 0 { STATUS_MISSED } else { 0 })
    }

    /// Writes the trace around the worst miss, and returns what there is to tell of it.
    fn write(
        &self,
        watching: &Watching<'_>,
        span: &Span,
        record: &Record,
        cpus: &CpuList,
    ) -> Result<Worst> {
        let mut timeline = timeline::build(record, &cpus.iter().collect::<Vec<_>>());
        let cpu = cpus.of_realm(span.cpu);
        let did =
            cpu.map_or_else(Vec::new, |cpu| account::between(&timeline, cpu, span.ready, span.end));
        late::mark(&mut timeline, record, span);
        let cannot =
            |error: &io::Error| Failure::io(format!("write {}", self.output.display()), error);
        let mut file = BufWriter::new(File::create(&self.output).map_err(|error| cannot(&error))?);
        json::write(&mut file, record, &timeline)
            .and_then(|()| file.flush())
            .map_err(|error| cannot(&error))?;
        Ok(Worst {
            tid: span.thread,
            command: watching.command(span.thread),
            part: match span.part {
                Part::Latency => LATENCY,
                Part::Response => RESPONSE,
            },
            cpu,
            ns: span.length(),
            ready_ns: span.ready,
            did,
        })
    }
}

#[cfg(test)]
mod tests {
    use crtos_abi::ids::RealmCpu;

    use super::*;

    fn span(part: Part, length: u64) -> Span {
        Span { thread: 5, part, cpu: RealmCpu::new(0).unwrap(), ready: 1000, end: 1000 + length }
    }

    #[test]
    fn each_part_of_a_job_has_its_limit() {
        let ms = Duration::from_millis(1);
        let both = Limits::new(Some(ms), Some(2 * ms));
        assert_eq!(both.excess(&span(Part::Latency, 1_000_000)), None);
        assert_eq!(both.excess(&span(Part::Latency, 1_000_001)), Some(1));
        assert_eq!(both.excess(&span(Part::Response, 1_500_000)), None);
        assert_eq!(both.excess(&span(Part::Response, 2_000_300)), Some(300));
        let usual = Limits::new(None, None);
        assert_eq!(usual.excess(&span(Part::Latency, 100_007)), Some(7));
        assert_eq!(usual.excess(&span(Part::Response, u64::MAX - 1000)), None);
        let deadline = Limits::new(None, Some(ms));
        assert_eq!(deadline.excess(&span(Part::Latency, 100_007)), None);
    }

    #[test]
    fn a_table_has_the_jobs_of_each_thread() {
        let mut tallies = Tallies::default();
        for (length, is_miss) in [(200, false), (400, false), (900, true)] {
            tallies.add(&span(Part::Latency, length), is_miss);
        }
        tallies.add(&span(Part::Response, 5000), false);
        tallies.add(&span(Part::Response, 3000), false);
        let tally = &tallies.0[&5];
        let summary = tally.latency.summary().unwrap();
        assert_eq!((summary.count, summary.min, summary.mean, summary.max), (3, 200, 500, 900));
        assert_eq!((tally.most_response, tallies.misses()), (Some(5000), 1));
    }

    #[test]
    fn the_worst_is_told_in_words() {
        let did = vec![Did { what: "spin (7)".into(), ns: 1_990_000 }];
        let (command, part) = ("control".into(), LATENCY);
        let worst = Worst { tid: 5, command, part, cpu: Some(3), ns: 2_000_000, ready_ns: 7, did };
        assert_eq!(
            worst.show(),
            "the worst: control (5) ran 2000.000 µs after it was ready; meanwhile CPU 3 ran \
             spin (7) for 1990.000 µs"
        );
    }
}
