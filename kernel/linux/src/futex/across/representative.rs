// SPDX-License-Identifier: MIT OR Apache-2.0
//! The representative of a thread: a shadow thread that waits in Linux at the word at which the
//! thread waits here, so that a wake-up there reaches the thread.
//!
//! The thread stands in the queue of this kernel first, then its representative in Linux's, where
//! Linux compares the word again: until then the wait has not begun for Linux, and what came before
//! has changed the word.
//!
//! Whoever is woken by a thread of the realm goes on at once. Its representative stays where it is,
//! and is there already when the thread waits at that word again: then nothing is asked of Linux. A
//! wake-up that reaches a representative whose thread does not wait was meant for somebody else, so
//! the representative hands it on. It does so as well where it may have been woken before its
//! thread waited again. A thread that waits elsewhere, or for another value, has its representative
//! called back first: on its way it could find the old value again, and miss the wake-up.
//!
//! A wake-up of the realm that comes late ([`under_way`]) is not for the thread either, which waits
//! on if the word is what it was.

use crtos_abi::{
    UserAddr,
    channel::{RESULT_NOT_MADE, THREAD_RUNNING, THREAD_SLEEPING},
};
use crtos_channel::{Answer, OwnedSlot, Poll, Slot};
use crtos_core::{
    sync::SpinLock,
    task::{self, WakeReason},
    time::Deadline,
};
use crtos_locks::{Key, futex::Wait, orders::Order};
use linux_raw_sys::general as linux;

use core::sync::atomic::Ordering;

use super::{
    super::{
        Address, STATE, caller, is_interrupted,
        key::Found,
        wait::{self, Ended},
        word,
    },
    herald::wake_args,
    leave_to_agent, request, ring, take_shadow,
    under_way::{self, Since},
};
use crate::{
    abi::{Errno, linux_result},
    process::{ThreadExt as _, UserThread, spares},
    remote::{self, replies, slots},
};

/// The representative of a thread.
pub struct Representative(SpinLock<State>);

struct State {
    shadow: Option<OwnedSlot>,
    /// What it does just now.
    out: Option<Errand>,
    /// A wake-up that it has to hand on.
    handed_on: Option<Order>,
    /// Where its thread waits, until an answer has come.
    wanted: Option<Wanted>,
}

/// Where a thread waits, and for what.
#[derive(Clone, Copy)]
struct Place {
    key: Key,
    /// The word in the shadow's memory.
    word: UserAddr,
    bits: u32,
}

impl Place {
    /// Whether who waits at one waits at the other.
    fn is(&self, other: &Self) -> bool {
        self.key == other.key && self.bits == other.bits
    }

    /// What hands one wake-up on.
    fn one(&self) -> Order {
        let crowd = under_way::crowd(self.key);
        Order { word: self.word, count: 1, bits: self.bits, crowd }
    }
}

/// What a thread waits for.
#[derive(Clone, Copy)]
struct Wanted {
    place: Place,
    /// What the word must be.
    value: u32,
}

impl Wanted {
    /// Whether who waits for one waits for the other.
    fn is(&self, other: &Self) -> bool {
        self.place.is(&other.place) && self.value == other.value
    }
}

#[derive(Clone, Copy)]
enum Errand {
    Wait {
        wanted: Wanted,
        /// It was sent for the wait in which its thread is.
        fresh: bool,
        called_back: bool,
        /// What was under way when it was sent.
        since: Since,
    },
    HandOn(Order),
}

/// What came of a look at the representative.
#[derive(Default)]
struct Step {
    /// For which slot to ring.
    ring: Option<Slot>,
    /// What Linux says to the wait of the thread.
    result: Option<Said>,
}

/// What Linux says to a wait.
#[derive(Clone, Copy)]
struct Said {
    /// As a system call returns it.
    result: i64,
    /// It may come of a wake-up of the realm.
    may_be_late: bool,
}

impl Representative {
    /// None yet.
    pub const fn new() -> Self {
        Self(SpinLock::new(State { shadow: None, out: None, handed_on: None, wanted: None }))
    }

    /// Does what is to be done about what Linux answered; says what the answer is for its thread.
    fn advance(&self) -> Option<Said> {
        let Step { ring: to_ring, result } = self.0.lock().advance();
        to_ring.into_iter().for_each(ring);
        result
    }

    /// The same, where its thread does not wait. Any context.
    pub(super) fn go_on(&self) {
        let step = {
            let mut state = self.0.lock();
            // What its thread is told, it hears itself.
            if state.wanted.is_some() { Step::default() } else { state.advance() }
        };
        step.ring.into_iter().for_each(ring);
    }

    /// The slot of the shadow thread.
    fn slot(&self) -> Option<Slot> {
        self.0.lock().shadow.as_ref().map(OwnedSlot::slot)
    }
}

impl State {
    fn advance(&mut self) -> Step {
        let Some(owned) = &mut self.shadow else { return Step::default() };
        let slot = Some(owned.slot());
        let mut result = None;
        if let Some(errand) = &mut self.out {
            let reply = match owned.poll() {
                Poll::Reply(reply) => reply,
                // The word is not in memory of the realm.
                Poll::Fault { .. } => {
                    owned.answer(Answer::Bad);
                    return Step { ring: slot, result };
                }
                Poll::Waiting => {
                    let (Errand::Wait { wanted, called_back, .. }, Some(now)) =
                        (errand, self.wanted)
                    else {
                        return Step::default();
                    };
                    if *called_back || wanted.is(&now) {
                        return Step::default();
                    }
                    *called_back = true;
                    owned.channel().interrupt(owned.slot());
                    return Step { ring: slot, result };
                }
            };
            if let Errand::HandOn(order) = errand {
                under_way::end(order.crowd);
            }
            match (*errand, reply) {
                (Errand::HandOn(order), RESULT_NOT_MADE) => self.handed_on = Some(order),
                (Errand::HandOn(_), _) | (Errand::Wait { .. }, RESULT_NOT_MADE) => {}
                (Errand::Wait { wanted: Wanted { place, .. }, fresh, since, .. }, reply) => {
                    let is_wanted = self.wanted.is_some_and(|now| now.place.is(&place));
                    if reply == 0 && !(fresh && is_wanted) {
                        self.handed_on = Some(place.one());
                    }
                    let is_answer = reply == 0 || fresh && reply != Errno::EINTR.value() as i64;
                    if is_wanted && is_answer {
                        result = Some(Said { result: reply, may_be_late: since.any() });
                        self.wanted = None;
                    }
                }
            }
            self.out = None;
        }
        let arguments = if let Some(order) = self.handed_on.take() {
            self.out = Some(Errand::HandOn(order));
            under_way::begin(order.crowd);
            wake_args(order)
        } else if let Some(wanted) = self.wanted {
            let since = Since::now(under_way::crowd(wanted.place.key));
            self.out = Some(Errand::Wait { wanted, fresh: true, called_back: false, since });
            let Wanted { place, value } = wanted;
            let command = linux::FUTEX_WAIT_BITSET.into();
            [place.word.get(), command, value.into(), 0, 0, place.bits.into()]
        } else {
            return Step { ring: None, result };
        };
        request(owned, arguments, task::current().rank());
        Step { ring: slot, result }
    }

    /// Linux has woken the representative by a wake-up that is for somebody else: the thread waits
    /// on.
    fn wait_on(&mut self, wanted: Wanted) {
        self.handed_on = Some(wanted.place.one());
        self.wanted = Some(wanted);
    }

    /// The thread does not wait any more, at `place`. `surplus`: Linux has woken it in vain.
    fn leave(&mut self, place: Place, surplus: bool) {
        self.wanted = None;
        if let Some(Errand::Wait { fresh, .. }) = &mut self.out {
            *fresh = false;
        }
        if surplus {
            self.handed_on = Some(place.one());
        }
    }
}

/// How many wake-ups that may be late a thread hands on before one ends its wait: those that others
/// and it itself have made just before.
const LATE: u32 = 4;

/// FUTEX_WAIT, FUTEX_WAIT_BITSET at a word that both realms share, which is at `mirror` of the
/// shadow's memory. EAGAIN as well if Linux makes no thread to represent this one.
pub(in super::super) fn wait(
    address: Address,
    found: Found,
    mirror: UserAddr,
    value: u32,
    bits: u32,
    deadline: Option<Deadline>,
) -> Result<Result<(), Ended>, Errno> {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let channel = remote::channel().ok_or(Errno::EAGAIN)?;
    let (me, _) = caller()?;
    let representative = &user.representative;
    let slot = engage(user)?;
    wait::enqueue(me, found.key, address, value, Wait::Plain(bits))?;
    let place = Place { key: found.key, word: mirror, bits };
    let wanted = Wanted { place, value };
    representative.0.lock().wanted = Some(wanted);
    slots::set_owner(slot, current.arc());
    user.state.store(THREAD_SLEEPING, Ordering::Relaxed);
    let mut late = 0;
    let (ended, result) = loop {
        // What is out may be from an earlier wait.
        let rank = replies::wait_beside(channel, user, slot);
        match representative.advance() {
            // Not for ever: two threads could hand one wake-up to each other.
            Some(Said { result: 0, may_be_late: true }) if late < LATE && is(address, value) => {
                late += 1;
                representative.0.lock().wait_on(wanted);
                continue;
            }
            // It was woken, after all.
            Some(Said { result, .. }) if late > 0 && result == Errno::EAGAIN.value() as i64 => {
                break (Ok(()), Some(0));
            }
            Some(Said { result, .. }) => break (Ok(()), Some(result)),
            None => {}
        }
        if is_interrupted() {
            break (Err(Ended::Interrupted), None);
        }
        if current.rank() != rank {
            continue;
        }
        match task::block_until(deadline) {
            WakeReason::Handed => break (Ok(()), None),
            WakeReason::Timeout => break (Err(Ended::Timeout), None),
            _ => {}
        }
    };
    user.beside.store(Slot::to_word(None), Ordering::Relaxed);
    user.state.store(THREAD_RUNNING, Ordering::Relaxed);
    let was_handed = ended.is_ok() && result.is_none();
    // Who wakes it takes it out of the table and hands the wake-up over.
    let is_woken = was_handed || !STATE.lock().table.dequeue(me);
    if is_woken && !was_handed {
        task::forget_handed();
    }
    representative.0.lock().leave(place, is_woken && result == Some(0));
    leave_to_agent(slot);
    if is_woken {
        return Ok(Ok(()));
    }
    match result {
        Some(result) => linux_result(result).map(|_| Ok(())),
        None => Ok(ended),
    }
}

/// Whether the word is there and is `value`.
fn is(address: Address, value: u32) -> bool {
    let _state = STATE.lock();
    matches!(word::load(address.word), Ok(word) if word == value)
}

/// Sees to it that the calling thread has a representative. Asks Linux the first time.
fn engage(user: &UserThread) -> Result<Slot, Errno> {
    if let Some(slot) = user.representative.slot() {
        return Ok(slot);
    }
    let owned = take_shadow(user)?;
    let slot = owned.slot();
    user.process.herald.set_represents();
    user.representative.0.lock().shadow = Some(owned);
    Ok(slot)
}

/// Lets the representative of the calling thread, which is about to end, go. May ask Linux.
pub fn dismiss(user: &UserThread) {
    let Some(slot) = user.representative.slot() else { return };
    let Some(channel) = remote::channel() else { return };
    slots::set_owner(slot, task::current().arc());
    let is_over = || {
        let process = &user.process;
        let is_gone = |slot| process.is_without_shadow(channel.notices(slot));
        is_gone(slot) || is_gone(user.slot) || process.is_ending() || process.is_out_of_reach()
    };
    let call_back = |state: &mut State| match (&mut state.out, &state.shadow) {
        (Some(Errand::Wait { called_back, .. }), Some(owned)) if !*called_back => {
            *called_back = true;
            owned.channel().interrupt(owned.slot());
            true
        }
        _ => false,
    };
    while !is_over() {
        user.representative.go_on();
        let called = {
            let mut state = user.representative.0.lock();
            if state.out.is_none() {
                break;
            }
            call_back(&mut state)
        };
        if called {
            ring(slot);
        }
        task::block(None);
    }
    slots::disown(slot);
    let (shadow, is_idle) = {
        let mut state = user.representative.0.lock();
        let out = state.out.take();
        if let Some(Errand::HandOn(order)) = out {
            under_way::end(order.crowd);
        }
        (state.shadow.take(), out.is_none())
    };
    match shadow {
        Some(owned) if is_idle && !is_over() => spares::retire(owned),
        shadow => spares::dispose(shadow),
    }
}
