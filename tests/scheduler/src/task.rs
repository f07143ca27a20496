// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads, the kernel's own files of the scheduler, and what they use of others. No thread ends.

#[path = "../../../kernel/core/src/task/cpu_states.rs"]
mod cpu_states;
#[path = "../../../kernel/core/src/task/deadlines.rs"]
mod deadlines;
#[path = "../../../kernel/core/src/task/migration.rs"]
#[allow(unsafe_code, reason = "the kernel's")]
mod migration;
#[path = "../../../kernel/core/src/task/scheduler/mod.rs"]
#[allow(unsafe_code, reason = "the kernel's")]
pub mod scheduler;
#[path = "../../../kernel/core/src/task/scheduling.rs"]
mod scheduling;
pub mod view;

pub use crtos_sched::Level;
pub use scheduling::{Policy, Scheduling};
pub use thread::{Spawn, SpawnError, Thread, ThreadId, WakeReason, current};

pub mod thread {
    use alloc::sync::Arc;
    use core::ops::Deref;
    use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Acquire, Ordering::Relaxed};
    use std::sync::Mutex;

    use crtos_abi::ids::RealmCpu;
    use crtos_sched::{AtomicCpu, CpuSet, Level, clock::Ticks};

    use super::{Scheduling, scheduler::Sched};
    use crate::arch::percpu;

    pub const MAX_THREADS: usize = 64;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum WakeReason {
        Woken,
        Handed,
        Timeout,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ThreadId(pub u16);

    #[derive(Debug)]
    pub struct SpawnError;

    /// What a thread carries for the personality: nothing.
    pub struct Carried;

    impl Carried {
        pub fn is_something(&self) -> bool {
            false
        }
    }

    pub struct Thread {
        pub id: ThreadId,
        pub carried: Carried,
        pub stack_top: u64,
        pub stack_pointer: AtomicU64,
        pub cpu: AtomicCpu,
        pub(in crate::task) sched: Sched,
        pub run_time: AtomicU64,
        pub switches: AtomicU64,
        pub rank: AtomicU8,
        pub is_idle: bool,
    }

    impl Thread {
        pub fn cpu(&self) -> RealmCpu {
            self.cpu.load(Acquire)
        }

        pub fn rank(&self) -> u32 {
            self.rank.load(Relaxed).into()
        }

        pub fn ticks_run(&self) -> Ticks {
            Ticks(self.run_time.load(Relaxed))
        }

        pub fn note_overrun(&self) {}

        pub fn note_attention(&self) {}

        pub fn scheduling(&self) -> Scheduling {
            super::scheduler::scheduling(self)
        }
    }

    pub fn rank_of(level: Level) -> u8 {
        1 + level.get() as u8
    }

    pub enum Body {
        Function(fn()),
    }

    pub struct Spawn<'a> {
        pub name: &'a str,
        pub scheduling: Scheduling,
        pub affinity: CpuSet,
        /// In place of what else the kernel's has.
        pub _others: (),
    }

    impl Default for Spawn<'_> {
        fn default() -> Self {
            Self { name: "", scheduling: Scheduling::ORDINARY, affinity: CpuSet::ALL, _others: () }
        }
    }

    /// All threads by number. They are there for ever.
    static THREADS: Mutex<Vec<&'static Thread>> = Mutex::new(Vec::new());

    pub fn make(what: Spawn<'_>, _: Body) -> Result<Arc<Thread>, SpawnError> {
        let id = THREADS.lock().map_err(|_| SpawnError)?.len() as u16;
        Ok(Arc::new(Thread {
            id: ThreadId(id),
            carried: Carried,
            stack_top: 0,
            stack_pointer: AtomicU64::new(1),
            cpu: AtomicCpu::new(percpu::this().index),
            run_time: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            rank: AtomicU8::new(rank_of(what.scheduling.level)),
            sched: Sched::new(what.scheduling, what.affinity),
            is_idle: what.name == "idle",
        }))
    }

    pub fn register(thread: &Arc<Thread>) -> &'static Thread {
        let thread: &'static Arc<Thread> = Box::leak(Box::new(thread.clone()));
        THREADS.lock().expect("threads").push(thread);
        thread
    }

    /// All that there are, those that are idle among them.
    pub fn all() -> Vec<&'static Thread> {
        THREADS.lock().expect("threads").clone()
    }

    pub fn of(id: u16) -> &'static Thread {
        THREADS.lock().expect("threads")[usize::from(id)]
    }

    /// The thread with number `id`.
    ///
    /// # Safety
    /// Any number of a thread will do.
    #[allow(unsafe_code, reason = "the kernel's is unsafe")]
    pub unsafe fn by_id(id: u16) -> &'static Thread {
        of(id)
    }

    /// The same thread, for ever.
    ///
    /// # Safety
    /// Any thread will do.
    #[allow(unsafe_code, reason = "the kernel's is unsafe")]
    pub unsafe fn known(thread: &Thread) -> &'static Thread {
        of(thread.id.0)
    }

    pub struct Current(&'static Thread);

    impl Deref for Current {
        type Target = Thread;
        fn deref(&self) -> &Thread {
            self.0
        }
    }

    /// The thread that runs on the CPU that goes on.
    pub fn here() -> &'static Thread {
        let current = percpu::current();
        all().into_iter().find(|&thread| core::ptr::eq(thread, current)).expect("a thread runs")
    }

    pub fn current() -> Current {
        Current(here())
    }
}

mod idle {
    pub fn idle_loop() {}
}

mod user {
    use super::Thread;
    use crate::arch::percpu::PerCpu;

    pub fn leave(_: &Thread) {}

    pub fn arrive(_: &PerCpu, _: &Thread) {}
}

mod reaper {
    pub fn bury(_: super::ThreadId) {}
}

/// There are no timers but threads' deadlines.
mod timer {
    use alloc::sync::Arc;

    use crtos_abi::ids::RealmCpu;

    pub const MAX_TIMERS: usize = 1;

    pub struct Expiry;

    impl Expiry {
        pub fn begin(&self, _: RealmCpu) {}

        pub fn run(&self) {}
    }

    pub fn is_timer(_: u16) -> bool {
        false
    }

    pub fn expiry(_: u16) -> Option<Arc<Expiry>> {
        None
    }
}
