// SPDX-License-Identifier: MIT OR Apache-2.0
//! For how long interrupts are off, and where.
//!
//! From the moment in which a CPU turns interrupts off, or takes an interrupt, until it turns them
//! on again, nothing more urgent can run there. Every such section is measured, always, at a cost
//! of some dozen instructions: [`begin`] notes the time and the place, [`end`] compares. What is
//! longer than the shortest of those that are kept goes into a table, which has one entry for each
//! place of beginning, and into the channel, where `crtos stats` finds it. A section may begin in
//! one thread and end in another: it belongs to the CPU.
//!
//! The file of the kernel lists the instructions that begin and end sections (the ELF section
//! `.crtos.sections`, which is not loaded), so that an observer from outside, `./x bench sections`,
//! can count what is executed between them.

use crate::arch::{cpu, percpu};
use crate::mm::layout;
use core::arch::asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crtos_abi::{
    channel::{SECTIONS, Section},
    ids::RealmCpu,
};

/// The sections of one CPU. Only that CPU touches it, with interrupts off.
pub struct Sections {
    /// When the section that goes on began.
    start: AtomicU64,
    /// Where it began.
    place: AtomicU64,
    /// Sections have to take more ticks than this to be kept.
    threshold: AtomicU32,
    longest: [Longest; SECTIONS],
}

struct Longest {
    ticks: AtomicU64,
    begin: AtomicU64,
}

const START: usize = percpu::SECTIONS + offset_of!(Sections, start);
const PLACE: usize = percpu::SECTIONS + offset_of!(Sections, place);
const THRESHOLD: usize = percpu::SECTIONS + offset_of!(Sections, threshold);

impl Sections {
    /// None yet, and none is kept before [`start`].
    #[expect(clippy::new_without_default, reason = "only constants are made of it")]
    pub const fn new() -> Self {
        Self {
            start: AtomicU64::new(0),
            place: AtomicU64::new(0),
            threshold: AtomicU32::new(u32::MAX),
            longest: [const { Longest { ticks: AtomicU64::new(0), begin: AtomicU64::new(0) } };
                SECTIONS],
        }
    }

    /// Keeps a section of `ticks` that ended at `end`.
    fn keep(&self, cpu: RealmCpu, ticks: u64, end: u64) {
        let begin = self.place.load(Relaxed);
        let mut place = 0;
        for (index, entry) in self.longest.iter().enumerate() {
            if entry.begin.load(Relaxed) == begin {
                place = index;
                break;
            }
            if entry.ticks.load(Relaxed) < self.longest[place].ticks.load(Relaxed) {
                place = index;
            }
        }
        let entry = &self.longest[place];
        if ticks <= entry.ticks.load(Relaxed) {
            return;
        }
        entry.ticks.store(ticks, Relaxed);
        entry.begin.store(begin, Relaxed);
        let shortest = self.longest.iter().map(|entry| entry.ticks.load(Relaxed)).min();
        self.threshold.store(shortest.map_or(u32::MAX, saturating), Relaxed);
        publish(cpu, place, Section { ticks, begin, end });
    }
}

fn saturating(ticks: u64) -> u32 {
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

fn publish(cpu: RealmCpu, place: usize, section: Section) {
    let Some(channel) = layout::channel() else { return };
    // SAFETY: the channel is mapped, these words are the kernel's, and both indices are in range;
    // Linux only reads them.
    unsafe {
        (&raw mut (*channel.as_ptr()).sections)
            .cast::<Section>()
            .add(cpu.get() * SECTIONS + place)
            .write_volatile(section);
    }
}

/// What the list in the kernel's file says of an instruction: a section begins.
const BEGIN: u64 = 0;
/// A section begins that an interrupt or exception brought.
const BEGIN_BY_ENTRY: u64 = 1;
/// A section ends.
const END: u64 = 2;
/// Sections of the CPU are kept from here on.
const KEEP: u64 = 3;

/// Lists the instruction at the label 2 with `{kind}`.
macro_rules! listed {
    () => {
        ".pushsection .crtos.sections, \"\", @progbits\n.quad 2b, {kind}\n.popsection"
    };
}

/// From now on sections of this CPU are kept.
pub fn start() {
    // SAFETY: writes a word of this CPU.
    unsafe {
        asm!(
            "2:",
            "mov dword ptr gs:[{threshold}], 0",
            listed!(),
            threshold = const THRESHOLD,
            kind = const KEEP,
            options(nostack, preserves_flags),
        );
    }
}

/// A section begins here. Interrupts off.
#[inline(always)]
pub fn begin() {
    // SAFETY: reads the time stamp counter, and writes two words of this CPU. The kernel's
    // addresses are numbers of 32 bits with their sign.
    unsafe {
        asm!(
            "rdtsc",
            "2:",
            "movl %eax, %gs:{start}",
            "movl %edx, %gs:{start} + 4",
            "movq $2b, %gs:{place}",
            listed!(),
            start = const START,
            place = const PLACE,
            kind = const BEGIN,
            out("rax") _,
            out("rdx") _,
            options(att_syntax, nostack, preserves_flags),
        );
    }
}

/// A section begins with the entry at `place`, which is to stand for it. Interrupts off.
#[inline(always)]
pub fn begin_at(place: u64) {
    // SAFETY: reads the time stamp counter, and writes two words of this CPU.
    unsafe {
        asm!(
            "rdtsc",
            "2:",
            "mov gs:[{start}], eax",
            "mov gs:[{start} + 4], edx",
            "mov gs:[{place}], {at}",
            listed!(),
            at = in(reg) place,
            start = const START,
            place = const PLACE,
            kind = const BEGIN_BY_ENTRY,
            out("rax") _,
            out("rdx") _,
            options(nostack, preserves_flags),
        );
    }
}

/// The tick with which the section that goes on has begun. Interrupts off.
#[inline(always)]
pub fn began() -> u64 {
    percpu::this().sections.start.load(Relaxed)
}

/// How many ticks the section that goes on has taken, modulo 2^32: a look at the lower half takes
/// half as many instructions. Interrupts off.
#[inline(always)]
fn elapsed() -> u32 {
    let ticks: u32;
    // SAFETY: reads the time stamp counter and a word of this CPU.
    unsafe {
        asm!(
            "rdtsc",
            "sub eax, gs:[{start}]",
            start = const START,
            out("eax") ticks,
            out("edx") _,
            options(nostack, readonly),
        );
    }
    ticks
}

/// Whether the section that goes on has taken more than so many ticks. Of one that has taken more
/// than 2^32, it may be said that it has not. Interrupts off.
#[inline(always)]
pub fn is_longer(limit: u32) -> bool {
    elapsed() > limit
}

/// The section ends here. Interrupts off.
#[inline(always)]
pub fn end() {
    let ticks = elapsed();
    let threshold: u32;
    // SAFETY: reads a word of this CPU.
    unsafe {
        asm!(
            "2:",
            "mov {value:e}, gs:[{threshold}]",
            listed!(),
            value = out(reg) threshold,
            threshold = const THRESHOLD,
            kind = const END,
            options(nostack, readonly, preserves_flags),
        );
    }
    if ticks > threshold {
        let place: u64;
        // SAFETY: reads the instruction pointer.
        unsafe { asm!("lea {}, [rip]", out(reg) place, options(nostack, nomem, preserves_flags)) };
        keep(place);
    }
}

#[cold]
#[inline(never)]
fn keep(end: u64) {
    let cpu = percpu::this();
    // Also of one that has taken more than 2^32.
    let ticks = cpu::tsc().wrapping_sub(began());
    cpu.sections.keep(cpu.index, ticks, end);
}
