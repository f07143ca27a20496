// SPDX-License-Identifier: MIT OR Apache-2.0
//! The descriptors of the shadow's own. They are numbers that the program could use as well, so
//! whoever carries out its system calls looks for them.

use core::sync::atomic::{AtomicI32, Ordering};

use linux_raw_sys::general as linux;

use crate::sys::{file, process::limits};

static DEVICE: AtomicI32 = AtomicI32::new(-1);
static EXECUTABLE: AtomicI32 = AtomicI32::new(-1);

/// Notes which descriptors they are.
pub fn set(device: i32, executable: i32) {
    DEVICE.store(device, Ordering::Relaxed);
    EXECUTABLE.store(executable, Ordering::Relaxed);
}

/// Returns the descriptor of the device, which the program must not reach.
pub fn device() -> i32 {
    DEVICE.load(Ordering::Relaxed)
}

/// Returns the descriptor of the program's executable, which stands for `/proc/self/exe`.
pub fn executable() -> i32 {
    EXECUTABLE.load(Ordering::Relaxed)
}

/// Returns both: that of the device, then that of the executable.
pub fn both() -> [i32; 2] {
    [device(), executable()]
}

/// Where the shadow's descriptors go: out of the way of the program's, which are the lowest.
const HIGH_DESCRIPTOR: u64 = 1000;

/// Moves descriptor `fd` to a high number, or as high as RLIMIT_NOFILE permits, close-on-exec.
/// Returns the number.
pub fn move_away(fd: i32) -> i32 {
    let limit = limits(linux::RLIMIT_NOFILE).rlim_cur;
    match file::copy_from(fd, HIGH_DESCRIPTOR.min(limit.saturating_sub(8))) {
        Ok(moved) => {
            file::close(fd);
            moved
        }
        Err(_) => {
            file::close_on_exec(fd);
            fd
        }
    }
}
