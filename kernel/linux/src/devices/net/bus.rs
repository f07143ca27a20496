// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a card is connected by: how the kernel reaches its registers, which memory both share, and
//! how it interrupts.

use crtos_core::devices::{
    dma::OwnMemory,
    pci::{Function, Switch, Window},
};
use crtos_nic::card::{self, Place};

/// What a card is connected by. All of it in threads that may sleep, but for
/// [`settle`](Self::settle).
pub(super) trait Bus: Sized + Send + Sync + 'static {
    /// Its registers.
    type Registers: card::Registers + Send + Sync;
    /// The memory that it shares with its driver.
    type Memory: card::Memory + Send + Sync;

    /// Where the card finds the beginning of that memory.
    const BASE: u64;

    /// Reads four bytes of its configuration space.
    fn configuration(&self, register: u64) -> u32;

    /// Its registers at that place, if there are such.
    fn registers(&self, place: Place) -> Option<Self::Registers>;

    /// So many bytes of memory, all zero.
    fn memory(&self, bytes: u64) -> Option<Self::Memory>;

    /// It interrupts the calling thread's CPU from now on, by `vector` if it has one of its own;
    /// says whether it does.
    fn start(&mut self, vector: u8) -> bool;

    /// It moves nothing any more.
    fn stop(&mut self);

    /// What has it interrupt no more in any context, if there is such a thing.
    fn switch(&self) -> Option<Switch>;

    /// Nobody reaches it by these any more, nor does it reach the memory.
    fn part(registers: &Self::Registers, memory: &Self::Memory);

    /// Does what writing to registers has left for when nothing is locked. Any context; bounded.
    fn settle(_registers: &Self::Registers) {}
}

/// The registers of a card that is a PCI function.
pub(super) struct Registers(Window);

impl card::Registers for Registers {
    fn read_bytes(&self, register: u32, bytes: usize) -> u32 {
        self.0.read(register, bytes)
    }

    fn write_bytes(&self, register: u32, bytes: usize, value: u32) {
        self.0.write(register, bytes, value);
    }

    #[inline(always)]
    fn read(&self, register: u32) -> u32 {
        self.0.read_word(register)
    }

    #[inline(always)]
    fn write(&self, register: u32, value: u32) {
        self.0.write_word(register, value);
    }
}

/// The memory that it reaches.
pub(super) struct Memory(OwnMemory);

impl card::Memory for Memory {
    #[inline(always)]
    fn load(&self, offset: u64) -> u64 {
        self.0.load(offset)
    }

    #[inline(always)]
    fn store(&self, offset: u64, value: u64) {
        self.0.store(offset, value);
    }

    #[inline(always)]
    fn read(&self, offset: u64, to: &mut [u8]) {
        self.0.read(offset, to);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.0.write(offset, from);
    }
}

impl Bus for Function {
    type Registers = Registers;
    type Memory = Memory;

    const BASE: u64 = OwnMemory::INPUT;

    fn configuration(&self, register: u64) -> u32 {
        self.read_configuration(register)
    }

    fn registers(&self, place: Place) -> Option<Registers> {
        self.window(place.base, place.length).map(Registers)
    }

    fn memory(&self, bytes: u64) -> Option<Memory> {
        OwnMemory::new(self.number(), bytes).ok().map(Memory)
    }

    fn start(&mut self, vector: u8) -> bool {
        Function::start(self, vector)
    }

    fn stop(&mut self) {
        Function::stop(self);
    }

    fn switch(&self) -> Option<Switch> {
        Function::switch(self)
    }

    fn part(registers: &Registers, memory: &Memory) {
        registers.0.forget();
        // Before another function has that number.
        memory.0.withdraw();
    }
}
