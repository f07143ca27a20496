// SPDX-License-Identifier: MIT OR Apache-2.0
//! The local APIC in x2APIC mode (APM vol. 2, 16) and its one-shot timer.
//!
//! The current count is never read: the time stamp counter tells the time.

use super::{cpu, percpu};
use crate::time::{self, Nanos};
use core::sync::atomic::{AtomicU64, Ordering, fence};
use crtos_abi::channel::{KICK_VECTOR, TIMER_VECTOR};
use crtos_registers::apic::{
    ApicId, DIVIDE_BY_1, LVT_MASKED, Register, SOFTWARE_ENABLE, TIMER_TSC_DEADLINE, command,
};
use crtos_registers::msr;

/// Vector of errors of the APIC.
pub const ERROR_VECTOR: u8 = 0xfe;
/// Vector of spurious interrupts, which want no end of interrupt.
pub const SPURIOUS_VECTOR: u8 = 0xff;

fn write(register: Register, value: u64) {
    // SAFETY: a register of the APIC in x2APIC mode; only interrupts follow from it.
    unsafe { cpu::write_msr(register.msr(), value) }
}

fn read(register: Register) -> u64 {
    // SAFETY: a readable register of the APIC.
    unsafe { cpu::read_msr(register.msr()) }
}

/// Counts of the timer per tick of the time stamp counter, times 2^32; 0 in TSC-deadline mode.
static COUNTS_PER_TICK: AtomicU64 = AtomicU64::new(0);

/// Set by the timer's interrupt while it is calibrated: the tick at which it came.
static CALIBRATION: AtomicU64 = AtomicU64::new(0);

/// Enables this CPU's APIC. Interrupts off.
pub fn set_up() {
    write(Register::SPURIOUS, u64::from(SOFTWARE_ENABLE) | u64::from(SPURIOUS_VECTOR));
    write(Register::TASK_PRIORITY, 0);
    write(Register::LVT_LINT0, LVT_MASKED.into());
    write(Register::LVT_LINT1, LVT_MASKED.into());
    write(Register::LVT_ERROR, u64::from(ERROR_VECTOR));
    write(Register::ERROR_STATUS, 0);
    if cpu::features().tsc_deadline {
        write(Register::LVT_TIMER, u64::from(TIMER_TSC_DEADLINE) | u64::from(TIMER_VECTOR));
    } else {
        write(Register::TIMER_DIVIDE, DIVIDE_BY_1.into());
        write(Register::LVT_TIMER, u64::from(TIMER_VECTOR));
    }
}

/// Measures the timer against the time stamp counter, by interrupt. On the first CPU at boot,
/// interrupts off before and after.
pub fn calibrate() {
    if cpu::features().tsc_deadline {
        return;
    }
    const SHORT: u64 = 1 << 12;
    const TRIES: usize = 4;
    const LONG: Nanos = Nanos::from_millis(1);
    // A CPU that an emulator's host seldom runs would else wait for minutes.
    const LONGEST: Nanos = Nanos::from_millis(50);
    const PATIENCE: Nanos = Nanos::from_millis(200);
    let clock = time::clock();
    // Long enough beside what comes between a count's end and the handler.
    let least = (0..TRIES).map(|_| time_of(SHORT)).min().unwrap_or(0);
    let wanted = (16 * least).clamp(clock.ticks(LONG).0, clock.ticks(LONGEST).0);
    let mut count = 2 * SHORT;
    while count < 1 << 31 && (0..TRIES).any(|_| time_of(count) < wanted) {
        count *= 2;
    }
    // In turn: what takes some of a CPU's time, takes it from both.
    let (mut short, mut long) = (Shortest::new(), Shortest::new());
    let end = cpu::tsc() + clock.ticks(PATIENCE).0;
    let ticks = loop {
        short.note(time_of(SHORT));
        long.note(time_of(count));
        // What both have in common (the way to the handler) falls out.
        let ticks = long.least.saturating_sub(short.least);
        if ticks > 0 && (short.is_agreed() && long.is_agreed() || cpu::tsc() > end) {
            break ticks;
        }
    };
    let ratio = (u128::from(count - SHORT) << 32) / u128::from(ticks);
    COUNTS_PER_TICK.store(u64::try_from(ratio).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// The shortest of several times of the same. Firmware, and what an emulator does for other CPUs,
/// make some longer; were all of one kind longer, the timer would be late at every deadline.
struct Shortest {
    least: u64,
    /// How many are as short.
    agreeing: usize,
}

impl Shortest {
    fn new() -> Self {
        Self { least: u64::MAX, agreeing: 0 }
    }

    fn note(&mut self, time: u64) {
        let close = time::clock().ticks(Nanos(50)).0;
        if time > self.least.saturating_add(close) {
            return;
        }
        self.agreeing = if time.saturating_add(close) < self.least { 1 } else { self.agreeing + 1 };
        self.least = self.least.min(time);
    }

    fn is_agreed(&self) -> bool {
        self.agreeing >= 8
    }
}

/// Ticks until the interrupt after `count` comes.
fn time_of(count: u64) -> u64 {
    CALIBRATION.store(0, Ordering::Relaxed);
    let start = cpu::tsc();
    write(Register::TIMER_INITIAL, count);
    loop {
        cpu::wait_for_interrupt();
        cpu::disable_interrupts();
        let end = CALIBRATION.load(Ordering::Relaxed);
        if end != 0 {
            return end.saturating_sub(start);
        }
    }
}

/// Counts of the timer per millisecond; 0 if it follows the time stamp counter.
pub fn timer_khz() -> u64 {
    let ratio = u128::from(COUNTS_PER_TICK.load(Ordering::Relaxed));
    ((ratio * u128::from(time::clock().ticks(Nanos::from_millis(1)).0)) >> 32) as u64
}

/// Has the timer of this CPU fire at `deadline`, or earlier if that is further away than it can
/// count; `None` stops it. Interrupts off.
pub fn set_timer(deadline: Option<Nanos>) {
    if cpu::features().tsc_deadline {
        let tick = deadline.map_or(0, |deadline| time::clock().tick(deadline));
        // SAFETY: the processor has the register; only the timer's interrupt follows from it.
        unsafe { cpu::write_msr(msr::TSC_DEADLINE, tick) };
        return;
    }
    let count = match deadline {
        None => 0,
        Some(deadline) => {
            let ticks = time::clock().tick(deadline).saturating_sub(cpu::tsc());
            let ratio = COUNTS_PER_TICK.load(Ordering::Relaxed);
            let count = (u128::from(ticks) * u128::from(ratio)) >> 32;
            // Zero would stop it; rounding up is less than a count late.
            count.saturating_add(1).min(u128::from(u32::MAX)) as u64
        }
    };
    write(Register::TIMER_INITIAL, count);
}

/// Notes the timer's interrupt while it is calibrated; `false` afterwards.
pub fn note_calibration() -> bool {
    let calibrating = percpu::this().runner.get().is_none();
    if calibrating {
        CALIBRATION.store(cpu::tsc(), Ordering::Relaxed);
    }
    calibrating
}

/// Interrupts the CPU whose APIC has this id with [`KICK_VECTOR`]. What was stored before is
/// visible to it then. Any context; causes one VM exit.
pub fn interrupt(apic_id: ApicId) {
    const LOW: u64 = command::ASSERT as u64 | KICK_VECTOR as u64;
    // A write to this register does not wait for earlier stores by itself.
    fence(Ordering::SeqCst);
    write(Register::COMMAND, u64::from(apic_id.0) << command::X2APIC_DESTINATION_SHIFT | LOW);
}

/// Interrupts this CPU with `vector`, as a device would.
#[cfg(feature = "self-test")]
pub fn interrupt_self(vector: u8) {
    const SELF: u64 = 1 << 18;
    write(Register::COMMAND, SELF | u64::from(command::ASSERT) | u64::from(vector));
}

/// Ends the interrupt in service. Interrupts off.
pub fn end_of_interrupt() {
    write(Register::END_OF_INTERRUPT, 0);
}

/// Whether `vector` is in service and wants its end. Interrupts off.
pub fn in_service(vector: u8) -> bool {
    read(Register::IN_SERVICE.plus(vector / 32)) & (1 << (vector % 32)) != 0
}
