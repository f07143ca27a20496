// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts of this CPU: off while a guard lives, on for a moment where the entry allows it.

use core::marker::PhantomData;

pub use super::percpu::{
    interrupt_window_if_long as window_if_long, interrupt_window_in_timer as window_in_timer,
    preemption_held,
};
use super::{apic, cpu};
pub use cpu::are_interrupts_on as are_on;

/// Keeps interrupts off. They are as they were before when it is dropped; a pending preemption
/// waits for the next chance.
#[must_use]
pub struct InterruptsOff {
    were_on: bool,
    not_send: PhantomData<*mut ()>,
}

impl InterruptsOff {
    /// Turns interrupts off, if they are on.
    #[inline(always)]
    pub fn take() -> Self {
        Self { were_on: cpu::disable_interrupts(), not_send: PhantomData }
    }

    /// Whether interrupts were on before.
    #[inline(always)]
    pub fn were_on(&self) -> bool {
        self.were_on
    }
}

impl Drop for InterruptsOff {
    #[inline(always)]
    fn drop(&mut self) {
        cpu::restore_interrupts(self.were_on);
    }
}

/// The interrupt of a device that this CPU serves. Until this is dropped, the CPU takes no other
/// one of a device, whatever window opens: the timer's and other CPUs' are of a higher class (APM
/// vol. 2, 16.6). A line that is a level interrupts again if it is raised then.
#[must_use]
pub struct InService {
    not_send: PhantomData<*mut ()>,
}

impl InService {
    /// An interrupt has come that nobody has ended.
    pub(super) fn new() -> Self {
        Self { not_send: PhantomData }
    }
}

impl Drop for InService {
    #[inline(always)]
    fn drop(&mut self) {
        apic::end_of_interrupt();
    }
}

/// The way back to user mode, on which interrupts are off.
pub struct WayBack(());

impl WayBack {
    /// Interrupts are off, and the caller can stand that they are on for a moment.
    pub(super) fn new() -> Self {
        Self(())
    }

    /// Calls `f` with interrupts on; it may sleep.
    #[inline(always)]
    pub fn with_interrupts<R>(&mut self, f: impl FnOnce() -> R) -> R {
        cpu::restore_interrupts(true);
        let result = f();
        cpu::turn_interrupts_off();
        result
    }
}
