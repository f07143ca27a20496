// SPDX-License-Identifier: MIT OR Apache-2.0
//! signalfd: signals to read.
//!
//! A read takes what is pending for the process that reads and for its thread, whoever made the
//! file. So every process that waits for a file has it be told when a signal is pending there,
//! whichever it is; who waits looks again. Who reads waits as one who polls: they may be of several
//! processes, so all are told, in steps.

use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU64, Ordering};

use crtos_signal::{Info, Set, signalfd};

use crtos_core::{
    mm::heap,
    task::{self, Mutex},
};

use super::{Events, Memory, Notified, Watcher, Watchers};
use crate::{
    abi::{Errno, SysResult},
    process::ThreadExt as _,
    signal,
};

/// What is told of signals.
struct Core {
    watchers: Watchers,
}

/// A signalfd.
pub struct Signals {
    core: Arc<Core>,
    set: AtomicU64,
    /// What the processes have whose signals it is told of.
    told_by: Mutex<Vec<Weak<Watchers>>>,
}

impl Watcher for Core {
    fn notify(&self, _: Events) -> Notified {
        Notified { has_others: !self.watchers.is_empty(), is_taken: false }
    }

    fn announce(&self) {
        self.watchers.notify(Events::IN);
    }

    fn is_last(&self) -> bool {
        self.watchers.is_empty()
    }
}

impl Signals {
    /// A file of the signals of `set`.
    pub fn new(set: Set) -> Result<Self, Errno> {
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let core = Arc::new(Core { watchers: Watchers::of_watcher() });
        Ok(Self { core, set: AtomicU64::new(set.0), told_by: Mutex::new(Vec::new()) })
    }

    /// Makes it one of the signals of `set`.
    pub fn set(&self, set: Set) {
        self.set.store(set.0, Ordering::Relaxed);
        self.core.announce();
    }

    fn signals(&self) -> Set {
        Set(self.set.load(Ordering::Relaxed))
    }

    /// Has the calling process tell this file of its signals. Thread context; may sleep.
    pub fn listen(&self) -> Result<(), Errno> {
        let current = task::current();
        let process = &current.user().ok_or(Errno::ESRCH)?.process;
        let teller = process.signal_watchers.call_once(|| Arc::new(Watchers::new()));
        let mut told_by = self.told_by.lock();
        if told_by.iter().any(|by| core::ptr::eq(by.as_ptr(), Arc::as_ptr(teller))) {
            return Ok(());
        }
        told_by.retain(|by| by.strong_count() > 0);
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        told_by.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        teller.add(self.core.clone())?;
        told_by.push(Arc::downgrade(teller));
        Ok(())
    }

    fn take(&self) -> Option<Info> {
        signal::take(self.signals())
    }

    /// Waits for a signal.
    fn wait(&self) -> Result<Info, Errno> {
        self.listen()?;
        let reader: Arc<dyn Watcher> = task::current().arc();
        self.core.watchers.add(reader.clone())?;
        let result = loop {
            if let Some(info) = self.take() {
                break Ok(info);
            }
            if signal::is_interrupted() {
                break Err(Errno::RESTART);
            }
            task::block(None);
        };
        self.core.watchers.remove(&reader);
        result
    }

    /// read(2): as many signals as there are, and as there is room for.
    pub fn read(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        const SIZE: u64 = signalfd::SIZE as u64;
        let room = memory.left() / SIZE;
        if room == 0 {
            return Err(Errno::EINVAL);
        }
        let mut next = match self.take() {
            None if nonblocking => return Err(Errno::EAGAIN),
            None => Some(self.wait()?),
            taken => taken,
        };
        let mut count = 0;
        while let Some(info) = next {
            if memory.write(&signalfd::to_bytes(&info)) < signalfd::SIZE {
                return if count > 0 { Ok(count * SIZE) } else { Err(Errno::EFAULT) };
            }
            count += 1;
            next = if count < room { self.take() } else { None };
        }
        Ok(count * SIZE)
    }

    /// What it is ready for.
    pub fn ready(&self) -> Events {
        let any = !(signal::pending() & self.signals()).is_empty();
        if any { Events::IN } else { Events::empty() }
    }

    /// Who is told of changes.
    pub fn watchers(&self) -> &Watchers {
        &self.core.watchers
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let watcher: Arc<dyn Watcher> = self.core.clone();
        for teller in self.told_by.lock().drain(..).filter_map(|by| by.upgrade()) {
            teller.remove(&watcher);
        }
    }
}
