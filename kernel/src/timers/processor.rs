// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers in processor time: ITIMER_VIRTUAL and ITIMER_PROF.
//!
//! What a process has used is added up by its threads, before they return to user mode, and not in an interrupt: they may be many. A timer
//! of the processor has those that run do so, at the earliest when the process can have used what is left, which is when all CPUs run it.

use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crtos_sched::interval::forward;
use crtos_signal::{
    Info,
    info::SI_KERNEL,
    set::{SIGPROF, SIGVTALRM},
};

use crate::{
    process::Process,
    signal,
    sync::SpinLock,
    syscall::Errno,
    task::{self, Timer},
    time::{self, Nanos},
};

/// Shortest time between two looks: that by which the signals may be late.
const SHORTEST: Nanos = Nanos::from_micros(1000);

/// CPUs that are asked in one interrupt.
const STEP: u32 = 4;

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// ITIMER_VIRTUAL.
    Virtual,
    /// ITIMER_PROF. All processor time is the user's, so it counts the same.
    Profile,
}

impl Which {
    fn signal(self) -> u32 {
        match self {
            Self::Virtual => SIGVTALRM,
            Self::Profile => SIGPROF,
        }
    }
}

/// One of the two timers.
#[derive(Clone, Copy, Default, Debug)]
pub struct Armed {
    /// In processor time of the process.
    deadline: Option<Nanos>,
    interval: Nanos,
}

/// Both timers of a process.
pub type Both = [Armed; 2];

/// The timers. Dropping it deletes them.
pub struct Processor {
    timers: Both,
    look: Arc<Look>,
}

/// Has the threads that run look at what was used.
struct Look {
    process: Arc<Process>,
    /// Nanoseconds until the next one.
    period: AtomicU64,
    /// The CPU that is asked next.
    cpu: AtomicU32,
    /// Taken away when the timers are deleted.
    timer: SpinLock<Option<Timer>>,
}

impl Look {
    /// The processor's timer has come. Interrupt context.
    fn expired(&self) {
        let first = self.cpu.load(Ordering::Relaxed);
        let mut rest = task::online().iter().skip_while(|&cpu| cpu < first);
        self.process.timers.to_look.store(true, Ordering::Relaxed);
        for cpu in rest.by_ref().take(STEP as usize) {
            task::ask_running(cpu, |thread| {
                thread.data.user().is_some_and(|user| Arc::ptr_eq(&user.process, &self.process))
            });
        }
        let next = rest.next();
        self.cpu.store(next.unwrap_or(0), Ordering::Relaxed);
        self.arm(if next.is_some() { Nanos::ZERO } else { self.period() });
    }

    fn period(&self) -> Nanos {
        Nanos(self.period.load(Ordering::Relaxed))
    }

    fn arm(&self, after: Nanos) {
        if let Some(timer) = &*self.timer.lock() {
            timer.arm(time::now() + after);
        }
    }

    /// Looks no more.
    fn stop(&self) {
        if let Some(timer) = &*self.timer.lock() {
            timer.cancel();
        }
    }
}

impl Processor {
    /// Timers that are not armed. Allocates.
    pub fn new(process: Arc<Process>) -> Result<Self, Errno> {
        let look = Arc::new(Look {
            process,
            period: AtomicU64::new(SHORTEST.0),
            cpu: AtomicU32::new(0),
            timer: SpinLock::new(None),
        });
        let own = look.clone();
        let timer = Timer::new(Box::new(move || own.expired())).map_err(|_| Errno::ENOMEM)?;
        *look.timer.lock() = Some(timer);
        Ok(Self { timers: Both::default(), look })
    }

    /// What remains, and the interval, when the process has used `used`.
    pub fn get(&self, which: Which, used: Nanos) -> (Nanos, Nanos) {
        let timer = self.timers[which as usize];
        // What is armed has not expired.
        let rest = timer.deadline.map_or(Nanos::ZERO, |deadline| {
            if deadline > used { deadline - used } else { Nanos(1000) }
        });
        (rest, timer.interval)
    }

    /// Sets a timer to expire after `value` more, and then each `interval`.
    pub fn set(&mut self, which: Which, used: Nanos, value: Nanos, interval: Nanos) {
        let deadline = (value != Nanos::ZERO).then(|| used + value);
        self.timers[which as usize] = Armed { deadline, interval };
        self.plan(used);
    }

    /// Both, which expire no more.
    pub fn take(&mut self) -> Both {
        let taken = core::mem::take(&mut self.timers);
        self.look.stop();
        taken
    }

    /// Has both go on as they were.
    pub fn resume(&mut self, timers: Both, used: Nanos) {
        self.timers = timers;
        self.plan(used);
    }

    /// Sends the signals that are due.
    pub fn check(&mut self, used: Nanos) {
        for which in [Which::Virtual, Which::Profile] {
            let timer = &mut self.timers[which as usize];
            let Some(deadline) = timer.deadline.filter(|&deadline| deadline <= used) else {
                continue;
            };
            timer.deadline =
                (timer.interval != Nanos::ZERO).then(|| forward(deadline, timer.interval, used).0);
            // It is not of the kind that fails.
            let _ = signal::to_process(&self.look.process, Info::new(which.signal(), SI_KERNEL));
        }
        self.plan(used);
    }

    /// Sets the processor's timer.
    fn plan(&self, used: Nanos) {
        let deadlines = self.timers.iter().filter_map(|timer| timer.deadline);
        let Some(next) = deadlines.min() else { return self.look.stop() };
        let rest = if next > used { next.0 - used.0 } else { 0 };
        let soonest = rest / u64::from(task::online().count()).max(1);
        self.look.period.store(soonest.max(SHORTEST.0), Ordering::Relaxed);
        self.look.arm(self.look.period());
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        let timer = self.look.timer.lock().take();
        drop(timer);
    }
}
