// SPDX-License-Identifier: MIT OR Apache-2.0
//! A unit that was taken over from a running Linux, and is driven for it.
//!
//! The unit has a queue and tables of the hypervisor's. The interrupt-remapping table holds checked
//! copies of Linux's entries; a command of Linux's queue says which entry to look at again. The
//! tables that translate addresses are [`Copies`] of Linux's, which change with them, so commands
//! about these are passed on.
//!
//! Linux's accesses to the registers end here. What the unit does for Linux it does before the
//! access ends, so that Linux never waits for more than it would without the hypervisor.

use crtos_abi::device::{MAX_DEVICES, MAX_LINES};
use crtos_partition::address::PhysAddr;
use crtos_partition::message;

use super::irte::{self, Irte, Source};
use super::queue::{Mode, descriptor_size};
use super::registers::{
    CAPABILITY, COMMAND, COMPLETION_CONTROL, COMPLETION_STATUS, CONTEXT_COMMAND, Capability,
    EXTENDED_CAPABILITY, ExtendedCapability, FAULT_CONTROL, FAULT_STATUS, PAGE_REQUEST_CONTROL,
    PAGE_REQUEST_HEAD, PAGE_REQUEST_STATUS, QUEUE_ADDRESS, QUEUE_HEAD, QUEUE_TAIL, REMAPPING_TABLE,
    ROOT_TABLE, STATUS, event, fault, fault_record, global, queue, remapping, root,
};
use crate::copies::{self, Copies, Top};
use crate::effect::{Effect, Store};
use crate::fault::Fault;
use crate::interrupt::{Cpus, Interrupt, Refused};
use crate::layout::Kind;
use crate::machine::{MAX_PIECES, Machine, Progress, Unfit, half, read_long, set_half};
use crate::tables::order_of_level;
use crate::unit::MESSAGES;
use crate::{DomainId, Requester, flag};

/// Bytes of the pieces of memory that the hypervisor needs for a unit.
pub const OWN_SIZES: [u64; MAX_PIECES] = [STATUS_WORD + PAGE, 0];
/// The largest interrupt-remapping table comes first.
const TABLE_ENTRIES: u64 = 1 << 16;
const ENTRY: u64 = 16;
/// The last entries are for messages of functions of cells and for their lines, not Linux's.
const FIRST_OWN: u64 = FIRST_LINE - MAX_DEVICES as u64 * MESSAGES;
const FIRST_LINE: u64 = TABLE_ENTRIES - MAX_LINES as u64;
/// Then the queue, of one page.
const OWN_QUEUE: u64 = TABLE_ENTRIES * ENTRY;
/// Then the word that tells that all commands are done.
const STATUS_WORD: u64 = OWN_QUEUE + PAGE;
const PAGE: u64 = 4096;

/// How long a command to the unit may take, in milliseconds.
const COMMAND_LIMIT: u64 = 10;
/// How long the commands of a queue may take, in milliseconds.
const QUEUE_LIMIT: u64 = 100;
/// Most commands of Linux that are carried out at once.
const BATCH: usize = 64;
/// Words that are read of Linux's table at once.
const CHUNK: usize = 64;

/// Registers by which the unit interrupts for events of its own, as Linux sees them.
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    control: u32,
    data: u32,
    address: u32,
    upper: u32,
}

/// Offsets of their first one: those for faults, completions and requests for pages.
const EVENTS: [u64; 3] = [FAULT_CONTROL, COMPLETION_CONTROL, PAGE_REQUEST_CONTROL];
const EVENT_SIZE: u64 = 16;
/// Errors of the queue.
const QUEUE_ERRORS: u32 = fault::QUEUE | fault::COMPLETION | fault::TIME_OUT;
/// Bits of the head and the tail of a queue.
const QUEUE_OFFSET: u64 = 0x7_fff0;
const ADDRESS: u64 = !0xfff;
/// States of the unit that are the hypervisor's; Linux has its own of them.
const OWN_STATES: u32 = global::QUEUE | global::REMAPPING | global::COMPATIBILITY;
/// These and, where the tables that translate are copies, this one.
const TRANSLATION: u32 = global::TRANSLATION;
/// Bits of the status that tell which tables were set. The hypervisor sets all.
const TABLES: u32 = global::ROOT_TABLE | global::REMAPPING_TABLE;

/// The registers as Linux sees them, where that is not what the unit has.
#[derive(Clone, Copy, Debug)]
struct Linux {
    /// Those that are the hypervisor's and that Linux has on.
    states: u32,
    /// [`TABLES`] that it has set.
    tables: u32,
    /// The root table as it is written, and as it was when it was last set.
    root: u64,
    root_in_use: u64,
    queue_address: u64,
    head: u64,
    tail: u64,
    /// The interrupt-remapping table as it is written, and as it was when it was last set.
    table: u64,
    table_in_use: u64,
    /// Errors of its queue.
    errors: u32,
    events: [Event; EVENTS.len()],
}

/// A unit that was taken over.
#[derive(Debug)]
pub struct Unit {
    capability: Capability,
    extended: ExtendedCapability,
    /// The CPUs are in x2APIC mode.
    x2apic: bool,
    /// Linux had it remap interrupts when it was taken over. Otherwise they pass.
    remaps: bool,
    linux: Linux,
    /// The copy of what Linux translates by; `None` if the unit has Linux's own tables.
    root: Option<PhysAddr>,
    /// Index of the place in the queue for the next command.
    tail: u64,
    /// What the status word says when all commands are done.
    sequence: u32,
    refused: u64,
    /// The last one that Linux has taken note of.
    fault: Option<Fault>,
}

/// An entry of the hypervisor's that is not in use. A message that names it is no fault to report:
/// Linux would hear of that, as often as a cell likes (VT-d 9.9, FPD).
const UNUSED: u128 = 1 << 1;

/// First words of the hypervisor's commands in its queue, most of them about all that there is.
mod descriptor {
    pub const CONTEXTS: u64 = 1 | 1 << 4;
    /// Reads and writes are drained, where the unit can do that.
    pub const MAPPINGS: u64 = 2 | 1 << 4 | 3 << 6;
    /// Of the domain in bits 31..16, likewise (VT-d 6.5.2.3).
    pub const OF_DOMAIN: u64 = 2 | 2 << 4 | 3 << 6;
    /// Of the process in bits 51..32 of that domain (VT-d 6.5.2.4).
    pub const OF_PROCESS: u64 = 6 | 2 << 4;
    pub const INTERRUPTS: u64 = 4;
    pub const PROCESSES: u64 = 7 | 3 << 4;
    pub const WAIT: u64 = 5;
    pub const WAIT_INTERRUPTS: u64 = 1 << 4;
    pub const WAIT_STORES: u64 = 1 << 5;
}

fn write_long(machine: &mut impl Machine, offset: u64, value: u64) {
    machine.write(offset, value as u32);
    machine.write(offset + 4, (value >> 32) as u32);
}

/// Has the unit change its state `bit`, or set what `bit` is about; false if it does not in time.
fn command(machine: &mut impl Machine, bit: u32, on: bool) -> bool {
    let states = machine.read(STATUS) & global::STATES;
    machine.write(COMMAND, if on { states | bit } else { states & !bit });
    machine.wait_until(COMMAND_LIMIT, |machine| (machine.read(STATUS) & bit != 0) == on)
}

impl Unit {
    /// Takes a unit over that Linux uses. No CPU of Linux runs meanwhile. `x2apic` says that the
    /// CPUs are in x2APIC mode.
    pub fn take(
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        x2apic: bool,
    ) -> Result<Self, Unfit> {
        let capability = Capability(read_long(machine, CAPABILITY));
        let extended = ExtendedCapability(read_long(machine, EXTENDED_CAPABILITY));
        let able = extended.has_queue() && extended.remaps_interrupts();
        if !able || capability.needs_flush() {
            return Err(Unfit::Incapable);
        }
        let status = machine.read(STATUS);
        if status & global::QUEUE == 0 {
            return Err(Unfit::Unused);
        }
        let is_idle = |machine: &mut _| {
            (read_long(machine, QUEUE_HEAD) ^ read_long(machine, QUEUE_TAIL)) & QUEUE_OFFSET == 0
        };
        if machine.read(FAULT_STATUS) & QUEUE_ERRORS != 0 {
            return Err(Unfit::Broken);
        }
        if !machine.wait_until(QUEUE_LIMIT, is_idle) {
            return Err(Unfit::Stuck);
        }
        let mut unit = Self {
            capability,
            extended,
            x2apic,
            remaps: status & global::REMAPPING != 0,
            linux: Linux::of(machine),
            root: None,
            tail: 0,
            sequence: 0,
            refused: 0,
            fault: None,
        };
        if unit.begin(machine, copies, cpus) {
            return Ok(unit);
        }
        unit.give_back(machine, copies);
        Err(Unfit::Stuck)
    }

    fn begin(&mut self, machine: &mut impl Machine, copies: &mut Copies, cpus: &impl Cpus) -> bool {
        let wide = if self.is_wide() { queue::WIDE } else { 0 };
        let address = machine.own(OWN_QUEUE).get();
        (FIRST_OWN..TABLE_ENTRIES).for_each(|number| self.put(machine, number, 0));
        command(machine, global::QUEUE, false)
            && start_queue(machine, address | wide)
            && self.set_table(machine, cpus)
            && (!self.remaps || command(machine, global::COMPATIBILITY, false))
            && self.take_addresses(machine, copies)
            && {
                // Whatever was under way is done after this.
                self.send_forget_translations(machine);
                self.refresh_events(machine, cpus);
                self.finish(machine)
            }
    }

    /// Gives the unit copies of what Linux translates by, if there can be any; false if it does not
    /// do what it is told.
    fn take_addresses(&mut self, machine: &mut impl Machine, copies: &mut Copies) -> bool {
        copies.limit_domains(self.capability.domains());
        let end = copies::Memory::end(machine.memory());
        let scalable = self.is_scalable(machine);
        let fits = |kind: &Kind| match *kind {
            Kind::Second(levels) if !scalable || self.extended.has_second_stage() => {
                self.capability.has_levels(levels) && end <= 1 << order_of_level(levels + 1)
            }
            Kind::First(4) => scalable && self.extended.has_first_stage(),
            _ => false,
        };
        const IDENTITIES: [Kind; 4] =
            [Kind::Second(3), Kind::Second(4), Kind::Second(5), Kind::First(4)];
        if copies.is_empty()
            && let Some(kind) = IDENTITIES.iter().find(|kind| fits(kind))
        {
            copies.set_identity(*kind);
        }
        if !fits(&copies.identity()) {
            return true;
        }
        self.linux.states |= machine.read(STATUS) & TRANSLATION;
        let top = self.top(machine);
        let Some(copy) = copies.refer(machine.memory(), top) else {
            self.linux.states &= !TRANSLATION;
            return true;
        };
        self.set_root(machine, top, copy)
    }

    /// What Linux translates by.
    fn top(&self, machine: &impl Machine) -> Top {
        let (states, root) = (self.linux.states, self.linux.root_in_use);
        let page = PhysAddr::new(root & ADDRESS);
        let known = match mode(root) {
            root::LEGACY => Some(Kind::Root),
            root::SCALABLE if self.extended.has_scalable_mode() => Some(Kind::ScalableRoot),
            _ => None,
        };
        match known {
            _ if states & TRANSLATION == 0 => Top::Untranslated(known.unwrap_or(Kind::Root)),
            Some(kind) if machine.read_linux(page, &mut [0]) => Top::Table(page, kind),
            _ => Top::Blocked(known.unwrap_or(Kind::Root)),
        }
    }

    /// Gives the unit another copy, of what Linux translates by now.
    fn change_root(&mut self, machine: &mut impl Machine, copies: &mut Copies) -> bool {
        let mut top = self.top(machine);
        let mut copy = copies.refer(machine.memory(), top);
        if copy.is_none() {
            top = Top::Blocked(top.kind());
            copy = copies.refer(machine.memory(), top);
        }
        // Without memory for either the old one stays.
        let Some(copy) = copy else { return true };
        let old = self.root;
        let done = self.set_root(machine, top, copy);
        if let Some(old) = old {
            copies.forget(machine.memory(), old);
        }
        done
    }

    /// Has the unit translate by the tables at `copy`, which are of `top`.
    fn set_root(&mut self, machine: &mut impl Machine, top: Top, copy: PhysAddr) -> bool {
        self.root = Some(copy);
        let mode = if top.kind() == Kind::ScalableRoot { root::SCALABLE } else { root::LEGACY };
        write_long(machine, ROOT_TABLE, copy.get() | mode << root::MODE_SHIFT);
        let mut done = command(machine, global::ROOT_TABLE, true);
        done &= machine.read(STATUS) & TRANSLATION != 0 || command(machine, TRANSLATION, true);
        done && self.forget_translations(machine)
    }

    /// Has the unit forget what it cached of tables that translate addresses; false if it does not
    /// do what it is told.
    pub fn forget_translations(&mut self, machine: &mut impl Machine) -> bool {
        self.send_forget_translations(machine);
        self.finish(machine)
    }

    fn send_forget_translations(&mut self, machine: &mut impl Machine) {
        self.send(machine, [descriptor::CONTEXTS, 0, 0, 0]);
        if self.is_scalable(machine) {
            self.send(machine, [descriptor::PROCESSES, 0, 0, 0]);
        }
        self.send(machine, [descriptor::MAPPINGS, 0, 0, 0]);
    }

    /// Has the unit forget what it cached of the page tables of a domain; false if it does not do
    /// what it is told. In scalable mode first-stage tables are forgotten by their process, which
    /// is number 0 for functions of cells ([`Kind::leading`]).
    pub fn forget_domain(&mut self, machine: &mut impl Machine, domain: DomainId) -> bool {
        let domain = u64::from(domain.0) << 16;
        self.send(machine, [descriptor::OF_DOMAIN | domain, 0, 0, 0]);
        if self.is_scalable(machine) {
            self.send(machine, [descriptor::OF_PROCESS | domain, 0, 0, 0]);
        }
        self.finish(machine)
    }

    /// Tells whether devices reach memory by copies of Linux's tables only.
    pub fn confines_addresses(&self) -> bool {
        self.root.is_some()
    }

    /// Tells whether messages of devices interrupt by copies of Linux's entries only.
    pub fn confines_interrupts(&self) -> bool {
        self.remaps
    }

    /// Gives the unit back as Linux believes it to be; false if it does not do what it is told. No
    /// CPU of Linux runs meanwhile.
    pub fn give_back(&mut self, machine: &mut impl Machine, copies: &mut Copies) -> bool {
        let linux = self.linux;
        // The same results, from Linux's newest entries.
        write_long(machine, REMAPPING_TABLE, linux.table_in_use);
        let mut done = command(machine, global::REMAPPING_TABLE, true);
        done &= self.forget_interrupts(machine);
        if let Some(copy) = self.root.take() {
            write_long(machine, ROOT_TABLE, linux.root_in_use);
            done &= command(machine, global::ROOT_TABLE, true);
            let on = linux.states & TRANSLATION != 0;
            done &= on || command(machine, TRANSLATION, false);
            done &= self.forget_translations(machine);
            write_long(machine, ROOT_TABLE, linux.root);
            copies.forget(machine.memory(), copy);
        }
        for state in [global::REMAPPING, global::COMPATIBILITY] {
            done &= linux.states & state == machine.read(STATUS) & state
                || command(machine, state, linux.states & state != 0);
        }
        write_long(machine, REMAPPING_TABLE, linux.table);
        for (registers, event) in EVENTS.iter().zip(&linux.events) {
            event.write(machine, *registers);
        }
        done &= command(machine, global::QUEUE, false);
        done & self.give_queue_back(machine)
    }

    /// Gives the queue back. It begins at 0, and Linux's does not: commands of the hypervisor's
    /// fill it up to Linux's head. What Linux has there is put back afterwards, since it may be
    /// about to write its next commands. Those that it stopped at follow.
    fn give_queue_back(&self, machine: &mut impl Machine) -> bool {
        let linux = &self.linux;
        if linux.states & global::QUEUE == 0 {
            write_long(machine, QUEUE_ADDRESS, linux.queue_address);
            return true;
        }
        let (start, size) = (linux.queue_address & ADDRESS, descriptor_size(linux.is_wide()));
        let end = if linux.head < linux.queue_size() { linux.head } else { 0 };
        let low = descriptor::WAIT | descriptor::WAIT_STORES;
        let wait = [low, machine.own(STATUS_WORD).get(), 0, 0];
        let mut words = [0; 4];
        let words = &mut words[..(size / 8) as usize];
        // The table is Linux's by now, so the copies' memory is free.
        for offset in (0..end).step_by(size as usize) {
            let place = PhysAddr::new(start.wrapping_add(offset));
            machine.read_linux(place, words);
            for (index, word) in words.iter().enumerate() {
                machine.set_own_word(offset + 8 * index as u64, *word);
            }
            machine.write_linux(place, &wait[..words.len()]);
        }
        let mut done = start_queue(machine, linux.queue_address);
        write_long(machine, QUEUE_TAIL, end);
        done &= machine.wait_until(QUEUE_LIMIT, |machine| {
            read_long(machine, QUEUE_HEAD) & QUEUE_OFFSET == end
        });
        for offset in (0..end).step_by(size as usize) {
            for (index, word) in words.iter_mut().enumerate() {
                *word = machine.own_word(offset + 8 * index as u64);
            }
            machine.write_linux(PhysAddr::new(start.wrapping_add(offset)), words);
        }
        write_long(machine, QUEUE_TAIL, linux.tail);
        done
    }

    /// Makes all copies again, since a CPU changed its owner; false if the unit does not do what it
    /// is told.
    pub fn owners_changed(&mut self, machine: &mut impl Machine, cpus: &impl Cpus) -> bool {
        self.copy(machine, cpus, 0..TABLE_ENTRIES);
        self.refresh_events(machine, cpus);
        self.forget_interrupts(machine)
    }

    /// Has message `number` of the function `requester` of a cell, the one at `place`, interrupt as
    /// `interrupt` says, or not at all; false if the unit does not do what it is told.
    pub fn set_message(
        &mut self,
        machine: &mut impl Machine,
        requester: Requester,
        place: usize,
        number: u32,
        interrupt: Option<Interrupt>,
    ) -> bool {
        let number = first_message(place) + u64::from(number) % MESSAGES;
        self.set_own(machine, number, requester, interrupt, false)
    }

    /// Has the line of a cell at `place`, of the I/O APIC `requester`, interrupt as `interrupt`
    /// says, or not at all; false if the unit does not do what it is told.
    pub fn set_line(
        &mut self,
        machine: &mut impl Machine,
        requester: Requester,
        place: usize,
        interrupt: Option<Interrupt>,
        level: bool,
    ) -> bool {
        self.set_own(machine, line_number(place).into(), requester, interrupt, level)
    }

    /// Puts an entry of the hypervisor's that `requester` alone may use.
    fn set_own(
        &mut self,
        machine: &mut impl Machine,
        number: u64,
        requester: Requester,
        interrupt: Option<Interrupt>,
        level: bool,
    ) -> bool {
        // In another mode than the CPUs' nobody knows whom an entry names.
        let extended = self.is_extended();
        let known = interrupt.filter(|_| extended == self.x2apic);
        let entry = known.map_or(UNUSED, |interrupt| {
            let source = Source::Device(requester, 0);
            Irte { interrupt, level, hint: false, silent: false, available: 0, source }
                .encode(extended)
        });
        self.put(machine, number, entry);
        self.forget_interrupts(machine) && known == interrupt && self.remaps
    }

    /// Has no message of the function of a cell at `place` interrupt anybody; false if the unit
    /// does not do what it is told.
    pub fn silence(&mut self, machine: &mut impl Machine, place: usize) -> bool {
        let first = first_message(place);
        for number in first..first + MESSAGES {
            self.put(machine, number, UNUSED);
        }
        self.forget_interrupts(machine)
    }

    /// How many entries of Linux were refused, each time that they were looked at.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes the fault of a device that Linux has taken note of since.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// What Linux reads in the 32 bits at `offset`, a multiple of 4.
    pub fn read(&self, machine: &mut impl Machine, offset: u64) -> u32 {
        let linux = &self.linux;
        let (register, high) = (offset & !7, offset & 4 != 0);
        if let Some((number, within)) = event_at(offset) {
            let event = &linux.events[number];
            return match within {
                // A message that is not to be sent does not wait for Linux, either.
                0 if event.control == 0 => 0,
                0 => event.control | machine.read(offset) & event::PENDING,
                4 => event.data,
                8 => event.address,
                _ => event.upper,
            };
        }
        match (offset, register) {
            (STATUS, _) => {
                let own = self.own_states() | TABLES;
                machine.read(offset) & !own | linux.states | linux.tables
            }
            (_, ROOT_TABLE) if self.root.is_some() => half(linux.root, high),
            (FAULT_STATUS, _) => machine.read(offset) & !QUEUE_ERRORS | linux.errors,
            (_, QUEUE_HEAD) => half(linux.head, high),
            (_, QUEUE_TAIL) => half(linux.tail, high),
            (_, QUEUE_ADDRESS) => half(linux.queue_address, high),
            (_, REMAPPING_TABLE) => half(linux.table, high),
            _ if self.invalidates(register) => 0,
            _ => machine.read(offset),
        }
    }

    /// Carries out a write of Linux to the 32 bits at `offset`, a multiple of 4. No CPU of Linux
    /// runs meanwhile if [`changes_tables`] says so.
    pub fn write(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        offset: u64,
        value: u32,
    ) -> Progress {
        let (register, high) = (offset & !7, offset & 4 != 0);
        if let Some((number, within)) = event_at(offset) {
            let event = &mut self.linux.events[number];
            match within {
                0 => event.control = value & event::MASKED,
                4 => event.data = value,
                8 => event.address = value,
                _ => event.upper = value,
            }
            self.refresh_event(machine, cpus, number);
            return Progress::Done;
        }
        let done = match (offset, register) {
            (COMMAND, _) => self.carry_out_global(machine, copies, cpus, value),
            (FAULT_STATUS, _) => {
                self.linux.errors &= !value;
                machine.write(offset, value & !QUEUE_ERRORS);
                // A queue that had stopped goes on.
                return self.advance(machine, cpus);
            }
            (QUEUE_TAIL, _) => {
                self.linux.tail = u64::from(value) & QUEUE_OFFSET;
                return self.advance(machine, cpus);
            }
            (_, QUEUE_ADDRESS) => {
                set_half(&mut self.linux.queue_address, high, value);
                true
            }
            (_, REMAPPING_TABLE) => {
                set_half(&mut self.linux.table, high, value);
                true
            }
            (_, ROOT_TABLE) if self.root.is_some() => {
                set_half(&mut self.linux.root, high, value);
                true
            }
            (COMPLETION_STATUS | PAGE_REQUEST_HEAD | PAGE_REQUEST_STATUS, _) | (_, ROOT_TABLE) => {
                machine.write(offset, value);
                true
            }
            _ if self.capability.is_fault_record(offset) => {
                if offset % fault_record::SIZE == fault_record::LAST_WORD
                    && value & fault_record::RECORDED != 0
                {
                    let high = read_long(machine, offset - 4);
                    self.fault = Fault::of_vtd_record(read_long(machine, offset - 12), high);
                }
                machine.write(offset, value);
                true
            }
            // Invalidation without a queue, protected ranges, logs, what is unknown.
            _ => true,
        };
        if done { Progress::Done } else { Progress::Stuck }
    }

    /// Tells whether a register of 64 bits is one of those that invalidate without a queue: to
    /// Linux that is always done.
    fn invalidates(&self, register: u64) -> bool {
        let first = self.extended.invalidation_registers();
        register == CONTEXT_COMMAND || register == first || register == first + 8
    }

    /// Carries out the global command `value` of Linux, which changes one state, or sets one thing.
    /// The write buffer needs no flush, or the unit would be Linux's.
    fn carry_out_global(
        &mut self,
        machine: &mut impl Machine,
        copies: &mut Copies,
        cpus: &impl Cpus,
        value: u32,
    ) -> bool {
        let changed = (value ^ self.linux.states) & self.own_states();
        self.linux.states ^= changed;
        self.linux.tables |= value & TABLES;
        if changed & global::QUEUE != 0 {
            (self.linux.head, self.linux.tail) = (0, 0);
        }
        let mut done = true;
        if value & global::REMAPPING_TABLE != 0 {
            self.linux.table_in_use = self.linux.table;
            done &= self.set_table(machine, cpus);
        }
        if self.root.is_some() {
            if value & global::ROOT_TABLE != 0 {
                self.linux.root_in_use = self.linux.root;
            }
            if value & global::ROOT_TABLE != 0 || changed & TRANSLATION != 0 {
                done &= self.change_root(machine, copies);
            }
            return done;
        }
        if value & global::ROOT_TABLE != 0 {
            done &= command(machine, global::ROOT_TABLE, true);
        }
        if (value ^ machine.read(STATUS)) & TRANSLATION != 0 {
            done &= command(machine, TRANSLATION, value & TRANSLATION != 0);
        }
        done
    }

    /// Gives the unit the table of copies, which are made anew.
    fn set_table(&mut self, machine: &mut impl Machine, cpus: &impl Cpus) -> bool {
        self.copy(machine, cpus, 0..TABLE_ENTRIES);
        let mode = self.linux.table_in_use & remapping::EXTENDED;
        write_long(machine, REMAPPING_TABLE, machine.own(0).get() | mode | remapping::SIZE);
        let done = command(machine, global::REMAPPING_TABLE, true);
        self.forget_interrupts(machine) && done
    }

    /// Has the unit forget what it cached of entries for interrupts.
    fn forget_interrupts(&mut self, machine: &mut impl Machine) -> bool {
        self.send(machine, [descriptor::INTERRUPTS, 0, 0, 0]);
        self.finish(machine)
    }

    /// Carries out commands of Linux's queue up to its tail, or as many as are carried out at once.
    fn advance(&mut self, machine: &mut impl Machine, cpus: &impl Cpus) -> Progress {
        if !self.linux.has_commands() {
            return Progress::Done;
        }
        let mode = Mode {
            capability: self.capability,
            extended: self.extended,
            wide: self.linux.is_wide(),
            scalable: self.is_scalable(machine),
        };
        let mut stores = [None; BATCH];
        for place in &mut stores {
            if !self.linux.has_commands() {
                break;
            }
            let Some(next) = self.carry_out(machine, cpus, &mode, place) else {
                self.linux.errors |= fault::QUEUE;
                break;
            };
            self.linux.head = next;
        }
        if !self.finish(machine) {
            return Progress::Stuck;
        }
        stores.iter().flatten().for_each(|store| machine.store(store));
        if self.linux.has_commands() { Progress::More } else { Progress::Done }
    }

    /// Carries out the command at Linux's head; `store` gets what Linux asks to be stored when it
    /// is done. Returns the next head, or `None` if the unit would stop at the command.
    fn carry_out(
        &mut self,
        machine: &mut impl Machine,
        cpus: &impl Cpus,
        mode: &Mode,
        store: &mut Option<Store>,
    ) -> Option<u64> {
        let (size, end) = (mode.size(), self.linux.queue_size());
        let (head, start) = (self.linux.head, self.linux.queue_address & ADDRESS);
        let mut raw = [0; 4];
        let place = PhysAddr::new(start.checked_add(head)?);
        let words = &mut raw[..(size / 8) as usize];
        if head >= end || head % size != 0 || !machine.read_linux(place, words) {
            return None;
        }
        match mode.decode(raw).ok()? {
            Effect::Completion(completion) => {
                *store = completion.store;
                if completion.interrupt {
                    self.send(machine, [descriptor::WAIT | descriptor::WAIT_INTERRUPTS, 0, 0, 0]);
                }
            }
            Effect::Interrupts(range) => {
                self.copy(machine, cpus, u64::from(*range.start())..u64::from(*range.end()) + 1);
                self.send(machine, raw);
            }
            // A copy lets no device keep translations.
            Effect::ToDevice(_) if self.root.is_some() => (),
            // The tables that these are about are Linux's own, or have changed with them.
            _ => self.send(machine, raw),
        }
        Some((head + size) % end)
    }

    /// Makes copies of the entries with these numbers again.
    fn copy(
        &mut self,
        machine: &mut impl Machine,
        cpus: &impl Cpus,
        numbers: core::ops::Range<u64>,
    ) {
        let table = self.linux.table_in_use;
        let (start, extended) = (table & ADDRESS, self.is_extended());
        let entries = 2 << (table & remapping::SIZE);
        let mut words = [0; CHUNK];
        let mut next = numbers.start;
        while next < numbers.end {
            let in_chunk = CHUNK as u64 / 2 - next % (CHUNK as u64 / 2);
            let count = in_chunk.min(numbers.end - next);
            let words = &mut words[..2 * count as usize];
            let place = start.checked_add(next * ENTRY).filter(|_| next < entries);
            if !place.is_some_and(|place| machine.read_linux(PhysAddr::new(place), words)) {
                words.fill(0);
            }
            for (number, pair) in (next..).zip(words.chunks_exact(2)) {
                let raw = u128::from(pair[1]) << 64 | u128::from(pair[0]);
                let (copy, verdict) = match extended == self.x2apic && number < FIRST_OWN {
                    true => irte::copy(raw, extended, cpus),
                    false => (0, if raw & 1 == 0 { Ok(()) } else { Err(Refused::Malformed) }),
                };
                self.refused += u64::from(verdict.is_err());
                if number < FIRST_OWN {
                    self.put(machine, number, copy);
                }
            }
            next += count;
        }
    }

    /// Puts an entry into the table of copies. The low word alone says who is interrupted; the
    /// other one goes first, so that it is there when the entry becomes present.
    fn put(&self, machine: &mut impl Machine, number: u64, entry: u128) {
        let offset = number * ENTRY;
        let words = [entry as u64, (entry >> 64) as u64];
        let changed =
            words[0] != machine.own_word(offset) || words[1] != machine.own_word(offset + 8);
        if !changed {
            return;
        }
        if words[0] & 1 == 0 {
            machine.set_own_word(offset, words[0]);
            machine.set_own_word(offset + 8, words[1]);
        } else {
            machine.set_own_word(offset + 8, words[1]);
            machine.set_own_word(offset, words[0]);
        }
        if !self.extended.is_coherent() {
            machine.write_back(offset);
        }
    }

    fn refresh_events(&mut self, machine: &mut impl Machine, cpus: &impl Cpus) {
        for number in 0..EVENTS.len() {
            self.refresh_event(machine, cpus, number);
        }
    }

    /// Has the unit send Linux's message for an event, or none if it would not be Linux's to have.
    fn refresh_event(&mut self, machine: &mut impl Machine, cpus: &impl Cpus, number: usize) {
        let (event, extended) = (&self.linux.events[number], self.is_extended());
        let message = Interrupt::of_vtd_event(event.data, event.address, event.upper, extended);
        let checked = message.and_then(|interrupt| interrupt.check(cpus));
        if checked.is_ok() && extended == self.x2apic {
            event.write(machine, EVENTS[number]);
        } else {
            machine.write(EVENTS[number], event::MASKED);
            self.refused += u64::from(event.control & event::MASKED == 0);
        }
    }

    /// Linux's destinations have 32 bits, as those of CPUs in x2APIC mode. In the other mode nobody
    /// knows whom its entries and messages name.
    fn is_extended(&self) -> bool {
        self.linux.table_in_use & remapping::EXTENDED != 0
    }

    /// Has commands of 256 bits, in the hypervisor's queue.
    fn is_wide(&self) -> bool {
        self.extended.has_scalable_mode()
    }

    fn is_scalable(&self, machine: &mut impl Machine) -> bool {
        let is_set = mode(read_long(machine, ROOT_TABLE)) == root::SCALABLE;
        is_set && self.extended.has_scalable_mode()
    }

    /// States of the unit that are the hypervisor's.
    fn own_states(&self) -> u32 {
        OWN_STATES | if self.root.is_some() { TRANSLATION } else { 0 }
    }

    /// Puts a command into the hypervisor's queue.
    fn send(&mut self, machine: &mut impl Machine, words: [u64; 4]) {
        let size = descriptor_size(self.is_wide());
        for (index, word) in words.iter().take((size / 8) as usize).enumerate() {
            machine.set_own_word(OWN_QUEUE + self.tail + 8 * index as u64, *word);
        }
        self.tail = (self.tail + size) % PAGE;
    }

    /// Waits until the unit has done all commands; false if it does not in time.
    fn finish(&mut self, machine: &mut impl Machine) -> bool {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let low = descriptor::WAIT | descriptor::WAIT_STORES | u64::from(sequence) << 32;
        self.send(machine, [low, machine.own(STATUS_WORD).get(), 0, 0]);
        write_long(machine, QUEUE_TAIL, self.tail);
        machine.wait_until(QUEUE_LIMIT, |machine| {
            // A device that does not answer must not stop the queue of all others.
            let errors = machine.read(FAULT_STATUS) & (fault::TIME_OUT | fault::COMPLETION);
            if errors != 0 {
                machine.write(FAULT_STATUS, errors);
            }
            machine.own_word(STATUS_WORD) as u32 == sequence
        })
    }
}

impl Linux {
    /// What the unit's registers say.
    fn of(machine: &mut impl Machine) -> Self {
        let table = read_long(machine, REMAPPING_TABLE);
        let events = EVENTS.map(|registers| Event {
            control: machine.read(registers) & event::MASKED,
            data: machine.read(registers + 4),
            address: machine.read(registers + 8),
            upper: machine.read(registers + 12),
        });
        let tail = read_long(machine, QUEUE_TAIL) & QUEUE_OFFSET;
        let root = read_long(machine, ROOT_TABLE);
        Self {
            states: machine.read(STATUS) & OWN_STATES,
            tables: machine.read(STATUS) & TABLES,
            root,
            root_in_use: root,
            queue_address: read_long(machine, QUEUE_ADDRESS),
            head: tail,
            tail,
            table,
            table_in_use: table,
            errors: 0,
            events,
        }
    }

    fn is_wide(&self) -> bool {
        self.queue_address & queue::WIDE != 0
    }

    /// Its queue runs, and is not empty.
    fn has_commands(&self) -> bool {
        self.states & global::QUEUE != 0 && self.errors == 0 && self.head != self.tail
    }

    /// Bytes of the queue.
    fn queue_size(&self) -> u64 {
        PAGE << (self.queue_address & queue::SIZE)
    }
}

impl Event {
    /// Gives the unit these registers. It sends nothing meanwhile.
    fn write(&self, machine: &mut impl Machine, registers: u64) {
        machine.write(registers, event::MASKED);
        machine.write(registers + 4, self.data);
        machine.write(registers + 8, self.address);
        machine.write(registers + 12, self.upper);
        machine.write(registers, self.control);
    }
}

/// The entry for the first message of the function of a cell at `place`.
fn first_message(place: usize) -> u64 {
    FIRST_OWN + place as u64 % MAX_DEVICES as u64 * MESSAGES
}

/// The address to which the function of a cell at `place` writes its messages, whose data are their
/// numbers (VT-d 5.1.2.2).
pub fn message_address(place: usize) -> u32 {
    const REMAPPED: u32 = 1 << 4;
    const ADD_DATA: u32 = 1 << 3;
    let first = first_message(place);
    let highest = flag(first & 1 << 15 != 0, 2) as u32;
    message::WINDOW | (first as u32 & 0x7fff) << 5 | REMAPPED | ADD_DATA | highest
}

/// The number of the entry for the line of a cell at `place`.
pub fn line_number(place: usize) -> u16 {
    (FIRST_LINE + place as u64 % MAX_LINES as u64) as u16
}

/// Tells whether an entry of the table is the hypervisor's.
pub fn is_own(number: u16) -> bool {
    u64::from(number) >= FIRST_OWN
}

/// Tells whether a write of Linux to the register at `offset` may change the tables by which it
/// translates addresses, so that copies of them are made.
pub fn changes_tables(offset: u64) -> bool {
    offset == COMMAND
}

/// The mode of a root table.
fn mode(root: u64) -> u64 {
    root >> root::MODE_SHIFT & 3
}

/// Turns the queue on at this address, empty; false if the unit does not in time.
fn start_queue(machine: &mut impl Machine, address: u64) -> bool {
    write_long(machine, QUEUE_TAIL, 0);
    write_long(machine, QUEUE_ADDRESS, address);
    command(machine, global::QUEUE, true)
}

/// The number of the event to which the register at `offset` belongs, and where in its registers.
fn event_at(offset: u64) -> Option<(usize, u64)> {
    let number = EVENTS.iter().position(|first| (*first..*first + EVENT_SIZE).contains(&offset))?;
    Some((number, offset - EVENTS[number]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::tests::{Cells, agrees, cells};
    use crate::tables::Rights;
    use crate::vtd::irte::Irte;
    use crtos_partition::ids::ApicId;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const OWN: u64 = 0x4000_0000;
    const LINUX_QUEUE: u64 = 0x10_0000;
    const LINUX_TABLE: u64 = 0x20_0000;
    const LINUX_STATUS: u64 = 0x30_0000;
    /// Linux has the memory below.
    const LINUX_END: u64 = 0x80_0000;
    /// Linux's table has so many entries.
    const ENTRIES: u64 = 256;

    /// A unit and the machine's memory.
    #[derive(Clone, Default)]
    struct Model {
        /// Tables that translate addresses, and copies of them.
        tables: copies::tests::Model,
        /// The root table in use.
        root: u64,
        registers: BTreeMap<u64, u32>,
        memory: BTreeMap<u64, u64>,
        /// What the hypervisor has of it.
        own: Vec<u64>,
        /// The table in use, and what is cached of it.
        table: u64,
        cache: BTreeMap<u64, u128>,
        /// Commands that were carried out, without waits.
        commands: Vec<[u64; 2]>,
        /// It does nothing any more.
        hangs: bool,
    }

    impl Model {
        fn word(&self, address: u64) -> u64 {
            match address.checked_sub(OWN) {
                Some(offset) => self.own[(offset / 8) as usize],
                None => self.memory.get(&address).copied().unwrap_or(0),
            }
        }

        fn set_word(&mut self, address: u64, word: u64) {
            match address.checked_sub(OWN) {
                Some(offset) => self.own[(offset / 8) as usize] = word,
                None => {
                    self.memory.insert(address, word);
                }
            }
        }

        fn store_half(&mut self, address: u64, value: u64) {
            let (place, shift) = (address & !7, (address & 4) * 8);
            let word = self.word(place) & !(0xffff_ffff << shift) | value << shift;
            self.set_word(place, word);
        }

        fn register(&self, offset: u64) -> u64 {
            let at = |offset| u64::from(self.registers.get(&offset).copied().unwrap_or(0));
            at(offset) | at(offset + 4) << 32
        }

        fn run_queue(&mut self) {
            let address = self.register(QUEUE_ADDRESS);
            let on = self.register(COMMAND) >> 32 & u64::from(global::QUEUE) != 0;
            while on && !self.hangs && self.register(FAULT_STATUS) & u64::from(QUEUE_ERRORS) == 0 {
                let (head, tail) = (self.register(QUEUE_HEAD), self.register(QUEUE_TAIL));
                if head == tail {
                    return;
                }
                let size = if address & queue::WIDE != 0 { 32 } else { 16 };
                let place = (address & ADDRESS) + head;
                let [low, high] = [self.word(place), self.word(place + 8)];
                let mode = Mode {
                    capability: Capability(self.register(CAPABILITY)),
                    extended: ExtendedCapability(self.register(EXTENDED_CAPABILITY)),
                    wide: size == 32,
                    scalable: false,
                };
                match mode.decode([low, high, 0, 0]) {
                    Ok(Effect::Completion(completion)) => {
                        completion.store.iter().for_each(|store| self.store(store));
                    }
                    Ok(Effect::Interrupts(range)) => {
                        self.cache.retain(|number, _| !range.contains(&(*number as u16)));
                    }
                    Ok(_) => {}
                    Err(_) => {
                        *self.registers.entry(FAULT_STATUS).or_default() |= fault::QUEUE;
                        return;
                    }
                }
                if low & 0xf != 5 {
                    self.commands.push([low, high]);
                }
                let end = 4096 << (address & queue::SIZE);
                self.registers.insert(QUEUE_HEAD, ((head + size) % end) as u32);
            }
        }

        fn run_command(&mut self, value: u32) {
            let before = self.register(COMMAND) >> 32;
            let mut status = value & global::STATES;
            if value & global::QUEUE == 0 {
                self.registers.insert(QUEUE_HEAD, 0);
            }
            status |= before as u32 & (global::REMAPPING_TABLE | global::ROOT_TABLE);
            if value & global::REMAPPING_TABLE != 0 {
                self.table = self.register(REMAPPING_TABLE);
            }
            if value & global::ROOT_TABLE != 0 {
                self.root = self.register(ROOT_TABLE);
            }
            status |= value & (global::REMAPPING_TABLE | global::ROOT_TABLE);
            self.registers.insert(STATUS, status);
            self.run_queue();
        }

        /// Where a device gets to.
        fn translate(&self, device: u16, input: u64) -> Option<(u64, Rights)> {
            let top = match self.register(COMMAND) >> 32 & u64::from(TRANSLATION) != 0 {
                true if mode(self.root) != root::LEGACY => Top::Blocked(Kind::Root),
                true => Top::Table(PhysAddr::new(self.root & ADDRESS), Kind::Root),
                false => Top::Untranslated(Kind::Root),
            };
            self.tables.walk(top, device, input)
        }

        /// What a message with this number raises.
        fn deliver(&mut self, number: u64) -> Option<Interrupt> {
            if number >= 2 << (self.table & 15) {
                return None;
            }
            let place = (self.table & ADDRESS) + 16 * number;
            let raw = u128::from(self.word(place + 8)) << 64 | u128::from(self.word(place));
            let raw = *self.cache.entry(number).or_insert(raw);
            Irte::decode(raw, self.table & 1 << 11 != 0).ok()?.map(|entry| entry.interrupt)
        }
    }

    impl Machine for Model {
        fn read(&mut self, offset: u64) -> u32 {
            self.registers.get(&offset).copied().unwrap_or(0)
        }

        fn write(&mut self, offset: u64, value: u32) {
            if self.hangs {
                return;
            }
            match offset {
                COMMAND => self.run_command(value),
                FAULT_STATUS => {
                    *self.registers.entry(FAULT_STATUS).or_default() &= !value;
                    self.run_queue();
                }
                STATUS | QUEUE_HEAD | CAPABILITY..COMMAND => {}
                FAULT_CONTROL | COMPLETION_CONTROL | PAGE_REQUEST_CONTROL => {
                    self.registers.insert(offset, value & event::MASKED);
                }
                _ => {
                    self.registers.insert(offset, value);
                    if offset == QUEUE_TAIL {
                        self.run_queue();
                    }
                }
            }
        }

        fn write_long(&mut self, offset: u64, value: u64) {
            write_long(self, offset, value);
        }

        fn wait_until(&mut self, _: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
            done(self)
        }

        fn read_linux(&self, address: PhysAddr, words: &mut [u64]) -> bool {
            assert!(address.is_aligned(8));
            let end = address.get().saturating_add(8 * words.len() as u64);
            assert_eq!(address.get() >> 12, (end - 1) >> 12);
            if end > LINUX_END {
                return false;
            }
            for (index, word) in words.iter_mut().enumerate() {
                *word = self.word(address.get() + 8 * index as u64);
            }
            true
        }

        fn write_linux(&mut self, address: PhysAddr, words: &[u64]) -> bool {
            for (index, word) in words.iter().enumerate() {
                let place = address.get() + 8 * index as u64;
                assert!(place < LINUX_END);
                self.memory.insert(place, *word);
            }
            true
        }

        fn store(&mut self, store: &Store) {
            if store.address.get() < LINUX_END || store.address.get() >= OWN {
                self.store_half(store.address.get(), store.value);
            }
        }

        fn memory(&mut self) -> &mut impl copies::Memory {
            &mut self.tables
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
            self.set_own_word(offset, low);
            self.set_own_word(offset + 8, high);
        }

        fn write_back(&mut self, _: u64) {}
    }

    /// What Linux does.
    #[derive(Clone, Debug)]
    enum Step {
        /// Changes an entry and tells of it.
        Entry(u64, u128),
        /// Changes an entry in silence.
        Silent(u64, u128),
        /// Writes a command as it comes.
        Command([u64; 2]),
        /// Writes a register.
        Register(u64, u32),
        /// Empties the table, by another one.
        Table,
        /// Clears errors of the queue behind the command.
        Clear,
        /// Sets another root table.
        Root(u64),
        /// Turns translation on or off.
        Translation,
        /// Changes a word of a table that translates.
        Store(u64, u64),
    }

    fn entry() -> impl Strategy<Value = u128> {
        let valid = (0u64..64, 0x20u64..0x28, 0u64..8, any::<bool>()).prop_map(
            |(destination, vector, mode, logical)| {
                let low =
                    1 | u64::from(logical) << 2 | mode << 5 | vector << 16 | destination << 32;
                u128::from(low)
            },
        );
        prop_oneof![6 => valid, 1 => any::<u128>(), 1 => Just(0u128)]
    }

    fn value() -> impl Strategy<Value = u32> {
        prop_oneof![any::<u32>(), 0u32..0x2000]
    }

    fn step() -> impl Strategy<Value = Step> {
        let event = prop::sample::select(vec![0x38u64, 0x3c, 0x40, 0x44, 0xa0, 0xa4, 0xa8]);
        let message = prop_oneof![
            any::<u32>(),
            (0u32..64).prop_map(|id| 0xfee0_0000 | id << 12),
            0u32..0x800,
            Just(0u32),
        ];
        prop_oneof![
            4 => (0..ENTRIES, entry()).prop_map(|(number, entry)| Step::Entry(number, entry)),
            1 => (0..ENTRIES, entry()).prop_map(|(number, entry)| Step::Silent(number, entry)),
            2 => prop::sample::select(vec![[0x14u64, 0], [0x11, 0], [0x21 | 5 << 16, 0], [0x12, 0],
                [0xe2 | 3 << 16, 0], [0xf, 0], [0x24, 0]]).prop_map(Step::Command),
            1 => any::<[u64; 2]>().prop_map(Step::Command),
            2 => (event, message).prop_map(|(offset, value)| Step::Register(offset, value)),
            1 => Just(Step::Table),
            1 => Just(Step::Clear),
            1 => prop::sample::select(vec![0u64, 0x6000, 0x400, 0xc00, 0x7_0000_0000])
                .prop_map(Step::Root),
            1 => Just(Step::Translation),
            4 => copies::tests::store().prop_map(|(place, value)| Step::Store(place, value)),
        ]
    }

    /// A machine whose Linux uses the unit, with its tail somewhere.
    fn booted(extended: bool, tail: u64) -> Model {
        let own = vec![0; OWN_SIZES[0] as usize / 8];
        let tables = copies::tests::booted();
        let mut model = Model { own, tables, ..Model::default() };
        for (offset, value) in
            [(CAPABILITY, 0x00d2_008c_222f_0606), (EXTENDED_CAPABILITY, 0x00f0_0f5au64)]
        {
            model.registers.insert(offset, value as u32);
            model.registers.insert(offset + 4, (value >> 32) as u32);
        }
        let table = LINUX_TABLE | 7 | if extended { remapping::EXTENDED } else { 0 };
        write_long(&mut model, REMAPPING_TABLE, table);
        assert!(command(&mut model, global::REMAPPING_TABLE, true));
        assert!(start_queue(&mut model, LINUX_QUEUE));
        assert!(command(&mut model, global::REMAPPING, true));
        assert!(command(&mut model, global::ROOT_TABLE, true));
        assert!(command(&mut model, global::TRANSLATION, true));
        for event in EVENTS {
            model.write(event, event::MASKED);
        }
        let wait = [0x25, LINUX_STATUS];
        for place in 0..256 {
            model.write_linux(PhysAddr::new(LINUX_QUEUE + 16 * place), &wait);
        }
        model.write(QUEUE_TAIL, (tail * 16) as u32);
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
        fn read(&mut self, offset: u64) -> u32 {
            match &self.unit {
                Some(unit) => unit.read(&mut self.model, offset),
                None => self.model.read(offset),
            }
        }

        fn write(&mut self, offset: u64, value: u32) {
            let Some(unit) = &mut self.unit else { return self.model.write(offset, value) };
            let mut progress = Progress::More;
            while progress == Progress::More {
                progress =
                    unit.write(&mut self.model, &mut self.copies, &self.cells, offset, value);
            }
            assert_eq!(progress, Progress::Done);
            if self.copies.has_unused() {
                assert!(unit.forget_translations(&mut self.model));
                self.copies.collect(&mut self.model.tables);
            }
        }

        fn read_all(&mut self) -> Vec<u32> {
            (0..0x100).step_by(4).map(|offset| self.read(offset)).collect()
        }

        /// Puts commands into the queue, and a wait behind.
        fn submit(&mut self, commands: &[[u64; 2]]) {
            self.waits += 1;
            let wait = [0x25 | self.waits << 32, LINUX_STATUS + 4];
            let mut tail = u64::from(self.read(QUEUE_TAIL));
            for words in commands.iter().chain([&wait]) {
                self.model.write_linux(PhysAddr::new(LINUX_QUEUE + tail), words);
                tail = (tail + 16) % 4096;
            }
            self.write(QUEUE_TAIL, tail as u32);
        }

        fn change(&mut self, number: u64, entry: u128) {
            let words = [entry as u64, (entry >> 64) as u64];
            self.model.write_linux(PhysAddr::new(LINUX_TABLE + 16 * number), &words);
        }

        fn do_step(&mut self, step: &Step) {
            match *step {
                Step::Entry(number, entry) => {
                    self.change(number, entry);
                    self.submit(&[[0x14 | number << 32, 0]]);
                }
                Step::Silent(number, entry) => self.change(number, entry),
                Step::Command(words) => self.submit(&[words]),
                Step::Register(offset, value) => self.write(offset, value),
                Step::Table => {
                    (0..ENTRIES).for_each(|number| self.change(number, 0));
                    let status = self.read(STATUS) & global::STATES;
                    self.write(COMMAND, status | global::REMAPPING_TABLE);
                    self.submit(&[[4, 0]]);
                }
                Step::Clear => {
                    let errors = self.read(FAULT_STATUS) & QUEUE_ERRORS;
                    let head = u64::from(self.read(QUEUE_HEAD));
                    self.model
                        .write_linux(PhysAddr::new(LINUX_QUEUE + head), &[0x25, LINUX_STATUS]);
                    self.write(FAULT_STATUS, errors);
                }
                Step::Root(root) => {
                    self.write(ROOT_TABLE, root as u32);
                    self.write(ROOT_TABLE + 4, (root >> 32) as u32);
                    let states = self.read(STATUS) & global::STATES;
                    self.write(COMMAND, states | global::ROOT_TABLE);
                }
                Step::Translation => {
                    let states = self.read(STATUS) & global::STATES;
                    self.write(COMMAND, states ^ TRANSLATION);
                }
                Step::Store(place, value) => {
                    self.model.tables.linux.insert(place, value);
                    if self.copies.is_watched(PhysAddr::new(place).align_down(PAGE)) {
                        self.copies.changed(&mut self.model.tables, PhysAddr::new(place));
                    }
                }
            }
        }
    }

    /// Two of the same machine, one of whose units is taken over.
    fn both(cells: &Cells, extended: bool, tail: u64) -> (Driver, Driver) {
        let model = booted(extended, tail);
        let driver = |model, unit, copies| {
            let copies = Box::new(copies);
            Driver { model, unit, copies, cells: cells.clone(), waits: 0 }
        };
        let native = driver(model.clone(), None, Copies::new(Kind::Second(4)));
        let mut model = model;
        let mut copies = Copies::new(Kind::Second(4));
        let unit = Unit::take(&mut model, &mut copies, cells, extended).unwrap();
        assert!(unit.confines_addresses());
        model.commands.clear();
        (native, driver(model, Some(unit), copies))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Linux finds the unit as it would be without the hypervisor, also afterwards, and no
        /// CPU of a cell is interrupted.
        #[test]
        fn linux_sees_its_unit_and_reaches_no_cell(
            cells in cells(),
            extended: bool,
            tail in 0u64..256,
            steps in prop::collection::vec(step(), 0..40),
            inputs in prop::collection::vec((0u16..2, copies::tests::input()), 4),
        ) {
            let (mut native, mut taken) = both(&cells, extended, tail);
            for step in &steps {
                native.do_step(step);
                taken.do_step(step);
                prop_assert_eq!(native.read_all(), taken.read_all(), "{:?}", step);
                prop_assert_eq!(native.model.word(LINUX_STATUS), taken.model.word(LINUX_STATUS));
                for (device, input) in &inputs {
                    let found = taken.model.translate(*device, *input);
                    prop_assert_eq!(found, native.model.translate(*device, *input), "{:?}", step);
                }
                for number in 0..ENTRIES {
                    let Some(interrupt) = taken.model.deliver(number) else { continue };
                    prop_assert!(interrupt.check(&cells).is_ok());
                    agrees(&interrupt, &cells)?;
                }
                for (event, offset) in EVENTS.into_iter().enumerate() {
                    let registers = [0, 4, 8, 12].map(|at| taken.model.read(offset + at));
                    if registers[0] & event::MASKED == 0 {
                        let [_, data, address, upper] = registers;
                        let sent = Interrupt::of_vtd_event(data, address, upper, extended);
                        prop_assert!(sent.is_ok_and(|sent| sent.check(&cells).is_ok()), "{}", event);
                    }
                }
            }
            // All that is harmless arrives, once Linux has told of it.
            while native.read(FAULT_STATUS) & QUEUE_ERRORS != 0 {
                native.do_step(&Step::Clear);
                taken.do_step(&Step::Clear);
            }
            native.submit(&[[4, 0]]);
            taken.submit(&[[4, 0]]);
            for number in 0..ENTRIES {
                let sent = native.model.deliver(number);
                let expected = sent.filter(|interrupt| interrupt.check(&cells).is_ok());
                prop_assert_eq!(taken.model.deliver(number), expected);
            }
            // Those about interrupts are more, and when tables change all is forgotten.
            let passed = |driver: &Driver| {
                let mut commands = driver.model.commands.clone();
                commands.retain(|[low, _]| {
                    low & 0xf != 4 && ![descriptor::CONTEXTS, descriptor::MAPPINGS].contains(low)
                });
                commands
            };
            prop_assert_eq!(passed(&native), passed(&taken));
            // As it was.
            let mut unit = taken.unit.take().unwrap();
            let before = taken.model.memory.clone();
            prop_assert!(unit.give_back(&mut taken.model, &mut taken.copies));
            taken.copies.collect(&mut taken.model.tables);
            prop_assert!(taken.copies.is_empty());
            prop_assert!(taken.model.tables.is_left_alone());
            prop_assert_eq!(&before, &taken.model.memory);
            prop_assert_eq!(native.read_all(), taken.read_all());
            native.submit(&[[4, 0]]);
            taken.submit(&[[4, 0]]);
            prop_assert_eq!(native.read_all(), taken.read_all());
            for number in 0..ENTRIES {
                prop_assert_eq!(taken.model.deliver(number), native.model.deliver(number));
            }
            for (device, input) in &inputs {
                let found = taken.model.translate(*device, *input);
                prop_assert_eq!(found, native.model.translate(*device, *input));
            }
        }

        /// Whatever Linux writes where, nothing but its memory is touched, and no CPU of a cell is
        /// interrupted.
        #[test]
        fn hostile_accesses_do_no_harm(
            cells in cells(),
            writes in prop::collection::vec((0u64..0x100, value()), 0..60),
            entries in prop::collection::vec((0..ENTRIES, entry()), 0..20),
        ) {
            let (_, mut taken) = both(&cells, true, 3);
            for (number, entry) in entries {
                taken.change(number, entry);
            }
            let Driver { model, unit: Some(unit), copies, .. } = &mut taken else { panic!() };
            for (offset, value) in writes {
                // As often as a CPU would be stopped there.
                for _ in 0..8 {
                    if unit.write(model, copies, &cells, offset & !3, value) != Progress::More {
                        break;
                    }
                }
                unit.read(model, offset & !3);
                let status = model.register(COMMAND) >> 32;
                let on = u64::from(global::QUEUE | global::REMAPPING | TRANSLATION);
                prop_assert!(model.tables.has_frame(model.root));
                prop_assert_eq!(status & on, on);
                prop_assert_eq!(status & u64::from(global::COMPATIBILITY), 0);
                prop_assert_eq!(model.table & ADDRESS, OWN);
                for number in 0..ENTRIES {
                    let Some(interrupt) = model.deliver(number) else { continue };
                    prop_assert!(interrupt.check(&cells).is_ok());
                }
            }
        }
    }

    #[test]
    fn a_cpu_that_becomes_a_cells_is_not_interrupted_any_more() {
        let nobody = Cells { cpus: BTreeMap::new(), clustered: false };
        let three = Cells { cpus: [(3, vec![])].into(), clustered: false };
        let (_, mut taken) = both(&nobody, true, 0);
        taken.do_step(&Step::Entry(7, 1 | 0x61 << 16 | 3 << 32));
        taken.do_step(&Step::Register(0x3c, 0x62));
        taken.do_step(&Step::Register(0x40, 0xfee0_3000));
        taken.do_step(&Step::Register(0x38, 0));
        let Driver { model, unit: Some(unit), .. } = &mut taken else { panic!() };
        assert!(model.deliver(7).is_some());
        assert_eq!(model.read(0x38), 0);
        assert!(unit.owners_changed(model, &three));
        assert_eq!(model.deliver(7), None);
        assert_eq!(model.read(0x38), event::MASKED);
        assert_eq!(unit.refused(), 2);
        assert!(unit.owners_changed(model, &nobody));
        assert!(model.deliver(7).is_some());
        assert_eq!(model.read(0x38), 0);
    }

    #[test]
    fn messages_of_functions_of_cells_are_the_hypervisors() {
        let three = Cells { cpus: [(3, vec![])].into(), clustered: false };
        let (_, mut taken) = both(&three, true, 0);
        let interrupt = Interrupt::of_cell(ApicId(3), 0x61, true);
        let Driver { model, unit: Some(unit), .. } = &mut taken else { panic!() };
        // The number that hardware makes of address and data (VT-d 5.1.2.2).
        let entry = |place, data: u64| {
            let address = u64::from(message_address(place));
            assert_eq!(address & 0xfff0_0018, 0xfee0_0018);
            (address >> 5 & 0x7fff | (address >> 2 & 1) << 15) + data
        };
        assert_eq!(entry(MAX_DEVICES - 1, MESSAGES - 1), FIRST_LINE - 1);
        assert!(unit.set_message(model, Requester(0x310), 5, 7, Some(interrupt)));
        assert_eq!(model.deliver(entry(5, 7)), Some(interrupt));
        assert_eq!(model.deliver(entry(5, 6)), None);
        let low = model.own_word(entry(5, 7) * ENTRY + 8);
        assert_eq!(low, 1 << 18 | 0x310);
        // Linux looks at all of its entries again, and changes owners.
        assert!(unit.owners_changed(model, &three));
        unit.copy(model, &three, 0..TABLE_ENTRIES);
        assert_eq!(model.deliver(entry(5, 7)), Some(interrupt));
        assert!(unit.set_message(model, Requester(0x310), 5, 7, None));
        assert_eq!(model.deliver(entry(5, 7)), None);
        assert!(unit.set_message(model, Requester(0x310), 5, 7, Some(interrupt)));
        assert!(unit.silence(model, 5));
        assert_eq!(model.deliver(entry(5, 7)), None);
    }

    #[test]
    fn all_of_a_domain_is_forgotten() {
        let capability = Capability(0);
        let extended = ExtendedCapability(0);
        let mode = Mode { capability, extended, wide: true, scalable: true };
        let decode = |low| mode.decode([low | 0xfff3 << 16, 0, 0, 0]).expect("a descriptor");
        let domain = DomainId(0xfff3);
        assert_eq!(decode(descriptor::OF_DOMAIN), Effect::Mappings(Some(domain), None));
        let of_process = Effect::ProcessMappings(domain, 0, None);
        assert_eq!(decode(descriptor::OF_PROCESS), of_process);
        let nobody = Cells { cpus: BTreeMap::new(), clustered: false };
        let (_, mut taken) = both(&nobody, true, 0);
        let Driver { model, unit: Some(unit), .. } = &mut taken else { panic!() };
        assert!(unit.forget_domain(model, domain));
    }

    #[test]
    fn lines_of_cells_are_the_hypervisors() {
        let three = Cells { cpus: [(3, vec![])].into(), clustered: false };
        let (_, mut taken) = both(&three, true, 0);
        let interrupt = Interrupt::of_cell(ApicId(3), 0x61, true);
        let io_apic = Requester(0xf0f8);
        let Driver { model, unit: Some(unit), .. } = &mut taken else { panic!() };
        let number = u64::from(line_number(MAX_LINES - 1));
        assert_eq!(number, TABLE_ENTRIES - 1);
        assert!(is_own(line_number(0)) && is_own(FIRST_OWN as u16));
        assert!(!is_own(FIRST_OWN as u16 - 1));
        assert!(unit.set_line(model, io_apic, MAX_LINES - 1, Some(interrupt), true));
        assert_eq!(model.deliver(number), Some(interrupt));
        assert_eq!(model.deliver(number - 1), None);
        assert_eq!(model.own_word(number * ENTRY + 8), 1 << 18 | 0xf0f8);
        // By a level.
        assert_eq!(model.own_word(number * ENTRY) & 1 << 4, 1 << 4);
        assert!(unit.owners_changed(model, &three));
        unit.copy(model, &three, 0..TABLE_ENTRIES);
        assert!(unit.silence(model, MAX_DEVICES - 1));
        assert_eq!(model.deliver(number), Some(interrupt));
        assert!(unit.set_line(model, io_apic, MAX_LINES - 1, None, true));
        assert_eq!(model.deliver(number), None);
    }

    #[test]
    fn a_table_in_the_other_format_reaches_nobody() {
        let nobody = Cells { cpus: BTreeMap::new(), clustered: false };
        for extended in [false, true] {
            let (_, mut taken) = both(&nobody, extended, 0);
            taken.do_step(&Step::Entry(7, 1 | 0x61 << 16 | 3 << 32));
            let reached = taken.model.deliver(7).is_some();
            assert_eq!(reached, extended);
            taken.do_step(&Step::Entry(7, 1 | 0x61 << 16 | 3 << 40));
            let table = u64::from(taken.read(REMAPPING_TABLE)) ^ remapping::EXTENDED;
            taken.write(REMAPPING_TABLE, table as u32);
            let states = taken.read(STATUS) & global::STATES;
            taken.write(COMMAND, states | global::REMAPPING_TABLE);
            assert_eq!(taken.model.deliver(7), None);
        }
    }

    #[test]
    fn many_commands_are_carried_out_in_pieces() {
        let nobody = Cells { cpus: BTreeMap::new(), clustered: false };
        let (_, mut taken) = both(&nobody, true, 0);
        let Driver { model, unit: Some(unit), copies, .. } = &mut taken else { panic!() };
        let mut pieces = 1;
        while unit.write(model, copies, &nobody, QUEUE_TAIL, 255 * 16) == Progress::More {
            pieces += 1;
        }
        assert_eq!(pieces, 4);
        assert_eq!(model.word(LINUX_STATUS), 0);
        assert_eq!(unit.read(model, QUEUE_HEAD), 255 * 16);
    }

    #[test]
    fn a_unit_that_does_not_remap_interrupts_confines_addresses() {
        let nobody = Cells { cpus: BTreeMap::new(), clustered: false };
        let mut model = booted(false, 5);
        command(&mut model, global::REMAPPING, false);
        let registers = [STATUS, ROOT_TABLE, REMAPPING_TABLE, QUEUE_ADDRESS];
        let before = registers.map(|register| model.read(register));
        let mut copies = Copies::new(Kind::Second(4));
        let mut unit = Unit::take(&mut model, &mut copies, &nobody, false).unwrap();
        assert!(unit.confines_addresses() && !unit.confines_interrupts());
        assert_ne!(model.read(ROOT_TABLE), before[1]);
        // Messages go on as they do, whatever Linux says later.
        let states = before[0] & global::STATES;
        for command in [states | global::REMAPPING, states | global::COMPATIBILITY, states] {
            assert_eq!(model.read(STATUS), before[0]);
            unit.write(&mut model, &mut copies, &nobody, COMMAND, command);
        }
        // Functions of cells need entries.
        assert!(!unit.set_message(&mut model, Requester(8), 0, 0, None));
        assert!(unit.give_back(&mut model, &mut copies));
        assert_eq!(registers.map(|register| model.read(register)), before);
    }

    #[test]
    fn the_status_tells_of_tables_that_linux_has_set() {
        let nobody = Cells { cpus: BTreeMap::new(), clustered: false };
        let mut model = booted(true, 5);
        let before = model.read(STATUS) & !(TRANSLATION | global::ROOT_TABLE);
        model.registers.insert(STATUS, before);
        let mut copies = Copies::new(Kind::Second(4));
        let mut unit = Unit::take(&mut model, &mut copies, &nobody, true).unwrap();
        assert_eq!(unit.read(&mut model, STATUS), before);
        let command = before & global::STATES | global::ROOT_TABLE;
        unit.write(&mut model, &mut copies, &nobody, COMMAND, command);
        assert_eq!(unit.read(&mut model, STATUS), before | global::ROOT_TABLE);
    }

    #[test]
    fn a_unit_that_linux_does_not_use_or_that_hangs_stays_with_it() {
        let nobody = Cells { cpus: BTreeMap::new(), clustered: false };
        let take =
            |model: &mut Model| Unit::take(model, &mut Copies::new(Kind::Second(4)), &nobody, true);
        let mut model = booted(true, 5);
        command(&mut model, global::QUEUE, false);
        assert_eq!(take(&mut model).unwrap_err(), Unfit::Unused);
        let mut model = booted(true, 5);
        model.registers.insert(FAULT_STATUS, fault::TIME_OUT);
        assert_eq!(take(&mut model).unwrap_err(), Unfit::Broken);
        let mut model = booted(true, 5);
        model.hangs = true;
        let before = model.registers.clone();
        assert_eq!(take(&mut model).unwrap_err(), Unfit::Stuck);
        assert_eq!(model.registers, before);
        let mut model = booted(true, 5);
        model.registers.insert(EXTENDED_CAPABILITY, 0);
        assert_eq!(take(&mut model).unwrap_err(), Unfit::Incapable);
    }
}
