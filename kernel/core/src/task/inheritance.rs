// SPDX-License-Identifier: MIT OR Apache-2.0
//! Priority inheritance: who holds a lock that others wait for runs at the level of the highest of
//! them, and so does whoever that holder waits for. Sleeping locks of the kernel and futexes of
//! programs are links of the same chains ([`Graph`]).
//!
//! The graph lies under one spin lock, taken inside that of the futexes and outside those of the
//! schedulers. A change travels along a chain a few links at a time, in the context of whoever
//! caused it, so that the lock is held for a bounded time however long the chain is.

use super::thread::{self, MAX_THREADS, Thread};
use crate::sync::{SpinGuard, SpinLock};
use crtos_locks::Graph;
use crtos_sched::Level;

/// Links of a chain that a change travels along at a time.
const LINKS: usize = 3;

static GRAPH: SpinLock<Graph<MAX_THREADS>> = SpinLock::new(Graph::new());

/// The graph. Any context.
pub fn graph() -> SpinGuard<'static, Graph<MAX_THREADS>> {
    GRAPH.lock()
}

/// Tells the scheduler what `thread` inherits.
pub fn inherit(thread: u16, level: Level) {
    thread::inherit(thread, level);
}

/// Has the level of `thread`, and of those along its chain, follow from who waits for it. Any
/// context; the graph is not locked.
pub fn settle(thread: u16) {
    let mut next = Some(thread);
    while let Some(thread) = next {
        next = graph().settle(thread, LINKS, inherit);
    }
}

/// Whoever `thread` waits for learns that its own level changed. Any context.
pub(super) fn level_changed(thread: &Thread) {
    let id = thread.id.0;
    {
        let mut graph = graph();
        if graph.waits_for(id).is_none() {
            return;
        }
        graph.set_base(id, thread.scheduling().level);
    }
    settle(id);
}
