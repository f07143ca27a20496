// SPDX-License-Identifier: MIT OR Apache-2.0
//! The run queue: a first-in first-out list for each priority level, and a bitmap of the levels
//! that have threads. Every operation takes constant time.

use alloc::boxed::Box;
use alloc::vec;

/// A priority level; higher runs first. 0 is for ordinary threads, 1 to 99 are the POSIX priorities
/// of real-time threads, and 100 is for threads with SCHED_DEADLINE and for those that inherit from
/// them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Level(u8);

impl Level {
    /// Number of levels.
    pub const COUNT: usize = 101;
    /// SCHED_OTHER and its kin.
    pub const ORDINARY: Self = Self(0);
    /// The highest POSIX priority.
    pub const MAX: Self = Self(99);
    /// SCHED_DEADLINE.
    pub const DEADLINE: Self = Self(100);

    /// Returns the level of a POSIX priority; `None` above 99.
    pub const fn new(priority: u32) -> Option<Self> {
        if priority <= Self::MAX.0 as u32 { Some(Self(priority as u8)) } else { None }
    }

    /// Returns the level of a number from [`Self::get`]; a greater number stands for
    /// [`Self::DEADLINE`].
    pub const fn from_number(number: u8) -> Self {
        if number < Self::DEADLINE.0 { Self(number) } else { Self::DEADLINE }
    }

    /// Returns the level as a number: a POSIX priority, or 100.
    pub const fn get(self) -> u32 {
        self.0 as u32
    }
}

/// The end of a list.
const NONE: u16 = u16::MAX;

/// What the queue knows of one thread.
#[derive(Clone, Copy)]
struct Node {
    next: u16,
    previous: u16,
    level: Level,
    queued: bool,
}

/// A set of levels.
#[derive(Clone, Copy)]
struct Levels([u64; 2]);

impl Levels {
    const NONE: Self = Self([0; 2]);

    fn insert(&mut self, level: Level) {
        self.0[(level.0 as usize / 64) & 1] |= 1 << (level.0 % 64);
    }

    fn remove(&mut self, level: Level) {
        self.0[(level.0 as usize / 64) & 1] &= !(1 << (level.0 % 64));
    }

    fn has(self, level: Level) -> bool {
        self.0[(level.0 as usize / 64) & 1] >> (level.0 % 64) & 1 != 0
    }

    fn highest(self) -> Option<Level> {
        match self.0 {
            [0, 0] => None,
            [low, 0] => Some(Level(low.ilog2() as u8)),
            [_, high] => Some(Level(64 + high.ilog2() as u8)),
        }
    }
}

/// The ready threads of a CPU, by level. Threads are indices below the capacity.
pub struct RunQueue {
    nodes: Box<[Node]>,
    head: [u16; Level::COUNT],
    tail: [u16; Level::COUNT],
    levels: Levels,
}

impl RunQueue {
    /// Makes an empty queue for threads `0..capacity`; `capacity` is below 65535.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity < NONE as usize, "more threads than an index can name");
        let node = Node { next: NONE, previous: NONE, level: Level::ORDINARY, queued: false };
        Self {
            nodes: vec![node; capacity].into_boxed_slice(),
            head: [NONE; Level::COUNT],
            tail: [NONE; Level::COUNT],
            levels: Levels::NONE,
        }
    }

    /// Appends `thread`, which is not queued, to its level.
    #[inline]
    pub fn push_back(&mut self, thread: u16, level: Level) {
        let l = level.0 as usize;
        let tail = self.tail[l];
        self.insert(thread, level, tail, NONE);
    }

    /// Puts `thread`, which is not queued, before all others of its level: a preempted thread runs
    /// next.
    #[inline]
    pub fn push_front(&mut self, thread: u16, level: Level) {
        let l = level.0 as usize;
        let head = self.head[l];
        self.insert(thread, level, NONE, head);
    }

    /// Puts `thread`, which is not queued, behind the first of its level: it runs after that one.
    #[inline]
    pub fn push_second(&mut self, thread: u16, level: Level) {
        match self.head[level.0 as usize] {
            NONE => self.insert(thread, level, NONE, NONE),
            head => self.insert(thread, level, head, self.nodes[head as usize].next),
        }
    }

    /// Takes the first thread of the highest level.
    #[inline]
    pub fn pop(&mut self) -> Option<(u16, Level)> {
        let level = self.highest()?;
        let l = level.0 as usize;
        let thread = self.head[l];
        let node = &mut self.nodes[thread as usize];
        node.queued = false;
        let next = node.next;
        self.head[l] = next;
        if next == NONE {
            self.tail[l] = NONE;
            self.levels.remove(level);
        } else {
            self.nodes[next as usize].previous = NONE;
        }
        Some((thread, level))
    }

    /// Removes `thread` from wherever it is, and says whether it was queued.
    pub fn remove(&mut self, thread: u16) -> bool {
        let node = self.nodes[thread as usize];
        if !node.queued {
            return false;
        }
        let l = node.level.0 as usize;
        match node.previous {
            NONE => self.head[l] = node.next,
            previous => self.nodes[previous as usize].next = node.next,
        }
        match node.next {
            NONE => self.tail[l] = node.previous,
            next => self.nodes[next as usize].previous = node.previous,
        }
        if self.head[l] == NONE {
            self.levels.remove(node.level);
        }
        self.nodes[thread as usize].queued = false;
        true
    }

    /// Iterates over the queued threads in the order in which they would run. Each step takes
    /// constant time.
    pub fn iter(&self) -> impl Iterator<Item = (u16, Level)> + '_ {
        let mut levels = self.levels;
        let mut next = NONE;
        core::iter::from_fn(move || {
            if next == NONE {
                let level = levels.highest()?;
                levels.remove(level);
                next = self.head[level.0 as usize];
            }
            let (thread, node) = (next, self.nodes.get(next as usize)?);
            next = node.next;
            Some((thread, node.level))
        })
    }

    /// Returns the highest level that has a thread.
    pub fn highest(&self) -> Option<Level> {
        self.levels.highest()
    }

    /// Says whether a thread of `level` is queued.
    pub fn has(&self, level: Level) -> bool {
        self.levels.has(level)
    }

    /// Says whether `thread` is queued.
    pub fn contains(&self, thread: u16) -> bool {
        self.nodes[thread as usize].queued
    }

    #[inline]
    fn insert(&mut self, thread: u16, level: Level, previous: u16, next: u16) {
        debug_assert!(!self.nodes[thread as usize].queued);
        let l = level.0 as usize;
        self.nodes[thread as usize] = Node { next, previous, level, queued: true };
        match previous {
            NONE => self.head[l] = thread,
            previous => self.nodes[previous as usize].next = thread,
        }
        match next {
            NONE => self.tail[l] = thread,
            next => self.nodes[next as usize].previous = thread,
        }
        self.levels.insert(level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Debug)]
    enum Step {
        Back(u16, u32),
        Front(u16, u32),
        Second(u16, u32),
        Remove(u16),
        Pop,
    }

    fn step() -> impl Strategy<Value = Step> {
        let level = prop_oneof![0u32..100, Just(0), Just(99)];
        prop_oneof![
            (0u16..24, level.clone()).prop_map(|(t, l)| Step::Back(t, l)),
            (0u16..24, level.clone()).prop_map(|(t, l)| Step::Front(t, l)),
            (0u16..24, level).prop_map(|(t, l)| Step::Second(t, l)),
            (0u16..24).prop_map(Step::Remove),
            Just(Step::Pop),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_an_array_of_lists(steps in proptest::collection::vec(step(), 0..300)) {
            let mut queue = RunQueue::new(24);
            let mut model: Vec<VecDeque<u16>> = vec![VecDeque::new(); Level::COUNT];
            let queued = |model: &Vec<VecDeque<u16>>, t| model.iter().any(|list| list.contains(&t));
            for step in steps {
                match step {
                    Step::Back(t, l) if !queued(&model, t) => {
                        queue.push_back(t, Level::new(l).unwrap());
                        model[l as usize].push_back(t);
                    }
                    Step::Front(t, l) if !queued(&model, t) => {
                        queue.push_front(t, Level::new(l).unwrap());
                        model[l as usize].push_front(t);
                    }
                    Step::Second(t, l) if !queued(&model, t) => {
                        queue.push_second(t, Level::new(l).unwrap());
                        let list = &mut model[l as usize];
                        list.insert(list.len().min(1), t);
                    }
                    Step::Back(..) | Step::Front(..) | Step::Second(..) => {}
                    Step::Remove(t) => {
                        prop_assert_eq!(queue.remove(t), queued(&model, t));
                        model.iter_mut().for_each(|list| list.retain(|&other| other != t));
                    }
                    Step::Pop => {
                        let expected = model.iter_mut().enumerate().rev().find_map(|(l, list)| {
                            list.pop_front().map(|t| (t, Level::new(l as u32).unwrap()))
                        });
                        prop_assert_eq!(queue.pop(), expected);
                    }
                }
                let highest = model.iter().rposition(|list| !list.is_empty()).map(|l| l as u32);
                prop_assert_eq!(queue.highest().map(Level::get), highest);
                let order: Vec<u16> = model.iter().rev().flatten().copied().collect();
                prop_assert_eq!(queue.iter().map(|(t, _)| t).collect::<Vec<_>>(), order);
            }
        }
    }
}
