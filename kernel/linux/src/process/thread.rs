// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process side of a thread of a program.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use crtos_abi::{
    UserAddr,
    channel::{THREAD_RUNNING, THREAD_SLEEPING},
    ids::Tid,
};
use crtos_channel::{Heritage, OwnedSlot, Slot, Status};
use crtos_core::{
    sync::SpinLock,
    task::{Mutex, Thread},
};

use super::{Process, Restart, ids::Ids, speculation::Speculation, start::Birth};
use crate::{
    futex::{Woken, across::Representative},
    signal::Membership,
};

/// The process side of a thread of a program.
pub struct UserThread {
    /// Its process.
    pub process: Arc<Process>,
    /// Its slot in the channel.
    pub slot: Slot,
    /// Thread id, in Linux and here.
    pub tid: Tid,
    /// The slot, until the thread has ended.
    pub owned_slot: SpinLock<Option<OwnedSlot>>,
    /// Its place among the threads that signals go to.
    pub signals: Membership,
    /// What it has sent to itself in the call that is about to return, or 0; see
    /// [`crate::signal::deliver_own`].
    pub own_signal: AtomicU32,
    /// It waits for a system call in Linux that a signal may end.
    pub interruptible: AtomicBool,
    /// A signal was forwarded during the shadow's last system call, which may have ended that
    /// although it does not concern this thread.
    pub disturbed: AtomicBool,
    /// The shadow's system call was to end; that may still meet one that it was not meant for.
    pub interrupted: AtomicBool,
    /// A call that a signal interrupted and that can go on.
    pub restart: SpinLock<Option<Restart>>,
    /// Its shadow thread that waits in Linux at words that both realms share.
    pub representative: Representative,
    /// The slot beside its own at which it waits for Linux, as [`Slot::to_word`] tells it.
    pub beside: AtomicU32,
    /// The last wake-up that it got at a futex that processes share.
    pub woken: SpinLock<Option<Woken>>,
    /// Address and length of the robust list.
    pub robust_list: SpinLock<(UserAddr, u64)>,
    /// The word to clear and wake when the thread has left the memory of the process, or 0.
    clear_child_tid: AtomicU64,
    /// What threads inherit of its shadow thread; see [`Self::heritage`].
    heritage: AtomicU32,
    /// Its scheduling is changed by one thread of its process at a time, here and in Linux.
    pub rescheduling: Mutex<()>,
    /// What is known of its ids in Linux.
    pub ids: Ids,
    /// What it has asked for of what the processor executes ahead.
    pub speculation: Speculation,
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
    /// A lapse that is to be told of, or 0; see [`super::lapse`].
    pub lapse: AtomicU32,
    /// It called exit(2): it is to end, if the process is not.
    exits: AtomicBool,
    pub(super) status: AtomicI32,
}

impl UserThread {
    /// A thread of `process` whose slot is `owned`, which comes later ([`super::start::begin`]).
    pub fn new(process: Arc<Process>, owned: &OwnedSlot) -> UserThread {
        UserThread {
            process,
            slot: owned.slot(),
            tid: owned.own_tid(),
            owned_slot: SpinLock::new(None),
            signals: Membership::default(),
            own_signal: AtomicU32::new(0),
            interruptible: AtomicBool::new(false),
            disturbed: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            restart: SpinLock::new(None),
            representative: Representative::new(),
            beside: AtomicU32::new(0),
            woken: SpinLock::new(None),
            robust_list: SpinLock::new((UserAddr::NULL, 0)),
            clear_child_tid: AtomicU64::new(0),
            heritage: AtomicU32::new(owned.heritage().get()),
            rescheduling: Mutex::new(()),
            ids: Ids::new(),
            speculation: Speculation::new(),
            command: SpinLock::new([0; 16]),
            birth: SpinLock::new(Birth::default()),
            state: AtomicU32::new(THREAD_RUNNING),
            local_calls: AtomicU64::new(0),
            remote_calls: AtomicU64::new(0),
            lapse: AtomicU32::new(0),
            exits: AtomicBool::new(false),
            status: AtomicI32::new(0),
        }
    }

    /// Notes the word to clear and wake when the thread has left the memory of the process, or
    /// [`UserAddr::NULL`].
    pub fn set_clear_child_tid(&self, address: UserAddr) {
        self.clear_child_tid.store(address.get(), Ordering::Relaxed);
    }

    /// Returns that word; there is none afterwards.
    pub fn take_clear_child_tid(&self) -> UserAddr {
        UserAddr::new(self.clear_child_tid.swap(0, Ordering::Relaxed))
    }

    /// What threads inherit that it starts.
    pub fn heritage(&self) -> Heritage {
        Heritage::new(self.heritage.load(Ordering::Relaxed))
    }

    /// Notes that they inherit something else from now on. The process's members are locked.
    pub(super) fn set_heritage(&self, heritage: Heritage) {
        self.heritage.store(heritage.get(), Ordering::Relaxed);
    }

    /// Whether `id` means this thread in calls where 0 is the caller.
    pub fn is(&self, id: u64) -> bool {
        id as u32 == 0 || self.tid.is(id)
    }

    /// Whether it is the first thread of its process.
    pub fn is_leader(&self) -> bool {
        self.tid == self.process.pid.leader()
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
        if let Some(owned) = &*self.owned_slot.lock() {
            owned.publish_command(&command);
        }
    }

    /// Brings what `crtos ps` shows of `thread`, which is this one, up to date.
    pub fn publish(&self, thread: &Thread) {
        let is_asleep = thread.is_asleep();
        let mut status = Status {
            state: THREAD_RUNNING,
            priority: thread.scheduling().level.get(),
            run_time: thread.run_time().0,
            switches: thread.switches(),
            local_calls: self.local_calls.load(Ordering::Relaxed) + thread.fast_calls(),
            remote_calls: self.remote_calls.load(Ordering::Relaxed),
            pages: self.process.space.usage().1 / crtos_abi::PAGE_SIZE,
        };
        if let Some(owned) = &*self.owned_slot.lock() {
            // Under the lock: what is told last is the last state.
            status.state = match self.state.load(Ordering::Relaxed) {
                THREAD_RUNNING if is_asleep => THREAD_SLEEPING,
                state => state,
            };
            owned.publish(&status);
        }
    }
}

/// Linux's ABI: the personality of this kernel.
pub struct Linux;

/// What a thread of the kernel is for Linux's ABI.
pub trait ThreadExt {
    /// Its process side, if it belongs to a program.
    fn user(&self) -> Option<&UserThread>;
}

impl ThreadExt for Thread {
    #[inline(always)]
    fn user(&self) -> Option<&UserThread> {
        self.carried.get::<Linux>()
    }
}
