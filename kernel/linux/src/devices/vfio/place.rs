// SPDX-License-Identifier: MIT OR Apache-2.0
//! A function that programs drive by VFIO.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU32, Ordering};

use crtos_channel::Wanted;
use crtos_vfio::interrupts::Kind;

use crtos_core::{
    devices::{
        pci::{self, Function, Registers},
        ports,
    },
    mm::{heap, object::Object},
    task::Mutex,
};

use super::{container::Container, interrupts::Lines};
use crate::{
    abi::Errno,
    devices::pins::{Hears, Pin},
    files::lock::Locks,
};

/// Where a function can be.
pub(super) struct Place {
    /// The function that is there.
    pub device: Mutex<Option<Device>>,
    /// How often one came or went: what was opened before is dead.
    generation: AtomicU32,
    /// Who hears its interrupts.
    pub lines: Lines,
    pub locks: Locks,
}

/// A function of the realm.
pub(super) struct Device {
    /// What Linux said of it.
    pub wanted: Wanted,
    pub function: Function,
    /// Bits of the addresses that it names.
    pub width: u32,
    /// A program has its group open, or the function still.
    pub is_open: bool,
    /// Where the group is.
    pub container: Option<Arc<Container>>,
    /// Openings of the function.
    pub openings: u32,
    /// Which of its interrupts are on, and how many.
    pub interrupts: Option<(Kind, u32)>,
    /// Its pin, if the realm has the line of that.
    pub pin: Option<Pin>,
    /// The program has switched the pin off by the command register.
    pub pin_off: bool,
    /// Its memory that programs have mapped: of which register, from where on.
    parts: Vec<(u32, u64, Arc<Object>)>,
}

impl Place {
    /// A place with nothing.
    pub fn new() -> Self {
        Self {
            device: Mutex::new(None),
            generation: AtomicU32::new(0),
            lines: Lines::new(),
            locks: Locks::default(),
        }
    }

    /// Whether a function is there. May sleep.
    pub fn is_there(&self) -> bool {
        self.device.lock().is_some()
    }

    /// Which one it is that is there.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// The function that was there is gone, or one has come.
    pub fn renew(&self) {
        self.lines.clear();
        self.generation.fetch_add(1, Ordering::Release);
    }
}

impl Hears for Place {
    fn hear(&self) {
        self.lines.pin();
    }
}

impl Device {
    /// The function that Linux says to be there; `None` if the realm does not have it, or memory
    /// runs low. `place` hears its pin. May sleep.
    pub fn find(wanted: Wanted, place: &'static Place) -> Option<Self> {
        if !heap::has_reserve() {
            return None;
        }
        let function = Function::find(wanted.function)?;
        let width = pci::width(wanted.function);
        function.open_ports();
        let pin = wanted.line.and_then(|line| Pin::join(line.number, wanted.function, place));
        Some(Self {
            wanted,
            function,
            width,
            is_open: false,
            container: None,
            openings: 0,
            interrupts: None,
            pin,
            pin_off: false,
            parts: Vec::new(),
        })
    }

    /// Whether a program has it open or mapped.
    pub fn is_used(&self) -> bool {
        self.is_open || self.parts.iter().any(|(.., object)| Arc::strong_count(object) > 1)
    }

    /// Its memory that programs have mapped.
    pub fn objects(&self) -> Vec<Arc<Object>> {
        self.parts.iter().map(|(.., object)| object.clone()).collect()
    }

    /// The memory of a base address register, from `offset` on.
    pub fn part(&mut self, register: u32, offset: u64) -> Result<Arc<Object>, Errno> {
        self.parts.retain(|(.., object)| Arc::strong_count(object) > 1);
        let known = self.parts.iter().find(|part| (part.0, part.1) == (register, offset));
        if let Some((.., object)) = known {
            return Ok(object.clone());
        }
        let part = self.function.part(register, offset).ok_or(Errno::EINVAL)?;
        let object = Object::of_registers(part)?;
        self.parts.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        self.parts.push((register, offset, object.clone()));
        Ok(object)
    }

    /// The realm does not have it any more.
    pub fn forget(&self) {
        let registers = self.parts.iter().filter_map(|(.., object)| object.registers());
        registers.for_each(Registers::forget);
        ports::remove_function(self.function.number());
    }

    /// Its group leaves the container: it reaches no memory.
    pub fn leave(&mut self) {
        if let Some(container) = self.container.take() {
            container.leave(self.function.number());
        }
    }
}
