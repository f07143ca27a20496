// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queued signals: one pool of entries for all processes, and the queues that they form.
//!
//! A standard signal is pending once, a real-time signal as often as it was sent, in that order.
//! Each signal has a queue of entries, so that adding and taking cost the same however long the
//! queue is. The pool grows by [`Chunk`]s, which are made where memory may be allocated. A timer
//! has to send its signal from an interrupt, so it owns an entry in advance: a [`Ticket`].

use alloc::{boxed::Box, vec::Vec};

use crate::{
    info::{Info, SI_USER},
    set::{COUNT, FIRST_REAL_TIME, Set},
};

/// Entries of a chunk.
pub const CHUNK: usize = 256;
/// The most chunks of the pool.
pub const MAX_CHUNKS: usize = 128;

/// The index of no entry.
const NONE: u16 = u16::MAX;

/// Who has an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The pool: the entry is free, or it goes back there when its signal is taken.
    Pool,
    /// A ticket, and the entry is in no queue.
    Ticket,
    /// A ticket, and the entry is in a queue.
    Posted,
}

#[derive(Clone, Copy)]
struct Entry {
    info: Info,
    /// The word that the thread that takes the signal gets, of a ticket's signal.
    cookie: u64,
    next: u16,
    owner: Owner,
}

/// Memory for [`CHUNK`] entries.
pub struct Chunk(Box<[Entry]>);

impl Chunk {
    /// Allocates a chunk; `None` without memory.
    pub fn new() -> Option<Self> {
        const FREE: Entry = Entry { info: Info([0; 6]), cookie: 0, next: NONE, owner: Owner::Pool };
        let mut entries = Vec::new();
        entries.try_reserve_exact(CHUNK).ok()?;
        entries.resize(CHUNK, FREE);
        Some(Self(entries.into_boxed_slice()))
    }
}

/// An entry of the pool that a sender owns. [`Pool::release`] gives it back.
#[derive(Debug)]
pub struct Ticket(u16);

/// The number of entries that a process may have (RLIMIT_SIGPENDING), and has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// The most.
    pub limit: u64,
    /// In use.
    pub used: u64,
}

impl Account {
    /// Makes an account without entries, of at most `limit`.
    pub const fn new(limit: u64) -> Self {
        Self { limit, used: 0 }
    }
}

/// No entry is left, in the pool or in the account (EAGAIN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The pending signals of a thread or of a process.
pub struct Pending {
    set: Set,
    first: [u16; COUNT as usize],
    last: [u16; COUNT as usize],
}

impl Default for Pending {
    fn default() -> Self {
        Self::new()
    }
}

impl Pending {
    /// Makes an empty set of queues.
    pub const fn new() -> Self {
        Self { set: Set::EMPTY, first: [NONE; COUNT as usize], last: [NONE; COUNT as usize] }
    }

    /// Returns which signals are pending.
    pub fn set(&self) -> Set {
        self.set
    }
}

/// A signal that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its `siginfo`.
    pub info: Info,
    /// The cookie if it was a ticket's.
    pub cookie: Option<u64>,
}

/// The entries of all queues.
pub struct Pool {
    chunks: Vec<Chunk>,
    /// The first of those that were given back.
    free: u16,
    /// From here on, none was ever used.
    fresh: usize,
    used: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// Makes an empty pool. Nothing can be queued before [`Pool::grow`].
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), free: NONE, fresh: 0, used: 0 }
    }

    /// Adds a chunk. Allocates a table of a few pages the first time. Gives the chunk back if the
    /// pool has its full size, or without memory.
    pub fn grow(&mut self, chunk: Chunk) -> Result<(), Chunk> {
        if self.chunks.len() == MAX_CHUNKS
            || self.chunks.capacity() == 0 && self.chunks.try_reserve_exact(MAX_CHUNKS).is_err()
        {
            return Err(chunk);
        }
        self.chunks.push(chunk);
        Ok(())
    }

    /// Returns the number of free entries.
    pub fn spare(&self) -> usize {
        self.chunks.len() * CHUNK - self.used
    }

    /// Says whether a chunk should be added.
    pub fn is_short(&self) -> bool {
        self.spare() < CHUNK / 2 && self.chunks.len() < MAX_CHUNKS
    }

    fn entry(&mut self, index: u16) -> Option<&mut Entry> {
        let (chunk, place) = (usize::from(index) / CHUNK, usize::from(index) % CHUNK);
        self.chunks.get_mut(chunk)?.0.get_mut(place)
    }

    /// Takes a free entry, within the account's limit or, with `beyond`, above it.
    fn allocate(&mut self, account: &mut Account, beyond: bool) -> Option<u16> {
        if account.used >= account.limit && !beyond {
            return None;
        }
        let index = match self.free {
            NONE if self.fresh < self.chunks.len() * CHUNK => {
                self.fresh += 1;
                (self.fresh - 1) as u16
            }
            NONE => return None,
            index => {
                self.free = self.entry(index)?.next;
                index
            }
        };
        self.used += 1;
        account.used += 1;
        Some(index)
    }

    fn give_back(&mut self, account: &mut Account, index: u16) {
        let free = self.free;
        if let Some(entry) = self.entry(index) {
            entry.next = free;
            self.free = index;
            self.used -= 1;
            account.used = account.used.saturating_sub(1);
        }
    }

    /// Appends an entry to the queue of its signal.
    fn append(&mut self, pending: &mut Pending, signal: u32, index: u16) {
        let queue = signal as usize - 1;
        if let Some(entry) = self.entry(index) {
            entry.next = NONE;
        }
        match self.entry(pending.last[queue]) {
            Some(last) => last.next = index,
            None => pending.first[queue] = index,
        }
        pending.last[queue] = index;
        pending.set |= Set::of(signal);
    }

    /// Adds a signal to `pending`. A standard signal that is pending already is not added again. If
    /// no entry is free, a signal of kill(2) or the kernel becomes pending without its `siginfo`,
    /// and a real-time signal of sigqueue(3) fails.
    #[inline]
    pub fn push(
        &mut self,
        pending: &mut Pending,
        account: &mut Account,
        info: Info,
    ) -> Result<(), Full> {
        let signal = info.signal();
        if signal < FIRST_REAL_TIME && pending.set.contains(signal) {
            return Ok(());
        }
        // A standard signal is pending once, so those of kill(2) and the kernel may exceed the
        // limit.
        let beyond = signal < FIRST_REAL_TIME && info.code() >= SI_USER;
        match self.allocate(account, beyond) {
            Some(index) => {
                if let Some(entry) = self.entry(index) {
                    *entry = Entry { info, cookie: 0, next: NONE, owner: Owner::Pool };
                }
                self.append(pending, signal, index);
                Ok(())
            }
            None if signal >= FIRST_REAL_TIME && info.code() != SI_USER => Err(Full),
            None => {
                pending.set |= Set::of(signal);
                Ok(())
            }
        }
    }

    /// Takes the `signal` out of `pending` that has been there longest.
    #[inline(always)]
    pub fn pop(
        &mut self,
        pending: &mut Pending,
        account: &mut Account,
        signal: u32,
    ) -> Option<Taken> {
        if !pending.set.contains(signal) {
            return None;
        }
        let queue = signal as usize - 1;
        let index = pending.first[queue];
        let Some(entry) = self.entry(index) else {
            pending.set = pending.set - Set::of(signal);
            return Some(Taken { info: Info::new(signal, SI_USER), cookie: None });
        };
        let Entry { info, cookie, next, owner } = *entry;
        entry.owner = Owner::Ticket;
        pending.first[queue] = next;
        if next == NONE {
            pending.last[queue] = NONE;
            pending.set = pending.set - Set::of(signal);
        }
        let cookie = match owner {
            Owner::Pool => {
                self.give_back(account, index);
                None
            }
            _ => Some(cookie),
        };
        Some(Taken { info, cookie })
    }

    /// Reserves an entry for a sender that must not fail later.
    pub fn reserve(&mut self, account: &mut Account) -> Result<Ticket, Full> {
        let index = self.allocate(account, false).ok_or(Full)?;
        if let Some(entry) = self.entry(index) {
            entry.owner = Owner::Ticket;
        }
        Ok(Ticket(index))
    }

    /// Says whether a ticket's signal is pending.
    pub fn is_posted(&mut self, ticket: &Ticket) -> bool {
        self.entry(ticket.0).is_some_and(|entry| entry.owner == Owner::Posted)
    }

    /// Adds a ticket's signal to `pending`, with a cookie for the thread that takes it. Other
    /// signals of its number may be pending there. If the ticket's signal is pending already,
    /// wherever that is, it stays there with the new cookie and one more overrun. `false` if the
    /// ticket is not one of this pool.
    pub fn post(
        &mut self,
        pending: &mut Pending,
        ticket: &Ticket,
        info: Info,
        cookie: u64,
    ) -> bool {
        let signal = info.signal();
        match self.entry(ticket.0) {
            Some(entry) if entry.owner == Owner::Ticket => {
                *entry = Entry { info, cookie, next: NONE, owner: Owner::Posted };
                self.append(pending, signal, ticket.0);
                true
            }
            Some(entry) if entry.owner == Owner::Posted => {
                entry.cookie = cookie;
                entry.info = entry.info.with_more_overrun(1);
                true
            }
            _ => false,
        }
    }

    /// Gives a ticket's entry back. If its signal is pending, it stays so.
    pub fn release(&mut self, account: &mut Account, ticket: Ticket) {
        match self.entry(ticket.0) {
            Some(entry) if entry.owner == Owner::Posted => entry.owner = Owner::Pool,
            _ => self.give_back(account, ticket.0),
        }
    }
}
