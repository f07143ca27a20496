// SPDX-License-Identifier: MIT OR Apache-2.0
//! The waiters of futexes: a hash table of keys. Each key has a queue of waiters by level, and, if
//! its owner inherits from them, its lock in the graph of inheritance.
//!
//! A key is in the table while a thread waits for it. A call that may concern any number of threads
//! works in batches: it takes a bounded number of steps and says whether there is more to do, so
//! that the caller can release its spin lock in between. The scanning thread puts its own node into
//! the queue to mark where the scan goes on. The node is free, because that thread does not wait.

use crate::inheritance::Lock;
use crate::{LevelQueue, NONE, Node};
use crtos_sched::Level;

/// Lists over which keys are spread. The multiplier is secret, so programs cannot choose keys of
/// one list.
const LISTS: usize = 1024;

/// The identity of a futex.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Key {
    /// The address space or the memory object.
    pub space: u64,
    /// The address or offset in it, in bytes.
    pub offset: u64,
}

/// How a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// It does not wait, or no longer.
    None,
    /// It waits for a wake-up that has one of these bits.
    Plain(u32),
    /// It waits to be moved to the lock at this key (FUTEX_WAIT_REQUEUE_PI), or for a wake-up.
    Requeue(Key),
    /// It scans the queue, and its node marks the place.
    Marker,
}

/// A waiter is of another kind than the call is for (EINVAL).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mismatch;

/// The wake-up is more than that of a single thread: the caller calls [`Table::wake`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotOne;

/// A futex for which threads wait.
struct Futex {
    key: Key,
    /// The next one in its list, or among the free ones.
    next: u16,
    queue: LevelQueue,
    /// The lock in the graph of inheritance, or [`NONE`].
    lock: u16,
    /// The thread that got the lock from a dead owner and has not yet stored its id in the
    /// program's memory, or [`NONE`].
    heir: u16,
}

struct Waiter {
    futex: u16,
    wait: Wait,
}

/// The futexes of all programs, and their waiters `0..N`.
pub struct Table<const N: usize> {
    lists: [u16; LISTS],
    futexes: [Futex; N],
    free: u16,
    unused: u16,
    waiters: [Waiter; N],
    nodes: [Node; N],
    multiplier: u64,
}

/// A futex in the table, until the next call that removes a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(u16);

impl<const N: usize> Table<N> {
    /// Makes a table without waiters.
    pub const fn new() -> Self {
        Self {
            lists: [NONE; LISTS],
            futexes: [const {
                Futex {
                    key: Key { space: 0, offset: 0 },
                    next: NONE,
                    queue: LevelQueue::new(),
                    lock: NONE,
                    heir: NONE,
                }
            }; N],
            free: NONE,
            unused: 0,
            waiters: [const { Waiter { futex: NONE, wait: Wait::None } }; N],
            nodes: [const { Node::new() }; N],
            multiplier: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Makes the spreading of keys secret. Called before the first use.
    pub fn set_secret(&mut self, secret: u64) {
        self.multiplier ^= secret << 1;
    }

    /// Finds the futex with `key`, if a thread waits for it. As many steps as one list has keys: a
    /// few, because there are no more keys than lists and the spreading is secret.
    pub fn find(&self, key: Key) -> Option<Place> {
        self.find_in(self.list(key), key)
    }

    #[inline(always)]
    fn find_in(&self, list: usize, key: Key) -> Option<Place> {
        let mut at = self.lists[list];
        while at != NONE {
            let futex = &self.futexes[usize::from(at)];
            if futex.key == key {
                return Some(Place(at));
            }
            at = futex.next;
        }
        None
    }

    /// Returns the number of threads that are queued at a futex.
    pub fn len(&self, place: Place) -> usize {
        self.futex(place).queue.len()
    }

    /// Says whether no thread waits.
    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(|&list| list == NONE)
    }

    /// Returns how `thread` waits.
    pub fn waiting(&self, thread: u16) -> Wait {
        self.waiters[usize::from(thread)].wait
    }

    /// Returns the lock of a futex.
    pub fn lock(&self, place: Place) -> Option<Lock> {
        let lock = self.futex(place).lock;
        (lock != NONE).then_some(Lock(lock))
    }

    /// Returns the thread that got the lock from a dead owner and has not yet stored its id.
    pub fn heir(&self, place: Place) -> Option<u16> {
        let heir = self.futex(place).heir;
        (heir != NONE).then_some(heir)
    }

    /// Returns the first waiter that is no marker, and how it waits. As many steps as scans are
    /// under way.
    pub fn first(&self, place: Place) -> Option<(u16, Wait)> {
        let queue = &self.futex(place).queue;
        let mut at = queue.first();
        while let Some(thread) = at {
            match self.waiting(thread) {
                Wait::Marker => at = queue.next(&self.nodes, thread),
                wait => return Some((thread, wait)),
            }
        }
        None
    }

    /// Queues `thread`, which does not wait, at `key`.
    pub fn enqueue(&mut self, thread: u16, level: Level, key: Key, wait: Wait) {
        let Place(at) = self.find(key).unwrap_or_else(|| self.make(key));
        self.futexes[usize::from(at)].queue.push(&self.nodes, thread, level);
        self.waiters[usize::from(thread)] = Waiter { futex: at, wait };
    }

    /// Ends the wait of `thread`, and says whether it waited. As many steps as
    /// [`Table::find`].
    pub fn dequeue(&mut self, thread: u16) -> bool {
        let Waiter { futex, wait } = core::mem::replace(
            &mut self.waiters[usize::from(thread)],
            Waiter { futex: NONE, wait: Wait::None },
        );
        if wait == Wait::None {
            return false;
        }
        self.futexes[usize::from(futex)].queue.remove(&self.nodes, thread);
        self.give_up(Place(futex));
        true
    }

    /// Notes the lock of the futex with `key`; `None` when it has none any more.
    pub fn set_lock(&mut self, key: Key, lock: Option<Lock>) {
        match (self.find(key), lock) {
            (None, None) => {}
            (place, lock) => {
                let place = place.unwrap_or_else(|| self.make(key));
                self.futexes[usize::from(place.0)].lock = lock.map_or(NONE, |lock| lock.0);
                self.give_up(place);
            }
        }
    }

    /// Notes the thread that got the lock of `key` from a dead owner; `None` when that thread has
    /// stored its id.
    pub fn set_heir(&mut self, key: Key, heir: Option<u16>) {
        match (self.find(key), heir) {
            (None, None) => {}
            (place, heir) => {
                let place = place.unwrap_or_else(|| self.make(key));
                self.futexes[usize::from(place.0)].heir = heir.unwrap_or(NONE);
                self.give_up(place);
            }
        }
    }

    /// Removes up to `limit` waiters of `key` that wait for one of `bits`, in their order, and
    /// calls `woken` for each. Looks at up to `steps` waiters. `me` is the calling thread, whose
    /// node marks where to go on. `true` means that there is more to do: the caller calls
    /// [`Table::wake`] again, or [`Table::dequeue`] with `me`.
    pub fn wake(
        &mut self,
        me: u16,
        key: Key,
        bits: u32,
        limit: &mut usize,
        steps: usize,
        mut woken: impl FnMut(u16),
    ) -> Result<bool, Mismatch> {
        let marked = self.waiting(me) == Wait::Marker;
        let Some(place) = self.find(key) else { return Ok(false) };
        let queue = &self.futex(place).queue;
        let mut at = match marked {
            true => queue.next(&self.nodes, me),
            false if self.futex(place).lock != NONE || self.futex(place).heir != NONE => {
                return Err(Mismatch);
            }
            false => queue.first(),
        };
        let mut previous = marked.then_some(me);
        let mut result = Ok(false);
        for step in 0.. {
            let Some(thread) = at.filter(|_| *limit > 0) else { break };
            if step == steps {
                result = Ok(true);
                break;
            }
            at = self.futex(place).queue.next(&self.nodes, thread);
            match self.waiting(thread) {
                Wait::Plain(wanted) if wanted & bits != 0 => {
                    self.futexes[usize::from(place.0)].queue.remove(&self.nodes, thread);
                    self.waiters[usize::from(thread)] = Waiter { futex: NONE, wait: Wait::None };
                    *limit -= 1;
                    woken(thread);
                }
                Wait::Requeue(_) => {
                    result = Err(Mismatch);
                    break;
                }
                _ => previous = Some(thread),
            }
        }
        if marked {
            self.futexes[usize::from(place.0)].queue.remove(&self.nodes, me);
            self.waiters[usize::from(me)] = Waiter { futex: NONE, wait: Wait::None };
        }
        if result == Ok(true) {
            let queue = &mut self.futexes[usize::from(place.0)].queue;
            match previous.filter(|&previous| previous != me) {
                Some(previous) => queue.insert_behind(&self.nodes, me, previous),
                None => queue.push_first(&self.nodes, me),
            }
            self.waiters[usize::from(me)] = Waiter { futex: place.0, wait: Wait::Marker };
        }
        self.give_up(place);
        result
    }

    /// Removes the first waiter of `key`, whatever bits it waits for, if a wake-up of `limit`
    /// threads concerns it alone. `None` if no thread waits. One step.
    pub fn wake_one(&mut self, key: Key, limit: usize) -> Result<Option<u16>, NotOne> {
        let list = self.list(key);
        let Some(place) = self.find_in(list, key) else { return Ok(None) };
        let Futex { queue, lock, heir, .. } = &mut self.futexes[usize::from(place.0)];
        let first = queue.first().filter(|_| limit == 1 || queue.len() == 1).ok_or(NotOne)?;
        let waiter = &mut self.waiters[usize::from(first)];
        if *lock != NONE || *heir != NONE || !matches!(waiter.wait, Wait::Plain(_)) {
            return Err(NotOne);
        }
        queue.remove(&self.nodes, first);
        *waiter = Waiter { futex: NONE, wait: Wait::None };
        if queue.is_empty() {
            self.take_away(list, place);
        }
        Ok(Some(first))
    }

    /// Moves up to `limit` waiters from `from` to `to`, in their order, and returns how many. The
    /// steps are in proportion to `limit`.
    pub fn requeue(&mut self, from: Key, to: Key, limit: usize) -> Result<usize, Mismatch> {
        let mut moved = 0;
        while moved < limit {
            let Some(place) = self.find(from) else { break };
            match self.first(place) {
                Some((thread, wait @ Wait::Plain(_))) => {
                    let level = self.nodes[usize::from(thread)].level();
                    self.dequeue(thread);
                    self.enqueue(thread, level, to, wait);
                }
                Some(_) => return Err(Mismatch),
                None => break,
            }
            moved += 1;
        }
        Ok(moved)
    }

    fn futex(&self, place: Place) -> &Futex {
        &self.futexes[usize::from(place.0)]
    }

    /// Returns the list of `key`.
    fn list(&self, key: Key) -> usize {
        let mixed = (key.space.rotate_left(32) ^ key.offset).wrapping_mul(self.multiplier);
        (mixed >> 48) as usize % LISTS
    }

    /// Brings a futex with `key` into the table.
    fn make(&mut self, key: Key) -> Place {
        let at = match self.free {
            // Every futex has a waiter, and the thread that makes this one does not wait yet: one
            // is left.
            NONE => {
                self.unused += 1;
                self.unused - 1
            }
            free => {
                self.free = self.futexes[usize::from(free)].next;
                free
            }
        };
        let list = self.list(key);
        let futex = &mut self.futexes[usize::from(at)];
        (futex.key, futex.next, futex.lock, futex.heir) = (key, self.lists[list], NONE, NONE);
        self.lists[list] = at;
        Place(at)
    }

    /// Removes a futex for which no thread waits and that has neither lock nor heir.
    fn give_up(&mut self, place: Place) {
        let futex = self.futex(place);
        if !futex.queue.is_empty() || futex.lock != NONE || futex.heir != NONE {
            return;
        }
        self.take_away(self.list(futex.key), place);
    }

    /// Removes a futex from its list.
    #[inline(always)]
    fn take_away(&mut self, list: usize, place: Place) {
        let next = self.futex(place).next;
        let mut at = self.lists[list];
        if at == place.0 {
            self.lists[list] = next;
        } else {
            while self.futexes[usize::from(at)].next != place.0 {
                at = self.futexes[usize::from(at)].next;
            }
            self.futexes[usize::from(at)].next = next;
        }
        self.futexes[usize::from(place.0)].next = core::mem::replace(&mut self.free, place.0);
    }
}

impl<const N: usize> Default for Table<N> {
    fn default() -> Self {
        Self::new()
    }
}
