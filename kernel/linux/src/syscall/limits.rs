// SPDX-License-Identifier: MIT OR Apache-2.0
//! setrlimit and prlimit64: Linux keeps the limits; what is enforced here is noted here.

use crtos_abi::ids::Pid;
use linux_raw_sys::general as linux;

use crtos_core::task;

use crate::{
    abi::{Args, Errno, SysResult},
    process::{ThreadExt as _, limits, threads},
    remote,
};

/// setrlimit(resource, limit).
pub fn setrlimit(args: Args) -> SysResult {
    change(linux::__NR_setrlimit, args, 0, args[0] as u32)
}

/// prlimit64(pid, resource, new, old).
pub fn prlimit64(args: Args) -> SysResult {
    let [pid, resource, new, ..] = args;
    match new {
        0 => remote::own_call(linux::__NR_prlimit64, &args),
        _ => change(linux::__NR_prlimit64, args, pid, resource as u32),
    }
}

/// Has Linux make the call, and notes what limits the process `pid` (0: the caller's) has then.
fn change(nr: u32, args: Args, pid: u64, resource: u32) -> SysResult {
    let result = remote::own_call(nr, &args)?;
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let process = match Pid::named(pid).filter(|&pid| pid != user.process.pid) {
        Some(pid) => threads::find_process(&user.process, pid),
        None => Some(user.process.clone()),
    };
    if let Some(process) = process {
        limits::renew(&process, resource)?;
    }
    Ok(result)
}
