// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's high-precision event timers (IA-PC HPET Specification 1.0a, 2.3), which Linux
//! drives: it reads their registers, and its writes are carried out here. Each comparator can send
//! messages, stores of any value to any address.

use crtos_abi::PAGE_SIZE;
use crtos_partition::address::{GuestAddr, PhysAddr};
use crtos_partition::message::Message;

use crate::{direct_map, launch_info};

/// So many bytes have words; chips may repeat them throughout the page.
const SIZE: u64 = 0x400;
/// The number of the last comparator in bits 12..8.
const CAPABILITIES: u64 = 0;
/// Where the registers of the comparators begin, and how far apart they are.
const COMPARATORS: u64 = 0x100;
const COMPARATOR_SIZE: u64 = 0x20;
/// Offsets in a comparator's registers: what it is to do.
const CONFIGURATION: u64 = 0;
/// What it stores.
const DATA: u64 = 0x10;
/// Where it stores that.
const ADDRESS: u64 = 0x14;
/// Configuration: it sends messages.
const MESSAGES: u32 = 1 << 14;

/// All of them.
pub struct Hpets(());

impl Hpets {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// Carries out a write of Linux to the word at `address`, a place in one of them. Returns the
    /// message that a comparator was to send, if `accept` refuses it: it sends none.
    pub fn write(
        &mut self,
        address: GuestAddr,
        value: u32,
        accept: impl FnOnce(Message) -> bool,
    ) -> Option<Message> {
        let registers = find(address)?;
        let offset = address.offset_in(SIZE);
        let comparator = Comparator { registers, base: offset & !(COMPARATOR_SIZE - 1) };
        let (configuration, message) = match offset {
            ..COMPARATORS => (0, None),
            _ => comparator.with(offset - comparator.base, value),
        };
        let refused = message.filter(|message| configuration & MESSAGES != 0 && !accept(*message));
        if refused.is_some() {
            comparator.configure(configuration & !MESSAGES);
        }
        if refused.is_none() || offset != comparator.base + CONFIGURATION {
            registers.write(offset, value);
        }
        refused
    }

    /// Has all comparators with messages that `accept` refuses send none. Returns how many these
    /// were.
    pub fn silence(&mut self, accept: impl Fn(Message) -> bool) -> usize {
        let mut refused = 0;
        for comparator in all().flat_map(Registers::comparators) {
            let configuration = comparator.configuration();
            if configuration & MESSAGES != 0 && !accept(comparator.message()) {
                comparator.configure(configuration & !MESSAGES);
                refused += 1;
            }
        }
        refused
    }
}

fn find(address: GuestAddr) -> Option<Registers> {
    let page = address.align_down(PAGE_SIZE).get();
    all().find(|registers| registers.0.get() == page)
}

fn all() -> impl Iterator<Item = Registers> {
    launch_info::hpets().map(Registers)
}

/// The registers of the timer at this address.
#[derive(Clone, Copy)]
struct Registers(PhysAddr);

impl Registers {
    fn place(self, offset: u64) -> *mut u32 {
        direct_map::pointer(self.0 + offset)
    }

    fn read(self, offset: u64) -> u32 {
        // SAFETY: A page of a timer, which the direct map reaches and no Rust object lives in.
        unsafe { self.place(offset).read_volatile() }
    }

    fn write(self, offset: u64, value: u32) {
        // SAFETY: As for reading. What a comparator sends is looked at before it is allowed to.
        unsafe { self.place(offset).write_volatile(value) }
    }

    fn comparators(self) -> impl Iterator<Item = Comparator> {
        let last = u64::from(self.read(CAPABILITIES) >> 8 & 0x1f);
        let most = (SIZE - COMPARATORS) / COMPARATOR_SIZE;
        (0..most.min(last + 1)).map(move |number| Comparator {
            registers: self,
            base: COMPARATORS + number * COMPARATOR_SIZE,
        })
    }
}

/// One of the comparators of a timer.
struct Comparator {
    registers: Registers,
    base: u64,
}

impl Comparator {
    fn configuration(&self) -> u32 {
        self.registers.read(self.base + CONFIGURATION)
    }

    fn configure(&self, configuration: u32) {
        self.registers.write(self.base + CONFIGURATION, configuration);
    }

    /// What it is to do, and the message that it sends, once the word at `offset` is `value`; no
    /// message if it does not depend on that word.
    fn with(&self, offset: u64, value: u32) -> (u32, Option<Message>) {
        let message = self.message();
        match offset {
            CONFIGURATION => (value, Some(message)),
            DATA => (self.configuration(), Some(Message { data: value, ..message })),
            ADDRESS => (self.configuration(), Some(Message { address: value, ..message })),
            _ => (0, None),
        }
    }

    fn message(&self) -> Message {
        Message {
            address: self.registers.read(self.base + ADDRESS),
            data: self.registers.read(self.base + DATA),
        }
    }
}
