// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the instructions of calls and wake-ups are spent on, and by which CPUs.
//!
//! In virtual time the work of all CPUs adds up. A plugin of QEMU
//! (`tools/harness/observer/calls.c`) notes every block of instructions while a program takes its
//! samples. So what was executed on the CPUs that a sample is served by, its *path*, is told apart
//! from what others did meanwhile. A call is one of a program of `tools/bench/`, between two
//! readings of the clock. A wake-up is one of cyclictest, from the first instruction of the timer's
//! interrupt to the thread's reading of the clock, or one by a device, from the reading before the
//! device is given its reason. Of the latter, what comes before the device's interrupt is told
//! apart: who gives the reason executes that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail};
use crtos_abi::channel::{DEVICE_VECTOR, DEVICE_VECTORS, TIMER_VECTOR};
use crtos_results::Order;
use crtos_results::catalogue::{Figure, How, LOADS, NO_LOAD};
use crtos_results::order::named;

use super::listing::Listing;
use super::machine::Measuring;
use super::observer::{self, HYPERVISOR, Kernel, Trace};
use super::system::{CPU, Target};
use crate::{paths, progress, run};

/// The program that measures calls.
const PROGRAM: &str = "syscalls";
/// Microseconds from one wake-up to the next; QEMU's network cards interrupt every 128 at most.
const INTERVAL: u64 = 200;
/// Samples before the first one that counts.
const WARM_UP: usize = 10;
/// What the plugin has instead of a count where there is a mark.
const MARK: u64 = 0xfff;
/// How long the list of Linux's functions may take.
const PATIENCE: Duration = Duration::from_secs(100);
/// So many of the longest calls are shown, with so many functions each.
const SHOWN: usize = 3;
const FUNCTIONS: usize = 24;
/// Functions of Linux by which one knows the CPUs that serve a call.
const SERVING: [&str; 2] = ["crtos_realm_doorbell", "crtos_remote"];
/// The number of the CPU that takes the samples.
const OWN: u8 = 0;

/// Measures a figure, a wake-up under `load`, and prints where its instructions went. With `list`
/// it prints each instruction of the median.
pub fn calls(target: Target, name: &str, load: &str, samples: u64, list: bool) -> Result<u8> {
    let figure = Figure::named(name)
        .filter(|figure| {
            let observed = [PROGRAM, observer::DEVICES];
            target.realm
                && match figure.how {
                    How::Cyclictest => true,
                    How::Program(program) => observed.contains(&program),
                    How::UpDown => false,
                }
        })
        .with_context(|| format!("{name} is neither call nor wake-up, or {target} has no realm"))?;
    named("load", LOADS, |load| load.name, &[load.to_owned()]).map_err(Error::msg)?;
    if !figure.under_load() && load != NO_LOAD {
        bail!("{name} is measured without load");
    }
    let mut trace = Trace::new()?;
    let plugin = observer::compile("calls")?;
    let kernel = Kernel::staged()?;
    let (start, marks) = match figure.how {
        How::Program(program) => {
            let (readings, function) = observer::readings(program)?;
            (Start::Reading(function), observer::marks(readings))
        }
        _ => {
            let entry = kernel.entry(TIMER_VECTOR.into());
            (Start::Entry(entry, samples), format!("from={entry:x},"))
        }
    };
    let plugin = format!("{},{marks}{}", plugin.display(), trace.argument());
    let mut machine = Measuring::observed(target, plugin)?;
    let order = Order {
        system: target.describe()?,
        load: load.to_owned(),
        figure: figure.name.to_owned(),
        samples,
        interval_us: INTERVAL,
        cpu: CPU,
        other_cpu: None,
        load_cpus: (load != NO_LOAD).then(|| target.load_cpus()),
        shadow_cpu: target.shadow_cpu(),
        virtual_time: true,
        own: true,
    };
    let step = progress::step(format!("{name} in {target} under {load}"));
    machine.measure(&order)?.outcome.map_err(Error::msg)?;
    let linux = machine.run(&["cat".to_owned(), "/proc/kallsyms".to_owned()], PATIENCE)?;
    drop((machine, step));
    let names = Names::read(&linux)?;
    let device = matches!(figure.how, How::Program(program) if program == observer::DEVICES);
    let device = device.then(|| device_entries(&kernel));
    let samples = Samples { names, blocks: trace.words()?, start, device };
    samples.report(&format!("{name}, {target}, load {load}"))?;
    if list {
        samples.list()?;
    }
    Ok(0)
}

/// Where interrupts of devices enter the kernel.
fn device_entries(kernel: &Kernel) -> Range<u64> {
    let first = u64::from(DEVICE_VECTOR);
    let entry = |vector| kernel.entry(vector) & ADDRESS;
    entry(first)..entry(first + DEVICE_VECTORS as u64)
}

/// Where a sample begins. It ends when the program reads its clock.
enum Start {
    /// Where an interrupt enters the kernel, and how many do before the program comes to its end.
    Entry(u64, u64),
    /// Where the program reads its clock for the first time of two: in the function that has these
    /// addresses, if that is known.
    Reading(Option<Range<u64>>),
}

/// The bits of an address that the plugin keeps.
const ADDRESS: u64 = 0xffff_ffff_ffff;

/// Functions by their first address, in the 48 bits that the plugin keeps.
struct Names {
    linux: BTreeMap<u64, String>,
    kernel: BTreeMap<u64, String>,
}

impl Names {
    fn read(linux: &str) -> Result<Self> {
        let mut nm = Command::new("nm");
        nm.arg("-C").arg(paths::stage().join("usr/lib/crtos/kernel.elf"));
        Ok(Self { linux: functions(linux), kernel: functions(&run::output(&mut nm)?) })
    }

    fn of(&self, cpu: u8, address: u64) -> &str {
        let names = if cpu == OWN { &self.kernel } else { &self.linux };
        match address {
            address if HYPERVISOR.contains(&address) => "(hypervisor)",
            address if address >> 47 == 0 => "(program)",
            address => names.range(..=address).next_back().map_or("?", |(_, name)| name),
        }
    }
}

/// Lines of an address, a letter and a name.
fn functions(text: &str) -> BTreeMap<u64, String> {
    let line = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let is_code = "tTwW".contains(words.next()?);
        // A module's name comes after the function's.
        let name = words.next()?.split('\t').next()?.trim();
        is_code.then(|| (address & ADDRESS, name.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// A block of instructions that a CPU executed.
struct Block {
    cpu: u8,
    count: u64,
    address: u64,
}

impl Block {
    fn new(word: u64) -> Self {
        Self { cpu: (word >> 60) as u8, count: word >> 48 & 0xfff, address: word & ADDRESS }
    }
}

/// What the plugin has written, and what it means.
struct Samples {
    names: Names,
    blocks: Vec<u64>,
    start: Start,
    /// Where a device's interrupt enters the kernel, if samples have one.
    device: Option<Range<u64>>,
}

/// Instructions by CPU and function.
type Functions<'a> = BTreeMap<(u8, &'a str), i64>;

/// What a CPU has to do with a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// It makes it.
    Realm,
    /// It serves it in Linux.
    Serving,
    /// It does something else in Linux.
    Other,
}

impl Role {
    const ALL: [Self; 3] = [Self::Realm, Self::Serving, Self::Other];

    fn name(self) -> &'static str {
        match self {
            Self::Realm => "the realm's CPU",
            Self::Serving => "Linux's CPUs that serve it",
            Self::Other => "other CPUs of Linux",
        }
    }
}

/// Instructions by role and function.
type ByRole<'a> = BTreeMap<(Role, &'a str), i64>;

/// What is counted of a sample.
type Count = fn(&Call<'_>) -> i64;

/// One sample.
#[derive(Clone)]
struct Call<'a> {
    /// Which one, the first has 0.
    number: usize,
    functions: Functions<'a>,
    /// What of these came before the device's interrupt, and that it has come.
    before: Functions<'a>,
    has_interrupted: bool,
    /// The CPUs that served it.
    serving: BTreeSet<u8>,
    /// Where its blocks are among all.
    blocks: Range<usize>,
}

impl<'a> Call<'a> {
    /// That it begins with the block `first` of all.
    fn begin(number: usize, first: usize) -> Self {
        Self {
            number,
            functions: Functions::new(),
            before: Functions::new(),
            has_interrupted: false,
            serving: [OWN].into(),
            blocks: first..first,
        }
    }

    fn by_role(&self) -> ByRole<'a> {
        self.roles(&self.functions)
    }

    /// What came from the device's interrupt on.
    fn after(&self) -> ByRole<'a> {
        let mut sums = self.by_role();
        for (function, count) in self.roles(&self.before) {
            *sums.entry(function).or_default() -= count;
        }
        sums
    }

    fn roles(&self, functions: &Functions<'a>) -> ByRole<'a> {
        let mut sums = ByRole::new();
        for ((cpu, name), count) in functions {
            let role = match *cpu {
                OWN => Role::Realm,
                cpu if self.serving.contains(&cpu) => Role::Serving,
                _ => Role::Other,
            };
            *sums.entry((role, *name)).or_default() += count;
        }
        sums
    }

    fn more_than(&self, other: &Self) -> ByRole<'a> {
        let mut sums = self.by_role();
        for (function, count) in other.by_role() {
            *sums.entry(function).or_default() -= count;
        }
        sums
    }

    fn sum(&self, counts: impl Fn(u8) -> bool) -> i64 {
        let counted = self.functions.iter().filter(|((cpu, _), _)| counts(*cpu));
        counted.map(|(_, count)| count).sum()
    }

    fn all(&self) -> i64 {
        self.sum(|_| true)
    }

    fn path(&self) -> i64 {
        self.sum(|cpu| self.serving.contains(&cpu))
    }

    /// What of the path came before the device's interrupt.
    fn path_before(&self) -> i64 {
        let counted = self.before.iter().filter(|((cpu, _), _)| self.serving.contains(cpu));
        counted.map(|(_, count)| count).sum()
    }
}

impl Samples {
    /// Where samples begin.
    fn start(&self) -> Range<u64> {
        let at = |address| address..address + 1;
        match &self.start {
            Start::Entry(address, _) => return at(address & ADDRESS),
            Start::Reading(Some(function)) => return function.clone(),
            Start::Reading(None) => {}
        }
        let mut marks: BTreeMap<u64, usize> = BTreeMap::new();
        for block in self.blocks.iter().map(|word| Block::new(*word)).filter(|b| b.count == MARK) {
            *marks.entry(block.address).or_default() += 1;
        }
        let most = marks.values().copied().max().unwrap_or(0);
        // Those two that come most often. The first address is that of the first reading: the loop
        // begins with it, and the program lays them out so.
        marks.iter().find(|mark| *mark.1 == most).map_or(0..0, |mark| at(*mark.0))
    }

    fn calls(&self) -> Vec<Call<'_>> {
        let start = self.start();
        let mut calls = Vec::new();
        let mut call: Option<Call<'_>> = None;
        for (place, block) in self.blocks.iter().map(|word| Block::new(*word)).enumerate() {
            match &mut call {
                _ if block.count == MARK && start.contains(&block.address) => {
                    call = Some(Call::begin(calls.len(), place + 1));
                }
                _ if block.count == MARK => calls.extend(call.take()),
                Some(call) => {
                    call.blocks.end = place + 1;
                    let name = self.names.of(block.cpu, block.address);
                    if SERVING.contains(&name) {
                        call.serving.insert(block.cpu);
                    }
                    let is_entry =
                        self.device.as_ref().is_some_and(|device| device.contains(&block.address));
                    call.has_interrupted |= is_entry && block.cpu == OWN;
                    let count = block.count as i64;
                    *call.functions.entry((block.cpu, name)).or_default() += count;
                    if !call.has_interrupted {
                        *call.before.entry((block.cpu, name)).or_default() += count;
                    }
                }
                None => {}
            }
        }
        if let Start::Entry(_, count) = self.start {
            calls.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        }
        calls.drain(..WARM_UP.min(calls.len()));
        calls
    }

    fn report(&self, what: &str) -> Result<()> {
        let mut calls = self.calls();
        if calls.is_empty() {
            bail!("the observer has seen no samples");
        }
        println!("{what}: {} samples, in instructions", calls.len());
        println!("{:<24} {:>8} {:>8} {:>8} {:>8}", "", "least", "median", "99.9 %", "most");
        let rows: [(&str, Count); 5] = [
            ("CPUs that serve it", |call| call.path()),
            ("all CPUs", |call| call.all()),
            ("before the interrupt", |call| call.path_before()),
            ("from the interrupt on", |call| call.path() - call.path_before()),
            ("the same of all CPUs", |call| call.all() - call.before.values().sum::<i64>()),
        ];
        let shown = if self.device.is_some() { rows.len() } else { 2 };
        for (name, count) in rows.into_iter().take(shown) {
            let mut sums: Vec<i64> = calls.iter().map(count).collect();
            sums.sort_unstable();
            let at = |share: f64| sums[((sums.len() - 1) as f64 * share) as usize];
            println!("{name:<24} {:>8} {:>8} {:>8} {:>8}", at(0.0), at(0.5), at(0.999), at(1.0));
        }
        calls.sort_by_key(Call::path);
        let median = calls[calls.len() / 2].clone();
        if self.device.is_some() {
            println!("\nthe median of the first, before the device's interrupt, by function");
            show(median.roles(&median.before));
            println!("\nfrom the device's interrupt on");
            show(median.after());
        } else {
            println!("\nthe median of the first, by function");
            show(median.by_role());
        }
        for call in calls.iter().rev().take(SHOWN) {
            let (path, all, number) = (call.path(), call.all(), call.number);
            println!("\nlongest on the CPUs that serve it: {path}, of all {all} (sample {number})");
            println!("more than that by function");
            show(call.more_than(&median));
        }
        calls.sort_by_key(Call::all);
        for call in calls.iter().rev().take(SHOWN) {
            let (path, all, number) = (call.path(), call.all(), call.number);
            println!("\nlongest of all: {all}, on the CPUs that serve it {path} (sample {number})");
            println!("more than that by function");
            show(call.more_than(&median));
        }
        Ok(())
    }

    /// Prints the instructions of the realm's CPU in the median, from the device's interrupt on if
    /// there is one. What is not the kernel's is a line for each block.
    fn list(&self) -> Result<()> {
        let kernel = Listing::of(&paths::stage().join("usr/lib/crtos/kernel.elf"), ADDRESS)?;
        let mut calls = self.calls();
        calls.sort_by_key(Call::path);
        let Some(median) = calls.get(calls.len() / 2) else { return Ok(()) };
        println!("\nthe instructions of the realm's CPU in the median (sample {})", median.number);
        let blocks = self.blocks[median.blocks.clone()].iter().map(|word| Block::new(*word));
        let own = blocks.filter(|block| block.cpu == OWN);
        let is_before = |block: &Block| {
            self.device.as_ref().is_some_and(|device| !device.contains(&block.address))
        };
        let (mut all, mut last) = (0, "");
        for block in own.skip_while(is_before) {
            let name = self.names.of(OWN, block.address);
            if name != last {
                println!("{all:>6} {name}");
                last = name;
            }
            for (address, what) in kernel.from(block.address, block.count) {
                println!("           {address:x}  {what}");
            }
            all += block.count;
        }
        println!("{all:>6}");
        Ok(())
    }
}

/// Prints each role's instructions and the functions with the most of them.
fn show(functions: ByRole<'_>) {
    for role in Role::ALL {
        let mut of_role: Vec<_> = functions.iter().filter(|((of, _), _)| *of == role).collect();
        of_role.sort_by_key(|(_, count)| -**count);
        let sum: i64 = of_role.iter().map(|(_, count)| **count).sum();
        let most = of_role.iter().take(FUNCTIONS).filter(|(_, count)| **count > 0);
        let list: Vec<_> =
            most.map(|((_, name), count)| format!("{} {count}", short(name))).collect();
        println!("  {} {sum}: {}", role.name(), list.join(", "));
    }
}

/// A name without what the compiler adds to it.
fn short(name: &str) -> &str {
    let name = name.split(".constprop").next().unwrap_or(name);
    name.split(".isra").next().unwrap_or(name)
}
