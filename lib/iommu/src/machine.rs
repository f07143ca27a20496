// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the driver of a unit takes of the machine, and what it says of the unit.

use crtos_partition::address::PhysAddr;

use crate::copies;
use crate::effect::Store;

/// The hypervisor's memory for a unit is in so many pieces at most, of [`PIECE`] bytes. Each begins
/// at a multiple of that if it is full.
pub const MAX_PIECES: usize = 2;
/// Bytes of a full piece.
pub const PIECE: u64 = 1 << 21;

/// What driving a unit takes of the machine.
pub trait Machine {
    /// Reads 32 bits of the unit's registers.
    fn read(&mut self, offset: u64) -> u32;
    /// Writes 32 bits of the unit's registers.
    fn write(&mut self, offset: u64, value: u32);
    /// Writes 64 bits of the unit's registers, by one store.
    fn write_long(&mut self, offset: u64, value: u64);
    /// Waits until `done`; false if that takes longer than `milliseconds`.
    fn wait_until(&mut self, milliseconds: u64, done: impl FnMut(&mut Self) -> bool) -> bool;
    /// Reads words from `address`, a multiple of 8, on one page; false if Linux does not have that
    /// memory.
    fn read_linux(&self, address: PhysAddr, words: &mut [u64]) -> bool;
    /// Writes words in the same way.
    fn write_linux(&mut self, address: PhysAddr, words: &[u64]) -> bool;
    /// What copies of Linux's tables take of it.
    fn memory(&mut self) -> &mut impl copies::Memory;
    /// Carries out a store of the unit for Linux; not if Linux does not have that memory.
    fn store(&mut self, store: &Store);
    /// Where the hypervisor's memory for the unit lies, from `offset` on to the end of the piece
    /// of it.
    fn own(&self, offset: u64) -> PhysAddr;
    /// Reads the word at `offset` there.
    fn own_word(&self, offset: u64) -> u64;
    /// Writes the word at `offset` there, by one store.
    fn set_own_word(&mut self, offset: u64, word: u64);
    /// Writes two words at `offset`, a multiple of 16, by one store.
    fn set_own_pair(&mut self, offset: u64, words: [u64; 2]);
    /// Writes the cache line at `offset` there back to memory.
    fn write_back(&mut self, offset: u64);
}

/// Why a unit stays with Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It has no queue, does not remap interrupts, or needs its write buffer flushed.
    Incapable,
    /// Linux does not use it.
    Unused,
    /// It reports an error of its queue.
    Broken,
    /// It does not do what it is told in time. It was left as it was found.
    Stuck,
}

/// How far an access of Linux got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is done.
    Done,
    /// It is to be made again: there are more commands.
    More,
    /// The unit does not do what it is told in time.
    Stuck,
}

/// Reads 64 bits of the unit's registers.
pub(crate) fn read_long(machine: &mut impl Machine, offset: u64) -> u64 {
    u64::from(machine.read(offset)) | u64::from(machine.read(offset + 4)) << 32
}

/// Replaces the low or the high half of `register`.
pub(crate) fn set_half(register: &mut u64, high: bool, value: u32) {
    let shift = if high { 32 } else { 0 };
    *register = *register & !(0xffff_ffff << shift) | u64::from(value) << shift;
}

/// The low or the high half of `register`.
pub(crate) fn half(register: u64, high: bool) -> u32 {
    (if high { register >> 32 } else { register }) as u32
}
