// SPDX-License-Identifier: MIT OR Apache-2.0
//! `struct signalfd_siginfo`: what a read of a signalfd returns for a signal.
//!
//! Signal and code decide which of its fields are set, and what the words of the `siginfo` mean.

use crate::{
    info::{Info, SI_KERNEL, SI_SIGIO, SI_TIMER, SI_USER},
    set::{SIGBUS, SIGCHLD, SIGFPE, SIGILL, SIGIO, SIGSEGV, SIGSYS, SIGTRAP},
};

/// Bytes of a `struct signalfd_siginfo`.
pub const SIZE: usize = 128;

/// The highest code of a signal that tells of input and output.
const LAST_POLL: i32 = 6;
/// The codes of SIGBUS that tell of broken memory.
const BROKEN_MEMORY: core::ops::RangeInclusive<i32> = 4..=5;

/// The meaning of the words of a `siginfo`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Process and user.
    Kill,
    /// A timer, its overrun and value.
    Timer,
    /// A band and a descriptor.
    Poll,
    /// An address.
    Fault,
    /// An address, and how much of the memory there is broken.
    BrokenMemory,
    /// Process and user, status and times.
    Child,
    /// Process and user, and a value.
    Queued,
    /// A system call.
    Call,
}

impl Meaning {
    /// Decides as Linux does (`siginfo_layout`).
    fn of(signal: u32, code: i32) -> Self {
        match code {
            SI_TIMER => return Self::Timer,
            SI_SIGIO => return Self::Poll,
            ..SI_USER => return Self::Queued,
            SI_USER | SI_KERNEL.. => return Self::Kill,
            _ => {}
        }
        let (last, meaning) = match signal {
            SIGBUS if BROKEN_MEMORY.contains(&code) => return Self::BrokenMemory,
            SIGILL => (11, Self::Fault),
            SIGFPE => (15, Self::Fault),
            SIGSEGV => (10, Self::Fault),
            SIGBUS => (5, Self::Fault),
            SIGTRAP => (6, Self::Fault),
            SIGCHLD => (6, Self::Child),
            SIGIO => (LAST_POLL, Self::Poll),
            SIGSYS => (2, Self::Call),
            _ => (0, Self::Kill),
        };
        match code {
            _ if code <= last => meaning,
            ..=LAST_POLL => Self::Poll,
            _ => Self::Kill,
        }
    }
}

/// Returns what a read returns for `info`.
pub fn to_bytes(info: &Info) -> [u8; SIZE] {
    let (signal, code) = (info.signal(), info.code());
    let [first, second, third, fourth] = [info.0[2], info.0[3], info.0[4], info.0[5]];
    let mut bytes = [0; SIZE];
    let mut put = |at: usize, value: u64, length: usize| {
        bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
    };
    // ssi_signo, ssi_errno, ssi_code.
    put(0, signal.into(), 4);
    put(4, info.errno() as u64, 4);
    put(8, code as u64, 4);
    let meaning = Meaning::of(signal, code);
    match meaning {
        // ssi_pid and ssi_uid.
        Meaning::Kill | Meaning::Queued | Meaning::Child => put(12, first, 8),
        // ssi_tid, ssi_overrun.
        Meaning::Timer => {
            put(24, first, 4);
            put(32, first >> 32, 4);
        }
        // ssi_band, ssi_fd.
        Meaning::Poll => {
            put(28, first, 4);
            put(20, second, 4);
        }
        // ssi_addr.
        Meaning::Fault | Meaning::BrokenMemory => put(72, first, 8),
        // ssi_call_addr, ssi_syscall, ssi_arch.
        Meaning::Call => {
            put(88, first, 8);
            put(84, second, 4);
            put(96, second >> 32, 4);
        }
    }
    match meaning {
        // ssi_int, ssi_ptr.
        Meaning::Queued | Meaning::Timer => {
            put(44, second, 4);
            put(48, second, 8);
        }
        // ssi_status, ssi_utime, ssi_stime.
        Meaning::Child => {
            put(40, second, 4);
            put(56, third, 8);
            put(64, fourth, 8);
        }
        // ssi_addr_lsb.
        Meaning::BrokenMemory => put(80, second, 2),
        _ => {}
    }
    bytes
}
