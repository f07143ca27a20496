// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI functions that the realm has, and the memory of its platform devices.
//!
//! Linux gives them and takes them away at any time; the hypervisor tells which there are, and
//! answers for their configuration space. Only those count here that reach no memory of their own
//! accord: programs drive them, and drivers of the kernel's. So whatever a program has a function
//! do, it reaches neither the kernel nor other programs. A message interrupts by an entry that the
//! hypervisor made, whatever the function sends.

use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crtos_abi::device::{BASE_ADDRESSES, DEVICE_MEMORY, DEVICE_MEMORY_END, MAX_MESSAGES};
use crtos_abi::hypercall::{HC_DEVICE_INTERRUPT, HC_DEVICE_READ, HC_DEVICE_WRITE, HV_BUSY};
use crtos_pci::Space;
use crtos_pci::pci_types::capability::{
    MsiCapability, MsixCapability, MultipleMessageSupport, PciCapability,
};
use crtos_pci::pci_types::{Bar, CommandRegister, EndpointHeader, PciAddress, PciHeader};
use crtos_vm::{FRAME_SIZE, Frame};

use crate::arch::hypercall::call_device;
use crate::arch::paging;
use crate::arch::{percpu, user_memory};
use crate::devices::ports::{self, FunctionPorts, IoPorts};
use crate::time::Nanos;

/// Configuration space, for threads.
const SPACE: Space = Space(call);

/// Makes a call about devices, again for some tenths of a second while Linux makes one. Sleeps.
fn call(number: u64, arguments: [u64; 4]) -> i64 {
    super::call_again(2000, Nanos::from_micros(200), || call_device(number, arguments))
}

/// The address of the function with that number, to be written.
pub fn address(number: u16) -> impl fmt::Display {
    crtos_pci::address(number)
}

/// Whether the realm ever had one.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether the realm has, or had, a function. Any context.
pub(crate) fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Whether the realm has a function or a platform device of that number, and that reaches no
/// memory. Thread context; may sleep.
pub fn is_there(number: u16) -> bool {
    SPACE.devices().any(|listed| listed.number == number && !listed.reaches_memory)
}

/// Whether the realm has a platform device of that number. Thread context; may sleep.
pub fn is_platform(number: u16) -> bool {
    SPACE.devices().any(|listed| listed.number == number && listed.platform)
}

/// The memory of a platform device of the realm, in Linux's order; `None` if the realm does not
/// have such a device of that number. Thread context; may sleep.
pub fn platform_registers(number: u16) -> Option<Vec<Registers>> {
    if !is_platform(number) {
        return None;
    }
    ANY.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for index in 0..BASE_ADDRESSES as u8 {
        let Some((address, size)) = SPACE.platform_memory(number, index) else { continue };
        let is_gone = AtomicBool::new(false);
        if is_sound(address, size) {
            all.push(Registers { function: number, first: Frame(address), size, is_gone });
        }
    }
    Some(all)
}

/// The first two ranges of I/O ports of a platform device of the realm, for a driver; `None` if
/// there is no such device. Thread context; may sleep.
pub(super) fn ports_of_platform(number: u16) -> Option<[Option<IoPorts>; 2]> {
    if !is_platform(number) {
        return None;
    }
    ANY.store(true, Ordering::Relaxed);
    Some([0, 1].map(|index| SPACE.platform_ports(number, index).map(IoPorts::new)))
}

/// Programs may use the I/O ports of a platform device of the realm; `false` if it has none, or is
/// not there. By the thread alone that has functions come and go.
pub fn open_platform_ports(number: u16) -> bool {
    if !is_platform(number) {
        return false;
    }
    let ports = |index| SPACE.platform_ports(number, index);
    let mut any = false;
    for register in 0..BASE_ADDRESSES as u8 {
        if let Some(range) = ports(register) {
            FunctionPorts { function: number, register }.add(&range);
            any = true;
        }
    }
    any
}

/// How many bits the addresses have that a function of the realm names; 0 if it is not there.
/// Thread context; may sleep.
pub fn width(number: u16) -> u32 {
    let found = SPACE.functions().find(|listed| listed.number == number && !listed.reaches_memory);
    found.map_or(0, |listed| listed.width)
}

/// Has message `message` of a function interrupt nobody, whatever the function sends; `false` if
/// the hypervisor does not do that just now. Any context; one VM exit.
pub fn silence(number: u16, message: u32) -> bool {
    call_device(HC_DEVICE_INTERRUPT, [number.into(), message.into(), 0, 0]) != HV_BUSY
}

/// The command and the status register.
const COMMAND: u64 = 4;
/// In it: the pin is off, and the function asks for an interrupt by its pin, which tells of no more
/// than the function's state (PCI 3.0, 6.2.2, 6.2.3).
const PIN_OFF: u32 = 1 << 10;
const PIN_ASKS: u32 = 1 << 19;

/// If a function asks for an interrupt by its pin, switches that off. Says whether it has asked;
/// `None` if the hypervisor is busy: then nothing has changed. Any context; one VM exit, two if it
/// asks.
pub fn hush_pin(number: u16) -> Option<bool> {
    match call_device(HC_DEVICE_READ, [number.into(), COMMAND, 0, 0]) {
        HV_BUSY => None,
        // What is gone asks for nothing.
        result if result < 0 || result as u32 & PIN_ASKS == 0 => Some(false),
        _ => switch_pin(number, false).then_some(true),
    }
}

/// Switches the pin of a function on or off, if the realm has its line; `false` if the hypervisor
/// does not do that just now. Any context; one VM exit.
pub fn switch_pin(number: u16, on: bool) -> bool {
    let value = if on { 0 } else { PIN_OFF };
    let arguments = [number.into(), COMMAND, value.into(), PIN_OFF.into()];
    call_device(HC_DEVICE_WRITE, arguments) != HV_BUSY
}

/// Memory of a function or of a platform device.
#[derive(Debug)]
pub struct Registers {
    function: u16,
    first: Frame,
    size: u64,
    /// The realm has it no more.
    is_gone: AtomicBool,
}

impl Registers {
    /// Bytes, a multiple of the page size.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where in them an address of the realm is, if it is one of theirs.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        address.checked_sub(self.first.0).filter(|&offset| offset < self.size)
    }

    /// The page at `offset`.
    pub(crate) fn page(&self, offset: u64) -> Option<Frame> {
        let is_there = offset < self.size && !self.is_gone.load(Ordering::Relaxed);
        is_there.then(|| Frame(self.first.0 + (offset & !(FRAME_SIZE - 1))))
    }

    /// Nobody reaches it by this any more, except where it is in tables.
    pub fn forget(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// Whether the realm has lost it. Thread context; may sleep.
    pub(crate) fn is_gone(&self) -> bool {
        if !self.is_gone.load(Ordering::Relaxed) && !is_there(self.function) {
            self.forget();
        }
        self.is_gone.load(Ordering::Relaxed)
    }
}

/// Registers of a function that a driver of the kernel's reaches. Linux may take the function away
/// at any time: what is not there reads as all ones.
pub struct Window {
    /// Where they are mapped, for ever and side by side.
    first: u64,
    /// 0 when nobody reaches them by this any more.
    length: AtomicU64,
}

impl Window {
    /// Where a register of so many bytes is, if it is one of these.
    #[inline(always)]
    fn place(&self, offset: u32, bytes: usize) -> Option<*mut u8> {
        let (offset, bytes) = (u64::from(offset), bytes as u64);
        let inside =
            offset.is_multiple_of(bytes) && offset + bytes <= self.length.load(Ordering::Relaxed);
        inside.then(|| (self.first + offset) as *mut u8)
    }

    /// Reads a register of 4 bytes. Any context.
    #[inline(always)]
    pub fn read_word(&self, offset: u32) -> u32 {
        // SAFETY: the pages are mapped as a device's, and the register lies in them. The function
        // reaches no memory but what was mapped for it: that of programs, and what drivers of the
        // kernel's only exchange with it.
        let read = |place: *mut u8| unsafe { user_memory::load_register(place.cast()) };
        self.place(offset, 4).map_or(u32::MAX, read)
    }

    /// Writes one. Any context.
    #[inline(always)]
    pub fn write_word(&self, offset: u32, value: u32) {
        if let Some(place) = self.place(offset, 4) {
            // SAFETY: as in `read_word`.
            unsafe { user_memory::store_register(place.cast(), value) };
        }
    }

    /// Reads a register of 1, 2 or 4 bytes. Any context.
    pub fn read(&self, offset: u32, bytes: usize) -> u32 {
        let mut value = [0; 4];
        // SAFETY: as in `read_word`.
        let is_read = self.place(offset, bytes).is_some_and(|place| unsafe {
            user_memory::access_register(place, &mut value[..bytes], false)
        });
        if is_read { u32::from_le_bytes(value) } else { u32::MAX }
    }

    /// Writes one. Any context.
    pub fn write(&self, offset: u32, bytes: usize, value: u32) {
        if let Some(place) = self.place(offset, bytes) {
            let value = &mut value.to_le_bytes()[..bytes];
            // SAFETY: as in `read_word`.
            unsafe { user_memory::access_register(place, value, true) };
        }
    }

    /// Nobody reaches it by this any more.
    pub fn forget(&self) {
        self.length.store(0, Ordering::Relaxed);
    }
}

/// How a function interrupts.
enum Messages {
    /// It does not.
    None,
    /// By messages that its configuration space describes.
    Simple(MsiCapability),
    /// By those of a table in its memory.
    Table(MsixCapability),
}

/// A PCI function of the realm.
pub struct Function {
    number: u16,
    endpoint: EndpointHeader,
    messages: Messages,
    /// The base address registers, as far as they tell of memory: address and bytes.
    memory: [Option<(u64, u64)>; BASE_ADDRESSES],
    /// The same, as far as they tell of I/O ports.
    ports: [Option<RangeInclusive<u16>>; BASE_ADDRESSES],
}

/// The capability of messages, and in its first four bytes: they are on.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    function: u16,
    register: u16,
    bit: u32,
}

impl Switch {
    /// As a number that is not 0.
    pub const fn to_word(self) -> u64 {
        (self.function as u64) << 48 | (self.register as u64) << 32 | self.bit as u64
    }

    /// The opposite.
    pub const fn of_word(word: u64) -> Option<Self> {
        if word == 0 {
            return None;
        }
        Some(Self {
            function: (word >> 48) as u16,
            register: (word >> 32) as u16,
            bit: word as u32,
        })
    }

    /// Switches messages off; `false` if the hypervisor does not do that just now. Any context; one
    /// VM exit.
    pub fn off(self) -> bool {
        let Self { function, register, bit } = self;
        let arguments = [function.into(), register.into(), 0, bit.into()];
        call_device(HC_DEVICE_WRITE, arguments) != HV_BUSY
    }
}

/// The capabilities of messages (PCI 3.0, 6.8): in their first four bytes, that they are on.
const SIMPLE_ON: u32 = 1 << 16;
const TABLE_ON: u32 = 1 << 31;

impl Function {
    /// The function with that number, if the realm has it and it reaches no memory. Its registers
    /// answer from now on. Thread context; may sleep.
    pub fn find(number: u16) -> Option<Self> {
        SPACE.functions().find(|listed| listed.number == number && !listed.reaches_memory)?;
        ANY.store(true, Ordering::Relaxed);
        let header = PciHeader::new(crtos_pci::address(number));
        let endpoint = EndpointHeader::from_header(header, SPACE)?;
        let mut memory = [None; BASE_ADDRESSES];
        let mut ports = [const { None }; BASE_ADDRESSES];
        let mut index = 0;
        while index < BASE_ADDRESSES {
            let bar = endpoint.bar(index as u8, SPACE);
            memory[index] = match bar {
                Some(Bar::Memory32 { address, size, .. }) => Some((address.into(), size.into())),
                Some(Bar::Memory64 { address, size, .. }) => Some((address, size)),
                Some(Bar::Io { port }) => {
                    ports[index] = port_range(number, index, port);
                    None
                }
                None => None,
            };
            memory[index].take_if(|(address, size)| !is_sound(*address, *size));
            index += if matches!(bar, Some(Bar::Memory64 { .. })) { 2 } else { 1 };
        }
        let mut messages = Messages::None;
        for capability in endpoint.capabilities(SPACE).take(MOST_CAPABILITIES) {
            match capability {
                PciCapability::MsiX(table) => {
                    messages = Messages::Table(table);
                    break;
                }
                PciCapability::Msi(simple) => messages = Messages::Simple(simple),
                _ => {}
            }
        }
        let mut function = Self { number, endpoint, messages, memory, ports };
        function.set_command(CommandRegister::empty());
        Some(function)
    }

    /// Has its registers answer, and sets what else the command register has. The pin is off.
    fn set_command(&mut self, more: CommandRegister) {
        let pin_off = CommandRegister::INTERRUPT_DISABLE;
        let mut command = CommandRegister::MEMORY_ENABLE | pin_off | more;
        command.set(CommandRegister::IO_ENABLE, self.ports().next().is_some());
        self.endpoint.update_command(SPACE, |_| command);
    }

    /// Bus, device and function in 16 bits.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The ids of its vendor and of its kind. Thread context; may sleep.
    pub fn ids(&self) -> (u16, u16) {
        PciHeader::new(self.address()).id(SPACE)
    }

    /// Whether it interrupts by messages.
    pub fn has_messages(&self) -> bool {
        !matches!(self.messages, Messages::None)
    }

    /// How many messages it has that configuration space describes, and those of a table.
    pub fn message_counts(&self) -> (u32, u32) {
        match &self.messages {
            Messages::None => (0, 0),
            Messages::Simple(simple) => (1 << simple.multiple_message_capable() as u32, 0),
            Messages::Table(table) => (0, table.table_size().into()),
        }
    }

    /// Which base address register tells of the memory that has the table of messages.
    pub fn table_register(&self) -> Option<u32> {
        match &self.messages {
            Messages::Table(table) => Some(table.table_bar().into()),
            _ => None,
        }
    }

    /// Whether it is one of PCI Express.
    pub fn is_express(&self) -> bool {
        self.capability(EXPRESS).is_some()
    }

    /// Bytes of the memory of a base address register; 0 if it tells of none.
    pub fn memory_size(&self, register: u32) -> u64 {
        self.memory.get(register as usize).copied().flatten().map_or(0, |(_, size)| size)
    }

    /// The I/O ports of a base address register, if it tells of such.
    pub fn ports_of(&self, register: u32) -> Option<RangeInclusive<u16>> {
        self.ports.get(register as usize)?.clone()
    }

    /// All its I/O ports.
    pub fn ports(&self) -> impl Iterator<Item = RangeInclusive<u16>> {
        self.ports.iter().flatten().cloned()
    }

    /// Programs may use its I/O ports, by all that Linux has for that. By the thread alone that has
    /// functions come and go.
    pub fn open_ports(&self) {
        for (register, range) in (0..).zip(&self.ports) {
            if let Some(range) = range {
                FunctionPorts { function: self.number, register }.add(range);
            }
        }
    }

    /// The memory of a base address register from `offset` on, a multiple of the page size.
    pub fn part(&self, register: u32, offset: u64) -> Option<Registers> {
        let (address, size) = self.memory.get(register as usize).copied().flatten()?;
        let size = size.next_multiple_of(FRAME_SIZE);
        let fits = offset.is_multiple_of(FRAME_SIZE) && offset < size;
        fits.then(|| Registers {
            function: self.number,
            first: Frame(address + offset),
            size: size - offset,
            is_gone: AtomicBool::new(false),
        })
    }

    /// Reads a register of 1, 2 or 4 bytes in the memory, or the ports, of a base address register,
    /// or writes it. False if it is not there. Thread context.
    pub fn access(&self, register: u32, offset: u64, value: &mut [u8], write: bool) -> bool {
        if let Some(ports) = self.ports_of(register) {
            return ports::access(&ports, offset, value, write);
        }
        let memory = self.memory.get(register as usize).copied().flatten();
        let Some((start, size)) = memory else { return false };
        let count = value.len() as u64;
        if count == 0 || !offset.is_multiple_of(count) || offset.saturating_add(count) > size {
            return false;
        }
        let page = Frame(start + (offset & !(FRAME_SIZE - 1)));
        let Some(mapped) = paging::map_registers(page) else { return false };
        let place = mapped.cast::<u8>().wrapping_add((offset % FRAME_SIZE) as usize);
        // SAFETY: the page is mapped as a device's, and the offset is aligned. The function reaches
        // no memory but what was mapped for it, which is that of programs.
        unsafe { user_memory::access_register(place, value, write) }
    }

    /// The first `length` bytes of the memory of a base address register, to be reached in any
    /// context. `None` if there is no such memory, or memory runs low. Thread context.
    pub fn window(&self, register: u32, length: u64) -> Option<Window> {
        let (start, size) = self.memory.get(register as usize).copied().flatten()?;
        let pages = length.div_ceil(FRAME_SIZE);
        let first = paging::map_registers(Frame(start)).filter(|_| length > 0 && length <= size)?;
        (1..pages).try_for_each(|page| {
            paging::map_registers(Frame(start + page * FRAME_SIZE)).map(|_| ())
        })?;
        Some(Window { first: first as u64, length: AtomicU64::new(length) })
    }

    /// Reads a register of 1, 2 or 4 bytes, as [`access`](Self::access) does; `None` if it is not
    /// there. Thread context.
    pub fn read<const BYTES: usize>(&self, register: u32, offset: u64) -> Option<[u8; BYTES]> {
        let mut value = [0; BYTES];
        self.access(register, offset, &mut value, false).then_some(value)
    }

    /// Writes one.
    pub fn write<const BYTES: usize>(
        &self,
        register: u32,
        offset: u64,
        mut value: [u8; BYTES],
    ) -> Option<()> {
        self.access(register, offset, &mut value, true).then_some(())
    }

    /// Reads four bytes of configuration space. Thread context; may sleep.
    pub fn read_configuration(&self, register: u64) -> u32 {
        let result = call(HC_DEVICE_READ, [self.number.into(), register, 0, 0]);
        u32::try_from(result).unwrap_or(u32::MAX)
    }

    /// Writes there those bits of `value` that `mask` has, as far as the hypervisor lets it. Thread
    /// context; may sleep.
    pub fn write_configuration(&self, register: u64, value: u32, mask: u32) {
        call(HC_DEVICE_WRITE, [self.number.into(), register, value.into(), mask.into()]);
    }

    /// Has its messages interrupt the calling thread's CPU: number `n` by vector `n` of `vectors`,
    /// and not at all where that is `None`. `false` if that is not possible. Whether it masters the
    /// bus, without which it sends none, stays as it is. Thread context; may sleep.
    pub fn listen(&mut self, vectors: &[Option<u8>]) -> bool {
        let apic = percpu::this().apic_id().0;
        let mut entries = Vec::new();
        if entries.try_reserve_exact(vectors.len()).is_err() {
            return false;
        }
        for (number, vector) in (0..).zip(vectors) {
            let vector = vector.unwrap_or(0);
            let message = SPACE.interrupt(self.address(), number, vector, apic);
            let Some(message) = message else { return false };
            entries.push(Some(message).filter(|_| vector != 0));
        }
        let Some((to, data)) = SPACE.interrupt(self.address(), 0, vectors[0].unwrap_or(0), apic)
        else {
            return false;
        };
        let memory = self.memory;
        match &mut self.messages {
            Messages::None => false,
            Messages::Simple(simple) => {
                simple.set_message_info(to.into(), data, SPACE);
                let count = MultipleMessageSupport::try_from(
                    vectors.len().next_power_of_two().trailing_zeros() as u8,
                );
                simple.set_multiple_message_enable(
                    count.unwrap_or(MultipleMessageSupport::Int1),
                    SPACE,
                );
                simple.set_message_mask(0, SPACE);
                simple.set_enabled(true, SPACE);
                true
            }
            Messages::Table(table) => {
                table.set_function_mask(true, SPACE);
                table.set_enabled(true, SPACE);
                let filled = fill(table, &memory, |number| entries.get(number).copied().flatten());
                table.set_enabled(filled, SPACE);
                table.set_function_mask(!filled, SPACE);
                filled
            }
        }
    }

    /// It interrupts no more, nor does what it writes in place of the first `count` messages.
    /// Thread context; may sleep.
    pub fn mute(&mut self, count: u32) {
        for number in 0..count {
            let _ = SPACE.interrupt(self.address(), number, 0, 0);
        }
        match &mut self.messages {
            Messages::None => {}
            Messages::Simple(simple) => simple.set_enabled(false, SPACE),
            Messages::Table(table) => table.set_enabled(false, SPACE),
        }
    }

    /// Its memory, in the order of the base address registers.
    pub fn registers(&self) -> Vec<Registers> {
        let memory = self.memory.iter().flatten();
        let registers = memory.map(|&(address, size)| Registers {
            function: self.number,
            first: Frame(address),
            size: size.next_multiple_of(FRAME_SIZE),
            is_gone: AtomicBool::new(false),
        });
        registers.collect()
    }

    /// What switches its messages off, if it has any.
    pub fn switch(&self) -> Option<Switch> {
        let of = |offset: Option<u16>, bit| {
            offset.map(|register| Switch { function: self.number, register, bit })
        };
        match &self.messages {
            Messages::None => None,
            Messages::Simple(_) => of(self.capability(MESSAGES), SIMPLE_ON),
            Messages::Table(_) => of(self.capability(MESSAGE_TABLE), TABLE_ON),
        }
    }

    /// Has its messages interrupt the calling thread's CPU by `vector`; `false` if that is not
    /// possible. It masters the bus then, since messages are writes. Thread context; may sleep.
    pub fn start(&mut self, vector: u8) -> bool {
        let apic = percpu::this().apic_id().0;
        let address = self.address();
        let Some((to, data)) = SPACE.interrupt(address, 0, vector, apic) else { return false };
        let memory = self.memory;
        match &mut self.messages {
            Messages::None => return false,
            Messages::Simple(simple) => {
                simple.set_message_info(to.into(), data, SPACE);
                simple.set_multiple_message_enable(MultipleMessageSupport::Int1, SPACE);
                simple.set_message_mask(0, SPACE);
            }
            Messages::Table(table) => {
                // Its entries can be written to while it is on.
                table.set_function_mask(true, SPACE);
                table.set_enabled(true, SPACE);
                if !fill(table, &memory, |_| Some((to, data))) {
                    table.set_enabled(false, SPACE);
                    return false;
                }
                table.set_function_mask(false, SPACE);
            }
        }
        self.set_command(CommandRegister::BUS_MASTER_ENABLE);
        if let Messages::Simple(simple) = &self.messages {
            simple.set_enabled(true, SPACE);
        }
        true
    }

    /// The opposite. Its registers answer as before. Thread context; may sleep.
    pub fn stop(&mut self) {
        self.set_command(CommandRegister::empty());
        self.mute(0);
    }

    fn address(&self) -> PciAddress {
        crtos_pci::address(self.number)
    }

    /// Where the capability with that id is.
    fn capability(&self, id: u8) -> Option<u16> {
        use crtos_pci::pci_types::ConfigRegionAccess as _;
        // SAFETY: reading configuration space of a function of the realm changes nothing.
        let read = |register: u16| unsafe { SPACE.read(self.address(), register) };
        let mut at = self.endpoint.capability_pointer(SPACE) & 0xfc;
        for _ in 0..MOST_CAPABILITIES {
            let word = read(at);
            match at {
                0 => break,
                _ if word as u8 == id => return Some(at),
                _ => at = (word >> 8) as u16 & 0xfc,
            }
        }
        None
    }
}

/// Ids of the capabilities of messages, and of tables of them.
const MESSAGES: u8 = 0x05;
const MESSAGE_TABLE: u8 = 0x11;
/// Id of that of PCI Express.
const EXPRESS: u8 = 0x10;
/// As many as there is room for.
const MOST_CAPABILITIES: usize = 48;

/// The I/O ports of a base address register of a function, which tells of `first`; `None` if they
/// are none. Thread context; may sleep.
fn port_range(function: u16, index: usize, first: u32) -> Option<RangeInclusive<u16>> {
    const FLAGS: u32 = 3;
    let register = 0x10 + 4 * index as u64;
    let write = |value: u32| {
        call(HC_DEVICE_WRITE, [function.into(), register, value.into(), u32::MAX.into()]);
    };
    write(u32::MAX);
    let size = call(HC_DEVICE_READ, [function.into(), register, 0, 0]);
    write(first);
    let size = (u32::try_from(size).ok()? & !FLAGS).wrapping_neg();
    let last = first.checked_add(size.checked_sub(1)?)?;
    Some(u16::try_from(first).ok()?..=u16::try_from(last).ok()?)
}

/// Whether memory is such as a cell has of devices.
fn is_sound(address: u64, size: u64) -> bool {
    let Some(end) = address.checked_add(size.next_multiple_of(FRAME_SIZE)) else { return false };
    address.is_multiple_of(FRAME_SIZE) && address >= DEVICE_MEMORY && end <= DEVICE_MEMORY_END
}

/// Has each message of a table be what `message` says of its number: address and data, or masked;
/// `false` if the table is not there.
fn fill(
    table: &MsixCapability,
    memory: &[Option<(u64, u64)>; BASE_ADDRESSES],
    message: impl Fn(usize) -> Option<(u32, u32)>,
) -> bool {
    const ENTRY: u64 = 16;
    let Some(&Some((start, size))) = memory.get(usize::from(table.table_bar())) else {
        return false;
    };
    let first = u64::from(table.table_offset());
    let count = u64::from(table.table_size()).min(MAX_MESSAGES.into());
    if !first.is_multiple_of(4) || first + count * ENTRY > size {
        return false;
    }
    let mut words = (0..count).flat_map(|entry| {
        let (to, data) = message(entry as usize).unwrap_or((0, 0));
        let masked = message(entry as usize).is_none().into();
        [to, 0, data, masked]
            .into_iter()
            .zip(0..)
            .map(move |(word, index)| (first + entry * ENTRY + 4 * index, word))
    });
    words.all(|(offset, word)| {
        let page = Frame(start + (offset & !(FRAME_SIZE - 1)));
        let Some(mapped) = paging::map_registers(page) else { return false };
        let register = mapped.wrapping_byte_add((offset % FRAME_SIZE) as usize);
        // SAFETY: the page is mapped as a device's. It is the table of messages, which reach no
        // memory.
        unsafe { user_memory::store_register(register, word) }
    })
}
