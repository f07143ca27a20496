// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deadlines that follow clocks when these are set.
//!
//! What is armed is the kernel's time at which a clock will show what was asked for, as things
//! stand. Whatever counts in a clock that can be set has a bit here, by its number among the
//! deadlines. When Linux has set one, it rings, and a thread of the highest level has all of them
//! look again: threads wake up and ask for their deadline anew, functions of timers are called and
//! arm theirs. That is one every [`PAUSE`], and [`REST`] lies between two such rounds, so that
//! Linux cannot keep a CPU busy with its clocks.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use spin::Once;

use super::{
    MAX_THREADS, Scheduling, Spawn, Thread, WakeReason, block, current, sleep_until, spawn,
    timer::{self, MAX_TIMERS},
    wake,
};
use crate::{
    sync::SpinLock,
    time::{self, Deadline, Nanos},
};

/// Time from one that is told to the next. In that time, other threads lose one wake-up or one
/// function of a timer.
const PAUSE: Nanos = Nanos::from_micros(100);

/// Shortest time from one round to the next.
const REST: Nanos = Nanos::from_millis(10);

/// Level of the thread.
const HIGHEST: u32 = 99;

const WORDS: usize = (MAX_THREADS + MAX_TIMERS).div_ceil(64);

/// Bit per deadline. What is told to look again is told under the lock: it does not end meanwhile.
static FOLLOWERS: SpinLock<[u64; WORDS]> = SpinLock::new([0; WORDS]);

/// How many follow.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// What [`time::steps`] was when the last round began.
static SEEN: AtomicU32 = AtomicU32::new(0);

static THREAD: Once<Arc<Thread>> = Once::new();

/// Starts the thread. At boot, in a thread.
pub fn start() {
    let scheduling = Scheduling::fifo(HIGHEST).unwrap_or(Scheduling::ORDINARY);
    match spawn(Spawn { name: "clocks", scheduling, ..Default::default() }, rounds) {
        Ok(thread) => {
            THREAD.call_once(|| thread);
        }
        Err(error) => crate::error!("no thread for clocks that are set: {error:?}"),
    }
}

/// Has the clocks follow those of Linux. A thread of ordinary priority calls it a few times a
/// second: while others leave that no time, the clocks go on at the rates that they have.
pub fn lead() {
    time::lead();
    tell_all();
}

/// Called when the doorbell rang, and when a call of Linux returned. Any context that may take a
/// spin lock.
pub fn look() {
    time::follow();
    tell_all();
}

/// Has the thread begin a round, if a clock was set and somebody follows it.
fn tell_all() {
    if time::steps() == SEEN.load(Ordering::Relaxed) {
        return;
    }
    // Who is not counted yet computes its deadline with the clocks as they are now. Pairs with the
    // fence of `set`.
    fence(Ordering::SeqCst);
    if COUNT.load(Ordering::Relaxed) > 0
        && let Some(thread) = THREAD.get()
    {
        thread.wake();
    }
}

fn rounds() {
    loop {
        block(None);
        let steps = time::steps();
        if SEEN.swap(steps, Ordering::Relaxed) != steps {
            let mut from = 0;
            while let Some(told) = tell_next(from) {
                from = told + 1;
                sleep_until(time::now() + PAUSE);
            }
            sleep_until(time::now() + REST);
        }
    }
}

/// Has the first follower from number `from` on look again; returns its number.
fn tell_next(from: u16) -> Option<u16> {
    let followers = FOLLOWERS.lock();
    let mut word = usize::from(from) / 64;
    let mut left = followers.get(word)? & (!0 << (from % 64));
    while left == 0 {
        word += 1;
        left = *followers.get(word)?;
    }
    let id = (word * 64) as u16 + left.trailing_zeros() as u16;
    match timer::is_timer(id) {
        true => timer::call_soon(id),
        false => wake(id),
    }
    Some(id)
}

/// Says whether deadline `id` follows a clock. Before it is computed, if it does. Any context.
pub(super) fn set(id: u16, follows: bool) {
    let (word, bit) = (usize::from(id) / 64, 1 << (id % 64));
    let mut followers = FOLLOWERS.lock();
    if (followers[word] & bit != 0) == follows {
        return;
    }
    followers[word] ^= bit;
    // Only the holder of the lock changes it.
    let count = COUNT.load(Ordering::Relaxed);
    COUNT.store(if follows { count + 1 } else { count - 1 }, Ordering::Relaxed);
    // The count before the clock is read, by whom the deadline is computed. Pairs with `tell_all`.
    fence(Ordering::SeqCst);
}

/// As [`block`], until a deadline that may move.
pub fn block_until(deadline: Option<Deadline>) -> WakeReason {
    match deadline {
        Some(deadline @ Deadline::Shown(..)) => block_until_shown(deadline),
        Some(Deadline::At(time)) => block(Some(time)),
        None => block(None),
    }
}

#[inline(never)]
fn block_until_shown(deadline: Deadline) -> WakeReason {
    let me = current().id.0;
    set(me, true);
    let reason = block(Some(deadline.time()));
    set(me, false);
    match reason {
        // The clock was set, or goes slower than it did.
        WakeReason::Timeout if deadline.time() > time::now() => WakeReason::Woken,
        reason => reason,
    }
}
