// SPDX-License-Identifier: MIT OR Apache-2.0
//! The longest sections with interrupts off of the realm's kernel, in instructions of the CPU on
//! which they are.
//!
//! A plugin of QEMU (`tools/harness/observer/sections.c`) counts what each CPU executes in the
//! kernel and in the hypervisor from the place where a section begins to the one where it ends. The
//! kernel's file lists these places (`kernel/core/src/sections.rs`). The machine runs in its own
//! time, so that interrupts come everywhere.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSection};

use super::observer::{self, HYPERVISOR, Kernel};
use crate::vm::{Config, Outcome, Vm};
use crate::{programs, progress, run};

/// The most instructions that a section is to have.
const GOAL: u64 = 1500;
/// Those that are shown at least have so many.
const SHOWN: u64 = 700;
/// How long the machine may take to boot on a busy host.
const BOOT_PATIENCE: Duration = Duration::from_secs(400);
/// How long the realm may take to start.
const REALM_PATIENCE: Duration = Duration::from_secs(120);
/// Seconds that a program has.
const SECONDS: u64 = 60;
/// The CPUs of the realms that are measured.
const REALMS: &[&str] = &["3", "2,3"];
/// What has some of these programs.
const PACKAGES: &[&str] = &["rt-tests"];
/// Programs that run beside those of `tests/abi`, and how many CPUs they need.
const FURTHER: &[(usize, &str)] = &[
    (1, "cyclictest -q -m -p 90 -t 4 -i 1000 -d 100 -l 300"),
    (1, "cyclictest -q -m -S -p 90 -i 1000 -l 300"),
    (1, "hackbench -p -g 2 -f 5 -l 20"),
    (1, "hackbench -T -p -g 2 -f 5 -l 20"),
    (1, "hackbench -g 2 -f 5 -l 20"),
    (2, "pi_stress --duration=3 --quiet --inversions=-1 -g 1"),
    (1, "ptsematest -q -p 80 -i 1000 -l 100"),
    (1, "sigwaittest -q -p 80 -i 1000 -l 100"),
    (1, "signaltest -q -p 80 -t 2 -l 200"),
    (1, "pmqtest -q -p 80 -i 1000 -l 100"),
    (1, "/usr/lib/crtos-tests/programs/neighbour fork all"),
];

/// The list of places in the kernel's file, and the plugin's letters for its kinds.
const LIST: &str = ".crtos.sections";
const KINDS: [char; 4] = ['b', 'e', 'l', 'f'];
/// The instruction that is in each loop that waits for another CPU.
const PAUSE: [u8; 2] = [0xf3, 0x90];
/// Size of the plugin's table: its first word, then for each CPU pairs of places with four words
/// each.
const CPUS: usize = 8;
const PAIRS: usize = 16384;
const WORD: usize = size_of::<u64>();
const TABLE: usize = WORD + CPUS * PAIRS * 4 * WORD;
/// Functions that begin and end sections for others.
const MEANS: &[&str] = &[
    "kernel/core/src/sections.rs",
    "kernel/core/src/arch/cpu.rs",
    "kernel/core/src/arch/interrupts.rs",
    "kernel/core/src/arch/percpu.rs",
    "kernel/core/src/sync.rs",
    "/rustc/",
];

/// The longest section between two places.
#[derive(Clone, Default)]
struct Longest {
    /// Instructions without those of loops that wait for another CPU.
    own: u64,
    /// The most of these.
    waiting: u64,
    /// What ran when `own` was seen.
    program: String,
}

/// By the addresses at which they begin and end.
type Sections = BTreeMap<(u64, u64), Longest>;

/// Measures on one CPU and on two, or on as many as `count` says; returns 1 if a section is longer
/// than it is to be.
pub fn sections(only: &str, count: Option<u8>) -> Result<u8> {
    let places = Places::of(Kernel::staged()?)?;
    let plugin = observer::compile("sections")?;
    let mut status = 0;
    for cpus in
        REALMS.iter().filter(|cpus| count.is_none_or(|count| number(cpus) == usize::from(count)))
    {
        let seen = observe(&places, &plugin, cpus, only)?;
        let over = report(&places, cpus, &seen)?;
        if over {
            status = 1;
        }
    }
    Ok(status)
}

/// How many CPUs a realm has.
fn number(cpus: &str) -> usize {
    cpus.split(',').count()
}

/// What is observed of the kernel.
struct Places {
    kernel: Kernel,
    /// Lines for the plugin.
    lines: String,
}

impl Places {
    fn of(kernel: Kernel) -> Result<Self> {
        let file = object::File::parse(&*kernel.bytes).context("read the kernel's file")?;
        let mut lines = String::new();
        for Range { start, end } in [kernel.code.clone(), HYPERVISOR] {
            writeln!(lines, "c {start:x} {end:x}")?;
        }
        for entry in kernel.entries() {
            writeln!(lines, "s {entry:x}")?;
        }
        // Also where these bytes are in the middle of an instruction; the plugin looks at whole
        // ones.
        let code = file.section_by_name(".text").context("the kernel has no code")?.data()?;
        for (offset, _) in code.windows(2).enumerate().filter(|(_, bytes)| *bytes == PAUSE) {
            writeln!(lines, "p {:x}", kernel.code.start + offset as u64)?;
        }
        let list = file.section_by_name(LIST).with_context(|| format!("no section {LIST}"))?;
        for entry in observer::words(list.data()?).chunks_exact(2) {
            let kind = KINDS.get(usize::try_from(entry[1])?).context("a kind of place")?;
            writeln!(lines, "{kind} {:x}", entry[0])?;
        }
        Ok(Self { kernel, lines })
    }

    /// Names of places: the function that wants the section to begin or end there, and the line.
    fn names(&self, addresses: &[u64]) -> Result<BTreeMap<u64, String>> {
        let mut addr2line = Command::new("addr2line");
        addr2line.arg("-e").arg(&self.kernel.file).args(["-a", "-f", "-i", "-C"]);
        addr2line.args(addresses.iter().map(|address| format!("{address:#x}")));
        let text = run::output(&mut addr2line)?;
        let mut names = BTreeMap::new();
        for part in text.split("0x").skip(1) {
            let mut lines = part.lines();
            let address = u64::from_str_radix(lines.next().unwrap_or_default(), 16)?;
            let lines: Vec<_> = lines.collect();
            let frames: Vec<_> = lines.chunks_exact(2).collect();
            let frame = frames
                .iter()
                .find(|frame| !MEANS.iter().any(|file| frame[1].contains(file)))
                .or(frames.last());
            let name = match frame {
                _ if let Some(vector) = self.kernel.vector(address) => match vector {
                    0..32 => format!("exception {vector}"),
                    _ => format!("interrupt {vector}"),
                },
                Some(frame) => {
                    let line = frame[1].split(" (").next().unwrap_or_default();
                    let line = line.rsplit_once("/kernel/").map_or(line, |(_, line)| line);
                    let function = frame[0].split('<').next().unwrap_or_default();
                    format!("{function} {line}")
                }
                None => format!("{address:#x}"),
            };
            names.insert(address, name);
        }
        Ok(names)
    }
}

/// Runs the programs in a realm that has these CPUs.
fn observe(places: &Places, plugin: &Path, cpus: &str, only: &str) -> Result<Sections> {
    let scratch = tempfile::tempdir()?;
    let (list, table) = (scratch.path().join("places"), scratch.path().join("table"));
    fs::write(&list, &places.lines)?;
    File::create(&table)?.set_len(TABLE as u64)?;
    let files = format!("places={},table={}", list.display(), table.display());
    let config = Config {
        packages: PACKAGES.iter().map(|&name| name.to_owned()).collect(),
        plugins: vec![format!("{},{files}", plugin.display())],
        ..Config::default()
    };
    let mut vm = Vm::boot(&config, Some(Instant::now() + BOOT_PATIENCE))?;
    let up = format!("modprobe crtos && crtos up --cpus {cpus} --memory 768M");
    let (outcome, text) = vm.capture(&up, REALM_PATIENCE)?;
    if outcome != Outcome::Exit(0) {
        bail!("the realm does not start, {}\n{text}\n{}", outcome.explain(), vm.console_tail());
    }
    let mut seen = Sections::new();
    note(&mut seen, &table, "start of the realm")?;
    let abi = programs::alone()?.into_iter().map(|name| format!("{}/{name}", programs::ABI));
    let count = number(cpus);
    let further = FURTHER.iter().filter(|(needed, _)| *needed <= count);
    let commands = abi.chain(further.map(|(_, command)| (*command).to_owned()));
    for command in commands.filter(|command| command.contains(only)) {
        let name = command.rsplit_once('/').map_or(&*command, |(_, name)| name);
        let _step = progress::step(format!("{name} in the realm on CPUs {cpus}"));
        let script = format!(
            "cd \"$(mktemp -d)\" && timeout -k 5 {SECONDS} crtos run -- {command} >out 2>&1 || {{ s=$?; tail -n 3 out; exit $s; }}"
        );
        match vm.capture(&script, Duration::from_secs(2 * SECONDS))? {
            (Outcome::Exit(0), _) => {}
            // It has been observed all the same.
            (Outcome::Exit(status), text) => {
                eprintln!("x: {name} ended with {status}: {}", text.trim())
            }
            (outcome, _) => bail!("{name}: {}\n{}", outcome.explain(), vm.console_tail()),
        }
        note(&mut seen, &table, name)?;
    }
    vm.forget_console();
    Ok(seen)
}

/// Takes over what the plugin has seen until now; what became longer did so in `program`.
fn note(seen: &mut Sections, table: &Path, program: &str) -> Result<()> {
    let table = observer::words(&fs::read(table)?);
    if table.first() != Some(&0) {
        bail!("the observer's table is too small");
    }
    for pair in table[1..].chunks_exact(4).filter(|pair| pair[0] != 0) {
        let longest = seen.entry((pair[0], pair[1])).or_default();
        longest.waiting = longest.waiting.max(pair[3]);
        if longest.own < pair[2] {
            longest.own = pair[2];
            longest.program = program.split(' ').next().unwrap_or_default().to_owned();
        }
    }
    Ok(())
}

/// Prints what was seen; says whether something was too long.
fn report(places: &Places, cpus: &str, seen: &Sections) -> Result<bool> {
    let mut sorted: Vec<_> = seen.iter().collect();
    sorted.sort_by_key(|(_, longest)| std::cmp::Reverse(longest.own));
    let addresses: Vec<_> = sorted.iter().flat_map(|((begin, end), _)| [*begin, *end]).collect();
    let names = places.names(&addresses)?;
    let name = |address: &u64| names.get(address).map_or("?", String::as_str);
    println!(
        "sections with interrupts off, the realm on CPUs {cpus}: {} pairs of places",
        seen.len()
    );
    println!("{:>8}  {:<14} {:<52} end", "longest", "seen in", "begin");
    for ((begin, end), longest) in sorted.iter().take_while(|(_, longest)| longest.own >= SHOWN) {
        println!("{:>8}  {:<14} {:<52} {}", longest.own, longest.program, name(begin), name(end));
    }
    if let Some(((begin, end), longest)) = sorted.iter().max_by_key(|(_, longest)| longest.waiting)
    {
        println!(
            "{:>8}  at most beside that in a loop that waits for another CPU: {} to {}",
            longest.waiting,
            name(begin),
            name(end)
        );
    }
    let over: Vec<_> = sorted.iter().take_while(|(_, longest)| longest.own > GOAL).collect();
    for ((begin, end), longest) in &over {
        println!("longer than {GOAL}: {} from {} to {}", longest.own, name(begin), name(end));
    }
    println!();
    Ok(!over.is_empty())
}
