// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the simulation does with the scheduler, and sees of it.

use alloc::sync::Arc;

use crtos_abi::ids::RealmCpu;
use crtos_sched::{CpuSet, Level, Urgency, placement::Cpus};

use super::{
    Policy, Scheduling, Thread, WakeReason,
    cpu_states::CPU_STATES,
    scheduler,
    scheduler::hold,
    scheduler::hold_own,
    thread::{self, Body, MAX_THREADS, Spawn},
};
use crate::{arch::percpu, time::Nanos};

/// Makes the scheduler of the CPU that goes on.
pub fn set_up() {
    scheduler::set_up(percpu::this()).expect("a scheduler");
}

/// Has the CPU that goes on run its first thread, as `scheduler::start`, which does not return.
pub fn start() {
    hold_own().since = crate::time::ticks();
    percpu::this().set_need_resched();
    scheduler::reschedule();
    scheduler::set_online();
}

pub fn spawn(scheduling: Scheduling) {
    let what = Spawn { scheduling, ..Spawn::default() };
    let thread: Arc<Thread> = thread::make(what, Body::Function(|| ())).expect("a thread");
    scheduler::add(&thread);
}

pub fn wake(thread: &Thread) {
    scheduler::wake(thread, WakeReason::Woken);
}

pub fn set_scheduling(thread: &Thread, scheduling: Scheduling) {
    scheduler::set_scheduling(thread, scheduling);
}

pub fn set_inherited(thread: &Thread, level: Level) {
    scheduler::set_inherited(thread, level);
}

pub fn set_affinity(thread: &Thread, cpus: CpuSet) {
    scheduler::set_affinity(thread, cpus);
}

/// What a thread does, as the scheduler knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    Run,
    /// It is ready.
    Wait,
    /// It sleeps, waits for something other than a CPU, or has used up its budget.
    Rest,
    /// It is on its way to another CPU, or has not begun.
    Move,
}

/// What is seen of a thread.
#[derive(Debug)]
pub struct SeenThread {
    pub id: u16,
    pub does: Does,
    pub urgency: Urgency,
    pub allowed: CpuSet,
    pub cpu: RealmCpu,
    /// It is counted among those that could run elsewhere.
    pub is_movable: bool,
    /// It has a budget, which is used up, and inherits nothing.
    pub is_overdrawn: bool,
    /// How long its turns are beside others of its level; `None` if they have no end.
    pub turn: Option<Nanos>,
    pub has_run: u64,
}

pub fn thread(thread: &Thread) -> SeenThread {
    use scheduler::Progress::{Exited, Moving, New, Ready, Running};
    let sched = &thread.sched;
    SeenThread {
        id: thread.id.0,
        does: match sched.progress.get() {
            Running => Does::Run,
            Ready => Does::Wait,
            New | Moving | Exited => Does::Move,
            _ => Does::Rest,
        },
        urgency: sched.urgency(),
        allowed: sched.allowed(),
        cpu: thread.cpu(),
        is_movable: sched.movable.get().is_some(),
        is_overdrawn: sched.inherited() == Level::ORDINARY
            && sched.server().is_some_and(|server| server.is_exhausted()),
        turn: Some(sched.scheduling.get())
            .filter(|own| !matches!(own.policy, Policy::Fifo | Policy::Deadline))
            .filter(|own| sched.inherited() <= own.level)
            .map(|own| own.slice()),
        has_run: thread.ticks_run().0,
    }
}

/// What is seen of a CPU.
#[derive(Debug)]
pub struct SeenCpu {
    pub current: u16,
    pub is_idle: bool,
    /// The thread that goes before all in the queues.
    pub first: Option<u16>,
    /// Those in the queues.
    pub queued: Vec<u16>,
    /// How urgent what it runs is, and what it tells of that.
    pub running: Urgency,
    pub told: Urgency,
    pub surplus: Urgency,
    pub movable: u32,
    /// What its timer is to be set for, and is.
    pub due: Nanos,
    pub programmed: Nanos,
    pub since: u64,
}

pub fn cpu(index: RealmCpu) -> SeenCpu {
    let state = hold(|| index);
    let by_deadline = (0..MAX_THREADS as u16).filter(|&id| state.deadlines.deadline(id).is_some());
    SeenCpu {
        current: state.current.id.0,
        is_idle: state.current.is_idle,
        first: state.first.map(|first| first.id.0),
        queued: state.ready.iter().map(|(id, _)| id).chain(by_deadline).collect(),
        running: state.running(),
        told: state.state.running(),
        surplus: CPU_STATES.surplus(index),
        movable: state.movable.iter().sum(),
        due: state.timers.earliest().min(state.slice_end),
        programmed: state.programmed,
        since: state.since.0,
    }
}
