// SPDX-License-Identifier: MIT OR Apache-2.0
//! How threads change their CPU. The decisions are in `crtos_sched::placement`.
//!
//! A thread moves in three steps, with one lock at a time: under the lock of its CPU it is taken
//! out of the run queue and assigned to the other one; without a lock it is nowhere; under the lock
//! of the other CPU it becomes ready there. Whoever looks for it meanwhile finds it assigned and on
//! its way. What it has in the registers of the old CPU is waited for at the switch to it.

use super::cpu_states::CPU_STATES;
use super::scheduler::{Class, Progress, State, hold, hold_own};
use super::thread::{Thread, by_id};
use crate::arch::percpu;
use core::sync::atomic::Ordering;
use crtos_abi::ids::RealmCpu;
use crtos_sched::Urgency;
use crtos_sched::placement::{self, Cpus};

/// Most ready threads that are looked at for one that may run elsewhere.
const SEARCH: usize = 16;
/// How often a thread that was sent somewhere is sent on when it arrives too late to run.
const HOPS: u8 = 3;

/// A thread on its way.
pub(super) struct Move {
    thread: u16,
    to: RealmCpu,
    front: bool,
}

impl State {
    /// Where `thread`, which is assigned to this CPU, should run.
    #[inline(always)]
    pub(super) fn best_place(&self, thread: &Thread) -> RealmCpu {
        let sched = self.of(thread);
        placement::place(&CPU_STATES, sched.urgency(), sched.allowed(), self.cpu.index)
    }

    /// Tells the others what waits here.
    #[inline(always)]
    pub(super) fn publish_surplus(&self) {
        if self.movable != [0; 2] || self.state.has_surplus() {
            self.show_surplus();
        }
    }

    #[inline(never)]
    fn show_surplus(&self) {
        let [ordinary, real_time] = self.movable;
        let surplus = match (real_time, ordinary) {
            (0, 0) => Urgency::IDLE,
            (0, _) => Urgency::ORDINARY,
            // The first may be one that has to stay; then others look in vain, or find less.
            _ => self.first_urgency(),
        };
        self.state.set_surplus(surplus, ordinary);
    }

    /// Whether another CPU has nothing to run.
    #[inline(never)]
    pub(super) fn is_another_idle(&self) -> bool {
        let others = CPU_STATES.online().without(self.cpu.index);
        others.iter().any(|cpu| CPU_STATES.running(cpu) == Urgency::IDLE)
    }

    /// Assigns `thread`, which is in no queue, to CPU `to`, where it will be ready.
    pub(super) fn send(&mut self, thread: &Thread, to: RealmCpu, front: bool) {
        if self.outgoing.is_some() {
            // One at a time; who stays is found when this CPU looks what to run.
            self.cpu.set_need_resched();
            return self.enqueue(thread, front);
        }
        let sched = self.of(thread);
        sched.progress.set(Progress::Moving);
        sched.hops.set(sched.hops.get().saturating_add(1));
        self.outgoing = Some(Move { thread: thread.id.0, to, front });
        thread.cpu.store(to, Ordering::Release);
    }

    /// Sends `thread`, which is ready here and does not run, to a CPU that runs something less
    /// urgent, if there is one; else lets the others know that it waits. Says whether it was sent.
    #[inline(always)]
    pub(super) fn offer(&mut self, thread: &Thread) -> bool {
        CPU_STATES.online().count() > 1 && self.offer_to_others(thread)
    }

    #[inline(never)]
    fn offer_to_others(&mut self, thread: &Thread) -> bool {
        self.publish_surplus();
        let sched = self.of(thread);
        if sched.movable.get().is_none() || sched.hops.get() >= HOPS {
            return false;
        }
        let there = self.best_place(thread);
        let runs_there = there != self.cpu.index && CPU_STATES.running(there) < sched.urgency();
        if runs_there {
            self.dequeue(thread);
            self.send(thread, there, false);
        }
        runs_there
    }

    /// The first ready threads, the most urgent one first.
    fn candidates(&self) -> impl Iterator<Item = &'static Thread> + '_ {
        let first = self.deadlines.first().into_iter();
        first.chain(self.ready.iter().map(|(id, _)| id)).take(SEARCH).map(queued)
    }

    /// Sends the first ready thread that is more urgent than `limit` and for which there is a CPU
    /// that runs something less urgent than it. Says whether there was one.
    pub(super) fn push(&mut self, limit: Urgency) -> bool {
        let own = self.cpu.index;
        let candidate = self.candidates().find_map(|thread| {
            let sched = self.of(thread);
            let movable = sched.movable.get().is_some() && sched.urgency() > limit;
            let there = movable.then(|| self.best_place(thread))?;
            (there != own && CPU_STATES.running(there) < sched.urgency()).then_some((thread, there))
        });
        if let Some((thread, there)) = candidate {
            self.dequeue(thread);
            self.of(thread).hops.set(0);
            self.send(thread, there, true);
            self.publish_surplus();
        }
        candidate.is_some()
    }

    /// Sends the first ready thread that is more urgent than `running` to CPU `to`.
    fn surrender(&mut self, to: RealmCpu, running: Urgency) {
        let candidate = self.candidates().find(|thread| {
            let sched = self.of(thread);
            sched.urgency() > running
                && sched.movable.get().is_some()
                && sched.allowed().contains(to)
        });
        if let Some(thread) = candidate {
            self.dequeue(thread);
            self.of(thread).hops.set(0);
            self.send(thread, to, true);
        }
        self.publish_surplus();
    }

    /// Makes a thread ready that was sent here.
    fn receive(&mut self, thread: &Thread, front: bool) {
        if !self.may_go_on(thread) {
            // What it inherited while its budget was used up was taken from it on the way.
            return;
        }
        match self.of(thread).allowed().contains(self.cpu.index) {
            true => self.make_ready(thread, front),
            false => self.send(thread, self.best_place(thread), front),
        }
    }
}

/// The thread with number `id`, which is in a queue of a scheduler that is locked.
fn queued(id: u16) -> &'static Thread {
    // SAFETY: a queued thread has to be taken out of its queue before it can end.
    unsafe { by_id(id) }
}

/// Brings a thread to its CPU. No lock held, interrupts off.
pub(super) fn deliver(Move { thread, to, front }: Move) {
    // SAFETY: a thread that moves is in no queue, and does not run before it is received.
    hold(|| to).receive(unsafe { by_id(thread) }, front);
}

/// Fetches what is more urgent than `running`, which CPU `own`, this one, is about to run, from
/// where it waits. Says whether there was something: what waits elsewhere may be more urgent, since
/// what a CPU tells may be about a thread that has to stay. Interrupts off, no lock held.
pub(super) fn pull(own: RealmCpu, running: Urgency) -> bool {
    let mut others = CPU_STATES.online().without(own);
    while !others.is_empty() {
        let Some(from) = placement::source(&CPU_STATES, running, others) else { return false };
        let found = {
            let mut state = hold(|| from);
            state.surrender(own, running);
            state.outgoing.is_some()
        };
        if found {
            return true;
        }
        others = others.without(from);
    }
    false
}

/// Sends real-time threads that were preempted on this CPU to others that run something less
/// urgent: mostly that is one, and more where several came one after the other before the switch.
/// Interrupts off, no lock held.
#[inline(always)]
pub(super) fn push_real_time() {
    // Most often there are none.
    let is_alone = CPU_STATES.online().count() == 1;
    if !is_alone && CPU_STATES.surplus(percpu::this().index) > Urgency::ORDINARY {
        push_to_others();
    }
}

#[inline(never)]
fn push_to_others() {
    let own = percpu::this().index;
    let others = CPU_STATES.online().without(own);
    for _ in others.iter() {
        let surplus = CPU_STATES.surplus(own);
        let is_less = |cpu| CPU_STATES.running(cpu) < surplus;
        if surplus <= Urgency::ORDINARY || !others.iter().any(is_less) {
            return;
        }
        let was_sent = {
            let mut state = hold_own();
            state.movable[Class::RealTime as usize] > 0 && state.push(Urgency::ORDINARY)
        };
        if !was_sent {
            return;
        }
        // With many CPUs these are many sections.
        percpu::interrupt_window_if_long();
    }
}
