// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns: what the current thread has used, when its turn ends, and what the timer is set for.

use core::ptr;
use core::sync::atomic::Ordering;

use super::queues::Place;
use super::{Class, PATIENCE, Progress, State, Turn};
use crate::arch::apic;
use crate::task::Thread;
use crate::time::{self, Nanos};
use crtos_sched::{Urgency, clock::Ticks};

impl State {
    /// The turn of the current thread has an end from now on.
    #[inline(never)]
    pub(super) fn begin_slice(&mut self) {
        if self.is_here() {
            let ran = time::ticks() - self.since;
            let left = self.of(self.current).slice_left.get() - ran;
            let end = time::now() + time::duration(left);
            self.turn_end = Some(end);
            self.slice_end = Some(self.slice_end.map_or(end, |patience| patience.min(end)));
            self.program();
        } else {
            self.ask_reschedule();
        }
    }

    /// What `thread` has run up to now.
    pub(super) fn time_used(&self, thread: &Thread) -> Ticks {
        let running = match self.is_current(thread) {
            true => time::ticks() - self.since,
            false => Ticks::ZERO,
        };
        thread.ticks_run() + running
    }

    /// Charges the current thread up to now.
    #[inline(always)]
    pub(super) fn charge(&mut self, now: Ticks) {
        let ran = now - self.since;
        self.since = now;
        if ptr::eq(self.current, self.idle) {
            self.idle_time = self.idle_time + ran;
        }
        let sched = self.of(self.current);
        sched.slice_left.set(sched.slice_left.get() - ran);
        if let Some(mut server) = sched.server.get() {
            let had = !server.is_exhausted();
            server.consume(time::duration(ran));
            sched.set_server(Some(server));
            if had && server.is_exhausted() && sched.scheduling.get().tells_overrun {
                self.current.note_overrun();
            }
        }
        // Only who holds the scheduler of the CPU that runs it adds to it.
        let total = self.current.run_time.load(Ordering::Relaxed) + ran.0;
        self.current.run_time.store(total, Ordering::Relaxed);
    }

    /// Puts the thread that runs back into the run queue, or on its way to where it may run.
    #[inline(always)]
    pub(super) fn put_back(&mut self) {
        let thread = self.current;
        let sched = self.of(thread);
        let turn = sched.turn.take();
        if sched.progress.get() != Progress::Running || ptr::eq(thread, self.idle) {
            return;
        }
        let done = sched.is_sliced() && sched.slice_left.get() == Ticks::ZERO;
        let yields = turn == Turn::GivenUp;
        let front = !(yields || done);
        if sched.server.get().is_some() && !self.may_stay(thread, yields) {
            return;
        }
        let allowed = self.of(thread).allowed();
        if front && turn == Turn::Interrupted && allowed.contains(self.cpu.index) {
            self.insert(thread, Place::Second);
        } else if front && allowed == self.own && self.leads(thread) {
            self.of(thread).progress.set(Progress::Ready);
            self.first = Some(thread);
        } else if allowed.and(self.own) == self.own {
            self.enqueue(thread, front);
        } else {
            self.of(thread).hops.set(0);
            self.send(thread, self.best_place(thread), front);
        }
    }

    /// When the turn of `thread` ends, which begins now, if it does.
    #[inline(always)]
    pub(super) fn end_of_turn(&self, thread: &Thread) -> Option<Nanos> {
        let sched = self.of(thread);
        if sched.has_slices() && sched.slice_left.get() == Ticks::ZERO {
            sched.slice_left.set(time::clock().ticks(sched.scheduling.get().slice()));
        }
        if sched.deadline().is_some() {
            sched.server.get().map(|server| time::now() + server.budget())
        } else if sched.is_sliced() {
            let others = sched.urgency().level().is_ok_and(|level| self.ready.has(level));
            others.then(|| time::now() + time::duration(sched.slice_left.get()))
        } else {
            None
        }
    }

    /// When this CPU is to look at a turn of that urgency, which begins now and ends at `turn_end`:
    /// then, or before that because ordinary threads wait that could run elsewhere. The others have
    /// been told of these.
    #[inline(always)]
    pub(super) fn end_of_patience(
        &self,
        turn_end: Option<Nanos>,
        urgency: Urgency,
    ) -> Option<Nanos> {
        if self.movable[Class::Ordinary as usize] == 0
            || urgency <= Urgency::ORDINARY && !self.is_another_idle()
        {
            return turn_end;
        }
        let patience = time::now() + PATIENCE;
        Some(turn_end.map_or(patience, |end| end.min(patience)))
    }

    /// Sets the timer for the earliest of what is due, if this is the CPU whose timer that is.
    #[inline(always)]
    pub(in crate::task) fn program(&mut self) {
        let due = self.timers.earliest().min(self.slice_end.unwrap_or(Nanos::MAX));
        if due != self.programmed && self.is_here() {
            self.programmed = due;
            apic::set_timer((due != Nanos::MAX).then_some(due));
        }
    }
}
