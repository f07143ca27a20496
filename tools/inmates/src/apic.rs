// SPDX-License-Identifier: MIT OR Apache-2.0
//! The local APIC, by the x2APIC interface, and its timer.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crtos_registers::apic::{DIVIDE_BY_1, Register, SOFTWARE_ENABLE};
use x86_64::registers::model_specific::Msr;

use crate::{time, wait_for_interrupt};

/// Vector of the timer.
pub const TIMER_VECTOR: u8 = 0x40;
/// Vector of interrupts that came too late to be known.
const SPURIOUS_VECTOR: u8 = 0xff;

/// Counts of the timer in a million ticks of the time stamp counter; 0 before [`calibrate`].
static COUNTS_PER_MEGATICK: AtomicU64 = AtomicU64::new(0);
static CALIBRATION_BEGUN: AtomicBool = AtomicBool::new(false);
static CALIBRATING: AtomicBool = AtomicBool::new(false);
static FIRED_AT: AtomicU64 = AtomicU64::new(0);

fn write(register: Register, value: u64) {
    // SAFETY: A register of the cell's own interrupt controller.
    unsafe { Msr::new(register.msr()).write(value) }
}

/// Id of this CPU.
pub fn id() -> u32 {
    // SAFETY: Reading the id has no effect.
    unsafe { Msr::new(Register::ID.msr()).read() as u32 }
}

pub(crate) fn enable() {
    write(Register::SPURIOUS, u64::from(SOFTWARE_ENABLE) | u64::from(SPURIOUS_VECTOR));
    write(Register::TIMER_DIVIDE, DIVIDE_BY_1.into());
    write(Register::LVT_TIMER, TIMER_VECTOR.into());
}

/// Ends the interrupt `vector`, for a program with descriptor tables of its own.
pub fn end_of_interrupt(vector: u8) {
    if vector != SPURIOUS_VECTOR {
        write(Register::END_OF_INTERRUPT, 0);
    }
}

/// Writes an interrupt command.
pub fn send(destination: u32, low: u32) {
    write(Register::COMMAND, u64::from(destination) << 32 | u64::from(low));
}

/// Starts the timer: one interrupt [`TIMER_VECTOR`] after `counts`; 0 stops it.
pub fn start_timer(counts: u32) {
    write(Register::TIMER_INITIAL, counts.into());
}

/// Measures the timer against the time stamp counter: the first CPU that asks does it, others wait
/// for it, so that every CPU may start its timer afterwards. The current count is not read: that is
/// an exit of its own on some machines. Interrupts are off.
pub fn calibrate() {
    const COUNTS: u32 = 2_000_000;
    if CALIBRATION_BEGUN.swap(true, Ordering::SeqCst) {
        while COUNTS_PER_MEGATICK.load(Ordering::SeqCst) == 0 {
            core::hint::spin_loop();
        }
        return;
    }
    // An interrupt may be late, but not early: the shortest time is the best.
    let ticks = (0..5).map(|_| time_to_fire(COUNTS)).min().unwrap_or(1).max(1);
    COUNTS_PER_MEGATICK.store(u64::from(COUNTS) * 1_000_000 / ticks, Ordering::SeqCst);
}

/// Ticks of the time stamp counter until the timer fires after `counts`.
fn time_to_fire(counts: u32) -> u64 {
    CALIBRATING.store(true, Ordering::SeqCst);
    let start = time::tsc();
    start_timer(counts);
    while CALIBRATING.load(Ordering::SeqCst) {
        wait_for_interrupt();
    }
    FIRED_AT.load(Ordering::SeqCst).saturating_sub(start)
}

/// Takes the timer's interrupt for [`calibrate`].
pub(crate) fn calibration_tick(vector: u8) -> bool {
    let ours = vector == TIMER_VECTOR && CALIBRATING.load(Ordering::SeqCst);
    if ours {
        FIRED_AT.store(time::tsc(), Ordering::SeqCst);
        CALIBRATING.store(false, Ordering::SeqCst);
    }
    ours
}

/// Starts the timer for the moment at which the time stamp counter is `deadline`, at once if that
/// is past.
pub fn start_timer_at(deadline: u64) {
    let ticks = deadline.saturating_sub(time::tsc());
    let counts = ticks.saturating_mul(COUNTS_PER_MEGATICK.load(Ordering::Relaxed)) / 1_000_000;
    start_timer(u32::try_from(counts).unwrap_or(u32::MAX).max(1));
}
