// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shadow threads that wait for a thread.
//!
//! A thread needs a shadow thread, which Linux makes. So that a program does not wait for Linux
//! when it starts a thread, a process that has started one gets some shadow threads ahead, its
//! spares. They are made by a spare, too, on behalf of the [housekeeper], so that no thread of the
//! program waits behind that.
//!
//! Linux has a new thread inherit what its creator has: ids, capabilities, nice value, name and
//! more. A shadow thread that the creator's own one makes has all that, and so has what that one
//! makes. They share a number, their [`Heritage`]. A call that may change what is inherited of a
//! thread gives that thread a new number ([`changing`]), and a thread gets no spare but one with
//! its creator's number. Spares whose number no thread has any more end: nobody could keep rights
//! by them.

use alloc::{sync::Arc, vec::Vec};

use crtos_abi::{
    channel::MOST_NEW_THREADS,
    ids::{ProcessNumber, RealmCpu, Tid},
};
use crtos_channel::{
    Channel, Heritage, Operation, OwnedSlot, Request, Slot, Start,
    operation::{FirstMade, Room},
};
use crtos_core::{
    task::{self, Mutex},
    time::{self, Nanos},
};
use crtos_syscalls::Row;

use super::{
    Members, Process, ThreadExt as _, UserThread, housekeeper,
    rights::{self, Deed},
    threads::{self, each_process},
};
use crate::{
    abi::{Args, Errno, linux_result},
    remote::{self, slots},
    signal,
};

/// Fewest and most spares that a process has which starts threads. Of those that serve another
/// heritage than the one that was asked for last, it has as many at most.
const FEWEST: usize = 4;

const MOST: usize = MOST_NEW_THREADS as usize;

/// The spares of a process.
pub struct Spares {
    /// Those that serve `heritage`.
    ready: Vec<OwnedSlot>,
    /// Those that do not.
    others: Vec<OwnedSlot>,
    /// What the last thread inherited that was started.
    heritage: Heritage,
    /// The last number of the process.
    last: Heritage,
    /// How many spares no thread is to get.
    reserved: usize,
    /// How many there should be.
    goal: usize,
    /// A spare makes others right now.
    making: bool,
}

impl Default for Spares {
    fn default() -> Self {
        Self {
            ready: Vec::new(),
            others: Vec::new(),
            heritage: Heritage::FIRST,
            last: Heritage::FIRST,
            reserved: 0,
            goal: 0,
            making: false,
        }
    }
}

impl Spares {
    fn count(&self) -> usize {
        self.ready.len() + self.others.len()
    }

    /// A spare for a thread.
    fn pop(&mut self) -> Option<OwnedSlot> {
        if self.count() > self.reserved { self.ready.pop() } else { None }
    }

    /// Whether more should be made.
    fn are_scarce(&self) -> bool {
        !self.making && self.ready.len() * 2 <= self.goal
    }

    /// Has those ready that serve `heritage`.
    fn turn_to(&mut self, heritage: Heritage) {
        if heritage == self.heritage {
            return;
        }
        if self.others.try_reserve(self.ready.len()).is_err() {
            return;
        }
        self.heritage = heritage;
        self.others.append(&mut self.ready);
        let mut index = 0;
        while index < self.others.len() {
            if self.others[index].heritage().serves(heritage) && self.ready.try_reserve(1).is_ok() {
                self.ready.push(self.others.remove(index));
            } else {
                index += 1;
            }
        }
    }

    /// Adds one, or returns it if there is no memory.
    fn add(&mut self, owned: OwnedSlot) -> Result<(), OwnedSlot> {
        let serves = owned.heritage().serves(self.heritage);
        let list = if serves { &mut self.ready } else { &mut self.others };
        if list.try_reserve(1).is_err() {
            return Err(owned);
        }
        list.push(owned);
        Ok(())
    }

    /// Takes all, of a process without threads.
    pub fn take_all(&mut self) -> (Vec<OwnedSlot>, Vec<OwnedSlot>) {
        (core::mem::take(&mut self.ready), core::mem::take(&mut self.others))
    }
}

/// A spare of the calling thread's process for a thread that it starts, if there is one. Sees to it
/// that there will be more.
pub fn take_spare(parent: &UserThread) -> Option<OwnedSlot> {
    let process = &parent.process;
    let (owned, wanting) = {
        let spares = &mut process.members.lock().spares;
        spares.turn_to(parent.heritage());
        let fit = spares.heritage == parent.heritage();
        let owned = if fit { spares.pop() } else { None };
        if owned.is_none() {
            // Threads are started faster than spares are made.
            spares.goal = (spares.goal * 2).clamp(FEWEST, MOST);
        }
        (owned, spares.are_scarce())
    };
    if wanting {
        housekeeper::want_spares(process);
    }
    owned
}

/// A spare that no thread of `user`'s process needs at once, if there is one: to represent threads,
/// whatever it inherited.
pub fn take_surplus(user: &UserThread) -> Option<OwnedSlot> {
    let spares = &mut user.process.members.lock().spares;
    match spares.count() > spares.reserved {
        true => spares.others.pop().or_else(|| spares.ready.pop()),
        false => None,
    }
}

/// A spare that is to make others, and how many.
pub fn take_maker(process: &Process) -> Option<(OwnedSlot, u64)> {
    let spares = &mut process.members.lock().spares;
    let count = (spares.goal + 1).saturating_sub(spares.ready.len()).min(MOST);
    if spares.making || count == 0 {
        return None;
    }
    let owned = spares.pop()?;
    spares.making = true;
    Some((owned, count as u64))
}

/// Takes back what [`take_maker`] gave.
pub fn return_maker(process: &Arc<Process>, owned: OwnedSlot) {
    process.members.lock().spares.making = false;
    give_back(process, owned);
}

/// Sees to it that the calling thread's process has a spare that no thread gets: for
/// [`borrow_spare`]. Asks Linux.
pub fn reserve_spare() -> Result<(), Errno> {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let is_there = {
        let spares = &mut user.process.members.lock().spares;
        spares.reserved = 1;
        spares.count() > 0 || spares.making
    };
    if is_there {
        return Ok(());
    }
    if let Some(owned) = make(1, user)? {
        give_back(&user.process, owned);
    }
    Ok(())
}

/// How long [`borrow_spare`] waits for one that others use, and how often it looks.
const PATIENCE: Nanos = Nanos::from_millis(1000);

const PERIOD: Nanos = Nanos::from_millis(1);

/// A spare of the process with that number in Linux, for a request that the shadow thread of the
/// calling thread cannot serve: it may serve another. To be given back. May sleep; `None` if there
/// is none.
pub fn borrow_spare(number: ProcessNumber) -> Option<(Arc<Process>, OwnedSlot)> {
    let deadline = time::now() + PATIENCE;
    while time::now() < deadline {
        let mut found = None;
        each_process(|process| {
            if found.is_none() && process.number == number {
                let spares = &mut process.members.lock().spares;
                let owned = spares.ready.pop().or_else(|| spares.others.pop());
                found = owned.map(|owned| (process.clone(), owned));
            }
        });
        if found.is_some() {
            return found;
        }
        task::sleep_until(time::now() + PERIOD);
    }
    None
}

/// Makes `owned` a spare of `process`, which gets what signal has arrived there.
pub fn give_back(process: &Arc<Process>, owned: OwnedSlot) {
    signal::take_from(owned.slot(), process);
    let (refused, wanting) = {
        let mut members = process.members.lock();
        if members.threads.is_empty() {
            (Some(owned), false)
        } else {
            let refused = members.spares.add(owned).err();
            (refused, members.spares.are_scarce())
        }
    };
    dispose(refused);
    tidy(process);
    if wanting {
        housekeeper::want_spares(process);
    }
}

/// Makes a call of the calling thread that `row` describes. If that may change what threads inherit
/// of a thread, they do so from now on.
pub fn changing<R>(row: &Row, args: &Args, call: impl FnOnce() -> R) -> R {
    let current = task::current();
    let (Some(user), Some(id)) = (current.user(), row.changes_heritage_of(args)) else {
        return call();
    };
    if user.is(id) {
        let result = call();
        renew_own(user);
        return result;
    }
    let Some(thread) = Tid::named(id).and_then(|tid| threads::find(&user.process, tid)) else {
        return call();
    };
    // Whom Linux refuses has no spares of others end.
    let other = thread.user().filter(|other| rights::check(other, Deed::Schedule).is_ok());
    changing_other(other, call)
}

/// Makes a call that may change what threads inherit of `other`, which goes on meanwhile.
pub fn changing_other<R>(other: Option<&UserThread>, call: impl FnOnce() -> R) -> R {
    // What its shadow thread makes during the call is of one kind or the other.
    other.into_iter().for_each(renew);
    let result = call();
    other.into_iter().for_each(renew);
    result
}

/// What threads inherit of `user` is from now on what no other thread has.
fn renew(user: &UserThread) {
    {
        let spares = &mut user.process.members.lock().spares;
        spares.last = spares.last.next();
        user.set_heritage(spares.last);
    }
    tidy(&user.process);
}

/// The same for the calling thread. May ask Linux.
pub fn renew_own(user: &UserThread) {
    renew(user);
    let lacks = user.process.members.lock().lack_reserve();
    if lacks && let Ok(Some(owned)) = make(1, user) {
        // It takes the place of one that is of no use otherwise.
        give_back(&user.process, owned);
    }
}

impl Members {
    /// Whether a thread could get that spare.
    fn need(&self, owned: &OwnedSlot) -> bool {
        let mut users = self.threads.iter().filter_map(|thread| thread.user());
        users.any(|user| owned.heritage().serves(user.heritage()))
    }

    /// Whether the spare that is to be there is one that no thread could get, or none.
    fn lack_reserve(&self) -> bool {
        let Spares { ready, others, reserved, making, .. } = &self.spares;
        *reserved > 0 && !making && !ready.iter().chain(others).any(|owned| self.need(owned))
    }

    /// Takes a spare that no thread could get, or that is one too many.
    fn pop_useless(&mut self) -> Option<OwnedSlot> {
        let spares = &self.spares;
        // As long as no thread has changed anything, each could get any.
        if spares.last == Heritage::FIRST || spares.count() <= spares.reserved {
            return None;
        }
        if let Some(index) = spares.ready.iter().position(|owned| !self.need(owned)) {
            return Some(self.spares.ready.swap_remove(index));
        }
        let useless = spares.others.iter().position(|owned| !self.need(owned));
        let index = useless.or((spares.others.len() > MOST).then_some(0))?;
        Some(self.spares.others.remove(index))
    }
}

/// Has those spares of `process` end that are of no use any more. Thread context; may sleep.
pub fn tidy(process: &Process) {
    loop {
        let useless = process.members.lock().pop_useless();
        let Some(owned) = useless else { break };
        retire(owned);
    }
}

/// Has a shadow thread end that has no thread, while its process goes on.
pub fn retire(mut owned: OwnedSlot) {
    let Some(channel) = remote::channel() else { return };
    let mut room = Room::default();
    let operation = Operation::ExitThread.encode(&mut room);
    owned.request(&Request { operation, rank: 0, cpu: RealmCpu::first() });
    let slot = owned.slot();
    dispose([owned]);
    remote::ring(channel, slot);
}

/// Takes over a signal that arrived at the shadow thread of `slot`, which has no thread: it is for
/// the process.
pub fn take_signal(channel: Channel, slot: Slot) {
    if channel.notices(slot).signal
        && let Some(process) = channel.pid(slot).and_then(threads::find_outer)
    {
        signal::take_from(slot, &process);
    }
}

/// Lines without a thread, until their shadow threads are gone.
static LEFT: Mutex<Vec<OwnedSlot>> = Mutex::new(Vec::new());

/// Has Linux make `count` shadow threads for the calling thread, which is `user`, and takes the
/// first one; `None` if somebody else did. Asks Linux.
pub fn make(count: u64, user: &UserThread) -> Result<Option<OwnedSlot>, Errno> {
    let operation = Operation::MakeThreads { count, heritage: user.heritage() };
    let first = linux_result(remote::request(operation)?)?;
    Ok(FirstMade::from_word(first).and_then(|first| claim(first, &user.process)))
}

/// Takes the shadow thread that Linux made for `process`, if nobody did. Thread context; may sleep.
fn claim(made: FirstMade, process: &Process) -> Option<OwnedSlot> {
    // It may have come and gone. What another thread has had made since inherited something else.
    let is_made = |owned: &OwnedSlot, start: Start| {
        let of_process = start == Start::Thread && owned.process() == process.number;
        of_process && owned.own_tid() == made.tid
    };
    slots::accept_if(made.slot, is_made).map(|(owned, _)| owned)
}

/// Frees slots that have no thread as soon as their shadow threads are gone, which they are not any
/// more when Linux has ended. Thread context; may sleep.
pub fn dispose(slots: impl IntoIterator<Item = OwnedSlot>) {
    let Some(channel) = remote::channel().filter(|_| !remote::end::has_ended()) else { return };
    for owned in slots {
        if channel.notices(owned.slot()).gone {
            take_signal(channel, owned.slot());
            slots::free(owned);
        } else {
            let mut left = LEFT.lock();
            // There is no more than a slot's worth of memory in it, and the slot is lost without
            // it.
            left.push(owned);
        }
    }
}

pub fn free_left(channel: Channel) {
    if remote::end::has_ended() {
        LEFT.lock().clear();
    }
    let mut index = 0;
    loop {
        let owned = {
            let mut left = LEFT.lock();
            match left.get(index) {
                None => break,
                Some(owned) if channel.notices(owned.slot()).gone => left.swap_remove(index),
                Some(_) => {
                    index += 1;
                    continue;
                }
            }
        };
        take_signal(channel, owned.slot());
        slots::free(owned);
    }
}
