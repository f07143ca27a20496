// SPDX-License-Identifier: MIT OR Apache-2.0
//! `crtos stats`: VM exits by CPU and reason, memory, doorbells, interrupts of devices, the longest
//! sections with interrupts off.

mod prometheus;

use std::{collections::BTreeMap, io::IsTerminal, thread::sleep, time::Duration};

use serde::Serialize;

use crate::{
    confinement::Confinement,
    cpulist::CpuList,
    device::{self, Device},
    failure::Result,
    machine::Machine,
    report::{Cell, Cpu, DeviceFaults, EXIT_NAMES, Owner, Report},
    size::Size,
    symbols::Symbols,
    text,
    threads::{Counters, Interrupts, KernelState, Section, Thread},
};

/// What the command does, for the messages of failures.
const ASKED: &str = "show statistics";

/// Show VM exits by CPU and reason, memory, doorbells, and for how long interrupts were off
///
/// Counters begin at the launch of the hypervisor. A CPU of the real-time realm that sleeps and
/// wakes by its timer causes no exits at all. The time that a CPU has been in the hypervisor is
/// that from each exit to the next entry; the processor's own part, the switch itself, is not
/// counted.
///
/// Reasons: nmi (non-maskable interrupt), icr (interrupt command register), msr (another trapped
/// model-specific register), hypercall, nested-fault (nested page fault), cpuid, port (I/O port),
/// apic (local APIC, trapped only where Linux runs it in xAPIC mode), xsetbv, hidden (instruction
/// that guests may not see), shutdown (triple fault), other.
///
/// For each device of the realm that interrupts it, the command shows how often it has: UARTs by
/// their names, PCI functions by their addresses.
///
/// For each CPU of the realm, the command shows the longest sections in which the real-time kernel
/// kept interrupts, and so preemption, off since it started: their duration, and the functions in
/// which they began and ended.
#[derive(clap::Args)]
#[command(after_long_help = "\
With --json one object:
  hypervisor  running (boolean), free_pages, devices (what those of Linux can do to cells,
              and why), iommus, iommus_taken, iommus_confining (their memory) and
              iommus_remapping (their interrupts; while there is a cell), iommu_refusals
              (of interrupts), dma_refusals (of memory), dma_missing (what Linux mapped and the
              hypervisor had no memory for),
              device_faults (array of: device, count of its requests that an IOMMU refused)
  cpus        array of: cpu, owner (\"linux\", \"parked\" or the cell's name), cell (its number or null),
              exits (object: reason to number), exits_total, hypervisor_ns (time that they took),
              doorbells (rung from this CPU)
  cells       array of: cell, name, state, cpus, private_bytes, shared_bytes
  realm       null, or: cell, sealed (boolean), pool_bytes, pool_free_bytes, heap_bytes,
              heap_used_bytes, doorbells_sent, doorbells_taken,
              idle_ns (array, one per CPU of the realm),
              interrupts (of its devices, array of: device, count),
              sections (array, longest first within a CPU: cpu, ns, begin, end)

Exit status: 0 done; 1 failed; 2 usage.")]
pub struct Stats {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print Prometheus' text format, with the threads of the realm; `crtos_up 0` alone if crtos is
    /// not up
    ///
    /// For the textfile collector of Prometheus' node exporter, say by a timer: write it to a file
    /// beside `crtos.prom`, and rename that.
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    prometheus: bool,
    /// Print again every second until interrupted
    #[arg(long)]
    watch: bool,
}

/// The statistics in JSON.
#[derive(Serialize)]
struct Statistics {
    hypervisor: Hypervisor,
    cpus: Vec<CpuStatistics>,
    cells: Vec<CellStatistics>,
    realm: Option<RealmStatistics>,
}

#[derive(Serialize)]
struct Hypervisor {
    running: bool,
    free_pages: u64,
    devices: String,
    iommus: u32,
    iommus_taken: u32,
    iommus_confining: u32,
    iommus_remapping: u32,
    iommu_refusals: u64,
    dma_refusals: u64,
    dma_missing: u64,
    device_faults: Vec<DeviceFaults>,
}

#[derive(Serialize)]
struct CpuStatistics {
    cpu: usize,
    owner: String,
    cell: Option<u32>,
    exits: BTreeMap<&'static str, u64>,
    exits_total: u64,
    hypervisor_ns: u64,
    doorbells: u64,
}

#[derive(Serialize)]
struct CellStatistics {
    cell: u32,
    name: String,
    state: &'static str,
    cpus: Vec<u32>,
    private_bytes: u64,
    shared_bytes: u64,
}

#[derive(Serialize)]
struct RealmStatistics {
    cell: u32,
    sealed: bool,
    pool_bytes: u64,
    pool_free_bytes: u64,
    heap_bytes: u64,
    heap_used_bytes: u64,
    doorbells_sent: u64,
    doorbells_taken: u64,
    idle_ns: Vec<u64>,
    interrupts: Vec<DeviceStatistics>,
    sections: Vec<SectionStatistics>,
}

/// A device that interrupts the realm.
#[derive(Serialize)]
struct DeviceStatistics {
    device: String,
    count: u64,
}

/// A section with interrupts off.
#[derive(Serialize)]
struct SectionStatistics {
    /// Linux's number of the CPU.
    cpu: u32,
    ns: u64,
    begin: String,
    end: String,
}

impl Stats {
    /// Runs the command.
    pub fn run(self) -> Result<()> {
        if self.prometheus && !Machine::here().exists(device::PATH) {
            anstream::print!("{}", prometheus::down());
            return Ok(());
        }
        let device = Device::require(ASKED)?;
        let symbols = Symbols::installed();
        loop {
            let info = device.info(ASKED)?;
            if info.enabled == 0 && self.prometheus {
                anstream::print!("{}", prometheus::down());
                return Ok(());
            }
            if info.enabled == 0 {
                return Err(device::not_up(ASKED));
            }
            let report = device.report(ASKED)?;
            let realm = match device::realm(&info) {
                Some(realm) => {
                    let counters =
                        device.counters(realm).map_err(|refusal| refusal.asked(ASKED))?;
                    let sections =
                        device.sections(realm).map_err(|refusal| refusal.asked(ASKED))?;
                    Some(Realm { cell: realm, counters, sections })
                }
                None => None,
            };
            let devices = Confinement::of(&Machine::here(), &report).line();
            let statistics = Statistics::of(&report, devices, realm, &symbols, info.tsc_khz);
            if self.prometheus {
                let (mut threads, mut cpus) = (Vec::new(), CpuList::default());
                if let Some(realm) = device::realm(&info) {
                    threads = device.threads(realm).map_err(|refusal| refusal.asked(ASKED))?;
                    threads.retain(Thread::lives);
                    cpus = report.cpus_of(realm);
                }
                anstream::print!("{}", prometheus::page(&statistics, &threads, &cpus));
            } else if self.json {
                crate::print_json(&statistics)?;
            } else {
                if self.watch && std::io::stdout().is_terminal() {
                    anstream::print!("\x1b[H\x1b[J");
                }
                anstream::println!("{}", statistics.show());
            }
            if !self.watch {
                return Ok(());
            }
            sleep(Duration::from_secs(1));
        }
    }
}

/// Returns what the real-time kernel tells.
struct Realm {
    cell: u32,
    counters: Counters,
    sections: Vec<Section>,
}

impl Statistics {
    fn of(
        report: &Report,
        devices: String,
        realm: Option<Realm>,
        symbols: &Symbols,
        tsc_khz: u32,
    ) -> Self {
        let ns = |ticks: u64| (u128::from(ticks) * 1_000_000 / u128::from(tsc_khz.max(1))) as u64;
        let cpu = |(number, cpu): (usize, &Cpu)| {
            let (owner, cell) = match cpu.owner {
                Owner::Linux => ("linux".to_string(), None),
                Owner::Parked => ("parked".to_string(), None),
                Owner::Cell(cell) => {
                    let name = report.cell(cell).map(|cell| cell.name.clone());
                    (name.unwrap_or_else(|| format!("cell {cell}")), Some(cell))
                }
            };
            CpuStatistics {
                cpu: number,
                owner,
                cell,
                exits: EXIT_NAMES.into_iter().zip(cpu.exits).collect(),
                exits_total: cpu.total(),
                hypervisor_ns: ns(cpu.ticks),
                doorbells: cpu.doorbells,
            }
        };
        let cell = |cell: &Cell| CellStatistics {
            cell: cell.number,
            name: cell.name.clone(),
            state: cell.state.name(),
            cpus: report.cpus_of(cell.number).iter().collect(),
            private_bytes: cell.private_bytes,
            shared_bytes: cell.shared_bytes,
        };
        let realm = realm.map(|Realm { cell, counters, sections }| RealmStatistics {
            cell,
            sealed: counters.state == KernelState::Sealed,
            pool_bytes: counters.pool_pages.saturating_mul(crtos_abi::PAGE_SIZE),
            pool_free_bytes: counters.pool_free.saturating_mul(crtos_abi::PAGE_SIZE),
            heap_bytes: counters.heap_size,
            heap_used_bytes: counters.heap_used,
            doorbells_sent: counters.doorbells_sent,
            doorbells_taken: counters.doorbells_taken.iter().sum(),
            idle_ns: counters
                .idle
                .iter()
                .take(report.cpus_of(cell).len())
                .map(|idle| idle.as_nanos() as u64)
                .collect(),
            interrupts: counters
                .devices
                .into_iter()
                .map(|Interrupts { device, count, .. }| DeviceStatistics { device, count })
                .collect(),
            sections: sections
                .iter()
                .filter_map(|section| {
                    Some(SectionStatistics {
                        cpu: report.cpus_of(cell).of_realm(section.cpu)?,
                        ns: ns(section.ticks),
                        begin: symbols.name(section.begin),
                        end: symbols.name(section.end),
                    })
                })
                .collect(),
        });
        Self {
            hypervisor: Hypervisor {
                running: report.running,
                free_pages: report.free_pages,
                devices,
                iommus: report.iommus,
                iommus_taken: report.iommus_taken,
                iommus_confining: report.iommus_confining,
                iommus_remapping: report.iommus_remapping,
                iommu_refusals: report.iommu_refusals,
                dma_refusals: report.dma_refusals,
                dma_missing: report.dma_missing,
                device_faults: report.device_faults.clone(),
            },
            cpus: report.cpus.iter().enumerate().map(cpu).collect(),
            cells: report.cells.iter().map(cell).collect(),
            realm,
        }
    }

    fn show(&self) -> String {
        // Reasons that never happened would clutter the line.
        let reasons: Vec<_> = EXIT_NAMES
            .into_iter()
            .filter(|reason| self.cpus.iter().any(|cpu| cpu.exits[reason] != 0))
            .collect();
        let mut header = vec!["CPU", "OWNER", "EXITS", "TIME (ms)"];
        header.extend(&reasons);
        header.push("DOORBELLS");
        let rows = self.cpus.iter().map(|cpu| {
            let mut row = vec![cpu.cpu.to_string(), cpu.owner.clone(), cpu.exits_total.to_string()];
            row.push(format!("{:.3}", cpu.hypervisor_ns as f64 / 1e6));
            row.extend(reasons.iter().map(|reason| cpu.exits[reason].to_string()));
            row.push(cpu.doorbells.to_string());
            row
        });
        let right: Vec<_> = (0..header.len()).filter(|column| *column != 1).collect();
        let mut parts = vec![text::table(&header, &right, rows.collect())];

        if !self.cells.is_empty() {
            let rows = self.cells.iter().map(|cell| {
                vec![
                    cell.cell.to_string(),
                    cell.name.clone(),
                    cell.state.to_string(),
                    Size(cell.private_bytes).to_string(),
                    Size(cell.shared_bytes).to_string(),
                ]
            });
            let header = ["CELL", "NAME", "STATE", "PRIVATE", "SHARED"];
            parts.push(text::table(&header, &[0, 3, 4], rows.collect()));
        }
        let mut facts = vec![format!(
            "hypervisor: {} free",
            Size(self.hypervisor.free_pages.saturating_mul(crtos_abi::PAGE_SIZE))
        )];
        facts.push(self.hypervisor.devices.clone());
        facts.extend(self.hypervisor.device_faults.iter().map(|DeviceFaults { device, count }| {
            format!("device {device}: {count} requests refused by an IOMMU")
        }));
        if let Some(realm) = &self.realm {
            if realm.sealed {
                facts.push("the realm is sealed: it takes no new program".into());
            }
            let free = Size(realm.pool_free_bytes);
            facts.push(format!("memory for processes: {free} of {} free", Size(realm.pool_bytes)));
            facts.push(format!(
                "kernel heap: {} of {} used",
                Size(realm.heap_used_bytes),
                Size(realm.heap_bytes)
            ));
            facts.push(format!(
                "doorbells: {} to Linux, {} from Linux",
                realm.doorbells_sent, realm.doorbells_taken
            ));
            let idle = realm.idle_ns.iter().map(|ns| format!("{:.3} s", *ns as f64 / 1e9));
            facts.push(format!("idle: {}", idle.collect::<Vec<_>>().join(", ")));
            if !realm.interrupts.is_empty() {
                let row = |device: &DeviceStatistics| {
                    vec![device.device.clone(), device.count.to_string()]
                };
                let rows = realm.interrupts.iter().map(row).collect();
                parts.push(text::table(&["DEVICE", "INTERRUPTS"], &[1], rows));
            }
            let row = |section: &SectionStatistics| {
                let micros = format!("{:.3}", section.ns as f64 / 1e3);
                vec![section.cpu.to_string(), micros, section.begin.clone(), section.end.clone()]
            };
            let header = ["CPU", "INTERRUPTS OFF (µs)", "FROM", "TO"];
            parts.push(text::table(&header, &[0, 1], realm.sections.iter().map(row).collect()));
        }
        parts.push(facts.join("\n"));
        parts.join("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::State;

    fn report() -> Report {
        let cpu = |owner, icr| {
            let mut exits = [0; EXIT_NAMES.len()];
            exits[1] = icr;
            Cpu { exits, doorbells: 3, ticks: 5_000_000, owner }
        };
        Report {
            abi_version: 1,
            running: true,
            faulted: false,
            free_pages: 256,
            iommus: 1,
            iommus_taken: 1,
            iommus_confining: 1,
            iommus_remapping: 1,
            dma_checked: false,
            iommu_refusals: 3,
            dma_refusals: 2,
            dma_missing: 1,
            device_faults: vec![DeviceFaults { device: "00:09.0".into(), count: 7 }],
            devices: Vec::new(),
            cpus: vec![cpu(Owner::Linux, 70), cpu(Owner::Parked, 0), cpu(Owner::Cell(0), 0)],
            cells: vec![Cell {
                number: 0,
                name: "realtime".into(),
                state: State::Running,
                breach: None,
                private_bytes: 32 << 20,
                shared_bytes: 32 << 20,
            }],
        }
    }

    #[test]
    fn owners_and_exits_are_named() {
        let json = serde_json::to_value(Statistics::of(
            &report(),
            "not protected: x".into(),
            None,
            &Symbols::default(),
            1_000_000,
        ))
        .unwrap();
        assert_eq!(json["cpus"][0]["owner"], "linux");
        assert_eq!(json["cpus"][0]["exits"]["icr"], 70);
        assert_eq!(json["cpus"][0]["hypervisor_ns"], 5_000_000);
        assert_eq!(json["cpus"][1]["owner"], "parked");
        assert_eq!(json["cpus"][2]["owner"], "realtime");
        assert_eq!(json["cpus"][2]["exits_total"], 0);
        assert_eq!(json["cells"][0]["cpus"][0], 2);
        assert!(json["realm"].is_null());
    }

    #[test]
    fn prometheus_gets_the_same_numbers() {
        let devices = "not protected: x".into();
        let statistics = Statistics::of(&report(), devices, None, &Symbols::default(), 1_000_000);
        let page = prometheus::page(&statistics, &[], &CpuList::default());
        for line in [
            "crtos_up 1",
            "crtos_vm_exits_total{cpu=\"0\",owner=\"linux\",reason=\"icr\"} 70",
            "crtos_hypervisor_seconds_total{cpu=\"0\"} 0.005",
            "crtos_device_faults_total{device=\"00:09.0\"} 7",
            "crtos_cell_memory_bytes{cell=\"realtime\",kind=\"shared\"} 33554432",
        ] {
            assert!(page.lines().any(|one| one == line), "{line} in\n{page}");
        }
        assert!(!page.contains("crtos_realm_"), "there is none");
    }

    #[test]
    fn the_table_leaves_out_what_never_happened() {
        let text = Statistics::of(
            &report(),
            "not protected: x".into(),
            None,
            &Symbols::default(),
            1_000_000,
        )
        .show();
        assert!(text.lines().next().unwrap().contains("icr"));
        assert!(!text.contains("shutdown"));
        assert!(text.contains("hypervisor: 1 MiB free\nnot protected: x"));
    }
}
