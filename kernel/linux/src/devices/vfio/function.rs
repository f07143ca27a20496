// SPDX-License-Identifier: MIT OR Apache-2.0
//! The descriptor of a function: its regions, which are its registers and configuration space, and
//! its interrupts.

use alloc::sync::Arc;
use core::any::Any;

use crtos_abi::{UserAddr, device::BASE_ADDRESSES};
use crtos_vfio::{
    abi::{
        self, DEVICE_GET_INFO, DEVICE_GET_IRQ_INFO, DEVICE_GET_REGION_INFO, DEVICE_PCI,
        DEVICE_RESET, DEVICE_SET_IRQS, INTERRUPTS, REGIONS, region, size,
    },
    configuration::{self, COMMAND, PIN_OFF},
    interrupts as requests,
};

use crtos_core::mm::{heap, object::Object};

use super::{
    group::{Group, Member},
    interrupts,
    place::Device,
};
use crate::{
    abi::{Errno, SysResult},
    files::{Memory, character::Character, lock::Locks, position::Position},
    memory::user,
    signal,
};

/// An opening of a function.
pub(super) struct Function {
    member: Member,
    /// Stays open as long as the function.
    _group: Arc<Group>,
    /// Where read(2) and write(2) go on.
    position: Position,
}

/// Flags of interrupts: by eventfds, and their number is fixed while they are on; of the pin, that
/// it can be masked, and is when it interrupts.
const BY_EVENT: u32 = 1;
const FIXED: u32 = 8;
const MASKABLE: u32 = 2 | 4;

impl Function {
    /// An opening, which the caller has counted.
    pub fn new(group: Arc<Group>, member: Member) -> Self {
        Self { member, _group: group, position: Position::default() }
    }

    /// Which one of its group it is.
    pub fn member(&self) -> Member {
        self.member
    }

    fn tell_region(&self, argument: UserAddr) -> SysResult {
        let [head, words] = user::read_words(argument)?;
        let (bytes, index) = (head as u32, words as u32);
        if bytes < size::REGION_INFO {
            return Err(Errno::EINVAL);
        }
        let (length, mut flags, table) = self.member.with(|device| {
            let length = length_of(device, index).ok_or(Errno::EINVAL)?;
            let flags = match index {
                _ if length == 0 => 0,
                region::CONFIGURATION => region::READ | region::WRITE,
                _ if device.function.ports_of(index).is_some() => region::READ | region::WRITE,
                _ => region::READ | region::WRITE | region::MAP,
            };
            Ok((length, flags, device.function.table_register() == Some(index)))
        })?;
        /// Bytes of the capability.
        const CAPABILITY: u32 = 8;
        let (mut told, mut at) = (bytes, 0);
        if table {
            flags |= region::CAPABILITIES;
            if bytes < size::REGION_INFO + CAPABILITY {
                told = size::REGION_INFO + CAPABILITY;
            } else {
                at = size::REGION_INFO;
                let capability = abi::last_capability(region::TABLE_MAPPABLE);
                user::write_words(argument.wrapping_add(at.into()), [capability])?;
            }
        }
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let offset = u64::from(index) << region::SHIFT;
        user::write_words(argument, [pair(told, flags), pair(index, at), length, offset])?;
        Ok(0)
    }

    fn set_interrupts(&self, argument: UserAddr) -> SysResult {
        let mut words = [[0; 4]; 5];
        user::read(argument, words.as_flattened_mut())?;
        let words = words.map(u32::from_le_bytes);
        let place = self.member.place;
        let asked = self
            .member
            .with(|device| Ok(requests::request(words, |kind| interrupts::count(device, kind))?))?;
        let meant = interrupts::read(&asked, argument.wrapping_add(size::IRQ_SET.into()))?;
        self.member.with(|device| interrupts::carry_out(place, device, &asked, meant))
    }

    /// Moves bytes between the program and a region, at most to the end of that.
    fn transfer(&self, memory: &mut Memory, position: u64, write: bool) -> SysResult {
        let (index, mut at) = split(position);
        if memory.left() == 0 {
            return Ok(0);
        }
        let length = self.member.with(|device| length_of(device, index).ok_or(Errno::EINVAL))?;
        if index == region::CONFIGURATION {
            if at >= length || memory.left() > length - at {
                return Err(Errno::EFAULT);
            }
        } else if at >= length {
            return Err(Errno::EINVAL);
        }
        memory.limit(length - at);
        let mut done = 0;
        while memory.left() > 0 && !(done > 0 && signal::is_interrupted()) {
            let mut value = [0; 4];
            let count = match index {
                region::CONFIGURATION => configuration::piece(at, memory.left()).2,
                // The largest that is aligned there.
                _ => {
                    let fits = |size: &u64| at % size == 0 && memory.left() >= *size;
                    [4, 2].into_iter().find(fits).unwrap_or(1) as usize
                }
            };
            let value = &mut value[..count];
            if write && memory.read(value) < count {
                return Err(Errno::EFAULT);
            }
            self.member.with(|device| access(device, index, at, value, write))?;
            if !write && memory.write(value) < count {
                return Err(Errno::EFAULT);
            }
            at += count as u64;
            done += count as u64;
        }
        Ok(done)
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        let place = self.member.place;
        let _ = self.member.with(|device| {
            device.openings -= 1;
            if device.openings == 0 {
                // It masters the bus no more either.
                device.function.stop();
                interrupts::stop(place, device);
                device.pin_off = false;
                place.lines.clear();
            }
            Ok(())
        });
    }
}

/// The region in which a position lies, and where in it.
fn split(position: u64) -> (u32, u64) {
    ((position >> region::SHIFT) as u32, position & ((1 << region::SHIFT) - 1))
}

/// Bytes of a region; `None` if there is none with that index.
fn length_of(device: &Device, index: u32) -> Option<u64> {
    match index {
        region::CONFIGURATION => Some(configuration::SIZE),
        region::ROM => Some(0),
        _ if (index as usize) < BASE_ADDRESSES => match device.function.ports_of(index) {
            Some(ports) => Some(ports.len() as u64),
            None => Some(device.function.memory_size(index)),
        },
        _ => None,
    }
}

/// Reads or writes a piece of a region.
fn access(
    device: &mut Device,
    index: u32,
    at: u64,
    value: &mut [u8],
    write: bool,
) -> Result<(), Errno> {
    if index != region::CONFIGURATION {
        let done = device.function.access(index, at, value, write);
        return if done { Ok(()) } else { Err(Errno::EIO) };
    }
    let (register, bit, _) = configuration::piece(at, value.len() as u64);
    let mut bytes = [0; 4];
    if write {
        bytes[..value.len()].copy_from_slice(value);
        let own = configuration::mask(bit, value.len());
        let mask = configuration::writable(register) & own;
        if mask != 0 {
            let word = u32::from_le_bytes(bytes) << bit;
            device.function.write_configuration(register, word, mask);
        }
        if register == COMMAND && own & PIN_OFF != 0 {
            let word = u32::from_le_bytes(bytes) << bit;
            interrupts::set_pin_off(device, word & PIN_OFF != 0);
        }
    } else {
        let mut word = device.function.read_configuration(register);
        if register == COMMAND {
            // The program's, whatever the pin is.
            word = word & !PIN_OFF | if device.pin_off { PIN_OFF } else { 0 };
        }
        let word = word >> bit;
        value.copy_from_slice(&word.to_le_bytes()[..value.len()]);
    }
    Ok(())
}

impl Character for Function {
    fn path(&self) -> &str {
        "anon_inode:[vfio-device]"
    }

    fn read(&self, memory: &mut Memory, _nonblocking: bool) -> SysResult {
        self.position.here(|position| self.transfer(memory, position, false))
    }

    fn write(&self, memory: &mut Memory, _nonblocking: bool) -> SysResult {
        self.position.here(|position| self.transfer(memory, position, true))
    }

    fn has_positions(&self) -> bool {
        true
    }

    fn read_at(&self, memory: &mut Memory, position: u64) -> SysResult {
        self.transfer(memory, position, false)
    }

    fn write_at(&self, memory: &mut Memory, position: u64) -> SysResult {
        self.transfer(memory, position, true)
    }

    fn ioctl(&self, request: u32, argument: u64) -> SysResult {
        let address = UserAddr::new(argument);
        match request {
            DEVICE_GET_INFO => {
                if user::read_u32(address)? < size::DEVICE_INFO {
                    return Err(Errno::EINVAL);
                }
                let told = [DEVICE_PCI, REGIONS, INTERRUPTS].map(u32::to_le_bytes);
                user::write(address.wrapping_add(4), told.as_flattened())?;
                Ok(0)
            }
            DEVICE_GET_REGION_INFO => self.tell_region(address),
            DEVICE_GET_IRQ_INFO => {
                let [head, words] = user::read_words(address)?;
                if (head as u32) < size::IRQ_INFO {
                    return Err(Errno::EINVAL);
                }
                let (count, kind) = self.member.with(|device| {
                    let kind = interrupts::is_known(device, words as u32).ok_or(Errno::EINVAL)?;
                    Ok((interrupts::count(device, kind), kind))
                })?;
                let more = if kind == requests::Kind::Pin { MASKABLE } else { FIXED };
                user::write_u32(address.wrapping_add(4), BY_EVENT | more)?;
                user::write_u32(address.wrapping_add(12), count)?;
                Ok(0)
            }
            DEVICE_SET_IRQS => self.set_interrupts(address),
            // It cannot be reset: that would lose what only Linux may set.
            DEVICE_RESET => Err(Errno::EINVAL),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn map(&self, offset: u64, length: u64) -> Result<Arc<Object>, Errno> {
        if !heap::has_reserve() {
            return Err(Errno::ENOMEM);
        }
        let (index, at) = split(offset);
        self.member.with(|device| {
            let object = device.part(index, at)?;
            if length > object.limit() { Err(Errno::EINVAL) } else { Ok(object) }
        })
    }

    fn locks(&self) -> &Locks {
        &self.member.place.locks
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
