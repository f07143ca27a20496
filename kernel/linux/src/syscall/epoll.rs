// SPDX-License-Identifier: MIT OR Apache-2.0
//! epoll: sets of local and remote descriptors. See [`crate::files::epoll`].

use alloc::sync::Arc;

use crtos_abi::UserAddr;
use crtos_syscalls::Row;
use linux_raw_sys::general as linux;

use crtos_core::{
    arch::user_memory,
    time::{self, Nanos},
};

use super::{
    descriptors::remote,
    poll::{InLinux, MILLISECOND, in_linux, masked, read_deadline, rest},
};
use crate::{
    abi::{Args, Errno, SysResult},
    files::{
        self, Source, Watcher,
        epoll::{self, Set, Wanted},
    },
    memory::{Scratch, timespec::write_timespec, user},
    remote::linux as ask,
    signal,
};

/// Bytes of a `struct epoll_event`.
const EVENT: u64 = epoll::EVENT as u64;
/// Most events of a call.
const MOST: u64 = i32::MAX as u64 / EVENT;

/// epoll_create(size) and epoll_create1(flags).
pub fn create(row: &Row, args: Args) -> SysResult {
    let set = Set::new()?;
    let fd = remote(row, args)?;
    files::table()?.sets.put(fd, Some(set));
    Ok(fd)
}

/// epoll_ctl(set, operation, fd, event).
pub fn control(row: &Row, args: Args) -> SysResult {
    let [set, operation, fd, event, ..] = args;
    let operation = operation as u32;
    let files = files::table()?;
    let Some(set) = files.sets.get(set) else {
        if !files.is_hidden(set) && files::find(fd).is_some_and(|file| !file.is_device()) {
            // No set, or one that is Linux's alone.
            ask(linux::__NR_fcntl, &[set, linux::F_GETFD.into()])?;
            return Err(Errno::EINVAL);
        }
        return remote(row, args);
    };
    let wanted = match operation {
        linux::EPOLL_CTL_DEL => Wanted { events: 0, data: 0 },
        _ => read_wanted(UserAddr::new(event))?,
    };
    if let Some(file) = files::find(fd) {
        if file.watchers().is_none() {
            return Err(Errno::EPERM);
        }
        check(operation, wanted)?;
        let source: Arc<dyn Source> = file;
        return control_local(&set, operation, fd as u32, &source, wanted).map(|()| 0);
    }
    if files.is_hidden(fd) {
        return Err(Errno::EBADF);
    }
    let inner = files.sets.get(fd).filter(|inner| !Arc::ptr_eq(inner, &set));
    let in_linux = || {
        let result = ask(row.number.into(), &args)?;
        match operation {
            linux::EPOLL_CTL_ADD => set.add_remote(),
            linux::EPOLL_CTL_DEL => set.remove_remote(),
            _ => {}
        }
        Ok(result)
    };
    let Some(inner) = inner else { return in_linux() };
    let source: Arc<dyn Source> = inner.clone();
    let result = in_linux()?;
    let control = || control_local(&set, operation, fd as u32, &source, wanted);
    if operation != linux::EPOLL_CTL_ADD {
        return control().map(|()| result);
    }
    let here = set.nest(&inner, control);
    if here.is_err() {
        let undo = [args[0], linux::EPOLL_CTL_DEL.into(), fd];
        let _ = ask(linux::__NR_epoll_ctl, &undo);
        set.remove_remote();
    }
    here.map(|()| result)
}

/// What Linux refuses before it looks for the member.
fn check(operation: u32, wanted: Wanted) -> Result<(), Errno> {
    let known = [linux::EPOLL_CTL_ADD, linux::EPOLL_CTL_MOD, linux::EPOLL_CTL_DEL];
    let exclusive =
        wanted.is_exclusive() && (operation == linux::EPOLL_CTL_MOD || !wanted.may_be_exclusive());
    if !known.contains(&operation) || exclusive { Err(Errno::EINVAL) } else { Ok(()) }
}

fn control_local(
    set: &Arc<Set>,
    operation: u32,
    fd: u32,
    source: &Arc<dyn Source>,
    wanted: Wanted,
) -> Result<(), Errno> {
    match operation {
        linux::EPOLL_CTL_ADD => set.add(fd, source, wanted),
        linux::EPOLL_CTL_MOD => set.change(fd, source, wanted),
        _ => set.remove(fd, source),
    }
}

fn read_wanted(address: UserAddr) -> Result<Wanted, Errno> {
    let mut event = [0; epoll::EVENT];
    user::read(address, &mut event)?;
    Ok(Wanted::from_bytes(event))
}

/// Until when a call waits, and how its time was given.
struct Deadline {
    /// Kernel time; `None`: for ever.
    at: Option<Nanos>,
    /// In nanoseconds instead of milliseconds.
    fine: bool,
}

impl Deadline {
    fn of_milliseconds(timeout: u64) -> Self {
        let timeout = timeout as i32;
        let at = (timeout >= 0).then(|| time::now() + Nanos::from_millis(timeout as u64));
        Self { at, fine: false }
    }

    fn is_over(&self) -> bool {
        self.at.is_some_and(|at| at <= time::now())
    }
}

/// epoll_wait(set, events, most, milliseconds).
pub fn wait(row: &Row, args: Args) -> SysResult {
    let [set, events, most, timeout, ..] = args;
    match files::table()?.sets.get(set) {
        Some(found) => {
            let deadline = Deadline::of_milliseconds(timeout);
            wait_for(&found, set, UserAddr::new(events), most, deadline)
        }
        None => remote(row, args),
    }
}

/// epoll_pwait(set, events, most, milliseconds, mask, size) and epoll_pwait2 with a
/// `struct timespec`.
pub fn pwait(row: &Row, args: Args) -> SysResult {
    let [set, events, most, timeout, mask, size] = args;
    let mask = UserAddr::new(mask);
    let Some(found) = files::table()?.sets.get(set) else {
        let args = [set, events, most, timeout, 0, 0];
        let look = || look_in_linux(set, UserAddr::new(events), most);
        return masked(row, args, (mask, size), look);
    };
    let deadline = if u32::from(row.number) == linux::__NR_epoll_pwait2 {
        Deadline { at: read_deadline(UserAddr::new(timeout))?, fine: true }
    } else {
        Deadline::of_milliseconds(timeout)
    };
    let events = UserAddr::new(events);
    signal::masked(mask, size, || wait_for(&found, set, events, most, deadline))
}

/// Waits for `set`, which is descriptor `fd`.
fn wait_for(set: &Set, fd: u64, events: UserAddr, most: u64, deadline: Deadline) -> SysResult {
    let most = most as i32;
    if most <= 0 || most as u64 > MOST {
        return Err(Errno::EINVAL);
    }
    let most = most as u64;
    if !user_memory::is_range(events, most * EVENT) {
        return Err(Errno::EFAULT);
    }
    loop {
        if set.has_remote() {
            return wait_mixed(set, fd, events, most, &deadline);
        }
        let count = report(set, events, most)?;
        if count > 0 || deadline.is_over() {
            return Ok(count);
        }
        set.wait(deadline.at)?;
    }
}

/// As [`Set::report`]; members that have left the realm are Linux's from here on.
fn report(set: &Set, events: UserAddr, most: u64) -> SysResult {
    loop {
        match set.report(events, most) {
            Err(Errno::RESTART_ALWAYS) => files::table()?.follow()?,
            result => return result,
        }
    }
}

/// Waits for a set with remote members: the shadow waits in Linux, and stores what it finds behind
/// the local events.
fn wait_mixed(set: &Set, fd: u64, events: UserAddr, most: u64, deadline: &Deadline) -> SysResult {
    let watcher: Arc<dyn Watcher> = InLinux::of_caller()?;
    let watchers = set.watchers().ok_or(Errno::EINVAL)?;
    watchers.add(watcher.clone())?;
    let result = loop {
        let count = match report(set, events, most) {
            Ok(count) => count,
            Err(error) => break Err(error),
        };
        if count > 0 || deadline.is_over() {
            if count == most {
                break Ok(count);
            }
            // A signal that comes meanwhile changes nothing any more.
            break match look_in_linux(fd, events + count * EVENT, most - count) {
                Ok(more) => Ok(count + more),
                Err(error) if count == 0 => Err(error),
                Err(_) => Ok(count),
            };
        }
        if signal::is_interrupted() {
            // What is ready comes before the signal.
            break match look_in_linux(fd, events, most) {
                Ok(0) => Err(Errno::EINTR),
                other => other,
            };
        }
        match wait_in_linux(fd, events, most, deadline) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(count) if count == most => break Ok(count),
            Ok(count) => {
                let more = report(set, events + count * EVENT, most - count);
                break Ok(count + more.unwrap_or(0));
            }
            Err(error) => break Err(error),
        }
    };
    watchers.remove(&watcher);
    result
}

/// Has Linux look at its half of a set without waiting, so that nothing ends it.
fn look_in_linux(fd: u64, events: UserAddr, most: u64) -> SysResult {
    ask(linux::__NR_epoll_wait, &[fd, events.get(), most, 0])
}

/// Has Linux wait for its half of a set. EINTR if that ended before anything was found.
fn wait_in_linux(fd: u64, events: UserAddr, most: u64, deadline: &Deadline) -> SysResult {
    let Some(at) = deadline.at.filter(|_| deadline.fine) else {
        let timeout = deadline.at.map_or(u64::MAX, |at| rest(at).div_ceil(MILLISECOND));
        return in_linux(linux::__NR_epoll_wait, [fd, events.get(), most, timeout, 0, 0]);
    };
    let space = user::space()?;
    let scratch = Scratch::open(&space, 16)?;
    write_timespec(scratch.start, Nanos(rest(at)))?;
    in_linux(linux::__NR_epoll_pwait2, [fd, events.get(), most, scratch.start.get(), 0, 0])
}
