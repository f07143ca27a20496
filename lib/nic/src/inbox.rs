// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of any length that wait, first in first out, in memory that is there before they come.

use alloc::vec::Vec;

/// Bytes that each message takes beside its own: as many as a frame of Linux has in front, at
/// least.
const COST: usize = 256;

/// What waits, with something that is known of each message.
#[derive(Debug)]
pub struct Inbox<T> {
    bytes: Vec<u8>,
    /// Where the first message begins, and how many bytes all have.
    first: usize,
    used: usize,
    messages: alloc::collections::VecDeque<(T, usize)>,
}

impl<T: Copy> Inbox<T> {
    /// One of so many bytes; `None` if there is no memory for that.
    pub fn new(bytes: usize) -> Option<Self> {
        let mut all = Vec::new();
        all.try_reserve_exact(bytes).ok()?;
        all.resize(bytes, 0);
        let mut messages = alloc::collections::VecDeque::new();
        messages.try_reserve_exact(bytes / COST).ok()?;
        Some(Self { bytes: all, first: 0, used: 0, messages })
    }

    /// Bytes of all messages, and what they cost.
    fn cost(&self) -> usize {
        self.used + self.messages.len() * COST
    }

    /// Whether a message of so many bytes finds room.
    pub fn has_room(&self, length: usize) -> bool {
        self.cost().saturating_add(length).saturating_add(COST) <= self.bytes.len()
    }

    /// Adds a message; `false` if there is no room.
    pub fn push(&mut self, known: T, message: &[u8]) -> bool {
        let length = message.len();
        if !self.has_room(length) {
            return false;
        }
        let at = (self.first + self.used) % self.bytes.len();
        match self.bytes.get_mut(at..at + length) {
            Some(room) => room.copy_from_slice(message),
            None => {
                let (last, first) = message.split_at(self.bytes.len() - at);
                self.bytes[at..].copy_from_slice(last);
                self.bytes[..first.len()].copy_from_slice(first);
            }
        }
        self.used += length;
        self.messages.push_back((known, length));
        true
    }

    /// What is known of the first message, and its bytes: those before the end of the memory, then
    /// those at its beginning.
    pub fn first(&self) -> Option<(&T, [&[u8]; 2])> {
        let (known, length) = self.messages.front()?;
        let all = match self.bytes.get(self.first..self.first + length) {
            Some(bytes) => [bytes, &[]],
            None => {
                let last = &self.bytes[self.first..];
                [last, &self.bytes[..length - last.len()]]
            }
        };
        Some((known, all))
    }

    /// Copies the first message, as much of it as there is room for, and tells its length.
    pub fn peek(&self, to: &mut [u8]) -> Option<(T, usize)> {
        let (&known, [last, first]) = self.first()?;
        let (to, further) = to.split_at_mut(last.len().min(to.len()));
        to.copy_from_slice(&last[..to.len()]);
        let part = first.len().min(further.len());
        further[..part].copy_from_slice(&first[..part]);
        Some((known, last.len() + first.len()))
    }

    /// Takes the first message away; `false` if there is none.
    pub fn pop(&mut self) -> bool {
        let Some((_, length)) = self.messages.pop_front() else { return false };
        self.first = (self.first + length) % self.bytes.len();
        self.used -= length;
        true
    }

    /// The length of the first one.
    pub fn next_length(&self) -> Option<usize> {
        self.messages.front().map(|&(_, length)| length)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// It is a queue of whole messages, whatever their lengths, and does not grow.
        #[test]
        fn it_is_a_queue(
            size in 300usize..4000,
            steps in proptest::collection::vec((0usize..1600, proptest::bool::ANY), 1..200),
        ) {
            let mut inbox = Inbox::new(size).unwrap();
            let capacity = (inbox.bytes.capacity(), inbox.messages.capacity());
            let mut model = std::collections::VecDeque::new();
            for (number, (length, push)) in steps.into_iter().enumerate() {
                if push {
                    let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + number) as u8).collect();
                    let cost = model.iter().map(|(_, b): &(usize, Vec<u8>)| b.len() + COST);
                    let fits = cost.sum::<usize>() + length + COST <= size;
                    assert_eq!(inbox.push(number, &bytes), fits);
                    if fits {
                        model.push_back((number, bytes));
                    }
                } else {
                    let mut to = [0; 1600];
                    let found = inbox.peek(&mut to);
                    inbox.pop();
                    let expected = model.pop_front();
                    assert_eq!(found, expected.as_ref().map(|(n, b)| (*n, b.len())));
                    if let Some((_, bytes)) = expected {
                        assert_eq!(&to[..bytes.len()], &bytes[..]);
                    }
                }
                assert_eq!(inbox.len(), model.len());
                let first = inbox.first().map(|(number, parts)| (*number, parts.concat()));
                assert_eq!(first.as_ref(), model.front());
            }
            assert_eq!(capacity, (inbox.bytes.capacity(), inbox.messages.capacity()));
        }
    }
}
