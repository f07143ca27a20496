// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads by their ids: a futex with an owner names it by its id in the program's memory.

use crtos_abi::ids::Tid;

use crate::NONE;

/// Lists over which ids are spread. Linux hands out ids one after the other, so the lists are
/// short.
const LISTS: usize = 1024;

/// Returns the list that has `tid`.
fn list(tid: Tid) -> usize {
    tid.get() as usize % LISTS
}

/// The ids of threads `0..N`, in lists of threads with the same remainder.
pub struct Tids<const N: usize> {
    lists: [u16; LISTS],
    next: [u16; N],
    tid: [Option<Tid>; N],
}

impl<const N: usize> Tids<N> {
    /// Makes a table in which no thread has an id.
    pub const fn new() -> Self {
        Self { lists: [NONE; LISTS], next: [NONE; N], tid: [None; N] }
    }

    /// Gives `thread` the id `tid` in place of the one that it has. As many steps as one
    /// list has threads.
    pub fn insert(&mut self, thread: u16, tid: Tid) {
        self.remove(thread);
        let list = &mut self.lists[list(tid)];
        self.tid[usize::from(thread)] = Some(tid);
        self.next[usize::from(thread)] = core::mem::replace(list, thread);
    }

    /// Takes the id of `thread` away, if it has one. As many steps as one list has threads.
    pub fn remove(&mut self, thread: u16) {
        let Some(tid) = self.tid[usize::from(thread)].take() else { return };
        let next = self.next[usize::from(thread)];
        let list = &mut self.lists[list(tid)];
        if *list == thread {
            *list = next;
            return;
        }
        let mut at = *list;
        while at != NONE {
            let follower = &mut self.next[usize::from(at)];
            if *follower == thread {
                *follower = next;
                return;
            }
            at = *follower;
        }
    }

    /// Returns the thread that has the id `tid`. As many steps as one list has threads.
    pub fn find(&self, tid: Tid) -> Option<u16> {
        let mut at = self.lists[list(tid)];
        while at != NONE {
            if self.tid[usize::from(at)] == Some(tid) {
                return Some(at);
            }
            at = self.next[usize::from(at)];
        }
        None
    }

    /// Returns the id of `thread`, if it has one.
    pub fn of(&self, thread: u16) -> Option<Tid> {
        self.tid[usize::from(thread)]
    }
}

impl<const N: usize> Default for Tids<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(number: u32) -> Tid {
        Tid::new(number).unwrap()
    }

    proptest! {
        #[test]
        fn finds_whoever_is_there(steps in proptest::collection::vec((0u16..8, 0u32..3), 0..100)) {
            let mut tids = Tids::<8>::new();
            let mut model = [None; 8];
            for (thread, number) in steps {
                // Three ids of the same list for each thread.
                let tid =
                    id(1 + u32::from(thread) % 2 + LISTS as u32 * (u32::from(thread) * 3 + number));
                tids.remove(thread);
                model[usize::from(thread)] = None;
                if number > 0 {
                    tids.insert(thread, tid);
                    model[usize::from(thread)] = Some(tid);
                }
                for (thread, &tid) in model.iter().enumerate() {
                    prop_assert_eq!(tids.of(thread as u16), tid);
                    if let Some(tid) = tid {
                        prop_assert_eq!(tids.find(tid), Some(thread as u16));
                    }
                }
                prop_assert_eq!(tids.find(id(7)), None);
            }
        }
    }
}
