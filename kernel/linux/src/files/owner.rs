// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is to be signalled when a file is ready, and how (F_SETOWN, F_SETSIG). That is kept, and
//! nobody is signalled.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use crate::{abi::Errno, remote};

/// Signals have numbers up to that.
const MOST: u64 = 64;

/// The owner of an open file description.
#[derive(Default)]
pub struct Owner {
    /// Its kind (F_OWNER_*) in the upper half, its number in the lower one; 0 for nobody.
    who: AtomicU64,
    /// The signal; 0 for the usual one.
    signal: AtomicU32,
}

impl Owner {
    /// F_SETOWN: a process, or a group of processes if the number is negative.
    pub fn set(&self, number: i32) -> Result<(), Errno> {
        match number {
            0.. => self.set_kind(linux::F_OWNER_PID, number),
            i32::MIN => Err(Errno::EINVAL),
            _ => self.set_kind(linux::F_OWNER_PGRP, -number),
        }
    }

    /// F_SETOWN_EX: a thread, a process or a group of processes. May sleep.
    pub fn set_kind(&self, kind: u32, number: i32) -> Result<(), Errno> {
        let target = match kind {
            linux::F_OWNER_TID | linux::F_OWNER_PID => i64::from(number),
            linux::F_OWNER_PGRP => -i64::from(number),
            _ => return Err(Errno::EINVAL),
        };
        if number < 0 {
            return Err(Errno::ESRCH);
        }
        if number != 0 {
            // Signal 0 asks whether there is anybody.
            match remote::linux(linux::__NR_kill, &[target as u64, 0]) {
                Ok(_) | Err(Errno::EPERM) => {}
                Err(error) => return Err(error),
            }
        }
        self.who.store(u64::from(kind) << 32 | number as u64, Ordering::Relaxed);
        Ok(())
    }

    /// F_GETOWN_EX: the kind and the number.
    pub fn get(&self) -> (u32, u32) {
        let who = self.who.load(Ordering::Relaxed);
        ((who >> 32) as u32, who as u32)
    }

    /// F_GETOWN: the number, negative for a group of processes.
    pub fn number(&self) -> i32 {
        match self.get() {
            (linux::F_OWNER_PGRP, number) => -(number as i32),
            (_, number) => number as i32,
        }
    }

    /// F_SETSIG.
    pub fn set_signal(&self, signal: u64) -> Result<(), Errno> {
        if signal > MOST {
            return Err(Errno::EINVAL);
        }
        self.signal.store(signal as u32, Ordering::Relaxed);
        Ok(())
    }

    /// F_GETSIG.
    pub fn signal(&self) -> u32 {
        self.signal.load(Ordering::Relaxed)
    }
}
