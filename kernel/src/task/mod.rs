// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads, how they share a CPU, and what they wait for.

pub mod mutex;
pub mod reaper;
pub mod scheduler;
pub mod thread;
pub mod timer;
pub mod user;
pub mod wait;

pub use mutex::Mutex;
pub use scheduler::{SLICE, block, exit, reschedule_point, sleep_until, yield_now};
pub use thread::{
    Current, MAX_THREADS, Policy, Scheduling, Spawn, SpawnError, Thread, ThreadId, WakeReason,
    current, spawn,
};
pub use timer::Timer;
pub use user::{
    prepare_user, segment_bases, set_fs_base, set_gs_base, set_ports, set_space,
    with_extended_state,
};
pub use wait::{WaitError, WaitQueue};
