// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a group, which one program at a time has open. It lives as long as it is open, or
//! its function.

use alloc::{boxed::Box, format, string::String, sync::Arc};
use core::any::Any;

use crtos_abi::UserAddr;
use crtos_syscalls::structs::Stat;
use crtos_vfio::abi::{
    GROUP_GET_DEVICE_FD, GROUP_GET_STATUS, GROUP_IN_CONTAINER, GROUP_SET_CONTAINER,
    GROUP_UNSET_CONTAINER, GROUP_VIABLE, size,
};
use linux_raw_sys::general as linux;

use crtos_core::{devices::pci, mm::heap};

use super::{
    container,
    function::Function,
    place::{Device, Place},
};
use crate::{
    abi::{Errno, SysResult},
    files::{
        self, Description, Object,
        character::{Character, Special},
        description,
        lock::Locks,
    },
    memory::user,
};

/// An opening of a group.
pub(super) struct Group {
    pub place: &'static Place,
    pub generation: u32,
}

/// Its file.
pub(super) struct File {
    group: Arc<Group>,
    path: String,
}

/// Opens the group that has that number. May sleep.
pub(super) fn open(
    place: &'static Place,
    number: u64,
) -> Option<Result<Box<dyn Character>, Errno>> {
    let mut device = place.device.lock();
    let device = device.as_mut().filter(|device| device.wanted.number == number)?;
    if device.is_open {
        return Some(Err(Errno::EBUSY));
    }
    if !heap::has_reserve() {
        return Some(Err(Errno::ENOMEM));
    }
    device.is_open = true;
    let path = format!("/dev/vfio/{}", device.wanted.group.unwrap_or(0));
    let group = Arc::new(Group { place, generation: place.generation() });
    Some(Ok(Box::new(File { group, path })))
}

impl Group {
    /// Calls `act` with the function, if that is still the one that was opened. May sleep.
    pub fn with<R>(&self, act: impl FnOnce(&mut Device) -> Result<R, Errno>) -> Result<R, Errno> {
        let mut device = self.place.device.lock();
        let same = self.place.generation() == self.generation;
        act(device.as_mut().filter(|_| same).ok_or(Errno::ENODEV)?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.with(|device| {
            device.is_open = false;
            device.leave();
            Ok(())
        });
    }
}

impl File {
    fn set_container(&self, argument: UserAddr) -> SysResult {
        let fd = user::read_u32(argument)?;
        // With no function locked: the file may end here.
        let file = files::find(fd.into()).ok_or(Errno::EBADF)?;
        let Object::Character(special) = &file.object else { return Err(Errno::EINVAL) };
        let container = special.file.as_any().and_then(|any| any.downcast_ref());
        let container: &container::File = container.ok_or(Errno::EINVAL)?;
        self.group.with(|device| {
            if device.container.is_some() {
                return Err(Errno::EINVAL);
            }
            container.container().enter(device.function.number(), device.width)?;
            device.container = Some(container.container().clone());
            Ok(0)
        })
    }

    /// A descriptor of the function whose name is at an address.
    fn get_function(&self, argument: UserAddr) -> SysResult {
        const LONGEST: u64 = 63;
        let mut name = [0; LONGEST as usize + 1];
        let length = user::space()?.read_cstr(argument, &mut name)?.ok_or(Errno::EINVAL)?;
        let function = self.group.with(|device| {
            let own = format!("{}", pci::address(device.function.number()));
            if own.as_bytes() != &name[..length] {
                return Err(Errno::ENODEV);
            }
            let ready = device.container.as_ref().is_some_and(|container| container.is_ready());
            if !ready {
                return Err(Errno::EINVAL);
            }
            if !heap::has_reserve() {
                return Err(Errno::ENOMEM);
            }
            device.openings += 1;
            Ok(Function::new(self.group.clone()))
        })?;
        let status = Stat { mode: 0o600, inode: description::number(), ..Stat::default() };
        // No file leads to it.
        let special = Special { file: Box::new(function), status, device: None };
        let object = Object::Character(Box::new(special));
        let file = Description::open(object, linux::O_RDWR)?;
        Ok(files::table()?.insert(file, 0, true)?.into())
    }
}

impl Character for File {
    fn path(&self) -> &str {
        &self.path
    }

    fn ioctl(&self, request: u32, argument: u64) -> SysResult {
        let address = UserAddr::new(argument);
        match request {
            GROUP_GET_STATUS => {
                if user::read_u32(address)? < size::GROUP_STATUS {
                    return Err(Errno::EINVAL);
                }
                let inside = self.group.with(|device| Ok(device.container.is_some()))?;
                let flags = if inside { GROUP_IN_CONTAINER | GROUP_VIABLE } else { GROUP_VIABLE };
                user::write_u32(address.wrapping_add(4), flags)?;
                Ok(0)
            }
            GROUP_SET_CONTAINER => self.set_container(address),
            GROUP_UNSET_CONTAINER => {
                self.group.with(|device| match (&device.container, device.openings) {
                    (None, _) => Err(Errno::EINVAL),
                    (_, 1..) => Err(Errno::EBUSY),
                    _ => {
                        device.leave();
                        Ok(0)
                    }
                })
            }
            GROUP_GET_DEVICE_FD => self.get_function(address),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn locks(&self) -> &Locks {
        &self.group.place.locks
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(&*self.group)
    }
}
