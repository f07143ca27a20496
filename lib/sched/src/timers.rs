// SPDX-License-Identifier: MIT OR Apache-2.0
//! The timer queue: a binary heap of deadlines with an index, by which a timer is moved or
//! cancelled by its number.
//!
//! With `n` armed timers, arming, moving, cancelling and taking the earliest cost at most
//! `2 log2 n` comparisons (20 for 1024); looking at the earliest costs none. Timers of the same
//! deadline fire in the order in which they were armed.

use crate::time::Nanos;
use alloc::boxed::Box;
use alloc::vec;

/// The place of a timer that is not armed.
const NONE: u16 = u16::MAX;

/// The order of the heap: the deadline, and among equals the order of arming.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Key {
    deadline: Nanos,
    sequence: u64,
}

/// Armed timers. Timers are indices below the capacity.
pub struct TimerQueue {
    /// Timers; the first `length` form a heap, the earliest at index 0.
    heap: Box<[u16]>,
    length: usize,
    /// The earliest deadline; [`Nanos::MAX`] if there is none.
    earliest: Nanos,
    /// The key of each timer.
    key: Box<[Key]>,
    /// The index in `heap` of each timer, or [`NONE`].
    place: Box<[u16]>,
    sequence: u64,
}

impl TimerQueue {
    /// Makes an empty queue for timers `0..capacity`; `capacity` is below 65535.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity < NONE as usize, "more timers than an index can name");
        Self {
            heap: vec![NONE; capacity].into_boxed_slice(),
            length: 0,
            earliest: Nanos::MAX,
            key: vec![Key::default(); capacity].into_boxed_slice(),
            place: vec![NONE; capacity].into_boxed_slice(),
            sequence: 0,
        }
    }

    /// Arms `timer` for `deadline`, or moves it there.
    pub fn arm(&mut self, timer: u16, deadline: Nanos) {
        self.cancel(timer);
        self.key[timer as usize] = Key { deadline, sequence: self.sequence };
        self.sequence += 1;
        self.put(self.length, timer);
        self.length += 1;
        self.rise(self.length - 1);
        self.note_earliest();
    }

    /// Cancels `timer`, and says whether it was armed.
    #[inline]
    pub fn cancel(&mut self, timer: u16) -> bool {
        let place = self.place[timer as usize];
        if place != NONE {
            self.take_out(timer, place);
        }
        place != NONE
    }

    /// Removes `timer` from its `place`.
    fn take_out(&mut self, timer: u16, place: u16) {
        self.place[timer as usize] = NONE;
        self.length -= 1;
        let last = self.heap[self.length];
        if last != timer {
            self.put(place as usize, last);
            self.rise(place as usize);
            self.sink(self.place[last as usize] as usize);
        }
        self.note_earliest();
    }

    fn note_earliest(&mut self) {
        self.earliest = match self.length {
            0 => Nanos::MAX,
            _ => self.key[self.heap[0] as usize].deadline,
        };
    }

    /// Returns the earliest deadline.
    #[inline]
    pub fn next(&self) -> Option<Nanos> {
        (self.length > 0).then_some(self.earliest)
    }

    /// Returns the earliest deadline; [`Nanos::MAX`], which is never, if there is none.
    #[inline]
    pub fn earliest(&self) -> Nanos {
        self.earliest
    }

    /// Returns the earliest timer.
    pub fn first(&self) -> Option<u16> {
        (self.length > 0).then(|| self.heap[0])
    }

    /// Disarms and returns the earliest timer if it is due at `now`.
    #[inline(always)]
    pub fn expire(&mut self, now: Nanos) -> Option<u16> {
        if self.next()? > now { None } else { Some(self.take_first()) }
    }

    #[inline(never)]
    fn take_first(&mut self) -> u16 {
        let timer = self.heap[0];
        self.cancel(timer);
        timer
    }

    /// Returns the deadline of `timer` if it is armed.
    pub fn deadline(&self, timer: u16) -> Option<Nanos> {
        (self.place[timer as usize] != NONE).then(|| self.key[timer as usize].deadline)
    }

    fn put(&mut self, place: usize, timer: u16) {
        self.heap[place] = timer;
        self.place[timer as usize] = place as u16;
    }

    /// Says whether the timer at index `a` expires before the one at `b`.
    fn before(&self, a: usize, b: usize) -> bool {
        self.key[self.heap[a] as usize] < self.key[self.heap[b] as usize]
    }

    fn swap(&mut self, a: usize, b: usize) {
        let (at_a, at_b) = (self.heap[a], self.heap[b]);
        self.put(a, at_b);
        self.put(b, at_a);
    }

    /// Moves the timer at `place` up to where it belongs.
    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if !self.before(place, parent) {
                break;
            }
            self.swap(place, parent);
            place = parent;
        }
    }

    /// Moves the timer at `place` down to where it belongs.
    fn sink(&mut self, mut place: usize) {
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            if left >= self.length {
                break;
            }
            let child = if right < self.length && self.before(right, left) { right } else { left };
            if !self.before(child, place) {
                break;
            }
            self.swap(place, child);
            place = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Arm(u16, u64),
        Cancel(u16),
        Expire(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0u16..40, 0u64..50).prop_map(|(t, d)| Step::Arm(t, d)),
            1 => (0u16..40).prop_map(Step::Cancel),
            2 => (0u64..50).prop_map(Step::Expire),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(steps in proptest::collection::vec(step(), 0..400)) {
            let mut queue = TimerQueue::new(40);
            let mut model: Vec<(u64, usize, u16)> = Vec::new();
            for (i, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Arm(t, d) => {
                        queue.arm(t, Nanos(d));
                        model.retain(|entry| entry.2 != t);
                        model.push((d, i, t));
                    }
                    Step::Cancel(t) => {
                        let was = model.iter().any(|entry| entry.2 == t);
                        prop_assert_eq!(queue.cancel(t), was);
                        model.retain(|entry| entry.2 != t);
                    }
                    Step::Expire(now) => {
                        let first = model.iter().min().copied().filter(|entry| entry.0 <= now);
                        prop_assert_eq!(queue.expire(Nanos(now)), first.map(|entry| entry.2));
                        model.retain(|entry| Some(*entry) != first);
                    }
                }
                prop_assert_eq!(queue.first(), model.iter().min().map(|entry| entry.2));
                prop_assert_eq!(queue.next(), model.iter().min().map(|entry| Nanos(entry.0)));
                for t in 0..40 {
                    let expected =
                        model.iter().find(|entry| entry.2 == t).map(|entry| Nanos(entry.0));
                    prop_assert_eq!(queue.deadline(t), expected);
                }
            }
        }
    }
}
