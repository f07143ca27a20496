// SPDX-License-Identifier: MIT OR Apache-2.0
//! wait4 and waitid: Linux waits, and says what the shadow used. What the child used is known here.

use crtos_abi::{UserAddr, ids::Pid};
use crtos_syscalls::Row;
use linux_raw_sys::general as linux;

use crtos_core::task;

use super::{descriptors::remote, usage};
use crate::{
    abi::{Args, Errno, SysResult},
    memory::user,
    process::{ThreadExt as _, execve, threads},
};

/// wait4(pid, status, options, usage).
pub fn wait4(row: &Row, args: Args) -> SysResult {
    /// The lowest byte of the status of a child that was stopped; the status of one that goes on.
    const STOPPED: u32 = 0x7f;
    const CONTINUED: u32 = 0xffff;
    let [_, status, options, usage, ..] = args;
    let pid = remote(row, args)?;
    let Some(child) = Pid::named(pid) else { return Ok(pid) };
    let [status, usage] = [status, usage].map(UserAddr::new);
    let has_ended = match status {
        UserAddr::NULL => options as u32 & (linux::WUNTRACED | linux::WCONTINUED) == 0,
        address => {
            let status = user::read_u32(address)?;
            status & 0xff != STOPPED && status != CONTINUED
        }
    };
    account(child, has_ended, usage)?;
    Ok(pid)
}

/// waitid(type, id, information, options, usage).
pub fn waitid(row: &Row, args: Args) -> SysResult {
    /// Places in `siginfo`.
    const CODE: u64 = 8;
    const PID: u64 = 16;
    let [_, _, information, options, usage, _] = args;
    let result = remote(row, args)?;
    let [information, usage] = [information, usage].map(UserAddr::new);
    // Without it nobody knows which child it was.
    if !information.is_null() {
        let pid = Pid::new(user::read_u32(information + PID)?);
        let ends = [linux::CLD_EXITED, linux::CLD_KILLED, linux::CLD_DUMPED];
        let has_ended = ends.contains(&user::read_u32(information + CODE)?);
        if let Some(pid) = pid {
            account(pid, has_ended && options as u32 & linux::WNOWAIT == 0, usage)?;
        }
    }
    Ok(result)
}

/// Child `pid` was returned by a wait that tells what it used at `address`, unless that is
/// [`UserAddr::NULL`]; with `is_last` it will not be again.
fn account(pid: Pid, is_last: bool, address: UserAddr) -> Result<(), Errno> {
    let current = task::current();
    let process = &current.user().ok_or(Errno::ESRCH)?.process;
    let own = process.account();
    // One that Linux killed may not have noticed yet.
    let living =
        threads::find_process(process, pid).filter(|child| own.is_parent_of(child.account()));
    // As under Linux the memory and the files of who was waited for are free.
    if let Some(child) = living.as_ref().filter(|_| is_last) {
        child.wait_for_departure(process);
    }
    if is_last {
        execve::forget(process, own, pid);
    }
    let used = living.map(|child| child.used_with_children()).or_else(|| own.of_ended(pid));
    let Some(used) = used else { return Ok(()) };
    if is_last {
        own.wait_for(pid, used);
    }
    if address.is_null() { Ok(()) } else { usage::write(address, used) }
}
