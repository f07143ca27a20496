// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux stored for threads: replies, faults, notices. Each is a bit in the channel, and
//! becomes a wake-up of the slot's owner.
//!
//! [`poll`] runs with interrupts off, at every doorbell, whenever the rank of what a CPU runs
//! falls, and when that of a caller has changed, so it wakes one thread at most. That is the owner
//! of the slot if there is one bit: a real-time thread in any case, an ordinary one only while
//! nothing of real time runs. More bits are left to two threads, which can be preempted between
//! any two wake-ups: one at the highest level for real-time threads, one at ordinary level for the
//! others.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use crtos_abi::channel::{RANK_NORMAL, SLOT_WORDS};
use crtos_channel::{Channel, Slot};
use spin::Once;

use crtos_core::{
    arch::interrupts,
    task::{self, Level, Scheduling, Spawn, Thread},
};

use crate::{
    process::UserThread,
    remote::{self, slots},
};

/// Bit per slot whose owner is a real-time thread, by its own level or an inherited one.
static URGENT: [AtomicU64; SLOT_WORDS] = [const { AtomicU64::new(0) }; SLOT_WORDS];

/// The threads that take what [`poll`] leaves.
static URGENT_COLLECTOR: Once<Arc<Thread>> = Once::new();
static ORDINARY_COLLECTOR: Once<Arc<Thread>> = Once::new();

/// Words that are looked at together.
const GROUP: usize = 4;
const _: () = assert!(SLOT_WORDS.is_multiple_of(GROUP));

/// Level of the collector for real-time threads.
const HIGHEST: u32 = 99;

/// Starts the collectors. At boot, in a thread.
pub fn start() {
    let highest = Scheduling::fifo(HIGHEST).unwrap_or(Scheduling::ORDINARY);
    let collectors: [(_, _, _, fn()); 2] = [
        ("replies/rt", highest, &URGENT_COLLECTOR, || collect(true)),
        ("replies", Scheduling::ORDINARY, &ORDINARY_COLLECTOR, || collect(false)),
    ];
    for (name, scheduling, collector, body) in collectors {
        let what = Spawn { name, scheduling, ..Default::default() };
        match task::spawn(what, body) {
            Ok(thread) => {
                collector.call_once(|| thread);
            }
            Err(error) => crtos_core::error!("no thread for replies of Linux: {error:?}"),
        }
    }
}

/// Notes whether the owner of `slot` is a real-time thread. Any context.
pub fn set_urgent(slot: Slot, urgent: bool) {
    match urgent {
        true => URGENT[slot.word()].fetch_or(slot.bit(), Ordering::Relaxed),
        false => URGENT[slot.word()].fetch_and(!slot.bit(), Ordering::Relaxed),
    };
}

/// The level of `thread`, whose process side is `user`, is `level` from now on, also for the
/// requests that it has out. Says whether there may be a reply to one which brought no doorbell.
/// Any context.
pub fn level_changed(thread: &Thread, user: &UserThread, level: Level) -> bool {
    let Some(channel) = remote::channel() else { return false };
    let tell = |slot| {
        set_urgent(slot, level > Level::ORDINARY);
        channel.set_rank(slot, thread.rank())
    };
    let is_there = tell(user.slot);
    // Behind a full barrier, and that behind the change of the level. Pairs with `wait_beside`.
    let beside = Slot::from_word(user.beside.load(Ordering::Relaxed));
    beside.is_some_and(tell) || is_there
}

/// The calling thread, `user`, waits for Linux at `slot` as well, where a request is out or
/// follows. Returns the rank that Linux is told of. If the thread has another one after its next
/// look whether there is a reply, it calls this again before it sleeps.
pub fn wait_beside(channel: Channel, user: &UserThread, slot: Slot) -> u32 {
    user.beside.store(Slot::to_word(Some(slot)), Ordering::Relaxed);
    // Either this sees the level that has changed, or `level_changed` the slot.
    fence(Ordering::SeqCst);
    let current = task::current();
    let rank = current.rank();
    set_urgent(slot, rank > RANK_NORMAL);
    channel.set_rank(slot, rank);
    rank
}

/// Calls `each` with every word of bits that has any: its index, the bits of real-time threads, and
/// the others.
#[inline(always)]
fn waiting(channel: Channel, mut each: impl FnMut(usize, u64, u64)) {
    let mut first = 0;
    while first < SLOT_WORDS {
        // Mostly there is nothing.
        let any = (0..GROUP).fold(0, |any, offset| any | channel.replies(first + offset));
        if any != 0 {
            for (index, urgent) in URGENT.iter().enumerate().skip(first).take(GROUP) {
                let bits = channel.replies(index);
                if bits != 0 {
                    let urgent = urgent.load(Ordering::Relaxed);
                    each(index, bits & urgent, bits & !urgent);
                }
            }
        }
        first += GROUP;
    }
}

/// The first slot of some words, and whether there are more.
#[derive(Default)]
struct First {
    slot: Option<Slot>,
    more: bool,
}

impl First {
    fn note(&mut self, index: usize, bits: u64) {
        if let Some(slot) = Slot::first_in(index, bits) {
            self.more |= self.slot.is_some() || !bits.is_power_of_two();
            self.slot.get_or_insert(slot);
        }
    }
}

/// Called when the doorbell rang, and after the rank of what this CPU runs has fallen to `rank`,
/// was stored in the channel, and a full fence. Interrupts off; bounded; may wake threads, does not
/// sleep or allocate.
pub fn poll(rank: u32) {
    let Some(channel) = remote::channel() else { return };
    let (mut urgent, mut ordinary) = (First::default(), First::default());
    waiting(channel, |index, real_time, others| {
        urgent.note(index, real_time);
        ordinary.note(index, others);
    });
    // While something of real time runs, ordinary threads wait.
    if rank > RANK_NORMAL {
        ordinary = First::default();
    }
    // A signal takes two sections, and an interrupt that came between two has but one.
    let is_short = |slot| !interrupts::preemption_held() || !channel.notices(slot).signal;
    match (urgent, ordinary) {
        (First { slot: None, .. }, First { slot: None, .. }) => {}
        (First { slot: Some(slot), more: false }, First { slot: None, .. })
        | (First { slot: None, .. }, First { slot: Some(slot), more: false })
            if is_short(slot) =>
        {
            interrupts::window_if_long();
            slots::take(channel, slot);
        }
        (First { slot: Some(_), .. }, _) => wake(&URGENT_COLLECTOR),
        (First { slot: None, .. }, _) => wake(&ORDINARY_COLLECTOR),
    }
}

fn wake(collector: &Once<Arc<Thread>>) {
    if let Some(thread) = collector.get() {
        thread.wake();
    }
}

/// The body of a collector: takes one at a time, with interrupts on in between.
fn collect(urgent: bool) {
    loop {
        task::block(None);
        let Some(channel) = remote::channel() else { continue };
        waiting(channel, |index, real_time, others| {
            for slot in Slot::all_in(index, if urgent { real_time } else { others }) {
                slots::take(channel, slot);
            }
            if urgent && others != 0 {
                wake(&ORDINARY_COLLECTOR);
            }
        });
    }
}
