// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls: the dispatcher over the one table (crate `crtos-syscalls`), and the calls that are
//! served here.
//!
//! | file | calls |
//! |---|---|
//! | [`descriptors`] | descriptors: reading, writing, opening, closing, copying |
//! | [`aio`] | io_submit and relatives |
//! | [`splice`] | splice, tee, vmsplice, sendfile |
//! | [`poll`] | poll, select |
//! | [`epoll`] | epoll |
//! | [`memory`] | mmap, munmap, mprotect, mremap, brk, madvise, mlock and relatives |
//! | [`usage`] | processor time |
//! | [`time`] | clocks and sleeping |
//! | [`sched`] | scheduling policies, affinity |
//! | [`futex`] | futex, futex_waitv |
//! | [`foreign`] | process_vm_readv, process_vm_writev, kcmp |
//! | [`identity`] | ids, exit, thread pointers, prctl, ports |
//!
//! Calls that need neither the whole context nor to sleep end in [`fast`] before they come here.
//!
//! Signals are in [`crate::signal`], the way to Linux in [`crate::remote`].

mod aio;
pub mod cpu_numbers;
mod descriptors;
mod epoll;
pub mod fast;
mod foreign;
mod futex;
mod identity;
mod limits;
mod memory;
mod poll;
mod restart;
mod sched;
mod speculation;
mod splice;
mod time;
mod usage;
mod wait;

use crtos_core::{arch::UserContext, task, trace};

use crate::{
    abi::{Args, Errno, SysResult},
    memory::sysv_shm,
    process::{ThreadExt as _, clone, execve, fork, ids::Id},
    signal, timers,
};

use core::sync::atomic::Ordering;

use crtos_abi::channel::TRACE_CALL_END;
use crtos_syscalls::{Call, Class, Row, lookup};

/// Called for the SYSCALL instruction: number in `rax`, arguments in `rdi rsi rdx r10 r8 r9`,
/// result to `rax`. Interrupts on, may sleep.
pub fn dispatch(context: &mut UserContext) {
    let args = [context.rdi, context.rsi, context.rdx, context.r10, context.r8, context.r9];
    let number = u64::from(context.orig_rax as u32);
    trace::call(context, number);
    let result = match lookup(number) {
        Some(row) => match row.class {
            Class::Remote => descriptors::remote(row, args),
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
}

fn count_local() {
    if let Some(user) = task::current().user() {
        user.local_calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Serves a call of the real-time kernel.
fn serve(row: &Row, call: Call, context: &mut UserContext, args: Args) -> SysResult {
    match call {
        Call::Mmap => memory::mmap(args),
        Call::Mprotect => memory::mprotect(args),
        Call::Munmap => memory::munmap(args),
        Call::Ftruncate => memory::ftruncate(row, args),
        Call::Fallocate => memory::fallocate(row, args),
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
        Call::Shmat => sysv_shm::shmat(args),
        Call::Shmdt => sysv_shm::shmdt(args),
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

        Call::Getrlimit => limits::getrlimit(row, args),
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

        Call::IoSetup => aio::io_setup(args),
        Call::IoDestroy => aio::io_destroy(args),
        Call::IoSubmit => aio::io_submit(args),
        Call::IoCancel => aio::io_cancel(args),
        Call::IoGetevents => aio::io_getevents(args),
        Call::IoPgetevents => aio::io_pgetevents(args),

        Call::Futex => futex::futex(args),
        Call::FutexWaitv => futex::futex_waitv(args),

        Call::ProcessVmReadv => foreign::process_vm_readv(row, args),
        Call::ProcessVmWritev => foreign::process_vm_writev(row, args),
        Call::Kcmp => foreign::kcmp(row, args),

        Call::Getpid => identity::getpid(),
        Call::Gettid => identity::gettid(),
        Call::Getuid => identity::own_id(row, Id::User),
        Call::Getgid => identity::own_id(row, Id::Group),
        Call::Geteuid => identity::own_id(row, Id::EffectiveUser),
        Call::Getegid => identity::own_id(row, Id::EffectiveGroup),
        Call::Exit => identity::exit(args),
        Call::ExitGroup => identity::exit_group(args),
        Call::Clone => clone::clone(context, args),
        Call::Clone3 => clone::clone3(context, args),
        Call::Fork => fork::fork(context),
        Call::Vfork => fork::vfork(context),
        Call::Execve => execve::execve(args),
        Call::Execveat => execve::execveat(args),
        Call::ArchPrctl => identity::arch_prctl(args),
        Call::SetTidAddress => identity::set_tid_address(args),
        Call::SetRobustList => identity::set_robust_list(args),
        Call::GetRobustList => identity::get_robust_list(args),
        Call::Personality => identity::personality(args),
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

        Call::Read => descriptors::read(row, args),
        Call::Write => descriptors::write(row, args),
        Call::Readv => descriptors::readv(row, args),
        Call::Writev => descriptors::writev(row, args),
        Call::Pread => descriptors::pread(row, args),
        Call::Pwrite => descriptors::pwrite(row, args),
        Call::Preadv => descriptors::preadv(row, args),
        Call::Pwritev => descriptors::pwritev(row, args),
        Call::Preadv2 => descriptors::preadv2(row, args),
        Call::Splice => splice::splice(row, args),
        Call::Tee => splice::tee(row, args),
        Call::Vmsplice => splice::vmsplice(row, args),
        Call::Sendfile => splice::sendfile(row, args),
        Call::Pwritev2 => descriptors::pwritev2(row, args),
        Call::Lseek => descriptors::lseek(row, args),
        Call::Fcntl => descriptors::fcntl(row, args),
        Call::Ioctl => descriptors::ioctl(row, args),
        Call::Flock => descriptors::flock(row, args),
        Call::Dup => descriptors::dup(row, args),
        Call::Dup2 => descriptors::dup2(row, args),
        Call::Dup3 => descriptors::dup3(row, args),
        Call::Close => descriptors::close(row, args),
        Call::CloseRange => descriptors::close_range(row, args),
        Call::Open => descriptors::open(row, args),
        Call::Openat => descriptors::openat(row, args),
        Call::Creat => descriptors::creat(row, args),
        Call::Fstat => descriptors::fstat(row, args),
        Call::Fstatfs => descriptors::fstatfs(row, args),
        Call::Readlink => descriptors::readlink(row, args),
        Call::Readlinkat => descriptors::readlinkat(row, args),
        Call::Newfstatat => descriptors::newfstatat(row, args),
        Call::Statx => descriptors::statx(row, args),
        Call::Pipe => descriptors::pipe(args),
        Call::Pipe2 => descriptors::pipe2(args),
        Call::Eventfd => descriptors::eventfd2([args[0], 0, 0, 0, 0, 0]),
        Call::Eventfd2 => descriptors::eventfd2(args),
        Call::Signalfd => descriptors::signalfd4(row, [args[0], args[1], args[2], 0, 0, 0]),
        Call::Signalfd4 => descriptors::signalfd4(row, args),
        Call::TimerfdCreate => descriptors::timerfd_create(row, args),
        Call::TimerfdSettime => descriptors::timerfd_settime(row, args),
        Call::TimerfdGettime => descriptors::timerfd_gettime(row, args),
        Call::Socketpair => descriptors::socketpair(row, args),
        Call::EpollCreate => epoll::create(row, args),
        Call::Sendmsg => descriptors::sendmsg(row, args),
        Call::Sendmmsg => descriptors::sendmmsg(row, args),
        Call::Receive => descriptors::receive(row, args),
        Call::Bind => descriptors::bind(row, args),
        Call::Connect => descriptors::connect(row, args),
        Call::Listen => descriptors::listen(row, args),
        Call::Accept => descriptors::accept(row, args),
        Call::Sendto => descriptors::sendto(row, args),
        Call::Recvfrom => descriptors::recvfrom(row, args),
        Call::Shutdown => descriptors::shutdown(row, args),
        Call::Getsockname => descriptors::getsockname(row, args),
        Call::Getpeername => descriptors::getpeername(row, args),
        Call::Setsockopt => descriptors::setsockopt(row, args),
        Call::Getsockopt => descriptors::getsockopt(row, args),
        Call::Rearrange => descriptors::rearrange(row, args),
        Call::Poll => poll::poll(row, args),
        Call::Ppoll => poll::ppoll(row, args),
        Call::Select => poll::select(row, args),
        Call::Pselect6 => poll::pselect6(row, args),
        Call::EpollCtl => epoll::control(row, args),
        Call::EpollWait => epoll::wait(row, args),
        Call::EpollPwait => epoll::pwait(row, args),
    }
}
