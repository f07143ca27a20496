// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cards that tests play: as much of them as a driver that is right sees. One reaches its memory at
//! an address of its own, and nothing else: what it is told beyond that fails the test.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    marker::PhantomData,
    vec,
    vec::Vec,
};

use super::{
    HAS_LINK, RECEIVE_ALL, RECEIVE_GROUPS, RECEIVE_ON, RESET, TRANSMIT_ON, VALID,
    e1000e::{self, E1000e, Legacy},
    igb::{self, Advanced, Igb},
    phy,
    register::{ADDRESSES, CONTROL, GROUPS, RECEIVE, STATUS, TRANSMIT},
    rings::{Format, MEMORY, Ring, SENT},
};
use crate::{
    HardwareAddress,
    card::{self, Kind},
    reception::is_group,
};

/// Where a card finds the memory.
pub const BASE: u64 = 0x1_2000_0000;

/// A kind of card that tests play.
pub trait Played: Kind {
    /// Its descriptors.
    type Descriptors: Format;

    /// The second word of a receive descriptor that holds a whole frame.
    fn received(length: usize) -> u64;

    /// Whether the card moves frames of that ring.
    fn is_on(_: &Model<Self>, _: Ring) -> bool {
        true
    }

    /// A frame has come.
    fn note(model: &Model<Self>);

    /// It interrupts for what has not interrupted so far.
    fn interrupt(model: &Model<Self>);

    /// Writes a register that is not just kept; `false` if it is.
    fn write(model: &Model<Self>, register: u32, value: u32) -> bool;

    /// What reading a register of that value changes.
    fn read(_: &Model<Self>, _: u32) {}
}

/// A card, and its memory.
#[derive(Debug)]
pub struct Model<K> {
    registers: RefCell<BTreeMap<u32, u32>>,
    memory: RefCell<Vec<u8>>,
    /// What it has sent.
    pub sent: RefCell<Vec<Vec<u8>>>,
    /// It sends nothing just now.
    pub is_stuck: Cell<bool>,
    /// Its transceiver answers nothing.
    pub is_mute: Cell<bool>,
    interrupts: Cell<u32>,
    kind: PhantomData<K>,
}

impl<K> Default for Model<K> {
    fn default() -> Self {
        Self {
            registers: RefCell::default(),
            memory: RefCell::new(vec![0; MEMORY as usize]),
            sent: RefCell::default(),
            is_stuck: Cell::new(false),
            is_mute: Cell::new(false),
            interrupts: Cell::new(0),
            kind: PhantomData,
        }
    }
}

impl<K> Model<K> {
    fn get(&self, register: u32) -> u32 {
        self.registers.borrow().get(&register).copied().unwrap_or(0)
    }

    fn set(&self, register: u32, value: u32) {
        self.registers.borrow_mut().insert(register, value);
    }

    fn set_bits(&self, register: u32, off: u32, on: u32) {
        self.set(register, self.get(register) & !off | on);
    }

    /// How often it has interrupted since this was asked.
    pub fn take_interrupts(&self) -> u32 {
        self.interrupts.take()
    }

    fn send_message(&self) {
        self.interrupts.set(self.interrupts.get() + 1);
    }

    /// The address of a descriptor in the memory.
    fn descriptor(&self, ring: Ring, index: u32) -> u64 {
        let high = u64::from(self.get(ring.address() + 4)) << 32;
        (high | u64::from(self.get(ring.address()))) + u64::from(index) * 16 - BASE
    }

    /// The head of a ring goes on.
    fn step(&self, ring: Ring) {
        self.set(ring.head(), (self.get(ring.head()) + 1) % (self.get(ring.length()) / 16));
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
}

impl<K: Played> Model<K> {
    /// A frame comes over the wire; says whether it was received.
    pub fn receive(&self, frame: &[u8]) -> bool {
        let ring = K::Descriptors::RECEIVE;
        let is_on = self.get(RECEIVE) & RECEIVE_ON != 0 && K::is_on(self, ring);
        if !is_on || !self.wants(frame) {
            return false;
        }
        let head = self.get(ring.head());
        if head == self.get(ring.tail()) {
            return false;
        }
        let at = self.descriptor(ring, head);
        assert_eq!(card::Memory::load(self, at + 8), 0, "a descriptor that is not the card's");
        let to = card::Memory::load(self, at) - BASE;
        card::Memory::write(self, to, frame);
        self.write_back(K::received(frame.len()));
        true
    }

    /// The card writes that into the second word of the next receive descriptor, and something into
    /// the first one.
    pub fn write_back(&self, word: u64) {
        let ring = K::Descriptors::RECEIVE;
        let at = self.descriptor(ring, self.get(ring.head()));
        card::Memory::store(self, at, !word);
        card::Memory::store(self, at + 8, word);
        self.step(ring);
        K::note(self);
        K::interrupt(self);
    }

    /// It changes what it has written into the second word of the last receive descriptor.
    pub fn amend(&self, word: u64) {
        let ring = K::Descriptors::RECEIVE;
        let count = self.get(ring.length()) / 16;
        let last = (self.get(ring.head()) + count - 1) % count;
        card::Memory::store(self, self.descriptor(ring, last) + 8, word);
    }

    /// It says of all transmit descriptors that it has sent them.
    pub fn claim_all_sent(&self) {
        let ring = K::Descriptors::TRANSMIT;
        for index in 0..self.get(ring.length()) / 16 {
            card::Memory::store(self, self.descriptor(ring, index) + 8, u64::MAX);
        }
    }

    /// It sends what it was told to.
    pub fn transmit(&self) {
        let ring = K::Descriptors::TRANSMIT;
        while !self.is_stuck.get()
            && self.get(TRANSMIT) & TRANSMIT_ON != 0
            && K::is_on(self, ring)
            && self.get(ring.head()) != self.get(ring.tail())
        {
            let at = self.descriptor(ring, self.get(ring.head()));
            let word = card::Memory::load(self, at + 8);
            let length = usize::from(word as u16);
            assert_eq!(word, K::Descriptors::command(length));
            let mut frame = vec![0; length];
            let from = card::Memory::load(self, at) - BASE;
            card::Memory::read(self, from, &mut frame);
            self.sent.borrow_mut().push(frame);
            card::Memory::store(self, at + 8, word | SENT);
            self.step(ring);
        }
    }
}

impl<K: Played> card::Registers for Model<K> {
    fn read_bytes(&self, register: u32, bytes: usize) -> u32 {
        assert_eq!(bytes, 4);
        let value = self.get(register);
        K::read(self, register);
        value
    }

    fn write_bytes(&self, register: u32, bytes: usize, value: u32) {
        assert_eq!(bytes, 4);
        let length = K::find(|_| 0).map_or(0, |kind| kind.place().length);
        assert!(register.is_multiple_of(4) && u64::from(register) < length);
        if register == CONTROL && value & RESET != 0 {
            self.registers.borrow_mut().clear();
        } else if !K::write(self, register, value) {
            self.set(register, value);
        }
        if register == K::Descriptors::TRANSMIT.tail() {
            self.transmit();
        }
    }
}

impl<K> card::Memory for Model<K> {
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

impl Played for E1000e {
    type Descriptors = Legacy;

    fn received(length: usize) -> u64 {
        length as u64 | e1000e::DONE | e1000e::END_OF_FRAME
    }

    fn note(model: &Model<Self>) {
        model.set_bits(e1000e::register::CAUSES, 0, e1000e::RECEIVED);
    }

    fn interrupt(model: &Model<Self>) {
        use e1000e::register::*;
        let causes = model.get(CAUSES) & model.get(LET);
        if causes != 0 {
            model.send_message();
            let clear = model.get(AUTO_CLEAR) & causes;
            model.set_bits(CAUSES, clear, 0);
            model.set_bits(LET, clear, 0);
        }
    }

    fn write(model: &Model<Self>, register: u32, value: u32) -> bool {
        use e1000e::register::*;
        match register {
            CAUSES => model.set_bits(register, value, 0),
            LET => {
                model.set_bits(register, 0, value);
                Self::interrupt(model);
            }
            MASK => model.set_bits(LET, value, 0),
            _ => return false,
        }
        true
    }
}

impl Played for Igb {
    type Descriptors = Advanced;

    fn received(length: usize) -> u64 {
        (length as u64) << igb::LENGTH | igb::RECEIVED | igb::END_OF_FRAME
    }

    /// Rings are on one by one, and told of what is the card's only then.
    fn is_on(model: &Model<Self>, ring: Ring) -> bool {
        model.get(ring.control()) & igb::RING_ON != 0
            && (ring.0 == igb::register::TRANSMIT_RING.0
                || model.get(igb::register::BUFFERS) == igb::ONE_BUFFER)
    }

    fn note(model: &Model<Self>) {
        use igb::register::*;
        assert_eq!(model.get(RING_MESSAGES), igb::RECEIVED_BY_FIRST);
        model.set_bits(PENDING, 0, igb::FIRST);
    }

    fn interrupt(model: &Model<Self>) {
        use igb::register::*;
        let messages = model.get(PENDING) & model.get(LET_MESSAGES);
        if messages != 0 {
            model.send_message();
            model.set_bits(PENDING, model.get(AUTO_CLEAR) & messages, 0);
        }
    }

    fn write(model: &Model<Self>, register: u32, value: u32) -> bool {
        use igb::register::*;
        match register {
            PENDING => model.set_bits(register, value, 0),
            LET => model.set_bits(register, 0, value),
            MASK => model.set_bits(LET, value, 0),
            LET_MESSAGES => {
                model.set_bits(register, 0, value);
                Self::interrupt(model);
            }
            MASK_MESSAGES => model.set_bits(LET_MESSAGES, value, 0),
            phy::ACCESS => {
                let answer = match value >> phy::REGISTER & 0x1f {
                    _ if model.is_mute.get() => return true,
                    phy::CONTROL if value & phy::WRITE != 0 => {
                        let is_found = value as u16 & phy::FIND_AGAIN != 0;
                        model.set_bits(STATUS, 0, if is_found { HAS_LINK } else { 0 });
                        value
                    }
                    // As Linux leaves it.
                    phy::CONTROL => u32::from(phy::OFF),
                    _ => 0,
                };
                model.set(register, value & 0xffff_0000 | answer & 0xffff | phy::DONE);
            }
            _ => return false,
        }
        true
    }

    fn read(model: &Model<Self>, register: u32) {
        if register == igb::register::CAUSES {
            model.set(register, 0);
        }
    }
}
