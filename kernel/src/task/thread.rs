// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads.

use super::scheduler;
use super::user::UserState;
use crate::arch::context::initial_stack;
use crate::arch::percpu;
use crate::mm::{AddressSpace, heap, stacks};
use crate::process::ThreadData;
use crate::sync::SpinLock;
use crate::time::Nanos;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crtos_sched::Level;

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

    /// SCHED_FIFO at `priority` (1..=99).
    pub const fn fifo(priority: u32) -> Option<Self> {
        match Level::new(priority) {
            Some(level) if priority > 0 => Some(Self { policy: Policy::Fifo, level }),
            _ => None,
        }
    }
}

/// Why [`super::block`] returned.
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

/// Most threads: those of the channel's slots and those of the kernel.
pub const MAX_THREADS: usize = 1152;

/// There is no room or no memory for another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpawnError;

/// A thread of the kernel or of a process.
pub struct Thread {
    /// Its number.
    pub id: ThreadId,
    /// For the log.
    pub name: String,
    /// What the process side keeps.
    pub data: ThreadData,
    /// What it needs to run a program.
    pub(super) user: Option<UserState>,
    pub(super) space: SpinLock<Option<Arc<AddressSpace>>>,
    pub(super) stack_top: u64,
    /// Where its registers lie while it does not run.
    pub(super) stack_pointer: AtomicU64,
    pub(super) run_time: AtomicU64,
    pub(super) switches: AtomicU64,
    /// Its effective level, for those who do not hold the scheduler's lock.
    pub(super) level: AtomicU8,
    attention: AtomicBool,
    cpu: u32,
    body: SpinLock<Option<Box<dyn FnOnce() + Send>>>,
}

impl Thread {
    /// Makes the thread's next (or present) [`super::block`] return [`WakeReason::Woken`]. Any
    /// context.
    pub fn wake(&self) {
        scheduler::wake(self);
    }

    /// Has [`crate::process::return_to_user`] called before the thread returns to user mode. Does
    /// not wake it. Any context.
    pub fn set_attention(&self) {
        // A thread that runs in user mode on another CPU would need an interrupt there; the realm
        // has one CPU, and whoever calls this runs on it, so that the thread passes the check on
        // its way back.
        self.attention.store(true, Ordering::Release);
    }

    /// Clears the flag; `return_to_user` calls this first.
    pub fn clear_attention(&self) {
        self.attention.store(false, Ordering::Release);
    }

    /// Whether the flag is set.
    pub fn attention(&self) -> bool {
        self.attention.load(Ordering::Acquire)
    }

    /// Changes how it is scheduled. Any context.
    pub fn set_scheduling(&self, scheduling: Scheduling) {
        scheduler::set_scheduling(self, scheduling);
    }

    /// How it is scheduled.
    pub fn scheduling(&self) -> Scheduling {
        scheduler::scheduling(self)
    }

    /// Its level, with what it inherits.
    pub fn effective_level(&self) -> Level {
        Level::new(u32::from(self.level.load(Ordering::Relaxed))).unwrap_or(Level::MAX)
    }

    /// Rank for the channel: 1 + effective level.
    pub fn rank(&self) -> u32 {
        1 + self.effective_level().get()
    }

    /// Index of its CPU in the cell.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Processor time used, up to the last switch.
    pub fn run_time(&self) -> Nanos {
        Nanos(self.run_time.load(Ordering::Relaxed))
    }

    /// Times that it was switched to.
    pub fn switches(&self) -> u64 {
        self.switches.load(Ordering::Relaxed)
    }

    /// Its address space, if it belongs to a process.
    pub fn space(&self) -> Option<Arc<AddressSpace>> {
        self.space.lock().clone()
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        release_id(self.id);
    }
}

static IDS: SpinLock<[u64; MAX_THREADS / 64]> = SpinLock::new([0; MAX_THREADS / 64]);

/// The lowest free number.
fn allocate_id() -> Result<ThreadId, SpawnError> {
    let mut ids = IDS.lock();
    let (word, bits) =
        ids.iter_mut().enumerate().find(|(_, bits)| **bits != u64::MAX).ok_or(SpawnError)?;
    let bit = bits.trailing_ones();
    *bits |= 1 << bit;
    Ok(ThreadId((word * 64) as u16 + bit as u16))
}

fn release_id(id: ThreadId) {
    IDS.lock()[usize::from(id.0) / 64] &= !(1 << (id.0 % 64));
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

impl Default for Spawn<'_> {
    fn default() -> Self {
        Self {
            name: "",
            scheduling: Scheduling::ORDINARY,
            space: None,
            data: ThreadData::default(),
        }
    }
}

/// Makes a thread that runs `body` in the kernel (which may end in [`crate::arch::enter_user`]) and
/// makes it ready. Sleeps not, but allocates: not on a real-time path.
pub fn spawn(
    what: Spawn<'_>,
    body: impl FnOnce() + Send + 'static,
) -> Result<Arc<Thread>, SpawnError> {
    let scheduling = what.scheduling;
    let thread = make(what, Box::new(body))?;
    scheduler::add(&thread, scheduling);
    Ok(thread)
}

/// Makes a thread without making it ready.
pub(super) fn make(
    what: Spawn<'_>,
    body: Box<dyn FnOnce() + Send>,
) -> Result<Arc<Thread>, SpawnError> {
    if !heap::has_reserve() {
        return Err(SpawnError);
    }
    let user = match &what.space {
        Some(space) => Some(UserState::new(space).ok_or(SpawnError)?),
        None => None,
    };
    let id = allocate_id()?;
    let Ok(stack_top) = stacks::make(id.0) else {
        release_id(id);
        return Err(SpawnError);
    };
    // SAFETY: the stack belongs to the new number, is mapped, and nobody runs on it.
    let stack_pointer = unsafe { initial_stack(stack_top, first_steps) };
    Ok(Arc::new(Thread {
        id,
        name: String::from(what.name),
        data: what.data,
        user,
        space: SpinLock::new(what.space),
        stack_top,
        stack_pointer: AtomicU64::new(stack_pointer),
        run_time: AtomicU64::new(0),
        switches: AtomicU64::new(0),
        level: AtomicU8::new(what.scheduling.level.get() as u8),
        attention: AtomicBool::new(false),
        cpu: percpu::this().index,
        body: SpinLock::new(Some(body)),
    }))
}

/// Where every thread starts. Interrupts off.
extern "sysv64" fn first_steps() -> ! {
    x86_64::instructions::interrupts::enable();
    let body = current().body.lock().take();
    if let Some(body) = body {
        body();
    }
    scheduler::exit()
}

/// The current thread. It exists as long as it runs, which is as long as it can look at this.
pub struct Current(*const Thread, PhantomData<*mut ()>);

impl Current {
    /// A reference to keep or to give to others.
    pub fn arc(&self) -> Arc<Thread> {
        // SAFETY: the pointer came from the `Arc` that the scheduler keeps while the thread lives.
        unsafe {
            Arc::increment_strong_count(self.0);
            Arc::from_raw(self.0)
        }
    }
}

impl Deref for Current {
    type Target = Thread;
    fn deref(&self) -> &Thread {
        // SAFETY: as above.
        unsafe { &*self.0 }
    }
}

/// The current thread. Not before the first thread runs.
pub fn current() -> Current {
    let thread = percpu::this().current();
    assert!(!thread.is_null(), "no thread runs yet");
    Current(thread, PhantomData)
}
