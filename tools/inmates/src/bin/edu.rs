// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drives QEMU's `edu`, a device made to learn by: interrupts by a message, and copies between the
//! device and memory.
//!
//! At its start it has the device interrupt it and copy a word of the cell's memory there and back.
//! Then it does what Linux asks for in the shared block: a command, two arguments and a number that
//! changes, and then the doorbell. See [`word`] and [`command`].
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crtos_inmates::{apic, inmate, pci, println, shared, time, wait_for_interrupt};
use pci_types::capability::{MsiCapability, PciCapability};
use pci_types::{
    CommandRegister, ConfigRegionAccess, EndpointHeader, HeaderType, PciAddress, PciHeader,
};

inmate!(main, interrupt);

/// Words of the shared block.
mod word {
    /// Interrupts of the device so far.
    pub const INTERRUPTS: usize = 0;
    /// 1 if all was well at the start, 2 if not.
    pub const STATE: usize = 1;
    /// What came of the last command: a value, or all ones.
    pub const RESULT: usize = 2;
    /// The number of the last command that is done.
    pub const DONE: usize = 3;
    /// What Linux asks for: the command, its arguments and its number.
    pub const COMMAND: usize = 4;
    pub const FIRST: usize = 5;
    pub const SECOND: usize = 6;
    pub const NUMBER: usize = 7;
}

/// Commands.
mod command {
    /// Has the device read the word at an address; the result is what it read.
    pub const READ: u64 = 1;
    /// Has the device write the second argument to the address that is the first one.
    pub const WRITE: u64 = 2;
    /// Has the device send messages to an address, by the data from 0 on up to the second argument.
    pub const MESSAGES: u64 = 3;
    /// Reads a register of configuration space.
    pub const READ_CONFIGURATION: u64 = 4;
    /// Writes it.
    pub const WRITE_CONFIGURATION: u64 = 5;
    /// Has the device interrupt so many times, and waits for each.
    pub const INTERRUPT: u64 = 6;
    /// Has the device send messages by entries of a table of VT-d's: so many from the first
    /// argument on.
    pub const ENTRIES: u64 = 7;
}

/// Vendor and device id.
const IDS: (u16, u16) = (0x1234, 0x11e8);
const VECTOR: u8 = 0x50;

/// Registers, by their index in words of 32 bits.
mod register {
    pub const IDENTIFICATION: usize = 0;
    pub const RAISE: usize = 0x60 / 4;
    pub const ACKNOWLEDGE: usize = 0x64 / 4;
    pub const SOURCE: usize = 0x80 / 4;
    pub const DESTINATION: usize = 0x88 / 4;
    pub const COUNT: usize = 0x90 / 4;
    pub const COMMAND: usize = 0x98 / 4;
    pub const WORDS: usize = 0xa0 / 4;
}

/// In the register for commands: it copies; from the device to memory.
const COPY: u32 = 1 << 0;
const TO_MEMORY: u32 = 1 << 1;
/// The device's own memory, as it names it.
const BUFFER: u64 = 0x4_0000;
/// What it is called by.
const IDENTITY: u32 = 0x0100_00ed;

static REGISTERS: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
static MEMORY: AtomicU64 = AtomicU64::new(0);

/// The device's registers; `None` before it is found.
fn registers() -> Option<&'static [AtomicU32]> {
    let first = REGISTERS.load(Ordering::Acquire);
    // SAFETY: The registers are there as long as the cell has the device; nothing else is.
    (!first.is_null()).then(|| unsafe { core::slice::from_raw_parts(first, register::WORDS) })
}

fn words() -> &'static [AtomicU64] {
    shared::words().map_or(&[], |words| &words[..])
}

fn interrupt(vector: u8) {
    if vector == VECTOR
        && let Some(registers) = registers()
    {
        registers[register::ACKNOWLEDGE].store(1, Ordering::SeqCst);
        words()[word::INTERRUPTS].fetch_add(1, Ordering::SeqCst);
    }
}

/// Waits until `done`, a second at most.
fn wait_until(done: impl Fn() -> bool) -> bool {
    let end = time::tsc() + time::ticks(1_000_000_000);
    while !done() {
        if time::tsc() > end {
            return false;
        }
        core::hint::spin_loop();
    }
    true
}

/// Has the device copy a word.
fn copy(from: u64, to: u64, direction: u32) -> bool {
    let Some(registers) = registers() else { return false };
    let set = |register: usize, value: u64| {
        registers[register].store(value as u32, Ordering::SeqCst);
        registers[register + 1].store((value >> 32) as u32, Ordering::SeqCst);
    };
    set(register::SOURCE, from);
    set(register::DESTINATION, to);
    set(register::COUNT, 8);
    registers[register::COMMAND].store(COPY | direction, Ordering::SeqCst);
    wait_until(|| registers[register::COMMAND].load(Ordering::SeqCst) & COPY == 0)
}

fn memory() -> u64 {
    (&raw const MEMORY) as u64
}

/// What the device reads at `address`.
fn read(address: u64) -> Option<u64> {
    // What is refused leaves the old word.
    MEMORY.store(!0, Ordering::SeqCst);
    let read = copy(memory(), BUFFER, 0) && copy(address, BUFFER, 0);
    (read && copy(BUFFER, memory(), TO_MEMORY)).then(|| MEMORY.load(Ordering::SeqCst))
}

/// Has the device write to `address`.
fn write(address: u64, value: u64) -> bool {
    MEMORY.store(value, Ordering::SeqCst);
    copy(memory(), BUFFER, 0) && copy(BUFFER, address, TO_MEMORY)
}

/// Has the device interrupt, and waits for that.
fn raise() -> bool {
    let Some(registers) = registers() else { return false };
    let before = words()[word::INTERRUPTS].load(Ordering::SeqCst);
    registers[register::RAISE].store(1, Ordering::SeqCst);
    // Interrupts are off; it comes while this halts.
    for _ in 0..3 {
        wait_for_interrupt();
        if words()[word::INTERRUPTS].load(Ordering::SeqCst) > before {
            return true;
        }
    }
    false
}

/// The device, if the cell has one.
fn find() -> Option<PciAddress> {
    pci::functions().find(|address| PciHeader::new(*address).id(pci::SPACE) == IDS)
}

/// Its messages.
fn messages(device: PciAddress) -> Option<MsiCapability> {
    let header = PciHeader::new(device);
    if header.header_type(pci::SPACE) != HeaderType::Endpoint {
        return None;
    }
    let endpoint = EndpointHeader::from_header(header, pci::SPACE)?;
    endpoint.capabilities(pci::SPACE).find_map(|capability| match capability {
        PciCapability::Msi(messages) => Some(messages),
        _ => None,
    })
}

/// Sets the device up and tries it; what is wrong, if anything.
fn set_up(device: PciAddress) -> Result<(), &'static str> {
    let header = PciHeader::new(device);
    let mut endpoint = EndpointHeader::from_header(header, pci::SPACE).ok_or("no endpoint")?;
    let (address, size) = endpoint.bar(0, pci::SPACE).ok_or("no memory")?.unwrap_mem();
    println!("edu: {device} has {size:#x} bytes at {address:#x}");
    endpoint.update_command(pci::SPACE, |command| {
        command | CommandRegister::MEMORY_ENABLE | CommandRegister::BUS_MASTER_ENABLE
    });
    REGISTERS.store(address as *mut AtomicU32, Ordering::Release);
    let registers = registers().ok_or("no registers")?;
    if registers[register::IDENTIFICATION].load(Ordering::SeqCst) != IDENTITY {
        return Err("it is another device");
    }
    let messages = messages(device).ok_or("it has no messages")?;
    let (address, data) = pci::interrupt(device, 0, VECTOR).ok_or("no interrupt")?;
    messages.set_message_info(address.into(), data, pci::SPACE);
    messages.set_enabled(true, pci::SPACE);
    if !raise() {
        return Err("no interrupt comes");
    }
    if !write(memory(), 0x1234_5678_9abc_def0) || read(memory()) != Some(!0) {
        return Err("it does not copy");
    }
    Ok(())
}

/// Has the device send messages of these addresses and data, and then its own again.
fn send(device: PciAddress, all: impl Iterator<Item = (u32, u32)>) -> u64 {
    let (Some(messages), Some(registers)) = (messages(device), registers()) else { return !0 };
    for (address, data) in all {
        messages.set_message_info(address.into(), data, pci::SPACE);
        registers[register::RAISE].store(1, Ordering::SeqCst);
        registers[register::ACKNOWLEDGE].store(1, Ordering::SeqCst);
    }
    let Some((address, data)) = pci::interrupt(device, 0, VECTOR) else { return !0 };
    messages.set_message_info(address.into(), data, pci::SPACE);
    0
}

/// Carries out a command; returns its result.
fn carry_out(device: PciAddress, command: u64, first: u64, second: u64) -> u64 {
    match command {
        command::READ => read(first).unwrap_or(!0),
        command::WRITE if write(first, second) => 0,
        command::MESSAGES => send(device, (0..second as u32).map(|data| (first as u32, data))),
        command::ENTRIES => {
            let entries = first as u32..(first + second) as u32;
            let address = |entry: u32| 0xfee0_0010 | (entry & 0x7fff) << 5 | (entry >> 15) << 2;
            send(device, entries.map(|entry| (address(entry), 0)))
        }
        // SAFETY: Reading has no effect.
        command::READ_CONFIGURATION => unsafe { pci::SPACE.read(device, first as u16) }.into(),
        command::WRITE_CONFIGURATION => {
            // SAFETY: The hypervisor lets through what harms nobody.
            unsafe { pci::SPACE.write(device, first as u16, second as u32) };
            0
        }
        command::INTERRUPT => (0..first).filter(|_| raise()).count() as u64,
        _ => !0,
    }
}

fn main(cpu: usize) {
    if cpu != 0 {
        return;
    }
    let words = words();
    let Some(device) = find() else {
        println!("edu: the cell has no such device");
        return;
    };
    let state = match set_up(device) {
        Ok(()) => {
            println!("edu: APIC {} hears it, and it copies", apic::id());
            1
        }
        Err(what) => {
            println!("edu: {what}");
            2
        }
    };
    let load = |word: usize| words[word].load(Ordering::SeqCst);
    words[word::STATE].store(state, Ordering::SeqCst);
    let mut done = 0;
    loop {
        wait_for_interrupt();
        let number = load(word::NUMBER);
        if number != done {
            let result =
                carry_out(device, load(word::COMMAND), load(word::FIRST), load(word::SECOND));
            words[word::RESULT].store(result, Ordering::SeqCst);
            words[word::DONE].store(number, Ordering::SeqCst);
            done = number;
        }
    }
}
