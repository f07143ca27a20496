// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening files by name.

use alloc::sync::Arc;

use crtos_abi::UserAddr;
use crtos_syscalls::Row;
use linux_raw_sys::general as linux;

use super::{create::make, effective_uid, remote};
use crate::{
    abi::{Args, Errno, SysResult},
    files::{self, Description, Object, device::Device, last_words::LastWords, names, pipe::Pipe},
    memory::{mappings, maps},
    remote::is_capable,
    syscall::cpu_numbers,
};

/// open(path, flags, mode).
pub fn open(row: &Row, args: Args) -> SysResult {
    let flags = args[1] as u32;
    open_known(UserAddr::new(args[0]), flags).unwrap_or_else(|| open_remote(row, args, flags))
}

/// openat(directory, path, flags, mode).
pub fn openat(row: &Row, args: Args) -> SysResult {
    let flags = args[2] as u32;
    open_known(UserAddr::new(args[1]), flags).unwrap_or_else(|| open_remote(row, args, flags))
}

/// creat(path, mode).
pub fn creat(row: &Row, args: Args) -> SysResult {
    let flags = linux::O_CREAT | linux::O_WRONLY | linux::O_TRUNC;
    open_local(UserAddr::new(args[0]), flags).unwrap_or_else(|| open_remote(row, args, flags))
}

/// Has Linux open a file. What is mapped of one that this has cut is cleared.
fn open_remote(row: &Row, args: Args, flags: u32) -> SysResult {
    let fd = remote(row, args)?;
    if flags & linux::O_TRUNC != 0 {
        mappings::resized(fd, None);
    }
    Ok(fd)
}

/// Opens what is not Linux's own file, if that is what the path names.
pub(super) fn open_known(path: UserAddr, flags: u32) -> Option<SysResult> {
    open_local(path, flags)
        .or_else(|| cpu_numbers::open(path, flags))
        .or_else(|| maps::open(path, flags))
}

/// Opens what is local, if that is what the path names: a device, Linux's last words, or the file
/// of a descriptor.
pub(super) fn open_local(path: UserAddr, flags: u32) -> Option<SysResult> {
    let files = files::table().ok().filter(|files| files.has_devices())?;
    let object = match Device::named(path, flags) {
        Some(device) => Ok(Object::Device(device)),
        None => match LastWords::named(path, flags) {
            Some(words) => words.map(Object::LastWords),
            None => reopen(&*named(path)?, flags)?,
        },
    };
    Some(object.and_then(|object| make(&files, object, flags | linux::O_LARGEFILE)))
}

/// The local file of the descriptor that a path names.
pub(super) fn named(path: UserAddr) -> Option<Arc<Description>> {
    files::find(names::descriptor(path)?)
}

/// EACCES if a pipe is another user's: one end of it, which the caller has, does not give it the
/// other one.
fn may_open(pipe: &Pipe) -> Result<(), Errno> {
    let is_own = effective_uid()? == pipe.owner;
    if is_own || is_capable(linux::CAP_DAC_OVERRIDE)? { Ok(()) } else { Err(Errno::EACCES) }
}

/// What becomes of a local file that is opened once more by the name of its descriptor, which is a
/// link. `None` if `flags` ask for something special.
pub(super) fn reopen(file: &Description, flags: u32) -> Option<Result<Object, Errno>> {
    if !Device::is_plain(flags) || flags & linux::O_NOFOLLOW != 0 {
        return None;
    }
    Some(match &file.object {
        Object::Device(device) => Ok(Object::Device(*device)),
        Object::Pipe(pipe) => may_open(pipe).map(|()| Object::Pipe(pipe.clone())),
        Object::LastWords(_) => LastWords::open(flags).map(Object::LastWords),
        Object::Character(special) => special.reopen(file, flags),
        Object::Event(_) | Object::Timer(_) | Object::Signals(_) | Object::Socket(_) => {
            Err(Errno::ENXIO)
        }
    })
}
