// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that Linux makes on behalf of programs, as the programs made them or for one that is
//! served here.

use core::sync::atomic::Ordering;

use crtos_abi::{UserAddr, channel::RESULT_NOT_MADE};
use crtos_channel::Operation;
use crtos_core::task;

use super::request;
use crate::{
    abi::{Args, Errno, SysResult, linux_result},
    files::names,
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
            Err(Errno::EINTR) if row.waits() && must_end(user) => return Err(code),
            Err(Errno::EINTR) if is_foreign(user) => {}
            other => return other,
        }
    }
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
