// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is to be signalled when a file is ready, and how (F_SETOWN, F_SETSIG). Processes of the
//! realm and their threads are; others, and groups of processes, are kept, and not signalled.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crtos_abi::ids::{Pid, Tid};
use crtos_core::task::{self, Mutex};
use linux_raw_sys::general as linux;

use super::sigio::Sigio;
use crate::{abi::Errno, process::ThreadExt as _, remote, signal::Recipient};

/// Signals have numbers up to that.
const MOST: u64 = 64;

/// The owner of an open file description.
pub struct Owner {
    /// Its kind (F_OWNER_*) in the upper half, its number in the lower one; 0 for nobody.
    who: AtomicU64,
    /// The signal; 0 for the usual one.
    signal: AtomicU32,
    /// What tells the owner, while it is to be told.
    sigio: Mutex<Option<Arc<Sigio>>>,
}

impl Owner {
    /// Nobody.
    pub const fn new() -> Self {
        Self { who: AtomicU64::new(0), signal: AtomicU32::new(0), sigio: Mutex::new(None) }
    }

    /// F_SETOWN: a process, or a group of processes if the number is negative. May sleep.
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
        if let Some(sigio) = &*self.sigio.lock() {
            sigio.set_recipient(self.recipient());
        }
        Ok(())
    }

    /// The calling process becomes it.
    pub fn set_caller(&self) {
        let pid = task::current().user().map_or(0, |user| user.process.pid.get());
        self.who.store(u64::from(linux::F_OWNER_PID) << 32 | u64::from(pid), Ordering::Relaxed);
    }

    /// The calling process, which has just gone on as another program by execve(2), is the owner
    /// still, if it was. May sleep.
    pub fn follow(&self) {
        let pid = task::current().user().map_or(0, |user| user.process.pid.get());
        if let Some(sigio) = &*self.sigio.lock()
            && self.get() == (linux::F_OWNER_PID, pid)
            && let Some(recipient) = self.recipient()
        {
            sigio.follow(recipient);
        }
    }

    /// Whom it signals, if that is one of the realm whom the calling program may signal. May sleep.
    fn recipient(&self) -> Option<Recipient> {
        let current = task::current();
        let user = current.user()?;
        match self.get() {
            (linux::F_OWNER_PID, number) => Recipient::process(user, Pid::new(number)?),
            (linux::F_OWNER_TID, number) => Recipient::thread(user, Tid::new(number)?),
            _ => None,
        }
    }

    /// Has `sigio` tell it, or nobody any more; returns what did before. May sleep.
    pub fn tell(&self, sigio: Option<Arc<Sigio>>) -> Option<Arc<Sigio>> {
        let mut place = self.sigio.lock();
        if let Some(sigio) = &sigio {
            sigio.set_signal(self.signal());
            sigio.set_recipient(self.recipient());
        }
        core::mem::replace(&mut *place, sigio)
    }

    /// Tells Linux of it, for its file at descriptor `fd`. A thread becomes its process, and who
    /// has ended nobody. May sleep.
    pub fn give_to_linux(&self, fd: u64) -> Result<(), Errno> {
        let settings = [
            (linux::F_SETOWN, i64::from(self.number()) as u64),
            (linux::F_SETSIG, self.signal().into()),
        ];
        for (command, value) in settings.into_iter().filter(|(_, value)| *value != 0) {
            match remote::linux(linux::__NR_fcntl, &[fd, command.into(), value]) {
                Ok(_) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes over what Linux knows of its file at descriptor `fd`. May sleep.
    pub fn take_from_linux(&self, fd: u64) -> Result<(), Errno> {
        let ask = |command: u32| remote::linux(linux::__NR_fcntl, &[fd, command.into(), 0]);
        // A group with a small number cannot be told from an error.
        match ask(linux::F_GETOWN).unwrap_or(0) as i32 {
            0 => {}
            owner => match self.set(owner) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error),
            },
        }
        self.set_signal(ask(linux::F_GETSIG)?)
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

    /// F_SETSIG. May sleep.
    pub fn set_signal(&self, signal: u64) -> Result<(), Errno> {
        if signal > MOST {
            return Err(Errno::EINVAL);
        }
        self.signal.store(signal as u32, Ordering::Relaxed);
        if let Some(sigio) = &*self.sigio.lock() {
            sigio.set_signal(signal as u32);
        }
        Ok(())
    }

    /// F_GETSIG.
    pub fn signal(&self) -> u32 {
        self.signal.load(Ordering::Relaxed)
    }
}
