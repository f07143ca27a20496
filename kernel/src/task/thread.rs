// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads.

use crate::mm::AddressSpace;
use crate::process::ThreadData;
use alloc::sync::Arc;
use crtos_sched::Level;
use crate::time::Nanos;

/// How a thread competes for its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// SCHED_OTHER, SCHED_BATCH, SCHED_IDLE: time slices, level 0.
    Ordinary,
    /// SCHED_FIFO.
    Fifo,
    /// SCHED_RR.
    RoundRobin,
}

/// Policy and level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheduling {
    /// Policy.
    pub policy: Policy,
    /// [`Level::ORDINARY`] exactly for [`Policy::Ordinary`].
    pub level: Level,
}

impl Scheduling {
    /// SCHED_OTHER.
    pub const ORDINARY: Self = Self { policy: Policy::Ordinary, level: Level::ORDINARY };
}

/// Why [`block`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WakeReason {
    /// Somebody called [`Thread::wake`] since the last return of `block`.
    Woken,
    /// The deadline passed.
    Timeout,
}

/// Number of a thread; reused after the thread is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadId(pub u16);

/// Most threads.
pub const MAX_THREADS: usize = 1152;

/// There is no room for another thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpawnError;

/// A thread of the kernel or of a process.
pub struct Thread {
    /// Its number.
    pub id: ThreadId,
    /// What the process side keeps.
    pub data: ThreadData,
}

impl Thread {
    /// Makes the thread's next (or present) [`block`] return [`WakeReason::Woken`]. Any context.
    pub fn wake(&self) {
        unimplemented!()
    }

    /// Has [`crate::process::return_to_user`] called before the thread returns to user mode, and sends the thread there soon
    /// if it runs in user mode. Does not wake it. Any context.
    pub fn set_attention(&self) {
        unimplemented!()
    }

    /// Clears the flag; `return_to_user` calls this first.
    pub fn clear_attention(&self) {
        unimplemented!()
    }

    /// Changes how it is scheduled. Any context.
    pub fn set_scheduling(&self, _scheduling: Scheduling) {
        unimplemented!()
    }

    /// How it is scheduled.
    pub fn scheduling(&self) -> Scheduling {
        unimplemented!()
    }

    /// Rank for the channel: 1 + effective level.
    pub fn rank(&self) -> u32 {
        unimplemented!()
    }

    /// Index of its CPU in the cell.
    pub fn cpu(&self) -> u32 {
        unimplemented!()
    }

    /// Processor time used.
    pub fn run_time(&self) -> Nanos {
        unimplemented!()
    }

    /// Times that it was switched to.
    pub fn switches(&self) -> u64 {
        unimplemented!()
    }

    /// Its address space, if it belongs to a process.
    pub fn space(&self) -> Option<Arc<AddressSpace>> {
        unimplemented!()
    }
}

/// What a new thread is made of.
pub struct Spawn<'a> {
    /// For the log.
    pub name: &'a str,
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// The address space it runs in; `None` for threads of the kernel.
    pub space: Option<Arc<AddressSpace>>,
    /// What the process side keeps.
    pub data: ThreadData,
}

/// Makes a thread that runs `body` in the kernel (which may end in [`crate::arch::enter_user`]) and makes it ready.
/// Sleeps not, but allocates: not on a real-time path.
pub fn spawn(_what: Spawn<'_>, _body: impl FnOnce() + Send + 'static) -> Result<Arc<Thread>, SpawnError> {
    unimplemented!()
}

/// The current thread.
pub fn current() -> Arc<Thread> {
    unimplemented!()
}

/// Sleeps until [`Thread::wake`] or `deadline` (kernel time). Returns at once if a wake came since the last return.
/// Callers check their condition in a loop: a wake may be meant for something else.
pub fn block(_deadline: Option<Nanos>) -> WakeReason {
    unimplemented!()
}

/// Sleeps until `deadline`; wakes are kept for the next [`block`].
pub fn sleep_until(_deadline: Nanos) {
    unimplemented!()
}

/// Lets others of the same level run.
pub fn yield_now() {
    unimplemented!()
}

/// A point at which a long work of the kernel lets others of the same level run if their turn has come.
/// (Higher levels preempt anywhere.)
pub fn reschedule_point() {
    unimplemented!()
}

/// Ends the current thread; its resources are freed later by the reaper. What the caller still owns is leaked.
pub fn exit() -> ! {
    unimplemented!()
}

/// Makes `space` the current thread's address space (exec).
pub fn set_space(_space: Option<Arc<AddressSpace>>) {
    unimplemented!()
}

/// FS base and GS base of the current thread.
pub fn segment_bases() -> (u64, u64) {
    unimplemented!()
}

/// Sets the FS base of the current thread; the caller has checked that it is a user address.
pub fn set_fs_base(_base: u64) {
    unimplemented!()
}

/// Sets the GS base of the current thread; the caller has checked that it is a user address.
pub fn set_gs_base(_base: u64) {
    unimplemented!()
}

/// `ioperm` for the current thread: allows or forbids ports `first..first + count`, which the caller has checked.
pub fn set_ports(_first: u16, _count: u32, _allow: bool) -> Result<(), SpawnError> {
    unimplemented!()
}
