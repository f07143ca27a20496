// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors of new local files: pipes, eventfd, timerfd, signalfd; and pairs of sockets.

use alloc::boxed::Box;

use crtos_abi::UserAddr;
use crtos_signal::Set;
use crtos_syscalls::Row;
use linux_raw_sys::general as linux;

use crtos_core::{mm::heap, time::Nanos};

use super::{effective_uid, elsewhere, local, remote};
use crate::{
    abi::{Args, Errno, SysResult},
    files::{
        self, Description, Files, Object, description,
        event::Event,
        pipe::Pipe,
        signals::Signals,
        timer::{Timer, When},
    },
    memory::user,
    remote::pass,
    signal,
    timers::{self, Counting},
};

/// A descriptor of a new file, with the flags of open(2).
pub fn make(files: &Files, object: Object, flags: u32) -> SysResult {
    let file = Description::open(object, flags)?;
    Ok(files.insert(file, 0, flags & linux::O_CLOEXEC != 0)?.into())
}

/// pipe(ends).
pub fn pipe(args: Args) -> SysResult {
    pipe2([args[0], 0, 0, 0, 0, 0])
}

/// pipe2(ends, flags).
pub fn pipe2(args: Args) -> SysResult {
    let (ends, flags) = (UserAddr::new(args[0]), args[1] as u32);
    if flags & !(linux::O_CLOEXEC | linux::O_NONBLOCK | linux::O_DIRECT) != 0 {
        return Err(Errno::EINVAL);
    }
    let files = files::table()?;
    let pipe = Pipe::new(description::number(), effective_uid()?)?;
    let end = |mode: u32| Description::open(Object::Pipe(pipe.clone()), flags | mode);
    let (reader, writer) = (end(linux::O_RDONLY)?, end(linux::O_WRONLY)?);
    let close_on_exec = flags & linux::O_CLOEXEC != 0;
    let first = files.insert(reader, 0, close_on_exec)?;
    let second =
        files.insert(writer, 0, close_on_exec).inspect_err(|_| drop(files.remove(first.into())))?;
    if user::write_words(ends, [u64::from(first) | u64::from(second) << 32]).is_err() {
        drop(files.remove(first.into()));
        drop(files.remove(second.into()));
        return Err(Errno::EFAULT);
    }
    Ok(0)
}

/// eventfd2(value, flags), and eventfd(value) without flags.
pub fn eventfd2(args: Args) -> SysResult {
    let (value, flags) = (args[0], args[1] as u32);
    if flags & !(linux::EFD_SEMAPHORE | linux::EFD_CLOEXEC | linux::EFD_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let files = files::table()?;
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    let event = Event::new(value as u32 as u64, flags & linux::EFD_SEMAPHORE != 0);
    make(&files, Object::Event(Box::new(event)), flags & !linux::EFD_SEMAPHORE | linux::O_RDWR)
}

/// timerfd_create(clock, flags). A timer that is to wake a sleeping machine is Linux's.
pub fn timerfd_create(row: &Row, args: Args) -> SysResult {
    let (clock, flags) = (args[0], args[1] as u32);
    if flags & !(linux::TFD_CLOEXEC | linux::TFD_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    match clock as u32 {
        linux::CLOCK_MONOTONIC | linux::CLOCK_REALTIME | linux::CLOCK_BOOTTIME => {}
        linux::CLOCK_REALTIME_ALARM | linux::CLOCK_BOOTTIME_ALARM => return remote(row, args),
        _ => return Err(Errno::EINVAL),
    }
    let files = files::table()?;
    let timer = Timer::new(Counting::of(clock)?)?;
    make(&files, Object::Timer(Box::new(timer)), flags | linux::O_RDWR)
}

/// timerfd_settime(fd, flags, new, old).
pub fn timerfd_settime(row: &Row, args: Args) -> SysResult {
    let [_, flags, new, old, ..] = args;
    const ABSOLUTE: u32 = linux::TFD_TIMER_ABSTIME;
    let [new, old] = [new, old].map(UserAddr::new);
    let file = local!(row, args);
    let (value, interval) = timers::read_itimerspec(new)?;
    if flags as u32 & !(ABSOLUTE | linux::TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let when = match value {
        Nanos::ZERO => When::Never,
        time if flags as u32 & ABSOLUTE != 0 => When::At(time),
        time => When::In(time),
    };
    let cancel = ABSOLUTE | linux::TFD_TIMER_CANCEL_ON_SET;
    let before = timer(&file)?.set(when, interval, flags as u32 & cancel == cancel)?;
    if !old.is_null() {
        timers::write_itimerspec(old, before)?;
    }
    Ok(0)
}

/// timerfd_gettime(fd, value).
pub fn timerfd_gettime(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    timers::write_itimerspec(UserAddr::new(args[1]), timer(&file)?.get())
}

/// The timer of a file; EINVAL if it is something else.
pub(super) fn timer(file: &Description) -> Result<&Timer, Errno> {
    match &file.object {
        Object::Timer(timer) => Ok(timer),
        _ => Err(Errno::EINVAL),
    }
}

/// signalfd4(fd, set, size, flags), and signalfd(fd, set, size) without flags: changes the set of
/// `fd`, or makes one if that is -1.
pub fn signalfd4(row: &Row, args: Args) -> SysResult {
    let [fd, set, size, flags, ..] = args;
    let flags = flags as u32;
    if size != signal::SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let [set] = user::read_words(UserAddr::new(set))?;
    if flags & !(linux::O_CLOEXEC | linux::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    if fd as i32 == -1 {
        let signals = Box::new(Signals::new(Set(set))?);
        return make(&*files::table()?, Object::Signals(signals), flags | linux::O_RDWR);
    }
    match &local!(row, args).object {
        Object::Signals(signals) => signals.set(Set(set)),
        _ => return Err(Errno::EINVAL),
    }
    Ok(u64::from(fd as u32))
}

/// socketpair(domain, kind, protocol, ends).
pub fn socketpair(row: &Row, args: Args) -> SysResult {
    pair(row, args, UserAddr::new(args[3]))
}

/// Has Linux make two descriptors, whose numbers it stores at `address`.
pub(super) fn pair(row: &Row, args: Args, address: UserAddr) -> SysResult {
    let files = files::table()?;
    files.agree()?;
    let result = pass(row, args)?;
    let [ends] = user::read_words(address)?;
    let ends = [ends & u64::from(u32::MAX), ends >> 32];
    let settled = [files.settle(ends[0])?, files.settle(ends[1])?];
    if settled != ends {
        user::write_words(address, [settled[0] | settled[1] << 32])?;
    }
    Ok(result)
}
