// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of the virtual Ethernet, as its card reaches it: words of 8 bytes.

use core::sync::atomic::Ordering;

use crtos_abi::channel::Ethernet;

use crate::channel::{Channel, DoorbellCpu};

/// Bytes of a word.
const WORD: usize = 8;

impl Channel {
    /// Reads the word at a multiple of 8; what Linux wrote before it is visible then. Any context,
    /// as what follows. An offset that is not in the [`Ethernet`] is a mistake of the caller's.
    pub fn ethernet_load(&self, offset: u64) -> u64 {
        self.ethernet_words(offset, WORD)[0].load(Ordering::Acquire)
    }

    /// Writes it; what was written before is visible to who sees it.
    pub fn ethernet_store(&self, offset: u64, value: u64) {
        self.ethernet_words(offset, WORD)[0].store(value, Ordering::Release);
    }

    /// Copies from a multiple of 8 on, while Linux may write.
    pub fn ethernet_read(&self, offset: u64, to: &mut [u8]) {
        let from = self.ethernet_words(offset, to.len());
        let (words, rest) = to.as_chunks_mut();
        for (word, from) in words.iter_mut().zip(from) {
            *word = from.load(Ordering::Relaxed).to_ne_bytes();
        }
        if let (false, Some(last)) = (rest.is_empty(), from.last()) {
            let last = last.load(Ordering::Relaxed).to_ne_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    /// Copies there. What is behind the last byte up to the next multiple of 8 becomes zero.
    pub fn ethernet_write(&self, offset: u64, from: &[u8]) {
        let to = self.ethernet_words(offset, from.len());
        let (words, rest) = from.as_chunks();
        for (&word, to) in words.iter().zip(to) {
            to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        if let (false, Some(to)) = (rest.is_empty(), to.last()) {
            let mut last = [0; WORD];
            last[..rest.len()].copy_from_slice(rest);
            to.store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
    }

    /// The CPU that the word at that offset names: 1 + Linux's number, or 0 for none.
    pub fn ethernet_cpu(&self, offset: u64) -> DoorbellCpu {
        self.ethernet_load(offset).checked_sub(1).map_or(DoorbellCpu::ANY, DoorbellCpu)
    }

    /// Bytes of it.
    pub(crate) const ETHERNET: u64 = size_of::<Ethernet>() as u64;
}
