// SPDX-License-Identifier: MIT OR Apache-2.0
//! What processor time leads to: ITIMER_VIRTUAL and ITIMER_PROF, timers of timer_create(2) and
//! sleepers that count it, RLIMIT_CPU and RLIMIT_RTTIME.
//!
//! What a process has used is added up by its threads, before they return to user mode, and not in
//! an interrupt: they may be many. A timer of the processor has those that run do so, at the
//! earliest when what is left can have been used up: by one thread, or by the process, which is
//! when all CPUs run it.

use alloc::{boxed::Box, sync::Arc, sync::Weak, vec::Vec};
use core::sync::atomic::Ordering;

use crtos_abi::{UserAddr, ids::RealmCpu};
use crtos_sched::{AtomicCpu, interval::forward};
use crtos_signal::{
    Info,
    info::SI_KERNEL,
    set::{SIGKILL, SIGPROF, SIGVTALRM},
};
use linux_raw_sys::general as linux;

use crtos_core::{
    mm::heap,
    sync::SpinLock,
    task::{self, Policy, Thread, Timer},
    time::{self, Nanos},
};

use super::{made, posix};
use crate::{
    abi::{Errno, SysResult},
    memory::timespec::{SECOND, read_timespec, write_timespec},
    process::{End, Meter, Process, Restart, ThreadExt as _},
    remote, signal,
};

/// Shortest time between two looks: that by which what follows may be late.
const SHORTEST: Nanos = Nanos::from_micros(1000);

/// CPUs that are asked in one interrupt.
const STEP: u32 = 4;

/// Which of the two interval timers.
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

/// One of the two.
#[derive(Clone, Copy, Default, Debug)]
pub struct Armed {
    /// In processor time of the process.
    deadline: Option<Nanos>,
    interval: Nanos,
}

/// Both interval timers of a process.
pub type Both = [Armed; 2];

/// Whose processor time a timer or sleeper counts.
#[derive(Clone)]
pub enum Counted {
    /// The process whose timer or sleeper it is.
    Process,
    /// A thread of that.
    Thread(Weak<Thread>),
}

impl Counted {
    /// Whether that number is of a clock of processor time.
    pub fn is_named(clock: u64) -> bool {
        let clock = clock as u32;
        matches!(clock, linux::CLOCK_PROCESS_CPUTIME_ID | linux::CLOCK_THREAD_CPUTIME_ID)
            || (clock as i32) < 0
    }

    /// What the clock of this number counts, for the calling process. Other processes cannot be
    /// waited for.
    pub fn of(clock: u64) -> Result<Self, Errno> {
        let current = task::current();
        let own = &current.user().ok_or(Errno::EINVAL)?.process;
        match Meter::of_clock(clock as u32)? {
            Meter::Thread(thread) => Ok(Self::Thread(Arc::downgrade(&thread))),
            Meter::Process(process) if Arc::ptr_eq(&process, own) => Ok(Self::Process),
            Meter::Process(_) => Err(Errno::EOPNOTSUPP),
            // Whether it is there is for Linux to say.
            Meter::Elsewhere => {
                remote::linux(linux::__NR_clock_getres, &[clock, 0]).and(Err(Errno::EOPNOTSUPP))
            }
        }
    }

    /// The same, for a sleeper: a thread does not wait for itself.
    fn to_sleep(clock: u64) -> Result<Self, Errno> {
        if clock as u32 == linux::CLOCK_THREAD_CPUTIME_ID {
            return Err(Errno::EOPNOTSUPP);
        }
        let counted = Self::of(clock)?;
        let me = task::current();
        match &counted {
            Self::Thread(thread) if core::ptr::eq(thread.as_ptr(), &*me) => Err(Errno::EINVAL),
            _ => Ok(counted),
        }
    }

    /// What `process`, or the thread of it, has used, unless that is gone. Thread context; may
    /// sleep.
    pub fn used(&self, process: &Process) -> Option<Nanos> {
        match self {
            Self::Process => Some(process.used().time),
            Self::Thread(thread) => thread.upgrade().map(|thread| thread.time_used()),
        }
    }

    /// What is left of it until `deadline`. Thread context; may sleep.
    fn left(&self, process: &Process, deadline: Nanos) -> Option<Nanos> {
        self.used(process).map(|used| deadline - used)
    }

    /// Whether it is one thread's.
    pub fn is_of_thread(&self) -> bool {
        matches!(self, Self::Thread(_))
    }
}

/// A limit of processor time.
#[derive(Clone, Copy)]
struct Limit {
    /// Where SIGXCPU comes next; [`Nanos::MAX`]: there is no limit.
    soft: Nanos,
    /// Where SIGKILL comes.
    hard: Nanos,
}

impl Limit {
    const NONE: Self = Self { soft: Nanos::MAX, hard: Nanos::MAX };

    fn is_none(self) -> bool {
        self.soft == Nanos::MAX
    }

    /// What is left of it after `used`.
    fn left(self, used: Nanos) -> Option<Nanos> {
        (!self.is_none()).then(|| self.soft.min(self.hard) - used)
    }

    /// The signal that is due after `used`. SIGXCPU comes again each second.
    fn reached(&mut self, used: Nanos) -> Option<u32> {
        if self.is_none() || used < self.soft.min(self.hard) {
            return None;
        }
        if used >= self.hard {
            return Some(SIGKILL);
        }
        self.soft += Nanos::from_secs(1);
        Some(linux::SIGXCPU)
    }
}

/// A thread that sleeps until what it counts has been used.
struct Sleeper {
    thread: Arc<Thread>,
    counted: Counted,
    deadline: Nanos,
}

/// What a process waits for in processor time. Dropping it deletes the timers.
pub struct Processor {
    timers: Both,
    posix: Vec<Arc<posix::Core>>,
    sleepers: Vec<Sleeper>,
    /// RLIMIT_CPU.
    time: Limit,
    /// RLIMIT_RTTIME.
    real_time: Limit,
    look: Arc<Look>,
}

/// Has the threads that run look at what was used.
struct Look {
    process: Arc<Process>,
    plan: SpinLock<Plan>,
    /// The CPU that is asked next.
    cpu: AtomicCpu,
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
                thread.user().is_some_and(|user| Arc::ptr_eq(&user.process, &self.process))
            });
        }
        let next = rest.next();
        self.cpu.store(next.unwrap_or(RealmCpu::first()), Ordering::Relaxed);
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
    /// Nothing to wait for. Allocates.
    pub fn new(process: Arc<Process>) -> Result<Self, Errno> {
        let look = Arc::new(Look {
            process,
            plan: SpinLock::new(Plan::default()),
            cpu: AtomicCpu::new(RealmCpu::first()),
        });
        let own = look.clone();
        let timer = Timer::new(Box::new(move || own.expired())).map_err(|_| Errno::ENOMEM)?;
        look.plan.lock().timer = Some(timer);
        Ok(Self {
            timers: Both::default(),
            posix: Vec::new(),
            sleepers: Vec::new(),
            time: Limit::NONE,
            real_time: Limit::NONE,
            look,
        })
    }

    /// What remains of an interval timer, and the interval, when the process has used `used`.
    pub fn get(&self, which: Which, used: Nanos) -> (Nanos, Nanos) {
        let timer = self.timers[which as usize];
        // What is armed has not expired.
        let rest = timer.deadline.map_or(Nanos::ZERO, |deadline| {
            if deadline > used { deadline - used } else { Nanos(1000) }
        });
        (rest, timer.interval)
    }

    /// Sets an interval timer to expire after `value` more, and then each `interval`.
    pub fn set(&mut self, which: Which, used: Nanos, value: Nanos, interval: Nanos) {
        let deadline = (value != Nanos::ZERO).then(|| used + value);
        self.timers[which as usize] = Armed { deadline, interval };
        self.plan();
    }

    /// Both interval timers, which expire no more.
    pub fn take(&mut self) -> Both {
        let taken = core::mem::take(&mut self.timers);
        self.plan();
        taken
    }

    /// Has both go on as they were.
    pub fn resume(&mut self, timers: Both) {
        self.timers = timers;
        self.plan();
    }

    /// Sends the signals that are due, and wakes who slept long enough.
    fn check(&mut self) {
        let process = &self.look.process;
        let used = process.used().time;
        for which in [Which::Virtual, Which::Profile] {
            let timer = &mut self.timers[which as usize];
            let Some(deadline) = timer.deadline.filter(|&deadline| deadline <= used) else {
                continue;
            };
            timer.deadline =
                (timer.interval != Nanos::ZERO).then(|| forward(deadline, timer.interval, used).0);
            send(process, which.signal());
        }
        for timer in &self.posix {
            timer.check();
        }
        for sleeper in &self.sleepers {
            if sleeper.counted.left(process, sleeper.deadline) == Some(Nanos::ZERO) {
                sleeper.thread.wake();
            }
        }
        if let Some(signal) = self.time.reached(used) {
            send(process, signal);
        }
        if !self.real_time.is_none()
            && let Some(awake) = awake(process)
            && let Some(signal) = self.real_time.reached(awake)
        {
            send(process, signal);
        }
        self.plan();
    }

    /// Sets the processor's timer.
    fn plan(&self) {
        let process = &self.look.process;
        let used = process.used().time;
        let cpus = u64::from(task::online().count()).max(1);
        let of_process = |left: Nanos| Nanos(left.0 / cpus);
        let left = |(left, of_thread)| if of_thread { left } else { of_process(left) };
        let timers = self.timers.iter().filter_map(|timer| timer.deadline);
        let timers = timers.map(|deadline| of_process(deadline - used));
        let posix = self.posix.iter().filter_map(|timer| timer.left()).map(left);
        let sleepers = self.sleepers.iter().filter_map(|sleeper| {
            let rest = sleeper.counted.left(process, sleeper.deadline)?;
            Some(left((rest, sleeper.counted.is_of_thread())))
        });
        let real_time = match self.real_time.is_none() {
            true => None,
            false => self.real_time.left(awake(process).unwrap_or(Nanos::ZERO)),
        };
        let limits = self.time.left(used).map(of_process).into_iter().chain(real_time);
        let next = timers.chain(posix).chain(sleepers).chain(limits).min();
        self.look.set(next.map(|next| next.max(SHORTEST)));
    }
}

/// Sends a signal of the kernel to `process`; SIGKILL ends it.
fn send(process: &Process, signal: u32) {
    match signal {
        SIGKILL => process.end(End::Signal(SIGKILL)),
        // It is not of the kind that fails.
        _ => drop(signal::to_process(process, Info::new(signal, SI_KERNEL))),
    }
}

/// The longest time that a thread of SCHED_FIFO or SCHED_RR has used since it last slept, if there
/// is one. Thread context; may sleep.
fn awake(process: &Process) -> Option<Nanos> {
    let is_real_time = |thread: &&Arc<Thread>| {
        matches!(thread.scheduling().policy, Policy::Fifo | Policy::RoundRobin)
    };
    let members = process.members.lock();
    let times = members.threads.iter().filter(is_real_time).map(|thread| thread.time_awake());
    times.max()
}

/// Calls `f` with what `process` waits for, which is made if need be. Thread context; may sleep.
pub fn with<R>(process: &Arc<Process>, f: impl FnOnce(&mut Processor) -> R) -> Result<R, Errno> {
    let mut processor = process.timers.processor.lock();
    Ok(f(made(&mut processor, || Processor::new(process.clone()))?))
}

/// Sends what is due of the calling thread's process, if it is time to look. Thread context; may
/// sleep.
pub fn look() {
    let current = task::current();
    let Some(user) = current.user() else { return };
    let timers = &user.process.timers;
    if timers.to_look.load(Ordering::Relaxed)
        && timers.to_look.swap(false, Ordering::Relaxed)
        && let Some(processor) = &mut *timers.processor.lock()
    {
        processor.check();
    }
}

/// Looks when it is time for what has changed. Thread context; may sleep.
pub fn plan(process: &Process) {
    if let Some(processor) = &*process.timers.processor.lock() {
        processor.plan();
    }
}

/// Adds a timer of timer_create(2). Thread context; may sleep.
pub fn add(process: &Arc<Process>, timer: Arc<posix::Core>) -> Result<(), Errno> {
    if !heap::has_reserve() {
        return Err(Errno::EAGAIN);
    }
    with(process, |processor| {
        processor.posix.try_reserve(1).map_err(|_| Errno::EAGAIN)?;
        processor.posix.push(timer);
        Ok(())
    })?
}

/// Takes it away.
pub fn remove(process: &Process, timer: &Arc<posix::Core>) {
    if let Some(processor) = &mut *process.timers.processor.lock() {
        processor.posix.retain(|other| !Arc::ptr_eq(other, timer));
        processor.plan();
    }
}

/// Sets RLIMIT_CPU or RLIMIT_RTTIME of `process`: the soft and the hard limit as Linux has them.
/// Thread context; may sleep.
pub fn limit(process: &Arc<Process>, resource: u32, limits: [u64; 2]) -> Result<(), Errno> {
    let unit = if resource == linux::RLIMIT_CPU { SECOND } else { 1000 };
    let [soft, hard] = limits.map(|limit| Nanos(limit.saturating_mul(unit)));
    let limit = match resource {
        // As in Linux, 0 means a second.
        linux::RLIMIT_CPU => Limit { soft: soft.max(Nanos(SECOND)), hard: hard.max(Nanos(SECOND)) },
        _ => Limit { soft, hard },
    };
    set_limits(
        process,
        |processor| match resource {
            linux::RLIMIT_CPU => processor.time = limit,
            _ => processor.real_time = limit,
        },
        limit.is_none(),
    )
}

/// Gives `child` the limits of `parent`. Thread context; may sleep.
pub fn copy_limits(child: &Arc<Process>, parent: &Process) -> Result<(), Errno> {
    let limits = parent.timers.processor.lock().as_ref().map(|of| (of.time, of.real_time));
    let Some((time, real_time)) = limits else { return Ok(()) };
    let none = time.is_none() && real_time.is_none();
    set_limits(child, |processor| (processor.time, processor.real_time) = (time, real_time), none)
}

/// Has `set` change limits; if they are `none`, only where there were some.
fn set_limits(
    process: &Arc<Process>,
    set: impl FnOnce(&mut Processor),
    none: bool,
) -> Result<(), Errno> {
    if none && process.timers.processor.lock().is_none() {
        return Ok(());
    }
    with(process, |processor| {
        set(processor);
        processor.plan();
    })
}

/// clock_nanosleep(clock, flags, request, remainder) in processor time.
pub fn clock_nanosleep(
    clock: u64,
    is_absolute: bool,
    request: UserAddr,
    remainder: UserAddr,
) -> SysResult {
    let counted = Counted::to_sleep(clock)?;
    let time = read_timespec(request)?;
    let current = task::current();
    let process = &current.user().ok_or(Errno::EINVAL)?.process;
    match is_absolute {
        true => until(process, counted, time),
        false => {
            let deadline = counted.used(process).ok_or(Errno::EINVAL)? + time;
            relative(process, clock, counted, deadline, remainder)
        }
    }
}

/// Goes on with a relative one that a signal interrupted.
pub fn go_on(clock: u64, deadline: Nanos, remainder: UserAddr) -> SysResult {
    let current = task::current();
    let process = &current.user().ok_or(Errno::EINVAL)?.process;
    relative(process, clock, Counted::to_sleep(clock)?, deadline, remainder)
}

fn relative(
    process: &Arc<Process>,
    clock: u64,
    counted: Counted,
    deadline: Nanos,
    remainder: UserAddr,
) -> SysResult {
    let result = until(process, counted.clone(), deadline);
    if result != Err(Errno::RESTART_NO_HANDLER) {
        return result;
    }
    if !remainder.is_null() {
        let left = counted.left(process, deadline);
        write_timespec(remainder, left.unwrap_or(Nanos::ZERO))?;
    }
    if let Some(user) = task::current().user() {
        *user.restart.lock() = Some(Restart::ProcessorSleep { clock, deadline, remainder });
    }
    Err(Errno::RESTART_BLOCK)
}

/// Sleeps until `deadline` in the time that is `counted`. A signal interrupts.
fn until(process: &Arc<Process>, counted: Counted, deadline: Nanos) -> SysResult {
    let thread = task::current().arc();
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    with(process, |processor| {
        processor.sleepers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let (thread, counted) = (thread.clone(), counted.clone());
        processor.sleepers.push(Sleeper { thread, counted, deadline });
        processor.plan();
        Ok::<_, Errno>(())
    })??;
    let result = loop {
        if counted.left(process, deadline) == Some(Nanos::ZERO) {
            break Ok(0);
        }
        if signal::is_interrupted() {
            break Err(Errno::RESTART_NO_HANDLER);
        }
        task::block(None);
    };
    with(process, |processor| {
        processor.sleepers.retain(|sleeper| !Arc::ptr_eq(&sleeper.thread, &thread));
        processor.plan();
    })?;
    result
}

impl Drop for Processor {
    fn drop(&mut self) {
        let timer = self.look.plan.lock().timer.take();
        drop(timer);
    }
}
