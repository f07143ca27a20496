// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading from a serial line, writing to it, and waiting until all is sent.

use linux_raw_sys::general as linux;

use crtos_core::{
    task::WaitError,
    time::{self, Nanos},
};
use crtos_tty::{Termios, input::Taken};

use super::line::{Line, Opening};
use crate::{
    abi::{Errno, SysResult},
    files::{Memory, wait},
    signal,
};

/// Bytes that are moved with interrupts off.
const PIECE: usize = 32;
/// Room for what becomes of any byte that is written.
const ROOM: usize = 8;
/// Time in the units of VTIME.
const TENTH: Nanos = Nanos::from_millis(100);
/// As closing_wait: a close does not wait.
pub(super) const NO_WAIT: u16 = 65535;

/// Bytes from which on poll(2) tells that there is something to read.
pub(super) fn least_to_poll(termios: &Termios) -> u32 {
    let [least, time] = [linux::VMIN, linux::VTIME].map(|v| termios.characters[v as usize]);
    match (least, time) {
        (1.., 0) => least.into(),
        _ => 1,
    }
}

/// How a read waits (termios(3)).
#[derive(Clone, Copy)]
struct Patience {
    /// Bytes that end it.
    least: u64,
    /// How long it waits for the first byte; `None` for as long as it takes.
    first: Option<Nanos>,
    /// How long it waits for each further one.
    further: Option<Nanos>,
}

impl Patience {
    fn of(termios: &Termios) -> Self {
        let [least, time] = [linux::VMIN, linux::VTIME].map(|v| termios.characters[v as usize]);
        let time = Nanos(TENTH.0 * u64::from(time));
        match least {
            _ if termios.has_local(linux::ICANON) => Self { least: 1, first: None, further: None },
            0 => Self { least: 1, first: Some(time), further: Some(time) },
            _ => {
                let further = Some(time).filter(|&time| time > Nanos::ZERO);
                Self { least: least.into(), first: None, further }
            }
        }
    }
}

/// Bytes that were taken from the line.
struct Piece {
    bytes: [u8; PIECE],
    taken: Taken,
    /// The program has them.
    is_moved: bool,
    /// There are more.
    is_left: bool,
    /// The other end is to be told to go on.
    is_urgent: bool,
}

impl Piece {
    const fn empty() -> Self {
        let taken = Taken { count: 0, has_ended: false };
        Self { bytes: [0; PIECE], taken, is_moved: true, is_left: false, is_urgent: false }
    }

    /// Takes what there is, up to the end of a line, and moves it to the program if that is
    /// possible at once. What was taken before is forgotten.
    #[inline(always)]
    fn take(&mut self, line: &Line, memory: &mut Memory) {
        let wanted = memory.left().min(PIECE as u64) as usize;
        line.get(|port| {
            self.taken = port.read(&mut self.bytes[..wanted]);
            self.is_moved = memory.write_at_once(&self.bytes[..self.taken.count]);
            self.is_left = port.is_readable(1);
            self.is_urgent = port.is_urgent();
        });
    }

    /// Moves it to the program, if that was not possible at once; says how many bytes it has. May
    /// sleep.
    fn moved(&self, memory: &mut Memory) -> usize {
        match self.is_moved {
            true => self.taken.count,
            false => memory.write(&self.bytes[..self.taken.count]),
        }
    }

    /// Whether a read found something: bytes, or the end of a line.
    fn is_there(&self) -> bool {
        self.taken.count > 0 || self.taken.has_ended
    }
}

/// read(2).
pub(super) fn read(opening: &Opening, memory: &mut Memory, nonblocking: bool) -> SysResult {
    let line = &*opening.line;
    if memory.left() == 0 {
        return Ok(0);
    }
    let _turn = line.reading.take(nonblocking)?;
    let patience = line.get(|port| Patience::of(port.termios()));
    let mut done = 0;
    let mut piece = Piece::empty();
    // The first look does not wait.
    let mut deadline = Some(Nanos::ZERO);
    loop {
        let waited = line.readers.wait_until(
            deadline,
            |_| signal::is_interrupted(),
            || {
                piece.take(line, memory);
                (piece.is_there() || opening.is_hung_up()).then_some(())
            },
        );
        match waited {
            Ok(()) => {}
            Err(WaitError::Timeout) if deadline == Some(Nanos::ZERO) => {}
            Err(WaitError::Timeout) => break,
            Err(WaitError::Interrupted) if done > 0 => break,
            Err(WaitError::Interrupted) => return Err(Errno::RESTART),
        }
        if piece.is_urgent {
            line.send();
        }
        let moved = piece.moved(memory);
        done += moved as u64;
        if moved < piece.taken.count {
            break;
        }
        let is_enough = done >= patience.least && !piece.is_left;
        if piece.taken.has_ended || memory.left() == 0 || is_enough {
            break;
        }
        if piece.is_left {
            deadline = Some(Nanos::ZERO);
            continue;
        }
        if opening.is_hung_up() {
            break;
        }
        let time = if done > 0 { patience.further } else { patience.first };
        if time == Some(Nanos::ZERO) {
            break;
        }
        if nonblocking {
            return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) };
        }
        deadline = time.map(|time| time::now() + time);
    }
    if done == 0 && piece.taken.count > 0 { Err(Errno::EFAULT) } else { Ok(done) }
}

/// write(2).
pub(super) fn write(opening: &Opening, memory: &mut Memory, nonblocking: bool) -> SysResult {
    let line = &*opening.line;
    let _turn = line.writing.take(nonblocking)?;
    let mut done = 0;
    while memory.left() > 0 {
        let mut piece = [0; PIECE];
        let wanted = (memory.left() as usize).min(PIECE);
        let count = memory.read(&mut piece[..wanted]);
        if count == 0 {
            return if done > 0 { Ok(done) } else { Err(Errno::EFAULT) };
        }
        let mut rest = &piece[..count];
        while !rest.is_empty() {
            if opening.is_hung_up() {
                return if done > 0 { Ok(done) } else { Err(Errno::EIO) };
            }
            let taken = line.get(|port| port.write(rest));
            line.send();
            done += taken as u64;
            rest = &rest[taken..];
            if rest.is_empty() {
                break;
            }
            let ready =
                || (line.get(|port| port.room()) >= ROOM || opening.is_hung_up()).then_some(());
            if let Err(error) = wait::take_later(&line.writers, nonblocking, ready) {
                return if done > 0 { Ok(done) } else { Err(error) };
            }
        }
    }
    Ok(done)
}

/// Waits until all is sent, to the last bit, or the line is hung up. EINTR if a signal comes
/// before. The UART does not tell when the last bit is sent, so this looks from time to time.
pub(super) fn drain(opening: &Opening, deadline: Option<Nanos>) -> Result<(), WaitError> {
    const LEAST: Nanos = Nanos::from_micros(100);
    const MOST: Nanos = Nanos::from_millis(10);
    let line = &*opening.line;
    // What a FIFO of characters takes.
    let interval = line.get(|port| {
        let termios = port.termios();
        let bits = u64::from(termios.frame_bits()) * u64::from(port.kind().fifo());
        let second = Nanos::from_millis(1000).0;
        Nanos(bits * second / u64::from(termios.speed().max(1))).max(LEAST).min(MOST)
    });
    loop {
        let sent = || (line.get(|port| port.is_drained()) || opening.is_hung_up()).then_some(());
        let next = time::now() + interval;
        let next = deadline.map_or(next, |deadline| deadline.min(next));
        match line.idlers.wait_until(Some(next), |_| signal::is_interrupted(), sent) {
            Err(WaitError::Timeout) if deadline.is_none_or(|deadline| next < deadline) => {}
            result => return result,
        }
    }
}

/// Before the last opening ends: waits until all is sent, but not longer than the settings say.
pub(super) fn wait_at_close(opening: &Opening) {
    const HUNDREDTH: u64 = 10_000_000;
    let wait = opening.line.kept.lock().closing_wait;
    let deadline = match wait {
        NO_WAIT => return,
        // As long as it takes.
        0 => None,
        wait => Some(time::now() + Nanos(u64::from(wait) * HUNDREDTH)),
    };
    let _ = drain(opening, deadline);
}
