// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls: the dispatcher over the one table (crate `crtos-syscalls`), and the calls that are served here.
//!
//! | file | calls |
//! |---|---|
//! | [`files`] | descriptors: reading, writing, opening, closing, copying |
//! | [`splice`] | splice, tee, vmsplice, sendfile |
//! | [`poll`] | poll, select |
//! | [`epoll`] | epoll |
//! | [`memory`] | mmap, munmap, mprotect, mremap, brk, madvise, mlock and relatives |
//! | [`usage`] | processor time |
//! | [`time`] | clocks and sleeping |
//! | [`sched`] | scheduling policies, affinity |
//! | [`futex`] | futex |
//! | [`identity`] | ids, exit, thread pointers, prctl, ports |
//!
//! Calls that need neither the whole context nor to sleep end in [`light`] before they come here.
//!
//! Signals are in [`crate::signal`], the way to Linux in [`crate::remote`].

mod epoll;
mod files;
mod futex;
mod identity;
pub mod light;
mod limits;
mod memory;
mod poll;
mod restart;
mod sched;
mod splice;
mod time;
mod usage;
mod wait;

pub use restart::Restart;
pub use sched::{inherit as inherit_scheduling, tell_overrun};
pub use time::{SECOND, read_timespec, timespec, write_timespec};
pub use usage::Meter;

use core::sync::atomic::Ordering;

use crtos_abi::channel::{OP_SYSCALL, RESULT_NOT_MADE, TRACE_CALL, TRACE_CALL_END};
use crtos_syscalls::{Call, Class, Row, lookup};
use linux_raw_sys::errno;

use crate::{
    arch::UserContext,
    clone, fork,
    mm::space::BadAddress,
    process::{self, User},
    remote, segments, signal, task, timers, trace,
};

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
        E2BIG, EACCES, EAGAIN, EBADF, EBUSY, ECANCELED, ECHILD, EDEADLK, EEXIST, EFAULT, EINTR,
        EINVAL, EIO, ELOOP, EMFILE, ENODEV, ENXIO, ENOENT, ENOEXEC, ENOMEM, ENOSPC, ENOSYS,
        ENOTDIR, ENOTSOCK, ENOTTY, EOPNOTSUPP, EOVERFLOW, EPERM, EPIPE, ESPIPE, ESRCH, ETIMEDOUT
    );
    /// Make the call again, unless a handler without `SA_RESTART` runs: then `EINTR`. Linux's ERESTARTSYS.
    pub const RESTART: Self = Self(512);
    /// Make the call again, unless a handler runs: then `EINTR`. Linux's ERESTARTNOHAND.
    pub const RESTART_NO_HANDLER: Self = Self(514);
    /// Go on with the call by restart_syscall(2), unless a handler runs: then `EINTR`. Linux's ERESTART_RESTARTBLOCK.
    pub const RESTART_BLOCK: Self = Self(516);
    /// Make the call again, whatever handler runs. Linux's ERESTARTNOINTR.
    pub const RESTART_ALWAYS: Self = Self(513);
    /// The shadow is gone: the process ends before the program could see this.
    pub const GONE: Self = Self(511);

    /// As a system call returns it.
    pub fn value(self) -> u64 {
        (-i64::from(self.0)) as u64
    }

    /// The restart code in a result, if it is one.
    pub fn restart(result: u64) -> Option<Self> {
        [Self::RESTART, Self::RESTART_NO_HANDLER, Self::RESTART_BLOCK, Self::RESTART_ALWAYS]
            .into_iter()
            .find(|code| code.value() == result)
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
    let number = u64::from(context.orig_rax as u32);
    trace::event(TRACE_CALL, number, args[0]);
    let result = match lookup(number) {
        Some(row) => match row.class {
            Class::Remote => files::remote(row, args),
            Class::Local(call) | Class::Dual(call) => {
                count_local();
                serve(row, call, context, args)
            }
            Class::Unsupported => Err(Errno::ENOSYS),
        },
        None => Err(Errno::ENOSYS),
    };
    context.rax = result.unwrap_or_else(Errno::value);
    trace::event(TRACE_CALL_END, number, context.rax);
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
    pass_again(row, || args)
}

/// Has Linux make the call with these arguments, which are asked for each time that it is made.
fn pass_again(row: &Row, args: impl Fn() -> Args) -> SysResult {
    let current = task::current();
    let user = current.data.user().ok_or(Errno::ESRCH)?;
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
        let result = remote::request(OP_SYSCALL, row.number.into(), args());
        user.interruptible.store(false, Ordering::Relaxed);
        let result = result?;
        if result == RESULT_NOT_MADE {
            // As if the signal had come before the call.
            if row.waits() && must_end(user) {
                return Err(Errno::RESTART_ALWAYS);
            }
            continue;
        }
        match linux_result(result) {
            // The signal that ended the call in Linux may be for a handler here, or be blocked here.
            Err(Errno::EINTR) if row.waits() && must_end(user) => return Err(code),
            Err(Errno::EINTR) if is_foreign(user) => {}
            other => return other,
        }
    }
}

/// Whether a wait of `user`, the calling thread, has to end.
fn must_end(user: &User) -> bool {
    user.is_ending() || signal::is_pending()
}

/// Whether what ended the last call of `user`'s shadow did not concern that call, as far as is known.
fn is_foreign(user: &User) -> bool {
    let was_interrupted = user.interrupted.swap(false, Ordering::Relaxed);
    was_interrupted || user.disturbed.load(Ordering::Relaxed)
}

/// Has Linux make call `nr` on behalf of one that is served here.
pub fn linux(nr: u32, args: &[u64]) -> SysResult {
    let mut all = [0; 6];
    for (to, from) in all.iter_mut().zip(args) {
        *to = *from;
    }
    let current = task::current();
    let user = current.data.user().ok_or(Errno::ESRCH)?;
    loop {
        user.disturbed.store(false, Ordering::Relaxed);
        let result = remote::request(OP_SYSCALL, nr, all)?;
        if result == RESULT_NOT_MADE {
            continue;
        }
        match linux_result(result) {
            Err(Errno::EINTR) if !must_end(user) && is_foreign(user) => {}
            other => return other,
        }
    }
}

/// Serves a call of the real-time kernel.
fn serve(row: &Row, call: Call, context: &mut UserContext, args: Args) -> SysResult {
    match call {
        Call::Mmap => memory::mmap(args),
        Call::Mprotect => memory::mprotect(args),
        Call::Munmap => memory::munmap(args),
        Call::Ftruncate => memory::ftruncate(row, args),
        Call::Brk => memory::brk(args),
        Call::Mremap => memory::mremap(args),
        Call::Msync => memory::msync(args),
        Call::Mincore => memory::mincore(args),
        Call::Madvise => memory::madvise(args),
        Call::Mlock => memory::mlock(args),
        Call::Mlock2 => memory::mlock2(args),
        Call::Membarrier => memory::membarrier(args),
        Call::Munlock => memory::munlock(args),
        Call::Mlockall => memory::mlockall(args),
        Call::Munlockall => memory::munlockall(),
        Call::PkeyMprotect => memory::pkey_mprotect(args),
        Call::Shmat => segments::shmat(args),
        Call::Shmdt => segments::shmdt(args),
        Call::Mbind => memory::mbind(row, args),
        Call::GetMempolicy => memory::get_mempolicy(row, args),

        Call::Nanosleep => timers::nanosleep(args),
        Call::ClockNanosleep => timers::clock_nanosleep(args),
        Call::ClockGettime => time::clock_gettime(args),
        Call::ClockGetres => time::clock_getres(args),
        Call::Gettimeofday => time::gettimeofday(args),
        Call::Time => time::time(args),
        Call::Times => usage::times(args),
        Call::Wait4 => wait::wait4(row, args),
        Call::Waitid => wait::waitid(row, args),
        Call::Getrusage => usage::getrusage(args),
        Call::Getitimer => timers::getitimer(args),
        Call::Setitimer => timers::setitimer(args),
        Call::Alarm => timers::alarm(args),
        Call::TimerCreate => timers::timer_create(args),
        Call::TimerSettime => timers::timer_settime(args),
        Call::TimerGettime => timers::timer_gettime(args),
        Call::TimerGetoverrun => timers::timer_getoverrun(args),
        Call::TimerDelete => timers::timer_delete(args),

        Call::Setrlimit => limits::setrlimit(args),
        Call::Prlimit64 => limits::prlimit64(args),

        Call::SchedYield => sched::sched_yield(),
        Call::SchedSetparam => sched::setparam(args),
        Call::SchedGetparam => sched::getparam(args),
        Call::SchedSetscheduler => sched::setscheduler(args),
        Call::SchedGetscheduler => sched::getscheduler(args),
        Call::SchedGetPriorityMax => sched::priority_range(args).map(|range| *range.end()),
        Call::SchedGetPriorityMin => sched::priority_range(args).map(|range| *range.start()),
        Call::SchedRrGetInterval => sched::rr_get_interval(args),
        Call::SchedSetattr => sched::setattr(args),
        Call::SchedGetattr => sched::getattr(args),
        Call::Setpriority => sched::setpriority(args),
        Call::SchedSetaffinity => sched::setaffinity(args),
        Call::SchedGetaffinity => sched::getaffinity(args),
        Call::Getcpu => sched::getcpu(args),

        Call::Futex => futex::futex(args),

        Call::Getpid => identity::getpid(),
        Call::Gettid => identity::gettid(),
        Call::Exit => identity::exit(args),
        Call::ExitGroup => identity::exit_group(args),
        Call::Clone => clone::clone(context, args),
        Call::Clone3 => clone::clone3(context, args),
        Call::Fork => fork::fork(context),
        Call::Vfork => fork::vfork(context),
        Call::Execve => fork::execve(args),
        Call::ArchPrctl => identity::arch_prctl(args),
        Call::SetTidAddress => identity::set_tid_address(args),
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
        Call::RtSigpending => signal::sigpending(args),
        Call::RtSigtimedwait => signal::sigtimedwait(args),
        Call::Kill => signal::kill(args),
        Call::Tkill => signal::tkill(args),
        Call::Tgkill => signal::tgkill(args),
        Call::RtSigqueueinfo => signal::rt_sigqueueinfo(args),
        Call::RtTgsigqueueinfo => signal::rt_tgsigqueueinfo(args),
        Call::Pause => signal::pause(),
        Call::RestartSyscall => restart::restart_syscall(),

        Call::Read => files::read(row, args),
        Call::Write => files::write(row, args),
        Call::Readv => files::readv(row, args),
        Call::Writev => files::writev(row, args),
        Call::Pread => files::pread(row, args),
        Call::Pwrite => files::pwrite(row, args),
        Call::Preadv => files::preadv(row, args),
        Call::Pwritev => files::pwritev(row, args),
        Call::Preadv2 => files::preadv2(row, args),
        Call::Splice => splice::splice(row, args),
        Call::Tee => splice::tee(row, args),
        Call::Vmsplice => splice::vmsplice(row, args),
        Call::Sendfile => splice::sendfile(row, args),
        Call::Pwritev2 => files::pwritev2(row, args),
        Call::Lseek => files::lseek(row, args),
        Call::Fcntl => files::fcntl(row, args),
        Call::Ioctl => files::ioctl(row, args),
        Call::Dup => files::dup(row, args),
        Call::Dup2 => files::dup2(row, args),
        Call::Dup3 => files::dup3(row, args),
        Call::Close => files::close(row, args),
        Call::CloseRange => files::close_range(row, args),
        Call::Open => files::open(row, args),
        Call::Openat => files::openat(row, args),
        Call::Creat => files::creat(row, args),
        Call::Fstat => files::fstat(row, args),
        Call::Readlink => files::readlink(row, args),
        Call::Readlinkat => files::readlinkat(row, args),
        Call::Newfstatat => files::newfstatat(row, args),
        Call::Statx => files::statx(row, args),
        Call::Pipe => files::pipe(args),
        Call::Pipe2 => files::pipe2(args),
        Call::Eventfd => files::eventfd2([args[0], 0, 0, 0, 0, 0]),
        Call::Eventfd2 => files::eventfd2(args),
        Call::Signalfd => files::signalfd4(row, [args[0], args[1], args[2], 0, 0, 0]),
        Call::Signalfd4 => files::signalfd4(row, args),
        Call::TimerfdCreate => files::timerfd_create(row, args),
        Call::TimerfdSettime => files::timerfd_settime(row, args),
        Call::TimerfdGettime => files::timerfd_gettime(row, args),
        Call::Socketpair => files::socketpair(row, args),
        Call::EpollCreate => epoll::create(row, args),
        Call::Sendmsg => files::sendmsg(row, args),
        Call::Sendmmsg => files::sendmmsg(row, args),
        Call::Receive => files::receive(row, args),
        Call::Rearrange => files::rearrange(row, args),
        Call::Poll => poll::poll(row, args),
        Call::Ppoll => poll::ppoll(row, args),
        Call::Select => poll::select(row, args),
        Call::Pselect6 => poll::pselect6(row, args),
        Call::EpollCtl => epoll::control(row, args),
        Call::EpollWait => epoll::wait(row, args),
        Call::EpollPwait => epoll::pwait(row, args),
    }
}
