// SPDX-License-Identifier: MIT OR Apache-2.0
//! A 16550A that tests play: the driver runs against it on the host.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, vec::Vec};

use crate::uart::{
    DATA, DIVISOR_ACCESS, Driven, Enabled, FIFO_CLEAR, FIFO_ENABLE, FIFOS_ON, HAS_BYTE, HAS_FAULT,
    HAS_ROOM, IDENTIFICATION, INTERRUPTS, LINE, LINE_STATUS, MODEM, MODEM_CHANGED, MODEM_STATUS,
    NO_INTERRUPT, Ports, SCRATCH, Seen, Status,
};

/// Bytes of a FIFO.
const FIFO: usize = 16;

/// The state of the device.
#[derive(Debug)]
pub struct State {
    /// Bytes that were received, with what is wrong with each.
    received: VecDeque<(u8, Status)>,
    /// Bytes to be sent.
    sending: VecDeque<u8>,
    /// Bytes that were sent.
    pub sent: Vec<u8>,
    /// [`INTERRUPTS`].
    pub enabled: Enabled,
    /// [`LINE`].
    pub line: u8,
    /// The divisor.
    pub divisor: u16,
    /// [`MODEM`].
    pub driven: Driven,
    seen: Seen,
    /// There is room again, of which nobody was told yet.
    has_room: bool,
    has_overrun: bool,
    has_fifos: bool,
    scratch: u8,
    /// Accesses to registers.
    pub accesses: usize,
}

/// A 16550A, and the hand that plays its other end.
#[derive(Clone, Debug)]
pub struct Model(pub Rc<RefCell<State>>);

impl Default for Model {
    fn default() -> Self {
        Self(Rc::new(RefCell::new(State {
            received: VecDeque::new(),
            sending: VecDeque::new(),
            sent: Vec::new(),
            enabled: Enabled::empty(),
            line: 0,
            divisor: 0,
            driven: Driven::empty(),
            seen: Seen::CTS | Seen::DSR | Seen::DCD,
            has_room: false,
            has_overrun: false,
            has_fifos: false,
            scratch: 0,
            accesses: 0,
        })))
    }
}

impl Model {
    /// Bytes come on the line.
    pub fn arrive(&self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.arrive_with(byte, Status::empty()));
    }

    /// A byte comes, with what is wrong with it.
    pub fn arrive_with(&self, byte: u8, fault: Status) {
        let mut state = self.0.borrow_mut();
        match state.received.len() {
            FIFO.. => state.has_overrun = true,
            _ => state.received.push_back((byte, fault)),
        }
    }

    /// The line carries `count` bytes of those that are to be sent.
    pub fn carry(&self, count: usize) {
        let mut state = self.0.borrow_mut();
        for _ in 0..count {
            let Some(byte) = state.sending.pop_front() else { return };
            state.sent.push(byte);
            state.has_room = state.sending.is_empty();
        }
    }

    /// The other end drives its modem lines: of `lines` only CTS, DSR, RI and DCD count.
    pub fn lines(&self, lines: Seen) {
        let mut state = self.0.borrow_mut();
        let changed = state.seen ^ lines;
        state.seen = state.seen & !(Seen::CTS | Seen::DSR | Seen::RI | Seen::DCD) | lines;
        let falls = changed.contains(Seen::RI) && !lines.contains(Seen::RI);
        for (line, mark, counts) in [
            (Seen::CTS, Seen::CTS_CHANGED, true),
            (Seen::DSR, Seen::DSR_CHANGED, true),
            (Seen::DCD, Seen::DCD_CHANGED, true),
            (Seen::RI, Seen::RI_GONE, falls),
        ] {
            if changed.contains(line) && counts {
                state.seen |= mark;
            }
        }
    }
}

impl State {
    fn status(&mut self) -> u8 {
        let mut status = Status::empty();
        if let Some((_, fault)) = self.received.front_mut() {
            status |= Status::RECEIVED | *fault;
            *fault = Status::empty();
        }
        status.set(Status::OVERRUN, core::mem::take(&mut self.has_overrun));
        status.set(Status::ROOM | Status::SENT, self.sending.is_empty());
        status.bits()
    }

    /// Why it interrupts, the most urgent first.
    fn cause(&self) -> Option<u8> {
        const CHANGES: Seen = Seen::CTS_CHANGED
            .union(Seen::DSR_CHANGED)
            .union(Seen::RI_GONE)
            .union(Seen::DCD_CHANGED);
        let has_fault = self.received.front().is_some_and(|(_, fault)| !fault.is_empty());
        let causes = [
            (Enabled::FAULT, has_fault || self.has_overrun, HAS_FAULT),
            (Enabled::RECEIVED, !self.received.is_empty(), HAS_BYTE),
            (Enabled::ROOM, self.has_room, HAS_ROOM),
            (Enabled::MODEM, self.seen.intersects(CHANGES), MODEM_CHANGED),
        ];
        let first = causes
            .into_iter()
            .find(|(enabled, is_so, _)| *is_so && self.enabled.contains(*enabled));
        first.map(|(_, _, cause)| cause)
    }

    /// Whether its line is raised.
    pub fn interrupts(&self) -> bool {
        self.cause().is_some()
    }

    fn identification(&mut self) -> u8 {
        let cause = self.cause();
        if cause == Some(HAS_ROOM) {
            self.has_room = false;
        }
        let fifos = if self.has_fifos { FIFOS_ON } else { 0 };
        fifos | cause.unwrap_or(NO_INTERRUPT)
    }
}

impl Ports for Model {
    fn read(&mut self, register: u8) -> u8 {
        let mut state = self.0.borrow_mut();
        state.accesses += 1;
        let has_divisor = state.line & DIVISOR_ACCESS != 0;
        match register {
            DATA if has_divisor => state.divisor as u8,
            DATA => state.received.pop_front().map_or(0, |(byte, _)| byte),
            INTERRUPTS if has_divisor => (state.divisor >> 8) as u8,
            INTERRUPTS => state.enabled.bits(),
            IDENTIFICATION => state.identification(),
            LINE => state.line,
            MODEM => state.driven.bits(),
            LINE_STATUS => state.status(),
            MODEM_STATUS => {
                let seen = state.seen;
                state.seen &= Seen::CTS | Seen::DSR | Seen::RI | Seen::DCD;
                seen.bits()
            }
            SCRATCH => state.scratch,
            other => panic!("there is no register {other}"),
        }
    }

    fn write(&mut self, register: u8, value: u8) {
        let mut state = self.0.borrow_mut();
        state.accesses += 1;
        let has_divisor = state.line & DIVISOR_ACCESS != 0;
        match register {
            DATA if has_divisor => state.divisor = state.divisor & 0xff00 | u16::from(value),
            DATA => {
                assert!(state.sending.len() < FIFO, "there is no room for a byte to send");
                state.sending.push_back(value);
                state.has_room = false;
            }
            INTERRUPTS if has_divisor => {
                state.divisor = state.divisor & 0xff | u16::from(value) << 8;
            }
            INTERRUPTS => {
                let enabled = Enabled::from_bits_truncate(value);
                if enabled.contains(Enabled::ROOM) && !state.enabled.contains(Enabled::ROOM) {
                    state.has_room = state.sending.is_empty();
                }
                state.enabled = enabled;
            }
            IDENTIFICATION => {
                state.has_fifos = value & FIFO_ENABLE != 0;
                if value & FIFO_CLEAR != 0 {
                    state.received.clear();
                    state.sending.clear();
                }
            }
            LINE => state.line = value,
            MODEM => state.driven = Driven::from_bits_truncate(value),
            SCRATCH => state.scratch = value,
            LINE_STATUS | MODEM_STATUS => {}
            other => panic!("there is no register {other}"),
        }
    }
}
