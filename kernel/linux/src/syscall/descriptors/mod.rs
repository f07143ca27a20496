// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on descriptors: those of a local file are served here, the others go to Linux with the
//! program's own arguments.
//!
//! What a program does to a local file that only Linux can do: for a device, its descriptor becomes
//! Linux's and Linux does it; for the others it is refused with what Linux says of files that do
//! not offer it.
//!
//! | file | calls |
//! |---|---|
//! | [`transfer`] | reading and writing |
//! | [`open`](mod@open) | opening by name |
//! | [`create`] | pipes, eventfd, timerfd, signalfd, pairs of sockets |
//! | [`numbers`] | closing and copying |
//! | [`control`] | fcntl, ioctl, flock |
//! | [`status`] | fstat, fstatfs, statx, readlink |
//! | [`sockets`] | sockets |
//! | [`messages`] | control messages |
//! | [`rights`] | descriptors in messages |

mod control;
mod create;
mod messages;
mod numbers;
mod open;
mod rights;
mod sockets;
mod status;
mod transfer;

pub use control::{fcntl, flock, ioctl};
pub use create::{
    eventfd2, pipe, pipe2, signalfd4, socketpair, timerfd_create, timerfd_gettime, timerfd_settime,
};
pub use numbers::{close, close_range, dup, dup2, dup3};
pub use open::{creat, open, openat};
pub use rights::rearrange;
pub use sockets::{
    accept, bind, connect, getpeername, getsockname, getsockopt, listen, receive, recvfrom,
    sendmmsg, sendmsg, sendto, setsockopt, shutdown,
};
pub use status::{fstat, fstatfs, newfstatat, readlink, readlinkat, statx};
pub use transfer::{
    lseek, pread, preadv, preadv2, pwrite, pwritev, pwritev2, read, readv, write, writev,
};

use crtos_abi::UserAddr;
use crtos_core::task;
use crtos_syscalls::Row;
use linux_raw_sys::general as linux;

use crate::{
    abi::{Args, Errno, SysResult},
    files::{self, Description, Files, Memory, Object},
    memory::{mappings, user},
    process::{ThreadExt as _, lapse},
    remote::pass,
};

/// The caller's effective user id. Asks Linux if it may differ from what it was at the start.
fn effective_uid() -> Result<u32, Errno> {
    let current = task::current();
    match current.user().and_then(|user| user.process.certain_uid()) {
        Some(uid) => Ok(uid),
        None => crate::remote::linux(linux::__NR_geteuid, &[]).map(|uid| uid as u32),
    }
}

/// A call that Linux makes, and that may be given descriptors or make one.
pub fn remote(row: &Row, args: Args) -> SysResult {
    let files = files::table()?;
    if row.takes_fd() && files.is_hidden(args[0]) {
        match files::find(args[0]) {
            // It has become Linux's meanwhile.
            None if !files.is_hidden(args[0]) => {}
            None => return Err(Errno::EBADF),
            Some(_) if files.globalize(args[0])? => {}
            Some(file) => return refuse(row, &file),
        }
    }
    ask_linux(row, args, &files)
}

/// A call that is served here if its descriptor is local, which it was not: `None` if it has become
/// so meanwhile.
fn elsewhere(row: &Row, args: Args) -> Option<SysResult> {
    let files = match files::table() {
        Ok(files) => files,
        Err(error) => return Some(Err(error)),
    };
    match files.is_hidden(args[0]) {
        false => {
            let result = ask_linux(row, args, &files);
            if let Ok(count @ 1..) = result
                && mappings::is_concerned()
            {
                agree(row, args, count);
            }
            Some(result)
        }
        true => files.find(args[0]).is_none().then_some(Err(Errno::EBADF)),
    }
}

/// After Linux has moved `count` bytes between a descriptor and the program: what is mapped of the
/// file agrees with that.
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
            (
                writes,
                true,
                Some(position).filter(|&position| position != transfer::HERE),
                flags as u32,
            )
        }
        _ => return,
    };
    let ranges = if is_vector { Memory::vector } else { Memory::one };
    let appends = flags & linux::RWF_APPEND != 0;
    let transfer = mappings::Transfer { fd, position, writes, appends };
    if let (Ok(space), Ok(mut memory)) = (user::space(), ranges(UserAddr::new(memory), length)) {
        memory.limit(count);
        // What was moved was moved: the descriptor may be another one's by now, or memory be gone.
        let _ = mappings::moved(&space, &transfer, memory);
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
        // Before it has Linux do something for the call.
        lapse::refuse()?;
        files.agree()?;
    }
    if u32::from(row.number) == linux::__NR_dup {
        files.sets.may_copy(args[0])?;
    }
    let result = pass(row, args)?;
    if !row.makes_fd() {
        return Ok(result);
    }
    let fd = files.settle(result)?;
    match row.number.into() {
        linux::__NR_dup => files.sets.put(fd, files.sets.get(args[0])),
        linux::__NR_open | linux::__NR_openat | linux::__NR_openat2 | linux::__NR_creat => {
            files.adopt(fd)?;
        }
        _ => {}
    }
    Ok(fd)
}

/// What Linux says to a call that a file does not offer.
fn refuse(row: &Row, file: &Description) -> SysResult {
    let is_pipe = matches!(file.object, Object::Pipe(_));
    Err(match u32::from(row.number) {
        linux::__NR_fchdir | linux::__NR_getdents | linux::__NR_getdents64 => Errno::ENOTDIR,
        linux::__NR_fallocate if !file.writes => Errno::EBADF,
        linux::__NR_readahead if !file.reads => Errno::EBADF,
        linux::__NR_mq_timedsend
        | linux::__NR_mq_timedreceive
        | linux::__NR_mq_notify
        | linux::__NR_mq_getsetattr => Errno::EBADF,
        linux::__NR_fallocate if !is_pipe => Errno::ENODEV,
        linux::__NR_fallocate | linux::__NR_fadvise64 | linux::__NR_sync_file_range => {
            Errno::ESPIPE
        }
        linux::__NR_accept | linux::__NR_accept4 | linux::__NR_listen
            if matches!(file.object, Object::Socket(_)) =>
        {
            Errno::EOPNOTSUPP
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
use local;
