// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames in the queues that receive and send (5.1.6). Before each is a header, which says nothing,
//! since no features were negotiated that it is for.

use virtio_spec::virtq::DescF;

use super::{Bell, layout, queue::Queue};
use crate::card::{BUFFER, Found, Frame, Memory, NoRoom, Receive, Registers, Transmit};

/// Bytes of the header before a frame.
pub(super) const HEADER: usize = size_of::<virtio_spec::net::Hdr>();
/// Most bytes of a frame.
const LONGEST: usize = BUFFER - HEADER;

/// Receives.
#[derive(Debug)]
pub struct Receiver {
    queue: Queue,
    bell: Bell,
    /// Buffers that are the device's again, without its being notified.
    unsaid: u16,
}

impl Receiver {
    /// Of how many buffers the device is notified at once.
    const TELL: u16 = 16;

    /// The device, which finds the memory at `base`, has all buffers. It was not notified of them.
    pub(super) fn new(memory: &impl Memory, base: u64, mut queue: Queue, bell: Bell) -> Self {
        for number in 0..queue.size() {
            let bytes = (base + layout::receive_buffer(number), BUFFER as u32);
            queue.describe(memory, number, bytes, DescF::WRITE, 0);
            queue.offer(memory, number);
        }
        let unsaid = queue.size();
        Self { queue, bell, unsaid }
    }
}

impl Receive for Receiver {
    fn receive(
        &mut self,
        registers: &impl Registers,
        memory: &impl Memory,
        to: &mut [u8],
    ) -> Option<Found> {
        let Ok(done) = self.queue.take(memory)? else { return Some(Found::Bad) };
        let length = (done.length as usize).checked_sub(HEADER).filter(|&it| it <= LONGEST);
        if let Some(length) = length {
            let from = layout::receive_buffer(done.first) + HEADER as u64;
            memory.read(from, &mut to[..length]);
        }
        self.queue.offer(memory, done.first);
        self.unsaid += 1;
        if self.unsaid >= Self::TELL {
            self.tell(registers, memory);
        }
        let frame = length.map(|length| Frame { length, stamp: None });
        Some(frame.map_or(Found::Bad, Found::Frame))
    }

    fn has_more(&self, memory: &impl Memory) -> bool {
        self.queue.has_more(memory)
    }

    fn tell(&mut self, registers: &impl Registers, memory: &impl Memory) {
        if self.unsaid > 0 {
            self.unsaid = 0;
            self.bell.ring(registers, memory, &self.queue);
        }
    }
}

/// Sends.
#[derive(Debug)]
pub struct Transmitter {
    queue: Queue,
    bell: Bell,
    base: u64,
    /// The buffers that the device does not have: the first so many.
    free: [u8; super::queue::MOST as usize],
    count: u16,
}

impl Transmitter {
    /// Most buffers that are taken back at once.
    const TAKE: usize = 16;

    /// The device finds the memory at `base`.
    pub(super) fn new(base: u64, queue: Queue, bell: Bell) -> Self {
        let free = core::array::from_fn(|number| number as u8);
        let count = queue.size();
        Self { queue, bell, base, free, count }
    }

    /// Takes back what the device has sent.
    fn take_back(&mut self, memory: &impl Memory) {
        for _ in 0..Self::TAKE {
            match self.queue.take(memory) {
                None => break,
                Some(Err(_)) => {}
                Some(Ok(done)) => {
                    self.free[usize::from(self.count)] = done.first as u8;
                    self.count += 1;
                }
            }
        }
    }
}

impl Transmit for Transmitter {
    fn has_room(&mut self, _: &impl Registers, memory: &impl Memory) -> bool {
        self.take_back(memory);
        self.count > 0
    }

    fn transmit(
        &mut self,
        registers: &impl Registers,
        memory: &impl Memory,
        frame: &[u8],
    ) -> Result<(), NoRoom> {
        if frame.is_empty() || frame.len() > LONGEST || !self.has_room(registers, memory) {
            return Err(NoRoom);
        }
        self.count -= 1;
        let number = u16::from(self.free[usize::from(self.count)]);
        let at = layout::transmit_buffer(number);
        memory.write(at, &[0; HEADER]);
        memory.write(at + HEADER as u64, frame);
        let bytes = (self.base + at, (HEADER + frame.len()) as u32);
        self.queue.describe(memory, number, bytes, DescF::empty(), 0);
        self.queue.offer(memory, number);
        self.bell.ring(registers, memory, &self.queue);
        Ok(())
    }
}
