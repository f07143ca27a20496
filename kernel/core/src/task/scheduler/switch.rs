// SPDX-License-Identifier: MIT OR Apache-2.0
//! From one thread to the next.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use crtos_abi::ids::RealmCpu;
use crtos_sched::Urgency;

use super::{Held, hold_here, hold_own};
use crate::arch::context;
use crate::arch::percpu::{self, PerCpu};
use crate::mm::layout;
use crate::task::{Thread, current, migration, user};
use crate::{personality, time, trace};

/// Runs the first thread of this CPU. Interrupts off, on a stack that nothing returns to.
pub fn start() -> ! {
    percpu::release_preemption();
    hold_own().since = time::ticks();
    percpu::this().set_need_resched();
    reschedule();
    unreachable!("nothing returns to the boot stack")
}

/// Switches to the thread that should run. Interrupts off before and after, no lock held.
#[inline(never)]
pub fn reschedule() {
    if let Some(runner) = percpu::this().runner.get() {
        reschedule_from(Held::of(runner));
    }
}

/// As [`reschedule`], with the scheduler of this CPU locked.
pub(super) fn reschedule_from(held: Held) {
    let cpu = percpu::this();
    let next = choose(cpu, held, false).unwrap_or_else(|| choose_again(cpu));
    switch(cpu, next);
}

/// Chooses the thread that this CPU is to run, and tells the others; `None` if there is a reason to
/// choose anew. Looks for what waits elsewhere if that may be more urgent: because what runs here
/// is less urgent than before, or it `looks_elsewhere`. Interrupts off.
#[inline(always)]
fn choose(cpu: &PerCpu, mut held: Held, looks_elsewhere: bool) -> Option<&'static Thread> {
    // Who asks another CPU does so after having changed its scheduler, without the lock: what was
    // asked before this is seen.
    cpu.clear_need_resched();
    let (next, urgency, is_less) = held.choose();
    held.release();
    let rank = next.rank();
    let before = cpu.swap_rank(rank);
    if rank != before {
        publish_rank(cpu.index, before, rank);
    }
    let looks_for_replies = cpu.take_look() || rank < before;
    let falls = looks_elsewhere || is_less || looks_for_replies;
    if falls && fall(cpu, urgency, rank, looks_for_replies) || cpu.needs_resched() {
        return None;
    }
    Some(next)
}

/// What this CPU is to run may be less urgent than what waits elsewhere. Says whether there is
/// something to choose here that was not there before. Interrupts off, no lock held.
#[inline(never)]
fn fall(cpu: &PerCpu, urgency: Urgency, rank: u32, looks_for_replies: bool) -> bool {
    // Who adds something for this CPU looks at what it runs before it decides whether to tell.
    if looks_for_replies {
        percpu::in_interrupt(|| personality::rank_fell(rank));
        percpu::interrupt_window_if_long();
    } else {
        fence(Ordering::SeqCst);
    }
    // What waits elsewhere is compared with what is to run here.
    cpu.needs_resched() || migration::pull(cpu.index, urgency)
}

/// What was fetched may be less urgent by now than what it was fetched for.
#[cold]
#[inline(never)]
fn choose_again(cpu: &PerCpu) -> &'static Thread {
    loop {
        // Not on the stack that the CPU booted on, where there is no thread to interrupt.
        if !cpu.current().is_null() {
            percpu::interrupt_window();
        }
        if let Some(next) = choose(cpu, hold_here(), true) {
            return next;
        }
    }
}

pub(super) fn switch(cpu: &'static PerCpu, next: &'static Thread) {
    static BOOT: AtomicU64 = AtomicU64::new(0);
    let previous = cpu.current();
    if previous == ptr::from_ref(next) {
        // What was to run in its place may run elsewhere.
        return migration::push_real_time();
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
#[inline(always)]
pub(in crate::task) fn arrive() {
    user::arrive(percpu::this(), &current());
    migration::push_real_time();
}

/// Tells Linux the rank of what the CPU runs, which was `before`. A full barrier if it falls.
fn publish_rank(cpu: RealmCpu, before: u32, rank: u32) {
    match layout::channel_view() {
        Some(channel) if rank < before => channel.lower_rank(cpu, rank),
        Some(channel) => channel.raise_rank(cpu, rank),
        None if rank < before => fence(Ordering::SeqCst),
        None => {}
    }
}
