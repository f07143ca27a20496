// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which threads and processes there are, by their ids in their pid namespaces: an id means what it
//! does in Linux to the process that names it, and nobody else.

use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use core::ops::Bound;

use crtos_abi::ids::{Pid, PidNamespace, Tid};

use crtos_channel::OwnedSlot;
use crtos_core::task::{Mutex, Thread};

use crate::process::{Process, ThreadExt as _, UserThread, account::Usage, spares};

/// Threads by their ids.
static THREADS: Mutex<BTreeMap<(PidNamespace, Tid), Arc<Thread>>> = Mutex::new(BTreeMap::new());

/// Processes by their ids.
static PROCESSES: Mutex<BTreeMap<(PidNamespace, Pid), Weak<Process>>> = Mutex::new(BTreeMap::new());

/// The thread that `by` names by that id. Thread context; may sleep.
pub fn find(by: &Process, tid: Tid) -> Option<Arc<Thread>> {
    with_ids((by.namespace, tid))
}

/// The process that `by` names by that id. Thread context; may sleep.
pub fn find_process(by: &Process, pid: Pid) -> Option<Arc<Process>> {
    PROCESSES.lock().get(&(by.namespace, pid)).and_then(Weak::upgrade)
}

/// The thread that has that id in the namespace.
fn with_ids(ids: (PidNamespace, Tid)) -> Option<Arc<Thread>> {
    THREADS.lock().get(&ids).cloned()
}

/// The process that has that id in Linux's first pid namespace. Thread context; may sleep.
pub fn find_outer(pid: Pid) -> Option<Arc<Process>> {
    let mut found = None;
    each_process(|process| {
        if process.outer_pid == pid {
            found = Some(process.clone());
        }
    });
    found
}

/// Calls `each` with every process. Thread context; may sleep.
pub fn each_process(mut each: impl FnMut(&Arc<Process>)) {
    let mut after = Bound::Unbounded;
    loop {
        let next = {
            let processes = PROCESSES.lock();
            let next = processes.range((after, Bound::Unbounded)).next();
            next.map(|(&ids, process)| (ids, process.upgrade()))
        };
        match next {
            Some((next, process)) => {
                after = Bound::Excluded(next);
                process.iter().for_each(&mut each);
            }
            None => break,
        }
    }
}

/// Makes `thread`, whose id is `tid`, known as one of `process`. Thread context; may sleep.
pub fn add(process: &Arc<Process>, tid: Tid, thread: &Arc<Thread>) {
    {
        let mut members = process.members.lock();
        members.threads.push(thread.clone());
        members.running += 1;
    }
    if tid == process.pid.leader() {
        PROCESSES.lock().insert(process.ids(), Arc::downgrade(process));
    }
    THREADS.lock().insert((process.namespace, tid), thread.clone());
}

/// Takes the calling thread, which ends, out of its process. Returns whether it was the last one;
/// then the spares of the process go as well.
pub fn remove(user: &UserThread) -> bool {
    let process = &user.process;
    let is_this = |thread: &Thread| thread.user().is_some_and(|other| core::ptr::eq(other, user));
    let thread = {
        // A process that executed a program and the one that goes on there have the same ids for a
        // while.
        let mut threads = THREADS.lock();
        let ids = (process.namespace, user.tid);
        let same = threads.get(&ids).is_some_and(|thread| is_this(thread));
        same.then(|| threads.remove(&ids))
    };
    let (member, spares, last) = {
        let mut members = process.members.lock();
        let place = members.threads.iter().position(|thread| is_this(thread));
        let member = place.map(|place| members.threads.swap_remove(place));
        if let Some(thread) = &member {
            members.ended.add(Usage::of(thread));
        }
        let last = members.threads.is_empty();
        let spares = last.then(|| members.spares.take_all());
        (member, spares, last)
    };
    if last {
        // Before nobody finds it any more who would wait for that.
        process.depart();
        let mut processes = PROCESSES.lock();
        let same = processes
            .get(&process.ids())
            .is_some_and(|other| core::ptr::eq(other.as_ptr(), Arc::as_ptr(process)));
        if same {
            processes.remove(&process.ids());
        }
    }
    drop((thread, member));
    if let Some((ready, others)) = spares {
        spares::dispose(ready.into_iter().chain(others));
    }
    last
}

/// Whether Linux has given an id of `owned`, which has no thread yet, to a program of the realm
/// before, which goes on without its shadow.
pub fn is_taken(owned: &OwnedSlot) -> bool {
    let by_tid = with_ids((owned.namespace(), owned.own_tid()));
    let of_thread = by_tid.as_ref().and_then(|thread| thread.user()).map(|user| &*user.process);
    let mut is_taken = of_thread.is_some_and(Process::is_alone);
    each_process(|process| {
        is_taken |= process.is_alone()
            && (process.number == owned.process() || process.outer_pid == owned.pid());
    });
    is_taken
}

/// Whether `process` has one thread at most, and no other process (vfork) has its memory.
pub fn has_memory_alone(process: &Process) -> bool {
    let mut alone = process.members.lock().threads.len() <= 1;
    each_process(|other| {
        alone &= core::ptr::eq(&raw const **other, process)
            || !Arc::ptr_eq(&other.space, &process.space);
    });
    alone
}

/// Whether `process` has one thread at most, and no other process (CLONE_FILES) has its
/// descriptors.
pub fn has_files_alone(process: &Process) -> bool {
    process.members.lock().threads.len() <= 1 && Arc::strong_count(process.files()) == 1
}

/// Whether threads of `process` are about to end.
pub fn has_ending(process: &Process) -> bool {
    let members = process.members.lock();
    members.threads.len() > members.running
}
