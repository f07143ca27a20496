// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler of one CPU, and what it means to hold it: one such lock is held at a time, and
//! orders for other CPUs are carried out when it is released.

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use crtos_abi::ids::RealmCpu;
use crtos_sched::{CpuSet, RunQueue, TimerQueue, clock::Ticks};

use crate::arch::cpu;
use crate::arch::percpu::{self, PerCpu};
use crate::sync::{QuietGuard, SpinLock};
use crate::task::Thread;
use crate::task::cpu_states::CpuState;
use crate::task::migration::{self, Move};
use crate::time::Nanos;

/// Threads and timers of one CPU.
pub struct Runner {
    pub(in crate::task) state: SpinLock<State>,
}

pub(in crate::task) struct State {
    /// The CPU.
    pub(in crate::task) cpu: &'static PerCpu,
    /// That CPU alone.
    pub(in crate::task) own: CpuSet,
    /// What it tells the others.
    pub(in crate::task) state: &'static CpuState,
    pub(in crate::task) ready: RunQueue,
    /// Ready threads that compete by their deadlines, before those in `ready`.
    pub(in crate::task) deadlines: TimerQueue,
    /// The ready thread that goes before all in the queues, if there is one that was not queued: it
    /// was woken and is to run at once, or was preempted, and goes from here to the CPU. One that
    /// could run elsewhere is not left here.
    pub(in crate::task) first: Option<&'static Thread>,
    /// Ready threads that may run elsewhere: ordinary and real-time ones.
    pub(in crate::task) movable: [u32; 2],
    /// Threads' deadlines, then timers.
    pub(in crate::task) timers: TimerQueue,
    pub(in crate::task) current: &'static Thread,
    pub(in crate::task) idle: &'static Thread,
    /// Since when the current thread was not charged.
    pub(in crate::task) since: Ticks,
    /// When the turn of the current thread ends; [`Nanos::MAX`] if it does not.
    pub(in crate::task) turn_end: Nanos,
    /// The same, or before that when ordinary threads have waited long enough.
    pub(in crate::task) slice_end: Nanos,
    /// What the timer is set for; [`Nanos::MAX`] if it is not set.
    pub(in crate::task) programmed: Nanos,
    /// The function of a timer runs.
    pub(in crate::task) runs_function: bool,
    /// The CPU, another than this one, has to be told to look for another thread.
    pub(in crate::task) signal: bool,
    /// A thread that leaves for another CPU.
    pub(in crate::task) outgoing: Option<Move>,
}

// SAFETY: the threads that it refers to are there for every CPU.
unsafe impl Send for State {}

/// The scheduler of one CPU, locked. When it is dropped, interrupts that others need are sent and
/// threads that leave are delivered, all without the lock.
pub(in crate::task) struct Held {
    pub(in crate::task) state: ManuallyDrop<QuietGuard<'static, State>>,
    pub(in crate::task) interrupts: bool,
}

/// Locks the scheduler of the CPU that `which` tells, which may change its mind meanwhile.
pub(in crate::task) fn hold(which: impl Fn() -> RealmCpu) -> Held {
    let interrupts = cpu::disable_interrupts();
    let mut held = hold_quietly(which);
    held.interrupts = interrupts;
    held
}

/// As [`hold`] where interrupts are off and stay so.
#[inline(always)]
pub(super) fn hold_quietly(which: impl Fn() -> RealmCpu) -> Held {
    loop {
        let cpu = which();
        let held = match percpu::of(cpu).and_then(|cpu| cpu.runner.get()) {
            Some(runner) => Held::of(runner),
            None => panic!("CPU {cpu} has no scheduler"),
        };
        if which() == cpu {
            return held;
        }
    }
}

/// The scheduler of this CPU.
pub(in crate::task) fn hold_own() -> Held {
    let interrupts = cpu::disable_interrupts();
    let mut held = hold_here();
    held.interrupts = interrupts;
    held
}

/// The scheduler of this CPU. Interrupts are off and stay so.
#[inline(always)]
pub(super) fn hold_here() -> Held {
    match percpu::this().runner.get() {
        Some(runner) => Held::of(runner),
        None => panic!("the CPU has no scheduler"),
    }
}

/// The scheduler of the CPU that `thread` is assigned to.
pub(in crate::task) fn hold_of(thread: &Thread) -> Held {
    hold(|| thread.cpu())
}

impl Held {
    /// That scheduler. Interrupts are off and stay so.
    #[inline(always)]
    pub(super) fn of(runner: &'static Runner) -> Self {
        Self { state: ManuallyDrop::new(runner.state.lock_quietly()), interrupts: false }
    }

    /// What dropping does, where it has to be short.
    #[inline(always)]
    pub(super) fn release(self) {
        ManuallyDrop::new(self).end();
    }

    /// The last that is done with it.
    #[inline(always)]
    pub(super) fn end(&mut self) {
        // SAFETY: it is not used afterwards.
        let state = unsafe { ManuallyDrop::take(&mut self.state) };
        if state.signal || state.outgoing.is_some() {
            release_with_orders(state);
        } else {
            drop(state);
        }
        if self.interrupts {
            percpu::open();
        }
    }
}

/// Releases the lock and carries out what is to be done on other CPUs.
#[cold]
fn release_with_orders(mut state: QuietGuard<'static, State>) {
    let cpu = state.cpu;
    let signal = core::mem::take(&mut state.signal);
    let outgoing = state.outgoing.take();
    drop(state);
    if signal {
        cpu.kick();
    }
    if let Some(outgoing) = outgoing {
        migration::deliver(outgoing);
    }
}

impl Deref for Held {
    type Target = State;
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}
