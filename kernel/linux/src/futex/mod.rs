// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futexes: words in memory of programs at which threads wait (futex(2)).
//!
//! | file | concept |
//! |---|---|
//! | [`across`] | words that Linux shares: waiting and waking across the realms |
//! | [`key`] | what makes a word the same futex for two threads |
//! | [`word`] | the word itself, which other CPUs change meanwhile and whose page may be absent |
//! | [`wait`] | waiting and waking |
//! | [`several`] | waiting at several futexes at once |
//! | [`requeue`] | moving waiters from one futex to another, also to one with an owner |
//! | [`pi`] | futexes with an owner, who inherits the level of the waiters |
//! | [`robust`] | what a thread leaves behind when it ends |
//!
//! The table of waiters ([`Table`]) lies under one spin lock. Looking at a word and queueing happen
//! under it, and so do wakes: a change of the word before a wake is either seen by the waiter or
//! finds it queued. Who waits for an owner is in the graph of inheritance, whose lock is taken
//! inside. A word whose page is absent ends the section; the page is made present with no lock
//! held, and the call starts again. Each section does a bounded number of steps: calls that concern
//! many threads release the lock in between. Nothing allocates.

pub mod across;
mod key;
pub mod pi;
pub mod requeue;
mod robust;
pub mod several;
pub mod wait;
mod word;

use crtos_abi::UserAddr;
use crtos_locks::{Key, Table, Tids, inheritance::Lock, tids::Id};

pub use robust::{enter, exit};
use several::Several;
pub use wait::{Woken, hand_on, wake_shared};

use crtos_core::{
    mm::space::Access,
    sync::SpinLock,
    task::{self, MAX_THREADS},
};

use crate::{
    abi::Errno,
    process::{self, ThreadExt as _},
    signal,
};

/// How a call names a futex.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// Of the word.
    pub word: UserAddr,
    /// Threads with other address spaces may wait there (no FUTEX_PRIVATE_FLAG).
    pub shared: bool,
}

/// Most waiters: all threads, and the further places of those that wait at several futexes.
const WAITERS: usize = MAX_THREADS + several::MORE;

/// Who waits, and who is who.
struct State {
    table: Table<WAITERS>,
    several: Several,
    tids: Tids<MAX_THREADS>,
    /// Of the locks in the graph that are behind futexes.
    keys: [Key; MAX_THREADS],
}

static STATE: SpinLock<State> = SpinLock::new(State {
    table: Table::new(),
    several: Several::new(),
    tids: Tids::new(),
    keys: [Key { space: 0, offset: 0 }; MAX_THREADS],
});

impl State {
    /// Notes which lock is behind `key`, or that there is none any more.
    fn set_lock(&mut self, key: Key, lock: Option<Lock>) {
        if let Some(lock) = lock {
            self.keys[usize::from(lock.0)] = key;
        }
        self.table.set_lock(key, lock);
    }
}

/// Makes the spreading of keys secret. At boot.
pub fn set_up(secret: u64) {
    STATE.lock().table.set_secret(secret);
}

/// Why a section under the lock ended without a result.
enum Stop {
    /// The page of the word at this address is absent, or not writable.
    Absent(UserAddr, Access),
    /// The word changed meanwhile.
    Changed,
    /// The call fails.
    Error(Errno),
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Self {
        Self::Error(error)
    }
}

impl Stop {
    /// Removes the reason, or fails. May sleep.
    fn overcome(self) -> Result<(), Errno> {
        match self {
            Self::Absent(address, access) => word::make_present(address, access),
            Self::Changed => Ok(()),
            Self::Error(error) => Err(error),
        }
    }
}

/// Number and id of the calling thread of a program.
fn caller() -> Result<(u16, Id), Errno> {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    Ok((current.id.0, (user.process.namespace, user.tid)))
}

/// Whether the calling thread must not wait any longer: for a signal, or its end.
fn is_interrupted() -> bool {
    process::note_if_gone();
    task::current().user().is_none_or(process::UserThread::is_ending) || signal::is_pending()
}
