// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads, how they share a CPU, and what they wait for.

mod board;
pub mod cpus;
pub mod deadlines;
pub mod following;
mod idle;
pub mod inheritance;
mod migration;
pub mod mutex;
pub mod reaper;
pub mod scheduler;
pub mod scheduling;
pub mod thread;
pub mod timer;
pub mod user;
pub mod wait;

pub use deadlines::Overload;
pub use following::block_until;
pub use mutex::{Mutex, MutexGuard};
pub use scheduler::{
    ask_running, block, exit, forget_handed, online, reschedule_point, sleep_until, yield_now,
};
pub use scheduling::{Policy, Scheduling};
pub use thread::{
    Current, MAX_THREADS, Spawn, SpawnError, Thread, ThreadId, WakeReason, by_id, current, prepare,
    spawn, start,
};
pub use timer::Timer;
pub use user::{
    segment_bases, set_fs_base, set_gs_base, set_numbering, set_ports, set_space,
    with_extended_state,
};
pub use wait::{WaitError, WaitQueue};
