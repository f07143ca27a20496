// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rich real-time processes.
//!
//! A process is an address space, the signal actions, its threads and a shadow in Linux. What ends it is only noted
//! ([`Process::end`]); each of its threads goes in one place, [`end_if_due`], called where a thread is about to leave the kernel and owns
//! nothing on its kernel stack. One of them has the shadow exit, and each stays until Linux has let go of its shadow thread.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use crtos_abi::channel::{OP_EXIT, OP_EXIT_SIGNAL, OP_THREAD_EXIT, THREAD_EXITED, THREAD_RUNNING};
use crtos_channel::{Line, Status};
use spin::Once;

use crate::{
    account::{Account, Usage},
    arch::UserContext,
    file_map,
    files::{Files, Watchers},
    fork, futex,
    mm::space::AddressSpace,
    numbering, remote,
    signal::{self, Membership},
    spawn,
    sync::SpinLock,
    syscall::Restart,
    task::{self, Mutex, Thread},
    threads::{self, Birth},
    timers::{self, Timers},
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

/// The threads of a process.
#[derive(Default)]
pub struct Members {
    /// Those that are there, in the order in which they came.
    pub threads: Vec<Arc<Thread>>,
    /// Those that have not begun to end.
    pub running: usize,
    /// What those used that have ended, and the process before it executed its program.
    pub ended: Usage,
    /// Shadow threads that wait for a thread.
    pub spares: Vec<Line>,
    /// How many of them no thread is to get.
    pub reserved: usize,
    /// How many there should be.
    pub goal: usize,
    /// A spare makes others right now.
    pub making: bool,
}

/// A rich real-time process.
pub struct Process {
    /// Its memory.
    pub space: Arc<AddressSpace>,
    /// By which Linux knows it in drops.
    pub number: u32,
    /// Process id, in Linux and here.
    pub pid: u32,
    /// Real user id in Linux, when it began.
    pub uid: u32,
    /// Its ids may differ from `uid` now; see [`Process::certain_uid`].
    has_changed_ids: AtomicBool,
    /// What it does on signals, and what is pending.
    pub signals: SpinLock<signal::State>,
    /// Who is told that a signal is pending for it or one of its threads.
    pub signal_watchers: Watchers,
    /// Its timers.
    pub timers: Timers,
    /// Its threads.
    pub members: Mutex<Members>,
    /// Its descriptors; see [`Process::files`].
    pub files: Once<Arc<Files>>,
    /// What its children used; see [`Process::account`].
    pub account: Once<Arc<Account>>,
    /// By which numbers it knows the CPUs.
    pub numbering: numbering::Chosen,
    end: SpinLock<Option<End>>,
    /// Whether `end` says something.
    ending: AtomicBool,
    /// A thread has told the shadow to end.
    told: AtomicBool,
}

impl Process {
    /// A process without a program and without threads.
    pub fn new(space: Arc<AddressSpace>, number: u32, pid: u32, uid: u32) -> Process {
        Process {
            space,
            number,
            pid,
            uid,
            has_changed_ids: AtomicBool::new(false),
            signals: SpinLock::new(signal::State::default()),
            signal_watchers: Watchers::new(),
            timers: Timers::default(),
            members: Mutex::new(Members::default()),
            files: Once::new(),
            account: Once::new(),
            numbering: numbering::Chosen::new(),
            end: SpinLock::new(None),
            ending: AtomicBool::new(false),
            told: AtomicBool::new(false),
        }
    }

    /// Its descriptors.
    pub fn files(&self) -> &Arc<Files> {
        self.files.call_once(|| Arc::new(Files::new()))
    }

    /// Its real user id, if that is certainly what it was when the process began, and its other ids too: otherwise only
    /// Linux knows what it is permitted.
    pub fn certain_uid(&self) -> Option<u32> {
        (!self.has_changed_ids.load(Ordering::Relaxed)).then_some(self.uid)
    }

    /// Its ids differ, or may do so from now on.
    pub fn doubt_ids(&self) {
        self.has_changed_ids.store(true, Ordering::Relaxed);
    }

    /// Has the process end. The first reason counts. Thread context; may sleep.
    pub fn end(&self, end: End) {
        self.end.lock().get_or_insert(end);
        self.ending.store(true, Ordering::Release);
        self.kick();
    }

    /// Notes that the shadow is gone, whatever else was to be done. Thread context; may sleep.
    pub fn note_gone(&self) {
        if self.end.lock().replace(End::Gone) != Some(End::Gone) {
            self.ending.store(true, Ordering::Release);
            self.kick();
        }
    }

    /// Its account.
    pub fn account(&self) -> &Arc<Account> {
        self.account.call_once(Arc::default)
    }

    /// What its threads used, those that have ended included. Thread context; may sleep.
    pub fn used(&self) -> Usage {
        let members = self.members.lock();
        let mut sum = members.ended;
        for thread in &members.threads {
            sum.add(Usage::of(thread));
        }
        sum.present = sum.present.max(self.space.usage().1);
        sum
    }

    /// What it used, and its children that it has waited for. Thread context; may sleep.
    pub fn used_with_children(&self) -> Usage {
        let mut used = self.used();
        used.add(self.account().waited_for());
        used
    }

    /// Whether the process is to end.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Has all threads look at what is pending: sleeping ones at once, running ones before they go on in user mode. Thread context;
    /// may sleep.
    pub fn kick(&self) {
        for thread in &self.members.lock().threads {
            thread.set_attention();
            thread.wake();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        signal::drop_pending(self, None);
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
    /// Its place among the threads that signals go to.
    pub signals: Membership,
    /// What it has sent to itself in the call that is about to return, or 0; see [`signal::deliver_own`].
    pub own_signal: AtomicU32,
    /// It waits for a system call in Linux that a signal may end.
    pub interruptible: AtomicBool,
    /// A signal was forwarded during the shadow's last system call, which may have ended that although it does not concern this thread.
    pub disturbed: AtomicBool,
    /// The shadow's system call was to end; that may still meet one that it was not meant for.
    pub interrupted: AtomicBool,
    /// A call that a signal interrupted and that can go on.
    pub restart: SpinLock<Option<Restart>>,
    /// Address and length of the robust list.
    pub robust_list: SpinLock<(u64, u64)>,
    /// The word to clear and wake when the thread has left the memory of the process, or 0.
    pub clear_child_tid: AtomicU64,
    /// Command name, zero padded.
    pub command: SpinLock<[u8; 16]>,
    /// Where it begins.
    pub birth: SpinLock<Birth>,
    /// `THREAD_*`, for `crtos ps`.
    pub state: AtomicU32,
    /// Local system calls that took the full path.
    pub local_calls: AtomicU64,
    /// Remote system calls.
    pub remote_calls: AtomicU64,
    /// It called exit(2): it is to end, if the process is not.
    exits: AtomicBool,
    status: AtomicI32,
}

impl User {
    /// A thread of `process` whose slot is `line`, which comes later ([`threads::begin`]).
    pub fn new(process: Arc<Process>, line: &Line) -> User {
        User {
            process,
            slot: line.slot(),
            tid: line.tid(),
            line: SpinLock::new(None),
            signals: Membership::default(),
            own_signal: AtomicU32::new(0),
            interruptible: AtomicBool::new(false),
            disturbed: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            restart: SpinLock::new(None),
            robust_list: SpinLock::new((0, 0)),
            clear_child_tid: AtomicU64::new(0),
            command: SpinLock::new([0; 16]),
            birth: SpinLock::new(Birth::default()),
            state: AtomicU32::new(THREAD_RUNNING),
            local_calls: AtomicU64::new(0),
            remote_calls: AtomicU64::new(0),
            exits: AtomicBool::new(false),
            status: AtomicI32::new(0),
        }
    }

    /// Whether `id` means this thread in calls where 0 is the caller.
    pub fn is(&self, id: u64) -> bool {
        id as u32 == 0 || id as u32 == self.tid
    }

    /// Whether it is the first thread of its process.
    pub fn is_leader(&self) -> bool {
        self.tid == self.process.pid
    }

    /// Has this thread alone end: exit(2).
    pub fn exit(&self, status: i32) {
        self.status.store(status, Ordering::Relaxed);
        self.exits.store(true, Ordering::Relaxed);
    }

    /// Whether the thread, or its process, is to end.
    pub fn is_ending(&self) -> bool {
        self.exits.load(Ordering::Relaxed) || self.process.is_ending()
    }

    /// Names the thread: at most 15 bytes.
    pub fn set_command(&self, name: &[u8]) {
        let mut command = [0; 16];
        for (to, from) in command.iter_mut().take(15).zip(name) {
            *to = *from;
        }
        *self.command.lock() = command;
        if let Some(line) = &*self.line.lock() {
            line.publish_command(&command);
        }
    }

    /// Brings what `crtos ps` shows of `thread`, which is this one, up to date.
    pub fn publish(&self, thread: &Thread) {
        let status = Status {
            state: self.state.load(Ordering::Relaxed),
            priority: thread.scheduling().level.get(),
            run_time: thread.run_time().0,
            switches: thread.switches(),
            local_calls: self.local_calls.load(Ordering::Relaxed) + thread.light_calls(),
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
#[inline(never)]
pub fn return_to_user(context: &mut UserContext) {
    task::current().clear_attention();
    note_if_gone();
    end_if_due();
    crate::syscall::tell_overrun();
    timers::look();
    crate::signal::deliver(context);
    end_if_due();
    stay_stopped();
}

/// While the shadow is stopped, so is the program.
fn stay_stopped() {
    let current = task::current();
    let Some(user) = current.data.user() else { return };
    while remote::is_stopped(user.slot) {
        // What comes meanwhile is dealt with afterwards.
        current.set_attention();
        note_if_gone();
        end_if_due();
        task::block(None);
    }
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

/// Ends the calling thread if it or its process is to end. The caller owns nothing that would be lost.
pub fn end_if_due() {
    let ending = task::current().data.user().is_some_and(User::is_ending);
    if ending {
        finish();
        task::exit();
    }
}

/// Ends the calling thread, and its process if it is the last one: in Linux, then here. Waits until Linux has let go of it.
fn finish() {
    let current = task::current();
    let Some(user) = current.data.user() else { return };
    user.state.store(THREAD_EXITED, Ordering::Relaxed);
    user.publish(&current);
    leave_memory(user);
    if !user.process.is_ending() {
        stop_running(user);
    }
    if user.process.is_ending() {
        // Before anybody can hear of the end in Linux.
        if Arc::strong_count(user.process.files()) == 1 {
            user.process.files().close_all();
        }
        end_shadow(&user.process);
    } else {
        remote::request_end(OP_THREAD_EXIT, 0);
    }
    if user.process.is_ending() {
        user.process.timers.clear();
    }
    signal::leave(user);
    task::set_space(None);
    let (spares, was_last) = threads::remove(user);
    spawn::dispose(spares);
    if was_last {
        fork::hand_over_signals(&user.process);
    }
    remote::release(user.slot, &user.line);
}

/// What others wait for when a thread leaves the memory of its process: its robust and its PI futexes, and what
/// set_tid_address(2) names.
fn leave_memory(user: &User) {
    futex::exit();
    let address = user.clear_child_tid.swap(0, Ordering::Relaxed);
    if address != 0 && user.process.space.write(address, &[0; 4]).is_ok() {
        futex::wake_shared(address, 1);
    }
}

/// A thread that called exit(2) runs no more. The last one ends the process. The first one stays until then, and ends with it: signals
/// for the process arrive at its shadow thread.
fn stop_running(user: &User) {
    let process = &user.process;
    signal::retire(user);
    let last = {
        let mut members = process.members.lock();
        members.running -= 1;
        members.running == 0
    };
    if last {
        process.end(End::Status(user.status.load(Ordering::Relaxed)));
    }
    while user.is_leader() && !process.is_ending() {
        note_if_gone();
        signal::collect(user);
        task::block(None);
    }
}

/// Has the shadow end, if no other thread of the process did, and waits for the end of the calling thread's part of it.
fn end_shadow(process: &Process) {
    let end = *process.end.lock();
    let first = !process.told.swap(true, Ordering::Relaxed);
    if first {
        process.account().tell_parent(process.pid, process.used_with_children());
    }
    if first && matches!(end, Some(End::Status(_) | End::Signal(_))) {
        file_map::write_back_all(&process.space);
    }
    match end {
        Some(End::Status(status)) if first => remote::request_end(OP_EXIT, status as u64),
        Some(End::Signal(signal)) if first => remote::request_end(OP_EXIT_SIGNAL, signal.into()),
        _ => remote::wait_for_end(),
    }
}
