// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that does what is due at a time: it sends again what was not acknowledged, asks again
//! for stations, and gives up those who do not answer.
//!
//! It runs at the level of the highest thread that waits for a connection, so nothing that is less
//! urgent keeps such a thread waiting. While nothing is due it sleeps without a deadline.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use crtos_core::{
    task::{self, Scheduling, Spawn, Thread},
    time::Nanos,
};
use spin::Once;

use super::{link, tcp};

static THREAD: Once<Arc<Thread>> = Once::new();
/// When it looks next.
static NEXT: AtomicU64 = AtomicU64::new(u64::MAX);
/// The highest level of realtime threads.
const HIGHEST: u32 = 99;

/// Starts the thread, if it does not run. Thread context.
pub fn start() {
    if THREAD.is_completed() {
        return;
    }
    let what = Spawn { name: "inet", ..Default::default() };
    match task::spawn(what, run) {
        Ok(thread) => {
            THREAD.call_once(|| thread);
        }
        Err(error) => {
            crtos_core::error!("no thread for connections: {error:?}; nothing is sent again")
        }
    }
}

/// Has it look at that time at the latest. Any context.
pub fn wake_by(at: u64) {
    if NEXT.fetch_min(at, Ordering::AcqRel) > at
        && let Some(thread) = THREAD.get()
    {
        thread.wake();
    }
}

/// A thread of that level begins to wait. Any context.
pub fn lend(level: u32) {
    if let Some(thread) = THREAD.get()
        && thread.scheduling().level.get() < level
    {
        run_at(thread, level);
    }
}

fn run_at(thread: &Thread, level: u32) {
    thread.set_scheduling(Scheduling::fifo(level.min(HIGHEST)).unwrap_or(Scheduling::ORDINARY));
}

fn run() {
    loop {
        NEXT.store(u64::MAX, Ordering::Release);
        let (due, level) = tcp::look();
        let due = due.into_iter().chain(link::look()).min();
        if let Some(thread) = THREAD.get()
            && thread.scheduling().level.get() != level.min(HIGHEST)
        {
            run_at(thread, level);
        }
        let next = NEXT.fetch_min(due.unwrap_or(u64::MAX), Ordering::AcqRel);
        let next = next.min(due.unwrap_or(u64::MAX));
        task::block((next < u64::MAX).then_some(Nanos(next)));
    }
}
