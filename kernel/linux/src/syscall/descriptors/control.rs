// SPDX-License-Identifier: MIT OR Apache-2.0
//! fcntl, ioctl and flock.

use crtos_abi::UserAddr;
use crtos_core::task;
use crtos_syscalls::{Row, structs::Flock};
use linux_raw_sys::{general as linux, ioctl};

use super::remote;
use crate::{
    abi::{Args, Errno, SysResult},
    files::{self, Description, Object, character::Special, lock::PartOwner, socket},
    memory::user,
    process::ThreadExt as _,
    remote::pass,
};

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
        files.sets.may_copy(fd)?;
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
            match file.set_signalling(fd, argument as u32 & linux::FASYNC != 0) {
                // As under Linux, what cannot signal ignores that it should.
                Ok(()) | Err(Errno::ENOTTY) => file.set_status(argument as u32),
                Err(error) => return Err(error),
            }
            Ok(0)
        }
        (linux::F_SETOWN, _) => file.owner.set(argument as i32).map(|()| 0),
        (linux::F_GETOWN, _) => Ok(i64::from(file.owner.number()) as u64),
        (linux::F_SETOWN_EX, _) => {
            let [kind, number] = [0, 4].map(|at| user::read_u32(UserAddr::new(argument + at)));
            file.owner.set_kind(kind?, number? as i32).map(|()| 0)
        }
        (linux::F_GETOWN_EX, _) => {
            let (kind, number) = file.owner.get();
            user::write_words(
                UserAddr::new(argument),
                [u64::from(number) << 32 | u64::from(kind)],
            )?;
            Ok(0)
        }
        (linux::F_SETSIG, _) => file.owner.set_signal(argument).map(|()| 0),
        (linux::F_GETSIG, _) => Ok(file.owner.signal().into()),
        (linux::F_GETPIPE_SZ, Object::Pipe(pipe)) => Ok(pipe.size()),
        (linux::F_SETPIPE_SZ, Object::Pipe(pipe)) => pipe.set_size(argument as u32),
        (linux::F_GETPIPE_SZ | linux::F_SETPIPE_SZ, _) => Err(Errno::EBADF),
        (
            linux::F_GETLK
            | linux::F_SETLK
            | linux::F_SETLKW
            | linux::F_OFD_GETLK
            | linux::F_OFD_SETLK
            | linux::F_OFD_SETLKW,
            Object::Character(special),
        ) => lock_part(&file, special, command, UserAddr::new(argument)),
        (_, Object::Device(_)) => remote(row, args),
        _ => Err(Errno::EINVAL),
    }
}

/// F_GETLK, F_SETLK, F_SETLKW, and the same of a description (F_OFD_*).
fn lock_part(file: &Description, special: &Special, command: u32, at: UserAddr) -> SysResult {
    let asked: Flock = user::read_struct(at)?;
    let is_description =
        matches!(command, linux::F_OFD_GETLK | linux::F_OFD_SETLK | linux::F_OFD_SETLKW);
    if is_description && asked.pid != 0 {
        return Err(Errno::EINVAL);
    }
    let owner = match is_description {
        true => PartOwner { address: file.address(), pid: -1 },
        false => {
            let pid = task::current().user().ok_or(Errno::ESRCH)?.process.pid;
            PartOwner { address: files::table()?.address(), pid: pid.get() as i32 }
        }
    };
    let base = match asked.whence as u32 {
        linux::SEEK_CUR => special.file.seek(0, linux::SEEK_CUR).unwrap_or(0),
        // A device has no size.
        linux::SEEK_SET | linux::SEEK_END => 0,
        _ => return Err(Errno::EINVAL),
    };
    let locks = special.file.locks();
    if matches!(command, linux::F_GETLK | linux::F_OFD_GETLK) {
        let told = locks.tell_part(owner, &asked, base)?;
        user::write_struct(at, &told)?;
        return Ok(0);
    }
    match asked.kind as u32 {
        linux::F_RDLCK if !file.reads => return Err(Errno::EBADF),
        linux::F_WRLCK if !file.writes => return Err(Errno::EBADF),
        _ => {}
    }
    let waits = matches!(command, linux::F_SETLKW | linux::F_OFD_SETLKW);
    locks.set_part(owner, &asked, base, waits)
}

/// ioctl(fd, request, argument).
pub fn ioctl(row: &Row, args: Args) -> SysResult {
    let [fd, request, argument, ..] = args;
    let Some(file) = files::find(fd) else {
        let is_hidden = files::table()?.is_hidden(fd);
        if !is_hidden
            && let Some(result) = socket::ioctl(fd, request as u32, UserAddr::new(argument))
        {
            return result;
        }
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
        (ioctl::FIOASYNC, _) => {
            file.set_signalling(fd, user::read_u32(UserAddr::new(argument))? != 0)?
        }
        (ioctl::FIOSETOWN | ioctl::SIOCSPGRP, Object::Socket(_)) => {
            file.owner.set(user::read_u32(UserAddr::new(argument))? as i32)?
        }
        (ioctl::FIOGETOWN | ioctl::SIOCGPGRP, Object::Socket(_)) => {
            user::write_u32(UserAddr::new(argument), file.owner.number() as u32)?
        }
        (ioctl::FIONBIO, _) => file.set_nonblocking(user::read_u32(UserAddr::new(argument))? != 0),
        (ioctl::FIONREAD, Object::Pipe(pipe)) => {
            user::write_u32(UserAddr::new(argument), pipe.bytes() as u32)?
        }
        (request, Object::Socket(socket)) => {
            return socket.ioctl(request, UserAddr::new(argument));
        }
        (_, Object::Character(special)) => return special.file.ioctl(request as u32, argument),
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

/// flock(fd, operation). Of the files that are local, devices that the kernel drives have locks.
pub fn flock(row: &Row, args: Args) -> SysResult {
    match files::find(args[0]) {
        Some(file) => match &file.object {
            Object::Character(special) => {
                special.file.locks().flock(file.address(), args[1] as u32)
            }
            _ => remote(row, args),
        },
        None => remote(row, args),
    }
}
