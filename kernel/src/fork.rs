// SPDX-License-Identifier: MIT OR Apache-2.0
//! fork and execve.
//!
//! The shadow forks in Linux, and the new shadow asks for a process of its own, as any shadow does. Its thread here finds that it has no
//! executable to load, waits for the parent's [`Fork`] under its pid, copies the parent's memory while the parent waits,
//! and goes on with the parent's registers.
//!
//! execve is left to Linux as well: the shadow executes itself anew with the program, so that descriptors, signals and credentials change as Linux
//! has it; this process ends and another one with its pid begins.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU32, Ordering};

use crtos_abi::{
    PAGE_SIZE,
    channel::{OP_EXEC, OP_FORK},
};
use linux_raw_sys::general as linux;

use crate::{
    arch::{UserContext, fpu},
    mm::frames::SHARED,
    mm::space::{AddressSpace, BadAddress, Kind, Map, MapError, Placement, Protection},
    process::User,
    remote, signal,
    syscall::{Args, Errno, SysResult, linux_result},
    task::{self, Mutex, Thread},
    time::{self, Nanos},
};

/// What a child takes from its parent.
struct Fork {
    /// Pid of the child.
    child: u32,
    /// The parent, which sleeps until `progress` is `DONE`.
    parent: Arc<Thread>,
    progress: AtomicU32,
    context: UserContext,
    bases: (u64, u64),
    state: Vec<u8>,
    /// Where the child's thread id goes (CLONE_CHILD_SETTID), or 0.
    child_tid: u64,
}

const WAITING: u32 = 0;
const COPYING: u32 = 1;
const DONE: u32 = 2;

/// Parents that wait for their children.
static FORKS: Mutex<Vec<Arc<Fork>>> = Mutex::new(Vec::new());

/// How long the two wait for each other to begin; one of them may have been killed.
const PATIENCE: Nanos = Nanos::from_secs(5);
const PERIOD: Nanos = Nanos::from_millis(1);

/// Pages of the pool that a fork leaves free.
const SPARE: u64 = 256;

/// fork() and vfork().
pub fn fork(context: &mut UserContext) -> SysResult {
    split(context, linux::SIGCHLD, 0, 0, None)
}

/// clone(flags, stack, parent tid, child tid, tls), for processes.
pub fn clone(
    context: &mut UserContext,
    [flags, stack, parent_tid, child_tid, tls, _]: Args,
) -> SysResult {
    let flags = flags as u32;
    let known = linux::CSIGNAL
        | linux::CLONE_VM
        | linux::CLONE_VFORK
        | linux::CLONE_PARENT_SETTID
        | linux::CLONE_CHILD_SETTID
        | linux::CLONE_CHILD_CLEARTID
        | linux::CLONE_SETTLS;
    if flags & !known != 0 || flags & linux::CLONE_VM != 0 && flags & linux::CLONE_VFORK == 0 {
        return Err(Errno::ENOSYS);
    }
    let tid_at = if flags & linux::CLONE_CHILD_SETTID != 0 { child_tid } else { 0 };
    let tls = (flags & linux::CLONE_SETTLS != 0).then_some(tls);
    let child = split(context, flags & linux::CSIGNAL, stack, tid_at, tls)?;
    if flags & linux::CLONE_PARENT_SETTID != 0 {
        crate::user::write_u32(parent_tid, child as u32)?;
    }
    Ok(child)
}

/// Makes the child and waits until it has copied what it needs. Returns its pid.
fn split(
    context: &UserContext,
    signal: u32,
    stack: u64,
    child_tid: u64,
    tls: Option<u64>,
) -> SysResult {
    let size = fpu::size();
    let mut state = Vec::new();
    state.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
    state.resize(size, 0);
    fpu::save(&mut state);
    let (fs, gs) = task::segment_bases();
    let mut context = UserContext { rax: 0, orig_rax: u64::MAX, ..*context };
    if stack != 0 {
        context.rsp = stack;
    }
    // The copy, and a little so that the parent is not the one that finds nothing left.
    let present = crate::user::space()?.usage().1 / PAGE_SIZE;
    if SHARED.usage().1 < present + SPARE {
        return Err(Errno::ENOMEM);
    }
    if FORKS.lock().try_reserve(1).is_err() {
        return Err(Errno::ENOMEM);
    }
    let child = linux_result(remote::request(OP_FORK, 0, [signal.into(), 0, 0, 0, 0, 0])?)?;
    let fork = Arc::new(Fork {
        child: child as u32,
        parent: task::current().arc(),
        progress: AtomicU32::new(WAITING),
        context,
        bases: (tls.unwrap_or(fs), gs),
        state,
        child_tid,
    });
    FORKS.lock().push(fork.clone());
    let deadline = time::now() + PATIENCE;
    while fork.progress.load(Ordering::Acquire) != DONE {
        task::block(Some(time::now() + PERIOD));
        let late = time::now() > deadline;
        let mut forks = FORKS.lock();
        if late && fork.progress.load(Ordering::Acquire) == WAITING {
            forks.retain(|other| !Arc::ptr_eq(other, &fork));
            break;
        }
    }
    Ok(child)
}

/// Why a child cannot take over from its parent.
#[derive(Debug)]
pub enum AdoptError {
    /// Nobody forked it.
    NoParent,
    /// No memory for the copy.
    Memory,
}

impl From<MapError> for AdoptError {
    fn from(_: MapError) -> Self {
        Self::Memory
    }
}

impl From<BadAddress> for AdoptError {
    fn from(_: BadAddress) -> Self {
        Self::Memory
    }
}

/// Registers and segment bases with which a child goes on. It is called in the child's thread.
pub fn adopt(user: &User) -> Result<(UserContext, (u64, u64)), AdoptError> {
    let fork = find(user.process.pid)?;
    let copied = copy(user, &fork);
    fork.progress.store(DONE, Ordering::Release);
    fork.parent.wake();
    copied.map(|()| (fork.context, fork.bases))
}

/// The parent's part for the child `pid`.
fn find(pid: u32) -> Result<Arc<Fork>, AdoptError> {
    let deadline = time::now() + PATIENCE;
    loop {
        {
            let mut forks = FORKS.lock();
            if let Some(index) = forks.iter().position(|fork| fork.child == pid) {
                let fork = forks.swap_remove(index);
                fork.progress.store(COPYING, Ordering::Release);
                return Ok(fork);
            }
        }
        if time::now() > deadline {
            return Err(AdoptError::NoParent);
        }
        task::sleep_until(time::now() + PERIOD);
    }
}

/// Copies everything that a child has of its parent.
fn copy(user: &User, fork: &Fork) -> Result<(), AdoptError> {
    let parent = fork.parent.data.user().ok_or(AdoptError::NoParent)?;
    copy_memory(&user.process.space, &parent.process.space)?;
    signal::copy(user, parent);
    let policy = parent.policy.load(Ordering::Relaxed);
    if policy & linux::SCHED_RESET_ON_FORK == 0 {
        user.policy.store(policy, Ordering::Relaxed);
        task::current().set_scheduling(fork.parent.scheduling());
    }
    if !fpu::restore(&fork.state) {
        return Err(AdoptError::Memory);
    }
    if fork.child_tid != 0 {
        // As Linux: an address that is none does not matter.
        let _ = user.process.space.write(fork.child_tid, &user.tid.to_le_bytes());
    }
    Ok(())
}

/// Copies the parent's memory, which does not change meanwhile.
fn copy_memory(child: &AddressSpace, parent: &AddressSpace) -> Result<(), AdoptError> {
    let mut regions = Vec::new();
    let mut complete = true;
    parent.regions(&mut |start, end, protection, kind| {
        complete &= regions.try_reserve(1).is_ok();
        if complete {
            regions.push((start, end, protection, kind));
        }
    });
    if !complete {
        return Err(AdoptError::Memory);
    }
    let heap = regions.iter().find(|region| region.3 == Kind::Heap).map(|region| region.0);
    let end = parent.brk(0);
    child.set_brk_start(heap.unwrap_or(end));
    child.brk(end);
    let writable = Protection::READ | Protection::WRITE;
    for &(start, end, _, kind) in &regions {
        if kind != Kind::Heap {
            let placement = Placement::NoReplace(start);
            child.map(Map {
                placement,
                length: end - start,
                protection: writable,
                kind,
                populate: false,
            })?;
        }
    }
    let mut page = Vec::new();
    page.try_reserve_exact(PAGE_SIZE as usize).map_err(|_| AdoptError::Memory)?;
    page.resize(PAGE_SIZE as usize, 0);
    let mut at = 0;
    while let Some((address, size)) = parent.next_present(at) {
        at = address + size;
        for address in (address..at).step_by(PAGE_SIZE as usize) {
            parent.read_forced(address, &mut page)?;
            child.write(address, &page)?;
        }
    }
    for (start, end, protection, _) in regions {
        if protection != writable {
            child.protect(start, end - start, protection)?;
        }
    }
    Ok(())
}

/// execve(path, arguments, environment).
pub fn execve([path, arguments, environment, ..]: Args) -> SysResult {
    let mask = signal::mask();
    linux_result(remote::request(OP_EXEC, 0, [path, arguments, environment, mask, 0, 0])?)
}
