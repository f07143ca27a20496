// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges that Linux has to let go, and what is in limbo until it did.
//!
//! A page that Linux was given may be mapped in the shadow or pinned by a device's transfer. When
//! the kernel takes it from the program it posts a revocation and keeps the frames here, out of
//! everybody's reach, until Linux reports that it is done. Only revocations that the kernel posted
//! can be done, once each.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crtos_abi::{UserAddr, channel as raw, ids::ProcessNumber};

use crate::channel::{Channel, word};

/// Whole pages of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Whose pages.
    pub process: ProcessNumber,
    /// Page-aligned start.
    pub start: UserAddr,
    /// Bytes, a multiple of the page size.
    pub length: u64,
}

/// State of one entry of the table, as the kernel knows it.
enum Entry<T> {
    Free,
    /// Posted; the payload waits. `None` when the process has gone and the payload was taken.
    Out {
        process: ProcessNumber,
        payload: Option<T>,
    },
}

/// The kernel's side of the table of revocations; `T` is what waits (frames).
pub struct Revocations<T> {
    entries: [Entry<T>; raw::REVOCATIONS],
    /// Entries that are out.
    out: usize,
    /// Where to look for a free entry next.
    next: usize,
}

impl<T> Default for Revocations<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Revocations<T> {
    /// An empty table.
    pub const fn new() -> Self {
        Self { entries: [const { Entry::Free }; raw::REVOCATIONS], out: 0, next: 0 }
    }

    /// Whether `process` may have one more out: as many as there are free places. So no process
    /// fills the table, whatever Linux carries out: one leaves half of it to others, two a third.
    pub fn has_place(&self, process: ProcessNumber) -> bool {
        let free = raw::REVOCATIONS - self.out;
        let is_own =
            |entry: &&Entry<T>| matches!(entry, Entry::Out { process: of, .. } if *of == process);
        self.out < free || self.entries.iter().filter(is_own).count() < free
    }

    /// Posts a revocation of `range` and keeps `payload` until it is done. Gives the payload back
    /// when the process has as many out as it may. `Ok(true)`: half of the table is out, ring the
    /// doorbell.
    pub fn post(&mut self, channel: Channel, range: Range, payload: T) -> Result<bool, T> {
        if !self.has_place(range.process) {
            return Err(payload);
        }
        self.put(channel, range, payload);
        Ok(self.out >= raw::REVOCATIONS / 2)
    }

    /// Posts a revocation for which there is a place.
    pub(crate) fn put(&mut self, channel: Channel, range: Range, payload: T) {
        while !matches!(self.entries[self.next], Entry::Free) {
            self.next = (self.next + 1) % raw::REVOCATIONS;
        }
        let index = self.next;
        self.entries[index] = Entry::Out { process: range.process, payload: Some(payload) };
        self.out += 1;
        word!(channel, AtomicU32, revocations[index].process)
            .store(range.process.0, Ordering::Relaxed);
        word!(channel, AtomicU64, revocations[index].start)
            .store(range.start.get(), Ordering::Relaxed);
        word!(channel, AtomicU64, revocations[index].length).store(range.length, Ordering::Relaxed);
        word!(channel, AtomicU32, revocations[index].state)
            .store(raw::REVOCATION_POSTED, Ordering::Release);
        word!(channel, AtomicU32, posted_count).fetch_add(1, Ordering::AcqRel);
        word!(channel, AtomicU64, posted[index / 64]).fetch_or(1 << (index % 64), Ordering::AcqRel);
    }

    /// Calls `done` with the payload of revocations that Linux has carried out, at most `limit` of
    /// them. Fewer than `limit` calls: there is no more.
    pub fn collect(&mut self, channel: Channel, limit: usize, mut done: impl FnMut(T)) {
        let mut left = limit;
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if self.out == 0 || left == 0 {
                return;
            }
            if matches!(entry, Entry::Free)
                || word!(channel, AtomicU32, revocations[index].state).load(Ordering::Acquire)
                    != raw::REVOCATION_DONE
            {
                continue;
            }
            word!(channel, AtomicU32, revocations[index].state)
                .store(raw::REVOCATION_FREE, Ordering::Relaxed);
            self.out -= 1;
            if let Entry::Out { payload: Some(payload), .. } =
                core::mem::replace(entry, Entry::Free)
            {
                left -= 1;
                done(payload);
            }
        }
    }

    /// Calls `done` with what waits for `process`, whose shadow is gone: Linux keeps nothing of it
    /// any more. At most `limit` calls; fewer: there is no more. The entries themselves come back
    /// by [`Revocations::collect`].
    pub fn release(&mut self, process: ProcessNumber, limit: usize, mut done: impl FnMut(T)) {
        let mut left = limit;
        for entry in &mut self.entries {
            if left == 0 {
                return;
            }
            if let Entry::Out { process: of, payload } = entry
                && *of == process
                && let Some(payload) = payload.take()
            {
                left -= 1;
                done(payload);
            }
        }
    }

    /// Calls `done` with all that waits, at most `limit` times, when Linux has ended: nobody
    /// touches it there, and nothing is posted any more. Fewer calls: there is no more.
    pub fn abandon(&mut self, limit: usize, mut done: impl FnMut(T)) {
        let mut left = limit;
        for entry in &mut self.entries {
            if left == 0 {
                return;
            }
            if let Entry::Out { payload, .. } = core::mem::replace(entry, Entry::Free) {
                self.out -= 1;
                if let Some(payload) = payload {
                    left -= 1;
                    done(payload);
                }
            }
        }
    }

    /// Revocations that are out.
    pub fn out(&self) -> usize {
        self.out
    }
}
