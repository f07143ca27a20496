// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread leaves its CPU: it sleeps, waits, gives up its turn or ends.

use super::{
    Progress, Sched, State, Turn, hold_here, hold_of, hold_own, reschedule, switch::reschedule_from,
};
use crate::arch::InterruptsOff;
use crate::arch::{cpu, percpu};
use crate::task::{Thread, WakeReason, current, deadlines, reaper};
use crate::time::{self, Nanos};

pub(super) fn assert_may_sleep() {
    assert!(!percpu::preemption_held(), "a thread sleeps while preemption is held off");
}

/// Gives up the CPU after `prepare` changed the state; `prepare` may refuse. What comes of it is
/// told to `first` before interrupts may be on.
#[inline(always)]
pub(super) fn leave_cpu<R: Copy>(
    prepare: impl FnOnce(&mut State, &Thread) -> Result<(), R>,
    after: impl FnOnce(&Sched) -> R,
    first: impl FnOnce(R),
) -> R {
    assert_may_sleep();
    let interrupts = InterruptsOff::take();
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
    first(result);
    drop(interrupts);
    result
}

/// Sleeps until [`Thread::wake`], [`Thread::hand_over_quietly`] or `deadline` (kernel time).
/// Returns at once if one of the first two came since the last return. Callers check their
/// condition in a loop: a wake may be meant for something else. What is handed over is not.
pub fn block(deadline: Option<Nanos>) -> WakeReason {
    block_and(deadline, |_| ())
}

/// As [`block`]; `first` is the first thing that the thread does when it goes on, with interrupts
/// off: bounded.
#[inline(always)]
pub(in crate::task) fn block_and(
    deadline: Option<Nanos>,
    first: impl FnOnce(WakeReason),
) -> WakeReason {
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
        first,
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
        |()| (),
    );
}

/// Lets others of the same level run.
pub fn yield_now() {
    leave_cpu(
        |state, me| {
            state.of(me).turn.set(Turn::GivenUp);
            Ok(())
        },
        |_| (),
        |()| (),
    );
}

/// Sleeps until [`grant`], which may come before; wakes are kept for the next [`block`].
pub(in crate::task) fn wait_for_grant() {
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
            |_| (),
        );
        if granted {
            return;
        }
    }
}

/// Has the present or next [`wait_for_grant`] of `thread` return. Any context.
pub(in crate::task) fn grant(thread: &Thread) {
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
    let interrupts = InterruptsOff::take();
    if interrupts.were_on() {
        percpu::preempt_if_needed();
    }
    drop(interrupts);
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
    percpu::interrupt_window();
    reschedule();
    unreachable!("a thread that exited runs again")
}
