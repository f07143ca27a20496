// SPDX-License-Identifier: MIT OR Apache-2.0
//! A unit that was taken over from a running Linux, and is driven for it.
//!
//! The unit has a command buffer and a device table of the hypervisor's. An entry of that table is
//! made of Linux's entry for the device: it refers to [copies] of Linux's tables for
//! addresses, or to the identity of Linux's memory, and to a [checked copy](super::remapping) of
//! its table for interrupts. Commands of Linux's buffer say which entry to look at again; what they
//! say of caches is passed on.
//!
//! Linux's accesses to the registers end here.

use crtos_abi::device::{MAX_DEVICES, MAX_LINES};
use crtos_partition::address::PhysAddr;
use crtos_partition::message;

use super::commands;
use super::device::{self, Interrupts, Tables};
use super::irte::{Form, Irte};
use super::registers::{
    COMMAND_BUFFER, COMMAND_HEAD, COMMAND_TAIL, CONTROL, DEVICE_TABLE, EVENT_HEAD, EVENT_INTERRUPT,
    EVENT_LOG, EVENT_TAIL, EXCLUSION_BASE, EXCLUSION_LIMIT, FEATURES, Features, GUEST_INTERRUPT,
    STATUS, buffer, buffer_entries, control, device_count, device_table, status,
};
use super::remapping;
use crate::attachment::{Attachment, Translation};
use crate::copies::{self, Copies, Function};
use crate::effect::{Devices, Effect, Store};
use crate::fault::Fault;
use crate::interrupt::{Cpus, Interrupt};
use crate::layout::Kind;
use crate::machine::{MAX_PIECES, Machine, PIECE, Progress, Unfit, half, read_long, set_half};
use crate::tables::{Rights, order_of_level};
use crate::unit::MESSAGES;
use crate::{DomainId, Requester};

/// Bytes of the pieces of memory that the hypervisor needs for a unit.
pub const OWN_SIZES: [u64; MAX_PIECES] = [PIECE, PIECE];
/// The largest device table fills the first one.
const DEVICES: u32 = 1 << 16;
/// The tables for interrupts begin the second one.
const OWN_TABLES: u64 = PIECE;
/// The tables for interrupts of functions of cells. Who asks for an entry behind the end of one
/// finds another one's, or zeros, though a unit refuses that.
const OWN_FUNCTIONS: u64 = (OWN_TABLES + remapping::SIZE).next_multiple_of(PAGE);
/// Bytes of each, and the order of the number of its entries.
const FUNCTION_SIZE: u64 = MESSAGES * remapping::LARGEST_ENTRY;
const FUNCTION_ORDER: u32 = MESSAGES.ilog2();
/// The command buffer, of one page.
const OWN_BUFFER: u64 = 2 * PIECE - 2 * PAGE;
/// The word that tells that all commands are done.
const STATUS_WORD: u64 = 2 * PIECE - PAGE;
const _: () = assert!(DEVICES as u64 * device::SIZE == PIECE);
const _: () =
    assert!(OWN_FUNCTIONS + MAX_DEVICES as u64 * FUNCTION_SIZE + remapping::LARGEST <= OWN_BUFFER);

/// The address to which functions of cells write messages, whose data are their numbers.
pub const MESSAGE_ADDRESS: u32 = message::WINDOW;

const PAGE: u64 = 4096;
/// Bytes of a command.
const COMMAND: u64 = 16;
/// Bytes of an event.
const EVENT: u64 = 16;
/// How long the commands of a buffer, or a change of the unit's state may take, in milliseconds.
const LIMIT: u64 = 100;
/// Most commands of Linux that are carried out at once.
const BATCH: usize = 64;
/// Bits of the head and the tail of a buffer.
const OFFSET: u64 = 0x7_fff0;
/// What the registers of the unit's own interrupts begin with, and how many there are.
const EVENTS: usize = 3;
/// What Linux may change while the unit is taken over: its log of events, and their interrupts.
const LINUX: u64 = control::EVENT_LOG | control::INTERRUPTS;
/// What stays as it is found. All else is off while the unit is taken over: second logs, and those
/// of requests for pages and of posted interrupts, which the unit would store to memory of Linux's
/// choice; ranges that are routed elsewhere; what no emulator shows.
const KEPT: u64 = control::BUS
    | control::LONG_ENTRIES
    | control::EXTENDED
    | control::OWN_EXTENDED
    | control::MANY;

/// First words of the hypervisor's commands in its buffer.
mod command {
    pub const WAIT: u64 = 1 << 60;
    pub const WAIT_STORES: u64 = 1 << 0;
    pub const WAIT_INTERRUPTS: u64 = 1 << 1;
    pub const DEVICE: u64 = 2 << 60;
    pub const PAGES: u64 = 3 << 60;
    /// In the second word: all pages, and the tables that lead to them.
    pub const ALL_PAGES: u64 = 0x7fff_ffff_ffff_f003;
    pub const ALL: u64 = 8 << 60;
}

/// The registers as Linux sees them, where that is not what the unit has.
#[derive(Clone, Copy, Debug)]
struct Linux {
    control: u64,
    device_table: u64,
    buffer: u64,
    head: u64,
    tail: u64,
    /// The unit has come upon an invalid command.
    stopped: bool,
    event_log: u64,
    /// Messages of the unit itself.
    events: [u64; EVENTS],
    /// Start and end of the range that is exempted.
    exclusion: [u64; 2],
}

/// A unit that was taken over.
#[derive(Debug)]
pub struct Unit {
    /// The CPUs are in x2APIC mode.
    x2apic: bool,
    /// Linux had it remap interrupts when it was taken over. Otherwise they pass.
    remaps: bool,
    linux: Linux,
    /// What the unit's states were.
    found: u64,
    interrupts: remapping::Copies,
    /// The I/O APIC of each line of a cell.
    lines: [Option<Requester>; MAX_LINES],
    /// Index of the place in the buffer for the next command.
    tail: u64,
    /// What the status word says when all commands are done.
    sequence: u64,
    refused: u64,
    /// The tail of the log of events that Linux has read last, and the fault before it.
    log_tail: u64,
    fault: Option<Fault>,
}

fn write_control(machine: &mut impl Machine, states: u64) {
    machine.write_long(CONTROL, states);
}

impl Unit {
    /// Takes a unit over that Linux uses. No CPU of Linux runs meanwhile, and none goes on with
    /// cached translations. `x2apic` says that the CPUs are in x2APIC mode.
    pub fn take(
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        x2apic: bool,
    ) -> Result<Self, Unfit> {
        let features = Features(read_long(machine, FEATURES));
        let found = read_long(machine, CONTROL);
        let unfit = control::UNCACHED_INTERRUPTS | control::SEGMENTS;
        if !features.invalidates_all() || found & unfit != 0 {
            return Err(Unfit::Incapable);
        }
        if found & control::ENABLE == 0 || found & control::COMMANDS == 0 {
            return Err(Unfit::Unused);
        }
        if machine.read(STATUS) & status::COMMANDS_RUN as u32 == 0 {
            return Err(Unfit::Broken);
        }
        let linux = Linux::of(machine);
        let is_idle = |machine: &mut _| {
            let entries = buffer_entries(linux.buffer).unwrap_or(1);
            let distance = read_long(machine, COMMAND_HEAD) ^ read_long(machine, COMMAND_TAIL);
            distance & OFFSET & (u64::from(entries) * COMMAND - 1) == 0
        };
        if !machine.wait_until(LIMIT, is_idle) {
            return Err(Unfit::Stuck);
        }
        let form = match found & control::LONG_ENTRIES {
            0 => Form::Short,
            _ => Form::Long { extended: found & control::EXTENDED != 0 },
        };
        let interrupts = remapping::Copies::new(form, OWN_TABLES);
        let mut unit = Self {
            x2apic,
            remaps: true,
            linux,
            found,
            interrupts,
            lines: [None; MAX_LINES],
            tail: 0,
            sequence: 0,
            refused: 0,
            log_tail: read_long(machine, EVENT_TAIL) & OFFSET,
            fault: None,
        };
        // Linux has an entry for each device that says so, or for none.
        let first = unit.linux_entry(machine, Requester(0)).map(Interrupts::of_device);
        let Some(first) = first else { return Err(Unfit::Unused) };
        unit.remaps = first != Ok(Interrupts::PassThrough);
        if unit.begin(machine, copies, cpus, features) {
            return Ok(unit);
        }
        unit.give_back(machine, copies);
        Err(Unfit::Stuck)
    }

    fn begin(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        features: Features,
    ) -> bool {
        (0..MAX_DEVICES).for_each(|place| clear_function(machine, place));
        if copies.is_empty() {
            let end = copies::Memory::end(machine.memory());
            let fits = |levels: &u8| end <= 1 << order_of_level(levels + 1);
            let levels = (3..features.levels()).find(fits).unwrap_or(features.levels());
            copies.set_identity(Kind::Host(levels));
        }
        if !stop_buffer(machine, self.found) {
            return false;
        }
        // The size is 2^8 commands.
        start_buffer(machine, machine.own(OWN_BUFFER).get() | 8 << buffer::SIZE_SHIFT, 0);
        machine.write_long(EXCLUSION_BASE, 0);
        self.refresh_states(machine, cpus);
        self.refresh_devices(machine, copies, cpus);
        let size = u64::from(DEVICES) * device::SIZE / PAGE - 1;
        machine.write_long(DEVICE_TABLE, machine.own(0).get() | size);
        self.tell_of_devices(machine) && self.forget_translations(machine)
    }

    /// Tells the unit of all entries for devices, one by one: QEMU's looks only then whether a
    /// device's addresses are to be translated. Later none changes in that. False if the unit does
    /// not do what it is told.
    fn tell_of_devices(&mut self, machine: &mut impl Machine) -> bool {
        // One less than there is place for, and one for the wait.
        let round = (PAGE / COMMAND - 2) as u32;
        (0..DEVICES).step_by(round as usize).all(|first| {
            for device in first..DEVICES.min(first + round) {
                self.send(machine, [command::DEVICE | u64::from(device), 0]);
            }
            self.finish(machine)
        })
    }

    /// Tells whether messages of devices interrupt by copies of Linux's entries only.
    pub fn confines_interrupts(&self) -> bool {
        self.remaps
    }

    /// Gives the unit back as Linux believes it to be; false if it does not do what it is told. No
    /// CPU of Linux runs meanwhile.
    pub fn give_back(&mut self, machine: &mut impl Machine, copies: &mut Copies) -> bool {
        let linux = self.linux;
        machine.write_long(DEVICE_TABLE, linux.device_table);
        let mut done = self.forget_translations(machine);
        for number in 0..DEVICES {
            self.put(machine, copies, Requester(number as u16), blocked());
        }
        let states = read_long(machine, CONTROL);
        done &= stop_buffer(machine, states);
        start_buffer(machine, linux.buffer, linux.head);
        machine.write_long(EXCLUSION_BASE, linux.exclusion[0]);
        machine.write_long(EXCLUSION_LIMIT, linux.exclusion[1]);
        self.set_log(machine, linux.control);
        for (number, event) in linux.events.iter().enumerate() {
            machine.write_long(EVENT_INTERRUPT + 8 * number as u64, *event);
        }
        write_control(machine, linux.control);
        machine.write_long(COMMAND_TAIL, linux.tail);
        done
    }

    /// Makes all copies of entries for interrupts again, since a CPU changed its owner; false if
    /// the unit does not do what it is told.
    pub fn owners_changed(&mut self, machine: &mut impl Machine, cpus: &impl Cpus) -> bool {
        let known = self.knows_whom().then_some(cpus);
        self.interrupts.look_again(machine, known);
        self.refresh_states(machine, cpus);
        self.forget_translations(machine)
    }

    /// Looks again at what Linux may have, since memory changed its owner.
    pub fn memory_changed(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
    ) {
        self.refresh_states(machine, cpus);
        if copies.is_checked() {
            self.refresh_devices(machine, copies, cpus);
        }
    }

    /// Looks at a function again that is a cell's, or was.
    pub fn function_changed(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        function: Requester,
    ) {
        self.refresh_device(machine, copies, cpus, function);
        self.send(machine, [command::DEVICE | u64::from(function.0), 0]);
    }

    /// Has message `number` of the function of a cell at `place` interrupt as `interrupt` says, or
    /// not at all; false if the unit does not do what it is told.
    pub fn set_message(
        &mut self,
        machine: &mut impl Machine,
        place: usize,
        number: u32,
        interrupt: Option<Interrupt>,
    ) -> bool {
        let known = interrupt.filter(|_| self.knows_whom());
        self.put_own(machine, function_table(place), u64::from(number) % MESSAGES, self.own(known));
        self.forget_translations(machine) && known == interrupt && self.remaps
    }

    /// Lets the line of a cell at `place` be one of the I/O APIC `requester`, silent; false if
    /// there is no memory, or the unit does not do what it is told.
    pub fn add_line(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        requester: Requester,
        place: usize,
    ) -> bool {
        self.lines[place] = Some(requester);
        self.function_changed(machine, copies, cpus, requester);
        self.forget_translations(machine)
            && own_table(machine, own_entry(machine, requester)).is_some()
    }

    /// Has the line of a cell at `place` interrupt as `interrupt` says, or not at all; false if the
    /// unit does not do what it is told.
    pub fn set_line(
        &mut self,
        machine: &mut impl Machine,
        place: usize,
        interrupt: Option<Interrupt>,
    ) -> bool {
        let known = interrupt.filter(|_| self.knows_whom());
        let Some(requester) = self.lines[place] else { return false };
        let Some(table) = own_table(machine, own_entry(machine, requester)) else { return false };
        self.put_own(machine, table, line_number(place).into(), self.own(known));
        self.forget_translations(machine) && known == interrupt
    }

    /// An entry of the hypervisor's; not in use without an interrupt.
    fn own(&self, interrupt: Option<Interrupt>) -> u128 {
        interrupt.map_or(0, |interrupt| {
            Irte { interrupt, silent: false, wants_end: false }.encode(self.interrupts.form())
        })
    }

    /// Puts it into the table at `table`.
    fn put_own(&self, machine: &mut impl Machine, table: u64, number: u64, entry: u128) {
        let form = self.interrupts.form();
        let offset = table + number * form.size();
        if form == Form::Short {
            let (shift, word) = (8 * (offset % 8), machine.own_word(offset & !7));
            let kept = word & !(u64::from(u32::MAX) << shift);
            machine.set_own_word(offset & !7, kept | (entry as u64) << shift);
        } else {
            machine.set_own_pair(offset, [entry as u64, (entry >> 64) as u64]);
        }
    }

    /// Has no message of the function of a cell at `place` interrupt anybody; false if the unit
    /// does not do what it is told.
    pub fn silence(&mut self, machine: &mut impl Machine, place: usize) -> bool {
        clear_function(machine, place);
        self.forget_translations(machine)
    }

    /// Has the unit forget what it cached of tables; false if it does not do what it is told.
    pub fn forget_translations(&mut self, machine: &mut impl Machine) -> bool {
        self.send(machine, [command::ALL, 0]);
        self.finish(machine)
    }

    /// Has the unit forget what it cached of the page tables of a domain (IOMMU 2.4.3); false if it
    /// does not do what it is told.
    pub fn forget_domain(&mut self, machine: &mut impl Machine, domain: DomainId) -> bool {
        self.send(machine, [command::PAGES | u64::from(domain.0) << 32, command::ALL_PAGES]);
        self.finish(machine)
    }

    /// How many entries of Linux were refused, each time that they were looked at.
    pub fn refused(&self) -> u64 {
        self.refused + self.interrupts.refused()
    }

    /// Takes the fault of a device that Linux has taken note of since.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// Linux is about to read its log of events: the newest one stands before the tail.
    fn note_fault(&mut self, machine: &mut impl Machine) {
        let tail = read_long(machine, EVENT_TAIL) & OFFSET;
        let log = self.linux.event_log;
        let size = u64::from(buffer_entries(log).unwrap_or(0)) * EVENT;
        if tail == self.log_tail || tail >= size {
            return;
        }
        self.log_tail = tail;
        let newest = (tail + size - EVENT) % size;
        let mut raw = [0; 2];
        if machine.read_linux(PhysAddr::new((log & buffer::ADDRESS) + newest), &mut raw) {
            self.fault = Fault::of_amd_event(raw[0], raw[1]);
        }
    }

    /// What Linux reads in the 32 bits at `offset`, a multiple of 4.
    pub fn read(&mut self, machine: &mut impl Machine, offset: u64) -> u32 {
        if offset == EVENT_TAIL {
            self.note_fault(machine);
        }
        let linux = &self.linux;
        let (register, high) = (offset & !7, offset & 4 != 0);
        let value = match register {
            DEVICE_TABLE => linux.device_table,
            COMMAND_BUFFER => linux.buffer,
            COMMAND_HEAD => linux.head,
            COMMAND_TAIL => linux.tail,
            CONTROL => linux.control,
            EVENT_LOG => linux.event_log,
            EXCLUSION_BASE => linux.exclusion[0],
            EXCLUSION_LIMIT => linux.exclusion[1],
            EVENT_INTERRUPT..=GUEST_INTERRUPT => linux.events[event_at(register)],
            STATUS => {
                let runs = if linux.runs() { status::COMMANDS_RUN } else { 0 };
                read_long(machine, STATUS) & status::LINUX | runs
            }
            _ => return machine.read(offset),
        };
        half(value, high)
    }

    /// Tells whether a write of `value` to the 32 bits at `offset` may change what copies are made
    /// of, so that no CPU of Linux may run meanwhile.
    pub fn changes_tables(&self, machine: &impl Machine, offset: u64, value: u32) -> bool {
        if offset != COMMAND_TAIL {
            return offset == CONTROL;
        }
        let mut linux = Linux { tail: u64::from(value) & OFFSET, ..self.linux };
        (0..BATCH).any(|_| {
            linux.next(machine).is_some_and(|(raw, after)| {
                linux.head = after;
                matches!(commands::decode(raw), Ok(Effect::Devices(_) | Effect::All))
            })
        })
    }

    /// Carries out a write of Linux to the 32 bits at `offset`, a multiple of 4. No CPU of Linux
    /// runs meanwhile if [`Self::changes_tables`] says so.
    pub fn write(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        offset: u64,
        value: u32,
    ) -> Progress {
        let (register, high) = (offset & !7, offset & 4 != 0);
        let linux = &mut self.linux;
        match register {
            // Linux tells by commands which entries to look at.
            DEVICE_TABLE => set_half(&mut linux.device_table, high, value),
            COMMAND_BUFFER => {
                set_half(&mut linux.buffer, high, value);
                (linux.head, linux.tail) = (0, 0);
            }
            COMMAND_HEAD if !high => linux.head = u64::from(value) & OFFSET,
            COMMAND_TAIL if !high => {
                linux.tail = u64::from(value) & OFFSET;
                return self.advance(machine, copies, cpus);
            }
            CONTROL => {
                let before = linux.control;
                set_half(&mut linux.control, high, value);
                let changed = before ^ linux.control;
                if changed & control::COMMANDS != 0 {
                    linux.stopped = false;
                }
                self.refresh_states(machine, cpus);
                if changed & control::ENABLE != 0 {
                    self.refresh_devices(machine, copies, cpus);
                    if !self.forget_translations(machine) {
                        return Progress::Stuck;
                    }
                }
                return self.advance(machine, copies, cpus);
            }
            EVENT_LOG => {
                set_half(&mut linux.event_log, high, value);
                self.refresh_states(machine, cpus);
            }
            EXCLUSION_BASE => set_half(&mut linux.exclusion[0], high, value),
            EXCLUSION_LIMIT => set_half(&mut linux.exclusion[1], high, value),
            EVENT_INTERRUPT..=GUEST_INTERRUPT => {
                set_half(&mut linux.events[event_at(register)], high, value);
                self.refresh_states(machine, cpus);
            }
            // QEMU's unit takes ones for what it does not know, and keeps them.
            STATUS if high => (),
            STATUS => machine.write(offset, value & status::LINUX as u32),
            EVENT_HEAD => machine.write(offset, value),
            // Logs that are off, the unit's message of the other kind, what is unknown.
            _ => (),
        }
        Progress::Done
    }

    /// Gives the unit its states: those that were found, but for Linux's log and interrupts, which
    /// are as Linux has them if they are fit.
    fn refresh_states(&mut self, machine: &mut impl Machine, cpus: &impl Cpus) {
        let mut wanted = self.linux.control & LINUX;
        if wanted & control::INTERRUPTS != 0 {
            // The other kind of message is in configuration space.
            let message = Interrupt::of_amd_event(self.linux.events[0]);
            let is_own = self.found & control::OWN_EXTENDED != 0;
            if is_own && self.x2apic && message.check(cpus).is_ok() {
                machine.write_long(EVENT_INTERRUPT, self.linux.events[0]);
            } else {
                wanted &= !control::INTERRUPTS;
                self.refused += u64::from(is_own);
            }
        }
        if wanted & control::EVENT_LOG != 0 && !self.linux.has_log(machine) {
            wanted &= !control::EVENT_LOG;
            self.refused += 1;
        }
        let own = control::ENABLE | control::COMMANDS;
        let states = self.found & KEPT | own | wanted;
        self.set_log(machine, states);
        write_control(machine, states);
    }

    /// Gives the unit Linux's log of events if the unit is to have it on. While it is on elsewhere
    /// it goes off first.
    fn set_log(&self, machine: &mut impl Machine, states: u64) {
        let is_other = read_long(machine, EVENT_LOG) != self.linux.event_log;
        if is_other && states & control::EVENT_LOG != 0 {
            let now = read_long(machine, CONTROL);
            write_control(machine, now & !control::EVENT_LOG);
            machine.wait_until(LIMIT, |machine| {
                machine.read(STATUS) & status::EVENT_LOG_RUNS as u32 == 0
            });
            machine.write_long(EVENT_LOG, self.linux.event_log);
        }
    }

    /// Linux's entry for a device; `None` if it has none.
    fn linux_entry(&self, machine: &impl Machine, device: Requester) -> Option<[u64; 4]> {
        let table = self.linux.device_table;
        let mut raw = [0; 4];
        let place =
            PhysAddr::new(table & device_table::ADDRESS) + u64::from(device.0) * device::SIZE;
        let exists =
            u32::from(device.0) < device_count(table) && machine.read_linux(place, &mut raw);
        exists.then_some(raw)
    }

    /// Makes all entries again.
    fn refresh_devices(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
    ) {
        for number in 0..DEVICES {
            self.refresh_device(machine, copies, cpus, Requester(number as u16));
        }
    }

    /// Makes the entry for a device again.
    fn refresh_device(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        device: Requester,
    ) {
        if let Some(function) = copies.function(device) {
            return self.put(machine, copies, device, of_cell(machine, function));
        }
        let raw = match self.linux.control & control::ENABLE {
            // Everything passes.
            0 => Some([0; 4]),
            _ => self.linux_entry(machine, device),
        };
        let Some(raw) = raw else {
            return self.put(machine, copies, device, blocked());
        };
        let tables = self.tables(machine, copies, raw);
        let interrupts = self.remapping(machine, cpus, device, raw);
        // The chipset's own function, by which it sends messages of system management.
        let chipset = device == Requester(0x14 << 3);
        self.put(machine, copies, device, device::device(raw, tables, interrupts, chipset));
    }

    /// By what a device translates for which Linux has `raw`; `None` if by nothing.
    fn tables(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        raw: [u64; 4],
    ) -> Option<Tables> {
        let own = copies.own_domains();
        let checked =
            Attachment::of_device(raw).and_then(|found| found.check(&own).map(|()| found));
        let Ok(Attachment { translation, domain, .. }) = checked else {
            self.refused += 1;
            return None;
        };
        let identity = copies.identity().level().unwrap_or(1);
        let (top, levels, rights) = match translation {
            Translation::Blocked => return None,
            Translation::PassThrough(rights) => {
                (copies.attach_identity(machine.memory())?, identity, rights)
            }
            Translation::Tables { top, levels, rights, .. } => {
                (copies.attach(machine.memory(), top, Kind::Host(levels))?, levels, rights)
            }
            Translation::Processes { .. } | Translation::Nested => {
                self.refused += 1;
                return None;
            }
        };
        Some(Tables { top, levels, domain, rights })
    }

    /// What becomes of the interrupts of a device for which Linux has `raw`.
    fn remapping(
        &mut self,
        machine: &mut impl Machine,
        cpus: &impl Cpus,
        device: Requester,
        raw: [u64; 4],
    ) -> Interrupts {
        if !self.remaps {
            return Interrupts::PassThrough;
        }
        let known = self.knows_whom().then_some(cpus);
        let lines = self.lines.contains(&Some(device));
        let found = Interrupts::of_device(raw);
        self.refused += u64::from(matches!(found, Ok(Interrupts::PassThrough) | Err(_)));
        let (linux, order) = match found {
            Ok(Interrupts::Table { address, order }) => (address, order),
            // None of Linux's is in use: this is not its memory.
            _ if lines => (machine.own(0), 2),
            _ => return Interrupts::Blocked,
        };
        let Some(place) = self.interrupts.acquire(machine, known, linux, order, lines) else {
            self.refused += 1;
            return Interrupts::Blocked;
        };
        if let Some(old) = own_table(machine, own_entry(machine, device)).filter(|_| lines) {
            self.interrupts.copy_lines(machine, old, place);
        }
        let order = if lines { remapping::LINES_ORDER } else { order };
        Interrupts::Table { address: machine.own(place), order }
    }

    /// Puts an entry into the unit's device table. What the old one refers to is not referred to by
    /// it any more.
    fn put(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        device: Requester,
        entry: [u64; 4],
    ) {
        let place = u64::from(device.0) * device::SIZE;
        let old = own_entry(machine, device);
        if old != entry {
            // Between two tables of different domains there is none; but for the begin and the end
            // the entry is valid all the time.
            if old[0] != 0 && old[1] != entry[1] {
                machine.set_own_word(place, blocked()[0]);
            }
            for number in [3, 2, 1, 0] {
                machine.set_own_word(place + 8 * number as u64, entry[number]);
            }
        }
        if let Ok(Attachment { translation: Translation::Tables { top, .. }, .. }) =
            Attachment::of_device(old)
        {
            copies.forget(machine.memory(), top);
        }
        if let Some(place) = own_table(machine, old) {
            self.interrupts.release(machine, place);
        }
    }

    /// Entries for interrupts name CPUs as the CPUs' mode has it; otherwise nobody knows whom.
    fn knows_whom(&self) -> bool {
        (self.interrupts.form() == Form::Long { extended: true }) == self.x2apic
    }

    /// Carries out commands of Linux's buffer up to its tail, or as many as are carried out at
    /// once.
    fn advance(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
    ) -> Progress {
        if !self.linux.has_commands() {
            return Progress::Done;
        }
        let mut stores = [None; BATCH];
        for place in &mut stores {
            if !self.linux.has_commands() {
                break;
            }
            let effect = self.linux.next(machine).and_then(|(raw, after)| {
                self.carry_out(machine, copies, cpus, raw, place).then_some(after)
            });
            let Some(after) = effect else {
                self.linux.stopped = true;
                break;
            };
            self.linux.head = after;
        }
        if !self.finish(machine) {
            return Progress::Stuck;
        }
        stores.iter().flatten().for_each(|store| machine.store(store));
        if self.linux.has_commands() { Progress::More } else { Progress::Done }
    }

    /// Carries out a command; `store` gets what Linux asks to be stored when it is done. False if
    /// the unit would stop at the command.
    fn carry_out(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        raw: [u64; 2],
        store: &mut Option<Store>,
    ) -> bool {
        let Ok(effect) = commands::decode(raw) else { return false };
        match effect {
            Effect::Completion(completion) => {
                *store = completion.store;
                // Emulators interrupt also if that is off.
                let is_on = read_long(machine, CONTROL) & control::COMPLETION_INTERRUPT != 0;
                if completion.interrupt && is_on {
                    self.send(machine, [command::WAIT | command::WAIT_INTERRUPTS, 0]);
                }
            }
            Effect::Devices(Devices::Like(device, _)) => {
                self.refresh_device(machine, copies, cpus, device);
                self.send(machine, raw);
            }
            Effect::InterruptsOf(device) => {
                let known = self.knows_whom().then_some(cpus);
                let place = own_table(machine, own_entry(machine, device));
                // Linux does not tell of others that have the same table.
                let shared =
                    place.is_some_and(|place| self.interrupts.changed(machine, known, place));
                self.send(machine, if shared { [command::ALL, 0] } else { raw });
            }
            Effect::All => {
                self.refresh_devices(machine, copies, cpus);
                self.send(machine, raw);
            }
            // An entry of the hypervisor lets no device keep translations.
            Effect::ToDevice(_) | Effect::Nothing => (),
            _ => self.send(machine, raw),
        }
        true
    }

    /// Puts a command into the hypervisor's buffer.
    fn send(&mut self, machine: &mut impl Machine, words: [u64; 2]) {
        machine.set_own_pair(OWN_BUFFER + self.tail, words);
        self.tail = (self.tail + COMMAND) % PAGE;
    }

    /// Waits until the unit has done all commands; false if it does not in time.
    fn finish(&mut self, machine: &mut impl Machine) -> bool {
        self.sequence += 1;
        let sequence = self.sequence;
        let word = machine.own(STATUS_WORD).get();
        self.send(machine, [command::WAIT | word | command::WAIT_STORES, sequence]);
        machine.write_long(COMMAND_TAIL, self.tail);
        machine.wait_until(LIMIT, |machine| machine.own_word(STATUS_WORD) == sequence)
    }
}

impl Linux {
    /// What the unit's registers say.
    fn of(machine: &mut impl Machine) -> Self {
        let tail = read_long(machine, COMMAND_TAIL) & OFFSET;
        Self {
            control: read_long(machine, CONTROL),
            device_table: read_long(machine, DEVICE_TABLE),
            buffer: read_long(machine, COMMAND_BUFFER),
            head: tail,
            tail,
            stopped: false,
            event_log: read_long(machine, EVENT_LOG),
            events: [0, 1, 2].map(|number| read_long(machine, EVENT_INTERRUPT + 8 * number)),
            exclusion: [EXCLUSION_BASE, EXCLUSION_LIMIT]
                .map(|register| read_long(machine, register)),
        }
    }

    /// Its buffer runs.
    fn runs(&self) -> bool {
        let on = control::ENABLE | control::COMMANDS;
        self.control & on == on && !self.stopped
    }

    /// It is not empty, either.
    fn has_commands(&self) -> bool {
        self.runs() && self.head != self.tail
    }

    /// The command at the head, and the head after it; `None` if there is none.
    fn next(&self, machine: &impl Machine) -> Option<([u64; 2], u64)> {
        let end = u64::from(buffer_entries(self.buffer)?) * COMMAND;
        let mut raw = [0; 2];
        let place = PhysAddr::new((self.buffer & buffer::ADDRESS) + self.head);
        let exists = self.has_commands()
            && self.head < end
            && self.tail < end
            && machine.read_linux(place, &mut raw);
        exists.then_some((raw, (self.head + COMMAND) % end))
    }

    /// Its log of events lies in its memory.
    fn has_log(&self, machine: &impl Machine) -> bool {
        let start = PhysAddr::new(self.event_log & buffer::ADDRESS);
        buffer_entries(self.event_log).is_some_and(|entries| {
            let size = u64::from(entries) * EVENT;
            (0..size).step_by(PAGE as usize).all(|page| machine.read_linux(start + page, &mut [0]))
        })
    }
}

/// The number of the entry for the line of a cell at `place`.
pub fn line_number(place: usize) -> u16 {
    (remapping::FIRST_LINE + place as u64 % MAX_LINES as u64) as u16
}

/// Tells whether an entry of an I/O APIC's table may be the hypervisor's.
pub fn is_own(number: u16) -> bool {
    (remapping::FIRST_LINE..1 << remapping::LINES_ORDER).contains(&number.into())
}

/// The hypervisor's entry for a device.
fn own_entry(machine: &impl Machine, device: Requester) -> [u64; 4] {
    let place = u64::from(device.0) * device::SIZE;
    [0, 1, 2, 3].map(|number| machine.own_word(place + 8 * number))
}

/// Where the table for interrupts of the function of a cell at `place` lies.
fn function_table(place: usize) -> u64 {
    OWN_FUNCTIONS + place as u64 % MAX_DEVICES as u64 * FUNCTION_SIZE
}

/// Empties it.
fn clear_function(machine: &mut impl Machine, place: usize) {
    for offset in (0..FUNCTION_SIZE).step_by(8) {
        machine.set_own_word(function_table(place) + offset, 0);
    }
}

/// The entry of a function of a cell. Nothing of what it does wrong is reported: Linux would hear
/// of that, as often as the cell likes.
fn of_cell(machine: &impl Machine, function: Function) -> [u64; 4] {
    const SILENT: [u64; 4] = [0, 3 << 33, 0, 0];
    /// IG: nor of messages by entries that are not in use.
    const IGNORED: u64 = 1 << 5;
    let (tables, interrupts) = of_function(machine, function);
    let mut entry = device::device(SILENT, tables, interrupts, false);
    entry[2] |= IGNORED;
    entry
}

/// What such an entry refers to.
fn of_function(machine: &impl Machine, function: Function) -> (Option<Tables>, Interrupts) {
    let Some(cell) = function.tables else { return (None, Interrupts::Blocked) };
    let levels = cell.kind.level().unwrap_or(1);
    let tables = Tables { top: cell.top, levels, domain: cell.domain, rights: Rights::ALL };
    let address = machine.own(function_table(function.place));
    (Some(tables), Interrupts::Table { address, order: FUNCTION_ORDER })
}

/// Where the copy of a table for interrupts, to which an entry of the hypervisor's refers, lies in
/// its memory.
fn own_table(machine: &impl Machine, entry: [u64; 4]) -> Option<u64> {
    match Interrupts::of_device(entry) {
        Ok(Interrupts::Table { address, .. }) => {
            let place = OWN_TABLES + (address.get() - machine.own(OWN_TABLES).get());
            (place < OWN_FUNCTIONS).then_some(place)
        }
        _ => None,
    }
}

/// The entry of a device that gets nowhere.
fn blocked() -> [u64; 4] {
    device::device([0; 4], None, Interrupts::Blocked, false)
}

/// Which one of the unit's own interrupts a register is about.
fn event_at(register: u64) -> usize {
    ((register - EVENT_INTERRUPT) / 8) as usize
}

/// Has the unit stop at the end of its buffer; false if it does not in time.
fn stop_buffer(machine: &mut impl Machine, states: u64) -> bool {
    write_control(machine, states & !control::COMMANDS);
    machine.wait_until(LIMIT, |machine| machine.read(STATUS) & status::COMMANDS_RUN as u32 == 0)
}

/// Gives the unit another buffer, which is empty: it begins at `head`. It runs when the unit's
/// states say so.
fn start_buffer(machine: &mut impl Machine, buffer: u64, head: u64) {
    machine.write_long(COMMAND_BUFFER, buffer);
    machine.write_long(COMMAND_HEAD, head);
    machine.write_long(COMMAND_TAIL, head);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DomainId;
    use crate::amd::irte::Irte;
    use crate::cell_tables::CellTables;
    use crate::copies::{Memory, Top};
    use crate::interrupt::tests::{Cells, agrees, cells};
    use crate::layout::{Access, Piece};
    use crate::tables::{self, Rights};
    use crtos_partition::ids::ApicId;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const OWN: u64 = 0x4000_0000;
    const LINUX_DEVICES: u64 = 0x10_0000;
    const LINUX_BUFFER: u64 = 0x11_0000;
    const LINUX_STATUS: u64 = 0x12_0000;
    const LINUX_LOG: u64 = 0x13_0000;
    /// Tables for interrupts, the second one not aligned to a page.
    const LINUX_INTERRUPTS: [u64; 2] = [0x14_0000, 0x14_0f80];
    const ORDER: u64 = 5;
    /// The first tables for addresses; each is a page.
    const LINUX_TABLES: u64 = 0x20_0000;
    const TABLES: u64 = 6;
    /// A block that Linux may lose.
    const LOST: u64 = 0x60_0000;

    /// A unit and the machine's memory.
    #[derive(Clone, Default)]
    struct Model {
        /// Linux's memory, and copies of its tables.
        tables: copies::tests::Model,
        registers: BTreeMap<u64, u64>,
        own: Vec<u64>,
        /// What is cached of entries for devices and interrupts.
        devices: BTreeMap<u16, [u64; 4]>,
        interrupts: BTreeMap<(u16, u64), u128>,
        /// It does nothing any more.
        hangs: bool,
        /// As QEMU's, it looks only when it is told of a device whether there are tables, which
        /// it takes from the number of levels, and lets everything pass until then.
        looks_late: bool,
        /// The devices that do not pass then.
        translated: BTreeSet<u16>,
    }

    impl Model {
        fn register(&self, offset: u64) -> u64 {
            self.registers.get(&offset).copied().unwrap_or(0)
        }

        fn set(&mut self, offset: u64, value: u64) {
            self.registers.insert(offset, value);
        }

        fn word(&self, address: u64) -> u64 {
            match address.checked_sub(OWN) {
                Some(offset) if offset < 2 * PIECE => self.own[(offset / 8) as usize],
                _ => self.tables.linux.get(&address).copied().unwrap_or(0),
            }
        }

        fn set_word(&mut self, address: u64, word: u64) {
            match address.checked_sub(OWN) {
                Some(offset) if offset < 2 * PIECE => self.own[(offset / 8) as usize] = word,
                _ => drop(self.tables.linux.insert(address, word)),
            }
        }

        fn run(&mut self) {
            let on = control::ENABLE | control::COMMANDS;
            let runs = self.register(CONTROL) & on == on;
            self.set(STATUS, if runs { status::COMMANDS_RUN } else { 0 });
            let end = u64::from(buffer_entries(self.register(COMMAND_BUFFER)).unwrap_or(1)) * 16;
            while runs && self.register(COMMAND_HEAD) != self.register(COMMAND_TAIL) {
                let head = self.register(COMMAND_HEAD);
                let place = (self.register(COMMAND_BUFFER) & buffer::ADDRESS) + head;
                let [low, high] = [self.word(place), self.word(place + 8)];
                let device = low as u16;
                match low >> 60 {
                    1 if low & 1 != 0 => self.set_word(low & 0xf_ffff_ffff_fff8, high),
                    1 | 3 => (),
                    2 => {
                        self.devices.remove(&device);
                        // An entry that there is not is as one that refuses everything.
                        let exists = u32::from(device) < device_count(self.register(DEVICE_TABLE));
                        let low = if exists { self.entry(device)[0] } else { 1 };
                        let passes = low & 1 == 0 || low & 2 != 0 && low >> 9 & 7 == 0;
                        match passes {
                            true => self.translated.remove(&device),
                            false => self.translated.insert(device),
                        };
                    }
                    5 => self.interrupts.retain(|(of, _), _| *of != device),
                    8 => {
                        self.devices.clear();
                        self.interrupts.clear();
                    }
                    // It stops there.
                    _ if place < OWN => break,
                    kind => panic!("{kind} is passed on"),
                }
                self.set(COMMAND_HEAD, (head + 16) % end);
            }
        }

        fn entry(&mut self, device: u16) -> [u64; 4] {
            let table = self.register(DEVICE_TABLE);
            assert!(u32::from(device) < device_count(table));
            let place = (table & device_table::ADDRESS) + 32 * u64::from(device);
            let entry = [0, 8, 16, 24].map(|offset| self.word(place + offset));
            *self.devices.entry(device).or_insert(entry)
        }

        /// Where a device gets to.
        fn translate(&mut self, device: u16, input: u64) -> Option<(u64, Rights)> {
            if self.register(CONTROL) & control::ENABLE == 0 {
                return self.tables.walk(Top::Untranslated(Kind::Host(1)), 0, input);
            }
            if self.looks_late && !self.translated.contains(&device) {
                return Some((input, Rights::ALL));
            }
            let [low, ..] = self.entry(device);
            let rights = Rights { read: low >> 61 & 1 != 0, write: low >> 62 & 1 != 0 };
            let levels = (low >> 9 & 7) as u8;
            let (top, allowed) = match (low & 3, levels) {
                // By tables of a guest, which nobody has here.
                (3, _) if low >> 55 & 1 != 0 => return None,
                (3, 0) => (Top::Untranslated(Kind::Host(1)), rights),
                (3, 1..=6) => {
                    // There are no addresses beyond.
                    let beyond = input.checked_shr(order_of_level(levels + 1)).unwrap_or(0);
                    if beyond != 0 {
                        return None;
                    }
                    let page = PhysAddr::new(low & 0xf_ffff_ffff_f000);
                    (Top::Table(page, Kind::Host(levels)), rights)
                }
                (1 | 3, _) => return None,
                _ => (Top::Untranslated(Kind::Host(1)), Rights::ALL),
            };
            let (address, rights) = self.tables.walk(top, 0, input)?;
            let rights = rights.and(allowed);
            (!rights.is_none()).then_some((address, rights))
        }

        /// What a message with this number raises; `None` also if it passes as it is.
        fn deliver(&mut self, device: u16, number: u64) -> Option<Interrupt> {
            let [_, _, word, _] = self.entry(device);
            if word & 1 == 0 || word >> 60 & 3 != 2 || number >> (word >> 1 & 15) != 0 {
                return None;
            }
            let form = self.form();
            let place = (word & 0xf_ffff_ffff_ffc0) + form.size() * number;
            let raw = match form {
                Form::Short => (self.word(place & !7) >> (8 * (place & 4)) & 0xffff_ffff).into(),
                _ => u128::from(self.word(place + 8)) << 64 | u128::from(self.word(place)),
            };
            let raw = *self.interrupts.entry((device, number)).or_insert(raw);
            Irte::decode(raw, form).ok()?.map(|entry| entry.interrupt)
        }

        fn passes(&mut self, device: u16) -> bool {
            let [_, _, word, _] = self.entry(device);
            word & 1 == 0 || word >> 60 & 3 == 1
        }

        fn form(&self) -> Form {
            match self.register(CONTROL) {
                states if states & control::LONG_ENTRIES == 0 => Form::Short,
                states => Form::Long { extended: states & control::EXTENDED != 0 },
            }
        }
    }

    impl Machine for Model {
        fn read(&mut self, offset: u64) -> u32 {
            half(self.register(offset & !7), offset & 4 != 0)
        }

        fn write(&mut self, offset: u64, value: u32) {
            let mut register = self.register(offset & !7);
            set_half(&mut register, offset & 4 != 0, value);
            self.write_long(offset & !7, register);
        }

        fn write_long(&mut self, offset: u64, value: u64) {
            if self.hangs || offset == STATUS {
                return;
            }
            self.set(offset, value);
            if offset == COMMAND_BUFFER {
                self.set(COMMAND_HEAD, 0);
                self.set(COMMAND_TAIL, 0);
            }
            self.run();
        }

        fn wait_until(&mut self, _: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
            done(self)
        }

        fn read_linux(&self, address: PhysAddr, words: &mut [u64]) -> bool {
            let end = address.get() + 8 * words.len() as u64;
            assert!(address.is_aligned(8) && address.get() >> 12 == (end - 1) >> 12);
            self.tables.read_linux(address, words)
        }

        fn write_linux(&mut self, _: PhysAddr, _: &[u64]) -> bool {
            panic!("nothing is written to Linux's memory");
        }

        fn memory(&mut self) -> &mut impl copies::Memory {
            &mut self.tables
        }

        fn store(&mut self, store: &Store) {
            if self.tables.read_linux(store.address, &mut [0]) {
                self.set_word(store.address.get(), store.value);
            }
        }

        fn own(&self, offset: u64) -> PhysAddr {
            PhysAddr::new(OWN + offset)
        }

        fn own_word(&self, offset: u64) -> u64 {
            self.word(OWN + offset)
        }

        fn set_own_word(&mut self, offset: u64, word: u64) {
            self.set_word(OWN + offset, word);
        }

        fn set_own_pair(&mut self, offset: u64, [low, high]: [u64; 2]) {
            assert!(offset.is_multiple_of(16));
            self.set_own_word(offset, low);
            self.set_own_word(offset + 8, high);
        }

        fn write_back(&mut self, _: u64) {}
    }

    /// What Linux does.
    #[derive(Clone, Debug)]
    enum Step {
        /// Changes an entry of a device, and tells of it.
        Device(u16, [u64; 4]),
        /// Changes an entry for interrupts, and tells of it.
        Interrupt(usize, u64, u128),
        /// The same in silence.
        Silent(usize, u64, u128),
        /// Changes a word of a table for addresses.
        Store(u64, u64),
        /// Writes a register.
        Register(u64, u32),
        /// Writes a command as it comes.
        Command([u64; 2]),
        /// Loses a block to a cell, or has it again.
        Lose,
        Regain,
        /// A CPU changes its owner.
        Owner(u32),
    }

    fn page() -> impl Strategy<Value = u64> {
        let lost = LOST..LOST + 0x3000;
        prop_oneof![8 => LINUX_TABLES..LINUX_TABLES + 0x1000 * TABLES, 1 => lost]
            .prop_map(|address| address & !0xfff)
    }

    fn entry() -> impl Strategy<Value = [u64; 4]> {
        let rights = prop::sample::select(vec![0u64, 1, 2, 3, 3, 3, 3]);
        let valid = prop::sample::select(vec![3u64, 3, 3, 3, 1, 0]);
        let low = (page(), 0u64..5, rights, valid)
            .prop_map(|(page, levels, rights, valid)| page | levels << 9 | rights << 61 | valid);
        let interrupts = (0usize..2, 0u64..8).prop_map(|(table, kind)| match kind {
            0 => 0,
            1 => 1,
            2 => 1 | 1 << 60,
            _ => LINUX_INTERRUPTS[table] | 1 | ORDER << 1 | 2 << 60,
        });
        let ordinary = (low, 0u64..4, interrupts)
            .prop_map(|(low, domain, interrupts)| [low, domain, interrupts, 0]);
        prop_oneof![8 => ordinary, 1 => any::<[u64; 4]>()]
    }

    fn irte() -> impl Strategy<Value = u128> {
        let long = (0u64..64, 0x20u64..0x28, 0u64..4).prop_map(|(destination, vector, mode)| {
            u128::from(vector) << 64 | u128::from(1 | mode << 2 | destination << 8)
        });
        let short = (0u64..64, 0x20u64..0x28)
            .prop_map(|(destination, vector)| u128::from(1 | destination << 8 | vector << 16));
        prop_oneof![4 => long, 4 => short, 1 => any::<u128>(), 1 => Just(0u128)]
    }

    fn word() -> impl Strategy<Value = u64> {
        let rights = prop::sample::select(vec![1u64, 2, 3, 3, 3, 3]);
        let table = (page(), 1u64..4).prop_map(|(page, level)| page | level << 9);
        let leaf = prop_oneof![
            (0u64..0x800).prop_map(|page| page << 12),
            (0u64..4).prop_map(|block| block << 21),
            // Of 64 KiB, of 4 MiB, of any size.
            (0u64..0x80).prop_map(|page| page << 16 | 0x7000 | 7 << 9),
            (0u64..2).prop_map(|block| block << 22 | 0x1f_f000 | 7 << 9),
            any::<u64>().prop_map(|address| address & 0xf_ffff_f000 | 7 << 9),
        ];
        let fit =
            (prop_oneof![table, leaf], rights).prop_map(|(entry, rights)| entry | 1 | rights << 61);
        prop_oneof![8 => fit, 1 => any::<u64>(), 1 => Just(0u64)]
    }

    fn step() -> impl Strategy<Value = Step> {
        let place = (0..TABLES, 0u64..18)
            .prop_map(|(table, word)| LINUX_TABLES + (table << 12) + (word << 3));
        let register = prop::sample::select(vec![
            DEVICE_TABLE,
            EVENT_LOG,
            EVENT_LOG + 4,
            EXCLUSION_BASE,
            EVENT_INTERRUPT,
            EVENT_HEAD,
            EVENT_INTERRUPT + 4,
            0x38,
            0xe0,
            0xe8,
            0xf0,
            0x15c,
            GUEST_INTERRUPT,
        ]);
        let value = prop_oneof![any::<u32>(), Just(LINUX_LOG as u32), Just(8 << 24)];
        prop_oneof![
            4 => (0u16..4, entry()).prop_map(|(device, entry)| Step::Device(device, entry)),
            4 => (0usize..2, 0u64..32, irte())
                .prop_map(|(of, at, raw)| Step::Interrupt(of, at, raw)),
            1 => (0usize..2, 0u64..32, irte()).prop_map(|(of, at, raw)| Step::Silent(of, at, raw)),
            8 => (place, word()).prop_map(|(place, word)| Step::Store(place, word)),
            2 => (register, value).prop_map(|(register, value)| Step::Register(register, value)),
            1 => any::<[u64; 2]>().prop_map(Step::Command),
            1 => Just(Step::Lose),
            1 => Just(Step::Regain),
            1 => (0u32..64).prop_map(Step::Owner),
        ]
    }

    /// A machine whose Linux uses the unit.
    fn booted(form: Form) -> Model {
        let mut model = Model { own: vec![0; (2 * PIECE / 8) as usize], ..Model::default() };
        model.set(FEATURES, 0x29d7);
        model.set(DEVICE_TABLE, LINUX_DEVICES);
        model.set(EVENT_LOG, LINUX_LOG | 8 << buffer::SIZE_SHIFT);
        model.write_long(COMMAND_BUFFER, LINUX_BUFFER | 8 << buffer::SIZE_SHIFT);
        for device in 0..128 {
            model.set_word(LINUX_DEVICES + 32 * device, 3);
            model.set_word(LINUX_DEVICES + 32 * device + 16, 1);
        }
        let states = match form {
            Form::Short => 0,
            Form::Long { extended: false } => control::LONG_ENTRIES,
            Form::Long { extended: true } => control::LONG_ENTRIES | control::EXTENDED,
        };
        let own = control::ENABLE | control::COMMANDS | control::EVENT_LOG;
        // Requests for pages, posted interrupts, a second log, routed ranges.
        let others = 7 << 13 | 7 << 25 | 3 << 28 | 3 << 32 | 1 << 40;
        model.write_long(CONTROL, states | own | others);
        model
    }

    /// Linux's accesses: to the unit, or to what drives it.
    struct Driver {
        model: Model,
        unit: Option<Unit>,
        copies: Box<Copies>,
        cells: Cells,
        waits: u64,
    }

    impl Driver {
        fn new(model: Model, cells: &Cells) -> Self {
            let copies = Box::new(Copies::new(Kind::Host(3)));
            Self { model, unit: None, copies, cells: cells.clone(), waits: 0 }
        }

        fn take(&mut self, x2apic: bool) {
            let Self { model, copies, cells, .. } = self;
            self.unit = Some(Unit::take(model, copies, cells, x2apic).expect("fit"));
            copies.collect(&mut model.tables);
        }

        fn write(&mut self, offset: u64, value: u32) {
            let Self { model, copies, cells, .. } = self;
            match &mut self.unit {
                Some(unit) => {
                    while unit.write(model, copies, cells, offset, value) != Progress::Done {}
                    copies.collect(&mut model.tables);
                }
                None => model.write(offset, value),
            }
        }

        fn read(&mut self, offset: u64) -> u32 {
            match &mut self.unit {
                Some(unit) => unit.read(&mut self.model, offset),
                None => self.model.read(offset),
            }
        }

        /// Writes commands behind the tail, and has them carried out.
        fn tell(&mut self, commands: &[[u64; 2]]) {
            self.waits += 1;
            let wait = [1 << 60 | LINUX_STATUS | 1, self.waits];
            for command in commands.iter().chain([&wait]) {
                let tail = u64::from(self.read(COMMAND_TAIL));
                for (word, offset) in command.iter().zip([0, 8]) {
                    self.model.set_word(LINUX_BUFFER + tail + offset, *word);
                }
                self.write(COMMAND_TAIL, ((tail + 16) % 4096) as u32);
            }
        }

        fn act(&mut self, step: &Step) {
            match *step {
                Step::Device(device, entry) => {
                    for (number, word) in (0..).zip(entry) {
                        let place = LINUX_DEVICES + 32 * u64::from(device) + 8 * number;
                        self.model.set_word(place, word);
                    }
                    let device = u64::from(device);
                    self.tell(&[[2 << 60 | device, 0], [5 << 60 | device, 0]]);
                }
                Step::Interrupt(table, number, raw) => {
                    self.set_interrupt(table, number, raw);
                    // Of all devices that may have it.
                    self.tell(&[0, 1, 2, 3].map(|device| [5 << 60 | device, 0]));
                }
                Step::Silent(table, number, raw) => self.set_interrupt(table, number, raw),
                Step::Store(place, word) => {
                    self.model.set_word(place, word);
                    let Self { model, copies, .. } = self;
                    if self.unit.is_some() && model.tables.watched.contains(&(place & !0xfff)) {
                        copies.changed(&mut model.tables, PhysAddr::new(place));
                        copies.collect(&mut model.tables);
                    }
                }
                Step::Register(register, value) => self.write(register, value),
                Step::Command(command) => self.tell(&[command]),
                Step::Lose => {
                    let Self { model, copies, cells, .. } = self;
                    model.tables.private.insert(LOST);
                    if let Some(unit) = &mut self.unit {
                        copies.withdraw(&mut model.tables, PhysAddr::new(LOST));
                        unit.memory_changed(model, copies, cells);
                        assert!(unit.forget_translations(model));
                    }
                }
                Step::Regain => {
                    let Self { model, copies, cells, .. } = self;
                    model.tables.private.remove(&LOST);
                    if let Some(unit) = &mut self.unit {
                        copies.look_again(&mut model.tables);
                        unit.memory_changed(model, copies, cells);
                        copies.collect(&mut model.tables);
                    }
                }
                Step::Owner(cpu) => {
                    let Self { model, cells, .. } = self;
                    if cells.cpus.remove(&cpu).is_none() {
                        cells.cpus.insert(cpu, vec![0x21]);
                    }
                    if let Some(unit) = &mut self.unit {
                        assert!(unit.owners_changed(model, cells));
                    }
                }
            }
        }

        fn set_interrupt(&mut self, table: usize, number: u64, raw: u128) {
            let start = LINUX_INTERRUPTS[table];
            match self.model.form() {
                Form::Short => {
                    let place = start + 4 * number;
                    let mut word = self.model.word(place & !7);
                    set_half(&mut word, place & 4 != 0, raw as u32);
                    self.model.set_word(place & !7, word);
                }
                Form::Long { .. } => {
                    self.model.set_word(start + 16 * number, raw as u64);
                    self.model.set_word(start + 16 * number + 8, (raw >> 64) as u64);
                }
            }
        }
    }

    const FORMS: [Form; 3] =
        [Form::Short, Form::Long { extended: false }, Form::Long { extended: true }];

    fn input() -> impl Strategy<Value = u64> {
        (0u64..2, 0u64..3, 0u64..18, 0u64..18, 0u64..4096).prop_map(
            |(four, three, two, one, offset)| {
                four << 39 | three << 30 | two << 21 | one << 12 | offset
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Devices get where they get without the hypervisor, as far as that is harmless, and Linux
        /// finds what it finds without it; also when the unit is given back.
        #[test]
        fn a_unit_does_what_linux_asks_as_far_as_it_may(
            form in prop::sample::select(&FORMS),
            before in prop::collection::vec(step(), 0..8),
            during in prop::collection::vec(step(), 1..24),
            cells in cells(),
            inputs in prop::collection::vec((0u16..4, input()), 12),
        ) {
            let told = |step: &&Step| !matches!(step, Step::Register(..) | Step::Command(_)
                | Step::Silent(..) | Step::Lose | Step::Owner(_));
            let mut native = Driver::new(booted(form), &cells);
            let mut driver = Driver::new(booted(form), &cells);
            for step in before.iter().filter(told) {
                native.act(step);
                driver.act(step);
            }
            // A first entry that lets messages pass says that Linux does not remap them.
            if native.model.passes(0) {
                return Ok(());
            }
            let x2apic = form == Form::Long { extended: true };
            driver.take(x2apic);
            for step in during.iter().filter(told) {
                native.act(step);
                driver.act(step);
                for register in [DEVICE_TABLE, COMMAND_BUFFER, COMMAND_HEAD, COMMAND_TAIL, CONTROL,
                    EVENT_LOG, STATUS]
                {
                    prop_assert_eq!(native.read(register), driver.read(register));
                }
                prop_assert_eq!(native.model.word(LINUX_STATUS), native.waits);
                prop_assert_eq!(driver.model.word(LINUX_STATUS), native.waits);
                for (device, input) in &inputs {
                    let asked = native.model.translate(*device, *input);
                    prop_assert_eq!(driver.model.translate(*device, *input), asked);
                }
                let numbers = |device| (0..32).map(move |number| (device, number));
                for (device, number) in (0..4).flat_map(numbers) {
                    let asked = native.model.deliver(device, number);
                    let fit = asked.filter(|interrupt| interrupt.check(&cells).is_ok());
                    prop_assert_eq!(driver.model.deliver(device, number), fit);
                }
            }
            let mut unit = driver.unit.take().expect("taken");
            prop_assert!(unit.give_back(&mut driver.model, &mut driver.copies));
            driver.copies.collect(&mut driver.model.tables);
            prop_assert!(driver.model.tables.is_left_alone() && driver.copies.is_empty());
            native.tell(&[]);
            driver.tell(&[]);
            for register in (0..0x40).step_by(8).chain((0x2000..0x2048).step_by(8)) {
                prop_assert_eq!(native.read(register), driver.read(register), "{:#x}", register);
            }
            for (device, input) in inputs {
                let asked = native.model.translate(device, input);
                prop_assert_eq!(driver.model.translate(device, input), asked);
            }
        }

        /// Whatever Linux does, its devices reach no memory that it does not have, and no CPU of a
        /// cell that did not ask; and the log lies in Linux's memory.
        #[test]
        fn a_hostile_linux_reaches_nothing(
            form in prop::sample::select(&FORMS),
            steps in prop::collection::vec(step(), 1..40),
            states in prop::option::of(any::<u64>()),
            cells in cells(),
            checked: bool,
            looks_late: bool,
            inputs in prop::collection::vec((0u16..4, input()), 12),
        ) {
            let mut driver = Driver::new(booted(form), &cells);
            driver.copies.set_checked(checked);
            driver.model.looks_late = looks_late;
            driver.take(form == Form::Long { extended: true });
            for (number, step) in steps.iter().enumerate() {
                driver.act(step);
                if let Some(states) = states && number == steps.len() / 2 {
                    driver.write(CONTROL, states as u32);
                    driver.write(CONTROL + 4, (states >> 32) as u32);
                }
                let found = driver.model.register(CONTROL);
                prop_assert_eq!(found & !(KEPT | LINUX | control::COMMANDS | control::ENABLE), 0);
                prop_assert_eq!(found & control::ENABLE, control::ENABLE);
                prop_assert_eq!(driver.model.register(EXCLUSION_BASE), 0);
                for (device, input) in &inputs {
                    // Tables that are checked only are Linux's, who may change them.
                    if let Some((address, _)) = driver.model.translate(*device, *input)
                        && !checked
                    {
                        let page = PhysAddr::new(address & !0xfff);
                        prop_assert!(tables::Memory::may_reach(&driver.model.tables, page, 4096));
                    }
                }
                for device in 0..4 {
                    prop_assert!(!driver.model.passes(device));
                    for number in 0..32 {
                        if let Some(sent) = driver.model.deliver(device, number) {
                            agrees(&sent, &driver.cells)?;
                            prop_assert!(sent.check(&driver.cells).is_ok());
                        }
                    }
                }
                let log = driver.model.register(EVENT_LOG) & buffer::ADDRESS;
                if found & control::EVENT_LOG != 0 {
                    prop_assert!(driver.model.read_linux(PhysAddr::new(log), &mut [0]));
                }
                let event = Interrupt::of_amd_event(driver.model.register(EVENT_INTERRUPT));
                if found & control::INTERRUPTS != 0 {
                    prop_assert!(event.check(&driver.cells).is_ok());
                }
            }
            let mut unit = driver.unit.take().expect("taken");
            prop_assert!(unit.give_back(&mut driver.model, &mut driver.copies));
            driver.copies.collect(&mut driver.model.tables);
            prop_assert!(driver.model.tables.is_left_alone() && driver.copies.is_empty());
        }
    }

    #[test]
    fn functions_of_cells_are_the_hypervisors() {
        let function = Requester(2);
        let cells = Cells { cpus: [(3, vec![])].into(), clustered: false };
        for form in FORMS {
            let x2apic = form == Form::Long { extended: true };
            let mut driver = Driver::new(booted(form), &cells);
            driver.take(x2apic);
            let Driver { model, unit: Some(unit), copies, .. } = &mut driver else { panic!() };
            let domain = DomainId(0xfff3);
            let tables = CellTables::new(&mut model.tables, Kind::Host(3), domain).expect("memory");
            let access = Access::FULL;
            let piece = Piece { address: PhysAddr::new(0x60_0000), order: 21, access };
            assert!(tables.map(&mut model.tables, 0, piece));
            let set = |model: &mut Model, unit: &mut Unit, copies: &mut Copies, tables| {
                assert!(copies.set_function(&mut model.tables, function, tables));
                unit.function_changed(model, copies, &cells, function);
                assert!(unit.forget_translations(model));
            };
            set(model, unit, copies, Some(Some(tables)));
            let known = copies.function(function).expect("a function");
            assert_eq!(model.translate(2, 0x1234), Some((0x60_1234, Rights::ALL)), "{form:?}");
            assert_eq!(model.entry(2)[1] as u16, domain.0);
            // It reports nothing.
            assert_eq!((model.entry(2)[1] >> 33 & 3, model.entry(2)[2] >> 5 & 1), (3, 1));
            let interrupt = Interrupt::of_cell(ApicId(3), 0x61, x2apic);
            for number in [0, 1, 7, 63] {
                assert!(unit.set_message(model, known.place, number, Some(interrupt)));
                assert_eq!(model.deliver(2, number.into()), Some(interrupt), "{form:?}");
            }
            assert_eq!(model.deliver(2, 2), None);
            assert!(unit.set_message(model, known.place, 1, None));
            assert_eq!(model.deliver(2, 1), None);
            assert_eq!(model.deliver(2, 7), Some(interrupt));
            assert!(unit.forget_domain(model, domain));
            // Whatever Linux has for it, and tells.
            unit.refresh_devices(model, copies, &cells);
            assert!(unit.owners_changed(model, &cells));
            assert_eq!(model.translate(2, 0x1234), Some((0x60_1234, Rights::ALL)));
            assert_eq!(model.deliver(2, 7), Some(interrupt));
            assert!(unit.silence(model, known.place));
            assert_eq!(model.deliver(2, 7), None);
            set(model, unit, copies, Some(None));
            assert_eq!(model.translate(2, 0x1234), None);
            set(model, unit, copies, None);
            tables.free(&mut model.tables);
            assert!(unit.give_back(model, copies));
            copies.collect(&mut model.tables);
            assert!(model.tables.is_left_alone());
        }
    }

    #[test]
    fn all_of_a_domain_is_forgotten() {
        let raw = [command::PAGES | 0xfff3 << 32, command::ALL_PAGES];
        let effect = commands::decode(raw).expect("a command");
        assert_eq!(effect, Effect::Mappings(Some(DomainId(0xfff3)), None));
    }

    /// Whatever Linux has for the I/O APIC, a line stays, and no other device has it.
    #[test]
    fn lines_of_cells_are_the_hypervisors() {
        let io_apic = Requester(2);
        let cells = Cells { cpus: [(3, vec![])].into(), clustered: false };
        for form in FORMS {
            let x2apic = form == Form::Long { extended: true };
            let mut driver = Driver::new(booted(form), &cells);
            // Linux has one table for two devices, of all entries, and each interrupts CPU 0.
            let of_linux = Interrupt::of_cell(ApicId(0), 0x41, x2apic);
            let raw = Irte { interrupt: of_linux, silent: false, wants_end: false }.encode(form);
            let (low, high) = match form {
                Form::Short => (raw as u64 | (raw as u64) << 32, raw as u64 | (raw as u64) << 32),
                Form::Long { .. } => (raw as u64, (raw >> 64) as u64),
            };
            for place in (0..form.size() * 512).step_by(16) {
                driver.model.set_word(LINUX_INTERRUPTS[0] + place, low);
                driver.model.set_word(LINUX_INTERRUPTS[0] + place + 8, high);
            }
            let table = |order: u64| LINUX_INTERRUPTS[0] | 2 << 60 | order << 1 | 1;
            for device in [2, 3] {
                driver.model.set_word(LINUX_DEVICES + 32 * device + 16, table(9));
            }
            driver.take(x2apic);
            let Driver { model, unit: Some(unit), copies, .. } = &mut driver else { panic!() };
            let number = u64::from(line_number(MAX_LINES - 1));
            assert_eq!(number, 511);
            assert!(is_own(line_number(0)) && !is_own(line_number(0) - 1) && !is_own(512));
            assert_eq!(model.deliver(2, number), Some(of_linux));
            let interrupt = Interrupt::of_cell(ApicId(3), 0x61, x2apic);
            assert!(!unit.set_line(model, 15, Some(interrupt)));
            assert!(unit.add_line(model, copies, &cells, io_apic, 15));
            assert!((496..512).all(|number| model.deliver(2, number).is_none()));
            assert!(unit.set_line(model, 15, Some(interrupt)));
            let is_there = |model: &mut Model| {
                assert_eq!(model.deliver(2, number), Some(interrupt), "{form:?}");
                assert_eq!(model.deliver(2, number - 1), None);
                assert_ne!(model.deliver(3, number), Some(interrupt));
            };
            is_there(model);
            assert_eq!(model.deliver(2, 5), Some(of_linux));
            assert_eq!(model.deliver(3, number), Some(of_linux));
            assert!(unit.owners_changed(model, &cells));
            is_there(model);
            // A smaller table, none, one that is not its memory, everything passes, nothing does.
            for word in [table(5), 0, table(9) + (1 << 40), 1, 1 | 1 << 60, table(9)] {
                model.set_word(LINUX_DEVICES + 32 * 2 + 16, word);
                unit.function_changed(model, copies, &cells, io_apic);
                assert!(unit.forget_translations(model));
                is_there(model);
                assert!(!model.passes(2));
            }
            assert_eq!(model.deliver(2, 5), Some(of_linux));
            assert!(unit.set_line(model, 15, None));
            assert_eq!(model.deliver(2, number), None);
            assert!(unit.give_back(model, copies));
            assert_eq!(model.deliver(2, number), Some(of_linux));
        }
    }

    #[test]
    fn a_unit_that_does_not_remap_interrupts_confines_addresses() {
        let cells = Cells { cpus: BTreeMap::new(), clustered: false };
        let mut driver = Driver::new(booted(Form::Short), &cells);
        let Driver { model, copies, cells, .. } = &mut driver;
        // The first device's messages pass.
        model.set_word(LINUX_DEVICES + 16, 0);
        let before = read_long(model, DEVICE_TABLE);
        let mut unit = Unit::take(model, copies, cells, false).unwrap();
        assert!(!unit.confines_interrupts());
        assert_ne!(read_long(model, DEVICE_TABLE), before);
        for device in [0, 1] {
            let entry = [0, 1, 2, 3].map(|word| model.own_word(device::SIZE * device + 8 * word));
            assert_eq!(Interrupts::of_device(entry), Ok(Interrupts::PassThrough));
            let attachment = Attachment::of_device(entry).unwrap();
            assert!(!matches!(attachment.translation, Translation::PassThrough(_)));
        }
        // Functions of cells need entries.
        assert!(!unit.set_message(model, 0, 0, None));
        assert!(unit.give_back(model, copies));
        assert_eq!(read_long(model, DEVICE_TABLE), before);
    }

    #[test]
    fn a_unit_that_does_not_fit_stays_with_linux() {
        let cells = Cells { cpus: BTreeMap::new(), clustered: false };
        let refused = |change: &dyn Fn(&mut Model)| {
            let mut driver = Driver::new(booted(Form::Short), &cells);
            change(&mut driver.model);
            let before = driver.model.registers.clone();
            let Driver { model, copies, cells, .. } = &mut driver;
            let refused = Unit::take(model, copies, cells, false).err();
            assert_eq!(driver.model.registers, before);
            refused
        };
        let cases = [
            (FEATURES, 0, Unfit::Incapable),
            (CONTROL, control::ENABLE | control::COMMANDS | 1 << 59, Unfit::Incapable),
            (CONTROL, control::ENABLE | control::COMMANDS | 1 << 34, Unfit::Incapable),
            (CONTROL, control::COMMANDS, Unfit::Unused),
            (CONTROL, control::ENABLE, Unfit::Unused),
            (STATUS, 0, Unfit::Broken),
            (COMMAND_TAIL, 16, Unfit::Stuck),
        ];
        for (register, value, why) in cases {
            let found = refused(&|model| model.set(register, value));
            assert_eq!(found, Some(why));
        }
    }
}
