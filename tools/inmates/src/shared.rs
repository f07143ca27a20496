// SPDX-License-Identifier: MIT OR Apache-2.0
//! The block of memory that the cell shares with Linux (`crtos cell shared`): 64-bit words that
//! either side may change at any time.

use core::sync::atomic::AtomicU64;

use crtos_abi::LARGE_PAGE_SIZE;
use crtos_abi::boot::CHANNEL_ADDRESS;

use crate::boot;

/// Words of the block.
pub const WORDS: usize = LARGE_PAGE_SIZE as usize / 8;

/// The block; `None` if the cell has none.
pub fn words() -> Option<&'static [AtomicU64; WORDS]> {
    // SAFETY: The block is mapped there, whole and for ever, where the boot information says that
    // it exists; atomics allow the other side's writes.
    (boot::info().has_channel != 0).then(|| unsafe { &*(CHANNEL_ADDRESS as *const _) })
}
