// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which page tables a CPU uses, and forgetting translations on all CPUs that use the same ones.
//!
//! A CPU notes the root of its tables before it loads it. Who changed a table looks at these notes:
//! a CPU that does not show the root yet walks the tables after the change. The others are asked by
//! one interrupt each to forget all translations of programs, and are waited for, in thread context
//! and preemptibly; nothing is locked meanwhile, so any number of threads may do that at once. Each
//! waits for the longest section with interrupts off on the other CPUs. A CPU that runs a thread of
//! the kernel leaves the program's tables instead and is not asked again.

use super::cpu;
use super::interrupts::InterruptsOff;
use super::percpu::{self, PerCpu};
use crate::error;
use crate::mm::{frames, layout};
use crate::task::thread;
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use crtos_abi::UserAddr;
use crtos_vm::Frame;

/// How long a CPU may take to forget. It has interrupts off for microseconds at most.
const PATIENCE_MS: u64 = 1000;

/// Root of the tables without a program.
static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

/// Makes `root` the tables without a program, and loads them. On the first CPU at boot.
pub(super) fn set_kernel_root(root: Frame) {
    KERNEL_ROOT.store(root.0, Ordering::Release);
    load(percpu::this(), root);
}

/// Has this CPU use the tables without a program. Interrupts off.
pub fn load_kernel_root() {
    load(percpu::this(), kernel_root());
}

pub(super) fn kernel_root() -> Frame {
    Frame(KERNEL_ROOT.load(Ordering::Acquire))
}

fn load(cpu: &PerCpu, root: Frame) {
    cpu.set_root(root);
    // SAFETY: every root maps the kernel alike; what a program's half maps does not matter to Rust.
    // The instruction waits for the store above.
    unsafe { asm!("mov cr3, {}", in(reg) root.0, options(nostack, preserves_flags)) }
}

/// Has this CPU use the program's half under `root`. Interrupts off.
pub fn activate(root: Frame) {
    let cpu = percpu::this();
    if cpu.root() != root {
        load(cpu, root);
    }
}

/// Has this CPU use no program's half. Interrupts off.
pub fn deactivate() {
    activate(kernel_root());
}

/// Does what others asked by [`PerCpu::ask_flush`]. Interrupts off.
pub(super) fn serve_flush() {
    let cpu = percpu::this();
    if let Some(number) = cpu.flush_wanted() {
        flush_all(cpu);
        cpu.flushed(number);
    }
}

/// Forgets all translations of programs.
fn flush_all(cpu: &PerCpu) {
    match thread::runs_program() {
        true => load(cpu, cpu.root()),
        false => load(cpu, kernel_root()),
    }
}

/// Most pages that are forgotten one by one.
const PAGES: usize = 32;
/// Most tables that wait to be freed.
pub(super) const TABLES: usize = 4;

/// Translations that CPUs may remember although the tables have changed, and tables that they may
/// still walk. To be settled without a spin lock held, before what was mapped is used for anything
/// else; dropping it settles it too.
pub struct Stale {
    root: Frame,
    pages: [UserAddr; PAGES],
    /// How many pages, also those beyond the array.
    count: usize,
    tables: [Option<Frame>; TABLES],
}

impl Stale {
    /// Nothing yet, of the tables under `root`.
    pub const fn new(root: Frame) -> Self {
        Self { root, pages: [UserAddr::NULL; PAGES], count: 0, tables: [None; TABLES] }
    }

    /// The page at `address` has changed.
    pub(super) fn add(&mut self, address: UserAddr) {
        if let Some(slot) = self.pages.get_mut(self.count) {
            *slot = address;
        }
        self.count += 1;
    }

    /// The table that mapped `address` is not used any more; whether there was room to note that.
    /// It is freed when all CPUs know.
    pub(super) fn add_table(&mut self, address: UserAddr, table: Frame) {
        self.add(address);
        match self.tables.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(table),
            None => unreachable!("more tables go at a time than are looked at"),
        }
    }

    /// Has all CPUs forget. Thread context, interrupts on, no spin lock held; waits for other CPUs
    /// that use the same tables.
    pub fn settle(&mut self) {
        if self.count == 0 {
            return;
        }
        self.forget_here();
        // The change of the tables is visible before the roots are looked at.
        fence(Ordering::SeqCst);
        evict(self.root, false);
        self.count = 0;
        self.tables.iter_mut().filter_map(Option::take).for_each(frames::free_table);
    }

    fn forget_here(&self) {
        let interrupts = InterruptsOff::take();
        let cpu = percpu::this();
        if cpu.root() == self.root {
            match self.pages.get(..self.count) {
                // Invalidating a page also forgets the upper tables on the way to it.
                Some(pages) => pages.iter().for_each(|&page| flush_page(page)),
                None => flush_all(cpu),
            }
        }
        drop(interrupts);
    }
}

impl Drop for Stale {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Forgets the translation of one page on this CPU.
pub(super) fn flush_page(address: UserAddr) {
    // SAFETY: only drops a cached translation.
    unsafe { asm!("invlpg [{}]", in(reg) address.get(), options(nostack, preserves_flags)) }
}

/// Has all CPUs that use the tables under `root` load them anew, which also orders what they do in
/// memory, and makes them fetch instructions anew. Who starts to use them later has passed a
/// barrier by then. Thread context, interrupts on.
pub fn barrier(root: Frame) {
    let interrupts = InterruptsOff::take();
    flush_all(percpu::this());
    drop(interrupts);
    fence(Ordering::SeqCst);
    evict(root, false);
}

/// Has all other CPUs that use the tables under `root` forget all translations, and waits for them.
/// If nobody runs on the tables any more, none uses them afterwards, with `own` not even this one.
/// Thread context, interrupts on.
pub(super) fn evict(root: Frame, own: bool) {
    let interrupts = InterruptsOff::take();
    let this = percpu::this();
    if own && this.root() == root {
        deactivate();
    }
    let mut asked = [None; crtos_abi::MAX_CELL_CPUS];
    for other in percpu::others(this) {
        if other.root() == root {
            asked[other.index.get()] = Some((other, other.ask_flush()));
        }
    }
    let are_off = !interrupts.were_on();
    drop(interrupts);
    for (other, number) in asked.into_iter().flatten() {
        let deadline = cpu::tsc() + u64::from(layout::boot_info().tsc_khz) * PATIENCE_MS;
        while !other.has_flushed(number) {
            if are_off {
                // The other one may wait for this CPU.
                serve_flush();
            }
            // This thread may have waited for its turn meanwhile: the time is looked at first.
            if cpu::tsc() > deadline && !other.has_flushed(number) {
                report_silent(other);
            }
            core::hint::spin_loop();
        }
    }
}

/// Tells of a CPU that does not answer, once for each. Nobody can go on who waits for it.
#[cold]
fn report_silent(cpu: &PerCpu) {
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let bit = 1 << (cpu.index.get() % 64);
    if TOLD.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        error!("CPU {} of the realm does not answer: it was taken away", cpu.index);
    }
}
