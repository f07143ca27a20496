// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interval timers of a process, and alarm(2); here ITIMER_REAL, by which that counts.

use alloc::{boxed::Box, sync::Arc};

use crtos_abi::UserAddr;
use crtos_sched::interval::forward;
use crtos_signal::{Info, Target, info::SI_KERNEL, set::SIGALRM};
use linux_raw_sys::general as linux;

use crtos_core::{
    sync::SpinLock,
    task::{self, Timer},
    time::{self, Nanos},
};

use super::{
    made,
    processor::{self, Processor, Which},
};
use crate::{
    abi::{Args, Errno, SysResult},
    memory::{timespec::SECOND, user},
    process::{Process, ThreadExt as _},
    signal::{self, Sent},
};

/// Shortest time between two expiries that interrupt: a program cannot keep the processor busy with
/// them.
const SHORTEST: Nanos = Nanos::from_micros(50);

#[derive(Default)]
struct Schedule {
    /// Kernel time.
    deadline: Option<Nanos>,
    interval: Nanos,
    /// Taken away when the timer is deleted.
    timer: Option<Timer>,
}

struct Core {
    process: Arc<Process>,
    schedule: SpinLock<Schedule>,
}

/// The timer. Dropping it deletes it.
pub struct Real(Arc<Core>);

impl Core {
    /// The processor's timer has come. Interrupt context.
    fn expired(&self) {
        if let Some(sent) = self.expire() {
            sent.finish_in_timer(&self.process);
        }
    }

    /// Sends the signal if it is due, and goes on.
    fn expire(&self) -> Option<Sent> {
        let mut schedule = self.schedule.lock();
        let deadline = schedule.deadline?;
        let now = time::now();
        let mut sent = None;
        if deadline <= now {
            sent = signal::from_interrupt(
                &self.process,
                Target::Process,
                Info::new(SIGALRM, SI_KERNEL),
            );
            schedule.deadline = (schedule.interval != Nanos::ZERO)
                .then(|| forward(deadline, schedule.interval, now + SHORTEST).0);
        }
        arm(&schedule);
        sent
    }
}

/// Sets the processor's timer. A timer that is not armed is left to expire for nothing.
fn arm(schedule: &Schedule) {
    if let (Some(timer), Some(deadline)) = (&schedule.timer, schedule.deadline) {
        timer.arm(deadline);
    }
}

impl Real {
    fn new(process: Arc<Process>) -> Result<Self, Errno> {
        let core = Arc::new(Core { process, schedule: SpinLock::new(Schedule::default()) });
        let own = core.clone();
        let timer = Timer::new(Box::new(move || own.expired())).map_err(|_| Errno::ENOMEM)?;
        core.schedule.lock().timer = Some(timer);
        Ok(Self(core))
    }

    /// What remains, and the interval.
    fn get(&self) -> (Nanos, Nanos) {
        self.0.schedule.lock().remaining()
    }

    /// Sets it; returns what remained before, and the interval: if something did, it has not
    /// expired.
    fn set(&self, value: Nanos, interval: Nanos) -> (Nanos, Nanos) {
        let mut schedule = self.0.schedule.lock();
        let before = schedule.remaining();
        let is_armed = value != Nanos::ZERO;
        schedule.deadline = is_armed.then(|| time::now() + value);
        // Linux forgets the interval of what does not go, but that of processor time.
        schedule.interval = if is_armed { interval } else { Nanos::ZERO };
        arm(&schedule);
        before
    }
}

impl Schedule {
    /// What remains, and the interval.
    fn remaining(&self) -> (Nanos, Nanos) {
        let rest = self.deadline.map_or(Nanos::ZERO, |deadline| {
            // What is armed has not expired.
            (deadline - time::now()).max(Nanos(1000))
        });
        (rest, self.interval)
    }
}

/// When the timer expires next, in kernel time, and its interval.
#[derive(Clone, Copy)]
struct Armed {
    deadline: Nanos,
    interval: Nanos,
}

impl Real {
    fn take(&self) -> Option<Armed> {
        let mut schedule = self.0.schedule.lock();
        let deadline = schedule.deadline.take()?;
        Some(Armed { deadline, interval: schedule.interval })
    }

    fn resume(&self, armed: Armed) {
        let mut schedule = self.0.schedule.lock();
        schedule.deadline = Some(armed.deadline);
        schedule.interval = armed.interval;
        arm(&schedule);
    }
}

/// The interval timers that a program leaves to the one that it executes.
pub struct Kept {
    real: Option<Armed>,
    processor: Option<processor::Both>,
}

/// Stops the interval timers of `process`, which executes another program. Thread context; may
/// sleep.
pub fn take(process: &Process) -> Kept {
    Kept {
        real: process.timers.real.lock().as_ref().and_then(Real::take),
        processor: process.timers.processor.lock().as_mut().map(Processor::take),
    }
}

/// Has the interval timers of `process` go on as they were; what it used counts on. Thread context;
/// may sleep.
pub fn resume(process: &Arc<Process>, kept: Kept) -> Result<(), Errno> {
    if let Some(armed) = kept.real {
        let mut real = process.timers.real.lock();
        made(&mut real, || Real::new(process.clone()))?.resume(armed);
    }
    if let Some(both) = kept.processor {
        processor::with(process, |processor| processor.resume(both))?;
    }
    Ok(())
}

impl Drop for Real {
    fn drop(&mut self) {
        let timer = self.0.schedule.lock().timer.take();
        drop(timer);
    }
}

/// The timer that `which` of setitimer(2) names: `None` for ITIMER_REAL.
fn named(which: u64) -> Result<Option<Which>, Errno> {
    match which as u32 {
        linux::ITIMER_REAL => Ok(None),
        linux::ITIMER_VIRTUAL => Ok(Some(Which::Virtual)),
        linux::ITIMER_PROF => Ok(Some(Which::Profile)),
        _ => Err(Errno::EINVAL),
    }
}

/// What remains of a timer, and its interval; sets both if `new` says so.
fn exchange(which: Option<Which>, new: Option<(Nanos, Nanos)>) -> Result<(Nanos, Nanos), Errno> {
    const NONE: (Nanos, Nanos) = (Nanos::ZERO, Nanos::ZERO);
    let current = task::current();
    let process = &current.user().ok_or(Errno::ESRCH)?.process;
    let is_armed = new.is_some_and(|(value, _)| value != Nanos::ZERO);
    let Some(which) = which else {
        let mut real = process.timers.real.lock();
        return Ok(match new.filter(|_| is_armed || real.is_some()) {
            Some((value, interval)) => {
                made(&mut real, || Real::new(process.clone()))?.set(value, interval)
            }
            None => real.as_ref().map_or(NONE, Real::get),
        });
    };
    let used = process.used().time;
    let mut processor = process.timers.processor.lock();
    let old = processor.as_ref().map_or(NONE, |processor| processor.get(which, used));
    if let Some((value, interval)) = new.filter(|&new| new != NONE || processor.is_some()) {
        made(&mut processor, || Processor::new(process.clone()))?.set(which, used, value, interval);
    }
    Ok(old)
}

fn read_timeval(seconds: u64, microseconds: u64) -> Result<Nanos, Errno> {
    if seconds > i64::MAX as u64 || microseconds >= 1_000_000 {
        return Err(Errno::EINVAL);
    }
    Ok(Nanos(seconds.saturating_mul(SECOND).saturating_add(microseconds * 1000)))
}

fn write_itimerval(address: UserAddr, (value, interval): (Nanos, Nanos)) -> SysResult {
    let [interval, value] = [interval, value].map(|time| [time.0 / SECOND, time.0 % SECOND / 1000]);
    user::write_words(address, [interval[0], interval[1], value[0], value[1]])?;
    Ok(0)
}

/// getitimer(which, value).
pub fn getitimer([which, address, ..]: Args) -> SysResult {
    write_itimerval(UserAddr::new(address), exchange(named(which)?, None)?)
}

/// setitimer(which, value, old).
pub fn setitimer([which, value, old, ..]: Args) -> SysResult {
    let [value, old] = [value, old].map(UserAddr::new);
    let new = match value {
        UserAddr::NULL => (Nanos::ZERO, Nanos::ZERO),
        _ => {
            let [interval, micros, value, more] = user::read_words(value)?;
            let interval = read_timeval(interval, micros)?;
            (read_timeval(value, more)?, interval)
        }
    };
    let before = exchange(named(which)?, Some(new))?;
    if !old.is_null() {
        write_itimerval(old, before)?;
    }
    Ok(0)
}

/// alarm(seconds).
pub fn alarm([seconds, ..]: Args) -> SysResult {
    let value = Nanos::from_secs(u64::from(seconds as u32));
    let (rest, _) = exchange(None, Some((value, Nanos::ZERO)))?;
    let (whole, part) = rest.split();
    // Rounded, but never to nothing.
    Ok(whole + u64::from(part >= 500_000_000 || whole == 0 && part > 0))
}
