// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace: what happened on each CPU, in rings that Linux reads (see
//! [`crtos_abi::channel::TraceEvent`]).
//!
//! Off, a point costs a comparison and a jump. On, it costs some dozen instructions, and no system
//! call takes the fast path. Nobody waits for the reader: the oldest events are overwritten. Linux
//! turns it on and off by a word in the channel and the doorbell.

use crate::arch::InterruptsOff;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crtos_abi::{
    MAX_CELL_CPUS,
    channel::{Channel, TRACE_EVENTS, TRACE_KERNEL_THREAD, TRACE_SWITCH, TRACE_WAKE, TraceEvent},
};

use crate::{
    arch::{cpu, percpu},
    mm::layout,
    task::Thread,
};

/// Whether events are recorded; the entry of system calls looks at it, too.
pub static ON: AtomicBool = AtomicBool::new(false);

/// Events of each CPU's ring.
static CAPACITY: AtomicU32 = AtomicU32::new(0);
/// Events that each CPU has written.
static WRITTEN: [AtomicU64; MAX_CELL_CPUS] = [const { AtomicU64::new(0) }; MAX_CELL_CPUS];

/// Whether events are recorded.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Divides the rings among the CPUs of the cell. At boot.
pub fn set_up() {
    let cpus = layout::boot_info().cpu_count.clamp(1, MAX_CELL_CPUS as u32);
    let share = TRACE_EVENTS as u32 / cpus;
    let capacity = 1 << share.ilog2();
    CAPACITY.store(capacity, Ordering::Relaxed);
    if let Some(channel) = layout::channel() {
        // SAFETY: the channel is mapped and the word is the kernel's.
        unsafe { (&raw mut (*channel.as_ptr()).trace_capacity).write_volatile(capacity) };
    }
}

/// Does what Linux wants. Called when the doorbell rang.
pub fn follow() {
    if let Some(channel) = layout::channel() {
        // SAFETY: the channel is mapped; any value is taken.
        let wanted = unsafe { (&raw const (*channel.as_ptr()).trace_on).read_volatile() };
        ON.store(wanted != 0, Ordering::Relaxed);
    }
}

/// Something of `kind` happened to the current thread. Any context.
#[inline(always)]
pub fn event(kind: u32, first: u64, second: u64) {
    if is_on() {
        record(kind, first, second);
    }
}

/// The CPU leaves the current thread for `next`. Interrupts off.
#[inline(always)]
pub fn switch(next: &Thread) {
    if is_on() {
        record_thread(TRACE_SWITCH, next);
    }
}

/// `thread` was made ready. Any context.
#[inline(always)]
pub fn wake(thread: &Thread) {
    if is_on() {
        record_thread(TRACE_WAKE, thread);
    }
}

/// How a trace calls a thread.
fn id(thread: &Thread) -> u32 {
    thread.trace_id
}

#[cold]
#[inline(never)]
fn record_thread(kind: u32, thread: &Thread) {
    let mut name = [0; 8];
    for (to, from) in name.iter_mut().zip(thread.name.bytes()) {
        *to = from;
    }
    let priority = u64::from(thread.effective_level().get());
    record(kind, priority << 32 | u64::from(id(thread)), u64::from_le_bytes(name));
}

#[cold]
#[inline(never)]
fn record(kind: u32, first: u64, second: u64) {
    let Some(channel) = layout::channel() else { return };
    let interrupts = InterruptsOff::take();
    let cpu = percpu::this();
    // SAFETY: the current thread exists while it runs.
    let thread = unsafe { cpu.current().as_ref() }.map_or(TRACE_KERNEL_THREAD, id);
    let event = TraceEvent { time: cpu::tsc(), kind, thread, first, second };
    let capacity = CAPACITY.load(Ordering::Relaxed) as usize;
    let index = cpu.index.get();
    if let Some(written) = WRITTEN.get(index).filter(|_| capacity != 0) {
        let count = written.load(Ordering::Relaxed);
        let place = index * capacity + (count as usize & (capacity - 1));
        written.store(count + 1, Ordering::Relaxed);
        publish(channel.as_ptr(), index, place, event, count + 1);
    }
    drop(interrupts);
}

/// Stores an event at `place`, which is below [`TRACE_EVENTS`], and counts it.
fn publish(channel: *mut Channel, cpu: usize, place: usize, event: TraceEvent, written: u64) {
    // SAFETY: the channel is mapped, these words are the kernel's, and the indices are in range;
    // Linux only reads them.
    unsafe {
        (&raw mut (*channel).trace_events).cast::<TraceEvent>().add(place).write_volatile(event);
        AtomicU64::from_ptr((&raw mut (*channel).trace_written).cast::<u64>().add(cpu))
            .store(written, Ordering::Release);
    }
}
