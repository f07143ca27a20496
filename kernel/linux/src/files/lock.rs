// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks of a file: of the whole one (flock(2)), many shared ones or one exclusive one, each of an
//! open file description; and of its parts (fcntl(2)), of a process, or of a description.

use alloc::vec::Vec;

use linux_raw_sys::general as linux;

use crtos_core::{
    mm::heap,
    task::{self, Mutex, Thread, WaitQueue},
};
use crtos_files::records::{END, NoWait, Record, Records, Wait, Waits};
use crtos_syscalls::structs::Flock;

use super::wait;
use crate::abi::{Errno, SysResult};

/// Who has the lock: the address of the description, and whether it is exclusive.
type Holder = (usize, bool);

/// Who has locked a part: the address of a process's table of descriptors, or of a description; and
/// the process, as F_GETLK tells it, or -1.
#[derive(Clone, Copy, Debug)]
pub struct PartOwner {
    /// See there.
    pub address: usize,
    /// See there.
    pub pid: i32,
}

impl PartOwner {
    /// Whether it is a process. Descriptions belong to nobody for certain, so that no wait for one
    /// or of one is known to be for ever.
    fn is_process(&self) -> bool {
        self.pid != -1
    }
}

impl PartialEq for PartOwner {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

/// Which processes wait for each other to unlock parts. Its lock is taken inside [`Locks::parts`].
static WAITS: Mutex<Waits<PartOwner>> = Mutex::new(Waits::new());

/// The locks of a file.
pub struct Locks {
    holders: Mutex<Vec<Holder>>,
    parts: Mutex<Records<PartOwner>>,
    waiters: WaitQueue,
}

impl Default for Locks {
    fn default() -> Self {
        Self {
            holders: Mutex::new(Vec::new()),
            parts: Mutex::new(Records::new()),
            waiters: WaitQueue::new(),
        }
    }
}

impl Locks {
    /// flock(2) by the description at an address, with the flags LOCK_*. May sleep.
    pub fn flock(&self, owner: usize, flags: u32) -> SysResult {
        let exclusive = match flags & !linux::LOCK_NB {
            linux::LOCK_UN => {
                self.release(owner);
                return Ok(0);
            }
            linux::LOCK_SH => false,
            linux::LOCK_EX => true,
            _ => return Err(Errno::EINVAL),
        };
        // A lock of the other kind is given up first, as Linux does.
        let has = self.holders.lock().contains(&(owner, exclusive));
        if has {
            return Ok(0);
        }
        self.release(owner);
        wait::take(&self.waiters, flags & linux::LOCK_NB != 0, || {
            self.try_take(owner, exclusive).transpose()
        })??;
        Ok(0)
    }

    fn try_take(&self, owner: usize, exclusive: bool) -> Result<Option<()>, Errno> {
        let mut holders = self.holders.lock();
        if holders.iter().any(|&(_, other)| exclusive || other) {
            return Ok(None);
        }
        if !heap::makes_room(&mut holders, 1) {
            return Err(Errno::ENOMEM);
        }
        holders.push((owner, exclusive));
        Ok(Some(()))
    }

    /// The description at an address, which ends, has no lock any more. May sleep.
    pub fn release_all(&self, owner: usize) {
        self.release(owner);
        self.release_parts(owner);
    }

    /// The description at an address has not locked the whole file any more. May sleep.
    fn release(&self, owner: usize) {
        let mut holders = self.holders.lock();
        let before = holders.len();
        holders.retain(|&(other, _)| other != owner);
        let released = holders.len() < before;
        drop(holders);
        if released {
            self.waiters.wake_all();
        }
    }

    /// F_GETLK: tells who keeps `asked`, whose positions are from `base` on, from being locked.
    pub fn tell_part(&self, owner: PartOwner, asked: &Flock, base: u64) -> Result<Flock, Errno> {
        if asked.kind == linux::F_UNLCK as i16 {
            return Err(Errno::EINVAL);
        }
        let wanted = part(owner, asked, base)?;
        let conflict = self.parts.lock().conflict(&wanted);
        Ok(match conflict {
            None => Flock { kind: linux::F_UNLCK as i16, ..*asked },
            Some(held) => Flock {
                kind: if held.is_exclusive { linux::F_WRLCK } else { linux::F_RDLCK } as i16,
                whence: linux::SEEK_SET as i16,
                start: held.first as i64,
                length: if held.last == END { 0 } else { (held.last - held.first + 1) as i64 },
                pid: held.owner.pid,
                ..*asked
            },
        })
    }

    /// F_SETLK and F_SETLKW: locks or unlocks what `asked` says, whose positions are from `base`
    /// on. May sleep.
    pub fn set_part(&self, owner: PartOwner, asked: &Flock, base: u64, waits: bool) -> SysResult {
        let wanted = part(owner, asked, base)?;
        if asked.kind == linux::F_UNLCK as i16 {
            let unlocked = self.parts.lock().unlock(owner, wanted.first, wanted.last);
            if unlocked.map_err(|_| Errno::ENOLCK)? {
                self.announce_parts();
            }
            return Ok(0);
        }
        let mut waiting = None;
        wait::take(&self.waiters, !waits, || {
            let mut parts = self.parts.lock();
            match parts.conflict(&wanted) {
                Some(held) if waits => {
                    let waiting = waiting.get_or_insert_with(Waiting::new);
                    waiting.wait(self, owner, held.owner).err().map(Err)
                }
                Some(_) => None,
                None if !heap::has_reserve() => Some(Err(Errno::ENOLCK)),
                None => Some(parts.lock(wanted).map_err(|_| Errno::ENOLCK)),
            }
        })??;
        // A lock to write may have become one to read.
        self.announce_parts();
        Ok(0)
    }

    /// Has those who wait for parts look again: what they wait for may have changed. May sleep.
    fn announce_parts(&self) {
        {
            // Who waits after this has seen the change.
            let _parts = self.parts.lock();
            WAITS.lock().end_at(self.number());
        }
        self.waiters.wake_all();
    }

    /// A number that no other file has.
    fn number(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// The owner at an address has no part locked any more. May sleep.
    pub fn release_parts(&self, address: usize) {
        let released = self.parts.lock().release(PartOwner { address, pid: 0 });
        if released {
            self.announce_parts();
        }
    }

    /// What a process has locked is that of the program that it executes. May sleep.
    pub fn hand_over_parts(&self, from: usize, to: usize) {
        self.parts.lock().change_owners(|owner| {
            if owner.address == from {
                owner.address = to;
            }
        });
        // Who waits for it knows it by the address.
        self.announce_parts();
    }
}

/// A wait of the calling thread for parts, which ends with it.
struct Waiting {
    id: usize,
}

impl Waiting {
    fn new() -> Self {
        Self { id: core::ptr::from_ref::<Thread>(&task::current()).addr() }
    }

    /// Notes that it is for `holder` to unlock something of the file with these locks.
    fn wait(&self, locks: &Locks, owner: PartOwner, holder: PartOwner) -> Result<(), Errno> {
        let mut waits = WAITS.lock();
        if !owner.is_process() || !holder.is_process() {
            waits.end(self.id);
            return Ok(());
        }
        if !heap::has_reserve() {
            return Err(Errno::ENOLCK);
        }
        let wait = Wait { id: self.id, file: locks.number(), owner, for_whom: holder };
        waits.begin(wait).map_err(|error| match error {
            NoWait::Deadlock => Errno::EDEADLK,
            NoWait::Full => Errno::ENOLCK,
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITS.lock().end(self.id);
    }
}

/// The part that a program means (`struct flock`), whose positions are from `base` on.
fn part(owner: PartOwner, asked: &Flock, base: u64) -> Result<Record<PartOwner>, Errno> {
    let is_exclusive = match asked.kind as u32 {
        linux::F_RDLCK | linux::F_UNLCK => false,
        linux::F_WRLCK => true,
        _ => return Err(Errno::EINVAL),
    };
    let first = (base as i64).checked_add(asked.start).ok_or(Errno::EOVERFLOW)?;
    let (first, last) = match asked.length {
        0 => (first, END as i64),
        1.. => (first, first.checked_add(asked.length - 1).ok_or(Errno::EOVERFLOW)?),
        _ => (first.checked_add(asked.length).ok_or(Errno::EINVAL)?, first - 1),
    };
    match u64::try_from(first) {
        Ok(first) => Ok(Record { owner, is_exclusive, first, last: last as u64 }),
        Err(_) => Err(Errno::EINVAL),
    }
}
