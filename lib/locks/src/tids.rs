// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads by their ids: a futex with an owner names it by its id in the program's memory, which is
//! one of the pid namespace of that program.

use crtos_abi::ids::{PidNamespace, Tid};

use crate::NONE;

/// Lists over which ids are spread. Linux hands out ids one after the other, so the lists are
/// short.
const LISTS: usize = 1024;

/// A thread's id, and the namespace that it is one of.
pub type Id = (PidNamespace, Tid);

/// Returns the list that has `id`.
fn list(id: Id) -> usize {
    id.1.get() as usize % LISTS
}

/// The ids of threads `0..N`, in lists of threads with the same remainder.
pub struct Tids<const N: usize> {
    lists: [u16; LISTS],
    next: [u16; N],
    id: [Option<Id>; N],
}

impl<const N: usize> Tids<N> {
    /// Makes a table in which no thread has an id.
    pub const fn new() -> Self {
        Self { lists: [NONE; LISTS], next: [NONE; N], id: [None; N] }
    }

    /// Gives `thread` the id `id` in place of the one that it has. As many steps as one
    /// list has threads.
    pub fn insert(&mut self, thread: u16, id: Id) {
        self.remove(thread);
        let list = &mut self.lists[list(id)];
        self.id[usize::from(thread)] = Some(id);
        self.next[usize::from(thread)] = core::mem::replace(list, thread);
    }

    /// Takes the id of `thread` away, if it has one. As many steps as one list has threads.
    pub fn remove(&mut self, thread: u16) {
        let Some(id) = self.id[usize::from(thread)].take() else { return };
        let next = self.next[usize::from(thread)];
        let list = &mut self.lists[list(id)];
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

    /// Returns the thread that has the id `id`. As many steps as one list has threads.
    pub fn find(&self, id: Id) -> Option<u16> {
        let mut at = self.lists[list(id)];
        while at != NONE {
            if self.id[usize::from(at)] == Some(id) {
                return Some(at);
            }
            at = self.next[usize::from(at)];
        }
        None
    }

    /// Returns the id of `thread`, if it has one.
    pub fn of(&self, thread: u16) -> Option<Id> {
        self.id[usize::from(thread)]
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

    fn id(namespace: u32, number: u32) -> Id {
        (PidNamespace(namespace), Tid::new(number).unwrap())
    }

    proptest! {
        #[test]
        fn finds_whoever_is_there(steps in proptest::collection::vec((0u16..8, 0u32..3), 0..100)) {
            let mut tids = Tids::<8>::new();
            let mut model = [None; 8];
            for (thread, number) in steps {
                let thread = u32::from(thread);
                // Three ids of the same list for each thread, which are another's as well, in
                // another namespace.
                let own = thread / 2 * 2 * 3 + number;
                let new = id(thread % 2, 1 + thread / 2 % 2 + LISTS as u32 * own);
                let thread = thread as u16;
                tids.remove(thread);
                model[usize::from(thread)] = None;
                if number > 0 {
                    tids.insert(thread, new);
                    model[usize::from(thread)] = Some(new);
                }
                for (thread, &id) in model.iter().enumerate() {
                    prop_assert_eq!(tids.of(thread as u16), id);
                    if let Some(id) = id {
                        prop_assert_eq!(tids.find(id), Some(thread as u16));
                    }
                }
                prop_assert_eq!(tids.find(id(0, 7)), None);
            }
        }
    }
}
