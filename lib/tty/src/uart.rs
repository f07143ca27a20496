// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of a 16550 and of its elder relatives (National Semiconductor PC16550D, 8).

use bitflags::bitflags;
use linux_raw_sys::general as linux;

use crate::termios::Termios;

/// How the eight registers are reached.
pub trait Ports {
    /// Reads the register with that number, 0 to 7.
    fn read(&mut self, register: u8) -> u8;
    /// Writes the register with that number, 0 to 7.
    fn write(&mut self, register: u8, value: u8);
}

/// Received byte, or byte to send; low half of the divisor.
pub const DATA: u8 = 0;
/// Which interrupts are enabled; high half of the divisor.
pub const INTERRUPTS: u8 = 1;
/// Read: why it interrupts. Written: FIFOs.
pub const IDENTIFICATION: u8 = 2;
/// Format of characters, break, and access to the divisor.
pub const LINE: u8 = 3;
/// Modem lines that it drives.
pub const MODEM: u8 = 4;
/// What was received and sent.
pub const LINE_STATUS: u8 = 5;
/// Modem lines that it sees.
pub const MODEM_STATUS: u8 = 6;
/// Kept for nothing.
pub const SCRATCH: u8 = 7;

/// In [`IDENTIFICATION`]: no interrupt is pending.
pub const NO_INTERRUPT: u8 = 1;
/// There as well: what an interrupt is for. Bytes that wait for others have [`TIMEOUT`] besides.
pub const CAUSE: u8 = 6;
/// See [`CAUSE`].
pub const TIMEOUT: u8 = 8;
/// In [`CAUSE`]: a modem line has changed.
pub const MODEM_CHANGED: u8 = 0;
/// There as well: there is room for bytes to send. A look at it takes that back.
pub const HAS_ROOM: u8 = 2;
/// There as well: a byte has come, with which nothing is wrong.
pub const HAS_BYTE: u8 = 4;
/// There as well: something is wrong with a byte.
pub const HAS_FAULT: u8 = 6;
/// There as well: the FIFOs of a 16550A are on.
pub const FIFOS_ON: u8 = 0xc0;
/// Written there: turns both FIFOs on, and clears the one that receives or that sends.
pub const FIFO_ENABLE: u8 = 1;
/// See [`FIFO_ENABLE`].
pub const FIFO_CLEAR: u8 = 6;
/// In [`LINE`]: the first two registers are the divisor.
pub const DIVISOR_ACCESS: u8 = 0x80;
/// There as well: it sends a break.
pub const SEND_BREAK: u8 = 0x40;

bitflags! {
    /// [`INTERRUPTS`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Enabled: u8 {
        /// Bytes have come.
        const RECEIVED = 1;
        /// There is room for bytes to send.
        const ROOM = 2;
        /// Something was wrong with a byte.
        const FAULT = 4;
        /// A modem line has changed.
        const MODEM = 8;
    }

    /// [`LINE_STATUS`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Status: u8 {
        /// There is a received byte.
        const RECEIVED = 1;
        /// A byte came for which there was no room.
        const OVERRUN = 2;
        /// The byte's parity is wrong.
        const PARITY = 4;
        /// The byte's stop bit is missing.
        const FRAMING = 8;
        /// It is a break.
        const BREAK = 0x10;
        /// The FIFO that sends is empty.
        const ROOM = 0x20;
        /// The last bit is sent.
        const SENT = 0x40;
    }

    /// [`MODEM`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Driven: u8 {
        /// Data terminal ready.
        const DTR = 1;
        /// Request to send.
        const RTS = 2;
        /// Goes nowhere on a PC.
        const OUT1 = 4;
        /// Lets the interrupt out on a PC.
        const OUT2 = 8;
        /// What it sends it receives, and what it drives it sees.
        const LOOP = 0x10;
    }

    /// [`MODEM_STATUS`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Seen: u8 {
        /// CTS has changed.
        const CTS_CHANGED = 1;
        /// DSR has changed.
        const DSR_CHANGED = 2;
        /// RI has gone.
        const RI_GONE = 4;
        /// DCD has changed.
        const DCD_CHANGED = 8;
        /// Clear to send.
        const CTS = 0x10;
        /// Data set ready.
        const DSR = 0x20;
        /// Ring indicator.
        const RI = 0x40;
        /// Data carrier detect.
        const DCD = 0x80;
    }
}

/// Which relative it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It has no FIFOs that work.
    Uart16450,
    /// It has FIFOs of 16 bytes.
    Uart16550A,
}

impl Kind {
    /// Bytes that have room to be sent once [`Status::ROOM`] says so.
    pub const fn fifo(self) -> u8 {
        match self {
            Self::Uart16450 => 1,
            Self::Uart16550A => 16,
        }
    }

    /// Linux's number of it (`PORT_*`).
    pub const fn number(self) -> u32 {
        match self {
            Self::Uart16450 => 2,
            Self::Uart16550A => 4,
        }
    }
}

/// Why it interrupts, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// [`Status`] tells.
    Line,
    /// There is a byte, with which nothing is wrong.
    Byte,
    /// There is room for as many bytes as it has at most.
    Room,
    /// A modem line has changed.
    Modem,
}

/// A UART.
pub struct Uart<P> {
    ports: P,
    kind: Kind,
    /// What the registers that cannot be read back as they are hold.
    line: u8,
    enabled: Enabled,
    /// It is not to interrupt, whatever is enabled.
    is_silent: bool,
}

impl<P: Ports> Uart<P> {
    /// Returns the UART behind `ports`, silent; `None` if there is none.
    pub fn find(mut ports: P) -> Option<Self> {
        ports.write(LINE, 0);
        // The upper half of this register is zero, and the lower half keeps what is written.
        ports.write(INTERRUPTS, 0x0f);
        let all = ports.read(INTERRUPTS);
        ports.write(INTERRUPTS, 0);
        if all != 0x0f || ports.read(INTERRUPTS) != 0 {
            return None;
        }
        ports.write(IDENTIFICATION, FIFO_ENABLE);
        let has_fifos = ports.read(IDENTIFICATION) & FIFOS_ON == FIFOS_ON;
        ports.write(IDENTIFICATION, 0);
        let kind = if has_fifos { Kind::Uart16550A } else { Kind::Uart16450 };
        Some(Self { ports, kind, line: 0, enabled: Enabled::empty(), is_silent: false })
    }

    /// Says which kind it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Begins to receive: forgets what came before.
    pub fn start(&mut self) {
        self.clear_fifos();
        for register in [LINE_STATUS, DATA, IDENTIFICATION, MODEM_STATUS] {
            self.ports.read(register);
        }
        self.enable(Enabled::RECEIVED | Enabled::FAULT);
    }

    /// Interrupts no more, and sends no break.
    pub fn stop(&mut self) {
        self.enable(Enabled::empty());
        self.set_break(false);
        self.clear_fifos();
        self.ports.read(DATA);
    }

    /// Forgets what is in the FIFOs.
    pub fn clear_fifos(&mut self) {
        if self.kind == Kind::Uart16550A {
            self.ports.write(IDENTIFICATION, FIFO_ENABLE);
            self.ports.write(IDENTIFICATION, FIFO_ENABLE | FIFO_CLEAR);
        }
    }

    /// Sets format and divisor. It interrupts for each byte: with more at once, the last ones would
    /// wait for as long as four others take.
    pub fn configure(&mut self, termios: &Termios, divisor: u16) {
        let mut line = (termios.bits() - 5) as u8 | self.line & SEND_BREAK;
        let control = |flag: u32, bit: u8| if termios.has_control(flag) { bit } else { 0 };
        line |= control(linux::CSTOPB, 4) | control(linux::PARENB, 8);
        if termios.has_control(linux::PARENB) {
            line |= if termios.has_control(linux::PARODD) { 0 } else { 0x10 };
            line |= control(linux::CMSPAR, 0x20);
        }
        let [low, high] = divisor.to_le_bytes();
        self.ports.write(LINE, line | DIVISOR_ACCESS);
        self.ports.write(DATA, low);
        self.ports.write(INTERRUPTS, high);
        self.ports.write(LINE, line);
        self.line = line;
        if self.kind == Kind::Uart16550A {
            self.ports.write(IDENTIFICATION, FIFO_ENABLE);
        }
    }

    /// Begins or ends to send a break.
    pub fn set_break(&mut self, on: bool) {
        self.line = if on { self.line | SEND_BREAK } else { self.line & !SEND_BREAK };
        self.ports.write(LINE, self.line);
    }

    fn enable(&mut self, enabled: Enabled) {
        self.enabled = enabled;
        let enabled = if self.is_silent { Enabled::empty() } else { enabled };
        self.ports.write(INTERRUPTS, enabled.bits());
    }

    /// Says whether it was silenced.
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Has it interrupt no more, for good.
    pub fn silence(&mut self) {
        self.is_silent = true;
        self.enable(self.enabled);
    }

    /// Has it interrupt for these reasons, or not any more.
    pub fn enable_if(&mut self, which: Enabled, on: bool) {
        let mut enabled = self.enabled;
        enabled.set(which, on);
        if enabled != self.enabled {
            self.enable(enabled);
        }
    }

    /// Why it interrupts; `None` if it does not. [`Cause::Room`] is told once.
    pub fn cause(&mut self) -> Option<Cause> {
        let identification = self.ports.read(IDENTIFICATION);
        if identification & NO_INTERRUPT != 0 {
            return None;
        }
        Some(match identification & (CAUSE | TIMEOUT) {
            HAS_BYTE => Cause::Byte,
            HAS_ROOM => Cause::Room,
            MODEM_CHANGED => Cause::Modem,
            // Some chips tell of bytes that wait when there are none.
            _ => Cause::Line,
        })
    }

    /// What was received and sent. Faults are told once.
    pub fn status(&mut self) -> Status {
        Status::from_bits_truncate(self.ports.read(LINE_STATUS))
    }

    /// Takes the received byte.
    pub fn receive(&mut self) -> u8 {
        self.ports.read(DATA)
    }

    /// Has a byte be sent, for which there is room.
    pub fn send(&mut self, byte: u8) {
        self.ports.write(DATA, byte);
    }

    /// The modem lines that it sees. Changes are told once.
    pub fn modem(&mut self) -> Seen {
        Seen::from_bits_retain(self.ports.read(MODEM_STATUS))
    }

    /// Drives modem lines.
    pub fn drive(&mut self, lines: Driven) {
        self.ports.write(MODEM, lines.bits());
    }
}
