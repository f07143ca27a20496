// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's last words: the end of its log, and whether it has ended.
//!
//! Linux may change all of it at any time; each byte is read once for each reading.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crtos_abi::channel as raw;

use crate::channel::{Channel, word};

impl Channel {
    /// How often Linux has said last words, modulo 2^32. What it stored before it counted is
    /// visible then. Any context.
    pub fn last_words_count(&self) -> u32 {
        word!(self, AtomicU32, last_words_count).load(Ordering::Acquire)
    }

    /// Whether Linux says that it has ended. Any context.
    pub fn linux_has_ended(&self) -> bool {
        word!(self, AtomicU32, linux_state).load(Ordering::Acquire) == raw::LINUX_ENDED
    }

    /// Bytes of the last words, at most [`raw::LAST_WORDS_SIZE`].
    pub fn last_words_length(&self) -> usize {
        let length = word!(self, AtomicU32, last_words_length).load(Ordering::Acquire);
        length.min(raw::LAST_WORDS_SIZE) as usize
    }

    /// Copies last words from byte `from` on. Returns how many bytes: fewer than there is room for
    /// at their end.
    pub fn read_last_words(&self, from: usize, to: &mut [u8]) -> usize {
        let count = self.last_words_length().saturating_sub(from).min(to.len());
        for (offset, byte) in to.iter_mut().take(count).enumerate() {
            *byte = word!(self, AtomicU8, last_words[from + offset]).load(Ordering::Relaxed);
        }
        count
    }
}
