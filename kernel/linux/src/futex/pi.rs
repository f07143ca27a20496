// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futexes with an owner: the word is the owner's thread id, and whoever finds it taken waits in
//! the graph of inheritance. A lock that is given up goes to the first waiter at once.

use crtos_abi::{UserAddr, ids::Tid};
use crtos_locks::{Graph, Key, inheritance::Lock, tids::Id};

use crtos_core::{
    mm::space::Access,
    task::{
        self, MAX_THREADS,
        inheritance::{graph, inherit, settle},
    },
    time::Deadline,
};

use super::{
    Address, STATE, State, Stop, caller,
    key::key,
    wait::{self, Ended},
    word::{self, OWNER_DIED, TID, WAITERS},
};
use crate::abi::{Errno, SysResult};

/// What an attempt to take a lock finds.
pub(super) enum Attempt {
    /// It is taken.
    Acquired,
    /// Somebody else owns it; the lock in the graph if others wait, too.
    Owned(Option<Lock>, u16),
}

/// Takes the lock at `key` for the thread with that id, noting `WAITERS` if `wanted`; if it is
/// owned, notes that somebody waits. The word is at `address` of the calling program.
pub(super) fn attempt(
    state: &State,
    graph: &Graph<MAX_THREADS>,
    key: Key,
    address: UserAddr,
    (namespace, tid): Id,
    wanted: bool,
) -> Result<Attempt, Stop> {
    let word = word::load(address)?;
    let named = Tid::new(word & TID);
    if named == Some(tid) {
        return Err(Errno::EDEADLK.into());
    }
    if let Some(place) = state.table.find(key) {
        let lock = state.table.lock(place);
        if let Some(heir) = state.table.heir(place) {
            // The word still names the dead owner.
            return Ok(Attempt::Owned(lock, lock.map_or(heir, |lock| graph.owner(lock))));
        }
        if let Some(lock) = lock {
            let owner = graph.owner(lock);
            let matches = match named {
                None => word & OWNER_DIED != 0,
                Some(named) => state.tids.find((namespace, named)) == Some(owner),
            };
            return match matches {
                true => Ok(Attempt::Owned(Some(lock), owner)),
                false => Err(Errno::EINVAL.into()),
            };
        }
        if state.table.first(place).is_some() {
            return Err(Errno::EINVAL.into());
        }
    }
    let Some(named) = named else {
        let waiters = if wanted { WAITERS } else { 0 };
        word::replace(address, word, word & OWNER_DIED | waiters | tid.get())?;
        return Ok(Attempt::Acquired);
    };
    word::replace(address, word, word | WAITERS)?;
    let owner = state.tids.find((namespace, named)).ok_or(Errno::ESRCH)?;
    Ok(Attempt::Owned(None, owner))
}

/// Has `thread` wait for a lock that an attempt found owned. [`settle`] the owner afterwards, with
/// no lock held.
pub(super) fn enqueue(
    state: &mut State,
    graph: &mut Graph<MAX_THREADS>,
    key: Key,
    thread: u16,
    lock: Option<Lock>,
    owner: u16,
) -> Result<(), Errno> {
    let level = task::level(thread);
    let lock = graph.enqueue(thread, level, lock, owner).map_err(|_| Errno::EDEADLK)?;
    state.set_lock(key, Some(lock));
    Ok(())
}

/// FUTEX_LOCK_PI, FUTEX_LOCK_PI2: takes the lock, and waits for it until `deadline`.
pub fn lock(address: Address, deadline: Option<Deadline>) -> SysResult {
    match acquire(address, true)? {
        None => Ok(0),
        Some(key) => match await_grant(address.word, key, deadline)? {
            Ok(()) => Ok(0),
            Err(Ended::Timeout) => Err(Errno::ETIMEDOUT),
            Err(Ended::Interrupted) => Err(Errno::RESTART_ALWAYS),
        },
    }
}

/// FUTEX_TRYLOCK_PI: takes the lock if it is free, or if its owner died.
pub fn try_lock(address: Address) -> SysResult {
    acquire(address, false).map(|_| 0)
}

/// Takes the lock, or has the calling thread wait for it, or, without `wait`, fails with EAGAIN.
/// Says where to wait.
fn acquire(address: Address, wait: bool) -> Result<Option<Key>, Errno> {
    let (me, id) = caller()?;
    loop {
        let key = key(address, Access::Write)?;
        let result = {
            let mut state = STATE.lock();
            let mut graph = graph();
            match attempt(&state, &graph, key, address.word, id, false) {
                Ok(Attempt::Acquired) => return Ok(None),
                Ok(Attempt::Owned(..)) if !wait => return Err(Errno::EAGAIN),
                Ok(Attempt::Owned(lock, owner)) => {
                    enqueue(&mut state, &mut graph, key, me, lock, owner)?;
                    Ok(owner)
                }
                Err(stop) => Err(stop),
            }
        };
        match result {
            Ok(owner) => {
                settle(owner);
                return Ok(Some(key));
            }
            Err(stop) => stop.overcome()?,
        }
    }
}

/// Waits until the calling thread, which was moved to the lock at `key` or was given it at once,
/// has it.
pub(super) fn await_moved(
    address: UserAddr,
    key: Key,
    deadline: Option<Deadline>,
) -> Result<Result<(), Ended>, Errno> {
    let (me, (_, tid)) = caller()?;
    let waits = graph().waits_for(me).is_some();
    match waits {
        true => await_grant(address, key, deadline),
        false => take_over(address, key, me, tid).map(Ok),
    }
}

/// Waits until the calling thread, which is queued for the lock at `key`, has it.
fn await_grant(
    address: UserAddr,
    key: Key,
    deadline: Option<Deadline>,
) -> Result<Result<(), Ended>, Errno> {
    let (me, (_, tid)) = caller()?;
    let granted = || graph().waits_for(me).is_none();
    if let Err(ended) = wait::sleep(deadline, granted) {
        let left = {
            let mut state = STATE.lock();
            let mut graph = graph();
            let left = graph.dequeue(me);
            if let Some((lock, _)) = left
                && !graph.is_wanted(lock)
            {
                state.set_lock(key, None);
            }
            left
        };
        if let Some((_, owner)) = left {
            settle(owner);
            return Ok(Err(ended));
        }
    }
    take_over(address, key, me, tid).map(Ok)
}

/// Names the calling thread in the word if it got the lock from an owner that died.
fn take_over(address: UserAddr, key: Key, me: u16, tid: Tid) -> Result<(), Errno> {
    let step = || -> Result<(), Stop> {
        let mut state = STATE.lock();
        let heir = state.table.find(key).and_then(|place| state.table.heir(place));
        if heir == Some(me) {
            let word = word::load(address)?;
            word::replace(address, word, OWNER_DIED | WAITERS | tid.get())?;
            state.table.set_heir(key, None);
        }
        Ok(())
    };
    while let Err(stop) = step() {
        if let Err(error) = stop.overcome() {
            // The program has unmapped its lock.
            let mut state = STATE.lock();
            let mut graph = graph();
            let lock = state.table.find(key).and_then(|place| state.table.lock(place));
            state.table.set_heir(key, None);
            if let Some(lock) = lock {
                bequeath(&mut state, &mut graph, me, lock);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// FUTEX_UNLOCK_PI: gives the lock to the first waiter.
pub fn unlock(address: Address) -> SysResult {
    let (me, (_, tid)) = caller()?;
    loop {
        let key = key(address, Access::Write)?;
        let result = {
            let mut state = STATE.lock();
            release(&mut state, key, address.word, me, tid)
        };
        match result {
            Ok(()) => return Ok(0),
            Err(stop) => stop.overcome()?,
        }
    }
}

fn release(state: &mut State, key: Key, address: UserAddr, me: u16, tid: Tid) -> Result<(), Stop> {
    let word = word::load(address)?;
    if word & TID != tid.get() {
        return Err(Errno::EPERM.into());
    }
    let place = state.table.find(key);
    let Some(lock) = place.and_then(|place| state.table.lock(place)) else {
        return match place.and_then(|place| state.table.first(place)) {
            Some(_) => Err(Errno::EINVAL.into()),
            None => word::replace(address, word, 0),
        };
    };
    let mut graph = graph();
    let heir = graph.heir(lock).filter(|_| graph.owner(lock) == me).ok_or(Errno::EINVAL)?;
    if let Err(now) = word::exchange(
        address,
        word,
        WAITERS | state.tids.of(heir).map_or(0, |(_, tid)| tid.get()),
    )? {
        // WAITERS may have come; anything else is not the business of others.
        return Err(if now & TID == word { Stop::Changed } else { Errno::EINVAL.into() });
    }
    hand_over(state, &mut graph, me, lock);
    Ok(())
}

/// Gives `lock` of `me` to its heir, wakes that, and has the levels of both follow. The word is
/// right already, or will be.
fn hand_over(
    state: &mut State,
    graph: &mut Graph<MAX_THREADS>,
    me: u16,
    lock: Lock,
) -> Option<u16> {
    let heir = graph.hand_over(lock)?;
    if !graph.is_wanted(lock) {
        state.set_lock(state.keys[usize::from(lock.0)], None);
    }
    // Neither waits for anything now: one step each.
    graph.settle(heir, 1, inherit);
    task::wake(heir);
    graph.settle(me, 1, inherit);
    Some(heir)
}

/// Gives `lock` of `me`, which ends or cannot reach the word, to its heir, which will name itself
/// there.
pub(super) fn bequeath(state: &mut State, graph: &mut Graph<MAX_THREADS>, me: u16, lock: Lock) {
    let key = state.keys[usize::from(lock.0)];
    let heir = graph.heir(lock);
    // First, so that the futex stays in the table.
    state.table.set_heir(key, heir);
    hand_over(state, graph, me, lock);
}
