// SPDX-License-Identifier: MIT OR Apache-2.0
//! From one thread to the next.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use crtos_abi::{channel::RANK_IDLE, ids::RealmCpu};
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
pub(super) fn reschedule_from(mut held: Held) {
    let cpu = percpu::this();
    let mut fell = false;
    let next = loop {
        // Who asks another CPU does so after having changed its scheduler, without the lock: what
        // was asked before this is seen.
        cpu.clear_need_resched();
        let (next, urgency, is_less) = held.choose();
        held.release();
        let rank = rank(urgency, next);
        let before = cpu.swap_rank(rank);
        if rank != before {
            publish_rank(cpu.index, before, rank);
        }
        let looks = cpu.take_look();
        fell |= is_less || rank < before || looks;
        // Who adds something for this CPU looks at what it runs before it decides whether to tell.
        if fell {
            if rank < before || looks {
                cpu.in_interrupt(|| personality::rank_fell(rank));
                percpu::interrupt_window_if_long();
            } else {
                fence(Ordering::SeqCst);
            }
            // What waits elsewhere is compared with what is to run here.
            fell = cpu.needs_resched();
            if !fell {
                fell = migration::pull(cpu.index, urgency);
            }
        }
        // What was fetched may be less urgent by now than what it was fetched for.
        if !fell && !cpu.needs_resched() {
            break next;
        }
        // Not on the stack that the CPU booted on, where there is no thread to interrupt.
        if !cpu.current().is_null() {
            percpu::interrupt_window();
        }
        held = hold_here();
    };
    switch(cpu, next);
}

pub(super) fn rank(urgency: Urgency, thread: &Thread) -> u32 {
    if urgency == Urgency::IDLE { RANK_IDLE } else { thread.rank() }
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
