// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of signals, sets of them, and their default actions (signal(7)).

use core::ops::{BitAnd, BitOr, BitOrAssign, Not, Sub};

/// The highest signal; signals are numbered `1..=COUNT`.
pub const COUNT: u32 = 64;
/// The first real-time signal: from here on, several of one number can be pending.
pub const FIRST_REAL_TIME: u32 = 32;

/// Hangup of the controlling terminal.
pub const SIGHUP: u32 = 1;
/// Illegal instruction.
pub const SIGILL: u32 = 4;
/// Breakpoint or single step.
pub const SIGTRAP: u32 = 5;
/// Bad memory access.
pub const SIGBUS: u32 = 7;
/// Arithmetic error.
pub const SIGFPE: u32 = 8;
/// Ends the process.
pub const SIGKILL: u32 = 9;
/// Invalid memory reference.
pub const SIGSEGV: u32 = 11;
/// A timer of setitimer(2) or alarm(2).
pub const SIGALRM: u32 = 14;
/// A child changed state.
pub const SIGCHLD: u32 = 17;
/// Continues the process.
pub const SIGCONT: u32 = 18;
/// Stops the process.
pub const SIGSTOP: u32 = 19;
/// Stops the process, from the terminal.
pub const SIGTSTP: u32 = 20;
/// Read from the terminal in the background.
pub const SIGTTIN: u32 = 21;
/// Write to the terminal in the background.
pub const SIGTTOU: u32 = 22;
/// Urgent data.
pub const SIGURG: u32 = 23;
/// Virtual interval timer.
pub const SIGVTALRM: u32 = 26;
/// Profiling timer.
pub const SIGPROF: u32 = 27;
/// Window size.
pub const SIGWINCH: u32 = 28;
/// Input or output is possible.
pub const SIGIO: u32 = 29;
/// Bad system call.
pub const SIGSYS: u32 = 31;

/// A set of signals: bit `n - 1` is signal `n`, as in Linux's `sigset_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Set(pub u64);

impl Set {
    /// No signal.
    pub const EMPTY: Self = Self(0);
    /// All signals.
    pub const ALL: Self = Self(u64::MAX);
    /// Signals that are never blocked, ignored or handled.
    pub const UNCATCHABLE: Self = Self::of(SIGKILL).with(SIGSTOP);
    /// Signals that a fault raises; a thread takes them before all others.
    pub const SYNCHRONOUS: Self =
        Self::of(SIGSEGV).with(SIGBUS).with(SIGILL).with(SIGTRAP).with(SIGFPE).with(SIGSYS);
    /// Signals whose default action is to do nothing.
    pub const HARMLESS: Self = Self::of(SIGCHLD).with(SIGURG).with(SIGWINCH).with(SIGCONT);
    /// Signals whose default action is to stop the process.
    pub const STOPPING: Self = Self::of(SIGSTOP).with(SIGTSTP).with(SIGTTIN).with(SIGTTOU);

    /// Makes the set of `signal` (`1..=64`) alone.
    pub const fn of(signal: u32) -> Self {
        Self(1 << ((signal - 1) & 63))
    }

    /// Adds `signal`.
    pub const fn with(self, signal: u32) -> Self {
        Self(self.0 | Self::of(signal).0)
    }

    /// Says whether `signal` is in the set.
    pub const fn contains(self, signal: u32) -> bool {
        self.0 & Self::of(signal).0 != 0
    }

    /// Says whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the signals in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            (rest != 0).then(|| {
                let signal = rest.trailing_zeros() + 1;
                rest &= rest - 1;
                signal
            })
        })
    }

    /// Returns the signal that a thread takes first: the lowest of those that faults raise, else
    /// the lowest.
    pub fn first(self) -> Option<u32> {
        let urgent = self & Self::SYNCHRONOUS;
        let from = if urgent.is_empty() { self } else { urgent };
        (!from.is_empty()).then(|| from.0.trailing_zeros() + 1)
    }
}

impl BitAnd for Set {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Set {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Set {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl Sub for Set {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl Not for Set {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0)
    }
}
