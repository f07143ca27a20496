// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moving waiters from one futex to another, so that a condition's waiters do not all wake only to
//! wait for its mutex.

use crtos_abi::UserAddr;
use crtos_locks::{Key, futex::Wait};
use linux_raw_sys::general as linux;

use crtos_core::{
    mm::space::Access,
    task::{
        self, MAX_THREADS,
        inheritance::{graph, settle},
    },
    time::Deadline,
};

use super::{
    Address, STATE, Stop, caller,
    key::{find, key},
    pi::{self, Attempt},
    wait::{self, Ended, sleep},
    word,
};
use crate::abi::{Errno, SysResult};

/// Waiters moved with interrupts off.
const BATCH: usize = 4;

/// FUTEX_REQUEUE, and FUTEX_CMP_REQUEUE if the first word is `expected`: wakes up to `wakes`
/// waiters and moves up to `moves`.
pub fn requeue(
    from: Address,
    to: Address,
    [wakes, moves]: [i32; 2],
    expected: Option<u32>,
) -> SysResult {
    if wakes < 0 || moves < 0 {
        return Err(Errno::EINVAL);
    }
    let found = [find(from, Access::Read)?, find(to, Access::Read)?];
    let keys = found.map(|found| found.key);
    compare(from.word, expected)?;
    if found.iter().any(|found| found.mirror.is_some()) && keys[0] != keys[1] {
        // Some wait in Linux, which nobody moves: they are woken, and find out.
        return match wakes.saturating_add(moves) {
            0 => Ok(0),
            count => wait::wake_found(found[0], count as usize, linux::FUTEX_BITSET_MATCH_ANY),
        };
    }
    let woken = match wakes {
        0 => 0,
        wakes => wait::wake_key(keys[0], wakes as usize, linux::FUTEX_BITSET_MATCH_ANY)?,
    };
    let mut left = {
        let table = &STATE.lock().table;
        let there = table.find(keys[0]).map_or(0, |place| table.len(place));
        there.min(moves as usize)
    };
    let mut moved = 0;
    if keys[0] == keys[1] {
        return Ok(woken + left as u64);
    }
    while left > 0 {
        let batch = STATE.lock().table.requeue(keys[0], keys[1], left.min(BATCH));
        match batch {
            Ok(0) => break,
            Ok(count) => {
                left -= count;
                moved += count as u64;
            }
            Err(_) => return Err(Errno::EINVAL),
        }
    }
    Ok(woken + moved)
}

/// Fails with EAGAIN if the word is not what is expected. May sleep.
fn compare(address: UserAddr, expected: Option<u32>) -> Result<(), Errno> {
    let Some(expected) = expected else { return Ok(()) };
    loop {
        let word = {
            let _state = STATE.lock();
            word::load(address)
        };
        match word {
            Ok(word) if word == expected => return Ok(()),
            Ok(_) => return Err(Errno::EAGAIN),
            Err(stop) => stop.overcome()?,
        }
    }
}

/// FUTEX_WAIT_REQUEUE_PI: waits at `from` until the thread was moved to the lock at `to` and has
/// that.
pub fn wait_requeue_pi(
    from: Address,
    to: Address,
    value: u32,
    bits: u32,
    deadline: Option<Deadline>,
) -> SysResult {
    if from.word == to.word || bits == 0 {
        return Err(Errno::EINVAL);
    }
    let keys = [key(from, Access::Read)?, key(to, Access::Write)?];
    if keys[0] == keys[1] {
        return Err(Errno::EINVAL);
    }
    let (me, _) = caller()?;
    wait::enqueue(me, keys[0], from, value, Wait::Requeue(keys[1]))?;
    let moved = || STATE.lock().table.waiting(me) == Wait::None;
    if let Err(ended) = sleep(deadline, moved)
        && STATE.lock().table.dequeue(me)
    {
        return Err(match ended {
            Ended::Timeout => Errno::ETIMEDOUT,
            Ended::Interrupted => Errno::RESTART_ALWAYS,
        });
    }
    match pi::await_moved(to.word, keys[1], deadline)? {
        Ok(()) => Ok(0),
        Err(Ended::Timeout) => Err(Errno::ETIMEDOUT),
        // It cannot wait at the first futex again, whose word has changed.
        Err(Ended::Interrupted) => Err(Errno::EAGAIN),
    }
}

/// FUTEX_CMP_REQUEUE_PI: gives the lock at `to` to the first waiter at `from`, or moves it there,
/// and moves up to `moves` more.
pub fn cmp_requeue_pi(
    from: Address,
    to: Address,
    [wakes, moves]: [i32; 2],
    expected: u32,
) -> SysResult {
    if wakes < 0 || moves < 0 || from.word == to.word || wakes != 1 {
        return Err(Errno::EINVAL);
    }
    let keys = [key(from, Access::Read)?, key(to, Access::Write)?];
    if keys[0] == keys[1] {
        return Err(Errno::EINVAL);
    }
    compare(from.word, Some(expected))?;
    let most = (moves as usize).saturating_add(1).min(MAX_THREADS);
    let mut done = 0;
    while done < most {
        match move_one(keys, to.word, moves > 0) {
            Ok(None) => break,
            Ok(Some(owner)) => {
                settle(owner);
                done += 1;
            }
            Err(stop) => stop.overcome()?,
        }
    }
    Ok(done as u64)
}

/// Moves the first waiter to the lock at `address`; says whose level may have changed, `None` if
/// nobody is there.
fn move_one([from, to]: [Key; 2], address: UserAddr, wanted: bool) -> Result<Option<u16>, Stop> {
    let mut state = STATE.lock();
    let Some(place) = state.table.find(from) else { return Ok(None) };
    let thread = match state.table.first(place) {
        None => return Ok(None),
        Some((thread, Wait::Requeue(target))) if target == to => thread,
        Some(_) => return Err(Errno::EINVAL.into()),
    };
    let mut graph = graph();
    let id = state.tids.of(thread).ok_or(Errno::ESRCH)?;
    let owner = match pi::attempt(&state, &graph, to, address, id, wanted)? {
        Attempt::Acquired => thread,
        Attempt::Owned(lock, owner) => {
            pi::enqueue(&mut state, &mut graph, to, thread, lock, owner)?;
            owner
        }
    };
    state.table.dequeue(thread);
    if owner == thread {
        task::wake(thread);
    }
    Ok(Some(owner))
}
