// SPDX-License-Identifier: MIT OR Apache-2.0
//! A signal that a thread sends to itself and takes before the call returns.
//!
//! Nobody else has to hear of it, so it is not queued: the fast path notes its number with the
//! thread, and on the way back the handler's frame is pushed. Where it is not that simple (the
//! thread blocks it, others wait, there is no handler), it is queued then, as any other. A
//! real-time signal is queued at once, because the call may fail.

use core::sync::atomic::Ordering;

use crtos_signal::{
    Group, Info, Set, Target,
    info::{SI_TKILL, SI_USER},
    set::FIRST_REAL_TIME,
};

use crtos_core::{
    arch::{UserContext, interrupts::WayBack},
    task::{self, Thread},
};

use super::{
    Own, State,
    deliver::{self, enter},
    frame, send,
};
use crate::process::{ThreadExt as _, UserThread};

/// Set in what is noted of a signal that was sent to the process.
const TO_PROCESS: u32 = 1 << 31;

/// Has the calling thread, that of `user`, take `signal` before it returns to its program, if the
/// signal is one of this kind. Interrupts off.
#[inline(always)]
pub(super) fn note(user: &UserThread, target: Target, signal: u32) -> bool {
    let is_simple =
        (1..FIRST_REAL_TIME).contains(&signal) && Group::<Own>::opposite(signal).is_empty();
    if is_simple {
        let to_process = if target == Target::Process { TO_PROCESS } else { 0 };
        user.own_signal.store(signal | to_process, Ordering::Relaxed);
        task::current().set_own_attention();
    }
    is_simple
}

/// Has the calling thread, `current`, take such a signal; `false` if there is none. `context` is
/// where the call returns to. Interrupts off, before and after; in between they may be on, and it
/// may sleep.
#[inline(never)]
pub fn deliver_own(context: &mut UserContext, current: &Thread, way: &mut WayBack) -> bool {
    let Some(user) = current.user() else { return false };
    let noted = user.own_signal.load(Ordering::Relaxed);
    if noted == 0 {
        return false;
    }
    user.own_signal.store(0, Ordering::Relaxed);
    current.clear_own_attention();
    take(context, user, noted, way);
    true
}

fn take(context: &mut UserContext, user: &UserThread, noted: u32, way: &mut WayBack) {
    let (signal, to_process) = (noted & !TO_PROCESS, noted & TO_PROCESS != 0);
    let index = user.signals.index();
    let (target, code) = match to_process {
        true => (Target::Process, SI_USER),
        false => (Target::Member(index, user.tid), SI_TKILL),
    };
    let info = Info::from_process(signal, code, user.process.pid, user.process.uid);
    let mut state = user.process.signals.lock_quietly();
    let action = state.group.action(signal);
    if !action.is_handled() || !takes(&state, index, target, signal) {
        drop(state);
        way.with_interrupts(|| {
            // It is not of the kind that fails.
            let _ = send::send(&user.process, target, info, Some(&task::current()));
        });
        return;
    }
    let delivery = enter(&mut state, index, signal, &action);
    drop(state);
    if !frame::push_at_once(context, &action, &delivery.frame, &info, [0; 4]) {
        way.with_interrupts(|| {
            deliver::handle(user, context, &action, &delivery, &info, [0; 4]);
        });
    } else if !delivery.left.is_empty() {
        way.with_interrupts(|| send::search(&user.process, delivery.left));
    }
}

/// Whether the thread would take `signal` at once if it were queued, and nothing else, and would
/// know all that was sent with it.
fn takes(state: &State, index: usize, target: Target, signal: u32) -> bool {
    let group = &state.group;
    let is_first = target != Target::Process || index == 0;
    is_first
        && group.account.used < group.account.limit
        && group.member(index).is_some_and(|member| !member.mask().contains(signal))
        && group.deliverable(index) == Set::EMPTY
}
