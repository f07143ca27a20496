// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of an SJA1000 in PeliCAN mode, and what it does (data sheet of 2000, chapter 6).

use bitflags::bitflags;

use crate::{
    Frame, Settings,
    frame::{EXTENDED, EXTENDED_MASK, MAX_DATA, REMOTE, error},
    settings::Mode,
};

/// How the 32 registers are reached.
pub trait Ports {
    /// Reads the register with that number.
    fn read(&mut self, register: u8) -> u8;
    /// Writes the register with that number.
    fn write(&mut self, register: u8, value: u8);
}

/// Numbers of registers.
pub mod register {
    /// Mode.
    pub const MODE: u8 = 0;
    /// Commands.
    pub const COMMAND: u8 = 1;
    /// Status.
    pub const STATUS: u8 = 2;
    /// Why it interrupts; a look at it takes all back but [`super::Cause::RECEIVED`].
    pub const CAUSE: u8 = 3;
    /// What it interrupts for.
    pub const ENABLED: u8 = 4;
    /// The first of the two registers of bit timing.
    pub const TIMING: u8 = 6;
    /// How its pins are driven.
    pub const OUTPUT: u8 = 8;
    /// Where arbitration was lost.
    pub const ARBITRATION: u8 = 11;
    /// What was wrong on the bus, and where.
    pub const ERROR_CODE: u8 = 12;
    /// Errors of receiving.
    pub const RECEIVE_ERRORS: u8 = 14;
    /// Errors of sending.
    pub const SEND_ERRORS: u8 = 15;
    /// The first frame that was received, or the one to be sent. In reset mode the acceptance code,
    /// and then the acceptance mask.
    pub const FRAME: u8 = 16;
    /// See [`FRAME`].
    pub const MASK: u8 = 20;
    /// Clock divider.
    pub const CLOCK: u8 = 31;
}

/// [`register::MODE`]: it takes no part in the bus, and can be set up.
pub const RESET: u8 = 0x01;
/// There as well: it sends nothing.
pub const LISTEN_ONLY: u8 = 0x02;
/// There as well: it needs nobody who acknowledges.
pub const SELF_TEST: u8 = 0x04;
/// There as well: one acceptance filter, not two.
pub const SINGLE_FILTER: u8 = 0x08;

bitflags! {
    /// [`register::COMMAND`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Command: u8 {
        /// Send the frame.
        const SEND = 0x01;
        /// Try no more; together with another command, try once.
        const ABORT = 0x02;
        /// Forget the first frame that was received.
        const RELEASE = 0x04;
        /// Forget that frames were lost.
        const CLEAR_OVERRUN = 0x08;
        /// Send the frame and hear it.
        const SEND_TO_ITSELF = 0x10;
    }

    /// [`register::STATUS`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Status: u8 {
        /// A frame was received.
        const RECEIVED = 0x01;
        /// Frames were lost.
        const OVERRUN = 0x02;
        /// The next frame to be sent can be written.
        const ROOM = 0x04;
        /// The last one was sent.
        const SENT = 0x08;
        /// There are many errors.
        const ERRORS = 0x40;
        /// It is off the bus.
        const BUS_OFF = 0x80;
    }

    /// [`register::CAUSE`] and [`register::ENABLED`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Cause: u8 {
        /// A frame was received.
        const RECEIVED = 0x01;
        /// There is room for the next frame.
        const ROOM = 0x02;
        /// [`Status::ERRORS`] or [`Status::BUS_OFF`] changed.
        const WARNING = 0x04;
        /// Frames were lost.
        const OVERRUN = 0x08;
        /// It became error passive, or active again.
        const PASSIVE = 0x20;
        /// Arbitration was lost.
        const ARBITRATION = 0x40;
        /// An error on the bus.
        const BUS_ERROR = 0x80;
    }
}

/// Causes of which a frame of errors tells.
const ERRORS: Cause = Cause::WARNING
    .union(Cause::OVERRUN)
    .union(Cause::PASSIVE)
    .union(Cause::ARBITRATION)
    .union(Cause::BUS_ERROR);

/// In the first byte of a frame in registers: its identifier has 29 bits, it asks for data.
const FRAME_EXTENDED: u8 = 0x80;
/// See [`FRAME_EXTENDED`].
const FRAME_REMOTE: u8 = 0x40;

/// PeliCAN mode, its comparator bypassed, no clock for others.
const CLOCK: u8 = 0x80 | 0x40 | 0x08 | 0x07;
/// Normal output, push-pull at both pins, as on boards of Kvaser.
const OUTPUT: u8 = 0x02 | 0x18 | 0xc0;
/// How often it is told to change its mode.
const TRIES: u32 = 100;

/// How a controller takes part in the bus.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// Few errors.
    Active,
    /// Many errors.
    Warning,
    /// So many that it does not interrupt others any more.
    Passive,
    /// Too many: not at all.
    BusOff,
}

/// What a controller tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The frame was sent, or given up; there is room for the next one.
    Sent {
        /// It was on the bus.
        done: bool,
    },
    /// A frame was received, or tells of errors.
    Frame(Frame),
}

/// What went by, for statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Frames that were received.
    pub received: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Times that frames were lost because nobody took them.
    pub overruns: u64,
    /// Times that it went off the bus.
    pub bus_off: u64,
}

/// An SJA1000.
#[derive(Debug)]
pub struct Controller<P> {
    ports: P,
    settings: Settings,
    state: State,
    /// Causes that were looked at, and not yet told.
    pending: Cause,
    /// A look has just found that there is a frame.
    has_frame: bool,
    counters: Counters,
}

impl<P: Ports> Controller<P> {
    /// Finds an SJA1000, and has it take no part in the bus. `None` if there is none.
    pub fn find(mut ports: P, settings: Settings) -> Option<Self> {
        ports.write(register::ENABLED, 0);
        ports.write(register::MODE, RESET);
        let mode = ports.read(register::MODE);
        if mode == 0xff || mode & RESET == 0 {
            return None;
        }
        let (state, pending, has_frame) = (State::Active, Cause::empty(), false);
        let counters = Counters::default();
        let mut found = Self { ports, settings, state, pending, has_frame, counters };
        found.reset().then_some(found)
    }

    /// What it does besides.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// How it takes part in the bus.
    pub fn state(&self) -> State {
        self.state
    }

    /// What went by.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Ends its part in the bus; says whether it did that. A frame on its way is lost.
    fn reset(&mut self) -> bool {
        self.ports.write(register::ENABLED, 0);
        (0..TRIES).any(|_| {
            self.ports.write(register::MODE, RESET);
            self.ports.read(register::MODE) & RESET != 0
        })
    }

    /// Sets it up and has it take part in the bus, receiving all frames. Says whether it does.
    /// Takes some 300 accesses at most.
    pub fn start(&mut self) -> bool {
        if !self.reset() {
            return false;
        }
        let [first, second] = self.settings.bus_timing();
        let setup = [
            (register::CLOCK, CLOCK),
            (register::OUTPUT, OUTPUT),
            (register::TIMING, first),
            (register::TIMING + 1, second),
            (register::SEND_ERRORS, 0),
            (register::RECEIVE_ERRORS, 0),
        ];
        let all_pass =
            (0..4).flat_map(|at| [(register::FRAME + at, 0), (register::MASK + at, 0xff)]);
        for (register, value) in setup.into_iter().chain(all_pass) {
            self.ports.write(register, value);
        }
        self.ports.read(register::ERROR_CODE);
        self.ports.read(register::CAUSE);
        (self.pending, self.has_frame) = (Cause::empty(), false);
        self.state = State::Active;
        let mut mode = SINGLE_FILTER;
        if self.settings.mode.contains(Mode::LISTEN_ONLY) {
            mode |= LISTEN_ONLY;
        }
        if self.settings.mode.intersects(Mode::PRESUME_ACK | Mode::LOOPBACK) {
            mode |= SELF_TEST;
        }
        let runs = (0..TRIES).any(|_| {
            self.ports.write(register::MODE, mode);
            self.ports.read(register::MODE) & RESET == 0
        });
        if runs {
            self.listen();
        }
        runs
    }

    /// Ends its part in the bus, and its interrupts.
    pub fn stop(&mut self) {
        self.reset();
    }

    /// Has it interrupt. Without that it tells no cause either.
    fn listen(&mut self) {
        let mut wanted = Cause::RECEIVED | Cause::ROOM | ERRORS;
        wanted.set(Cause::BUS_ERROR, self.settings.mode.contains(Mode::BERR_REPORTING));
        self.ports.write(register::ENABLED, wanted.bits());
    }

    /// Has it send a frame. The last one was [sent](Event::Sent) before. At most 15 accesses.
    pub fn send(&mut self, frame: &Frame) {
        let id = frame.id();
        let mut information = frame.length();
        if id & REMOTE != 0 {
            information |= FRAME_REMOTE;
        }
        let at = if id & EXTENDED != 0 {
            self.write_id(information | FRAME_EXTENDED, &((id & EXTENDED_MASK) << 3).to_be_bytes())
        } else {
            self.write_id(information, &((id << 5) as u16).to_be_bytes())
        };
        for (at, &byte) in (at..).zip(frame.data()) {
            self.ports.write(at, byte);
        }
        let once = self.settings.mode.contains(Mode::ONE_SHOT);
        let mut command = match self.settings.mode.contains(Mode::LOOPBACK) {
            true => Command::SEND_TO_ITSELF,
            false => Command::SEND,
        };
        command.set(Command::ABORT, once);
        self.command(command);
    }

    fn write_id(&mut self, information: u8, id: &[u8]) -> u8 {
        self.ports.write(register::FRAME, information);
        for (at, &byte) in (register::FRAME + 1..).zip(id) {
            self.ports.write(at, byte);
        }
        register::FRAME + 1 + id.len() as u8
    }

    /// The chip takes a moment for a command, for which the read is there: what it finds may be
    /// from before.
    fn command(&mut self, command: Command) -> Status {
        self.ports.write(register::COMMAND, command.bits());
        self.status()
    }

    fn status(&mut self) -> Status {
        Status::from_bits_retain(self.ports.read(register::STATUS))
    }

    /// Looks why it interrupts: afterwards it does so only for frames that are there, or anew. One
    /// access.
    pub fn look(&mut self) {
        let causes = Cause::from_bits_truncate(self.ports.read(register::CAUSE));
        self.has_frame |= causes.contains(Cause::RECEIVED);
        self.pending |= causes;
    }

    /// Whether there may be more of what a [look](Self::look) found. No access.
    #[inline]
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What it tells next; `None` if there is nothing more of what a [look](Self::look) found. At
    /// most 20 accesses.
    #[inline(always)]
    pub fn event(&mut self) -> Option<Event> {
        if self.take(Cause::ROOM) {
            let is_sent = self.status().contains(Status::SENT);
            let done = is_sent || !self.settings.mode.contains(Mode::ONE_SHOT);
            self.counters.sent += u64::from(done);
            return Some(Event::Sent { done });
        }
        if let Some(frame) = self.frame() {
            return Some(Event::Frame(frame));
        }
        if self.pending.intersects(ERRORS) {
            return Some(Event::Frame(self.error()));
        }
        None
    }

    /// The first frame that was received, if a [look](Self::look) has found any. At most 17
    /// accesses.
    #[inline(always)]
    pub fn frame(&mut self) -> Option<Frame> {
        let may_be_there = self.pending.contains(Cause::RECEIVED);
        let is_there = may_be_there
            && (core::mem::take(&mut self.has_frame) || self.status().contains(Status::RECEIVED));
        if !is_there {
            self.pending.remove(Cause::RECEIVED);
            return None;
        }
        self.counters.received += 1;
        Some(self.receive())
    }

    /// A frame that it gave was lost.
    pub(crate) fn lose(&mut self) {
        self.counters.overruns += 1;
    }

    fn take(&mut self, cause: Cause) -> bool {
        let was = self.pending.contains(cause);
        self.pending.remove(cause);
        was
    }

    /// Takes the first frame that was received.
    #[inline(always)]
    fn receive(&mut self) -> Frame {
        let information = self.ports.read(register::FRAME);
        let is_extended = information & FRAME_EXTENDED != 0;
        let mut at = register::FRAME + 1;
        let mut id = [self.ports.read(at), self.ports.read(at + 1), 0, 0];
        at += 2;
        if is_extended {
            [id[2], id[3]] = [self.ports.read(at), self.ports.read(at + 1)];
            at += 2;
        }
        let id = u32::from_be_bytes(id);
        let mut id = if is_extended { id >> 3 | EXTENDED } else { id >> 21 };
        let length = (information & 0x0f).min(MAX_DATA as u8);
        let mut data = [0; MAX_DATA];
        if information & FRAME_REMOTE != 0 {
            id |= REMOTE;
        } else {
            for (at, byte) in (at..).zip(&mut data[..length.into()]) {
                *byte = self.ports.read(at);
            }
        }
        if !self.command(Command::RELEASE).contains(Status::RECEIVED) {
            self.pending.remove(Cause::RECEIVED);
        }
        Frame::received(id, length, data)
    }

    /// Takes all errors together, as the frame that tells of them.
    #[cold]
    fn error(&mut self) -> Frame {
        let causes = self.pending & ERRORS;
        self.pending.remove(ERRORS);
        let status = self.status();
        let sending = self.ports.read(register::SEND_ERRORS);
        let receiving = self.ports.read(register::RECEIVE_ERRORS);
        let (mut kinds, mut data, mut state) = (0, [0; MAX_DATA], self.state);
        if causes.contains(Cause::OVERRUN) {
            /// CAN_ERR_CRTL_RX_OVERFLOW.
            const LOST: u8 = 0x01;
            kinds |= error::CONTROLLER;
            data[1] = LOST;
            self.counters.overruns += 1;
            self.command(Command::CLEAR_OVERRUN);
        }
        if causes.contains(Cause::WARNING) {
            state = match status {
                _ if status.contains(Status::BUS_OFF) => State::BusOff,
                _ if status.contains(Status::ERRORS) => State::Warning,
                _ => State::Active,
            };
        }
        if state != State::BusOff {
            kinds |= error::COUNTERS;
            [data[6], data[7]] = [sending, receiving];
        }
        if causes.contains(Cause::BUS_ERROR) {
            let code = self.ports.read(register::ERROR_CODE);
            kinds |= error::PROTOCOL | error::BUS;
            // Of a bit, of the form, of stuffing; while it sent.
            let [kind, place] = [code >> 6, code & 0x1f];
            data[2] = [0x01, 0x02, 0x04, 0][usize::from(kind)];
            data[3] = place;
            if code & 0x20 == 0 {
                data[2] |= 0x80;
            }
        }
        if causes.contains(Cause::PASSIVE) {
            const MOST_ACTIVE: u8 = 127;
            state = match sending.max(receiving) > MOST_ACTIVE {
                true => State::Passive,
                false => State::Warning,
            };
        }
        if causes.contains(Cause::ARBITRATION) {
            kinds |= error::LOST_ARBITRATION;
            data[0] = self.ports.read(register::ARBITRATION) & 0x1f;
        }
        if state != self.state {
            let before = core::mem::replace(&mut self.state, state);
            // What tells of sending and of receiving (CAN_ERR_CRTL_*).
            let told = match state {
                State::Active => [0x40, 0x40],
                State::Warning => [0x08, 0x04],
                State::Passive => [0x20, 0x10],
                State::BusOff => [0, 0],
            };
            if state == State::BusOff {
                kinds |= error::BUS_OFF;
                self.counters.bus_off += 1;
            } else if before != State::BusOff {
                kinds |= error::CONTROLLER;
                data[1] |= if sending >= receiving { told[0] } else { 0 };
                data[1] |= if sending <= receiving { told[1] } else { 0 };
            }
        }
        Frame::error(kinds, data)
    }
}
