// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls: the dispatcher over the one table (crate `crtos-syscalls`), and the calls that are served here.
//!
//! | file | calls |
//! |---|---|
//! | [`memory`] | mmap, munmap, mprotect, mremap, brk, madvise, mlock and relatives |
//! | [`time`] | clocks and sleeping |
//! | [`sched`] | scheduling policies, affinity |
//! | [`futex`] | futex |
//! | [`identity`] | ids, exit, thread pointers, prctl, ports |
//!
//! Signals are in [`crate::signal`], the way to Linux in [`crate::remote`].

mod futex;
mod identity;
mod memory;
mod sched;
mod time;

pub use sched::inherit as inherit_scheduling;

use core::sync::atomic::Ordering;

use crtos_abi::channel::{OP_SYSCALL, RESULT_NOT_MADE};
use crtos_syscalls::{Call, Class, Row, lookup};
use linux_raw_sys::errno;

use crate::{arch::UserContext, fork, mm::space::BadAddress, process, remote, signal, task};

/// An error number of Linux, or one of the `RESTART_*` codes that never reach a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(u16);

/// What a system call returns.
pub type SysResult = Result<u64, Errno>;

macro_rules! errnos {
    ($($name:ident),*) => { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        pub const $name: Self = Self(errno::$name as u16);
    )* };
}

impl Errno {
    errnos!(
        EACCES, EAGAIN, EBADF, ECHILD, EEXIST, EFAULT, EINTR, EINVAL, EIO, ENODEV, ENOENT, ENOEXEC,
        ENOMEM, ENOSYS, EPERM, ESRCH, ETIMEDOUT
    );
    /// Make the call again, unless a handler without `SA_RESTART` runs: then `EINTR`. Linux's ERESTARTSYS.
    pub const RESTART: Self = Self(512);
    /// Make the call again, unless a handler runs: then `EINTR`. Linux's ERESTARTNOHAND.
    pub const RESTART_NO_HANDLER: Self = Self(514);
    /// The shadow is gone: the process ends before the program could see this.
    pub const GONE: Self = Self(511);

    /// As a system call returns it.
    pub fn value(self) -> u64 {
        (-i64::from(self.0)) as u64
    }

    /// The restart code in a result, if it is one.
    pub fn restart(result: u64) -> Option<Self> {
        [Self::RESTART, Self::RESTART_NO_HANDLER].into_iter().find(|code| code.value() == result)
    }
}

impl From<BadAddress> for Errno {
    fn from(_: BadAddress) -> Self {
        Self::EFAULT
    }
}

impl From<remote::Gone> for Errno {
    fn from(_: remote::Gone) -> Self {
        Self::GONE
    }
}

/// Splits a result of Linux.
pub fn linux_result(result: i64) -> SysResult {
    if (-4095..0).contains(&result) {
        Err(Errno(result.unsigned_abs() as u16))
    } else {
        Ok(result as u64)
    }
}

/// Arguments of a call.
pub type Args = [u64; 6];

/// Called for the SYSCALL instruction: number in `rax`, arguments in `rdi rsi rdx r10 r8 r9`, result to `rax`. Interrupts on, may sleep.
pub fn dispatch(context: &mut UserContext) {
    let args = [context.rdi, context.rsi, context.rdx, context.r10, context.r8, context.r9];
    let result = match lookup(u64::from(context.orig_rax as u32)) {
        Some(row) => match row.class {
            Class::Remote => pass(row, args),
            Class::Local(call) | Class::Dual(call) => {
                count_local();
                serve(call, context, args)
            }
            Class::Unsupported => Err(Errno::ENOSYS),
        },
        None => Err(Errno::ENOSYS),
    };
    context.rax = result.unwrap_or_else(Errno::value);
    if Errno::restart(context.rax).is_some() {
        signal::deliver(context);
    }
    process::end_if_due();
}

fn count_local() {
    if let Some(user) = task::current().data.user() {
        user.local_calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Has Linux make the call with the program's own arguments.
fn pass(row: &Row, args: Args) -> SysResult {
    let result = remote::request(OP_SYSCALL, row.number.into(), args)?;
    let code = if row.restarts() { Errno::RESTART } else { Errno::RESTART_NO_HANDLER };
    if result == RESULT_NOT_MADE {
        return Err(code);
    }
    // The signal that ended the call in Linux may be for a handler here.
    match linux_result(result) {
        Err(Errno::EINTR) if signal::is_pending() => Err(code),
        other => other,
    }
}

/// Has Linux make call `nr` on behalf of one that is served here.
pub fn linux(nr: u32, args: &[u64]) -> SysResult {
    let mut all = [0; 6];
    for (to, from) in all.iter_mut().zip(args) {
        *to = *from;
    }
    loop {
        let result = remote::request(OP_SYSCALL, nr, all)?;
        if result != RESULT_NOT_MADE {
            return linux_result(result);
        }
    }
}

/// Serves a call of the real-time kernel.
fn serve(call: Call, context: &mut UserContext, args: Args) -> SysResult {
    match call {
        Call::Mmap => memory::mmap(args),
        Call::Mprotect => memory::mprotect(args),
        Call::Munmap => memory::munmap(args),
        Call::Brk => memory::brk(args),
        Call::Mremap => memory::mremap(args),
        Call::Msync => memory::msync(args),
        Call::Mincore => memory::mincore(args),
        Call::Madvise => memory::madvise(args),
        Call::Mlock => memory::mlock(args),
        Call::Mlock2 => memory::mlock2(args),
        Call::Munlock => memory::munlock(args),
        Call::Mlockall => memory::mlockall(args),
        Call::Munlockall => memory::munlockall(),
        Call::PkeyMprotect => memory::pkey_mprotect(args),

        Call::Nanosleep => time::nanosleep(args),
        Call::ClockNanosleep => time::clock_nanosleep(args),
        Call::ClockGettime => time::clock_gettime(args),
        Call::ClockGetres => time::clock_getres(args),
        Call::Gettimeofday => time::gettimeofday(args),
        Call::Time => time::time(args),
        Call::Times => time::times(args),
        Call::Getrusage => time::getrusage(args),
        Call::Getitimer => time::getitimer(args),
        Call::Setitimer => time::setitimer(args),

        Call::SchedYield => sched::sched_yield(),
        Call::SchedSetparam => sched::setparam(args),
        Call::SchedGetparam => sched::getparam(args),
        Call::SchedSetscheduler => sched::setscheduler(args),
        Call::SchedGetscheduler => sched::getscheduler(args),
        Call::SchedGetPriorityMax => sched::priority_range(args).map(|range| *range.end()),
        Call::SchedGetPriorityMin => sched::priority_range(args).map(|range| *range.start()),
        Call::SchedRrGetInterval => sched::rr_get_interval(args),
        Call::SchedSetattr => sched::setattr(args),
        Call::SchedSetaffinity => sched::setaffinity(args),
        Call::SchedGetaffinity => sched::getaffinity(args),
        Call::Getcpu => sched::getcpu(args),

        Call::Futex => futex::futex(args),

        Call::Getpid => identity::getpid(),
        Call::Gettid => identity::gettid(),
        Call::Exit | Call::ExitGroup => identity::exit(args),
        Call::Clone => fork::clone(context, args),
        Call::Fork | Call::Vfork => fork::fork(context),
        Call::Execve => fork::execve(args),
        Call::ArchPrctl => identity::arch_prctl(args),
        Call::SetTidAddress => identity::gettid(),
        Call::SetRobustList => identity::set_robust_list(args),
        Call::GetRobustList => identity::get_robust_list(args),
        Call::Prctl => identity::prctl(args),
        Call::Ioperm => identity::ioperm(args),
        Call::Iopl => identity::iopl(args),

        Call::RtSigaction => signal::sigaction(args),
        Call::RtSigprocmask => signal::sigprocmask(args),
        Call::RtSigreturn => signal::sigreturn(context),
        Call::RtSigsuspend => signal::sigsuspend(args),
        Call::Sigaltstack => signal::sigaltstack(context, args),
        Call::Pause => signal::pause(),
        Call::RestartSyscall => Err(Errno::EINTR),
    }
}
