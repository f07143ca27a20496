// SPDX-License-Identifier: MIT OR Apache-2.0
//! ioctl of a serial line (ioctl_tty(2)).
//!
//! The line is nobody's controlling terminal, so what asks for process groups and sessions fails
//! with ENOTTY, as it does under Linux for who opened the line with O_NOCTTY.

use core::{ops::Range, sync::atomic::Ordering};

use crtos_abi::UserAddr;
use linux_raw_sys::{general as linux, ioctl};

use crtos_core::{
    task::WaitError,
    time::{self, Nanos},
};
use crtos_tty::{
    Port, Termios,
    port::{Counters, Flow},
    termios,
};

use super::{
    FIRST_NUMBER, Ports,
    line::{Line, Opening},
    transfer,
};
use crate::{
    abi::{Errno, SysResult},
    memory::user,
    remote, signal,
};

/// How long TCSBRK sends a break, and TCSBRKP if it is told 0.
const BREAK: Nanos = Nanos::from_millis(250);
/// `ASYNC_USR_MASK`, flags of a serial line that whoever has it may change.
const USER_FLAGS: u32 = 0x1430 | LOW_LATENCY;
/// `ASYNC_LOW_LATENCY`.
const LOW_LATENCY: u32 = 1 << 13;
/// `ASYNC_SKIP_TEST` and `ASYNC_BOOT_AUTOCONF`, which Linux sets for a UART that firmware names.
const FIRMWARE_FLAGS: u32 = 1 << 6 | 1 << 28;
/// The line discipline of terminals.
const N_TTY: u32 = 0;
/// `TIOCSER_TEMT`: all is sent.
const ALL_SENT: u32 = 1;

/// ioctl(2).
pub(super) fn ioctl(opening: &Opening, request: u32, argument: u64) -> SysResult {
    let line = &*opening.line;
    let at = UserAddr::new(argument);
    if opening.is_hung_up() {
        return Err(Errno::EIO);
    }
    match request {
        ioctl::TCGETS => user::write(at, &line.get(|port| port.termios().to_bytes()))?,
        ioctl::TCGETS2 => user::write(at, &line.get(|port| port.termios().to_bytes_2()))?,
        ioctl::TCGETA => user::write(at, &line.get(old_termios))?,
        ioctl::TCSETS => set(opening, &wanted(line, at)?, When::Now)?,
        ioctl::TCSETSW => set(opening, &wanted(line, at)?, When::Sent)?,
        ioctl::TCSETSF => set(opening, &wanted(line, at)?, When::SentAndFlushed)?,
        ioctl::TCSETS2 => set(opening, &wanted_2(at)?, When::Now)?,
        ioctl::TCSETSW2 => set(opening, &wanted_2(at)?, When::Sent)?,
        ioctl::TCSETSF2 => set(opening, &wanted_2(at)?, When::SentAndFlushed)?,
        ioctl::TCSETA => set(opening, &wanted_old(line, at)?, When::Now)?,
        ioctl::TCSETAW => set(opening, &wanted_old(line, at)?, When::Sent)?,
        ioctl::TCSETAF => set(opening, &wanted_old(line, at)?, When::SentAndFlushed)?,

        ioctl::TCSBRK if argument != 0 => drain(opening)?,
        ioctl::TCSBRK => send_break(opening, BREAK)?,
        ioctl::TCSBRKP => send_break(
            opening,
            match argument as u32 {
                0 => BREAK,
                tenths => Nanos(u64::from(tenths) * Nanos::from_millis(100).0),
            },
        )?,
        ioctl::TIOCSBRK => {
            drain(opening)?;
            line.change(|port| port.set_break(true));
        }
        ioctl::TIOCCBRK => line.change(|port| port.set_break(false)),
        ioctl::TCXONC => {
            let flow = match argument as u32 {
                linux::TCOOFF => Flow::StopSending,
                linux::TCOON => Flow::Send,
                linux::TCIOFF => Flow::StopReceiving,
                linux::TCION => Flow::Receive,
                _ => return Err(Errno::EINVAL),
            };
            line.change(|port| port.flow(flow));
        }
        ioctl::TCFLSH => {
            let (received, unsent) = match argument as u32 {
                linux::TCIFLUSH => (true, false),
                linux::TCOFLUSH => (false, true),
                linux::TCIOFLUSH => (true, true),
                _ => return Err(Errno::EINVAL),
            };
            line.change(|port| port.flush(received, unsent));
        }
        ioctl::FIONREAD => user::write_u32(at, line.get(|port| port.readable()))?,
        ioctl::TIOCOUTQ => user::write_u32(at, line.get(|port| port.unsent()) as u32)?,

        ioctl::TIOCMGET => user::write_u32(at, line.change(|port| port.lines()))?,
        ioctl::TIOCMSET => {
            let lines = user::read_u32(at)?;
            line.change(|port| (port.drive(!lines, false), port.drive(lines, true)));
        }
        ioctl::TIOCMBIS | ioctl::TIOCMBIC => {
            let lines = user::read_u32(at)?;
            line.change(|port| port.drive(lines, request == ioctl::TIOCMBIS));
        }
        ioctl::TIOCMIWAIT => wait_for_modem(opening, argument as u32)?,
        ioctl::TIOCGICOUNT => {
            user::write(at, counters(line.get(|port| port.counters())).as_flattened())?
        }

        ioctl::TIOCGSERIAL => user::write(at, &serial(line))?,
        ioctl::TIOCSSERIAL => set_serial(line, at)?,
        ioctl::TIOCSERGETLSR => {
            let sent = line.get(|port| port.is_drained());
            user::write_u32(at, if sent { ALL_SENT } else { 0 })?;
        }
        // This UART does not turn the driver of the line around.
        ioctl::TIOCGRS485 => user::write(at, &[0; 32])?,
        ioctl::TIOCEXCL => line.is_exclusive.store(true, Ordering::Relaxed),
        ioctl::TIOCNXCL => line.is_exclusive.store(false, Ordering::Relaxed),
        ioctl::TIOCGEXCL => {
            user::write_u32(at, line.is_exclusive.load(Ordering::Relaxed).into())?;
        }
        ioctl::TIOCGSOFTCAR => {
            user::write_u32(at, line.get(|port| port.termios().has_control(linux::CLOCAL).into()))?;
        }
        ioctl::TIOCSSOFTCAR => {
            let on = user::read_u32(at)? != 0;
            let mut termios = line.get(|port| *port.termios());
            termios.control &= !linux::CLOCAL;
            termios.control |= if on { linux::CLOCAL } else { 0 };
            line.change(|port| port.set_termios(&termios));
        }
        ioctl::TIOCGWINSZ => {
            let size = line.kept.lock().size;
            user::write(at, &size)?;
        }
        ioctl::TIOCSWINSZ => {
            let mut size = [0; 8];
            user::read(at, &mut size)?;
            line.kept.lock().size = size;
        }
        ioctl::TIOCGETD => user::write_u32(at, N_TTY)?,
        ioctl::TIOCSETD => {
            drain(opening)?;
            if user::read_u32(at)? != N_TTY {
                return Err(Errno::EINVAL);
            }
        }
        ioctl::TIOCGDEV => user::write_u32(at, FIRST_NUMBER as u32 + line.facts.index as u32)?,
        ioctl::TIOCSTI | ioctl::TIOCSCTTY => return Err(Errno::EPERM),
        // What Linux's console says goes elsewhere already.
        ioctl::TIOCCONS if remote::is_capable(linux::CAP_SYS_ADMIN)? => {
            return Err(Errno::EBUSY);
        }
        ioctl::TIOCCONS => return Err(Errno::EPERM),
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

/// When settings change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// At once.
    Now,
    /// When all is sent.
    Sent,
    /// The same, and what was received is forgotten.
    SentAndFlushed,
}

/// Reads a `struct termios`.
fn wanted(line: &Line, at: UserAddr) -> Result<Termios, Errno> {
    let mut bytes = [0; termios::SIZE];
    user::read(at, &mut bytes)?;
    Ok(line.get(|port| Termios::from_bytes(&bytes, port.termios())))
}

/// Reads a `struct termios2`.
fn wanted_2(at: UserAddr) -> Result<Termios, Errno> {
    let mut bytes = [0; termios::SIZE_2];
    user::read(at, &mut bytes)?;
    Ok(Termios::from_bytes_2(&bytes))
}

/// Bytes of a `struct termio`: four flags of 16 bits, the line discipline, eight characters.
const OLD_SIZE: usize = 18;

/// Returns the `struct termio`.
fn old_termios(port: &mut Port<Ports>) -> [u8; OLD_SIZE] {
    let termios = port.termios();
    let mut bytes = [0; OLD_SIZE];
    let flags = [termios.input, termios.output, termios.control, termios.local];
    for (place, flags) in bytes.chunks_exact_mut(2).zip(flags) {
        place.copy_from_slice(&(flags as u16).to_le_bytes());
    }
    bytes[8] = termios.discipline;
    bytes[9..17].copy_from_slice(&termios.characters[..8]);
    bytes
}

/// Reads a `struct termio`; what it does not have stays.
fn wanted_old(line: &Line, at: UserAddr) -> Result<Termios, Errno> {
    let mut bytes = [0; OLD_SIZE];
    user::read(at, &mut bytes)?;
    let mut wanted = line.get(|port| *port.termios());
    let flags = [&mut wanted.input, &mut wanted.output, &mut wanted.control, &mut wanted.local];
    for (flags, low) in flags.into_iter().zip(bytes.chunks_exact(2)) {
        *flags = *flags & !0xffff | u32::from(u16::from_le_bytes([low[0], low[1]]));
    }
    wanted.discipline = bytes[8];
    wanted.characters[..8].copy_from_slice(&bytes[9..17]);
    Ok(Termios::from_bytes(&wanted.to_bytes(), &wanted))
}

/// Changes the settings.
fn set(opening: &Opening, wanted: &Termios, when: When) -> Result<(), Errno> {
    let line = &*opening.line;
    // As under Linux, nothing is written while this waits, by the old settings or the new ones.
    let turn = if when == When::Now { None } else { Some(line.writing.take(false)?) };
    if turn.is_some() {
        transfer::drain(opening, None).map_err(|_| Errno::RESTART)?;
    }
    line.change(|port| {
        if when == When::SentAndFlushed {
            port.flush(true, false);
        }
        port.set_termios(wanted);
    });
    Ok(())
}

/// tcdrain(3).
fn drain(opening: &Opening) -> Result<(), Errno> {
    transfer::drain(opening, None).map_err(|_| Errno::EINTR)
}

/// tcsendbreak(3).
fn send_break(opening: &Opening, duration: Nanos) -> Result<(), Errno> {
    drain(opening)?;
    let line = &*opening.line;
    // Nothing is written meanwhile.
    let _turn = line.writing.take(false).map_err(|_| Errno::EINTR)?;
    line.change(|port| port.set_break(true));
    let end = time::now() + duration;
    let over = || opening.is_hung_up().then_some(());
    let waited = line.idlers.wait_until(Some(end), |_| signal::is_interrupted(), over);
    line.change(|port| port.set_break(false));
    match waited {
        Err(WaitError::Interrupted) => Err(Errno::EINTR),
        _ => Ok(()),
    }
}

/// Waits until one of the modem lines `lines` (TIOCM_*) changes; of the ring indicator, until it
/// goes.
fn wait_for_modem(opening: &Opening, lines: u32) -> Result<(), Errno> {
    let line = &*opening.line;
    let before = line.change(|port| (port.lines(), port.counters()).1);
    let changed = || {
        let now = line.get(|port| port.counters());
        let watched = [
            (linux::TIOCM_RNG, before.rng, now.rng),
            (linux::TIOCM_DSR, before.dsr, now.dsr),
            (linux::TIOCM_CAR, before.dcd, now.dcd),
            (linux::TIOCM_CTS, before.cts, now.cts),
        ];
        if opening.is_hung_up() {
            return Some(Err(Errno::EIO));
        }
        let has = |&(line, before, now): &(u32, u32, u32)| lines & line != 0 && before != now;
        watched.iter().any(has).then_some(Ok(()))
    };
    line.wait_for_modem(changed).map_err(|_| Errno::RESTART)?
}

/// Returns the `struct serial_icounter_struct`.
fn counters(counters: Counters) -> [[u8; 4]; 20] {
    let Counters { cts, dsr, rng, dcd, rx, tx, frame, overrun, parity, brk, buf_overrun } =
        counters;
    let known = [cts, dsr, rng, dcd, rx, tx, frame, overrun, parity, brk, buf_overrun];
    let mut words = [[0; 4]; 20];
    for (place, word) in words.iter_mut().zip(known) {
        *place = word.to_le_bytes();
    }
    words
}

/// Where fields of a `struct serial_struct` lie.
mod field {
    use core::ops::Range;

    pub const SIZE: usize = 72;
    pub const KIND: Range<usize> = 0..4;
    pub const INDEX: Range<usize> = 4..8;
    pub const PORT: Range<usize> = 8..12;
    pub const INTERRUPT: Range<usize> = 12..16;
    pub const FLAGS: Range<usize> = 16..20;
    pub const FIFO: Range<usize> = 20..24;
    pub const SPEED: Range<usize> = 28..32;
    pub const CLOSE_DELAY: Range<usize> = 32..34;
    pub const CLOSING_WAIT: Range<usize> = 40..42;
}

/// Returns the `struct serial_struct`.
fn serial(line: &Line) -> [u8; field::SIZE] {
    let kind = line.kind();
    let kept = *line.kept.lock();
    let mut bytes = [0; field::SIZE];
    for (place, word) in [
        (field::KIND, kind.number()),
        (field::INDEX, line.facts.index as u32),
        (field::PORT, line.facts.first_port.into()),
        (field::INTERRUPT, line.attendance.line()),
        (field::FLAGS, FIRMWARE_FLAGS | kept.flags),
        (field::FIFO, kind.fifo().into()),
        (field::SPEED, line.facts.highest),
    ] {
        bytes[place].copy_from_slice(&word.to_le_bytes());
    }
    bytes[field::CLOSE_DELAY].copy_from_slice(&kept.close_delay.to_le_bytes());
    bytes[field::CLOSING_WAIT].copy_from_slice(&kept.closing_wait.to_le_bytes());
    bytes
}

/// TIOCSSERIAL: changes how a close waits, and flags that are only kept. The UART itself stays what
/// it is: EINVAL for all else. As under Linux, EPERM without CAP_SYS_ADMIN for all but some flags:
/// others that have the line open wait so when they close it.
fn set_serial(line: &Line, at: UserAddr) -> Result<(), Errno> {
    let mut wanted = [0; field::SIZE];
    user::read(at, &mut wanted)?;
    let now = serial(line);
    let differs = |field: Range<usize>| wanted[field.clone()] != now[field];
    let flags = |bytes: &[u8; field::SIZE]| {
        u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]])
    };
    let fixed = [field::KIND, field::PORT, field::INTERRUPT, field::FIFO, field::SPEED];
    let is_fixed = fixed.into_iter().any(differs);
    let waits_otherwise = [field::CLOSE_DELAY, field::CLOSING_WAIT].into_iter().any(differs);
    let is_privileged =
        is_fixed || waits_otherwise || (flags(&wanted) ^ flags(&now)) & !USER_FLAGS != 0;
    if is_privileged && !remote::is_capable(linux::CAP_SYS_ADMIN)? {
        return Err(Errno::EPERM);
    }
    if is_fixed {
        return Err(Errno::EINVAL);
    }
    let half =
        |field: Range<usize>| u16::from_le_bytes([wanted[field.start], wanted[field.start + 1]]);
    let mut kept = line.kept.lock();
    kept.flags = flags(&wanted) & USER_FLAGS;
    (kept.close_delay, kept.closing_wait) = (half(field::CLOSE_DELAY), half(field::CLOSING_WAIT));
    Ok(())
}
