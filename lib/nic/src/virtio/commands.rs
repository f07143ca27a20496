// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands in the control queue (5.1.6.5): which frames the device is to receive.

use virtio_spec::{
    net::{Ctrl, ctrl},
    virtq::DescF,
};

use super::{Bell, layout, queue::Queue};
use crate::{
    HardwareAddress,
    card::{Memory, Progress, Registers},
    reception::{Filter, MOST as MOST_ADDRESSES, is_group},
};

/// Commands for one filter, and descriptors of each: what it says, and room for the answer.
pub(super) const COMMANDS: u16 = 3;
const DESCRIPTORS: u16 = 2;
/// Least descriptors of the queue, a power of two.
pub(super) const LEAST: u16 = (COMMANDS * DESCRIPTORS).next_power_of_two();
/// Bytes for a command with its answer: two numbers, and two tables of addresses, each behind its
/// count.
pub(super) const BYTES: u64 = 512;
const _: () = assert!(2 + 4 + 4 + 6 * (MOST_ADDRESSES as u64 + 1) < BYTES);
/// Where in them the answer is, and what it is before there is one.
const ANSWER: u64 = BYTES - 8;
const NONE: u64 = 0xff;
/// It was done.
const DONE: u64 = 0;

/// The control queue.
#[derive(Debug)]
pub struct Commands {
    queue: Queue,
    bell: Bell,
    base: u64,
    /// Commands that were not answered.
    pending: u16,
}

impl Commands {
    pub(super) fn new(base: u64, queue: Queue, bell: Bell) -> Self {
        Self { queue, bell, base, pending: 0 }
    }

    /// Tells the device, whose own address is `own`, to receive what `filter` says. Nothing of what
    /// it was told before may be pending; `false` if something is.
    pub fn tell(
        &mut self,
        registers: &impl Registers,
        memory: &impl Memory,
        filter: &Filter,
        own: HardwareAddress,
    ) -> bool {
        if self.progress(memory) == Progress::Pending {
            return false;
        }
        let further = filter.addresses().filter(|address| !is_group(address));
        let own = core::iter::once(own).chain(further);
        let groups = filter.addresses().filter(is_group);
        let mut table = Command::new(memory, 0, Ctrl::Mac, ctrl::Mac::TableSet.into());
        table.add_addresses(own);
        table.add_addresses(groups);
        let mut all_groups = Command::new(memory, 1, Ctrl::Rx, ctrl::Rx::Allmulti.into());
        all_groups.add(&[filter.wants_groups().into()]);
        let mut all = Command::new(memory, 2, Ctrl::Rx, ctrl::Rx::Promisc.into());
        all.add(&[filter.wants_all().into()]);
        // Where it is to receive less, it knows the addresses before.
        for command in [table, all_groups, all] {
            let first = command.number * DESCRIPTORS;
            let at = self.base + command.at;
            self.queue.describe(memory, first, (at, command.length), DescF::NEXT, first + 1);
            self.queue.describe(memory, first + 1, (at + ANSWER, 1), DescF::WRITE, 0);
            self.queue.offer(memory, first);
            self.pending += 1;
        }
        self.bell.ring(registers, memory, &self.queue);
        true
    }

    /// How far the device is. Bounded.
    pub fn progress(&mut self, memory: &impl Memory) -> Progress {
        for _ in 0..COMMANDS {
            if let Some(Ok(_)) = self.queue.take(memory) {
                self.pending -= 1;
            }
        }
        if self.pending > 0 {
            return Progress::Pending;
        }
        let done = |number| memory.load(layout::command(number) + ANSWER) & 0xff == DONE;
        if (0..COMMANDS).all(done) { Progress::Done } else { Progress::Refused }
    }
}

/// A command that is being written.
struct Command<'a, M> {
    memory: &'a M,
    number: u16,
    at: u64,
    length: u32,
}

impl<'a, M: Memory> Command<'a, M> {
    fn new(memory: &'a M, number: u16, class: Ctrl, what: u8) -> Self {
        let at = layout::command(number);
        memory.store(at + ANSWER, NONE);
        let mut new = Self { memory, number, at, length: 0 };
        new.add(&[class.into(), what]);
        new
    }

    fn add(&mut self, bytes: &[u8]) {
        self.memory.write(self.at + u64::from(self.length), bytes);
        self.length += bytes.len() as u32;
    }

    /// Adds a table: how many addresses, and these.
    fn add_addresses(&mut self, addresses: impl Iterator<Item = HardwareAddress> + Clone) {
        self.add(&(addresses.clone().count() as u32).to_le_bytes());
        addresses.for_each(|address| self.add(&address));
    }
}
