// SPDX-License-Identifier: MIT OR Apache-2.0
//! An 82574L that tests play: as much of it as a driver that is right sees. It reaches its memory
//! at an address of its own, and nothing else: what it is told beyond that fails the test.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    vec,
    vec::Vec,
};

use super::{
    RECEIVE_ALL, RECEIVE_GROUPS, RECEIVE_ON, TRANSMIT_ON, VALID,
    e1000e::{END_OF_FRAME, Legacy, RECEIVED, register},
    register::{ADDRESSES, CONTROL, GROUPS, MISSED, RECEIVE, TRANSMIT},
    rings::{DONE, Format, MEMORY, Ring},
};
use crate::{HardwareAddress, card, reception::is_group};

/// Where the card finds the memory.
pub const BASE: u64 = 0x1_2000_0000;

/// The card, and its memory.
#[derive(Debug)]
pub struct Model {
    registers: RefCell<BTreeMap<u32, u32>>,
    memory: RefCell<Vec<u8>>,
    /// What it has sent.
    pub sent: RefCell<Vec<Vec<u8>>>,
    /// It sends nothing just now.
    pub is_stuck: Cell<bool>,
    interrupts: Cell<u32>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            registers: RefCell::default(),
            memory: RefCell::new(vec![0; MEMORY as usize]),
            sent: RefCell::default(),
            is_stuck: Cell::new(false),
            interrupts: Cell::new(0),
        }
    }
}

impl Model {
    fn get(&self, register: u32) -> u32 {
        self.registers.borrow().get(&register).copied().unwrap_or(0)
    }

    fn set(&self, register: u32, value: u32) {
        self.registers.borrow_mut().insert(register, value);
    }

    /// How often it has interrupted since this was asked.
    pub fn take_interrupts(&self) -> u32 {
        self.interrupts.take()
    }

    fn interrupt(&self) {
        let causes = self.get(register::CAUSES) & self.get(register::LET);
        if causes != 0 {
            self.interrupts.set(self.interrupts.get() + 1);
            let clear = self.get(register::AUTO_CLEAR) & causes;
            self.set(register::CAUSES, self.get(register::CAUSES) & !clear);
            self.set(register::LET, self.get(register::LET) & !clear);
        }
    }

    /// The address of a descriptor in the memory.
    fn descriptor(&self, ring: Ring, index: u32) -> u64 {
        let high = u64::from(self.get(ring.address() + 4)) << 32;
        (high | u64::from(self.get(ring.address()))) + u64::from(index) * 16 - BASE
    }

    fn wants(&self, frame: &[u8]) -> bool {
        let to: HardwareAddress = *frame.first_chunk().expect("an address");
        let control = self.get(RECEIVE);
        let known = (0..16).any(|place| {
            let at = ADDRESSES + 8 * place;
            let (low, high) = (self.get(at).to_le_bytes(), self.get(at + 4).to_le_bytes());
            self.get(at + 4) & VALID != 0
                && to == [low[0], low[1], low[2], low[3], high[0], high[1]]
        });
        let hash = u32::from(to[4] >> 4) | u32::from(to[5]) << 4;
        let word = self.get(GROUPS + 4 * (hash >> 5));
        known
            || to == [0xff; 6]
            || control & RECEIVE_ALL != 0
            || is_group(&to) && (control & RECEIVE_GROUPS != 0 || word >> (hash & 31) & 1 != 0)
    }

    /// A frame comes over the wire; says whether it was received.
    pub fn receive(&self, frame: &[u8]) -> bool {
        if self.get(RECEIVE) & RECEIVE_ON == 0 || !self.wants(frame) {
            return false;
        }
        let ring = register::RECEIVE_RING;
        let head = self.get(ring.head());
        if head == self.get(ring.tail()) {
            self.set(MISSED, self.get(MISSED) + 1);
            return false;
        }
        let at = self.descriptor(ring, head);
        assert_eq!(card::Memory::load(self, at + 8), 0, "a descriptor that is not the card's");
        let to = card::Memory::load(self, at) - BASE;
        card::Memory::write(self, to, frame);
        self.finish(at, frame.len() as u64 | DONE | END_OF_FRAME);
        true
    }

    /// The card writes that into the next receive descriptor.
    pub fn write_back(&self, word: u64) {
        let ring = register::RECEIVE_RING;
        self.finish(self.descriptor(ring, self.get(ring.head())), word);
    }

    fn finish(&self, at: u64, word: u64) {
        let ring = register::RECEIVE_RING;
        card::Memory::store(self, at + 8, word);
        self.set(ring.head(), (self.get(ring.head()) + 1) % (self.get(ring.length()) / 16));
        self.set(register::CAUSES, self.get(register::CAUSES) | RECEIVED);
        self.interrupt();
    }

    /// It sends what it was told to.
    pub fn transmit(&self) {
        let ring = register::TRANSMIT_RING;
        while !self.is_stuck.get()
            && self.get(TRANSMIT) & TRANSMIT_ON != 0
            && self.get(ring.head()) != self.get(ring.tail())
        {
            let head = self.get(ring.head());
            let at = self.descriptor(ring, head);
            let word = card::Memory::load(self, at + 8);
            assert_eq!(word & !0xffff, Legacy::COMMAND);
            let mut frame = vec![0; (word & 0xffff) as usize];
            let from = card::Memory::load(self, at) - BASE;
            card::Memory::read(self, from, &mut frame);
            self.sent.borrow_mut().push(frame);
            card::Memory::store(self, at + 8, word | DONE);
            self.set(ring.head(), (head + 1) % (self.get(ring.length()) / 16));
        }
    }
}

impl card::Registers for Model {
    fn read_bytes(&self, register: u32, bytes: usize) -> u32 {
        assert_eq!(bytes, 4);
        let value = self.get(register);
        if register == MISSED {
            self.set(register, 0);
        }
        value
    }

    fn write_bytes(&self, register: u32, bytes: usize, value: u32) {
        assert_eq!(bytes, 4);
        assert!(u64::from(register) < register::END);
        match register {
            register::CAUSES => self.set(register, self.get(register) & !value),
            register::LET => {
                self.set(register, self.get(register) | value);
                self.interrupt();
            }
            register::MASK => self.set(register::LET, self.get(register::LET) & !value),
            CONTROL if value & 1 << 26 != 0 => self.registers.borrow_mut().clear(),
            _ => self.set(register, value),
        }
        if register == register::TRANSMIT_RING.tail() {
            self.transmit();
        }
    }
}

impl card::Memory for Model {
    fn load(&self, offset: u64) -> u64 {
        let memory = self.memory.borrow();
        u64::from_le_bytes(*memory[offset as usize..].first_chunk().expect("in the memory"))
    }

    fn store(&self, offset: u64, value: u64) {
        self.write(offset, &value.to_le_bytes());
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        to.copy_from_slice(&self.memory.borrow()[offset as usize..][..to.len()]);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.memory.borrow_mut()[offset as usize..][..from.len()].copy_from_slice(from);
    }
}
