// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler: each CPU always runs the first thread of the highest level that is ready there, and
//! no thread waits while a CPU that it may use runs something less urgent (see [`super::migration`]).
//!
//! Each CPU has a run queue and timers with a lock of their own; one such lock is held at a time. There
//! is no tick. The timer is set for the earliest of what is due: a deadline, or the end of a time
//! slice if another thread of the same level waits for its turn.
//!
//! When the rank of what a CPU runs changes, it is stored in the channel. When it falls, a full fence follows,
//! and a look for replies: whoever in Linux did not ring because of the rank it saw has stored its reply
//! before that look.

use super::board::{BOARD, Notice};
use super::migration::{self, Move};
use super::scheduling::{Policy, Scheduling};
use super::thread::{MAX_THREADS, Thread, WakeReason, by_id, current, register};
use super::timer::{self, MAX_TIMERS};
use super::{deadlines, idle, reaper, user};
use crate::arch::percpu::PerCpu;
use crate::arch::{apic, context, cpu, percpu};
use crate::mm::layout;
use crate::replies;
use crate::sync::{SpinGuard, SpinLock};
use crate::time::{self, Nanos};
use crate::trace;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crtos_abi::channel::RANK_IDLE;
use crtos_sched::deadline::Server;
use crtos_sched::{CpuSet, Level, RunQueue, TimerQueue, Urgency};

/// How long a real-time thread runs before ordinary threads that wait for it are sent elsewhere: less
/// than that is not worth the interrupt.
const PATIENCE: Nanos = Nanos::from_millis(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// Not started.
    New,
    /// On the CPU.
    Running,
    /// In the run queue.
    Ready,
    /// On its way to the CPU that it is assigned to.
    Moving,
    /// In [`block`].
    Blocked,
    /// In [`sleep_until`].
    Sleeping,
    /// In [`wait_for_grant`].
    Locked,
    /// Its budget is used up; waits for its next period.
    Throttled,
    /// Ended.
    Exited,
}

/// The scheduler's knowledge of a thread; see [`State::of`].
pub(super) struct Sched {
    pub(super) progress: Cell<Progress>,
    scheduling: Cell<Scheduling>,
    /// With SCHED_DEADLINE, what serves it.
    server: Cell<Option<Server>>,
    /// The level that it inherits from those who wait for it.
    inherited: Cell<Level>,
    /// What follows from these three.
    urgency: Cell<Urgency>,
    pub(super) affinity: Cell<CpuSet>,
    /// How often it was sent on since it became ready.
    pub(super) hops: Cell<u8>,
    /// Whether it is counted among those that could run elsewhere.
    pub(super) movable: Cell<Option<Class>>,
    /// A wake came while it was not blocked.
    token: Cell<bool>,
    /// What it waits for in [`wait_for_grant`] was handed to it.
    granted: Cell<bool>,
    /// What it waits for in [`block`] was handed to it.
    handed: Cell<bool>,
    reason: Cell<WakeReason>,
    slice_left: Cell<Nanos>,
    /// What it had run when it was last woken from a sleep.
    rested: Cell<Nanos>,
    /// It gives up its turn.
    yields: Cell<bool>,
}

// SAFETY: the cells are reached through `State::of` alone, under the lock of the one CPU that the
// thread is assigned to.
unsafe impl Sync for Sched {}

/// What counts as one when threads are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Ordinary,
    RealTime,
}

impl Sched {
    pub(super) const fn new(scheduling: Scheduling, affinity: CpuSet) -> Self {
        Self {
            progress: Cell::new(Progress::New),
            scheduling: Cell::new(scheduling),
            server: Cell::new(None),
            inherited: Cell::new(Level::ORDINARY),
            urgency: Cell::new(Urgency::of_level(scheduling.level)),
            affinity: Cell::new(affinity),
            hops: Cell::new(0),
            movable: Cell::new(None),
            token: Cell::new(false),
            granted: Cell::new(false),
            handed: Cell::new(false),
            reason: Cell::new(WakeReason::Woken),
            slice_left: Cell::new(Nanos::ZERO),
            rested: Cell::new(Nanos::ZERO),
            yields: Cell::new(false),
        }
    }

    pub(super) fn urgency(&self) -> Urgency {
        self.urgency.get()
    }

    /// By its deadline while it has a budget, else by its level: of a thread whose budget is used up the one that it inherits.
    fn renew_urgency(&self) {
        let own = match self.server.get() {
            Some(_) => Level::ORDINARY,
            None => self.scheduling.get().level,
        };
        self.urgency.set(match self.deadline() {
            Some(deadline) => Urgency::of_deadline(deadline),
            None => Urgency::of_level(own.max(self.inherited.get())),
        });
    }

    pub(super) fn inherited(&self) -> Level {
        self.inherited.get()
    }

    pub(super) fn server(&self) -> Option<Server> {
        self.server.get()
    }

    pub(super) fn set_server(&self, server: Option<Server>) {
        self.server.set(server);
        self.renew_urgency();
    }

    /// The deadline by which it competes.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.server.get().filter(|server| !server.is_exhausted()).map(|server| server.deadline())
    }

    /// Whether its policy has time slices.
    fn has_slices(&self) -> bool {
        !matches!(self.scheduling.get().policy, Policy::Fifo | Policy::Deadline)
    }

    /// Whether it shares its level by time slices: not while it runs on somebody else's behalf.
    fn is_sliced(&self) -> bool {
        self.has_slices() && self.inherited.get() <= self.scheduling.get().level
    }

    /// The CPUs that it may run on and that run.
    pub(super) fn allowed(&self) -> CpuSet {
        let allowed = self.affinity.get().and(BOARD.online());
        if allowed.is_empty() { BOARD.online() } else { allowed }
    }
}

/// Threads and timers of one CPU.
pub struct Runner {
    state: SpinLock<State>,
}

pub(super) struct State {
    /// The CPU.
    pub(super) cpu: &'static PerCpu,
    /// What it tells the others.
    pub(super) notice: &'static Notice,
    pub(super) ready: RunQueue,
    /// Ready threads that compete by their deadlines, before those in `ready`.
    pub(super) deadlines: TimerQueue,
    /// The ready thread that is more urgent than what runs and than all in the queues, if there is one: it
    /// goes from here to the CPU without being queued.
    first: Option<&'static Thread>,
    /// Ready threads that may run elsewhere: ordinary and real-time ones.
    pub(super) movable: [u32; 2],
    /// Threads' deadlines, then timers.
    pub(super) timers: TimerQueue,
    pub(super) current: &'static Thread,
    idle: &'static Thread,
    /// Since when the current thread was not charged.
    since: Nanos,
    slice_end: Option<Nanos>,
    /// What the timer is set for.
    programmed: Option<Nanos>,
    /// The function of a timer runs.
    runs_function: bool,
    idle_time: Nanos,
    /// The CPU, another than this one, has to be told to look for another thread.
    signal: bool,
    /// A thread that leaves for another CPU.
    pub(super) outgoing: Option<Move>,
}

// SAFETY: the threads that it refers to are there for every CPU.
unsafe impl Send for State {}

/// The scheduler of one CPU, locked. When it is dropped, interrupts that others need are sent and
/// threads that leave are delivered, all without the lock.
pub(super) struct Held {
    state: ManuallyDrop<SpinGuard<'static, State>>,
    interrupts: bool,
}

/// Locks the scheduler of the CPU that `which` tells, which may change its mind meanwhile.
pub(super) fn hold(which: impl Fn() -> u32) -> Held {
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
pub(super) fn hold_own() -> Held {
    let interrupts = cpu::disable_interrupts();
    let mut held = hold_here();
    held.interrupts = interrupts;
    held
}

/// The scheduler of this CPU. Interrupts are off and stay so.
#[inline(always)]
fn hold_here() -> Held {
    match percpu::this().runner.get() {
        Some(runner) => {
            Held { state: ManuallyDrop::new(runner.state.lock_quietly()), interrupts: false }
        }
        None => panic!("the CPU has no scheduler"),
    }
}

/// The scheduler of the CPU that `thread` is assigned to.
pub(super) fn hold_of(thread: &Thread) -> Held {
    hold(|| thread.cpu())
}

impl Held {
    /// What dropping does, where it has to be short.
    #[inline(always)]
    fn release(self) {
        ManuallyDrop::new(self).end();
    }

    /// The last that is done with it.
    #[inline(always)]
    fn end(&mut self) {
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
    fn release_with_orders(&mut self) {
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

impl State {
    /// What the scheduler knows of `thread`, which is assigned to this CPU.
    pub(super) fn of<'a>(&'a self, thread: &'a Thread) -> &'a Sched {
        debug_assert_eq!(thread.cpu(), self.cpu.index);
        &thread.sched
    }

    /// Whether this is the scheduler of the CPU that executes this.
    pub(super) fn is_here(&self) -> bool {
        ptr::eq(self.cpu, percpu::this())
    }

    pub(super) fn is_current(&self, thread: &Thread) -> bool {
        ptr::eq(self.current, thread)
    }

    /// How urgent what the CPU runs is.
    pub(super) fn running(&self) -> Urgency {
        match ptr::eq(self.current, self.idle) {
            true => Urgency::IDLE,
            false => self.of(self.current).urgency(),
        }
    }

    /// Has the CPU look for another thread.
    pub(super) fn ask_reschedule(&mut self) {
        match self.is_here() {
            true => self.cpu.set_need_resched(),
            false => self.signal = true,
        }
    }

    /// What follows from `thread`, which is `urgency`, having been queued: another CPU could run it, or the current one has a
    /// competitor from now on.
    fn consider(&mut self, thread: &Thread, urgency: Urgency) {
        if self.offer(thread) {
            return;
        }
        if urgency == Urgency::ORDINARY && self.current_gives_way(thread) {
            self.of(self.current).yields.set(true);
            self.ask_reschedule();
        } else if urgency == self.running()
            && self.slice_end.is_none()
            && self.of(self.current).is_sliced()
        {
            self.begin_slice();
        }
    }

    /// The turn of the current thread has an end from now on.
    #[inline(never)]
    fn begin_slice(&mut self) {
        if self.is_here() {
            let now = time::now();
            let ran = now - self.since;
            self.slice_end = Some(now + (self.of(self.current).slice_left.get() - ran));
            self.program();
        } else {
            self.ask_reschedule();
        }
    }

    /// Whether the current thread has SCHED_IDLE and `thread`, an ordinary one, has not.
    fn current_gives_way(&self, thread: &Thread) -> bool {
        let idle = |thread| {
            let sched = self.of(thread);
            sched.scheduling.get().policy == Policy::Idle && sched.urgency() == Urgency::ORDINARY
        };
        idle(self.current) && !idle(thread)
    }

    /// Puts `thread` into the run queue: before the others of its level, or behind them.
    pub(super) fn enqueue(&mut self, thread: &Thread, front: bool) {
        let sched = self.of(thread);
        sched.progress.set(Progress::Ready);
        let urgency = sched.urgency();
        let elsewhere = sched.allowed().without(self.cpu.index);
        let class = match urgency {
            Urgency::ORDINARY => Class::Ordinary,
            _ => Class::RealTime,
        };
        sched.movable.set((!elsewhere.is_empty()).then_some(class));
        if !elsewhere.is_empty() {
            self.movable[class as usize] += 1;
        }
        match urgency.level() {
            Ok(level) if front => self.ready.push_front(thread.id.0, level),
            Ok(level) => self.ready.push_back(thread.id.0, level),
            Err(deadline) => self.deadlines.arm(thread.id.0, deadline),
        }
    }

    fn uncount(&mut self, thread: &Thread) {
        if let Some(class) = self.of(thread).movable.take() {
            self.movable[class as usize] -= 1;
        }
    }

    /// Takes `thread` out of the run queue.
    pub(super) fn dequeue(&mut self, thread: &Thread) {
        if self.first.is_some_and(|first| ptr::eq(first, thread)) {
            self.first = None;
        } else if !self.ready.remove(thread.id.0) {
            self.deadlines.cancel(thread.id.0);
        }
        self.uncount(thread);
    }

    /// Takes the most urgent thread out of the run queue.
    fn pop(&mut self) -> Option<&'static Thread> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let first = self.deadlines.expire(Nanos::MAX);
        let thread = by_id(first.or_else(|| self.ready.pop().map(|(id, _)| id))?);
        self.uncount(thread);
        Some(thread)
    }

    /// How urgent the first thread in the run queue is.
    pub(super) fn first_urgency(&self) -> Urgency {
        match self.deadlines.next() {
            Some(deadline) => Urgency::of_deadline(deadline),
            None => self.ready.highest().map_or(Urgency::IDLE, Urgency::of_level),
        }
    }

    /// Makes `thread`, which is assigned to this CPU, ready here.
    #[inline(always)]
    pub(super) fn make_ready(&mut self, thread: &Thread, front: bool) {
        let sched = self.of(thread);
        let urgency = sched.urgency();
        // Also what it was asked to look for before counts.
        if urgency <= self.notice.running() {
            return self.queue(thread, front, urgency);
        }
        sched.progress.set(Progress::Ready);
        self.queue_first();
        self.first = Some(by_id(thread.id.0));
        self.notice.set_running(urgency);
        self.ask_reschedule();
    }

    #[inline(never)]
    fn queue(&mut self, thread: &Thread, front: bool, urgency: Urgency) {
        self.enqueue(thread, front);
        self.consider(thread, urgency);
    }

    /// The first ready thread is not more urgent than all others any more.
    #[inline]
    fn queue_first(&mut self) {
        if let Some(first) = self.first.take() {
            self.enqueue(first, false);
        }
    }

    /// Makes a thread ready that slept or is new: here, or where it should run.
    #[inline(always)]
    fn activate(&mut self, thread: &Thread) {
        trace::wake(thread);
        if self.is_current(thread) {
            // It is on its way out of the CPU, and looks for what to run after this.
            self.of(thread).progress.set(Progress::Running);
        } else if self.may_start(thread) {
            self.distribute(thread);
        }
    }

    /// Makes a thread ready that is in no queue: here, or where it should run.
    #[inline(always)]
    pub(super) fn distribute(&mut self, thread: &Thread) {
        let sched = self.of(thread);
        sched.hops.set(0);
        match self.best_place(thread) {
            here if here == self.cpu.index => self.make_ready(thread, false),
            there => self.send(thread, there, false),
        }
    }

    #[inline(always)]
    pub(super) fn wake(&mut self, thread: &Thread, reason: WakeReason) {
        let sched = self.of(thread);
        match (sched.progress.get(), reason) {
            (Progress::Blocked, _) | (Progress::Sleeping, WakeReason::Timeout) => {
                sched.reason.set(reason);
                sched.rested.set(thread.run_time());
                if reason != WakeReason::Timeout {
                    self.timers.cancel(thread.id.0);
                }
                self.activate(thread);
            }
            (Progress::Throttled, WakeReason::Timeout) => self.end_throttle(thread),
            (Progress::Exited, _) | (_, WakeReason::Timeout) => {}
            (_, WakeReason::Woken) => sched.token.set(true),
            (_, WakeReason::Handed) => sched.handed.set(true),
        }
    }

    /// Applies a changed level of `thread`: to the front of its level if that fell, else to the
    /// back, as POSIX has it.
    pub(super) fn requeue(&mut self, thread: &Thread, before: Urgency) {
        let sched = self.of(thread);
        let shown = sched.scheduling.get().level.max(sched.inherited.get());
        thread.level.store(shown.get() as u8, Ordering::Relaxed);
        if let Some(user) = thread.data.user() {
            replies::set_urgent(user.slot, shown > Level::ORDINARY);
        }
        let urgency = sched.urgency();
        match sched.progress.get() {
            // It may inherit now, or have another policy.
            Progress::Throttled => {
                self.timers.cancel(thread.id.0);
                if self.may_go_on(thread) {
                    self.distribute(thread);
                }
            }
            _ if urgency == before => {}
            Progress::Ready => {
                self.dequeue(thread);
                if self.may_go_on(thread) {
                    self.make_ready(thread, urgency < before);
                }
            }
            _ if self.is_current(thread) => match urgency > before {
                true => self.raise_current(urgency),
                false => self.ask_reschedule(),
            },
            _ => {}
        }
    }

    /// The current thread has become more urgent.
    fn raise_current(&mut self, urgency: Urgency) {
        if urgency > self.notice.running() {
            self.notice.set_running(urgency);
            self.queue_first();
        }
    }

    /// What `thread` has run up to now.
    fn time_used(&self, thread: &Thread) -> Nanos {
        let running = match self.is_current(thread) {
            true => time::now() - self.since,
            false => Nanos::ZERO,
        };
        thread.run_time() + running
    }

    /// Charges the current thread up to now.
    fn charge(&mut self, now: Nanos) {
        let ran = now - self.since;
        self.since = now;
        if ptr::eq(self.current, self.idle) {
            self.idle_time += ran;
        }
        let sched = self.of(self.current);
        sched.slice_left.set(sched.slice_left.get() - ran);
        if let Some(mut server) = sched.server.get() {
            let had = !server.is_exhausted();
            server.consume(ran);
            sched.set_server(Some(server));
            if had && server.is_exhausted() && sched.scheduling.get().tells_overrun {
                self.current.note_overrun();
            }
        }
        // Only the CPU that runs it adds to it.
        let total = self.current.run_time.load(Ordering::Relaxed) + ran.0;
        self.current.run_time.store(total, Ordering::Relaxed);
    }

    /// Puts the thread that runs back into the run queue, or on its way to where it may run.
    fn put_back(&mut self) {
        let thread = self.current;
        let sched = self.of(thread);
        if sched.progress.get() != Progress::Running || ptr::eq(thread, self.idle) {
            return;
        }
        let done = sched.is_sliced() && sched.slice_left.get() == Nanos::ZERO;
        let yields = sched.yields.take();
        let front = !(yields || done);
        if sched.server.get().is_some() && !self.may_stay(thread, yields) {
            return;
        }
        let sched = self.of(thread);
        match sched.allowed().contains(self.cpu.index) {
            true => self.enqueue(thread, front),
            false => self.send(thread, self.best_place(thread), front),
        }
    }

    /// Chooses the thread to run next, and sets the timer for what is due then. Says how urgent it is, and
    /// whether that is less than before.
    fn choose(&mut self) -> (&'static Thread, Urgency, bool) {
        let now = time::now();
        self.charge(now);
        self.put_back();
        let next = self.pop().unwrap_or(self.idle);
        self.current = next;
        let sched = self.of(next);
        sched.progress.set(Progress::Running);
        let (slice_end, urgency) = match ptr::eq(next, self.idle) {
            true => (None, Urgency::IDLE),
            false => (self.end_of_turn(next, now), sched.urgency()),
        };
        self.slice_end = slice_end;
        let fell = urgency < self.notice.running();
        self.notice.set_running(urgency);
        self.publish_surplus();
        self.program();
        (next, urgency, fell)
    }

    /// When the turn of `thread` ends, which begins now, if it does.
    #[inline(always)]
    fn end_of_turn(&self, thread: &Thread, now: Nanos) -> Option<Nanos> {
        let sched = self.of(thread);
        if sched.has_slices() && sched.slice_left.get() == Nanos::ZERO {
            sched.slice_left.set(sched.scheduling.get().slice());
        }
        if sched.deadline().is_some() {
            sched.server.get().map(|server| now + server.budget())
        } else if sched.is_sliced() {
            let others = sched.urgency().level().is_ok_and(|level| self.ready.has(level));
            others.then(|| now + sched.slice_left.get())
        } else {
            (self.movable[Class::Ordinary as usize] > 0).then(|| now + PATIENCE)
        }
    }

    /// Sets the timer for the earliest of what is due, if this is the CPU whose timer that is.
    #[inline(always)]
    pub(super) fn program(&mut self) {
        let due = match (self.timers.next(), self.slice_end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if due != self.programmed && self.is_here() {
            self.programmed = due;
            apic::set_timer(due);
        }
    }
}

/// Makes the scheduler of `cpu` with its idle thread. Before that CPU runs its first thread.
pub fn set_up(cpu: &'static PerCpu) -> Result<(), super::SpawnError> {
    let idle = super::thread::make(
        super::Spawn { name: "idle", affinity: CpuSet::one(cpu.index), ..Default::default() },
        Box::new(|| idle::idle_loop()),
    )?;
    idle.cpu.store(cpu.index, Ordering::Relaxed);
    let idle = register(&idle);
    let state = State {
        cpu,
        notice: BOARD.notice(cpu.index),
        ready: RunQueue::new(MAX_THREADS),
        deadlines: TimerQueue::new(MAX_THREADS),
        first: None,
        movable: [0; 2],
        timers: TimerQueue::new(MAX_THREADS + MAX_TIMERS),
        current: idle,
        idle,
        since: time::now(),
        slice_end: None,
        programmed: None,
        runs_function: false,
        idle_time: Nanos::ZERO,
        signal: false,
        outgoing: None,
    };
    cpu.runner.call_once(|| Runner { state: SpinLock::new(state) });
    Ok(())
}

/// Runs the first thread of this CPU. Interrupts off, on a stack that nothing returns to.
pub fn start() -> ! {
    percpu::release_preemption();
    hold_own().since = time::now();
    percpu::this().set_need_resched();
    reschedule();
    unreachable!("nothing returns to the boot stack")
}

/// This CPU runs threads from now on, and has left the stack that it booted on or is the first.
pub fn set_online() {
    let interrupts = cpu::disable_interrupts();
    BOARD.set_online(percpu::this().index);
    cpu::restore_interrupts(interrupts);
}

/// The CPUs that run threads, by index in the cell.
pub fn online() -> CpuSet {
    BOARD.online()
}

/// Adds a new thread and makes it ready.
pub(super) fn add(thread: &Arc<Thread>) {
    let thread = register(thread);
    hold_of(thread).activate(thread);
}

/// See [`Thread::wake`] and [`Thread::hand_over`].
pub(super) fn wake(thread: &Thread, reason: WakeReason) {
    let mut held = hold_of(thread);
    held.wake(thread, reason);
    held.release();
}

/// Takes back a [`Thread::hand_over`] that no [`block`] of the calling thread has returned.
pub fn forget_handed() {
    hold_own().of(&current()).handed.set(false);
}

/// Has `thread` pass the check before its return to user mode if it is there on another CPU.
pub(super) fn interrupt(thread: &Thread) {
    if ptr::eq(percpu::current(), thread) {
        percpu::this().set_attention(true);
        return;
    }
    let elsewhere = {
        let state = hold_of(thread);
        (state.is_current(thread) && !state.is_here()).then_some(state.cpu)
    };
    if let Some(cpu) = elsewhere {
        cpu.interrupt();
    }
}

/// Has what CPU `cpu` of the realm runs, if it `is_meant`, pass the check before its return to user mode. Any context.
pub fn ask_running(cpu: u32, is_meant: impl FnOnce(&Thread) -> bool) {
    let state = hold(|| cpu);
    if !is_meant(state.current) {
        return;
    }
    state.current.note_attention();
    match state.is_here() {
        true => percpu::this().set_attention(true),
        false => state.cpu.interrupt(),
    }
}

/// Applies `scheduling` to `thread`; for [`super::deadlines`].
pub(super) fn set_scheduling(thread: &Thread, scheduling: Scheduling) {
    let mut state = hold_of(thread);
    let sched = state.of(thread);
    let before = sched.urgency();
    sched.scheduling.set(scheduling);
    sched.slice_left.set(scheduling.slice());
    let reserved = scheduling.policy == Policy::Deadline;
    sched.set_server(reserved.then(|| Server::new(scheduling.reservation, time::now())));
    state.requeue(thread, before);
    if state.is_current(thread) {
        // Its rank and its slice follow from the policy.
        state.ask_reschedule();
    }
}

/// Whether `thread` has ended.
pub(super) fn has_ended(thread: &Thread) -> bool {
    hold_of(thread).of(thread).progress.get() == Progress::Exited
}

/// See [`Thread::scheduling`].
pub(super) fn scheduling(thread: &Thread) -> Scheduling {
    hold_of(thread).of(thread).scheduling.get()
}

/// See [`Thread::time_used`].
pub(super) fn time_used(thread: &Thread) -> Nanos {
    hold_of(thread).time_used(thread)
}

/// See [`Thread::time_awake`].
pub(super) fn time_awake(thread: &Thread) -> Nanos {
    let state = hold_of(thread);
    state.time_used(thread) - state.of(thread).rested.get()
}

/// See [`Thread::affinity`].
pub(super) fn affinity(thread: &Thread) -> CpuSet {
    hold_of(thread).of(thread).affinity.get()
}

/// See [`Thread::set_affinity`].
pub(super) fn set_affinity(thread: &Thread, cpus: CpuSet) {
    let mut state = hold_of(thread);
    let sched = state.of(thread);
    sched.affinity.set(cpus);
    let stays = sched.allowed().contains(state.cpu.index);
    match sched.progress.get() {
        Progress::Ready => {
            state.dequeue(thread);
            match stays {
                true => state.make_ready(thread, false),
                false => {
                    let there = state.best_place(thread);
                    state.send(thread, there, false);
                }
            }
        }
        _ if state.is_current(thread) && !stays => state.ask_reschedule(),
        // It goes where it may when it becomes ready.
        _ => {}
    }
}

/// Sets the level that `thread` inherits from those who wait for it ([`Level::ORDINARY`]: none),
/// wherever it is. Any context.
pub(super) fn set_inherited(thread: &Thread, level: Level) {
    let mut state = hold_of(thread);
    let sched = state.of(thread);
    let before = sched.urgency();
    sched.inherited.set(level);
    sched.renew_urgency();
    state.requeue(thread, before);
}

/// Switches to the thread that should run. Interrupts off before and after, no lock held.
#[inline(never)]
pub fn reschedule() {
    if percpu::this().runner.get().is_some() {
        reschedule_from(hold_here());
    }
}

/// As [`reschedule`], with the scheduler of this CPU locked.
fn reschedule_from(mut held: Held) {
    let cpu = percpu::this();
    let mut fell = false;
    let next = loop {
        // Who asks another CPU does so after having changed its scheduler, without the lock: what was asked before this is seen.
        cpu.clear_need_resched();
        let (next, urgency, is_less) = held.choose();
        held.release();
        let rank = rank(urgency, next);
        let before = cpu.swap_rank(rank);
        if rank != before {
            publish_rank(cpu.index, rank);
        }
        fell |= is_less || rank < before;
        // Who adds something for this CPU looks at what it runs before it decides whether to tell.
        if fell {
            fence(Ordering::SeqCst);
            if rank < before {
                replies::poll(rank);
                percpu::breathe_if_long();
            }
            // What waits elsewhere is compared with what is to run here.
            fell = cpu.needs_resched();
            if !fell {
                migration::pull(cpu.index, urgency);
            }
        }
        if !cpu.needs_resched() {
            break next;
        }
        // Not on the stack that the CPU booted on, where there is no thread to interrupt.
        if !cpu.current().is_null() {
            percpu::breathe();
        }
        held = hold_here();
    };
    switch(cpu, next);
}

fn rank(urgency: Urgency, thread: &Thread) -> u32 {
    if urgency == Urgency::IDLE { RANK_IDLE } else { thread.rank() }
}

fn switch(cpu: &'static PerCpu, next: &'static Thread) {
    static BOOT: AtomicU64 = AtomicU64::new(0);
    let previous = cpu.current();
    if previous == ptr::from_ref(next) {
        return;
    }
    trace::switch(next);
    next.switches.store(next.switches.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    cpu.set_current(next, next.stack_top);
    // SAFETY: the thread that runs exists; null is the boot stack, which nothing returns to.
    let save = match unsafe { previous.as_ref() } {
        Some(previous) => {
            user::leave(previous);
            &previous.stack_pointer
        }
        None => &BOOT,
    };
    // SAFETY: interrupts are off; the scheduler gave `next` to this CPU alone, and its stack is as
    // `switch_stacks` or `initial_stack` leaves it; the previous thread is not touched any more.
    unsafe { context::switch_stacks(save.as_ptr(), next.stack_pointer.as_ptr()) }
    arrive();
}

/// The current thread has come to this CPU. Interrupts off.
pub(super) fn arrive() {
    user::arrive(percpu::this(), &current());
    migration::push_real_time();
}

/// The timer's interrupt. Interrupts off.
pub fn timer_interrupt() {
    let mut state = hold_here();
    state.programmed = None;
    let now = time::now();
    // One at a time: others that are due follow from another interrupt, and whoever was woken goes first if it is
    // urgent.
    // Between two steps of a timer's function another one waits.
    let waits = state.runs_function && state.timers.first().is_some_and(timer::is_timer);
    let due = if waits { None } else { state.timers.expire(now) };
    if let Some(id) = due {
        match timer::expiry(id) {
            None => {
                state.wake(by_id(id), WakeReason::Timeout);
                if state.outgoing.is_some() {
                    drop(state);
                    state = hold_here();
                }
            }
            Some(expiry) => {
                expiry.begin(state.cpu.index);
                state.runs_function = true;
                drop(state);
                expiry.run();
                percpu::breathe_in_timer();
                state = hold_here();
                state.runs_function = false;
            }
        }
    }
    if state.slice_end.is_some_and(|end| end <= now) {
        state.slice_end = None;
        let sched = state.of(state.current);
        let ends = sched.is_sliced() || sched.deadline().is_some();
        match ends {
            true => state.cpu.set_need_resched(),
            false => state.push(Urgency::IDLE),
        }
    }
    // A look at the run queue, which follows at once, sets the timer, too; so does the end of the function.
    if !state.cpu.needs_resched() && !waits {
        state.program();
    }
}

fn assert_may_sleep() {
    assert!(!percpu::preemption_held(), "a thread sleeps while preemption is held off");
}

/// Gives up the CPU after `prepare` changed the state; `prepare` may refuse.
fn leave_cpu<R>(
    prepare: impl FnOnce(&mut State, &Thread) -> Result<(), R>,
    after: impl FnOnce(&Sched) -> R,
) -> R {
    assert_may_sleep();
    let interrupts = cpu::disable_interrupts();
    let me = current();
    let mut held = hold_here();
    let result = match prepare(&mut held, &me) {
        Err(result) => {
            held.release();
            result
        }
        Ok(()) => {
            reschedule_from(held);
            // What the wake-up stored stays as it is while the thread runs.
            after(&me.sched)
        }
    };
    cpu::restore_interrupts(interrupts);
    result
}

/// Sleeps until [`Thread::wake`], [`Thread::hand_over`] or `deadline` (kernel time). Returns at once if one of the first two came
/// since the last return. Callers check their condition in a loop: a wake may be meant for something
/// else. What is handed over is not.
pub fn block(deadline: Option<Nanos>) -> WakeReason {
    leave_cpu(
        |state, me| {
            if state.of(me).handed.take() {
                return Err(WakeReason::Handed);
            }
            if state.of(me).token.take() {
                return Err(WakeReason::Woken);
            }
            if let Some(deadline) = deadline {
                if deadline <= time::now() {
                    return Err(WakeReason::Timeout);
                }
                state.timers.arm(me.id.0, deadline);
            }
            state.of(me).progress.set(Progress::Blocked);
            Ok(())
        },
        |sched| sched.reason.get(),
    )
}

/// Sleeps until `deadline`; wakes are kept for the next [`block`].
pub fn sleep_until(deadline: Nanos) {
    leave_cpu(
        |state, me| {
            if deadline <= time::now() {
                return Err(());
            }
            state.timers.arm(me.id.0, deadline);
            state.of(me).progress.set(Progress::Sleeping);
            Ok(())
        },
        |_| (),
    );
}

/// Lets others of the same level run.
pub fn yield_now() {
    leave_cpu(
        |state, me| {
            state.of(me).yields.set(true);
            Ok(())
        },
        |_| (),
    );
}

/// Sleeps until [`grant`], which may come before; wakes are kept for the next [`block`].
pub(super) fn wait_for_grant() {
    loop {
        let granted = leave_cpu(
            |state, me| {
                let sched = state.of(me);
                if sched.granted.take() {
                    return Err(true);
                }
                sched.progress.set(Progress::Locked);
                Ok(())
            },
            |_| false,
        );
        if granted {
            return;
        }
    }
}

/// Has the present or next [`wait_for_grant`] of `thread` return. Any context.
pub(super) fn grant(thread: &Thread) {
    let mut state = hold_of(thread);
    let sched = state.of(thread);
    sched.granted.set(true);
    if sched.progress.get() == Progress::Locked {
        state.activate(thread);
    }
}

/// A point at which a long work of the kernel lets another thread run whose turn has come. (The
/// kernel is preemptible nearly everywhere; this says so where a loop is long.)
pub fn reschedule_point() {
    let interrupts = cpu::disable_interrupts();
    if interrupts {
        percpu::preempt_if_needed();
    }
    cpu::restore_interrupts(interrupts);
}

/// Ends the current thread; its resources are freed later by the reaper. What the caller still owns
/// is leaked.
pub fn exit() -> ! {
    assert_may_sleep();
    cpu::disable_interrupts();
    let id = {
        let me = current();
        hold_own().of(&me).progress.set(Progress::Exited);
        deadlines::release(&me);
        me.id
    };
    reaper::bury(id);
    percpu::breathe();
    reschedule();
    unreachable!("a thread that exited runs again")
}

/// How long the CPU that this runs on was idle.
pub(super) fn idle_time() -> (u32, Nanos) {
    let state = hold_own();
    (state.cpu.index, state.idle_time)
}

/// Stores the rank of what the CPU runs.
fn publish_rank(cpu: u32, rank: u32) {
    if let Some(channel) = layout::channel() {
        // SAFETY: the channel is mapped; the word is the kernel's, aligned, and accessed
        // atomically.
        let word = unsafe {
            AtomicU32::from_ptr(
                (&raw mut (*channel.as_ptr()).ranks).cast::<u32>().add(cpu as usize),
            )
        };
        word.store(rank, Ordering::Relaxed);
    }
}
