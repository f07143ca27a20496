// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue ordered by level, first come first served within one level. It is one list, with the
//! last member of each level noted, so that every operation takes constant time.
//!
//! The links lie in an array of [`Node`]s that several queues share. A member is an index into the
//! array, and is in at most one of the queues. The caller holds the lock of the queue that it uses.
//! Nodes are atomic only because queues under different locks share the array.

use crate::NONE;
use core::sync::atomic::{AtomicU8, AtomicU16, Ordering::Relaxed};
use crtos_sched::Level;

/// The links of one possible member.
pub struct Node {
    next: AtomicU16,
    previous: AtomicU16,
    level: AtomicU8,
}

impl Node {
    /// Makes the links of a member of no queue.
    pub const fn new() -> Self {
        Self { next: AtomicU16::new(NONE), previous: AtomicU16::new(NONE), level: AtomicU8::new(0) }
    }

    /// Returns the level at which it was queued.
    pub fn level(&self) -> Level {
        Level::new(self.level.load(Relaxed).into()).unwrap_or(Level::MAX)
    }
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}

/// A queue over an array of nodes; every call gets the same array.
pub struct LevelQueue {
    first: u16,
    length: u16,
    /// The last member of each level that has one.
    last: [u16; Level::COUNT],
    /// The levels that have a member.
    levels: u128,
}

impl LevelQueue {
    /// Makes an empty queue.
    pub const fn new() -> Self {
        Self { first: NONE, length: 0, last: [NONE; Level::COUNT], levels: 0 }
    }

    /// Returns the number of members.
    pub const fn len(&self) -> usize {
        self.length as usize
    }

    /// Says whether it has no members.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the first member of the highest level.
    pub const fn first(&self) -> Option<u16> {
        if self.first == NONE { None } else { Some(self.first) }
    }

    /// Returns the level of the first member.
    pub const fn highest(&self) -> Option<Level> {
        match self.levels {
            0 => None,
            levels => Level::new(127 - levels.leading_zeros()),
        }
    }

    /// Returns the member behind `member`, which is in the queue.
    pub fn next(&self, nodes: &[Node], member: u16) -> Option<u16> {
        let next = nodes[usize::from(member)].next.load(Relaxed);
        (next != NONE).then_some(next)
    }

    /// Appends `member`, which is in no queue, to its level.
    #[inline(always)]
    pub fn push(&mut self, nodes: &[Node], member: u16, level: Level) {
        match self.length {
            0 => self.start(nodes, member, level),
            _ => self.push_to_others(nodes, member, level),
        }
    }

    /// Appends `member` to its level in a queue that has members.
    #[inline(never)]
    fn push_to_others(&mut self, nodes: &[Node], member: u16, level: Level) {
        let not_lower = self.levels >> level.get();
        let previous = match not_lower {
            0 => NONE,
            _ => self.last[(level.get() + not_lower.trailing_zeros()) as usize],
        };
        self.insert(nodes, member, level, previous);
    }

    /// Puts `member`, which is in no queue, right behind `other`, which is in this one, on the same
    /// level.
    pub fn insert_behind(&mut self, nodes: &[Node], member: u16, other: u16) {
        self.insert(nodes, member, nodes[usize::from(other)].level(), other);
    }

    /// Puts `member`, which is in no queue, before all others, on the level of the first one.
    pub fn push_first(&mut self, nodes: &[Node], member: u16) {
        self.insert(nodes, member, self.highest().unwrap_or_default(), NONE);
    }

    /// Puts `member` into the empty queue.
    #[inline(always)]
    fn start(&mut self, nodes: &[Node], member: u16, level: Level) {
        let at = level.get() as usize;
        let node = &nodes[usize::from(member)];
        node.next.store(NONE, Relaxed);
        node.previous.store(NONE, Relaxed);
        node.level.store(at as u8, Relaxed);
        (self.first, self.length, self.levels) = (member, 1, 1 << at);
        self.last[at] = member;
    }

    /// Puts `member` behind `previous`, or first if that is [`NONE`].
    fn insert(&mut self, nodes: &[Node], member: u16, level: Level, previous: u16) {
        let at = level.get() as usize;
        let next = match previous {
            NONE => core::mem::replace(&mut self.first, member),
            previous => nodes[usize::from(previous)].next.swap_relaxed(member),
        };
        if next != NONE {
            nodes[usize::from(next)].previous.store(member, Relaxed);
        }
        let node = &nodes[usize::from(member)];
        node.next.store(next, Relaxed);
        node.previous.store(previous, Relaxed);
        node.level.store(at as u8, Relaxed);
        if self.levels >> at & 1 == 0 || self.last[at] == previous {
            self.last[at] = member;
        }
        self.levels |= 1 << at;
        self.length += 1;
    }

    /// Removes `member`, which is in this queue.
    #[inline]
    pub fn remove(&mut self, nodes: &[Node], member: u16) {
        if self.length == 1 {
            (self.first, self.length, self.levels) = (NONE, 0, 0);
            return;
        }
        let node = &nodes[usize::from(member)];
        let (next, previous) = (node.next.load(Relaxed), node.previous.load(Relaxed));
        let level = node.level.load(Relaxed);
        match previous {
            NONE => self.first = next,
            previous => nodes[usize::from(previous)].next.store(next, Relaxed),
        }
        if next != NONE {
            nodes[usize::from(next)].previous.store(previous, Relaxed);
        }
        let at = usize::from(level);
        if self.last[at] == member {
            if previous != NONE && nodes[usize::from(previous)].level.load(Relaxed) == level {
                self.last[at] = previous;
            } else {
                self.levels &= !(1 << at);
            }
        }
        self.length -= 1;
    }

    /// Removes and returns the first member of the highest level.
    pub fn pop(&mut self, nodes: &[Node]) -> Option<u16> {
        let first = self.first()?;
        self.remove(nodes, first);
        Some(first)
    }

    /// Iterates over the members in order.
    pub fn iter<'a>(&self, nodes: &'a [Node]) -> impl Iterator<Item = u16> + 'a {
        let somebody = |member: u16| (member != NONE).then_some(member);
        core::iter::successors(somebody(self.first), move |&member| {
            somebody(nodes[usize::from(member)].next.load(Relaxed))
        })
    }
}

impl Default for LevelQueue {
    fn default() -> Self {
        Self::new()
    }
}

trait Exchange {
    fn swap_relaxed(&self, value: u16) -> u16;
}

impl Exchange for AtomicU16 {
    /// Stores `value` and returns what was there. The queue's lock makes a locked instruction
    /// needless.
    fn swap_relaxed(&self, value: u16) -> u16 {
        let before = self.load(Relaxed);
        self.store(value, Relaxed);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u16, u32),
        Behind(u16, usize),
        Remove(u16),
        Pop,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0u16..16, prop_oneof![0u32..100, 0u32..3, Just(99)])
                .prop_map(|(m, l)| Step::Push(m, l)),
            1 => (0u16..16, 0usize..16).prop_map(|(m, at)| Step::Behind(m, at)),
            2 => (0u16..16).prop_map(Step::Remove),
            1 => Just(Step::Pop),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(steps in proptest::collection::vec(step(), 0..200)) {
            let nodes: [Node; 16] = core::array::from_fn(|_| Node::new());
            let mut queue = LevelQueue::new();
            let mut model: Vec<(u16, u32)> = Vec::new();
            for step in steps {
                match step {
                    Step::Push(m, l) if !model.iter().any(|entry| entry.0 == m) => {
                        queue.push(&nodes, m, Level::new(l).unwrap());
                        let at = model.iter().position(|entry| entry.1 < l).unwrap_or(model.len());
                        model.insert(at, (m, l));
                    }
                    Step::Behind(m, at) if !model.iter().any(|entry| entry.0 == m) => {
                        if let Some(&(other, l)) = model.get(at) {
                            queue.insert_behind(&nodes, m, other);
                            model.insert(at + 1, (m, l));
                        }
                    }
                    Step::Push(..) | Step::Behind(..) => {}
                    Step::Remove(m) => {
                        if let Some(at) = model.iter().position(|entry| entry.0 == m) {
                            queue.remove(&nodes, m);
                            model.remove(at);
                        }
                    }
                    Step::Pop => {
                        let expected = (!model.is_empty()).then(|| model.remove(0).0);
                        prop_assert_eq!(queue.pop(&nodes), expected);
                    }
                }
                prop_assert_eq!(
                    queue.iter(&nodes).collect::<Vec<_>>(),
                    model.iter().map(|entry| entry.0).collect::<Vec<_>>()
                );
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(
                    queue.highest().map(Level::get),
                    model.first().map(|entry| entry.1)
                );
            }
        }
    }
}
