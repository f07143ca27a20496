// SPDX-License-Identifier: MIT OR Apache-2.0
//! The signals of a process and its threads (signal(7), POSIX.1 2.4).
//!
//! A [`Group`] is what one lock protects: the actions, what is pending for the process and for each thread, and what each thread blocks or
//! waits for. It decides which signals are dropped and which thread takes a signal of the process; who uses it wakes that thread.

use alloc::{boxed::Box, vec::Vec};

use crate::{
    info::Info,
    pool::{Account, Full, Pending, Pool, Taken, Ticket},
    set::{COUNT, SIGCONT, Set},
};

/// Handler that stands for the default action.
pub const DEFAULT: u64 = 0;
/// Handler that stands for ignoring.
pub const IGNORE: u64 = 1;

/// Threads that are looked at in one step of a search.
const SEARCH: usize = 16;

/// `struct sigaction` as rt_sigaction(2) has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// Address of the handler, [`DEFAULT`] or [`IGNORE`].
    pub handler: u64,
    /// `SA_*`.
    pub flags: u64,
    /// Address of the code that returns from the handler.
    pub restorer: u64,
    /// Blocked while the handler runs.
    pub mask: Set,
}

impl Action {
    /// Whether `signal` does nothing.
    pub fn ignores(&self, signal: u32) -> bool {
        self.handler == IGNORE || self.handler == DEFAULT && Set::HARMLESS.contains(signal)
    }

    /// Whether the program has a handler.
    pub fn is_handled(&self) -> bool {
        self.handler != DEFAULT && self.handler != IGNORE
    }
}

/// A thread of the process.
pub struct Member<T> {
    /// Thread id.
    pub tid: u32,
    /// What it blocks.
    mask: Set,
    /// What it waits for (sigtimedwait(2)), although it blocks it.
    waiting: Set,
    pending: Pending,
    /// What its owner keeps with it.
    pub own: T,
}

impl<T> Member<T> {
    /// A thread that blocks `mask` and has nothing pending.
    pub fn new(tid: u32, mask: Set, own: T) -> Self {
        let mask = mask - Set::UNCATCHABLE;
        Self { tid, mask, waiting: Set::EMPTY, pending: Pending::new(), own }
    }

    /// What it blocks.
    pub fn mask(&self) -> Set {
        self.mask
    }

    fn wants(&self, signal: u32) -> bool {
        (!self.mask | self.waiting).contains(signal)
    }
}

/// A place in the table of members.
pub enum Place<T> {
    /// A member's.
    Taken(Box<Member<T>>),
    /// Nobody's; the next free one.
    Free(usize),
}

/// The end of the list of free places.
const NO_PLACE: usize = usize::MAX;

/// Whom a signal is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The process: any of its threads.
    Process,
    /// The member of this number.
    Member(usize),
}

/// What became of a signal that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generated {
    /// Nothing: it is ignored, or it waits already.
    Dropped,
    /// It is pending, and this member should look.
    Wake(usize),
    /// It is pending, and nobody wants it now.
    Pending,
    /// It is pending, and the search for a thread that wants it goes on: see [`Group::search`].
    Search(usize),
}

/// The signals of a process.
pub struct Group<T> {
    actions: [Action; COUNT as usize],
    shared: Pending,
    members: Vec<Place<T>>,
    /// The first free place.
    free: usize,
    count: usize,
    /// Where the last search ended.
    next: usize,
    /// Entries of the pool that the process uses.
    pub account: Account,
}

impl<T> Group<T> {
    /// Default actions, no members, at most `limit` queued signals.
    pub const fn new(limit: u64) -> Self {
        const DEFAULT_ACTION: Action =
            Action { handler: DEFAULT, flags: 0, restorer: 0, mask: Set::EMPTY };
        Self {
            actions: [DEFAULT_ACTION; COUNT as usize],
            shared: Pending::new(),
            members: Vec::new(),
            free: NO_PLACE,
            count: 0,
            next: 0,
            account: Account::new(limit),
        }
    }

    /// Places for members: taken, and all.
    pub fn places(&self) -> (usize, usize) {
        (self.count, self.members.capacity())
    }

    /// Moves the places to a larger, empty `table`; the old one is the caller's to drop. The longest step of all: it copies the places.
    pub fn move_to(&mut self, mut table: Vec<Place<T>>) -> Vec<Place<T>> {
        if table.capacity() > self.members.capacity() {
            table.append(&mut self.members);
            core::mem::swap(&mut self.members, &mut table);
        }
        table
    }

    /// Adds a member. Gives it back if there is no place: see [`Group::move_to`].
    pub fn add(&mut self, member: Box<Member<T>>) -> Result<usize, Box<Member<T>>> {
        let mut index = self.free;
        if let Some(place) = self.members.get_mut(index) {
            if let Place::Free(next) = core::mem::replace(place, Place::Taken(member)) {
                self.free = next;
            }
        } else if self.members.len() < self.members.capacity() {
            index = self.members.len();
            self.members.push(Place::Taken(member));
        } else {
            return Err(member);
        }
        self.count += 1;
        Ok(index)
    }

    /// Takes a member out that has nothing pending (see [`Group::discard`]).
    pub fn remove(&mut self, index: usize) -> Option<Box<Member<T>>> {
        let free = self.free;
        let place = self.members.get_mut(index)?;
        if matches!(place, Place::Free(_)) {
            return None;
        }
        let Place::Taken(member) = core::mem::replace(place, Place::Free(free)) else {
            return None;
        };
        self.free = index;
        self.count -= 1;
        Some(member)
    }

    /// A member.
    pub fn member(&self, index: usize) -> Option<&Member<T>> {
        match self.members.get(index)? {
            Place::Taken(member) => Some(member),
            Place::Free(_) => None,
        }
    }

    /// A member.
    pub fn member_mut(&mut self, index: usize) -> Option<&mut Member<T>> {
        member_mut(&mut self.members, index)
    }

    /// What the process does on `signal`.
    pub fn action(&self, signal: u32) -> Action {
        self.actions[(signal as usize - 1) & 63]
    }

    /// Sets what the process does on `signal`. What waits of it although it is ignored now is dropped by [`Group::discard`].
    pub fn set_action(&mut self, signal: u32, action: Action) {
        self.actions[(signal as usize - 1) & 63] = action;
    }

    /// All actions, for a fork.
    pub fn actions(&self) -> &[Action; COUNT as usize] {
        &self.actions
    }

    /// Takes over the actions of another process.
    pub fn set_actions(&mut self, actions: [Action; COUNT as usize]) {
        self.actions = actions;
    }

    fn mask_of(&self, target: Target) -> Set {
        let index = match target {
            Target::Process => 0,
            Target::Member(index) => index,
        };
        self.member(index).map_or(Set::EMPTY, |member| member.mask | member.waiting)
    }

    /// Whether sending `signal` does nothing. A blocked signal is never dropped: its action may change before it is unblocked.
    pub fn is_ignored(&self, target: Target, signal: u32) -> bool {
        self.action(signal).ignores(signal) && !self.mask_of(target).contains(signal)
    }

    /// Sends a signal. Fails where sigqueue(3) does.
    #[inline]
    pub fn send(&mut self, pool: &mut Pool, target: Target, info: Info) -> Result<Generated, Full> {
        let signal = info.signal();
        if self.is_ignored(target, signal) {
            return Ok(Generated::Dropped);
        }
        let Some(pending) = Self::queue(&mut self.shared, &mut self.members, target) else {
            return Ok(Generated::Dropped);
        };
        pool.push(pending, &mut self.account, info)?;
        Ok(self.find(target, signal))
    }

    /// Sends a ticket's signal, with a cookie for who takes it.
    pub fn post(
        &mut self,
        pool: &mut Pool,
        target: Target,
        ticket: &Ticket,
        info: Info,
        cookie: u64,
    ) -> Generated {
        let signal = info.signal();
        if self.is_ignored(target, signal) {
            return Generated::Dropped;
        }
        let posted = Self::queue(&mut self.shared, &mut self.members, target)
            .is_some_and(|pending| pool.post(pending, ticket, info, cookie));
        if posted { self.find(target, signal) } else { Generated::Dropped }
    }

    fn queue<'a>(
        shared: &'a mut Pending,
        members: &'a mut [Place<T>],
        target: Target,
    ) -> Option<&'a mut Pending> {
        match target {
            Target::Process => Some(shared),
            Target::Member(index) => member_mut(members, index).map(|member| &mut member.pending),
        }
    }

    #[inline]
    fn find(&mut self, target: Target, signal: u32) -> Generated {
        match target {
            Target::Process => self.choose(signal),
            Target::Member(index) => match self.member(index) {
                Some(member) if member.wants(signal) => Generated::Wake(index),
                _ => Generated::Pending,
            },
        }
    }

    /// Chooses who takes a signal of the process: its first thread if that wants it, else any that does.
    fn choose(&mut self, signal: u32) -> Generated {
        match self.member(0) {
            Some(member) if member.wants(signal) => Generated::Wake(0),
            _ if self.count < 2 => Generated::Pending,
            _ => self.search(signal, 0),
        }
    }

    /// Goes on with the search for a thread that wants `signal`, after `looked` that were looked at.
    pub fn search(&mut self, signal: u32, looked: usize) -> Generated {
        let length = self.members.len();
        if !self.shared.set().contains(signal) {
            return Generated::Dropped;
        }
        for step in looked..(looked + SEARCH).min(length) {
            let index = (self.next + step) % length;
            if self.member(index).is_some_and(|member| member.wants(signal)) {
                self.next = index;
                return Generated::Wake(index);
            }
        }
        if looked + SEARCH < length {
            Generated::Search(looked + SEARCH)
        } else {
            Generated::Pending
        }
    }

    /// What waits for a member or for the process.
    pub fn pending(&self, index: usize) -> Set {
        self.member(index).map_or(Set::EMPTY, |member| member.pending.set()) | self.shared.set()
    }

    /// What waits for a member and is not blocked.
    pub fn deliverable(&self, index: usize) -> Set {
        self.member(index)
            .map_or(Set::EMPTY, |member| (member.pending.set() | self.shared.set()) - member.mask)
    }

    /// Takes a signal of `set` for a member: first its own, then the process's.
    #[inline(always)]
    pub fn take(&mut self, pool: &mut Pool, index: usize, set: Set) -> Option<Taken> {
        let member = member_mut(&mut self.members, index)?;
        if let Some(signal) = (member.pending.set() & set).first() {
            return pool.pop(&mut member.pending, &mut self.account, signal);
        }
        let signal = (self.shared.set() & set).first()?;
        pool.pop(&mut self.shared, &mut self.account, signal)
    }

    /// Takes a signal of the process, of which no member is left.
    pub fn take_shared(&mut self, pool: &mut Pool) -> Option<Taken> {
        let signal = self.shared.set().first()?;
        pool.pop(&mut self.shared, &mut self.account, signal)
    }

    /// Sets what a member blocks. Result: the signals of the process that it has just begun to block, for which others are to be
    /// searched.
    #[inline]
    pub fn set_mask(&mut self, index: usize, mask: Set) -> Set {
        let mask = mask - Set::UNCATCHABLE;
        let shared = self.shared.set();
        match self.member_mut(index) {
            Some(member) => {
                let begun = mask - member.mask;
                member.mask = mask;
                if self.count > 1 { begun & shared } else { Set::EMPTY }
            }
            None => Set::EMPTY,
        }
    }

    /// Whether nobody has to be searched for when a member begins to block `set`.
    pub fn is_private(&self, set: Set) -> bool {
        self.count < 2 || (self.shared.set() & set).is_empty()
    }

    /// Sets what a member waits for although it blocks it.
    pub fn set_waiting(&mut self, index: usize, waiting: Set) {
        if let Some(member) = self.member_mut(index) {
            member.waiting = waiting;
        }
    }

    /// Drops one waiting signal of `set`, for the process or member `index`. `false` if there is none.
    pub fn discard(&mut self, pool: &mut Pool, index: Option<usize>, set: Set) -> bool {
        let queue = match index {
            None => Some(&mut self.shared),
            Some(index) => member_mut(&mut self.members, index).map(|member| &mut member.pending),
        };
        queue.is_some_and(|queue| {
            let signal = (queue.set() & set).first();
            signal.is_some_and(|signal| pool.pop(queue, &mut self.account, signal).is_some())
        })
    }

    /// Takes a signal and says what is to be done: what a thread does on its way back to its program. [`Action::flags`] `SA_RESETHAND` is the
    /// caller's.
    #[inline(always)]
    pub fn next(&mut self, pool: &mut Pool, index: usize) -> Option<(Taken, Action)> {
        let set = self.deliverable(index);
        let taken = self.take(pool, index, set)?;
        Some((taken, self.action(taken.info.signal())))
    }

    /// What SIGCONT and the signals that stop do to each other when one of them is sent: these are to be discarded.
    pub fn opposite(signal: u32) -> Set {
        if signal == SIGCONT {
            Set::STOPPING
        } else if Set::STOPPING.contains(signal) {
            Set::of(SIGCONT)
        } else {
            Set::EMPTY
        }
    }
}

fn member_mut<T>(members: &mut [Place<T>], index: usize) -> Option<&mut Member<T>> {
    match members.get_mut(index)? {
        Place::Taken(member) => Some(member),
        Place::Free(_) => None,
    }
}
