// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux knows of this process and its children.

use crtos_abi::ids::{Pid, Tid};
use crtos_syscalls::structs;
use linux_raw_sys::general as linux;

use super::{Errno, call};

/// Returns the soft and the hard limit of a resource (`RLIMIT_*`); no limit if Linux does not know
/// the resource.
pub fn limits(resource: u32) -> linux::rlimit64 {
    let mut limits = linux::rlimit64 { rlim_cur: u64::MAX, rlim_max: u64::MAX };
    let args = [0, resource.into(), 0, &raw mut limits as u64];
    // SAFETY: Linux fills the structure.
    let _ = unsafe { call(linux::__NR_prlimit64, args) };
    limits
}

/// Tells whether programs lie at random addresses (personality(2)).
pub fn is_placed_at_random() -> bool {
    // SAFETY: it only asks.
    let persona = unsafe { call(linux::__NR_personality, [u32::MAX.into()]) };
    persona.is_ok_and(|persona| persona as u32 & structs::ADDR_NO_RANDOMIZE == 0)
}

/// Has Linux write no core when the process dies.
pub fn forbid_core() {
    let none = linux::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let args = [0, linux::RLIMIT_CORE.into(), &raw const none as u64];
    // SAFETY: Linux reads the structure.
    let _ = unsafe { call(linux::__NR_prlimit64, args) };
}

/// Writes to standard error.
pub fn write_stderr(text: &str) {
    // SAFETY: Linux reads the text.
    let _ = unsafe { call(linux::__NR_write, [2, text.as_ptr() as u64, text.len() as u64]) };
}

/// Ends the process.
pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: the call does not return.
        let _ = unsafe { call(linux::__NR_exit_group, [status as u64]) };
    }
}

/// Returns the id of this process.
pub fn pid() -> Pid {
    // SAFETY: the call touches no memory.
    let number = unsafe { call::<0>(linux::__NR_getpid, []) };
    // Every process has one.
    number.ok().and_then(Pid::named).unwrap_or_else(|| exit(126))
}

/// Returns the id of the calling thread.
pub fn tid() -> Tid {
    // SAFETY: the call touches no memory.
    let number = unsafe { call::<0>(linux::__NR_gettid, []) };
    // Every thread has one.
    number.ok().and_then(Tid::named).unwrap_or_else(|| exit(126))
}

/// Waits until process `child` has ended. Returns at once if it is no child of this process, or if
/// somebody has waited for it already.
pub fn wait_for(child: Pid) {
    let child = child.get().into();
    // SAFETY: Linux writes nothing.
    let wait = || unsafe { call(linux::__NR_wait4, [child, 0, linux::__WALL.into(), 0]) };
    while wait() == Err(Errno::EINTR) {}
}

/// Tells whether process `child`, which this one has made, has ended, whether or not somebody has
/// waited for it. One whose parent is another process has ended when that has waited for it.
pub fn has_ended(child: Pid) -> bool {
    let number = child.get().into();
    // A `siginfo`, which begins with the number of a signal: none if the child has not ended.
    let mut info = [0_u32; size_of::<linux::siginfo>() / 4];
    let flags = linux::WEXITED | linux::WNOHANG | linux::WNOWAIT | linux::__WALL;
    let args = [linux::P_PID.into(), number, &raw mut info as u64, flags.into(), 0];
    // SAFETY: Linux writes to the structure.
    if unsafe { call(linux::__NR_waitid, args) }.is_ok() {
        return info[0] != 0;
    }
    // SAFETY: a signal of the number 0 is none.
    let there = unsafe { call(linux::__NR_kill, [number, 0]) };
    there == Err(Errno::ESRCH)
}
