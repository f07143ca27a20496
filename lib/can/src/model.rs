// SPDX-License-Identifier: MIT OR Apache-2.0
//! An SJA1000 that tests play: the driver runs against it on the host.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, vec::Vec};

use crate::{
    Frame,
    frame::{EXTENDED, EXTENDED_MASK, REMOTE},
    sja1000::{Cause, Command, Ports, RESET, Status, register},
};

/// Frames for which it has room, in bytes.
const FIFO: usize = 64;

/// The state of the device.
#[derive(Debug)]
pub struct State {
    /// Registers that only keep what is written.
    pub registers: [u8; 32],
    status: Status,
    causes: Cause,
    /// What was received: the bytes of registers.
    received: VecDeque<Vec<u8>>,
    /// What is written to be sent.
    buffer: [u8; 13],
    /// What was sent.
    pub sent: Vec<Frame>,
    /// It is on the bus alone: nothing that it sends is acknowledged.
    pub is_alone: bool,
    /// Accesses to registers.
    pub accesses: usize,
    /// It does not leave its reset mode, and there is always a cause.
    pub is_broken: bool,
}

/// An SJA1000, and the hand that plays the bus.
#[derive(Clone, Debug)]
pub struct Model(pub Rc<RefCell<State>>);

impl Default for Model {
    fn default() -> Self {
        Self(Rc::new(RefCell::new(State {
            registers: [0; 32],
            status: Status::ROOM | Status::SENT,
            causes: Cause::empty(),
            received: VecDeque::new(),
            buffer: [0; 13],
            sent: Vec::new(),
            is_alone: false,
            accesses: 0,
            is_broken: false,
        })))
    }
}

/// A frame as the registers have it (data sheet, 6.4.4).
fn laid_out(frame: &Frame) -> Vec<u8> {
    let (id, length) = (frame.id(), frame.length());
    let remote = if id & REMOTE != 0 { 0x40 } else { 0 };
    let mut bytes = Vec::new();
    if id & EXTENDED != 0 {
        let id = id & EXTENDED_MASK;
        bytes.push(0x80 | remote | length);
        bytes.extend([id >> 21, id >> 13, id >> 5, id << 3].map(|part| part as u8));
    } else {
        bytes.push(remote | length);
        bytes.extend([id >> 3, id << 5].map(|part| part as u8));
    }
    bytes.extend(frame.data());
    bytes
}

/// The opposite.
fn read_back(bytes: &[u8; 13]) -> Frame {
    let [information, a, b, c, d, ..] = bytes.map(u32::from);
    let length = (information & 0xf).min(8) as u8;
    let (id, at) = match information & 0x80 != 0 {
        true => (EXTENDED | a << 21 | b << 13 | c << 5 | d >> 3, 5),
        false => (a << 3 | b >> 5, 3),
    };
    match information & 0x40 != 0 {
        true => Frame::remote(id, length).unwrap(),
        false => Frame::new(id, &bytes[at..at + usize::from(length)]).unwrap(),
    }
}

impl State {
    /// Whether it interrupts.
    pub fn interrupts(&self) -> bool {
        let enabled = Cause::from_bits_retain(self.registers[usize::from(register::ENABLED)]);
        self.is_broken && !enabled.is_empty() || self.causes.intersects(enabled)
    }

    /// Whether it takes part in the bus.
    pub fn runs(&self) -> bool {
        self.registers[0] & RESET == 0
    }

    /// A frame comes over the bus; says whether there was room.
    pub fn receive(&mut self, frame: &Frame) -> bool {
        let bytes = laid_out(frame);
        let used: usize = self.received.iter().map(Vec::len).sum();
        if !self.runs() {
            return false;
        }
        if used + bytes.len() > FIFO {
            self.status |= Status::OVERRUN;
            self.causes |= Cause::OVERRUN;
            return false;
        }
        self.received.push_back(bytes);
        self.status |= Status::RECEIVED;
        self.causes |= Cause::RECEIVED;
        true
    }

    /// Its counters of errors change, and with them what it says of them (data sheet, 6.4.5).
    pub fn count_errors(&mut self, sending: u16, receiving: u8) {
        let before = self.status;
        let was_passive = self.is_passive();
        self.registers[usize::from(register::SEND_ERRORS)] = sending.min(127) as u8;
        self.registers[usize::from(register::RECEIVE_ERRORS)] = receiving;
        if sending < 256 {
            self.registers[usize::from(register::SEND_ERRORS)] = sending as u8;
        }
        self.status.set(Status::ERRORS, sending >= 96 || receiving >= 96);
        if sending >= 256 {
            self.status |= Status::BUS_OFF | Status::ERRORS;
            self.registers[0] |= RESET;
        }
        if (self.status ^ before).intersects(Status::ERRORS | Status::BUS_OFF) {
            self.causes |= Cause::WARNING;
        }
        if self.is_passive() != was_passive && sending < 256 {
            self.causes |= Cause::PASSIVE;
        }
    }

    fn is_passive(&self) -> bool {
        let counter = |at: u8| self.registers[usize::from(at)];
        counter(register::SEND_ERRORS) > 127 || counter(register::RECEIVE_ERRORS) > 127
    }

    /// An error on the bus, with the code that tells of it; arbitration that was lost.
    pub fn disturb(&mut self, code: u8, arbitration: Option<u8>) {
        self.registers[usize::from(register::ERROR_CODE)] = code;
        self.causes |= Cause::BUS_ERROR;
        if let Some(bit) = arbitration {
            self.registers[usize::from(register::ARBITRATION)] = bit;
            self.causes |= Cause::ARBITRATION;
        }
    }

    /// Somebody acknowledges what waits to be sent.
    pub fn acknowledge(&mut self) {
        if !self.status.contains(Status::SENT) {
            self.sent.push(read_back(&self.buffer));
            self.status |= Status::ROOM | Status::SENT;
            self.causes |= Cause::ROOM;
        }
    }

    fn command(&mut self, command: Command) {
        if command.intersects(Command::SEND | Command::SEND_TO_ITSELF) && self.runs() {
            self.status.remove(Status::ROOM | Status::SENT);
            if !self.is_alone {
                self.acknowledge();
            } else if command.contains(Command::ABORT) {
                self.status |= Status::ROOM;
                self.causes |= Cause::ROOM;
            }
            if command.contains(Command::SEND_TO_ITSELF) {
                let frame = read_back(&self.buffer);
                self.receive(&frame);
            }
        }
        if command.contains(Command::RELEASE) {
            self.received.pop_front();
            if self.received.is_empty() {
                self.status.remove(Status::RECEIVED);
                self.causes.remove(Cause::RECEIVED);
            }
        }
        if command.contains(Command::CLEAR_OVERRUN) {
            self.status.remove(Status::OVERRUN);
        }
    }
}

impl Ports for Model {
    fn read(&mut self, number: u8) -> u8 {
        let mut state = self.0.borrow_mut();
        state.accesses += 1;
        match number {
            register::STATUS => state.status.bits(),
            register::CAUSE => {
                let all = state.causes;
                state.causes &= Cause::RECEIVED;
                if state.is_broken { 0xff } else { all.bits() }
            }
            register::FRAME..register::CLOCK if state.runs() => {
                let at = usize::from(number - register::FRAME);
                state.received.front().and_then(|bytes| bytes.get(at)).copied().unwrap_or(0xa5)
            }
            _ => state.registers[usize::from(number)],
        }
    }

    fn write(&mut self, number: u8, value: u8) {
        let mut state = self.0.borrow_mut();
        state.accesses += 1;
        match number {
            register::MODE if state.is_broken => {}
            register::MODE => {
                if state.runs() && value & RESET != 0 {
                    state.received.clear();
                    state.causes = Cause::empty();
                    state.status = Status::ROOM | Status::SENT;
                }
                state.registers[0] = value;
            }
            register::COMMAND => state.command(Command::from_bits_truncate(value)),
            register::STATUS | register::CAUSE => {}
            register::FRAME..register::CLOCK if state.runs() => {
                if let Some(byte) = state.buffer.get_mut(usize::from(number - register::FRAME)) {
                    *byte = value;
                }
            }
            _ => state.registers[usize::from(number)] = value,
        }
    }
}
