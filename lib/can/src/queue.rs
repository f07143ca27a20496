// SPDX-License-Identifier: MIT OR Apache-2.0
//! What waits, first in first out, in memory that is there before it comes.

use alloc::collections::VecDeque;

/// A queue that never grows by itself.
#[derive(Debug)]
pub struct Queue<T> {
    places: VecDeque<T>,
    room: usize,
}

impl<T> Queue<T> {
    /// One with room for `room`; `None` if there is no memory for that.
    pub fn new(room: usize) -> Option<Self> {
        Self::for_others(room, 0)
    }

    /// The same where so many may be that another one had: they are [taken](Self::take_all)
    /// nevertheless if that is more.
    pub fn for_others(room: usize, others: usize) -> Option<Self> {
        let mut places = VecDeque::new();
        places.try_reserve_exact(room.max(others)).ok()?;
        Some(Self { places, room })
    }

    /// How many it has room for.
    pub fn room(&self) -> usize {
        self.room
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        self.len() >= self.room
    }

    /// Adds one, or gives it back if there is no room.
    pub fn push(&mut self, one: T) -> Result<(), T> {
        if self.is_full() {
            return Err(one);
        }
        self.places.push_back(one);
        Ok(())
    }

    /// Takes the first.
    pub fn pop(&mut self) -> Option<T> {
        self.places.pop_front()
    }

    /// The first.
    pub fn first(&self) -> Option<&T> {
        self.places.front()
    }

    /// Takes all that is in `other`, or nothing if those are more than were expected; says which.
    /// No more are added before there is room again.
    pub fn take_all(&mut self, other: &mut Self) -> bool {
        if self.len() + other.len() > self.places.capacity() {
            return false;
        }
        self.places.append(&mut other.places);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_grows() {
        let mut queue = Queue::new(3).unwrap();
        let capacity = queue.places.capacity();
        for round in 0..10 {
            for one in 0..3 {
                queue.push(round * 3 + one).unwrap();
            }
            assert_eq!(queue.push(99), Err(99));
            assert_eq!(queue.places.capacity(), capacity);
            assert_eq!([queue.pop(), queue.pop(), queue.pop()].map(Option::unwrap)[0], round * 3);
            assert!(queue.is_empty());
        }
    }

    #[test]
    fn a_smaller_one_takes_all() {
        let (mut large, mut small) = (Queue::new(4).unwrap(), Queue::for_others(2, 3).unwrap());
        (0..4).for_each(|one| large.push(one).unwrap());
        let places = small.places.capacity();
        assert!(places >= 4 || !small.take_all(&mut large) && large.len() == 4);
        let mut small = Queue::for_others(2, 4).unwrap();
        assert!(small.take_all(&mut large) && large.is_empty());
        for one in 0..3 {
            assert_eq!((small.push(9), small.pop()), (Err(9), Some(one)));
        }
        assert_eq!((small.push(4), small.push(5)), (Ok(()), Err(5)));
        assert_eq!((small.pop(), small.pop(), small.pop()), (Some(3), Some(4), None));
    }
}
