// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rich real-time processes.
//!
//! A process is an address space, the signal actions and a shadow in Linux. It ends in one place, [`end_if_due`], called where
//! a thread is about to leave the kernel and owns nothing on its kernel stack; everything before only notes the [`End`].

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crtos_abi::channel::{OP_EXIT, OP_EXIT_SIGNAL, THREAD_EXITED, THREAD_RUNNING};
use crtos_channel::{Line, Status};

use crate::{
    arch::UserContext,
    mm::space::AddressSpace,
    remote,
    signal::{Actions, ThreadSignals},
    sync::SpinLock,
    task::{self, Thread},
};

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// exit(2) with this status.
    Status(i32),
    /// By this signal.
    Signal(u32),
    /// The shadow is gone.
    Gone,
}

/// A rich real-time process.
pub struct Process {
    /// Its memory.
    pub space: Arc<AddressSpace>,
    /// By which Linux knows it in drops.
    pub number: u32,
    /// Process id, in Linux and here.
    pub pid: u32,
    /// What it does on signals, and what is pending.
    pub signals: SpinLock<Actions>,
    end: SpinLock<Option<End>>,
}

impl Process {
    /// A process without a program.
    pub fn new(space: Arc<AddressSpace>, number: u32, pid: u32) -> Process {
        Process {
            space,
            number,
            pid,
            signals: SpinLock::new(Actions::default()),
            end: SpinLock::new(None),
        }
    }

    /// Has the process end. The first reason counts.
    pub fn end(&self, end: End) {
        self.end.lock().get_or_insert(end);
    }

    /// Notes that the shadow is gone, whatever else was to be done.
    pub fn note_gone(&self) {
        *self.end.lock() = Some(End::Gone);
    }

    /// Whether the process is to end.
    pub fn is_ending(&self) -> bool {
        self.end.lock().is_some()
    }
}

/// The process side of a thread of a program.
pub struct User {
    /// Its process.
    pub process: Arc<Process>,
    /// Its slot in the channel.
    pub slot: usize,
    /// Thread id, in Linux and here.
    pub tid: u32,
    /// The slot, until the thread has ended.
    pub line: SpinLock<Option<Line>>,
    /// Its signal mask and stack.
    pub signals: SpinLock<ThreadSignals>,
    /// Address and length of the robust list.
    pub robust_list: SpinLock<(u64, u64)>,
    /// Scheduling policy by Linux's number, as it was set.
    pub policy: AtomicU32,
    /// `THREAD_*`, for `crtos ps`.
    pub state: AtomicU32,
    /// Local system calls.
    pub local_calls: AtomicU64,
    /// Remote system calls.
    pub remote_calls: AtomicU64,
}

impl User {
    /// The first thread of `process`.
    pub fn new(process: Arc<Process>, line: Line) -> User {
        User {
            process,
            slot: line.slot(),
            tid: line.tid(),
            line: SpinLock::new(Some(line)),
            signals: SpinLock::new(ThreadSignals::default()),
            robust_list: SpinLock::new((0, 0)),
            policy: AtomicU32::new(0),
            state: AtomicU32::new(THREAD_RUNNING),
            local_calls: AtomicU64::new(0),
            remote_calls: AtomicU64::new(0),
        }
    }

    /// Whether `id` means this thread in calls where 0 is the caller.
    pub fn is(&self, id: u64) -> bool {
        id as u32 == 0 || id as u32 == self.tid
    }

    /// Brings what `crtos ps` shows of `thread`, which is this one, up to date.
    pub fn publish(&self, thread: &Thread) {
        let status = Status {
            state: self.state.load(Ordering::Relaxed),
            priority: thread.scheduling().level.get(),
            run_time: thread.run_time().0,
            switches: thread.switches(),
            local_calls: self.local_calls.load(Ordering::Relaxed),
            remote_calls: self.remote_calls.load(Ordering::Relaxed),
            pages: self.process.space.usage().1 / crtos_abi::PAGE_SIZE,
        };
        if let Some(line) = &*self.line.lock() {
            line.publish(&status);
        }
    }
}

/// What the process side keeps for each thread; [`crate::task::Thread::data`]. `Default` for threads of the kernel.
#[derive(Default)]
pub struct ThreadData {
    user: Option<User>,
}

impl ThreadData {
    /// For a thread of a program.
    pub fn of(user: User) -> ThreadData {
        ThreadData { user: Some(user) }
    }

    /// The process side of the thread, if it belongs to a program.
    pub fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }
}

/// Called before every return to user mode while the thread's attention flag is set
/// (see [`crate::task::Thread::set_attention`]). Interrupts on, may sleep.
pub fn return_to_user(context: &mut UserContext) {
    task::current().clear_attention();
    note_if_gone();
    end_if_due();
    crate::signal::deliver(context);
    end_if_due();
}

/// Looks whether the shadow of the calling thread is gone.
pub fn note_if_gone() {
    let current = task::current();
    if let (Some(user), Some(block)) = (current.data.user(), remote::block())
        && block.notices(user.slot).gone
    {
        user.process.note_gone();
    }
}

/// Ends the calling thread if its process is to end. The caller owns nothing that would be lost.
pub fn end_if_due() {
    let ending = task::current().data.user().is_some_and(|user| user.process.is_ending());
    if ending {
        finish();
        task::exit();
    }
}

/// Ends the process of the calling thread in Linux, waits until Linux has let go of it and gives up all that it had.
fn finish() {
    let current = task::current();
    let Some(user) = current.data.user() else { return };
    user.state.store(THREAD_EXITED, Ordering::Relaxed);
    user.publish(&current);
    let end = *user.process.end.lock();
    match end {
        Some(End::Status(status)) => remote::request_end(OP_EXIT, status as u64),
        Some(End::Signal(signal)) => remote::request_end(OP_EXIT_SIGNAL, signal.into()),
        Some(End::Gone) | None => {}
    }
    task::set_space(None);
    remote::release(user.slot, user.process.number, &user.line);
}
