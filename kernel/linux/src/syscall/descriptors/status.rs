// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a file is: fstat, fstatfs, statx, readlink.

use super::{effective_uid, elsewhere, local, open::named, remote};
use crate::{
    abi::{Args, Errno, SysResult},
    files::{self, Description, Object, agreement, last_words, names},
    memory::{timespec::SECOND, user},
    remote,
};
use alloc::{format, string::String, sync::Arc};
use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_syscalls::structs::{Stat, StatFs, Statx};

use crtos_syscalls::Row;
use linux_raw_sys::general as linux;

/// fstat(fd, status).
pub fn fstat(row: &Row, args: Args) -> SysResult {
    status(&local!(row, args), UserAddr::new(args[1]))
}

/// fstatfs(fd, status).
pub fn fstatfs(row: &Row, args: Args) -> SysResult {
    /// The flags count (ST_VALID).
    const VALID: u64 = 0x20;
    let file = local!(row, args);
    let kind = match &file.object {
        Object::Pipe(_) => linux::PIPEFS_MAGIC,
        Object::Socket(_) => linux::SOCKFS_MAGIC,
        Object::Event(_) | Object::Timer(_) | Object::Signals(_) => linux::ANON_INODE_FS_MAGIC,
        Object::Device(_) | Object::LastWords(_) | Object::Character(_) => {
            return remote(row, args);
        }
    };
    let status = StatFs {
        kind: kind.into(),
        block_size: PAGE_SIZE,
        name_length: linux::NAME_MAX.into(),
        fragment_size: PAGE_SIZE,
        flags: VALID,
        ..StatFs::default()
    };
    user::write_struct(UserAddr::new(args[1]), &status)?;
    Ok(0)
}

/// newfstatat(directory, path, status, flags).
pub fn newfstatat(row: &Row, args: Args) -> SysResult {
    let [path, address] = [args[1], args[2]].map(UserAddr::new);
    if args[3] as u32 & linux::AT_EMPTY_PATH != 0
        && let Some(file) = files::find(args[0])
    {
        let mut first = [0];
        let named = !path.is_null() && {
            user::read(path, &mut first)?;
            first[0] != 0
        };
        if !named {
            return status(&file, address);
        }
    }
    match linked(path, args[3])? {
        Some(file) => status(&file, address),
        None => remote(row, args),
    }
}

/// The local file of the descriptor that a path links to, if `flags` (AT_*) let the link be
/// followed.
pub(super) fn linked(path: UserAddr, flags: u64) -> Result<Option<Arc<Description>>, Errno> {
    let files = files::table()?;
    let follows = flags as u32 & linux::AT_SYMLINK_NOFOLLOW == 0 && files.has_devices();
    Ok(if follows { named(path) } else { None })
}

/// readlink(path, buffer, size).
pub fn readlink(row: &Row, args: Args) -> SysResult {
    let [path, buffer, size, ..] = args;
    read_link(UserAddr::new(path), UserAddr::new(buffer), size).unwrap_or_else(|| remote(row, args))
}

/// readlinkat(directory, path, buffer, size).
pub fn readlinkat(row: &Row, args: Args) -> SysResult {
    let [_, path, buffer, size, ..] = args;
    read_link(UserAddr::new(path), UserAddr::new(buffer), size).unwrap_or_else(|| remote(row, args))
}

/// Where the link of a local descriptor leads, if the path is that.
pub(super) fn read_link(path: UserAddr, buffer: UserAddr, size: u64) -> Option<SysResult> {
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
        Object::LastWords(_) => last_words::PATH.into(),
        Object::Character(special) => special.file.path().into(),
        Object::Socket(socket) => format!("socket:[{}]", socket.number()),
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

/// Whose a local file is: a pipe is the user's who has made it.
fn owner(object: &Object) -> Result<u32, Errno> {
    match object {
        Object::Pipe(pipe) => Ok(pipe.owner),
        _ => effective_uid(),
    }
}

/// Stores the `struct stat` of a local file.
pub(super) fn status(file: &Arc<Description>, address: UserAddr) -> SysResult {
    const PIPE: u32 = linux::S_IFIFO | 0o600;
    const ANONYMOUS: u32 = 0o600;
    const SOCKET: u32 = linux::S_IFSOCK | 0o777;
    let (mode, device, number, block) = match &file.object {
        Object::Device(device) => return agreement::device_status(*device, address),
        Object::Character(special) => return special.tell(address),
        Object::Pipe(pipe) => (PIPE, 13, pipe.number, 4096),
        Object::Socket(socket) => (SOCKET, 8, socket.number(), 4096),
        _ => (ANONYMOUS, 14, 1, 4096),
    };
    let uid = owner(&file.object)?;
    let gid = remote::linux(linux::__NR_getegid, &[])?;
    let now = crtos_core::time::linux(crtos_core::time::Clock::Realtime).0;
    let time = [now / SECOND, now % SECOND];
    let status = Stat {
        device,
        inode: number,
        links: 1,
        mode,
        uid,
        gid: gid as u32,
        block_size: block,
        accessed: time,
        modified: time,
        changed: time,
        ..Stat::default()
    };
    user::write_struct(address, &status)?;
    Ok(0)
}

/// statx(directory, path, flags, mask, status).
pub fn statx(row: &Row, args: Args) -> SysResult {
    let [fd, path, flags, _, address, _] = args;
    let [path, address] = [path, address].map(UserAddr::new);
    let mut first = [0];
    let empty = flags as u32 & linux::AT_EMPTY_PATH != 0 && {
        if !path.is_null() {
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
        Object::Character(special) => (special.status.mode, special.status.inode),
        Object::Pipe(pipe) => (linux::S_IFIFO | 0o600, pipe.number),
        Object::Socket(socket) => (linux::S_IFSOCK | 0o777, socket.number()),
        _ => (0o600, 1),
    };
    let uid = owner(&file.object)?;
    let gid = remote::linux(linux::__NR_getegid, &[])?;
    let status = Statx {
        mask: linux::STATX_BASIC_STATS,
        block_size: 4096,
        links: 1,
        uid,
        gid: gid as u32,
        mode: mode as u16,
        inode: number,
        ..Statx::default()
    };
    user::write_struct(address, &status)?;
    Ok(0)
}
