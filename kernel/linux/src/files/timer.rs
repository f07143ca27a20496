// SPDX-License-Identifier: MIT OR Apache-2.0
//! timerfd: expirations to read.
//!
//! The interrupt of the processor's timer counts one expiry, wakes the first of those who read and
//! tells who watches. A periodic timer is set again by who reads it, so a program cannot keep the
//! processor busy with one.

use alloc::{boxed::Box, sync::Arc};

use crtos_files::Expirations;

use crtos_core::{
    arch::interrupts,
    sync::SpinLock,
    task::{self, WaitQueue},
    time::{self, Nanos},
};

use super::{Events, Memory, Watchers, wait};
use crate::{
    abi::{Errno, SysResult},
    timers::Counting,
};

struct Schedule {
    expirations: Expirations,
    /// The clock that they count in.
    counting: Counting,
    /// With TFD_TIMER_CANCEL_ON_SET, how often CLOCK_REALTIME was set as far as it is known here.
    cancelled_after: Option<u32>,
    /// It was set, which nobody has been told yet.
    is_cancelled: bool,
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
        // Who is to be cancelled is called when the clock is set, whether or not it expires.
        let expiry = self.expirations.next().or(self.cancelled_after.map(|_| Nanos::MAX));
        if let (Some(timer), Some(expiry)) = (&self.timer, expiry) {
            timer.arm(self.counting.deadline(expiry));
        }
    }

    /// Whether setting the clock has cancelled it.
    fn is_cancelled(&mut self) -> bool {
        let Some(known) = self.cancelled_after.as_mut() else { return false };
        let steps = time::realtime_steps();
        self.is_cancelled |= core::mem::replace(known, steps) != steps;
        self.is_cancelled
    }

    /// The same, and now it is known.
    fn take_cancelled(&mut self) -> bool {
        self.is_cancelled() && core::mem::take(&mut self.is_cancelled)
    }

    fn take(&mut self) -> Option<Result<u64, Errno>> {
        if self.take_cancelled() {
            self.expirations.cancel();
            return Some(Err(Errno::ECANCELED));
        }
        if !self.expirations.has_any() {
            return None;
        }
        let taken = self.expirations.take(self.counting.now());
        self.arm();
        taken.map(Ok)
    }

    fn is_ready(&mut self) -> bool {
        self.is_cancelled() || self.expirations.has_any()
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
                schedule.arm();
                if !schedule.is_cancelled() {
                    return;
                }
            }
        }
        // Who reads takes all.
        self.to_read.wake(1);
        interrupts::window_in_timer();
        self.watchers.notify(Events::IN);
    }
}

impl Timer {
    /// A timer that is not armed and counts in `clock`.
    pub fn new(clock: Counting) -> Result<Self, Errno> {
        let schedule = Schedule {
            expirations: Expirations::default(),
            counting: clock,
            cancelled_after: None,
            is_cancelled: false,
            timer: None,
        };
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

    /// Sets it; returns what remained and the interval before. With `cancel_on_set`
    /// (TFD_TIMER_CANCEL_ON_SET and TFD_TIMER_ABSTIME) setting the clock cancels it if that is
    /// CLOCK_REALTIME; if that has happened and nobody has been told, it is set and this fails.
    pub fn set(
        &self,
        when: When,
        interval: Nanos,
        cancel_on_set: bool,
    ) -> Result<(Nanos, Nanos), Errno> {
        let mut schedule = self.core.schedule.lock();
        let before = schedule.remaining();
        let (counting, expiry) = match when {
            When::At(time) => (self.clock, Some(time)),
            // Nobody changes a duration by setting a clock.
            When::In(time) => (Counting::MONOTONIC, Some(Counting::MONOTONIC.now() + time)),
            When::Never => (self.clock, None),
        };
        // What was set before counts if it was to cancel before.
        schedule.is_cancelled();
        schedule.cancelled_after =
            (cancel_on_set && self.clock.is_realtime()).then(time::realtime_steps);
        schedule.counting = counting;
        schedule.expirations.set(expiry, interval);
        schedule.arm();
        match expiry.is_some() && schedule.take_cancelled() {
            true => Err(Errno::ECANCELED),
            false => Ok(before),
        }
    }

    /// What remains, and the interval.
    pub fn get(&self) -> (Nanos, Nanos) {
        self.core.schedule.lock().remaining()
    }

    fn take(&self) -> Option<Result<u64, Errno>> {
        self.core.schedule.lock().take()
    }

    /// read(2).
    pub fn read(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        if memory.left() < 8 {
            return Err(Errno::EINVAL);
        }
        let count = wait::take(&self.core.to_read, nonblocking, || self.take())??;
        if memory.write(&count.to_le_bytes()) < 8 { Err(Errno::EFAULT) } else { Ok(8) }
    }

    /// What it is ready for.
    pub fn ready(&self) -> Events {
        let any = self.core.schedule.lock().is_ready();
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
