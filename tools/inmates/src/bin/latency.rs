// SPDX-License-Identifier: MIT OR Apache-2.0
//! How late does a timer interrupt arrive?
//!
//! Each CPU starts its timer for absolute moments, one period apart, and notes how much later the
//! handler runs. Command line: `period=MICROSECONDS` (1000), `ticks=NUMBER` between reports (1000),
//! `echo` to answer each doorbell by ringing Linux. Results, in nanoseconds, stand in the shared
//! block, 1 KiB for each CPU: see [`word`].
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use crtos_abi::MAX_CELL_CPUS;
use crtos_inmates::{apic, boot, hypercall, inmate, println, shared, time, wait_for_interrupt};

inmate!(main, interrupt);

/// Words of a CPU in the shared block.
mod word {
    /// Timer interrupts so far.
    pub const TICKS: usize = 0;
    /// Least lateness.
    pub const MIN: usize = 1;
    /// Greatest lateness.
    pub const MAX: usize = 2;
    /// Sum of all.
    pub const SUM: usize = 3;
    /// Doorbells that arrived.
    pub const DOORBELLS: usize = 4;
    /// Ticks by lateness: below 1 µs, below 2 µs, ...; the last one is for the rest.
    pub const HISTOGRAM: usize = 8;
    /// Buckets.
    pub const BUCKETS: usize = 64;
    /// Words for each CPU.
    pub const PER_CPU: usize = 128;
}

/// Used when the cell has no shared block.
static OWN: [AtomicU64; word::PER_CPU * MAX_CELL_CPUS] =
    [const { AtomicU64::new(0) }; word::PER_CPU * MAX_CELL_CPUS];
static NEXT: [AtomicU64; MAX_CELL_CPUS] = [const { AtomicU64::new(0) }; MAX_CELL_CPUS];

fn words(cpu: usize) -> &'static [AtomicU64] {
    let all = shared::words().map_or(&OWN[..], |words| &words[..]);
    &all[cpu * word::PER_CPU..(cpu + 1) * word::PER_CPU]
}

fn this_cpu() -> usize {
    boot::info().apic_ids.iter().position(|id| *id == apic::id()).unwrap_or(0)
}

fn period() -> u64 {
    time::ticks(boot::number("period").unwrap_or(1000) * 1000)
}

fn main(cpu: usize) {
    let report_every = boot::number("ticks").unwrap_or(1000).max(1);
    let micros = boot::number("period").unwrap_or(1000);
    let words = words(cpu);
    words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    words[word::MIN].store(u64::MAX, Ordering::Relaxed);
    apic::calibrate();
    println!("latency: CPU {cpu}, APIC {}, period {micros} us", apic::id());
    NEXT[cpu].store(time::tsc() + period(), Ordering::Relaxed);
    apic::start_timer_at(NEXT[cpu].load(Ordering::Relaxed));
    let mut reported = 0;
    loop {
        wait_for_interrupt();
        let ticks = words[word::TICKS].load(Ordering::Relaxed);
        if ticks >= reported + report_every {
            reported = ticks;
            report(cpu, words);
        }
    }
}

fn report(cpu: usize, words: &[AtomicU64]) {
    let value = |word: usize| words[word].load(Ordering::Relaxed);
    let ticks = value(word::TICKS);
    println!(
        "latency: CPU {cpu}, {ticks} ticks, late by min {} avg {} max {} ns, {} doorbells",
        value(word::MIN),
        value(word::SUM) / ticks.max(1),
        value(word::MAX),
        value(word::DOORBELLS)
    );
}

fn interrupt(vector: u8) {
    let now = time::tsc();
    let cpu = this_cpu();
    let words = words(cpu);
    let add = |word: usize, value: u64| words[word].fetch_add(value, Ordering::Relaxed);
    if vector == apic::TIMER_VECTOR {
        let expected = NEXT[cpu].load(Ordering::Relaxed);
        let late = time::nanos(now.saturating_sub(expected));
        add(word::SUM, late);
        words[word::MIN].fetch_min(late, Ordering::Relaxed);
        words[word::MAX].fetch_max(late, Ordering::Relaxed);
        add(word::HISTOGRAM + (late as usize / 1000).min(word::BUCKETS - 1), 1);
        add(word::TICKS, 1);
        // A report takes longer than some periods: those are left out, not made up for.
        let next = (expected + period()).max(now + period() / 2);
        NEXT[cpu].store(next, Ordering::Relaxed);
        apic::start_timer_at(next);
    } else if u32::from(vector) == boot::info().doorbell_vector {
        add(word::DOORBELLS, 1);
        if boot::flag("echo") {
            hypercall::ring_linux();
        }
    }
}
