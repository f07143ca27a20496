// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hypervisor's report (see [`crtos_abi::report`]) as values.

use std::mem::{offset_of, size_of};

use crtos_abi::{
    MAX_CELLS, MAX_CPUS,
    cell::CELL_NAME_LEN,
    device::MAX_DEVICES,
    report::{self, CellReport, CpuReport, EXIT_REASONS},
};

use crate::{function::Function, text::padded, view::View};

/// Names of the reasons for an exit, in the order of [`CpuReport::exits`].
pub const EXIT_NAMES: [&str; EXIT_REASONS] = [
    "nmi",
    "icr",
    "msr",
    "hypercall",
    "nested-fault",
    "cpuid",
    "port",
    "apic",
    "xsetbv",
    "hidden",
    "shutdown",
    "other",
    "exception",
];

/// What a failed cell did, in the order of [`EXIT_NAMES`].
const FAILURES: [&str; EXIT_REASONS] = [
    "an unexpected NMI",
    "wrote to the interrupt command register what is not allowed",
    "touched a model-specific register that is not its own",
    "made a hypercall that is not for it",
    "touched memory that is not its own",
    "executed CPUID in a way that is not allowed",
    "touched an I/O port that is not its own",
    "touched the local APIC in a way that is not allowed",
    "set XCR0 to a value that is not allowed",
    "executed an instruction that is hidden from it",
    "triple fault",
    "an exit that nobody expects",
    "an exception that it cannot take",
];

/// Who has a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Linux.
    Linux,
    /// Nobody. It waits for Linux or a cell to start it.
    Parked,
    /// The cell with this number.
    Cell(u32),
}

/// Counters of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// Exits by reason.
    pub exits: [u64; EXIT_REASONS],
    /// Doorbells rung from it.
    pub doorbells: u64,
    /// Ticks of the time stamp counter that it has spent in the hypervisor.
    pub ticks: u64,
    /// Who has it.
    pub owner: Owner,
}

/// State of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was created and never started.
    Created,
    /// It runs.
    Running,
    /// It runs until it agrees to its end.
    Locked,
    /// Linux stopped it.
    Stopped,
    /// It was stopped because it broke its bounds.
    Failed,
}

impl State {
    /// Returns one word for the state.
    pub fn name(self) -> &'static str {
        match self {
            State::Created => "created",
            State::Running => "running",
            State::Locked => "locked",
            State::Stopped => "stopped",
            State::Failed => "failed",
        }
    }
}

/// How a cell broke its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Breach {
    /// CPU on which it happened.
    pub cpu: u32,
    /// Index into [`EXIT_NAMES`].
    pub reason: u32,
    /// Instruction pointer.
    pub rip: u64,
    /// Address in the cell, port or register.
    pub address: u64,
    /// The processor's exit code.
    pub code: u64,
    /// The processor's first exit information word.
    pub qualification: u64,
}

impl Breach {
    /// Returns the short name of the reason.
    pub fn reason(&self) -> &'static str {
        EXIT_NAMES.get(self.reason as usize).unwrap_or(&"unknown")
    }

    /// Describes the breach in a sentence.
    pub fn sentence(&self) -> String {
        let what = FAILURES.get(self.reason as usize).unwrap_or(&"an unknown reason");
        let address = match self.reason as usize {
            report::EXIT_SHUTDOWN | report::EXIT_HIDDEN | report::EXIT_NMI => String::new(),
            _ => format!(" ({:#x})", self.address),
        };
        format!("{what}{address} at instruction {:#x} on CPU {}", self.rip, self.cpu)
    }
}

/// A cell.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: State,
    /// The last failure, if it is in [`State::Failed`].
    pub breach: Option<Breach>,
    /// Bytes of private memory.
    pub private_bytes: u64,
    /// Bytes of shared memory.
    pub shared_bytes: u64,
}

/// A PCI function or a platform device that a cell has.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOfCell {
    /// Its address, or its number.
    pub function: Function,
    /// It is a platform device.
    pub platform: bool,
    /// The cell.
    pub cell: u32,
}

/// The report without its log.
#[derive(Clone, Debug)]
pub struct Report {
    /// Version of the interface that the hypervisor speaks.
    pub abi_version: u32,
    /// Whether the hypervisor runs.
    pub running: bool,
    /// Whether it stopped because of a fault of its own.
    pub faulted: bool,
    /// Free pages of the hypervisor.
    pub free_pages: u64,
    /// IOMMUs that the hypervisor knows.
    pub iommus: u32,
    /// Those of them that Linux does not have itself.
    pub iommus_taken: u32,
    /// Those that have copies of the tables by which Linux's devices translate.
    pub iommus_confining: u32,
    /// Those that have copies of the entries by which these interrupt.
    pub iommus_remapping: u32,
    /// Whether these copies leave out Linux's own page tables, which are checked instead.
    pub dma_checked: bool,
    /// How often an interrupt was refused in one.
    pub iommu_refusals: u64,
    /// How often memory was refused in one that Linux mapped for a device.
    pub dma_refusals: u64,
    /// How often the hypervisor had no memory for what Linux mapped.
    pub dma_missing: u64,
    /// Requests of devices that were refused in one, as far as Linux took note of them.
    pub device_faults: Vec<DeviceFaults>,
    /// Devices that cells have.
    pub devices: Vec<DeviceOfCell>,
    /// The CPUs by Linux's numbers.
    pub cpus: Vec<Cpu>,
    /// The cells that exist.
    pub cells: Vec<Cell>,
}

impl Report {
    /// Reads what the hypervisor wrote: at least `size_of::<report::Report>()` bytes.
    pub fn parse(bytes: &[u8]) -> Self {
        let view = View(bytes);
        let count = view.u32(offset_of!(report::Report, cpu_count)) as usize;
        let cpu = |index: usize| {
            let size = size_of::<CpuReport>();
            Cpu::parse(view.at(offset_of!(report::Report, cpus) + index * size, size))
        };
        let cell = |index: usize| {
            let size = size_of::<CellReport>();
            Cell::parse(
                index as u32,
                view.at(offset_of!(report::Report, cells) + index * size, size),
            )
        };
        let faults = |index: usize| {
            let size = size_of::<report::DeviceFaults>();
            let place = offset_of!(report::Report, device_faults) + index * size;
            DeviceFaults::parse(view.at(place, size))
        };
        let device = |index: usize| {
            let size = size_of::<report::DeviceReport>();
            let place = offset_of!(report::Report, devices) + index * size;
            DeviceOfCell::parse(view.at(place, size))
        };
        let state = view.u32(offset_of!(report::Report, state));
        Self {
            abi_version: view.u32(offset_of!(report::Report, abi_version)),
            running: state == 1,
            faulted: state == 2,
            free_pages: view.u64(offset_of!(report::Report, free_pages)),
            iommus: view.u32(offset_of!(report::Report, iommus)),
            iommus_taken: view.u32(offset_of!(report::Report, iommus_taken)),
            iommus_confining: view.u32(offset_of!(report::Report, iommus_confining)),
            iommus_remapping: view.u32(offset_of!(report::Report, iommus_remapping)),
            dma_checked: view.u32(offset_of!(report::Report, dma_checked)) != 0,
            iommu_refusals: view.u64(offset_of!(report::Report, iommu_refusals)),
            dma_refusals: view.u64(offset_of!(report::Report, dma_refusals)),
            dma_missing: view.u64(offset_of!(report::Report, dma_missing)),
            device_faults: (0..report::MAX_FAULTING_DEVICES).filter_map(faults).collect(),
            devices: (0..MAX_DEVICES).filter_map(device).collect(),
            cpus: (0..count.min(MAX_CPUS)).map(cpu).collect(),
            cells: (0..MAX_CELLS).filter_map(cell).collect(),
        }
    }

    /// Returns the cell with this number.
    pub fn cell(&self, number: u32) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.number == number)
    }

    /// Returns the cell that the user calls so: by its name or its number.
    pub fn named(&self, cell: &str) -> Option<&Cell> {
        self.cells.iter().find(|known| known.name == cell || known.number.to_string() == cell)
    }

    /// Returns Linux's numbers of the CPUs that a cell has.
    pub fn cpus_of(&self, cell: u32) -> crate::cpulist::CpuList {
        let cpus = self.cpus.iter().zip(0..);
        cpus.filter(|(cpu, _)| cpu.owner == Owner::Cell(cell)).map(|(_, number)| number).collect()
    }
}

/// Requests of one device that an IOMMU has refused.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DeviceFaults {
    /// The device as bus:device.function.
    pub device: String,
    /// How many.
    pub count: u32,
}

/// What the report calls a platform device.
const PLATFORM: u32 = 2;

impl DeviceOfCell {
    fn parse(view: View<'_>) -> Option<Self> {
        // Two halves: the function, and the kind.
        let word = view.u32(offset_of!(report::DeviceReport, function));
        let cell = view.u32(offset_of!(report::DeviceReport, cell));
        let (function, platform) = (Function::new(word as u16), word >> 16 == PLATFORM);
        (word >> 16 != 0).then_some(Self { function, platform, cell })
    }
}

impl DeviceFaults {
    fn parse(view: View<'_>) -> Option<Self> {
        let device = view.u32(offset_of!(report::DeviceFaults, device));
        let count = view.u32(offset_of!(report::DeviceFaults, count));
        let device = Function::new(device as u16).without_segment();
        (count > 0).then_some(Self { device, count })
    }
}

impl Cpu {
    fn parse(view: View<'_>) -> Self {
        let exits = offset_of!(CpuReport, exits);
        Self {
            exits: std::array::from_fn(|reason| view.u64(exits + reason * 8)),
            doorbells: view.u64(offset_of!(CpuReport, doorbells)),
            ticks: view.u64(offset_of!(CpuReport, ticks)),
            owner: match view.u32(offset_of!(CpuReport, owner)) {
                report::CPU_ROOT => Owner::Linux,
                report::CPU_PARKED => Owner::Parked,
                cell => Owner::Cell(cell),
            },
        }
    }

    /// Returns the number of all exits.
    pub fn total(&self) -> u64 {
        self.exits.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }
}

impl Cell {
    fn parse(number: u32, view: View<'_>) -> Option<Self> {
        let state = match view.u32(offset_of!(CellReport, state)) {
            report::CELL_CREATED => State::Created,
            report::CELL_RUNNING => State::Running,
            report::CELL_LOCKED => State::Locked,
            report::CELL_STOPPED => State::Stopped,
            report::CELL_FAILED => State::Failed,
            _ => return None,
        };
        Some(Self {
            number,
            name: padded(view.bytes(offset_of!(CellReport, name), CELL_NAME_LEN)),
            state,
            breach: (state == State::Failed).then(|| Breach {
                cpu: view.u32(offset_of!(CellReport, cpu)),
                reason: view.u32(offset_of!(CellReport, reason)),
                rip: view.u64(offset_of!(CellReport, rip)),
                address: view.u64(offset_of!(CellReport, address)),
                code: view.u64(offset_of!(CellReport, code)),
                qualification: view.u64(offset_of!(CellReport, qualification)),
            }),
            private_bytes: view.u64(offset_of!(CellReport, private_bytes)),
            shared_bytes: view.u64(offset_of!(CellReport, shared_bytes)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Builder;

    #[test]
    fn reads_cpus_and_cells() {
        let mut bytes = Builder::new(size_of::<report::Report>());
        let cpus = offset_of!(report::Report, cpus);
        let cells = offset_of!(report::Report, cells) + 2 * size_of::<CellReport>();
        bytes
            .u32(offset_of!(report::Report, state), 1)
            .u32(offset_of!(report::Report, cpu_count), 3)
            .u64(cpus + report::EXIT_ICR * 8, 40)
            .u64(cpus + report::EXIT_NMI * 8, 2)
            .u32(cpus + offset_of!(CpuReport, owner), report::CPU_ROOT)
            .u32(cpus + size_of::<CpuReport>() + offset_of!(CpuReport, owner), report::CPU_PARKED)
            .u32(cpus + 2 * size_of::<CpuReport>() + offset_of!(CpuReport, owner), 2)
            .u32(cells + offset_of!(CellReport, state), report::CELL_FAILED)
            .u32(cells + offset_of!(CellReport, cpu), 2)
            .u32(cells + offset_of!(CellReport, reason), report::EXIT_PORT as u32)
            .u64(cells + offset_of!(CellReport, rip), 0x20_1234)
            .u64(cells + offset_of!(CellReport, address), 0x70)
            .bytes(cells + offset_of!(CellReport, name), b"prober");
        let report = Report::parse(&bytes.finish());
        assert!(report.running);
        assert_eq!(report.cpus.len(), 3);
        assert_eq!(report.cpus[0].total(), 42);
        assert_eq!(report.cpus[1].owner, Owner::Parked);
        assert_eq!(report.cpus_of(2).to_string(), "2");
        let cell = report.cell(2).unwrap();
        assert_eq!((cell.name.as_str(), cell.state), ("prober", State::Failed));
        assert_eq!(
            cell.breach.unwrap().sentence(),
            "touched an I/O port that is not its own (0x70) at instruction 0x201234 on CPU 2"
        );
    }

    #[test]
    fn an_absurd_count_of_cpus_is_bounded() {
        let mut bytes = Builder::new(size_of::<report::Report>());
        bytes.u32(offset_of!(report::Report, cpu_count), u32::MAX);
        assert_eq!(Report::parse(&bytes.finish()).cpus.len(), MAX_CPUS);
    }
}
