// SPDX-License-Identifier: MIT OR Apache-2.0
//! The graph of priority inheritance: threads wait for locks, locks have owners, and an owner inherits the level of
//! the highest of all that wait for what it owns, along chains.
//!
//! A lock is in the graph only while somebody waits for it, so there are never more locks than threads. Each lock keeps
//! its waiters by level, each thread the locks that others want of it, by the level of their first waiter; so a
//! change of one level takes constant time at each link of a chain. [`Graph::settle`] carries a change on, a few links at a
//! time: between two calls others may change the graph, and whoever arrives at a thread computes its level
//! anew, so that levels are right when nobody is on the way.

use crate::{LevelQueue, NONE, Node};
use crtos_sched::Level;

/// Most links of a chain that [`Graph::enqueue`] looks along. Longer chains count as deadlocks, as in Linux, where the limit is
/// `kernel.max_lock_depth`.
pub const DEPTH: usize = 64;

/// A lock that somebody waits for; reused after nobody does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock(pub u16);

/// The wait would never end: the owner waits for the waiter, or the chain is longer than [`DEPTH`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlock;

struct Place {
    /// The lock it waits for.
    lock: u16,
    /// Its own level, while it waits.
    base: Level,
    /// What it was told that it inherits.
    inherited: Level,
}

/// Threads `0..N` and the locks they wait for.
pub struct Graph<const N: usize> {
    threads: [Place; N],
    /// Of threads, in [`Graph::waiters`].
    waiter_nodes: [Node; N],
    /// The locks that others want of each thread.
    wanted: [LevelQueue; N],
    /// Of locks, in [`Graph::wanted`].
    lock_nodes: [Node; N],
    /// Of each lock; of a free one, the next free one.
    owner: [u16; N],
    waiters: [LevelQueue; N],
    free: u16,
    /// Locks that were never used start here.
    unused: u16,
}

impl<const N: usize> Graph<N> {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self {
            threads: [const { Place { lock: NONE, base: Level::ORDINARY, inherited: Level::ORDINARY } };
                N],
            waiter_nodes: [const { Node::new() }; N],
            wanted: [const { LevelQueue::new() }; N],
            lock_nodes: [const { Node::new() }; N],
            owner: [NONE; N],
            waiters: [const { LevelQueue::new() }; N],
            free: NONE,
            unused: 0,
        }
    }

    /// The lock that `thread` waits for.
    pub fn waits_for(&self, thread: u16) -> Option<Lock> {
        let lock = self.threads[usize::from(thread)].lock;
        (lock != NONE).then_some(Lock(lock))
    }

    /// Who owns `lock`.
    pub fn owner(&self, lock: Lock) -> u16 {
        self.owner[usize::from(lock.0)]
    }

    /// Who gets `lock` next.
    pub fn heir(&self, lock: Lock) -> Option<u16> {
        self.waiters[usize::from(lock.0)].first()
    }

    /// The lock of `thread` with the highest waiter.
    pub fn first_wanted(&self, thread: u16) -> Option<Lock> {
        self.wanted[usize::from(thread)].first().map(Lock)
    }

    /// Has `waiter`, whose own level is `base` and who waits for nothing, wait for `lock`; `None` for one that nobody waits for
    /// yet and that `owner` owns. At most [`DEPTH`] steps. [`Graph::settle`] the owner afterwards.
    pub fn enqueue(
        &mut self,
        waiter: u16,
        base: Level,
        lock: Option<Lock>,
        owner: u16,
    ) -> Result<Lock, Deadlock> {
        let mut ahead = lock.map_or(owner, |lock| self.owner(lock));
        for depth in 0.. {
            if ahead == waiter || depth == DEPTH {
                return Err(Deadlock);
            }
            match self.waits_for(ahead) {
                Some(lock) => ahead = self.owner(lock),
                None => break,
            }
        }
        let lock = match lock {
            Some(lock) => lock,
            None => self.make(owner),
        };
        let place = &mut self.threads[usize::from(waiter)];
        (place.lock, place.base) = (lock.0, base);
        let level = base.max(place.inherited);
        self.change(lock, |waiters, nodes| waiters.push(nodes, waiter, level));
        Ok(lock)
    }

    /// `waiter` gives up waiting. Returns the lock and whom to [`Graph::settle`]; the lock is gone if nobody else waits for it.
    pub fn dequeue(&mut self, waiter: u16) -> Option<(Lock, u16)> {
        let lock = self.waits_for(waiter)?;
        let owner = self.owner(lock);
        self.leave(waiter, lock);
        Some((lock, owner))
    }

    /// Whether somebody waits for `lock`, that is, whether it still exists. The caller knows that it was not reused.
    pub fn is_wanted(&self, lock: Lock) -> bool {
        !self.waiters[usize::from(lock.0)].is_empty()
    }

    /// Gives `lock` to its heir and returns that. The lock is gone if nobody else waits for it. [`Graph::settle`] the former
    /// owner and the heir, each of which takes one step if it does not wait itself.
    pub fn hand_over(&mut self, lock: Lock) -> Option<u16> {
        let heir = self.heir(lock)?;
        self.leave(heir, lock);
        if let Some(level) = self.waiters[usize::from(lock.0)].highest() {
            let owner = core::mem::replace(&mut self.owner[usize::from(lock.0)], heir);
            self.wanted[usize::from(owner)].remove(&self.lock_nodes, lock.0);
            self.wanted[usize::from(heir)].push(&self.lock_nodes, lock.0, level);
        }
        Some(heir)
    }

    /// Notes that the level of `thread` itself is now `base`. [`Graph::settle`] it afterwards.
    pub fn set_base(&mut self, thread: u16, base: Level) {
        self.threads[usize::from(thread)].base = base;
    }

    /// Computes the level of `thread` anew and carries a change on along the chain, for up to `steps` links of constant time
    /// each. `inherit` is told what a thread inherits when that changes. Returns where to go on.
    pub fn settle(
        &mut self,
        thread: u16,
        steps: usize,
        mut inherit: impl FnMut(u16, Level),
    ) -> Option<u16> {
        let mut at = thread;
        for _ in 0..steps {
            at = self.step(at, &mut inherit)?;
        }
        Some(at)
    }

    fn step(&mut self, thread: u16, inherit: &mut impl FnMut(u16, Level)) -> Option<u16> {
        let inherited = self.wanted[usize::from(thread)].highest().unwrap_or(Level::ORDINARY);
        let place = &mut self.threads[usize::from(thread)];
        if place.inherited != inherited {
            place.inherited = inherited;
            inherit(thread, inherited);
        }
        let level = inherited.max(place.base);
        let lock = self.waits_for(thread)?;
        if self.waiter_nodes[usize::from(thread)].level() == level {
            return None;
        }
        let changed = self.change(lock, |waiters, nodes| {
            waiters.remove(nodes, thread);
            waiters.push(nodes, thread, level);
        });
        changed.then(|| self.owner(lock))
    }

    /// Changes the waiters of `lock` and its place among what is wanted of its owner; says whether that changed.
    fn change(&mut self, lock: Lock, change: impl FnOnce(&mut LevelQueue, &[Node])) -> bool {
        let at = usize::from(lock.0);
        let before = self.waiters[at].highest();
        change(&mut self.waiters[at], &self.waiter_nodes);
        let after = self.waiters[at].highest();
        if before == after {
            return false;
        }
        let wanted = &mut self.wanted[usize::from(self.owner[at])];
        if before.is_some() {
            wanted.remove(&self.lock_nodes, lock.0);
        }
        if let Some(level) = after {
            wanted.push(&self.lock_nodes, lock.0, level);
        }
        true
    }

    fn leave(&mut self, waiter: u16, lock: Lock) {
        self.threads[usize::from(waiter)].lock = NONE;
        self.change(lock, |waiters, nodes| waiters.remove(nodes, waiter));
        if !self.is_wanted(lock) {
            self.owner[usize::from(lock.0)] = core::mem::replace(&mut self.free, lock.0);
        }
    }

    fn make(&mut self, owner: u16) -> Lock {
        let lock = match self.free {
            // A waiter brings at most one lock into the graph, so there is one left.
            NONE => {
                self.unused += 1;
                self.unused - 1
            }
            free => {
                self.free = self.owner[usize::from(free)];
                free
            }
        };
        self.owner[usize::from(lock)] = owner;
        Lock(lock)
    }
}

impl<const N: usize> Default for Graph<N> {
    fn default() -> Self {
        Self::new()
    }
}
