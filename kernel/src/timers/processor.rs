// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers in processor time: ITIMER_VIRTUAL and ITIMER_PROF.
//!
//! What a process has used is added up by its threads, before they return to user mode, and not in an interrupt: they may be many. A timer
//! of the processor has those that run do so, at the earliest when the process can have used what is left, which is when all CPUs run it.

use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicU32, Ordering};

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
    plan: SpinLock<Plan>,
    /// The CPU that is asked next.
    cpu: AtomicU32,
}

/// When to look.
#[derive(Default)]
struct Plan {
    /// From one time to the next, if there is to be one.
    period: Option<Nanos>,
    /// Taken away when the timers are deleted.
    timer: Option<Timer>,
}

impl Plan {
    /// A timer that is armed and not wanted any more is left to expire for nothing.
    fn arm(&self, after: Nanos) {
        if let Some(timer) = &self.timer {
            timer.arm(time::now() + after);
        }
    }
}

impl Look {
    /// The processor's timer has come. Interrupt context.
    fn expired(&self) {
        if self.plan.lock().period.is_none() {
            return;
        }
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
        let plan = self.plan.lock();
        if let Some(period) = plan.period {
            plan.arm(if next.is_some() { Nanos::ZERO } else { period });
        }
    }

    /// Looks this far apart from now on, or no more.
    fn set(&self, period: Option<Nanos>) {
        let mut plan = self.plan.lock();
        plan.period = period;
        if let Some(period) = period {
            plan.arm(period);
        }
    }
}

impl Processor {
    /// Timers that are not armed. Allocates.
    pub fn new(process: Arc<Process>) -> Result<Self, Errno> {
        let look = Arc::new(Look {
            process,
            plan: SpinLock::new(Plan::default()),
            cpu: AtomicU32::new(0),
        });
        let own = look.clone();
        let timer = Timer::new(Box::new(move || own.expired())).map_err(|_| Errno::ENOMEM)?;
        look.plan.lock().timer = Some(timer);
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
        self.look.set(None);
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
        let cpus = u64::from(task::online().count()).max(1);
        self.look.set(deadlines.min().map(|next| {
            let rest = if next > used { next.0 - used.0 } else { 0 };
            Nanos(rest / cpus).max(SHORTEST)
        }));
    }
}

/// Sends what is due of the calling thread's process, if it is time to look. Thread context; may sleep.
pub fn look() {
    let current = task::current();
    let Some(user) = current.data.user() else { return };
    let timers = &user.process.timers;
    if timers.to_look.load(Ordering::Relaxed) && timers.to_look.swap(false, Ordering::Relaxed) {
        let used = user.process.used().time;
        if let Some(processor) = &mut *timers.processor.lock() {
            processor.check(used);
        }
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        let timer = self.look.plan.lock().timer.take();
        drop(timer);
    }
}
