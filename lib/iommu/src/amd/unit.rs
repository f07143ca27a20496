// SPDX-License-Identifier: MIT OR Apache-2.0
//! A unit that was taken over from a running Linux, and is driven for it.
//!
//! The unit has a command buffer and a device table of the hypervisor's. An entry of that table is
//! made of Linux's entry for the device: it refers to [copies](crate::copies) of Linux's tables for
//! addresses, or to the identity of Linux's memory, and to a [checked copy](super::remapping) of
//! its table for interrupts. Commands of Linux's buffer say which entry to look at again; what they
//! say of caches is passed on.
//!
//! Linux's accesses to the registers end here.

use crtos_partition::address::PhysAddr;

use super::commands;
use super::device::{self, Interrupts, Tables};
use super::irte::Form;
use super::registers::{
    COMMAND_BUFFER, COMMAND_HEAD, COMMAND_TAIL, CONTROL, DEVICE_TABLE, EVENT_HEAD, EVENT_INTERRUPT,
    EVENT_LOG, EXCLUSION_BASE, EXCLUSION_LIMIT, FEATURES, Features, GUEST_INTERRUPT, STATUS, buffer,
    buffer_entries, control, device_count, device_table, status,
};
use super::remapping;
use crate::attachment::{Attachment, Translation};
use crate::copies::{self, Copies};
use crate::effect::{Devices, Effect, Store};
use crate::interrupt::{Cpus, Interrupt};
use crate::layout::Kind;
use crate::machine::{MAX_PIECES, Machine, PIECE, Progress, Unfit, half, read_long, set_half};
use crate::Requester;
use crate::tables::order_of_level;

/// Bytes of the pieces of memory that the hypervisor needs for a unit.
pub const OWN_SIZES: [u64; MAX_PIECES] = [PIECE, PIECE];
/// The largest device table fills the first one.
const DEVICES: u32 = 1 << 16;
/// The tables for interrupts begin the second one.
const OWN_TABLES: u64 = PIECE;
/// The command buffer, of one page.
const OWN_BUFFER: u64 = 2 * PIECE - 2 * PAGE;
/// The word that tells that all commands are done.
const STATUS_WORD: u64 = 2 * PIECE - PAGE;
const _: () = assert!(DEVICES as u64 * device::SIZE == PIECE);
const _: () = assert!(OWN_TABLES + remapping::SIZE <= OWN_BUFFER);

const PAGE: u64 = 4096;
/// Bytes of a command.
const COMMAND: u64 = 16;
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
/// What is off while the unit is taken over: logs that would be stored to memory of Linux's choice.
const OFF: u64 = control::PAGE_REQUESTS | control::POSTING | control::GUEST_LOG;

/// First words of the hypervisor's commands in its buffer.
mod command {
    pub const WAIT: u64 = 1 << 60;
    pub const WAIT_STORES: u64 = 1 << 0;
    pub const WAIT_INTERRUPTS: u64 = 1 << 1;
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
    linux: Linux,
    /// What the unit's states were.
    found: u64,
    interrupts: remapping::Copies,
    /// Index of the place in the buffer for the next command.
    tail: u64,
    /// What the status word says when all commands are done.
    sequence: u64,
    refused: u64,
}

fn write_control(machine: &mut impl Machine, states: u64) {
    machine.write_long(CONTROL, states);
}

impl Unit {
    /// Takes a unit over that Linux uses for addresses and interrupts. No CPU of Linux runs
    /// meanwhile, and none goes on with cached translations. `x2apic` says that the CPUs are in
    /// x2APIC mode.
    pub fn take(
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        x2apic: bool,
    ) -> Result<Self, Unfit> {
        let features = Features(read_long(machine, FEATURES));
        let found = read_long(machine, CONTROL);
        if !features.invalidates_all() || found & control::UNCACHED_INTERRUPTS != 0 {
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
        let (tail, sequence, refused) = (0, 0, 0);
        let mut unit = Self { x2apic, linux, found, interrupts, tail, sequence, refused };
        // Linux has an entry for each device that says so, or for none.
        let first = unit.linux_entry(machine, Requester(0)).map(Interrupts::of_device);
        if first.is_none_or(|first| first == Ok(Interrupts::PassThrough)) {
            return Err(Unfit::Unused);
        }
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
        self.forget_translations(machine)
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

    /// Makes all copies of entries for interrupts again, since a CPU changed its owner; false if the
    /// unit does not do what it is told.
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

    /// Has the unit forget what it cached of tables; false if it does not do what it is told.
    pub fn forget_translations(&mut self, machine: &mut impl Machine) -> bool {
        self.send(machine, [command::ALL, 0]);
        self.finish(machine)
    }

    /// How many entries of Linux were refused, each time that they were looked at.
    pub fn refused(&self) -> u64 {
        self.refused + self.interrupts.refused()
    }

    /// What Linux reads in the 32 bits at `offset`, a multiple of 4.
    pub fn read(&self, machine: &mut impl Machine, offset: u64) -> u32 {
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
                read_long(machine, STATUS) & !status::COMMANDS_RUN | runs
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
            EVENT_HEAD | STATUS => machine.write(offset, value),
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
        let states = self.found & !(OFF | LINUX) | own | wanted;
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
        let place = PhysAddr::new(table & device_table::ADDRESS) + u64::from(device.0) * device::SIZE;
        let exists = u32::from(device.0) < device_count(table) && machine.read_linux(place, &mut raw);
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
        let raw = match self.linux.control & control::ENABLE {
            // Everything passes.
            0 => Some([0; 4]),
            _ => self.linux_entry(machine, device),
        };
        let Some(raw) = raw else {
            return self.put(machine, copies, device, blocked());
        };
        let tables = self.tables(machine, copies, raw);
        let interrupts = self.remapping(machine, cpus, raw);
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
        let Ok(Attachment { translation, domain, .. }) = Attachment::of_device(raw) else {
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
        raw: [u64; 4],
    ) -> Interrupts {
        let known = self.knows_whom().then_some(cpus);
        match Interrupts::of_device(raw) {
            Ok(Interrupts::Table { address, order }) => {
                let place = self.interrupts.acquire(machine, known, address, order);
                self.refused += u64::from(place.is_none());
                place.map_or(Interrupts::Blocked, |place| Interrupts::Table {
                    address: machine.own(place),
                    order,
                })
            }
            Ok(Interrupts::Blocked) => Interrupts::Blocked,
            Ok(Interrupts::PassThrough) | Err(_) => {
                self.refused += 1;
                Interrupts::Blocked
            }
        }
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

    /// Carries out commands of Linux's buffer up to its tail, or as many as are carried out at once.
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
                if completion.interrupt {
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
            let size = u64::from(entries) * 16;
            (0..size).step_by(PAGE as usize).all(|page| machine.read_linux(start + page, &mut [0]))
        })
    }
}

/// The hypervisor's entry for a device.
fn own_entry(machine: &impl Machine, device: Requester) -> [u64; 4] {
    let place = u64::from(device.0) * device::SIZE;
    [0, 1, 2, 3].map(|number| machine.own_word(place + 8 * number))
}

/// Where the table for interrupts of an entry of the hypervisor's lies in its memory.
fn own_table(machine: &impl Machine, entry: [u64; 4]) -> Option<u64> {
    match Interrupts::of_device(entry) {
        Ok(Interrupts::Table { address, .. }) => {
            Some(OWN_TABLES + (address.get() - machine.own(OWN_TABLES).get()))
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
