// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler of one CPU: always runs the first thread of the highest level that is ready.
//!
//! There is no tick. The timer is set for the earliest of what is due: a deadline, or the end of a
//! time slice if another thread of the same level waits for its turn.
//!
//! At each switch the CPU's rank is stored in the channel, then a full fence, then the remote path
//! looks for replies: whoever in Linux did not ring because of the rank it saw has stored its reply
//! before that look.

use super::thread::{MAX_THREADS, Policy, Scheduling, Thread, ThreadId, WakeReason, current};
use super::timer::{Expiry, MAX_TIMERS};
use super::user;
use crate::arch::percpu::PerCpu;
use crate::arch::{apic, context, cpu, percpu};
use crate::mm::{frames, heap, layout};
use crate::remote;
use crate::sync::SpinLock;
use crate::time::{self, Nanos};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crtos_abi::channel::RANK_IDLE;
use crtos_sched::{Level, RunQueue, TimerQueue};

/// A time slice.
pub const SLICE: Nanos = Nanos::from_millis(10);
/// Most owners of locks that a level is inherited by in a chain.
const CHAIN: usize = 8;
/// No thread.
pub(super) const NOBODY: u16 = u16::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// Not there.
    Absent,
    /// On the CPU.
    Running,
    /// In the run queue.
    Ready,
    /// In [`block`].
    Blocked,
    /// In [`sleep_until`].
    Sleeping,
    /// Waits for a lock; the owner of the lock.
    Locked(u16),
    /// Ended.
    Exited,
}

/// The scheduler's knowledge of a thread.
struct Entry {
    thread: Option<Arc<Thread>>,
    progress: Progress,
    scheduling: Scheduling,
    /// The level it inherits, while it holds `boosts` locks that others wait for.
    inherited: Level,
    boosts: u32,
    /// A wake came while it was not blocked.
    token: bool,
    /// A lock was handed to it.
    granted: bool,
    reason: WakeReason,
    slice_left: Nanos,
    /// It gives up its turn.
    yields: bool,
}

impl Entry {
    const fn absent() -> Self {
        Self {
            thread: None,
            progress: Progress::Absent,
            scheduling: Scheduling::ORDINARY,
            inherited: Level::ORDINARY,
            boosts: 0,
            token: false,
            granted: false,
            reason: WakeReason::Woken,
            slice_left: SLICE,
            yields: false,
        }
    }

    fn level(&self) -> Level {
        self.scheduling.level.max(self.inherited)
    }

    /// Whether it shares its level by time slices: not while it runs on somebody else's behalf.
    fn is_sliced(&self) -> bool {
        self.scheduling.policy != Policy::Fifo && self.inherited <= self.scheduling.level
    }
}

/// Threads and timers of one CPU.
pub struct Runner {
    state: SpinLock<State>,
}

struct State {
    ready: RunQueue,
    /// Threads' deadlines, then timers.
    timers: TimerQueue,
    threads: Box<[Entry]>,
    expiries: Box<[Option<Arc<Expiry>>]>,
    /// Places without a timer.
    free_expiries: Vec<u16>,
    current: u16,
    idle: u16,
    /// Since when the current thread was not charged.
    since: Nanos,
    slice_end: Option<Nanos>,
    /// What the timer is set for.
    programmed: Option<Nanos>,
    idle_time: Nanos,
    exited: Vec<u16>,
    reaper: u16,
}

impl State {
    fn entry(&mut self, thread: u16) -> &mut Entry {
        &mut self.threads[usize::from(thread)]
    }

    /// Asks for a look at the run queue if `thread`, which became ready, goes before the current
    /// one.
    fn consider(&mut self, thread: u16) {
        let level = self.entry(thread).level();
        let current = self.current;
        if current == self.idle || level > self.entry(current).level() {
            percpu::this().set_need_resched();
        } else if level == self.entry(current).level()
            && self.slice_end.is_none()
            && self.entry(current).is_sliced()
        {
            // From now on the current thread has a competitor.
            let now = time::now();
            let ran = now - self.since;
            self.slice_end = Some(now + (self.entry(current).slice_left - ran));
            self.program();
        }
    }

    fn make_ready(&mut self, thread: u16) {
        let entry = self.entry(thread);
        entry.progress = Progress::Ready;
        let level = entry.level();
        self.ready.push_back(thread, level);
        self.consider(thread);
    }

    fn wake(&mut self, thread: u16, reason: WakeReason) {
        let entry = self.entry(thread);
        match (entry.progress, reason) {
            (Progress::Blocked, _) | (Progress::Sleeping, WakeReason::Timeout) => {
                entry.reason = reason;
                self.timers.cancel(thread);
                self.make_ready(thread);
            }
            (Progress::Absent | Progress::Exited, _) | (_, WakeReason::Timeout) => {}
            (_, WakeReason::Woken) => entry.token = true,
        }
    }

    /// Applies a changed level of `thread`: to the front of its level if that fell, else to the
    /// back, as POSIX has it.
    fn requeue(&mut self, thread: u16, before: Level) {
        let entry = self.entry(thread);
        let level = entry.level();
        if let Some(thread) = &entry.thread {
            thread.level.store(level.get() as u8, Ordering::Relaxed);
        }
        if level == before {
            return;
        }
        if entry.progress == Progress::Ready {
            self.ready.remove(thread);
            match level < before {
                true => self.ready.push_front(thread, level),
                false => self.ready.push_back(thread, level),
            }
            self.consider(thread);
        } else if thread == self.current && self.ready.highest() > Some(level) {
            percpu::this().set_need_resched();
        }
    }

    /// Lets `owner` and the owners it waits for inherit `level`.
    fn inherit(&mut self, mut owner: u16, level: Level) {
        for _ in 0..CHAIN {
            let entry = self.entry(owner);
            let before = entry.level();
            entry.inherited = entry.inherited.max(level);
            let progress = entry.progress;
            self.requeue(owner, before);
            match progress {
                Progress::Locked(next) if next != NOBODY => owner = next,
                _ => break,
            }
        }
    }

    /// Charges the current thread up to now.
    fn charge(&mut self, now: Nanos) {
        let ran = now - self.since;
        self.since = now;
        if self.current == self.idle {
            self.idle_time += ran;
        }
        let entry = self.entry(self.current);
        entry.slice_left = entry.slice_left - ran;
        if let Some(thread) = &entry.thread {
            thread.run_time.fetch_add(ran.0, Ordering::Relaxed);
        }
    }

    /// Chooses the thread to run next, and sets the timer for what is due then.
    fn choose(&mut self) -> u16 {
        let now = time::now();
        self.charge(now);
        let (current, idle) = (self.current, self.idle);
        let entry = self.entry(current);
        if entry.progress == Progress::Running && current != idle {
            entry.progress = Progress::Ready;
            let level = entry.level();
            let done = entry.is_sliced() && entry.slice_left == Nanos::ZERO;
            if done {
                entry.slice_left = SLICE;
            }
            match done || core::mem::take(&mut entry.yields) {
                true => self.ready.push_back(current, level),
                false => self.ready.push_front(current, level),
            }
        }
        let next = self.ready.pop().map_or(idle, |(thread, _)| thread);
        self.current = next;
        let entry = self.entry(next);
        entry.progress = Progress::Running;
        if entry.slice_left == Nanos::ZERO {
            entry.slice_left = SLICE;
        }
        let (sliced, left, level) =
            (entry.is_sliced() && next != idle, entry.slice_left, entry.level());
        self.slice_end = (sliced && self.ready.has(level)).then(|| now + left);
        self.program();
        next
    }

    /// Sets the timer for the earliest of what is due.
    fn program(&mut self) {
        let due = match (self.timers.next(), self.slice_end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if due != self.programmed {
            self.programmed = due;
            apic::set_timer(due);
        }
    }
}

/// Makes this CPU's scheduler with its idle thread. At boot.
pub fn set_up() -> Result<(), super::SpawnError> {
    let idle = super::thread::make(
        super::Spawn { name: "idle", ..Default::default() },
        Box::new(|| idle_loop()),
    )?;
    let id = idle.id.0;
    let mut threads: Vec<Entry> = (0..MAX_THREADS).map(|_| Entry::absent()).collect();
    threads[usize::from(id)].thread = Some(idle);
    let state = State {
        ready: RunQueue::new(MAX_THREADS),
        timers: TimerQueue::new(MAX_THREADS + MAX_TIMERS),
        threads: threads.into_boxed_slice(),
        expiries: (0..MAX_TIMERS).map(|_| None).collect(),
        free_expiries: (0..MAX_TIMERS as u16).rev().collect(),
        current: id,
        idle: id,
        since: time::now(),
        slice_end: None,
        programmed: None,
        idle_time: Nanos::ZERO,
        exited: Vec::with_capacity(MAX_THREADS),
        reaper: NOBODY,
    };
    percpu::this().runner.call_once(|| Runner { state: SpinLock::new(state) });
    Ok(())
}

/// Runs the first thread of this CPU. Interrupts off.
pub fn start() -> ! {
    percpu::release_preemption();
    percpu::this().set_need_resched();
    reschedule();
    unreachable!("nothing returns to the boot stack")
}

fn runner_of(cpu: u32) -> &'static Runner {
    match percpu::of(cpu).and_then(|cpu| cpu.runner.get()) {
        Some(runner) => runner,
        None => panic!("CPU {cpu} has no scheduler"),
    }
}

fn own_runner() -> &'static Runner {
    runner_of(percpu::this().index)
}

/// Adds a new thread and makes it ready.
pub(super) fn add(thread: &Arc<Thread>, scheduling: Scheduling) {
    let mut state = runner_of(thread.cpu()).state.lock();
    let id = thread.id.0;
    *state.entry(id) = Entry { thread: Some(thread.clone()), scheduling, ..Entry::absent() };
    state.make_ready(id);
}

/// See [`Thread::wake`].
pub(super) fn wake(thread: &Thread) {
    runner_of(thread.cpu()).state.lock().wake(thread.id.0, WakeReason::Woken);
}

/// See [`Thread::set_scheduling`].
pub(super) fn set_scheduling(thread: &Thread, scheduling: Scheduling) {
    let mut state = runner_of(thread.cpu()).state.lock();
    let id = thread.id.0;
    let entry = state.entry(id);
    let before = entry.level();
    entry.scheduling = scheduling;
    entry.slice_left = SLICE;
    state.requeue(id, before);
    if id == state.current {
        // Its rank and its slice follow from the policy.
        percpu::this().set_need_resched();
    }
}

/// See [`Thread::scheduling`].
pub(super) fn scheduling(thread: &Thread) -> Scheduling {
    runner_of(thread.cpu()).state.lock().entry(thread.id.0).scheduling
}

/// Switches to the thread that should run. Interrupts off before and after, no lock held.
pub fn reschedule() {
    let cpu = percpu::this();
    let Some(runner) = cpu.runner.get() else { return };
    let next = loop {
        cpu.clear_need_resched();
        let (next, rank) = {
            let mut state = runner.state.lock();
            let next = state.choose();
            let rank =
                if next == state.idle { RANK_IDLE } else { 1 + state.entry(next).level().get() };
            let thread = state.entry(next).thread.as_ref().map_or(core::ptr::null(), Arc::as_ptr);
            (thread, rank)
        };
        publish_rank(cpu.index, rank);
        fence(Ordering::SeqCst);
        remote::poll();
        if !cpu.needs_resched() {
            break next;
        }
    };
    switch(cpu, next);
}

fn switch(cpu: &'static PerCpu, next: *const Thread) {
    let previous = cpu.current();
    if previous == next {
        return;
    }
    // SAFETY: the scheduler keeps a reference to every thread that is not reaped, and only a thread
    // that does not run is.
    let next = match unsafe { next.as_ref() } {
        Some(next) => next,
        None => panic!("the chosen thread does not exist"),
    };
    next.switches.fetch_add(1, Ordering::Relaxed);
    cpu.set_current(next, next.stack_top);
    user::exchange(cpu, next);
    static BOOT: AtomicU64 = AtomicU64::new(0);
    // SAFETY: as above; null is the boot stack, which nothing returns to.
    let save = unsafe { previous.as_ref() }.map_or(&BOOT, |thread| &thread.stack_pointer);
    // SAFETY: interrupts are off; `next` does not run, so its stack is as `switch_stacks` or
    // `initial_stack` left it.
    unsafe { context::switch_stacks(save.as_ptr(), next.stack_pointer.load(Ordering::Relaxed)) }
}

/// The timer's interrupt. Interrupts off.
pub fn timer_interrupt() {
    let runner = own_runner();
    let mut state = runner.state.lock();
    state.programmed = None;
    let now = time::now();
    while let Some(timer) = state.timers.expire(now) {
        if usize::from(timer) < MAX_THREADS {
            state.wake(timer, WakeReason::Timeout);
        } else if let Some(expiry) = state.expiries[usize::from(timer) - MAX_THREADS].clone() {
            drop(state);
            (expiry.expired)();
            state = runner.state.lock();
        }
    }
    if state.slice_end.is_some_and(|end| end <= now) {
        state.slice_end = None;
        percpu::this().set_need_resched();
    }
    state.program();
}

fn assert_may_sleep() {
    assert!(!percpu::this().preemption_held(), "a thread sleeps while preemption is held off");
}

/// Gives up the CPU after `prepare` changed the state; `prepare` may refuse.
fn leave_cpu<R>(
    prepare: impl FnOnce(&mut State, u16) -> Result<(), R>,
    after: impl FnOnce(&mut Entry) -> R,
) -> R {
    assert_may_sleep();
    let interrupts = cpu::disable_interrupts();
    let runner = own_runner();
    let me = current().id.0;
    let prepared = prepare(&mut runner.state.lock(), me);
    let result = match prepared {
        Err(result) => result,
        Ok(()) => {
            reschedule();
            after(runner.state.lock().entry(me))
        }
    };
    cpu::restore_interrupts(interrupts);
    result
}

/// Sleeps until [`Thread::wake`] or `deadline` (kernel time). Returns at once if a wake came since
/// the last return. Callers check their condition in a loop: a wake may be meant for something
/// else.
pub fn block(deadline: Option<Nanos>) -> WakeReason {
    leave_cpu(
        |state, me| {
            if core::mem::take(&mut state.entry(me).token) {
                return Err(WakeReason::Woken);
            }
            if let Some(deadline) = deadline {
                if deadline <= time::now() {
                    return Err(WakeReason::Timeout);
                }
                state.timers.arm(me, deadline);
            }
            state.entry(me).progress = Progress::Blocked;
            Ok(())
        },
        |entry| entry.reason,
    )
}

/// Sleeps until `deadline`; wakes are kept for the next [`block`].
pub fn sleep_until(deadline: Nanos) {
    leave_cpu(
        |state, me| {
            if deadline <= time::now() {
                return Err(());
            }
            state.timers.arm(me, deadline);
            state.entry(me).progress = Progress::Sleeping;
            Ok(())
        },
        |_| (),
    );
}

/// Lets others of the same level run.
pub fn yield_now() {
    leave_cpu(
        |state, me| {
            state.entry(me).yields = true;
            Ok(())
        },
        |_| (),
    );
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
    let runner = own_runner();
    {
        let me = current();
        let mut state = runner.state.lock();
        state.entry(me.id.0).progress = Progress::Exited;
        state.exited.push(me.id.0);
        let reaper = state.reaper;
        if reaper != NOBODY {
            state.wake(reaper, WakeReason::Woken);
        }
        user::disown(percpu::this(), &me);
    }
    reschedule();
    unreachable!("a thread that exited runs again")
}

/// The current thread is the one that frees those that exited.
pub(super) fn become_reaper() {
    own_runner().state.lock().reaper = current().id.0;
}

/// Takes a thread that exited away from the scheduler.
pub(super) fn take_exited() -> Option<Arc<Thread>> {
    let mut state = own_runner().state.lock();
    let id = state.exited.pop()?;
    core::mem::replace(state.entry(id), Entry::absent()).thread
}

// --- Locks (see `mutex`); the caller holds the lock's own spin lock.

/// The current thread `me` waits for a lock of `owner` from now on.
pub(super) fn wait_for_lock(me: ThreadId, owner: u16, first: bool) {
    let mut state = own_runner().state.lock();
    let entry = state.entry(me.0);
    entry.progress = Progress::Locked(owner);
    let level = entry.level();
    if first {
        state.entry(owner).boosts += 1;
    }
    state.inherit(owner, level);
}

/// Waits until the lock was handed to the current thread.
pub(super) fn wait_for_grant() {
    assert_may_sleep();
    let interrupts = cpu::disable_interrupts();
    let me = current().id.0;
    while !core::mem::take(&mut own_runner().state.lock().entry(me).granted) {
        reschedule();
    }
    cpu::restore_interrupts(interrupts);
}

/// The current thread `me` gives up a lock that others waited for: it goes to `heir`, which `rest`
/// more wait for.
pub(super) fn hand_over(me: ThreadId, heir: u16, rest: impl Iterator<Item = u16>) {
    let mut state = own_runner().state.lock();
    let entry = state.entry(me.0);
    let before = entry.level();
    entry.boosts = entry.boosts.saturating_sub(1);
    if entry.boosts == 0 {
        entry.inherited = Level::ORDINARY;
    }
    state.requeue(me.0, before);
    let mut highest = None;
    for waiter in rest {
        let entry = state.entry(waiter);
        entry.progress = Progress::Locked(heir);
        highest = highest.max(Some(entry.level()));
    }
    let current = state.current;
    let entry = state.entry(heir);
    entry.granted = true;
    // It may have been preempted on its way to `wait_for_grant`, or still be on that way.
    if heir == current {
        entry.progress = Progress::Running;
    } else {
        state.make_ready(heir);
    }
    if let Some(level) = highest {
        state.entry(heir).boosts += 1;
        state.inherit(heir, level);
    }
}

/// The effective level of a thread that waits for a lock.
pub(super) fn level_of(thread: u16) -> Level {
    own_runner().state.lock().entry(thread).level()
}

// --- Timers (see `timer`)

/// A free place for a timer.
pub(super) fn add_expiry(expiry: Arc<Expiry>) -> Option<u16> {
    let mut state = own_runner().state.lock();
    let place = state.free_expiries.pop()?;
    state.expiries[usize::from(place)] = Some(expiry);
    Some(MAX_THREADS as u16 + place)
}

/// Frees a timer's place.
pub(super) fn remove_expiry(cpu: u32, timer: u16) -> Option<Arc<Expiry>> {
    let mut state = runner_of(cpu).state.lock();
    state.timers.cancel(timer);
    state.program();
    let place = timer - MAX_THREADS as u16;
    state.free_expiries.push(place);
    state.expiries[usize::from(place)].take()
}

/// Arms or cancels a timer; says whether it was armed.
pub(super) fn set_expiry(cpu: u32, timer: u16, deadline: Option<Nanos>) -> bool {
    let mut state = runner_of(cpu).state.lock();
    let was = state.timers.cancel(timer);
    if let Some(deadline) = deadline {
        state.timers.arm(timer, deadline);
    }
    state.program();
    was
}

/// When a timer will fire.
pub(super) fn expiry_deadline(cpu: u32, timer: u16) -> Option<Nanos> {
    runner_of(cpu).state.lock().timers.deadline(timer)
}

// --- Idle

fn idle_loop() -> ! {
    loop {
        publish_statistics();
        cpu::disable_interrupts();
        if percpu::this().needs_resched() {
            reschedule();
            cpu::restore_interrupts(true);
        } else {
            cpu::wait_for_interrupt();
        }
    }
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

/// Stores the counters that the command line shows.
pub fn publish_statistics() {
    let Some(channel) = layout::channel() else { return };
    let channel = channel.as_ptr();
    let (pool, free) = frames::SHARED.usage();
    let (heap_size, heap_used) = heap::usage();
    let cpu = percpu::this();
    let idle = own_runner().state.lock().idle_time;
    // SAFETY: the channel is mapped and these words are the kernel's; Linux only reads them.
    unsafe {
        (&raw mut (*channel).pool_pages).write_volatile(pool);
        (&raw mut (*channel).pool_free).write_volatile(free);
        (&raw mut (*channel).heap_size).write_volatile(heap_size);
        (&raw mut (*channel).heap_used).write_volatile(heap_used);
        (&raw mut (*channel).idle_time)
            .cast::<u64>()
            .add(cpu.index as usize)
            .write_volatile(idle.0);
    }
}
