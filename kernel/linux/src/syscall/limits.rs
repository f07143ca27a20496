// SPDX-License-Identifier: MIT OR Apache-2.0
//! setrlimit and prlimit64: Linux keeps the limits; what is enforced here is noted here.

use alloc::sync::Arc;

use crtos_abi::{UserAddr, ids::Pid};
use linux_raw_sys::general as linux;

use crtos_core::task;

use crate::{
    abi::{Args, Errno, SysResult},
    memory::user,
    process::{Process, ThreadExt as _, threads},
    remote, timers,
};

/// setrlimit(resource, limit).
pub fn setrlimit(args: Args) -> SysResult {
    let [resource, limit, ..] = args;
    change(linux::__NR_setrlimit, args, 0, resource as u32, UserAddr::new(limit))
}

/// prlimit64(pid, resource, new, old).
pub fn prlimit64(args: Args) -> SysResult {
    let [pid, resource, new, ..] = args;
    change(linux::__NR_prlimit64, args, pid, resource as u32, UserAddr::new(new))
}

/// Has Linux make the call, and notes the limits at address `new` for the process `pid` (0: the
/// caller's) if Linux accepted them.
fn change(nr: u32, args: Args, pid: u64, resource: u32, new: UserAddr) -> SysResult {
    let is_kept = !new.is_null()
        && matches!(
            resource,
            linux::RLIMIT_SIGPENDING
                | linux::RLIMIT_NOFILE
                | linux::RLIMIT_CPU
                | linux::RLIMIT_RTTIME
        );
    let limits = if is_kept { Some(user::read_words(new)?) } else { None };
    let result = remote::linux(nr, &args)?;
    if let Some(limits) = limits {
        let current = task::current();
        let user = current.user().ok_or(Errno::ESRCH)?;
        if pid as u32 == 0 || user.process.pid.is(pid) {
            note(&user.process, resource, limits)?;
        } else if let Some(process) = Pid::named(pid).and_then(threads::find_process) {
            note(&process, resource, limits)?;
        }
    }
    Ok(result)
}

/// Notes the soft and the hard limit of `process`: how many signals may be queued for it, how many
/// descriptors it may have, or what its threads may run.
fn note(process: &Arc<Process>, resource: u32, limits: [u64; 2]) -> Result<(), Errno> {
    let [soft, _] = limits;
    match resource {
        linux::RLIMIT_NOFILE => process.files().set_limit(soft),
        linux::RLIMIT_SIGPENDING => process.signals.lock().group.account.limit = soft,
        _ => timers::limit(process, resource, limits)?,
    }
    Ok(())
}
