// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop of the shadow: take a request, carry it out, hand in the result.

use crtos_abi::{PAGE_SIZE, ioctl::Remote};
use crtos_channel::{
    Encoded, Operation, Slot,
    operation::{DecodeError, FirstMade},
};
use crtos_syscalls::Row;
use linux_raw_sys::general as linux;

use crate::{
    call, descriptors, device, exec,
    links::Link,
    listing, own,
    process::{self, Child, Forked},
    program::Memory,
    scheduling, signals, startup,
    sys::{self, Errno, process as this_process},
    threads, topology,
};

/// Serves the thread of `slot` until it ends.
///
/// # Safety
/// The process is in the realm, so what [`crate::program`] says of its memory holds: requests make
/// system calls with arguments of the program.
pub unsafe fn serve(mut slot: Slot, startup: &'static startup::Block) -> ! {
    let nothing = |slot: Slot| Remote {
        slot: slot.get() as u32,
        has_result: 0,
        result: 0,
        op: 0,
        nr: 0,
        args: [0; 6],
    };
    let mut remote = nothing(slot);
    loop {
        match device::exchange(&mut remote) {
            // SAFETY: the caller's duty.
            Ok(()) => match unsafe { execute(slot, &remote, startup) } {
                Outcome::Result(result) => {
                    remote.result = sys::to_number(result);
                    remote.has_result = 1;
                }
                // In this loop, not in one of its own: however often programs fork, the stack stays
                // as deep.
                Outcome::Child(own) => {
                    slot = own;
                    remote = nothing(own);
                }
            },
            Err(Errno::EINTR) => remote.has_result = 0,
            Err(_) => {
                this_process::write_stderr(
                    "crtos: the real-time realm is gone\n  more: crtos explain realm-gone\n",
                );
                signals::die(linux::SIGKILL);
            }
        }
    }
}

/// What came of a request.
enum Outcome {
    /// The result of the call, or its error.
    Result(Result<u64, Errno>),
    /// This is the child of a fork now, and serves this slot.
    Child(Slot),
}

/// Carries out one request, that of `slot`.
///
/// # Safety
/// As for [`serve`].
unsafe fn execute(slot: Slot, remote: &Remote, startup: &'static startup::Block) -> Outcome {
    let encoded = Encoded { op: remote.op, nr: remote.nr, args: &remote.args };
    let operation = match Operation::decode(&encoded) {
        Ok(operation) => operation,
        Err(DecodeError::UnknownOperation(_)) => return Outcome::Result(Err(Errno::ENOSYS)),
        Err(DecodeError::BadArgument) => return Outcome::Result(Err(Errno::EINVAL)),
    };
    let nothing = |(): ()| 0;
    Outcome::Result(match operation {
        // SAFETY: the caller's duty.
        Operation::SystemCall { number, arguments } => unsafe {
            system_call(number, arguments, startup)
        },
        Operation::AskExecutable { number, arguments } => {
            let mut args = *arguments;
            let link = Link::to(own::executable());
            let path = crtos_syscalls::lookup(number.into()).and_then(Row::path_asked_for);
            match path.and_then(|at| args.get_mut(at)) {
                None => Err(Errno::EINVAL),
                Some(path) => {
                    *path = link.argument();
                    // SAFETY: the caller's duty; of these calls Linux reads the path.
                    unsafe { system_call(number, &args, startup) }
                }
            }
        }
        Operation::Fork { flags, pidfd } => match Child::new(flags, pidfd) {
            Ok(child) => match process::fork(slot, &child, startup) {
                Forked::Parent(result) => result.map(|pid| pid.get().into()),
                Forked::Child(slot) => return Outcome::Child(slot),
            },
            Err(error) => Err(error),
        },
        Operation::Startup { to, room } => startup.copy_to(to, room),
        Operation::Exit { status } => this_process::exit(status),
        Operation::Refuse => refuse(),
        Operation::ExitBySignal { signal, .. } => signals::die(signal),
        Operation::ExitThread => threads::exit(),
        Operation::MakeThreads { count, heritage } => {
            threads::create(count, heritage, startup).map(FirstMade::to_word)
        }
        Operation::SetDisposition { signal, disposition, flags } => {
            signals::set(signal, disposition, flags).map(|before| before as u64)
        }
        Operation::ForwardSignals { signals } => Ok(signals::forward_all(signals)),
        Operation::BlockedSignals => Ok(signals::blocked()),
        Operation::Execute { path, arguments, environment, blocked, in_realm_only, descriptor } => {
            let request = exec::Request { path, arguments, environment, descriptor };
            Err(exec::exec(request, blocked, in_realm_only))
        }
        Operation::SetScheduling { tid, scheduling } => {
            scheduling::set(tid, scheduling).map(nothing)
        }
        Operation::Copy { to, from, length } => to.copy_from(from, length).map(nothing),
        // The module carries them out.
        Operation::Status { .. }
        | Operation::Read { .. }
        | Operation::Keep { .. }
        | Operation::LetGo { .. }
        | Operation::Scheduling { .. }
        | Operation::IsCapable { .. }
        | Operation::Limits { .. }
        | Operation::MemoryLimits
        | Operation::Locked { .. }
        | Operation::KeepSuccessor { .. }
        | Operation::TakeSuccessor { .. }
        | Operation::FileName { .. }
        | Operation::May { .. }
        | Operation::Socket { .. }
        | Operation::Registers { .. }
        | Operation::Segment { .. }
        | Operation::Share { .. } => Err(Errno::ENOSYS),
        Operation::OpenTopology { file, alone, flags, realm } => {
            topology::open(file, alone, flags, realm).map(|fd| fd as u64)
        }
        Operation::DescriptorLimits => Ok(descriptors::limits().to_word() as u64),
        Operation::DescriptorsInUse { from } => Ok(descriptors::in_use(from).to_word() as u64),
        Operation::PlaceDescriptors { first, place, remove } => {
            descriptors::agree(first, place, remove);
            Ok(0)
        }
        Operation::OpenDevice { device, flags, fd } => {
            descriptors::open(device, flags, fd).map(nothing)
        }
        Operation::DeviceStatus { device, to } => {
            descriptors::device_status(device, to).map(nothing)
        }
    })
}

/// Says that the program cannot begin, and exits as `crtos run` does when it fails itself.
fn refuse() -> ! {
    this_process::write_stderr(
        "crtos: cannot run the program: the realm is sealed, and takes no new one\n  \
         remedy: `crtos down` when the programs there have ended, then `crtos up`\n  \
         more: crtos explain realm-sealed\n",
    );
    this_process::exit(125)
}

/// Makes a system call of the program, for which the descriptors of the shadow's own do not exist.
/// Of that of the executable the real-time kernel reads parts.
///
/// # Safety
/// As for [`serve`].
unsafe fn system_call(nr: u32, args: &[u64; 6], startup: &startup::Block) -> Result<u64, Errno> {
    let own = own::both();
    let is_own = |argument: u64| own.contains(&(argument as i32));
    let row = crtos_syscalls::lookup(nr.into());
    let is_read = args[0] as i32 == own[1] && nr == linux::__NR_pread64;
    if row.is_some_and(|row| row.takes_fd()) && is_own(args[0]) && !is_read {
        return Err(Errno::EBADF);
    }
    let mut args = *args;
    // Linux knows whether a path needs its directory.
    let directory = row.is_some_and(|row| row.takes_directory()).then_some(0);
    let further = row.map_or(&[][..], |row| row.further_fds());
    for &at in further.iter().chain(&directory) {
        if is_own(args[at]) {
            args[at] = NO_DESCRIPTOR;
        }
    }
    let args = &args;
    // SAFETY: the real-time kernel does what acts on the memory and the threads of the program
    // itself. Of such calls it only asks for mappings of files, in the range of the mirrors. The
    // other arguments are the program's, so what `program` says holds. Where one is replaced below,
    // Linux reads the memory of the shadow that it leads to.
    let make = |args: &[u64; 6]| unsafe { call::call(nr, args) };
    match nr {
        linux::__NR_dup2 | linux::__NR_dup3 if is_own(args[1]) => Err(Errno::EBADF),
        linux::__NR_close_range => close_range(args, own.map(|fd| fd as u32)),
        // Only whether it is allowed is asked, for a page of the shadow's own: the realm's pages do
        // not follow.
        linux::__NR_mbind => {
            let [_, _, mode, nodes, count, flags] = *args;
            make(&[startup.address(), PAGE_SIZE, mode, nodes, count, flags])
        }
        // SAFETY: the arguments are the program's.
        linux::__NR_getdents64 => unsafe { listing::getdents64(args) },
        _ => make(args),
    }
}

/// Not the number of a descriptor.
const NO_DESCRIPTOR: u64 = u32::MAX as u64;
/// The one flag of close_range(2) that concerns what it closes.
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// Makes close_range(2) around the shadow's own descriptors.
fn close_range(args: &[u64; 6], mut own: [u32; 2]) -> Result<u64, Errno> {
    let [mut first, last, flags, ..] = args.map(|argument| argument as u32);
    if flags & !CLOSE_RANGE_CLOEXEC != 0 || first > last {
        return Err(Errno::EINVAL);
    }
    let close = |first: u32, last: u32| {
        let args = [first.into(), last.into(), flags.into(), 0, 0, 0];
        // SAFETY: the call touches no memory.
        unsafe { call::call(linux::__NR_close_range, &args) }
    };
    own.sort_unstable();
    for fd in own {
        if !(first..=last).contains(&fd) {
            continue;
        }
        if first < fd {
            close(first, fd - 1)?;
        }
        first = fd + 1;
    }
    if first <= last { close(first, last) } else { Ok(0) }
}
