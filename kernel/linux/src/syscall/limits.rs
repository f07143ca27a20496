// SPDX-License-Identifier: MIT OR Apache-2.0
//! getrlimit, setrlimit and prlimit64: Linux keeps the limits, but for those of what a process may
//! map; what is enforced here is noted here.

use alloc::sync::Arc;

use crtos_abi::{
    UserAddr,
    ids::{Pid, Tid},
};
use crtos_syscalls::Row;
use linux_raw_sys::general as linux;

use crtos_core::task;

use crate::{
    abi::{Args, Errno, SysResult},
    memory::user,
    process::{
        Process, ThreadExt as _,
        limits::{self, Limit},
        rights::{self, Deed},
        threads,
    },
    remote,
};

/// getrlimit(resource, limit).
pub fn getrlimit(row: &Row, args: Args) -> SysResult {
    let [resource, to, ..] = args;
    let own = named(0)?.and_then(|process| process.own_limit(resource as u32));
    let Some(limit) = own else { return remote::pass(row, args) };
    user::write_words(UserAddr::new(to), limit)?;
    Ok(0)
}

/// setrlimit(resource, limit).
pub fn setrlimit(args: Args) -> SysResult {
    let [resource, new, ..] = args;
    let resource = resource as u32;
    if let Some(process) = named(0)?.filter(|process| process.own_limit(resource).is_some()) {
        return set_own(&process, resource, user::read_words(UserAddr::new(new))?);
    }
    change(linux::__NR_setrlimit, args, 0, resource)
}

/// prlimit64(pid, resource, new, old).
pub fn prlimit64(args: Args) -> SysResult {
    let [pid, resource, new, old, ..] = args;
    let (resource, [new, old]) = (resource as u32, [new, old].map(UserAddr::new));
    let process = named(pid)?;
    let own = process.and_then(|process| Some((process.own_limit(resource)?, process)));
    let Some((before, process)) = own else {
        return match new {
            UserAddr::NULL => remote::own_call(linux::__NR_prlimit64, &args),
            _ => change(linux::__NR_prlimit64, args, pid, resource),
        };
    };
    let limit = if new.is_null() { None } else { Some(user::read_words(new)?) };
    // Linux says who may ask, and change it.
    rights::check_process(&process, Deed::Limit)?;
    remote::own_call(linux::__NR_prlimit64, &[pid, resource.into(), 0, 0])?;
    if let Some(limit) = limit {
        set_own(&process, resource, limit)?;
    }
    if !old.is_null() {
        user::write_words(old, before)?;
    }
    Ok(0)
}

/// The process that the caller names, which may be itself (0); `None` if it is not of the realm.
fn named(pid: u64) -> Result<Option<Arc<Process>>, Errno> {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let Some(pid) = Pid::named(pid).filter(|&pid| pid != user.process.pid) else {
        return Ok(Some(user.process.clone()));
    };
    // Any thread stands for its process.
    let of_thread = |tid| Some(threads::find(&user.process, tid)?.user()?.process.clone());
    let process = threads::find_process(&user.process, pid);
    Ok(process.or_else(|| Tid::new(pid.get()).and_then(of_thread)))
}

/// Changes a limit that Linux is not told of.
fn set_own(process: &Process, resource: u32, limit: Limit) -> SysResult {
    let [soft, hard] = limit;
    if soft > hard {
        return Err(Errno::EINVAL);
    }
    let may_not_raise = || Ok::<_, Errno>(!remote::is_capable(linux::CAP_SYS_RESOURCE)?);
    if process.own_limit(resource).is_some_and(|[_, most]| hard > most) && may_not_raise()? {
        return Err(Errno::EPERM);
    }
    process.set_own_limit(resource, limit);
    Ok(0)
}

/// Has Linux make the call, and notes what limits the process `pid` (0: the caller's) has then.
fn change(nr: u32, args: Args, pid: u64, resource: u32) -> SysResult {
    let result = remote::own_call(nr, &args)?;
    if let Some(process) = named(pid)? {
        limits::renew(&process, resource)?;
    }
    Ok(result)
}
