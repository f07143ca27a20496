// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/sys/bus/pci/devices/*/resourceN` of I/O ports: a read or write is an access to the ports of a
//! function that programs drive (`Documentation/PCI/sysfs-pci.rst`).
//!
//! Linux opens the file, and so checks who may, before it becomes one of the realm: Linux may not
//! touch the ports. The file stays the realm's when the function goes; then each access fails with
//! EIO.

use alloc::{boxed::Box, format, string::String};

use spin::Once;

use crtos_core::devices::{pci, ports::FunctionPorts};

use crate::{
    abi::{Errno, SysResult},
    files::{Memory, character::Character, lock::Locks, position::Position},
};

/// The locks of all these files.
static LOCKS: Once<Locks> = Once::new();

/// Opens the file of the ports of which a base address register of a function tells.
pub fn open(function: u16, register: u8) -> Result<Box<dyn Character>, Errno> {
    let path = format!("/sys/bus/pci/devices/{}/resource{register}", pci::address(function));
    let ports = FunctionPorts { function, register };
    Ok(Box::new(Opening { ports, path, position: Position::default() }))
}

/// An opening of the file.
struct Opening {
    ports: FunctionPorts,
    path: String,
    position: Position,
}

/// Most bytes of an access.
const MOST: usize = 4;

impl Opening {
    /// Bytes of the file, and of an access at `position` for which the program has `left` bytes; 0
    /// behind the end. An access is of 1, 2 or 4 bytes, up to the end.
    fn extent(&self, left: u64, position: u64) -> Result<usize, Errno> {
        let size = self.ports.count().ok_or(Errno::EIO)?;
        match left.min(size.saturating_sub(position)) {
            count @ (0 | 1 | 2 | 4) => Ok(count as usize),
            _ => Err(Errno::EINVAL),
        }
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
        self.position.seek(offset, whence, || self.ports.count().ok_or(Errno::EIO))
    }

    fn has_positions(&self) -> bool {
        true
    }

    fn read_at(&self, memory: &mut Memory, position: u64) -> SysResult {
        let mut value = [0; MOST];
        let value = &mut value[..self.extent(memory.left(), position)?];
        if !value.is_empty() && !self.ports.access(position, value, false) {
            return Err(Errno::EIO);
        }
        if memory.write(value) < value.len() {
            return Err(Errno::EFAULT);
        }
        Ok(value.len() as u64)
    }

    fn write_at(&self, memory: &mut Memory, position: u64) -> SysResult {
        let mut value = [0; MOST];
        let value = &mut value[..self.extent(memory.left(), position)?];
        if value.is_empty() {
            return if memory.left() == 0 { Ok(0) } else { Err(Errno::EFBIG) };
        }
        if memory.read(value) < value.len() {
            return Err(Errno::EFAULT);
        }
        if !self.ports.access(position, value, true) {
            return Err(Errno::EIO);
        }
        Ok(value.len() as u64)
    }

    fn locks(&self) -> &Locks {
        LOCKS.call_once(Locks::default)
    }
}
