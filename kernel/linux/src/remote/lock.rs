// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the realm is locked: what Linux says or does ends and stops none of its programs.

use core::sync::atomic::{AtomicBool, Ordering};

use crtos_core::mm::layout;

static LOCKED: AtomicBool = AtomicBool::new(false);

/// Looks for the word `locked` on the cell's command line. At boot.
pub fn start() {
    let is_locked = layout::boot_info().words().any(|word| word == b"locked");
    LOCKED.store(is_locked, Ordering::Relaxed);
}

/// Whether the realm is locked. Any context.
pub fn is_locked() -> bool {
    LOCKED.load(Ordering::Relaxed)
}
