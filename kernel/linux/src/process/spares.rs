// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shadow threads that wait for a thread.
//!
//! A thread needs a shadow thread, which Linux makes. So that a program does not wait for Linux
//! when it starts a thread, a process that has started one gets some shadow threads ahead, its
//! spares. They are made by a spare, too, on behalf of the [housekeeper], so that no thread of the
//! program waits behind that.

use alloc::{sync::Arc, vec::Vec};

use crtos_abi::{channel::MOST_NEW_THREADS, ids::ProcessNumber};
use crtos_channel::{Channel, Operation, OwnedSlot, Slot, Start};
use crtos_core::{
    task::{self, Mutex},
    time::{self, Nanos},
};

use super::{Members, Process, ThreadExt as _, housekeeper, threads::each_process};
use crate::{
    abi::{Errno, linux_result},
    remote::{self, slots},
};

/// Fewest and most spares that a process has which starts threads.
const FEWEST: usize = 4;

const MOST: usize = MOST_NEW_THREADS as usize;

/// A spare of `process`, if there is one. Sees to it that there will be more.
pub fn take_spare(process: &Arc<Process>) -> Option<OwnedSlot> {
    let (owned, wanting) = {
        let mut members = process.members.lock();
        let owned = members.pop_spare();
        if owned.is_none() {
            // Threads are started faster than spares are made.
            members.goal = (members.goal * 2).clamp(FEWEST, MOST);
        }
        (owned, !members.making && members.spares.len() * 2 <= members.goal)
    };
    if wanting {
        housekeeper::want_spares(process);
    }
    owned
}

/// A spare that is to make others, and how many.
pub fn take_maker(process: &Process) -> Option<(OwnedSlot, u64)> {
    let mut members = process.members.lock();
    let count = (members.goal + 1).saturating_sub(members.spares.len()).min(MOST);
    if members.making || count == 0 {
        return None;
    }
    let owned = members.pop_spare()?;
    members.making = true;
    Some((owned, count as u64))
}

impl Members {
    /// A spare for a thread.
    fn pop_spare(&mut self) -> Option<OwnedSlot> {
        if self.spares.len() > self.reserved { self.spares.pop() } else { None }
    }
}

/// Sees to it that the calling thread's process has a spare that no thread gets: for
/// [`borrow_spare`]. Asks Linux.
pub fn reserve_spare() -> Result<(), Errno> {
    let current = task::current();
    let process = &current.user().ok_or(Errno::ESRCH)?.process;
    let is_there = {
        let mut members = process.members.lock();
        members.reserved = 1;
        !members.spares.is_empty() || members.making
    };
    if is_there {
        return Ok(());
    }
    if let Some(owned) = make(1, process)? {
        give_back(process, owned);
    }
    Ok(())
}

/// How long [`borrow_spare`] waits for one that others use, and how often it looks.
const PATIENCE: Nanos = Nanos::from_millis(1000);

const PERIOD: Nanos = Nanos::from_millis(1);

/// A spare of the process with that number in Linux, for a request that the shadow thread of the
/// calling thread cannot serve: it may serve another. To be given back. May sleep; `None` if there
/// is none.
pub fn borrow_spare(number: ProcessNumber) -> Option<(Arc<Process>, OwnedSlot)> {
    let deadline = time::now() + PATIENCE;
    while time::now() < deadline {
        let mut found = None;
        each_process(|process| {
            if found.is_none() && process.number == number {
                let owned = process.members.lock().spares.pop();
                found = owned.map(|owned| (process.clone(), owned));
            }
        });
        if found.is_some() {
            return found;
        }
        task::sleep_until(time::now() + PERIOD);
    }
    None
}

/// Makes `owned` a spare of `process`.
pub fn give_back(process: &Arc<Process>, owned: OwnedSlot) {
    let (refused, wanting) = {
        let mut members = process.members.lock();
        if members.threads.is_empty() || members.spares.try_reserve(1).is_err() {
            (Some(owned), false)
        } else {
            members.spares.push(owned);
            (None, !members.making && members.spares.len() * 2 <= members.goal)
        }
    };
    dispose(refused);
    if wanting {
        housekeeper::want_spares(process);
    }
}

/// Lines without a thread, until their shadow threads are gone.
static LEFT: Mutex<Vec<OwnedSlot>> = Mutex::new(Vec::new());

/// Has Linux make `count` shadow threads for `process`, the calling thread's, and takes the first
/// one; `None` if somebody else did. Asks Linux.
pub fn make(count: u64, process: &Process) -> Result<Option<OwnedSlot>, Errno> {
    let first = linux_result(remote::request(Operation::MakeThreads { count })?)?;
    Ok(Slot::new(first as usize).and_then(|slot| claim(slot, process)))
}

/// Takes the shadow thread that Linux offered in `slot` for `process`, if nobody did. Thread
/// context; may sleep.
fn claim(slot: Slot, process: &Process) -> Option<OwnedSlot> {
    let (owned, start) = slots::accept(slot)?;
    if start == Start::Thread && owned.process() == process.number {
        return Some(owned);
    }
    dispose([owned]);
    None
}

/// Frees slots that have no thread as soon as their shadow threads are gone. Thread context; may
/// sleep.
pub fn dispose(slots: impl IntoIterator<Item = OwnedSlot>) {
    let Some(channel) = remote::channel() else { return };
    for owned in slots {
        if channel.notices(owned.slot()).gone {
            slots::free(owned);
        } else {
            let mut left = LEFT.lock();
            // There is no more than a slot's worth of memory in it, and the slot is lost without
            // it.
            left.push(owned);
        }
    }
}

pub fn free_left(channel: Channel) {
    let mut index = 0;
    loop {
        let owned = {
            let mut left = LEFT.lock();
            match left.get(index) {
                None => break,
                Some(owned) if channel.notices(owned.slot()).gone => left.swap_remove(index),
                Some(_) => {
                    index += 1;
                    continue;
                }
            }
        };
        slots::free(owned);
    }
}

/// Whether there are slots without a thread whose shadow threads are not gone yet.
pub fn are_left() -> bool {
    !LEFT.lock().is_empty()
}
