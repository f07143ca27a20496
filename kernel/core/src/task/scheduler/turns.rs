// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns: what the current thread has used, when its turn ends, and what the timer is set for.

use core::sync::atomic::Ordering;

use super::queues::Place;
use super::{Class, PATIENCE, Progress, State, Turn};
use crate::arch::apic;
use crate::task::{Policy, Thread};
use crate::time::{self, Nanos};
use crtos_sched::{Urgency, clock::Ticks};

impl State {
    /// The turn of the current thread has an end from now on.
    #[inline(never)]
    pub(super) fn begin_slice(&mut self) {
        if self.is_here() {
            let left = self.of(self.current).slice_until.get() - self.time_used(self.current);
            let end = time::now() + time::duration(left);
            self.turn_end = end;
            self.slice_end = self.slice_end.min(end);
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
        let sched = self.of(self.current);
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

    /// Puts `thread`, which runs and is not the idle one, back into the run queue, or on its way to
    /// where it may run.
    #[inline(always)]
    pub(super) fn put_back(&mut self, thread: &'static Thread, turn: Turn) {
        let sched = self.of(thread);
        let done = sched.is_sliced() && self.has_used_slice(thread);
        let keeps = turn == Turn::Kept && !done && sched.server.get().is_none();
        if keeps && sched.allowed() == self.own && self.leads(thread) {
            sched.progress.set(Progress::Ready);
            self.first = Some(thread);
        } else {
            self.put_elsewhere(thread, turn, done);
        }
    }

    /// Puts `thread`, which may be `done` with its slice, elsewhere than in the first place here.
    #[inline(never)]
    fn put_elsewhere(&mut self, thread: &'static Thread, turn: Turn, done: bool) {
        let yields = turn == Turn::GivenUp;
        let front = !(yields || done);
        let has_budget = self.of(thread).server.get().is_some();
        if has_budget && !self.may_stay(thread, yields) {
            return;
        }
        let allowed = self.of(thread).allowed();
        let stays = allowed.contains(self.cpu.index);
        if stays && front && turn == Turn::Interrupted {
            self.insert(thread, Place::Second);
        } else if stays {
            self.enqueue(thread, front);
        } else {
            self.of(thread).hops.set(0);
            self.send(thread, self.best_place(thread), front);
        }
    }

    /// Gives `thread`, which has been charged, a whole slice anew.
    pub(super) fn renew_slice(&self, thread: &Thread) {
        let sched = self.of(thread);
        let slice = time::clock().ticks(sched.scheduling.get().slice());
        sched.slice_until.set(thread.ticks_run() + slice);
    }

    /// Whether `thread`, which has been charged, has used up its slice.
    #[inline(always)]
    pub(super) fn has_used_slice(&self, thread: &Thread) -> bool {
        thread.ticks_run() >= self.of(thread).slice_until.get()
    }

    /// When the turn of `thread` ends, which begins now; [`Nanos::MAX`] if it does not.
    #[inline(always)]
    pub(super) fn end_of_turn(&self, thread: &Thread) -> Nanos {
        match self.of(thread).scheduling.get().policy {
            Policy::Fifo => Nanos::MAX,
            Policy::Deadline => self.end_of_budget(thread),
            _ => self.end_of_slice(thread),
        }
    }

    fn end_of_budget(&self, thread: &Thread) -> Nanos {
        match self.of(thread).server.get() {
            Some(server) if !server.is_exhausted() => time::now() + server.budget(),
            _ => Nanos::MAX,
        }
    }

    fn end_of_slice(&self, thread: &Thread) -> Nanos {
        if self.has_used_slice(thread) {
            self.renew_slice(thread);
        }
        let sched = self.of(thread);
        let has_others = || sched.urgency().level().is_ok_and(|level| self.ready.has(level));
        match sched.is_sliced() && has_others() {
            true => time::now() + time::duration(sched.slice_until.get() - thread.ticks_run()),
            false => Nanos::MAX,
        }
    }

    /// When this CPU is to look at a turn of that urgency, which begins now and ends at `turn_end`:
    /// then, or before that because ordinary threads wait that could run elsewhere. The others have
    /// been told of these.
    #[inline(always)]
    pub(super) fn end_of_patience(&self, turn_end: Nanos, urgency: Urgency) -> Nanos {
        if self.movable[Class::Ordinary as usize] == 0
            || urgency <= Urgency::ORDINARY && !self.is_another_idle()
        {
            return turn_end;
        }
        turn_end.min(time::now() + PATIENCE)
    }

    /// Sets the timer for the earliest of what is due, if this is the CPU whose timer that is.
    #[inline(always)]
    pub(in crate::task) fn program(&mut self) {
        let due = self.timers.earliest().min(self.slice_end);
        if due != self.programmed && self.is_here() {
            self.programmed = due;
            apic::set_timer((due != Nanos::MAX).then_some(due));
        }
    }
}
