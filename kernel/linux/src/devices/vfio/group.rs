// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a group, which one program at a time has open. It lives as long as it is open, or
//! one of its functions.

use alloc::{boxed::Box, format, string::String, sync::Arc, vec::Vec};
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

/// A function of an opening of a group.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub place: &'static Place,
    generation: u32,
}

/// An opening of a group.
pub(super) struct Group {
    /// The functions that were there when it was opened; at least one.
    members: Vec<Member>,
}

/// Its file.
pub(super) struct File {
    group: Arc<Group>,
    path: String,
}

/// Opens the group that has that number, whose functions are at some of `places`. May sleep.
pub(super) fn open(
    places: impl Iterator<Item = &'static Place>,
    number: u64,
) -> Option<Result<Box<dyn Character>, Errno>> {
    let mut group = Group { members: Vec::new() };
    let mut path = None;
    for place in places {
        let mut device = place.device.lock();
        let Some(device) = device.as_mut().filter(|device| device.wanted.number == number) else {
            continue;
        };
        // Those of another opening all are; what this one has taken, it gives back.
        if device.is_open {
            return Some(Err(Errno::EBUSY));
        }
        if !heap::makes_room(&mut group.members, 1) {
            return Some(Err(Errno::ENOMEM));
        }
        device.is_open = true;
        group.members.push(Member { place, generation: place.generation() });
        path = device.wanted.group;
    }
    if group.members.is_empty() {
        return None;
    }
    let path = format!("/dev/vfio/{}", path.unwrap_or(0));
    Some(Ok(Box::new(File { group: Arc::new(group), path })))
}

impl Member {
    /// Calls `act` with the function, if that is still the one that was opened. May sleep.
    pub fn with<R>(&self, act: impl FnOnce(&mut Device) -> Result<R, Errno>) -> Result<R, Errno> {
        let mut device = self.place.device.lock();
        let same = self.is_at(self.place);
        act(device.as_mut().filter(|_| same).ok_or(Errno::ENODEV)?)
    }

    /// Whether it is the function that is at a place now.
    pub fn is_at(&self, place: &Place) -> bool {
        core::ptr::eq(self.place, place) && self.generation == place.generation()
    }
}

impl Group {
    /// Its functions.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Calls `act` with each function that is still there, one after the other, until one fails.
    /// May sleep.
    fn each(&self, mut act: impl FnMut(&mut Device) -> Result<(), Errno>) -> Result<(), Errno> {
        let mut is_there = false;
        for member in &self.members {
            match member.with(&mut act) {
                // It has gone, or `act` says the same of it.
                Err(Errno::ENODEV) => {}
                Err(errno) => return Err(errno),
                Ok(()) => is_there = true,
            }
        }
        if is_there { Ok(()) } else { Err(Errno::ENODEV) }
    }

    /// All leave the container that they are in. May sleep.
    fn leave(&self) {
        let _ = self.each(|device| {
            device.leave();
            Ok(())
        });
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.each(|device| {
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
        let mut entered = false;
        let done = self.group.each(|device| {
            // Of two calls at once, one finds that the other has begun.
            if device.container.is_some() {
                return Err(Errno::EINVAL);
            }
            container.container().enter(device.function.number(), device.width)?;
            device.container = Some(container.container().clone());
            entered = true;
            Ok(())
        });
        if done.is_err() && entered {
            self.group.leave();
        }
        done.map(|()| 0)
    }

    /// A descriptor of the function whose name is at an address.
    fn get_function(&self, argument: UserAddr) -> SysResult {
        const LONGEST: u64 = 63;
        let mut name = [0; LONGEST as usize + 1];
        let length = user::space()?.read_cstr(argument, &mut name)?.ok_or(Errno::EINVAL)?;
        let is_it = |device: &mut Device| {
            Ok(format!("{}", pci::address(device.function.number())).as_bytes() == &name[..length])
        };
        let mut members = self.group.members().iter();
        let member = members.find(|member| member.with(is_it) == Ok(true)).ok_or(Errno::ENODEV)?;
        let function = member.with(|device| {
            let ready = device.container.as_ref().is_some_and(|container| container.is_ready());
            if !ready {
                return Err(Errno::EINVAL);
            }
            if !heap::has_reserve() {
                return Err(Errno::ENOMEM);
            }
            device.openings += 1;
            Ok(Function::new(self.group.clone(), *member))
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
                let mut inside = false;
                self.group.each(|device| {
                    inside |= device.container.is_some();
                    Ok(())
                })?;
                let flags = if inside { GROUP_IN_CONTAINER | GROUP_VIABLE } else { GROUP_VIABLE };
                user::write_u32(address.wrapping_add(4), flags)?;
                Ok(0)
            }
            GROUP_SET_CONTAINER => self.set_container(address),
            GROUP_UNSET_CONTAINER => {
                self.group.each(|device| match (&device.container, device.openings) {
                    (None, _) => Err(Errno::EINVAL),
                    (_, 1..) => Err(Errno::EBUSY),
                    _ => Ok(()),
                })?;
                self.group.leave();
                Ok(0)
            }
            GROUP_GET_DEVICE_FD => self.get_function(address),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn locks(&self) -> &Locks {
        // One of them has them for all.
        &self.group.members[0].place.locks
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(&*self.group)
    }
}
