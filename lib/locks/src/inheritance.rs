// SPDX-License-Identifier: MIT OR Apache-2.0
//! The graph of priority inheritance. Threads wait for locks, and locks have owners. An owner
//! inherits the highest level of all threads that wait for what it owns, directly or along chains.
//!
//! A lock is in the graph only while a thread waits for it, so there are never more locks than
//! threads. Each lock keeps its waiters by level. Each thread keeps the locks that others want of
//! it, by the level of their first waiter. So a change of one level takes constant time at each
//! link of a chain.
//!
//! [`Graph::settle`] carries a change along a chain, a few links at a time. Between two calls the
//! graph may change. Each step computes the level of its thread anew, so all levels are right when
//! no change is under way.

use crate::{LevelQueue, NONE, Node};
use crtos_sched::Level;

/// The most links of a chain that [`Graph::enqueue`] follows. A longer chain counts as a deadlock,
/// as under Linux, whose limit is `kernel.max_lock_depth`.
pub const DEPTH: usize = 64;

/// A lock for which a thread waits. The number is used again when no thread waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock(pub u16);

/// The wait would never end: the owner waits for the waiter, or the chain is longer than [`DEPTH`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlock;

/// What the graph knows of one thread.
struct ThreadState {
    /// The lock that it waits for.
    lock: u16,
    /// Its own level; valid while it waits.
    base: Level,
    /// The level that it was last told to inherit.
    inherited: Level,
}

/// Threads `0..N` and the locks that they wait for.
pub struct Graph<const N: usize> {
    threads: [ThreadState; N],
    /// The nodes of threads, for [`Graph::waiters`].
    waiter_nodes: [Node; N],
    /// The locks that others want of each thread.
    wanted: [LevelQueue; N],
    /// The nodes of locks, for [`Graph::wanted`].
    lock_nodes: [Node; N],
    /// The owner of each lock; of a free lock, the next free one.
    owner: [u16; N],
    /// The threads that wait for each lock.
    waiters: [LevelQueue; N],
    free: u16,
    /// The first lock that was never used.
    unused: u16,
}

impl<const N: usize> Graph<N> {
    /// Makes a graph in which no thread waits.
    pub const fn new() -> Self {
        Self {
            threads: [const {
                ThreadState { lock: NONE, base: Level::ORDINARY, inherited: Level::ORDINARY }
            }; N],
            waiter_nodes: [const { Node::new() }; N],
            wanted: [const { LevelQueue::new() }; N],
            lock_nodes: [const { Node::new() }; N],
            owner: [NONE; N],
            waiters: [const { LevelQueue::new() }; N],
            free: NONE,
            unused: 0,
        }
    }

    /// Returns the lock that `thread` waits for.
    pub fn waits_for(&self, thread: u16) -> Option<Lock> {
        let lock = self.threads[usize::from(thread)].lock;
        (lock != NONE).then_some(Lock(lock))
    }

    /// Returns the owner of `lock`.
    pub fn owner(&self, lock: Lock) -> u16 {
        self.owner[usize::from(lock.0)]
    }

    /// Returns the thread that gets `lock` next.
    pub fn heir(&self, lock: Lock) -> Option<u16> {
        self.waiters[usize::from(lock.0)].first()
    }

    /// Returns the lock of `thread` with the highest waiter.
    pub fn first_wanted(&self, thread: u16) -> Option<Lock> {
        self.wanted[usize::from(thread)].first().map(Lock)
    }

    /// Makes `waiter`, which waits for nothing and has the level `base` of its own, wait for
    /// `lock`. `None` stands for a lock that no thread waits for yet and that `owner` owns. At most
    /// [`DEPTH`] steps. The caller calls [`Graph::settle`] for the owner afterwards.
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
        let state = &mut self.threads[usize::from(waiter)];
        (state.lock, state.base) = (lock.0, base);
        let level = base.max(state.inherited);
        self.change(lock, |waiters, nodes| waiters.push(nodes, waiter, level));
        Ok(lock)
    }

    /// Ends the wait of `waiter`. Returns the lock, and the thread for which the caller calls
    /// [`Graph::settle`]. The lock is gone if no other thread waits for it. Constant time.
    pub fn dequeue(&mut self, waiter: u16) -> Option<(Lock, u16)> {
        let lock = self.waits_for(waiter)?;
        let owner = self.owner(lock);
        self.leave(waiter, lock);
        Some((lock, owner))
    }

    /// Says whether a thread waits for `lock`, that is, whether it still exists. The caller knows
    /// that the number was not used again.
    pub fn is_wanted(&self, lock: Lock) -> bool {
        !self.waiters[usize::from(lock.0)].is_empty()
    }

    /// Gives `lock` to its heir, which it returns. The lock is gone if no other thread waits for
    /// it. Constant time. The caller calls [`Graph::settle`] for the former owner and for the heir;
    /// each takes one step if it does not wait itself.
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

    /// Notes that the own level of `thread` is now `base`. The caller calls [`Graph::settle`] for
    /// it afterwards.
    pub fn set_base(&mut self, thread: u16, base: Level) {
        self.threads[usize::from(thread)].base = base;
    }

    /// Computes the level of `thread` anew and carries a change along the chain, for up to `steps`
    /// links of constant time each. Calls `inherit` with each thread whose inherited level changes,
    /// and that level. Returns the thread at which to go on, if there is more to do.
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

    /// Takes one step of [`Graph::settle`]; returns the next thread.
    fn step(&mut self, thread: u16, inherit: &mut impl FnMut(u16, Level)) -> Option<u16> {
        let inherited = self.wanted[usize::from(thread)].highest().unwrap_or(Level::ORDINARY);
        let state = &mut self.threads[usize::from(thread)];
        if state.inherited != inherited {
            state.inherited = inherited;
            inherit(thread, inherited);
        }
        let level = inherited.max(state.base);
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

    /// Changes the waiters of `lock`, and with them its place among the locks that are wanted of
    /// its owner. Says whether that place changed.
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

    /// Takes `waiter` out of the waiters of `lock`; frees the lock if it was the last.
    fn leave(&mut self, waiter: u16, lock: Lock) {
        self.threads[usize::from(waiter)].lock = NONE;
        self.change(lock, |waiters, nodes| waiters.remove(nodes, waiter));
        if !self.is_wanted(lock) {
            self.owner[usize::from(lock.0)] = core::mem::replace(&mut self.free, lock.0);
        }
    }

    /// Brings a lock of `owner` into the graph.
    fn make(&mut self, owner: u16) -> Lock {
        let lock = match self.free {
            // Each waiter brings at most one lock into the graph, so one is left.
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
