// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files and descriptors.
//!
//! A descriptor is a number in most places, and not a type that owns it: most descriptors of this
//! process are the program's, which may close any of them at any time.

use core::{ffi::CStr, mem::MaybeUninit};

use crtos_abi::UserAddr;
use crtos_syscalls::structs::Stat;
use linux_raw_sys::general as linux;

use super::{Errno, call};
use crate::program::Memory;

/// `AT_FDCWD` as an argument of a system call.
const CURRENT_DIRECTORY: u64 = linux::AT_FDCWD as u64;

/// The name of a file.
#[derive(Clone, Copy)]
pub enum Path<'a> {
    /// A name in the shadow's memory.
    Own(&'a CStr),
    /// A name in the program's memory. Linux checks the address, and reads the name on its own.
    OfProgram(UserAddr),
}

impl Path<'_> {
    /// Returns the address, as an argument of a system call that reads the name.
    pub fn argument(self) -> u64 {
        match self {
            Self::Own(name) => name.as_ptr() as u64,
            Self::OfProgram(address) => address.get(),
        }
    }
}

impl<'a> From<&'a CStr> for Path<'a> {
    fn from(name: &'a CStr) -> Self {
        Self::Own(name)
    }
}

impl From<UserAddr> for Path<'_> {
    fn from(address: UserAddr) -> Self {
        Self::OfProgram(address)
    }
}

/// A descriptor that is closed when its owner is dropped. For those that the shadow opens for a
/// short time.
pub struct Owned(i32);

impl Owned {
    /// Takes care of a descriptor.
    pub fn new(fd: i32) -> Self {
        Self(fd)
    }

    /// Returns the number.
    pub fn fd(&self) -> i32 {
        self.0
    }

    /// Gives up the ownership: nobody closes the descriptor.
    pub fn keep(self) -> i32 {
        let fd = self.0;
        core::mem::forget(self);
        fd
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// Opens a file with `flags` of open(2). Returns the descriptor.
pub fn open<'a>(path: impl Into<Path<'a>>, flags: u32) -> Result<i32, Errno> {
    let args = [CURRENT_DIRECTORY, path.into().argument(), flags.into(), 0];
    // SAFETY: Linux reads the name.
    unsafe { call(linux::__NR_openat, args) }.map(|fd| fd as i32)
}

/// Tells whether a name leads to its file without a link of `/proc` such as `/proc/self/exe`.
pub fn is_path_of_file<'a>(path: impl Into<Path<'a>>) -> bool {
    let how = linux::open_how {
        flags: u64::from(linux::O_PATH | linux::O_CLOEXEC),
        mode: 0,
        resolve: linux::RESOLVE_NO_MAGICLINKS.into(),
    };
    let (structure, size) = (&raw const how as u64, size_of_val(&how) as u64);
    let args = [CURRENT_DIRECTORY, path.into().argument(), structure, size];
    // SAFETY: Linux reads the name and the structure.
    unsafe { call(linux::__NR_openat2, args) }.map(|fd| close(fd as i32)).is_ok()
}

/// Tells whether this process may execute the file at `path`, by its effective ids.
pub fn may_execute<'a>(path: impl Into<Path<'a>>) -> bool {
    let (wanted, flags) = (linux::X_OK.into(), linux::AT_EACCESS.into());
    let args = [CURRENT_DIRECTORY, path.into().argument(), wanted, flags];
    // SAFETY: Linux reads the name.
    unsafe { call(linux::__NR_faccessat2, args) }.is_ok()
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    // SAFETY: the call touches no memory.
    let _ = unsafe { call(linux::__NR_close, [fd as u64]) };
}

/// Has Linux close a descriptor when this process executes a program.
pub fn close_on_exec(fd: i32) {
    let args = [fd as u64, linux::F_SETFD.into(), linux::FD_CLOEXEC.into()];
    // SAFETY: the call sets a flag of a descriptor.
    let _ = unsafe { call(linux::__NR_fcntl, args) };
}

/// Tells whether Linux closes a descriptor when this process executes a program.
pub fn is_closed_on_exec(fd: i32) -> bool {
    // SAFETY: the call reads a flag of a descriptor.
    let flags = unsafe { call(linux::__NR_fcntl, [fd as u64, linux::F_GETFD.into()]) };
    flags.is_ok_and(|flags| flags & u64::from(linux::FD_CLOEXEC) != 0)
}

/// Tells whether a number is that of a descriptor.
pub fn is_open(fd: i32) -> bool {
    // SAFETY: the call reads a flag of a descriptor.
    unsafe { call(linux::__NR_fcntl, [fd as u64, linux::F_GETFD.into()]) }.is_ok()
}

/// Makes another descriptor of the same file, with the lowest free number.
pub fn copy(fd: i32) -> Result<i32, Errno> {
    // SAFETY: the call touches no memory.
    unsafe { call(linux::__NR_dup, [fd as u64]) }.map(|fd| fd as i32)
}

/// Makes another descriptor of the same file, close-on-exec, with the lowest free number from
/// `lowest` on.
pub fn copy_from(fd: i32, lowest: u64) -> Result<i32, Errno> {
    let args = [fd as u64, linux::F_DUPFD_CLOEXEC.into(), lowest];
    // SAFETY: the call touches no memory.
    unsafe { call(linux::__NR_fcntl, args) }.map(|fd| fd as i32)
}

/// Makes `new` a descriptor of the file of `fd` as well, with `flags` (0 or O_CLOEXEC).
pub fn put(fd: i32, new: i32, flags: u32) -> Result<(), Errno> {
    // SAFETY: the call touches no memory.
    unsafe { call(linux::__NR_dup3, [fd as u64, new as u64, flags.into()]) }.map(drop)
}

/// The same, and closes `fd`.
pub fn replace(fd: i32, new: i32, flags: u32) -> Result<(), Errno> {
    let result = put(fd, new, flags);
    close(fd);
    result
}

/// Reads up to the length of `buffer`, and starts again after signals. Returns how many bytes there
/// are.
pub fn read(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    let args = [fd as u64, buffer.as_mut_ptr() as u64, buffer.len() as u64];
    loop {
        // SAFETY: Linux writes to the buffer alone.
        match unsafe { call(linux::__NR_read, args) } {
            Err(Errno::EINTR) => {}
            result => return result.map(|length| length as usize),
        }
    }
}

/// Reads from `offset` of a file. Returns how many bytes there are.
pub fn read_at(fd: i32, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let args = [fd as u64, buffer.as_mut_ptr() as u64, buffer.len() as u64, offset];
    // SAFETY: Linux writes to the buffer alone.
    unsafe { call(linux::__NR_pread64, args) }.map(|length| length as usize)
}

/// Reads entries of a directory (getdents64(2)). Returns how many bytes they take; 0 behind the
/// last one.
pub fn read_directory(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    let args = [fd as u64, buffer.as_mut_ptr() as u64, buffer.len() as u64];
    // SAFETY: Linux writes to the buffer alone.
    unsafe { call(linux::__NR_getdents64, args) }.map(|length| length as usize)
}

/// Reads where a symbolic link leads to, as far as there is room. Returns how many bytes there are.
pub fn read_link(name: &CStr, room: &mut [u8]) -> Result<usize, Errno> {
    let args = [name.as_ptr() as u64, room.as_mut_ptr() as u64, room.len() as u64];
    // SAFETY: Linux reads the name and writes to the room alone.
    unsafe { call(linux::__NR_readlink, args) }.map(|length| length as usize)
}

/// Makes a file in memory with this content. Returns its descriptor, which stands at the start.
pub fn in_memory(name: &CStr, close_on_exec: bool, content: &[u8]) -> Result<i32, Errno> {
    let flags = if close_on_exec { linux::MFD_CLOEXEC } else { 0 };
    // SAFETY: Linux reads the name.
    let fd = unsafe { call(linux::__NR_memfd_create, [name.as_ptr() as u64, flags.into()]) }?;
    let args = [fd, content.as_ptr() as u64, content.len() as u64, 0];
    let fd = Owned::new(fd as i32);
    // SAFETY: Linux reads the content.
    let length = unsafe { call(linux::__NR_pwrite64, args) }?;
    if length == content.len() as u64 { Ok(fd.keep()) } else { Err(Errno::EIO) }
}

/// Returns the type of the file system that the file of a descriptor belongs to (`*_MAGIC`).
pub fn file_system(fd: i32) -> Result<i64, Errno> {
    let mut status = MaybeUninit::<linux::statfs>::uninit();
    // SAFETY: Linux fills the structure.
    unsafe { call(linux::__NR_fstatfs, [fd as u64, status.as_mut_ptr() as u64]) }?;
    // SAFETY: the call succeeded, so Linux has filled the structure.
    Ok(unsafe { status.assume_init() }.f_type)
}

/// Returns the status of the file of a descriptor.
pub fn status(fd: i32) -> Result<Stat, Errno> {
    let mut status = Stat::default();
    // SAFETY: Linux fills the structure, whose fields are integers.
    unsafe { call(linux::__NR_fstat, [fd as u64, &raw mut status as u64]) }?;
    Ok(status)
}

/// Returns the status of the file at `name`, which may be a symbolic link itself.
pub fn status_of_link(name: &CStr) -> Result<Stat, Errno> {
    let mut status = Stat::default();
    // SAFETY: Linux reads the name and fills the structure, whose fields are integers.
    unsafe { call(linux::__NR_lstat, [name.as_ptr() as u64, &raw mut status as u64]) }?;
    Ok(status)
}

/// Stores the status of the file at `name` at an address of the program.
pub fn store_status_of(name: &CStr, to: UserAddr) -> Result<(), Errno> {
    let to = to.for_writing(size_of::<Stat>() as u64)?;
    // SAFETY: Linux reads the name and writes to memory of the program.
    unsafe { call(linux::__NR_stat, [name.as_ptr() as u64, to]) }.map(drop)
}

/// Tells whether two descriptors are of the same file. Descriptors that are not there differ from
/// all others.
pub fn are_same(one: i32, other: i32) -> bool {
    match (status(one), status(other)) {
        (Ok(one), Ok(other)) => (one.device, one.inode) == (other.device, other.inode),
        _ => false,
    }
}
