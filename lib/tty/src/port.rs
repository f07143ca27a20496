// SPDX-License-Identifier: MIT OR Apache-2.0
//! A serial line: a UART, the settings of its terminal, what was received and what is to be sent,
//! flow control in both directions, and counters.

use bitflags::bitflags;
use linux_raw_sys::general as linux;

use crate::{
    echo::Echo,
    input::{self, Effect, Fault, Input, Taken},
    output::{Column, Output, WAKE_BELOW},
    speed::divisor,
    termios::Termios,
    uart::{Cause, Driven, Enabled, Kind, Ports, Seen, Status, Uart},
};

/// Bytes that one [`Port::step`] receives at most, and as many that it sends.
pub const STEP: usize = 4;
/// Steps that one interrupt takes at most: a full FIFO in each direction, and one to see that this
/// was all.
pub const STEPS: usize = 5;
/// Room for received bytes with less than which the sender is stopped; and as many bytes wait for
/// who reads at most when it goes on.
const FLOW: u32 = 128;
/// Speed of a line that is hung up, in baud.
const HUNG_UP_SPEED: u32 = 9600;

bitflags! {
    /// Who is to be woken.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Wake: u8 {
        /// Who reads.
        const READ = 1;
        /// Who writes, or waits until all is sent.
        const WRITE = 2;
        /// Who waits for a modem line (TIOCMIWAIT), or for the carrier.
        const MODEM = 4;
        /// Everybody, because the carrier is gone: the line is to be [hung up](Port::hang_up).
        const HANG_UP = 8;
    }

    /// Why nothing is sent.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    struct Stopped: u8 {
        /// VSTOP came.
        const CHARACTER = 1;
        /// TCOOFF.
        const PROGRAM = 2;
        /// The other end is not ready, by CTS.
        const CTS = 4;
    }
}

/// What has happened on the line, as TIOCGICOUNT tells it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of Linux's structure")]
pub struct Counters {
    pub cts: u32,
    pub dsr: u32,
    pub rng: u32,
    pub dcd: u32,
    pub rx: u32,
    pub tx: u32,
    pub frame: u32,
    pub overrun: u32,
    pub parity: u32,
    pub brk: u32,
    pub buf_overrun: u32,
}

impl Counters {
    /// Returns how many changes of modem lines there were, modulo 2^32.
    pub fn modem_changes(&self) -> u32 {
        let changes = [self.cts, self.dsr, self.rng, self.dcd];
        changes.into_iter().fold(0, u32::wrapping_add)
    }
}

/// What tcflow(3) asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// TCOOFF.
    StopSending,
    /// TCOON.
    Send,
    /// TCIOFF: the other end is to stop.
    StopReceiving,
    /// TCION: the other end is to go on.
    Receive,
}

/// A serial line. Whoever uses it holds it alone; nothing here waits.
pub struct Port<P> {
    uart: Uart<P>,
    /// The speed with divisor 1, in baud.
    highest: u32,
    termios: Termios,
    input: Input,
    output: Output,
    echo: Echo,
    column: Column,
    counters: Counters,
    /// What is driven, by TIOCM_*, as programs see it.
    driven: u32,
    seen: Seen,
    stopped: Stopped,
    /// VSTART or VSTOP for the other end, ahead of all else.
    urgent: Option<u8>,
    /// The other end was told to stop.
    is_throttled: bool,
    is_open: bool,
    /// Bytes for which the UART has room, as far as is known.
    room: u8,
    /// Faults that were told when it was not the byte's turn.
    faults: Status,
    wake: Wake,
}

/// Modem lines that programs can drive.
const DRIVABLE: u32 =
    linux::TIOCM_DTR | linux::TIOCM_RTS | linux::TIOCM_OUT1 | linux::TIOCM_OUT2 | linux::TIOCM_LOOP;

/// What is wrong with a byte.
const FAULTS: Status = Status::PARITY.union(Status::FRAMING).union(Status::BREAK);

impl<P: Ports> Port<P> {
    /// Returns the line of a UART, closed. `highest` is the speed with divisor 1, in baud.
    pub fn new(uart: Uart<P>, highest: u32) -> Self {
        Self {
            uart,
            highest,
            termios: Termios::default(),
            input: Input::default(),
            output: Output::default(),
            echo: Echo::default(),
            column: Column::default(),
            counters: Counters::default(),
            driven: linux::TIOCM_OUT2,
            seen: Seen::empty(),
            stopped: Stopped::empty(),
            urgent: None,
            is_throttled: false,
            is_open: false,
            room: 0,
            faults: Status::empty(),
            wake: Wake::empty(),
        }
    }

    /// Returns which UART it has.
    pub fn kind(&self) -> Kind {
        self.uart.kind()
    }

    /// Returns the settings.
    pub fn termios(&self) -> &Termios {
        &self.termios
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns who is to be woken for what was done since the last time.
    pub fn take_wake(&mut self) -> Wake {
        core::mem::take(&mut self.wake)
    }

    /// Begins to use the UART, if that is not so.
    pub fn open(&mut self) {
        if self.is_open {
            return;
        }
        self.forget();
        self.column = Column::default();
        // As Linux, which begins with the discipline of terminals.
        self.termios.discipline = 0;
        self.is_open = true;
        self.uart.start();
        self.configure();
        self.drive(linux::TIOCM_DTR | linux::TIOCM_RTS, self.termios.speed() != 0);
        self.look_at_modem();
        self.settle_cts();
        self.uart.enable_if(Enabled::MODEM, true);
        self.wake = Wake::empty();
    }

    /// Forgets all that was received or is to be sent, and who stopped whom.
    fn forget(&mut self) {
        self.input.clear();
        self.output.clear();
        self.echo.clear();
        (self.stopped, self.urgent, self.is_throttled) = (Stopped::empty(), None, false);
        (self.room, self.faults) = (0, Status::empty());
    }

    /// Ends the use of the UART, and hangs up if the settings say so (HUPCL).
    pub fn close(&mut self) {
        if !self.is_open {
            return;
        }
        if self.termios.has_control(linux::HUPCL) {
            self.drive(linux::TIOCM_DTR | linux::TIOCM_RTS, false);
        }
        self.is_open = false;
        self.uart.stop();
        self.set_lines();
        self.forget();
    }

    /// Ends what the carrier's loss ends: nothing is received or sent until it is opened anew.
    pub fn hang_up(&mut self) {
        self.close();
        self.wake = Wake::READ | Wake::WRITE | Wake::MODEM;
    }

    /// Sets format, speed and FIFOs of the UART by the settings.
    fn configure(&mut self) {
        let baud = match self.termios.speed() {
            0 => HUNG_UP_SPEED,
            baud => baud,
        };
        self.uart.configure(&self.termios, divisor(self.highest, baud).unwrap_or(1));
    }

    /// Changes the settings. A speed that the UART does not have leaves the one from before.
    pub fn set_termios(&mut self, wanted: &Termios) {
        let before = self.termios;
        let mut after = *wanted;
        let baud = after.speed();
        if baud == 0 || divisor(self.highest, baud).is_some() {
            let is_other = after.control & linux::CBAUD == linux::BOTHER;
            if is_other && baud != 0 {
                after.set_speed(baud);
            }
        } else {
            after.set_speed(before.speed());
        }
        self.termios = after;
        self.input.change(&before, &after);
        if before.has_input(linux::IXON) && !after.has_input(linux::IXON) {
            self.stopped.remove(Stopped::CHARACTER);
        }
        if self.is_open {
            self.configure();
            self.hang_up_or_answer(&before);
            self.settle_cts();
        }
        // What can be read, and whether anything can be sent, may have changed.
        self.wake |= Wake::READ | Wake::WRITE;
    }

    /// B0 hangs up; any other speed after it answers.
    fn hang_up_or_answer(&mut self, before: &Termios) {
        match (before.speed(), self.termios.speed()) {
            (1.., 0) => self.drive(linux::TIOCM_DTR | linux::TIOCM_RTS, false),
            (0, 1..) => {
                let asks = !self.termios.has_control(linux::CRTSCTS) || !self.is_throttled;
                let rts = if asks { linux::TIOCM_RTS } else { 0 };
                self.drive(linux::TIOCM_DTR | rts, true);
            }
            _ => {}
        }
    }

    /// Sends only while the other end is ready, if the settings say so (CRTSCTS).
    fn settle_cts(&mut self) {
        let waits = self.termios.has_control(linux::CRTSCTS) && !self.seen.contains(Seen::CTS);
        self.stopped.set(Stopped::CTS, waits);
    }

    // What is received.

    /// Does a bounded part of what there is to do, whether the UART interrupts for it or not:
    /// receives and sends up to [`STEP`] bytes each. Says whether there may be more to do.
    pub fn step(&mut self) -> bool {
        if !self.is_open {
            return false;
        }
        let mut worked = false;
        for _ in 0..STEP {
            if !self.look_at_line().contains(Status::RECEIVED) {
                break;
            }
            self.receive();
            worked = true;
        }
        self.throttle();
        self.look_at_modem();
        worked |= self.transmit();
        worked && self.is_open
    }

    /// Does a bounded part of what the UART interrupts for, [`STEP`] causes, and sends as many
    /// bytes. Says whether there may be more to do; otherwise its next interrupt is a new edge. A
    /// UART that was silenced is looked at by a [`step`](Self::step).
    pub fn serve(&mut self) -> bool {
        if !self.is_open || self.is_silent() {
            return self.step();
        }
        let mut is_quiet = false;
        for _ in 0..STEP {
            match self.uart.cause() {
                None => {
                    is_quiet = true;
                    break;
                }
                Some(Cause::Byte) => self.receive(),
                Some(Cause::Line) => {
                    if self.look_at_line().contains(Status::RECEIVED) {
                        self.receive();
                    }
                }
                Some(Cause::Room) => self.room = self.uart.kind().fifo(),
                Some(Cause::Modem) => self.look_at_modem(),
            }
        }
        self.throttle();
        if self.room == 0 && self.wants_to_send() {
            self.look_at_line();
        }
        let more = self.transmit();
        (more || !is_quiet) && self.is_open
    }

    /// Has the UART interrupt no more, for good. All else goes on, if somebody makes steps.
    pub fn silence(&mut self) {
        self.uart.silence();
    }

    /// Says whether it was silenced.
    pub fn is_silent(&self) -> bool {
        self.uart.is_silent()
    }

    /// Looks at what was received and sent, and keeps what is told once.
    fn look_at_line(&mut self) -> Status {
        let status = self.uart.status();
        self.counters.overrun += u32::from(status.contains(Status::OVERRUN));
        self.faults |= status & FAULTS;
        if status.contains(Status::ROOM) {
            self.room = self.uart.kind().fifo();
        }
        status
    }

    /// Takes the byte that there is.
    #[inline(always)]
    fn receive(&mut self) {
        let byte = self.uart.receive();
        let faults = core::mem::take(&mut self.faults);
        self.received(byte, faults);
    }

    fn received(&mut self, byte: u8, faults: Status) {
        self.counters.rx = self.counters.rx.wrapping_add(1);
        let effect = match faults.is_empty() {
            true if !self.termios.has_control(linux::CREAD) => return,
            true => self.take_in(byte),
            false => match self.received_faulty(byte, faults) {
                Some(effect) => effect,
                None => return,
            },
        };
        if !effect.is_empty() {
            self.carry_out(effect);
        }
        if self.input.is_ready(&self.termios, 1) {
            self.wake |= Wake::READ;
        }
    }

    #[inline(always)]
    fn take_in(&mut self, byte: u8) -> Effect {
        let is_stopped = self.stopped.contains(Stopped::CHARACTER);
        let (echo, column) = (&mut self.echo, &mut self.column);
        self.input.receive(&self.termios, byte, is_stopped, echo, column)
    }

    /// What follows from a byte with faults; `None` if it is dropped.
    #[cold]
    #[inline(never)]
    fn received_faulty(&mut self, byte: u8, faults: Status) -> Option<Effect> {
        let is_break = faults.contains(Status::BREAK);
        self.counters.brk += u32::from(is_break);
        self.counters.parity += u32::from(!is_break && faults.contains(Status::PARITY));
        self.counters.frame += u32::from(!is_break && faults.contains(Status::FRAMING));
        let termios = &self.termios;
        if !termios.has_control(linux::CREAD) {
            return None;
        }
        let (ignored, told, fault) = match is_break {
            true => (linux::IGNBRK, linux::BRKINT | linux::PARMRK, Fault::Break),
            false => (linux::IGNPAR, linux::INPCK, Fault::Parity),
        };
        if termios.has_input(ignored) {
            return None;
        }
        Some(match termios.has_input(told) {
            true => self.input.receive_fault(termios, byte, fault),
            false => self.take_in(byte),
        })
    }

    #[cold]
    fn carry_out(&mut self, effect: Effect) {
        if effect.contains(Effect::SIGNAL) && !self.termios.has_local(linux::NOFLSH) {
            self.input.clear();
            self.output.clear();
            self.wake |= Wake::WRITE;
        }
        if effect.contains(Effect::START) && !self.stopped.contains(Stopped::PROGRAM) {
            self.stopped.remove(Stopped::CHARACTER);
        }
        if effect.contains(Effect::STOP) {
            self.stopped.insert(Stopped::CHARACTER);
        }
        self.counters.buf_overrun += u32::from(effect.contains(Effect::LOST));
    }

    /// Has the other end stop when room runs low, if the settings say how.
    fn throttle(&mut self) {
        let low = input::SIZE - self.input.kept() < FLOW;
        if self.is_throttled || !low || self.input.is_one_line(&self.termios) {
            return;
        }
        self.is_throttled = true;
        if self.termios.has_input(linux::IXOFF) {
            self.urgent = self.termios.character(linux::VSTOP);
        }
        if self.termios.has_control(linux::CRTSCTS) {
            self.drive(linux::TIOCM_RTS, false);
        }
    }

    /// Has the other end go on when there is room again, or when nobody can make room before it
    /// goes on: a line may not have ended.
    fn unthrottle(&mut self) {
        if !self.is_throttled || self.input.waiting(&self.termios) > FLOW {
            return;
        }
        self.is_throttled = false;
        if self.termios.has_input(linux::IXOFF) {
            // It was not stopped yet.
            let unsent = self.urgent.take().is_some();
            self.urgent = self.termios.character(linux::VSTART).filter(|_| !unsent);
        }
        if self.termios.has_control(linux::CRTSCTS) {
            self.drive(linux::TIOCM_RTS, true);
        }
    }

    /// Says whether a read finds something: a line with ICANON, else `least` bytes.
    pub fn is_readable(&self, least: u32) -> bool {
        self.input.is_ready(&self.termios, least)
    }

    /// Returns how many bytes can be read (FIONREAD).
    pub fn readable(&self) -> u32 {
        self.input.readable(&self.termios)
    }

    /// Reads: bytes, or with ICANON up to the end of a line.
    pub fn read(&mut self, to: &mut [u8]) -> Taken {
        let taken = self.input.take(&self.termios, to);
        self.unthrottle();
        taken
    }

    // What is sent.

    /// Returns how many bytes a program may write before it waits.
    pub fn room(&self) -> usize {
        self.output.room()
    }

    /// Says whether poll(2) tells that it can be written to.
    pub fn is_writable(&self) -> bool {
        self.output.len() < WAKE_BELOW
    }

    /// Returns how many bytes wait to be sent (TIOCOUTQ).
    pub fn unsent(&self) -> usize {
        self.output.len()
    }

    /// Takes what a program writes as far as there is room; returns how many bytes that are.
    /// [`step`](Self::step) sends them.
    pub fn write(&mut self, from: &[u8]) -> usize {
        self.output.write(&self.termios, &mut self.column, from)
    }

    /// Says whether all is sent, to the last bit, or nothing can be sent because the UART is not in
    /// use.
    pub fn is_drained(&mut self) -> bool {
        !self.is_open
            || self.output.is_empty()
                && self.echo.is_empty()
                && self.look_at_line().contains(Status::SENT)
    }

    fn next(&mut self) -> Option<u8> {
        if self.urgent.is_some() {
            return self.urgent.take();
        }
        if !self.stopped.is_empty() {
            return None;
        }
        self.echo.pop().or_else(|| self.output.pop())
    }

    /// Says whether there is something that may be sent.
    fn wants_to_send(&self) -> bool {
        let waits = !self.echo.is_empty() || !self.output.is_empty();
        self.urgent.is_some() || self.stopped.is_empty() && waits
    }

    /// Says whether the other end is to be told to stop, or to go on.
    pub fn is_urgent(&self) -> bool {
        self.urgent.is_some()
    }

    /// Sends up to [`STEP`] bytes. Says whether it could send more at once.
    fn transmit(&mut self) -> bool {
        if !self.wants_to_send() {
            self.uart.enable_if(Enabled::ROOM, false);
            return false;
        }
        let unsent = self.output.len();
        for _ in 0..STEP {
            let Some(room) = self.room.checked_sub(1) else { break };
            let Some(byte) = self.next() else { break };
            self.room = room;
            self.uart.send(byte);
            self.counters.tx = self.counters.tx.wrapping_add(1);
        }
        if self.output.len() < unsent && self.output.len() < WAKE_BELOW {
            self.wake |= Wake::WRITE;
        }
        let more = self.wants_to_send();
        self.uart.enable_if(Enabled::ROOM, more);
        more && self.room > 0
    }

    /// tcflush(3): forgets what was received, or what is to be sent.
    pub fn flush(&mut self, received: bool, unsent: bool) {
        if received {
            self.input.clear();
            self.unthrottle();
        }
        if unsent {
            self.output.clear();
            self.wake |= Wake::WRITE;
        }
    }

    /// tcflow(3).
    pub fn flow(&mut self, flow: Flow) {
        match flow {
            Flow::StopSending => self.stopped.insert(Stopped::PROGRAM),
            // As under Linux, the other end's word counts where no program had stopped it.
            Flow::Send if self.stopped.contains(Stopped::PROGRAM) => {
                self.stopped.remove(Stopped::PROGRAM | Stopped::CHARACTER);
            }
            Flow::Send => {}
            Flow::StopReceiving => self.urgent = self.termios.character(linux::VSTOP),
            Flow::Receive => self.urgent = self.termios.character(linux::VSTART),
        }
    }

    /// Begins or ends to send a break.
    pub fn set_break(&mut self, on: bool) {
        if self.is_open {
            self.uart.set_break(on);
        }
    }

    // Modem lines.

    /// Looks at the modem lines, and counts their changes.
    fn look_at_modem(&mut self) {
        self.seen = self.uart.modem();
        let changed = |mark: Seen| u32::from(self.seen.contains(mark));
        self.counters.cts += changed(Seen::CTS_CHANGED);
        self.counters.dsr += changed(Seen::DSR_CHANGED);
        self.counters.rng += changed(Seen::RI_GONE);
        self.counters.dcd += changed(Seen::DCD_CHANGED);
        if self.seen.contains(Seen::CTS_CHANGED) {
            self.settle_cts();
        }
        if self.seen.bits() & 0x0f != 0 {
            self.wake |= Wake::MODEM;
        }
        if self.seen.contains(Seen::DCD_CHANGED) && !self.has_carrier() {
            self.wake |= Wake::HANG_UP;
        }
    }

    /// Says whether the other end is there, or nobody wants to know (CLOCAL).
    pub fn has_carrier(&self) -> bool {
        self.termios.has_control(linux::CLOCAL) || self.seen.contains(Seen::DCD)
    }

    /// Returns the modem lines by TIOCM_*, those that are driven and those that are seen.
    pub fn lines(&mut self) -> u32 {
        if self.is_open {
            self.look_at_modem();
        }
        let seen = [
            (Seen::CTS, linux::TIOCM_CTS),
            (Seen::DSR, linux::TIOCM_DSR),
            (Seen::RI, linux::TIOCM_RNG),
            (Seen::DCD, linux::TIOCM_CAR),
        ];
        let line = |(line, bit): &(Seen, u32)| if self.seen.contains(*line) { *bit } else { 0 };
        self.driven | seen.iter().map(line).sum::<u32>()
    }

    /// Drives modem lines, by TIOCM_*. Others than those that can be driven count nothing.
    pub fn drive(&mut self, lines: u32, on: bool) {
        let lines = lines & DRIVABLE;
        self.driven = if on { self.driven | lines } else { self.driven & !lines };
        self.set_lines();
    }

    /// On a PC, OUT2 lets the interrupt out: it is on while the line is open, whatever programs
    /// say.
    fn set_lines(&mut self) {
        let mut driven = Driven::empty();
        let is_driven = |line: u32| self.driven & line != 0;
        driven.set(Driven::DTR, is_driven(linux::TIOCM_DTR));
        driven.set(Driven::RTS, is_driven(linux::TIOCM_RTS));
        driven.set(Driven::OUT1, is_driven(linux::TIOCM_OUT1));
        driven.set(Driven::LOOP, is_driven(linux::TIOCM_LOOP));
        driven.set(Driven::OUT2, self.is_open);
        self.uart.drive(driven);
    }
}
