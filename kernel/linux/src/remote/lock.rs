// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the realm is locked: what Linux says or does ends and stops none of its programs. And
//! whether it is sealed: then Linux brings no new program in either.

use core::sync::atomic::{AtomicBool, Ordering};

use crtos_core::mm::layout;

static LOCKED: AtomicBool = AtomicBool::new(false);

/// In the kernel's own memory, and never cleared: Linux cannot take it back.
static SEALED: AtomicBool = AtomicBool::new(false);

/// Looks for the word `locked` on the cell's command line. At boot.
pub fn start() {
    let is_locked = layout::boot_info().words().any(|word| word == b"locked");
    LOCKED.store(is_locked, Ordering::Relaxed);
}

/// Whether the realm is locked. Any context.
pub fn is_locked() -> bool {
    LOCKED.load(Ordering::Relaxed)
}

/// Seals the realm, if it is locked. Says whether it is sealed then. For the housekeeper, which
/// makes processes: so it is in order with them.
pub fn seal() -> bool {
    if is_locked() {
        SEALED.store(true, Ordering::Relaxed);
    }
    is_sealed()
}

/// Whether the realm is sealed. For the housekeeper.
pub fn is_sealed() -> bool {
    SEALED.load(Ordering::Relaxed)
}
