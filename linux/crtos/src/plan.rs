// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos plan`: a configuration for this machine, with the reason of each choice.

use std::{fmt::Write, fs};

use crtos_abi::MAX_CELL_CPUS;

use crate::{
    code::Code,
    config,
    cpulist::CpuList,
    driven::Driven,
    failure::{Failure, Result},
    machine::Machine,
    net::Net,
    requirements::{self, MIN_REALM},
    size::Size,
    text,
};

/// What the command does, for the messages of failures.
const ASKED: &str = "plan a realm for this machine";
/// Most memory that is proposed: programs that need more know that they do.
const ENOUGH: Size = Size::mib(512);
/// Most interrupts and devices that a comment names.
const MOST_NAMED: usize = 12;

/// Propose a configuration for this machine
///
/// Looks at CPUs, cores and NUMA nodes, at isolated CPUs, interrupts, memory and devices, and
/// prints a configuration for `crtos up` with the reason of each choice. Nothing is changed.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  crtos plan
  crtos plan >/etc/crtos/realm.toml && crtos up --dry-run

Exit status: 0 there is a proposal; 1 this machine has no CPU or no memory to give; 2 usage.")]
pub struct Plan {}

impl Plan {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        anstream::print!("{}", proposal(&Machine::here())?);
        Ok(())
    }
}

/// CPUs that are proposed.
struct Cpus {
    /// As `crtos up` takes them.
    value: String,
    list: CpuList,
    reason: String,
}

/// Returns the text of a configuration.
fn proposal(machine: &Machine) -> Result<String> {
    let cpus = cpus(machine)?;
    requirements::cpus(machine, &cpus.list, &CpuList::default())?;
    let (memory, why) = memory(machine)?;
    let mut text = String::new();
    let mut comment = |words: &str| wrap(&mut text, words);
    comment(&format!(
        "Options of `crtos up`, under the same names (realm.toml(5)), as `crtos plan` proposes them \
         for this machine. `crtos up` takes them from {}; options on its command line come first. \
         `crtos up --dry-run` says what would happen.",
        config::PATH
    ));
    text.push('\n');
    wrap(&mut text, &cpus.reason);
    wrap(&mut text, &interrupts(machine, &cpus.list));
    // Debug writes what TOML reads: these texts hold digits, letters, commas and colons alone.
    let _ = writeln!(text, "cpus = {:?}\n", cpus.value);
    wrap(&mut text, &why);
    let _ = writeln!(text, "memory = \"{}M\"\n", memory.0 >> 20);
    devices(machine, &mut text);
    wrap(
        &mut text,
        "A virtual Ethernet between Linux and the realm: the address of the realm's end.",
    );
    text.push_str("#ethernet = [\"10.9.0.2/24\"]\n\n");
    wrap(
        &mut text,
        "A locked realm ends only when its programs have ended; until then not even root stops it.",
    );
    text.push_str("#locked = true\n");
    Ok(text)
}

/// Writes a comment of several lines.
fn wrap(text: &mut String, words: &str) {
    /// Width of a line.
    const WIDTH: usize = 90;
    let mut line = String::new();
    // Nothing that came from elsewhere can end the comment.
    for word in text::harmless(words.as_bytes()).split_whitespace() {
        if !line.is_empty() && line.len() + word.len() >= WIDTH {
            let _ = writeln!(text, "#{line}");
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(text, "#{line}");
    }
}

/// Chooses CPUs: isolated ones, or else the last whole core that leaves Linux another one.
fn cpus(machine: &Machine) -> Result<Cpus> {
    let online = machine.online();
    let can_go = |cpu: u32| online.contains(cpu) && machine.can_unplug(cpu);
    let isolated: CpuList =
        machine.isolated().iter().filter(|cpu| can_go(*cpu)).take(MAX_CELL_CPUS).collect();
    if !isolated.is_empty() && isolated.len() < online.len() {
        return Ok(Cpus {
            value: isolated.to_string(),
            reason: format!(
                "{}: somebody has isolated them from the programs of Linux (isolcpus=), so Linux \
                 misses them least. The realm needs no isolation: take the parameter out of the \
                 boot loader, and Linux has these CPUs whenever the realm is down.",
                isolated.named()
            ),
            list: isolated,
        });
    }
    let core = |cpu: u32| {
        let threads = machine.siblings(cpu);
        if threads.contains(cpu) { threads } else { [cpu].into_iter().collect() }
    };
    let fits = |core: &CpuList| {
        core.len() < online.len() && core.len() <= MAX_CELL_CPUS && core.iter().all(can_go)
    };
    let all: Vec<u32> = online.iter().collect();
    let Some((cpu, core)) =
        all.into_iter().rev().map(|cpu| (cpu, core(cpu))).find(|(_, core)| fits(core))
    else {
        return Err(Failure::new(
            Code::NoSpareCpu,
            ASKED,
            format!("Linux cannot give up a core of {}", online.named()),
        )
        .remedy(
            "a machine with two cores or more is needed; `crtos down` first if the realm is up",
        ));
    };
    let node = node_of(machine, cpu).map(|node| format!(" of NUMA node {node}"));
    let node = node.unwrap_or_default();
    if core.len() == 1 {
        return Ok(Cpus {
            value: cpu.to_string(),
            reason: format!(
                "CPU {cpu}, the last one{node}: its core has one hardware thread, and Linux's own \
                 work (boot CPU, most interrupts) is on the first ones. Others are named by number \
                 (2-3), by core (core:3) or by NUMA node (node:1)."
            ),
            list: core,
        });
    }
    Ok(Cpus {
        value: format!("core:{cpu}"),
        reason: format!(
            "The whole core of CPU {cpu}{node}, that is {}: hardware threads share caches and \
             execution units, so a thread that Linux keeps would disturb the realm. Linux's own \
             work is on the first cores. Others are named by number (2-3), by core (core:3) or by \
             NUMA node (node:1).",
            core.named()
        ),
        list: core,
    })
}

fn node_of(machine: &Machine, cpu: u32) -> Option<u32> {
    /// Nodes that are looked at.
    const MOST: u32 = 64;
    (0..MOST).find(|node| machine.cpus_of_node(*node).contains(cpu))
}

/// Tells which interrupts arrive at these CPUs now.
fn interrupts(machine: &Machine, cpus: &CpuList) -> String {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(machine.path("/proc/irq")).into_iter().flatten().flatten() {
        let folder = entry.path();
        let read = |file| fs::read_to_string(folder.join(file)).ok();
        let at: Option<CpuList> =
            read("effective_affinity_list").and_then(|list| list.trim().parse().ok());
        if !at.is_some_and(|at| at.iter().any(|cpu| cpus.contains(cpu))) {
            continue;
        }
        // The folders in it have the names of those who wait for the interrupt.
        let actions = fs::read_dir(&folder).into_iter().flatten().flatten();
        names.extend(
            actions
                .filter(|action| action.path().is_dir())
                .map(|action| action.file_name().to_string_lossy().into_owned()),
        );
    }
    names.sort();
    names.dedup();
    if names.is_empty() {
        return "No interrupt of a device of Linux arrives there now.".into();
    }
    let more = names.len().saturating_sub(MOST_NAMED);
    names.truncate(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} others") } else { String::new() };
    format!(
        "Interrupts of Linux that arrive there now, which Linux moves by itself: {}{more}.",
        names.join(", ")
    )
}

/// Chooses how much memory, and says why.
fn memory(machine: &Machine) -> Result<(Size, String)> {
    let available = machine.available().unwrap_or(Size(0));
    // A quarter in steps of the least that a realm needs.
    let quarter = Size(available.0 / 4 / MIN_REALM.0 * MIN_REALM.0);
    let memory = quarter.min(ENOUGH).max(MIN_REALM);
    if memory > available {
        let reason = format!("Linux can give up {available} of memory, a realm needs {MIN_REALM}");
        return Err(Failure::new(Code::MemoryShort, ASKED, reason)
            .remedy("end programs that use much memory"));
    }
    let mut why = format!(
        "{memory}: at most a quarter of the {available} that Linux can give up now, and {ENOUGH} at \
         most; ask for more if your programs need it. It is taken in blocks of 2 MiB wherever they \
         lie."
    );
    match machine.free_blocks() {
        Some(free) if free < memory => why.push_str(&format!(
            " Memory is fragmented: {free} are free in such blocks, and Linux has to move pages for \
             the rest, which takes time and may fail. At boot (crtos.service) there is enough."
        )),
        Some(free) => why.push_str(&format!(" {free} are free in such blocks now.")),
        None => {}
    }
    Ok((memory, why))
}

/// Writes which devices the realm could have.
fn devices(machine: &Machine, text: &mut String) {
    let names = |folder: &str| {
        let entries = fs::read_dir(machine.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    let mut found: Vec<String> = Vec::new();
    // Network and CAN interfaces, then serial ports that exist.
    found.extend(names("/sys/class/net").into_iter().filter(|name| {
        Net::named(machine, name).is_some() || matches!(Driven::find(machine, name), Some(Ok(_)))
    }));
    let has_uart = |name: &String| {
        let kind = machine.read(format!("/sys/class/tty/{name}/type"));
        name.starts_with("ttyS") && kind.is_some_and(|kind| kind != "0")
    };
    found.extend(names("/sys/class/tty").into_iter().filter(has_uart));
    found.retain(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)));
    found.truncate(MOST_NAMED);
    if found.is_empty() {
        wrap(
            text,
            "Devices that the realm has: this machine has no serial port, CAN interface or network \
             card that the real-time kernel drives itself. Programs of the realm drive PCI \
             functions; `lspci` tells their addresses.",
        );
        text.push_str("#device = [\"03:00.0\"]\n\n");
        return;
    }
    wrap(
        text,
        &format!(
            "Devices that the realm has, and Linux has not: none unless you name them, since only \
             you know what Linux needs. Here the real-time kernel drives {}; programs drive PCI \
             functions, named by their address (03:00.0).",
            found.join(", ")
        ),
    );
    let _ = writeln!(text, "#device = {:?}\n", &found[..1]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::Fake;

    fn planned(fake: &Fake) -> String {
        proposal(&fake.machine()).unwrap()
    }

    fn refused(fake: &Fake) -> String {
        proposal(&fake.machine()).unwrap_err().to_string()
    }

    fn siblings(fake: &Fake, pairs: &[&str]) {
        for pair in pairs {
            for cpu in pair.parse::<CpuList>().unwrap().iter() {
                let at = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
                fake.write(&at, pair);
            }
        }
    }

    #[test]
    fn the_last_core_goes_with_its_siblings() {
        let fake = Fake::fit();
        assert!(planned(&fake).contains("\ncpus = \"3\"\n"), "{}", planned(&fake));
        siblings(&fake, &["0,2", "1,3"]);
        assert!(planned(&fake).contains("\ncpus = \"core:3\"\n"));
        // The core of the last CPU has the boot CPU.
        siblings(&fake, &["0,3", "1-2"]);
        assert!(planned(&fake).contains("\ncpus = \"core:2\"\n"));
    }

    #[test]
    fn isolated_cpus_come_first() {
        let fake = Fake::fit();
        fake.write("/sys/devices/system/cpu/isolated", "1-2\n");
        let text = planned(&fake);
        assert!(text.contains("\ncpus = \"1,2\"\n") && text.contains("isolcpus="), "{text}");
    }

    #[test]
    fn a_machine_with_nothing_to_give_is_told_so() {
        let fake = Fake::fit();
        siblings(&fake, &["0-3"]);
        assert!(refused(&fake).contains("two cores or more"));
        let fake = Fake::fit();
        fake.write("/proc/meminfo", "MemAvailable: 60000 kB\n");
        assert!(refused(&fake).contains("a realm needs 64 MiB"));
    }

    #[test]
    fn fragmented_memory_is_told() {
        let fake = Fake::fit();
        fake.write("/proc/buddyinfo", "Node 0, zone Normal 9 9 9 9 9 9 9 9 9 3 0\n");
        let text = planned(&fake);
        assert!(text.contains("\nmemory = \"192M\"\n") && text.contains("fragmented"), "{text}");
    }

    #[test]
    fn interrupts_and_devices_are_named() {
        let fake = Fake::fit();
        fake.write("/proc/irq/24/effective_affinity_list", "3\n");
        fake.write("/proc/irq/24/nvme0q3/x", "");
        fake.write("/proc/irq/25/effective_affinity_list", "1\n");
        fake.write("/proc/irq/25/other/x", "");
        fake.write("/sys/class/tty/ttyS1/type", "4\n");
        fake.write("/sys/class/tty/ttyS2/type", "0\n");
        let text = planned(&fake);
        assert!(text.contains("nvme0q3") && !text.contains("other,"), "{text}");
        assert!(text.contains("#device = [\"ttyS1\"]") && !text.contains("ttyS2"), "{text}");
    }

    mod properties {
        use super::*;
        use crate::config::tests::up_reads;
        use proptest::prelude::*;

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            /// What it writes, `crtos up` reads, and it is within what can be given.
            #[test]
            fn up_reads_what_plan_writes(
                cpus in 1u32..12,
                threads in 1u32..4,
                kib in 0u64..2_000_000,
                isolated in proptest::collection::btree_set(0u32..12, 0..4),
                interrupt in "[^/\0]{1,20}",
                tty in "ttyS[^/\0]{0,20}",
            ) {
                let fake = Fake::fit();
                let all: CpuList = (0..cpus).collect();
                for file in ["present", "online"] {
                    fake.write(&format!("/sys/devices/system/cpu/{file}"), all.to_string());
                }
                for cpu in 1..cpus {
                    fake.write(&format!("/sys/devices/system/cpu/cpu{cpu}/online"), "1");
                }
                for cpu in 0..cpus {
                    let first = cpu / threads * threads;
                    let core: CpuList = (first..(first + threads).min(cpus)).collect();
                    siblings(&fake, &[&core.to_string()]);
                }
                let isolated: CpuList = isolated.into_iter().collect();
                fake.write("/sys/devices/system/cpu/isolated", isolated.to_string());
                fake.write("/proc/meminfo", format!("MemAvailable: {kib} kB\n"));
                fake.write("/proc/irq/9/effective_affinity_list", all.to_string());
                if interrupt != "." && interrupt != ".." {
                    fake.write(&format!("/proc/irq/9/{interrupt}/x"), "");
                }
                fake.write(&format!("/sys/class/tty/{tty}/type"), "4");
                let machine = fake.machine();
                if let Ok(text) = proposal(&machine) {
                    let (chosen, memory) = up_reads(&text);
                    let chosen = chosen.on(&machine).unwrap();
                    requirements::cpus(&machine, &chosen, &CpuList::default()).unwrap();
                    requirements::memory(&machine, memory).unwrap();
                    requirements::split(memory, None).unwrap();
                    prop_assert!(chosen.len() < all.len());
                } else {
                    prop_assert!(cpus <= threads || kib < 64 << 10);
                }
            }
        }
    }
}
