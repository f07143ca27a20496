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
    MAX_CELL_CPUS, UserAddr,
    channel::{
        Channel, LAPSE_FAULT, LAPSE_REMOTE, TRACE_CALL, TRACE_EVENTS, TRACE_FAULT,
        TRACE_KERNEL_THREAD, TRACE_LAPSE, TRACE_MAPPED, TRACE_MAPPING, TRACE_PATH, TRACE_REGISTERS,
        TRACE_REMOTE, TRACE_STACK, TRACE_STACK_BYTES, TRACE_SWITCH, TRACE_WAKE, TRACE_WANT_EVENTS,
        TRACE_WANT_LAPSES, TRACE_WANT_STACKS, TraceEvent,
    },
};

use crate::{
    arch::{UserContext, cpu, percpu, user_memory},
    mm::layout,
    task::{self, Level, Thread},
};

/// Whether events are recorded; the entry of system calls looks at it, too.
pub static ON: AtomicBool = AtomicBool::new(false);

/// What Linux wants: `TRACE_WANT_*`.
static WANTED: AtomicU32 = AtomicU32::new(0);

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
        WANTED.store(wanted, Ordering::Relaxed);
        ON.store(wanted & TRACE_WANT_EVENTS != 0, Ordering::Relaxed);
    }
}

/// Something of `kind` happened to the current thread. Any context.
#[inline(always)]
pub fn event(kind: u32, first: u64, second: u64) {
    if is_on() {
        record(kind, first, second);
    }
}

/// Whether lapses are recorded, and where programs are when they come to one.
#[inline(always)]
pub fn wants_lapses() -> bool {
    is_on() && WANTED.load(Ordering::Relaxed) & TRACE_WANT_LAPSES != 0
}

/// The program of the current thread makes system call `number`.
#[inline(always)]
pub fn call(context: &UserContext, number: u64) {
    if is_on() {
        note_place(context);
        record(TRACE_CALL, number, context.rdi);
    }
}

/// The program of the current thread has touched `address`, where a page is missing. Interrupts are
/// on.
#[inline(always)]
pub fn fault(context: &UserContext, address: u64, error: u64) {
    if is_on() {
        note_place(context);
        lapse(LAPSE_FAULT);
        record(TRACE_FAULT, address, error);
    }
}

/// The current thread has Linux do `op`. In a thread, interrupts on.
#[inline(always)]
pub fn remote(op: u32, number: u32) {
    if is_on() {
        lapse(LAPSE_REMOTE);
        record(TRACE_REMOTE, op.into(), number.into());
    }
}

/// The current thread is about to do something that has no worst case, `LAPSE_*`. In a thread,
/// interrupts on.
#[inline(always)]
pub fn lapse(kind: u32) {
    if wants_lapses() {
        record_lapse(kind);
    }
}

/// Where a program was when it entered the kernel; kept while lapses are recorded.
#[derive(Default)]
pub struct Place {
    instruction: AtomicU64,
    stack: AtomicU64,
    frame: AtomicU64,
}

#[cold]
fn note_place(context: &UserContext) {
    let thread = task::current();
    let place = &thread.place;
    place.instruction.store(context.rip, Ordering::Relaxed);
    place.stack.store(context.rsp, Ordering::Relaxed);
    place.frame.store(context.rbp, Ordering::Relaxed);
}

#[cold]
#[inline(never)]
fn record_lapse(kind: u32) {
    let thread = task::current();
    let level = thread.effective_level();
    if level <= Level::ORDINARY || !thread.carried.is_something() {
        return;
    }
    let word = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let second = u64::from(level.get()) << 32 | u64::from(kind);
    record(TRACE_LAPSE, word(&thread.place.instruction), second);
    if WANTED.load(Ordering::Relaxed) & TRACE_WANT_STACKS != 0 {
        record(TRACE_REGISTERS, word(&thread.place.stack), word(&thread.place.frame));
        record_stack(UserAddr::new(word(&thread.place.stack)));
    }
}

/// Records the program's stack from `start` up, as far as it is there.
fn record_stack(start: UserAddr) {
    const PIECE: usize = user_memory::STEP;
    let mut piece = [0; PIECE];
    for offset in (0..TRACE_STACK_BYTES).step_by(PIECE) {
        let length = user_memory::read(start.wrapping_add(offset as u64), &mut piece);
        for [first, second] in pairs(&piece[..length]) {
            record(TRACE_STACK, first, second);
        }
        if length < PIECE {
            return;
        }
    }
}

/// The pairs of words of which `bytes` consist, without what is too short.
fn pairs(bytes: &[u8]) -> impl Iterator<Item = [u64; 2]> {
    let (pairs, _) = bytes.as_chunks::<16>();
    pairs.iter().map(|pair| {
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| pair[at + index]));
        [word(0), word(8)]
    })
}

/// The program of the current thread executes `length` bytes at `start`, which lie at `offset` of
/// the file that `path` names.
pub fn mapping(start: UserAddr, length: u64, offset: u64, path: &[u8]) {
    record(TRACE_MAPPING, start.get(), offset);
    for piece in path.chunks(16) {
        let mut whole = [0; 16];
        whole[..piece.len()].copy_from_slice(piece);
        for [first, second] in pairs(&whole) {
            record(TRACE_PATH, first, second);
        }
    }
    record(TRACE_MAPPED, length, 0);
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
