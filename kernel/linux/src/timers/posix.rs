// SPDX-License-Identifier: MIT OR Apache-2.0
//! timer_create(2) and relatives.
//!
//! A timer sends one signal at a time: a periodic one goes on when its signal was taken, and the
//! expiries that were missed meanwhile are its overrun. So a program cannot be flooded by its
//! timers, and neither can the processor.

use alloc::{boxed::Box, collections::BTreeMap, sync::Arc};

use crtos_abi::{UserAddr, ids::Tid};
use crtos_sched::interval::forward;
use crtos_signal::{Info, Taken, Target, Ticket, set::COUNT};
use linux_raw_sys::general as linux;

use crtos_core::{
    sync::SpinLock,
    task::{self, Timer},
    time::Nanos,
};

use super::{
    clock::Counting,
    processor::{self, Counted},
};
use crate::{
    abi::{Args, Errno, SysResult},
    memory::{
        timespec::{SECOND, timespec},
        user,
    },
    process::{Process, ThreadExt as _, UserThread},
    signal::{self, Sent},
};

/// Most that an overrun says (DELAYTIMER_MAX).
const MOST_OVERRUN: u64 = i32::MAX as u64;
/// How long a periodic timer waits at least before it looks again whether its signal is still
/// ignored.
const IGNORED: Nanos = Nanos::from_millis(1);

/// Whom a timer tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notify {
    /// Nobody.
    Nobody,
    /// The process, or a thread of it.
    Signal(u32, Target),
}

/// The clock of a timer.
enum Clock {
    /// One of Linux's.
    Linux(Counting),
    /// Processor time.
    Processor(Counted),
}

struct Schedule {
    /// The clock of Linux that it counts in, if it does.
    counting: Option<Counting>,
    /// When it expires there, or in processor time.
    expiry: Option<Nanos>,
    interval: Nanos,
    /// The signal of the last expiry has not been taken yet.
    is_out: bool,
    /// Changes when the timer is set: a signal from before does not concern it.
    generation: u32,
    overrun: i32,
    /// Taken away when the timer is deleted.
    timer: Option<Timer>,
    ticket: Option<Ticket>,
}

pub(super) struct Core {
    process: Arc<Process>,
    id: i32,
    clock: Clock,
    notify: Notify,
    value: u64,
    schedule: SpinLock<Schedule>,
}

/// A timer. Dropping it deletes it.
pub struct PosixTimer(Arc<Core>);

/// The timers of a process by their ids.
pub struct Table {
    timers: BTreeMap<i32, PosixTimer>,
    next: i32,
}

impl Table {
    /// Empty.
    pub const fn new() -> Self {
        Self { timers: BTreeMap::new(), next: 0 }
    }
}

impl Core {
    /// The processor's timer has come. Interrupt context.
    fn expired(&self) {
        if let Some(sent) = self.expire(Nanos::ZERO) {
            sent.finish_in_timer(&self.process);
        }
    }

    /// The processor time that it counts; 0 if it counts in a clock of Linux, or that of a thread
    /// that is gone. Thread context; may sleep.
    fn used(&self) -> Nanos {
        match &self.clock {
            Clock::Linux(_) => Nanos::ZERO,
            Clock::Processor(counted) => counted.used(&self.process).unwrap_or(Nanos::ZERO),
        }
    }

    /// The processor time that is left until it has to be looked at, if it counts in that, and
    /// whether a thread alone uses it up. Thread context; may sleep.
    pub(super) fn left(&self) -> Option<(Nanos, bool)> {
        let Clock::Processor(counted) = &self.clock else { return None };
        let used = counted.used(&self.process)?;
        let schedule = self.schedule.lock();
        let waits = !schedule.is_out && self.notify != Notify::Nobody;
        let expiry = schedule.expiry.filter(|_| waits)?;
        Some((expiry - used, counted.is_of_thread()))
    }

    /// Sends the signal if it is due after the processor time that it counts. Thread context; may
    /// sleep.
    pub(super) fn check(&self) {
        if let Some(sent) = self.expire(self.used()) {
            sent.finish(&self.process);
        }
    }

    /// Sends the signal if it is due, or goes on. `used` is what [`Core::used`] says.
    fn expire(&self, used: Nanos) -> Option<Sent> {
        let mut schedule = self.schedule.lock();
        let expiry = schedule.expiry.filter(|_| !schedule.is_out)?;
        let now = schedule.now(used);
        if expiry > now {
            // It has been set, or its clock has.
            arm(&schedule);
            return None;
        }
        let Notify::Signal(signal, target) = self.notify else { return None };
        let ticket = schedule.ticket.as_ref()?;
        let info = Info::timer(signal, self.id, self.value);
        let cookie = u64::from(self.id as u32) | u64::from(schedule.generation) << 32;
        let sent = signal::post(&self.process, target, ticket, info, cookie);
        schedule.is_out = sent.is_pending();
        if !schedule.is_out {
            schedule.expiry = (schedule.interval != Nanos::ZERO)
                .then(|| forward(expiry, schedule.interval, now + IGNORED).0);
            arm(&schedule);
        }
        Some(sent)
    }

    /// Its signal was taken: goes on. Returns the overrun.
    fn taken(&self, generation: u32) -> i32 {
        let used = self.used();
        let overrun = self.go_on(generation, used);
        self.plan();
        overrun
    }

    fn go_on(&self, generation: u32, used: Nanos) -> i32 {
        let mut schedule = self.schedule.lock();
        if generation != schedule.generation || !schedule.is_out {
            return 0;
        }
        schedule.is_out = false;
        schedule.overrun = 0;
        let expiry = schedule.expiry.take();
        if schedule.interval != Nanos::ZERO
            && let Some(expiry) = expiry
        {
            let (next, expired) = forward(expiry, schedule.interval, schedule.now(used));
            schedule.expiry = Some(next);
            schedule.overrun = expired.saturating_sub(1).min(MOST_OVERRUN) as i32;
            arm(&schedule);
        }
        schedule.overrun
    }

    /// What remains, and the interval.
    fn get(&self) -> (Nanos, Nanos) {
        let used = self.used();
        self.remaining(&self.schedule.lock(), used)
    }

    /// What remains, and the interval. `used` is what [`Core::used`] says.
    fn remaining(&self, schedule: &Schedule, used: Nanos) -> (Nanos, Nanos) {
        let interval = schedule.interval;
        let Some(expiry) = schedule.expiry else { return (Nanos::ZERO, interval) };
        let now = schedule.now(used);
        let silent = self.notify == Notify::Nobody;
        let next = if interval != Nanos::ZERO && (schedule.is_out || silent) {
            forward(expiry, interval, now).0
        } else {
            expiry
        };
        let over = silent || schedule.is_out;
        let rest = next - now;
        (if rest == Nanos::ZERO && !over { Nanos(1) } else { rest }, interval)
    }

    /// Sets it to expire at `value`, or so long from now, if that is not 0. Returns what remained
    /// before, and the interval: if something did, it has not expired.
    fn set(&self, value: Nanos, is_absolute: bool, interval: Nanos) -> (Nanos, Nanos) {
        let used = self.used();
        let counting = match self.clock {
            // What was asked for is a duration: nobody changes that by setting a clock.
            Clock::Linux(_) if !is_absolute => Some(Counting::MONOTONIC),
            Clock::Linux(counting) => Some(counting),
            Clock::Processor(_) => None,
        };
        let before = self.set_schedule(counting, value, is_absolute, interval, used);
        self.plan();
        before
    }

    fn set_schedule(
        &self,
        counting: Option<Counting>,
        value: Nanos,
        is_absolute: bool,
        interval: Nanos,
        used: Nanos,
    ) -> (Nanos, Nanos) {
        let mut schedule = self.schedule.lock();
        let before = self.remaining(&schedule, used);
        schedule.generation = schedule.generation.wrapping_add(1);
        schedule.counting = counting;
        let now = if is_absolute { Nanos::ZERO } else { schedule.now(used) };
        schedule.expiry = (value != Nanos::ZERO).then(|| now + value);
        schedule.interval = interval;
        schedule.is_out = false;
        schedule.overrun = 0;
        if self.notify != Notify::Nobody {
            arm(&schedule);
        }
        before
    }

    /// Has the process look when its processor time may have come. Thread context; may sleep.
    fn plan(&self) {
        if let Clock::Processor(_) = self.clock {
            processor::plan(&self.process);
        }
    }
}

impl Schedule {
    /// The time that it counts in, by a clock of Linux or what was `used`.
    fn now(&self, used: Nanos) -> Nanos {
        self.counting.map_or(used, Counting::now)
    }
}

/// Sets the processor's timer. A timer that is not armed any more is left to expire for nothing.
fn arm(schedule: &Schedule) {
    if let (Some(timer), Some(counting), Some(expiry)) =
        (&schedule.timer, schedule.counting, schedule.expiry)
    {
        timer.arm(counting.deadline(expiry));
    }
}

impl Drop for PosixTimer {
    fn drop(&mut self) {
        if let Clock::Processor(_) = self.0.clock {
            processor::remove(&self.0.process, &self.0);
        }
        let (timer, ticket) = {
            let mut schedule = self.0.schedule.lock();
            (schedule.timer.take(), schedule.ticket.take())
        };
        drop(timer);
        if let Some(ticket) = ticket {
            signal::release(&self.0.process, ticket);
        }
    }
}

/// What is to be done when a signal was taken: if it is a timer's, that goes on, and `siginfo` gets
/// its overrun. Thread context; may sleep.
pub fn signal_taken(process: &Process, taken: Taken) -> Info {
    let Some(cookie) = taken.cookie else { return taken.info };
    let core =
        process.timers.posix.lock().timers.get(&(cookie as i32)).map(|timer| timer.0.clone());
    let overrun = core.map_or(0, |core| core.taken((cookie >> 32) as u32));
    taken.info.with_more_overrun(overrun)
}

/// timer_create(clock, event, id).
pub fn timer_create([clock, event, id_at, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let [event, id_at] = [event, id_at].map(UserAddr::new);
    let event = match event {
        UserAddr::NULL => None,
        address => Some(user::read_words::<3>(address)?),
    };
    let clock = match Counted::is_named(clock) {
        true => Clock::Processor(Counted::of(clock)?),
        false => Clock::Linux(Counting::of(clock)?),
    };
    let notify = match event {
        Some([_, how, tid]) => notification(user, how as u32, (how >> 32) as u32, tid)?,
        None => Notify::Signal(linux::SIGALRM, Target::Process),
    };
    let ticket = match notify {
        Notify::Nobody => None,
        Notify::Signal(..) => Some(signal::reserve(&user.process).map_err(|_| Errno::EAGAIN)?),
    };
    let id = new_id(&user.process);
    let schedule = Schedule {
        counting: None,
        expiry: None,
        interval: Nanos::ZERO,
        is_out: false,
        generation: 0,
        overrun: 0,
        timer: None,
        ticket,
    };
    let value = event.map_or(id as u64, |[value, ..]| value);
    let process = user.process.clone();
    let core = Core { process, id, clock, notify, value, schedule: SpinLock::new(schedule) };
    let made = PosixTimer(Arc::new(core));
    let own = made.0.clone();
    match own.clock {
        Clock::Processor(_) => processor::add(&user.process, own)?,
        Clock::Linux(_) => {
            let timer = Timer::new(Box::new(move || own.expired())).map_err(|_| Errno::EAGAIN)?;
            made.0.schedule.lock().timer = Some(timer);
        }
    }
    user::write_u32(id_at, id as u32)?;
    user.process.timers.posix.lock().timers.insert(id, made);
    Ok(0)
}

/// Whom `struct sigevent` names.
fn notification(user: &UserThread, signal: u32, how: u32, tid: u64) -> Result<Notify, Errno> {
    let target = match how {
        linux::SIGEV_NONE => return Ok(Notify::Nobody),
        linux::SIGEV_SIGNAL | linux::SIGEV_THREAD => Target::Process,
        linux::SIGEV_THREAD_ID => {
            let member = Tid::named(tid).and_then(|tid| signal::member(user, tid));
            member.ok_or(Errno::EINVAL)?
        }
        _ => return Err(Errno::EINVAL),
    };
    if !(1..=COUNT).contains(&signal) {
        return Err(Errno::EINVAL);
    }
    Ok(Notify::Signal(signal, target))
}

/// The next id that no timer has.
fn new_id(process: &Process) -> i32 {
    let mut table = process.timers.posix.lock();
    loop {
        let id = table.next;
        table.next = id.checked_add(1).unwrap_or(0);
        if !table.timers.contains_key(&id) {
            return id;
        }
    }
}

/// Calls `f` with timer `id` of the calling process.
fn with_timer<R>(id: u64, f: impl FnOnce(&Core) -> R) -> Result<R, Errno> {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let table = user.process.timers.posix.lock();
    table.timers.get(&(id as i32)).map(|timer| f(&timer.0)).ok_or(Errno::EINVAL)
}

/// Reads a `struct itimerspec`: the value and the interval.
pub fn read_itimerspec(address: UserAddr) -> Result<(Nanos, Nanos), Errno> {
    let [interval, more, value, rest] = user::read_words(address)?;
    let interval = timespec(interval, more)?;
    Ok((timespec(value, rest)?, interval))
}

/// Writes a `struct itimerspec`.
pub fn write_itimerspec(address: UserAddr, (value, interval): (Nanos, Nanos)) -> SysResult {
    let [interval, value] = [interval, value].map(|time| [time.0 / SECOND, time.0 % SECOND]);
    user::write_words(address, [interval[0], interval[1], value[0], value[1]])?;
    Ok(0)
}

/// timer_settime(id, flags, new, old).
pub fn timer_settime([id, flags, new, old, ..]: Args) -> SysResult {
    let [new, old] = [new, old].map(UserAddr::new);
    if new.is_null() {
        return Err(Errno::EINVAL);
    }
    let (value, interval) = read_itimerspec(new)?;
    let is_absolute = flags as u32 & linux::TIMER_ABSTIME != 0;
    let before = with_timer(id, |timer| timer.set(value, is_absolute, interval))?;
    if !old.is_null() {
        write_itimerspec(old, before)?;
    }
    Ok(0)
}

/// timer_gettime(id, value).
pub fn timer_gettime([id, address, ..]: Args) -> SysResult {
    let now = with_timer(id, Core::get)?;
    write_itimerspec(UserAddr::new(address), now)
}

/// timer_getoverrun(id).
pub fn timer_getoverrun([id, ..]: Args) -> SysResult {
    with_timer(id, |timer| timer.schedule.lock().overrun as u64)
}

/// timer_delete(id).
pub fn timer_delete([id, ..]: Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let timer = user.process.timers.posix.lock().timers.remove(&(id as i32));
    timer.map(drop).map(|()| 0).ok_or(Errno::EINVAL)
}
