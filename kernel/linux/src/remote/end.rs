// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's end: what the realm knows of it, and who is told.
//!
//! Linux says itself that it has ended, when it panics or shuts down, and the hypervisor tells
//! where it has halted Linux; either counts once and for ever. From then on a call of Linux fails
//! with EIO, also one that is under way, and programs that have agreed to it get SIGPWR. A thread
//! of ordinary priority does that, one program or thread after the other, so that nothing of it
//! delays a real-time thread.
//!
//! A Linux that says nothing any more is only reported: it may hang, or be stopped, or have so much
//! to do that it goes on later. Nothing tells these apart.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_channel::Channel;
use spin::Once;

use crtos_core::{
    arch,
    task::{self, Spawn, Thread},
    time::{self, Nanos},
};

use super::{channel, lock, slots};
use crate::{
    files::last_words,
    process::{housekeeper, threads},
    signal,
};

static ENDED: AtomicBool = AtomicBool::new(false);

/// How many last words the thread has seen.
static SEEN: AtomicU32 = AtomicU32::new(0);

static THREAD: Once<Arc<Thread>> = Once::new();

/// After how long without news of Linux's clocks the hypervisor is asked: an exit each time.
const DOUBT: Nanos = Nanos::from_millis(2500);

/// After how long it is reported.
const SILENCE: Nanos = Nanos::from_millis(20_000);

/// Starts the thread. At boot, in a thread.
pub fn start() {
    match task::spawn(Spawn { name: "end", ..Default::default() }, watch) {
        Ok(thread) => {
            THREAD.call_once(|| thread);
        }
        Err(error) => crtos_core::error!("no thread that hears of Linux's end: {error:?}"),
    }
}

/// Whether Linux is known to have ended. Any context.
pub fn has_ended() -> bool {
    ENDED.load(Ordering::Acquire)
}

/// Called when the doorbell rang. Interrupts off.
pub fn look(channel: Channel) {
    if channel.last_words_count() != SEEN.load(Ordering::Relaxed) {
        look_again();
    }
}

/// Has the thread look whether Linux goes on. The housekeeper does so a few times a second.
pub fn look_again() {
    if let Some(thread) = THREAD.get() {
        thread.wake();
    }
}

/// The body of the thread.
fn watch() {
    let Some(channel) = channel() else { return };
    let mut pulse = Pulse::new();
    loop {
        task::block(None);
        let count = channel.last_words_count();
        if SEEN.swap(count, Ordering::Relaxed) != count {
            last_words::announce();
            if channel.linux_has_ended() && !has_ended() {
                tell_all();
            }
        }
        if !has_ended() && pulse.is_doubtful() && lock::is_locked() && arch::linux_is_halted() {
            tell_all();
        }
    }
}

/// Has everybody hear of the end.
fn tell_all() {
    ENDED.store(true, Ordering::SeqCst);
    crtos_core::warn!("Linux has ended: its last words are in {}", last_words::PATH);
    // Calls under way return: a thread that is not woken by this has seen `ENDED` before it sleeps.
    slots::owners(Thread::wake);
    threads::each_process(|process| signal::tell_end_of_linux(process));
    housekeeper::wake();
}

/// Whether Linux goes on telling of its clocks.
struct Pulse {
    last: u64,
    since: Nanos,
    is_reported: bool,
}

impl Pulse {
    fn new() -> Self {
        Self { last: time::pulse_of_linux(), since: time::now(), is_reported: false }
    }

    /// Looks at it; reports when it is missing for long, and when it comes again. Says whether it
    /// is missing.
    fn is_doubtful(&mut self) -> bool {
        let pulse = time::pulse_of_linux();
        let now = time::now();
        if pulse != self.last {
            if self.is_reported {
                crtos_core::info!("Linux goes on");
            }
            *self = Self { last: pulse, since: now, is_reported: false };
        } else if !self.is_reported && now > self.since + SILENCE {
            crtos_core::warn!("Linux has said nothing for 20 s: it hangs, or has no time");
            self.is_reported = true;
        }
        now > self.since + DOUBT
    }
}
