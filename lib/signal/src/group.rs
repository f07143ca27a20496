// SPDX-License-Identifier: MIT OR Apache-2.0
//! The signals of a process and its threads (signal(7), POSIX.1 2.4).
//!
//! A [`Group`] holds what one lock protects: the actions, the pending signals of the process and of
//! each thread, and which signals each thread blocks or waits for. It decides which signals are
//! dropped and which thread takes a signal of the process. The caller wakes that thread.

use alloc::{boxed::Box, vec::Vec};

use crtos_abi::{UserAddr, ids::Tid};

use crate::{
    info::Info,
    pool::{Account, Full, Pending, Pool, Taken, Ticket},
    set::{COUNT, SIGCONT, Set},
};

/// The handler that stands for the default action (SIG_DFL).
pub const DEFAULT: UserAddr = UserAddr::NULL;
/// The handler that stands for ignoring (SIG_IGN).
pub const IGNORE: UserAddr = UserAddr::new(1);

/// Threads that one step of a search looks at.
const SEARCH: usize = 16;

/// `struct sigaction` as rt_sigaction(2) has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// Address of the handler, [`DEFAULT`] or [`IGNORE`].
    pub handler: UserAddr,
    /// `SA_*`.
    pub flags: u64,
    /// Address of the program's code that calls rt_sigreturn(2).
    pub restorer: UserAddr,
    /// Signals that are blocked while the handler runs.
    pub mask: Set,
}

impl Action {
    /// Says whether `signal` does nothing under this action.
    pub fn ignores(&self, signal: u32) -> bool {
        self.handler == IGNORE || self.handler == DEFAULT && Set::HARMLESS.contains(signal)
    }

    /// Says whether the program has a handler.
    pub fn is_handled(&self) -> bool {
        self.handler != DEFAULT && self.handler != IGNORE
    }
}

/// A thread of the process.
pub struct Member<T> {
    /// Thread id.
    pub tid: Tid,
    /// The signals that it blocks.
    mask: Set,
    /// The signals that it waits for (sigtimedwait(2)), although it blocks them.
    waiting: Set,
    /// The signals that it blocked when it began to end.
    last: Option<Set>,
    pending: Pending,
    /// What the caller keeps with it.
    pub own: T,
}

impl<T> Member<T> {
    /// Makes a thread that blocks `mask` and has no pending signals.
    pub fn new(tid: Tid, mask: Set, own: T) -> Self {
        let mask = mask - Set::UNCATCHABLE;
        Self { tid, mask, waiting: Set::EMPTY, last: None, pending: Pending::new(), own }
    }

    /// Returns the signals that it blocks.
    pub fn mask(&self) -> Set {
        self.mask
    }

    /// Returns the signals that it keeps from being dropped where they are ignored. As under Linux,
    /// those are the same when it has ended.
    fn keeps(&self) -> Set {
        self.last.unwrap_or(self.mask) | self.waiting
    }

    /// Says whether it would take `signal` now.
    fn wants(&self, signal: u32) -> bool {
        (!self.mask | self.waiting).contains(signal)
    }
}

/// A place in the table of members.
pub enum Place<T> {
    /// A member's.
    Taken(Box<Member<T>>),
    /// Free; the next free one.
    Free(usize),
}

/// The end of the list of free places.
const NO_PLACE: usize = usize::MAX;

/// The target of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The process: one of its threads takes it.
    Process,
    /// The process, by the id of a member (kill(2)): that one is asked first.
    ProcessOf(usize, Tid),
    /// The member of this number, if it is that thread still: numbers are used again.
    Member(usize, Tid),
}

/// What is left of a search for a member that takes a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// The place where it began.
    first: usize,
    /// The number of places that it has looked at.
    looked: usize,
    /// The number of places when it began. Who comes later looks what is pending.
    places: usize,
}

/// What became of a signal that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generated {
    /// Nothing: it is ignored, or it is pending already.
    Dropped,
    /// It is pending, and the caller wakes this member.
    Wake(usize),
    /// It is pending, and no member takes it now.
    Pending,
    /// It is pending, and the caller continues the search for a member that takes it: see
    /// [`Group::search`].
    Search(Search),
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
    /// Makes a group with default actions, no members, and at most `limit` queued signals.
    pub const fn new(limit: u64) -> Self {
        const DEFAULT_ACTION: Action =
            Action { handler: DEFAULT, flags: 0, restorer: UserAddr::NULL, mask: Set::EMPTY };
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

    /// Returns the number of members, and of the places for members.
    pub fn places(&self) -> (usize, usize) {
        (self.count, self.members.capacity())
    }

    /// Moves the places to a larger, empty `table`, and returns the old one for the caller to drop.
    /// It copies all places, which makes it the longest step of this type.
    pub fn move_to(&mut self, mut table: Vec<Place<T>>) -> Vec<Place<T>> {
        if table.capacity() > self.members.capacity() {
            table.append(&mut self.members);
            core::mem::swap(&mut self.members, &mut table);
        }
        table
    }

    /// Adds a member and returns its number. Gives the member back if there is no place: see
    /// [`Group::move_to`].
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

    /// Removes a member that has no pending signals (see [`Group::discard`]).
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

    /// Returns a member.
    pub fn member(&self, index: usize) -> Option<&Member<T>> {
        match self.members.get(index)? {
            Place::Taken(member) => Some(member),
            Place::Free(_) => None,
        }
    }

    /// Returns a member.
    pub fn member_mut(&mut self, index: usize) -> Option<&mut Member<T>> {
        member_mut(&mut self.members, index)
    }

    /// Returns the action of the process on `signal` (`1..=64`).
    pub fn action(&self, signal: u32) -> Action {
        self.actions[(signal as usize - 1) & 63]
    }

    /// Sets the action of the process on `signal` (`1..=64`). The caller drops pending signals that
    /// are ignored now by [`Group::discard`].
    pub fn set_action(&mut self, signal: u32, action: Action) {
        self.actions[(signal as usize - 1) & 63] = action;
    }

    /// Returns all actions, for a fork.
    pub fn actions(&self) -> &[Action; COUNT as usize] {
        &self.actions
    }

    /// Sets all actions, those of another process.
    pub fn set_actions(&mut self, actions: [Action; COUNT as usize]) {
        self.actions = actions;
    }

    /// Returns what the target blocks or waits for; of a process, what its first member does, or
    /// the one that names it.
    fn mask_of(&self, target: Target) -> Set {
        let member = match target {
            Target::Process => self.member(0),
            Target::Member(index, tid) | Target::ProcessOf(index, tid) => {
                self.member_of(index, tid)
            }
        };
        member.map_or(Set::EMPTY, Member::keeps)
    }

    /// Returns the member of this number if it is that thread.
    pub fn member_of(&self, index: usize, tid: Tid) -> Option<&Member<T>> {
        self.member(index).filter(|member| member.tid == tid)
    }

    /// Says whether sending `signal` does nothing. A blocked signal is never dropped, because its
    /// action may change before it is unblocked.
    pub fn is_ignored(&self, target: Target, signal: u32) -> bool {
        self.action(signal).ignores(signal) && !self.mask_of(target).contains(signal)
    }

    /// Says whether the program has agreed to `signal`: it has a handler, or the target blocks the
    /// signal or waits for it. Of a process, its first 16 threads count.
    pub fn has_agreed(&self, target: Target, signal: u32) -> bool {
        let takes = |member: &Member<T>| member.keeps().contains(signal);
        self.action(signal).is_handled()
            || match target {
                Target::Process | Target::ProcessOf(..) => {
                    (0..SEARCH).filter_map(|index| self.member(index)).any(takes)
                }
                Target::Member(index, tid) => self.member_of(index, tid).is_some_and(takes),
            }
    }

    /// Sends a signal. [`Full`] where sigqueue(3) fails with EAGAIN.
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

    /// Sends a ticket's signal, with a cookie for the thread that takes it.
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

    /// Returns the pending signals of a target.
    fn queue<'a>(
        shared: &'a mut Pending,
        members: &'a mut [Place<T>],
        target: Target,
    ) -> Option<&'a mut Pending> {
        match target {
            Target::Process | Target::ProcessOf(..) => Some(shared),
            Target::Member(index, tid) => {
                let member = member_mut(members, index).filter(|member| member.tid == tid);
                member.map(|member| &mut member.pending)
            }
        }
    }

    /// Finds the member to wake for a signal that has become pending.
    #[inline]
    fn find(&mut self, target: Target, signal: u32) -> Generated {
        match target {
            Target::ProcessOf(index, tid)
                if self.member_of(index, tid).is_some_and(|member| member.wants(signal)) =>
            {
                Generated::Wake(index)
            }
            Target::Process | Target::ProcessOf(..) => self.choose(signal),
            Target::Member(index, _) => match self.member(index) {
                Some(member) if member.wants(signal) => Generated::Wake(index),
                _ => Generated::Pending,
            },
        }
    }

    /// Chooses the member that takes a signal of the process: the first thread if it does, else any
    /// other.
    fn choose(&mut self, signal: u32) -> Generated {
        match self.member(0) {
            Some(member) if member.wants(signal) => Generated::Wake(0),
            _ if self.count < 2 => Generated::Pending,
            _ => self.search(signal, self.begin_search()),
        }
    }

    /// Returns a search of all members that has not begun, from where the last one ended.
    pub fn begin_search(&self) -> Search {
        Search { first: self.next, looked: 0, places: self.members.len() }
    }

    /// Continues the search for a member that takes `signal`. Looks at 16 places.
    pub fn search(&mut self, signal: u32, search: Search) -> Generated {
        let Search { first, looked, places } = search;
        if !self.shared.set().contains(signal) {
            return Generated::Dropped;
        }
        let end = (looked + SEARCH).min(places);
        for step in looked..end {
            let index = (first + step) % places;
            if self.member(index).is_some_and(|member| member.wants(signal)) {
                self.next = index;
                return Generated::Wake(index);
            }
        }
        if end < places {
            Generated::Search(Search { looked: end, ..search })
        } else {
            Generated::Pending
        }
    }

    /// Returns the pending signals of a member and of the process.
    pub fn pending(&self, index: usize) -> Set {
        self.member(index).map_or(Set::EMPTY, |member| member.pending.set()) | self.shared.set()
    }

    /// Returns the pending signals of a member and of the process that the member does not block.
    pub fn deliverable(&self, index: usize) -> Set {
        self.member(index)
            .map_or(Set::EMPTY, |member| (member.pending.set() | self.shared.set()) - member.mask)
    }

    /// Takes a pending signal of `set` for a member: its own first, then those of the process.
    #[inline(always)]
    pub fn take(&mut self, pool: &mut Pool, index: usize, set: Set) -> Option<Taken> {
        let member = member_mut(&mut self.members, index)?;
        if let Some(signal) = (member.pending.set() & set).first() {
            return pool.pop(&mut member.pending, &mut self.account, signal);
        }
        let signal = (self.shared.set() & set).first()?;
        pool.pop(&mut self.shared, &mut self.account, signal)
    }

    /// Takes a pending signal of a member, but none of the process.
    pub fn take_own(&mut self, pool: &mut Pool, index: usize) -> Option<Taken> {
        let member = member_mut(&mut self.members, index)?;
        let signal = member.pending.set().first()?;
        pool.pop(&mut member.pending, &mut self.account, signal)
    }

    /// Takes a pending signal of the process, whichever its members block.
    pub fn take_shared(&mut self, pool: &mut Pool) -> Option<Taken> {
        let signal = self.shared.set().first()?;
        pool.pop(&mut self.shared, &mut self.account, signal)
    }

    /// Sets the signals that a member blocks. Returns the pending signals of the process that it
    /// has just begun to block: for these the caller searches another member.
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

    /// Has a member that begins to end take no signal any more. Returns the pending signals of the
    /// process that it does not take: for these the caller searches another member.
    pub fn retire(&mut self, index: usize) -> Set {
        if let Some(member) = self.member_mut(index) {
            member.last.get_or_insert(member.mask);
        }
        self.set_mask(index, Set::ALL)
    }

    /// Says whether a member can begin to block `set` without a search for another member.
    pub fn is_private(&self, set: Set) -> bool {
        self.count < 2 || (self.shared.set() & set).is_empty()
    }

    /// Sets the signals that a member waits for although it blocks them. Returns the pending
    /// signals of the process that it has just ceased to take: for these the caller searches
    /// another member.
    pub fn set_waiting(&mut self, index: usize, waiting: Set) -> Set {
        let shared = self.shared.set();
        match self.member_mut(index) {
            Some(member) => {
                let ceased = (member.waiting - waiting) & member.mask;
                member.waiting = waiting;
                if self.count > 1 { ceased & shared } else { Set::EMPTY }
            }
            None => Set::EMPTY,
        }
    }

    /// Drops one pending signal of `set`, of member `index` or of the process (`None`). `false` if
    /// there is none.
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

    /// Takes the next signal of a member that returns to its program, and the action on it. The
    /// caller carries out `SA_RESETHAND`.
    #[inline(always)]
    pub fn next(&mut self, pool: &mut Pool, index: usize) -> Option<(Taken, Action)> {
        let set = self.deliverable(index);
        let taken = self.take(pool, index, set)?;
        Some((taken, self.action(taken.info.signal())))
    }

    /// Returns the pending signals that sending `signal` discards: SIGCONT discards those that
    /// stop, and they discard SIGCONT.
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

/// Returns the member of a place.
fn member_mut<T>(members: &mut [Place<T>], index: usize) -> Option<&mut Member<T>> {
    match members.get_mut(index)? {
        Place::Taken(member) => Some(member),
        Place::Free(_) => None,
    }
}
