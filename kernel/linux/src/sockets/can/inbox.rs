// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that wait to be received from a socket, in memory that is there before they come.

use core::sync::atomic::{AtomicU32, Ordering};

use crtos_can::Queue;
use crtos_core::{
    mm::heap,
    sync::SpinLock,
    task::{WaitError, WaitQueue},
    time::Nanos,
};

use super::COST;
use crate::{
    abi::Errno,
    files::{Events, Watchers},
    signal,
    sockets::room,
};

/// Messages that wait, and who waits for them.
pub struct Inbox<M> {
    queue: SpinLock<Queue<M>>,
    lost: AtomicU32,
    readers: WaitQueue,
    /// Who watches the socket.
    pub watchers: Watchers,
}

/// How many messages may wait in a buffer of so many bytes.
pub fn room(bytes: u32) -> usize {
    bytes.div_ceil(COST) as usize
}

/// A queue for a buffer of so many bytes, and for what waits already.
fn queue<M>(bytes: u32, others: usize) -> Result<Queue<M>, Errno> {
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    Queue::for_others(room(bytes), others).ok_or(Errno::ENOMEM)
}

impl<M> Inbox<M> {
    /// An empty one, a buffer of so many bytes.
    pub fn new(bytes: u32) -> Result<Self, Errno> {
        Ok(Self {
            queue: SpinLock::new(queue(bytes, 0)?),
            lost: AtomicU32::new(0),
            readers: WaitQueue::new(),
            watchers: Watchers::new(),
        })
    }

    /// Adds a message, or gives it back, counted as lost, if there is no room. Interrupts off.
    pub fn put(&self, message: M) -> Result<(), M> {
        self.queue.lock_quietly().push(message).inspect_err(|_| {
            self.lost.fetch_add(1, Ordering::Relaxed);
        })?;
        self.readers.wake(1);
        self.watchers.notify(Events::IN | Events::READ_NORMAL);
        Ok(())
    }

    /// Who waits for a message, or watches the socket, is to see that it has failed. Any context.
    pub fn tell_failure(&self) {
        self.readers.wake_all();
        self.watchers.notify(Events::ERROR);
    }

    /// How many were lost.
    pub fn lost(&self) -> u32 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// What `take` gives of those that wait. Unless `nonblocking`, waits for that until `deadline`.
    pub fn receive<R>(
        &self,
        deadline: Option<Nanos>,
        nonblocking: bool,
        mut take: impl FnMut(&mut Queue<M>) -> Option<R>,
    ) -> Result<R, Errno> {
        let deadline = if nonblocking { Some(Nanos::ZERO) } else { deadline };
        let (taken, is_last) = wait(&self.readers, deadline, || {
            let mut queue = self.queue.lock();
            let taken = take(&mut queue);
            taken.map(|taken| (taken, queue.is_empty()))
        })?;
        if !is_last {
            self.readers.wake(1);
        }
        Ok(taken)
    }

    /// Changes the room. As under Linux, what waits stays. May sleep.
    pub fn resize(&self, bytes: u32) -> Result<(), Errno> {
        room::change(&self.queue, Queue::len, |others| queue(bytes, others), Queue::take_all)
    }
}

/// Waits in `queue` until `take` gives something, or as long as the socket says.
#[inline(always)]
pub fn wait<R>(
    queue: &WaitQueue,
    deadline: Option<Nanos>,
    take: impl FnMut() -> Option<R>,
) -> Result<R, Errno> {
    let interrupted = |_: &_| signal::is_interrupted();
    queue.wait_until(deadline, interrupted, take).map_err(|error| match error {
        WaitError::Timeout => Errno::EAGAIN,
        // A wait that ends by itself is not begun anew.
        WaitError::Interrupted if deadline.is_some() => Errno::EINTR,
        WaitError::Interrupted => Errno::RESTART,
    })
}
