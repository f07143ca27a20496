// SPDX-License-Identifier: MIT OR Apache-2.0
//! futex(2) and futex_waitv(2): takes apart what is asked for; see [`crate::futex`].

use crtos_abi::UserAddr;

use alloc::vec::Vec;

use crtos_core::{
    hazard::FastCall,
    mm::heap,
    time::{self, Clock, Deadline},
};

use crate::{
    abi::{Args, Errno, SysResult},
    futex::{
        Address, pi, requeue,
        several::{self, Waiting},
        wait,
    },
    memory::{timespec::read_timespec, user},
    process::UserThread,
};

use linux_raw_sys::general::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, FUTEX_32, FUTEX_BITSET_MATCH_ANY, FUTEX_CLOCK_REALTIME,
    FUTEX_CMD_MASK, FUTEX_CMP_REQUEUE, FUTEX_CMP_REQUEUE_PI, FUTEX_LOCK_PI, FUTEX_LOCK_PI2,
    FUTEX_PRIVATE_FLAG, FUTEX_REQUEUE, FUTEX_TRYLOCK_PI, FUTEX_UNLOCK_PI, FUTEX_WAIT,
    FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_WAITV_MAX, FUTEX_WAKE, FUTEX_WAKE_BITSET,
    FUTEX_WAKE_OP,
};

/// futex(address, operation, value, timeout or second value, second address, third value).
pub fn futex([word, operation, value, timeout, second, third]: Args) -> SysResult {
    let operation = operation as u32;
    let command = operation & FUTEX_CMD_MASK as u32;
    let realtime = operation & FUTEX_CLOCK_REALTIME != 0;
    let shared = operation & FUTEX_PRIVATE_FLAG == 0;
    let deadline = deadline(command, realtime, UserAddr::new(timeout))?;
    if realtime && !matches!(command, FUTEX_WAIT_BITSET | FUTEX_WAIT_REQUEUE_PI | FUTEX_LOCK_PI2) {
        return Err(Errno::ENOSYS);
    }
    let address = Address { word: UserAddr::new(word), shared };
    let second = Address { word: UserAddr::new(second), shared };
    let (count, value, bits) = (value as i32, value as u32, third as u32);
    let counts = [count, timeout as i32];
    match command {
        FUTEX_WAIT => wait::wait(address, value, FUTEX_BITSET_MATCH_ANY, deadline),
        FUTEX_WAIT_BITSET => wait::wait(address, value, bits, deadline),
        FUTEX_WAKE => wait::wake(address, count, FUTEX_BITSET_MATCH_ANY),
        FUTEX_WAKE_BITSET => wait::wake(address, count, bits),
        FUTEX_REQUEUE => requeue::requeue(address, second, counts, None),
        FUTEX_CMP_REQUEUE => requeue::requeue(address, second, counts, Some(bits)),
        FUTEX_WAKE_OP => wait::wake_op(address, second, counts, bits),
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => pi::lock(address, deadline),
        FUTEX_UNLOCK_PI => pi::unlock(address),
        FUTEX_TRYLOCK_PI => pi::try_lock(address),
        FUTEX_WAIT_REQUEUE_PI => {
            requeue::wait_requeue_pi(address, second, value, FUTEX_BITSET_MATCH_ANY, deadline)
        }
        FUTEX_CMP_REQUEUE_PI => requeue::cmp_requeue_pi(address, second, counts, bits),
        _ => Err(Errno::ENOSYS),
    }
}

/// futex_waitv(waiters, count, flags, timeout, clock): waits for a wake-up at any of several words.
pub fn futex_waitv([waiters, count, flags, timeout, clock, _]: Args) -> SysResult {
    /// Bytes of a `struct futex_waitv`.
    const WAITER: u64 = 24;
    let (waiters, count) = (UserAddr::new(waiters), count as u32);
    if flags as u32 != 0 || waiters.is_null() || !(1..=FUTEX_WAITV_MAX).contains(&count) {
        return Err(Errno::EINVAL);
    }
    let timeout = UserAddr::new(timeout);
    let deadline = match (timeout.is_null(), clock as u32) {
        (true, _) => None,
        (false, CLOCK_MONOTONIC) => Some(Deadline::of(Clock::Monotonic, read_timespec(timeout)?)),
        (false, CLOCK_REALTIME) => Some(Deadline::of(Clock::Realtime, read_timespec(timeout)?)),
        _ => return Err(Errno::EINVAL),
    };
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    let mut all = Vec::new();
    all.try_reserve_exact(count as usize).map_err(|_| Errno::ENOMEM)?;
    for index in 0..u64::from(count) {
        let [value, word, flags] = user::read_words(waiters.wrapping_add(index * WAITER))?;
        // What is behind them is reserved.
        let is_known = flags & !u64::from(FUTEX_32 | FUTEX_PRIVATE_FLAG) == 0;
        if !is_known || flags & u64::from(FUTEX_32) == 0 {
            return Err(Errno::EINVAL);
        }
        let value = u32::try_from(value).map_err(|_| Errno::EINVAL)?;
        let shared = flags & u64::from(FUTEX_PRIVATE_FLAG) == 0;
        all.push(Waiting { address: Address { word: UserAddr::new(word), shared }, value });
    }
    several::wait(&all, deadline)
}

/// futex(word, operation, value) on the fast path. Interrupts off.
pub fn futex_fast(
    call: &mut FastCall<'_, UserThread>,
    word: UserAddr,
    operation: u32,
    value: u64,
) -> Option<SysResult> {
    const WAKE_PRIVATE: u32 = FUTEX_WAKE | FUTEX_PRIVATE_FLAG;
    match operation {
        WAKE_PRIVATE => wait::wake_fast(call, word, value as i32),
        _ => None,
    }
}

/// When a call gives up.
fn deadline(command: u32, realtime: bool, timeout: UserAddr) -> Result<Option<Deadline>, Errno> {
    let clock = match command {
        FUTEX_WAIT | FUTEX_WAIT_BITSET | FUTEX_WAIT_REQUEUE_PI | FUTEX_LOCK_PI2 if !realtime => {
            Clock::Monotonic
        }
        FUTEX_WAIT | FUTEX_WAIT_BITSET | FUTEX_WAIT_REQUEUE_PI | FUTEX_LOCK_PI2 | FUTEX_LOCK_PI => {
            Clock::Realtime
        }
        _ => return Ok(None),
    };
    if timeout.is_null() {
        return Ok(None);
    }
    let time = read_timespec(timeout)?;
    Ok(Some(match command {
        FUTEX_WAIT => (time::now() + time).into(),
        _ => Deadline::of(clock, time),
    }))
}
