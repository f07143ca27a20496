// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contexts of asynchronous transfers (io_setup(2)): where it is told how these came out.
//!
//! What is asked for is done at once, by the thread that asks, as Linux does it with files that are
//! not opened with O_DIRECT. What is told lies in a ring in the program's memory, whose address is
//! the context's name: C libraries and programs look there themselves.

use alloc::{collections::BTreeMap, sync::Arc};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_core::{
    mm::{
        heap,
        space::{AddressSpace, Map, Placement, Protection},
    },
    task::{Mutex, Thread, WaitError, WaitQueue},
    time::Nanos,
};

use crate::{abi::Errno, memory::user, signal};

/// Most transfers that contexts of all programs have room for together: Linux's preset of
/// fs.aio-max-nr.
const MOST: u32 = 65536;
/// Fewest that one has room for.
const LEAST: u32 = 16;

/// How many contexts have room for.
static PROMISED: AtomicU32 = AtomicU32::new(0);

/// What the ring begins with (`struct aio_ring`).
const HEADER: u64 = 32;
/// Where in that the program's end is, and the kernel's.
const HEAD: u64 = 8;
const TAIL: u64 = 12;
const MAGIC: u32 = 0xa10a_10a1;
/// Words of a `struct io_event`, and its bytes.
const WORDS: usize = 4;
const EVENT: u64 = 8 * WORDS as u64;

/// How a transfer came out.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// What the program has named it by.
    pub data: u64,
    /// Where the program has described it.
    pub control_block: u64,
    /// What its call would have returned.
    pub result: u64,
}

/// A context. Its room is given back when it is dropped.
pub struct Context {
    ring: UserAddr,
    /// Bytes of the ring, and events that it has.
    length: u64,
    count: u32,
    promised: u32,
    state: Mutex<State>,
    /// How many outcomes were told, for those who wait.
    told: AtomicU32,
    waiters: WaitQueue,
    /// Nobody knows it any more. Set with the state locked.
    is_over: AtomicBool,
}

struct State {
    /// Where the next outcome goes.
    tail: u32,
    /// Transfers that are under way.
    under_way: u32,
}

/// Room for a number of transfers among that of all programs.
struct Promise(u32);

impl Promise {
    fn take(count: u32) -> Result<Self, Errno> {
        let more = |all: u32| all.checked_add(count).filter(|&all| all <= MOST);
        match PROMISED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Self(count)),
            Err(_) => Err(Errno::EAGAIN),
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        PROMISED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        drop(Promise(self.promised));
    }
}

impl Context {
    /// One with room for `wanted` transfers, in the memory of the calling program.
    fn new(space: &AddressSpace, wanted: u32) -> Result<Arc<Self>, Errno> {
        if wanted > MOST {
            return Err(Errno::EAGAIN);
        }
        let promise = Promise::take(wanted)?;
        // As many as Linux has, of which one stays free.
        let events = u64::from(wanted.max(LEAST)) * 2 + 2;
        let length = (HEADER + events * EVENT).next_multiple_of(PAGE_SIZE);
        let count = ((length - HEADER) / EVENT) as u32;
        let placement = Placement::Anywhere { hint: UserAddr::NULL };
        let protection = Protection::READ | Protection::WRITE;
        let map = Map { populate: true, ..Map::private(placement, length, protection) };
        let ring = space.map(map)?;
        let promised = core::mem::ManuallyDrop::new(promise).0;
        let context = Arc::new(Self {
            ring,
            length,
            count,
            promised,
            state: Mutex::new(State { tail: 0, under_way: 0 }),
            told: AtomicU32::new(0),
            waiters: WaitQueue::new(),
            is_over: AtomicBool::new(false),
        });
        // Its number, its length, both ends, what marks it, what it is compatible with.
        let header = [0, count, 0, 0, MAGIC, 1, 0, HEADER as u32].map(u32::to_le_bytes);
        if user::write(ring, header.as_flattened()).is_err() {
            context.end(space);
            return Err(Errno::ENOMEM);
        }
        Ok(context)
    }

    /// Its name.
    pub fn name(&self) -> u64 {
        self.ring.get()
    }

    /// Transfers that one call asks for at most.
    pub fn room(&self) -> u64 {
        u64::from(self.count) - 1
    }

    fn check(&self) -> Result<(), Errno> {
        if self.is_over.load(Ordering::Relaxed) { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// The program's end of the ring, which it may have changed.
    fn head(&self) -> Result<u32, Errno> {
        Ok(user::read_u32(self.ring + HEAD)? % self.count)
    }

    fn event(&self, at: u32) -> UserAddr {
        self.ring + HEADER + u64::from(at) * EVENT
    }

    /// A transfer begins: EAGAIN if there is no room for how it comes out. May sleep.
    pub fn begin(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        self.check()?;
        let used = (state.tail + self.count - self.head()?) % self.count;
        if used + state.under_way + 1 >= self.count {
            return Err(Errno::EAGAIN);
        }
        state.under_way += 1;
        Ok(())
    }

    /// A transfer that was begun was none.
    pub fn cancel(&self) {
        self.state.lock().under_way -= 1;
    }

    /// Tells how a transfer came out. May sleep.
    pub fn tell(&self, outcome: &Outcome) {
        {
            let mut state = self.state.lock();
            state.under_way -= 1;
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let Outcome { data, control_block, result } = *outcome;
            let next = (state.tail + 1) % self.count;
            // A program that has taken the ring away hears of nothing.
            let _ = user::write_words(self.event(state.tail), [data, control_block, result, 0]);
            let _ = user::write_u32(self.ring + TAIL, next);
            state.tail = next;
        }
        self.told.fetch_add(1, Ordering::SeqCst);
        self.waiters.wake_all();
    }

    /// Hands up to `most` outcomes to the program; returns how many. May sleep.
    fn take(&self, to: UserAddr, most: u64) -> Result<u64, Errno> {
        let state = self.state.lock();
        self.check()?;
        let mut head = self.head()?;
        let mut done = 0;
        while done < most && head != state.tail {
            let event: [u64; WORDS] = user::read_words(self.event(head))?;
            if user::write_words(to.wrapping_add(done * EVENT), event).is_err() {
                return if done > 0 { Ok(done) } else { Err(Errno::EFAULT) };
            }
            head = (head + 1) % self.count;
            // At once: what was handed over is not handed over again.
            user::write_u32(self.ring + HEAD, head)?;
            done += 1;
        }
        Ok(done)
    }

    /// Hands up to `most` outcomes to the program, and waits until it is at least `least`, or the
    /// time has come. Sleeps.
    pub fn receive(
        &self,
        to: UserAddr,
        least: u64,
        most: u64,
        deadline: Option<Nanos>,
    ) -> Result<u64, Errno> {
        let mut done = 0;
        loop {
            let told = self.told.load(Ordering::SeqCst);
            match self.take(to.wrapping_add(done * EVENT), most - done) {
                Ok(count) => done += count,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
            if done >= least {
                return Ok(done);
            }
            let has_news = || {
                let is_new = self.told.load(Ordering::SeqCst) != told;
                (is_new || self.is_over.load(Ordering::Relaxed)).then_some(())
            };
            let is_interrupted = |_: &Thread| signal::is_interrupted();
            match self.waiters.wait_until(deadline, is_interrupted, has_news) {
                Ok(()) => {}
                Err(WaitError::Timeout) => return Ok(done),
                Err(WaitError::Interrupted) if done > 0 => return Ok(done),
                Err(WaitError::Interrupted) => return Err(Errno::EINTR),
            }
        }
    }

    /// Ends it: nothing is told any more, and the ring goes.
    fn end(&self, space: &AddressSpace) {
        {
            let _state = self.state.lock();
            self.is_over.store(true, Ordering::Relaxed);
        }
        self.waiters.wake_all();
        let _ = space.unmap(self.ring, self.length);
    }
}

/// The contexts of a process, by their names.
pub struct Contexts(Mutex<BTreeMap<u64, Arc<Context>>>);

impl Default for Contexts {
    /// None.
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

impl Contexts {
    /// Adds one with room for `count` transfers. May sleep.
    pub fn add(&self, space: &AddressSpace, count: u32) -> Result<Arc<Context>, Errno> {
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let context = Context::new(space, count)?;
        let before = self.0.lock().insert(context.name(), context.clone());
        // The program has taken the ring of that one away.
        drop(before);
        Ok(context)
    }

    /// The one of that name; EINVAL if there is none.
    pub fn get(&self, name: u64) -> Result<Arc<Context>, Errno> {
        self.0.lock().get(&name).cloned().ok_or(Errno::EINVAL)
    }

    /// Removes the one of that name. May sleep.
    pub fn remove(&self, space: &AddressSpace, name: u64) -> Result<(), Errno> {
        let context = self.0.lock().remove(&name).ok_or(Errno::EINVAL)?;
        context.end(space);
        Ok(())
    }
}
