// SPDX-License-Identifier: MIT OR Apache-2.0
//! The herald of a process: a shadow thread that wakes, in Linux, who waits there at a word that
//! both realms share.
//!
//! A thread that wakes leaves an order and goes on: a bounded number of steps, no exit for a
//! real-time thread, nothing to wait for. The herald carries out one after the other. Orders at one
//! word are one. Where there is no room for another one, an ordinary thread waits. For a real-time
//! thread, and where the herald goes with its process before it has carried out its orders, all
//! that wait in Linux are told to look at their words.

use crtos_abi::{
    UserAddr,
    channel::{RANK_NORMAL, RESULT_NOT_MADE},
};
use crtos_channel::{Answer, OwnedSlot, Poll, Slot};
use crtos_core::{sync::SpinLock, task, time};
use crtos_locks::{
    Key,
    orders::{Full, Order, Orders},
};
use crtos_sched::Level;
use linux_raw_sys::general as linux;

use core::sync::atomic::{AtomicBool, Ordering};

use super::{PERIOD, leave_to_agent, look_again, request, ring, take_shadow, under_way};
use crate::{
    process::{ThreadExt as _, UserThread, spares},
    remote::{self, slots},
};

/// Most orders of a process at a time.
const ROOM: usize = 32;

/// The herald of a process.
pub struct Herald {
    state: SpinLock<State>,
    /// Threads of the process have representatives.
    represents: AtomicBool,
}

struct State {
    orders: Orders<ROOM>,
    shadow: Option<OwnedSlot>,
    /// What it does just now.
    out: Option<Order>,
    /// How many orders it has carried out.
    done: u64,
}

impl Herald {
    /// None yet.
    pub const fn new() -> Self {
        let state = State { orders: Orders::new(), shadow: None, out: None, done: 0 };
        Self { state: SpinLock::new(state), represents: AtomicBool::new(false) }
    }

    /// Whether threads of the process have representatives.
    pub(super) fn represents(&self) -> bool {
        self.represents.load(Ordering::Relaxed)
    }

    /// They have some from now on.
    pub(super) fn set_represents(&self) {
        self.represents.store(true, Ordering::Relaxed);
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.state.lock().shadow.is_some()
    }

    /// Has it carry out the next order, if it is done with the last one. Any context.
    pub(super) fn go_on(&self) {
        let (to_ring, failed) = self.state.lock().advance();
        to_ring.into_iter().for_each(ring);
        if failed {
            look_again();
        }
    }

    /// Takes an order. Any context; a bounded number of steps.
    fn order(&self, order: Order) -> Result<(), Full> {
        let (taken, (to_ring, failed)) = {
            let mut state = self.state.lock();
            let taken = match state.shadow {
                Some(_) => state.orders.add(order),
                None => Err(Full),
            };
            (taken, state.advance())
        };
        to_ring.into_iter().for_each(ring);
        if failed {
            look_again();
        }
        taken
    }

    /// How many orders are carried out, and how many will be with those that there are.
    fn progress(&self) -> (u64, u64) {
        let state = self.state.lock();
        let waiting = state.orders.len() as u64 + u64::from(state.out.is_some());
        (state.done, state.done + waiting)
    }

    /// It goes with its process. Thread context; may sleep.
    pub fn dismiss(&self) {
        let (shadow, out) = {
            let mut state = self.state.lock();
            (state.shadow.take(), state.out.take())
        };
        if let Some(order) = out {
            under_way::end(order.crowd);
        }
        if let Some(owned) = shadow {
            slots::disown(owned.slot());
            spares::dispose([owned]);
        }
    }
}

impl State {
    /// Says for which slot to ring, and whether an order could not be carried out.
    fn advance(&mut self) -> (Option<Slot>, bool) {
        let Some(owned) = &mut self.shadow else { return (None, false) };
        let mut failed = false;
        if let Some(order) = self.out {
            match owned.poll() {
                Poll::Waiting => return (None, false),
                // The word is not in memory of the realm.
                Poll::Fault { .. } => {
                    owned.answer(Answer::Bad);
                    return (Some(owned.slot()), false);
                }
                Poll::Reply(RESULT_NOT_MADE) => {
                    // The answer is for the agent.
                    request(owned, wake_args(order), RANK_NORMAL);
                    return (Some(owned.slot()), false);
                }
                Poll::Reply(result) => {
                    failed = result < 0;
                    self.done += 1;
                    under_way::end(order.crowd);
                }
            }
            self.out = None;
        }
        self.out = self.orders.take();
        let Some(order) = self.out else { return (None, failed) };
        under_way::begin(order.crowd);
        request(owned, wake_args(order), RANK_NORMAL);
        (Some(owned.slot()), failed)
    }
}

/// The arguments by which Linux wakes who waits.
pub(super) fn wake_args(Order { word, count, bits, crowd: _ }: Order) -> [u64; 6] {
    let count = count.min(i32::MAX as u32);
    [word.get(), linux::FUTEX_WAKE_BITSET.into(), count.into(), 0, 0, bits.into()]
}

/// Sees to it that the calling thread's process has a herald. Asks Linux the first time; without
/// success, all that wait in Linux look when the process wakes.
pub fn prepare() {
    let current = task::current();
    let Some(user) = current.user() else { return };
    if user.process.is_out_of_reach() || user.process.herald.is_there() {
        return;
    }
    let Ok(owned) = take_shadow(user) else { return };
    let slot = owned.slot();
    let surplus = {
        let mut state = user.process.herald.state.lock();
        match state.shadow {
            Some(_) => Some(owned),
            None => {
                state.shadow = Some(owned);
                None
            }
        }
    };
    match surplus {
        Some(owned) => spares::give_back(&user.process, owned),
        None => leave_to_agent(slot),
    }
}

/// Wakes up to `count` of those in Linux who wait for one of `bits` at the futex `key`, which is at
/// `word` of the calling program's shadow. Whom it wakes, nobody hears. An ordinary thread may ask
/// Linux or wait for it; a real-time thread takes a bounded number of steps.
pub(in super::super) fn wake(key: Key, word: UserAddr, count: usize, bits: u32) {
    let current = task::current();
    let Some(user) = current.user() else { return };
    let may_wait = current.effective_level() == Level::ORDINARY;
    if may_wait {
        prepare();
    }
    let herald = &user.process.herald;
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let order = Order { word, count, bits, crowd: under_way::crowd(key) };
    while herald.order(order).is_err() {
        if !may_wait || !herald.is_there() || is_abandoned(user) {
            return look_again();
        }
        task::sleep_until(time::now() + PERIOD);
        herald.go_on();
    }
}

/// Whether nobody carries out orders of `user`'s process any more.
fn is_abandoned(user: &UserThread) -> bool {
    let process = &user.process;
    let is_gone = remote::channel()
        .is_none_or(|channel| process.is_without_shadow(channel.notices(user.slot)));
    is_gone || process.is_out_of_reach()
}

/// Waits until all wake-ups of `user`, the calling thread, which is about to end, are carried out,
/// or have somebody else carry them out.
pub fn settle(user: &UserThread) {
    let herald = &user.process.herald;
    // What others order meanwhile is not waited for.
    let (_, goal) = herald.progress();
    let is_behind = || herald.progress().0 < goal;
    while is_behind() && !is_abandoned(user) {
        herald.go_on();
        task::sleep_until(time::now() + PERIOD);
    }
    // A wake-up may have reached a representative that went before it could hand it on.
    if is_behind() || herald.represents() && is_abandoned(user) {
        look_again();
    }
}
