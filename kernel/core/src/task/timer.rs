// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers that call a function.
//!
//! A timer belongs to the CPU that armed it last, so that arming never needs another CPU.

use super::SpawnError;
use super::clock_set;
use super::scheduler::{self, Held};
use super::thread::MAX_THREADS;
use crate::arch::percpu;
use crate::sync::SpinLock;
use crate::time::{self, Deadline, Nanos};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crtos_abi::ids::RealmCpu;
use crtos_sched::{AtomicCpu, CpuSet};

/// Most timers.
pub const MAX_TIMERS: usize = 2048;

/// What happens when a timer fires.
pub(super) struct Expiry {
    expired: Box<dyn Fn() + Send + Sync>,
    /// Its number behind those of the threads' deadlines.
    id: u16,
    /// The CPU that it belongs to; changes under the lock of that CPU's scheduler.
    cpu: AtomicCpu,
    /// The CPUs that run `expired`, as a [`CpuSet`]: another one may while it is not over on one
    /// where it was armed before.
    runs_on: AtomicU32,
    /// It was armed for a deadline that can move.
    follows: AtomicBool,
}

/// All timers by number.
static EXPIRIES: [SpinLock<Option<Arc<Expiry>>>; MAX_TIMERS] =
    [const { SpinLock::new(None) }; MAX_TIMERS];

/// Bit per number in use.
static USED: SpinLock<[u64; MAX_TIMERS / 64]> = SpinLock::new([0; MAX_TIMERS / 64]);

/// Whether the deadline with number `id` is a timer's, not a thread's.
pub(super) fn is_timer(id: u16) -> bool {
    usize::from(id) >= MAX_THREADS
}

/// What to do when the deadline with number `id` comes; `None` if it is a thread's.
pub(super) fn expiry(id: u16) -> Option<Arc<Expiry>> {
    let place = usize::from(id).checked_sub(MAX_THREADS)?;
    EXPIRIES.get(place)?.lock().clone()
}

impl Expiry {
    /// The function is about to run on `cpu`. Under the lock of that CPU's scheduler.
    pub fn begin(&self, cpu: RealmCpu) {
        self.runs_on.fetch_or(CpuSet::one(cpu).0, Ordering::Relaxed);
    }

    /// Runs the function. Interrupts off, no lock held.
    pub fn run(&self) {
        (self.expired)();
        self.runs_on.fetch_and(!CpuSet::one(percpu::this().index).0, Ordering::Release);
    }

    /// Whether another CPU runs the function.
    fn runs_elsewhere(&self) -> bool {
        let cpus = CpuSet(self.runs_on.load(Ordering::Acquire));
        !cpus.without(percpu::this().index).is_empty()
    }

    /// The scheduler of its CPU.
    fn hold(&self) -> Held {
        scheduler::hold(|| self.cpu.load(Ordering::Acquire))
    }

    /// See [`Timer::arm`]. A deadline that moves is computed under the lock, so that of two who arm
    /// it the later one is right.
    fn arm(&self, deadline: Deadline) {
        let id = self.id;
        loop {
            let mut state = self.hold();
            if state.is_here() {
                state.timers.arm(id, deadline.time());
                return state.program();
            }
            state.timers.cancel(id);
            // Interrupts are off while it is held.
            self.cpu.store(percpu::this().index, Ordering::Release);
        }
    }
}

/// Has the function of the timer with number `id` be called at once on this CPU. The timer exists
/// for as long.
pub(super) fn call_soon(id: u16) {
    if let Some(expiry) = expiry(id) {
        expiry.arm(time::now().into());
    }
}

/// A one-shot timer. Dropping it cancels it.
pub struct Timer(Arc<Expiry>);

impl Timer {
    /// A timer that calls `expired` in interrupt context (interrupts off: bounded, no sleeping, no
    /// allocation; it may wake threads and arm timers, also its own, and
    /// [`percpu::interrupt_window_in_timer`]), on the CPU that armed it. Allocates; thread context.
    pub fn new(expired: Box<dyn Fn() + Send + Sync>) -> Result<Self, SpawnError> {
        if !crate::mm::heap::has_reserve() {
            return Err(SpawnError);
        }
        let place = {
            let mut used = USED.lock();
            let free = used.iter_mut().enumerate().find(|(_, bits)| **bits != u64::MAX);
            let (word, bits) = free.ok_or(SpawnError)?;
            let bit = bits.trailing_ones();
            *bits |= 1 << bit;
            word * 64 + bit as usize
        };
        let expiry = Arc::new(Expiry {
            expired,
            id: (MAX_THREADS + place) as u16,
            cpu: AtomicCpu::new(percpu::this().index),
            runs_on: AtomicU32::new(0),
            follows: AtomicBool::new(false),
        });
        *EXPIRIES[place].lock() = Some(expiry.clone());
        Ok(Self(expiry))
    }

    /// Fires at `deadline` instead of whatever was set before; if its clock is set meanwhile,
    /// before that as well. Any context; one at a time.
    pub fn arm(&self, deadline: impl Into<Deadline>) {
        let deadline = deadline.into();
        let follows = deadline.can_move();
        if self.0.follows.load(Ordering::Relaxed) != follows {
            self.0.follows.store(follows, Ordering::Relaxed);
            clock_set::set(self.0.id, follows);
        }
        self.0.arm(deadline);
    }

    /// Fires no more; says whether it was armed. When it returns, `expired` does not run on another
    /// CPU: the caller holds no lock that `expired` takes. Any context.
    pub fn cancel(&self) -> bool {
        let mut was = false;
        loop {
            let running = {
                let mut state = self.0.hold();
                was |= state.timers.cancel(self.0.id);
                state.program();
                self.0.runs_elsewhere()
            };
            if !running {
                return was;
            }
            while self.0.runs_elsewhere() {
                core::hint::spin_loop();
            }
            // It may have armed itself.
        }
    }

    /// When it will fire.
    pub fn deadline(&self) -> Option<Nanos> {
        self.0.hold().timers.deadline(self.0.id)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if self.0.follows.load(Ordering::Relaxed) {
            clock_set::set(self.0.id, false);
        }
        self.cancel();
        let place = usize::from(self.0.id) - MAX_THREADS;
        drop(EXPIRIES[place].lock().take());
        USED.lock()[place / 64] &= !(1 << (place % 64));
    }
}
