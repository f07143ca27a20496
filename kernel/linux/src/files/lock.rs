// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks of a file (flock(2)): many shared ones or one exclusive one, each of an open file
//! description.

use alloc::vec::Vec;

use linux_raw_sys::general as linux;

use crtos_core::task::{Mutex, WaitQueue};

use super::wait;
use crate::abi::{Errno, SysResult};

/// Who has the lock: the address of the description, and whether it is exclusive.
type Holder = (usize, bool);

/// The locks of a file.
pub struct Locks {
    holders: Mutex<Vec<Holder>>,
    waiters: WaitQueue,
}

impl Default for Locks {
    fn default() -> Self {
        Self { holders: Mutex::new(Vec::new()), waiters: WaitQueue::new() }
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
        holders.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        holders.push((owner, exclusive));
        Ok(Some(()))
    }

    /// The description at an address has no lock any more. May sleep.
    pub fn release(&self, owner: usize) {
        let mut holders = self.holders.lock();
        let before = holders.len();
        holders.retain(|&(other, _)| other != owner);
        let released = holders.len() < before;
        drop(holders);
        if released {
            self.waiters.wake_all();
        }
    }
}
