// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one CPU keeps for itself, and how others reach it.
//!
//! A CPU asks another one by setting bits in its `requests` and sending it an NMI, a *kick*. At
//! most one kick is on its way to a CPU at any time (`kicked`); so each NMI that arrives while
//! `kicked` is set is one of ours, and any other is the guest's. A CPU that waits in host mode
//! serves flushes by looking ([`Local::poll`]); the NMI that is still owed for them finds `kicked`
//! set and nothing to do. A real NMI that arrives together with a kick is merged with it by the
//! processor: the guest loses it, as it would lose the second of two of its own.

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crtos_abi::MAX_CPUS;
use crtos_abi::report::EXIT_REASONS;
use crtos_partition::address::PhysAddr;
use crtos_partition::ids::{CellId, CpuIndex};
use crtos_partition::log::Line;
use crtos_partition::performance::Performance;

use crate::arch::{NmiOutcome, Vcpu, VirtualCpu};
use crate::cpu::{self, Cpu};
use crate::{apic, direct_map, launch_info, processor, report};

/// Bytes of a [`Local`] with the stack above it; also its alignment.
pub(crate) const STACK_SIZE: usize = 32768;
/// Offset of the end of the stack from the [`Local`].
pub(crate) const STACK_TOP: usize = STACK_SIZE;
/// The least that is left for the stack. Most take copies of IOMMUs' tables: 1.2 KiB for each of up
/// to nine levels, and 6 KiB above.
const STACK_LEAST: usize = 28672;

/// What one CPU may ask of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Forget cached translations.
    Flush = 1 << 0,
    /// Inject an NMI.
    Nmi = 1 << 1,
    /// Become parked, as by an INIT of Linux.
    Init = 1 << 2,
    /// Start up for Linux at [`Cpu::start_up_page`].
    StartUp = 1 << 3,
    /// Run the cell that the CPU is assigned to, if that cell runs: the state of the cell decides,
    /// so that requests that come together or late do no harm.
    Start = 1 << 4,
    /// Leave the cell, if it does not run any more.
    Stop = 1 << 5,
}

/// Requests that came together.
#[derive(Clone, Copy)]
pub(crate) struct Requests(u32);

impl Requests {
    /// Tells whether `request` is among them.
    #[inline]
    pub(crate) fn has(self, request: Request) -> bool {
        self.0 & request as u32 != 0
    }

    /// Tells whether there are none.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// CPUs that have done a flush wait until this ends.
static HELD: AtomicBool = AtomicBool::new(false);

/// CPUs that are asked for [`Request::Flush`] wait behind it, as long as this exists. To be held
/// for moments only.
pub struct Hold(());

impl Hold {
    /// Holds CPUs from now on.
    #[expect(clippy::new_without_default, reason = "it has an effect")]
    pub fn new() -> Self {
        HELD.store(true, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        HELD.store(false, Ordering::SeqCst);
    }
}

/// Counts flushes that were asked of all CPUs.
static FLUSH_GENERATION: AtomicU64 = AtomicU64::new(0);

/// Addresses of each CPU's [`Local`]; 0 if there is none.
pub(crate) static LOCALS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// What one CPU keeps for itself. Its stack follows. Whoever has a `&mut Local` runs on that CPU,
/// in the hypervisor, with its descriptor tables and on that stack.
#[repr(C)]
pub struct Local {
    /// The guest. The run loop expects it at the start.
    vcpu: Vcpu,
    index: CpuIndex,
    cell: Option<CellId>,
    /// Set by the handler of NMIs.
    pub(crate) nmi_seen: AtomicBool,
    /// The guest has to get an NMI.
    pub nmi_wanted: bool,
    /// The line that the cell is writing.
    pub console: Line,
    /// When the policy last logged something that Linux did; 0 if never.
    pub last_complaint: u64,
    /// What Linux had asked for before the CPU ran a cell.
    pub(crate) performance: Option<Performance>,
    exits: [u64; EXIT_REASONS],
    doorbells: u64,
    /// When the CPU left its guest, or got one.
    since: u64,
    ticks: u64,
}

const _: () = assert!(offset_of!(Local, vcpu) == 0);
const _: () = assert!(size_of::<Local>() + STACK_LEAST <= STACK_SIZE);

/// Asks something of the CPU `index`.
pub fn request(index: CpuIndex, request: Request) {
    cpu::get(index).requests.fetch_or(request as u32, Ordering::SeqCst);
    kick(index);
}

/// Makes the CPU `index` leave its guest.
fn kick(index: CpuIndex) {
    if !cpu::get(index).kicked.swap(true, Ordering::SeqCst) {
        apic::get().nmi(launch_info::apic_id(index));
    }
}

/// Begins a generation of flushes and returns its number. Each CPU that is asked for
/// [`Request::Flush`] afterwards says that it has done this generation: [`Cpu::has_flushed`].
pub fn next_flush() -> u64 {
    FLUSH_GENERATION.fetch_add(1, Ordering::SeqCst) + 1
}

impl Local {
    /// Makes the memory of CPU `index` at `place`, and puts it where [`crate::launch`] finds it.
    ///
    /// # Safety
    /// [`STACK_SIZE`] bytes from `place` are the hypervisor's and used for nothing else, aligned to
    /// their size.
    pub(crate) unsafe fn make(place: PhysAddr, index: CpuIndex, vcpu: Vcpu) {
        let local = Self {
            vcpu,
            index,
            cell: None,
            nmi_seen: AtomicBool::new(false),
            nmi_wanted: false,
            console: Line::new(),
            last_complaint: 0,
            performance: None,
            exits: [0; EXIT_REASONS],
            doorbells: 0,
            since: 0,
            ticks: 0,
        };
        // SAFETY: The memory is large enough and aligned, and nobody else uses it.
        unsafe { direct_map::pointer::<Self>(place).write(local) };
        LOCALS[index.get()].store(place.get(), Ordering::Release);
    }

    /// The guest.
    #[inline]
    pub fn vcpu(&mut self) -> &mut Vcpu {
        &mut self.vcpu
    }

    /// The CPU's index.
    #[inline]
    pub fn index(&self) -> CpuIndex {
        self.index
    }

    /// The cell whose guest is loaded; `None` for the root cell.
    #[inline]
    pub fn cell(&self) -> Option<CellId> {
        self.cell
    }

    /// Notes whose guest is loaded.
    pub(crate) fn set_cell(&mut self, cell: Option<CellId>) {
        self.cell = cell;
    }

    /// The CPU as the others see it.
    #[inline]
    pub fn cpu(&self) -> &'static Cpu {
        cpu::get(self.index)
    }

    /// Takes what was asked of this CPU.
    #[inline]
    pub(crate) fn take_requests(&mut self) -> Requests {
        Requests(self.cpu().requests.swap(0, Ordering::SeqCst))
    }

    /// Counts an exit for `reason`, `EXIT_*` of [`crtos_abi::report`].
    #[inline]
    pub fn count(&mut self, reason: usize) {
        if let Some(count) = self.exits.get_mut(reason) {
            *count += 1;
            report::exits(self.index, reason, *count);
        }
    }

    /// Begins to count the time that is spent in the hypervisor.
    #[inline]
    pub(crate) fn begin_time(&mut self) {
        self.since = processor::tsc();
    }

    /// Ends that before the guest goes on.
    #[inline]
    pub(crate) fn end_time(&mut self) {
        self.ticks += processor::tsc().saturating_sub(self.since);
        report::ticks(self.index, self.ticks);
    }

    /// Counts a doorbell.
    #[inline]
    pub fn count_doorbell(&mut self) {
        self.doorbells += 1;
        report::doorbells(self.index, self.doorbells);
    }

    /// Takes the NMI that the guest was left for. True if it was a kick, otherwise it is the
    /// guest's.
    pub fn take_nmi(&mut self) -> bool {
        // SAFETY: In host mode on the stack of this CPU.
        unsafe { Vcpu::nmi_window() };
        self.nmi_seen.store(false, Ordering::Relaxed);
        self.cpu().kicked.swap(false, Ordering::SeqCst)
    }

    /// Lets a pending NMI in that the guest was not left for. One that is not a kick is the
    /// guest's.
    pub fn accept_nmi(&mut self) {
        // SAFETY: In host mode on the stack of this CPU.
        unsafe { Vcpu::nmi_window() };
        if self.nmi_seen.swap(false, Ordering::Relaxed)
            && !self.cpu().kicked.swap(false, Ordering::SeqCst)
        {
            self.nmi_wanted = true;
        }
    }

    /// Notes a kick that arrived in host mode, so that the next one is sent. Requests are looked at
    /// afterwards.
    #[inline]
    pub(crate) fn note_kick(&mut self) {
        if self.nmi_seen.swap(false, Ordering::Relaxed) {
            self.cpu().kicked.store(false, Ordering::SeqCst);
        }
    }

    /// Waits for an NMI in host mode, unless one came already while interrupts of the last guest
    /// were drained. One that is not a kick means nothing to a CPU without a guest.
    pub(crate) fn wait_for_nmi(&mut self) {
        if !self.nmi_seen.load(Ordering::Relaxed) {
            // SAFETY: In host mode on the stack of this CPU.
            unsafe { Vcpu::wait_for_nmi() };
        }
        self.note_kick();
        self.begin_time();
    }

    /// Carries out a flush that was asked for. To be called wherever a CPU waits for another one.
    pub fn poll(&mut self) {
        if self.take_flush() {
            self.flush_while_held();
        }
        core::hint::spin_loop();
    }

    /// Takes the request for a flush, if there is one.
    fn take_flush(&mut self) -> bool {
        const FLUSH: u32 = Request::Flush as u32;
        let requests = &self.cpu().requests;
        requests.load(Ordering::Relaxed) & FLUSH != 0
            && requests.fetch_and(!FLUSH, Ordering::SeqCst) & FLUSH != 0
    }

    /// Forgets cached translations and says so: the guest, whose translations they are, does not
    /// run before VMRUN has dropped them (APM vol. 2, 15.16.1).
    pub fn flush(&mut self) {
        let generation = FLUSH_GENERATION.load(Ordering::SeqCst);
        self.vcpu.flush();
        self.cpu().flushed.store(generation, Ordering::SeqCst);
    }

    /// Carries out a flush, and waits as long as CPUs are held ([`Hold`]), if this one runs Linux.
    /// The next ones that hold them may begin before this CPU sees that the last ones are done: so
    /// it goes on flushing.
    pub(crate) fn flush_while_held(&mut self) {
        self.flush();
        while self.cell.is_none() && HELD.load(Ordering::SeqCst) {
            if self.take_flush() {
                self.flush();
            }
            core::hint::spin_loop();
        }
    }

    /// Gives the guest its NMI. If another event has to be delivered first, comes back right after
    /// that; if the guest handles the last one, when it returns.
    #[inline]
    pub(crate) fn inject_nmi(&mut self) {
        if !self.nmi_wanted {
            return;
        }
        match self.vcpu.inject_nmi() {
            NmiOutcome::Given => self.nmi_wanted = false,
            NmiOutcome::Blocked => (),
            NmiOutcome::Busy => kick(self.index),
        }
    }
}
