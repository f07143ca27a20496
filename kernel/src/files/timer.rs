// SPDX-License-Identifier: MIT OR Apache-2.0
//! timerfd: expirations to read.
//!
//! The interrupt of the processor's timer counts one expiry, wakes the first of those who read and tells who watches. A periodic timer is set
//! again by who reads it, so a program cannot keep the processor busy with one.

use alloc::{boxed::Box, sync::Arc};

use crtos_files::Expirations;

use super::{Events, Memory, Watchers, wait};
use crate::{
    arch::percpu,
    sync::SpinLock,
    syscall::{Errno, SysResult},
    task::{self, WaitQueue},
    time::Nanos,
    timers::Counting,
};

struct Schedule {
    expirations: Expirations,
    /// The clock that they count in.
    counting: Counting,
    /// Taken away when the timer is closed.
    timer: Option<task::Timer>,
}

struct Core {
    schedule: SpinLock<Schedule>,
    to_read: WaitQueue,
    watchers: Watchers,
}

/// A timerfd. Dropping it stops it.
pub struct Timer {
    core: Arc<Core>,
    /// The clock that it was made for.
    clock: Counting,
}

/// When a timer expires.
#[derive(Clone, Copy)]
pub enum When {
    /// At a point of its clock.
    At(Nanos),
    /// So long from now.
    In(Nanos),
    /// Not at all.
    Never,
}

impl Schedule {
    /// Sets the processor's timer. One that is not armed any more is left to expire for nothing.
    fn arm(&self) {
        if let (Some(timer), Some(expiry)) = (&self.timer, self.expirations.next()) {
            timer.arm(self.counting.deadline(expiry));
        }
    }

    fn take(&mut self) -> Option<u64> {
        if !self.expirations.has_any() {
            return None;
        }
        let taken = self.expirations.take(self.counting.now());
        self.arm();
        taken
    }

    fn remaining(&mut self) -> (Nanos, Nanos) {
        let remaining = self.expirations.remaining(self.counting.now());
        self.arm();
        remaining
    }
}

impl Core {
    /// The processor's timer has come. Interrupt context.
    fn expired(&self) {
        {
            let mut schedule = self.schedule.lock();
            let now = schedule.counting.now();
            if !schedule.expirations.expire(now) {
                // It has been set, or its clock has.
                return schedule.arm();
            }
        }
        // Who reads takes all.
        self.to_read.wake(1);
        percpu::breathe_in_timer();
        self.watchers.notify(Events::IN);
    }
}

impl Timer {
    /// A timer that is not armed and counts in `clock`.
    pub fn new(clock: Counting) -> Result<Self, Errno> {
        let schedule =
            Schedule { expirations: Expirations::default(), counting: clock, timer: None };
        let core = Arc::new(Core {
            schedule: SpinLock::new(schedule),
            to_read: WaitQueue::new(),
            watchers: Watchers::new(),
        });
        let own = core.clone();
        let timer = task::Timer::new(Box::new(move || own.expired())).map_err(|_| Errno::ENOMEM)?;
        core.schedule.lock().timer = Some(timer);
        Ok(Self { core, clock })
    }

    /// Sets it; returns what remained and the interval before.
    pub fn set(&self, when: When, interval: Nanos) -> (Nanos, Nanos) {
        let mut schedule = self.core.schedule.lock();
        let before = schedule.remaining();
        let (counting, expiry) = match when {
            When::At(time) => (self.clock, Some(time)),
            // Nobody changes a duration by setting a clock.
            When::In(time) => (Counting::MONOTONIC, Some(Counting::MONOTONIC.now() + time)),
            When::Never => (self.clock, None),
        };
        schedule.counting = counting;
        schedule.expirations.set(expiry, interval);
        schedule.arm();
        before
    }

    /// What remains, and the interval.
    pub fn get(&self) -> (Nanos, Nanos) {
        self.core.schedule.lock().remaining()
    }

    fn take(&self) -> Option<u64> {
        self.core.schedule.lock().take()
    }

    /// read(2).
    pub fn read(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        if memory.left() < 8 {
            return Err(Errno::EINVAL);
        }
        let count = wait::take(&self.core.to_read, nonblocking, || self.take())?;
        if memory.write(&count.to_le_bytes()) < 8 { Err(Errno::EFAULT) } else { Ok(8) }
    }

    /// What it is ready for.
    pub fn ready(&self) -> Events {
        let any = self.core.schedule.lock().expirations.has_any();
        if any { Events::IN } else { Events::empty() }
    }

    /// Who is told of changes.
    pub fn watchers(&self) -> &Watchers {
        &self.core.watchers
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let timer = self.core.schedule.lock().timer.take();
        drop(timer);
    }
}
