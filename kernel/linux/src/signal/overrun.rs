// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGXCPU for threads with a reservation that used up a budget (SCHED_FLAG_DL_OVERRUN).

use crtos_core::task;

use super::to_process;
use crate::process::ThreadExt as _;

use crtos_signal::Info;
use linux_raw_sys::general as linux;

/// Sends the calling thread's process SIGXCPU if the thread used up a budget and wants to know.
pub fn tell_overrun() {
    let current = task::current();
    if let (true, Some(user)) = (current.take_overrun(), current.user()) {
        /// `si_code` of signals of the kernel.
        const SI_KERNEL: i32 = 0x80;
        // It is not of the kind that fails.
        let _ = to_process(&user.process, Info::new(linux::SIGXCPU, SI_KERNEL));
    }
}
