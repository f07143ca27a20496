// SPDX-License-Identifier: MIT OR Apache-2.0
//! One cell: starts the load, runs the program that measures, and reads what it found.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crtos_results::catalogue::{Figure, How, Load};
use crtos_results::{Cell, Histogram, Order, cyclictest, program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::install;

use super::exits::{self, Exits, Watch};
use super::load::Running;
use super::up_down;

/// Where the programs of `tools/bench/` are installed.
const PROGRAMS: &str = "bench";
/// SCHED_FIFO priority of cyclictest's measuring thread: the highest.
const HIGHEST: u32 = 99;
/// SCHED_FIFO priority of the measuring programs.
const PRIORITY: &str = "80";
/// SCHED_FIFO priority of what must go on under load without disturbing the measurement.
const BESIDE: &str = "1";
/// Largest value that cyclictest tells apart, in nanoseconds, for few and for many samples: it
/// looks at each possible value when it ends.
const LIMITS: [u32; 2] = [200_000, 1_000_000];
/// From how many samples on the large limit is used.
const MANY: u64 = 20_000;
/// How long a load has before a measurement begins.
const SETTLE: Duration = Duration::from_millis(500);
/// How long a program may take in addition to the time for its samples.
const PATIENCE: Duration = Duration::from_secs(100);
/// Time between two checks whether that is over. Each may disturb a measurement that Linux takes
/// part in.
const POLL: Duration = Duration::from_millis(200);
/// VM exits of a latency are counted in a run of their own: it has this part of the samples, and
/// not fewer than these.
const PART: u64 = 5;
const FEWEST: u64 = 1000;
/// Bytes of a failed program's messages that a result holds.
const WORDS: usize = 300;
/// File that tells Linux how much of a second real-time threads may run; -1 is all of it.
const THROTTLE: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// Carries out an order. A failure becomes the cell's outcome.
pub fn measure(order: &Order) -> Cell {
    let start = Instant::now();
    let throttle = Throttle::off();
    let mut cell = Cell {
        system: order.system.clone(),
        load: order.load.clone(),
        figure: order.figure.clone(),
        command: String::new(),
        outcome: Err(String::new()),
        own: None,
        exits: None,
        cpu: order.cpu,
        seconds: 0.0,
    };
    cell.outcome = (|| {
        let figure = Figure::named(&order.figure).ok_or("there is no such figure")?;
        let load = Load::named(&order.load).ok_or("there is no such load")?;
        let running = Running::start(load, order.load_cpus.as_deref())?;
        if running.is_some() {
            sleep(SETTLE);
        }
        let before = (!figure.under_load()).then(exits::read).flatten();
        let outcome = run(order, figure, &mut cell.command, None);
        cell.exits = match figure.how {
            // The measurement itself ends the hypervisor and starts it again.
            How::UpDown => None,
            _ if order.own => None,
            // Reading the counters meanwhile would disturb the samples.
            _ if figure.under_load() && outcome.is_ok() => exits_of_another_run(order, figure),
            _ if figure.under_load() => None,
            _ => before.zip(exits::read()).map(|(old, new)| exits::difference(&old, &new)),
        };
        drop(running);
        outcome
    })();
    drop(throttle);
    cell.seconds = start.elapsed().as_secs_f64();
    cell
}

/// Counts the exits while samples are taken, in a run with fewer samples that does nothing else.
fn exits_of_another_run(order: &Order, figure: &Figure) -> Option<Exits> {
    let samples = (order.samples / PART).max(FEWEST).min(order.samples);
    let order = Order { samples, ..order.clone() };
    let mut watch = Watch::begin(Duration::from_micros(samples * order.interval_us))?;
    run(&order, figure, &mut String::new(), Some(&mut watch)).ok()?;
    watch.end(order.cpu)
}

fn run(
    order: &Order,
    figure: &Figure,
    shown: &mut String,
    watch: Option<&mut Watch>,
) -> Result<Histogram, String> {
    match figure.how {
        How::Cyclictest => with_cyclictest(order, shown, watch),
        How::Program(name) => with_program(order, figure, name, shown, watch),
        How::UpDown => up_down::measure(order, shown),
    }
}

fn with_cyclictest(
    order: &Order,
    shown: &mut String,
    watch: Option<&mut Watch>,
) -> Result<Histogram, String> {
    let result = std::env::temp_dir().join(format!("crtos-bench-{}.json", std::process::id()));
    let limit = LIMITS[usize::from(order.samples >= MANY)];
    let mut words = words(&["cyclictest", "-m", "-q", "-t", "1", "-N", "--policy", "fifo"]);
    words.extend([format!("-p{HIGHEST}"), format!("-a{}", order.cpu)]);
    words.extend([format!("-i{}", order.interval_us), format!("-l{}", order.samples)]);
    words.extend([format!("-h{limit}"), format!("--json={}", result.display())]);
    // The thread that only waits for the end stays away from the CPU that is measured.
    let main = if order.system.realm { order.other_cpu } else { Some(0) };
    words.extend(main.map(|cpu| format!("--mainaffinity={cpu}")));
    let mut command = placed(order, BESIDE, words);
    *shown = describe(&command);
    let patience = PATIENCE + Duration::from_micros(order.samples * order.interval_us * 4);
    let ran = output(&mut command, patience, watch);
    let text = fs::read_to_string(&result);
    // It may not be there.
    let _ = fs::remove_file(&result);
    ran?;
    let text = text.map_err(|error| format!("cyclictest's result: {error}"))?;
    let threads =
        cyclictest::threads(&text).map_err(|error| format!("cyclictest's result: {error}"))?;
    threads.into_iter().next().ok_or_else(|| "cyclictest's result has no thread".to_owned())
}

fn with_program(
    order: &Order,
    figure: &Figure,
    program: &str,
    shown: &mut String,
    watch: Option<&mut Watch>,
) -> Result<Histogram, String> {
    let mut words = vec![install::part(&format!("{PROGRAMS}/{program}")).display().to_string()];
    words.extend([format!("-n{}", order.samples), format!("-c{}", order.cpu)]);
    if figure.under_load() {
        words.push(format!("-i{}", order.interval_us));
    }
    if figure.two_cpus {
        let other = order.other_cpu.ok_or("it needs two CPUs of its system")?;
        words.push(format!("-o{other}"));
    }
    words.push(figure.name.into());
    let mut command = placed(order, PRIORITY, words);
    *shown = describe(&command);
    let text = output(&mut command, PATIENCE, watch)?;
    program::read(&text, figure.name, order.virtual_time)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns the command that runs a program on the order's system with a SCHED_FIFO priority. Under
/// Linux it may use all CPUs, also isolated ones, and chooses one itself. In the realm, its shadow
/// uses the order's CPU.
fn placed(order: &Order, priority: &str, program: Vec<String>) -> Command {
    let mut all = words(&["chrt", "-f", priority]);
    match (order.system.realm, order.shadow_cpu) {
        (true, Some(cpu)) => {
            all.extend(words(&["taskset", "-c", &cpu.to_string(), "crtos", "run", "--"]));
        }
        (true, None) => all.extend(words(&["crtos", "run", "--"])),
        (false, _) => all.extend(words(&["taskset", "0xffffffffffffffff"])),
    }
    all.extend(program);
    let mut command = Command::new(&all[0]);
    command.args(&all[1..]);
    command
}

/// Returns the command line, for people.
pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a command to its end. What it prints goes to files, so that nobody has to read meanwhile.
pub fn output(
    command: &mut Command,
    patience: Duration,
    mut watch: Option<&mut Watch>,
) -> Result<String, String> {
    let system = |error: std::io::Error| error.to_string();
    let folder = std::env::temp_dir();
    let file = |end: &str| folder.join(format!("crtos-bench-{}.{end}", std::process::id()));
    let (out, err) = (file("out"), file("err"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).map_err(system)?)
        .stderr(fs::File::create(&err).map_err(system)?)
        .spawn()
        .map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
    let end = Instant::now() + patience;
    let process = i32::try_from(child.id()).map_err(|error| error.to_string())?;
    // A thread waits for it, and not a loop with a fast clock: each wake-up here may disturb the
    // program. There is one all the same, for an emulator may skip the time in which nobody waits
    // for anything but a disk, however long it is.
    let (sender, ended) = mpsc::channel();
    let waiter = thread::spawn(move || sender.send(child.wait()));
    let status = loop {
        let left = end.saturating_duration_since(Instant::now());
        let pause = watch.as_ref().map_or(POLL, |watch| watch.pause()).min(left);
        match ended.recv_timeout(pause) {
            Ok(status) => break Some(status.map_err(system)?),
            Err(RecvTimeoutError::Timeout) if !left.is_zero() => {
                if let Some(watch) = watch.as_mut() {
                    watch.look();
                }
            }
            Err(_) => {
                // It may just have ended.
                let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
                break None;
            }
        }
    };
    // Nothing is lost: the program has ended.
    let _ = waiter.join();
    let text = fs::read_to_string(&out).unwrap_or_default();
    let complaint = fs::read(&err).unwrap_or_default();
    for file in [out, err] {
        // Nothing depends on it.
        let _ = fs::remove_file(file);
    }
    match status {
        Some(status) if status.success() => Ok(text),
        Some(status) => {
            let words = String::from_utf8_lossy(&complaint);
            let words: String = words.trim().chars().take(WORDS).collect();
            Err(format!("{status}: {words}"))
        }
        None => Err(format!("not done after {} s", patience.as_secs())),
    }
}

/// Linux does not stop real-time threads that run for long; as before once it is dropped.
struct Throttle(Option<String>);

impl Throttle {
    fn off() -> Self {
        let before = fs::read_to_string(THROTTLE).ok();
        Self(before.filter(|_| fs::write(THROTTLE, "-1").is_ok()))
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // The setting is the machine's; there is nobody to tell.
            let _ = fs::write(THROTTLE, before.trim());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_programs_are_told() {
        let second = Duration::from_secs(1);
        let sh = |script: &str| output(Command::new("sh").args(["-c", script]), second, None);
        assert_eq!(sh("echo fine"), Ok("fine\n".into()));
        assert!(sh("echo why >&2; exit 3").unwrap_err().ends_with("why"));
        assert_eq!(sh("sleep 9"), Err("not done after 1 s".into()));
        assert!(output(&mut Command::new("/no/such/program"), second, None).is_err());
    }
}
