// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges that Linux has to let go and has not been told of, because it carries out too few: the
//! table of revocations has no place for them.
//!
//! Those of a process are joined, so that a program which goes on unmapping needs little memory.
//! Linux then lets go of what lies between them as well, and asks again for what is still mapped.

use alloc::vec::Vec;

use crtos_abi::ids::ProcessNumber;

use crate::Channel;
use crate::revocations::{Range, Revocations};

/// What waits with a range, and can wait with another one.
pub trait Join: Sized {
    /// Takes `other` in, or gives it back if that would become too large.
    fn join(&mut self, other: Self) -> Result<(), Self>;
}

/// What waits for a place in the table.
pub struct Backlog<T> {
    waiting: Vec<(Range, T)>,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Backlog<T> {
    /// An empty one.
    pub const fn new() -> Self {
        Self { waiting: Vec::new() }
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether Linux is still to be told of a range of `process`.
    pub fn holds(&self, process: ProcessNumber) -> bool {
        self.waiting.iter().any(|(range, _)| range.process == process)
    }

    /// Posts the range at `cursor` if its process may have one more in the table, or moves the
    /// cursor on. False at the end. Takes one look at the table.
    pub fn post_next(
        &mut self,
        table: &mut Revocations<T>,
        channel: Channel,
        cursor: &mut usize,
    ) -> bool {
        let Some((range, _)) = self.waiting.get(*cursor) else { return false };
        if table.has_place(range.process) {
            let (range, payload) = self.waiting.swap_remove(*cursor);
            table.put(channel, range, payload);
        } else {
            *cursor += 1;
        }
        true
    }

    /// Calls `done` with what waits for `process`, whose shadow is gone. At most `limit` calls;
    /// fewer: there is no more.
    pub fn release(&mut self, process: ProcessNumber, limit: usize, mut done: impl FnMut(T)) {
        for _ in 0..limit {
            let of_process = |(range, _): &(Range, T)| range.process == process;
            let Some(index) = self.waiting.iter().position(of_process) else { return };
            done(self.waiting.swap_remove(index).1);
        }
    }

    /// Calls `done` with all that waits, at most `limit` times, when Linux has ended. Fewer calls:
    /// there is no more.
    pub fn abandon(&mut self, limit: usize, mut done: impl FnMut(T)) {
        let first = self.waiting.len().saturating_sub(limit);
        self.waiting.drain(first..).for_each(|(_, payload)| done(payload));
    }
}

impl<T: Join> Backlog<T> {
    /// Has `payload` wait for `range`. Gives it back if there is no memory for it.
    pub fn push(&mut self, range: Range, mut payload: T) -> Result<(), T> {
        for (waiting, other) in &mut self.waiting {
            if waiting.process != range.process {
                continue;
            }
            match other.join(payload) {
                Ok(()) => {
                    let end = (waiting.start + waiting.length).max(range.start + range.length);
                    waiting.start = waiting.start.min(range.start);
                    waiting.length = end - waiting.start;
                    return Ok(());
                }
                Err(back) => payload = back,
            }
        }
        if self.waiting.try_reserve(1).is_err() {
            return Err(payload);
        }
        self.waiting.push((range, payload));
        Ok(())
    }
}
