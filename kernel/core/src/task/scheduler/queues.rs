// SPDX-License-Identifier: MIT OR Apache-2.0
//! The run queue of one CPU: who waits there, and who is first.

use core::ptr;
use core::sync::atomic::Ordering;

use crtos_sched::Urgency;

use super::{Class, Progress, State, Turn};
use crate::arch::percpu;
use crate::task::Thread;
use crate::task::scheduling::Policy;
use crate::task::thread::{by_id, known, rank_of};
use crate::time::Nanos;
use crate::{personality, trace};

/// A place among the ready threads of a level.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    First,
    Second,
    Last,
}

impl State {
    /// Puts `thread` into the run queue: before the others of its level, or behind them.
    #[inline(always)]
    pub(in crate::task) fn enqueue(&mut self, thread: &Thread, front: bool) {
        self.insert(thread, if front { Place::First } else { Place::Last });
    }

    /// Puts `thread` into the run queue, at that place among those of its level.
    #[inline(never)]
    pub(super) fn insert(&mut self, thread: &Thread, place: Place) {
        let sched = self.of(thread);
        sched.progress.set(Progress::Ready);
        let urgency = sched.urgency();
        if let Some(first) = self.first {
            let first = self.of(first).urgency();
            if urgency > first || place != Place::Last && urgency == first {
                self.queue_first();
            }
        }
        self.count(thread, urgency);
        match urgency.level() {
            Ok(level) => match place {
                Place::First => self.ready.push_front(thread.id.0, level),
                Place::Second => self.ready.push_second(thread.id.0, level),
                Place::Last => self.ready.push_back(thread.id.0, level),
            },
            Err(deadline) => self.deadlines.arm(thread.id.0, deadline),
        }
    }

    /// Counts `thread`, which is `urgency`, if it may run elsewhere.
    #[inline(always)]
    fn count(&mut self, thread: &Thread, urgency: Urgency) {
        let sched = self.of(thread);
        let elsewhere = sched.allowed().without(self.cpu.index);
        let class = match urgency {
            Urgency::ORDINARY => Class::Ordinary,
            _ => Class::RealTime,
        };
        sched.movable.set((!elsewhere.is_empty()).then_some(class));
        if !elsewhere.is_empty() {
            self.movable[class as usize] += 1;
        }
    }

    pub(super) fn uncount(&mut self, thread: &Thread) {
        if let Some(class) = self.of(thread).movable.take() {
            self.movable[class as usize] -= 1;
        }
    }

    /// Takes `thread` out of the run queue.
    pub(in crate::task) fn dequeue(&mut self, thread: &Thread) {
        if self.first.is_some_and(|first| ptr::eq(first, thread)) {
            self.first = None;
        } else if !self.ready.remove(thread.id.0) {
            self.deadlines.cancel(thread.id.0);
        }
        self.uncount(thread);
    }

    /// Whether `thread` goes before all that are ready if it goes before those of its level.
    #[inline(always)]
    pub(super) fn leads(&self, thread: &Thread) -> bool {
        self.first.is_none()
            && self.deadlines.next().is_none()
            && self
                .ready
                .highest()
                .is_none_or(|level| Urgency::of_level(level) <= self.of(thread).urgency())
    }

    /// Takes the most urgent thread out of the run queue.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<&'static Thread> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let first = self.deadlines.expire(Nanos::MAX);
        let id = first.or_else(|| self.ready.pop().map(|(id, _)| id))?;
        // SAFETY: it was queued, and does not run before the caller has it run.
        let thread = unsafe { by_id(id) };
        self.uncount(thread);
        Some(thread)
    }

    /// How urgent the first thread in the queues is.
    pub(in crate::task) fn first_urgency(&self) -> Urgency {
        match self.deadlines.next() {
            Some(deadline) => Urgency::of_deadline(deadline),
            None => self.ready.highest().map_or(Urgency::IDLE, Urgency::of_level),
        }
    }

    /// Applies a changed affinity of `thread`, which is ready and may stay: it keeps its place.
    pub(super) fn recount(&mut self, thread: &Thread) {
        let urgency = self.of(thread).urgency();
        if self.first.is_some_and(|first| ptr::eq(first, thread)) {
            if urgency > self.running() {
                // It is about to run.
                return;
            }
            self.queue_first();
        } else {
            self.uncount(thread);
            self.count(thread, urgency);
        }
        self.of(thread).hops.set(0);
        self.offer(thread);
    }

    /// Makes `thread`, which is assigned to this CPU, ready here.
    pub(in crate::task) fn make_ready(&mut self, thread: &Thread, front: bool) {
        let urgency = self.of(thread).urgency();
        // Also what it was asked to look for before counts.
        match urgency > self.state.running() {
            true => self.make_first(thread, urgency),
            false => self.queue(thread, front, urgency),
        }
    }

    /// Makes `thread`, which is more urgent than what runs here, ready.
    #[inline(always)]
    fn make_first(&mut self, thread: &Thread, urgency: Urgency) {
        self.of(thread).progress.set(Progress::Ready);
        self.state.set_running(urgency);
        self.displace_first();
        // SAFETY: it is ready from now on.
        self.first = Some(unsafe { known(thread) });
        self.ask_reschedule();
    }

    #[inline(never)]
    pub(super) fn queue(&mut self, thread: &Thread, front: bool, urgency: Urgency) {
        self.enqueue(thread, front);
        self.consider(thread, urgency);
    }

    /// The first ready thread is to be in the queues.
    #[inline]
    pub(super) fn queue_first(&mut self) {
        if let Some(first) = self.first.take() {
            self.enqueue(first, true);
        }
    }

    /// Something more urgent than the first ready thread runs next, as is published already.
    #[inline(always)]
    fn displace_first(&mut self) {
        if let Some(first) = self.first.take() {
            self.displace(first);
        }
    }

    #[inline(never)]
    fn displace(&mut self, first: &Thread) {
        self.enqueue(first, true);
        // It was to run here, so that nobody else knows of it. An ordinary one has time.
        if self.of(first).urgency() > Urgency::ORDINARY {
            self.offer(first);
        }
    }

    /// Makes a thread ready that slept or is new: here, or where it should run.
    #[inline(always)]
    pub(super) fn activate(&mut self, thread: &Thread) {
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
    pub(in crate::task) fn distribute(&mut self, thread: &Thread) {
        let sched = self.of(thread);
        sched.hops.set(0);
        let urgency = sched.urgency();
        // What `best_place` says then.
        if urgency > self.state.running() && sched.allowed().and(self.own) == self.own {
            self.make_first(thread, urgency);
        } else {
            self.place(thread);
        }
    }

    #[inline(never)]
    fn place(&mut self, thread: &Thread) {
        let there = self.best_place(thread);
        if there != self.cpu.index {
            return self.send(thread, there, false);
        }
        let goes_on = self.goes_on(thread);
        if goes_on && self.interrupts(thread) {
            self.enqueue(thread, true);
            if !self.offer(thread) {
                self.of(self.current).turn.set(Turn::Interrupted);
                self.ask_reschedule();
            }
        } else {
            self.make_ready(thread, goes_on);
        }
    }

    /// Whether `thread`, which slept or is new, goes on with its turn, before the ordinary threads
    /// that wait for theirs. What it has used of a turn counts until that is used up, however often
    /// it sleeps, so it gets no more of the CPU than they do.
    fn goes_on(&self, thread: &Thread) -> bool {
        let sched = self.of(thread);
        sched.urgency() == Urgency::ORDINARY
            && sched.scheduling.get().policy == Policy::Ordinary
            && !self.has_used_slice(thread)
    }

    /// Whether `thread`, which goes on with its turn, does so before the ordinary thread that runs
    /// here: if that one has not woken it itself, and may be about to wait for it or to wake more.
    fn interrupts(&self, thread: &Thread) -> bool {
        percpu::this().is_in_interrupt()
            && self.state.running() == Urgency::ORDINARY
            && self.running() == Urgency::ORDINARY
            && !self.current_gives_way(thread)
    }

    /// Applies a changed level of `thread`: to the front of its level if that fell, else to the
    /// back, as POSIX has it.
    pub(in crate::task) fn requeue(&mut self, thread: &Thread, before: Urgency) {
        let sched = self.of(thread);
        let shown = sched.scheduling.get().level.max(sched.inherited.get());
        thread.rank.store(rank_of(shown), Ordering::Relaxed);
        if thread.carried.is_something() && personality::level_changed(thread, shown) {
            percpu::this().ask_look();
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
                    self.of(thread).hops.set(0);
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
    pub(super) fn raise_current(&mut self, urgency: Urgency) {
        if urgency > self.state.running() {
            self.state.set_running(urgency);
            self.displace_first();
        }
    }
}
