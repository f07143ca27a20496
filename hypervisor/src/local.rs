// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one CPU keeps for itself, and how others reach it.
//!
//! A CPU asks another one by setting bits in its `requests` and sending it an NMI, a *kick*. At most one kick is on
//! its way to a CPU at any time (`kicked`); so each NMI that arrives while `kicked` is set is one of ours, and any
//! other is the guest's. A CPU that waits in host mode serves flushes by looking ([`Local::poll`]); the NMI that is
//! still owed for them finds `kicked` set and nothing to do. Should a real NMI arrive in the same moment as a kick, then the
//! processor merges the two and the guest loses its own, as it would lose the second of two of its own.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crtos_abi::MAX_CPUS;
use crtos_abi::report::EXIT_REASONS;
use crtos_partition::log::Line;

use crate::arch::{Event, Vcpu, VirtualCpu};
use crate::machine::{self, Cpu};
use crate::{apic, park, report};

/// Bytes of a [`Local`] with the stack above it; also its alignment.
pub const STACK_SIZE: usize = 16384;
/// Offset of the end of the stack from the [`Local`].
pub const STACK_TOP: usize = STACK_SIZE;
/// The least that is left for the stack.
const STACK_LEAST: usize = 12288;

/// Forget cached translations.
pub const FLUSH: u32 = 1 << 0;
/// Inject an NMI.
pub const NMI: u32 = 1 << 1;
/// Become parked, as by an INIT of Linux.
pub const INIT: u32 = 1 << 2;
/// Start up for Linux at `start_up_page`.
pub const START_UP: u32 = 1 << 3;
/// Run the cell that the CPU is assigned to, if that cell runs: the state of the cell decides, so that requests that
/// come together or late do no harm.
pub const START: u32 = 1 << 4;
/// Leave the cell, if it does not run any more.
pub const STOP: u32 = 1 << 5;

/// Counts flushes that were asked of all CPUs.
pub static FLUSH_GENERATION: AtomicU64 = AtomicU64::new(0);

/// Addresses of each CPU's [`Local`]; 0 if there is none.
pub static LOCALS: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// What one CPU keeps for itself. Its stack follows.
#[repr(C)]
pub struct Local {
    /// The guest.
    pub vcpu: Vcpu,
    /// The CPU's index.
    pub index: usize,
    /// The cell whose guest is loaded; `None` for the root cell.
    pub cell: Option<usize>,
    /// Set by the NMI handler.
    pub nmi_seen: AtomicBool,
    /// The guest has to get an NMI.
    pub nmi_wanted: bool,
    /// The line that the cell is writing.
    pub console: Line,
    /// When a fault of the root cell was logged last.
    pub last_complaint: u64,
    exits: [u64; EXIT_REASONS],
    doorbells: u64,
}

const _: () = assert!(size_of::<Local>() + STACK_LEAST <= STACK_SIZE);

/// Asks `what` of the CPU `index`.
pub fn request(index: usize, what: u32) {
    machine::cpu(index).requests.fetch_or(what, Ordering::SeqCst);
    kick(index);
}

/// Makes the CPU `index` leave its guest.
pub fn kick(index: usize) {
    if !machine::cpu(index).kicked.swap(true, Ordering::SeqCst) {
        apic::get().send(machine::apic_id(index), apic::ASSERT | apic::NMI);
    }
}

impl Local {
    /// For the CPU `index`.
    pub fn new(index: usize, vcpu: Vcpu) -> Self {
        Self {
            vcpu,
            index,
            cell: None,
            nmi_seen: AtomicBool::new(false),
            nmi_wanted: false,
            console: Line::new(),
            last_complaint: 0,
            exits: [0; EXIT_REASONS],
            doorbells: 0,
        }
    }

    /// The CPU as the others see it.
    pub fn cpu(&self) -> &'static Cpu {
        machine::cpu(self.index)
    }

    /// Counts an exit for `reason`.
    pub fn count(&mut self, reason: usize) {
        if let Some(count) = self.exits.get_mut(reason) {
            *count += 1;
            report::exits(self.index, reason, *count);
        }
    }

    /// Counts a doorbell.
    pub fn count_doorbell(&mut self) {
        self.doorbells += 1;
        report::doorbells(self.index, self.doorbells);
    }

    /// Takes the NMI that the guest was left for. Was it a kick?
    pub fn take_nmi(&mut self) -> bool {
        Vcpu::nmi_window();
        self.nmi_seen.store(false, Ordering::Relaxed);
        self.cpu().kicked.swap(false, Ordering::SeqCst)
    }

    /// Lets a pending NMI in that the guest was not left for. One that is not a kick is the guest's.
    pub fn accept_nmi(&mut self) {
        Vcpu::nmi_window();
        if self.nmi_seen.swap(false, Ordering::Relaxed)
            && !self.cpu().kicked.swap(false, Ordering::SeqCst)
        {
            self.nmi_wanted = true;
        }
    }

    /// Notes a kick that arrived in host mode, so that the next one is sent. Requests are looked at afterwards.
    pub fn note_kick(&mut self) {
        if self.nmi_seen.swap(false, Ordering::Relaxed) {
            self.cpu().kicked.store(false, Ordering::SeqCst);
        }
    }

    /// Waits for an NMI in host mode, unless one came already while interrupts of the last guest were drained.
    /// One that is not a kick means nothing to a CPU without a guest.
    pub fn wait_for_nmi(&mut self) {
        if !self.nmi_seen.load(Ordering::Relaxed) {
            Vcpu::wait_for_nmi();
        }
        self.note_kick();
    }

    /// Does a flush that was asked for. To be called wherever a CPU waits for another one.
    pub fn poll(&mut self) {
        if self.cpu().requests.load(Ordering::Relaxed) & FLUSH != 0 {
            self.cpu().requests.fetch_and(!FLUSH, Ordering::SeqCst);
            self.flush();
        }
        core::hint::spin_loop();
    }

    /// Forgets cached translations and says so.
    pub fn flush(&mut self) {
        let generation = FLUSH_GENERATION.load(Ordering::SeqCst);
        self.vcpu.flush();
        self.cpu().flushed.store(generation, Ordering::SeqCst);
    }

    /// Does what others asked. The CPU may have another guest afterwards.
    pub fn serve(&mut self) {
        loop {
            self.note_kick();
            let requests = self.cpu().requests.swap(0, Ordering::SeqCst);
            if requests == 0 {
                return;
            }
            if requests & FLUSH != 0 {
                self.flush();
            }
            if requests & NMI != 0 {
                self.nmi_wanted = true;
            }
            if requests & START != 0 {
                park::take(self);
            }
            if requests & STOP != 0 && self.cell.is_some_and(|cell| !machine::runs(cell)) {
                park::leave_cell(self);
                park::wait(self);
            }
            if requests & INIT != 0 && self.cell.is_none() {
                // A start-up IPI may have come together with it. Without INIT it has no effect on a CPU that runs.
                self.cpu().requests.fetch_or(requests & START_UP, Ordering::SeqCst);
                park::enter(self);
                park::wait(self);
            }
        }
    }

    /// Gives the guest its NMI. If another event has to be delivered first, comes back right after that.
    pub fn inject_nmi(&mut self) {
        if !self.nmi_wanted {
            return;
        }
        if self.vcpu.can_inject() {
            self.nmi_wanted = false;
            self.vcpu.inject(Event::Nmi);
        } else {
            kick(self.index);
        }
    }
}
