// SPDX-License-Identifier: MIT OR Apache-2.0
//! The light path: system calls that end without a full context.
//!
//! The entry (`arch::entry`) has kept only the registers that C code may clobber and calls a handler
//! from [`HANDLERS`] with the program's arguments, interrupts off. A handler takes a bounded number of steps (some
//! hundred instructions), does not sleep or allocate, reaches the program's memory by [`user_memory`] alone, and
//! either finishes the call or changes nothing and says [`Light::FULL`]: then the call goes
//! through [`super::dispatch`], as if the handler had not been asked. Preemption and signals are looked at on the way
//! back in both cases.
//!
//! To give a call a handler, name it in [`handler`].

use crtos_syscalls::{Call, Class, NUMBERS, TABLE};

use super::{
    Errno, SysResult,
    time::{self, SECOND, Source},
};
use crate::{
    arch::user_memory,
    files,
    process::User,
    signal,
    time::{self as clock, Clock},
};

/// What a handler says, in RAX and RDX.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Light {
    result: u64,
    finished: u64,
}

impl Light {
    /// The call needs the full path; nothing has been changed.
    pub const FULL: Self = Self { result: 0, finished: 0 };

    /// The call is finished with this result.
    pub const fn done(result: u64) -> Self {
        Self { result, finished: 1 }
    }

    /// What the call has as its result, if it is finished.
    pub const fn result(self) -> Option<u64> {
        if self.finished != 0 { Some(self.result) } else { None }
    }

    /// The call is finished with this result if `finished`.
    #[inline(always)]
    pub const fn done_if(finished: bool, result: u64) -> Self {
        Self { result, finished: finished as u64 }
    }
}

impl From<Option<SysResult>> for Light {
    #[inline(always)]
    fn from(result: Option<SysResult>) -> Self {
        result.map_or(Self::FULL, |result| Self::done(result.unwrap_or_else(Errno::value)))
    }
}

/// A handler: the first four arguments of the call, and the process side of the caller. Interrupts off.
pub type Handler = extern "sysv64" fn(u64, u64, u64, u64, &User) -> Light;

/// The handler of each number.
pub static HANDLERS: [Handler; NUMBERS] = {
    let mut handlers = [full as Handler; NUMBERS];
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
const fn handler(call: Call) -> Handler {
    match call {
        Call::Read => read,
        Call::Write => write,
        Call::Open => open,
        Call::Openat => openat,
        Call::Close => close,
        Call::Getpid => getpid,
        Call::Gettid => gettid,
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

extern "sysv64" fn full(_: u64, _: u64, _: u64, _: u64, _: &User) -> Light {
    Light::FULL
}

extern "sysv64" fn read(fd: u64, to: u64, length: u64, _: u64, user: &User) -> Light {
    files::light::read(user, fd, to, length)
}

extern "sysv64" fn write(fd: u64, from: u64, length: u64, _: u64, user: &User) -> Light {
    files::light::write(user, fd, from, length)
}

extern "sysv64" fn open(path: u64, flags: u64, _: u64, _: u64, user: &User) -> Light {
    files::light::open(user, path, flags)
}

extern "sysv64" fn openat(_: u64, path: u64, flags: u64, _: u64, user: &User) -> Light {
    files::light::open(user, path, flags)
}

extern "sysv64" fn close(fd: u64, _: u64, _: u64, _: u64, user: &User) -> Light {
    files::light::close(user, fd)
}

extern "sysv64" fn getpid(_: u64, _: u64, _: u64, _: u64, user: &User) -> Light {
    Light::done(user.process.pid.into())
}

extern "sysv64" fn gettid(_: u64, _: u64, _: u64, _: u64, user: &User) -> Light {
    Light::done(user.tid.into())
}

extern "sysv64" fn sigprocmask(how: u64, set: u64, old: u64, size: u64, user: &User) -> Light {
    signal::sigprocmask_light(user, [how, set, old, size]).into()
}

extern "sysv64" fn kill(pid: u64, number: u64, _: u64, _: u64, user: &User) -> Light {
    signal::kill_light(user, Some(pid), None, number).into()
}

extern "sysv64" fn tkill(tid: u64, number: u64, _: u64, _: u64, user: &User) -> Light {
    signal::kill_light(user, None, Some(tid), number).into()
}

extern "sysv64" fn tgkill(pid: u64, tid: u64, number: u64, _: u64, user: &User) -> Light {
    signal::kill_light(user, Some(pid), Some(tid), number).into()
}

extern "sysv64" fn futex(word: u64, operation: u64, value: u64, _: u64, _: &User) -> Light {
    super::futex::futex_light(word, operation as u32, value).into()
}

/// Time of one of Linux's clocks, if Linux does not write it just now.
fn linux_clock(clock: u64) -> Option<u64> {
    match time::source(clock) {
        Ok(Source::Clock(clock)) => Some(clock::try_linux(clock)?.0),
        _ => None,
    }
}

/// Stores words in the program's memory if that is present and writable.
fn store<const N: usize>(address: u64, words: [u64; N], result: u64) -> Light {
    match user_memory::write(address, words.map(u64::to_le_bytes).as_flattened()) == N * 8 {
        true => Light::done(result),
        false => Light::FULL,
    }
}

extern "sysv64" fn clock_gettime(clock: u64, to: u64, _: u64, _: u64, _: &User) -> Light {
    match linux_clock(clock) {
        Some(now) => store(to, [now / SECOND, now % SECOND], 0),
        None => Light::FULL,
    }
}

extern "sysv64" fn gettimeofday(to: u64, zone: u64, _: u64, _: u64, _: &User) -> Light {
    match clock::try_linux(Clock::Realtime) {
        Some(now) if to != 0 && zone == 0 => store(to, [now.0 / SECOND, now.0 % SECOND / 1000], 0),
        _ => Light::FULL,
    }
}

extern "sysv64" fn seconds(to: u64, _: u64, _: u64, _: u64, _: &User) -> Light {
    match clock::try_linux(Clock::Realtime) {
        Some(now) if to == 0 => Light::done(now.0 / SECOND),
        Some(now) => store(to, [now.0 / SECOND], now.0 / SECOND),
        None => Light::FULL,
    }
}
