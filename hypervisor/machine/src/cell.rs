// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cells as their CPUs and interrupt commands see them. All of it is atomic, since these take
//! no lock.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crtos_abi::cell::CELL_NAME_LEN;
use crtos_abi::{MAX_CELL_CPUS, MAX_CELLS, MAX_CPUS};
use crtos_partition::address::{GuestAddr, PhysAddr};
use crtos_partition::budget::Budget;
use crtos_partition::config::Config;
use crtos_partition::doorbell::Routes;
use crtos_partition::error::Refusal;
use crtos_partition::ids::{CellId, CpuIndex};
use crtos_partition::lifecycle::{Event, State};
use crtos_partition::nested::NestedTables;

use crate::arch::{Domain, NestedFormat, Start};
use crate::report::{self, Failure};
use crate::{cpu, direct_map};

/// Memory and permissions of a cell, for the CPUs that start in it.
pub(crate) struct SharedDomain {
    /// 0 while there is none.
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
    pub(crate) fn set(&self, domain: &Domain) {
        self.port_bitmap.store(domain.port_bitmap.get(), Ordering::Relaxed);
        self.msr_bitmap.store(domain.msr_bitmap.get(), Ordering::Relaxed);
        self.nested_top.store(domain.nested_top.get(), Ordering::SeqCst);
    }

    /// Forgets them.
    fn clear(&self) {
        self.nested_top.store(0, Ordering::SeqCst);
    }

    /// Reads them, for `cell`; `None` if there are none.
    pub(crate) fn get(&self, cell: Option<CellId>) -> Option<Domain> {
        let nested_top = self.nested_top.load(Ordering::SeqCst);
        (nested_top != 0).then(|| Domain {
            nested_top: PhysAddr::new(nested_top),
            port_bitmap: PhysAddr::new(self.port_bitmap.load(Ordering::Relaxed)),
            msr_bitmap: PhysAddr::new(self.msr_bitmap.load(Ordering::Relaxed)),
            cell,
        })
    }
}

/// The root cell's, from the launch on and for ever.
pub(crate) static ROOT: SharedDomain = SharedDomain::new();

const STATE_NONE: u8 = 0xff;

/// A cell as its CPUs and interrupt commands see it.
pub struct Cell {
    state: AtomicU8,
    /// CPUs that run it.
    running: AtomicU32,
    /// Memory and permissions.
    pub(crate) domain: SharedDomain,
    entry: AtomicU64,
    page_table: AtomicU64,
    argument: AtomicU64,
    /// That of its doorbell, and that where it rings for a link.
    vectors: [AtomicU8; 2],
    /// The flush after which no CPU of it reaches what left its share window.
    pub left: AtomicU64,
    /// It has, or had, a PCI function since it was created.
    pub has_had_device: AtomicBool,
    /// Where its doorbells ring.
    pub routes: Routes,
    /// What each CPU may hear of them, and of those that it rings of its neighbours.
    pub doorbells: [Budget; MAX_CPUS],
    /// A bit for each cell with which it was linked. Both have to have the other's.
    linked: AtomicU16,
    /// Neighbours that ring it just now.
    pub rings: AtomicU32,
    cpu_count: AtomicU8,
    cpus: [AtomicU8; MAX_CELL_CPUS],
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
            vectors: [const { AtomicU8::new(0) }; 2],
            left: AtomicU64::new(0),
            has_had_device: AtomicBool::new(false),
            routes: Routes::new(),
            doorbells: [const { Budget::new() }; MAX_CPUS],
            linked: AtomicU16::new(0),
            rings: AtomicU32::new(0),
            cpu_count: AtomicU8::new(0),
            cpus: [const { AtomicU8::new(0) }; MAX_CELL_CPUS],
            name: [const { AtomicU8::new(0) }; CELL_NAME_LEN],
        }
    }

    /// Its state; `None` if there is no such cell.
    pub fn state(&self) -> Option<State> {
        state_from_code(self.state.load(Ordering::SeqCst))
    }

    /// Writes down a new cell.
    pub(crate) fn set_up(&self, config: &Config, domain: &Domain) {
        self.routes.clear();
        self.linked.store(0, Ordering::SeqCst);
        self.has_had_device.store(false, Ordering::Relaxed);
        self.domain.set(domain);
        for (place, vector) in self.vectors.iter().zip(config.vectors) {
            place.store(vector, Ordering::Relaxed);
        }
        let mut count = 0;
        for (place, cpu) in self.cpus.iter().zip(config.cpus()) {
            place.store(cpu.get() as u8, Ordering::Relaxed);
            count += 1;
        }
        self.cpu_count.store(count, Ordering::Relaxed);
        for (place, byte) in self.name.iter().zip(config.name) {
            place.store(byte, Ordering::Relaxed);
        }
    }

    /// Sees to it that no CPU comes in any more. False if one runs the cell: then its memory and
    /// permissions are still in use.
    pub(crate) fn retire(&self) -> bool {
        self.domain.clear();
        self.is_vacant()
    }

    /// Counts a CPU that is about to run the cell. It has to look at [`Self::domain`] afterwards:
    /// whoever clears that and then finds no CPU counted knows that none comes in any more.
    pub(crate) fn come_in(&self) {
        self.running.fetch_add(1, Ordering::SeqCst);
    }

    /// Discounts a CPU that does not run the cell any more.
    pub(crate) fn go_out(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    /// Number of CPUs that run it.
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::SeqCst)
    }

    /// Tells whether no CPU runs it.
    pub fn is_vacant(&self) -> bool {
        self.running() == 0
    }

    /// Says where and with what its CPUs start the next time.
    pub fn set_start(&self, start: Start) {
        self.entry.store(start.entry, Ordering::SeqCst);
        self.page_table.store(start.page_table.get(), Ordering::SeqCst);
        self.argument.store(start.argument, Ordering::SeqCst);
    }

    /// Where and with what its CPUs start.
    pub(crate) fn start(&self) -> Start {
        Start {
            entry: self.entry.load(Ordering::SeqCst),
            page_table: GuestAddr::new(self.page_table.load(Ordering::SeqCst)),
            argument: self.argument.load(Ordering::SeqCst),
        }
    }

    /// Vector of its doorbell, where it rings for a link or for something else.
    #[inline]
    pub fn vector(&self, for_link: bool) -> u8 {
        self.vectors[usize::from(for_link)].load(Ordering::Relaxed)
    }

    /// Where it sees the byte of the machine's memory at `physical`. Only for a CPU that runs it:
    /// its tables are in use and do not change.
    pub fn address_of(&self, physical: PhysAddr) -> Option<GuestAddr> {
        let domain = self.domain.get(None)?;
        NestedTables::<NestedFormat>::find(&direct_map::table_entry, domain.nested_top, physical)
    }

    /// Its CPUs, in its own order.
    #[inline]
    pub fn cpus(&self) -> impl Iterator<Item = CpuIndex> + '_ {
        let count = self.cpu_count.load(Ordering::Relaxed).into();
        let indices = self.cpus.iter().take(count).map(|cpu| cpu.load(Ordering::Relaxed));
        indices.filter_map(|index| CpuIndex::new(index.into()))
    }

    /// Tells whether its CPUs have forgotten what left its share window.
    pub fn has_forgotten_left(&self) -> bool {
        let left = self.left.load(Ordering::SeqCst);
        self.cpus().all(|index| cpu::get(index).has_flushed(left))
    }

    /// Its name.
    pub fn name(&self) -> Name {
        Name(core::array::from_fn(|index| self.name[index].load(Ordering::Relaxed)))
    }
}

/// A cell's name, for the log.
pub struct Name([u8; CELL_NAME_LEN]);

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(CELL_NAME_LEN);
        formatter.write_str(core::str::from_utf8(&self.0[..end]).unwrap_or("?"))
    }
}

const STATES: [State; 6] = [
    State::Created,
    State::Running,
    State::Locked,
    State::Stopped,
    State::Failed,
    State::Reclaiming,
];

fn state_from_code(code: u8) -> Option<State> {
    STATES.get(usize::from(code)).copied()
}

fn state_code(state: Option<State>) -> u8 {
    let position = STATES.iter().position(|known| Some(*known) == state);
    position.map_or(STATE_NONE, |code| code as u8)
}

static CELLS: [Cell; MAX_CELLS] = [const { Cell::new() }; MAX_CELLS];

/// The place of a cell, whether it exists or not.
#[inline]
pub fn get(cell: CellId) -> &'static Cell {
    &CELLS[cell.get()]
}

/// Tells whether this cell exists and runs.
pub fn runs(cell: CellId) -> bool {
    get(cell).state().is_some_and(State::runs)
}

/// Makes two cells neighbours, until one of them is destroyed.
pub fn link(one: CellId, other: CellId) {
    get(one).linked.fetch_or(1 << other.get(), Ordering::SeqCst);
    get(other).linked.fetch_or(1 << one.get(), Ordering::SeqCst);
}

/// Tells whether two cells are neighbours. A new cell in the place of an old one has no bit.
#[inline]
pub fn are_linked(one: CellId, other: CellId) -> bool {
    let has = |of: CellId, bit: CellId| get(of).linked.load(Ordering::SeqCst) >> bit.get() & 1 != 0;
    has(one, other) && has(other, one)
}

/// Tells whether any cell exists.
pub fn any() -> bool {
    CELLS.iter().any(|cell| cell.state().is_some())
}

/// Tells whether any cell is locked.
pub fn any_locked() -> bool {
    CELLS.iter().any(|cell| cell.state() == Some(State::Locked))
}

/// Sets the state of a cell when it comes or goes.
pub fn set_state(cell: CellId, state: Option<State>) {
    get(cell).state.store(state_code(state), Ordering::SeqCst);
    report::cell_state(cell, state);
}

/// Moves a cell on by `event`; returns the states before and after, or why that is not possible in
/// its state.
pub fn advance(cell: CellId, event: Event) -> Result<(State, State), Refusal> {
    advance_and(cell, event, || ())
}

/// Notes that a cell failed, which may happen at any time on any of its CPUs; the first failure is
/// reported.
pub fn fail(cell: CellId, failure: &Failure) -> Result<(), Refusal> {
    advance_and(cell, Event::Fail, || report::cell_failed(cell, failure)).map(|_| ())
}

/// As [`advance`]; `before_report` runs when the state is decided and not yet reported.
fn advance_and(
    cell: CellId,
    event: Event,
    before_report: impl FnOnce(),
) -> Result<(State, State), Refusal> {
    let place = &get(cell).state;
    loop {
        let code = place.load(Ordering::SeqCst);
        let state = state_from_code(code).ok_or(Refusal::NoCell)?;
        let next = state.after(event)?;
        let next_code = state_code(Some(next));
        if place.compare_exchange(code, next_code, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            before_report();
            report::cell_state(cell, Some(next));
            return Ok((state, next));
        }
    }
}
