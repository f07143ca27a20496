// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program does to others: process_vm_readv(2), process_vm_writev(2), kcmp(2).

use alloc::sync::Arc;

use crtos_abi::{PAGE_SIZE, UserAddr, ids::Tid};
use crtos_core::{arch, mm::space::AddressSpace, task};
use crtos_syscalls::Row;
use linux_raw_sys::general as linux;
use spin::Once;

use super::descriptors::remote as pass;
use crate::{
    abi::{Args, Errno, SysResult},
    files::{Description, Files, Memory},
    memory::{Scratch, user},
    process::{
        Process, ThreadExt as _, UserThread,
        rights::{self, Deed},
        threads,
    },
    remote,
};

/// Bytes that are copied at a time.
const PART: usize = 2048;
/// Most ranges of a vector (UIO_MAXIOV).
const RANGES: u64 = 1024;

/// The process of the realm that has a thread of that id.
fn process_of(user: &UserThread, tid: u64) -> Option<Arc<Process>> {
    let thread = Tid::named(tid).and_then(|tid| threads::find(&user.process, tid))?;
    thread.user().map(|user| user.process.clone())
}

/// Fails if the calling thread may not read and change the memory of `process`, of which `tid` is a
/// thread (PTRACE_MODE_ATTACH_REALCREDS of Linux). Sleeps.
fn check_access(user: &UserThread, process: &Arc<Process>, tid: u64) -> Result<(), Errno> {
    /// An address that no program has: whoever may read there is told that it is bad.
    const NOWHERE: u64 = 0xffff_ffff_0000_0000;
    if Arc::ptr_eq(&user.process, process) {
        return Ok(());
    }
    let answer = {
        let space = user::space()?;
        let scratch = Scratch::open(&space, PAGE_SIZE)?;
        let (own, other) = (scratch.start, scratch.start + 16);
        user::write_words(own, [other.get(), 1, NOWHERE, 1])?;
        remote::own_call(linux::__NR_process_vm_readv, &[tid, own.get(), 1, other.get(), 1, 0])
    };
    match answer {
        Err(Errno::EFAULT) => {}
        Err(error) => return Err(error),
        Ok(_) => return Err(Errno::EPERM),
    }
    // The shadow may say anything.
    rights::check_process(process, Deed::Trace)
}

/// process_vm_readv(pid, own, count, other, count, flags).
pub fn process_vm_readv(row: &Row, args: Args) -> SysResult {
    transfer(row, args, |space, at, own, part| {
        space.read(at, part).map_err(|_| ())?;
        Ok(own.write(part))
    })
}

/// process_vm_writev(pid, own, count, other, count, flags).
pub fn process_vm_writev(row: &Row, args: Args) -> SysResult {
    transfer(row, args, |space, at, own, part| {
        let length = own.read(part);
        space.write(at, &part[..length]).map_err(|_| ())?;
        Ok(length)
    })
}

/// Has `step` move bytes between an address of the other process's memory, within a page, and the
/// caller's own, until one of both vectors is at its end or something is no memory. `step` returns
/// how many it has moved; fewer than there was room for if the caller's own memory is bad.
fn transfer(
    row: &Row,
    args: Args,
    step: impl Fn(&AddressSpace, UserAddr, &mut Memory, &mut [u8]) -> Result<usize, ()>,
) -> SysResult {
    let [tid, own, own_count, others, count, flags] = args;
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let mut own = Memory::vector(UserAddr::new(own), own_count)?;
    if own.left() == 0 {
        return Ok(0);
    }
    if count > RANGES {
        return Err(Errno::EINVAL);
    }
    let others = UserAddr::new(others);
    let range = |index: u64| user::read_words::<2>(others.wrapping_add(16 * index));
    let mut is_nothing = true;
    for index in 0..count {
        is_nothing &= range(index)?[1] == 0;
    }
    if is_nothing {
        return Ok(0);
    }
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let Some(process) = process_of(user, tid) else { return pass(row, args) };
    check_access(user, &process, tid)?;
    let (mut done, mut part) = (0, [0; PART]);
    'all: for index in 0..count {
        let Ok([address, mut left]) = range(index) else { break };
        let mut at = UserAddr::new(address);
        while left > 0 && own.left() > 0 && !user.is_ending() {
            let in_page = (PAGE_SIZE - at.page_offset()) as usize;
            let length = in_page.min(PART).min(left.min(own.left()) as usize);
            let moved = step(&process.space, at, &mut own, &mut part[..length]).unwrap_or(0);
            done += moved as u64;
            if moved < length {
                break 'all;
            }
            at = at.wrapping_add(length as u64);
            left -= length as u64;
            // Others of the same priority have their turn.
            task::reschedule_point();
        }
    }
    if done > 0 { Ok(done) } else { Err(Errno::EFAULT) }
}

/// Kinds of things that kcmp(2) compares.
const FILE: u64 = 0;
const VM: u64 = 1;
const FILES: u64 = 2;
const FS: u64 = 3;
const SIGNAL_ACTIONS: u64 = 4;
const IO: u64 = 5;
const SYSTEM_V_SEMAPHORES: u64 = 6;
const EPOLL_MEMBER: u64 = 7;

/// What disguises addresses: as under Linux, the order of two things says nothing of them.
static DISGUISE: Once<[usize; 2]> = Once::new();

/// How two things stand to each other, by their addresses in disguise.
fn order(first: usize, second: usize) -> SysResult {
    let [mask, factor] =
        *DISGUISE.call_once(|| [arch::random(), arch::random() | 1].map(|word| word as usize));
    let [first, second] = [first, second].map(|address| (address ^ mask).wrapping_mul(factor));
    Ok(match first.cmp(&second) {
        core::cmp::Ordering::Equal => 0,
        core::cmp::Ordering::Less => 1,
        core::cmp::Ordering::Greater => 2,
    })
}

/// kcmp(pid, pid, kind, index, index): what is the realm's is compared here.
pub fn kcmp(row: &Row, args: Args) -> SysResult {
    let [first, second, kind, indices @ .., _] = args;
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let found = [first, second].map(|tid| process_of(user, tid));
    let [Some(one), Some(other)] = &found else { return pass(row, args) };
    let kind = u64::from(kind as u32);
    if matches!(kind, FS | IO) {
        return pass(row, args);
    }
    // Linux knows whether the caller may.
    remote::own_call(linux::__NR_kcmp, &[first, second, VM, 0, 0])?;
    rights::check_process(one, Deed::Trace)?;
    rights::check_process(other, Deed::Trace)?;
    let address = |files: &Arc<Files>| Arc::as_ptr(files).addr();
    let has_one_thread = |process: &Process| process.members.lock().threads.len() == 1;
    match kind {
        FILE => {
            let indices = indices.map(|fd| u64::from(fd as u32));
            let files = [local(one, indices[0])?, local(other, indices[1])?];
            match files {
                [Some(one), Some(other)] => order(Arc::as_ptr(&one).addr(), of(&other)),
                [None, None] => pass(row, args),
                // Before all of Linux's.
                [Some(_), None] => exists(second, indices[1]).map(|()| 1),
                [None, Some(_)] => exists(first, indices[0]).map(|()| 2),
            }
        }
        VM => order(Arc::as_ptr(&one.space).addr(), Arc::as_ptr(&other.space).addr()),
        FILES => order(address(one.files()), address(other.files())),
        SIGNAL_ACTIONS => order(Arc::as_ptr(one).addr(), Arc::as_ptr(other).addr()),
        // Under Linux, processes that have started no thread have no list of undos, and so the
        // same one.
        // Their shadows have started some.
        SYSTEM_V_SEMAPHORES if has_one_thread(one) && has_one_thread(other) => Ok(0),
        SYSTEM_V_SEMAPHORES => pass(row, args),
        EPOLL_MEMBER => {
            let mut bytes = [[0; 4]; 3];
            user::read(UserAddr::new(indices[1]), bytes.as_flattened_mut())?;
            let slot = bytes.map(u32::from_le_bytes);
            let [set, member, offset] = slot;
            let file = source(one, u64::from(indices[0] as u32))?;
            let set = other.files().sets.get(set.into());
            let there = set.and_then(|set| set.member(member, offset));
            match (file, there) {
                (Some(file), Some(there)) => order(file, there),
                (None, Some(_)) => exists(first, u64::from(indices[0] as u32)).map(|()| 2),
                // A member of Linux's half is another file; or there is none.
                (Some(_), None) => {
                    let member = [second, second, EPOLL_MEMBER, slot[0].into(), indices[1]];
                    remote::own_call(linux::__NR_kcmp, &member).map(|_| 1)
                }
                (None, None) => pass(row, args),
            }
        }
        _ => Err(Errno::EINVAL),
    }
}

fn of(file: &Arc<Description>) -> usize {
    Arc::as_ptr(file).addr()
}

/// The local file that descriptor `fd` of a process is; `None` if it is one of Linux's, or none.
fn local(process: &Process, fd: u64) -> Result<Option<Arc<Description>>, Errno> {
    let files = process.files();
    match files.find(fd) {
        None if files.is_hidden(fd) => Err(Errno::EBADF),
        found => Ok(found),
    }
}

/// The address of what descriptor `fd` of a process is as a member of a set: a local file, or a set
/// of which a half is here.
fn source(process: &Process, fd: u64) -> Result<Option<usize>, Errno> {
    let file = local(process, fd)?.map(|file| of(&file));
    Ok(file.or_else(|| process.files().sets.get(fd).map(|set| Arc::as_ptr(&set).addr())))
}

/// EBADF if the shadow of thread `tid` has no descriptor `fd`.
fn exists(tid: u64, fd: u64) -> Result<(), Errno> {
    remote::linux(linux::__NR_kcmp, &[tid, tid, FILE, fd, fd]).map(|_| ())
}
