// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads by their ids: a futex with an owner names it by its id in the program's memory.

use crate::NONE;

/// Lists over which ids are spread. Linux hands out ids one after the other, so the lists are
/// short.
const LISTS: usize = 1024;

/// The ids of threads `0..N`, in lists of threads with the same remainder.
pub struct Tids<const N: usize> {
    lists: [u16; LISTS],
    next: [u16; N],
    tid: [u32; N],
}

impl<const N: usize> Tids<N> {
    /// Makes a table in which no thread has an id.
    pub const fn new() -> Self {
        Self { lists: [NONE; LISTS], next: [NONE; N], tid: [0; N] }
    }

    /// Gives `thread` the id `tid` (not 0) in place of the one that it has. As many steps as one
    /// list has threads.
    pub fn insert(&mut self, thread: u16, tid: u32) {
        self.remove(thread);
        let list = &mut self.lists[tid as usize % LISTS];
        self.tid[usize::from(thread)] = tid;
        self.next[usize::from(thread)] = core::mem::replace(list, thread);
    }

    /// Takes the id of `thread` away, if it has one. As many steps as one list has threads.
    pub fn remove(&mut self, thread: u16) {
        let tid = core::mem::take(&mut self.tid[usize::from(thread)]);
        let next = self.next[usize::from(thread)];
        let list = &mut self.lists[tid as usize % LISTS];
        if tid == 0 {
            return;
        }
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
    pub fn find(&self, tid: u32) -> Option<u16> {
        let mut at = self.lists[tid as usize % LISTS];
        while at != NONE {
            if self.tid[usize::from(at)] == tid {
                return Some(at);
            }
            at = self.next[usize::from(at)];
        }
        None
    }

    /// Returns the id of `thread`; 0 if it has none.
    pub fn of(&self, thread: u16) -> u32 {
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

    proptest! {
        #[test]
        fn finds_whoever_is_there(steps in proptest::collection::vec((0u16..8, 0u32..3), 0..100)) {
            let mut tids = Tids::<8>::new();
            let mut model = [0u32; 8];
            for (thread, number) in steps {
                // Three ids of the same list for each thread.
                let tid = 1 + u32::from(thread) % 2 + LISTS as u32 * (u32::from(thread) * 3 + number);
                tids.remove(thread);
                model[usize::from(thread)] = 0;
                if number > 0 {
                    tids.insert(thread, tid);
                    model[usize::from(thread)] = tid;
                }
                for (thread, &tid) in model.iter().enumerate() {
                    prop_assert_eq!(tids.of(thread as u16), tid);
                    if tid != 0 {
                        prop_assert_eq!(tids.find(tid), Some(thread as u16));
                    }
                }
                prop_assert_eq!(tids.find(7), None);
            }
        }
    }
}
