// SPDX-License-Identifier: MIT OR Apache-2.0
//! The statistics in Prometheus' text format (exposition format 0.0.4): times in seconds, counters
//! with names that end in `_total`.

use std::fmt::Write as _;

use super::Statistics;
use crate::{cpulist::CpuList, threads::Thread};

/// What becomes of a number.
#[derive(Clone, Copy)]
enum Kind {
    /// It only grows, until the realm starts again.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A number with the labels that tell it from others of its family.
type Sample<'a> = (Vec<(&'static str, &'a str)>, f64);

/// Families of numbers, as they are written.
#[derive(Default)]
struct Page(String);

impl Page {
    /// Adds a family; nothing if it has no numbers.
    fn family<'a>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'a>>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // A string takes every text.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let labels: Vec<_> = labels
                .iter()
                .map(|(label, text)| format!("{label}=\"{}\"", escaped(text)))
                .collect();
            let labels = match labels.is_empty() {
                true => String::new(),
                false => format!("{{{}}}", labels.join(",")),
            };
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}

/// Returns the value of a label as it is written: names of programs may have any bytes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// A number alone.
fn one(value: f64) -> [Sample<'static>; 1] {
    [(Vec::new(), value)]
}

/// Returns the page of a machine on which crtos is not up.
pub fn down() -> String {
    let mut page = Page::default();
    up(&mut page, false);
    page.0
}

fn up(page: &mut Page, is_up: bool) {
    page.family("crtos_up", Kind::Gauge, "Whether the hypervisor runs.", one(is_up.into()));
}

/// Returns the page of statistics, with threads of the realm, which has these CPUs.
pub fn page(statistics: &Statistics, threads: &[Thread], cpus: &CpuList) -> String {
    use Kind::{Counter, Gauge};
    let mut page = Page::default();
    up(&mut page, statistics.hypervisor.running);
    let numbers: Vec<String> = statistics.cpus.iter().map(|cpu| cpu.cpu.to_string()).collect();
    let each = || statistics.cpus.iter().zip(&numbers);
    page.family(
        "crtos_vm_exits_total",
        Counter,
        "VM exits by CPU, owner of the CPU, and reason.",
        each().flat_map(|(cpu, number)| {
            cpu.exits.iter().map(move |(reason, count)| {
                let labels = vec![
                    ("cpu", number.as_str()),
                    ("owner", cpu.owner.as_str()),
                    ("reason", *reason),
                ];
                (labels, *count as f64)
            })
        }),
    );
    page.family(
        "crtos_hypervisor_seconds_total",
        Counter,
        "Time that a CPU was in the hypervisor.",
        each().map(|(cpu, number)| (vec![("cpu", number.as_str())], seconds(cpu.hypervisor_ns))),
    );
    page.family(
        "crtos_doorbells_total",
        Counter,
        "Doorbells rung from a CPU.",
        each().map(|(cpu, number)| (vec![("cpu", number.as_str())], cpu.doorbells as f64)),
    );
    let refusals = [
        ("interrupt", statistics.hypervisor.iommu_refusals),
        ("memory", statistics.hypervisor.dma_refusals),
    ];
    page.family(
        "crtos_iommu_refusals_total",
        Counter,
        "Entries of Linux for its devices that the hypervisor refused.",
        refusals.iter().map(|(what, count)| (vec![("what", *what)], *count as f64)),
    );
    page.family(
        "crtos_device_faults_total",
        Counter,
        "Requests of a device that an IOMMU refused.",
        statistics
            .hypervisor
            .device_faults
            .iter()
            .map(|faults| (vec![("device", faults.device.as_str())], faults.count as f64)),
    );
    page.family(
        "crtos_cell_memory_bytes",
        Gauge,
        "Memory of a cell: private, or shared with Linux.",
        statistics.cells.iter().flat_map(|cell| {
            [("private", cell.private_bytes), ("shared", cell.shared_bytes)].map(|(kind, bytes)| {
                (vec![("cell", cell.name.as_str()), ("kind", kind)], bytes as f64)
            })
        }),
    );
    page.family(
        "crtos_cell_state",
        Gauge,
        "1 for the state that a cell is in.",
        statistics
            .cells
            .iter()
            .map(|cell| (vec![("cell", cell.name.as_str()), ("state", cell.state)], 1.0)),
    );
    realm(&mut page, statistics, threads, cpus);
    page.0
}

fn realm(page: &mut Page, statistics: &Statistics, threads: &[Thread], cpus: &CpuList) {
    use Kind::{Counter, Gauge};
    let Some(realm) = &statistics.realm else { return };
    let mut gauge = |name, help, value| page.family(name, Gauge, help, one(value));
    gauge("crtos_realm_sealed", "Whether the realm takes no new program.", realm.sealed.into());
    gauge("crtos_realm_memory_bytes", "Memory of the realm for programs.", realm.pool_bytes as f64);
    gauge("crtos_realm_memory_free_bytes", "What of it is free.", realm.pool_free_bytes as f64);
    gauge("crtos_realm_heap_bytes", "Heap of the real-time kernel.", realm.heap_bytes as f64);
    gauge("crtos_realm_heap_used_bytes", "What of it is used.", realm.heap_used_bytes as f64);
    let doorbells = [("linux", realm.doorbells_sent), ("realm", realm.doorbells_taken)];
    page.family(
        "crtos_realm_doorbells_total",
        Counter,
        "Doorbells between the realm and Linux, by who was interrupted.",
        doorbells.iter().map(|(to, count)| (vec![("to", *to)], *count as f64)),
    );
    let numbers: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
    page.family(
        "crtos_realm_idle_seconds_total",
        Counter,
        "Time that a CPU of the realm was idle, up to the last interrupt there.",
        numbers
            .iter()
            .zip(&realm.idle_ns)
            .map(|(cpu, idle)| (vec![("cpu", cpu.as_str())], seconds(*idle))),
    );
    page.family(
        "crtos_realm_interrupts_total",
        Counter,
        "Interrupts of a device of the realm.",
        realm
            .interrupts
            .iter()
            .map(|one| (vec![("device", one.device.as_str())], one.count as f64)),
    );
    let longest = |cpu: &u32| realm.sections.iter().find(|section| section.cpu == *cpu);
    let cpus: Vec<u32> = cpus.iter().collect();
    page.family(
        "crtos_realm_interrupts_off_seconds",
        Gauge,
        "The longest time that the real-time kernel kept interrupts off on a CPU.",
        cpus.iter().zip(&numbers).filter_map(|(cpu, number)| {
            Some((vec![("cpu", number.as_str())], seconds(longest(cpu)?.ns)))
        }),
    );
    self::threads(page, threads);
}

fn threads(page: &mut Page, threads: &[Thread]) {
    use Kind::{Counter, Gauge};
    let ids: Vec<_> =
        threads.iter().map(|thread| (thread.pid.to_string(), thread.tid.to_string())).collect();
    let each = || {
        threads.iter().zip(&ids).map(|(thread, (pid, tid))| {
            let command = thread.command.as_str();
            (thread, vec![("pid", pid.as_str()), ("tid", tid.as_str()), ("command", command)])
        })
    };
    page.family("crtos_threads", Gauge, "Threads in the realm.", one(threads.len() as f64));
    page.family(
        "crtos_thread_cpu_seconds_total",
        Counter,
        "Processor time of a thread, up to its last switch.",
        each().map(|(thread, labels)| (labels, thread.time.as_secs_f64())),
    );
    page.family(
        "crtos_thread_switches_total",
        Counter,
        "How often a thread was switched to.",
        each().map(|(thread, labels)| (labels, thread.switches as f64)),
    );
    page.family(
        "crtos_thread_calls_total",
        Counter,
        "System calls of a thread, by who makes them.",
        each().flat_map(|(thread, labels)| {
            [("realm", thread.local_calls), ("linux", thread.remote_calls)].map(|(by, count)| {
                let mut labels = labels.clone();
                labels.push(("by", by));
                (labels, count as f64)
            })
        }),
    );
    let mut programs: Vec<_> = each().collect();
    programs.dedup_by_key(|(thread, _)| thread.pid);
    page.family(
        "crtos_process_memory_bytes",
        Gauge,
        "Memory of a process in the realm.",
        programs.into_iter().map(|(thread, mut labels)| {
            labels.remove(1);
            (labels, thread.memory as f64)
        }),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.family("x", Kind::Gauge, "What.", [(vec![("command", "a\"b\\c\n")], 0.5)]);
        assert_eq!(page.0, "# HELP x What.\n# TYPE x gauge\nx{command=\"a\\\"b\\\\c\\n\"} 0.5\n");
    }

    #[test]
    fn a_family_without_numbers_is_left_out() {
        let mut page = Page::default();
        page.family("x", Kind::Counter, "What.", []);
        assert_eq!(page.0, "");
        assert_eq!(
            down(),
            "# HELP crtos_up Whether the hypervisor runs.\n# TYPE crtos_up gauge\ncrtos_up 0\n"
        );
    }
}
