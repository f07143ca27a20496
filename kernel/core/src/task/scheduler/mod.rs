// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler: each CPU always runs the first thread of the highest level that is ready there,
//! and no thread waits while a CPU that it may use runs something less urgent (see
//! [`super::migration`]).
//!
//! Each CPU has a run queue and timers with a lock of their own; one such lock is held at a time.
//! There is no tick. The timer is set for the earliest of what is due: a deadline, or the end of a
//! time slice if another thread of the same level waits for its turn.
//!
//! When the rank of what a CPU runs changes, it is stored in the channel. When it falls, a full
//! fence follows, and a look for replies: whoever in Linux did not ring because of the rank it saw
//! has stored its reply before that look.

//!
//! | file | concept |
//! |---|---|
//! | `entity` | what the scheduler knows of a thread |
//! | `locked` | the scheduler of one CPU, and what it means to hold it |
//! | `queues` | who waits there, and who is first |
//! | `turns` | what was used, when a turn ends, what the timer is set for |
//! | `switch` | from one thread to the next |
//! | `sleep` | how a thread leaves its CPU |
//! | `attributes` | how and where a thread is scheduled |

mod attributes;
mod entity;
mod locked;
mod queues;
mod sleep;
mod switch;
mod turns;

use crate::arch::InterruptsOff;
pub(super) use attributes::{
    affinity, is_asleep, scheduling, set_affinity, set_inherited, set_scheduling, time_awake,
    time_used,
};
pub(super) use entity::{Class, Progress, Sched, Turn};
pub use locked::Runner;
pub(super) use locked::{Held, State, hold, hold_of, hold_own};
use locked::{hold_here, hold_quietly};
pub use sleep::{block, exit, reschedule_point, sleep_until, yield_now};
pub(super) use sleep::{block_and, grant, wait_for_grant};
pub(super) use switch::arrive;
pub use switch::{reschedule, start};

use crate::arch::percpu;
use crate::arch::percpu::PerCpu;
use crate::mm::layout;
use crate::sync::SpinLock;
use crate::task::cpu_states::CPU_STATES;
use crate::task::idle;
use crate::task::scheduling::{Policy, Scheduling};
use crate::task::thread::{MAX_THREADS, Thread, WakeReason, by_id, current, register};
use crate::task::timer::{self, MAX_TIMERS};
use crate::time::{self, Nanos};
use alloc::sync::Arc;

use core::ptr;
use core::sync::atomic::Ordering;
use crtos_abi::{channel::RANK_IDLE, ids::RealmCpu};
use crtos_sched::{CpuSet, RunQueue, TimerQueue, Urgency, clock::Ticks};

/// How long a real-time thread runs before ordinary threads that wait for it are sent elsewhere:
/// less than that is not worth the interrupt.
const PATIENCE: Nanos = Nanos::from_millis(1);

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
        self.of(self.current).urgency()
    }

    /// Has the CPU look for another thread.
    pub(super) fn ask_reschedule(&mut self) {
        match self.is_here() {
            true => self.cpu.set_need_resched(),
            false => self.signal = true,
        }
    }

    /// What follows from `thread`, which is `urgency`, having been queued: another CPU could run
    /// it, or the current one has a competitor from now on.
    fn consider(&mut self, thread: &Thread, urgency: Urgency) {
        if self.offer(thread) {
            return;
        }
        if urgency == Urgency::ORDINARY && self.current_gives_way(thread) {
            self.of(self.current).turn.set(Turn::GivenUp);
            self.ask_reschedule();
        } else if urgency == self.running()
            && self.turn_end == Nanos::MAX
            && self.of(self.current).is_sliced()
        {
            self.begin_slice();
        }
    }

    /// Whether the current thread has SCHED_IDLE and `thread`, an ordinary one, has not.
    pub(super) fn current_gives_way(&self, thread: &Thread) -> bool {
        let idle = |thread| {
            let sched = self.of(thread);
            sched.scheduling.get().policy == Policy::Idle && sched.urgency() == Urgency::ORDINARY
        };
        idle(self.current) && !idle(thread)
    }

    #[inline(always)]
    pub(super) fn wake(&mut self, thread: &Thread, reason: WakeReason) {
        let sched = self.of(thread);
        match (sched.progress.get(), reason) {
            (Progress::Blocked, _) | (Progress::Sleeping, WakeReason::Timeout) => {
                sched.reason.set(reason);
                sched.rested.set(thread.ticks_run());
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

    /// Puts the thread that runs back, if it is ready, and takes the most urgent one.
    #[inline(always)]
    fn exchange(&mut self) -> &'static Thread {
        let thread = self.current;
        let current = self.of(thread);
        let turn = current.turn.take();
        let running = match current.progress.get() {
            Progress::Running => current.urgency(),
            _ => Urgency::IDLE,
        };
        // A thread with a budget may get the next one as it is put back, and be more urgent then.
        let may_rise = current.server().is_some();
        let first = match self.first.take() {
            Some(first) if may_rise || self.of(first).urgency() <= running => {
                self.enqueue(first, true);
                None
            }
            first => first,
        };
        if running != Urgency::IDLE {
            self.put_back(thread, turn);
        }
        first.or_else(|| self.pop()).unwrap_or(self.idle)
    }

    /// Chooses the thread to run next, and sets the timer for what is due then. Says how urgent it
    /// is, and whether that is less than before.
    #[inline(always)]
    fn choose(&mut self) -> (&'static Thread, Urgency, bool) {
        self.charge(time::ticks());
        let next = self.exchange();
        self.current = next;
        let sched = self.of(next);
        sched.progress.set(Progress::Running);
        let urgency = sched.urgency();
        self.turn_end = self.end_of_turn(next);
        let shown = self.state;
        let fell = urgency < shown.running();
        shown.set_running(urgency);
        self.publish_surplus();
        self.slice_end = self.end_of_patience(self.turn_end, urgency);
        self.program();
        (next, urgency, fell)
    }
}

/// Makes the scheduler of `cpu` with its idle thread. Before that CPU runs its first thread.
pub fn set_up(cpu: &'static PerCpu) -> Result<(), super::SpawnError> {
    let what = super::Spawn {
        name: "idle",
        scheduling: Scheduling { policy: Policy::Fifo, ..Scheduling::ORDINARY },
        affinity: CpuSet::one(cpu.index),
        ..Default::default()
    };
    let idle = super::thread::make(what, crate::task::thread::Body::Function(idle::idle_loop))?;
    idle.cpu.store(cpu.index, Ordering::Relaxed);
    idle.sched.urgency.set(Urgency::IDLE);
    idle.rank.store(RANK_IDLE as u8, Ordering::Relaxed);
    let idle = register(&idle);
    let state = State {
        cpu,
        own: CpuSet::one(cpu.index),
        state: CPU_STATES.of(cpu.index),
        ready: RunQueue::new(MAX_THREADS),
        deadlines: TimerQueue::new(MAX_THREADS),
        first: None,
        movable: [0; 2],
        timers: TimerQueue::new(MAX_THREADS + MAX_TIMERS),
        current: idle,
        idle,
        since: time::ticks(),
        turn_end: Nanos::MAX,
        slice_end: Nanos::MAX,
        programmed: Nanos::MAX,
        runs_function: false,
        signal: false,
        outgoing: None,
    };
    cpu.runner.call_once(|| Runner { state: SpinLock::new(state) });
    Ok(())
}

/// This CPU runs threads from now on, and has left the stack that it booted on or is the first.
pub fn set_online() {
    let interrupts = InterruptsOff::take();
    let cpu = percpu::this();
    if let Some(channel) = layout::channel_view() {
        // Nothing has run here before, or it has told its own.
        channel.raise_rank(cpu.index, cpu.rank());
    }
    CPU_STATES.set_online(cpu.index);
    drop(interrupts);
}

/// The CPUs that run threads, by index in the cell.
pub fn online() -> CpuSet {
    CPU_STATES.online()
}

/// Adds a new thread and makes it ready.
pub(super) fn add(thread: &Arc<Thread>) {
    let thread = register(thread);
    hold_of(thread).activate(thread);
}

/// See [`Thread::wake_quietly`] and [`Thread::hand_over_quietly`].
#[inline(never)]
pub(super) fn wake(thread: &Thread, reason: WakeReason) {
    let mut held = hold_quietly(|| thread.cpu());
    held.wake(thread, reason);
    held.release();
}

/// Takes back a [`Thread::hand_over_quietly`] that no [`block`] of the calling thread has returned.
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

/// Has what `cpu` runs, if it `is_meant`, pass the check before its return to user
/// mode. Any context.
pub fn ask_running(cpu: RealmCpu, is_meant: impl FnOnce(&Thread) -> bool) {
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

/// Whether `thread` has ended.
pub(super) fn has_ended(thread: &Thread) -> bool {
    hold_of(thread).of(thread).progress.get() == Progress::Exited
}

/// The timer's interrupt. Interrupts off.
pub fn timer_interrupt() {
    let mut state = hold_here();
    state.programmed = Nanos::MAX;
    let now = time::now();
    // One at a time: others that are due follow from another interrupt, and whoever was woken goes
    // first if it is urgent. Between two steps of a timer's function another one waits.
    let waits = state.runs_function && state.timers.first().is_some_and(timer::is_timer);
    let due = if waits { None } else { state.timers.expire(now) };
    if let Some(id) = due {
        match timer::expiry(id) {
            None => {
                // SAFETY: its deadline was armed here, and is cancelled before it ends.
                state.wake(unsafe { by_id(id) }, WakeReason::Timeout);
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
                // Its last reference may go here, and with it what has timers of its own.
                drop(expiry);
                percpu::interrupt_window_in_timer();
                state = hold_here();
                state.runs_function = false;
            }
        }
    }
    if state.slice_end <= now {
        let is_over = state.turn_end <= now;
        if is_over {
            state.turn_end = Nanos::MAX;
        }
        state.slice_end = state.turn_end;
        let sched = state.of(state.current);
        let ends = sched.is_sliced() || sched.deadline().is_some();
        match is_over && ends {
            // Also of what is left because of a rounding.
            true => {
                sched.slice_until.set(Ticks::ZERO);
                state.cpu.set_need_resched();
            }
            false => {
                state.push(Urgency::IDLE);
            }
        }
    }
    // A look at the run queue, which follows at once, sets the timer, too; so does the end of the
    // function.
    if !state.cpu.needs_resched() && !waits {
        state.program();
    }
}

/// How long the CPU that this runs on was idle.
pub(super) fn idle_time() -> (RealmCpu, Nanos) {
    let state = hold_own();
    (state.cpu.index, time::duration(state.idle.ticks_run()))
}
