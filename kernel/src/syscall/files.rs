// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on descriptors: those of a local file are served here, the others go to Linux with the program's own arguments.
//!
//! What a program does to a local file that only Linux can do: for a device, its descriptor becomes Linux's and Linux does it; for the others it is refused
//! with what Linux says of files that do not offer it.

use alloc::{boxed::Box, format, string::String, sync::Arc};

use crtos_signal::Set;
use crtos_syscalls::Row;
use linux_raw_sys::{general as linux, ioctl};

use super::{Args, Errno, SysResult, pass};
use crate::{
    file_map,
    files::{
        self, Description, Files, Memory, Object, agreement, description,
        device::Device,
        event::Event,
        names,
        pipe::Pipe,
        signals::Signals,
        timer::{Timer, When},
    },
    mm::heap,
    numbering, signal,
    time::Nanos,
    timers::{self, Counting},
    user,
};

/// A call that Linux makes, and that may be given descriptors or make one.
pub fn remote(row: &Row, args: Args) -> SysResult {
    let files = files::table()?;
    if row.takes_fd() && files.is_hidden(args[0]) {
        match files.find(args[0]) {
            None => return Err(Errno::EBADF),
            Some(_) if files.globalize(args[0])? => {}
            Some(file) => return refuse(row, &file),
        }
    }
    ask_linux(row, args, &files)
}

/// A call that is served here if its descriptor is local, which it was not: `None` if it has become so meanwhile.
fn elsewhere(row: &Row, args: Args) -> Option<SysResult> {
    let files = match files::table() {
        Ok(files) => files,
        Err(error) => return Some(Err(error)),
    };
    match files.is_hidden(args[0]) {
        false => {
            let result = ask_linux(row, args, &files);
            if let Ok(count @ 1..) = result
                && file_map::is_concerned()
            {
                agree(row, args, count);
            }
            Some(result)
        }
        true => files.find(args[0]).is_none().then_some(Err(Errno::EBADF)),
    }
}

/// After Linux has moved `count` bytes between a descriptor and the program: what is mapped of the file agrees with that.
fn agree(row: &Row, args: Args, count: u64) {
    let [fd, memory, length, position, _, flags] = args;
    let (writes, is_vector, position, flags) = match u32::from(row.number) {
        linux::__NR_read => (false, false, None, 0),
        linux::__NR_write => (true, false, None, 0),
        linux::__NR_pread64 => (false, false, Some(position), 0),
        linux::__NR_pwrite64 => (true, false, Some(position), 0),
        linux::__NR_readv => (false, true, None, 0),
        linux::__NR_writev => (true, true, None, 0),
        linux::__NR_preadv => (false, true, Some(position), 0),
        linux::__NR_pwritev => (true, true, Some(position), 0),
        linux::__NR_preadv2 | linux::__NR_pwritev2 => {
            let writes = u32::from(row.number) == linux::__NR_pwritev2;
            (writes, true, Some(position).filter(|&position| position != HERE), flags as u32)
        }
        _ => return,
    };
    let ranges = if is_vector { Memory::vector } else { Memory::one };
    let appends = flags & linux::RWF_APPEND != 0;
    let transfer = file_map::Transfer { fd, position, writes, appends };
    if let (Ok(space), Ok(mut memory)) = (user::space(), ranges(memory, length)) {
        memory.limit(count);
        // What was moved was moved: the descriptor may be another one's by now, or memory be gone.
        let _ = file_map::moved(&space, &transfer, memory);
    }
}

/// Has Linux make the call, whose first descriptor is not local.
fn ask_linux(row: &Row, args: Args, files: &Files) -> SysResult {
    for &position in row.further_fds() {
        if files.is_hidden(args[position]) && !files.globalize(args[position])? {
            return Err(Errno::EINVAL);
        }
    }
    if row.takes_directory() || row.makes_fd() {
        files.agree()?;
    }
    let result = pass(row, args)?;
    if !row.makes_fd() {
        return Ok(result);
    }
    let fd = files.settle(result)?;
    if u32::from(row.number) == linux::__NR_dup {
        files.sets.put(fd, files.sets.get(args[0]));
    }
    Ok(fd)
}

/// What Linux says to a call that a file does not offer.
fn refuse(row: &Row, file: &Description) -> SysResult {
    let is_pipe = matches!(file.object, Object::Pipe(_));
    Err(match u32::from(row.number) {
        linux::__NR_fchdir | linux::__NR_getdents | linux::__NR_getdents64 => Errno::ENOTDIR,
        linux::__NR_fallocate if !file.writes => Errno::EBADF,
        linux::__NR_fallocate if !is_pipe => Errno::ENODEV,
        linux::__NR_fallocate | linux::__NR_fadvise64 | linux::__NR_sync_file_range => {
            Errno::ESPIPE
        }
        linux::__NR_connect
        | linux::__NR_accept
        | linux::__NR_accept4
        | linux::__NR_sendto
        | linux::__NR_recvfrom
        | linux::__NR_sendmsg
        | linux::__NR_recvmsg
        | linux::__NR_sendmmsg
        | linux::__NR_recvmmsg
        | linux::__NR_shutdown
        | linux::__NR_bind
        | linux::__NR_listen
        | linux::__NR_getsockname
        | linux::__NR_getpeername
        | linux::__NR_setsockopt
        | linux::__NR_getsockopt => Errno::ENOTSOCK,
        linux::__NR_fsetxattr
        | linux::__NR_fgetxattr
        | linux::__NR_flistxattr
        | linux::__NR_fremovexattr => Errno::EOPNOTSUPP,
        _ => Errno::EINVAL,
    })
}

/// The local file of `fd`, unless Linux has to be asked.
macro_rules! local {
    ($row:expr, $args:expr) => {
        loop {
            if let Some(file) = files::find($args[0]) {
                break file;
            }
            if let Some(result) = elsewhere($row, $args) {
                return result;
            }
        }
    };
}

/// read(fd, buffer, length).
pub fn read(row: &Row, args: Args) -> SysResult {
    read_to(row, args, Memory::one)
}

/// write(fd, buffer, length).
pub fn write(row: &Row, args: Args) -> SysResult {
    write_from(row, args, Memory::one)
}

/// readv(fd, vector, count).
pub fn readv(row: &Row, args: Args) -> SysResult {
    read_to(row, args, Memory::vector)
}

/// writev(fd, vector, count).
pub fn writev(row: &Row, args: Args) -> SysResult {
    write_from(row, args, Memory::vector)
}

/// `ranges`: what the second and the third argument of a transfer say of the program's memory.
#[inline(always)]
fn read_to(
    row: &Row,
    args: Args,
    ranges: impl FnOnce(u64, u64) -> Result<Memory, Errno>,
) -> SysResult {
    let file = local!(row, args);
    if !file.reads {
        return Err(Errno::EBADF);
    }
    file.read(&mut ranges(args[1], args[2])?, false)
}

#[inline(always)]
fn write_from(
    row: &Row,
    args: Args,
    ranges: impl FnOnce(u64, u64) -> Result<Memory, Errno>,
) -> SysResult {
    let file = local!(row, args);
    if !file.writes {
        return Err(Errno::EBADF);
    }
    file.write(&mut ranges(args[1], args[2])?, false)
}

/// Whether a position can be given: only devices have one, which means nothing.
fn check_position(file: &Description, position: u64) -> Result<(), Errno> {
    if (position as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    match file.object {
        Object::Device(_) => Ok(()),
        _ => Err(Errno::ESPIPE),
    }
}

/// pread64(fd, buffer, length, position).
pub fn pread(row: &Row, args: Args) -> SysResult {
    check_position(&*local!(row, args), args[3])?;
    read(row, args)
}

/// pwrite64(fd, buffer, length, position).
pub fn pwrite(row: &Row, args: Args) -> SysResult {
    check_position(&*local!(row, args), args[3])?;
    write(row, args)
}

/// preadv(fd, vector, count, position).
pub fn preadv(row: &Row, args: Args) -> SysResult {
    check_position(&*local!(row, args), args[3])?;
    readv(row, args)
}

/// pwritev(fd, vector, count, position).
pub fn pwritev(row: &Row, args: Args) -> SysResult {
    check_position(&*local!(row, args), args[3])?;
    writev(row, args)
}

/// Position that means the file's own.
const HERE: u64 = u64::MAX;

/// Whether the transfer must not wait, from the RWF_* flags.
fn transfer_flags(file: &Description, flags: u64, writes: bool) -> Result<bool, Errno> {
    let common = linux::RWF_HIPRI | linux::RWF_DSYNC | linux::RWF_SYNC | linux::RWF_NOWAIT;
    let known = if writes { common | linux::RWF_APPEND } else { common };
    let nowait = flags as u32 & linux::RWF_NOWAIT != 0;
    let offers = matches!(file.object, Object::Device(_) | Object::Pipe(_)) || !nowait;
    if flags as u32 & !known != 0 || !offers {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(nowait)
}

/// preadv2(fd, vector, count, position, high position, flags).
pub fn preadv2(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    if args[3] != HERE {
        check_position(&file, args[3])?;
    }
    if !file.reads {
        return Err(Errno::EBADF);
    }
    let mut memory = Memory::vector(args[1], args[2])?;
    file.read(&mut memory, transfer_flags(&file, args[5], false)?)
}

/// pwritev2(fd, vector, count, position, high position, flags).
pub fn pwritev2(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    if args[3] != HERE {
        check_position(&file, args[3])?;
    }
    if !file.writes {
        return Err(Errno::EBADF);
    }
    let mut memory = Memory::vector(args[1], args[2])?;
    file.write(&mut memory, transfer_flags(&file, args[5], true)?)
}

/// lseek(fd, offset, whence).
pub fn lseek(row: &Row, args: Args) -> SysResult {
    const SEEK_MAX: u32 = 4;
    match local!(row, args).object {
        _ if args[2] as u32 > SEEK_MAX => Err(Errno::EINVAL),
        Object::Pipe(_) => Err(Errno::ESPIPE),
        _ => Ok(0),
    }
}

/// open(path, flags, mode).
pub fn open(row: &Row, args: Args) -> SysResult {
    open_known(args[0], args[1] as u32).unwrap_or_else(|| remote(row, args))
}

/// openat(directory, path, flags, mode).
pub fn openat(row: &Row, args: Args) -> SysResult {
    open_known(args[1], args[2] as u32).unwrap_or_else(|| remote(row, args))
}

/// creat(path, mode).
pub fn creat(row: &Row, args: Args) -> SysResult {
    let flags = linux::O_CREAT | linux::O_WRONLY | linux::O_TRUNC;
    open_local(args[0], flags).unwrap_or_else(|| remote(row, args))
}

/// Opens what is not Linux's own file, if that is what the path names.
fn open_known(path: u64, flags: u32) -> Option<SysResult> {
    open_local(path, flags).or_else(|| numbering::open(path, flags))
}

/// Opens what is local, if that is what the path names: a device, or the file of a descriptor.
fn open_local(path: u64, flags: u32) -> Option<SysResult> {
    let files = files::table().ok().filter(|files| files.has_devices())?;
    let object = match Device::named(path, flags) {
        Some(device) => Ok(Object::Device(device)),
        None => reopen(&*named(&files, path)?, flags)?,
    };
    Some(object.and_then(|object| make(&files, object, flags | linux::O_LARGEFILE)))
}

/// The local file of the descriptor that a path names.
fn named(files: &Files, path: u64) -> Option<Arc<Description>> {
    files.find(names::descriptor(path)?)
}

/// What becomes of a local file that is opened once more by the name of its descriptor, which is a link. `None` if `flags` ask for something special.
fn reopen(file: &Description, flags: u32) -> Option<Result<Object, Errno>> {
    if !Device::is_plain(flags) || flags & linux::O_NOFOLLOW != 0 {
        return None;
    }
    Some(match &file.object {
        Object::Device(device) => Ok(Object::Device(*device)),
        Object::Pipe(pipe) => Ok(Object::Pipe(pipe.clone())),
        Object::Event(_) | Object::Timer(_) | Object::Signals(_) => Err(Errno::ENXIO),
    })
}

/// A descriptor of a new file, with the flags of open(2).
pub fn make(files: &Files, object: Object, flags: u32) -> SysResult {
    let file = Description::open(object, flags)?;
    Ok(files.insert(file, 0, flags & linux::O_CLOEXEC != 0)?.into())
}

/// close(fd).
pub fn close(row: &Row, args: Args) -> SysResult {
    let files = files::table()?;
    match files.remove(args[0]) {
        (Some(file), _) => {
            drop(file);
            Ok(0)
        }
        (None, false) => Err(Errno::EBADF),
        // Made in any case: the number is free from here on.
        (None, true) => {
            files.sets.put(args[0], None);
            super::linux(row.number.into(), &args).inspect_err(|&error| {
                if error == Errno::EBADF {
                    // The shadow keeps some for itself.
                    files.doubt();
                }
            })
        }
    }
}

/// Flag of close_range(2).
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// close_range(first, last, flags).
pub fn close_range(row: &Row, args: Args) -> SysResult {
    let [first, last, flags] = [args[0], args[1], args[2]].map(|argument| argument as u32);
    if flags & !CLOSE_RANGE_CLOEXEC != 0 || first > last {
        return Err(Errno::EINVAL);
    }
    let files = files::table()?;
    let mut from = first;
    while let Some(number) = files.next_local(from).filter(|&number| number <= last) {
        match flags {
            0 => drop(files.remove(number.into())),
            _ => files.set_close_on_exec(number.into(), true),
        }
        from = number + 1;
    }
    // Placeholders may be closed by it as well; the next agreement finds that out.
    files.agree()?;
    let result = pass(row, args)?;
    if flags == 0 {
        files.forget(first, last);
        files.sets.close(first, last);
    }
    Ok(result)
}

/// dup(fd).
pub fn dup(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    Ok(files::table()?.insert(file, 0, false)?.into())
}

/// dup2(old, new).
pub fn dup2(row: &Row, args: Args) -> SysResult {
    if args[0] as u32 == args[1] as u32 && files::find(args[0]).is_some() {
        return Ok(args[0]);
    }
    replace(row, args, false)
}

/// dup3(old, new, flags).
pub fn dup3(row: &Row, args: Args) -> SysResult {
    if args[2] as u32 & !linux::O_CLOEXEC != 0 || args[0] as u32 == args[1] as u32 {
        return Err(Errno::EINVAL);
    }
    replace(row, args, args[2] as u32 & linux::O_CLOEXEC != 0)
}

fn replace(row: &Row, args: Args, close_on_exec: bool) -> SysResult {
    let files = files::table()?;
    let new = args[1] as u32;
    let Some(file) = files.find(args[0]) else {
        if files.is_hidden(args[0]) {
            return Err(Errno::EBADF);
        }
        let result = pass(row, args)?;
        if args[0] as u32 != new {
            // Linux's file has taken the place of a placeholder, if there was one.
            drop(files.remove(args[1]));
            files.settle(args[1])?;
            files.sets.put(args[1], files.sets.get(args[0]));
        }
        return Ok(result);
    };
    if !files.is_allowed(new) {
        return Err(Errno::EBADF);
    }
    files.make_sure()?;
    if files.is_remote(new) && super::linux(linux::__NR_close, &[args[1]]) == Err(Errno::EBADF) {
        // One that the shadow keeps for itself.
        return Err(Errno::EBADF);
    }
    files.sets.put(new.into(), None);
    drop(files.insert_at(new, file, close_on_exec)?);
    Ok(new.into())
}

/// fcntl(fd, command, argument).
pub fn fcntl(row: &Row, args: Args) -> SysResult {
    let [fd, command, argument, ..] = args;
    let command = command as u32;
    let copies = matches!(command, linux::F_DUPFD | linux::F_DUPFD_CLOEXEC);
    let Some(file) = files::find(fd) else {
        if !copies {
            return remote(row, args);
        }
        let files = files::table()?;
        if files.is_hidden(fd) {
            return Err(Errno::EBADF);
        }
        files.agree()?;
        let copy = files.settle(pass(row, args)?)?;
        files.sets.put(copy, files.sets.get(fd));
        return Ok(copy);
    };
    let files = files::table()?;
    match (command, &file.object) {
        _ if copies => {
            let from = u32::try_from(argument & u64::from(u32::MAX)).unwrap_or(u32::MAX);
            if !files.is_allowed(from) {
                return Err(Errno::EINVAL);
            }
            let close_on_exec = command == linux::F_DUPFD_CLOEXEC;
            Ok(files.insert(file.clone(), from, close_on_exec)?.into())
        }
        (linux::F_GETFD, _) => Ok(files.close_on_exec(fd).into()),
        (linux::F_SETFD, _) => {
            files.set_close_on_exec(fd, argument as u32 & linux::FD_CLOEXEC != 0);
            Ok(0)
        }
        (linux::F_GETFL, _) => Ok(file.status().into()),
        (linux::F_SETFL, _) => {
            file.set_status(argument as u32);
            Ok(0)
        }
        (linux::F_GETPIPE_SZ, Object::Pipe(pipe)) => Ok(pipe.size()),
        (linux::F_SETPIPE_SZ, Object::Pipe(pipe)) => pipe.set_size(argument as u32),
        (linux::F_GETPIPE_SZ | linux::F_SETPIPE_SZ, _) => Err(Errno::EBADF),
        (_, Object::Device(_)) => remote(row, args),
        _ => Err(Errno::EINVAL),
    }
}

/// ioctl(fd, request, argument).
pub fn ioctl(row: &Row, args: Args) -> SysResult {
    let [fd, request, argument, ..] = args;
    let Some(file) = files::find(fd) else {
        let result = remote(row, args)?;
        // Some requests make a descriptor.
        if result > 2
            && let Ok(files) = files::table()
        {
            files.doubt();
        }
        return Ok(result);
    };
    let files = files::table()?;
    match (request as u32, &file.object) {
        (ioctl::FIOCLEX, _) => files.set_close_on_exec(fd, true),
        (ioctl::FIONCLEX, _) => files.set_close_on_exec(fd, false),
        (ioctl::FIONBIO, _) => file.set_nonblocking(user::read_u32(argument)? != 0),
        (ioctl::FIONREAD, Object::Pipe(pipe)) => user::write_u32(argument, pipe.bytes() as u32)?,
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

/// pipe(ends).
pub fn pipe(args: Args) -> SysResult {
    pipe2([args[0], 0, 0, 0, 0, 0])
}

/// pipe2(ends, flags).
pub fn pipe2(args: Args) -> SysResult {
    let (ends, flags) = (args[0], args[1] as u32);
    if flags & !(linux::O_CLOEXEC | linux::O_NONBLOCK | linux::O_DIRECT) != 0 {
        return Err(Errno::EINVAL);
    }
    let files = files::table()?;
    let pipe = Pipe::new(description::number())?;
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
    if old != 0 {
        timers::write_itimerspec(old, before)?;
    }
    Ok(0)
}

/// timerfd_gettime(fd, value).
pub fn timerfd_gettime(row: &Row, args: Args) -> SysResult {
    let file = local!(row, args);
    timers::write_itimerspec(args[1], timer(&file)?.get())
}

/// The timer of a file; EINVAL if it is something else.
fn timer(file: &Description) -> Result<&Timer, Errno> {
    match &file.object {
        Object::Timer(timer) => Ok(timer),
        _ => Err(Errno::EINVAL),
    }
}

/// signalfd4(fd, set, size, flags), and signalfd(fd, set, size) without flags: changes the set of `fd`, or makes one if that is -1.
pub fn signalfd4(row: &Row, args: Args) -> SysResult {
    let [fd, set, size, flags, ..] = args;
    let flags = flags as u32;
    if size != signal::SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let [set] = user::read_words(set)?;
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
    pair(row, args, args[3])
}

/// Has Linux make two descriptors, whose numbers it stores at `address`.
fn pair(row: &Row, args: Args, address: u64) -> SysResult {
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

/// recvmsg(fd, message, flags) and recvmmsg(fd, messages, count, flags, timeout): descriptors may come with the data.
pub fn receive(row: &Row, args: Args) -> SysResult {
    let files = files::table()?;
    files.agree()?;
    let result = remote(row, args)?;
    files.doubt();
    Ok(result)
}

/// chroot, pivot_root, mount, umount2 and move_mount: the names of devices may lead elsewhere afterwards.
pub fn rearrange(row: &Row, args: Args) -> SysResult {
    let result = remote(row, args)?;
    files::table()?.forget_devices();
    Ok(result)
}

/// fstat(fd, status).
pub fn fstat(row: &Row, args: Args) -> SysResult {
    status(&local!(row, args), args[1])
}

/// newfstatat(directory, path, status, flags).
pub fn newfstatat(row: &Row, args: Args) -> SysResult {
    if args[3] as u32 & linux::AT_EMPTY_PATH != 0
        && let Some(file) = files::find(args[0])
    {
        let mut first = [0];
        let named = args[1] != 0 && {
            user::read(args[1], &mut first)?;
            first[0] != 0
        };
        if !named {
            return status(&file, args[2]);
        }
    }
    match linked(args[1], args[3])? {
        Some(file) => status(&file, args[2]),
        None => remote(row, args),
    }
}

/// The local file of the descriptor that a path links to, if `flags` (AT_*) let the link be followed.
fn linked(path: u64, flags: u64) -> Result<Option<Arc<Description>>, Errno> {
    let files = files::table()?;
    let follows = flags as u32 & linux::AT_SYMLINK_NOFOLLOW == 0 && files.has_devices();
    Ok(if follows { named(&files, path) } else { None })
}

/// readlink(path, buffer, size).
pub fn readlink(row: &Row, args: Args) -> SysResult {
    let [path, buffer, size, ..] = args;
    read_link(path, buffer, size).unwrap_or_else(|| remote(row, args))
}

/// readlinkat(directory, path, buffer, size).
pub fn readlinkat(row: &Row, args: Args) -> SysResult {
    let [_, path, buffer, size, ..] = args;
    read_link(path, buffer, size).unwrap_or_else(|| remote(row, args))
}

/// Where the link of a local descriptor leads, if the path is that.
fn read_link(path: u64, buffer: u64, size: u64) -> Option<SysResult> {
    let files = files::table().ok().filter(|files| files.has_devices())?;
    let fd = names::link(path).filter(|&fd| files.is_hidden(fd))?;
    // Of one that is closed Linux may still have a placeholder.
    let Some(file) = files.find(fd) else { return Some(Err(Errno::ENOENT)) };
    let text: String = match &file.object {
        Object::Device(device) => device.path().into(),
        Object::Pipe(pipe) => format!("pipe:[{}]", pipe.number),
        Object::Event(_) => "anon_inode:[eventfd]".into(),
        Object::Timer(_) => "anon_inode:[timerfd]".into(),
        Object::Signals(_) => "anon_inode:[signalfd]".into(),
    };
    if size as i32 <= 0 {
        return Some(Err(Errno::EINVAL));
    }
    let length = text.len().min(size as usize);
    Some(
        user::write(buffer, &text.as_bytes()[..length])
            .map(|()| length as u64)
            .map_err(Errno::from),
    )
}

/// Stores the `struct stat` of a local file.
fn status(file: &Arc<Description>, address: u64) -> SysResult {
    const PIPE: u64 = linux::S_IFIFO as u64 | 0o600;
    const ANONYMOUS: u64 = 0o600;
    let (mode, device, number, block) = match &file.object {
        Object::Device(device) => return agreement::device_status(*device, address),
        Object::Pipe(pipe) => (PIPE, 13, pipe.number, 4096),
        _ => (ANONYMOUS, 14, 1, 4096),
    };
    let uid = super::linux(linux::__NR_geteuid, &[])?;
    let gid = super::linux(linux::__NR_getegid, &[])?;
    let now = crate::time::linux(crate::time::Clock::Realtime).0;
    let time = [now / 1_000_000_000, now % 1_000_000_000];
    // st_dev, st_ino, st_nlink, st_mode and st_uid, st_gid and padding, st_rdev, st_size, st_blksize, st_blocks, three times.
    let [seconds, nanoseconds] = time;
    user::write_words(
        address,
        [
            device,
            number,
            1,
            mode | uid << 32,
            gid,
            0,
            0,
            block,
            0,
            seconds,
            nanoseconds,
            seconds,
            nanoseconds,
            seconds,
            nanoseconds,
            0,
            0,
            0,
        ],
    )?;
    Ok(0)
}

/// statx(directory, path, flags, mask, status).
pub fn statx(row: &Row, args: Args) -> SysResult {
    let [fd, path, flags, _, address, _] = args;
    let mut first = [0];
    let empty = flags as u32 & linux::AT_EMPTY_PATH != 0 && {
        if path != 0 {
            user::read(path, &mut first)?;
        }
        first[0] == 0
    };
    let file = if empty { files::find(fd) } else { linked(path, flags)? };
    let Some(file) = file else { return remote(row, args) };
    if let Object::Device(_) = file.object {
        if empty {
            files::table()?.globalize(fd)?;
        }
        return remote(row, args);
    }
    let (mode, number) = match &file.object {
        Object::Pipe(pipe) => (linux::S_IFIFO | 0o600, pipe.number),
        _ => (0o600, 1),
    };
    let uid = super::linux(linux::__NR_geteuid, &[])?;
    let gid = super::linux(linux::__NR_getegid, &[])?;
    const BASIC: u64 = linux::STATX_BASIC_STATS as u64;
    let mut words = [0; 32];
    // stx_mask and stx_blksize; stx_nlink and stx_uid; stx_gid and stx_mode; stx_ino.
    words[0] = BASIC | 4096 << 32;
    words[2] = 1 | uid << 32;
    words[3] = gid | u64::from(mode) << 32;
    words[4] = number;
    user::write_words(address, words)?;
    Ok(0)
}

/// Bytes of a `struct msghdr` and of one of sendmmsg(2).
const MESSAGE: u64 = 56;
const MESSAGES: u64 = 64;

/// sendmsg(fd, message, flags).
pub fn sendmsg(row: &Row, args: Args) -> SysResult {
    pass_rights(args[1])?;
    remote(row, args)
}

/// sendmmsg(fd, messages, count, flags).
pub fn sendmmsg(row: &Row, args: Args) -> SysResult {
    /// Most messages of a call.
    const MOST: u64 = 1024;
    for index in 0..u64::from(args[2] as u32).min(MOST) {
        pass_rights(args[1].wrapping_add(index * MESSAGES))?;
    }
    remote(row, args)
}

/// Makes the local devices among the descriptors that a message passes (SCM_RIGHTS) Linux's. Other local files cannot leave the realm: EINVAL. What cannot be
/// read, Linux complains of.
fn pass_rights(message: u64) -> Result<(), Errno> {
    const HEADER: u64 = 16;
    const RIGHTS: u64 = 1 << 32 | 1;
    /// Most descriptors of a message (SCM_MAX_FD).
    const MOST: u64 = 253;
    let files = files::table()?;
    if files.next_local(0).is_none() {
        return Ok(());
    }
    let Ok(words) = user::read_words::<{ MESSAGE as usize / 8 }>(message) else { return Ok(()) };
    let (mut at, end) = (words[4], words[4].saturating_add(words[5]));
    while end.saturating_sub(at) >= HEADER {
        let Ok([length, kind]) = user::read_words(at) else { return Ok(()) };
        if length < HEADER || length > end - at {
            return Ok(());
        }
        for index in 0..((length - HEADER) / 4).min(if kind == RIGHTS { MOST } else { 0 }) {
            let Ok(fd) = user::read_u32(at + HEADER + index * 4) else { return Ok(()) };
            if files.find(fd.into()).is_some() && !files.globalize(fd.into())? {
                crate::warn!(
                    "descriptor {fd} is local to the realm and cannot be passed over a socket"
                );
                return Err(Errno::EINVAL);
            }
        }
        at = at.saturating_add(length.next_multiple_of(8));
    }
    Ok(())
}
