// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads, how they share a CPU, and what they wait for.

pub mod clock_set;
mod cpu_states;
pub(crate) mod cpus;
pub(crate) mod deadlines;
mod idle;
pub mod inheritance;
mod migration;
pub(crate) mod mutex;
pub(crate) mod reaper;
pub(crate) mod scheduler;
pub(crate) mod scheduling;
pub(crate) mod thread;
pub(crate) mod timer;
pub(crate) mod user;
pub(crate) mod wait;

pub use clock_set::block_until;
pub use crtos_sched::Level;
pub use deadlines::Overload;
pub use mutex::{Mutex, MutexGuard};
pub use scheduler::{
    ask_running, block, exit, forget_handed, online, reschedule_point, sleep_until, yield_now,
};
pub use scheduling::{Policy, Scheduling};
pub use thread::{
    Current, MAX_THREADS, Spawn, SpawnError, Thread, ThreadId, WakeReason, current, hand_over,
    hand_over_fast, level, prepare, spawn, start, wake, wake_here,
};
pub use timer::Timer;
pub use user::{
    PortPermissions, may_use, port_permissions, segment_bases, set_all_ports, set_fs_base,
    set_gs_base, set_guarded, set_numbering, set_port_permissions, set_ports, set_space,
};
pub use wait::{WaitError, WaitQueue};
