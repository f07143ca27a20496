// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop of the shadow: take a request, carry it out, hand back the result.

use crtos_abi::{
    PAGE_SIZE,
    ioctl::{IOC_REMOTE, Remote},
};
use crtos_channel::{Encoded, Operation, operation::DecodeError};
use linux_raw_sys::{errno, general as linux};

use crate::{
    descriptors, exec, listing,
    process::{self, Forked},
    scheduling, signals, startup, sys, threads, topology,
};

/// Serves the thread of `slot` until it ends.
pub fn serve(slot: u32, startup: &startup::Block) -> ! {
    let nothing = |slot| Remote { slot, has_result: 0, result: 0, op: 0, nr: 0, args: [0; 6] };
    let mut remote = nothing(slot);
    loop {
        // SAFETY: the device reads and writes a `Remote`.
        match unsafe { sys::ioctl(sys::device(), IOC_REMOTE, &raw mut remote as u64) } {
            Ok(_) => match execute(&remote, startup) {
                Forked::Parent(result) => {
                    remote.result = result;
                    remote.has_result = 1;
                }
                // In this loop, not in one of its own: however often programs fork, the stack stays
                // as deep.
                Forked::Child(slot) => remote = nothing(slot),
            },
            Err(sys::Errno(errno::EINTR)) => remote.has_result = 0,
            Err(_) => {
                sys::write_stderr("crtos: the real-time realm is gone\n");
                signals::die(linux::SIGKILL);
            }
        }
    }
}

/// Carries out one request.
fn execute(remote: &Remote, startup: &startup::Block) -> Forked {
    let encoded = Encoded { op: remote.op, nr: remote.nr, args: &remote.args };
    let operation = match Operation::decode(&encoded) {
        Ok(operation) => operation,
        Err(DecodeError::UnknownOperation(_)) => return Forked::Parent(-i64::from(errno::ENOSYS)),
        Err(DecodeError::BadArgument) => return Forked::Parent(-i64::from(errno::EINVAL)),
    };
    Forked::Parent(match operation {
        Operation::SystemCall { number, arguments } => system_call(number, arguments, startup),
        Operation::Fork { flags, pidfd } => {
            return process::fork(remote.slot, flags, pidfd, startup);
        }
        Operation::Startup { to, room } => startup.copy_to(to, room),
        Operation::Exit { status } => sys::exit(status),
        Operation::ExitBySignal { signal } => signals::die(signal),
        Operation::ExitThread => threads::exit(),
        Operation::MakeThreads { count } => threads::create(count, startup),
        Operation::SetDisposition { signal, disposition, flags } => {
            signals::set(signal, disposition, flags)
        }
        Operation::ForwardSignals { signals } => signals::forward_defaults(signals),
        Operation::BlockedSignals => signals::blocked() as i64,
        Operation::Execute { path, arguments, environment, blocked, in_realm_only } => {
            exec::exec(path, arguments, environment, blocked, in_realm_only)
        }
        Operation::Scheduling => scheduling::get(),
        Operation::SetScheduling { tid, scheduling } => scheduling::set(tid, scheduling),
        Operation::Copy { to, from, length } => match sys::copy_within(from, to, length) {
            Ok(()) => 0,
            Err(sys::Errno(error)) => -i64::from(error),
        },
        Operation::Status { fd, .. } if fd == sys::device() => -i64::from(errno::EBADF),
        Operation::Status { fd, to } => descriptors::status(fd, to),
        Operation::OpenTopology { file, alone, flags, realm } => {
            topology::open(file, alone, flags, realm)
        }
        Operation::DescriptorLimits => descriptors::limits().to_word(),
        Operation::DescriptorsInUse { from } => descriptors::in_use(from).to_word(),
        Operation::PlaceDescriptors { first, place, remove } => {
            descriptors::agree(first, place, remove);
            0
        }
        Operation::OpenDevice { device, flags, fd } => descriptors::open(device, flags, fd),
        Operation::DeviceStatus { device, to } => descriptors::device_status(device, to),
    })
}

/// Makes a system call of the program. The descriptor of the device does not exist for it, that of
/// the executable can only be read, and `/proc/self/exe` is the program.
fn system_call(nr: u32, args: &[u64; 6], startup: &startup::Block) -> i64 {
    let own = sys::own();
    let is_own = |argument: u64| own.contains(&(argument as i32));
    let row = crtos_syscalls::lookup(nr.into());
    if row.is_some_and(|row| row.takes_fd()) && args[0] as i32 == own[0] {
        return -i64::from(errno::EBADF);
    }
    match nr {
        linux::__NR_close | linux::__NR_dup | linux::__NR_fcntl if is_own(args[0]) => {
            -i64::from(errno::EBADF)
        }
        linux::__NR_dup2 | linux::__NR_dup3 if is_own(args[1]) => -i64::from(errno::EBADF),
        linux::__NR_close_range => close_range(args, own.map(|fd| fd as u32)),
        // Only whether it is allowed is asked, for a page of the shadow's own: the realm's pages do
        // not follow.
        linux::__NR_mbind => {
            let [_, _, rest @ ..] = *args;
            let [mode, nodes, count, flags] = rest;
            signals::call(nr, &[startup.address(), PAGE_SIZE, mode, nodes, count, flags])
        }
        linux::__NR_getdents64 => listing::getdents64(args),
        linux::__NR_readlink if process::is_self(args[0]) => {
            process::with_executable(|path| signals::call(nr, &[path, args[1], args[2], 0, 0, 0]))
        }
        linux::__NR_readlinkat if process::is_self(args[1]) => process::with_executable(|path| {
            signals::call(nr, &[args[0], path, args[2], args[3], 0, 0])
        }),
        _ => signals::call(nr, args),
    }
}

/// Flag of close_range(2).
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// close_range(2) around the shadow's own descriptors.
fn close_range(args: &[u64; 6], mut own: [u32; 2]) -> i64 {
    let [mut first, last, flags, ..] = args.map(|argument| argument as u32);
    if flags & !CLOSE_RANGE_CLOEXEC != 0 || first > last {
        return -i64::from(errno::EINVAL);
    }
    let close = |first: u32, last: u32| {
        signals::call(linux::__NR_close_range, &[first.into(), last.into(), flags.into(), 0, 0, 0])
    };
    own.sort_unstable();
    for fd in own {
        if !(first..=last).contains(&fd) {
            continue;
        }
        if first < fd {
            let result = close(first, fd - 1);
            if result != 0 {
                return result;
            }
        }
        first = fd + 1;
    }
    if first <= last { close(first, last) } else { 0 }
}
