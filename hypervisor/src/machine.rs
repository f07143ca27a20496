// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all CPUs share: who owns which CPU, what a cell's CPUs run with. All of it is atomic, since interrupt
//! commands look at it without a lock.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crtos_abi::cell::CELL_NAME_LEN;
use crtos_abi::image::{LAUNCH_INFO_OFFSET, LaunchInfo};
use crtos_abi::report::{CPU_PARKED, CPU_ROOT};
use crtos_abi::{MAX_CELL_CPUS, MAX_CELLS, MAX_CPUS, PAGE_SIZE};
use crtos_partition::cpuset::CpuSet;
use crtos_partition::doorbell::Routes;
use crtos_partition::icr::Address;
use crtos_partition::lifecycle::{Event, State};

use crate::arch::Domain;
use crate::report;

const _: () = assert!(LAUNCH_INFO_OFFSET as usize + size_of::<LaunchInfo>() <= PAGE_SIZE as usize);

unsafe extern "C" {
    /// Filled in by the module before it calls us; out of its reach afterwards.
    static LAUNCH_INFO: LaunchInfo;
}

/// What the module told at launch.
pub fn launch_info() -> &'static LaunchInfo {
    // SAFETY: The linker script reserves the place; every bit pattern is valid; nobody writes to it while the hypervisor runs.
    unsafe { &LAUNCH_INFO }
}

/// Number of CPUs that the hypervisor knows.
pub fn cpu_count() -> usize {
    (launch_info().cpu_count as usize).min(MAX_CPUS)
}

/// Who owns a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Linux, without the hypervisor underneath.
    Outside,
    /// Linux.
    Root,
    /// Nobody; it waits for a start-up IPI or a cell.
    Parked,
    /// A cell.
    Cell(usize),
}

const OUTSIDE: u32 = 0xffff_fffd;

impl Owner {
    fn code(self) -> u32 {
        match self {
            Self::Outside => OUTSIDE,
            Self::Root => CPU_ROOT,
            Self::Parked => CPU_PARKED,
            Self::Cell(cell) => cell as u32,
        }
    }

    fn from_code(code: u32) -> Self {
        match code {
            OUTSIDE => Self::Outside,
            CPU_ROOT => Self::Root,
            CPU_PARKED => Self::Parked,
            cell => Self::Cell(cell as usize),
        }
    }
}

const NO_CELL: u32 = 0xffff_ffff;

/// A CPU as the others see it.
pub struct Cpu {
    owner: AtomicU32,
    /// Cell that the CPU was given to, from its creation to its destruction.
    assigned: AtomicU32,
    /// What others want of it; see [`crate::local`].
    pub requests: AtomicU32,
    /// An NMI of ours is on its way.
    pub kicked: AtomicBool,
    /// Page of the last start-up IPI.
    pub start_up_page: AtomicU8,
    /// The last generation of flushes that it has done.
    pub flushed: AtomicU64,
    /// It refused to be taken since it was not offline.
    pub refused: AtomicBool,
    /// xAPIC mode: logical destination register, as Linux set it.
    pub logical: AtomicU32,
    /// xAPIC mode: destination format register.
    pub format: AtomicU32,
}

impl Cpu {
    const fn new() -> Self {
        Self {
            owner: AtomicU32::new(OUTSIDE),
            assigned: AtomicU32::new(NO_CELL),
            requests: AtomicU32::new(0),
            kicked: AtomicBool::new(false),
            start_up_page: AtomicU8::new(0),
            flushed: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            logical: AtomicU32::new(0),
            format: AtomicU32::new(!0),
        }
    }

    /// Who owns it.
    pub fn owner(&self) -> Owner {
        Owner::from_code(self.owner.load(Ordering::SeqCst))
    }

    /// The cell that it was given to.
    pub fn assigned(&self) -> Option<usize> {
        match self.assigned.load(Ordering::SeqCst) {
            NO_CELL => None,
            cell => Some(cell as usize),
        }
    }

    /// Gives it to a cell, or back.
    pub fn assign(&self, cell: Option<usize>) {
        self.assigned.store(cell.map_or(NO_CELL, |cell| cell as u32), Ordering::SeqCst);
    }
}

static CPUS: [Cpu; MAX_CPUS] = [const { Cpu::new() }; MAX_CPUS];

/// The CPU with this index, which is below [`MAX_CPUS`].
pub fn cpu(index: usize) -> &'static Cpu {
    &CPUS[index]
}

/// Changes the owner of a CPU.
pub fn set_owner(index: usize, owner: Owner) {
    CPUS[index].owner.store(owner.code(), Ordering::SeqCst);
    let reported = if owner == Owner::Outside { Owner::Root } else { owner };
    report::owner(index, reported.code());
}

/// The CPUs that `wanted` is true for.
pub fn cpus(wanted: impl Fn(&Cpu) -> bool) -> CpuSet {
    (0..cpu_count()).filter(|index| wanted(&CPUS[*index])).collect()
}

/// APIC id of a CPU.
pub fn apic_id(index: usize) -> u32 {
    launch_info().apic_ids[index]
}

/// How a CPU is addressed in interrupt commands.
pub fn apic_address(index: usize) -> Address {
    let cpu = &CPUS[index];
    Address {
        id: apic_id(index),
        logical: (cpu.logical.load(Ordering::Relaxed) >> 24) as u8,
        clustered: cpu.format.load(Ordering::Relaxed) >> 28 == 0,
    }
}

/// How a cell broke its bounds.
pub struct Failure {
    /// CPU.
    pub cpu: usize,
    /// `EXIT_*` of [`crtos_abi::report`].
    pub reason: usize,
    /// Instruction pointer.
    pub rip: u64,
    /// Address, port or register.
    pub address: u64,
    /// Exit code of the processor.
    pub code: u64,
    /// Its first information word.
    pub qualification: u64,
}

/// Memory and permissions of a cell, for the CPUs that start in it.
pub struct SharedDomain {
    nested_top: AtomicU64,
    port_bitmap: AtomicU64,
    msr_bitmap: AtomicU64,
}

impl SharedDomain {
    const fn new() -> Self {
        Self {
            nested_top: AtomicU64::new(0),
            port_bitmap: AtomicU64::new(0),
            msr_bitmap: AtomicU64::new(0),
        }
    }

    /// Writes them down.
    pub fn set(&self, domain: &Domain) {
        self.nested_top.store(domain.nested_top, Ordering::Relaxed);
        self.port_bitmap.store(domain.port_bitmap, Ordering::Relaxed);
        self.msr_bitmap.store(domain.msr_bitmap, Ordering::Relaxed);
    }

    /// Reads them, for `cell`.
    pub fn get(&self, cell: Option<usize>) -> Domain {
        Domain {
            nested_top: self.nested_top.load(Ordering::Relaxed),
            port_bitmap: self.port_bitmap.load(Ordering::Relaxed),
            msr_bitmap: self.msr_bitmap.load(Ordering::Relaxed),
            cell,
        }
    }
}

/// The root cell's.
pub static ROOT: SharedDomain = SharedDomain::new();

const STATE_NONE: u8 = 0xff;

/// A cell as its CPUs and interrupt commands see it.
pub struct Cell {
    state: AtomicU8,
    /// CPUs that run it.
    pub running: AtomicU32,
    /// Memory and permissions.
    pub domain: SharedDomain,
    /// Entry address of the next start.
    pub entry: AtomicU64,
    /// CR3 of the next start.
    pub page_table: AtomicU64,
    /// Argument of the next start.
    pub argument: AtomicU64,
    /// Vector of its doorbell.
    pub doorbell_vector: AtomicU8,
    /// Where its doorbells ring.
    pub routes: Routes,
    cpu_count: AtomicU32,
    cpus: [AtomicU32; MAX_CELL_CPUS],
    name: [AtomicU8; CELL_NAME_LEN],
}

impl Cell {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(STATE_NONE),
            running: AtomicU32::new(0),
            domain: SharedDomain::new(),
            entry: AtomicU64::new(0),
            page_table: AtomicU64::new(0),
            argument: AtomicU64::new(0),
            doorbell_vector: AtomicU8::new(0),
            routes: Routes::new(),
            cpu_count: AtomicU32::new(0),
            cpus: [const { AtomicU32::new(0) }; MAX_CELL_CPUS],
            name: [const { AtomicU8::new(0) }; CELL_NAME_LEN],
        }
    }

    /// Its state; `None` if there is no such cell.
    pub fn state(&self) -> Option<State> {
        state_from_code(self.state.load(Ordering::SeqCst))
    }

    /// Writes down a new cell.
    pub fn set_up(&self, config: &crtos_partition::config::Config, domain: &Domain) {
        self.running.store(0, Ordering::Relaxed);
        self.routes.clear();
        self.domain.set(domain);
        self.doorbell_vector.store(config.doorbell_vector, Ordering::Relaxed);
        let mut count = 0;
        for (place, cpu) in self.cpus.iter().zip(config.cpus()) {
            place.store(cpu as u32, Ordering::Relaxed);
            count += 1;
        }
        self.cpu_count.store(count, Ordering::Relaxed);
        for (place, byte) in self.name.iter().zip(config.name) {
            place.store(byte, Ordering::Relaxed);
        }
    }

    /// Its CPUs, in its own order.
    pub fn cpus(&self) -> impl Iterator<Item = usize> + '_ {
        let count = self.cpu_count.load(Ordering::Relaxed) as usize;
        self.cpus.iter().take(count).map(|cpu| cpu.load(Ordering::Relaxed) as usize)
    }

    /// Its name.
    pub fn name(&self) -> Name {
        Name(core::array::from_fn(|index| self.name[index].load(Ordering::Relaxed)))
    }
}

/// A cell's name, for the log.
pub struct Name([u8; CELL_NAME_LEN]);

impl core::fmt::Display for Name {
    fn fmt(&self, formatter: &mut core::fmt::Formatter) -> core::fmt::Result {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(CELL_NAME_LEN);
        formatter.write_str(core::str::from_utf8(&self.0[..end]).unwrap_or("?"))
    }
}

const STATES: [State; 5] =
    [State::Created, State::Running, State::Stopped, State::Failed, State::Reclaiming];

fn state_from_code(code: u8) -> Option<State> {
    STATES.get(usize::from(code)).copied()
}

fn state_code(state: Option<State>) -> u8 {
    let position = STATES.iter().position(|known| Some(*known) == state);
    position.map_or(STATE_NONE, |code| code as u8)
}

static CELLS: [Cell; MAX_CELLS] = [const { Cell::new() }; MAX_CELLS];

/// The place of a cell, whether it exists or not; `None` if the number is too large.
pub fn cell(number: usize) -> Option<&'static Cell> {
    CELLS.get(number)
}

/// Does this cell exist and run?
pub fn runs(number: usize) -> bool {
    cell(number).and_then(Cell::state) == Some(State::Running)
}

/// Does any cell exist?
pub fn any_cell() -> bool {
    CELLS.iter().any(|cell| cell.state().is_some())
}

/// Sets the state of a cell when it comes or goes.
pub fn set_cell_state(number: usize, state: Option<State>) {
    CELLS[number].state.store(state_code(state), Ordering::SeqCst);
    report::cell_state(number, state.map_or(crtos_abi::report::CELL_NONE, State::code));
}

/// Moves a cell on by `event`; returns the states before and after, or the error when it is not possible in its
/// state. A failure may come at any time, from any CPU of the cell; `before_report` runs when the state is decided and not yet
/// reported.
pub fn advance(
    number: usize,
    event: Event,
    before_report: impl FnOnce(),
) -> Result<(State, State), i64> {
    let cell = CELLS.get(number).ok_or(crtos_abi::hypercall::HV_NO_CELL)?;
    loop {
        let code = cell.state.load(Ordering::SeqCst);
        let state = state_from_code(code).ok_or(crtos_abi::hypercall::HV_NO_CELL)?;
        let next = state.after(event)?;
        let next_code = state_code(Some(next));
        let exchanged =
            cell.state.compare_exchange(code, next_code, Ordering::SeqCst, Ordering::SeqCst);
        if exchanged.is_ok() {
            before_report();
            report::cell_state(number, next.code());
            return Ok((state, next));
        }
    }
}
