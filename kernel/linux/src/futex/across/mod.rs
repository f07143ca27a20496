// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futexes in memory that Linux shares: who waits there may be a thread of either realm.
//!
//! Linux knows threads of the realm by shadow threads alone. So the program has further ones, which
//! no thread runs in:
//!
//! | file | concept |
//! |---|---|
//! | [`representative`] | for each thread that waits at such a word: a shadow thread that waits there in Linux |
//! | [`herald`] | for each process: a shadow thread that wakes in Linux |
//! | [`under_way`] | which wake-ups of the realm may have reached a representative |
//!
//! What Linux answers a thread that waits goes to that thread. For all else there is a thread of
//! the kernel, of ordinary level, which also rings for real-time threads: they only store what they
//! want of Linux.

mod herald;
mod representative;
mod under_way;

pub(super) use herald::wake;
pub use herald::{Herald, prepare, settle};
pub(super) use representative::wait;
pub use representative::{Representative, dismiss};

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crtos_abi::channel::SLOT_WORDS;
use crtos_channel::{DoorbellCpu, Operation, OwnedSlot, Request, Slot, operation::Room};
use crtos_core::{
    task::{self, Spawn, Thread},
    time::{self, Nanos},
};
use crtos_sched::Level;
use linux_raw_sys::general as linux;
use spin::Once;

use crate::{
    abi::Errno,
    process::{ThreadExt as _, UserThread, spares, threads::each_process},
    remote::{self, slots},
};

/// The thread of the kernel.
static AGENT: Once<Arc<Thread>> = Once::new();

/// Bit per slot: the agent is to ring for what is stored there.
static RINGS: [AtomicU64; SLOT_WORDS] = [const { AtomicU64::new(0) }; SLOT_WORDS];

/// The agent is to ring, for no slot.
static RING_HOME: AtomicBool = AtomicBool::new(false);

/// Starts the agent. At boot, in a thread.
pub fn start() {
    match task::spawn(Spawn { name: "futex", ..Default::default() }, work) {
        Ok(thread) => {
            AGENT.call_once(|| thread);
        }
        Err(error) => crtos_core::error!("no thread for futexes across the realms: {error:?}"),
    }
}

/// Has the agent look around. Any context.
fn wake_agent() {
    if let Some(agent) = AGENT.get() {
        agent.wake();
    }
}

/// Has the agent hear of what Linux stores in `slot`.
fn leave_to_agent(slot: Slot) {
    if let Some(agent) = AGENT.get() {
        slots::set_owner(slot, agent.clone());
    }
}

/// Rings for what was stored in `slot`; a real-time thread has the agent do that, which takes no
/// exit.
fn ring(slot: Slot) {
    if task::current().effective_level() > Level::ORDINARY {
        RINGS[slot.word()].fetch_or(slot.bit(), Ordering::Release);
        wake_agent();
    } else if let Some(channel) = remote::channel() {
        remote::ring(channel, slot);
    }
}

/// Has all that wait at futexes in Linux look at their words: for wake-ups that nobody carries out.
fn look_again() {
    let Some(channel) = remote::channel() else { return };
    channel.look_at_futexes();
    RING_HOME.store(true, Ordering::Release);
    wake_agent();
}

/// The body of the agent.
fn work() {
    loop {
        let Some(channel) = remote::channel() else { return };
        for (index, word) in RINGS.iter().enumerate() {
            // Mostly there is nothing.
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for slot in Slot::all_in(index, word.swap(0, Ordering::Acquire)) {
                remote::ring(channel, slot);
            }
        }
        if RING_HOME.swap(false, Ordering::Acquire) {
            remote::ring_at(channel, DoorbellCpu::ANY);
        }
        each_process(|process| {
            process.herald.go_on();
            if process.herald.represents() {
                for thread in &process.members.lock().threads {
                    thread.user().into_iter().for_each(|user| user.representative.go_on());
                }
            }
        });
        task::block(None);
    }
}

/// Has a shadow thread call futex(2), with that rank.
fn request(owned: &mut OwnedSlot, arguments: [u64; 6], rank: u32) {
    let mut room = Room::default();
    let number = linux::__NR_futex;
    let operation = Operation::SystemCall { number, arguments: &arguments }.encode(&mut room);
    owned.request(&Request { operation, rank, cpu: task::current().cpu() });
}

/// After how long a thread looks again that waits for a shadow thread.
const PERIOD: Nanos = Nanos::from_millis(1);

/// How often [`take_shadow`] looks for one that the housekeeper has found, and how often it has
/// Linux make another one.
const LOOKS: usize = 50;
const TRIES: usize = 20;

/// A shadow thread of the calling thread's process that no thread runs in: a spare, or one that
/// Linux makes. EAGAIN if there is none. May ask Linux.
fn take_shadow(user: &UserThread) -> Result<OwnedSlot, Errno> {
    for _ in 0..TRIES {
        if let Some(owned) = spares::take_surplus(user) {
            return Ok(owned);
        }
        if let Some(owned) = spares::make(1, user)? {
            return Ok(owned);
        }
        // The housekeeper was faster, and makes it a spare: one that stays a spare where none was,
        // or that goes where what threads inherit has changed meanwhile.
        for _ in 0..LOOKS {
            if let Some(owned) = spares::take_surplus(user) {
                return Ok(owned);
            }
            if user.is_ending() {
                return Err(Errno::EAGAIN);
            }
            task::sleep_until(time::now() + PERIOD);
        }
    }
    Err(Errno::EAGAIN)
}
