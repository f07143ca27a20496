// SPDX-License-Identifier: MIT OR Apache-2.0
//! setrlimit and prlimit64: Linux keeps the limits; what is enforced here is noted here.

use linux_raw_sys::general as linux;

use super::{Args, Errno, SysResult};
use crate::{process::Process, task, threads, user};

/// setrlimit(resource, limit).
pub fn setrlimit(args: Args) -> SysResult {
    let [resource, limit, ..] = args;
    change(linux::__NR_setrlimit, args, 0, resource as u32, limit)
}

/// prlimit64(pid, resource, new, old).
pub fn prlimit64(args: Args) -> SysResult {
    let [pid, resource, new, ..] = args;
    change(linux::__NR_prlimit64, args, pid as u32, resource as u32, new)
}

/// Has Linux make the call, and notes the limit at address `new` if it accepted that.
fn change(nr: u32, args: Args, pid: u32, resource: u32, new: u64) -> SysResult {
    let is_kept = new != 0 && matches!(resource, linux::RLIMIT_SIGPENDING | linux::RLIMIT_NOFILE);
    let soft = if is_kept { Some(user::read_words::<1>(new)?[0]) } else { None };
    let result = super::linux(nr, &args)?;
    if let Some(soft) = soft {
        let current = task::current();
        let user = current.data.user().ok_or(Errno::ESRCH)?;
        if pid == 0 || pid == user.process.pid {
            note(&user.process, resource, soft);
        } else if let Some(process) = threads::find_process(pid) {
            note(&process, resource, soft);
        }
    }
    Ok(result)
}

/// Notes how many signals may be queued for `process`, or how many descriptors it may have.
fn note(process: &Process, resource: u32, soft: u64) {
    match resource {
        linux::RLIMIT_NOFILE => process.files().set_limit(soft),
        _ => process.signals.lock().group.account.limit = soft,
    }
}
