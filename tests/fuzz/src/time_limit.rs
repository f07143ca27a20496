// SPDX-License-Identifier: MIT OR Apache-2.0
//! A limit for code that may never end.

use std::{
    panic::resume_unwind,
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

/// Several thousand times what an input takes, for a host that is slow or busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs `f` in a thread of its own. Panics if `f` panics, or if it takes too long; that thread is
/// left behind then.
pub fn keep(f: impl FnOnce() + Send + 'static) {
    let (end, ended) = sync_channel::<()>(1);
    let thread = thread::spawn(move || {
        f();
        drop(end);
    });
    if ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
        panic!("no end after {LIMIT:?}");
    }
    if let Err(cause) = thread.join() {
        resume_unwind(cause);
    }
}
