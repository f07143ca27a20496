// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that frees what threads leave behind: at ordinary level, preemptible, so that it is
//! never in a real-time thread's way.

use super::{block, scheduler, spawn};
use crate::task::{Spawn, SpawnError};

/// Starts it.
pub fn start() -> Result<(), SpawnError> {
    spawn(Spawn { name: "reaper", ..Default::default() }, || {
        scheduler::become_reaper();
        loop {
            while let Some(thread) = scheduler::take_exited() {
                drop(thread);
            }
            scheduler::publish_statistics();
            block(None);
        }
    })
    .map(|_| ())
}
