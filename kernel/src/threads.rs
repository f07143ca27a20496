// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads of programs: who is there, how one begins, and the shadow threads that wait for one.
//!
//! A thread needs a shadow thread, which Linux makes. So that a program does not wait for Linux when it starts a thread, a process that has
//! started one gets some shadow threads ahead, its spares. They are made by a spare, too, on behalf of the housekeeper
//! ([`crate::spawn`]), so that no thread of the program waits behind that.

use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};

use crtos_abi::channel::{MOST_NEW_THREADS, OP_THREAD, USER_END};
use crtos_channel::Line;
use linux_raw_sys::general as linux;

use crate::{
    account::Usage,
    arch::{self, UserContext, fpu},
    clone::Wanted,
    fork::Fork,
    futex,
    mm::heap,
    process::{self, Members, Process, ThreadData, User},
    remote, signal, spawn,
    syscall::{Errno, linux_result},
    task::{self, Mutex, Scheduling, Spawn, Thread},
    time::{self, Nanos},
};

/// Threads by their ids in Linux.
static THREADS: Mutex<BTreeMap<u32, Arc<Thread>>> = Mutex::new(BTreeMap::new());

/// Processes by their ids in Linux.
static PROCESSES: Mutex<BTreeMap<u32, Weak<Process>>> = Mutex::new(BTreeMap::new());

/// The thread with that id. Thread context; may sleep.
pub fn find(tid: u32) -> Option<Arc<Thread>> {
    THREADS.lock().get(&tid).cloned()
}

/// The process with that id. Thread context; may sleep.
pub fn find_process(pid: u32) -> Option<Arc<Process>> {
    PROCESSES.lock().get(&pid).and_then(Weak::upgrade)
}

/// Calls `each` with every process. Thread context; may sleep.
pub fn each_process(mut each: impl FnMut(&Arc<Process>)) {
    let mut pid = 0;
    loop {
        let next = {
            let processes = PROCESSES.lock();
            let next = processes.range(pid + 1..).next();
            next.map(|(&pid, process)| (pid, process.upgrade()))
        };
        match next {
            Some((next, process)) => {
                pid = next;
                process.iter().for_each(&mut each);
            }
            None => break,
        }
    }
}

/// Where a new thread of a program begins.
pub struct Beginning {
    /// Registers.
    pub context: UserContext,
    /// FS base and GS base.
    pub bases: (u64, u64),
    /// Extended state.
    pub state: Vec<u8>,
}

impl Beginning {
    /// Where the calling thread is, as its child sees it; `context` are its registers.
    pub fn of_child(context: &UserContext) -> Result<Self, Errno> {
        let mut state = Vec::new();
        state.try_reserve_exact(fpu::size()).map_err(|_| Errno::ENOMEM)?;
        state.resize(fpu::size(), 0);
        fpu::save(&mut state);
        let context = UserContext { rax: 0, orig_rax: u64::MAX, ..*context };
        Ok(Self { context, bases: task::segment_bases(), state })
    }

    /// Changes it as clone(2) was told to.
    pub fn apply(&mut self, wanted: &Wanted) -> Result<(), Errno> {
        if wanted.stack != 0 {
            self.context.rsp = wanted.stack;
        }
        if wanted.has(linux::CLONE_SETTLS) {
            if wanted.tls >= USER_END {
                return Err(Errno::EPERM);
            }
            self.bases.0 = wanted.tls;
        }
        Ok(())
    }
}

/// How a thread of a program comes to be.
#[derive(Default)]
pub enum Birth {
    /// It loads a program, or has begun.
    #[default]
    Program,
    /// It begins where it was told to.
    Thread(Beginning),
    /// It takes over from its parent.
    Fork(Arc<Fork>),
}

/// Body of a thread that knows where to begin. The caller owns nothing that would be lost.
pub fn enter() {
    let current = task::current();
    let Some(user) = current.data.user() else { return };
    let birth = core::mem::take(&mut *user.birth.lock());
    let Birth::Thread(Beginning { context, bases: (fs, gs), state }) = birth else { return };
    // What `fpu::save` has stored is valid.
    fpu::restore(&state);
    drop(state);
    task::set_numbering(user.process.numbering.get());
    process::end_if_due();
    arch::enter_user(&context, fs, gs);
}

/// Starts a thread of a program that runs `body` with slot `line`. Gives the line back if there is no room. (`body` is a function: what it
/// captured would be lost, because it ends in user mode.)
pub fn begin(user: User, line: Line, scheduling: Scheduling, body: fn()) -> Result<(), Line> {
    if !heap::has_reserve() {
        return Err(line);
    }
    let process = user.process.clone();
    let (tid, slot) = (user.tid, user.slot);
    let Ok(place) = signal::join(&user) else { return Err(line) };
    let what = Spawn {
        name: "program",
        scheduling,
        space: Some(process.space.clone()),
        data: ThreadData::of(user),
        affinity: task::current().affinity(),
    };
    let Ok(thread) = task::prepare(what, body) else {
        signal::forget(&process, place);
        return Err(line);
    };
    signal::attach(&thread);
    if let Some(user) = thread.data.user() {
        line.publish_command(&*user.command.lock());
        *user.line.lock() = Some(line);
    }
    {
        let mut members = process.members.lock();
        members.threads.push(thread.clone());
        members.running += 1;
    }
    if tid == process.pid {
        PROCESSES.lock().insert(tid, Arc::downgrade(&process));
    }
    THREADS.lock().insert(tid, thread.clone());
    futex::enter(&thread, tid);
    if process.is_ending() {
        // It may have been told to before the thread was there to hear of it.
        thread.set_attention();
    }
    remote::set_owner(slot, thread.clone());
    task::start(&thread);
    Ok(())
}

/// Takes the calling thread, which ends, out of its process. Returns the spares of the process if it was the last one, and whether it was.
pub fn remove(user: &User) -> (Vec<Line>, bool) {
    let process = &user.process;
    let is_this =
        |thread: &Thread| thread.data.user().is_some_and(|other| core::ptr::eq(other, user));
    let thread = {
        // A process that executed a program and the one that goes on there have the same ids for a while.
        let mut threads = THREADS.lock();
        let same = threads.get(&user.tid).is_some_and(|thread| is_this(thread));
        same.then(|| threads.remove(&user.tid))
    };
    let (member, spares, last) = {
        let mut members = process.members.lock();
        let place = members.threads.iter().position(|thread| is_this(thread));
        let member = place.map(|place| members.threads.swap_remove(place));
        if let Some(thread) = &member {
            members.ended.add(Usage::of(thread));
        }
        let last = members.threads.is_empty();
        let spares = if last { core::mem::take(&mut members.spares) } else { Vec::new() };
        (member, spares, last)
    };
    if last {
        let mut processes = PROCESSES.lock();
        let same = processes
            .get(&process.pid)
            .is_some_and(|other| core::ptr::eq(other.as_ptr(), Arc::as_ptr(process)));
        if same {
            processes.remove(&process.pid);
        }
    }
    drop((thread, member));
    (spares, last)
}

/// Fewest and most spares that a process has which starts threads.
const FEWEST: usize = 4;
const MOST: usize = MOST_NEW_THREADS as usize;

/// A spare of `process`, if there is one. Sees to it that there will be more.
pub fn take_spare(process: &Arc<Process>) -> Option<Line> {
    let (line, wanting) = {
        let mut members = process.members.lock();
        let line = members.pop_spare();
        if line.is_none() {
            // Threads are started faster than spares are made.
            members.goal = (members.goal * 2).clamp(FEWEST, MOST);
        }
        (line, !members.making && members.spares.len() * 2 <= members.goal)
    };
    if wanting {
        spawn::want_spares(process);
    }
    line
}

/// A spare that is to make others, and how many.
pub fn take_maker(process: &Process) -> Option<(Line, u64)> {
    let mut members = process.members.lock();
    let count = (members.goal + 1).saturating_sub(members.spares.len()).min(MOST);
    if members.making || count == 0 {
        return None;
    }
    let line = members.pop_spare()?;
    members.making = true;
    Some((line, count as u64))
}

impl Members {
    /// A spare for a thread.
    fn pop_spare(&mut self) -> Option<Line> {
        if self.spares.len() > self.reserved { self.spares.pop() } else { None }
    }
}

/// Sees to it that the calling thread's process has a spare that no thread gets: for [`borrow_spare`]. Asks Linux.
pub fn reserve_spare() -> Result<(), Errno> {
    let current = task::current();
    let process = &current.data.user().ok_or(Errno::ESRCH)?.process;
    let is_there = {
        let mut members = process.members.lock();
        members.reserved = 1;
        !members.spares.is_empty() || members.making
    };
    if is_there {
        return Ok(());
    }
    let slot = linux_result(remote::request(OP_THREAD, 0, [1, 0, 0, 0, 0, 0])?)?;
    if let Some(line) = spawn::claim(slot as usize, process) {
        give_back(process, line);
    }
    Ok(())
}

/// How long [`borrow_spare`] waits for one that others use, and how often it looks.
const PATIENCE: Nanos = Nanos::from_millis(1000);
const PERIOD: Nanos = Nanos::from_millis(1);

/// A spare of the process with that number in Linux, for a request that the shadow thread of the calling thread cannot serve: it may
/// serve another. To be given back. May sleep; `None` if there is none.
pub fn borrow_spare(number: u32) -> Option<(Arc<Process>, Line)> {
    let deadline = time::now() + PATIENCE;
    while time::now() < deadline {
        let mut found = None;
        each_process(|process| {
            if found.is_none() && process.number == number {
                let line = process.members.lock().spares.pop();
                found = line.map(|line| (process.clone(), line));
            }
        });
        if found.is_some() {
            return found;
        }
        task::sleep_until(time::now() + PERIOD);
    }
    None
}

/// Makes `line` a spare of `process`.
pub fn give_back(process: &Arc<Process>, line: Line) {
    let (refused, wanting) = {
        let mut members = process.members.lock();
        if members.threads.is_empty() || members.spares.try_reserve(1).is_err() {
            (Some(line), false)
        } else {
            members.spares.push(line);
            (None, !members.making && members.spares.len() * 2 <= members.goal)
        }
    };
    spawn::dispose(refused);
    if wanting {
        spawn::want_spares(process);
    }
}

/// Whether threads of `process` are about to end.
pub fn has_ending(process: &Process) -> bool {
    let members = process.members.lock();
    members.threads.len() > members.running
}
