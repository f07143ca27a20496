// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network device of virtio (Virtual I/O Device 1.2; 4.1 for PCI, 5.1 for the network).
//!
//! | module | concept |
//! |---|---|
//! | [`places`] | where a function has its registers |
//! | [`queue`] | a queue in memory that both share |
//! | [`frames`] | receiving and sending |
//! | [`commands`] | which frames it receives |
//! | `model` | a device that tests play |
//!
//! It has no register that masks interrupts: it is asked by a word in memory, which takes less than
//! an access to the device. It may ignore that. Then it interrupts for each frame that it has a
//! buffer for, until it is silenced.
//!
//! Its most bytes behind a header (VIRTIO_NET_F_MTU) are not asked for: Linux has read them, and
//! the interface has no more.

pub mod commands;
pub mod frames;
#[cfg(feature = "model")]
pub mod model;
pub mod places;
pub mod queue;

use core::sync::atomic::{AtomicBool, Ordering};

use spin::Mutex;
use virtio_spec::{
    DeviceStatus,
    net::{F, S},
};

use crate::{
    HardwareAddress,
    card::{About, Kind, Memory, Place, Progress, Receive as _, Registers},
    reception::Filter,
};
use commands::Commands;
use frames::{Receiver, Transmitter};
use places::Places;
use queue::{MOST, Queue};

/// A register of the common configuration (4.1.4.3): where it is, and its bytes.
#[derive(Clone, Copy)]
struct Common(u32, usize);

impl Common {
    const OFFERED_SELECT: Self = Self(0x00, 4);
    const OFFERED: Self = Self(0x04, 4);
    const TAKEN_SELECT: Self = Self(0x08, 4);
    const TAKEN: Self = Self(0x0c, 4);
    const MESSAGE: Self = Self(0x10, 2);
    const STATUS: Self = Self(0x14, 1);
    /// The queue that the following are about.
    const QUEUE: Self = Self(0x16, 2);
    const SIZE: Self = Self(0x18, 2);
    const QUEUE_MESSAGE: Self = Self(0x1a, 2);
    const ENABLE: Self = Self(0x1c, 2);
    const NOTIFY: Self = Self(0x1e, 2);
    /// Three addresses of 8 bytes.
    const ADDRESSES: u32 = 0x20;
    /// Bytes of all.
    const END: u32 = 0x38;
}

/// Of the configuration of a network device (5.1.4): its status, of 2 bytes.
const LINK_STATUS: u32 = 6;
/// Bytes that are read of it.
const DEVICE_END: u32 = 8;
/// In place of a message: none.
const NO_MESSAGE: u32 = 0xffff;
/// The message of the queue that receives.
const MESSAGE: u32 = 0;
/// Queues that receive and send, and the one for commands where there are no further pairs.
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
const CONTROL: u16 = 2;

/// Where in the memory what is.
mod layout {
    use super::{
        commands,
        queue::{At, BYTES, MOST},
    };
    use crate::card::BUFFER;

    const BUFFERS: u64 = MOST as u64 * BUFFER as u64;
    const COMMANDS: u64 = 3 * BYTES;
    const RECEIVE_BUFFERS: u64 =
        (COMMANDS + commands::COMMANDS as u64 * commands::BYTES).next_multiple_of(4096);
    const TRANSMIT_BUFFERS: u64 = RECEIVE_BUFFERS + BUFFERS;
    /// Bytes of all.
    pub const END: u64 = TRANSMIT_BUFFERS + BUFFERS;

    pub fn queue(number: u16) -> At {
        At(u64::from(number) * BYTES)
    }

    pub fn command(number: u16) -> u64 {
        COMMANDS + u64::from(number) * commands::BYTES
    }

    pub fn receive_buffer(number: u16) -> u64 {
        RECEIVE_BUFFERS + u64::from(number) * BUFFER as u64
    }

    pub fn transmit_buffer(number: u16) -> u64 {
        TRANSMIT_BUFFERS + u64::from(number) * BUFFER as u64
    }
}

/// Where a device is notified of a queue.
#[derive(Clone, Copy, Debug)]
struct Bell {
    queue: u16,
    register: u32,
}

impl Bell {
    /// Notifies the device of what is in the queue, if it asks for that. One access at most.
    fn ring(self, registers: &impl Registers, memory: &impl Memory, queue: &Queue) {
        if queue.wants_notice(memory) {
            registers.write_bytes(self.register, 2, self.queue.into());
        }
    }
}

/// The vendor of its PCI functions.
pub const VENDOR: u16 = 0x1af4;
/// The number of the feature that the IOMMU says what it reaches.
pub const BY_IOMMU: usize = F::ACCESS_PLATFORM.bits().to_ne().trailing_zeros() as usize;

/// A network device.
#[derive(Debug)]
pub struct Virtio {
    places: Places,
    /// It tells of its link.
    has_status: AtomicBool,
    /// What it receives is told by that; it receives everything where it is not there. Threads
    /// have it, one at a time.
    commands: Mutex<Option<Commands>>,
}

/// What is taken where it is offered, beside what has to be.
fn welcome() -> F {
    F::MAC | F::STATUS | F::CTRL_VQ | F::CTRL_RX | F::ORDER_PLATFORM
}

/// The features that two words tell of.
fn features(word: impl Fn(u32) -> u32) -> F {
    let bits = u64::from(word(0)) | u64::from(word(1)) << 32;
    F::from_bits_truncate(u128::from(bits).into())
}

impl Virtio {
    fn read(&self, registers: &impl Registers, register: Common) -> u32 {
        registers.read_bytes(self.places.common + register.0, register.1)
    }

    fn write(&self, registers: &impl Registers, register: Common, value: u32) {
        registers.write_bytes(self.places.common + register.0, register.1, value);
    }

    fn status(&self, registers: &impl Registers) -> DeviceStatus {
        DeviceStatus::from_bits_retain(self.read(registers, Common::STATUS) as u8)
    }

    /// Agrees with it on features (3.1.1).
    fn agree(&self, registers: &impl Registers) -> Result<F, &'static str> {
        let mut status = DeviceStatus::empty();
        for more in [DeviceStatus::ACKNOWLEDGE, DeviceStatus::DRIVER] {
            status |= more;
            self.write(registers, Common::STATUS, status.bits().into());
        }
        let offered = features(|word| {
            self.write(registers, Common::OFFERED_SELECT, word);
            self.read(registers, Common::OFFERED)
        });
        if !offered.contains(F::VERSION_1) {
            return Err("it is one of before virtio 1.0");
        }
        // It would take the addresses that it is told for those of the machine's memory.
        if !offered.contains(F::ACCESS_PLATFORM) {
            return Err("it reaches memory without the IOMMU");
        }
        let taken = F::VERSION_1 | F::ACCESS_PLATFORM | offered & welcome();
        let bits = taken.bits().to_ne();
        for word in 0..2 {
            self.write(registers, Common::TAKEN_SELECT, word);
            self.write(registers, Common::TAKEN, (bits >> (32 * word)) as u32);
        }
        status |= DeviceStatus::FEATURES_OK;
        self.write(registers, Common::STATUS, status.bits().into());
        let has_agreed = self.status(registers).contains(DeviceStatus::FEATURES_OK);
        has_agreed.then_some(taken).ok_or("it does not agree to features that it has offered")
    }

    /// Sets a queue up, of as many descriptors as it has, or [`MOST`]. `least` have to be there.
    fn set_up(
        &self,
        registers: &impl Registers,
        memory: &impl Memory,
        base: u64,
        number: u16,
        least: u16,
    ) -> Result<(Queue, Bell), &'static str> {
        self.write(registers, Common::QUEUE, number.into());
        let size = (self.read(registers, Common::SIZE) as u16).min(MOST);
        if !size.is_power_of_two() || size < least {
            return Err("it has not the queues that it needs");
        }
        self.write(registers, Common::SIZE, size.into());
        let at = layout::queue(number);
        for (part, register) in at.parts().into_iter().zip((Common::ADDRESSES..).step_by(8)) {
            let address = base + part;
            self.write(registers, Common(register, 4), address as u32);
            self.write(registers, Common(register + 4, 4), (address >> 32) as u32);
        }
        let message = if number == RECEIVE { MESSAGE } else { NO_MESSAGE };
        self.write(registers, Common::QUEUE_MESSAGE, message);
        if self.read(registers, Common::QUEUE_MESSAGE) != message {
            return Err("it has no message for its queue");
        }
        let register = self.places.bell(self.read(registers, Common::NOTIFY));
        let bell = Bell { queue: number, register: register.ok_or("it cannot be notified")? };
        let queue = Queue::new(memory, at, size);
        self.write(registers, Common::ENABLE, 1);
        Ok((queue, bell))
    }
}

impl Kind for Virtio {
    const ABOUT: About = About {
        name: "virtio",
        driver: "virtio-pci",
        // The second one has registers for drivers of before version 1 as well.
        ids: &[(VENDOR, 0x1041), (VENDOR, 0x1000)],
    };
    const MEMORY: u64 = layout::END;
    type Receiver = Receiver;
    type Transmitter = Transmitter;

    fn find(read: impl Fn(u64) -> u32) -> Option<Self> {
        let places = Places::find(read)?;
        Some(Self { places, has_status: AtomicBool::new(false), commands: Mutex::new(None) })
    }

    fn place(&self) -> Place {
        Place { base: self.places.base, length: self.places.length }
    }

    fn reset(&self, registers: &impl Registers) {
        self.write(registers, Common::STATUS, 0);
    }

    fn is_reset(&self, registers: &impl Registers) -> bool {
        self.status(registers).is_empty()
    }

    fn start(
        &self,
        registers: &impl Registers,
        memory: &impl Memory,
        base: u64,
        own: HardwareAddress,
    ) -> Result<(Receiver, Transmitter), &'static str> {
        let taken = self.agree(registers)?;
        self.has_status.store(taken.contains(F::STATUS), Ordering::Relaxed);
        // Whether its link has changed it does not interrupt for: who asks reads that.
        self.write(registers, Common::MESSAGE, NO_MESSAGE);
        let set_up = |number, least| self.set_up(registers, memory, base, number, least);
        let (queue, bell) = set_up(RECEIVE, 1)?;
        let mut receiver = Receiver::new(memory, base, queue, bell);
        let (queue, bell) = set_up(TRANSMIT, 1)?;
        let transmitter = Transmitter::new(base, queue, bell);
        let mut commands = None;
        if taken.contains(F::CTRL_VQ | F::CTRL_RX) {
            let (queue, bell) = set_up(CONTROL, commands::LEAST)?;
            commands = Some(Commands::new(base, queue, bell));
        }
        let status = self.status(registers) | DeviceStatus::DRIVER_OK;
        self.write(registers, Common::STATUS, status.bits().into());
        receiver.tell(registers, memory);
        if let Some(commands) = &mut commands {
            commands.tell(registers, memory, &Filter::default(), own);
        }
        *self.commands.lock() = commands;
        Ok((receiver, transmitter))
    }

    fn let_interrupt(
        &self,
        registers: &impl Registers,
        memory: &impl Memory,
        receiver: &Receiver,
    ) -> bool {
        layout::queue(RECEIVE).let_interrupt(memory, true);
        let has_more = receiver.has_more(memory);
        if has_more {
            self.mask(registers, memory);
        }
        has_more
    }

    fn mask(&self, _: &impl Registers, memory: &impl Memory) {
        layout::queue(RECEIVE).let_interrupt(memory, false);
    }

    fn take_causes(&self, _: &impl Registers) {
        // A message is all that tells of one.
    }

    fn has_link(&self, registers: &impl Registers) -> bool {
        // What is not there any more reads as all ones.
        if self.status(registers).contains(DeviceStatus::DEVICE_NEEDS_RESET) {
            return false;
        }
        let link = || registers.read_bytes(self.places.device + LINK_STATUS, 2) as u16;
        let is_up = S::LINK_UP.bits().to_ne();
        !self.has_status.load(Ordering::Relaxed) || link() & is_up != 0
    }

    fn set_filter(
        &self,
        registers: &impl Registers,
        memory: &impl Memory,
        filter: &Filter,
        own: HardwareAddress,
    ) {
        if let Some(commands) = &mut *self.commands.lock() {
            commands.tell(registers, memory, filter, own);
        }
    }

    fn filter_progress(&self, memory: &impl Memory) -> Progress {
        self.commands.lock().as_mut().map_or(Progress::Done, |it| it.progress(memory))
    }
}
