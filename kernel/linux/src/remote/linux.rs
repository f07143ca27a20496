// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that Linux makes on behalf of programs, as the programs made them or for one that is
//! served here.

use core::sync::atomic::{AtomicBool, Ordering};

use crtos_abi::{PAGE_SIZE, UserAddr, channel::RESULT_NOT_MADE};
use crtos_channel::Operation;
use crtos_core::task;
use linux_raw_sys::{general as linux, net};

use super::request;
use crate::{
    abi::{Args, Errno, SysResult, linux_result},
    files::names,
    memory::{Scratch, user},
    process::{ThreadExt as _, UserThread, lapse, spares},
    signal,
};

use crtos_syscalls::Row;

/// Has Linux make the call with the program's own arguments: EREMOTE where that is to fail
/// ([`lapse::refuse`]).
pub fn pass(row: &Row, args: Args) -> SysResult {
    pass_again(row, || args)
}

/// Has Linux make the call with these arguments, which are asked for each time that it is made.
pub fn pass_again(row: &Row, args: impl Fn() -> Args) -> SysResult {
    lapse::refuse()?;
    if row.changes_heritage() {
        // Its ids are a part of that.
        if let Some(user) = task::current().user() {
            user.ids.forget();
        }
        return spares::changing(row, &args(), || pass_on(row, args));
    }
    pass_on(row, args)
}

fn pass_on(row: &Row, args: impl Fn() -> Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    let code = if row.restarts() { Errno::RESTART } else { Errno::RESTART_NO_HANDLER };
    if row.changes_ids() {
        user.process.doubt_ids();
    }
    loop {
        user.interruptible.store(row.waits(), Ordering::SeqCst);
        // Who sends a signal from here on sees that it can end the call.
        if row.waits() && must_end(user) {
            user.interruptible.store(false, Ordering::Relaxed);
            return Err(Errno::RESTART_ALWAYS);
        }
        user.disturbed.store(false, Ordering::Relaxed);
        let (number, arguments) = (row.number.into(), &args());
        let is_executable =
            |at: usize| names::is_executable(UserAddr::new(arguments[at]), user.process.pid);
        let result = request(match row.path_asked_for().is_some_and(is_executable) {
            true => Operation::AskExecutable { number, arguments },
            false => Operation::SystemCall { number, arguments },
        });
        user.interruptible.store(false, Ordering::Relaxed);
        let result = result?;
        // A clock that the call has set is in force when it returns, whatever CPU the doorbell for
        // it reached.
        task::clock_set::look();
        if result == RESULT_NOT_MADE {
            // As if the signal had come before the call.
            if row.waits() && must_end(user) {
                return Err(Errno::RESTART_ALWAYS);
            }
            continue;
        }
        match linux_result(result) {
            // The signal that ended the call in Linux may be for a handler here, or be blocked
            // here.
            Err(Errno::EINTR) if row.waits() && must_end(user) => {
                let is_limited = code == Errno::RESTART && is_limited(number, arguments[0]);
                return Err(if is_limited { Errno::EINTR } else { code });
            }
            Err(Errno::EINTR) if is_foreign(user) => {}
            other => return other,
        }
    }
}

/// Programs have said for how long sockets of Linux wait.
static ANY_LIMITED: AtomicBool = AtomicBool::new(false);

/// A program sets an option of a socket of Linux.
pub fn note_option(level: u64, name: u64) {
    let [level, name] = [level, name].map(|word| word as u32);
    let limits =
        [net::SO_RCVTIMEO_OLD, net::SO_RCVTIMEO_NEW, net::SO_SNDTIMEO_OLD, net::SO_SNDTIMEO_NEW];
    if level == net::SOL_SOCKET && limits.contains(&name) {
        ANY_LIMITED.store(true, Ordering::Relaxed);
    }
}

/// Whether call `number` of `fd` is one of a socket that ends by itself (SO_RCVTIMEO, SO_SNDTIMEO):
/// it is not made again after a signal. Asks Linux only if there may be such sockets.
fn is_limited(number: u32, fd: u64) -> bool {
    if !ANY_LIMITED.load(Ordering::Relaxed) {
        return false;
    }
    let option = match number {
        linux::__NR_read
        | linux::__NR_readv
        | linux::__NR_recvfrom
        | linux::__NR_recvmsg
        | linux::__NR_recvmmsg
        | linux::__NR_accept
        | linux::__NR_accept4 => net::SO_RCVTIMEO_OLD,
        linux::__NR_write
        | linux::__NR_writev
        | linux::__NR_sendto
        | linux::__NR_sendmsg
        | linux::__NR_sendmmsg
        | linux::__NR_connect => net::SO_SNDTIMEO_OLD,
        _ => return false,
    };
    limit_of(fd, option).is_ok_and(|limit| limit != [0; 2])
}

/// That limit of a socket, in seconds and microseconds.
fn limit_of(fd: u64, option: u32) -> Result<[u64; 2], Errno> {
    const SIZE: u32 = 16;
    let space = user::space()?;
    let scratch = Scratch::open(&space, PAGE_SIZE)?;
    let size = scratch.start + u64::from(SIZE);
    user::write_u32(size, SIZE)?;
    let args = [fd, net::SOL_SOCKET.into(), option.into(), scratch.start.get(), size.get()];
    self::linux(linux::__NR_getsockopt, &args)?;
    Ok(user::read_words(scratch.start)?)
}

/// Whether a wait of `user`, the calling thread, has to end.
pub fn must_end(user: &UserThread) -> bool {
    user.is_ending() || signal::is_pending()
}

/// Whether what ended the last call of `user`'s shadow did not concern that call, as far as is
/// known.
fn is_foreign(user: &UserThread) -> bool {
    let was_interrupted = user.interrupted.swap(false, Ordering::Relaxed);
    was_interrupted || user.disturbed.load(Ordering::Relaxed)
}

/// As [`pass`], with arguments that may be others than the program's.
pub fn own_call(nr: u32, args: &[u64]) -> SysResult {
    lapse::refuse()?;
    linux(nr, args)
}

/// Whether Linux's kernel grants the calling thread that capability (CAP_*). Sleeps.
pub fn is_capable(capability: u32) -> Result<bool, Errno> {
    Ok(linux_result(request(Operation::IsCapable { capability })?).is_ok())
}

/// Has Linux make call `nr` on behalf of one that is served here.
pub fn linux(nr: u32, args: &[u64]) -> SysResult {
    let mut all = [0; 6];
    for (to, from) in all.iter_mut().zip(args) {
        *to = *from;
    }
    if let Some(row) = crtos_syscalls::lookup(nr.into()).filter(|row| row.changes_heritage()) {
        return spares::changing(row, &all, || ask(nr, &all));
    }
    ask(nr, &all)
}

fn ask(nr: u32, all: &Args) -> SysResult {
    let current = task::current();
    let user = current.user().ok_or(Errno::ESRCH)?;
    loop {
        user.disturbed.store(false, Ordering::Relaxed);
        let result = request(Operation::SystemCall { number: nr, arguments: all })?;
        if result == RESULT_NOT_MADE {
            continue;
        }
        match linux_result(result) {
            Err(Errno::EINTR) if !must_end(user) && is_foreign(user) => {}
            other => return other,
        }
    }
}
