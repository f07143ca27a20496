// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interval timer of a process (ITIMER_REAL) and alarm(2).

use alloc::{boxed::Box, sync::Arc};

use crtos_sched::interval::forward;
use crtos_signal::{Info, info::SI_KERNEL, set::SIGALRM};
use linux_raw_sys::general as linux;

use crate::{
    process::Process,
    signal,
    sync::SpinLock,
    syscall::{Args, Errno, SECOND, SysResult},
    task::{self, Timer},
    time::{self, Nanos},
    user,
};

/// Shortest time between two expiries that interrupt: a program cannot keep the processor busy with them.
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
        let mut schedule = self.schedule.lock();
        let Some(deadline) = schedule.deadline else { return };
        let now = time::now();
        if deadline <= now {
            signal::from_interrupt(&self.process, Info::new(SIGALRM, SI_KERNEL));
            schedule.deadline = (schedule.interval != Nanos::ZERO)
                .then(|| forward(deadline, schedule.interval, now + SHORTEST).0);
        }
        arm(&schedule);
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
        let schedule = self.0.schedule.lock();
        let rest = schedule.deadline.map_or(Nanos::ZERO, |deadline| {
            // What is armed has not expired.
            (deadline - time::now()).max(Nanos(1000))
        });
        (rest, schedule.interval)
    }

    fn set(&self, value: Nanos, interval: Nanos) {
        let mut schedule = self.0.schedule.lock();
        schedule.deadline = (value != Nanos::ZERO).then(|| time::now() + value);
        schedule.interval = interval;
        arm(&schedule);
    }
}

/// When the timer expires next, in kernel time, and its interval.
#[derive(Clone, Copy)]
pub struct Armed {
    deadline: Nanos,
    interval: Nanos,
}

/// Stops the timer of `process`, which executes another program: what goes on there, if it was armed. Thread context; may sleep.
pub fn take(process: &Process) -> Option<Armed> {
    let real = process.timers.real.lock();
    let mut schedule = real.as_ref()?.0.schedule.lock();
    let deadline = schedule.deadline.take()?;
    Some(Armed { deadline, interval: schedule.interval })
}

/// Has the timer of `process` go on as it was armed. Thread context; may sleep.
pub fn resume(process: &Arc<Process>, armed: Armed) -> Result<(), Errno> {
    let mut real = process.timers.real.lock();
    if real.is_none() {
        *real = Some(Real::new(process.clone())?);
    }
    if let Some(real) = &*real {
        let mut schedule = real.0.schedule.lock();
        schedule.deadline = Some(armed.deadline);
        schedule.interval = armed.interval;
        arm(&schedule);
    }
    Ok(())
}

impl Drop for Real {
    fn drop(&mut self) {
        let timer = self.0.schedule.lock().timer.take();
        drop(timer);
    }
}

/// What remains and the interval; sets both if `new` says so.
fn exchange(new: Option<(Nanos, Nanos)>) -> Result<(Nanos, Nanos), Errno> {
    let current = task::current();
    let user = current.data.user().ok_or(Errno::ESRCH)?;
    let mut real = user.process.timers.real.lock();
    let old = real.as_ref().map_or((Nanos::ZERO, Nanos::ZERO), Real::get);
    if let Some((value, interval)) = new {
        match &*real {
            Some(real) => real.set(value, interval),
            None if value == Nanos::ZERO => {}
            None => {
                let made = Real::new(user.process.clone())?;
                made.set(value, interval);
                *real = Some(made);
            }
        }
    }
    Ok(old)
}

fn read_timeval(seconds: u64, microseconds: u64) -> Result<Nanos, Errno> {
    if seconds > i64::MAX as u64 || microseconds >= 1_000_000 {
        return Err(Errno::EINVAL);
    }
    Ok(Nanos(seconds.saturating_mul(SECOND).saturating_add(microseconds * 1000)))
}

fn write_itimerval(address: u64, (value, interval): (Nanos, Nanos)) -> SysResult {
    let [interval, value] = [interval, value].map(|time| [time.0 / SECOND, time.0 % SECOND / 1000]);
    user::write_words(address, [interval[0], interval[1], value[0], value[1]])?;
    Ok(0)
}

/// getitimer(which, value).
pub fn getitimer([which, address, ..]: Args) -> SysResult {
    if which as u32 != linux::ITIMER_REAL {
        return Err(Errno::EINVAL);
    }
    write_itimerval(address, exchange(None)?)
}

/// setitimer(which, value, old).
pub fn setitimer([which, value, old, ..]: Args) -> SysResult {
    let new = match value {
        0 => (Nanos::ZERO, Nanos::ZERO),
        _ => {
            let [interval, micros, value, more] = user::read_words(value)?;
            let interval = read_timeval(interval, micros)?;
            (read_timeval(value, more)?, interval)
        }
    };
    if which as u32 != linux::ITIMER_REAL {
        return Err(Errno::EINVAL);
    }
    let before = exchange(Some(new))?;
    if old != 0 {
        write_itimerval(old, before)?;
    }
    Ok(0)
}

/// alarm(seconds).
pub fn alarm([seconds, ..]: Args) -> SysResult {
    let value = Nanos::from_secs(u64::from(seconds as u32));
    let (rest, _) = exchange(Some((value, Nanos::ZERO)))?;
    let (whole, part) = rest.split();
    // Rounded, but never to nothing.
    Ok(whole + u64::from(part >= 500_000_000 || whole == 0 && part > 0))
}
