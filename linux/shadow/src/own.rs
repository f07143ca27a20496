// SPDX-License-Identifier: MIT OR Apache-2.0
//! The descriptors of the shadow's own. They are numbers that the program could use as well, so
//! whoever carries out its system calls looks for them.

use core::sync::atomic::{AtomicI32, Ordering};

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
