// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler of one CPU, and what it means to hold it: one such lock is held at a time, and
//! orders for other CPUs are carried out when it is released.

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use crtos_abi::ids::RealmCpu;
use crtos_sched::{RunQueue, TimerQueue};

use crate::arch::cpu;
use crate::arch::percpu::{self, PerCpu};
use crate::sync::{SpinGuard, SpinLock};
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
    /// What it tells the others.
    pub(in crate::task) state: &'static CpuState,
    pub(in crate::task) ready: RunQueue,
    /// Ready threads that compete by their deadlines, before those in `ready`.
    pub(in crate::task) deadlines: TimerQueue,
    /// The ready thread that is more urgent than what runs and than all in the queues, if there is
    /// one: it goes from here to the CPU without being queued.
    pub(in crate::task) first: Option<&'static Thread>,
    /// Ready threads that may run elsewhere: ordinary and real-time ones.
    pub(in crate::task) movable: [u32; 2],
    /// Threads' deadlines, then timers.
    pub(in crate::task) timers: TimerQueue,
    pub(in crate::task) current: &'static Thread,
    pub(in crate::task) idle: &'static Thread,
    /// Since when the current thread was not charged.
    pub(in crate::task) since: Nanos,
    pub(in crate::task) slice_end: Option<Nanos>,
    /// What the timer is set for.
    pub(in crate::task) programmed: Option<Nanos>,
    /// The function of a timer runs.
    pub(in crate::task) runs_function: bool,
    pub(in crate::task) idle_time: Nanos,
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
    pub(in crate::task) state: ManuallyDrop<SpinGuard<'static, State>>,
    pub(in crate::task) interrupts: bool,
}

/// Locks the scheduler of the CPU that `which` tells, which may change its mind meanwhile.
pub(in crate::task) fn hold(which: impl Fn() -> RealmCpu) -> Held {
    let interrupts = cpu::disable_interrupts();
    loop {
        let cpu = which();
        let state = match percpu::of(cpu).and_then(|cpu| cpu.runner.get()) {
            Some(runner) => runner.state.lock_quietly(),
            None => panic!("CPU {cpu} has no scheduler"),
        };
        if which() == cpu {
            return Held { state: ManuallyDrop::new(state), interrupts };
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
        Some(runner) => {
            Held { state: ManuallyDrop::new(runner.state.lock_quietly()), interrupts: false }
        }
        None => panic!("the CPU has no scheduler"),
    }
}

/// The scheduler of the CPU that `thread` is assigned to.
pub(in crate::task) fn hold_of(thread: &Thread) -> Held {
    hold(|| thread.cpu())
}

impl Held {
    /// What dropping does, where it has to be short.
    #[inline(always)]
    pub(super) fn release(self) {
        ManuallyDrop::new(self).end();
    }

    /// The last that is done with it.
    #[inline(always)]
    pub(super) fn end(&mut self) {
        if self.signal || self.outgoing.is_some() {
            self.release_with_orders();
        } else {
            // SAFETY: the guard is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.state) }
        }
        if self.interrupts {
            percpu::open();
        }
    }

    /// Releases the lock and carries out what is to be done on other CPUs.
    #[cold]
    pub(super) fn release_with_orders(&mut self) {
        let cpu = self.cpu;
        let signal = core::mem::take(&mut self.signal);
        let outgoing = self.outgoing.take();
        // SAFETY: the guard is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.state) }
        if signal {
            cpu.kick();
        }
        if let Some(outgoing) = outgoing {
            migration::deliver(outgoing);
        }
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
