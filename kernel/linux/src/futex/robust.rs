// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a thread leaves behind when it ends, or executes another program: locks on its robust list
//! (set_robust_list(2)) and locks that others wait for. Their words say that the owner died.

use crtos_abi::{UserAddr, ids::Tid};
use crtos_locks::tids::Id;
use crtos_syscalls::structs::RobustListHead;
use linux_raw_sys::general as linux;

use crtos_core::task::{
    self, Thread,
    inheritance::{graph, settle},
};

use super::{
    STATE, caller, pi,
    wait::wake_shared,
    word::{self, OWNER_DIED, TID, WAITERS},
};
use crate::{abi::Errno, memory::user, process::ThreadExt as _};

/// Most entries of a list that are looked at.
const MOST: usize = linux::ROBUST_LIST_LIMIT as usize;

/// Makes `thread` known by its id in its pid namespace. Once, before it runs its program.
pub fn enter(thread: &Thread, id: Id) {
    STATE.lock().tids.insert(thread.id.0, id);
}

/// The calling thread leaves the memory of its process, which is still there: gives up its locks.
/// May sleep.
pub fn exit() {
    let Ok((me, (_, tid))) = caller() else { return };
    if let Some(user) = task::current().user() {
        let (head, _) = core::mem::take(&mut *user.robust_list.lock());
        if !head.is_null() {
            // Where the list leads nowhere, it ends.
            let _ = walk(head, tid);
        }
    }
    loop {
        let mut state = STATE.lock();
        let mut graph = graph();
        match graph.first_wanted(me) {
            Some(lock) => pi::bequeath(&mut state, &mut graph, me, lock),
            None => {
                // From now on nobody finds the thread by its id: what is in words is all there is.
                state.tids.remove(me);
                break;
            }
        }
    }
    settle(me);
}

/// A pointer of a robust list to an entry. Its lowest bit says that the futex is one with
/// inheritance.
#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    fn address(self) -> UserAddr {
        UserAddr::new(self.0 & !1)
    }

    fn inherits(self) -> bool {
        self.0 & 1 != 0
    }
}

/// Walks the robust list.
fn walk(head: UserAddr, tid: Tid) -> Result<(), Errno> {
    let RobustListHead { first, offset, pending } = user::read_struct(head)?;
    let [first, pending] = [first, pending].map(Entry);
    let word = |entry: Entry| UserAddr::new(entry.address().get().wrapping_add_signed(offset));
    let result =
        walk_list(head, first, pending, |entry| die(word(entry), entry.inherits(), tid, false));
    if !pending.address().is_null() {
        die(word(pending), pending.inherits(), tid, true)?;
    }
    result
}

fn walk_list(
    head: UserAddr,
    first: Entry,
    pending: Entry,
    mut each: impl FnMut(Entry) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut entry = first;
    for _ in 0..MOST {
        if entry.address() == head {
            break;
        }
        // Whoever gets the lock may free the entry.
        let next = user::read_words(entry.address());
        if entry.address() != pending.address() {
            each(entry)?;
        }
        let [next] = next?;
        entry = Entry(next);
    }
    Ok(())
}

/// Notes in the word at `address` that its owner `tid` died, if it is that, and wakes a waiter.
/// `pending`: the thread was about to take or to give up the lock.
fn die(address: UserAddr, inherits: bool, tid: Tid, pending: bool) -> Result<(), Errno> {
    if !address.is_aligned(4) {
        return Err(Errno::EINVAL);
    }
    let before = loop {
        let result = {
            let _state = STATE.lock();
            word::load(address).and_then(|word| {
                if word & TID == tid.get() {
                    word::replace(address, word, word & WAITERS | OWNER_DIED)?;
                }
                Ok(word)
            })
        };
        match result {
            Ok(before) => break before,
            Err(stop) => stop.overcome()?,
        }
    };
    let given_up = pending && before & TID == 0;
    let died = before & TID == tid.get() && before & WAITERS != 0;
    if !inherits && (given_up || died) {
        wake_shared(address, 1);
    }
    Ok(())
}
