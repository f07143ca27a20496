// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos top`: what the CPUs and threads of the real-time realm do, once a second.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Write},
    sync::atomic::Ordering,
    thread::sleep,
    time::{Duration, Instant},
};

use crtos_abi::{
    channel::{RANK_IDLE, TRACE_FAULT, TRACE_INTERRUPT, TRACE_WANT_EVENTS},
    ids::{RealmCpu, Tid},
};
use serde::Serialize;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{
    code::Code,
    cpulist::CpuList,
    device::{Device, Refusal},
    failure::{Asked, Failure, Result},
    machine::Machine,
    screen::Screen,
    text,
    threads::{Counters, Thread},
    trace::{PERIOD, collect::Collector, late::Lateness, noted, seconds},
};

/// What the command does, for the messages of failures.
const ASKED: &str = "watch the real-time realm";

/// Show what the CPUs and threads of the real-time realm do, once a second
///
/// For each CPU: BUSY, how much of the time it was not idle; RUNS, the thread that it runs now, if
/// that belongs to a program; DOORBELLS, those of Linux that it took. For each thread, the busiest
/// first: CPU%, its processor time; SWITCHES, how often it was switched to; LOCAL and REMOTE,
/// system calls of the real-time kernel and of Linux; the other columns are those of `crtos ps`.
/// For each device of the realm: how often it has interrupted. Counts are those per second.
///
/// With --trace it records what happens as `crtos trace` does, and shows for each CPU LATENCY, the
/// longest time that a real-time thread of a program was ready before it ran there, and
/// INTERRUPTS, and for each thread FAULTS, its page faults. System calls of the realm take the full
/// path meanwhile, some 200 instructions more each, so that threads run a little later than
/// otherwise. It needs root. Without it, the realm does nothing for this command.
///
/// On a terminal the command shows one table again and again, until Ctrl-C. Elsewhere, or with
/// --batch, it prints one after the other.
#[derive(clap::Args)]
#[command(after_long_help = "\
The real-time kernel notes the time of a thread, and that of an idle CPU, when it switches, and
tells of all threads four times a second; a thread or a CPU that goes on without a switch is taken
to do so all the time.

With --json an object a line: seconds (since the last one), lost_events (null without --trace), cpus
(array of: cpu, busy_percent, tid (null: none of a program), doorbells, latency_ns and interrupts
(null without --trace)), threads (array of: pid, tid, command, state, priority, cpu, cpu_percent,
switches, local_calls, remote_calls, page_faults (null without --trace)), devices (array of: device,
interrupts).

Exit status: 0 done, also by Ctrl-C; 1 failed; 2 usage.")]
pub struct Top {
    /// Print one table after the other
    #[arg(short, long)]
    batch: bool,
    /// End after so many tables
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// The time from one table to the next, in seconds
    #[arg(short, long, default_value = "1", value_name = "SECONDS", value_parser = delay)]
    delay: Duration,
    /// Record events as well: latencies, interrupts, page faults
    #[arg(short, long)]
    trace: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Reads the time between tables. The kernel tells of threads four times a second.
fn delay(text: &str) -> std::result::Result<Duration, String> {
    seconds(text).and_then(|delay| match delay >= Duration::from_millis(500) {
        true => Ok(delay),
        false => Err("at least 0.5 seconds".into()),
    })
}

/// What the kernel told at a moment.
struct Sample {
    at: Instant,
    counters: Counters,
    threads: Vec<Thread>,
}

/// What happened on a CPU, by its events.
#[derive(Clone, Copy, Debug, Default)]
struct Traced {
    latency: u64,
    interrupts: u64,
}

/// What events told since the last table.
#[derive(Debug, Default)]
struct Events {
    cpus: BTreeMap<usize, Traced>,
    faults: BTreeMap<u32, u64>,
    lost: u64,
}

/// What is shown.
#[derive(Serialize)]
struct Page {
    seconds: f64,
    lost_events: Option<u64>,
    cpus: Vec<CpuRow>,
    threads: Vec<ThreadRow>,
    devices: Vec<DeviceRow>,
}

#[derive(Serialize)]
struct CpuRow {
    cpu: u32,
    busy_percent: f64,
    tid: Option<u32>,
    doorbells: u64,
    latency_ns: Option<u64>,
    interrupts: Option<u64>,
}

#[derive(Serialize)]
struct ThreadRow {
    pid: u32,
    tid: u32,
    command: String,
    state: char,
    priority: u32,
    cpu: Option<u32>,
    cpu_percent: f64,
    switches: u64,
    local_calls: u64,
    remote_calls: u64,
    page_faults: Option<u64>,
}

#[derive(Serialize)]
struct DeviceRow {
    device: String,
    interrupts: u64,
}

/// The events of the realm, as they come.
struct Recorder<'a> {
    collector: Collector<'a>,
    lateness: Lateness,
    lost: u64,
}

impl Top {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        let device = Device::require(ASKED)?;
        if self.trace && !Machine::here().is_admin() {
            return Err(Failure::new(Code::NotPermitted, ASKED, "only root may trace")
                .remedy("run it as root, or without --trace"));
        }
        let realm = device.realm(ASKED)?;
        let cpus = device.report(ASKED)?.cpus_of(realm);
        let stop = noted(&[SIGINT, SIGTERM], ASKED)?;
        let refused = |refusal: Refusal| refusal.asked(ASKED);
        let mut recorder = match self.trace {
            true => Some(Recorder {
                collector: Collector::begin(&device, realm, cpus.len(), TRACE_WANT_EVENTS)
                    .map_err(refused)?,
                lateness: Lateness::default(),
                lost: 0,
            }),
            false => None,
        };
        let is_live = !self.batch && !self.json && io::stdout().is_terminal();
        let screen = is_live.then(Screen::enter);
        let mut before = Sample::take(&device, realm).map_err(refused)?;
        let mut shown = 0;
        loop {
            let mut events = recorder.as_ref().map(|_| Events::default());
            let end = before.at + self.delay;
            while Instant::now() < end && !stop.load(Ordering::Relaxed) {
                let rest = end.saturating_duration_since(Instant::now());
                match (&mut recorder, &mut events) {
                    (Some(recorder), Some(events)) => {
                        sleep(rest.min(PERIOD));
                        recorder.read(events).map_err(refused)?;
                    }
                    _ => sleep(rest.min(Duration::from_millis(100))),
                }
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let now = Sample::take(&device, realm).map_err(refused)?;
            let page = Page::of(&before, &now, events.as_ref(), &cpus);
            match &screen {
                Some(screen) => screen.show(&page.show()),
                None if self.json => {
                    let line = serde_json::to_string(&page);
                    anstream::println!(
                        "{}",
                        line.map_err(|error| Failure::new(Code::Internal, ASKED, error))?
                    );
                }
                None => anstream::println!("{}\n", page.show()),
            }
            // Whoever reads this sees each table when it is made.
            io::stdout().flush().asked(ASKED)?;
            shown += 1;
            if self.iterations == Some(shown) {
                return Ok(());
            }
            before = now;
        }
    }
}

impl Sample {
    fn take(device: &Device, realm: u32) -> std::result::Result<Self, Refusal> {
        let mut threads = device.threads(realm)?;
        threads.retain(Thread::lives);
        Ok(Self { at: Instant::now(), counters: device.counters(realm)?, threads })
    }

    fn thread(&self, tid: Tid) -> Option<&Thread> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }
}

impl Recorder<'_> {
    fn read(&mut self, events: &mut Events) -> std::result::Result<(), Refusal> {
        self.collector.read()?;
        let round = self.collector.events(0);
        for event in round {
            match event.kind {
                TRACE_INTERRUPT => {
                    events.cpus.entry(event.cpu.get()).or_default().interrupts += 1;
                }
                TRACE_FAULT => *events.faults.entry(event.thread).or_default() += 1,
                _ => {}
            }
        }
        for one in self.lateness.wake_ups(round) {
            let traced = events.cpus.entry(one.cpu.get()).or_default();
            traced.latency = traced.latency.max(one.length());
        }
        self.collector.forget_before(u64::MAX);
        let lost = self.collector.lost();
        events.lost += lost - self.lost;
        self.lost = lost;
        Ok(())
    }
}

/// Returns how much of `whole` a part is, in percent.
fn percent(part: Duration, whole: Duration) -> f64 {
    (part.as_secs_f64() / whole.as_secs_f64().max(1e-9) * 100.0).clamp(0.0, 100.0)
}

impl Page {
    fn of(before: &Sample, now: &Sample, events: Option<&Events>, cpus: &CpuList) -> Self {
        let passed = now.at - before.at;
        let rate = |count: u64| (count as f64 / passed.as_secs_f64().max(1e-9)).round() as u64;
        let rank = |cpu: RealmCpu| now.counters.ranks.get(cpu.get()).copied().unwrap_or(RANK_IDLE);
        let traced = |cpu: RealmCpu| {
            events.map(|events| events.cpus.get(&cpu.get()).copied().unwrap_or_default())
        };
        // Who has the CPU, unless several threads of its priority are ready.
        let current = |cpu: RealmCpu| {
            let mut candidates = now.threads.iter().filter(|thread| {
                thread.state == 'R' && thread.cpu == Some(cpu) && rank(cpu) == 1 + thread.priority
            });
            candidates.next().filter(|_| candidates.next().is_none())
        };
        let is_current = |thread: &Thread| {
            thread.cpu.and_then(current).is_some_and(|current| current.tid == thread.tid)
        };
        let cpu_row = |(cpu, number): (RealmCpu, u32)| {
            let at = |sample: &Sample| sample.counters.idle.get(cpu.get()).copied();
            let idle = at(now)
                .zip(at(before))
                .map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before));
            // It has not switched: it does what it did all the time.
            let busy = match idle {
                Duration::ZERO if rank(cpu) == RANK_IDLE => 0.0,
                idle => 100.0 - percent(idle, passed),
            };
            let doorbells = |sample: &Sample| {
                sample.counters.doorbells_taken.get(cpu.get()).copied().unwrap_or(0)
            };
            CpuRow {
                cpu: number,
                busy_percent: busy,
                tid: current(cpu).map(|one| one.tid.get()),
                doorbells: rate(doorbells(now).saturating_sub(doorbells(before))),
                latency_ns: traced(cpu).map(|traced| traced.latency),
                interrupts: traced(cpu).map(|traced| rate(traced.interrupts)),
            }
        };
        let thread_row = |thread: &Thread| {
            let old = before.thread(thread.tid);
            let more = |of: fn(&Thread) -> u64| of(thread).saturating_sub(old.map_or(0, of));
            let time = thread.time.saturating_sub(old.map_or(Duration::ZERO, |old| old.time));
            let stays = old.is_some() && more(|one| one.switches) == 0 && is_current(thread);
            let cpu_percent = if stays { 100.0 } else { percent(time, passed) };
            ThreadRow {
                pid: thread.pid.get(),
                tid: thread.tid.get(),
                command: thread.command.clone(),
                state: thread.state,
                priority: thread.priority,
                cpu: thread.cpu.and_then(|cpu| cpus.of_realm(cpu)),
                cpu_percent,
                switches: rate(more(|one| one.switches)),
                local_calls: rate(more(|one| one.local_calls)),
                remote_calls: rate(more(|one| one.remote_calls)),
                page_faults: events
                    .map(|events| rate(events.faults.get(&thread.tid.get()).copied().unwrap_or(0))),
            }
        };
        let mut threads: Vec<_> = now.threads.iter().map(thread_row).collect();
        threads.sort_by(|one, other| other.cpu_percent.total_cmp(&one.cpu_percent));
        let old = |name: &str| {
            let devices = &before.counters.devices;
            devices.iter().find(|device| device.device == name).map_or(0, |device| device.count)
        };
        let devices = now.counters.devices.iter().map(|device| DeviceRow {
            device: device.device.clone(),
            interrupts: rate(device.count.saturating_sub(old(&device.device))),
        });
        Self {
            seconds: passed.as_secs_f64(),
            lost_events: events.map(|events| events.lost),
            cpus: RealmCpu::all().zip(cpus.iter()).map(cpu_row).collect(),
            threads,
            devices: devices.collect(),
        }
    }

    fn show(&self) -> String {
        let traced = self.lost_events.is_some();
        let mut header = vec!["CPU", "BUSY", "RUNS", "DOORBELLS"];
        let mut right = vec![0, 1, 3];
        if traced {
            header.extend(["LATENCY (µs)", "INTERRUPTS"]);
            right.extend([4, 5]);
        }
        let rows = self.cpus.iter().map(|row| {
            let name = |tid| self.threads.iter().find(|thread| thread.tid == tid);
            let runs = row.tid.and_then(name);
            let mut cells = vec![
                row.cpu.to_string(),
                format!("{:.1} %", row.busy_percent),
                runs.map_or("-".into(), |one| format!("{} ({})", one.command, one.tid)),
                row.doorbells.to_string(),
            ];
            cells.extend(row.latency_ns.map(|latency| format!("{:.1}", latency as f64 / 1e3)));
            cells.extend(row.interrupts.map(|count| count.to_string()));
            cells
        });
        let mut parts = vec![text::table(&header, &right, rows.collect())];
        let mut header = vec![
            "PID", "TID", "COMMAND", "STATE", "PRIO", "CPU", "CPU%", "SWITCHES", "LOCAL", "REMOTE",
        ];
        let mut right = vec![0, 1, 4, 5, 6, 7, 8, 9];
        if traced {
            header.push("FAULTS");
            right.push(10);
        }
        let rows = self.threads.iter().map(|row| {
            let mut cells = vec![
                row.pid.to_string(),
                row.tid.to_string(),
                row.command.clone(),
                row.state.to_string(),
                if row.priority == 0 { "-".into() } else { row.priority.to_string() },
                row.cpu.map_or("-".into(), |cpu| cpu.to_string()),
                format!("{:.1}", row.cpu_percent),
                row.switches.to_string(),
                row.local_calls.to_string(),
                row.remote_calls.to_string(),
            ];
            cells.extend(row.page_faults.map(|count| count.to_string()));
            cells
        });
        parts.push(text::table(&header, &right, rows.collect()));
        if !self.devices.is_empty() {
            let row = |row: &DeviceRow| vec![row.device.clone(), row.interrupts.to_string()];
            let rows = self.devices.iter().map(row).collect();
            parts.push(text::table(&["DEVICE", "INTERRUPTS"], &[1], rows));
        }
        if let Some(lost) = self.lost_events.filter(|lost| *lost > 0) {
            parts.push(format!("{lost} events were lost"));
        }
        parts.join("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use crtos_abi::{MAX_CELL_CPUS, ids::Pid};

    use super::*;
    use crate::threads::{COUNTERS_SIZE, Interrupts};

    fn thread(tid: u32, priority: u32, cpu: usize, ms: u64, switches: u64) -> Thread {
        Thread {
            pid: Pid::new(800).unwrap(),
            tid: Tid::new(tid).unwrap(),
            uid: 0,
            command: "control".into(),
            state: 'R',
            priority,
            cpu: RealmCpu::new(cpu),
            time: Duration::from_millis(ms),
            switches,
            local_calls: switches,
            remote_calls: 4,
            memory: 0,
        }
    }

    fn sample(at: Instant, idle_ms: [u64; 2], ranks: [u32; 2], threads: Vec<Thread>) -> Sample {
        let mut counters = Counters::parse(&vec![0; COUNTERS_SIZE]);
        counters.idle = idle_ms.map(Duration::from_millis).to_vec();
        counters.ranks = ranks.to_vec();
        counters.doorbells_taken = vec![0; MAX_CELL_CPUS];
        counters.devices =
            vec![Interrupts { vector: 0xd0, device: "ttyS1".into(), count: idle_ms[0] }];
        Sample { at, counters, threads }
    }

    #[test]
    fn a_table_has_what_happened_since_the_last_one() {
        let start = Instant::now();
        let cpus = "2-3".parse().unwrap();
        let before = sample(
            start,
            [100, 100],
            [RANK_IDLE, 81],
            vec![thread(801, 80, 1, 10, 1), thread(802, 0, 0, 0, 5)],
        );
        let now = sample(
            start + Duration::from_secs(2),
            [1600, 100],
            [RANK_IDLE, 81],
            vec![thread(801, 80, 1, 10, 1), thread(802, 0, 0, 500, 25)],
        );
        let mut events = Events::default();
        events.cpus.insert(1, Traced { latency: 12_300, interrupts: 2000 });
        events.faults.insert(802, 6);
        let page = Page::of(&before, &now, Some(&events), &cpus);
        assert_eq!(page.cpus[0].busy_percent.round(), 25.0);
        assert_eq!((page.cpus[1].busy_percent, page.cpus[1].tid), (100.0, Some(801)));
        assert_eq!((page.cpus[1].latency_ns, page.cpus[1].interrupts), (Some(12_300), Some(1000)));
        let [first, second] = &page.threads[..] else { panic!() };
        assert_eq!((first.tid, first.cpu_percent, first.switches), (801, 100.0, 0));
        assert_eq!((second.cpu_percent.round(), second.switches), (25.0, 10));
        assert_eq!((second.page_faults, second.cpu), (Some(3), Some(2)));
        assert_eq!(page.devices[0].interrupts, 750);
        let text = page.show();
        assert!(text.contains("control (801)") && text.contains("12.3"), "{text}");
        let plain = Page::of(&before, &now, None, &cpus).show();
        assert!(!plain.contains("LATENCY") && !plain.contains("FAULTS"));
    }

    #[test]
    fn a_cpu_that_slept_all_the_time_is_not_busy() {
        let start = Instant::now();
        let cpus = "2-3".parse().unwrap();
        let before = sample(start, [100, 100], [RANK_IDLE, RANK_IDLE], Vec::new());
        let now = sample(start + Duration::from_secs(1), [100, 5100], [RANK_IDLE, 1], Vec::new());
        let page = Page::of(&before, &now, None, &cpus);
        assert_eq!(page.cpus.iter().map(|row| row.busy_percent).collect::<Vec<_>>(), [0.0, 0.0]);
    }
}
