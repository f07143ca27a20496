// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast path: system calls that end without a full context.
//!
//! The entry (`arch::entry`) has kept only the registers that C code may clobber and calls a
//! handler from [`HANDLERS`] with the program's arguments, interrupts off. A handler takes a
//! bounded number of steps (some hundred instructions), does not sleep or allocate, reaches the
//! program's memory by [`user_memory`] alone, and either finishes the call or changes nothing and
//! says [`FastResult::FULL`]: then the call goes through [`super::dispatch`], as if the handler had
//! not been asked. Preemption and signals are looked at on the way back in both cases.
//!
//! To give a call a handler, name it in [`handler`].

use crtos_abi::UserAddr;
use crtos_syscalls::{Call, Class, NUMBERS, TABLE};

use crtos_core::{
    arch::user_memory,
    hazard::FastCall,
    personality::{FAST_NUMBERS, FastHandler, FastHandlers, FastResult},
    time::{self as clock, Clock},
};

use super::time::{self, Source};
use crate::{
    abi::{Errno, SysResult},
    files,
    memory::timespec::SECOND,
    process::{UserThread, ids::Id},
    signal,
};

/// A call on the fast path of a program's thread.
type UserCall<'a> = FastCall<'a, UserThread>;

/// What the call has as its result, if that is known.
#[inline(always)]
fn finished(result: Option<SysResult>) -> FastResult {
    result.map_or(FastResult::FULL, |result| FastResult::done(result.unwrap_or_else(Errno::value)))
}

/// The handler of each number.
pub const HANDLERS: FastHandlers<UserThread> = {
    assert!(NUMBERS <= FAST_NUMBERS);
    let mut handlers = [full as FastHandler<UserThread>; FAST_NUMBERS];
    let mut position = 0;
    while position < TABLE.len() {
        let row = &TABLE[position];
        if let Class::Local(call) | Class::Dual(call) = row.class {
            handlers[row.number as usize] = handler(call);
        }
        position += 1;
    }
    handlers
};

/// The handler of a call.
const fn handler(call: Call) -> FastHandler<UserThread> {
    match call {
        Call::Read => read,
        Call::Write => write,
        Call::Open => open,
        Call::Openat => openat,
        Call::Close => close,
        Call::Getpid => getpid,
        Call::Gettid => gettid,
        Call::Getuid => getuid,
        Call::Getgid => getgid,
        Call::Geteuid => geteuid,
        Call::Getegid => getegid,
        Call::Futex => futex,
        Call::ClockGettime => clock_gettime,
        Call::Gettimeofday => gettimeofday,
        Call::Time => seconds,
        Call::RtSigprocmask => sigprocmask,
        Call::Kill => kill,
        Call::Tkill => tkill,
        Call::Tgkill => tgkill,
        _ => full,
    }
}

extern "sysv64" fn full(_: u64, _: u64, _: u64, _: u64, _: UserCall<'_>) -> FastResult {
    FastResult::FULL
}

extern "sysv64" fn read(
    fd: u64,
    to: u64,
    length: u64,
    _: u64,
    mut user: UserCall<'_>,
) -> FastResult {
    files::fast::read(&mut user, fd, UserAddr::new(to), length)
}

extern "sysv64" fn write(
    fd: u64,
    from: u64,
    length: u64,
    _: u64,
    mut user: UserCall<'_>,
) -> FastResult {
    files::fast::write(&mut user, fd, UserAddr::new(from), length)
}

extern "sysv64" fn open(path: u64, flags: u64, _: u64, _: u64, user: UserCall<'_>) -> FastResult {
    files::fast::open(&user, UserAddr::new(path), flags)
}

extern "sysv64" fn openat(_: u64, path: u64, flags: u64, _: u64, user: UserCall<'_>) -> FastResult {
    files::fast::open(&user, UserAddr::new(path), flags)
}

extern "sysv64" fn close(fd: u64, _: u64, _: u64, _: u64, mut user: UserCall<'_>) -> FastResult {
    files::fast::close(&mut user, fd)
}

extern "sysv64" fn getpid(_: u64, _: u64, _: u64, _: u64, user: UserCall<'_>) -> FastResult {
    FastResult::done(user.process.pid.get().into())
}

extern "sysv64" fn gettid(_: u64, _: u64, _: u64, _: u64, user: UserCall<'_>) -> FastResult {
    FastResult::done(user.tid.get().into())
}

/// An id of the calling thread, if it is known.
#[inline(always)]
fn own_id(user: &UserCall<'_>, which: Id) -> FastResult {
    user.ids.get(which).map_or(FastResult::FULL, |id| FastResult::done(id.into()))
}

extern "sysv64" fn getuid(_: u64, _: u64, _: u64, _: u64, user: UserCall<'_>) -> FastResult {
    own_id(&user, Id::User)
}

extern "sysv64" fn getgid(_: u64, _: u64, _: u64, _: u64, user: UserCall<'_>) -> FastResult {
    own_id(&user, Id::Group)
}

extern "sysv64" fn geteuid(_: u64, _: u64, _: u64, _: u64, user: UserCall<'_>) -> FastResult {
    own_id(&user, Id::EffectiveUser)
}

extern "sysv64" fn getegid(_: u64, _: u64, _: u64, _: u64, user: UserCall<'_>) -> FastResult {
    own_id(&user, Id::EffectiveGroup)
}

extern "sysv64" fn sigprocmask(
    how: u64,
    set: u64,
    old: u64,
    size: u64,
    user: UserCall<'_>,
) -> FastResult {
    finished(signal::sigprocmask_fast(&user, [how, set, old, size]))
}

extern "sysv64" fn kill(pid: u64, number: u64, _: u64, _: u64, user: UserCall<'_>) -> FastResult {
    finished(signal::kill_fast(&user, Some(pid), None, number))
}

extern "sysv64" fn tkill(tid: u64, number: u64, _: u64, _: u64, user: UserCall<'_>) -> FastResult {
    finished(signal::kill_fast(&user, None, Some(tid), number))
}

extern "sysv64" fn tgkill(
    pid: u64,
    tid: u64,
    number: u64,
    _: u64,
    user: UserCall<'_>,
) -> FastResult {
    finished(signal::kill_fast(&user, Some(pid), Some(tid), number))
}

extern "sysv64" fn futex(
    word: u64,
    operation: u64,
    value: u64,
    _: u64,
    mut user: UserCall<'_>,
) -> FastResult {
    finished(super::futex::futex_fast(&mut user, UserAddr::new(word), operation as u32, value))
}

/// Time of one of Linux's clocks, if Linux does not write it just now.
fn linux_clock(clock: u64) -> Option<u64> {
    match time::source(clock) {
        Ok(Source::Clock(clock)) => Some(clock::try_linux(clock)?.0),
        _ => None,
    }
}

/// Stores words in the program's memory if that is present and writable.
fn store<const N: usize>(address: UserAddr, words: [u64; N], result: u64) -> FastResult {
    match user_memory::write(address, words.map(u64::to_le_bytes).as_flattened()) == N * 8 {
        true => FastResult::done(result),
        false => FastResult::FULL,
    }
}

extern "sysv64" fn clock_gettime(
    clock: u64,
    to: u64,
    _: u64,
    _: u64,
    _: UserCall<'_>,
) -> FastResult {
    match linux_clock(clock) {
        Some(now) => store(UserAddr::new(to), [now / SECOND, now % SECOND], 0),
        None => FastResult::FULL,
    }
}

extern "sysv64" fn gettimeofday(to: u64, zone: u64, _: u64, _: u64, _: UserCall<'_>) -> FastResult {
    match clock::try_linux(Clock::Realtime) {
        Some(now) if to != 0 && zone == 0 => {
            store(UserAddr::new(to), [now.0 / SECOND, now.0 % SECOND / 1000], 0)
        }
        _ => FastResult::FULL,
    }
}

extern "sysv64" fn seconds(to: u64, _: u64, _: u64, _: u64, _: UserCall<'_>) -> FastResult {
    match clock::try_linux(Clock::Realtime) {
        Some(now) if to == 0 => FastResult::done(now.0 / SECOND),
        Some(now) => store(UserAddr::new(to), [now.0 / SECOND], now.0 / SECOND),
        None => FastResult::FULL,
    }
}
