// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting until another thread says so, and saying so.

use crtos_core::{
    hazard::FastCall,
    mm::space::Access,
    task::{self, WakeReason},
    time::Deadline,
};

use super::{
    Address, STATE, State, Stop, WAITERS, across, caller, is_interrupted,
    key::{Found, find, private_key},
    word,
};
use crate::{
    abi::{Errno, SysResult},
    process::{Restart, ThreadExt as _, UserThread},
};

use core::sync::atomic::Ordering;

use crtos_abi::{
    UserAddr,
    channel::{THREAD_RUNNING, THREAD_SLEEPING},
};
use crtos_locks::{Key, futex::Wait};
use linux_raw_sys::general as linux;

/// Waiters that a wake-up looks at with interrupts off; it is one where another CPU may have to be
/// told of each.
const STEPS: usize = 3;

/// Why a wait ended without what was waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// The deadline passed.
    Timeout,
    /// A signal, or the end of the thread.
    Interrupted,
}

/// FUTEX_WAIT, FUTEX_WAIT_BITSET: waits for a wake-up with one of `bits` if the word is `value`.
pub fn wait(address: Address, value: u32, bits: u32, deadline: Option<Deadline>) -> SysResult {
    if bits == 0 {
        return Err(Errno::EINVAL);
    }
    let found = find(address, Access::Read)?;
    let is_alone = || task::current().user().is_some_and(|user| user.process.is_out_of_reach());
    let result = match found.mirror {
        Some(mirror) if !is_alone() => across::wait(address, found, mirror, value, bits, deadline)?,
        _ => wait_here(address, found.key, value, bits, deadline)?,
    };
    let Err(ended) = result else {
        note_woken(address, found, bits);
        return Ok(0);
    };
    Err(match (ended, deadline) {
        (Ended::Timeout, _) => Errno::ETIMEDOUT,
        (Ended::Interrupted, None) => Errno::RESTART,
        (Ended::Interrupted, Some(deadline)) => {
            if let Some(user) = task::current().user() {
                *user.restart.lock() = Some(Restart::Futex { address, value, bits, deadline });
            }
            Errno::RESTART_BLOCK
        }
    })
}

/// A wake-up that a thread got.
#[derive(Clone, Copy, Debug)]
pub struct Woken {
    found: Found,
    bits: u32,
}

/// Remembers that the calling thread was woken by who may be another process.
pub(super) fn note_woken(address: Address, found: Found, bits: u32) {
    if address.shared
        && let Some(user) = task::current().user()
    {
        *user.woken.lock() = Some(Woken { found, bits });
    }
}

/// The calling thread was killed: hands on the last wake-up that it got. Linux may have told of its
/// death before, and then that was meant for somebody else; one too many does no harm.
pub fn hand_on(user: &UserThread) {
    if let Some(Woken { found, bits }) = user.woken.lock().take() {
        // Nobody can be told of waiters of another kind.
        let _ = wake_found(found, 1, bits);
    }
}

/// Waits for a wake-up of the realm.
fn wait_here(
    address: Address,
    key: Key,
    value: u32,
    bits: u32,
    deadline: Option<Deadline>,
) -> Result<Result<(), Ended>, Errno> {
    let (me, _) = caller()?;
    enqueue(me, key, address, value, Wait::Plain(bits))?;
    let result = sleep(deadline, || false);
    // Who wakes it takes it out of the table and hands the wake-up over.
    if result.is_err() && !STATE.lock().table.dequeue(me) {
        task::forget_handed();
        return Ok(Ok(()));
    }
    Ok(result)
}

/// Queues the calling thread `me`, or a further place of it, if the word is `value`. May sleep.
pub(super) fn enqueue(
    me: u16,
    key: Key,
    address: Address,
    value: u32,
    wait: Wait,
) -> Result<(), Errno> {
    let level = task::current().effective_level();
    loop {
        let stop = {
            let mut state = STATE.lock();
            match word::load(address.word) {
                Ok(word) if word == value => {
                    state.table.enqueue(me, level, key, wait);
                    return Ok(());
                }
                Ok(_) => return Err(Errno::EAGAIN),
                Err(stop) => stop,
            }
        };
        stop.overcome()?;
    }
}

/// Sleeps until what is waited for was handed over, or `done` says so.
pub(super) fn sleep(deadline: Option<Deadline>, done: impl Fn() -> bool) -> Result<(), Ended> {
    let current = task::current();
    let Some(user) = current.user() else { return Ok(()) };
    user.state.store(THREAD_SLEEPING, Ordering::Relaxed);
    let result = loop {
        if is_interrupted() {
            break Err(Ended::Interrupted);
        }
        let reason = task::block_until(deadline);
        if reason == WakeReason::Handed || done() {
            break Ok(());
        }
        if reason == WakeReason::Timeout {
            break Err(Ended::Timeout);
        }
    };
    user.state.store(THREAD_RUNNING, Ordering::Relaxed);
    result
}

/// FUTEX_WAKE, FUTEX_WAKE_BITSET: wakes up to `count` threads, but at least one, that wait for one
/// of `bits`.
pub fn wake(address: Address, count: i32, bits: u32) -> SysResult {
    if bits == 0 {
        return Err(Errno::EINVAL);
    }
    wake_found(find(address, Access::Read)?, count.max(1) as usize, bits)
}

/// Wakes up to `count` threads that wait for one of `bits`, those of the realm first. Says how many
/// of those.
pub(super) fn wake_found(found: Found, count: usize, bits: u32) -> SysResult {
    let woken = wake_key(found.key, count, bits)?;
    wake_across(found, count, bits, woken);
    Ok(woken)
}

/// Wakes who waits in Linux, as far as `woken` of the realm are less than `count`.
fn wake_across(found: Found, count: usize, bits: u32, woken: u64) {
    if let Some(mirror) = found.mirror
        && let Some(left) = count.checked_sub(woken as usize).filter(|&left| left > 0)
    {
        across::wake(found.key, mirror, left, bits);
    }
}

/// FUTEX_WAKE of a private futex on the fast path: wakes one thread, or finds none. `None` if there
/// is more to do. Interrupts off.
pub fn wake_fast(
    call: &mut FastCall<'_, UserThread>,
    word: UserAddr,
    count: i32,
) -> Option<SysResult> {
    let key = private_key(word)?;
    let mut state = STATE.lock_quietly();
    Some(Ok(match state.table.wake_one(key, count.max(1) as usize).ok()? {
        // While the table is locked, the thread cannot find out and end.
        Some(waiter) => {
            if let Some(thread) = state.several.woken(waiter) {
                task::hand_over_fast(call, thread);
            }
            1
        }
        None => 0,
    }))
}

/// Wakes up to `count` threads that wait at a word of the calling program by operations that are
/// not private.
pub fn wake_shared(word: UserAddr, count: usize) {
    if let Ok(found) = find(Address { word, shared: true }, Access::Read) {
        // Nobody can be told of waiters of another kind.
        let _ = wake_found(found, count, linux::FUTEX_BITSET_MATCH_ANY);
    }
}

pub(super) fn wake_key(key: Key, count: usize, bits: u32) -> SysResult {
    Waking::new(key, count, bits)?.finish()
}

/// The wake-ups of a call, in the realm.
struct Waking {
    /// The caller.
    me: u16,
    key: Key,
    bits: u32,
    /// How many are still to be woken.
    left: usize,
    woken: u64,
    /// Whether there may be more of them.
    goes_on: bool,
}

impl Waking {
    fn new(key: Key, count: usize, bits: u32) -> Result<Self, Errno> {
        let (me, _) = caller()?;
        // No more than can be there: who comes later may be left.
        let left = count.min(WAITERS);
        Ok(Self { me, key, bits, left, woken: 0, goes_on: true })
    }

    /// Wakes a few. While the table is locked, a thread that was woken cannot find out and end.
    fn step(&mut self, state: &mut State) -> Result<(), Errno> {
        let steps = if task::online().count() > 1 { 1 } else { STEPS };
        let State { table, several, .. } = state;
        let woken = &mut self.woken;
        let result = table.wake(self.me, self.key, self.bits, &mut self.left, steps, |waiter| {
            *woken += 1;
            several.woken(waiter).into_iter().for_each(task::hand_over);
        });
        self.goes_on = result.map_err(|_| Errno::EINVAL)?;
        Ok(())
    }

    /// Wakes all that are left; says how many were woken.
    fn finish(mut self) -> SysResult {
        while self.goes_on {
            self.step(&mut STATE.lock())?;
        }
        Ok(self.woken)
    }
}

/// FUTEX_WAKE_OP: changes the second word, wakes threads at the first, and at the second if that
/// was as described.
pub fn wake_op(first: Address, second: Address, counts: [i32; 2], operation: u32) -> SysResult {
    let found = [find(first, Access::Read)?, find(second, Access::Write)?];
    let counts = counts.map(|count| count.max(1) as usize);
    let any = linux::FUTEX_BITSET_MATCH_ANY;
    let mut also = Waking::new(found[1].key, counts[1], any)?;
    let compared = loop {
        let stop = {
            let mut state = STATE.lock();
            match change(second.word, operation) {
                Ok(before) => {
                    let compared = compares(before, operation)?;
                    // Who waits there in Linux as well may learn that the word has changed, and
                    // wait no more, as soon as the table is not locked.
                    if compared {
                        also.step(&mut state)?;
                    }
                    break compared;
                }
                Err(stop) => stop,
            }
        };
        stop.overcome()?;
    };
    let mut woken = 0;
    if compared {
        woken = also.finish()?;
        wake_across(found[1], counts[1], any, woken);
    }
    Ok(woken + wake_found(found[0], counts[0], any)?)
}

/// A field of 12 bits, with its sign.
fn signed(field: u32) -> i32 {
    (field << 20).cast_signed() >> 20
}

/// Changes a word as FUTEX_WAKE_OP encodes it, and returns what it was.
fn change(address: UserAddr, operation: u32) -> Result<u32, Stop> {
    let mut argument = signed(operation >> 12 & 0xfff) as u32;
    if operation >> 31 != 0 {
        argument = 1 << (argument & 31);
    }
    let before = word::load(address)?;
    let after = match operation >> 28 & 7 {
        linux::FUTEX_OP_SET => argument,
        linux::FUTEX_OP_ADD => before.wrapping_add(argument),
        linux::FUTEX_OP_OR => before | argument,
        linux::FUTEX_OP_ANDN => before & !argument,
        linux::FUTEX_OP_XOR => before ^ argument,
        _ => return Err(Errno::ENOSYS.into()),
    };
    word::replace(address, before, after)?;
    Ok(before)
}

/// Whether a word was as FUTEX_WAKE_OP describes it.
fn compares(word: u32, operation: u32) -> Result<bool, Errno> {
    let (word, argument) = (word.cast_signed(), signed(operation & 0xfff));
    Ok(match operation >> 24 & 15 {
        linux::FUTEX_OP_CMP_EQ => word == argument,
        linux::FUTEX_OP_CMP_NE => word != argument,
        linux::FUTEX_OP_CMP_LT => word < argument,
        linux::FUTEX_OP_CMP_GE => word >= argument,
        linux::FUTEX_OP_CMP_LE => word <= argument,
        linux::FUTEX_OP_CMP_GT => word > argument,
        _ => return Err(Errno::ENOSYS),
    })
}
