// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's log: lines in the ring of the channel (see `lib/abi/src/ring.rs`), or in the
//! hypervisor's log if there is no channel.
//!
//! `error!`, `warn!`, `info!`, `debug!` take arguments like `format!`. Any context; a line is cut
//! at 240 bytes.

use crate::arch::{cpu, hypercall};
use crate::mm::layout;
use crate::sync::SpinLock;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crtos_abi::channel::{Channel, KERNEL_LOG_SIZE};

/// Levels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// The kernel or a process cannot go on.
    Error,
    /// Something is wrong and was dealt with.
    Warn,
    /// What an administrator wants to know.
    Info,
    /// For developers; off unless the command line of the cell says `debug`.
    Debug,
}

const LINE: usize = 240;

struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One byte is left for the newline.
        let room = LINE - 1 - self.length;
        let bytes = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        Ok(())
    }
}

/// Bytes ever written: the kernel's own copy of the ring's position.
static POSITION: SpinLock<u64> = SpinLock::new(0);
static DEBUG: AtomicBool = AtomicBool::new(false);

/// Has `debug!` lines written.
pub fn enable_debug() {
    DEBUG.store(true, Ordering::Relaxed);
}

/// Appends a line.
pub fn write(level: LogLevel, message: fmt::Arguments<'_>) {
    if level == LogLevel::Debug && !DEBUG.load(Ordering::Relaxed) {
        return;
    }
    let line = format(level, message);
    let mut position = POSITION.lock();
    *position = append(*position, &line.bytes[..line.length]);
}

/// Appends a line while the kernel dies, even if it dies while it writes one.
pub fn write_last(message: fmt::Arguments<'_>) {
    let line = format(LogLevel::Error, message);
    let held = POSITION.try_lock();
    static LAST: AtomicU64 = AtomicU64::new(0);
    let position = match &held {
        Some(position) => **position,
        None => LAST.load(Ordering::Relaxed).max(ring_position()),
    };
    let position = append(position, &line.bytes[..line.length]);
    LAST.store(position, Ordering::Relaxed);
    if let Some(mut held) = held {
        *held = position;
    }
}

fn format(level: LogLevel, message: fmt::Arguments<'_>) -> Line {
    let mut line = Line { bytes: [0; LINE], length: 0 };
    let khz = layout::boot_info_if_read().map_or(0, |info| u64::from(info.tsc_khz)).max(1);
    let micros = (u128::from(cpu::tsc()) * 1000 / u128::from(khz)) as u64;
    let name = match level {
        LogLevel::Error => "error: ",
        LogLevel::Warn => "warning: ",
        LogLevel::Info => "",
        LogLevel::Debug => "debug: ",
    };
    // A line never fails: what does not fit is cut.
    let _ = write!(line, "{}.{:06} {name}{message}", micros / 1_000_000, micros % 1_000_000);
    line.bytes[line.length] = b'\n';
    line.length += 1;
    line
}

fn ring() -> Option<*mut Channel> {
    layout::channel().map(|channel| channel.as_ptr())
}

/// What the shared header says; only for a kernel that lost its own count.
fn ring_position() -> u64 {
    // SAFETY: the header is mapped.
    ring().map_or(0, |channel| unsafe { (&raw const (*channel).log.written).read_volatile() })
}

/// Appends bytes behind `position` and returns the position behind them.
fn append(position: u64, bytes: &[u8]) -> u64 {
    let Some(channel) = ring() else {
        bytes.iter().for_each(|&byte| hypercall::put_byte(byte));
        return position;
    };
    let end = position + bytes.len() as u64;
    // SAFETY: the header and `KERNEL_LOG_SIZE` bytes of the ring are mapped, and offsets are taken
    // modulo that.
    unsafe {
        let ring = (&raw mut (*channel).log_bytes).cast::<u8>();
        for (at, &byte) in (position..end).zip(bytes) {
            ring.add((at % u64::from(KERNEL_LOG_SIZE)) as usize).write_volatile(byte);
        }
        (&raw mut (*channel).log.capacity).write_volatile(KERNEL_LOG_SIZE);
        fence(Ordering::Release);
        AtomicU64::from_ptr(&raw mut (*channel).log.written).store(end, Ordering::Release);
    }
    end
}

/// Logs at [`LogLevel::Error`].
#[macro_export]
macro_rules! error {
    ($($arg:tt)*) => {
        $crate::log::write($crate::log::LogLevel::Error, format_args!($($arg)*))
    };
}
/// Logs at [`LogLevel::Warn`].
#[macro_export]
macro_rules! warn {
    ($($arg:tt)*) => {
        $crate::log::write($crate::log::LogLevel::Warn, format_args!($($arg)*))
    };
}
/// Logs at [`LogLevel::Info`].
#[macro_export]
macro_rules! info {
    ($($arg:tt)*) => {
        $crate::log::write($crate::log::LogLevel::Info, format_args!($($arg)*))
    };
}
/// Logs at [`LogLevel::Debug`].
#[macro_export]
macro_rules! debug {
    ($($arg:tt)*) => {
        $crate::log::write($crate::log::LogLevel::Debug, format_args!($($arg)*))
    };
}
