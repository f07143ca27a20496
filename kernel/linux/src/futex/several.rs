// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting at several futexes at once (futex_waitv(2)).
//!
//! A thread has one place in the table of waiters. One that waits at several futexes borrows
//! further places, one for each. Whoever takes one of them out of the table wakes the thread, which
//! then takes out the others.

use alloc::vec::Vec;

use crtos_core::{
    mm::{heap, space::Access},
    task::{self, MAX_THREADS},
    time::{self, Deadline, Nanos},
};
use crtos_locks::futex::Wait;
use linux_raw_sys::general as linux;

use super::{
    Address, STATE, caller,
    key::{Found, find},
    wait::{Ended, enqueue, note_woken, sleep},
    word,
};
use crate::abi::{Errno, SysResult};

/// Further places, for all threads together.
pub(super) const MORE: usize = 1024;

/// How far a thread is that waits at several futexes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It does not, or takes its places out.
    Idle,
    /// It queues at one after the other, and looks before it sleeps.
    Queueing,
    /// It sleeps, or is about to.
    Asleep,
    /// Somebody has woken it.
    Woken,
}

/// Who has which of the further places.
pub(super) struct Several {
    /// The thread that has it; of a free one, the next free one.
    owners: [u16; MORE],
    free: u16,
    unused: u16,
    phases: [Phase; MAX_THREADS],
}

/// No place.
const NONE: u16 = u16::MAX;

impl Several {
    pub const fn new() -> Self {
        Self { owners: [NONE; MORE], free: NONE, unused: 0, phases: [Phase::Idle; MAX_THREADS] }
    }

    /// Takes a place for a thread, as the table knows it.
    fn take(&mut self, thread: u16) -> Option<u16> {
        let place = match self.free {
            NONE if usize::from(self.unused) == MORE => return None,
            NONE => {
                self.unused += 1;
                self.unused - 1
            }
            free => {
                self.free = self.owners[usize::from(free)];
                free
            }
        };
        self.owners[usize::from(place)] = thread;
        Some(MAX_THREADS as u16 + place)
    }

    fn give_back(&mut self, waiter: u16) {
        let place = waiter - MAX_THREADS as u16;
        self.owners[usize::from(place)] = core::mem::replace(&mut self.free, place);
    }

    fn change(&mut self, thread: u16, phase: Phase) -> Phase {
        core::mem::replace(&mut self.phases[usize::from(thread)], phase)
    }

    /// A waiter was taken out of the table: the thread that is to be told, unless it finds that out
    /// itself.
    #[inline(always)]
    pub fn woken(&mut self, waiter: u16) -> Option<u16> {
        match usize::from(waiter).checked_sub(MAX_THREADS) {
            None => Some(waiter),
            Some(place) => self.wake(place),
        }
    }

    fn wake(&mut self, place: usize) -> Option<u16> {
        let thread = self.owners[place];
        match self.phases[usize::from(thread)] {
            Phase::Idle | Phase::Woken => None,
            before => {
                self.change(thread, Phase::Woken);
                (before == Phase::Asleep).then_some(thread)
            }
        }
    }
}

/// A futex at which the calling thread is to wait, if its word is `value`.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub address: Address,
    pub value: u32,
}

/// The places of the calling thread, in the order of what it waits for.
struct Places {
    thread: u16,
    waiters: Vec<u16>,
}

impl Places {
    /// None so far, with room for `count`.
    fn new(count: usize) -> Result<Self, Errno> {
        let (thread, _) = caller()?;
        let mut waiters = Vec::new();
        waiters.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
        STATE.lock().several.change(thread, Phase::Queueing);
        Ok(Self { thread, waiters })
    }

    /// Queues at one more futex, if its word is as wanted. May sleep.
    fn add(&mut self, wanted: &Waiting, found: &Found) -> Result<(), Errno> {
        let waiter = STATE.lock().several.take(self.thread).ok_or(Errno::ENOMEM)?;
        let wait = Wait::Plain(linux::FUTEX_BITSET_MATCH_ANY);
        let queued = enqueue(waiter, found.key, wanted.address, wanted.value, wait);
        match queued {
            Ok(()) => self.waiters.push(waiter),
            Err(_) => STATE.lock().several.give_back(waiter),
        }
        queued
    }

    /// Leaves all futexes; the last one by which the thread was woken.
    fn leave(&mut self) -> Option<usize> {
        STATE.lock().several.change(self.thread, Phase::Idle);
        let mut last = None;
        for (index, waiter) in self.waiters.drain(..).enumerate() {
            let mut state = STATE.lock();
            if !state.table.dequeue(waiter) {
                last = Some(index);
            }
            state.several.give_back(waiter);
        }
        last
    }
}

/// The word of a futex has changed.
fn has_changed(wanted: &Waiting) -> bool {
    let _state = STATE.lock();
    matches!(word::load(wanted.address.word), Ok(word) if word != wanted.value)
}

/// Waits for a wake-up at any of these futexes; says at which. Linux does not know of those who
/// wait so in memory that it shares: they look whether a word has changed.
pub fn wait(all: &[Waiting], deadline: Option<Deadline>) -> SysResult {
    /// How often.
    const LOOK: Nanos = Nanos::from_millis(20);
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    let mut found = Vec::new();
    found.try_reserve_exact(all.len()).map_err(|_| Errno::ENOMEM)?;
    for wanted in all {
        found.push(find(wanted.address, Access::Read)?);
    }
    let mut places = Places::new(all.len())?;
    for (wanted, found) in all.iter().zip(&found) {
        if let Err(error) = places.add(wanted, found) {
            let index = places.leave().ok_or(error)?;
            return Ok(index as u64);
        }
    }
    let shown = || all.iter().zip(&found).filter(|(_, found)| found.mirror.is_some());
    let looks = shown().next().is_some();
    let (mut changed, mut was_handed) = (None, false);
    let is_woken = {
        let mut state = STATE.lock();
        let phase = &mut state.several.phases[usize::from(places.thread)];
        let is_woken = *phase == Phase::Woken;
        *phase = Phase::Asleep;
        is_woken
    };
    let ended = loop {
        if is_woken {
            break Ok(());
        }
        let look = looks.then(|| time::now() + LOOK);
        let look = look.filter(|&look| deadline.is_none_or(|deadline| look < deadline.time()));
        let ended = sleep(look.map(Deadline::At).or(deadline), || false);
        was_handed = ended.is_ok();
        if ended != Err(Ended::Timeout) || look.is_none() {
            break ended;
        }
        changed = shown().map(|(wanted, _)| wanted).find(|wanted| has_changed(wanted));
        if changed.is_some() {
            break Ok(());
        }
    };
    let phase = STATE.lock().several.change(places.thread, Phase::Idle);
    if phase == Phase::Woken && !was_handed {
        task::forget_handed();
    }
    let changed =
        changed.and_then(|changed| all.iter().position(|other| core::ptr::eq(other, changed)));
    if let Some(index) = places.leave() {
        note_woken(all[index].address, found[index], linux::FUTEX_BITSET_MATCH_ANY);
        return Ok(index as u64);
    }
    match (changed, ended) {
        (Some(index), _) => Ok(index as u64),
        (None, Err(Ended::Timeout)) => Err(Errno::ETIMEDOUT),
        // The deadline is a time, so that the call can be made again as it was.
        (None, _) => Err(Errno::RESTART),
    }
}
