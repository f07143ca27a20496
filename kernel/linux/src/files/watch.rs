// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a file is ready for, and who is told when that changes: threads in poll or select, members
//! of an epoll set.

use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use bitflags::bitflags;
use crtos_files::{Piece, Pieces};
use spin::Once;

use crtos_core::{
    arch::interrupts,
    mm::heap,
    sync::SpinLock,
    task::{Thread, Timer},
    time,
};

use super::{epoll::Set, successor::Successor};
use crate::abi::Errno;

bitflags! {
    /// The events of poll(2) and epoll(7), by their numbers.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Events: u32 {
        /// There is something to read.
        const IN = 1;
        /// Urgent data.
        const PRIORITY = 2;
        /// A write does not block.
        const OUT = 4;
        /// Nobody reads what is written. Always reported.
        const ERROR = 8;
        /// Nobody writes any more. Always reported.
        const HANG_UP = 0x10;
        /// POLLRDNORM.
        const READ_NORMAL = 0x40;
        /// POLLWRNORM.
        const WRITE_NORMAL = 0x100;
        /// POLLWRBAND, which sockets of datagrams have with the other.
        const WRITE_BAND = 0x200;
        /// The other end sends no more (POLLRDHUP).
        const READ_HANG_UP = 0x2000;
        /// The file has left the realm. No program sees this.
        const LEFT = 1 << 24;
    }
}

/// What came of telling a watcher.
#[derive(Clone, Copy, Default)]
pub struct Notified {
    /// Others watch what has become ready by that, as far as is known: the caller has them be told
    /// by [`announce`](Watcher::announce).
    pub has_others: bool,
    /// Somebody was woken for it, so that those who [share](Watcher::is_exclusive) it need not be
    /// told.
    pub is_taken: bool,
}

/// Who is told of a change. It looks at the file itself.
pub trait Watcher: Send + Sync {
    /// The file may be ready for `events`. Any context; interrupts off; must not sleep or allocate.
    fn notify(&self, events: Events) -> Notified;

    /// Whether it need not be told once somebody was woken for another one of this kind
    /// (EPOLLEXCLUSIVE). Any context.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Tells those who watch what has become ready. Any context; must not sleep or allocate.
    fn announce(&self) {}

    /// Whether nobody else has to be told because this one is.
    fn is_last(&self) -> bool {
        true
    }

    /// Whether it is to [`end`](Self::end) when the file at an address ends: the watchers of a pipe
    /// are those of all its files.
    fn ends_with(&self, _file: usize) -> bool {
        false
    }

    /// The file has ended. Thread context; may sleep.
    fn end(&self) {}
}

/// What can be watched: an open file description, or an epoll set.
pub trait Source: Send + Sync {
    /// What it is ready for now. Thread context; may sleep.
    fn ready(&self) -> Events;

    /// Who is told when that changes; `None` for what is always ready.
    fn watchers(&self) -> Option<&Watchers>;

    /// Has `watcher` be told. Thread context; may sleep.
    fn watch(&self, watcher: Arc<dyn Watcher>) -> Result<(), Errno> {
        self.watchers().map_or(Ok(()), |watchers| watchers.add(watcher))
    }

    /// Of what its watchers are told, the events that concern it.
    fn heard(&self) -> Events;

    /// What Linux has in its place, if it has left the realm.
    fn successor(&self) -> Option<Arc<Successor>> {
        None
    }

    /// The set that it is.
    fn as_set(&self) -> Option<&Set> {
        None
    }
}

impl Watcher for Thread {
    fn notify(&self, _: Events) -> Notified {
        self.wake_quietly();
        Notified::default()
    }
}

/// Watchers that are told with interrupts off, where they were on before.
const STEP: usize = 2;

/// Watchers that are looked at with interrupts off to find one.
const SEARCH: usize = 32;

/// The watchers of a file. Telling them takes steps in proportion to their number, which is that of
/// the threads that poll the file at the same time and the epoll sets it belongs to. Threads tell
/// them a few at a time. In an interrupt one of them is told at once, and each of the others, as
/// each of those who watch what became ready by that, by a further interrupt: a timer's, which is
/// due at once.
#[derive(Default)]
pub struct Watchers {
    /// Made for the first of them.
    list: Once<Arc<List>>,
    /// What they watch is a watcher itself (an epoll set, a signalfd): in an interrupt, none of
    /// them is told at once.
    are_later: bool,
}

struct List {
    all: SpinLock<Pieces<Arc<dyn Watcher>>>,
    /// How many they are, for those who do not hold the lock.
    count: AtomicUsize,
    /// Who is still to be told.
    rest: SpinLock<Rest>,
    /// Tells them; there before anybody is left to it. Taken away when the file is closed.
    timer: SpinLock<Option<Timer>>,
}

/// The watchers before `left` are to be told of `events`.
#[derive(Default)]
struct Rest {
    left: usize,
    events: Events,
    /// Somebody was woken for all of these: those who share them need not be told.
    is_taken: bool,
}

impl Watchers {
    /// Nobody watches.
    pub const fn new() -> Self {
        Self { list: Once::new(), are_later: false }
    }

    /// Nobody watches what is a watcher itself.
    pub const fn of_watcher() -> Self {
        Self { list: Once::new(), are_later: true }
    }

    /// Adds a watcher. Allocates only when there are more than ever before. Thread context.
    pub fn add(&self, watcher: Arc<dyn Watcher>) -> Result<(), Errno> {
        if self.list.get().is_none() && !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let list = self.list.call_once(|| Arc::new(List::default()));
        if self.are_later {
            list.prepare_rest()?;
        }
        list.add(watcher)
    }

    /// Removes a watcher that was added.
    pub fn remove(&self, watcher: &Arc<dyn Watcher>) {
        drop(self.take(|other| Arc::ptr_eq(other, watcher)));
    }

    fn take(&self, is_meant: impl Fn(&Arc<dyn Watcher>) -> bool) -> Option<Arc<dyn Watcher>> {
        self.list.get().and_then(|list| list.take(is_meant))
    }

    /// The file at an address ends: so do those who watch it for as long as it is there. Thread
    /// context; may sleep.
    pub fn close(&self, file: usize) {
        while self.list.get().is_some_and(|list| list.len() > 0) {
            let Some(ended) = self.take(|watcher| watcher.ends_with(file)) else { return };
            ended.end();
        }
    }

    /// Whether telling them takes one step: nobody, or one who has nobody else to be told.
    /// Interrupts off.
    #[inline(always)]
    pub fn are_few(&self) -> bool {
        self.list.get().is_none_or(|list| match list.len() {
            0 => true,
            1 => list.all.lock().get(0).is_none_or(|only| only.is_last()),
            _ => false,
        })
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.list.get().map_or(0, |list| list.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Tells all. A few instructions if nobody is there. Any context.
    #[inline(always)]
    pub fn notify(&self, events: Events) {
        // The file was changed before the look at whether they are there.
        fence(Ordering::SeqCst);
        if let Some(list) = self.list.get()
            && list.len() > 0
        {
            list.notify(events, self.are_later);
        }
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        let timer = self.list.get().and_then(|list| list.timer.lock().take());
        drop(timer);
    }
}

/// Tells a watcher, unless it shares the events and somebody was woken for them already. Says
/// whether it has others be told.
#[inline(always)]
fn tell(watcher: &Arc<dyn Watcher>, events: Events, is_taken: &mut bool) -> bool {
    if *is_taken && watcher.is_exclusive() {
        return false;
    }
    let told = watcher.notify(events);
    *is_taken |= told.is_taken;
    told.has_others
}

impl Default for List {
    /// Nobody yet.
    fn default() -> Self {
        Self {
            all: SpinLock::new(Pieces::new()),
            count: AtomicUsize::new(0),
            rest: SpinLock::new(Rest::default()),
            timer: SpinLock::new(None),
        }
    }
}

impl List {
    fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Makes what tells the rest, if that is not there.
    fn prepare_rest(self: &Arc<Self>) -> Result<(), Errno> {
        if self.timer.lock().is_some() {
            return Ok(());
        }
        let own = self.clone();
        let fresh = Timer::new(Box::new(move || own.notify_rest())).map_err(|_| Errno::ENOMEM)?;
        let mut fresh = Some(fresh);
        {
            let mut timer = self.timer.lock();
            if timer.is_none() {
                *timer = fresh.take();
            }
        }
        drop(fresh);
        Ok(())
    }

    fn add(self: &Arc<Self>, watcher: Arc<dyn Watcher>) -> Result<(), Errno> {
        let mut watcher = watcher;
        loop {
            let wanted = {
                let mut all = self.all.lock();
                // Others may have come since the list was made.
                if !all.is_empty() && self.timer.lock().is_none() {
                    drop(all);
                    self.prepare_rest()?;
                    continue;
                }
                match all.push(watcher) {
                    Ok(()) => {
                        // Before the caller looks at the file: whoever changes that afterwards sees
                        // it.
                        self.count.store(all.len(), Ordering::SeqCst);
                        return Ok(());
                    }
                    Err(back) => watcher = back,
                }
                all.wanted().unwrap_or(1)
            };
            if wanted == 0 || !heap::has_reserve() {
                return Err(Errno::ENOMEM);
            }
            let room = Piece::new(wanted).ok_or(Errno::ENOMEM)?;
            let unused = self.all.lock().add_room(room);
            drop(unused);
        }
    }

    /// Takes out one that is meant.
    fn take(&self, is_meant: impl Fn(&Arc<dyn Watcher>) -> bool) -> Option<Arc<dyn Watcher>> {
        // From the last to the first: the place of one that goes meanwhile is taken by one that was
        // looked at already, or by one that is looked at there.
        let mut left = usize::MAX;
        while left > 0 {
            let mut all = self.all.lock();
            let mut taken = all.pop_if(&is_meant);
            if taken.is_none() {
                let end = left.min(all.len());
                left = end.saturating_sub(SEARCH);
                let found = (left..end).rev().find(|&at| all.get(at).is_some_and(&is_meant));
                taken = found.and_then(|at| all.swap_remove(at));
            }
            if taken.is_some() {
                self.count.store(all.len(), Ordering::Relaxed);
                return taken;
            }
        }
        None
    }

    /// As [`notify_one`](Self::notify_one) with interrupts on, a few at once: the others are told
    /// before it returns, in the same way. Who is watched does not watch in turn in a long row.
    fn notify_step(&self, events: Events, left: usize, is_taken: &mut bool) -> usize {
        let mut ready = [const { None }; STEP];
        let rest = {
            let all = self.all.lock();
            let left = left.min(all.len());
            let rest = left.saturating_sub(STEP);
            for (place, at) in ready.iter_mut().zip((rest..left).rev()) {
                *place = all.get(at).filter(|watcher| tell(watcher, events, is_taken)).cloned();
            }
            rest
        };
        ready.into_iter().flatten().for_each(|watcher| watcher.announce());
        rest
    }

    #[inline(never)]
    fn notify(&self, events: Events, later: bool) {
        // From the last to the first: who goes meanwhile leaves their place to one that was told
        // already, and who comes looks at the file afterwards.
        let mut is_taken = false;
        if interrupts::are_on() {
            let mut left = usize::MAX;
            while left > 0 {
                left = self.notify_step(events, left, &mut is_taken);
            }
            return;
        }
        let left = match later {
            true => usize::MAX,
            false => self.notify_one(events, usize::MAX, &mut is_taken),
        };
        if left > 0 {
            let mut rest = self.rest.lock();
            rest.is_taken = is_taken && (rest.left == 0 || rest.is_taken);
            rest.left = rest.left.max(left);
            rest.events |= events;
            self.go_on();
        }
    }

    /// Tells the last one of those before `left`, and has those be told who watch what becomes
    /// ready by that. Returns how many are left then. Interrupts off.
    #[inline(always)]
    fn notify_one(&self, events: Events, left: usize, is_taken: &mut bool) -> usize {
        let all = self.all.lock_quietly();
        let Some(rest) = left.min(all.len()).checked_sub(1) else { return 0 };
        if let Some(watcher) = all.get(rest)
            && tell(watcher, events, is_taken)
        {
            watcher.announce();
        }
        rest
    }

    /// One more of the rest is told, in a section of its own. Interrupt context.
    fn notify_rest(&self) {
        interrupts::window_in_timer();
        let is_last = {
            let mut rest = self.rest.lock();
            let Rest { left, events, is_taken } = &mut *rest;
            *left = self.notify_one(*events, *left, is_taken);
            if *left == 0 {
                *rest = Rest::default();
            }
            rest.left == 0
        };
        if !is_last {
            interrupts::window_in_timer();
            self.go_on();
        }
    }

    /// The rest is told as soon as interrupts are on, behind whatever else is due by then.
    fn go_on(&self) {
        if let Some(timer) = &*self.timer.lock() {
            timer.arm(time::now());
        }
    }
}
