// SPDX-License-Identifier: MIT OR Apache-2.0
//! `siginfo`: what a signal carries.
//!
//! Linux uses the first 48 of its 128 bytes on x86-64: number, errno and code, four bytes of
//! padding, and four words that depend on the code. The rest is zero. The padding never reaches a
//! program: here it says whether the signal is an optional one.

use crtos_abi::{PAGE_SIZE, UserAddr, ids::Pid};

/// Bytes of a `siginfo_t` that Linux uses.
pub const USED: usize = 48;
/// Bytes of `siginfo_t`.
pub const SIZE: usize = 128;

/// `si_code`: kill(2).
pub const SI_USER: i32 = 0;
/// `si_code`: sent by the kernel.
pub const SI_KERNEL: i32 = 0x80;
/// `si_code`: sigqueue(3).
pub const SI_QUEUE: i32 = -1;
/// `si_code` of SIGBUS: memory is broken that the thread has to have.
pub const BUS_MCEERR_AR: i32 = 4;
/// `si_code`: a timer of timer_create(2).
pub const SI_TIMER: i32 = -2;
/// `si_code`: a file is ready (O_ASYNC), by a signal whose codes mean something else.
pub const SI_SIGIO: i32 = -5;
/// `si_code`: tkill(2), tgkill(2).
pub const SI_TKILL: i32 = -6;

/// The part of a `siginfo_t` that Linux uses, in its layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info(pub [u64; USED / 8]);

/// Puts two halves into a word.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// In the padding: an optional signal.
const OPTIONAL: u64 = 1 << 32;

impl Info {
    /// Takes over the words of a `siginfo` from elsewhere; clears the padding.
    #[inline]
    pub fn from_words(mut words: [u64; USED / 8]) -> Self {
        words[1] &= 0xffff_ffff;
        Self(words)
    }

    /// Makes it an optional signal: only a program that handles it or waits for it hears of it, and
    /// its default action is not carried out.
    pub fn into_optional(mut self) -> Self {
        self.0[1] |= OPTIONAL;
        self
    }

    /// Says whether it is an optional signal.
    pub fn is_optional(&self) -> bool {
        self.0[1] & OPTIONAL != 0
    }

    /// Makes one of number and code alone.
    pub fn new(signal: u32, code: i32) -> Self {
        Self([signal.into(), pair(code as u32, 0), 0, 0, 0, 0])
    }

    /// Makes that of a signal that a process sent (`si_pid`, `si_uid`).
    pub fn from_process(signal: u32, code: i32, pid: Pid, uid: u32) -> Self {
        let mut info = Self::new(signal, code);
        info.0[2] = pair(pid.get(), uid);
        info
    }

    /// Makes that of a fault at `address` (`si_addr`). Of broken memory, a page is concerned
    /// (`si_addr_lsb`).
    pub fn fault(signal: u32, code: i32, address: UserAddr) -> Self {
        const PAGE_BITS: u64 = PAGE_SIZE.trailing_zeros() as u64;
        const SIGBUS: u32 = 7;
        let mut info = Self::new(signal, code);
        info.0[2] = address.get();
        if signal == SIGBUS && code == BUS_MCEERR_AR {
            info.0[3] = PAGE_BITS;
        }
        info
    }

    /// Makes that of timer `id` of timer_create(2), with the program's `value`.
    pub fn timer(signal: u32, id: i32, value: u64) -> Self {
        let mut info = Self::new(signal, SI_TIMER);
        info.0[2] = pair(id as u32, 0);
        info.0[3] = value;
        info
    }

    /// Makes that of a file that is ready for what `code` (POLL_*) and `band` (POLLIN and the like)
    /// say.
    pub fn readiness(signal: u32, code: i32, band: u64, descriptor: u32) -> Self {
        let mut info = Self::new(signal, code);
        info.0[2] = band;
        info.0[3] = descriptor.into();
        info
    }

    /// Returns `si_signo`.
    pub fn signal(&self) -> u32 {
        self.0[0] as u32
    }

    /// Returns `si_errno`.
    pub fn errno(&self) -> i32 {
        (self.0[0] >> 32) as i32
    }

    /// Returns `si_code`.
    pub fn code(&self) -> i32 {
        self.0[1] as i32
    }

    /// Returns `si_pid`, if it is one; valid if the code has one.
    pub fn pid(&self) -> Option<Pid> {
        Pid::new(self.0[2] as u32)
    }

    /// Returns `si_uid`; valid if the code has one.
    pub fn uid(&self) -> u32 {
        (self.0[2] >> 32) as u32
    }

    /// Returns `si_value`; valid if the code has one.
    pub fn value(&self) -> u64 {
        self.0[3]
    }

    /// Replaces the value (`si_value`).
    pub fn with_value(mut self, value: u64) -> Self {
        self.0[3] = value;
        self
    }

    /// Replaces the number (`si_signo`).
    pub fn with_signal(mut self, signal: u32) -> Self {
        self.0[0] = self.0[0] & !0xffff_ffff | u64::from(signal);
        self
    }

    /// Adds `more` to `si_overrun`; saturates.
    pub fn with_more_overrun(mut self, more: i32) -> Self {
        let overrun = ((self.0[2] >> 32) as i32).saturating_add(more);
        self.0[2] = pair(self.0[2] as u32, overrun as u32);
        self
    }

    /// Returns the first words of a `siginfo_t`.
    #[inline]
    pub fn to_words(&self) -> [u64; USED / 8] {
        Self::from_words(self.0).0
    }

    /// Returns the first bytes of a `siginfo_t`.
    pub fn to_bytes(&self) -> [u8; USED] {
        let mut bytes = [0; USED];
        for (to, word) in bytes.chunks_exact_mut(8).zip(self.to_words()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads the first bytes of a `siginfo_t`; clears the padding.
    pub fn from_bytes(bytes: &[u8; USED]) -> Self {
        let mut words = [0; USED / 8];
        for (word, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(from);
            *word = u64::from_le_bytes(eight);
        }
        Self::from_words(words)
    }
}
