// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the cell learns of itself: boot information and command line.

use core::sync::atomic::{AtomicPtr, Ordering};

use crtos_abi::boot::{BOOT_MAGIC, BootInfo};

use crate::halt;

static INFO: AtomicPtr<BootInfo> = AtomicPtr::new(core::ptr::null_mut());

pub(crate) fn set(info: *const BootInfo) {
    INFO.store(info.cast_mut(), Ordering::Release);
    if self::info().magic != BOOT_MAGIC {
        halt();
    }
}

/// The boot information.
pub fn info() -> &'static BootInfo {
    // SAFETY: `set` stored the address that the start handed over before anybody could ask; the
    // block never changes.
    unsafe { &*INFO.load(Ordering::Acquire) }
}

/// The command line.
pub fn command_line() -> &'static str {
    core::str::from_utf8(info().line()).unwrap_or_default()
}

/// The value of `name=value` on the command line, in decimal or with 0x in hexadecimal.
pub fn number(name: &str) -> Option<u64> {
    let value = command_line().split_whitespace().find_map(|word| {
        let (key, value) = word.split_once('=')?;
        (key == name).then_some(value)
    })?;
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

/// Tells whether the word `name` is on the command line.
pub fn flag(name: &str) -> bool {
    command_line().split_whitespace().any(|word| word == name)
}
