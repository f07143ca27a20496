// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/sys/bus/pci/devices/*/config` of a function that interrupts by its pin, as a program opens it
//! to write: by the command register it switches the pin on, which an interrupt has switched off.
//! All else that is written is lost, as in the files of other functions, which stay Linux's.
//!
//! Linux opens the file, and so checks who may. The file stays the realm's when the function goes;
//! then each access fails with EIO.

use alloc::{boxed::Box, format, string::String};

use crtos_core::devices::pci::{self, Function};
use crtos_vfio::configuration::{COMMAND, PIN_OFF, SIZE, mask, piece};
use spin::Once;

use super::PLACES;
use crate::{
    abi::{Errno, SysResult},
    devices::pins::Pin,
    files::{Memory, character::Character, lock::Locks, position::Position},
};

/// The locks of all these files.
static LOCKS: Once<Locks> = Once::new();

/// Opens the file of a function; `None` if that has no pin here: then it is Linux's.
pub fn open(function: u16) -> Option<Result<Box<dyn Character>, Errno>> {
    with(function, |_, _| ())?;
    let path = format!("/sys/bus/pci/devices/{}/config", pci::address(function));
    Some(Ok(Box::new(Opening { function, path, position: Position::default() })))
}

/// Has `act` reach a function and its pin, if it has one. May sleep.
fn with<T>(function: u16, act: impl FnOnce(&Function, &Pin) -> T) -> Option<T> {
    for place in PLACES.iter().filter_map(Once::get) {
        let device = place.device.lock();
        if let Some(device) = device.as_ref().filter(|device| device.function() == function) {
            return device.pin().map(|(function, pin)| act(function, pin));
        }
    }
    None
}

/// An opening of the file.
struct Opening {
    function: u16,
    path: String,
    position: Position,
}

impl Opening {
    /// Reads four bytes.
    fn register(&self, register: u64) -> Result<u32, Errno> {
        let told = with(self.function, |function, pin| {
            let word = function.read_configuration(register);
            // While nobody has it open the pin is off, whatever is meant.
            match (register, pin.is_on()) {
                (COMMAND, true) => word & !PIN_OFF,
                (COMMAND, false) => word | PIN_OFF,
                _ => word,
            }
        });
        told.ok_or(Errno::EIO)
    }
}

impl Character for Opening {
    fn path(&self) -> &str {
        &self.path
    }

    fn read(&self, memory: &mut Memory, _nonblocking: bool) -> SysResult {
        self.position.here(|position| self.read_at(memory, position))
    }

    fn write(&self, memory: &mut Memory, _nonblocking: bool) -> SysResult {
        self.position.here(|position| self.write_at(memory, position))
    }

    fn seek(&self, offset: u64, whence: u32) -> SysResult {
        self.position.seek(offset, whence, || Ok(SIZE))
    }

    fn has_positions(&self) -> bool {
        true
    }

    fn read_at(&self, memory: &mut Memory, position: u64) -> SysResult {
        memory.limit(SIZE.saturating_sub(position));
        let mut at = position;
        while memory.left() > 0 {
            let (register, bit, count) = piece(at, memory.left());
            let bytes = (self.register(register)? >> bit).to_le_bytes();
            if memory.write(&bytes[..count]) < count {
                return Err(Errno::EFAULT);
            }
            at += count as u64;
        }
        Ok(at - position)
    }

    fn write_at(&self, memory: &mut Memory, position: u64) -> SysResult {
        if memory.left() > 0 && position >= SIZE {
            return Err(Errno::EFBIG);
        }
        memory.limit(SIZE.saturating_sub(position));
        let mut at = position;
        while memory.left() > 0 {
            let (register, bit, count) = piece(at, memory.left());
            let mut bytes = [0; 4];
            if memory.read(&mut bytes[..count]) < count {
                return Err(Errno::EFAULT);
            }
            let word = u32::from_le_bytes(bytes) << bit;
            let switches = register == COMMAND && mask(bit, count) & PIN_OFF != 0;
            let written = with(self.function, |_, pin| {
                if switches {
                    pin.switch(word & PIN_OFF == 0);
                }
            });
            written.ok_or(Errno::EIO)?;
            at += count as u64;
        }
        Ok(at - position)
    }

    fn locks(&self) -> &Locks {
        LOCKS.call_once(Locks::default)
    }
}
