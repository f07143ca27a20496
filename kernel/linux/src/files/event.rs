// SPDX-License-Identifier: MIT OR Apache-2.0
//! eventfd: a counter to wait for.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_abi::UserAddr;
use spin::Once;

use crtos_core::{arch::user_memory, personality::FastResult, sync::SpinLock, task::WaitQueue};

use super::{
    Description, Events, Memory, Object, Watchers,
    successor::{self, Successor},
    wait,
};
use crate::abi::{Errno, SysResult};

/// The counter stays below this.
const LIMIT: u64 = u64::MAX;

/// An eventfd.
pub struct Event {
    counter: SpinLock<u64>,
    /// EFD_SEMAPHORE: a read takes one.
    semaphore: bool,
    to_read: WaitQueue,
    to_write: WaitQueue,
    watchers: Watchers,
    /// It has left the realm: whoever still uses it makes the call again. Set with the lock held.
    has_left: AtomicBool,
    /// How many in the kernel signal it. Raised with the lock held.
    signallers: AtomicU32,
    successor: Once<Arc<Successor>>,
}

impl Event {
    /// A counter.
    pub fn new(value: u64, semaphore: bool) -> Self {
        Self {
            counter: SpinLock::new(value),
            semaphore,
            to_read: WaitQueue::new(),
            to_write: WaitQueue::new(),
            watchers: Watchers::new(),
            has_left: AtomicBool::new(false),
            signallers: AtomicU32::new(0),
            successor: Once::new(),
        }
    }

    /// Whether a read takes one.
    pub fn is_semaphore(&self) -> bool {
        self.semaphore
    }

    /// Whether it has left the realm.
    #[inline(always)]
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// What it has become in Linux.
    pub fn successor(&self) -> Option<Arc<Successor>> {
        self.successor.get().cloned()
    }

    /// It leaves the realm, unless the kernel signals it (`false`): what it counts goes to `put`,
    /// and it is the `successor`. Whoever waits for it makes the call again. May sleep.
    pub fn leave(
        &self,
        successor: Successor,
        put: impl FnOnce(u64) -> Result<(), Errno>,
    ) -> Result<bool, Errno> {
        let counted = {
            let mut counter = self.counter.lock();
            if self.has_left() {
                return Ok(true);
            }
            if self.signallers.load(Ordering::Relaxed) > 0 {
                return Ok(false);
            }
            self.has_left.store(true, Ordering::Relaxed);
            core::mem::take(&mut *counter)
        };
        // It has room for that.
        let result = if counted > 0 { put(counted) } else { Ok(()) };
        self.successor.call_once(|| Arc::new(successor));
        self.to_read.wake_all();
        self.to_write.wake_all();
        self.watchers.notify(Events::all());
        result.map(|()| true)
    }

    /// Whether it is here still. The lock is held.
    fn check_here(&self) -> Result<(), Errno> {
        match self.has_left() {
            true => Err(successor::made_again()),
            false => Ok(()),
        }
    }

    /// What a read takes of `value`; `None` if there is nothing.
    fn share(&self, value: u64) -> Option<u64> {
        let share = if self.semaphore { value.min(1) } else { value };
        (share > 0).then_some(share)
    }

    /// Takes the value, or one of it.
    fn take(&self) -> Option<SysResult> {
        let mut counter = self.counter.lock();
        if let Err(left) = self.check_here() {
            return Some(Err(left));
        }
        let taken = self.share(*counter)?;
        *counter -= taken;
        Some(Ok(taken))
    }

    /// Adds, if the sum stays below the limit.
    fn add(&self, value: u64) -> Option<Result<(), Errno>> {
        let mut counter = self.counter.lock();
        if let Err(left) = self.check_here() {
            return Some(Err(left));
        }
        let sum = counter.checked_add(value).filter(|&sum| sum < LIMIT)?;
        *counter = sum;
        Some(Ok(()))
    }

    fn announce(&self, read: bool) {
        if read {
            self.to_write.wake_all();
            self.watchers.notify(Events::OUT);
        } else {
            self.to_read.wake(if self.semaphore { usize::MAX } else { 1 });
            self.watchers.notify(Events::IN);
        }
    }

    fn signal(&self) {
        if let Some(Ok(())) = self.add(1) {
            self.to_read.wake(1);
            self.watchers.notify(Events::IN);
        }
    }

    /// read(2).
    pub fn read(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        if memory.left() < 8 {
            return Err(Errno::EINVAL);
        }
        let value = wait::take(&self.to_read, nonblocking, || self.take())??;
        self.announce(true);
        if memory.write(&value.to_le_bytes()) < 8 { Err(Errno::EFAULT) } else { Ok(8) }
    }

    /// write(2).
    pub fn write(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        if memory.left() < 8 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; 8];
        if memory.read(&mut bytes) < 8 {
            return Err(Errno::EFAULT);
        }
        let value = u64::from_le_bytes(bytes);
        if value == u64::MAX {
            return Err(Errno::EINVAL);
        }
        wait::take(&self.to_write, nonblocking, || self.add(value))??;
        if value > 0 {
            self.announce(false);
        }
        Ok(8)
    }

    /// As [`Event::read`], on the fast path.
    #[inline(never)]
    pub fn read_at_once(&self, buffer: UserAddr, length: u64) -> FastResult {
        // Several are woken one by one on the full path.
        if length < 8
            || !user_memory::is_range(buffer, length)
            || self.to_write.len() > 1
            || !self.watchers.are_few()
        {
            return FastResult::FULL;
        }
        {
            let mut counter = self.counter.lock_quietly();
            let Some(value) = self.share(*counter) else { return FastResult::FULL };
            if !user_memory::write_at_once(buffer, &value.to_le_bytes()) {
                return FastResult::FULL;
            }
            *counter -= value;
        }
        self.announce(true);
        FastResult::done(8)
    }

    /// As [`Event::write`], on the fast path.
    #[inline(never)]
    pub fn write_at_once(&self, buffer: UserAddr, length: u64) -> FastResult {
        let mut bytes = [0; 8];
        if length < 8
            || !user_memory::is_range(buffer, length)
            || self.to_read.len() > 1
            || !self.watchers.are_few()
            || !user_memory::read_at_once(buffer, &mut bytes)
        {
            return FastResult::FULL;
        }
        let value = u64::from_le_bytes(bytes);
        if value == u64::MAX || !matches!(self.add(value), Some(Ok(()))) {
            return FastResult::FULL;
        }
        if value > 0 {
            self.announce(false);
        }
        FastResult::done(8)
    }

    /// What it is ready for.
    pub fn ready(&self) -> Events {
        let counter = *self.counter.lock();
        if self.has_left() {
            return successor::events();
        }
        let mut events = Events::empty();
        events.set(Events::IN, counter > 0);
        events.set(Events::OUT, counter < LIMIT - 1);
        events.set(Events::ERROR, counter == LIMIT);
        events
    }

    /// Who is told of changes.
    pub fn watchers(&self) -> &Watchers {
        &self.watchers
    }
}

/// An eventfd that the kernel signals: it does not leave the realm meanwhile.
pub struct Signaller(Arc<Description>);

impl Signaller {
    /// EINVAL if `file` is no eventfd, or one that has left the realm.
    pub fn new(file: Arc<Description>) -> Result<Self, Errno> {
        let Object::Event(event) = &file.object else { return Err(Errno::EINVAL) };
        {
            let _counter = event.counter.lock();
            if event.has_left() {
                return Err(Errno::EINVAL);
            }
            event.signallers.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Self(file))
    }

    /// Adds one, unless there is no room, and wakes one of those who read. In an interrupt it tells
    /// one watcher at once, and each of the others by a further one. Any context.
    pub fn signal(&self) {
        if let Object::Event(event) = &self.0.object {
            event.signal();
        }
    }
}

impl Drop for Signaller {
    fn drop(&mut self) {
        if let Object::Event(event) = &self.0.object {
            event.signallers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
