// SPDX-License-Identifier: MIT OR Apache-2.0
//! The remote path of the kernel.

/// Called once at boot in a kernel thread, interrupts on; starts what takes spawns and notices.
pub fn start() {}

/// Called at each switch of threads after the rank of this CPU was stored in the channel and a full
/// fence. Interrupts off; bounded; may wake threads, must not sleep or allocate.
pub fn poll() {}

/// Called when the doorbell rang. Interrupts off; as [`poll`].
pub fn doorbell() {}
