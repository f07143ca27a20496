// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of character devices that the kernel drives.
//!
//! Linux has a file of the same name and checks who may open it. Linux's module tells which device
//! a descriptor is of ([`Status`]); when that is one of the realm, the descriptor becomes local
//! ([`Files::adopt`]), and Linux's file is closed. Nothing of Linux is on the way from then on.

use alloc::{boxed::Box, sync::Arc};
use core::any::Any;

use crtos_abi::{PAGE_SIZE, UserAddr};
use crtos_channel::operation::DeviceFile;
use crtos_core::{devices::links::Link, mm::object};
use crtos_files::NUMBERS;
use crtos_syscalls::structs::Stat;
use linux_raw_sys::general as linux;
use spin::Once;

use super::{Description, Events, Files, Memory, Object, Watchers, lock::Locks};
use crate::{
    abi::{Errno, SysResult},
    memory::{Scratch, contents::Status, user},
    remote,
};

/// An opening of a device. Dropping it closes it.
pub trait Character: Send + Sync {
    /// The name that leads to it.
    fn path(&self) -> &str;

    /// read(2). What has nothing to read fails with EINVAL. May sleep.
    fn read(&self, _memory: &mut Memory, _nonblocking: bool) -> SysResult {
        Err(Errno::EINVAL)
    }

    /// write(2), likewise. May sleep.
    fn write(&self, _memory: &mut Memory, _nonblocking: bool) -> SysResult {
        Err(Errno::EINVAL)
    }

    /// lseek(2). What has no position fails with ESPIPE.
    fn seek(&self, _offset: u64, _whence: u32) -> SysResult {
        Err(Errno::ESPIPE)
    }

    /// Whether bytes can be read and written at a position that the caller gives.
    fn has_positions(&self) -> bool {
        false
    }

    /// pread(2), if it has positions. May sleep.
    fn read_at(&self, _memory: &mut Memory, _position: u64) -> SysResult {
        Err(Errno::ESPIPE)
    }

    /// pwrite(2), if it has positions. May sleep.
    fn write_at(&self, _memory: &mut Memory, _position: u64) -> SysResult {
        Err(Errno::ESPIPE)
    }

    /// ioctl(2), but for what all files offer. ENOTTY for what it does not. May sleep.
    fn ioctl(&self, _request: u32, _argument: u64) -> SysResult {
        Err(Errno::ENOTTY)
    }

    /// The memory that mmap(2) of `length` bytes at `offset` shows, all multiples of the page size.
    /// ENODEV if it has none.
    fn map(&self, _offset: u64, _length: u64) -> Result<Arc<object::Object>, Errno> {
        Err(Errno::ENODEV)
    }

    /// The link that it is and its memory, of which mmap(2) shows sections by the rights of the
    /// realm.
    fn link(&self) -> Option<(&Link, &Arc<object::Object>)> {
        None
    }

    /// What it is ready for: if it does not say otherwise, for all and always.
    fn ready(&self) -> Events {
        Events::IN | Events::OUT | Events::READ_NORMAL | Events::WRITE_NORMAL
    }

    /// Who is signalled when it is ready (O_ASYNC).
    fn signalled(&self) -> Signalled {
        Signalled::Nobody
    }

    /// Who is told of changes, if it becomes [ready](Self::ready) only with time: epoll(7) takes
    /// nothing else.
    fn watchers(&self) -> Option<&Watchers> {
        None
    }

    /// The locks of its device (flock(2)).
    fn locks(&self) -> &Locks;

    /// Another opening of it, if no driver is needed for that.
    fn again(&self) -> Option<Box<dyn Character>> {
        None
    }

    /// What it is, for calls of the same driver on another file.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

/// Who is signalled when a file is ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Signalled {
    /// It cannot signal.
    Nobody,
    /// Its owner.
    Owner,
    /// Its owner, which the process that asks for the signals becomes if there is none.
    OwnerOrCaller,
}

/// An opening of a device, with what Linux tells of the device's file.
pub struct Special {
    /// The opening.
    pub file: Box<dyn Character>,
    /// What fstat(2) tells.
    pub status: Stat,
    /// What Linux's file is, by which it is opened once more, if a driver does that.
    pub device: Option<DeviceFile>,
}

/// Opens a device, with flags of open(2), for a program that Linux has let open it; `None` if that
/// is no device of the realm. May sleep.
pub type Opener = fn(device: DeviceFile, flags: u32) -> Option<Result<Box<dyn Character>, Errno>>;

static OPENER: Once<Opener> = Once::new();

/// There are devices of the realm from now on, which `opener` opens: always the same one.
pub fn set_opener(opener: Opener) {
    OPENER.call_once(|| opener);
}

/// What Linux tells of a descriptor of the shadow (fstat(2)).
fn told(fd: u64) -> Result<Stat, Errno> {
    let space = user::space()?;
    let scratch = Scratch::open(&space, PAGE_SIZE).map_err(|_| Errno::ENOMEM)?;
    remote::linux(linux::__NR_fstat, &[fd, scratch.start.get()])?;
    Ok(user::read_struct(scratch.start)?)
}

impl Files {
    /// If descriptor `fd`, which is Linux's, is of a device of the realm, makes it local; if that
    /// fails, it is closed. Asks Linux only if there are such devices. May sleep.
    pub fn adopt(&self, fd: u64) -> Result<(), Errno> {
        let Some(opener) = OPENER.get().filter(|_| fd < NUMBERS.into()) else { return Ok(()) };
        // What stands for a file only (O_PATH) is none.
        let Ok(status) = Status::of(fd) else { return Ok(()) };
        let flags = status.flags as u32;
        let Some(device) = status.file.device_file() else { return Ok(()) };
        let Some(opened) = opener(device, flags) else { return Ok(()) };
        self.localize(fd, flags, opened, Some(device))
    }

    /// Descriptor `fd`, which is Linux's and was opened with these flags, is of that local file
    /// from now on; if that fails, it is closed. May sleep, and asks Linux.
    pub fn localize(
        &self,
        fd: u64,
        flags: u32,
        opened: Result<Box<dyn Character>, Errno>,
        device: Option<DeviceFile>,
    ) -> Result<(), Errno> {
        let made = opened.and_then(|file| {
            let special = Special { file, status: told(fd)?, device };
            Description::open(Object::Character(Box::new(special)), flags)
        });
        let descriptor = remote::linux(linux::__NR_fcntl, &[fd, linux::F_GETFD.into(), 0]);
        let close_on_exec = descriptor? as u32 & linux::FD_CLOEXEC != 0;
        remote::linux(linux::__NR_close, &[fd])?;
        match made {
            Ok(file) => drop(self.insert_at(fd as u32, file, close_on_exec)?),
            Err(error) => {
                drop(self.remove(fd));
                return Err(error);
            }
        }
        Ok(())
    }

    /// [Adopts](Self::adopt) what a program finds open at its start. A device that cannot be opened
    /// just now is closed.
    pub fn adopt_all(&self) {
        if OPENER.get().is_none() {
            return;
        }
        for number in (0..NUMBERS).filter(|&number| self.is_remote(number)) {
            let _ = self.adopt(number.into());
        }
    }
}

impl Special {
    /// Opens the device once more, as a descriptor's own name leads to it: with no more rights than
    /// `file` has, which is of it.
    pub fn reopen(&self, file: &Description, flags: u32) -> Result<Object, Errno> {
        let mode = flags & linux::O_ACCMODE;
        if mode != linux::O_WRONLY && !file.reads || mode != linux::O_RDONLY && !file.writes {
            return Err(Errno::EACCES);
        }
        let by_driver = || {
            let (opener, device) = OPENER.get().zip(self.device).ok_or(Errno::ENXIO)?;
            opener(device, flags).ok_or(Errno::ENXIO)?
        };
        let file = self.file.again().map_or_else(by_driver, Ok)?;
        Ok(Object::Character(Box::new(Self { file, ..*self })))
    }

    /// Stores the `struct stat` at an address of the program.
    pub fn tell(&self, address: UserAddr) -> SysResult {
        user::write_struct(address, &self.status)?;
        Ok(0)
    }
}
