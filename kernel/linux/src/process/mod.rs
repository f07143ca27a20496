// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rich real-time processes.
//!
//! A process is an address space, the signal actions, its threads and a shadow in Linux.
//!
//! | file | concept |
//! |---|---|
//! | [`thread`] | the process side of a thread |
//! | [`threads`] | which threads and processes there are, by their ids |
//! | [`start`], [`clone`], [`fork`], [`execve`], [`exec`] | how threads and processes begin |
//! | [`end`] | how they end |
//! | [`spares`], [`housekeeper`] | shadow threads that wait for a thread; who has them made |
//! | [`account`], [`meter`] | what was used; clocks of processor time |
//! | [`lapse`] | what its real-time threads do that has no worst case |
//! | [`ids`], [`rights`] | whose they are; what one may do to another |
//! | [`scheduling`], [`restart`] | how threads are scheduled; calls that go on after a signal |
//! | [`speculation`] | what a thread has asked for of what the processor executes ahead |

pub mod account;
pub mod clone;
mod end;
pub mod exec;
pub mod execve;
pub mod fork;
pub mod housekeeper;
pub mod ids;
pub mod lapse;
pub mod limits;
mod meter;
mod restart;
pub mod rights;
pub mod scheduling;
pub mod spares;
pub mod speculation;
pub mod start;
mod thread;
pub mod threads;
pub mod user_limits;

pub use end::{end_if_due, note_if_gone, return_to_user};
pub use meter::Meter;
pub use restart::Restart;
pub use thread::{Linux, ThreadExt, UserThread};

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_abi::ids::{Pid, PidNamespace, ProcessNumber};
use crtos_channel::{Notices, OwnedSlot};
use crtos_sched::CpuSet;
use crtos_syscalls::choices::Strict;
use spin::Once;

use crtos_core::{
    cpu_numbers::Chosen,
    mm::space::AddressSpace,
    sync::SpinLock,
    task::{Mutex, Scheduling, Thread, WaitQueue},
};

use crate::{
    files::{Files, Watchers, aio::Contexts},
    futex::across::Herald,
    memory::named,
    process::{
        account::{Account, Usage},
        spares::Spares,
        user_limits::UserLimits,
    },
    remote::{end as end_of_linux, lock},
    signal,
    timers::Timers,
};

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// exit(2) with this status.
    Status(i32),
    /// By this signal.
    Signal(u32),
    /// By SIGKILL, because there is no memory left to go on with.
    Starved,
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
    pub spares: Spares,
}

/// A rich real-time process.
pub struct Process {
    /// Its memory.
    pub space: Arc<AddressSpace>,
    /// Number in the channel and the module.
    pub number: ProcessNumber,
    /// Its pid namespace in Linux.
    pub namespace: PidNamespace,
    /// Process id in that, and here.
    pub pid: Pid,
    /// Process id in Linux's first pid namespace, by which those outside of containers know it.
    pub outer_pid: Pid,
    /// Real user id in Linux, when it began.
    pub uid: u32,
    /// What the programs of that user may have, if that is limited.
    pub limits: Option<&'static UserLimits>,
    /// What it may map; see [`limits`].
    own_limits: SpinLock<limits::Own>,
    /// Its ids may differ from `uid` now; see [`Process::certain_uid`].
    has_changed_ids: AtomicBool,
    /// Its ids are those of a user namespace.
    has_foreign_ids: bool,
    /// What it does on signals, and what is pending.
    pub signals: SpinLock<signal::State>,
    /// One thread at a time changes an action, here and in the shadow, or forks.
    pub changing_action: Mutex<()>,
    /// Who is told that a signal is pending for it or one of its threads, over execve; see
    /// [`crate::files::signals`].
    pub signal_watchers: Once<Arc<Watchers>>,
    /// Its timers.
    pub timers: Timers,
    /// Its shadow thread that wakes in Linux.
    pub herald: Herald,
    /// Its threads.
    pub members: Mutex<Members>,
    /// Its contexts of asynchronous transfers.
    pub contexts: Contexts,
    /// Its descriptors; see [`Process::files`].
    pub files: Once<Arc<Files>>,
    /// What it has called the last file that it has mapped.
    pub last_name: named::Last,
    /// What its children used; see [`Process::account`].
    pub account: Once<Arc<Account>>,
    /// By which numbers it knows the CPUs.
    pub numbering: Chosen,
    /// What becomes of lapses of its real-time threads; see [`lapse`].
    pub strict: AtomicU32,
    /// Sockets that it binds to no address are the realm's.
    pub wildcard: AtomicBool,
    end: SpinLock<Option<End>>,
    /// Whether `end` says something.
    ending: AtomicBool,
    /// A thread has told the shadow to end.
    told: AtomicBool,
    /// Its memory is another's (vfork).
    is_guest: bool,
    /// How many of its threads do what ties it to its shadow; see [`Process::tie`].
    ties: AtomicU32,
    /// Its shadow has gone, and it goes on.
    alone: AtomicBool,
    /// Its signals go to the process that goes on under its pid.
    pub bequeaths: AtomicBool,
    /// It has no thread any more, and its memory is free.
    departed: AtomicBool,
    /// Who waits for that.
    departure: WaitQueue,
}

/// While it is there, a process ends with its shadow.
pub struct Tie<'a>(&'a Process);

impl Drop for Tie<'_> {
    fn drop(&mut self) {
        self.0.ties.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Process {
    /// A process without a program and without threads, whose first one gets the slot `owned`.
    /// `is_guest`: its memory is another's.
    pub fn new(space: Arc<AddressSpace>, owned: &OwnedSlot, is_guest: bool) -> Process {
        Process {
            space,
            number: owned.process(),
            namespace: owned.namespace(),
            pid: owned.own_tid().leads(),
            outer_pid: owned.pid(),
            uid: owned.uid(),
            limits: owned.payer().and_then(user_limits::of),
            has_changed_ids: AtomicBool::new(false),
            has_foreign_ids: owned.has_foreign_ids(),
            signals: SpinLock::new(signal::State::default()),
            changing_action: Mutex::new(()),
            signal_watchers: Once::new(),
            timers: Timers::default(),
            herald: Herald::new(),
            members: Mutex::new(Members::default()),
            contexts: Contexts::default(),
            files: Once::new(),
            last_name: named::Last::none(),
            account: Once::new(),
            numbering: Chosen::new(),
            own_limits: SpinLock::new(limits::Own::NONE),
            strict: AtomicU32::new(Strict::No as u32),
            wildcard: AtomicBool::new(false),
            end: SpinLock::new(None),
            ending: AtomicBool::new(false),
            told: AtomicBool::new(false),
            is_guest,
            ties: AtomicU32::new(0),
            alone: AtomicBool::new(false),
            bequeaths: AtomicBool::new(false),
            departed: AtomicBool::new(false),
            departure: WaitQueue::new(),
        }
    }

    /// The CPUs of a thread of it that inherits these.
    pub fn inherited_cpus(&self, cpus: CpuSet) -> CpuSet {
        self.limits.map_or(cpus, |limits| limits.inherited_cpus(cpus))
    }

    /// The scheduling of a thread of it that inherits this.
    pub fn inherited_scheduling(&self, scheduling: Scheduling) -> Scheduling {
        self.limits.map_or(scheduling, |limits| limits.inherited(scheduling))
    }

    /// Its pid namespace, and its id in that.
    pub fn ids(&self) -> (PidNamespace, Pid) {
        (self.namespace, self.pid)
    }

    /// Whether it is the first process of its pid namespace, which is ended by no signal that it
    /// does not handle, but by SIGKILL from outside of it.
    pub fn is_init(&self) -> bool {
        self.pid.get() == 1
    }

    /// Its descriptors.
    pub fn files(&self) -> &Arc<Files> {
        self.files.call_once(|| Arc::new(Files::new()))
    }

    /// Its real user id, if that is certainly what it was when the process began, and its other ids
    /// too: otherwise only Linux knows what it is permitted.
    pub fn certain_uid(&self) -> Option<u32> {
        (!self.has_changed_ids.load(Ordering::Relaxed)).then_some(self.uid)
    }

    /// Its ids differ, or may do so from now on.
    pub fn doubt_ids(&self) {
        self.has_changed_ids.store(true, Ordering::Relaxed);
    }

    /// Whether nobody changes the ids of a thread but the thread itself.
    pub fn keeps_ids(&self) -> bool {
        !self.has_foreign_ids
    }

    /// Has the process end. The first reason counts. Thread context; may sleep.
    pub fn end(&self, end: End) {
        self.end.lock().get_or_insert(end);
        self.ending.store(true, Ordering::Release);
        self.kick();
    }

    /// Whether it goes on when its shadow goes: in a locked realm, and when Linux has ended.
    pub fn outlives_shadow(&self) -> bool {
        end_of_linux::has_ended()
            || lock::is_locked() && !self.is_guest && self.ties.load(Ordering::Relaxed) == 0
    }

    /// Has the process end with its shadow while the result is there: it waits for the shadow to
    /// execute another program, or for a child that has its memory and its stack.
    pub fn tie(&self) -> Tie<'_> {
        self.ties.fetch_add(1, Ordering::Relaxed);
        Tie(self)
    }

    /// Whether a shadow thread of which Linux has told this does nothing any more. One whose
    /// process goes on counts until Linux keeps nothing of it.
    pub fn is_without_shadow(&self, notices: Notices) -> bool {
        notices.gone || notices.leaving && !self.outlives_shadow()
    }

    /// Whether its shadow has gone, and it goes on.
    pub fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Acquire)
    }

    /// Whether Linux does nothing for it any more, and it goes on.
    pub fn is_out_of_reach(&self) -> bool {
        end_of_linux::has_ended() || self.is_alone()
    }

    /// Notes that the shadow is gone, of which Linux has told this: the process ends, whatever else
    /// was to be done, or goes on alone. Thread context; may sleep.
    pub fn note_gone(&self, notices: Notices) {
        if self.is_alone() {
            return;
        }
        // Not as long as Linux has pages of it, which are used for something else when it ends.
        if notices.gone && self.outlives_shadow() {
            if !self.alone.swap(true, Ordering::AcqRel) {
                self.departure.wake_all();
                crtos_core::info!("pid {}: its shadow has gone, and it goes on", self.outer_pid);
            }
            return;
        }
        if self.end.lock().replace(End::Gone) != Some(End::Gone) {
            self.ending.store(true, Ordering::Release);
            self.kick();
        }
    }

    /// Frees the memory of the process, whose last thread is about to be gone. Thread context; may
    /// sleep.
    pub fn depart(&self) {
        // Otherwise it goes with the last process that has it (vfork).
        if Arc::strong_count(&self.space) == 1 {
            self.space.free_pages();
        }
        self.departed.store(true, Ordering::Release);
        self.departure.wake_all();
    }

    /// Waits until a process that has ended in Linux has ended here as well, and its memory is
    /// free; or until it turns out that it goes on alone, or `waiter` is to end. Thread context;
    /// sleeps.
    pub fn wait_for_departure(&self, waiter: &Process) {
        let is_cut_short = |_: &Thread| {
            note_if_gone();
            waiter.is_ending()
        };
        let has_departed = || self.departed.load(Ordering::Acquire) || self.is_alone();
        let _ = self.departure.wait_until(None, is_cut_short, || has_departed().then_some(()));
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
        sum.most_present = sum.most_present.max(self.space.most_present());
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

    /// Has all threads look at what is pending: sleeping ones at once, running ones before they go
    /// on in user mode. Thread context; may sleep.
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
